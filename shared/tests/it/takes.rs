//! `take`: what it hands out, in which order, and what it never hands out.

use relevo_shared::domain::reason::FailReason;
use relevo_shared::domain::record::TurnRecord;
use relevo_shared::domain::state::End;
use relevo_shared::ids::{LeaseToken, Partition};
use relevo_shared::janitor::{GivenBack, Why, give_back};
use relevo_shared::store::{Keep, Take, Taken};

use crate::fixture::{Running, TTL, World, is_done, take, token, worker};

const ONLY: Partition = Partition(0);

fn tokens(n: usize) -> Vec<LeaseToken> {
    (0..n).map(|_| token()).collect()
}

fn turns(taken: &[Taken]) -> Vec<String> {
    taken.iter().map(|t| t.record.turn.to_string()).collect()
}

fn ids(records: &[&TurnRecord]) -> Vec<String> {
    records.iter().map(|r| r.turn.to_string()).collect()
}

async fn hand_back(world: &World, turn: &Running, why: Why) -> GivenBack {
    let taken = &turn.taken;
    let keep = Keep::default();
    let given = give_back(&world.store, taken.partition, &taken.context, &taken.token, why, &keep);
    given.await.unwrap()
}

const DRAINED: Why = Why::HandOver(FailReason::WorkerDrained);

#[tokio::test]
async fn turns_are_taken_in_order_and_never_more_than_there_are_tokens() {
    let world = World::small().await;
    let mut records = Vec::new();
    for n in 0..5 {
        records.push(world.queued(&format!("c-{n}")).await);
    }
    let first = tokens(2);
    let took = world.store.take(&take(ONLY, &world.worker, &first)).await.unwrap();
    world.reached("take", "TAKEN");
    assert!(took.full, "the queue may hold more");
    assert_eq!(turns(&took.turns), ids(&[&records[0], &records[1]]));
    let given: Vec<_> = took.turns.iter().map(|t| t.token.clone()).collect();
    assert_eq!(given, first, "a token for each, in order");

    let rest = world.store.take(&take(ONLY, &world.worker, &tokens(9))).await.unwrap();
    assert!(!rest.full);
    assert_eq!(turns(&rest.turns), ids(&[&records[2], &records[3], &records[4]]));
    assert!(world.take(ONLY).await.is_empty());
}

#[tokio::test]
async fn what_came_back_is_taken_before_what_is_new_and_within_the_same_count() {
    let world = World::small().await;
    let back = [world.running("back-0").await, world.running("back-1").await];
    let new = world.queued("new").await;
    for turn in &back {
        assert_eq!(hand_back(&world, turn, DRAINED).await, GivenBack::Queued);
    }
    let took = world.store.take(&take(ONLY, &world.worker, &tokens(2))).await.unwrap();
    assert_eq!(turns(&took.turns), ids(&[&back[0].taken.record, &back[1].taken.record]));
    assert!(took.full);
    assert_eq!(turns(&world.take(ONLY).await), ids(&[&new]));
}

#[tokio::test]
async fn turns_on_their_last_attempt_are_taken_one_at_a_time_and_only_by_who_runs_none() {
    let world = World::small().await;
    let (mut records, mut running) = (Vec::new(), Vec::new());
    for n in 0..2 {
        let record = TurnRecord {
            attempts: 2,
            ..world.record(&format!("c-{n}")).await
        };
        let mut turn = world.run(&record).await;
        turn.emit(&world.store, &["x"]).await;
        records.push(record);
        running.push(turn);
    }
    for turn in &running {
        assert_eq!(hand_back(&world, turn, Why::Crash).await, GivenBack::Queued);
    }
    let new = world.queued("new").await;
    let three = tokens(3);
    let took = world.store.take(&take(ONLY, &world.worker, &three)).await.unwrap();
    assert_eq!(
        turns(&took.turns),
        ids(&[&records[0], &new]),
        "one of the two, and others beside it"
    );
    assert!(took.turns[0].last_attempt && !took.turns[1].last_attempt);
    let none = Take {
        last: false,
        ..take(ONLY, &world.worker, &three)
    };
    assert!(world.store.take(&none).await.unwrap().turns.is_empty());
    let other = worker("w-2");
    let took = world.store.take(&take(ONLY, &other, &three)).await.unwrap();
    assert_eq!(turns(&took.turns), ids(&[&records[1]]));
}

