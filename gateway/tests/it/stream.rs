//! SendStreamingMessage.

use relevo_shared::domain::state::End;
use relevo_shared::ids::{EntryId, TaskId};
use relevo_shared::store::JournalRead;
use serde_json::json;

use crate::client::{Frame, message, message_to};
use crate::gateway::{Gateway, store, world};
use crate::hand::Hand;

fn states(frames: &[Frame]) -> Vec<String> {
    frames.iter().map(Frame::state).collect()
}

#[tokio::test]
async fn a_stream_is_the_journal_byte_for_byte_and_ends_with_its_turn() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let mut stream = client.stream("SendStreamingMessage", message("hi")).await;
    for (name, value) in [("cache-control", "no-store"), ("x-accel-buffering", "no")] {
        assert_eq!(stream.response.headers()[name], value);
    }
    let first = stream.event().await;
    assert_eq!(stream.asides, ["retry: 1000"]);
    assert_eq!(first.result()["task"]["history"][0]["parts"][0]["text"], "hi");
    let mut turn = world.hand.take().await;
    turn.say("a").await;
    assert_eq!(stream.event().await.state(), "WORKING");
    assert_eq!(stream.event().await.text(), "a");
    let several = ["b", "c"].map(|text| turn.saying(text)).to_vec();
    turn.emit(several).await;
    // Too large for a doorbell.
    turn.say(&"x".repeat(50_000)).await;
    turn.finish(End::Completed, "done").await;
    let mut frames = vec![first];
    frames.extend(stream.rest().await);
    assert_eq!(
        states(&frames),
        ["SUBMITTED", "WORKING", "WORKING", "WORKING", "COMPLETED"]
    );

    let (task, _) = frames[0]
        .cursor()
        .split_once('.')
        .map(|(task, at)| (task.to_owned(), at.to_owned()))
        .unwrap();
    let journal = world
        .hand
        .store
        .read_journal(TaskId::parse(&task).unwrap(), EntryId::START, 100)
        .await
        .unwrap();
    let JournalRead::Entries(entries) = journal else {
        panic!("a gap")
    };
    assert_eq!(entries.len(), 7, "two frames were read one by one");
    for frame in &frames {
        let entry = entries
            .iter()
            .find(|e| format!("{task}.{}", e.id) == frame.cursor())
            .unwrap();
        let bytes = std::str::from_utf8(&entry.bytes).unwrap();
        assert_eq!(frame.data, format!(r#"{{"jsonrpc":"2.0","id":"q","result":{bytes}}}"#));
    }
    let seqs: Vec<u64> = entries.iter().map(|e| e.id.seq).collect();
    assert_eq!(seqs, (1..=7).collect::<Vec<u64>>());
}

#[tokio::test]
async fn a_stream_on_one_gateway_hears_what_was_sent_through_another_only_for_its_own_task() {
    let world = world(&[]).await;
    let other = Gateway::start(&world.redis, &[]).await;
    let mut one = world
        .gateway
        .client()
        .stream("SendStreamingMessage", message("one"))
        .await;
    let mut turn_one = world.hand.take().await;
    let mut two = other.client().stream("SendStreamingMessage", message("two")).await;
    let mut turn_two = world.hand.take().await;
    assert_eq!((turn_one.asked(), turn_two.asked()), ("one".into(), "two".into()));
    turn_two.say("for two").await;
    turn_one.say("for one").await;
    let id = turn_one.task();
    let mut watcher = other.client().stream("SubscribeToTask", json!({ "id": id })).await;
    assert_eq!(watcher.event().await.state(), "WORKING");
    turn_one.finish(End::Completed, "end one").await;
    turn_two.finish(End::Failed, "end two").await;
    let texts = |frames: &[Frame]| {
        frames
            .iter()
            .map(Frame::text)
            .filter(|t| !t.is_empty())
            .collect::<Vec<_>>()
    };
    assert_eq!(texts(&one.rest().await), ["for one", "end one"]);
    assert_eq!(texts(&two.rest().await), ["for two", "end two"]);
    assert_eq!(texts(&watcher.rest().await), ["end one"]);
}

#[tokio::test]
async fn a_follow_up_stream_opens_with_the_task_at_its_own_first_event() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let mut first = client.stream("SendStreamingMessage", message("one")).await;
    world.hand.take().await.finish(End::InputRequired, "two").await;
    let frames = first.rest().await;
    assert_eq!(frames.last().unwrap().state(), "INPUT_REQUIRED");
    let task = frames[0].result()["task"]["id"].as_str().unwrap().to_owned();
    let mut second = client.stream("SendStreamingMessage", message_to(&task, "three")).await;
    let opening = second.event().await;
    let shown = &opening.result()["task"];
    assert_eq!(shown["status"]["state"], "TASK_STATE_SUBMITTED");
    assert_eq!(shown["status"]["message"], json!(null), "the old answer is history");
    let texts: Vec<&str> = shown["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["parts"][0]["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts, ["one", "two", "three"]);
    let seq = |frame: &Frame| frame.cursor().split(['.', '-']).nth(5).unwrap().parse::<u64>().unwrap();
    assert_eq!(seq(&opening), seq(frames.last().unwrap()) + 1);
    assert_eq!(
        client.task(&task).await,
        *shown,
        "it is what GetTask says at this moment"
    );
    world.hand.take().await.finish(End::Completed, "four").await;
    let rest = second.rest().await;
    assert_eq!(states(&rest), ["WORKING", "COMPLETED"]);
    assert_eq!(seq(&rest[0]), seq(&opening) + 1);
}

