//! Doorbells that do not come: the journal is the truth.

use relevo_shared::domain::state::End;
use relevo_testkit::{FaultProxy, RedisServer, poll};
use serde_json::json;

use crate::client::{Frame, message};
use crate::gateway::{Gateway, store, store_at, world};
use crate::hand::Hand;

/// Lets the worker write, but not ring.
pub fn silence(redis: &RedisServer) -> String {
    redis.cli(&["ACL", "SETUSER", "mute", "on", ">pw", "~*", "+@all", "resetchannels"]);
    format!("redis+unix://{}?user=mute&pass=pw", redis.socket().display())
}

#[tokio::test]
async fn without_any_doorbell_streams_and_calls_are_only_later() {
    let world = world(&[("stream.reread", "50ms")]).await;
    let mute = Hand::new(store_at(&silence(&world.redis)).await);
    let client = world.gateway.client();
    let mut stream = client.stream("SendStreamingMessage", message("hi")).await;
    stream.event().await;
    let mut turn = mute.take().await;
    turn.say("a").await;
    assert_eq!(stream.event().await.state(), "WORKING");
    assert_eq!(stream.event().await.text(), "a");
    turn.finish(End::Completed, "b").await;
    assert_eq!(stream.rest().await.iter().map(Frame::text).collect::<Vec<_>>(), ["b"]);
    let (answer, ()) = tokio::join!(client.call("SendMessage", message("hi")), async {
        mute.take().await.finish(End::Completed, "c").await;
    });
    assert_eq!(answer["task"]["status"]["message"]["parts"][0]["text"], "c");
    assert!(world.gateway.metric("relevo_gateway_journal_reads_total").await >= 3.0);
}

#[tokio::test]
async fn a_gateway_that_may_not_subscribe_still_serves() {
    let world = world(&[]).await;
    let deaf = Gateway::start_at(&silence(&world.redis), &[]).await;
    let client = deaf.client();
    let mut stream = client.stream("SendStreamingMessage", message("hi")).await;
    let mut turn = world.hand.take().await;
    turn.say("a").await;
    turn.finish(End::Completed, "b").await;
    let texts: Vec<String> = stream.rest().await.iter().map(Frame::text).collect();
    assert_eq!(texts, ["", "", "a", "b"]);
}

#[tokio::test]
async fn a_doorbell_connection_that_is_cut_costs_no_event() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let mut stream = client.stream("SendStreamingMessage", message("hi")).await;
    let mut frames = vec![stream.event().await];
    let mut turn = world.hand.take().await;
    for n in 0..10 {
        world.redis.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        turn.say(&n.to_string()).await;
        if n == 0 {
            frames.push(stream.event().await);
        }
        frames.push(stream.event().await);
    }
    world.redis.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    turn.finish(End::Completed, "end").await;
    frames.extend(stream.rest().await);
    let texts: Vec<String> = frames.iter().map(Frame::text).filter(|text| !text.is_empty()).collect();
    let expected: Vec<String> = (0..10).map(|n: u32| n.to_string()).chain(["end".to_owned()]).collect();
    assert_eq!(texts, expected);
}

#[tokio::test]
async fn channels_are_left_when_nobody_listens_any_more() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let mut stream = client.stream("SendStreamingMessage", message("hi")).await;
    stream.event().await;
    assert_ne!(world.redis.cli(&["PUBSUB", "CHANNELS", "*ch:*"]), "");
    world.hand.take().await.finish(End::Completed, "").await;
    stream.rest().await;
    poll::until("the channel to be left", async || {
        match world.redis.cli(&["PUBSUB", "CHANNELS", "*ch:*"]) {
            channels if channels.is_empty() => Ok(()),
            channels => Err(channels),
        }
    })
    .await;
}

#[tokio::test]
async fn a_subscription_misses_nothing_that_is_written_while_it_begins() {
    let world = world(&[("stream.reread", "1h")]).await;
    let client = world.gateway.client();
    for round in 0..30 {
        let mut sent = client.stream("SendStreamingMessage", message("hi")).await;
        sent.event().await;
        let mut turn = world.hand.take().await;
        turn.begin().await;
        let id = json!({ "id": turn.task() });
        // The end falls anywhere into the beginning of the subscription.
        let subscribe = async {
            let response = client.request("SubscribeToTask", &id).send().await.unwrap();
            response.text().await.unwrap()
        };
        let (text, ()) = tokio::join!(subscribe, async {
            for _ in 0..round {
                tokio::task::yield_now().await;
            }
            turn.finish(End::Completed, "done").await;
        });
        assert!(text.contains("COMPLETED") || text.contains("-32004"), "{text}");
        assert_eq!(sent.rest().await.last().unwrap().state(), "COMPLETED");
    }
}

#[tokio::test]
async fn a_doorbell_connection_that_falls_silent_is_replaced() {
    let redis = RedisServer::start();
    let proxy = FaultProxy::start(redis.upstream());
    // Nothing but the replacement can help.
    let gateway = Gateway::start_at(&proxy.url(), &[("stream.reread", "1h")]).await;
    let hand = Hand::new(store(&redis).await);
    let client = gateway.client();
    let mut stream = client.stream("SendStreamingMessage", message("one")).await;
    stream.event().await;
    let turn = hand.take().await;
    // From the next subscription on the connection is open and says nothing.
    proxy.swallow_reply_to(b"SUBSCRIBE");
    let mut second = client.stream("SendStreamingMessage", message("two")).await;
    assert_eq!(proxy.swallowed(), 1);
    turn.finish(End::Completed, "done").await;
    assert_eq!(stream.rest().await.last().unwrap().text(), "done");
    hand.take().await.finish(End::Completed, "done too").await;
    assert_eq!(second.rest().await.last().unwrap().text(), "done too");
    assert!(gateway.metric("relevo_gateway_hub_connections_total").await >= 2.0);
}