#[tokio::test]
async fn a_repeat_with_the_same_tokens_gets_the_same_leases() {
    let world = World::small().await;
    let records = [world.queued("c-0").await, world.queued("c-1").await];
    world.queued("c-2").await;
    let two = tokens(2);
    let first = world.take_with(&world.worker, ONLY, TTL, &two, false).await;
    let before = world.probe.dump();
    let again = world.take_with(&world.worker, ONLY, TTL, &two, true).await;
    assert_eq!(turns(&again), ids(&[&records[0], &records[1]]));
    for (a, b) in first.iter().zip(&again) {
        assert_eq!(
            (&a.token, a.epoch, a.last, a.first),
            (&b.token, b.epoch, b.last, b.first)
        );
    }
    assert_eq!(world.probe.dump(), before, "nothing else was taken");
}

#[tokio::test]
async fn a_repeat_of_a_call_that_never_arrived_takes_anew() {
    let world = World::small().await;
    let record = world.queued("c-0").await;
    let taken = world.take_with(&world.worker, ONLY, TTL, &tokens(1), true).await;
    assert_eq!(turns(&taken), ids(&[&record]));
}

#[tokio::test]
async fn a_repeat_returns_what_is_left_after_a_part_of_it_ended_or_was_lost() {
    let world = World::small().await;
    let records = [
        world.queued("c-0").await,
        world.queued("c-1").await,
        world.queued("c-2").await,
    ];
    let three = tokens(3);
    let taken = world.take_with(&world.worker, ONLY, TTL, &three, false).await;
    assert!(is_done(
        &Running::new(taken[0].clone())
            .finish(&world.store, End::Completed)
            .await
    ));
    // The second was recovered and another worker has it.
    hand_back(&world, &Running::new(taken[1].clone()), DRAINED).await;
    let other = world.take_as(&worker("w-2"), ONLY, TTL, 1).await;
    assert_eq!(turns(&other), ids(&[&records[1]]));
    let again = world.take_with(&world.worker, ONLY, TTL, &three, true).await;
    assert_eq!(turns(&again), ids(&[&records[2]]));
}

#[tokio::test]
async fn another_workers_tokens_are_no_use_to_a_repeat() {
    let world = World::small().await;
    world.queued("c-0").await;
    let one = tokens(1);
    world.take_with(&world.worker, ONLY, TTL, &one, false).await;
    let stolen = world.take_with(&worker("w-2"), ONLY, TTL, &one, true).await;
    assert!(stolen.is_empty());
}

#[tokio::test]
async fn entries_that_stand_for_no_live_turn_are_dropped_by_whoever_meets_them() {
    let world = World::small().await;
    let ended = world.ended("c-0", End::Completed).await.taken.record;
    let live = world.queued("c-1").await;
    let queue = world.store.keys().queue(ONLY, "default", "");
    let first = world.store.keys().queue(ONLY, "default", ":first");
    let add = |queue: &str, turn: &str, context: &str| {
        world.probe.ask(&["XADD", queue, "*", "t", turn, "x", context]);
    };
    // A second entry for the live turn, one of an ended turn, one of nothing at all, one that is no entry of ours.
    add(&first, &live.turn.to_string(), world.context(&live).as_str());
    add(&first, &ended.turn.to_string(), world.context(&ended).as_str());
    add(&queue, "nobody", "nowhere");
    // Whoever added them did not say so: the janitor's look does.
    world.sweep(ONLY).await;
    let taken = world.take_as(&world.worker, ONLY, TTL, 8).await;
    assert_eq!(turns(&taken), ids(&[&live]));
    assert_eq!(world.probe.length("XLEN", &first), 0);
    assert_eq!(world.probe.length("XLEN", &queue), 1, "the entry of the live turn");
    let groups = &world.probe.stream(&first).groups;
    assert!(groups["workers"].pending.is_empty());
}

