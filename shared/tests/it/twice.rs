//! Everything is sent twice in ordinary life: replies are lost, gateways race, workers ask again. The effect is one.

use redis::Value;
use relevo_shared::domain::due::Charge;
use relevo_shared::domain::reason::FailReason;
use relevo_shared::domain::record::TurnRecord;
use relevo_shared::domain::state::End;
use relevo_shared::ids::{EntryId, Nonce};
use relevo_shared::janitor::{Conclusion, GivenBack, Why, conclude, give_back};
use relevo_shared::store::{Asked, EmitReply, Keep, Settled, Submitted};

use crate::fixture::{World, is_done, is_repeat};
use crate::probe::{list, text};
use crate::scenes::{self, Break};

const DRAINED: Why = Why::HandOver(FailReason::WorkerDrained);

/// Rows of a `take`, in the order of their turns: a repeat looks through the queues in another order.
fn rows(answer: &Value) -> Vec<Vec<String>> {
    let mut rows: Vec<Vec<String>> = list(&list(answer)[3])
        .iter()
        .map(|row| list(row).iter().map(text).collect())
        .collect();
    rows.sort_unstable();
    rows
}

#[tokio::test]
async fn every_script_sent_twice_has_one_effect() {
    let world = World::small().await;
    let scenes = Box::pin(scenes::all(&world)).await;
    for scene in &scenes {
        let (script, name) = (scene.call.script, scene.name);
        scene.set(&world.probe);
        let first = scene.run(&world.probe, Break::Never);
        let mut again = scene.call.clone();
        if script == "take" {
            // A repeat of a take says that it is one: the same words without it ask for other turns.
            again.args[4] = "1".to_owned();
        }
        let second = scene.run_with(&world.probe, Break::Never, &again);
        assert_eq!(second.outcome, "ok", "{script}: {name}: {:?}", second.answer);
        assert_eq!(second.after, first.after, "{script}: {name}");
        let expected = match script {
            "submit" | "answer" | "refuse" => "DUPLICATE",
            "reserve" => "EXISTS",
            "settle_requeue" | "settle_end" | "withdraw" => "RETRY",
            // The turn that it made live is not what was read.
            "settle_due" if scene.name.ends_with("context that has lost its live turn") => "RETRY",
            "sweep" => "SKIP",
            "purge" | "put_off" => "KEPT",
            _ => &first.tag(),
        };
        assert_eq!(second.tag(), expected, "{script}: {name}");
        match script {
            "take" => assert_eq!(rows(&second.answer), rows(&first.answer), "{name}"),
            // The first entry and the turn's number; the last entry.
            "submit" | "answer" | "refuse" | "emit" | "finish" | "suspend" => {
                assert_eq!(list(&second.answer)[1], list(&first.answer)[1], "{script}: {name}");
            }
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_submit_that_is_repeated_after_its_turn_ended_runs_nothing_again() {
    let world = World::start().await;
    let record = world.record("c-1").await;
    let first = world.submit_with(&record, Nonce(1), None, &[]).await;
    let turn = world.again(&record).await;
    assert!(is_done(&turn.finish(&world.store, End::Completed).await));
    let before = world.probe.dump();
    let again = world.submit_with(&record, Nonce(2), None, &[]).await;
    let entry = EntryId { seq: 1, nonce: 1 };
    assert!(matches!(first, Submitted::Accepted { first, repeat: false, .. } if first == entry));
    assert!(
        matches!(again, Submitted::Accepted { first, number: 1, repeat: true, .. } if first == entry),
        "{again:?}"
    );
    assert_eq!(world.probe.dump(), before);
}

#[tokio::test]
async fn a_follow_up_that_is_repeated_after_its_turn_ended_runs_nothing_again() {
    let world = World::start().await;
    let task = world.ended("c-1", End::InputRequired).await.taken.record.task;
    let last = world.stored(task).await.last;
    let (record, accepted) = world.follow_up(task, "c-1").await;
    let Submitted::Accepted { first, .. } = accepted else {
        panic!("{accepted:?}")
    };
    // It ends within milliseconds, and a third turn has come and gone before the gateway asks again.
    let turn = world.again(&record).await;
    assert!(is_done(&turn.finish(&world.store, End::InputRequired).await));
    let (third, _) = world.follow_up(task, "c-1").await;
    let turn = world.again(&third).await;
    assert!(is_done(&turn.finish(&world.store, End::InputRequired).await));
    let before = world.probe.dump();
    let history = [record.message.clone()];
    let again = world.submit_with(&record, Nonce(5), Some(last), &history).await;
    assert!(
        matches!(again, Submitted::Accepted { first: f, number: 2, repeat: true, .. } if f == first),
        "{again:?}"
    );
    assert_eq!(world.probe.dump(), before);
}

#[tokio::test]
async fn of_two_gateways_that_submit_the_same_turn_at_once_both_are_right() {
    let world = World::start().await;
    let record = world.record("c-1").await;
    let (a, b) = tokio::join!(world.submit(&record), world.submit(&record));
    let repeats = [&a, &b].map(|s| matches!(s, Submitted::Accepted { repeat: true, .. }));
    assert_eq!(repeats.iter().filter(|r| **r).count(), 1, "{a:?} {b:?}");
    let cursor = |s: &Submitted| match s {
        Submitted::Accepted { first, .. } => *first,
        other => panic!("{other:?}"),
    };
    assert_eq!(cursor(&a), cursor(&b));
    assert_eq!(world.kinds(record.task).await, ["1.n"]);
    assert_eq!(
        world.take_as(&world.worker, world.partition(&record), 1, 4).await.len(),
        1
    );
}

#[tokio::test]
async fn a_finish_that_is_repeated_after_a_later_turn_ended_is_known() {
    let world = World::start().await;
    let mut turn = world.running("c-1").await;
    turn.emit(&world.store, &["answer"]).await;
    let task = turn.taken.record.task;
    let end = async || turn.finish_as(&world.store, End::InputRequired, Nonce(9), None).await;
    let first = end().await;
    assert!(is_done(&first));
    assert!(is_repeat(&end().await));
    let (record, _) = world.follow_up(task, "c-1").await;
    assert!(is_repeat(&end().await), "while the next turn waits");
    let mut next = world.again(&record).await;
    next.emit(&world.store, &["more"]).await;
    assert!(is_repeat(&end().await), "while the next turn runs");
    assert!(is_done(&next.finish(&world.store, End::Completed).await));
    let before = world.probe.dump();
    let last = end().await;
    assert!(is_repeat(&last));
    let (EmitReply::Done { last: a, .. }, EmitReply::Done { last: b, .. }) = (first, last) else {
        panic!("not written")
    };
    assert_eq!(a, b, "the same entry as the first time");
    assert_eq!(world.probe.dump(), before);
}

#[tokio::test]
async fn an_emit_is_known_however_much_came_after_it() {
    let world = World::start().await;
    let mut turn = world.running("c-1").await;
    turn.emit(&world.store, &["zero"]).await;
    let old = turn.clone();
    let (open, events) = old.events(&["one", "two"]);
    let batch = old.batch(Nonce(9), open, &events);
    let EmitReply::Done { last, repeat, .. } = world.store.emit(&batch).await.unwrap() else {
        panic!("not written")
    };
    assert!(!repeat);
    turn.fold_in(&events, Nonce(9));
    turn.prev = last;
    for n in 0..5 {
        turn.emit(&world.store, &[&format!("more {n}")]).await;
        let before = world.probe.dump();
        let again = world.store.emit(&batch).await.unwrap();
        assert!(
            matches!(again, EmitReply::Done { last: l, repeat: true, .. } if l == last),
            "{again:?}"
        );
        assert_eq!(world.probe.dump(), before);
    }
}

#[tokio::test]
async fn a_cancel_that_is_repeated_says_the_same_and_keeps_the_first_request() {
    let world = World::start().await;
    let turn = world.running("c-1").await;
    let (taken, id) = (&turn.taken, turn.taken.record.turn);
    let cancel = |nonce| {
        world
            .store
            .request_cancel(taken.partition, &taken.context, id, Nonce(nonce))
    };
    assert_eq!(cancel(1).await.unwrap(), Asked::Told);
    let before = world.probe.dump();
    assert_eq!(cancel(1).await.unwrap(), Asked::Told);
    assert_eq!(cancel(2).await.unwrap(), Asked::Told);
    assert_eq!(world.probe.dump(), before);
    let key = world.context_key(&taken.record);
    assert_eq!(world.probe.field(&key, "cancel"), Some(format!("{id} 1")));
}

#[tokio::test]
async fn a_give_back_that_is_repeated_counts_once() {
    let world = World::start().await;
    for (context, why) in [("c-1", DRAINED), ("c-2", Why::Crash)] {
        let mut turn = world.running(context).await;
        turn.emit(&world.store, &["x"]).await;
        let (taken, keep) = (&turn.taken, Keep::default());
        let give = || give_back(&world.store, taken.partition, &taken.context, &taken.token, why, &keep);
        assert_eq!(give().await.unwrap(), GivenBack::Queued);
        let before = world.probe.dump();
        assert_eq!(give().await.unwrap(), GivenBack::Gone);
        assert_eq!(world.probe.dump(), before);
        let tries = world.live(&taken.record).await.tries;
        assert_eq!(tries.charged + tries.handbacks, 1);
        world.again(&taken.record).await;
        assert_eq!(give().await.unwrap(), GivenBack::Gone, "another attempt runs");
    }
}

#[tokio::test]
async fn a_turn_that_two_janitors_end_ends_once() {
    let world = World::start().await;
    let record = TurnRecord {
        attempts: 1,
        ..world.record("c-1").await
    };
    let mut turn = world.run(&record).await;
    turn.emit(&world.store, &["x"]).await;
    world.sweep(turn.taken.partition).await;
    world.expire(&record);
    let (one, other) = (world.janitor(), world.janitor());
    let context = world.context(&record);
    let partition = turn.taken.partition;
    let (a, b) = tokio::join!(one.look_at(partition, &context), other.look_at(partition, &context));
    a.unwrap();
    b.unwrap();
    assert_eq!(world.kinds(record.task).await, ["1.n", "1.n", "1.n", "1.t"]);
    assert_eq!(world.store.dead_turns(10).await.unwrap().len(), 1);

    // And an end that was decided before the other one was committed.
    let next = world.queued("c-1").await;
    let view = world.view(&next).await;
    let canceled = Conclusion {
        end: End::Canceled,
        reason: None,
        dead: false,
        only_expired: false,
    };
    let keep = Keep::default();
    assert_eq!(
        conclude(&world.store, &view, canceled, &keep).await.unwrap(),
        Settled::Done
    );
    let before = world.probe.dump();
    assert_eq!(
        conclude(&world.store, &view, canceled, &keep).await.unwrap(),
        Settled::Changed
    );
    assert_eq!(world.probe.dump(), before);
}

#[tokio::test]
async fn a_turn_that_two_janitors_queue_again_is_queued_once() {
    let world = World::start().await;
    let record = world.queued("c-1").await;
    let queue = |suffix| world.store.keys().queue(world.partition(&record), "default", suffix);
    let entry = world.probe.stream(&queue("")).entries[0].0.clone();
    world.probe.ask(&["XDEL", &queue(""), &entry]);
    let views = [world.view(&record).await, world.view(&record).await];
    let requeue = |view| world.store.settle_requeue(view, false, Charge::Handback, false, 0);
    assert_eq!(requeue(&views[0]).await.unwrap(), Settled::Done);
    let before = world.probe.dump();
    assert_eq!(requeue(&views[1]).await.unwrap(), Settled::Changed);
    assert_eq!(world.probe.dump(), before);
    assert_eq!(world.probe.length("XLEN", &queue(":first")), 1);
}

#[tokio::test]
async fn a_purge_that_is_repeated_finds_nothing() {
    let world = World::start().await;
    let ended = world.ended("c-1", End::Completed).await.taken;
    let member = format!("t:{}", ended.record.task);
    world
        .probe
        .set_score(&world.store.keys().retain(ended.partition), &member, 1);
    let keep = Keep::default();
    assert!(world.store.purge(ended.partition, &member, &keep).await.unwrap());
    let before = world.probe.dump();
    assert!(!world.store.purge(ended.partition, &member, &keep).await.unwrap());
    assert_eq!(world.probe.dump(), before);
}
