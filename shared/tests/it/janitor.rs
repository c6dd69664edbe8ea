//! The janitor: what becomes of turns that nobody looks after any more.

use a2a::{Part, TaskState};
use prometheus::Registry;
use relevo_shared::domain::due::{Charge, QUEUED_CHECK_MS};
use relevo_shared::domain::event::{Stopped, TURN};
use relevo_shared::domain::reason::{FailReason, LastAttempt};
use relevo_shared::domain::record::{CrashPolicy, Tries, TurnRecord, VERSION};
use relevo_shared::domain::state::End;
use relevo_shared::ids::{ContextKey, Nonce, Partition, TurnId};
use relevo_shared::janitor::{
    Conclusion, GivenBack, Janitor, JanitorMetrics, JanitorSettings, Why, conclude, give_back,
};
use relevo_shared::store::{Asked, HistoryLength, Keep, Settled, StoreError};
use relevo_testkit::poll;

use crate::fixture::{Running, TTL, World, is_done};

const ONLY: Partition = Partition(0);
const DRAINED: Why = Why::HandOver(FailReason::WorkerDrained);

async fn hand_back(world: &World, turn: &Running, why: Why) -> GivenBack {
    let (taken, keep) = (&turn.taken, Keep::default());
    give_back(&world.store, taken.partition, &taken.context, &taken.token, why, &keep)
        .await
        .unwrap()
}

/// The worker dies, its lease runs out, the janitor passes.
async fn crash(world: &World, turn: &Running) {
    world.expire(&turn.taken.record);
    world.pass(&world.janitor()).await;
}

/// How a task ended: state, reason, text.
async fn ending(world: &World, record: &TurnRecord) -> (TaskState, Option<String>, Option<String>) {
    let status = world.stored(record.task).await;
    let reason = status.folded.metadata.get(TURN).and_then(|facts| facts.get("reason"));
    let text = status.folded.status.message.as_ref().and_then(|m| m.parts[0].as_text());
    (
        status.state,
        reason.and_then(|r| r.as_str()).map(str::to_owned),
        text.map(str::to_owned),
    )
}

async fn failed_with(world: &World, record: &TurnRecord, reason: FailReason) {
    failed_as(world, record, reason, reason.text()).await;
}

/// After its last attempt, which ended in this way.
async fn exhausted(world: &World, record: &TurnRecord, last: LastAttempt) {
    let text = LastAttempt::text(Some(last), record.policy, record.attempts);
    failed_as(world, record, FailReason::AttemptsExhausted, &text).await;
    let metadata = world.stored(record.task).await.folded.metadata;
    assert_eq!(metadata[TURN]["lastAttempt"], last.as_str());
}

async fn failed_as(world: &World, record: &TurnRecord, reason: FailReason, text: &str) {
    let expected = (
        TaskState::Failed,
        Some(reason.as_str().to_owned()),
        Some(text.to_owned()),
    );
    assert_eq!(ending(world, record).await, expected);
    assert!(world.view(record).await.live.is_none());
    assert_eq!(world.due(record), None);
}

/// The queue that a turn waits in, if it does.
fn waits_in(world: &World, record: &TurnRecord) -> Option<&'static str> {
    let mut found = None;
    for suffix in ["", ":first", ":last"] {
        let queue = world.store.keys().queue(world.partition(record), &record.pool, suffix);
        let entries = world.probe.stream(&queue).entries;
        let turn = record.turn.to_string();
        let mine = entries.iter().filter(|(_, fields)| fields["t"] == turn).count();
        assert!(mine <= 1 && (mine == 0 || found.is_none()), "it waits twice");
        if mine == 1 {
            found = Some(suffix);
        }
    }
    found
}

fn tries(charged: u32, handbacks: u32, opened: u32) -> Tries {
    Tries {
        charged,
        handbacks,
        opened,
        begun: false,
    }
}

#[tokio::test]
async fn a_turn_whose_worker_died_runs_again_until_its_last_attempt_and_is_then_a_dead_letter() {
    let world = World::start().await;
    let record = world.record("c-1").await;
    let mut turn = world.run(&record).await;
    for (charged, queue) in [(1, ":first"), (2, ":last")] {
        assert!(is_done(&turn.emit(&world.store, &["half "]).await));
        crash(&world, &turn).await;
        let live = world.live(&record).await;
        assert_eq!(live.tries, tries(charged, 0, charged));
        assert_eq!(waits_in(&world, &record), Some(queue));
        assert_eq!(live.token, None);
        turn = world.again(&record).await;
        assert_eq!(turn.taken.last_attempt, queue == ":last");
    }
    turn.emit(&world.store, &["half "]).await;
    crash(&world, &turn).await;
    exhausted(&world, &record, LastAttempt::WorkerLost).await;
    assert_eq!(waits_in(&world, &record), None);
    let kinds = ["1.n", "1.n", "1.n", "1.b", "1.n", "1.b", "1.n", "1.t"];
    assert_eq!(world.kinds(record.task).await, kinds);

    let dead = world.store.dead_turns(10).await.unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!(
        (dead[0].reason.as_str(), &dead[0].record),
        ("attempts_exhausted", &record)
    );
    assert!(world.store.dead_turn(record.turn).await.unwrap().is_some());
}

