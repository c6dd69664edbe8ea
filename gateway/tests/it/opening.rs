//! The task that a stream opens with holds as much history as the client asked for.

use relevo_shared::domain::state::End;
use serde_json::{Value, json};

use crate::binding::{ALL, Caller};
use crate::client::message_in;
use crate::gateway::world;
use crate::old;

/// What the client asks for, and how many messages it is shown of one.
const WANTED: [(Option<i64>, usize); 3] = [(None, 1), (Some(0), 0), (Some(1), 1)];

fn history(task: &Value) -> usize {
    task["history"].as_array().map_or(0, Vec::len)
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_new_task_a_repeat_under_its_key_and_a_task_born_failed() {
    let world = world(&[]).await;
    for (number, binding) in ALL.into_iter().enumerate() {
        for (length, shown) in WANTED {
            let caller = Caller::new(binding, &world.gateway);
            let context = format!("{number}.{}", length.unwrap_or(9));
            let wanting = |text: &str| {
                let mut params = message_in(&context, text);
                if let Some(length) = length {
                    params["configuration"] = json!({ "historyLength": length });
                }
                params
            };
            let mut keyed = wanting("hi");
            let key = format!("a-key-of-some-length-{context}");
            keyed["metadata"] = json!({ "urn:relevo:a2a:idempotency:v1": { "key": key } });
            let mut opened = caller.open("SendStreamingMessage", keyed.clone(), None).await.unwrap();
            let (first, _) = opened.next().await.unwrap();
            assert_eq!(history(&first["task"]), shown, "{binding:?} {length:?}: {first}");
            let mut turn = world.hand.take().await;
            turn.say("one").await;
            let mut repeat = caller.open("SendStreamingMessage", keyed, None).await.unwrap();
            assert_eq!(repeat.next().await.unwrap().0, first, "{binding:?}");
            let mut busy = caller
                .open("SendStreamingMessage", wanting("more"), None)
                .await
                .unwrap();
            let events = busy.rest().await;
            let [(born, _)] = events.as_slice() else {
                panic!("{events:?}")
            };
            assert_eq!(born["task"]["status"]["state"], "TASK_STATE_FAILED");
            assert_eq!(history(&born["task"]), shown, "{binding:?} {length:?}: {born}");
            turn.finish(End::Completed, "two").await;
            assert_eq!(opened.rest().await.len(), repeat.rest().await.len());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_0_3_too() {
    let world = world(&[]).await;
    for binding in old::BOTH {
        for (length, shown) in WANTED {
            let caller = old::Caller::new(binding, world.gateway.client());
            let mut params = old::message("hi");
            if let Some(length) = length {
                params["configuration"]["historyLength"] = length.into();
            }
            let mut stream = caller.open("message/stream", &params, None).await;
            let first = caller.event(&stream.event().await);
            // In the ProtoJSON of 0.3 nothing and 0 are one.
            let unsaid = binding == old::Binding::Rest && length == Some(0);
            let shown = if unsaid { 1 } else { shown };
            assert_eq!(history(&first), shown, "{binding:?} {length:?}: {first}");
            world.hand.take().await.finish(End::Completed, "done").await;
            stream.rest().await;
        }
    }
}

/// A position that is gone is answered by a snapshot: it is no larger than the task that the request would open with.
#[tokio::test]
async fn of_a_snapshot_in_place_of_a_position_that_is_gone() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let mut params = message_in("c", "hi");
    params["configuration"] = json!({ "historyLength": 0 });
    let mut stream = client.stream("SendStreamingMessage", params.clone()).await;
    let first = stream.event().await;
    world.hand.take().await.finish(End::Completed, "done").await;
    let task = first.result()["task"]["id"].as_str().unwrap().to_owned();
    let gone = format!("{task}.1-1");
    let mut resumed = client.resume("SendStreamingMessage", params, &gone).await;
    let snapshot = resumed.event().await.result();
    assert_eq!(
        snapshot["task"]["metadata"]["urn:relevo:a2a:resume:v1"]["gap"], true,
        "{snapshot}"
    );
    assert_eq!(history(&snapshot["task"]), 0, "{snapshot}");
}
