//! Isolation: every operation on every binding, as the owner, as another principal, in another tenant, with hostile ids. What is not
//! the caller's cannot be told, byte by byte, from what does not exist.

use relevo_shared::domain::state::End;
use relevo_shared::ids::{Partition, TaskId};
use relevo_shared::platform::entropy;
use serde_json::{Value, json};

use crate::binding::{ALL, Binding, Caller};
use crate::client::{message, message_in, message_to};
use crate::gateway::{World, world_with};

const PRINCIPALS: &str = "[principals.ann]\ntoken = \"ann\"\n[principals.bob]\ntoken = \"bob\"\n";

/// What the operations are asked about a task.
fn asks(id: &str, tenant: &str) -> Vec<(&'static str, Value)> {
    let mut reference = message("hi");
    reference["message"]["referenceTaskIds"] = json!([id]);
    let mut all = vec![
        ("SendMessage", message_to(id, "hi")),
        ("SendMessage", reference),
        ("SendStreamingMessage", message_to(id, "hi")),
        ("GetTask", json!({ "id": id })),
        ("GetTask", json!({ "id": id, "historyLength": 0 })),
        ("CancelTask", json!({ "id": id })),
        ("SubscribeToTask", json!({ "id": id })),
        (
            "CreateTaskPushNotificationConfig",
            json!({ "taskId": id, "url": "https://example.com/" }),
        ),
        ("GetTaskPushNotificationConfig", json!({ "taskId": id, "id": "c" })),
        ("ListTaskPushNotificationConfigs", json!({ "taskId": id })),
        ("DeleteTaskPushNotificationConfig", json!({ "taskId": id, "id": "c" })),
    ];
    for (_, params) in &mut all {
        params["tenant"] = tenant.into();
    }
    all
}

/// Everything that an answer shows, headers included, with the id taken out.
async fn told(caller: &Caller, method: &str, params: Value, id: &str, cursor: Option<&str>) -> String {
    let shown = match caller.binding {
        Binding::Grpc if method.contains("Stream") || method.starts_with("Subscribe") => {
            format!("{:?}", caller.open(method, params, cursor).await.err())
        }
        Binding::Grpc => format!("{:?}", caller.call(method, params).await.err()),
        Binding::JsonRpc | Binding::Rest => {
            let request = match caller.binding {
                Binding::JsonRpc => caller.client.request(method, &params),
                _ => caller.rest(method, params),
            };
            let request = match cursor {
                Some(cursor) => request.header("last-event-id", cursor),
                None => request,
            };
            let answer = request.send().await.unwrap();
            let mut headers: Vec<String> = answer
                .headers()
                .iter()
                .filter(|(name, _)| *name != "date" && *name != "content-length")
                .map(|(name, value)| format!("{name}: {value:?}"))
                .collect();
            headers.sort();
            format!("{} {headers:?} {}", answer.status(), answer.text().await.unwrap())
        }
    };
    shown.replace(id, "<id>")
}

fn missing() -> String {
    TaskId::new(1_700_000_000_000, Partition(3), entropy::u64()).to_string()
}

