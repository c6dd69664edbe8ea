//! Turns that wait for their user: held by nobody, still their context's live turn, resumed by exactly one answer.

use std::collections::BTreeSet;

use a2a::TaskState;
use relevo_shared::domain::class::Class;
use relevo_shared::domain::reason::FailReason;
use relevo_shared::domain::record::{BusyPolicy, CrashPolicy, TurnRecord};
use relevo_shared::domain::state::End;
use relevo_shared::ids::{Cursor, EntryId, Nonce, Partition};
use relevo_shared::janitor::{Conclusion, GivenBack, Why, conclude, end_interrupted, give_back};
use relevo_shared::store::{
    Asked, Batch, EmitReply, Held, HistoryLength, Keep, LeaseClient, SessionItems, Settled, StoredTask, Submitted,
};

use crate::fixture::{LONGEST, Running, TTL, World, is_done, is_repeat};
use crate::invariants::{self, Memory};

const ONLY: Partition = Partition(0);

fn hold(world: &World) {
    let meta = world.store.keys().meta(ONLY);
    let prefix = meta.trim_end_matches("meta");
    invariants::hold(&world.probe.dump(), prefix, &BTreeSet::new(), &mut Memory::default());
}

fn accepted(submitted: &Submitted) -> (EntryId, u32, bool) {
    match submitted {
        Submitted::Accepted {
            first, number, repeat, ..
        } => (*first, *number, *repeat),
        other => panic!("{other:?}"),
    }
}

fn texts(stored: StoredTask) -> (Vec<String>, Option<String>) {
    let task = stored.into_task(HistoryLength::All);
    let text = |message: &a2a::Message| -> String { message.parts.iter().filter_map(|part| part.as_text()).collect() };
    let history = task.history.iter().flatten().map(text).collect();
    (history, task.status.message.as_ref().map(text))
}

async fn crash(world: &World, turn: &Running) {
    let (taken, keep) = (&turn.taken, Keep::default());
    let given = give_back(&world.store, ONLY, &taken.context, &taken.token, Why::Crash, &keep).await;
    assert_eq!(given.unwrap(), GivenBack::Queued);
}

async fn failed_with(world: &World, record: &TurnRecord, reason: FailReason) {
    let stored = world.stored(record.task).await;
    let facts = stored.folded.metadata["urn:relevo:a2a:turn:v1"]["reason"].clone();
    assert_eq!(
        (stored.state, facts.as_str()),
        (TaskState::Failed, Some(reason.as_str()))
    );
}

#[tokio::test]
async fn a_suspended_turn_is_held_by_nobody_and_goes_on_with_its_answer() {
    for end in [End::InputRequired, End::AuthRequired] {
        let world = World::small().await;
        let mut turn = world.running("c-1").await;
        turn.emit(&world.store, &["asked "]).await;
        let before = turn.taken.clone();
        let reply = turn.suspend_as(&world.store, end, Nonce(7), None).await;
        assert!(is_done(&reply));
        world.reached("suspend", "DONE");
        hold(&world);
        let stored = world.stored(before.record.task).await;
        assert!(stored.suspended && stored.running().is_none() && !stored.terminal);
        assert_eq!((stored.state, stored.live), (end.state(), Some(before.record.turn)));
        let overview = world.store.overview(&["default".to_owned()]).await.unwrap();
        assert_eq!((overview.backlog, overview.suspended), (0, 1));
        assert!(world.take(ONLY).await.is_empty(), "nobody is to run it");

        let submitted = world.answer(&before.record).await;
        world.reached("answer", "OK");
        hold(&world);
        let (first, number, _) = accepted(&submitted);
        assert_eq!(number, 2, "each answer has its number in the journal");
        let overview = world.store.overview(&["default".to_owned()]).await.unwrap();
        assert_eq!((overview.backlog, overview.suspended), (1, 0));

        let mut resumed = world.again(&before.record).await;
        let taken = &resumed.taken;
        assert!(taken.epoch > before.epoch);
        assert_eq!(taken.record.attempt(taken.tries), 1, "an answer is no attempt");
        assert_eq!((taken.tries.charged, taken.tries.handbacks, taken.first), (0, 0, first));
        assert_eq!(taken.record.answers(), 1);
        resumed.emit(&world.store, &["went on "]).await;
        hold(&world);
        assert!(is_done(&resumed.finish(&world.store, End::Completed).await));
        hold(&world);
        let kinds = ["1.n", "1.n", "1.n", "1.i", "2.n", "2.n", "2.n", "2.t"];
        assert_eq!(world.kinds(before.record.task).await, kinds);
        let said = texts(world.stored(before.record.task).await);
        let history = ["hello", "asked ", "yes"].map(str::to_owned).to_vec();
        assert_eq!(said, (history, Some("went on ".to_owned())));
    }
}

