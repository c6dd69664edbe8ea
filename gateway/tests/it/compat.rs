//! `[compat]`: the reference server's letter, and the statuses of A2A 1.0.0.

use relevo_shared::domain::state::End;
use serde_json::json;
use tonic::Code;

use crate::binding::{ALL, Binding, Caller};
use crate::client::message;
use crate::gateway::{World, world};

async fn idle(world: &World) -> String {
    let mut stream = world
        .gateway
        .client()
        .stream("SendStreamingMessage", message("hi"))
        .await;
    world.hand.take().await.finish(End::InputRequired, "more?").await;
    stream.rest().await[0].result()["task"]["id"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn by_the_seeds_letter_only_running_tasks_are_canceled_and_subscribed_to() {
    for (setting, cancel, subscribe) in [("true", "TASK_NOT_CANCELABLE", "TASK_NOT_FOUND"), ("false", "", "")] {
        let world = world(&[("compat.seed", setting)]).await;
        let caller = Caller::new(Binding::JsonRpc, &world.gateway);
        let id = idle(&world).await;
        let subscribed = caller.open("SubscribeToTask", json!({ "id": id }), None).await;
        assert_eq!(
            subscribed.err().map_or(String::new(), |refusal| refusal.reason),
            subscribe
        );
        let canceled = caller.call("CancelTask", json!({ "id": id })).await;
        assert_eq!(canceled.err().map_or(String::new(), |refusal| refusal.reason), cancel);
    }
    // One that runs is both, whatever the letter.
    let world = world(&[("compat.seed", "true")]).await;
    let caller = Caller::new(Binding::JsonRpc, &world.gateway);
    let mut stream = world
        .gateway
        .client()
        .stream("SendStreamingMessage", message("hi"))
        .await;
    let id = stream.event().await.result()["task"]["id"].as_str().unwrap().to_owned();
    let mut subscribed = caller
        .open("SubscribeToTask", json!({ "id": id }), None)
        .await
        .ok()
        .unwrap();
    assert!(subscribed.next().await.is_some());
    let task = caller.result("CancelTask", json!({ "id": id })).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_CANCELED");
}

/// A subscription to what has ended leads nowhere, by the letter as if there were no such task.
#[tokio::test]
async fn a_subscription_to_an_ended_task_is_refused_as_the_letter_has_it() {
    for (setting, expected) in [("true", "TASK_NOT_FOUND"), ("false", "UNSUPPORTED_OPERATION")] {
        let world = world(&[("compat.seed", setting)]).await;
        for end in [End::Completed, End::Failed, End::Canceled, End::Rejected] {
            let client = world.gateway.client();
            let mut stream = client.stream("SendStreamingMessage", message("hi")).await;
            world.hand.take().await.finish(end, "over").await;
            let id = stream.rest().await[0].result()["task"]["id"].clone();
            for binding in ALL {
                let caller = Caller::new(binding, &world.gateway);
                let subscribed = caller.open("SubscribeToTask", json!({ "id": id }), None).await;
                let reason = subscribed.err().map(|refusal| refusal.reason);
                assert_eq!(reason.as_deref(), Some(expected), "{binding:?} {end:?}");
            }
        }
    }
}

#[tokio::test]
async fn errors_have_the_statuses_of_1_0_0_on_request() {
    let world = world(&[("compat.errors", "1.0.0")]).await;
    let id = idle(&world).await;
    let rest = Caller::new(Binding::Rest, &world.gateway);
    rest.result("CancelTask", json!({ "id": id })).await;
    let refusal = rest.call("CancelTask", json!({ "id": id })).await.unwrap_err();
    assert_eq!((refusal.code, refusal.reason.as_str()), (409, "TASK_NOT_CANCELABLE"));
    let grpc = Caller::new(Binding::Grpc, &world.gateway);
    let refusal = grpc
        .open("SubscribeToTask", json!({ "id": id }), None)
        .await
        .err()
        .unwrap();
    assert_eq!(
        (refusal.code, refusal.reason.as_str()),
        (Code::Unimplemented as i64, "UNSUPPORTED_OPERATION")
    );
    let json_rpc = Caller::new(Binding::JsonRpc, &world.gateway);
    assert_eq!(
        json_rpc.call("CancelTask", json!({ "id": id })).await.unwrap_err().code,
        -32002
    );
}
