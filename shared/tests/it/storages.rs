//! Contexts whose workspace is on a storage: their turns are for workers that have it, wherever they come from, and for nobody else.

use relevo_shared::domain::due::Charge;
use relevo_shared::domain::reason::FailReason;
use relevo_shared::domain::record::TurnRecord;
use relevo_shared::domain::state::End;
use relevo_shared::ids::Partition;
use relevo_shared::janitor::{GivenBack, Why, give_back};
use relevo_shared::store::{Asked, Bound, HistoryLength, Keep, Settled, Submitted};

use crate::fixture::{Running, STORAGE_WAIT, World, disk, is_done, serves, worker};

const ONLY: Partition = Partition(0);
const DRAINED: Why = Why::HandOver(FailReason::WorkerDrained);
/// Longer ago than a turn waits for a storage.
const LONG: u64 = STORAGE_WAIT + 1_000;

async fn back(world: &World, turn: &Running, why: Why) -> GivenBack {
    let (taken, keep) = (&turn.taken, Keep::default());
    let given = give_back(&world.store, ONLY, &taken.context, &taken.token, why, &keep);
    given.await.unwrap()
}

/// A worker with this storage was there so long ago.
async fn seen(world: &World, storage: &str, ago: u64) {
    let at = world.probe.now() - ago;
    let what = serves(&["default"], Some(storage));
    world.store.worker_seen(&worker("w-1"), &what, at).await.unwrap();
}

/// Lets a turn have been sent so long ago.
fn age(world: &World, record: &TurnRecord, ago: u64) {
    let key = world.store.keys().turn(record.turn);
    let stored = world.probe.field(&key, "r").unwrap();
    let mut stored: TurnRecord = serde_json::from_str(&stored).unwrap();
    stored.submitted -= ago;
    world.probe.set(&key, "r", serde_json::to_string(&stored).unwrap());
}

async fn look(world: &World, record: &TurnRecord) {
    let context = world.context(record);
    world.janitor().look_at(ONLY, &context).await.unwrap();
}