#[tokio::test]
async fn a_crash_after_the_answer_takes_back_what_came_after_it_and_no_more() {
    for snapshot in [false, true] {
        let world = World::small().await;
        let mut turn = world.running("c-1").await;
        let remember = |expect: u64, item: &str| SessionItems {
            expect,
            items: vec![item.as_bytes().to_vec()],
        };
        let said = async |turn: &mut Running, text: &str, session: SessionItems| {
            let (open, events) = turn.events(&[text]);
            let nonce = Nonce(turn.taken.epoch.0);
            let mut after = turn.clone();
            after.fold_in(&events, nonce);
            let kept = serde_json::to_vec(after.fold.state()).unwrap();
            let batch = Batch {
                session: Some(&session),
                snapshot: snapshot.then_some(&kept),
                ..turn.batch(nonce, open, &events)
            };
            let EmitReply::Done { last, .. } = world.store.emit(&batch).await.unwrap() else {
                panic!("not written");
            };
            after.prev = last;
            after.opened = true;
            *turn = after;
        };
        said(&mut turn, "asked ", remember(0, "1")).await;
        assert!(is_done(&turn.suspend(&world.store).await));
        let record = turn.taken.record.clone();
        let (first, ..) = accepted(&world.answer(&record).await);

        let mut lost = world.again(&record).await;
        said(&mut lost, "void ", remember(1, "2")).await;
        crash(&world, &lost).await;
        hold(&world);

        let mut again = world.again(&record).await;
        assert_eq!(again.taken.record.attempt(again.taken.tries), 2);
        let items = world
            .store
            .read_session(ONLY, &again.taken.context, "demo", record.turn)
            .await
            .unwrap();
        assert_eq!(
            items,
            [b"1".to_vec()],
            "what was remembered before the suspension stays"
        );
        again.emit(&world.store, &["went on "]).await;
        assert_eq!(&world.stored(record.task).await.folded, again.fold.state());
        assert!(is_done(&again.finish(&world.store, End::Completed).await));
        hold(&world);

        let boundary = world.journal(record.task).await;
        let boundary = boundary
            .iter()
            .find(|entry| entry.kind.class == Class::Boundary)
            .unwrap();
        let valid = Cursor {
            task: record.task,
            entry: first,
        };
        let event = String::from_utf8(boundary.bytes.clone()).unwrap();
        assert!(
            event.contains(&valid.to_string()) && event.contains("\"attempt\":2"),
            "{event}"
        );
        let history = ["hello", "asked ", "yes"].map(str::to_owned).to_vec();
        let said = texts(world.stored(record.task).await);
        assert_eq!(said, (history, Some("went on ".to_owned())), "snapshot: {snapshot}");
    }
}

#[tokio::test]
async fn a_turn_asks_as_often_as_it_needs_to() {
    let world = World::small().await;
    let record = world.suspended("c-1").await;
    for n in 1..=3 {
        let (_, number, _) = accepted(&world.answer(&record).await);
        let mut turn = world.again(&record).await;
        assert_eq!((turn.taken.record.answers(), number), (n, n + 1));
        assert_eq!(turn.taken.record.began_as(turn.taken.number), 1);
        turn.emit(&world.store, &["asked "]).await;
        assert!(is_done(&turn.suspend(&world.store).await));
        hold(&world);
    }
    world.answer(&record).await;
    let turn = world.again(&record).await;
    assert!(is_done(&turn.finish(&world.store, End::Completed).await));
    hold(&world);
}