#[tokio::test]
async fn what_an_at_most_once_turn_began_elsewhere_is_stopped_by_one_more_attempt() {
    let world = World::start().await;
    for (context, then) in [("stops", Some(false)), ("canceled", Some(true)), ("lost", None)] {
        let record = TurnRecord {
            policy: CrashPolicy::Fail,
            stop_after_crash: true,
            ..world.record(context).await
        };
        let mut turn = world.run(&record).await;
        turn.emit(&world.store, &["half "]).await;
        crash(&world, &turn).await;
        assert_eq!(world.live(&record).await.tries, tries(1, 0, 1));
        assert_eq!(waits_in(&world, &record), Some(":first"));
        let last = world.again(&record).await;
        match then {
            Some(canceled) => {
                if canceled {
                    let taken = &last.taken;
                    let asked = world
                        .store
                        .request_cancel(taken.partition, &taken.context, record.turn, Nonce(7))
                        .await;
                    assert_eq!(asked.unwrap(), Asked::Told);
                }
                let end = if canceled { End::Canceled } else { End::Failed };
                let given = hand_back(&world, &last, Why::Stopped(Stopped::Acknowledged)).await;
                assert_eq!(given, GivenBack::Ended(end));
                let stored = world.stored(record.task).await;
                assert_eq!(stored.folded.metadata[TURN]["stopped"], "acknowledged");
            }
            None => crash(&world, &last).await,
        }
        if then != Some(true) {
            // What ended the attempt before nobody knows.
            let text = LastAttempt::text(None, record.policy, record.attempts);
            failed_as(&world, &record, FailReason::AttemptsExhausted, &text).await;
            let metadata = world.stored(record.task).await.folded.metadata;
            assert!(metadata[TURN].get("lastAttempt").is_none());
        }
        // What the crashed attempt said is not void.
        assert_eq!(world.kinds(record.task).await, ["1.n", "1.n", "1.n", "1.t"]);
        assert_eq!(waits_in(&world, &record), None);
    }
    assert_eq!(world.store.dead_turns(10).await.unwrap().len(), 2);
}

#[tokio::test]
async fn whoever_gives_up_the_last_attempt_says_that_its_agent_stopped() {
    let world = World::start().await;
    for policy in [CrashPolicy::Fail, CrashPolicy::Restart] {
        let record = TurnRecord {
            policy,
            attempts: 1,
            ..world.record(&format!("{policy:?}")).await
        };
        let mut turn = world.run(&record).await;
        turn.emit(&world.store, &["half "]).await;
        assert_eq!(
            hand_back(&world, &turn, Why::Crash).await,
            GivenBack::Ended(End::Failed)
        );
        exhausted(&world, &record, LastAttempt::AgentStopped).await;
    }
}

#[tokio::test]
async fn an_at_most_once_turn_that_began_is_never_run_again() {
    let world = World::start().await;
    for (context, why) in [("crash", None), ("drain", Some(DRAINED))] {
        let record = TurnRecord {
            policy: CrashPolicy::Fail,
            ..world.record(context).await
        };
        let mut turn = world.run(&record).await;
        turn.emit(&world.store, &["half "]).await;
        match why {
            None => {
                crash(&world, &turn).await;
                exhausted(&world, &record, LastAttempt::WorkerLost).await;
            }
            Some(why) => {
                assert_eq!(hand_back(&world, &turn, why).await, GivenBack::Ended(End::Failed));
                failed_with(&world, &record, FailReason::WorkerDrained).await;
            }
        }
        assert_eq!(waits_in(&world, &record), None);
    }
    let dead = world.store.dead_turns(10).await.unwrap();
    assert_eq!(dead.len(), 1, "a drain is no matter for an operator");
}

#[tokio::test]
async fn a_turn_whose_agent_never_began_goes_back_without_a_charge_under_every_policy() {
    let world = World::start().await;
    for (context, policy) in [("c-1", CrashPolicy::Restart), ("c-2", CrashPolicy::Fail)] {
        let record = TurnRecord {
            policy,
            ..world.record(context).await
        };
        let turn = world.run(&record).await;
        crash(&world, &turn).await;
        assert_eq!(world.live(&record).await.tries, tries(0, 1, 0));
        assert_eq!(waits_in(&world, &record), Some(":first"));
        let mut again = world.again(&record).await;
        assert!(is_done(&again.emit(&world.store, &["whole"]).await));
        assert_eq!(
            world.kinds(record.task).await,
            ["1.n", "1.n", "1.n"],
            "no boundary: nothing is void"
        );
    }
}

