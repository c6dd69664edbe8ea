//! Every reply of every script, reached on purpose. Those of `take` are in `takes.rs`, those of `emit` and `finish` in
//! `fencing.rs`; a script header that names a reply which no test reaches is found here.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use relevo_shared::domain::due::Charge;
use relevo_shared::domain::event;
use relevo_shared::domain::fold::Folded;
use relevo_shared::domain::reason::FailReason;
use relevo_shared::domain::record::{Sender, TurnRecord};
use relevo_shared::domain::state::End;
use relevo_shared::ids::{EntryId, Nonce, TaskId};
use relevo_shared::janitor::{Conclusion, cancel_idle, conclude};
use relevo_shared::store::{
    Asked, Bound, Held, HistoryLength, Keep, LeaseClient, Refused, Reserved, SCRIPTS, Settled, StoreError, Submit,
    Submitted,
};

use crate::fixture::{TTL, World, is_done};

#[tokio::test]
async fn a_new_turn_is_accepted_and_its_repeat_is_told_the_same() {
    let world = World::start().await;
    let record = world.record("c-1").await;
    let first = world.submit_with(&record, Nonce(1), None, &[]).await;
    world.reached("submit", "OK");
    // Another nonce: a gateway that asks again does not remember it.
    let again = world.submit_with(&record, Nonce(2), None, &[]).await;
    world.reached("submit", "DUPLICATE");
    let entry = EntryId { seq: 1, nonce: 1 };
    assert!(
        matches!(first, Submitted::Accepted { first, number: 1, repeat: false, .. } if first == entry),
        "{first:?}"
    );
    assert!(
        matches!(again, Submitted::Accepted { first, number: 1, repeat: true, .. } if first == entry),
        "{again:?}"
    );
    assert_eq!(world.kinds(record.task).await, ["1.n"]);
}

#[tokio::test]
async fn a_busy_context_takes_no_other_task() {
    let world = World::start().await;
    let live = world.queued("c-1").await;
    let other = world.record("c-1").await;
    let before = world.probe.dump();
    assert_eq!(world.submit(&other).await, Submitted::Busy);
    world.reached("submit", "BUSY");
    assert_eq!(world.probe.dump(), before);

    // Busy is for new tasks of a context; a message to the live task itself has an answer of its own.
    let (_, to_live) = world.follow_up(live.task, "c-1").await;
    assert_eq!(to_live, Submitted::Working);
    world.reached("submit", "WORKING");
    assert_eq!(world.probe.dump(), before);
}

#[tokio::test]
async fn a_follow_up_to_an_idle_task_waits_while_the_context_runs_another() {
    let world = World::start().await;
    let idle = world.ended("c-1", End::InputRequired).await;
    world.running("c-1").await;
    let (_, submitted) = world.follow_up(idle.taken.record.task, "c-1").await;
    assert_eq!(submitted, Submitted::Busy);
}

#[tokio::test]
async fn a_scope_may_have_so_many_live_turns_in_a_partition_and_no_more() {
    let world = World::small().await;
    let submit = async |context: &str, limit| {
        let record = world.record(context).await;
        let first = event::submitted(&record, record.submitted);
        let submit = Submit {
            record: &record,
            first: &first,
            nonce: Nonce(1),
            follows: None,
            scope_limit: limit,
            history: &[],
            interrupt: None,
        };
        (world.store.submit(&submit).await.unwrap(), record)
    };
    let accepted = |submitted: &Submitted| matches!(submitted, Submitted::Accepted { repeat: false, .. });
    for context in ["c-1", "c-2"] {
        assert!(accepted(&submit(context, Some(2)).await.0));
    }
    let before = world.probe.dump();
    assert_eq!(submit("c-3", Some(2)).await.0, Submitted::Limited);
    world.reached("submit", "LIMITED");
    assert_eq!(world.probe.dump(), before);
    assert!(accepted(&submit("c-4", None).await.0), "without a limit nobody counts");

    // Whatever ends a turn makes room: its worker, or nobody's decision.
    let turn = world.take(relevo_shared::ids::Partition(0)).await.pop().unwrap();
    let turn = crate::fixture::Running::new(turn);
    assert!(is_done(&turn.finish(&world.store, End::Completed).await));
    let (submitted, record) = submit("c-3", Some(2)).await;
    assert!(accepted(&submitted));
    assert_eq!(submit("c-5", Some(2)).await.0, Submitted::Limited);
    let canceled = Conclusion {
        end: End::Canceled,
        reason: None,
        dead: false,
        only_expired: false,
    };
    let view = world.view(&record).await;
    let settled = conclude(&world.store, &view, canceled, &Keep::default()).await;
    assert_eq!(settled.unwrap(), Settled::Done);
    assert!(accepted(&submit("c-5", Some(2)).await.0));
}

