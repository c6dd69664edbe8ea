//! Stopping in order: what runs may finish, the rest is handed on, and nothing fails.

use a2a::TaskState;
use relevo_loadtest::client::Outgoing;
use relevo_loadtest::verify::check_task;
use relevo_shared::domain::event::TURN;
use relevo_testkit::poll;

use crate::fixture::Cluster;
use crate::wire::{LIMIT, Say, ids, message_id, rest, state_of, task_of};

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_at_its_deadline_sends_streams_and_calls_on_and_ends_well() {
    let mut cluster = Cluster::setup()
        .workers(1)
        .set("RELEVO_DRAIN_DEADLINE", "3s")
        .start()
        .await;
    let client = cluster.client();
    // Beyond the deadline, without an event when the stream is closed.
    let say = Say::new("c-1", "chunks=3 delay=2500 nonce=a");
    let (mut stream, first) = say.open(&client).await;
    let task = task_of(&first).id;
    let blocking = tokio::spawn({
        let client = client.clone();
        async move {
            let id = message_id();
            let message = Outgoing {
                message_id: &id,
                context: "c-2",
                task: None,
                text: "chunks=1 delay=6000 nonce=b",
            };
            client.send(0, &message).await.unwrap()
        }
    });
    cluster.until_held("c-2").await;
    let old = cluster.gateways.remove(0);
    assert!(old.process.sigterm());

    let mut heard = vec![first];
    heard.extend(rest(&mut stream).await);
    assert_eq!(
        state_of(&heard.last().unwrap().event),
        Some(TaskState::Working),
        "the turn still runs"
    );
    assert!(stream.retry().is_some());
    let answered = blocking.await.unwrap();
    assert_eq!(answered.metadata.unwrap()[TURN]["stillRunning"], true);
    let status = old.process.exited(LIMIT).await;
    assert!(status.success(), "{status}\n{}", old.process.log());

    let other = cluster.client();
    let last = ids(&heard).pop();
    heard.extend(rest(&mut other.subscribe(0, &task, last.as_deref()).await.unwrap()).await);
    let all: Vec<String> = cluster
        .journal(&task)
        .iter()
        .map(|entry| format!("{task}.{}", entry.id))
        .collect();
    assert_eq!(ids(&heard), all);
    assert_eq!(
        check_task(&other.get(0, &task).await.unwrap(), "c-1", &[say.expect()]),
        []
    );
    cluster.until_over("c-2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_closes_a_subscription_that_waits_for_nothing_at_once() {
    let mut cluster = Cluster::setup().workers(1).start().await;
    let client = cluster.client();
    let first = Say::new("c-1", "chunks=1 end=input-required nonce=a");
    let (done, _) = first.checked(&client).await;
    let mut here = client.subscribe(0, &done.task, None).await.unwrap();
    let mut there = client.subscribe(1, &done.task, None).await.unwrap();
    assert_eq!(
        state_of(&here.next().await.unwrap().unwrap().event),
        Some(TaskState::InputRequired)
    );
    assert_eq!(
        state_of(&there.next().await.unwrap().unwrap().event),
        Some(TaskState::InputRequired)
    );

    let old = cluster.gateways.remove(0);
    assert!(old.process.sigterm());
    assert_eq!(rest(&mut here).await, []);
    assert!(old.process.exited(LIMIT).await.success());

    // The other stays open across a turn that asks again, until the task has ended.
    let client = cluster.client();
    for (text, state) in [
        ("chunks=2 end=input-required nonce=b", TaskState::InputRequired),
        ("chunks=2 nonce=c", TaskState::Completed),
    ] {
        Say::new("c-1", text).task(&done.task).run(&client).await.unwrap();
        loop {
            let event = there.next().await.unwrap().expect("the task has not ended");
            if state_of(&event.event).as_ref() == Some(&state) {
                break;
            }
        }
    }
    assert_eq!(rest(&mut there).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stops_hands_its_turns_on_and_none_is_charged() {
    let mut cluster = Cluster::setup()
        .workers(1)
        .set("RELEVO_DRAIN_DEADLINE", "10s")
        .start()
        .await;
    let client = cluster.client();
    let short = Say::new("c-short", "chunks=10 delay=100 nonce=a");
    let long = Say::new("c-long", "chunks=14 delay=500 nonce=b");
    let turns = [short, long].map(|say| {
        let client = client.clone();
        tokio::spawn(async move { say.checked(&client).await.0 })
    });
    cluster.until_begun("c-short").await;
    cluster.until_begun("c-long").await;
    let old = cluster.workers.remove(0);
    assert!(old.process.sigterm());
    cluster.start_worker().await;
    poll::until("the long turn to be handed on", || async {
        if cluster.turn("c-long", "handbacks") == "1" {
            Ok(())
        } else {
            Err("not yet")
        }
    })
    .await;
    assert_eq!(cluster.turn("c-long", "charged"), "");
    assert!(old.process.exited(LIMIT).await.success());
    let mut boundaries = Vec::new();
    for turn in turns {
        boundaries.push(turn.await.unwrap().boundaries);
    }
    assert_eq!(boundaries, [0, 1], "the short one finished, the long one began anew");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_stops_at_once_and_the_turn_goes_on_elsewhere() {
    let mut cluster = Cluster::setup().start().await;
    let say = Say::new("c-1", "chunks=20 delay=200 nonce=a");
    let client = cluster.client();
    let turn = tokio::spawn(async move { say.checked(&client).await });
    let holder = cluster.until_held("c-1").await;
    cluster.until_begun("c-1").await;
    for member in [cluster.workers.remove(holder), cluster.gateways.remove(0)] {
        assert!(member.process.sigterm());
        poll::until("the signal to be heard", || async {
            if member.process.log().contains("draining") || member.process.log().contains("shutting down") {
                Ok(())
            } else {
                Err(member.process.log())
            }
        })
        .await;
        member.process.sigterm();
        member.process.exited(LIMIT).await;
    }
    let (done, _) = turn.await.unwrap();
    assert_eq!((done.resumes, done.boundaries), (1, 1));
}