#[tokio::test]
async fn queues_that_are_empty_nearly_always_are_read_when_they_may_hold_turns() {
    let world = World::small().await;
    let meta = world.store.keys().meta(ONLY);
    let noted = || world.probe.text(&["HGET", &meta, "side:default"]).is_some();
    let turn = world.running("c-1").await;
    assert!(!noted());
    assert_eq!(hand_back(&world, &turn, DRAINED).await, GivenBack::Queued);
    assert!(noted());
    let taken = world.take_as(&world.worker, ONLY, TTL, 4).await;
    assert_eq!(turns(&taken), ids(&[&turn.taken.record]));
    assert!(noted(), "there could be another");
    // Of both queues nothing may be said as long as one was not asked.
    let four = tokens(4);
    let none = Take {
        last: false,
        ..take(ONLY, &world.worker, &four)
    };
    assert!(world.store.take(&none).await.unwrap().turns.is_empty() && noted());
    assert!(world.take_as(&world.worker, ONLY, TTL, 4).await.is_empty() && !noted());

    // A process that does not note it: the turn is found by the janitor's look.
    let other = world.running("c-2").await;
    assert_eq!(hand_back(&world, &other, DRAINED).await, GivenBack::Queued);
    world.probe.ask(&["HDEL", &meta, "side:default"]);
    assert!(world.take_as(&world.worker, ONLY, TTL, 4).await.is_empty());
    world.sweep(ONLY).await;
    let taken = world.take_as(&world.worker, ONLY, TTL, 4).await;
    assert_eq!(turns(&taken), ids(&[&other.taken.record]));
}

#[tokio::test]
async fn a_leased_context_is_not_available_expired_or_not() {
    let world = World::small().await;
    let turn = world.running("c-0").await;
    let queue = world.store.keys().queue(ONLY, "default", "");
    // The operator makes the group anew: every entry is delivered once more.
    world.probe.ask(&["XGROUP", "SETID", &queue, "workers", "0"]);
    let before = world.live(&turn.taken.record).await;
    assert!(world.take_as(&worker("w-2"), ONLY, TTL, 4).await.is_empty());
    world.expire(&turn.taken.record);
    world.probe.ask(&["XGROUP", "SETID", &queue, "workers", "0"]);
    assert!(world.take_as(&worker("w-3"), ONLY, TTL, 4).await.is_empty());
    let after = world.live(&turn.taken.record).await;
    assert_eq!((after.token, after.worker), (before.token, before.worker));
    assert!(
        is_done(&turn.finish(&world.store, End::Completed).await),
        "its holder goes on"
    );
    assert_eq!(world.probe.length("XLEN", &queue), 0);
}

#[tokio::test]
async fn turns_that_were_queued_before_the_group_existed_are_taken() {
    let world = World::small().await;
    let record = world.queued("c-0").await;
    let queue = world.store.keys().queue(ONLY, "default", "");
    assert!(world.probe.stream(&queue).groups.is_empty());
    assert_eq!(turns(&world.take(ONLY).await), ids(&[&record]));

    // The same after someone removed the group, or everything.
    let second = world.queued("c-1").await;
    world.probe.ask(&["XGROUP", "DESTROY", &queue, "workers"]);
    assert_eq!(
        turns(&world.take_as(&world.worker, ONLY, TTL, 2).await),
        ids(&[&second])
    );
    world.probe.ask(&["FLUSHALL"]);
    assert!(world.take(ONLY).await.is_empty());
    let third = world.queued("c-2").await;
    assert_eq!(turns(&world.take(ONLY).await), ids(&[&third]));
}