#[tokio::test]
async fn a_task_that_has_ended_takes_no_message() {
    let world = World::start().await;
    for (n, end) in [End::Completed, End::Failed, End::Canceled, End::Rejected]
        .into_iter()
        .enumerate()
    {
        let context = format!("c-{n}");
        let ended = world.ended(&context, end).await;
        let before = world.probe.dump();
        let (_, submitted) = world.follow_up(ended.taken.record.task, &context).await;
        assert_eq!(submitted, Submitted::Terminal, "{end:?}");
        assert_eq!(world.probe.dump(), before);
    }
    world.reached("submit", "TERMINAL");
}

#[tokio::test]
async fn a_foreign_task_cannot_be_told_from_one_that_does_not_exist() {
    let world = World::small().await;
    let task = world.ended("c-1", End::InputRequired).await.taken.record.task;
    let last = world.stored(task).await.last;
    let mut foreign = world.next_record(task, "c-1").await;
    foreign.sender = Sender {
        subject: "someone else".to_owned(),
        ..Sender::default()
    };
    let other_context = world.next_record(task, "c-2").await;
    let missing = TaskId::new(1, task.partition(), 1);
    let no_task = world.next_record(missing, "c-1").await;
    let before = world.probe.dump();
    for record in [&foreign, &other_context, &no_task] {
        assert_eq!(
            world.submit_with(record, Nonce(1), Some(last), &[]).await,
            Submitted::NotFound
        );
    }
    world.reached("submit", "NOT_FOUND");
    assert_eq!(world.probe.dump(), before);
}

#[tokio::test]
async fn a_follow_up_names_the_entry_it_follows() {
    let world = World::start().await;
    let task = world.ended("c-1", End::InputRequired).await.taken.record.task;
    let last = world.stored(task).await.last;
    let record = world.next_record(task, "c-1").await;
    let other_timeline = EntryId {
        nonce: last.nonce ^ 1,
        ..last
    };
    for stale in [EntryId { seq: 1, nonce: 1 }, other_timeline] {
        let submitted = world.submit_with(&record, Nonce(1), Some(stale), &[]).await;
        assert_eq!(submitted, Submitted::Changed);
    }
    world.reached("submit", "RETRY");
}

#[tokio::test]
async fn a_new_task_never_takes_the_place_of_another() {
    let world = World::start().await;
    let first = world.queued("c-1").await;
    let second = TurnRecord {
        task: first.task,
        ..world.record("c-1").await
    };
    let event = event::submitted(&second, second.submitted);
    let submit = Submit {
        record: &second,
        first: &event,
        nonce: Nonce(1),
        scope_limit: None,
        follows: None,
        history: &[],
        interrupt: None,
    };
    let before = world.probe.dump();
    let refused = world.store.submit(&submit).await;
    world.reached("submit", "TAKEN");
    assert!(matches!(refused, Err(StoreError::Corrupt { .. })), "{refused:?}");
    assert_eq!(world.probe.dump(), before);
}