#[tokio::test]
async fn of_many_answers_at_once_exactly_one_resumes() {
    let world = World::small().await;
    let record = world.suspended("c-1").await;
    let mut answers = Vec::new();
    for _ in 0..8 {
        answers.push(world.answer_to(&record).await);
    }
    let sent = answers
        .iter()
        .map(async |answer| world.store.answer(&answer.answering()).await.unwrap());
    let replies = futures_util::future::join_all(sent).await;
    let resumed = replies
        .iter()
        .filter(|reply| matches!(reply, Submitted::Accepted { .. }));
    assert_eq!(resumed.count(), 1);
    let late = replies.iter().filter(|reply| **reply == Submitted::Working);
    assert_eq!(late.count(), 7);
    world.reached("answer", "WORKING");
    hold(&world);
    assert_eq!(world.take_as(&world.worker, ONLY, TTL, 5).await.len(), 1);
}

#[tokio::test]
async fn an_answer_that_is_repeated_resumes_nothing_again() {
    let world = World::small().await;
    let original = world.record("c-1").await;
    let (began, ..) = accepted(&world.submit(&original).await);
    let mut turn = world.again(&original).await;
    turn.emit(&world.store, &["asked "]).await;
    turn.suspend(&world.store).await;
    let answer = world.answer_to(&original).await;
    let first = accepted(&world.store.answer(&answer.answering()).await.unwrap());
    let repeat = async || accepted(&world.store.answer(&answer.answering()).await.unwrap());
    assert_eq!(repeat().await, (first.0, 2, true));
    world.reached("answer", "DUPLICATE");
    let turn = world.again(&original).await;
    assert_eq!(repeat().await, (first.0, 2, true));
    turn.suspend(&world.store).await;
    assert_eq!(
        repeat().await,
        (first.0, 2, true),
        "the next question is not answered by it"
    );
    hold(&world);
    world.answer(&original).await;
    let turn = world.again(&original).await;
    turn.finish(&world.store, End::Completed).await;
    assert_eq!(repeat().await, (first.0, 2, true));
    assert_eq!(
        accepted(&world.submit(&original).await),
        (began, 1, true),
        "nor what began it"
    );
    hold(&world);
}

#[tokio::test]
async fn only_what_is_suspended_is_resumed_and_only_by_its_user() {
    let world = World::small().await;
    let record = world.suspended("c-1").await;
    let answer = world.answer_to(&record).await;

    let mut foreign = world.answer_to(&record).await;
    foreign.record.sender.tenant = "other".to_owned();
    assert_eq!(
        world.store.answer(&foreign.answering()).await.unwrap(),
        Submitted::NotFound
    );
    let mut elsewhere = world.answer_to(&record).await;
    elsewhere.record.context_id = "c-2".to_owned();
    assert_eq!(
        world.store.answer(&elsewhere.answering()).await.unwrap(),
        Submitted::NotFound
    );
    world.reached("answer", "NOT_FOUND");
    hold(&world);

    world.answer(&record).await;
    let turn = world.again(&record).await;
    assert_eq!(
        world.store.answer(&answer.answering()).await.unwrap(),
        Submitted::Working
    );
    turn.suspend(&world.store).await;
    assert_eq!(
        world.store.answer(&answer.answering()).await.unwrap(),
        Submitted::Changed,
        "it answers another question"
    );
    world.reached("answer", "RETRY");
    world.answer(&record).await;
    world
        .again(&record)
        .await
        .finish(&world.store, End::InputRequired)
        .await;
    assert_eq!(
        world.store.answer(&answer.answering()).await.unwrap(),
        Submitted::Changed
    );
    let (next, submitted) = world.follow_up(record.task, "c-1").await;
    assert!(
        matches!(submitted, Submitted::Accepted { .. }),
        "an idle task takes a message"
    );
    world.again(&next).await.finish(&world.store, End::Completed).await;
    assert_eq!(
        world.store.answer(&answer.answering()).await.unwrap(),
        Submitted::Terminal
    );
    world.reached("answer", "TERMINAL");
    hold(&world);
}

