//! Turns that wait for their context, behind its live turn, and turns that take the place of everything there.

use std::collections::BTreeSet;

use a2a::TaskState;
use relevo_shared::domain::reason::FailReason;
use relevo_shared::domain::record::{BusyPolicy, TurnRecord};
use relevo_shared::domain::state::End;
use relevo_shared::ids::{Nonce, Partition};
use relevo_shared::janitor::{GivenBack, Why, end_interrupted, give_back, withdraw};
use relevo_shared::store::{Asked, EmitReply, HistoryLength, Keep, Settled, Submitted};

use crate::fixture::{Running, World, is_done};
use crate::invariants::{self, Memory};

const ONLY: Partition = Partition(0);

fn place(submitted: &Submitted) -> Option<u64> {
    match submitted {
        Submitted::Accepted { place, .. } => Some(*place),
        _ => None,
    }
}

/// Everything that must hold at any time.
fn hold(world: &World) {
    let meta = world.store.keys().meta(ONLY);
    let prefix = meta.trim_end_matches("meta");
    invariants::hold(&world.probe.dump(), prefix, &BTreeSet::new(), &mut Memory::default());
}

/// Whether a worker was called.
fn rung(world: &World) -> bool {
    let bell = world.store.keys().bell("default");
    let rung = world.probe.score(&bell, "0").is_some();
    world.probe.ask(&["DEL", &bell]);
    rung
}

#[tokio::test]
async fn turns_of_a_context_run_one_after_the_other_in_the_order_of_their_acceptance() {
    let world = World::small().await;
    let mut live = world.running("c-1").await;
    let mut line = Vec::new();
    for n in 1..=5 {
        let record = world.patient("c-1").await;
        assert_eq!(place(&world.submit(&record).await), Some(n));
        line.push(record);
    }
    world.queued("c-2").await;
    let turns: Vec<_> = line.iter().map(|record| record.turn).collect();
    assert_eq!(world.line(&line[0]).await, turns);
    assert_eq!(world.take(ONLY).await.pop().unwrap().record.context_id, "c-2");
    assert!(world.take(ONLY).await.is_empty(), "what waits is in no queue");
    for record in line {
        hold(&world);
        let stored = world.stored(record.task).await;
        assert_eq!((stored.state, stored.live), (TaskState::Submitted, Some(record.turn)));
        assert!(!rung(&world));
        assert!(is_done(&live.finish(&world.store, End::Completed).await));
        assert!(rung(&world), "somebody must come for the next");
        assert_eq!(world.live(&record).await.record.turn, record.turn);
        live = world.again(&record).await;
        assert!(!live.taken.canceled);
        live.emit(&world.store, &["answer"]).await;
    }
    assert!(is_done(&live.finish(&world.store, End::Completed).await));
    hold(&world);
    assert!(!rung(&world));
    assert!(world.view(&live.taken.record).await.live.is_none());
}

#[tokio::test]
async fn sixteen_turns_wait_and_no_more() {
    let world = World::small().await;
    let live = world.queued("c-1").await;
    for _ in 0..16 {
        world.waiting("c-1").await;
    }
    let before = world.probe.dump();
    let record = world.patient("c-1").await;
    assert_eq!(world.submit(&record).await, Submitted::Busy);
    assert_eq!(world.probe.dump(), before);
    hold(&world);
    assert_eq!(world.cancel_unheld(&live).await, Settled::Done);
    assert_eq!(place(&world.submit(&record).await), Some(16));
}