async fn refuse(world: &World, record: &TurnRecord, nonce: Nonce) -> EntryId {
    let event = event::refused(record, FailReason::ContextBusy, record.submitted);
    let mut state = Folded::new_task(record);
    state.status.state = a2a::TaskState::Failed;
    state.take_messages();
    let refused = Refused {
        record,
        event: &event,
        state: &state,
        nonce,
        keep_ms: 1_000,
    };
    world.store.refuse(&refused).await.unwrap().0
}

#[tokio::test]
async fn a_refused_message_becomes_a_failed_task_that_never_ran() {
    let world = World::start().await;
    world.running("c-1").await;
    let record = world.record("c-1").await;
    let first = refuse(&world, &record, Nonce(1)).await;
    world.reached("refuse", "OK");
    assert_eq!(refuse(&world, &record, Nonce(2)).await, first);
    world.reached("refuse", "DUPLICATE");

    let stored = world.stored(record.task).await;
    assert!(stored.terminal && stored.live.is_none());
    let task = stored.into_task(HistoryLength::All);
    assert_eq!(task.status.state, a2a::TaskState::Failed);
    assert_eq!(task.history.map(|h| h.len()), Some(1));
    assert_eq!(world.kinds(record.task).await, ["1.t"]);
    assert_eq!(world.follow_up(record.task, "c-1").await.1, Submitted::Terminal);
}

#[tokio::test]
async fn a_cancel_marks_a_leased_turn_and_leaves_others_to_the_caller() {
    let world = World::start().await;
    let turn = world.running("c-1").await;
    let (partition, context) = (turn.taken.partition, turn.taken.context.clone());
    let cancel = |turn_id, nonce| world.store.request_cancel(partition, &context, turn_id, nonce);
    let id = turn.taken.record.turn;
    assert_eq!(cancel(id, Nonce(1)).await.unwrap(), Asked::Told);
    world.reached("cancel", "REQUESTED");
    let key = world.context_key(&turn.taken.record);
    assert_eq!(world.probe.field(&key, "cancel"), Some(format!("{id} 1")));

    assert!(is_done(&turn.finish(&world.store, End::Canceled).await));
    assert_eq!(cancel(id, Nonce(1)).await.unwrap(), Asked::Gone);
    world.reached("cancel", "GONE");
    assert_eq!(
        world.probe.field(&key, "cancel").as_deref(),
        Some(""),
        "cleared with its turn"
    );

    let queued = world.queued("c-1").await;
    let before = world.probe.dump();
    assert_eq!(cancel(queued.turn, Nonce(2)).await.unwrap(), Asked::Unheld);
    world.reached("cancel", "UNLEASED");
    assert_eq!(cancel(id, Nonce(2)).await.unwrap(), Asked::Gone, "the turn before");
    assert_eq!(world.probe.dump(), before);
}

#[tokio::test]
async fn a_context_works_where_its_first_turn_did() {
    let world = World::start().await;
    let turn = world.running("c-1").await;
    let bind = |taken, place| world.store.bind_workspace(taken, place, None);
    assert_eq!(bind(&turn.taken, b"/a").await.unwrap(), Bound::Here);
    world.reached("bind", "BOUND");
    assert_eq!(bind(&turn.taken, b"/a").await.unwrap(), Bound::Here, "again");
    let before = world.probe.dump();
    assert_eq!(bind(&turn.taken, b"/b").await.unwrap(), Bound::Elsewhere);
    world.reached("bind", "OTHER");
    assert_eq!(world.probe.dump(), before);
    assert!(is_done(&turn.finish(&world.store, End::Completed).await));
    assert_eq!(bind(&turn.taken, b"/a").await.unwrap(), Bound::Fenced);
    world.reached("bind", "FENCED");
    // The next turn of the context is bound by it, another context is not.
    let next = world.running("c-1").await;
    assert_eq!(bind(&next.taken, b"/b").await.unwrap(), Bound::Elsewhere);
    let other = world.running("c-2").await;
    assert_eq!(bind(&other.taken, b"/b").await.unwrap(), Bound::Here);
}

