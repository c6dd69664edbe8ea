//! Every operation on every binding: the results are the same but for ids and times.

use relevo_shared::domain::state::End;
use serde_json::{Value, json};

use crate::binding::{ALL, Binding, Caller, Feed, Names, Outcome};
use crate::client::message_in;
use crate::gateway::{World, world};

/// What one binding answered, step by step.
struct Story<'a> {
    caller: Caller,
    world: &'a World,
    names: Names,
    steps: Vec<(String, Value)>,
    tenant: String,
}

impl<'a> Story<'a> {
    fn new(binding: Binding, world: &'a World) -> Self {
        Self {
            caller: Caller::new(binding, &world.gateway),
            world,
            names: Names::default(),
            steps: Vec::new(),
            tenant: format!("tenant {binding:?}"),
        }
    }

    fn note(&mut self, step: impl Into<String>, value: Value) {
        let value = self.names.replace(value);
        self.steps.push((step.into(), value));
    }

    fn note_outcome(&mut self, step: impl Into<String>, outcome: Outcome) {
        let value = outcome.unwrap_or_else(|refusal| json!({ "refused": refusal.message, "details": refusal.details }));
        self.note(step, value);
    }

    fn in_tenant(&self, mut params: Value) -> Value {
        params["tenant"] = self.tenant.clone().into();
        params
    }

    /// Calls and notes what came.
    async fn ask(&mut self, step: &str, method: &str, params: Value) -> Value {
        let outcome = self.caller.call(method, self.in_tenant(params)).await;
        let value = outcome.clone().unwrap_or_default();
        self.note_outcome(format!("{step} ({method})"), outcome);
        value
    }

    async fn open(&mut self, method: &str, params: Value, cursor: Option<&str>) -> Feed {
        let opened = self.caller.open(method, self.in_tenant(params), cursor).await;
        opened.unwrap_or_else(|refusal| panic!("{method}: {refusal:?}"))
    }

    async fn refused_stream(&mut self, step: &str, method: &str, params: Value, cursor: Option<&str>) {
        let opened = self.caller.open(method, self.in_tenant(params), cursor).await;
        let refusal = opened.err().expect("it is refused");
        self.note_outcome(format!("{step} ({method})"), Err(refusal));
    }

    fn note_events(&mut self, step: &str, events: Vec<(Value, String)>) {
        for (event, cursor) in events {
            self.note(step, json!({ "event": event, "at": cursor }));
        }
    }
}

fn id_of(task: &Value) -> String {
    task["id"].as_str().unwrap().to_owned()
}

/// A task that runs to its end under a stream, is looked at from all sides, and cannot be used any more.
async fn a_task_that_completes(story: &mut Story<'_>) -> String {
    let mut stream = story.open("SendStreamingMessage", message_in("c:1", "hi"), None).await;
    let (first, cursor) = stream.next().await.unwrap();
    let task = id_of(&first["task"]);
    story.note("first event", first);
    let mut turn = story.world.hand.take().await;
    turn.say("one").await;
    let mut subscription = story.open("SubscribeToTask", json!({ "id": task }), None).await;
    let snapshot = subscription.next().await.unwrap();
    story.note_events("snapshot", vec![snapshot]);
    story
        .ask("a working task", "SendMessage", with_task("c:1", &task))
        .await;
    turn.finish(End::Completed, "two").await;
    let events = stream.rest().await;
    story.note_events("streamed", events);
    let events = subscription.rest().await;
    story.note_events("subscribed", events);
    let mut resumed = story
        .open("SubscribeToTask", json!({ "id": task }), Some(&cursor))
        .await;
    let events = resumed.rest().await;
    story.note_events("resumed", events);
    story.ask("whole", "GetTask", json!({ "id": task })).await;
    for length in [0, 1] {
        story
            .ask("part", "GetTask", json!({ "id": task, "historyLength": length }))
            .await;
    }
    story.ask("ended", "CancelTask", json!({ "id": task })).await;
    story.ask("ended", "SendMessage", with_task("c:1", &task)).await;
    story
        .refused_stream("ended", "SubscribeToTask", json!({ "id": task }), None)
        .await;
    story
        .refused_stream("bad position", "SubscribeToTask", json!({ "id": task }), Some("x"))
        .await;
    task
}

