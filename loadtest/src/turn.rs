//! One turn on the wire: sent, followed to its end, resumed where its stream broke, and checked.
//!
//! Called by [`crate::driver`] and by the tests of the cluster.

use std::time::Duration;

use a2a::{StreamResponse, Task, TaskState};
use tokio::time::Instant;

use crate::client::{CallError, Client, EventStream, Outgoing, StreamEvent};
use crate::expect::Expect;
use crate::settings::Mode;
use crate::verify::{StreamCheck, Violation, is_end};

/// The first wait before an address is tried again, and the longest.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How often a stream may be resumed in a row without an event.
const FRUITLESS: u32 = 30;

/// How turns are carried out.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// Blocking or streamed.
    pub mode: Mode,
    /// Whether broken streams are resumed.
    pub resume: bool,
    /// When a turn is given up.
    pub limit: Duration,
}

/// A turn to be carried out.
#[derive(Debug, Clone, Copy)]
pub struct Order<'a> {
    /// Which address it begins at.
    pub at: usize,
    /// The message.
    pub message: Outgoing<'a>,
    /// What must come; `None`: nothing is checked.
    pub expect: Option<&'a Expect>,
    /// When it should have begun: latency counts from here.
    pub intended: Instant,
}

/// A turn that has ended.
#[derive(Debug, Clone, Default)]
pub struct Done {
    /// Its task.
    pub task: String,
    /// The state of the task.
    pub state: TaskState,
    /// From the intended beginning to the first event of the stream.
    pub first_event: Option<Duration>,
    /// From the intended beginning to the end.
    pub took: Duration,
    /// How often its stream was resumed.
    pub resumes: u32,
    /// How many attempts were announced void.
    pub boundaries: u32,
    /// What was wrong with its stream.
    pub violations: Vec<Violation>,
    /// The address that told the end.
    pub at: usize,
}

/// A turn that has not ended, as far as this client knows.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The label in reports.
    pub kind: String,
    /// For people.
    pub detail: String,
    /// Whether it was refused for now, and nothing was begun.
    pub refused: bool,
    /// How often its stream was resumed.
    pub resumes: u32,
}

impl Failure {
    fn of(error: &CallError) -> Self {
        let cause = std::error::Error::source(error)
            .map(|source| format!(": {source}"))
            .unwrap_or_default();
        Self {
            kind: error.kind(),
            detail: format!("{error}{cause}"),
            refused: error.is_refusal(),
            resumes: 0,
        }
    }

    fn new(kind: &str, detail: impl Into<String>) -> Self {
        Self {
            kind: kind.to_owned(),
            detail: detail.into(),
            refused: false,
            resumes: 0,
        }
    }
}

/// Carries out a turn.
///
/// # Errors
/// [`Failure`]: it was refused, or its end was not seen.
pub async fn run(client: &Client, manner: Manner, order: Order<'_>) -> Result<Done, Failure> {
    let mut following = Following::new(client, manner, order);
    let carried = async {
        match manner.mode {
            Mode::Send => following.send().await,
            Mode::Stream => following.stream().await,
        }
    };
    let carried = tokio::time::timeout(manner.limit, carried).await;
    let over = match carried {
        Ok(over) => over,
        Err(_) => Err(Failure::new(
            "timeout",
            format!("task {} is {:?}", following.done.task, following.done.state),
        )),
    };
    over.map_err(|failure| Failure {
        resumes: following.done.resumes,
        ..failure
    })?;
    Ok(following.finish())
}

/// Reads a task at any address that answers.
///
/// # Errors
/// [`Failure`]: none did within `limit`, or there is no such task.
pub async fn read_task(client: &Client, at: usize, task: &str, limit: Duration) -> Result<Task, Failure> {
    let mut pause = Pause::default();
    let read = async {
        for at in at.. {
            match client.get(at, task).await {
                Err(error) if is_passing(&error) => pause.wait().await,
                answer => return answer,
            }
        }
        Err(CallError::Silent(limit))
    };
    match tokio::time::timeout(limit, read).await {
        Ok(answer) => answer.map_err(|error| Failure::of(&error)),
        Err(_) => Err(Failure::new("timeout", format!("task {task} could not be read"))),
    }
}

