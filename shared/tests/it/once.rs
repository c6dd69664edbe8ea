//! One answer: what a task says after crashes is what it would have said without them, however it is read.

use a2a::{StreamResponse, TaskState};
use relevo_shared::domain::class::Class;
use relevo_shared::domain::event::{self, attempt, valid_through};
use relevo_shared::domain::fold::Fold;
use relevo_shared::domain::reason::{FailReason, LastAttempt};
use relevo_shared::domain::record::TurnRecord;
use relevo_shared::domain::state::End;
use relevo_shared::ids::{EntryId, Nonce};
use relevo_shared::janitor::{Why, give_back};
use relevo_shared::store::{Batch, EmitReply, HistoryLength, JournalRead, Keep, NewEvent, Open, StoredTask};

use crate::fixture::{Running, World, is_done};

/// What clients see of a task, without ids and times.
fn answer(stored: StoredTask) -> (TaskState, Vec<String>, Vec<String>) {
    let task = stored.into_task(HistoryLength::All);
    let texts = |message: &a2a::Message| -> String { message.parts.iter().filter_map(|p| p.as_text()).collect() };
    let history = task.history.unwrap_or_default().iter().map(texts).collect();
    let status = task.status.message.iter().map(texts).collect();
    (task.status.state, status, history)
}

/// The fold of the whole journal is what the snapshot and the rest say.
async fn reads_alike(world: &World, record: &TurnRecord) {
    let stored = world.stored(record.task).await;
    let journal = world.journal(record.task).await;
    let mut fold = Fold::first(&journal[0]).unwrap();
    for entry in &journal[1..] {
        fold.apply(entry).unwrap();
    }
    assert_eq!(fold.at(), stored.last);
    let whole = fold.into_state();
    assert_eq!(whole.status, stored.folded.status);
    assert_eq!(whole.artifacts, stored.folded.artifacts);
    if stored.live.is_some() {
        // Between turns the history has the messages; the fold of a running turn has them itself.
        assert_eq!(whole.messages, stored.folded.messages);
    }
}

async fn crash(world: &World, turn: &Running) {
    world.expire(&turn.taken.record);
    world.pass(&world.janitor()).await;
}

/// Runs a turn to its end; before that, attempts that said `void` die, having kept a snapshot or not.
async fn run(world: &World, record: &TurnRecord, deaths: &[bool], end: End) {
    let mut turn = world.again(record).await;
    for snapshot in deaths {
        turn.emit(&world.store, &["void "]).await;
        reads_alike(world, record).await;
        if *snapshot {
            turn.emit_with_snapshot(&world.store, &["void "]).await;
            reads_alike(world, record).await;
            turn.emit(&world.store, &["void "]).await;
            reads_alike(world, record).await;
        }
        crash(world, &turn).await;
        turn = world.again(record).await;
    }
    for text in ["one ", "two ", "three"] {
        assert!(is_done(&turn.emit_with_snapshot(&world.store, &[text]).await));
        reads_alike(world, record).await;
    }
    assert!(is_done(&turn.finish(&world.store, end).await));
    reads_alike(world, record).await;
}

#[tokio::test]
async fn a_turn_that_survived_crashes_reads_like_one_that_had_none() {
    let world = World::start().await;
    let cases: [&[bool]; 5] = [&[], &[false], &[true], &[false, true], &[true, false]];
    let mut answers = Vec::new();
    for (n, deaths) in cases.into_iter().enumerate() {
        let context = format!("c-{n}");
        let record = world.queued(&context).await;
        run(&world, &record, deaths, End::InputRequired).await;
        let (next, _) = world.follow_up(record.task, &context).await;
        run(&world, &next, deaths, End::Completed).await;
        answers.push(answer(world.stored(record.task).await));
    }
    let calm = (
        TaskState::Completed,
        vec!["one two three".to_owned()],
        ["hello", "one two three", "hello"].map(str::to_owned).to_vec(),
    );
    for (n, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer, calm, "case {n}");
    }
}