#[tokio::test]
async fn who_left_a_turn_suspended_writes_nothing_any_more() {
    let world = World::small().await;
    let mut turn = world.running("c-1").await;
    turn.emit(&world.store, &["asked "]).await;
    let zombie = turn.clone();
    assert!(is_done(
        &turn.suspend_as(&world.store, End::InputRequired, Nonce(7), None).await
    ));
    assert_eq!(zombie.clone().emit(&world.store, &["more "]).await, EmitReply::Fenced);
    assert_eq!(zombie.suspend(&world.store).await, EmitReply::Fenced);
    world.reached("suspend", "FENCED");
    assert!(is_repeat(
        &turn.suspend_as(&world.store, End::InputRequired, Nonce(7), None).await
    ));
    let held = [Held {
        context: turn.taken.context.clone(),
        token: turn.taken.token.clone(),
        turn: turn.taken.record.turn,
    }];
    let mut client = LeaseClient::new(world.store.clone());
    let renewed = tokio::task::spawn_blocking(move || client.renew(ONLY, TTL, &held)).await;
    assert_eq!(renewed.unwrap().unwrap().lost, [turn.taken.token.clone()]);
    let (taken, keep) = (&turn.taken, Keep::default());
    let why = Why::HandOver(FailReason::WorkerDrained);
    let given = give_back(&world.store, ONLY, &taken.context, &taken.token, why, &keep).await;
    assert_eq!(given.unwrap(), GivenBack::Gone);
    hold(&world);
    world.answer(&turn.taken.record).await;
    assert!(is_repeat(
        &turn.suspend_as(&world.store, End::InputRequired, Nonce(7), None).await
    ));
    hold(&world);
}

#[tokio::test]
async fn what_is_cancelled_or_lost_is_not_suspended() {
    let world = World::small().await;
    let mut turn = world.running("c-1").await;
    turn.emit(&world.store, &["asked "]).await;
    let behind = Running {
        prev: turn.taken.last,
        ..turn.clone()
    };
    assert!(matches!(behind.suspend(&world.store).await, EmitReply::Diverged));
    world.reached("suspend", "DIVERGED");
    let (context, id) = (turn.taken.context.clone(), turn.taken.record.turn);
    let asked = world.store.request_cancel(ONLY, &context, id, Nonce(1)).await;
    assert_eq!(asked.unwrap(), Asked::Told);
    assert_eq!(turn.suspend(&world.store).await, EmitReply::Canceled);
    world.reached("suspend", "CANCELLED");
    assert!(is_done(&turn.finish(&world.store, End::Canceled).await));
    hold(&world);
}

#[tokio::test]
async fn a_suspended_turn_is_canceled_at_once_and_what_waits_goes_on() {
    let world = World::small().await;
    let record = world.suspended("c-1").await;
    let answer = world.answer_to(&record).await;
    let next = world.waiting("c-1").await;
    let context = world.context(&record);
    let asked = world.store.request_cancel(ONLY, &context, record.turn, Nonce(1)).await;
    assert_eq!(asked.unwrap(), Asked::Unheld);
    assert_eq!(world.cancel_unheld(&record).await, Settled::Done);
    hold(&world);
    assert_eq!(world.stored(record.task).await.state, TaskState::Canceled);
    assert_eq!(
        world.store.answer(&answer.answering()).await.unwrap(),
        Submitted::Terminal
    );
    assert_eq!(world.again(&next).await.taken.record.turn, next.turn);
    hold(&world);
}

#[tokio::test]
async fn of_an_answer_and_a_cancel_the_first_wins() {
    let world = World::small().await;
    let record = world.suspended("c-1").await;
    let view = world.view(&record).await;
    world.answer(&record).await;
    let end = Conclusion {
        end: End::Canceled,
        reason: None,
        dead: false,
        only_expired: false,
    };
    let late = conclude(&world.store, &view, end, &Keep::default()).await.unwrap();
    assert_eq!(late, Settled::Changed);
    // Decided anew it ends what is queued now.
    assert_eq!(world.cancel_unheld(&record).await, Settled::Done);
    hold(&world);
    assert!(world.take(ONLY).await.is_empty());
}

#[tokio::test]
async fn a_context_is_busy_while_its_turn_waits_for_its_user() {
    let world = World::small().await;
    let idle = world.ended("c-1", End::InputRequired).await.taken.record;
    let record = world.suspended("c-1").await;
    assert_eq!(world.submit(&world.record("c-1").await).await, Submitted::Busy);
    assert_eq!(world.follow_up(idle.task, "c-1").await.1, Submitted::Busy);
    assert_eq!(world.follow_up(record.task, "c-1").await.1, Submitted::Working);
    let next = world.waiting("c-1").await;
    assert!(world.take(ONLY).await.is_empty(), "nothing runs beside it");
    world.answer(&record).await;
    let turn = world.again(&record).await;
    hold(&world);
    turn.finish(&world.store, End::Completed).await;
    assert_eq!(world.again(&next).await.taken.record.turn, next.turn);
    hold(&world);
}

