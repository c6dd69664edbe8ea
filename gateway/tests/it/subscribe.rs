//! SubscribeToTask without a position.

use relevo_shared::domain::state::End;
use serde_json::json;

use crate::client::{Frame, message, message_to};
use crate::gateway::world;

#[tokio::test]
async fn a_subscription_opens_with_the_task_as_it_is_and_ends_with_its_turn() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let mut sent = client.stream("SendStreamingMessage", message("hi")).await;
    let task = sent.event().await.result()["task"]["id"].as_str().unwrap().to_owned();
    let mut turn = world.hand.take().await;
    turn.say("a").await;
    let mut first = client.stream("SubscribeToTask", json!({ "id": task })).await;
    let snapshot = first.event().await;
    assert_eq!(snapshot.result()["task"], client.task(&task).await);
    turn.say("b").await;
    let mut second = client.stream("SubscribeToTask", json!({ "id": task })).await;
    second.event().await;
    drop(second);
    turn.finish(End::InputRequired, "c").await;
    let texts: Vec<String> = first.rest().await.iter().map(Frame::text).collect();
    assert_eq!(texts, ["b", "c"]);
    let sent: Vec<String> = sent.rest().await.iter().map(Frame::text).collect();
    assert_eq!(sent, ["", "a", "b", "c"], "who leaves takes nothing from others");
}

#[tokio::test]
async fn a_subscription_to_a_waiting_task_lasts_over_its_turns_to_its_end() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let (answer, ()) = tokio::join!(client.call("SendMessage", message("one")), async {
        world.hand.take().await.finish(End::InputRequired, "?").await;
    });
    let task = answer["task"]["id"].as_str().unwrap().to_owned();
    let mut stream = client.stream("SubscribeToTask", json!({ "id": task })).await;
    assert_eq!(stream.event().await.result()["task"], client.task(&task).await);
    for end in [End::InputRequired, End::Completed] {
        let send = client.call("SendMessage", message_to(&task, "more"));
        let (_, ()) = tokio::join!(send, async {
            world.hand.take().await.finish(end, "answer").await;
        });
    }
    let states: Vec<String> = stream.rest().await.iter().map(Frame::state).collect();
    assert_eq!(
        states,
        [
            "SUBMITTED",
            "WORKING",
            "INPUT_REQUIRED",
            "SUBMITTED",
            "WORKING",
            "COMPLETED"
        ]
    );
}

#[tokio::test]
async fn a_task_that_has_ended_cannot_be_subscribed_to() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let (answer, ()) = tokio::join!(client.call("SendMessage", message("one")), async {
        world.hand.take().await.finish(End::Rejected, "no").await;
    });
    let id = &answer["task"]["id"];
    let refused = client.refused("SubscribeToTask", json!({ "id": id })).await;
    assert_eq!(refused, (-32004, "UNSUPPORTED_OPERATION".to_owned()));
}