#[tokio::test]
async fn a_queue_that_is_missing_costs_no_turn_of_the_others() {
    let world = World::small().await;
    let turn = world.running("c-0").await;
    hand_back(&world, &turn, DRAINED).await;
    // The turn waits in `first`; the queue that is read after it is gone.
    let queue = world.store.keys().queue(ONLY, "default", "");
    world.probe.ask(&["DEL", &queue]);
    let taken = world.take_as(&world.worker, ONLY, TTL, 2).await;
    assert_eq!(turns(&taken), ids(&[&turn.taken.record]));
}

#[tokio::test]
async fn a_turn_that_cannot_be_read_costs_no_other_turn_its_lease() {
    let world = World::small().await;
    // Of a later version, perhaps: a policy that this one does not know.
    let newer = world.queued("c-0").await;
    let key = world.store.keys().turn(newer.turn);
    let record = world.probe.field(&key, "r").unwrap();
    world.probe.set(&key, "r", record.replace("restart", "resume"));
    let record = world.queued("c-1").await;
    let taken = world.take_as(&world.worker, ONLY, TTL, 2).await;
    assert_eq!(turns(&taken), ids(&[&record]));
}

#[tokio::test]
async fn a_pool_sees_its_own_queue_only() {
    let world = World::small().await;
    let record = TurnRecord {
        pool: "other".to_owned(),
        ..world.record("c-0").await
    };
    world.queue(&record).await;
    assert!(world.take_as(&world.worker, ONLY, TTL, 4).await.is_empty());
    let one = tokens(1);
    let other = Take {
        takers: "other",
        ..take(ONLY, &world.worker, &one)
    };
    assert_eq!(turns(&world.store.take(&other).await.unwrap().turns), ids(&[&record]));
}

#[tokio::test]
async fn taking_writes_nothing_into_the_journal_and_does_not_begin_the_turn() {
    let world = World::small().await;
    let turn = world.running("c-0").await;
    let record = &turn.taken.record;
    assert_eq!(world.kinds(record.task).await, ["1.n"]);
    let live = world.live(record).await;
    assert!(!live.tries.begun && live.tries.opened == 0);
    let until = live.until;
    assert_eq!(world.due(record), Some(until), "someone looks when the lease runs out");
}

#[tokio::test]
async fn a_worker_that_left_is_forgotten_by_the_groups_but_not_while_it_holds_a_turn() {
    let world = World::small().await;
    let mut recorder = crate::record::Recorder::start(&world.redis, &world.probe);
    world.running("c-0").await;
    world.queued("c-1").await;
    let taken = world.take_as(&worker("w-gone"), ONLY, TTL, 1).await.pop().unwrap();
    assert!(is_done(&Running::new(taken).finish(&world.store, End::Completed).await));
    let queue = world.store.keys().queue(ONLY, "default", "");
    let names = || world.probe.consumers(&queue);
    assert_eq!(names(), ["w-1", "w-gone"]);
    world.sweep(ONLY).await;
    assert_eq!(names(), ["w-1", "w-gone"], "a day of silence is needed");

    // The same sweep an hour later, with no patience.
    let mut sweep = recorder.calls(&world.probe).pop().unwrap();
    assert_eq!((sweep.script, sweep.args[2].as_str()), ("sweep", "86400000"));
    sweep.args[2] = "0".to_owned();
    let meta = world.store.keys().meta(ONLY);
    world.probe.ask(&["HDEL", &meta, "swept"]);
    sweep.send(&world.probe);
    assert_eq!(names(), ["w-1", "w-gone"], "it was looked for within the hour");
    world.probe.ask(&["HDEL", &meta, "swept", "cleaned"]);
    sweep.send(&world.probe);
    assert_eq!(names(), ["w-1"]);
}
