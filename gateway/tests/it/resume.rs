//! Coming back with a position, on any gateway, whatever has happened since.

use relevo_shared::domain::state::End;
use serde_json::json;

use crate::client::{Frame, message, message_to};
use crate::gateway::{Gateway, World, world};

/// A finished turn of five events, and its frames.
async fn finished(world: &World, text: &str, end: End) -> Vec<Frame> {
    let mut stream = world
        .gateway
        .client()
        .stream("SendStreamingMessage", message(text))
        .await;
    let mut turn = world.hand.take().await;
    turn.say("a").await;
    turn.say("b").await;
    turn.finish(end, "c").await;
    let frames = stream.rest().await;
    assert_eq!(frames.len(), 5);
    frames
}

/// The key of a task's journal.
fn journal_of(world: &World, task: &str) -> String {
    world.redis.cli(&["KEYS", &format!("*ev:{task}")])
}

fn task_of(frame: &Frame) -> String {
    frame.cursor().split_once('.').unwrap().0.to_owned()
}

#[tokio::test]
async fn every_position_of_a_turn_that_has_ended_is_replayed_to_its_end_on_any_gateway() {
    for end in [End::Completed, End::InputRequired] {
        let world = world(&[]).await;
        let frames = finished(&world, "hi", end).await;
        let other = Gateway::start(&world.redis, &[]).await;
        let task = json!({ "id": task_of(&frames[0]) });
        for (place, frame) in frames.iter().enumerate() {
            let mut sent = other
                .client()
                .resume("SendStreamingMessage", message("hi"), &frame.cursor())
                .await;
            assert_eq!(sent.rest().await, frames[place + 1..], "after {place}");
            if end == End::InputRequired && place + 1 == frames.len() {
                // Who has seen all of a task that waits for input, waits with it.
                continue;
            }
            let mut subscribed = other
                .client()
                .resume("SubscribeToTask", task.clone(), &frame.cursor())
                .await;
            assert_eq!(subscribed.rest().await, frames[place + 1..], "after {place}");
        }
        let start = format!("{}.0-0", task_of(&frames[0]));
        let mut whole = other.client().resume("SubscribeToTask", task, &start).await;
        assert_eq!(whole.rest().await, frames);
        assert!(world.hand.try_take().await.is_none(), "no second turn was started");
    }
}

#[tokio::test]
async fn a_stream_cut_in_the_middle_goes_on_at_another_gateway_with_each_event_once() {
    let world = world(&[]).await;
    let mut stream = world
        .gateway
        .client()
        .stream("SendStreamingMessage", message("hi"))
        .await;
    let mut frames = vec![stream.event().await];
    let mut turn = world.hand.take().await;
    turn.say("a").await;
    frames.push(stream.event().await);
    frames.push(stream.event().await);
    let other = Gateway::start(&world.redis, &[]).await;
    drop(stream);
    turn.say("b").await;
    let cursor = frames.last().unwrap().cursor();
    let mut resumed = other
        .client()
        .resume("SendStreamingMessage", message("hi"), &cursor)
        .await;
    frames.push(resumed.event().await);
    turn.say("c").await;
    turn.finish(End::Completed, "d").await;
    frames.extend(resumed.rest().await);
    let texts: Vec<String> = frames.iter().map(Frame::text).collect();
    assert_eq!(texts, ["", "", "a", "b", "c", "d"]);
}

#[tokio::test]
async fn a_stream_of_one_turn_ends_there_although_the_next_is_running() {
    let world = world(&[]).await;
    let frames = finished(&world, "one", End::InputRequired).await;
    let task = task_of(&frames[0]);
    let client = world.gateway.client();
    let mut second = client.stream("SendStreamingMessage", message_to(&task, "two")).await;
    second.event().await;
    let mut resumed = client
        .resume("SubscribeToTask", json!({ "id": task }), &frames[1].cursor())
        .await;
    assert_eq!(resumed.rest().await, frames[2..]);
    // The last position of the first turn: what follows is the second.
    let last = frames.last().unwrap().cursor();
    let mut next = client.resume("SubscribeToTask", json!({ "id": task }), &last).await;
    assert_eq!(next.event().await.state(), "SUBMITTED");
    world.hand.take().await.finish(End::Completed, "done").await;
    assert_eq!(next.rest().await.last().unwrap().state(), "COMPLETED");
}