#[tokio::test]
async fn a_renewal_prolongs_what_is_current_and_names_what_is_not() {
    let world = World::small().await;
    let kept = world.running("c-1").await;
    let expired = world.running("c-2").await;
    let canceled = world.running("c-3").await;
    let lost = world.running("c-4").await;
    let ended = world.ended("c-5", End::Completed).await;
    world.expire(&expired.taken.record);
    world
        .store
        .request_cancel(
            canceled.taken.partition,
            &canceled.taken.context,
            canceled.taken.record.turn,
            Nonce(1),
        )
        .await
        .unwrap();
    let foreign = crate::fixture::token();
    let held = [&kept, &expired, &canceled, &lost, &ended].map(|turn| Held {
        context: turn.taken.context.clone(),
        token: if turn.taken.context == lost.taken.context {
            foreign.clone()
        } else {
            turn.taken.token.clone()
        },
        turn: turn.taken.record.turn,
    });
    let mut client = LeaseClient::new(world.store.clone());
    let partition = kept.taken.partition;
    let renewed = tokio::task::spawn_blocking(move || client.renew(partition, 2 * TTL, &held))
        .await
        .unwrap()
        .unwrap();
    world.reached("renew", "RENEWED");
    assert_eq!(renewed.lost, [foreign, ended.taken.token.clone()]);
    assert_eq!(renewed.canceled, std::slice::from_ref(&canceled.taken.token));
    for turn in [&kept, &expired, &canceled] {
        let record = &turn.taken.record;
        assert_eq!(world.live(record).await.until, renewed.now + 2 * TTL);
        assert_eq!(world.due(record), Some(renewed.now + 2 * TTL));
    }
    assert!(world.live(&lost.taken.record).await.until < renewed.now + 2 * TTL);
}

/// The finish of a turn was not answered yet, and the same worker has taken the next turn of the context.
#[tokio::test]
async fn an_old_lease_of_a_context_is_lost_and_the_current_one_beside_it_is_kept() {
    let world = World::start().await;
    let old = world.ended("c-1", End::InputRequired).await;
    let (record, _) = world.follow_up(old.taken.record.task, "c-1").await;
    let current = world.again(&record).await;
    for order in [[&old, &current], [&current, &old]] {
        let held = order.map(|turn| Held {
            context: turn.taken.context.clone(),
            token: turn.taken.token.clone(),
            turn: turn.taken.record.turn,
        });
        let (mut client, partition) = (LeaseClient::new(world.store.clone()), current.taken.partition);
        let renewed = tokio::task::spawn_blocking(move || client.renew(partition, 2 * TTL, &held));
        let renewed = renewed.await.unwrap().unwrap();
        assert_eq!(renewed.lost, std::slice::from_ref(&old.taken.token));
        assert_eq!(world.live(&record).await.until, renewed.now + 2 * TTL);
    }
}

#[tokio::test]
async fn a_lease_is_settled_only_after_it_ran_out_on_this_server_and_outside_of_any_grace() {
    let world = World::start().await;
    let mut turn = world.running("c-1").await;
    turn.emit(&world.store, &["x"]).await;
    let record = turn.taken.record.clone();
    let meta = world.store.keys().meta(turn.taken.partition);
    let failed = Conclusion {
        end: End::Failed,
        reason: Some(FailReason::AttemptsExhausted),
        dead: true,
        only_expired: true,
    };
    let refused = async |why: &str| {
        let view = world.view(&record).await;
        let before = world.probe.dump();
        let keep = Keep::default();
        let requeued = world.store.settle_requeue(&view, true, Charge::Attempt, false, 0).await;
        assert_eq!(requeued.unwrap(), Settled::Changed, "{why}");
        let ended = conclude(&world.store, &view, failed, &keep).await;
        assert_eq!(ended.unwrap(), Settled::Changed, "{why}");
        assert_eq!(world.probe.dump(), before, "{why}");
    };
    world.expire(&record);
    // Whoever leased it noted on which server: a restart before the first look is noticed.
    assert!(world.probe.field(&meta, "run").is_some_and(|run| !run.is_empty()));
    world.probe.ask(&["HDEL", &meta, "run"]);
    refused("nobody has looked at this partition since the server started").await;
    world.sweep(turn.taken.partition).await;
    world.probe.set(&meta, "grace", world.probe.now() + TTL);
    refused("the grace holds").await;
    world.probe.set(&meta, "grace", 0);
    world.probe.set(&meta, "run", "another");
    refused("it ran out while another server ran").await;
    world.probe.ask(&["DEL", &meta]);
    world.sweep(turn.taken.partition).await;
    world
        .probe
        .set(&world.context_key(&record), "until", world.probe.now() + TTL);
    refused("it has not run out").await;
    world.reached("settle_requeue", "RETRY");
    world.reached("settle_end", "RETRY");

    world.expire(&record);
    let view = world.view(&record).await;
    let settled = world.store.settle_requeue(&view, true, Charge::Attempt, false, 0).await;
    assert_eq!(settled.unwrap(), Settled::Done);
    world.reached("settle_requeue", "OK");
}

