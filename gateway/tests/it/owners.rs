//! Isolation: every operation on every binding of both versions, as the owner, as another principal, in another tenant, and with hostile
//! ids. What is not the caller's cannot be told, byte by byte, from what does not exist.

use relevo_shared::domain::state::End;
use relevo_shared::ids::{Partition, TaskId};
use relevo_shared::platform::entropy;
use reqwest::Method;
use serde_json::{Value, json};

use crate::binding::{self, Binding};
use crate::client::{message, message_in, message_to};
use crate::gateway::{World, world_with};
use crate::http::Request;
use crate::old;

const PRINCIPALS: &str = "[principals.ann]\ntoken = \"ann\"\n[principals.bob]\ntoken = \"bob\"\n";

/// A binding in a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    New(Binding),
    Old(old::Binding),
}

const WAYS: [Way; 5] = [
    Way::New(Binding::JsonRpc),
    Way::New(Binding::Rest),
    Way::New(Binding::Grpc),
    Way::Old(old::Binding::JsonRpc),
    Way::Old(old::Binding::Rest),
];

/// Who calls, on which way.
enum Caller {
    New(binding::Caller),
    Old(old::Caller),
}

/// What can be named of a task, whether it exists or not.
#[derive(Debug, Clone)]
struct Known {
    task: String,
    context: String,
    /// The position of an event of it.
    cursor: String,
    /// A token of a listing with it.
    token: String,
}

impl Known {
    /// The same of nothing: all of the same form.
    fn nothing(like: &Self) -> Self {
        let task = missing();
        let (first, rest) = like.token.split_at(1);
        Self {
            cursor: like.cursor.replace(&like.task, &task),
            context: "c-none".to_owned(),
            token: format!("{}{rest}", if first == "A" { "B" } else { "A" }),
            task,
        }
    }

    fn hide(&self, text: &str) -> String {
        let text = text.replace(&self.cursor, "<cursor>").replace(&self.task, "<task>");
        text.replace(&self.token, "<token>").replace(&self.context, "<context>")
    }
}

/// An operation on something: what strangers are told of it, and whether a position goes along.
type Ask = (&'static str, fn(&Known) -> Value, &'static str, bool);

const NO_TASK: &str = "TASK_NOT_FOUND";
const NO_PUSH: &str = "PUSH_NOTIFICATION_NOT_SUPPORTED";

const ASKS: &[Ask] = &[
    ("SendMessage", |known| message_to(&known.task, "hi"), NO_TASK, false),
    ("SendMessage", |known| referring_to(&known.task), NO_TASK, false),
    (
        "SendStreamingMessage",
        |known| message_to(&known.task, "hi"),
        NO_TASK,
        false,
    ),
    (
        "SendStreamingMessage",
        |known| referring_to(&known.task),
        NO_TASK,
        false,
    ),
    ("SendStreamingMessage", |_| message("hi"), NO_TASK, true),
    ("GetTask", |known| json!({ "id": known.task }), NO_TASK, false),
    (
        "GetTask",
        |known| json!({ "id": known.task, "historyLength": 0 }),
        NO_TASK,
        false,
    ),
    (
        "ListTasks",
        |known| json!({ "contextId": known.context }),
        "totalSize",
        false,
    ),
    (
        "ListTasks",
        |known| json!({ "pageSize": 1, "pageToken": known.token }),
        "INVALID_PARAMS",
        false,
    ),
    ("CancelTask", |known| json!({ "id": known.task }), NO_TASK, false),
    ("SubscribeToTask", |known| json!({ "id": known.task }), NO_TASK, false),
    ("SubscribeToTask", |known| json!({ "id": known.task }), NO_TASK, true),
    (
        "CreateTaskPushNotificationConfig",
        |known| json!({ "taskId": known.task, "url": "https://example.com/" }),
        NO_PUSH,
        false,
    ),
    (
        "GetTaskPushNotificationConfig",
        |known| json!({ "taskId": known.task, "id": "c" }),
        NO_PUSH,
        false,
    ),
    (
        "ListTaskPushNotificationConfigs",
        |known| json!({ "taskId": known.task }),
        NO_PUSH,
        false,
    ),
    (
        "DeleteTaskPushNotificationConfig",
        |known| json!({ "taskId": known.task, "id": "c" }),
        NO_PUSH,
        false,
    ),
    ("GetExtendedAgentCard", |_| json!({}), "capabilities", false),
];

