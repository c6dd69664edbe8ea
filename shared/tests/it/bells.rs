//! Doorbells: what is heard, and that nothing is heard which was not written.

use relevo_shared::domain::state::End;
use relevo_shared::ids::Nonce;
use relevo_shared::store::{Asked, Doorbell, EmitReply, Keep};

use crate::fixture::{World, is_done, is_repeat};

#[tokio::test]
async fn a_doorbell_carries_what_was_written_or_where_it_is_when_it_is_large() {
    let world = World::start().await;
    let mut turn = world.running("c-1").await;
    let (mut ear, handle) = world.store.subscriber().await.unwrap();
    handle.follow(turn.taken.record.task).await.unwrap();
    let large = "x".repeat(20_000);
    for text in ["small", &large] {
        let prev = turn.prev;
        turn.emit(&world.store, &[text]).await;
        let heard = ear.next().await.unwrap();
        assert_eq!(heard.channel, world.store.keys().channel(turn.taken.record.task));
        let bell = Doorbell::parse(&heard.payload).unwrap();
        assert_eq!((bell.prev, bell.last), (prev, turn.prev));
        let journal = world.journal(turn.taken.record.task).await;
        let written = &journal[usize::try_from(prev.seq).unwrap()..];
        assert_eq!(bell.events.len(), written.len());
        for (heard, written) in bell.events.iter().zip(written) {
            assert_eq!((heard.id, heard.kind), (written.id, written.kind));
            let carried = heard.bytes.as_ref().map(|b| b.to_vec());
            assert_eq!(
                carried,
                (text == "small").then(|| written.bytes.clone()),
                "the journal is the truth"
            );
        }
    }
    assert_eq!(world.counter("relevo_store_doorbells_refused_total"), 0);
}

#[tokio::test]
async fn nobody_hears_of_an_event_that_was_not_written() {
    let world = World::start().await;
    let mut turn = world.running("c-1").await;
    turn.emit(&world.store, &["one"]).await;
    let (mut ear, handle) = world.store.subscriber().await.unwrap();
    handle.follow(turn.taken.record.task).await.unwrap();
    // Fenced, diverged, cancelled, repeated: none of them rings.
    let mut stranger = turn.clone();
    stranger.taken.token = crate::fixture::token();
    assert_eq!(stranger.emit(&world.store, &["fenced"]).await, EmitReply::Fenced);
    let mut behind = turn.clone();
    behind.prev = behind.prev.after(1, Nonce(1));
    assert_eq!(behind.emit(&world.store, &["diverged"]).await, EmitReply::Diverged);
    let (open, events) = turn.events(&["two"]);
    let batch = turn.batch(Nonce(9), open, &events);
    assert!(is_done(&world.store.emit(&batch).await.unwrap()));
    assert!(is_repeat(&world.store.emit(&batch).await.unwrap()));
    turn.fold_in(&events, Nonce(9));
    turn.prev = turn.prev.after(1, Nonce(9));
    assert!(is_done(&turn.finish(&world.store, End::Completed).await));
    let mut heard = Vec::new();
    while heard
        .last()
        .is_none_or(|bell: &Doorbell| !bell.events[0].kind.class.ends_turn())
    {
        heard.push(Doorbell::parse(&ear.next().await.unwrap().payload).unwrap());
    }
    assert_eq!(heard.len(), 2, "{heard:?}");
    assert_eq!(heard[0].last, heard[1].prev);
}

#[tokio::test]
async fn a_follow_up_rings_for_whoever_follows_the_task() {
    let world = World::start().await;
    let task = world.ended("c-1", End::InputRequired).await.taken.record.task;
    let (mut ear, handle) = world.store.subscriber().await.unwrap();
    handle.follow_all(&[task]).await.unwrap();
    world.follow_up(task, "c-1").await;
    let bell = Doorbell::parse(&ear.next().await.unwrap().payload).unwrap();
    assert_eq!(bell.events[0].kind.to_string(), "2.n");
    handle.leave_all(&[task]).await.unwrap();
    handle.ping().await.unwrap();
}

#[tokio::test]
async fn the_worker_of_a_cancelled_turn_is_told_and_so_are_the_readers_of_a_deleted_task() {
    let world = World::start().await;
    let turn = world.running("c-1").await;
    let taken = &turn.taken;
    let (mut ear, handle) = world.store.subscriber().await.unwrap();
    handle.follow_control().await.unwrap();
    let asked = world
        .store
        .request_cancel(taken.partition, &taken.context, taken.record.turn, Nonce(1));
    assert_eq!(asked.await.unwrap(), Asked::Told);
    let heard = ear.next().await.unwrap();
    assert_eq!(heard.channel, world.store.keys().control(taken.partition));
    let told = format!("cancel {} {}", taken.context, taken.record.turn);
    assert_eq!(heard.payload, told.as_bytes());

    turn.finish(&world.store, End::Canceled).await;
    handle.follow(taken.record.task).await.unwrap();
    let member = format!("t:{}", taken.record.task);
    world
        .probe
        .set_score(&world.store.keys().retain(taken.partition), &member, 1);
    world
        .store
        .purge(taken.partition, &member, &Keep::default())
        .await
        .unwrap();
    let heard = ear.next().await.unwrap();
    assert_eq!(heard.payload, "gone".as_bytes());
    assert!(Doorbell::parse(&heard.payload).is_none());
}

#[tokio::test]
async fn the_end_of_a_connection_is_noticed() {
    let world = World::start().await;
    let (mut ear, handle) = world.store.subscriber().await.unwrap();
    handle.follow_control().await.unwrap();
    world.probe.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    assert_eq!(ear.next().await, None);
    assert!(handle.ping().await.is_err());
}