#[tokio::test]
async fn a_boundary_names_its_attempt_and_the_turns_start() {
    let world = World::start().await;
    let task = world.ended("c-1", End::InputRequired).await.taken.record.task;
    let (record, _) = world.follow_up(task, "c-1").await;
    let first = world.live(&record).await.first;
    run(&world, &record, &[false, true], End::Completed).await;
    let journal = world.journal(task).await;
    let boundaries = journal.iter().filter(|e| e.kind.class == Class::Boundary);
    let facts: Vec<_> = boundaries
        .map(|entry| match serde_json::from_slice(&entry.bytes).unwrap() {
            StreamResponse::StatusUpdate(update) => (
                attempt(&update),
                valid_through(&update).map(|c| c.entry),
                update.status.state,
            ),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = |n| (Some(n), Some(first), TaskState::Working);
    assert_eq!(facts, [expected(2), expected(3)]);
}

#[tokio::test]
async fn a_boundary_takes_the_snapshot_back_to_the_turns_start() {
    let world = World::start().await;
    let task = world.ended("c-1", End::InputRequired).await.taken.record.task;
    let key = world.store.keys().task(task);
    let start = world.probe.field(&key, "snapc");
    let snapshot = world.probe.field(&key, "snap");
    let (record, _) = world.follow_up(task, "c-1").await;
    let mut turn = world.again(&record).await;
    turn.emit_with_snapshot(&world.store, &["void"]).await;
    assert_eq!(world.probe.field(&key, "snapc"), Some(turn.prev.to_string()));
    turn.emit_with_snapshot(&world.store, &["void"]).await;
    assert_eq!(
        world.probe.field(&key, "basec"),
        start,
        "the turn's start, not the snapshot before"
    );
    crash(&world, &turn).await;
    let mut turn = world.again(&record).await;
    assert_eq!(
        world.probe.field(&key, "snapc").unwrap(),
        world.probe.field(&key, "last").unwrap(),
        "nothing is taken back before the boundary is written"
    );
    turn.emit(&world.store, &["one"]).await;
    assert_eq!(world.probe.field(&key, "snapc"), start);
    assert_eq!(world.probe.field(&key, "snap"), snapshot);
    turn.finish(&world.store, End::Completed).await;
    assert_eq!(world.probe.field(&key, "base"), None);
    assert_eq!(world.probe.field(&key, "basec"), None);
}

/// A worker folds on from what it is handed: that must not hold what a void attempt made.
#[tokio::test]
async fn the_next_attempt_is_handed_the_task_as_it_was_before_the_turn() {
    let world = World::start().await;
    let task = world.ended("c-1", End::InputRequired).await.taken.record.task;
    let (record, _) = world.follow_up(task, "c-1").await;
    let mut turn = world.again(&record).await;
    assert!(turn.taken.base.as_ref().unwrap().artifacts.is_empty());
    turn.emit(&world.store, &[]).await;
    let artifact = a2a::TaskArtifactUpdateEvent {
        task_id: task.to_string(),
        context_id: "c-1".to_owned(),
        artifact: a2a::Artifact {
            artifact_id: "a".to_owned(),
            name: None,
            description: None,
            parts: vec![a2a::Part::text("void")],
            metadata: None,
            extensions: None,
        },
        append: None,
        last_chunk: None,
        metadata: None,
    };
    let events = [turn.event(StreamResponse::ArtifactUpdate(artifact), Class::Normal)];
    let mut after = turn.clone();
    after.fold_in(&events, Nonce(9));
    let snapshot = serde_json::to_vec(after.fold.state()).unwrap();
    let batch = Batch {
        snapshot: Some(&snapshot),
        ..turn.batch(Nonce(9), Open::No, &events)
    };
    assert!(is_done(&world.store.emit(&batch).await.unwrap()));
    assert_eq!(world.stored(task).await.folded.artifacts.len(), 1);
    crash(&world, &turn).await;
    let mut next = world.again(&record).await;
    assert!(next.taken.base.as_ref().unwrap().artifacts.is_empty());
    next.emit(&world.store, &["whole"]).await;
    assert!(world.stored(task).await.folded.artifacts.is_empty());
    assert!(is_done(&next.finish(&world.store, End::Completed).await));
    assert!(world.stored(task).await.folded.artifacts.is_empty());
}

#[tokio::test]
async fn a_hand_back_loses_and_doubles_nothing_either() {
    let world = World::start().await;
    let record = world.queued("c-1").await;
    let mut turn = world.again(&record).await;
    turn.emit(&world.store, &["void"]).await;
    let (taken, keep) = (&turn.taken, Keep::default());
    let why = Why::HandOver(FailReason::RedisUnavailable);
    give_back(&world.store, taken.partition, &taken.context, &taken.token, why, &keep)
        .await
        .unwrap();
    run(&world, &record, &[], End::Completed).await;
    let (_, status, _) = answer(world.stored(record.task).await);
    assert_eq!(status, ["one two three"]);
    assert_eq!(world.kinds(record.task).await[3], "1.b");
}

#[tokio::test]
async fn a_turn_that_ends_without_its_worker_keeps_what_was_said() {
    let world = World::start().await;
    let record = TurnRecord {
        attempts: 1,
        ..world.record("c-1").await
    };
    let mut turn = world.run(&record).await;
    turn.emit_with_snapshot(&world.store, &["half an answer"]).await;
    turn.emit(&world.store, &[" and more"]).await;
    crash(&world, &turn).await;
    reads_alike(&world, &record).await;
    let (state, status, history) = answer(world.stored(record.task).await);
    assert_eq!(
        (state, status),
        (
            TaskState::Failed,
            vec![LastAttempt::text(
                Some(LastAttempt::WorkerLost),
                record.policy,
                record.attempts
            )]
        )
    );
    assert_eq!(history, ["hello", "half an answer and more"]);
}

#[tokio::test]
async fn a_turn_may_end_whatever_it_said() {
    let world = World::start().await;
    let mut turn = world.running("c-1").await;
    turn.emit(&world.store, &[]).await;
    // More messages than one call takes values, and more than Lua can unpack at once.
    let messages = 9_000;
    for batch in 0..messages / 450 {
        let event = |n: usize| {
            let message = event::agent_message(&turn.taken.record, &(batch * 450 + n).to_string(), "x");
            let update = event::status(&turn.taken.record, TaskState::Working, Some(message), 1);
            turn.event(StreamResponse::StatusUpdate(update), Class::Normal)
        };
        let events: Vec<NewEvent> = (0..450).map(event).collect();
        let nonce = Nonce(batch as u64 + 1);
        let reply = world.store.emit(&turn.batch(nonce, Open::No, &events)).await.unwrap();
        let EmitReply::Done { last, .. } = reply else {
            panic!("{reply:?}")
        };
        turn.fold_in(&events, nonce);
        turn.prev = last;
    }
    assert!(is_done(&turn.finish(&world.store, End::Completed).await));
    let history = world.store.keys().history(turn.taken.record.task);
    assert_eq!(
        world.probe.length("LLEN", &history),
        messages,
        "the last one is the status"
    );
}

#[tokio::test]
async fn a_position_is_a_full_id_and_nothing_else_continues_it() {
    let world = World::start().await;
    let mut turn = world.running("c-1").await;
    turn.emit(&world.store, &["one", "two"]).await;
    let task = turn.taken.record.task;
    let at = turn.prev;
    turn.emit(&world.store, &["three"]).await;
    let read = |position| world.store.read_journal(task, position, 10);
    let JournalRead::Entries(after) = read(at).await.unwrap() else {
        panic!("a gap")
    };
    assert_eq!(after.iter().map(|e| e.id).collect::<Vec<_>>(), [turn.prev]);
    assert_eq!(read(turn.prev).await.unwrap(), JournalRead::Entries(Vec::new()));
    // The same number on another timeline, and one that is not written yet.
    let other = EntryId {
        nonce: at.nonce ^ 1,
        ..at
    };
    let ahead = turn.prev.after(1, Nonce(1));
    for gone in [other, ahead] {
        assert_eq!(read(gone).await.unwrap(), JournalRead::Gap, "{gone}");
    }
    turn.finish_as(
        &world.store,
        End::Completed,
        Nonce(9),
        Some(EntryId { seq: 3, nonce: 0 }),
    )
    .await;
    assert_eq!(read(EntryId::START).await.unwrap(), JournalRead::Gap, "trimmed");
    let many = [(task, EntryId::START), (task, at), (task, other)];
    let many: Vec<_> = world.store.read_journals(&many, 10).await.unwrap();
    let gaps: Vec<bool> = many.iter().map(|read| matches!(read, Ok(JournalRead::Gap))).collect();
    assert_eq!(gaps, [true, false, true]);
}
