//! CancelTask.

use relevo_shared::domain::state::End;
use relevo_shared::store::EmitReply;
use relevo_testkit::{FaultProxy, RedisServer, poll};
use serde_json::{Value, json};

use crate::client::{Client, message, message_to};
use crate::gateway::{Gateway, store, world};
use crate::hand::{Hand, Turn};

async fn send(client: &Client, params: Value) -> String {
    let mut params = params;
    params["configuration"] = json!({ "returnImmediately": true });
    client.call("SendMessage", params).await["task"]["id"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Waits until the turn's context says that it is to be cancelled.
pub async fn told(turn: &Turn, store: &relevo_shared::store::Store) {
    poll::until("the cancel to reach the turn", async || {
        let view = store
            .read_context(turn.taken.partition, &turn.taken.context)
            .await
            .unwrap();
        if view.live.is_some_and(|live| live.canceled) {
            Ok(())
        } else {
            Err("not yet")
        }
    })
    .await;
}

#[tokio::test]
async fn a_queued_turn_is_canceled_at_once_and_never_runs() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let mut stream = client.stream("SendStreamingMessage", message("hi")).await;
    let task = stream.event().await.result()["task"]["id"].as_str().unwrap().to_owned();
    let answer = client.call("CancelTask", json!({ "id": task })).await;
    assert_eq!(answer["status"]["state"], "TASK_STATE_CANCELED");
    assert_eq!(stream.rest().await.last().unwrap().state(), "CANCELED");
    assert!(world.hand.try_take().await.is_none());
    let again = client.refused("CancelTask", json!({ "id": task })).await;
    assert_eq!(again, (-32002, "TASK_NOT_CANCELABLE".to_owned()));
}

#[tokio::test]
async fn a_running_turn_is_canceled_through_any_gateway_when_it_has_stopped() {
    let world = world(&[]).await;
    let other = Gateway::start(&world.redis, &[]).await;
    let client = world.gateway.client();
    let mut stream = client.stream("SendStreamingMessage", message("hi")).await;
    let task = stream.event().await.result()["task"]["id"].as_str().unwrap().to_owned();
    let mut turn = world.hand.take().await;
    turn.say("working").await;
    let other_client = other.client();
    let cancels = async {
        let id = json!({ "id": task });
        // Repeated while it is under way, it waits likewise.
        tokio::join!(
            other_client.call("CancelTask", id.clone()),
            client.call("CancelTask", id)
        )
    };
    let ((one, two), ()) = tokio::join!(cancels, async {
        told(&turn, &world.hand.store).await;
        assert_eq!(turn.try_finish(End::Completed, "done").await, EmitReply::Canceled);
        let turn = Turn::again(turn);
        turn.finish(End::Canceled, "").await;
    });
    assert_eq!(one["status"]["state"], "TASK_STATE_CANCELED");
    assert_eq!(two["status"]["state"], "TASK_STATE_CANCELED");
    assert_eq!(stream.rest().await.last().unwrap().state(), "CANCELED");
    assert_eq!(client.refused("CancelTask", json!({ "id": task })).await.0, -32002);
}

#[tokio::test]
async fn a_turn_that_does_not_stop_in_time_is_answered_as_it_is() {
    let world = world(&[("cancel.wait", "50ms")]).await;
    let client = world.gateway.client();
    let task = send(&client, message("hi")).await;
    let mut turn = world.hand.take().await;
    turn.begin().await;
    let answer = client.call("CancelTask", json!({ "id": task })).await;
    assert_eq!(answer["status"]["state"], "TASK_STATE_WORKING");
    assert_eq!(answer["metadata"]["urn:relevo:a2a:turn:v1"]["cancelRequested"], true);
    turn.finish(End::Canceled, "").await;
    assert_eq!(client.task(&task).await["status"]["state"], "TASK_STATE_CANCELED");
}

#[tokio::test]
async fn a_cancel_of_one_turn_never_touches_the_next() {
    let world = world(&[("cancel.wait", "50ms")]).await;
    let client = world.gateway.client();
    let first = send(
        &client,
        json!({ "message": {
        "messageId": "m", "role": "ROLE_USER", "contextId": "c", "parts": [{ "text": "one" }] } }),
    )
    .await;
    let turn = world.hand.take().await;
    client.call("CancelTask", json!({ "id": first })).await;
    turn.finish(End::Canceled, "").await;
    let second = send(
        &client,
        json!({ "message": {
        "messageId": "m", "role": "ROLE_USER", "contextId": "c", "parts": [{ "text": "two" }] } }),
    )
    .await;
    let turn = world.hand.take().await;
    assert!(!turn.taken.canceled);
    turn.finish(End::Completed, "fine").await;
    assert_eq!(client.task(&second).await["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn what_has_ended_cannot_be_canceled() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let task = send(&client, message("hi")).await;
    world.hand.take().await.finish(End::InputRequired, "?").await;
    send(&client, message_to(&task, "go on")).await;
    world.hand.take().await.finish(End::Failed, "no").await;
    assert_eq!(client.refused("CancelTask", json!({ "id": task })).await.0, -32002);
}

#[tokio::test]
async fn a_task_that_waits_for_its_user_is_canceled_and_its_subscribers_hear_it() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let task = send(&client, message("hi")).await;
    world.hand.take().await.finish(End::InputRequired, "?").await;
    let mut stream = client.stream("SubscribeToTask", json!({ "id": task })).await;
    stream.event().await;
    let answer = client.call("CancelTask", json!({ "id": task })).await;
    assert_eq!(answer["status"]["state"], "TASK_STATE_CANCELED");
    assert_eq!(answer["history"][0]["parts"][0]["text"], "hi");
    assert_eq!(stream.rest().await.last().unwrap().state(), "CANCELED");
    assert_eq!(client.task(&task).await, answer);
    assert_eq!(client.refused("CancelTask", json!({ "id": task })).await.0, -32002);
    assert_eq!(client.refused("SendMessage", message_to(&task, "x")).await.0, -32004);
}

#[tokio::test]
async fn cancels_work_although_nobody_may_ring() {
    let world = world(&[("stream.reread", "50ms")]).await;
    let deaf = Gateway::start_at(&crate::doorbell::silence(&world.redis), &[]).await;
    let client = deaf.client();
    let task = send(&client, message("hi")).await;
    let turn = world.hand.take().await;
    let id = json!({ "id": task });
    let (answer, ()) = tokio::join!(client.call("CancelTask", id), async {
        told(&turn, &world.hand.store).await;
        turn.finish(End::Canceled, "").await;
    });
    assert_eq!(answer["status"]["state"], "TASK_STATE_CANCELED");
}

#[tokio::test]
async fn a_cancel_whose_reply_is_lost_is_answered_like_one_that_was_not() {
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.upstream());
    let gateway = Gateway::start_at(&proxy.url(), &[]).await;
    let hand = Hand::new(store(&redis).await);
    let client = gateway.client();
    for queued in [true, false] {
        let task = send(&client, message("hi")).await;
        let turn = if queued { None } else { Some(hand.take().await) };
        // The end that the gateway writes itself names the task; what it asks of a worker names the turn.
        let needle = match &turn {
            None => "TASK_STATE_CANCELED".to_owned(),
            Some(turn) => turn.taken.record.turn.to_string(),
        };
        proxy.lose_reply_to(needle.as_bytes(), 1);
        let lost = proxy.lost_replies();
        let id = json!({ "id": task });
        let (answer, ()) = tokio::join!(client.call("CancelTask", id), async {
            if let Some(turn) = turn {
                told(&turn, &hand.store).await;
                turn.finish(End::Canceled, "").await;
            }
        });
        assert_eq!(answer["status"]["state"], "TASK_STATE_CANCELED");
        assert_eq!(proxy.lost_replies(), lost + 1);
    }
}