fn with_task(context: &str, task: &str) -> Value {
    let mut params = message_in(context, "more");
    params["message"]["taskId"] = task.into();
    params
}

/// Calls that wait, that do not, and one that is canceled.
async fn the_other_ways_to_send(story: &mut Story<'_>) {
    let mut params = message_in("c:2", "quick");
    params["configuration"] = json!({ "returnImmediately": true, "historyLength": 0 });
    params["metadata"] = json!({ "n": 1.5, "whole": 1, "large": 9_000_000_000_i64, "deep": [{ "x": null, "y": -3 }] });
    params["message"]["parts"] = json!([
        { "text": "" },
        { "raw": "AP/+", "mediaType": "image/png", "filename": "a.png" },
        { "url": "https://example.com/x" },
        { "data": { "a": [true, null, "x", 7, 0] }, "metadata": { "k": "v", "n": 2 } },
    ]);
    let sent = story.ask("immediate", "SendMessage", params).await;
    let task = id_of(&sent["task"]);
    story.ask("parts", "GetTask", json!({ "id": task })).await;
    story.ask("queued", "CancelTask", json!({ "id": task })).await;
    let params = story.in_tenant(message_in("c:3", "wait"));
    let (sent, ()) = tokio::join!(story.caller.call("SendMessage", params), async {
        story.world.hand.take().await.finish(End::InputRequired, "what?").await;
    });
    let task = id_of(&sent.as_ref().unwrap()["task"]);
    story.note_outcome("blocking", sent);
    let mut stream = story.open("SendStreamingMessage", with_task("c:3", &task), None).await;
    story.world.hand.take().await.finish(End::Failed, "no").await;
    let events = stream.rest().await;
    story.note_events("follow-up", events);
}

async fn the_listings(story: &mut Story<'_>) {
    for params in [
        json!({}),
        json!({ "contextId": "c:1", "includeArtifacts": true, "historyLength": 5 }),
        json!({ "status": "TASK_STATE_CANCELED" }),
        json!({ "contextId": "c:none" }),
    ] {
        story.ask("listing", "ListTasks", params).await;
    }
    let first = story.ask("page 1", "ListTasks", json!({ "pageSize": 2 })).await;
    let token = first["nextPageToken"].clone();
    assert_ne!(token, "");
    // The token names a task of this binding only.
    let last = story.steps.last_mut().unwrap();
    last.1["nextPageToken"] = "<token>".into();
    story
        .ask("page 2", "ListTasks", json!({ "pageSize": 2, "pageToken": token }))
        .await;
}