#[tokio::test]
async fn credentials_that_are_missing_do_not_end_a_stream_but_a_turn_that_ends_so_does() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let mut stream = client.stream("SendStreamingMessage", message("hi")).await;
    let mut turn = world.hand.take().await;
    turn.ask_for_credentials().await;
    turn.say("thank you").await;
    turn.finish(End::AuthRequired, "and now another").await;
    let frames = stream.rest().await;
    assert_eq!(
        states(&frames),
        ["SUBMITTED", "WORKING", "AUTH_REQUIRED", "WORKING", "AUTH_REQUIRED"]
    );
}

#[tokio::test]
async fn a_silent_stream_is_kept_alive() {
    let world = world(&[("stream.keep_alive", "20ms")]).await;
    let mut stream = world
        .gateway
        .client()
        .stream("SendStreamingMessage", message("hi"))
        .await;
    stream.event().await;
    for _ in 0..3 {
        assert_eq!(stream.aside().await, ": keep-alive");
    }
    world.hand.take().await.finish(End::Completed, "").await;
    assert_eq!(states(&stream.rest().await), ["WORKING", "COMPLETED"]);
}

#[tokio::test]
async fn a_stream_that_is_too_old_is_closed_between_events_and_goes_on_where_it_was() {
    let world = world(&[("stream.max_age", "50ms")]).await;
    let client = world.gateway.client();
    let mut stream = client.stream("SendStreamingMessage", message("hi")).await;
    let first = stream.event().await;
    assert!(stream.ended().await);
    assert_eq!(
        stream.asides[stream.asides.len() - 2..],
        [": moved, come back with Last-Event-ID", "retry: 1000"]
    );
    world.hand.take().await.finish(End::Completed, "done").await;
    let mut again = client
        .resume("SendStreamingMessage", message("hi"), &first.cursor())
        .await;
    assert_eq!(states(&again.rest().await), ["WORKING", "COMPLETED"]);
}

#[tokio::test]
async fn a_reader_that_does_not_read_gets_everything_later_and_slows_nobody() {
    let world = world(&[("stream.byte_budget", "64KiB")]).await;
    let client = world.gateway.client();
    // Never reads more than its socket holds, until the end.
    let mut slow = client.stream("SendStreamingMessage", message("hi")).await;
    slow.event().await;
    let mut turn = world.hand.take().await;
    turn.begin().await;
    let mut quick = client.stream("SubscribeToTask", json!({ "id": turn.task() })).await;
    quick.event().await;
    let padding = "x".repeat(15_000);
    for n in 0..1_100 {
        turn.say(&format!("{n} {padding}")).await;
        if n % 100 == 0 {
            // The neighbour is not held up by the one that sleeps.
            loop {
                if quick.event().await.text().starts_with(&format!("{n} ")) {
                    break;
                }
            }
        }
    }
    turn.finish(End::Completed, "done").await;
    quick.rest().await;
    let texts: Vec<String> = slow.rest().await.iter().map(Frame::text).collect();
    let numbers: Vec<&str> = texts.iter().filter_map(|t| t.split_once(' ')).map(|(n, _)| n).collect();
    assert_eq!(numbers, (0..1_100).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(texts.last().unwrap(), "done");
}

#[tokio::test]
async fn a_client_that_leaves_leaves_nothing_behind_and_its_turn_goes_on() {
    let world = world(&[]).await;
    let client = world.gateway.client();
    let mut stream = client.stream("SendStreamingMessage", message("hi")).await;
    let task = stream.event().await.result()["task"]["id"].as_str().unwrap().to_owned();
    drop(stream);
    relevo_testkit::poll::until("the stream to be gone", async || {
        match world.gateway.metric("relevo_gateway_streams_open").await {
            none if none < 0.5 => Ok(()),
            open => Err(open),
        }
    })
    .await;
    let hand = Hand::new(store(&world.redis).await);
    hand.take().await.finish(End::Completed, "done").await;
    assert_eq!(client.task(&task).await["status"]["state"], "TASK_STATE_COMPLETED");
}