async fn reason(world: &World, record: &TurnRecord) -> String {
    let task = world.stored(record.task).await.into_task(HistoryLength::All);
    let metadata = task.metadata.unwrap_or_default();
    metadata["urn:relevo:a2a:turn:v1"]["reason"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Nobody but workers with this storage get the turn; they do.
async fn only_for(world: &World, record: &TurnRecord, storage: &str) -> Running {
    // It is there from the start: a take would set it right, and hide it.
    let queue = world.probe.field(&world.store.keys().turn(record.turn), "q").unwrap();
    assert!(queue.starts_with(&format!("turns:default@{storage}")), "{queue}");
    assert!(world.take_for("default", ONLY, 5).await.is_empty());
    assert!(world.take_for("default@another", ONLY, 5).await.is_empty());
    world.again_on(record, storage).await
}

#[tokio::test]
async fn a_further_turn_is_for_workers_of_the_storage_that_the_first_one_worked_on() {
    let world = World::small().await;
    let record = world.bound("c-1", "disk").await;
    let (next, submitted) = world.follow_up(record.task, "c-1").await;
    assert!(
        matches!(&submitted, Submitted::Accepted { storage: Some(storage), .. } if *storage == disk("disk")),
        "{submitted:?}"
    );
    let turn = only_for(&world, &next, "disk").await;
    assert!(is_done(&turn.finish(&world.store, End::Completed).await));
    // Another task of the same context, too; not another context.
    let next = world.queued("c-1").await;
    let free = world.queued("c-2").await;
    assert_eq!(world.take(ONLY).await.pop().unwrap().record.turn, free.turn);
    world.again_on(&next, "disk").await;
}

#[tokio::test]
async fn a_repeat_of_a_submit_says_whose_workers_take_it() {
    let world = World::small().await;
    world.bound("c-1", "disk").await;
    let record = world.queued("c-1").await;
    let again = world.submit(&record).await;
    assert!(
        matches!(
            &again,
            Submitted::Accepted {
                storage: Some(_),
                repeat: true,
                ..
            }
        ),
        "{again:?}"
    );
}

#[tokio::test]
async fn what_uses_no_workspace_or_names_no_storage_is_bound_to_none() {
    let world = World::small().await;
    // No workspace, a workspace without a storage, and one that was bound before there were storages.
    let plain = world.ended("c-1", End::InputRequired).await.taken.record;
    let turn = world.running("c-2").await;
    let bind = |turn: Running, storage| {
        let world = &world;
        async move { world.store.bind_workspace(&turn.taken, b"/a", storage).await.unwrap() }
    };
    assert_eq!(bind(turn.clone(), None).await, Bound::Here);
    turn.finish(&world.store, End::InputRequired).await;
    let (next, _) = world.follow_up(turn.taken.record.task, "c-2").await;
    let turn = world.again(&next).await;
    let storage = disk("disk");
    assert_eq!(bind(turn.clone(), Some(&storage)).await, Bound::Here);
    turn.finish(&world.store, End::InputRequired).await;
    for (record, context) in [(&plain, "c-1"), (&next, "c-2")] {
        assert_eq!(world.probe.field(&world.context_key(record), "sto"), None);
        let (next, submitted) = world.follow_up(record.task, context).await;
        assert!(
            matches!(submitted, Submitted::Accepted { storage: None, .. }),
            "{submitted:?}"
        );
        world.again(&next).await;
    }
    assert_eq!(world.probe.length("ZCARD", &world.store.keys().storages(ONLY)), 0);
}

#[tokio::test]
async fn a_turn_that_needs_no_workspace_runs_anywhere_in_a_bound_context() {
    let world = World::small().await;
    world.bound("c-1", "disk").await;
    let record = TurnRecord {
        workspace: false,
        ..world.record("c-1").await
    };
    let turn = world.run(&record).await;
    // Nor is it bound to anything when it comes back, or has waited.
    let behind = TurnRecord {
        workspace: false,
        ..world.patient("c-1").await
    };
    world.queue(&behind).await;
    assert_eq!(back(&world, &turn, DRAINED).await, GivenBack::Queued);
    let turn = world.again(&record).await;
    assert!(is_done(&turn.suspend(&world.store).await));
    let answered = world.answer(&record).await;
    assert!(
        matches!(answered, Submitted::Accepted { storage: None, .. }),
        "{answered:?}"
    );
    let turn = world.again(&record).await;
    assert!(is_done(&turn.finish(&world.store, End::Completed).await));
    let turn = world.again(&behind).await;
    assert!(is_done(&turn.finish(&world.store, End::Completed).await));
    assert_eq!(world.probe.length("ZCARD", &world.store.keys().storages(ONLY)), 0);
}

#[tokio::test]
async fn a_turn_that_comes_back_comes_back_to_its_storage() {
    let world = World::small().await;
    let mut turn = world.running("c-1").await;
    world.bind(&turn, "disk").await;
    let record = turn.taken.record.clone();
    // Handed back, crashed, delayed.
    assert_eq!(back(&world, &turn, DRAINED).await, GivenBack::Queued);
    turn = only_for(&world, &record, "disk").await;
    turn.emit(&world.store, &["x"]).await;
    assert_eq!(back(&world, &turn, Why::Crash).await, GivenBack::Queued);
    only_for(&world, &record, "disk").await;
    let view = world.view(&record).await;
    let settled = world
        .store
        .settle_requeue(&view, false, Charge::Handback, false, view.now + 100);
    assert_eq!(settled.await.unwrap(), Settled::Done);
    world.wake(&record);
    look(&world, &record).await;
    turn = only_for(&world, &record, "disk").await;
    // Its lease runs out; the next attempt is the last.
    turn.emit(&world.store, &["x"]).await;
    world.sweep(ONLY).await;
    world.expire(&record);
    look(&world, &record).await;
    turn = only_for(&world, &record, "disk").await;
    assert!(turn.taken.last_attempt);
    // Suspended and answered.
    assert!(is_done(&turn.suspend(&world.store).await));
    let answered = world.answer(&record).await;
    assert!(
        matches!(&answered, Submitted::Accepted { storage: Some(_), .. }),
        "{answered:?}"
    );
    let turn = only_for(&world, &record, "disk").await;
    assert!(is_done(&turn.finish(&world.store, End::Completed).await));
}

#[tokio::test]
async fn what_waited_behind_the_turn_that_bound_the_context_is_for_its_storage() {
    let world = World::small().await;
    let turn = world.running("c-1").await;
    let next = [world.waiting("c-1").await, world.waiting("c-1").await];
    world.bind(&turn, "disk").await;
    assert!(is_done(&turn.finish(&world.store, End::Completed).await));
    let turn = only_for(&world, &next[0], "disk").await;
    // The end that nobody's worker writes begins the next one there, too.
    world.sweep(ONLY).await;
    assert_eq!(world.cancel_unheld(&turn.taken.record).await, Settled::Done);
    only_for(&world, &next[1], "disk").await;
}

#[tokio::test]
async fn a_turn_in_a_queue_of_others_is_moved_to_its_own() {
    let world = World::small().await;
    // As a process queues it that knows of no storages; and one that was bound to another storage since.
    let record = world.queued("c-1").await;
    for (storage, from) in [("disk", "default"), ("other", "default@disk")] {
        world.probe.set(&world.context_key(&record), "sto", storage);
        let before = world.view(&record).await.live.unwrap().tries;
        assert!(world.take_for(from, ONLY, 5).await.is_empty());
        let live = world.view(&record).await.live.unwrap();
        assert_eq!(live.waits_for(), Some(format!("default@{storage}").as_str()));
        assert_eq!(live.tries, before, "nothing is charged");
        assert!(world.take_for(from, ONLY, 5).await.is_empty());
    }
    assert_eq!(
        world.sweep(ONLY).await.waiting,
        ["default@other"],
        "who takes it hears of it"
    );
    let turn = world.again_on(&record, "other").await;
    assert!(is_done(&turn.finish(&world.store, End::Completed).await));
}

#[tokio::test]
async fn a_storage_that_nobody_has_for_too_long_ends_the_turn_and_not_the_conversation() {
    let world = World::small().await;
    let record = world.bound("c-1", "disk").await;
    let (next, _) = world.follow_up(record.task, "c-1").await;
    // Just sent; and sent long ago, to a storage that somebody had a moment ago.
    look(&world, &next).await;
    seen(&world, "disk", 2_000).await;
    age(&world, &next, LONG);
    look(&world, &next).await;
    assert!(world.view(&next).await.live.is_some());
    let due = world.due(&next).unwrap();
    assert!(due > world.probe.now(), "it is looked at again");
    // Neither is so any more.
    seen(&world, "disk", LONG).await;
    look(&world, &next).await;
    assert!(world.view(&next).await.live.is_none());
    assert_eq!(reason(&world, &next).await, "workspace_unavailable");
    assert!(world.stored(next.task).await.terminal);
    assert_eq!(
        world.store.dead_turns(10).await.unwrap()[0].reason,
        "workspace_unavailable"
    );
    // The storage is back, and the conversation goes on where it was.
    let again = world.queued("c-1").await;
    seen(&world, "disk", 0).await;
    let turn = only_for(&world, &again, "disk").await;
    assert!(is_done(&turn.finish(&world.store, End::Completed).await));
}

#[tokio::test]
async fn a_storage_that_was_never_seen_is_waited_for_as_long() {
    let world = World::small().await;
    let record = world.bound("c-1", "disk").await;
    let (next, _) = world.follow_up(record.task, "c-1").await;
    assert!(
        world.due(&next).unwrap() <= world.probe.now() + 1_000,
        "someone looks soon"
    );
    look(&world, &next).await;
    assert!(world.view(&next).await.live.is_some());
    assert!(world.due(&next).unwrap() <= next.submitted + STORAGE_WAIT + 1);
    age(&world, &next, LONG);
    look(&world, &next).await;
    assert_eq!(reason(&world, &next).await, "workspace_unavailable");
}

#[tokio::test]
async fn after_a_restart_of_redis_no_storage_is_given_up_before_workers_can_say_that_they_have_it() {
    let world = World::small().await;
    let record = world.bound("c-1", "disk").await;
    let (next, _) = world.follow_up(record.task, "c-1").await;
    age(&world, &next, LONG);
    let meta = world.store.keys().meta(ONLY);
    world.probe.set(&meta, "run", "another");
    world.sweep(ONLY).await;
    look(&world, &next).await;
    assert!(world.view(&next).await.live.is_some());
    world.probe.set(&meta, "grace", "0");
    look(&world, &next).await;
    assert_eq!(reason(&world, &next).await, "workspace_unavailable");
}

#[tokio::test]
async fn what_waited_behind_a_turn_that_was_given_up_is_given_up_at_its_own_time() {
    let world = World::small().await;
    world.bound("c-1", "disk").await;
    let live = world.queued("c-1").await;
    let next = [world.waiting("c-1").await, world.waiting("c-1").await];
    for record in [&live, &next[0]] {
        age(&world, record, LONG);
    }
    for _ in 0..3 {
        look(&world, &live).await;
    }
    assert_eq!(reason(&world, &live).await, "workspace_unavailable");
    assert_eq!(reason(&world, &next[0]).await, "workspace_unavailable");
    only_for(&world, &next[1], "disk").await;
}

#[tokio::test]
async fn a_turn_that_waits_for_its_storage_can_be_cancelled() {
    let world = World::small().await;
    let record = world.bound("c-1", "disk").await;
    let (next, _) = world.follow_up(record.task, "c-1").await;
    let context = world.context(&next);
    let nonce = relevo_shared::ids::Nonce(1);
    let asked = world.store.request_cancel(ONLY, &context, next.turn, nonce).await;
    assert_eq!(asked.unwrap(), Asked::Unheld);
    assert_eq!(world.cancel_unheld(&next).await, Settled::Done);
    assert!(world.take_for("default@disk", ONLY, 5).await.is_empty());
    assert_eq!(world.stored(next.task).await.state, a2a::TaskState::Canceled);
}

#[tokio::test]
async fn the_queues_of_a_storage_are_there_as_long_as_they_hold_turns() {
    let world = World::small().await;
    let record = world.bound("c-1", "disk").await;
    let before = world.probe.keys();
    let (next, _) = world.follow_up(record.task, "c-1").await;
    assert_eq!(world.sweep(ONLY).await.waiting, ["default@disk"]);
    let turn = world.again_on(&next, "disk").await;
    assert_eq!(world.sweep(ONLY).await.waiting, [""; 0]);
    // While it runs its entry is pending there.
    let queue = world.store.keys().queue(ONLY, "default@disk", "");
    assert_eq!(world.probe.length("XLEN", &queue), 1);
    assert!(is_done(&turn.finish(&world.store, End::InputRequired).await));
    world.sweep(ONLY).await;
    let left: Vec<String> = world.probe.keys().difference(&before).cloned().collect();
    assert!(
        left.iter().all(|key| !key.contains('@') && !key.contains("storages")),
        "{left:?}"
    );
    // And they are made again.
    let (next, _) = world.follow_up(record.task, "c-1").await;
    only_for(&world, &next, "disk").await;
}

#[tokio::test]
async fn storages_are_counted_with_their_pool_and_by_themselves() {
    let world = World::small().await;
    for (context, storage) in [("c-1", "disk"), ("c-2", "disk"), ("c-3", "other")] {
        world.bound(context, storage).await;
        world.queued(context).await;
    }
    world.queued("c-4").await;
    let overview = world
        .store
        .overview_with_turns(&["default".to_owned()], 10)
        .await
        .unwrap();
    assert_eq!((overview.backlog, overview.pools["default"]), (4, 4));
    let counts: Vec<_> = overview
        .storages
        .iter()
        .map(|((pool, s), n)| (pool.as_str(), s.as_str(), *n))
        .collect();
    assert_eq!(counts, [("default", "disk", 2), ("default", "other", 1)]);
    let waits = overview.turns.iter().filter(|turn| turn.storage.is_some()).count();
    assert_eq!(waits, 3);
    // Of a pool that is nobody's here nothing is counted.
    let overview = world.store.overview(&["another".to_owned()]).await.unwrap();
    assert_eq!((overview.backlog, overview.storages.len()), (0, 0));
}

#[tokio::test]
async fn workers_say_which_storage_they_have_and_when_it_was_last_there_stays_known() {
    let world = World::small().await;
    let now = world.probe.now();
    let what = serves(&["default", "large"], Some("disk"));
    world.store.worker_seen(&worker("w-1"), &what, now).await.unwrap();
    let serving = world.store.serving().await.unwrap();
    let mut all: Vec<_> = serving
        .iter()
        .map(|entry| (entry.pool.as_str(), entry.storage.clone()))
        .collect();
    all.sort();
    let disk = Some(disk("disk"));
    assert_eq!(
        all,
        [
            ("default", None),
            ("default", disk.clone()),
            ("large", None),
            ("large", disk)
        ]
    );
    world.store.worker_left(&worker("w-1"), &what).await.unwrap();
    assert!(world.store.serving().await.unwrap().is_empty());
    assert_eq!(world.store.storage_seen("large@disk").await.unwrap(), now);
    assert_eq!(world.store.storage_seen("large@other").await.unwrap(), 0);
}

#[tokio::test]
async fn the_bell_of_a_storage_falls_silent_when_nobody_comes() {
    let world = World::small().await;
    world.store.ring("default@disk", ONLY, 5).await.unwrap();
    world.store.ring("default", ONLY, 5).await.unwrap();
    let lives = |takers: &str| world.probe.ask(&["PTTL", &world.store.keys().bell(takers)]);
    assert!(matches!(lives("default@disk"), redis::Value::Int(1..=3_600_000)));
    assert_eq!(lives("default"), redis::Value::Int(-1));
    assert_eq!(world.store.answer_bell("default@disk").await.unwrap(), Some(ONLY));
}