#[tokio::test]
async fn a_position_that_is_none_is_refused() {
    let world = world(&[]).await;
    let frames = finished(&world, "hi", End::Completed).await;
    let task = task_of(&frames[0]);
    let other = task_of(&finished(&world, "hi", End::Completed).await[0]);
    let client = world.gateway.client();
    let post = async |method: &str, params, cursor: &str| {
        let request = client.request(method, &params).header("last-event-id", cursor);
        let answer: serde_json::Value = request.send().await.unwrap().json().await.unwrap();
        answer["error"]["code"].as_i64().unwrap()
    };
    let subscribe = json!({ "id": task });
    for wrong in [
        "x",
        "1-1",
        &task,
        &format!("{task}.1"),
        &format!("{task}.01-1"),
        &format!("{task}.1-1 x"),
    ] {
        assert_eq!(
            post("SubscribeToTask", subscribe.clone(), wrong).await,
            -32602,
            "{wrong}"
        );
        assert_eq!(
            post("SendStreamingMessage", message("hi"), wrong).await,
            -32602,
            "{wrong}"
        );
    }
    assert_eq!(
        post("SubscribeToTask", subscribe.clone(), &format!("{other}.1-1")).await,
        -32602
    );
    let unknown = "01a22c0a-cb27-7023-b5e2-511366f7343c.1-1";
    assert_eq!(post("SendStreamingMessage", message("hi"), unknown).await, -32001);
    let mut foreign = message("hi");
    foreign["tenant"] = "other".into();
    assert_eq!(post("SendStreamingMessage", foreign, &frames[0].cursor()).await, -32001);
    assert!(world.hand.try_take().await.is_none(), "no turn was started");
}

#[tokio::test]
async fn a_position_that_is_gone_is_an_honest_gap() {
    let world = world(&[]).await;
    let frames = finished(&world, "hi", End::Completed).await;
    let task = task_of(&frames[0]);
    let client = world.gateway.client();
    let last = frames.last().unwrap().cursor();
    for lost in [format!("{task}.2-1"), format!("{task}.99-1")] {
        let mut stream = client.resume("SubscribeToTask", json!({ "id": task }), &lost).await;
        let bridge = stream.event().await;
        assert_eq!(bridge.cursor(), last);
        let shown = &bridge.result()["task"];
        let facts = &shown["metadata"]["urn:relevo:a2a:resume:v1"];
        assert_eq!(*facts, json!({ "gap": true, "requested": lost, "cursor": last }));
        assert_eq!(shown["status"]["state"], "TASK_STATE_COMPLETED");
        assert!(stream.ended().await);
    }
}

#[tokio::test]
async fn a_gap_in_a_running_turn_is_crossed_and_the_stream_goes_on() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let mut stream = client.stream("SendStreamingMessage", message("hi")).await;
    let first = stream.event().await;
    let mut turn = world.hand.take().await;
    turn.say("a").await;
    let lost = format!("{}.2-7", task_of(&first));
    let mut resumed = client.resume("SendStreamingMessage", message("hi"), &lost).await;
    let bridge = resumed.event().await;
    assert_eq!(bridge.result()["task"]["status"]["message"]["parts"][0]["text"], "a");
    turn.finish(End::Completed, "b").await;
    assert_eq!(resumed.rest().await.iter().map(Frame::text).collect::<Vec<_>>(), ["b"]);
    assert!(world.gateway.metric("relevo_gateway_stream_resumes_total").await > 0.0);
}