#[tokio::test]
async fn a_turn_that_is_handed_back_waits_longer_each_time_and_not_for_ever() {
    let world = World::start().await;
    let record = world.record("c-1").await;
    let mut turn = world.run(&record).await;
    let janitor = world.janitor();
    for n in 1..=20_u32 {
        turn.emit(&world.store, &["x"]).await;
        let before = world.probe.now();
        assert_eq!(hand_back(&world, &turn, DRAINED).await, GivenBack::Queued);
        let live = world.live(&record).await;
        assert_eq!(live.tries, tries(0, n, n), "nothing is charged");
        let wait = relevo_shared::domain::retry::handback_wait(n);
        if wait == 0 {
            assert_eq!((live.at, waits_in(&world, &record)), (None, Some(":first")));
        } else {
            let at = live.at.unwrap();
            assert!(at >= before + wait && at <= world.probe.now() + wait);
            assert_eq!(world.due(&record), Some(at));
            assert_eq!(waits_in(&world, &record), None);
            world.wake(&record);
            world.pass(&janitor).await;
            assert_eq!(world.live(&record).await.tries, tries(0, n, n));
            assert_eq!(waits_in(&world, &record), Some(":first"));
        }
        turn = world.again(&record).await;
    }
    assert_eq!(hand_back(&world, &turn, DRAINED).await, GivenBack::Ended(End::Failed));
    failed_with(&world, &record, FailReason::HandbacksExhausted).await;
    assert_eq!(
        world.store.dead_turns(10).await.unwrap()[0].reason,
        "handbacks_exhausted"
    );
}

/// Losing Redis for longer than a lease is not the turn's fault: its worker gives it back when Redis answers.
#[tokio::test]
async fn a_turn_is_handed_back_uncharged_although_its_lease_has_run_out() {
    let world = World::start().await;
    let mut turn = world.running("c-1").await;
    turn.emit(&world.store, &["x"]).await;
    world.expire(&turn.taken.record);
    assert_eq!(
        hand_back(&world, &turn, Why::HandOver(FailReason::RedisUnavailable)).await,
        GivenBack::Queued
    );
    assert_eq!(world.live(&turn.taken.record).await.tries, tries(0, 1, 1));
}

#[tokio::test]
async fn dead_letters_are_bounded() {
    let world = World::start().await;
    let record = TurnRecord {
        attempts: 1,
        ..world.record("c-1").await
    };
    let mut turn = world.run(&record).await;
    turn.emit(&world.store, &["x"]).await;
    let dead = world.store.keys().dead(turn.taken.partition);
    for _ in 0..500 {
        world.probe.ask(&["XADD", &dead, "*", "reason", "filler"]);
    }
    world.expire(&record);
    let keep = Keep {
        dead: 10,
        ..Keep::default()
    };
    world.pass(&world.janitor_with(keep)).await;
    assert_eq!(world.probe.length("XLEN", &dead), 10);
    assert!(
        world
            .probe
            .stream(&dead)
            .entries
            .iter()
            .any(|(_, fields)| fields["reason"] == "attempts_exhausted")
    );
}

#[tokio::test]
async fn large_dead_letters_push_out_more_and_none_stays_longer_than_tasks() {
    let world = World::small().await;
    let keep = Keep::default();
    let dead = world.store.keys().dead(ONLY);
    // As old as a task may become, and nearly so.
    let now = world.probe.now();
    for age in [keep.task_ms + 1, keep.task_ms - 60_000] {
        let id = format!("{}-1", now - age);
        world.probe.ask(&["XADD", &dead, &id, "reason", "filler"]);
    }
    let mut sizes = vec![2];
    for (n, text) in [1_000, 1_500_000, 1_500_000, 1_500_000, 1_000].into_iter().enumerate() {
        let mut record = world.record(&format!("c-{n}")).await;
        record.attempts = 1;
        record.message.parts = vec![Part::text("x".repeat(text))];
        let mut turn = world.run(&record).await;
        turn.emit(&world.store, &["x"]).await;
        crash(&world, &turn).await;
        sizes.push(world.probe.length("XLEN", &dead));
    }
    // Of those as large as 1.5 MB two have room, whoever else was there; a small one pushes out nobody.
    assert_eq!(sizes, [2, 2, 2, 2, 2, 3]);
    let left: i64 = world.probe.text(&["PTTL", &dead]).unwrap().parse().unwrap();
    assert!((1..=i64::try_from(keep.task_ms).unwrap()).contains(&left), "{left}");
}