#[tokio::test]
async fn only_what_creates_its_task_waits() {
    let world = World::small().await;
    let idle = world.ended("c-1", End::InputRequired).await.taken.record;
    let live = world.queued("c-1").await;
    let waiting = world.waiting("c-1").await;
    let before = world.probe.dump();
    for (task, answer) in [
        (live.task, Submitted::Working),
        (waiting.task, Submitted::Working),
        (idle.task, Submitted::Busy),
    ] {
        let record = TurnRecord {
            busy: BusyPolicy::Queue,
            ..world.next_record(task, "c-1").await
        };
        let last = world.stored(task).await.last;
        let history = [record.message.clone()];
        let submitted = world.submit_with(&record, Nonce(1), Some(last), &history).await;
        assert_eq!(submitted, answer);
    }
    let impatient = world.record("c-1").await;
    assert_eq!(world.submit(&impatient).await, Submitted::Busy);
    assert_eq!(world.probe.dump(), before);
}

#[tokio::test]
async fn whatever_ends_the_live_turn_begins_the_next() {
    let world = World::small().await;
    world.sweep(ONLY).await;
    for how in ["drained", "crashed", "canceled", "vanished"] {
        let once = TurnRecord {
            attempts: 1,
            policy: relevo_shared::domain::record::CrashPolicy::Fail,
            ..world.record(how).await
        };
        let next = match how {
            "canceled" => {
                world.queue(&once).await;
                let next = world.waiting(how).await;
                assert_eq!(world.cancel_unheld(&once).await, Settled::Done);
                next
            }
            "vanished" => {
                let mut turn = world.run(&once).await;
                turn.emit(&world.store, &["x"]).await;
                let next = world.waiting(how).await;
                world.expire(&once);
                world.janitor().look_at(ONLY, &turn.taken.context).await.unwrap();
                next
            }
            _ => {
                let mut turn = world.run(&once).await;
                turn.emit(&world.store, &["x"]).await;
                let next = world.waiting(how).await;
                let why = if how == "crashed" {
                    Why::Crash
                } else {
                    Why::HandOver(FailReason::WorkerDrained)
                };
                let (taken, keep) = (&turn.taken, Keep::default());
                let given = give_back(&world.store, ONLY, &taken.context, &taken.token, why, &keep).await;
                assert_eq!(given.unwrap(), GivenBack::Ended(End::Failed));
                next
            }
        };
        hold(&world);
        assert!(rung(&world), "{how}");
        let running = world.again(&next).await;
        assert!(is_done(&running.finish(&world.store, End::Completed).await));
    }
}

#[tokio::test]
async fn a_turn_that_goes_back_to_its_queue_keeps_its_place_before_those_that_wait() {
    let world = World::small().await;
    let turn = world.running("c-1").await;
    let next = world.waiting("c-1").await;
    let (taken, keep) = (&turn.taken, Keep::default());
    let why = Why::HandOver(FailReason::WorkerDrained);
    let given = give_back(&world.store, ONLY, &taken.context, &taken.token, why, &keep).await;
    assert_eq!(given.unwrap(), GivenBack::Queued);
    hold(&world);
    let again = world.again(&turn.taken.record).await;
    assert!(is_done(&again.finish(&world.store, End::InputRequired).await));
    world.again(&next).await;
}

#[tokio::test]
async fn a_turn_sees_the_session_as_it_is_when_it_begins() {
    let world = World::small().await;
    let turn = world.running("c-1").await;
    let next = world.waiting("c-1").await;
    let items = relevo_shared::store::SessionItems {
        expect: 0,
        items: vec![b"1".to_vec()],
    };
    let (open, events) = turn.events(&["x"]);
    let mut batch = turn.batch(Nonce(7), open, &events);
    batch.session = Some(&items);
    let EmitReply::Done { last, .. } = world.store.emit(&batch).await.unwrap() else {
        panic!("not written")
    };
    let turn = Running {
        prev: last,
        opened: true,
        ..turn
    };
    assert!(is_done(&turn.finish(&world.store, End::Completed).await));
    let next = world.again(&next).await.taken;
    let session = world
        .store
        .read_session(ONLY, &next.context, "demo", next.record.turn)
        .await;
    assert_eq!(session.unwrap(), [b"1".to_vec()]);
}