#[tokio::test]
async fn what_interrupts_ends_a_suspended_turn_and_no_answer_comes_between() {
    let world = World::small().await;
    let record = world.suspended("c-1").await;
    let answer = world.answer_to(&record).await;
    let instead = TurnRecord {
        busy: BusyPolicy::Interrupt,
        ..world.record("c-1").await
    };
    let found = world.found(&instead).await;
    let submitted = world.submit_instead(&instead, Nonce(1), &found).await;
    assert!(matches!(submitted, Submitted::Accepted { place: 1, .. }));
    hold(&world);
    // Its gateway is gone: the end is asked for, and the answer comes too late.
    assert_eq!(
        world.store.answer(&answer.answering()).await.unwrap(),
        Submitted::Working
    );
    hold(&world);
    let (context, keep) = (world.context(&record), Keep::default());
    if world.stored(record.task).await.live.is_some() {
        end_interrupted(&world.store, ONLY, &context, found.live, &keep)
            .await
            .unwrap();
    }
    hold(&world);
    assert_eq!(world.stored(record.task).await.state, TaskState::Canceled);
    assert_eq!(world.again(&instead).await.taken.record.turn, instead.turn);

    let other = world.suspended("c-2").await;
    let instead = TurnRecord {
        busy: BusyPolicy::Interrupt,
        ..world.record("c-2").await
    };
    let found = world.found(&instead).await;
    world.submit_instead(&instead, Nonce(2), &found).await;
    let janitor = world.janitor();
    janitor.look_at(ONLY, &world.context(&other)).await.unwrap();
    assert_eq!(world.stored(other.task).await.state, TaskState::Canceled);
    hold(&world);
}

#[tokio::test]
async fn a_user_who_never_answers_ends_the_turn_late_but_surely() {
    let world = World::small().await;
    let record = world.suspended("c-1").await;
    let now = world.store.now().await.unwrap();
    let due = world.due(&record).unwrap();
    assert!(
        (now..=now + LONGEST).contains(&due) && due > now + LONGEST - 60_000,
        "{due}"
    );
    let janitor = world.janitor();
    let context = world.context(&record);
    janitor.look_at(ONLY, &context).await.unwrap();
    assert!(
        world.stored(record.task).await.suspended,
        "it was looked at before its time"
    );
    hold(&world);
    let answer = world.answer_to(&record).await;
    world.probe.set(&world.context_key(&record), "at", "s1");
    assert_eq!(
        world.store.answer(&answer.answering()).await.unwrap(),
        Submitted::Terminal,
        "it comes too late, although nobody has written the end yet"
    );
    hold(&world);
    janitor.look_at(ONLY, &context).await.unwrap();
    failed_with(&world, &record, FailReason::DeadlineExceeded).await;
    hold(&world);

    let hurried = TurnRecord {
        deadline: Some(world.store.now().await.unwrap() + 5_000),
        ..world.record("c-2").await
    };
    let mut turn = world.run(&hurried).await;
    turn.emit(&world.store, &["asked "]).await;
    turn.suspend(&world.store).await;
    assert_eq!(world.due(&hurried), hurried.deadline, "its deadline goes on");
    let stored = world.view(&hurried).await.live.unwrap().record;
    let late = TurnRecord {
        deadline: Some(1),
        ..stored
    };
    let key = world.store.keys().turn(hurried.turn);
    world.probe.set(&key, "r", serde_json::to_string(&late).unwrap());
    janitor.look_at(ONLY, &world.context(&hurried)).await.unwrap();
    failed_with(&world, &hurried, FailReason::DeadlineExceeded).await;
    hold(&world);
}