fn referring_to(task: &str) -> Value {
    let mut params = message("hi");
    params["message"]["referenceTaskIds"] = json!([task]);
    params
}

fn missing() -> String {
    TaskId::new(1_700_000_000_000, Partition(3), entropy::u64()).to_string()
}

/// Whether an operation answers with a stream when it succeeds.
fn streams(method: &str) -> bool {
    matches!(method, "SendStreamingMessage" | "SubscribeToTask")
}

impl Caller {
    fn new(way: Way, world: &World, token: &str) -> Self {
        let credential = format!("Bearer {token}");
        let headers = [("authorization", credential.as_str())];
        match way {
            Way::New(binding) => Self::New(binding::Caller::with_headers(binding, &world.gateway, &headers)),
            Way::Old(binding) => Self::Old(old::Caller::new(binding, world.gateway.client_with(&headers))),
        }
    }

    /// The request over HTTP; `None` of what the version has not.
    fn request(&self, method: &str, params: Value) -> Option<Request> {
        match self {
            Self::New(caller) if caller.binding == Binding::JsonRpc => Some(caller.client.request(method, &params)),
            Self::New(caller) => Some(caller.rest(method, params)),
            Self::Old(caller) => of_0_3(caller, method, &params),
        }
    }

    /// Everything that an answer shows, headers included; `None` of what the version has not.
    async fn told(&self, method: &str, params: Value, cursor: Option<&str>) -> Option<String> {
        if let Self::New(caller) = self
            && caller.binding == Binding::Grpc
        {
            let outcome = if streams(method) {
                caller.open(method, params, cursor).await.map(|_| Value::Null)
            } else {
                caller.call(method, params).await
            };
            return Some(match outcome {
                Ok(answer) => answer.to_string(),
                Err(refusal) => format!("{} {} {}", refusal.code, refusal.message, refusal.details),
            });
        }
        let mut request = self.request(method, params)?;
        if let Some(cursor) = cursor {
            request = request.header("last-event-id", cursor);
        }
        let answer = request.send().await.unwrap();
        let told = answer
            .headers()
            .iter()
            .filter(|(name, _)| *name != "date" && *name != "content-length");
        let mut headers: Vec<String> = told.map(|(name, value)| format!("{name}: {value:?}")).collect();
        headers.sort();
        Some(format!(
            "{} {headers:?} {}",
            answer.status(),
            answer.text().await.unwrap()
        ))
    }

    /// Whether an operation is done, or its stream begins.
    async fn may(&self, method: &str, params: Value, cursor: Option<&str>) -> bool {
        match self {
            Self::New(caller) if streams(method) => caller.open(method, params, cursor).await.is_ok(),
            Self::New(caller) => caller.call(method, params).await.is_ok(),
            Self::Old(caller) => {
                let Some(mut request) = self.request(method, params) else {
                    return true;
                };
                if let Some(cursor) = cursor {
                    request = request.header("last-event-id", cursor);
                }
                let answer = request.send().await.unwrap();
                if streams(method) {
                    return answer.headers()["content-type"] == "text/event-stream";
                }
                let ok = answer.status().is_success();
                let body: Value = answer.json().await.unwrap();
                ok && (caller.binding == old::Binding::Rest || body["error"].is_null())
            }
        }
    }
}