#[tokio::test]
async fn a_waiting_turn_is_canceled_at_once_and_nothing_else_moves() {
    let world = World::small().await;
    let mut live = world.running("c-1").await;
    let [one, two, three] = [
        world.waiting("c-1").await,
        world.waiting("c-1").await,
        world.waiting("c-1").await,
    ];
    let (context, keep) = (world.context(&two), Keep::default());
    let asked = world.store.request_cancel(ONLY, &context, two.turn, Nonce(1)).await;
    assert_eq!(asked.unwrap(), Asked::Waiting);
    world.reached("cancel", "WAITING");
    let lease = world.probe.hash(&world.context_key(&one));
    let end = withdraw(&world.store, &context, two.turn, &keep).await;
    assert_eq!(end.unwrap(), Settled::Done);
    world.reached("withdraw", "OK");
    hold(&world);
    assert_eq!(world.probe.hash(&world.context_key(&one)), lease);
    let stored = world.stored(two.task).await;
    assert!(stored.terminal && stored.live.is_none() && stored.state == TaskState::Canceled);
    let history = stored.into_task(HistoryLength::All).history.unwrap();
    assert_eq!(history[0].parts[0].as_text(), Some("hello"));
    assert_eq!(world.kinds(two.task).await, ["1.n", "1.t"]);
    assert_eq!(world.line(&one).await, [one.turn, three.turn]);

    let before = world.probe.dump();
    let again = withdraw(&world.store, &context, two.turn, &keep).await;
    assert_eq!(again.unwrap(), Settled::Changed);
    assert!(matches!(
        world.submit(&two).await,
        Submitted::Accepted { repeat: true, .. }
    ));
    assert_eq!(world.follow_up(two.task, "c-1").await.1, Submitted::Terminal);
    assert_eq!(world.probe.dump(), before);
    live.emit(&world.store, &["x"]).await;
    assert!(is_done(&live.finish(&world.store, End::Completed).await));
    world.again(&one).await;
}

#[tokio::test]
async fn a_turn_that_is_live_by_now_is_not_withdrawn() {
    let world = World::small().await;
    let live = world.queued("c-1").await;
    let next = world.waiting("c-1").await;
    let found = world.found(&next).await;
    assert_eq!(world.cancel_unheld(&live).await, Settled::Done);
    let before = world.probe.dump();
    let (context, keep) = (world.context(&next), Keep::default());
    let end = world.store.withdraw(&context, &found.waiting[0], &keep).await;
    assert_eq!(end.unwrap(), Settled::Changed);
    world.reached("withdraw", "RETRY");
    assert_eq!(world.probe.dump(), before);
}

#[tokio::test]
async fn a_context_whose_live_turn_is_gone_goes_on_with_the_next() {
    let world = World::small().await;
    world.queued("c-1").await;
    let next = world.waiting("c-1").await;
    let lost = world.waiting("c-1").await;
    let third = world.waiting("c-1").await;
    world.probe.set(&world.context_key(&next), "turn", "");
    let (due, retain) = (world.store.keys().due(ONLY), world.store.keys().retain(ONLY));
    world.probe.ask(&["DEL", &due]);
    let member = format!("c:{}", world.context(&next));
    world.probe.ask(&["ZADD", &retain, "1", &member]);
    let purged = world.store.purge(ONLY, &member, &Keep::default()).await;
    assert!(!purged.unwrap(), "turns wait in it");
    let swept = world.sweep(ONLY).await;
    assert_eq!(swept.due, [world.context(&next)]);
    world.janitor().look_at(ONLY, &swept.due[0]).await.unwrap();
    assert!(rung(&world));
    assert_eq!(world.live(&next).await.record.turn, next.turn);

    // A turn without a record could never run: it stands in nobody's way.
    world.probe.ask(&["DEL", &world.store.keys().turn(lost.turn)]);
    assert_eq!(world.cancel_unheld(&next).await, Settled::Done);
    assert_eq!(world.live(&third).await.record.turn, third.turn);
    assert_eq!(world.line(&third).await, []);
}