#[tokio::test]
async fn nothing_is_settled_that_is_not_as_it_was_read() {
    let world = World::start().await;
    let record = world.queued("c-1").await;
    let queued = world.view(&record).await;
    let mut turn = world.again(&record).await;
    let leased = world.view(&record).await;
    turn.emit(&world.store, &["x"]).await;
    let canceled = Conclusion {
        end: End::Canceled,
        reason: None,
        dead: false,
        only_expired: false,
    };
    let before = world.probe.dump();
    // The first was read before the take, the second before the emit.
    for old in [&queued, &leased] {
        let requeued = world.store.settle_requeue(old, false, Charge::None, false, 0).await;
        assert_eq!(requeued.unwrap(), Settled::Changed);
        let ended = conclude(&world.store, old, canceled, &Keep::default()).await;
        assert_eq!(ended.unwrap(), Settled::Changed);
    }
    assert_eq!(
        world.store.settle_due(&queued, 1).await.unwrap(),
        Settled::Changed,
        "leased since"
    );
    world.reached("settle_due", "RETRY");
    assert_eq!(world.probe.dump(), before);

    let now = world.view(&record).await;
    assert_eq!(world.store.settle_due(&now, 7).await.unwrap(), Settled::Done);
    world.reached("settle_due", "OK");
    assert_eq!(world.due(&record), Some(7));
    let settled = conclude(&world.store, &now, canceled, &Keep::default()).await;
    assert_eq!(settled.unwrap(), Settled::Done);
    world.reached("settle_end", "OK");
    assert_eq!(world.due(&record), None);
}

/// After a failover any of them may differ alone: an epoch or an entry may have been given twice.
#[tokio::test]
async fn everything_that_was_read_is_compared_before_anything_is_settled() {
    let world = World::start().await;
    let mut turn = world.running("c-1").await;
    turn.emit(&world.store, &["x"]).await;
    let record = turn.taken.record.clone();
    let view = world.view(&record).await;
    let keys = world.store.keys();
    let (context, task, turn_key) = (
        world.context_key(&record),
        keys.task(record.task),
        keys.turn(record.turn),
    );
    let end = Conclusion {
        end: End::Canceled,
        reason: None,
        dead: false,
        only_expired: false,
    };
    let fields = [
        (&context, "turn"),
        (&context, "ep"),
        (&context, "tok"),
        (&context, "cancel"),
        (&turn_key, "e"),
        (&task, "last"),
    ];
    for (key, field) in fields {
        let value = world.probe.field(key, field).unwrap_or_default();
        world.probe.set(key, field, "1-1");
        let before = world.probe.dump();
        let requeued = world.store.settle_requeue(&view, false, Charge::None, false, 0).await;
        assert_eq!(requeued.unwrap(), Settled::Changed, "{field}");
        if field != "last" {
            // An end is folded onto the task as it is, so a task that changed is noticed even before.
            let ended = conclude(&world.store, &view, end, &Keep::default()).await;
            assert_eq!(ended.unwrap(), Settled::Changed, "{field}");
        }
        if !["cancel", "last"].contains(&field) {
            assert_eq!(
                world.store.settle_due(&view, 1).await.unwrap(),
                Settled::Changed,
                "{field}"
            );
        }
        assert_eq!(world.probe.dump(), before, "{field}");
        world.probe.set(key, field, value);
    }
    let ended = conclude(&world.store, &view, end, &Keep::default()).await;
    assert_eq!(ended.unwrap(), Settled::Done);
}