/// Whether another address, or the same one later, may answer.
fn is_passing(error: &CallError) -> bool {
    match error {
        CallError::Connect(_) | CallError::Broken(_) | CallError::Silent(_) | CallError::Overload { .. } => true,
        CallError::Rpc(_) | CallError::Foreign(_) => false,
    }
}

#[derive(Debug, Default)]
struct Pause(u32);

impl Pause {
    async fn wait(&mut self) {
        tokio::time::sleep(PAUSE.saturating_mul(1 << self.0.min(8)).min(LONGEST_PAUSE)).await;
        self.0 += 1;
    }
}

struct Following<'a> {
    client: &'a Client,
    manner: Manner,
    order: Order<'a>,
    check: Option<StreamCheck>,
    cursor: Option<String>,
    done: Done,
}

impl<'a> Following<'a> {
    fn new(client: &'a Client, manner: Manner, order: Order<'a>) -> Self {
        let streamed = manner.mode == Mode::Stream;
        let expect = order.expect.filter(|_| streamed);
        Self {
            client,
            manner,
            order,
            check: expect.map(|expect| StreamCheck::new(expect.clone(), order.message.context)),
            cursor: None,
            done: Done {
                at: order.at,
                ..Done::default()
            },
        }
    }

    async fn send(&mut self) -> Result<(), Failure> {
        let answer = self.client.send(self.done.at, &self.order.message).await;
        let mut task = answer.map_err(|error| Failure::of(&error))?;
        // A gateway that stops answers with the task as it stands; so does one whose patience is over.
        while !is_end(&task.status.state) {
            tokio::time::sleep(PAUSE).await;
            self.done.at += 1;
            task = read_task(self.client, self.done.at, &task.id, self.manner.limit).await?;
        }
        self.done.took = self.order.intended.elapsed();
        self.done.state = task.status.state;
        self.done.task = task.id;
        Ok(())
    }

    async fn stream(&mut self) -> Result<(), Failure> {
        let mut stream = self
            .client
            .stream(self.done.at, &self.order.message)
            .await
            .map_err(|e| Failure::of(&e))?;
        let mut fruitless = 0;
        loop {
            let broken = match stream.next().await {
                Ok(Some(event)) => {
                    fruitless = 0;
                    self.heard(&event);
                    continue;
                }
                Ok(None) => None,
                Err(error) => Some(error),
            };
            if is_end(&self.done.state) {
                return Ok(());
            }
            let failure = match &broken {
                Some(error) if !is_passing(error) => return Err(Failure::of(error)),
                Some(error) => Failure::of(error),
                None => Failure::new(
                    "cut",
                    format!("a stream ended while its turn was {:?}", self.done.state),
                ),
            };
            fruitless += 1;
            if !self.manner.resume || self.cursor.is_none() || fruitless > FRUITLESS {
                return Err(failure);
            }
            if fruitless > 1 {
                tokio::time::sleep(PAUSE).await;
            }
            stream = self.resume().await?;
            self.done.resumes += 1;
        }
    }

    async fn resume(&mut self) -> Result<EventStream, Failure> {
        let mut pause = Pause::default();
        loop {
            self.done.at += 1;
            match self
                .client
                .subscribe(self.done.at, &self.done.task, self.cursor.as_deref())
                .await
            {
                Ok(stream) => return Ok(stream),
                Err(error) if is_passing(&error) => pause.wait().await,
                Err(error) => return Err(Failure::of(&error)),
            }
        }
    }

    fn heard(&mut self, event: &StreamEvent) {
        let since = self.order.intended.elapsed();
        self.done.first_event.get_or_insert(since);
        if let Some(check) = &mut self.check {
            check.event(event.id.as_deref(), &event.event);
        }
        if let Some(id) = &event.id {
            self.cursor = Some(id.clone());
        }
        let state = match &event.event {
            StreamResponse::Task(task) => {
                self.done.task.clone_from(&task.id);
                &task.status.state
            }
            StreamResponse::StatusUpdate(update) => &update.status.state,
            StreamResponse::Message(_) | StreamResponse::ArtifactUpdate(_) => return,
        };
        self.done.state = state.clone();
        self.done.took = since;
    }

    fn finish(self) -> Done {
        let mut done = self.done;
        if let Some(check) = self.check {
            done.boundaries = check.boundaries();
            done.violations = check.finish();
        }
        done
    }
}
