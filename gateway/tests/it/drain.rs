//! Stopping: no call fails.

use std::time::Duration;

use relevo_gateway::RunError;
use relevo_shared::domain::state::End;
use relevo_testkit::poll;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::client::{Frame, message};
use crate::gateway::{Gateway, world};

/// Waits until nothing is accepted any more.
async fn closed(gateway: &Gateway) {
    poll::until("the listener to be closed", async || {
        match TcpStream::connect(gateway.listen).await {
            Err(_) => Ok(()),
            Ok(_) => Err("still accepting"),
        }
    })
    .await;
}

#[tokio::test]
async fn a_draining_gateway_finishes_what_runs_and_lets_idle_streams_go() {
    let world = world(&[("drain.delay", "0s"), ("drain.deadline", "1m")]).await;
    let gateway = world.gateway;
    let client = gateway.client();
    let (answer, ()) = tokio::join!(client.call("SendMessage", message("idle")), async {
        world.hand.take().await.finish(End::InputRequired, "?").await;
    });
    let mut idle = client
        .stream("SubscribeToTask", json!({ "id": answer["task"]["id"] }))
        .await;
    idle.event().await;
    let mut running = client.stream("SendStreamingMessage", message("running")).await;
    running.event().await;
    let mut turn = world.hand.take().await;
    let blocking = client.call("SendMessage", message("blocking"));
    let (blocked, ended) = tokio::join!(blocking, async {
        let waiting = world.hand.take().await;
        gateway.shutdown.trigger();
        assert!(idle.ended().await);
        assert!(idle.asides.last().unwrap().contains("retry: "));
        closed(&gateway).await;
        let ready = reqwest::get(format!("http://{}/readyz", gateway.admin)).await.unwrap();
        assert_eq!(ready.status(), 503);
        turn.say("still here").await;
        turn.finish(End::Completed, "done").await;
        let texts: Vec<String> = running.rest().await.iter().map(Frame::text).collect();
        assert_eq!(texts, ["", "still here", "done"]);
        waiting.finish(End::Completed, "answered").await;
        gateway.ended().await
    });
    assert_eq!(blocked["task"]["status"]["message"]["parts"][0]["text"], "answered");
    assert!(ended.is_ok(), "{ended:?}");
}

#[tokio::test]
async fn at_the_end_of_the_deadline_streams_move_and_calls_are_answered() {
    let world = world(&[("drain.delay", "0s"), ("drain.deadline", "1s")]).await;
    let gateway = world.gateway;
    let client = gateway.client();
    let mut stream = client.stream("SendStreamingMessage", message("long")).await;
    let first = stream.event().await;
    let turn = world.hand.take().await;
    let blocking = client.call("SendMessage", message("blocking"));
    let (blocked, ended) = tokio::join!(blocking, async {
        let _waiting = world.hand.take().await;
        gateway.stop().await
    });
    assert_eq!(
        blocked["task"]["metadata"]["urn:relevo:a2a:turn:v1"]["stillRunning"],
        true
    );
    assert!(stream.ended().await);
    assert!(stream.asides.last().unwrap().contains("retry: "));
    assert!(ended.is_ok(), "{ended:?}");
    let next = Gateway::start(&world.redis, &[]).await;
    let mut resumed = next
        .client()
        .resume("SendStreamingMessage", message("long"), &first.cursor())
        .await;
    turn.finish(End::Completed, "done").await;
    assert_eq!(resumed.rest().await.last().unwrap().text(), "done");
}

#[tokio::test]
async fn calls_are_answered_before_they_are_cut_off_even_when_redis_is_away() {
    let world = world(&[
        ("drain.delay", "0s"),
        ("drain.deadline", "5s"),
        ("gateway.request_timeout", "1h"),
    ])
    .await;
    let gateway = world.gateway;
    let client = gateway.client();
    let blocking = client.request("SendMessage", &message("blocking")).send();
    let (blocked, ended) = tokio::join!(blocking, async {
        let _waiting = world.hand.take().await;
        world.redis.stop();
        gateway.stop().await
    });
    world.redis.cont();
    let blocked = blocked.unwrap();
    assert_eq!(blocked.status(), 503);
    let body: Value = blocked.json().await.unwrap();
    let info = &body["error"]["data"][0];
    assert_eq!(
        (&info["reason"], &info["metadata"]["outcome"]),
        (&json!("UNAVAILABLE"), &json!("unknown"))
    );
    assert!(info["metadata"]["taskId"].is_string());
    assert!(ended.is_ok(), "{ended:?}");
}

#[tokio::test]
async fn while_load_balancers_take_notice_everything_is_still_served() {
    let world = world(&[("drain.delay", "1h"), ("drain.deadline", "2h")]).await;
    let client = world.gateway.client();
    world.gateway.shutdown.trigger();
    let ready = reqwest::get(format!("http://{}/readyz", world.gateway.admin))
        .await
        .unwrap();
    assert_eq!(ready.status(), 503);
    let (answer, ()) = tokio::join!(client.call("SendMessage", message("late")), async {
        world.hand.take().await.finish(End::Completed, "fine").await;
    });
    assert_eq!(answer["task"]["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn a_second_signal_cuts_off_and_says_so() {
    let world = world(&[("drain.delay", "0s"), ("drain.deadline", "1h")]).await;
    let gateway = world.gateway;
    let mut stream = gateway.client().stream("SendStreamingMessage", message("long")).await;
    stream.event().await;
    gateway.shutdown.trigger();
    closed(&gateway).await;
    gateway.shutdown.abort();
    let ended = tokio::time::timeout(Duration::from_mins(1), gateway.ended())
        .await
        .unwrap();
    assert!(matches!(ended, Err(RunError::CutOff(1))), "{ended:?}");
}