#[tokio::test]
async fn a_context_is_forgotten_only_while_it_has_no_turn() {
    let world = World::start().await;
    let ended = world.ended("c-1", End::Completed).await.taken.record;
    let empty = world.view(&ended).await;
    assert!(empty.live.is_none());
    world.reached("read_context", "NONE");
    let record = world.queued("c-1").await;
    world.reached("submit", "OK");
    assert_eq!(world.store.settle_due(&empty, 0).await.unwrap(), Settled::Changed);
    assert!(world.due(&record).is_some());
    assert!(world.view(&record).await.live.is_some());
    world.reached("read_context", "CONTEXT");
}

#[tokio::test]
async fn a_task_is_read_or_it_is_none() {
    let world = World::start().await;
    let record = world.queued("c-1").await;
    assert_eq!(world.stored(record.task).await.number, 1);
    world.reached("read_task", "TASK");
    let missing = TaskId::new(1, record.task.partition(), 1);
    assert!(
        world
            .store
            .read_task(missing, HistoryLength::All)
            .await
            .unwrap()
            .is_none()
    );
    world.reached("read_task", "NONE");
}

#[tokio::test]
async fn a_partition_is_swept_once_a_second_by_whoever_comes_first() {
    let world = World::start().await;
    let record = world.queued("c-1").await;
    let partition = world.partition(&record);
    let pools = ["default".to_owned(), "other".to_owned()];
    let first = world
        .store
        .sweep(partition, TTL, 10, false, &pools)
        .await
        .unwrap()
        .unwrap();
    world.reached("sweep", "SWEPT");
    assert_eq!(first.waiting, ["default"]);
    assert_eq!(
        world.store.sweep(partition, TTL, 10, false, &pools).await.unwrap(),
        None
    );
    world.reached("sweep", "SKIP");
    assert!(!world.store.unswept().await.unwrap().contains(&partition));
}

#[tokio::test]
async fn only_what_is_due_is_put_off() {
    let world = World::start().await;
    let record = world.queued("c-1").await;
    let (partition, context) = (world.partition(&record), world.context(&record));
    let due = world.due(&record);
    world.store.put_off_context(partition, &context).await.unwrap();
    world.store.put_off_member(partition, "t:unknown").await.unwrap();
    world.reached("put_off", "KEPT");
    assert_eq!(world.due(&record), due);
    let retain = world.store.keys().retain(partition);
    assert_eq!(
        world.probe.score(&retain, "t:unknown"),
        None,
        "nothing comes to be watched"
    );
    world
        .probe
        .set_score(&world.store.keys().due(partition), context.as_str(), 1);
    let before = world.probe.now();
    world.store.put_off_context(partition, &context).await.unwrap();
    world.reached("put_off", "OK");
    let at = world.due(&record).unwrap();
    assert!(at >= before + 60_000 && at <= world.probe.now() + 60_000);
}