#[tokio::test]
async fn a_task_that_disappears_under_a_stream_ends_it_with_an_error() {
    let world = world(&[("stream.reread", "50ms")]).await;
    let client = world.gateway.client();
    let mut stream = client.stream("SendStreamingMessage", message("hi")).await;
    let task = task_of(&stream.event().await);
    let turn = world.hand.take().await;
    let keys = world.redis.cli(&["KEYS", &format!("*{task}")]);
    for key in keys.lines() {
        world.redis.cli(&["DEL", key]);
    }
    let lost = stream.event().await;
    assert_eq!(lost.id, None);
    let error = &lost.json()["error"];
    assert_eq!(error["code"], -32603);
    assert_eq!(error["data"][0]["reason"], "STATE_LOST");
    assert!(stream.ended().await);
    drop(turn);
}

#[tokio::test]
async fn a_journal_that_was_cut_after_its_turn_is_no_gap_for_who_has_seen_all_of_it() {
    let world = world(&[("stream.reread", "20ms")]).await;
    let client = world.gateway.client();
    let frames = finished(&world, "hi", End::InputRequired).await;
    let task = task_of(&frames[0]);
    let mut watcher = client.stream("SubscribeToTask", json!({ "id": task })).await;
    let snapshot = watcher.event().await;
    let last = frames.last().unwrap().cursor();
    assert_eq!(snapshot.cursor(), last);
    // What a later turn follows stays: a reader asks for it whenever it reads again.
    let (journal, entry) = (journal_of(&world, &task), last.split_once('.').unwrap().1);
    assert_ne!(world.redis.cli(&["XTRIM", &journal, "MINID", entry]), "0");
    let mut sent = client.resume("SendStreamingMessage", message("hi"), &last).await;
    assert!(sent.ended().await, "the turn is over");
    let mut resumed = client.resume("SubscribeToTask", json!({ "id": task }), &last).await;
    // The next turn is written after the last position, and both hear it.
    let mut second = client.stream("SendStreamingMessage", message_to(&task, "two")).await;
    world.hand.take().await.finish(End::Completed, "done").await;
    let watched = watcher.rest().await;
    assert_eq!(watched.last().unwrap().state(), "COMPLETED");
    assert_eq!(resumed.rest().await, watched);
    assert_eq!(second.rest().await.last().unwrap().state(), "COMPLETED");
}

#[tokio::test]
async fn a_journal_that_was_dropped_after_the_end_of_its_task_is_no_gap_for_who_has_seen_all_of_it() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let frames = finished(&world, "hi", End::Completed).await;
    let task = task_of(&frames[0]);
    let last = frames.last().unwrap().cursor();
    world.redis.cli(&["DEL", &journal_of(&world, &task)]);
    for (method, params) in [
        ("SendStreamingMessage", message("hi")),
        ("SubscribeToTask", json!({ "id": task })),
    ] {
        assert!(client.resume(method, params, &last).await.ended().await, "{method}");
    }
}

#[tokio::test]
async fn an_idle_subscription_that_was_moved_goes_on_at_another_gateway() {
    let world = world(&[("drain.delay", "0s")]).await;
    let frames = finished(&world, "hi", End::InputRequired).await;
    let task = json!({ "id": task_of(&frames[0]) });
    let mut watcher = world.gateway.client().stream("SubscribeToTask", task.clone()).await;
    let cursor = watcher.event().await.cursor();
    let other = Gateway::start(&world.redis, &[]).await;
    world.gateway.shutdown.trigger();
    assert!(watcher.ended().await);
    let mut moved = other.client().resume("SubscribeToTask", task, &cursor).await;
    let params = message_to(&task_of(&frames[0]), "two");
    let mut second = other.client().stream("SendStreamingMessage", params).await;
    world.hand.take().await.finish(End::Completed, "done").await;
    let heard: Vec<_> = moved.rest().await.iter().map(Frame::state).collect();
    assert_eq!(heard, ["SUBMITTED", "WORKING", "COMPLETED"]);
    assert_eq!(second.rest().await.last().unwrap().state(), "COMPLETED");
}
