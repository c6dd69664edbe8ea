//! What a client does: messages, streams, and how two tasks are compared.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use a2a::{StreamResponse, Task, TaskState};
use relevo_loadtest::client::{Client, EventStream, Outgoing, StreamEvent};
use relevo_loadtest::expect::Expect;
use relevo_loadtest::settings::Mode;
use relevo_loadtest::turn::{self, Done, Failure, Manner, Order};
use relevo_loadtest::verify::check_task;
use relevo_testkit::schema;
use serde_json::Value;
use tokio::time::Instant;

/// Far beyond what any turn here takes.
pub const LIMIT: Duration = Duration::from_mins(2);

/// Judges what came by the schemas of the protocol; what is no JSON is no answer, and the client's to tell.
pub fn judge(method: &str, body: &[u8]) {
    if let Ok(value) = serde_json::from_slice(body) {
        schema::judge_envelope(&value, schema::of_method(method));
    }
}

static MESSAGES: AtomicU64 = AtomicU64::new(1);

pub fn message_id() -> String {
    format!("m-{}", MESSAGES.fetch_add(1, Ordering::Relaxed))
}

/// A turn to be sent and checked.
#[derive(Clone)]
pub struct Say {
    pub at: usize,
    pub context: String,
    pub task: Option<String>,
    pub text: String,
    pub mode: Mode,
    pub resume: bool,
}

impl Say {
    pub fn new(context: &str, text: &str) -> Self {
        Self {
            at: 0,
            context: context.to_owned(),
            task: None,
            text: text.to_owned(),
            mode: Mode::Stream,
            resume: true,
        }
    }

    pub fn at(mut self, at: usize) -> Self {
        self.at = at;
        self
    }

    pub fn blocking(mut self) -> Self {
        self.mode = Mode::Send;
        self
    }

    pub fn task(mut self, task: &str) -> Self {
        self.task = Some(task.to_owned());
        self
    }

    pub fn expect(&self) -> Expect {
        Expect::of(&self.text).unwrap()
    }

    /// Follows the turn to its end, checking its stream.
    pub async fn run(&self, client: &Client) -> Result<Done, Failure> {
        let (message_id, expect) = (message_id(), self.expect());
        let message = Outgoing {
            message_id: &message_id,
            context: &self.context,
            task: self.task.as_deref(),
            text: &self.text,
        };
        let manner = Manner {
            mode: self.mode,
            resume: self.resume,
            limit: LIMIT,
        };
        let order = Order {
            at: self.at,
            message,
            expect: Some(&expect),
            intended: Instant::now(),
        };
        turn::run(client, manner, order).await
    }

    /// [`Say::run`], and nothing may be wrong with it or with the task that it leaves.
    pub async fn checked(&self, client: &Client) -> (Done, Task) {
        let done = self
            .run(client)
            .await
            .unwrap_or_else(|failure| panic!("{}: {failure:?}", self.text));
        assert_eq!(done.violations, [], "{}", self.text);
        // At another address than the one that told the end, if it still stands.
        let task = turn::read_task(client, done.at + 1, &done.task, LIMIT).await.unwrap();
        assert_eq!(check_task(&task, &self.context, &[self.expect()]), [], "{task:#?}");
        (done, task)
    }

    /// Opens the stream and leaves it to the caller.
    pub async fn open(&self, client: &Client) -> (EventStream, StreamEvent) {
        let message_id = message_id();
        let message = Outgoing {
            message_id: &message_id,
            context: &self.context,
            task: self.task.as_deref(),
            text: &self.text,
        };
        let mut stream = client.stream(self.at, &message).await.unwrap();
        let first = stream.next().await.unwrap().unwrap();
        (stream, first)
    }

    /// Sends it without waiting for its end; returns the task.
    pub async fn begin(&self, client: &Client) -> Task {
        let message_id = message_id();
        let message = Outgoing {
            message_id: &message_id,
            context: &self.context,
            task: self.task.as_deref(),
            text: &self.text,
        };
        let mut params = message.params();
        params["configuration"] = serde_json::json!({ "returnImmediately": true });
        let answer: Value = client.call(self.at, "SendMessage", &params).await.unwrap();
        serde_json::from_value(answer["task"].clone()).unwrap()
    }
}

/// The rest of a stream, which must end in good order.
pub async fn rest(stream: &mut EventStream) -> Vec<StreamEvent> {
    let mut events = Vec::new();
    while let Some(event) = stream.next().await.unwrap() {
        events.push(event);
    }
    events
}

/// The task that an opening event shows.
pub fn task_of(event: &StreamEvent) -> Task {
    match &event.event {
        StreamResponse::Task(task) => task.clone(),
        other => panic!("not a task: {other:?}"),
    }
}

/// What an agent says in an event.
pub fn texts(event: &StreamResponse) -> Vec<String> {
    let parts = match event {
        StreamResponse::StatusUpdate(update) => update.status.message.as_ref().map(|message| &message.parts),
        StreamResponse::ArtifactUpdate(update) => Some(&update.artifact.parts),
        StreamResponse::Message(message) => Some(&message.parts),
        StreamResponse::Task(_) => None,
    };
    parts
        .into_iter()
        .flatten()
        .filter_map(|part| part.as_text().map(str::to_owned))
        .collect()
}

/// Where to go on after each event.
pub fn ids(events: &[StreamEvent]) -> Vec<String> {
    events.iter().map(|event| event.id.clone().unwrap()).collect()
}

/// The state that an event tells.
pub fn state_of(event: &StreamResponse) -> Option<TaskState> {
    match event {
        StreamResponse::Task(task) => Some(task.status.state.clone()),
        StreamResponse::StatusUpdate(update) => Some(update.status.state.clone()),
        StreamResponse::Message(_) | StreamResponse::ArtifactUpdate(_) => None,
    }
}

/// A task without what no two runs have in common: ids, times and nonces.
pub fn without_ids(task: &Task, nonce: &str) -> Value {
    fn strip(value: &mut Value, nonce: &str) {
        match value {
            Value::Object(fields) => {
                for id in ["id", "taskId", "contextId", "messageId", "artifactId", "timestamp"] {
                    if let Some(value) = fields.get_mut(id) {
                        *value = Value::from("*");
                    }
                }
                fields.values_mut().for_each(|value| strip(value, nonce));
            }
            Value::Array(values) => values.iter_mut().for_each(|value| strip(value, nonce)),
            Value::String(text) => *text = text.replace(nonce, "*"),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    let mut value = serde_json::to_value(task).unwrap();
    strip(&mut value, nonce);
    value
}