#[tokio::test]
async fn nothing_is_purged_before_its_time_or_while_a_turn_lives() {
    let world = World::small().await;
    let ended = world.ended("c-1", End::Completed).await.taken.record;
    let partition = world.partition(&ended);
    let retain = world.store.keys().retain(partition);
    let task = format!("t:{}", ended.task);
    let keep = Keep::default();
    assert!(!world.store.purge(partition, &task, &keep).await.unwrap(), "not yet");
    assert!(
        !world.store.purge(partition, "t:unknown", &keep).await.unwrap(),
        "not retained"
    );
    world.reached("purge", "KEPT");

    let live = world.queued("c-2").await;
    let (live_task, live_context) = (format!("t:{}", live.task), format!("c:{}", world.context(&live)));
    for member in [&live_task, &live_context] {
        world.probe.ask(&["ZADD", &retain, "1", member]);
        assert!(!world.store.purge(partition, member, &keep).await.unwrap(), "{member}");
        assert_eq!(world.probe.score(&retain, member), None, "the turn's end sets it anew");
    }
    assert!(world.stored(live.task).await.live.is_some());

    world.probe.set_score(&retain, &task, 1);
    assert!(world.store.purge(partition, &task, &keep).await.unwrap());
    world.reached("purge", "PURGED");
    let gone = world.store.read_task(ended.task, HistoryLength::All).await.unwrap();
    assert!(gone.is_none());
}

#[tokio::test]
async fn a_layout_is_agreed_on_once_and_another_is_refused() {
    let world = World::start().await;
    world.reached("layout", "LAYOUT");
    let options = relevo_shared::store::ConnectOptions {
        partitions: 32,
        ..crate::fixture::options(&world.redis.url())
    };
    let metrics = relevo_shared::store::StoreMetrics::register(&prometheus::Registry::new()).unwrap();
    let refused = relevo_shared::store::Store::connect(&options, metrics).await;
    let Err(StoreError::Refused { rule }) = refused else {
        panic!("another layout was accepted")
    };
    assert!(rule.contains("partitions = 64"), "{rule}");
    crate::fixture::connect(&world.redis.url()).await;
}

#[tokio::test]
async fn whoever_only_looks_never_lays_out_a_redis() {
    let redis = relevo_testkit::RedisServer::start();
    let probe = crate::probe::Probe::new(&redis);
    let look = async |partitions| {
        let options = relevo_shared::store::ConnectOptions {
            partitions,
            ..crate::fixture::options(&redis.url())
        };
        let metrics = relevo_shared::store::StoreMetrics::register(&prometheus::Registry::new()).unwrap();
        match relevo_shared::store::Store::connect_existing(&options, metrics).await {
            Ok(store) => Ok(store.partitions()),
            Err(StoreError::Refused { rule }) => Err(rule),
            Err(other) => panic!("{other}"),
        }
    };
    let nobody = look(64).await.unwrap_err();
    assert!(nobody.contains("no cluster has used this Redis"), "{nobody}");
    assert!(probe.keys().is_empty());
    crate::fixture::connect(&redis.url()).await;
    assert_eq!(look(64).await, Ok(64));
    let another = look(32).await.unwrap_err();
    assert!(another.contains("partitions = 64"), "{another}");
}

#[tokio::test]
async fn a_key_stands_for_the_ids_of_its_first_request_until_that_is_refused() {
    let world = World::start().await;
    let record = world.record("c-1").await;
    let key = world.store.place_key(&record.scope(), "key");
    let first = crate::scenes::reservation(&record);
    let other = crate::scenes::reservation(&world.record("c-2").await);
    let reserve = |digest, wanted| world.store.reserve(&key, digest, wanted, 1_000_000);
    assert_eq!(reserve("a", &first).await.unwrap(), Reserved::New);
    world.reached("reserve", "RESERVED");
    // Its own repeat, and a retry that reached another gateway, which chose other ids and another context.
    for wanted in [&first, &other] {
        assert_eq!(reserve("a", wanted).await.unwrap(), Reserved::Exists(first.clone()));
    }
    world.reached("reserve", "EXISTS");
    assert_eq!(reserve("b", &other).await.unwrap(), Reserved::Conflict);
    world.reached("reserve", "CONFLICT");
    let (stored, expires) = &world
        .probe
        .dump()
        .into_iter()
        .find(|(name, _)| name.contains(":idem:"))
        .unwrap()
        .1;
    assert!(*expires, "{stored:?}");
}