#[tokio::test]
async fn the_clock_of_a_turn_begins_when_its_context_is_free() {
    let world = World::small().await;
    let live = world.queued("c-1").await;
    let base = world.patient("c-1").await;
    let next = TurnRecord {
        queue_age: 60_000,
        submitted: base.submitted - 120_000,
        ..base
    };
    assert_eq!(place(&world.submit(&next).await), Some(1));
    assert_eq!(world.cancel_unheld(&live).await, Settled::Done);
    let context = world.context(&next);
    world.janitor().look_at(ONLY, &context).await.unwrap();
    let view = world.live(&next).await;
    assert!(view.since >= live.submitted);
    let taken = world.again(&next).await.taken;
    assert_eq!(taken.since, view.since);
    let (keep, why) = (Keep::default(), Why::HandOver(FailReason::WorkerDrained));
    give_back(&world.store, ONLY, &context, &taken.token, why, &keep)
        .await
        .unwrap();

    let second = TurnRecord {
        queue_age: 60_000,
        ..world.patient("c-1").await
    };
    world.submit(&second).await;
    assert_eq!(world.cancel_unheld(&next).await, Settled::Done);
    let due = world.due(&second).unwrap();
    assert_eq!(due, world.live(&second).await.since + 30_000);
    world.probe.set(
        &world.store.keys().turn(second.turn),
        "since",
        second.submitted - 60_001,
    );
    world.janitor().look_at(ONLY, &context).await.unwrap();
    let stored = world.stored(second.task).await;
    assert_eq!(
        stored.folded.metadata["urn:relevo:a2a:turn:v1"]["reason"],
        "queue_expired"
    );
}

#[tokio::test]
async fn a_promoted_turn_is_looked_at_when_its_time_is_over() {
    let world = World::small().await;
    let mut live = world.queued("c-1").await;
    let base = world.patient("c-1").await;
    let deadline = Some(base.submitted + 20_000);
    let hasty = TurnRecord { deadline, ..base };
    let young = TurnRecord {
        queue_age: 9,
        ..world.patient("c-1").await
    };
    for record in [&hasty, &young] {
        world.submit(record).await;
    }
    assert_eq!(world.cancel_unheld(&live).await, Settled::Done);
    assert_eq!(world.due(&hasty), deadline);
    live = hasty;
    assert_eq!(world.cancel_unheld(&live).await, Settled::Done);
    assert_eq!(world.due(&young), Some(world.live(&young).await.since + 10));
}

#[tokio::test]
async fn what_waits_counts_as_backlog_and_for_the_limit_of_its_scope() {
    let world = World::small().await;
    let record = world.record("c-1").await;
    world.submit_limited(&record, Nonce(1), None, &[], Some(3)).await;
    let waiting = world.waiting_limited("c-1", Some(3)).await;
    world.waiting_limited("c-1", Some(3)).await;
    let third = world.patient("c-1").await;
    let submitted = world.submit_limited(&third, Nonce(1), None, &[], Some(3)).await;
    assert_eq!(submitted, Submitted::Limited);
    let overview = world.store.overview(&["default".to_owned()]).await.unwrap();
    assert_eq!((overview.backlog, overview.behind), (3, 2));
    assert_eq!(overview.oldest_ms, overview.now - record.turn.ms());
    assert_eq!(world.store.live_turns(&record.scope()).await.unwrap(), 3);
    hold(&world);

    let (context, keep) = (world.context(&record), Keep::default());
    withdraw(&world.store, &context, waiting.turn, &keep).await.unwrap();
    hold(&world);
    let submitted = world.submit_limited(&third, Nonce(1), None, &[], Some(3)).await;
    assert_eq!(place(&submitted), Some(2));
}