#[tokio::test]
async fn a_delayed_turn_is_left_alone_until_its_time() {
    let world = World::start().await;
    let turn = world.running("c-1").await;
    let record = &turn.taken.record;
    let view = world.view(record).await;
    let at = view.now + 3_600_000;
    let delayed = world
        .store
        .settle_requeue(&view, false, Charge::Handback, false, at)
        .await;
    assert_eq!(delayed.unwrap(), Settled::Done);
    let janitor = world.janitor();
    let context = world.context(record);
    janitor.look_at(world.partition(record), &context).await.unwrap();
    assert_eq!(
        (world.live(record).await.at, waits_in(&world, record)),
        (Some(at), None)
    );
    world.wake(record);
    world.pass(&janitor).await;
    assert_eq!(waits_in(&world, record), Some(":first"));
    let due = world.due(record).unwrap();
    assert!(due > view.now && due <= world.probe.now() + QUEUED_CHECK_MS);
}

#[tokio::test]
async fn an_entry_that_vanished_is_queued_again() {
    let world = World::start().await;
    let janitor = world.janitor();
    world.pass(&janitor).await;
    for how in ["xdel", "del", "group at $", "setid $", "trim"] {
        let record = world.queued(how).await;
        let partition = world.partition(&record);
        let queue = world.store.keys().queue(partition, "default", "");
        let entry = world.probe.stream(&queue).entries[0].0.clone();
        match how {
            "xdel" => world.probe.ask(&["XDEL", &queue, &entry]),
            "del" => world.probe.ask(&["DEL", &queue]),
            "group at $" => world.probe.ask(&["XGROUP", "CREATE", &queue, "workers", "$"]),
            "setid $" => {
                world.probe.ask(&["XGROUP", "CREATE", &queue, "workers", "0"]);
                world.probe.ask(&["XGROUP", "SETID", &queue, "workers", "$"])
            }
            _ => world.probe.ask(&["XTRIM", &queue, "MAXLEN", "0"]),
        };
        let context = world.context(&record);
        janitor.look_at(partition, &context).await.unwrap();
        assert_eq!(waits_in(&world, &record), Some(":first"), "{how}");
        assert_eq!(world.live(&record).await.tries, tries(0, 1, 0), "{how}");
        assert_eq!(world.again(&record).await.taken.record, record, "{how}");
    }
}

#[tokio::test]
async fn an_entry_that_waits_is_left_where_it_is() {
    let world = World::start().await;
    let janitor = world.janitor();
    let record = world.queued("c-1").await;
    let (partition, context) = (world.partition(&record), world.context(&record));
    for group in ["no group", "a group"] {
        let before = world.probe.now();
        janitor.look_at(partition, &context).await.unwrap();
        assert_eq!(waits_in(&world, &record), Some(""), "{group}");
        assert!(world.due(&record).unwrap() >= before + QUEUED_CHECK_MS, "{group}");
        let queue = world.store.keys().queue(partition, "default", "");
        world.probe.try_ask(&["XGROUP", "CREATE", &queue, "workers", "0"]).ok();
    }
    assert_eq!(world.live(&record).await.tries, tries(0, 0, 0));
}

#[tokio::test]
async fn a_turn_that_waited_too_long_for_its_first_worker_ends() {
    let world = World::start().await;
    let record = TurnRecord {
        queue_age: 0,
        ..world.record("c-1").await
    };
    world.queue(&record).await;
    assert!(
        world.due(&record).unwrap() <= record.submitted + 1,
        "someone looks when it is too old"
    );
    poll::until("the turn to be too old", || async {
        (world.probe.now() > record.submitted + 1)
            .then_some(())
            .ok_or("the same millisecond")
    })
    .await;
    world.pass(&world.janitor()).await;
    failed_with(&world, &record, FailReason::QueueExpired).await;
    assert_eq!(world.store.dead_turns(10).await.unwrap()[0].reason, "queue_expired");
    assert_eq!(waits_in(&world, &record), None);
    assert!(world.take(world.partition(&record)).await.is_empty());

    // One that a worker had does not count its age again.
    let old = TurnRecord {
        queue_age: 0,
        ..world.record("c-2").await
    };
    let turn = world.run(&old).await;
    hand_back(&world, &turn, DRAINED).await;
    world
        .janitor()
        .look_at(world.partition(&old), &world.context(&old))
        .await
        .unwrap();
    assert_eq!(waits_in(&world, &old), Some(":first"));
}