#[tokio::test]
async fn a_task_without_a_turn_is_cancelled_as_it_was_read_or_not_at_all() {
    let world = World::start().await;
    let task = world.ended("c-1", End::InputRequired).await.taken.record.task;
    let idle = world.stored(task).await;
    let (record, _) = world.follow_up(task, "c-1").await;
    let keep = Keep::default();
    let before = world.probe.dump();
    // A message came first; then its turn lives; then the task is another than the one that was read.
    assert_eq!(cancel_idle(&world.store, &idle, &keep).await.unwrap(), Settled::Changed);
    let live = world.stored(task).await;
    assert_eq!(cancel_idle(&world.store, &live, &keep).await.unwrap(), Settled::Changed);
    world.reached("close", "RETRY");
    assert_eq!(world.probe.dump(), before);
    let turn = world.again(&record).await;
    assert!(is_done(&turn.finish(&world.store, End::InputRequired).await));

    let idle = world.stored(task).await;
    assert_eq!(cancel_idle(&world.store, &idle, &keep).await.unwrap(), Settled::Done);
    world.reached("close", "OK");
    let canceled = world.stored(task).await;
    assert!(canceled.terminal && canceled.state == a2a::TaskState::Canceled);
    assert_eq!(world.kinds(task).await.last().unwrap(), "2.t");
    for stored in [&idle, &canceled] {
        assert_eq!(
            cancel_idle(&world.store, stored, &keep).await.unwrap(),
            Settled::Changed,
            "terminal states absorb"
        );
    }
    assert_eq!(world.follow_up(task, "c-1").await.1, Submitted::Terminal);
}

/// `-- RETURNS A x | B` and its continuation lines.
fn documented() -> BTreeSet<(String, String)> {
    let mut all = BTreeSet::new();
    for script in SCRIPTS {
        let mut lines = script.text.lines().skip_while(|line| !line.starts_with("-- RETURNS"));
        let mut text = lines.next().unwrap().trim_start_matches("-- RETURNS").to_owned();
        for more in lines.take_while(|line| line.starts_with("--   ")) {
            text.push(' ');
            text.push_str(more.trim_start_matches(['-', ' ']));
        }
        for reply in text.split('|') {
            let tag = reply.split([' ', ',']).find(|word| !word.is_empty()).unwrap();
            all.insert((script.name.to_owned(), tag.to_owned()));
        }
    }
    all
}

/// Every `reached("script", "TAG")` in the sources of this binary. Each asserts at run time that it is true.
fn reached() -> BTreeSet<(String, String)> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it")];
    let mut all = BTreeSet::new();
    while let Some(path) = folders.pop() {
        if path.is_dir() {
            folders.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let text = fs::read_to_string(path).unwrap();
        for call in text.split(".reached(\"").skip(1) {
            let mut quoted = call.split('"');
            let (script, tag) = (quoted.next().unwrap(), quoted.nth(1).unwrap());
            all.insert((script.to_owned(), tag.to_owned()));
        }
    }
    all
}

#[test]
fn every_reply_that_a_script_documents_is_reached_by_a_test() {
    let (documented, reached) = (documented(), reached());
    let missing: Vec<_> = documented.difference(&reached).collect();
    assert!(missing.is_empty(), "no test reaches {missing:?}");
    let unknown: Vec<_> = reached.difference(&documented).collect();
    assert!(unknown.is_empty(), "no header documents {unknown:?}");
    assert!(documented.len() > 30, "the headers were not understood: {documented:?}");
}

/// The literal replies in the body of a script are those of its header, so that none can be forgotten there.
#[test]
fn every_reply_that_a_script_gives_is_documented() {
    for script in SCRIPTS {
        let text = script.assembled();
        let replies = text.lines().filter(|line| !line.starts_with("--")).flat_map(|line| {
            let parts = line.split("return { '").skip(1);
            parts.filter_map(|rest| rest.split('\'').next())
        });
        let given: BTreeSet<(String, String)> = replies.map(|tag| (script.name.to_owned(), tag.to_owned())).collect();
        let own: BTreeSet<_> = documented()
            .into_iter()
            .filter(|(name, _)| name == script.name)
            .collect();
        assert_eq!(given, own);
    }
}