#[tokio::test]
async fn a_repeated_submit_of_a_waiting_turn_is_told_the_same_wherever_it_is() {
    let world = World::small().await;
    let live = world.queued("c-1").await;
    let record = world.patient("c-1").await;
    let first = world.submit_with(&record, Nonce(5), None, &[]).await;
    let Submitted::Accepted { first: entry, .. } = first else {
        panic!("{first:?}")
    };
    let again = async |place: u64| {
        let before = world.probe.dump();
        let again = world.submit_with(&record, Nonce(6), None, &[]).await;
        assert!(
            matches!(again, Submitted::Accepted { first, number: 1, repeat: true, place: p, .. }
                if (first, p) == (entry, place)),
            "{again:?}"
        );
        assert_eq!(world.probe.dump(), before);
    };
    again(1).await;
    assert_eq!(world.cancel_unheld(&live).await, Settled::Done);
    again(0).await;
    let turn = world.again(&record).await;
    again(0).await;
    assert!(is_done(&turn.finish(&world.store, End::Completed).await));
    again(0).await;
}

/// A turn that runs, two that wait, and what is found by one that interrupts them.
#[tokio::test]
async fn what_interrupts_ends_everything_that_waits_and_runs_when_the_live_turn_has_stopped() {
    let world = World::small().await;
    let mut live = world.running("c-1").await;
    live.emit(&world.store, &["x"]).await;
    let waiting = [world.waiting("c-1").await, world.waiting("c-1").await];
    let (mut ear, handle) = world.store.subscriber().await.unwrap();
    handle.follow_control().await.unwrap();
    let record = world.patient("c-1").await;
    let found = world.found(&record).await;
    let submitted = world.submit_instead(&record, Nonce(3), &found).await;
    assert_eq!(place(&submitted), Some(1));
    hold(&world);
    for ended in &waiting {
        assert_eq!(world.stored(ended.task).await.state, TaskState::Canceled);
        assert_eq!(world.kinds(ended.task).await, ["1.n", "1.t"]);
    }
    let heard = ear.next().await.unwrap();
    let told = format!("cancel {} {}", live.taken.context, live.taken.record.turn);
    assert_eq!(heard.payload, told.as_bytes());

    // CANCELED means stopped: until its worker says so, the turn runs and the next one waits.
    end_interrupted(&world.store, ONLY, &live.taken.context, found.live, &Keep::default())
        .await
        .unwrap();
    assert_eq!(world.stored(live.taken.record.task).await.state, TaskState::Working);
    assert!(world.take(ONLY).await.is_empty());
    assert_eq!(live.emit(&world.store, &["y"]).await, EmitReply::Canceled);
    assert_eq!(live.finish(&world.store, End::Completed).await, EmitReply::Canceled);
    assert!(is_done(&live.finish(&world.store, End::Canceled).await));
    let turn = world.again(&record).await;
    assert!(!turn.taken.canceled, "it is not hit by the cancel of the turn before");
    assert!(is_done(&turn.finish(&world.store, End::Completed).await));
    hold(&world);
}

#[tokio::test]
async fn an_interrupted_turn_that_nobody_holds_ends_although_its_gateway_is_gone() {
    let world = World::small().await;
    world.sweep(ONLY).await;
    for who in ["gateway", "janitor", "worker", "janitor of a delayed one"] {
        let live = world.queued(who).await;
        if who.ends_with("one") {
            while world.live(&live).await.at.is_none() {
                let taken = world.again(&live).await.taken;
                let (keep, why) = (Keep::default(), Why::HandOver(FailReason::WorkerDrained));
                give_back(&world.store, ONLY, &taken.context, &taken.token, why, &keep)
                    .await
                    .unwrap();
            }
        }
        let record = world.patient(who).await;
        let found = world.found(&record).await;
        assert_eq!(place(&world.submit_instead(&record, Nonce(3), &found).await), Some(1));
        hold(&world);
        let (context, keep) = (world.context(&record), Keep::default());
        match who {
            "gateway" => end_interrupted(&world.store, ONLY, &context, found.live, &keep)
                .await
                .unwrap(),
            "worker" => {
                let turn = world.again(&live).await;
                assert!(turn.taken.canceled, "it is told at once");
                assert!(is_done(&turn.finish(&world.store, End::Canceled).await));
            }
            _ => {
                let swept = world.sweep(ONLY).await;
                assert!(swept.due.contains(&context), "somebody looks at once");
                world.janitor().look_at(ONLY, &context).await.unwrap();
            }
        }
        assert_eq!(world.stored(live.task).await.state, TaskState::Canceled, "{who}");
        let turn = world.again(&record).await;
        assert!(is_done(&turn.finish(&world.store, End::Completed).await));
        hold(&world);
    }
}