/// What is asked in 1.0, as 0.3 asks it.
fn of_0_3(caller: &old::Caller, method: &str, params: &Value) -> Option<Request> {
    let id = &params["id"];
    let task = &params["taskId"];
    let (method, params) = match method {
        "SendMessage" | "SendStreamingMessage" => {
            let mut sent = old::message("hi");
            for name in ["taskId", "contextId", "referenceTaskIds"] {
                if let Some(value) = params["message"].get(name) {
                    sent["message"][name] = value.clone();
                }
            }
            if params["configuration"]["returnImmediately"] == true {
                sent["configuration"]["blocking"] = false.into();
            }
            let method = if streams(method) {
                "message/stream"
            } else {
                "message/send"
            };
            (method, sent)
        }
        "GetTask" => ("tasks/get", params.clone()),
        "CancelTask" => ("tasks/cancel", params.clone()),
        "SubscribeToTask" => ("tasks/resubscribe", params.clone()),
        "CreateTaskPushNotificationConfig" => (
            "tasks/pushNotificationConfig/set",
            json!({ "taskId": task, "pushNotificationConfig": { "url": params["url"] } }),
        ),
        "GetTaskPushNotificationConfig" => (
            "tasks/pushNotificationConfig/get",
            json!({ "id": task, "pushNotificationConfigId": id }),
        ),
        "ListTaskPushNotificationConfigs" => ("tasks/pushNotificationConfig/list", json!({ "id": task })),
        "DeleteTaskPushNotificationConfig" => (
            "tasks/pushNotificationConfig/delete",
            json!({ "id": task, "pushNotificationConfigId": id }),
        ),
        // 0.3 has only the path of it.
        "ListTasks" if caller.binding == old::Binding::JsonRpc => return None,
        "ListTasks" => {
            let query: Vec<(&String, String)> = params
                .as_object()
                .unwrap()
                .iter()
                .map(|(name, value)| (name, value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
                .collect();
            return Some(caller.client.unversioned(Method::GET, "v1/tasks").query(&query));
        }
        "GetExtendedAgentCard" if caller.binding == old::Binding::Rest => {
            return Some(caller.client.unversioned(Method::GET, "v1/card"));
        }
        "GetExtendedAgentCard" => ("agent/getAuthenticatedExtendedCard", json!({})),
        other => panic!("{other}"),
    };
    Some(caller.request(method, &params))
}

/// A task of ann's that waits for her, in a context of that name.
async fn idle(world: &World, context: &str) -> Known {
    let ann = world.gateway.client_with(&[("authorization", "Bearer ann")]);
    let mut stream = ann.stream("SendStreamingMessage", message_in(context, "hi")).await;
    world.hand.take().await.finish(End::InputRequired, "more?").await;
    let frames = stream.rest().await;
    Known {
        task: frames[0].result()["task"]["id"].as_str().unwrap().to_owned(),
        context: context.to_owned(),
        cursor: frames[0].cursor(),
        token: String::new(),
    }
}

/// One that waits for a worker.
async fn running(world: &World, context: &str) -> String {
    let ann = world.gateway.client_with(&[("authorization", "Bearer ann")]);
    let mut params = message_in(context, "hi");
    params["configuration"] = json!({ "returnImmediately": true });
    let answer = ann.call("SendMessage", params).await;
    answer["task"]["id"].as_str().unwrap().to_owned()
}

/// Both, with a token of a listing that has them.
async fn tasks(world: &World) -> [Known; 2] {
    let idle = idle(world, "c-1").await;
    let running = running(world, "c-2").await;
    let ann = world.gateway.client_with(&[("authorization", "Bearer ann")]);
    let page = ann.call("ListTasks", json!({ "pageSize": 1 })).await;
    let token = page["nextPageToken"].as_str().unwrap().to_owned();
    assert!(!token.is_empty());
    let running = Known {
        cursor: idle.cursor.replace(&idle.task, &running),
        task: running,
        context: "c-2".to_owned(),
        token: token.clone(),
    };
    [Known { token, ..idle }, running]
}

#[tokio::test]
async fn what_is_anothers_cannot_be_told_from_what_does_not_exist() {
    let world = world_with(PRINCIPALS, &[]).await;
    let known = tasks(&world).await;
    for way in WAYS {
        // 0.3 has no tenants.
        let strangers: &[(&str, &str)] = match way {
            Way::New(_) => &[("bob", ""), ("ann", "other"), ("bob", "other")],
            Way::Old(_) => &[("bob", "")],
        };
        for (who, tenant) in strangers {
            let caller = Caller::new(way, &world, who);
            for foreign in &known {
                let nothing = Known::nothing(foreign);
                for (method, params, expected, cursor) in ASKS {
                    let ask = async |known: &Known| {
                        let mut params = params(known);
                        if !tenant.is_empty() {
                            params["tenant"] = (*tenant).into();
                        }
                        let told = caller
                            .told(method, params, cursor.then_some(known.cursor.as_str()))
                            .await?;
                        Some(known.hide(&told))
                    };
                    let told = ask(foreign).await;
                    assert_eq!(told, ask(&nothing).await, "{way:?} {who} {tenant:?} {method}");
                    let Some(told) = told else { continue };
                    assert!(told.contains(expected), "{way:?} {who} {tenant:?} {method}: {told}");
                    assert!(!told.contains(&foreign.task), "{told}");
                }
            }
        }
        // Nothing has touched them: they are the owner's as before.
        let ann = world.gateway.client_with(&[("authorization", "Bearer ann")]);
        for (known, state) in known.iter().zip(["INPUT_REQUIRED", "SUBMITTED"]) {
            let task = ann.task(&known.task).await;
            assert_eq!(task["status"]["state"], format!("TASK_STATE_{state}"), "{way:?}");
        }
    }
    // A context of the same name is another one: ann's running turn does not make it busy.
    let bob = world.gateway.client_with(&[("authorization", "Bearer bob")]);
    let mut params = message_in("c-2", "hi");
    params["configuration"] = json!({ "returnImmediately": true });
    let task = bob.call("SendMessage", params).await;
    assert_eq!(task["task"]["status"]["state"], "TASK_STATE_SUBMITTED");
}

/// The owner may all that the others may not, on each way; each operation has a task of its own.
#[tokio::test]
async fn the_owner_does_all_of_it() {
    let world = world_with(PRINCIPALS, &[]).await;
    for (place, way) in WAYS.into_iter().enumerate() {
        let ann = Caller::new(way, &world, "ann");
        for (number, (method, params, expected, cursor)) in ASKS.iter().enumerate() {
            if *expected == NO_PUSH {
                continue;
            }
            let mut known = idle(&world, &format!("own-{place}-{number}")).await;
            let client = world.gateway.client_with(&[("authorization", "Bearer ann")]);
            let page = client.call("ListTasks", json!({ "pageSize": 1 })).await;
            page["nextPageToken"].as_str().unwrap().clone_into(&mut known.token);
            let mut params = params(&known);
            if *method == "SendMessage" {
                params["configuration"] = json!({ "returnImmediately": true });
            }
            // The first task of all has none after it.
            let alone = known.token.is_empty() && params.get("pageToken").is_some();
            assert!(
                alone || ann.may(method, params, cursor.then_some(known.cursor.as_str())).await,
                "{way:?} {method}"
            );
            // What was sent is not there for the next one.
            if let Some(turn) = world.hand.try_take().await {
                turn.finish(End::Completed, "").await;
            }
        }
    }
}

#[tokio::test]
async fn hostile_ids_are_not_found_and_disturb_nothing() {
    let world = world_with(PRINCIPALS, &[]).await;
    let [idle, _] = tasks(&world).await;
    let nothing = Known::nothing(&idle);
    let upper = idle.task.to_uppercase();
    let padded = format!("{} ", idle.task);
    let hostile = [
        "..", "a/b", "{03}", "*", "ev:x", "\u{0}", "\u{202e}", "%00", "a:cancel", "null", &upper, &padded,
    ];
    for way in WAYS {
        for who in ["ann", "bob"] {
            let caller = Caller::new(way, &world, who);
            // A client of HTTP makes another path of two dots before it is sent.
            let of_path = matches!(way, Way::New(Binding::Rest) | Way::Old(old::Binding::Rest));
            for id in hostile.into_iter().filter(|id| !(of_path && *id == "..")) {
                let named = Known {
                    task: id.to_owned(),
                    ..nothing.clone()
                };
                let of_tasks = ASKS.iter().filter(|(_, params, ..)| params(&named) != params(&nothing));
                for (method, params, ..) in of_tasks {
                    let ask = async |known: &Known| caller.told(method, params(known), None).await;
                    let (told, absent) = (ask(&named).await.unwrap(), ask(&nothing).await.unwrap());
                    let shown = Value::from(id).to_string();
                    let shown = shown.trim_matches('"');
                    let hidden = told.replace(&format!("\"{shown}\""), &format!("\"{}\"", nothing.task));
                    assert_eq!(hidden, absent, "{way:?} {who} {method} {id:?}");
                }
            }
        }
    }
    let ann = world.gateway.client_with(&[("authorization", "Bearer ann")]);
    assert_eq!(
        ann.task(&idle.task).await["status"]["state"],
        "TASK_STATE_INPUT_REQUIRED"
    );
}