async fn the_refusals(story: &mut Story<'_>, task: &str) {
    let unknown = json!({ "id": "a:b:c" });
    for method in ["GetTask", "CancelTask"] {
        story.ask("unknown", method, unknown.clone()).await;
    }
    story.refused_stream("unknown", "SubscribeToTask", unknown, None).await;
    for params in [
        json!({ "pageSize": 0 }),
        json!({ "pageSize": 101 }),
        json!({ "historyLength": -1 }),
        json!({ "contextId": "a b" }),
        json!({ "pageToken": "x" }),
    ] {
        story.ask("wrong", "ListTasks", params).await;
    }
    for (name, value) in [
        ("messageId", json!("a\u{1}b")),
        ("parts", json!([])),
        ("contextId", json!("a/b")),
        ("taskId", json!("nothing")),
        ("metadata", json!({ "iac_code_api_key": "x" })),
    ] {
        let mut params = message_in("c:4", "hi");
        params["message"][name] = value;
        story.ask("wrong", "SendMessage", params.clone()).await;
        story
            .refused_stream("wrong", "SendStreamingMessage", params, None)
            .await;
    }
    let mut push = message_in("c:4", "hi");
    push["configuration"]["taskPushNotificationConfig"] = json!({ "url": "https://example.com/hook" });
    story.ask("push", "SendMessage", push).await;
    let config = json!({ "taskId": task, "id": "c", "url": "https://example.com/hook" });
    story.ask("push", "CreateTaskPushNotificationConfig", config).await;
    for method in ["GetTaskPushNotificationConfig", "DeleteTaskPushNotificationConfig"] {
        story.ask("push", method, json!({ "taskId": task, "id": "c" })).await;
    }
    story
        .ask("push", "ListTaskPushNotificationConfigs", json!({ "taskId": task }))
        .await;
    story.ask("card", "GetExtendedAgentCard", json!({})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_bindings_tell_the_same_story() {
    let world = world(&[]).await;
    let mut first: Option<Vec<(String, Value)>> = None;
    for binding in ALL {
        let mut story = Story::new(binding, &world);
        let task = a_task_that_completes(&mut story).await;
        the_other_ways_to_send(&mut story).await;
        the_listings(&mut story).await;
        the_refusals(&mut story, &task).await;
        let Some(first) = &first else {
            first = Some(story.steps);
            continue;
        };
        for (expected, found) in first.iter().zip(&story.steps) {
            assert_eq!(found, expected, "{binding:?}");
        }
        assert_eq!(first.len(), story.steps.len(), "{binding:?}");
    }
}

/// A keyed message with numbers is the same request on every binding.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_one_binding_is_good_on_the_others() {
    let world = world(&[]).await;
    let mut params = message_in("keyed", "hi");
    params["configuration"] = json!({ "returnImmediately": true });
    params["message"]["parts"] = json!([{ "data": { "n": 1, "f": 2.0, "x": 0.5 } }]);
    params["metadata"] = json!({ "n": 3, "urn:relevo:a2a:idempotency:v1": { "key": "one-key-for-all-bindings" } });
    let mut tasks = Vec::new();
    for binding in ALL {
        let sent = Caller::new(binding, &world.gateway)
            .result("SendMessage", params.clone())
            .await;
        tasks.push(id_of(&sent["task"]));
    }
    tasks.dedup();
    assert_eq!(tasks.len(), 1, "{tasks:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_number_of_grpc_is_one_for_everyone() {
    let world = world(&[]).await;
    let mut params = message_in("numbers", "hi");
    params["configuration"] = json!({ "returnImmediately": true });
    let data = json!({ "n": 1, "list": [-3, 0.5, 9_000_000_000_i64] });
    params["message"]["parts"] = json!([{ "data": data }]);
    let sent = Caller::new(Binding::Grpc, &world.gateway)
        .result("SendMessage", params)
        .await;
    for binding in [Binding::JsonRpc, Binding::Rest] {
        let reader = Caller::new(binding, &world.gateway);
        let read = reader.result("GetTask", json!({ "id": id_of(&sent["task"]) })).await;
        assert_eq!(read["history"][0]["parts"][0]["data"], data, "{binding:?}");
    }
}

/// A task of one binding is the same task on the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_seen_alike_on_every_binding() {
    let world = world(&[]).await;
    for sender in ALL {
        let mut params = message_in("shared", "hi");
        params["configuration"] = json!({ "returnImmediately": true });
        let sent = Caller::new(sender, &world.gateway).result("SendMessage", params).await;
        let task = id_of(&sent["task"]);
        world.hand.take().await.finish(End::Completed, "done").await;
        let reader = |binding| Caller::new(binding, &world.gateway);
        let expected = reader(sender).result("GetTask", json!({ "id": task })).await;
        for binding in ALL {
            let found = reader(binding).result("GetTask", json!({ "id": task })).await;
            assert_eq!(found, expected, "{sender:?} {binding:?}");
        }
    }
}