#[tokio::test]
async fn an_interrupted_turn_whose_worker_died_ends_canceled_and_the_next_runs() {
    let world = World::small().await;
    world.sweep(ONLY).await;
    let mut live = world.running("c-1").await;
    live.emit(&world.store, &["x"]).await;
    let record = world.patient("c-1").await;
    let found = world.found(&record).await;
    world.submit_instead(&record, Nonce(3), &found).await;
    world.expire(&live.taken.record);
    world.janitor().look_at(ONLY, &live.taken.context).await.unwrap();
    assert_eq!(world.stored(live.taken.record.task).await.state, TaskState::Canceled);
    assert_eq!(live.emit(&world.store, &["y"]).await, EmitReply::Fenced);
    world.again(&record).await;
}

#[tokio::test]
async fn nothing_is_interrupted_that_is_not_as_it_was_found() {
    let world = World::small().await;
    let (record, keep) = (world.patient("c-1").await, Keep::default());
    let changed = async |found: &_| {
        let before = world.probe.dump();
        assert_eq!(world.submit_instead(&record, Nonce(3), found).await, Submitted::Changed);
        assert_eq!(world.probe.dump(), before);
    };
    let live = world.queued("c-1").await;
    let alone = world.found(&record).await;
    let one = world.waiting("c-1").await;
    changed(&alone).await;
    let with_one = world.found(&record).await;
    let two = world.waiting("c-1").await;
    changed(&with_one).await;
    let with_both = world.found(&record).await;
    let mut turned = with_both.clone();
    turned.waiting.reverse();
    changed(&turned).await;
    let mut other_end = with_both.clone();
    other_end.waiting[1].follows.nonce ^= 1;
    changed(&other_end).await;
    let context = world.context(&record);
    withdraw(&world.store, &context, one.turn, &keep).await.unwrap();
    changed(&with_both).await;
    // The first that waits is live now, and nobody waits: another turn than the one that was to be interrupted.
    assert_eq!(world.cancel_unheld(&live).await, Settled::Done);
    changed(&alone).await;
    assert_eq!(world.cancel_unheld(&two).await, Settled::Done);
    changed(&alone).await;
    hold(&world);
}

#[tokio::test]
async fn what_interrupts_is_itself_interrupted_and_one_turn_is_left() {
    let world = World::small().await;
    let live = world.running("c-1").await;
    let mut last = None;
    for n in 0..5 {
        let record = world.patient("c-1").await;
        let found = world.found(&record).await;
        assert_eq!(place(&world.submit_instead(&record, Nonce(n), &found).await), Some(1));
        // An unknown outcome is resolved by the same call.
        let again = world.submit_instead(&record, Nonce(n), &found).await;
        assert!(
            matches!(
                again,
                Submitted::Accepted {
                    repeat: true,
                    place: 1,
                    ..
                }
            ),
            "{again:?}"
        );
        hold(&world);
        if let Some(before) = last.replace(record) {
            let before: TurnRecord = before;
            assert_eq!(world.stored(before.task).await.state, TaskState::Canceled);
        }
    }
    let key = world.context_key(&live.taken.record);
    let first = format!("{} 0", live.taken.record.turn);
    assert_eq!(
        world.probe.field(&key, "cancel"),
        Some(first),
        "the first request is kept"
    );
    assert!(is_done(&live.finish(&world.store, End::Canceled).await));
    world.again(&last.unwrap()).await;
}
