//! The fence: what a worker may write that lost its lease, its journal or its permission. Nothing.

use a2a::TaskState;
use relevo_shared::domain::reason::FailReason;
use relevo_shared::domain::state::End;
use relevo_shared::ids::{EntryId, Epoch, LeaseToken, Nonce};
use relevo_shared::janitor::{GivenBack, Why, give_back};
use relevo_shared::store::{Asked, EmitReply, Held, Keep, LeaseClient, Open};

use crate::fixture::{Running, TTL, World, is_done, is_repeat, token, worker};

const DRAINED: Why = Why::HandOver(FailReason::WorkerDrained);

async fn hand_back(world: &World, turn: &Running) -> GivenBack {
    let taken = &turn.taken;
    let keep = Keep::default();
    let given = give_back(
        &world.store,
        taken.partition,
        &taken.context,
        &taken.token,
        DRAINED,
        &keep,
    );
    given.await.unwrap()
}

/// Everything that a worker can send for a turn it believes to hold; none of it changes anything.
async fn writes_nothing(world: &World, zombie: &mut Running) {
    let before = world.probe.dump();
    assert_eq!(zombie.emit(&world.store, &["late"]).await, EmitReply::Fenced);
    assert_eq!(
        zombie.emit_with_snapshot(&world.store, &["late"]).await,
        EmitReply::Fenced
    );
    for end in [End::Completed, End::InputRequired, End::Canceled] {
        assert_eq!(zombie.finish(&world.store, end).await, EmitReply::Fenced);
    }
    assert_eq!(hand_back(world, zombie).await, GivenBack::Gone);
    let held = [Held {
        context: zombie.taken.context.clone(),
        token: zombie.taken.token.clone(),
        turn: zombie.taken.record.turn,
    }];
    let (mut client, partition) = (LeaseClient::new(world.store.clone()), zombie.taken.partition);
    let renewed = tokio::task::spawn_blocking(move || client.renew(partition, TTL, &held)).await;
    assert_eq!(
        renewed.unwrap().unwrap().lost,
        std::slice::from_ref(&zombie.taken.token)
    );
    assert_eq!(world.probe.dump(), before);
}

#[tokio::test]
async fn a_worker_whose_turn_was_recovered_writes_nothing() {
    let world = World::start().await;
    let janitor = world.janitor();
    let mut zombie = world.running("c-1").await;
    zombie.emit(&world.store, &["half"]).await;
    let record = zombie.taken.record.clone();
    world.expire(&record);
    world.pass(&janitor).await;
    writes_nothing(&world, &mut zombie).await;
    world.reached("emit", "FENCED");
    world.reached("finish", "FENCED");

    let mut heir = world.again(&record).await;
    writes_nothing(&world, &mut zombie).await;
    assert!(is_done(&heir.emit(&world.store, &["whole"]).await));
    writes_nothing(&world, &mut zombie).await;
    assert!(is_done(&heir.finish(&world.store, End::InputRequired).await));
    writes_nothing(&world, &mut zombie).await;

    // Neither in a later turn of the same task.
    let (next, _) = world.follow_up(record.task, "c-1").await;
    let mut later = world.again(&next).await;
    writes_nothing(&world, &mut zombie).await;
    later.emit(&world.store, &["another answer"]).await;
    writes_nothing(&world, &mut zombie).await;
}

#[tokio::test]
async fn a_worker_of_a_purged_task_does_not_bring_its_journal_back() {
    let world = World::start().await;
    let mut turn = world.running("c-1").await;
    turn.emit(&world.store, &["x"]).await;
    let taken = turn.taken.clone();
    turn.finish(&world.store, End::Completed).await;
    let task = taken.record.task;
    let retain = world.store.keys().retain(taken.partition);
    world.probe.set_score(&retain, &format!("t:{task}"), 1);
    assert!(
        world
            .store
            .purge(taken.partition, &format!("t:{task}"), &Keep::default())
            .await
            .unwrap()
    );
    writes_nothing(&world, &mut turn).await;
    assert_eq!(
        world
            .probe
            .text(&["EXISTS", &world.store.keys().journal(task)])
            .unwrap(),
        "0"
    );
}

#[tokio::test]
async fn of_two_takers_one_gets_the_turn() {
    let world = World::start().await;
    let record = world.queued("c-1").await;
    let partition = world.partition(&record);
    let (a, b) = (worker("w-a"), worker("w-b"));
    let (first, second) = tokio::join!(
        world.take_as(&a, partition, TTL, 1),
        world.take_as(&b, partition, TTL, 1)
    );
    assert_eq!(first.len() + second.len(), 1);
}