#[tokio::test]
async fn a_turn_is_as_old_as_its_answer() {
    let world = World::small().await;
    let record = TurnRecord {
        queue_age: 3_600_000,
        ..world.record("c-1").await
    };
    let mut turn = world.run(&record).await;
    turn.emit(&world.store, &["asked "]).await;
    turn.suspend(&world.store).await;
    world.answer(&record).await;
    // However long its user took, a worker has the whole time to come.
    let key = world.store.keys().turn(record.turn);
    let since: u64 = world.probe.field(&key, "since").unwrap().parse().unwrap();
    let resumed = world.live(&record).await;
    assert_eq!((resumed.since, resumed.record.submitted <= since), (since, true));
    world.probe.set(&key, "since", since - 3_700_000);
    world.janitor().look_at(ONLY, &world.context(&record)).await.unwrap();
    failed_with(&world, &record, FailReason::QueueExpired).await;
    hold(&world);
}

#[tokio::test]
async fn a_resumed_turn_keeps_its_attempts_and_its_policy() {
    let world = World::small().await;
    let record = TurnRecord {
        attempts: 2,
        ..world.record("last").await
    };
    let mut turn = world.run(&record).await;
    turn.emit(&world.store, &["void "]).await;
    crash(&world, &turn).await;
    let mut turn = world.again(&record).await;
    turn.emit(&world.store, &["asked "]).await;
    turn.suspend(&world.store).await;
    world.answer(&record).await;
    let turn = world.again(&record).await;
    assert!(turn.taken.last_attempt, "the last attempt goes on alone");
    assert_eq!(turn.taken.record.attempt(turn.taken.tries), 2);
    let (taken, keep) = (&turn.taken, Keep::default());
    let mut begun = turn.clone();
    begun.emit(&world.store, &["x"]).await;
    let given = give_back(&world.store, ONLY, &taken.context, &taken.token, Why::Crash, &keep).await;
    assert_eq!(given.unwrap(), GivenBack::Ended(End::Failed));
    hold(&world);

    let once = TurnRecord {
        policy: CrashPolicy::Fail,
        ..world.record("once").await
    };
    let mut turn = world.run(&once).await;
    turn.emit(&world.store, &["asked "]).await;
    turn.suspend(&world.store).await;
    world.answer(&once).await;
    // Not begun: it goes on elsewhere. Begun: never again.
    let turn = world.again(&once).await;
    crash_by_lease(&world, &turn).await;
    let mut turn = world.again(&once).await;
    turn.emit(&world.store, &["went on "]).await;
    crash_by_lease(&world, &turn).await;
    failed_with(&world, &once, FailReason::AttemptsExhausted).await;
    hold(&world);
}

async fn crash_by_lease(world: &World, turn: &Running) {
    world.sweep(ONLY).await;
    let record = &turn.taken.record;
    world.expire(record);
    world.janitor().look_at(ONLY, &world.context(record)).await.unwrap();
}

#[tokio::test]
async fn nothing_of_a_suspended_turn_is_purged() {
    let world = World::small().await;
    let record = world.suspended("c-1").await;
    let retain = world.store.keys().retain(ONLY);
    let context = format!("c:{}", world.context(&record));
    for member in [format!("t:{}", record.task), format!("j:{}", record.task), context] {
        world.probe.ask(&["ZADD", &retain, "1", &member]);
        assert!(
            !world.store.purge(ONLY, &member, &Keep::default()).await.unwrap(),
            "{member}"
        );
    }
    hold(&world);
    assert!(matches!(world.answer(&record).await, Submitted::Accepted { .. }));
}

#[tokio::test]
async fn the_journal_is_trimmed_at_a_suspension_as_at_an_end() {
    let world = World::small().await;
    let mut turn = world.running("c-1").await;
    turn.emit(&world.store, &["one ", "two "]).await;
    let trim = EntryId { seq: 3, nonce: 0 };
    turn.suspend_as(&world.store, End::InputRequired, Nonce(7), Some(trim))
        .await;
    let key = world.store.keys().journal(turn.taken.record.task);
    assert_eq!(world.probe.ask(&["XLEN", &key]), redis::Value::Int(3));
    hold(&world);
}

/// A process of before would take a suspended turn for one whose queue entry is gone, and run it without its answer.
#[tokio::test]
async fn a_suspended_turn_is_of_a_version_that_others_leave_alone() {
    let world = World::small().await;
    let record = world.record("c-1").await.versioned();
    assert_eq!(record.v, 1);
    let turn = world.run(&record).await;
    turn.suspend(&world.store).await;
    assert_eq!(world.live(&record).await.record.v, 3);
    world.answer(&record).await;
    assert_eq!(world.live(&record).await.record.v, 3);
}