#[tokio::test]
async fn a_deadline_ends_a_turn_that_nobody_holds_wherever_it_stands() {
    let world = World::start().await;
    let janitor = world.janitor();
    for standing in ["queued", "delayed", "expired"] {
        let mut record = world.record(standing).await;
        record.deadline = Some(record.submitted);
        world.queue(&record).await;
        assert_eq!(
            world.due(&record),
            Some(record.submitted),
            "someone looks at the deadline"
        );
        if standing != "queued" {
            let turn = world.again(&record).await;
            if standing == "expired" {
                world.expire(&record);
            } else {
                let view = world.view(&record).await;
                let at = view.now + 3_600_000;
                let delayed = world
                    .store
                    .settle_requeue(&view, false, Charge::Handback, false, at)
                    .await;
                assert_eq!(delayed.unwrap(), Settled::Done);
                assert_eq!(world.due(&record), record.deadline, "not as late as the wait");
            }
            drop(turn);
        }
        world.pass(&janitor).await;
        failed_with(&world, &record, FailReason::DeadlineExceeded).await;
    }
    assert!(world.store.dead_turns(10).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_leased_turn_is_its_workers_to_end_whatever_its_deadline() {
    let world = World::start().await;
    let mut record = world.record("c-1").await;
    record.deadline = Some(record.submitted);
    let mut turn = world.run(&record).await;
    let context = world.context(&record);
    world
        .janitor()
        .look_at(world.partition(&record), &context)
        .await
        .unwrap();
    assert!(is_done(&turn.emit(&world.store, &["x"]).await));
}

#[tokio::test]
async fn a_cancelled_turn_whose_worker_died_is_canceled_and_not_run_again() {
    let world = World::start().await;
    for begun in [true, false] {
        let mut turn = world.running(&format!("c-{begun}")).await;
        if begun {
            turn.emit(&world.store, &["half"]).await;
        }
        let taken = turn.taken.clone();
        world
            .store
            .request_cancel(taken.partition, &taken.context, taken.record.turn, Nonce(1))
            .await
            .unwrap();
        crash(&world, &turn).await;
        assert_eq!(world.stored(taken.record.task).await.state, TaskState::Canceled);
        assert_eq!(waits_in(&world, &taken.record), None);
        assert!(world.view(&taken.record).await.live.is_none());
    }
}

#[tokio::test]
async fn a_cancel_wins_over_a_give_back_that_was_decided_before_it() {
    let world = World::start().await;
    let mut turn = world.running("c-1").await;
    turn.emit(&world.store, &["x"]).await;
    let record = turn.taken.record.clone();
    let old = world.view(&record).await;
    let cancel = world
        .store
        .request_cancel(old.partition, &old.context, record.turn, Nonce(1));
    assert_eq!(cancel.await.unwrap(), Asked::Told);
    let before = world.probe.dump();
    let drained = Conclusion {
        end: End::Failed,
        reason: Some(FailReason::WorkerDrained),
        dead: false,
        only_expired: false,
    };
    let ended = conclude(&world.store, &old, drained, &Keep::default()).await;
    assert_eq!(ended.unwrap(), Settled::Changed);
    let requeued = world
        .store
        .settle_requeue(&old, false, Charge::Handback, false, 0)
        .await;
    assert_eq!(requeued.unwrap(), Settled::Changed);
    assert_eq!(world.probe.dump(), before);
    assert_eq!(hand_back(&world, &turn, DRAINED).await, GivenBack::Ended(End::Canceled));
}

#[tokio::test]
async fn a_look_that_came_too_late_does_not_put_off_an_earlier_one() {
    let world = World::start().await;
    let record = world.queued("c-1").await;
    let old = world.view(&record).await;
    while world.live(&record).await.at.is_none() {
        let turn = world.again(&record).await;
        hand_back(&world, &turn, DRAINED).await;
    }
    let at = world.live(&record).await.at;
    let late = world.store.settle_due(&old, old.now + QUEUED_CHECK_MS).await;
    assert_eq!(late.unwrap(), Settled::Changed);
    assert_eq!(world.due(&record), at);
}

#[tokio::test]
async fn a_context_that_is_gone_is_forgotten() {
    let world = World::start().await;
    let record = world.queued("c-1").await;
    world.probe.ask(&["DEL", &world.context_key(&record)]);
    let due = world.store.keys().due(world.partition(&record));
    world.probe.set_score(&due, world.context(&record).as_str(), 1);
    world.pass(&world.janitor()).await;
    assert_eq!(world.due(&record), None);
    // Its entry stands for no live turn and is dropped.
    assert!(world.take(world.partition(&record)).await.is_empty());
    assert_eq!(waits_in(&world, &record), None);
}

#[tokio::test]
async fn a_context_that_cannot_be_read_does_not_keep_the_others_waiting() {
    let world = World::small().await;
    let broken = world.running("a-broken").await;
    let turn = world.running("c-1").await;
    let key = world.store.keys().turn(broken.taken.record.turn);
    world.probe.set(&key, "r", "{");
    world.expire(&broken.taken.record);
    crash(&world, &turn).await;
    assert_eq!(waits_in(&world, &turn.taken.record), Some(":first"));
}

#[tokio::test]
async fn what_has_piled_up_is_worked_off_in_one_pass() {
    let world = World::small().await;
    let janitor = world.janitor();
    world.pass(&janitor).await;
    // More than a look takes: members that stand for nothing any more, and contexts whose turn is gone.
    let [due, retain] = [world.store.keys().due(ONLY), world.store.keys().retain(ONLY)];
    for n in 0..450 {
        world.probe.ask(&["ZADD", &retain, "1", &format!("j:gone-{n}")]);
        world.probe.ask(&["ZADD", &due, "1", &format!("gone-{n}")]);
    }
    let turn = world.running("c-1").await;
    crash(&world, &turn).await;
    assert_eq!(world.probe.length("ZCARD", &retain), 0);
    assert_eq!(waits_in(&world, &turn.taken.record), Some(":first"));
    assert_eq!(world.probe.length("ZCARD", &due), 1);
}

#[tokio::test]
async fn contexts_that_cannot_be_judged_stand_back_for_those_that_can() {
    let world = World::small().await;
    let turn = world.running("c-1").await;
    let due = world.store.keys().due(ONLY);
    let broken = |n: usize| format!("broken-{n}");
    for n in 0..120 {
        let key = world.store.keys().context(ONLY, &ContextKey::from_text(broken(n)));
        world.probe.ask(&["SET", &key, "not a hash"]);
        world.probe.ask(&["ZADD", &due, "0", &broken(n)]);
    }
    let before = world.probe.now();
    crash(&world, &turn).await;
    assert_eq!(waits_in(&world, &turn.taken.record), Some(":first"));
    for n in 0..120 {
        let at = world.probe.score(&due, &broken(n)).unwrap();
        assert!(at >= before + 60_000, "looked at again, but not every second");
    }
}

#[tokio::test]
async fn members_that_cannot_be_deleted_stand_back_for_those_that_can() {
    let world = World::small().await;
    let ended = world.ended("c-1", End::Completed).await.taken;
    let retain = world.store.keys().retain(ONLY);
    let broken = |n: usize| format!("t:broken-{n}");
    for n in 0..120 {
        let key = world
            .store
            .keys()
            .meta(ONLY)
            .replace("meta", &format!("task:broken-{n}"));
        world.probe.ask(&["SET", &key, "not a hash"]);
        world.probe.ask(&["ZADD", &retain, "0", &broken(n)]);
    }
    world.probe.set_score(&retain, &format!("t:{}", ended.record.task), 1);
    let before = world.probe.now();
    world.pass(&world.janitor()).await;
    let task = world.store.read_task(ended.record.task, HistoryLength::All).await;
    assert!(task.unwrap().is_none());
    for n in 0..120 {
        assert!(world.probe.score(&retain, &broken(n)).unwrap() >= before + 60_000);
    }
}

/// Half of an upgrade: gateways write what this process does not know yet.
#[tokio::test]
async fn a_turn_of_a_later_version_is_left_to_those_who_know_it() {
    let world = World::start().await;
    let record = TurnRecord {
        v: VERSION + 1,
        ..world.record("c-1").await
    };
    world.queue(&record).await;
    let (partition, context) = (world.partition(&record), world.context(&record));
    assert!(world.take(partition).await.is_empty());
    assert_eq!(world.counter("relevo_store_newer_records_total"), 1);
    world.expire(&record);
    let before = world.probe.dump();
    let judged = world.janitor().look_at(partition, &context).await;
    assert!(matches!(judged, Err(StoreError::Corrupt { .. })), "{judged:?}");
    assert_eq!(world.probe.dump(), before);
    assert_eq!(world.counter("relevo_store_newer_records_total"), 2);

    // Also one that has become unreadable otherwise.
    let key = world.store.keys().turn(record.turn);
    world.probe.set(&key, "r", r#"{"v":7,"all":"else is new"}"#);
    assert!(world.janitor().look_at(partition, &context).await.is_err());
    assert_eq!(world.counter("relevo_store_newer_records_total"), 3);

    // The process after the upgrade.
    let known = TurnRecord { v: VERSION, ..record };
    world.probe.set(&key, "r", serde_json::to_string(&known).unwrap());
    world.pass(&world.janitor()).await;
    assert_eq!(waits_in(&world, &known), Some(":first"));
    assert_eq!(world.again(&known).await.taken.record, known);
}

#[tokio::test]
async fn a_redis_that_is_another_server_than_before_is_examined_again() {
    let world = World::small().await;
    let registry = Registry::new();
    let settings = JanitorSettings {
        lease_ttl_ms: TTL,
        keep: Keep::default(),
        pools: vec!["default".to_owned()],
        storage_wait_ms: 60_000,
    };
    let janitor = Janitor::new(
        world.store.clone(),
        settings,
        JanitorMetrics::register(&registry).unwrap(),
    );
    let counts = || -> Vec<(String, String)> {
        let families = registry.gather();
        let family = families
            .iter()
            .find(|f| f.name() == "relevo_janitor_redis_restarts_total");
        let metrics = family
            .map(prometheus::proto::MetricFamily::get_metric)
            .unwrap_or_default();
        let count = |m: &prometheus::proto::Metric| {
            (
                m.get_label()[0].value().to_owned(),
                m.get_counter().get_value().to_string(),
            )
        };
        metrics.iter().map(count).collect()
    };
    let [fit, unfit] = ["fit", "unfit"].map(|outcome| (outcome.to_owned(), "1".to_owned()));
    world.pass(&janitor).await;
    world.pass(&janitor).await;
    assert_eq!(counts(), []);
    let meta = world.store.keys().meta(ONLY);
    world.probe.set(&meta, "run", "another");
    world.pass(&janitor).await;
    world.pass(&janitor).await;
    assert_eq!(counts(), std::slice::from_ref(&fit));
    world
        .probe
        .ask(&["CONFIG", "SET", "maxmemory", "1gb", "maxmemory-policy", "allkeys-lru"]);
    world.probe.set(&meta, "run", "another");
    world.pass(&janitor).await;
    assert_eq!(counts(), [fit, unfit]);
}

#[tokio::test]
async fn a_partition_or_a_member_that_cannot_be_read_does_not_keep_the_others_waiting() {
    let world = World::start().await;
    let turn = world.running("c-1").await;
    let ended = world.ended("c-2", End::Completed).await.taken;
    let first = world.store.keys().layout().all().next().unwrap();
    assert!(first < turn.taken.partition);
    world.probe.ask(&["SET", &world.store.keys().due(first), "not a zset"]);
    let retain = world.store.keys().retain(ended.partition);
    let task = format!("t:{}", ended.record.task);
    world.probe.ask(&["ZADD", &retain, "0", "t:broken"]);
    let broken = world.store.keys().meta(ended.partition).replace("meta", "task:broken");
    world.probe.ask(&["SET", &broken, "not a hash"]);
    world.probe.set_score(&retain, &task, 1);
    crash(&world, &turn).await;
    assert_eq!(waits_in(&world, &turn.taken.record), Some(":first"));
    let gone = world.store.read_task(ended.record.task, HistoryLength::All).await;
    assert!(gone.unwrap().is_none());
}

#[tokio::test]
async fn leases_are_not_judged_before_workers_could_renew_them_after_a_restart() {
    let world = World::lasting().await;
    let janitor = world.janitor();
    let mut turn = world.running("c-1").await;
    turn.emit(&world.store, &["one "]).await;
    let record = turn.taken.record.clone();
    world.pass(&janitor).await;
    world.redis.restart();
    world.probe.reconnect();
    world.expire(&record);
    // Each of the store's connections finds out by itself.
    let (partition, context) = (world.partition(&record), world.context(&record));
    poll::until("the store to be connected again", async || {
        world.store.now().await?;
        world.store.read_context(partition, &context).await
    })
    .await;

    // Before anyone has looked: the partition still knows the server before.
    janitor.look_at(world.partition(&record), &context).await.unwrap();
    assert!(world.live(&record).await.token.is_some());

    let before = world.probe.now();
    world
        .probe
        .set_score(&world.store.keys().due(world.partition(&record)), context.as_str(), 1);
    world.pass(&janitor).await;
    let view = world.view(&record).await;
    assert!(view.grace >= before + TTL, "one time to live for everyone");
    assert!(view.live.unwrap().token.is_some());
    assert_eq!(world.due(&record), Some(view.grace), "and then someone looks");

    // The worker goes on as if nothing had been; a Redis that was away is charged to nobody.
    assert!(is_done(&turn.emit(&world.store, &["two"]).await));
    assert!(is_done(&turn.finish(&world.store, End::Completed).await));

    // Another that does not is recovered when the grace is over.
    let mut gone = world.running("c-1").await;
    gone.emit(&world.store, &["x"]).await;
    world
        .probe
        .set(&world.store.keys().meta(gone.taken.partition), "grace", 1);
    crash(&world, &gone).await;
    assert_eq!(waits_in(&world, &gone.taken.record), Some(":first"));
}

#[tokio::test]
async fn a_clock_that_was_put_back_stops_no_janitor() {
    let world = World::start().await;
    let turn = world.running("c-1").await;
    world.pass(&world.janitor()).await;
    world.expire(&turn.taken.record);
    let meta = world.store.keys().meta(turn.taken.partition);
    let ahead = world.probe.now() + 3_600_000;
    world.probe.set(&meta, "swept", ahead);
    world.probe.set(&meta, "cleaned", ahead);
    world.janitor().pass().await.unwrap();
    assert_eq!(waits_in(&world, &turn.taken.record), Some(":first"));
}

#[tokio::test]
async fn a_bell_that_was_lost_is_rung_again() {
    let world = World::start().await;
    let record = world.queued("c-1").await;
    let janitor = world.janitor();
    assert_eq!(
        world.store.answer_bell("default").await.unwrap(),
        None,
        "the gateway died before it rang"
    );
    world.pass(&janitor).await;
    assert_eq!(
        world.store.answer_bell("default").await.unwrap(),
        Some(world.partition(&record))
    );
    // A worker that stopped right after it heard the bell.
    world.pass(&janitor).await;
    assert_eq!(
        world.store.answer_bell("default").await.unwrap(),
        Some(world.partition(&record))
    );
    let turn = world.again(&record).await;
    world.pass(&janitor).await;
    assert_eq!(world.store.answer_bell("default").await.unwrap(), None, "nothing waits");
    hand_back(&world, &turn, DRAINED).await;
    assert_eq!(
        world.store.answer_bell("default").await.unwrap(),
        Some(world.partition(&record)),
        "whoever queues a turn rings"
    );
    world.pass(&janitor).await;
    assert_eq!(
        world.store.answer_bell("default").await.unwrap(),
        Some(world.partition(&record)),
        "also for what came back"
    );
}

#[tokio::test]
async fn what_is_purged_leaves_nothing_behind() {
    let world = World::small().await;
    let janitor = world.janitor();
    world.pass(&janitor).await;
    // Queues, groups and bell exist from now on.
    let turn = world.ended("warm", End::Completed).await;
    purge_everything(&world, &[turn.taken.record]).await;
    let before = world.probe.keys();

    let completed = world.ended("c-1", End::Completed).await.taken.record;
    let idle = world.ended("c-2", End::InputRequired).await.taken.record;
    world.follow_up(idle.task, "c-2").await;
    let follow_up = world.take(world.partition(&idle)).await.pop().unwrap();
    let mut follow_up = Running::new(follow_up);
    follow_up.emit_with_snapshot(&world.store, &["x"]).await;
    follow_up.finish(&world.store, End::InputRequired).await;
    let failed = TurnRecord {
        attempts: 1,
        ..world.record("c-3").await
    };
    let mut turn = world.run(&failed).await;
    turn.emit(&world.store, &["x"]).await;
    crash(&world, &turn).await;
    let second = world.ended("c-1", End::Canceled).await.taken.record;
    purge_everything(&world, &[completed, idle, follow_up.taken.record, failed, second]).await;

    let mut after = world.probe.keys();
    // Dead letters are for people and stay; they are capped.
    assert!(after.remove(&world.store.keys().dead(turn.taken.partition)));
    assert_eq!(after, before);
}

/// Lets all retention pass, and the memory of ended turns, which Redis itself forgets.
async fn purge_everything(world: &World, turns: &[TurnRecord]) {
    for record in turns {
        let key = world.store.keys().turn(record.turn);
        let left: i64 = world.probe.text(&["PTTL", &key]).unwrap().parse().unwrap();
        assert!((1..=600_000).contains(&left), "{key} stays for {left} ms");
        world.probe.ask(&["DEL", &key]);
    }
    let retain = world.store.keys().retain(world.partition(&turns[0]));
    // Contexts go after their tasks.
    for _ in 0..2 {
        for member in world.probe.texts(&["ZRANGE", &retain, "0", "-1"]) {
            world.probe.set_score(&retain, &member, 1);
        }
        world.pass(&world.janitor()).await;
    }
}

#[tokio::test]
async fn tasks_and_contexts_never_expire_by_themselves() {
    let world = World::start().await;
    world.ended("c-1", End::Completed).await;
    world.ended("c-2", End::InputRequired).await;
    world.running("c-3").await;
    world.queued("c-4").await;
    for (key, (_, expires)) in world.probe.dump() {
        let ended_turn = key.contains(":turn:") && world.probe.field(&key, "r").is_none();
        assert_eq!(expires, ended_turn, "{key}");
    }
}

#[tokio::test]
async fn a_task_that_gets_a_message_is_no_longer_due_for_deletion() {
    let world = World::start().await;
    let ended = world.ended("c-1", End::InputRequired).await.taken;
    let retain = world.store.keys().retain(ended.partition);
    let members = [format!("t:{}", ended.record.task), format!("c:{}", ended.context)];
    for member in &members {
        assert!(world.probe.score(&retain, member).is_some());
        world.probe.set_score(&retain, member, 1);
    }
    let (record, _) = world.follow_up(ended.record.task, "c-1").await;
    for member in &members {
        assert_eq!(world.probe.score(&retain, member), None);
    }
    world.pass(&world.janitor()).await;
    let turn = world.again(&record).await;
    assert!(is_done(&turn.finish(&world.store, End::InputRequired).await));
    for member in &members {
        assert!(world.probe.score(&retain, member).unwrap() > world.probe.now());
    }
}

#[tokio::test]
async fn a_turn_that_was_queued_again_is_as_old_as_it_is() {
    const MINUTE: u64 = 60_000;
    let world = World::start().await;
    let mut record = world.record("c-1").await;
    record.submitted -= MINUTE;
    record.turn = TurnId::new(record.submitted, record.task.partition(), 7);
    let age = async || world.store.overview(&["default".to_owned()]).await.unwrap().oldest_ms;
    assert_eq!(age().await, 0);
    let turn = world.run(&record).await;
    assert!(age().await >= MINUTE);
    let back = Why::HandOver(FailReason::WorkerDrained);
    assert_eq!(hand_back(&world, &turn, back).await, GivenBack::Queued);
    assert!(age().await >= MINUTE);
}