#[tokio::test]
async fn the_epoch_rises_at_every_take_and_is_never_behind_the_clock() {
    let world = World::start().await;
    let record = world.queued("c-1").await;
    let mut last = Epoch(0);
    for _ in 0..3 {
        let before = world.probe.now();
        let turn = world.again(&record).await;
        assert!(turn.taken.epoch > last && turn.taken.epoch.0 >= before);
        last = turn.taken.epoch;
        hand_back(&world, &turn).await;
        if world.live(&record).await.at.is_some() {
            break;
        }
    }
    // A clock that was put back, or a failover to a server whose clock is behind: the epoch goes on from where it was.
    let ahead = world.probe.now() + 3_600_000;
    world.probe.set(&world.context_key(&record), "ep", ahead);
    world.wake(&record);
    world.pass(&world.janitor()).await;
    assert_eq!(world.again(&record).await.taken.epoch, Epoch(ahead + 1));
}

#[tokio::test]
async fn the_epoch_of_a_context_rises_across_its_turns() {
    let world = World::start().await;
    let first = world.ended("c-1", End::Completed).await;
    let second = world.running("c-1").await;
    assert!(second.taken.epoch > first.taken.epoch);
}

/// After a failover two workers may hold the same epoch: the token tells them apart, and the epoch tells the takes of one token.
#[tokio::test]
async fn neither_the_token_nor_the_epoch_alone_is_enough() {
    let world = World::start().await;
    let turn = world.running("c-1").await;
    let mut other_token = turn.clone();
    other_token.taken.token = token();
    let mut no_token = turn.clone();
    no_token.taken.token = LeaseToken::from_text("");
    let mut other_epoch = turn.clone();
    other_epoch.taken.epoch = Epoch(turn.taken.epoch.0 - 1);
    let before = world.probe.dump();
    for fenced in [&mut other_token, &mut no_token, &mut other_epoch] {
        assert_eq!(fenced.emit(&world.store, &["x"]).await, EmitReply::Fenced);
        assert_eq!(fenced.finish(&world.store, End::Completed).await, EmitReply::Fenced);
    }
    assert_eq!(world.probe.dump(), before);
}

#[tokio::test]
async fn an_empty_token_holds_nothing_that_is_not_leased() {
    let world = World::start().await;
    let turn = world.running("c-1").await;
    hand_back(&world, &turn).await;
    let mut nobody = turn.clone();
    nobody.taken.token = LeaseToken::from_text("");
    assert_eq!(nobody.emit(&world.store, &["x"]).await, EmitReply::Fenced);
    assert_eq!(nobody.finish(&world.store, End::Completed).await, EmitReply::Fenced);
}

#[tokio::test]
async fn an_expired_lease_that_nobody_judged_still_writes() {
    let world = World::start().await;
    let mut turn = world.running("c-1").await;
    world.expire(&turn.taken.record);
    assert!(is_done(&turn.emit(&world.store, &["x"]).await));
    assert!(is_done(&turn.finish(&world.store, End::Completed).await));
    world.reached("emit", "DONE");
    world.reached("finish", "DONE");
}

/// What a failover to a replica that was behind does: the last entries are gone and the task's hash is as it was then.
fn lose_tail(world: &World, turn: &Running, keep: &EntryId) {
    let keys = world.store.keys();
    let (journal, task) = (keys.journal(turn.taken.record.task), keys.task(turn.taken.record.task));
    let entries = world.probe.stream(&journal).entries;
    let lost = entries.iter().skip(usize::try_from(keep.seq).unwrap());
    for (id, _) in lost {
        world.probe.ask(&["XDEL", &journal, id]);
    }
    world.probe.ask(&["XSETID", &journal, &keep.to_string()]);
    world.probe.set(&task, "last", keep);
}