/// A task of ann's that waits for her, and one that runs; with the cursor of an event of the first.
async fn tasks(world: &World) -> (String, String, String) {
    let ann = world.gateway.client_with(&[("authorization", "Bearer ann")]);
    let mut stream = ann.stream("SendStreamingMessage", message_in("c-1", "hi")).await;
    let turn = world.hand.take().await;
    turn.finish(End::InputRequired, "more?").await;
    let frames = stream.rest().await;
    let idle = frames[0].result()["task"]["id"].as_str().unwrap().to_owned();
    let mut params = message_in("c-2", "hi");
    params["configuration"] = json!({ "returnImmediately": true });
    let running = ann.call("SendMessage", params).await["task"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    (idle, running, frames[0].cursor())
}

#[tokio::test]
async fn what_is_anothers_cannot_be_told_from_what_does_not_exist() {
    let world = world_with(PRINCIPALS, &[]).await;
    let (idle, running, _) = tasks(&world).await;
    for binding in ALL {
        let as_who = |token: &str| {
            Caller::with_headers(
                binding,
                &world.gateway,
                &[("authorization", &format!("Bearer {token}"))],
            )
        };
        for (who, tenant) in [(as_who("bob"), ""), (as_who("ann"), "other"), (as_who("bob"), "other")] {
            for id in [&idle, &running] {
                let nothing = missing();
                for ((method, foreign), (_, absent)) in asks(id, tenant).into_iter().zip(asks(&nothing, tenant)) {
                    let foreign = told(&who, method, foreign, id, None).await;
                    let absent = told(&who, method, absent, &nothing, None).await;
                    assert_eq!(foreign, absent, "{binding:?} {method}");
                    let expected = if method.contains("Push") {
                        "PUSH_NOTIFICATION_NOT_SUPPORTED"
                    } else {
                        "TASK_NOT_FOUND"
                    };
                    assert!(foreign.contains(expected), "{binding:?} {method}: {foreign}");
                }
            }
        }
        // Nothing has touched them: they are the owner's as before.
        let ann = as_who("ann");
        assert_eq!(
            ann.result("GetTask", json!({ "id": idle })).await["status"]["state"],
            "TASK_STATE_INPUT_REQUIRED"
        );
        assert_eq!(
            ann.result("GetTask", json!({ "id": running })).await["status"]["state"],
            "TASK_STATE_SUBMITTED"
        );
    }
}

#[tokio::test]
async fn positions_and_contexts_of_others_lead_nowhere() {
    let world = world_with(PRINCIPALS, &[]).await;
    let (idle, _, cursor) = tasks(&world).await;
    let nothing = missing();
    let absent = cursor.replace(&idle, &nothing);
    for binding in ALL {
        let bob = Caller::with_headers(binding, &world.gateway, &[("authorization", "Bearer bob")]);
        for (method, foreign, none) in [
            ("SubscribeToTask", json!({ "id": idle }), json!({ "id": nothing })),
            ("SendStreamingMessage", message("hi"), message("hi")),
        ] {
            let foreign = told(&bob, method, foreign, &idle, Some(&cursor)).await;
            let none = told(&bob, method, none, &nothing, Some(&absent)).await;
            assert_eq!(foreign, none, "{binding:?} {method}");
            assert!(foreign.contains("TASK_NOT_FOUND"), "{binding:?} {method}: {foreign}");
        }
        for context in ["c-1", "c-2", "c-none"] {
            let list = bob.result("ListTasks", json!({ "contextId": context })).await;
            assert_eq!(
                (&list["totalSize"], &list["tasks"]),
                (&json!(0), &json!([])),
                "{binding:?} {context}"
            );
        }
    }
    // A context of the same name is another one: ann's running turn does not make it busy.
    let bob = world.gateway.client_with(&[("authorization", "Bearer bob")]);
    let mut params = message_in("c-2", "hi");
    params["configuration"] = json!({ "returnImmediately": true });
    let task = bob.call("SendMessage", params).await;
    assert_eq!(task["task"]["status"]["state"], "TASK_STATE_SUBMITTED");
}

#[tokio::test]
async fn hostile_ids_are_not_found_and_disturb_nothing() {
    let world = world_with(PRINCIPALS, &[]).await;
    let (idle, ..) = tasks(&world).await;
    let upper = idle.to_uppercase();
    let padded = format!("{idle} ");
    let long = "x".repeat(3_000);
    // A client of HTTP makes another path of two dots before it is sent.
    let hostile = [
        "..", "a/b", "{03}", "*", "ev:x", "\u{0}", "\u{202e}", "%00", "a:cancel", "null", &upper, &padded, &long,
    ];
    for binding in ALL {
        let ann = Caller::with_headers(binding, &world.gateway, &[("authorization", "Bearer ann")]);
        for id in hostile {
            for (method, params) in asks(id, "").into_iter().filter(|(method, _)| !method.contains("Push")) {
                let told = told(&ann, method, params, "\u{1}", None).await;
                assert!(
                    told.contains("TASK_NOT_FOUND")
                        || told.starts_with("404")
                        || (id == ".." && told.starts_with("405")),
                    "{binding:?} {method} {id:?}: {told}"
                );
            }
        }
    }
}