#[tokio::test]
async fn a_worker_whose_acknowledged_entries_were_lost_is_told_and_writes_nothing() {
    let world = World::start().await;
    let mut turn = world.running("c-1").await;
    turn.emit(&world.store, &["one"]).await;
    let kept = turn.prev;
    turn.emit(&world.store, &["two", "three"]).await;
    lose_tail(&world, &turn, &kept);
    let before = world.probe.dump();
    assert_eq!(turn.emit(&world.store, &["four"]).await, EmitReply::Diverged);
    world.reached("emit", "DIVERGED");
    assert_eq!(turn.finish(&world.store, End::Completed).await, EmitReply::Diverged);
    world.reached("finish", "DIVERGED");
    assert_eq!(world.probe.dump(), before);

    // It gives the turn back; the next attempt goes on from what is left, under nonces that name other events.
    let record = turn.taken.record.clone();
    assert_eq!(hand_back(&world, &turn).await, GivenBack::Queued);
    let mut next = world.again(&record).await;
    assert_eq!(next.prev, kept);
    assert!(is_done(&next.emit(&world.store, &["again"]).await));
    assert!(is_done(&next.finish(&world.store, End::Completed).await));
    let status = world.stored(record.task).await.folded.status;
    assert_eq!(status.message.unwrap().parts[0].as_text(), Some("again"));
    let seqs: Vec<u64> = world.journal(record.task).await.iter().map(|e| e.id.seq).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_batch_that_was_lost_after_it_was_acknowledged_is_not_taken_for_a_repeat() {
    let world = World::start().await;
    let mut turn = world.running("c-1").await;
    turn.emit(&world.store, &["one"]).await;
    let kept = turn.prev;
    let (open, events) = turn.events(&["two"]);
    let second = world.store.emit(&turn.batch(Nonce(9), open, &events)).await.unwrap();
    assert!(is_done(&second));
    let EmitReply::Done { last, .. } = second else {
        panic!("not written")
    };
    turn.prev = last;
    lose_tail(&world, &turn, &kept);
    let (open, events) = turn.events(&["three"]);
    let third = turn.batch(Nonce(10), open, &events);
    for _ in 0..2 {
        assert_eq!(world.store.emit(&third).await.unwrap(), EmitReply::Diverged);
    }
}

#[tokio::test]
async fn after_a_cancel_only_an_end_canceled_is_accepted() {
    let world = World::start().await;
    let mut turn = world.running("c-1").await;
    turn.emit(&world.store, &["x"]).await;
    let taken = turn.taken.clone();
    let marked = world
        .store
        .request_cancel(taken.partition, &taken.context, taken.record.turn, Nonce(1));
    assert_eq!(marked.await.unwrap(), Asked::Told);
    let before = world.probe.dump();
    assert_eq!(turn.emit(&world.store, &["y"]).await, EmitReply::Canceled);
    world.reached("emit", "CANCELLED");
    for end in [
        End::Completed,
        End::Failed,
        End::Rejected,
        End::InputRequired,
        End::AuthRequired,
    ] {
        assert_eq!(turn.finish(&world.store, end).await, EmitReply::Canceled);
    }
    world.reached("finish", "CANCELLED");
    assert_eq!(world.probe.dump(), before);
    assert!(is_done(&turn.finish(&world.store, End::Canceled).await));
    assert_eq!(world.stored(taken.record.task).await.state, TaskState::Canceled);
}

#[tokio::test]
async fn a_cancel_that_came_after_the_end_changes_nothing() {
    let world = World::start().await;
    let turn = world.ended("c-1", End::InputRequired).await;
    let taken = &turn.taken;
    let before = world.probe.dump();
    let cancel = world
        .store
        .request_cancel(taken.partition, &taken.context, taken.record.turn, Nonce(1));
    assert_eq!(cancel.await.unwrap(), Asked::Gone);
    assert_eq!(world.probe.dump(), before);
    // The next turn of the context is not hit by it.
    let mut next = world.running("c-1").await;
    assert!(!next.taken.canceled);
    assert!(is_done(&next.emit(&world.store, &["x"]).await));
}

#[tokio::test]
async fn a_repeat_is_known_before_the_fence_is_judged() {
    let world = World::start().await;
    let janitor = world.janitor();
    let mut turn = world.running("c-1").await;
    turn.emit(&world.store, &["one"]).await;
    let before = turn.clone();
    let (open, events) = before.events(&["two", "three"]);
    assert_eq!(open, Open::No);
    let batch = before.batch(Nonce(9), open, &events);
    assert!(is_done(&world.store.emit(&batch).await.unwrap()));
    world.expire(&turn.taken.record);
    world.pass(&janitor).await;
    let again = world.store.emit(&batch).await.unwrap();
    assert!(is_repeat(&again));
    assert!(
        matches!(again, EmitReply::Done { last, .. } if last == before.prev.after(2, Nonce(9))),
        "{again:?}"
    );
}
