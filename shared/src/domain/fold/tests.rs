use a2a::{Part, Role};
use proptest::prelude::*;

use super::*;
use crate::domain::due::tests::record;
use crate::domain::event;
use crate::ids::Cursor;

/// A journal under construction.
struct Journal {
    record: TurnRecord,
    entries: Vec<Entry>,
    turn: u32,
    turn_start: EntryId,
}

impl Journal {
    fn new() -> Self {
        let record = record();
        let first = event::submitted(&record, 1_000);
        let mut journal = Self {
            record,
            entries: Vec::new(),
            turn: 1,
            turn_start: EntryId { seq: 1, nonce: 1 },
        };
        journal.push(&first, 1);
        journal
    }

    fn push(&mut self, event: &event::Event, nonce: u64) {
        let id = EntryId {
            seq: self.entries.len() as u64 + 1,
            nonce,
        };
        let kind = Kind {
            turn: self.turn,
            class: event.class,
        };
        self.entries.push(Entry {
            id,
            kind,
            bytes: event.bytes(),
        });
    }

    fn text(&mut self, message: &str, text: &str) {
        let message = event::agent_message(&self.record, message, text);
        let update = event::status(&self.record, TaskState::Working, Some(message), 2_000);
        self.push(
            &event::Event {
                body: StreamResponse::StatusUpdate(update),
                class: Class::Normal,
            },
            2,
        );
    }

    fn artifact(&mut self, id: &str, text: &str, append: bool) {
        let artifact = Artifact {
            artifact_id: id.to_owned(),
            name: None,
            description: None,
            parts: vec![Part::text(text)],
            metadata: None,
            extensions: None,
        };
        let update = TaskArtifactUpdateEvent {
            task_id: self.record.task.to_string(),
            context_id: self.record.context_id.clone(),
            artifact,
            append: Some(append),
            last_chunk: None,
            metadata: None,
        };
        self.push(
            &event::Event {
                body: StreamResponse::ArtifactUpdate(update),
                class: Class::Normal,
            },
            3,
        );
    }

    fn boundary(&mut self, attempt: u32) {
        let valid = Cursor {
            task: self.record.task,
            entry: self.turn_start,
        };
        self.push(&event::boundary(&self.record, attempt, valid, 3_000), 4);
    }

    fn end(&mut self, end: End) {
        self.push(&event::ended(&self.record, end, None, None, 4_000), 5);
    }

    fn follow_up(&mut self) {
        self.record.new_task = false;
        self.turn += 1;
        self.turn_start = EntryId {
            seq: self.entries.len() as u64 + 1,
            nonce: 6,
        };
        let event = event::submitted(&self.record, 5_000);
        self.push(&event, 6);
    }

    fn fold(&self) -> Fold {
        self.fold_until(self.entries.len())
    }

    fn fold_until(&self, n: usize) -> Fold {
        let mut fold = Fold::first(&self.entries[0]).unwrap();
        for entry in &self.entries[1..n] {
            fold.apply(entry).unwrap();
        }
        fold
    }
}

fn texts(message: Option<&Message>) -> Vec<&str> {
    message
        .map(|m| m.parts.iter().filter_map(Part::as_text).collect())
        .unwrap_or_default()
}

#[test]
fn texts_of_one_message_are_one_text_and_stay_the_answer_at_the_end() {
    let mut journal = Journal::new();
    journal.text("0", "seq=0 ");
    journal.text("0", "seq=1 ");
    journal.end(End::Completed);
    let state = journal.fold().into_state();
    assert_eq!(state.status.state, TaskState::Completed);
    assert_eq!(texts(state.status.message.as_ref()), ["seq=0 seq=1 "]);
    assert_eq!(state.messages.len(), 1, "only the user's message");
}

#[test]
fn another_message_moves_the_one_before_to_the_history() {
    let mut journal = Journal::new();
    journal.text("0", "thinking");
    journal.text("1", "answer");
    let state = journal.fold().into_state();
    assert_eq!(texts(state.status.message.as_ref()), ["answer"]);
    assert_eq!(texts(state.messages.last()), ["thinking"]);
}

#[test]
fn what_an_attempt_said_before_a_boundary_is_void() {
    let mut crashed = Journal::new();
    crashed.text("0", "half");
    crashed.artifact("a", "half", true);
    crashed.boundary(2);
    let mut calm = Journal::new();
    for journal in [&mut crashed, &mut calm] {
        journal.text("0", "whole");
        journal.artifact("a", "whole", false);
        journal.end(End::Completed);
    }
    assert_eq!(crashed.fold().into_state(), calm.fold().into_state());
}

#[test]
fn a_boundary_of_a_later_turn_keeps_the_earlier_turns() {
    let mut journal = Journal::new();
    journal.artifact("a", "first turn", false);
    journal.end(End::InputRequired);
    journal.follow_up();
    journal.artifact("a", "half", true);
    journal.boundary(2);
    let state = journal.fold().into_state();
    assert_eq!(state.artifacts[0].parts, vec![Part::text("first turn")]);
}

#[test]
fn a_follow_up_clears_the_old_answer_because_the_history_has_it() {
    let mut journal = Journal::new();
    journal.text("0", "answer");
    journal.end(End::InputRequired);
    journal.follow_up();
    let state = journal.fold().into_state();
    assert_eq!(state.status.state, TaskState::Submitted);
    assert!(state.status.message.is_none() && state.messages.is_empty());
}

#[test]
fn appended_artifact_chunks_are_merged_and_others_replace() {
    let mut journal = Journal::new();
    journal.artifact("a", "one ", false);
    journal.artifact("a", "two", true);
    journal.artifact("b", "old", false);
    journal.artifact("b", "new", false);
    let state = journal.fold().into_state();
    assert_eq!(state.artifacts[0].parts, vec![Part::text("one two")]);
    assert_eq!(state.artifacts[1].parts, vec![Part::text("new")]);
}

#[test]
fn parts_that_carry_more_than_text_are_not_joined() {
    let mut parts = vec![Part::text("a")];
    join(
        &mut parts,
        vec![
            Part::text("b").with_filename("f"),
            Part::text("c"),
            Part::raw(vec![1]),
            Part::text("d"),
        ],
    );
    assert_eq!(parts.len(), 5);
}

#[test]
fn an_entry_that_is_not_an_event_leaves_the_fold_as_it_was() {
    let journal = Journal::new();
    let mut fold = journal.fold();
    let before = fold.state().clone();
    let kind = Kind {
        turn: 1,
        class: Class::Normal,
    };
    let bad = Entry {
        id: EntryId { seq: 2, nonce: 1 },
        kind,
        bytes: b"{}".to_vec(),
    };
    assert!(matches!(fold.apply(&bad), Err(FoldError::Corrupt { .. })));
    assert_eq!(fold.state(), &before);
    assert_eq!(fold.at(), EntryId { seq: 1, nonce: 1 });
}

#[test]
fn a_boundary_behind_a_snapshot_asks_for_its_base() {
    let mut journal = Journal::new();
    journal.text("0", "half");
    journal.boundary(2);
    let snapshot = journal.fold_until(2);
    let mut fold = Fold::resume(snapshot.at(), 1, snapshot.state().clone(), None);
    assert!(matches!(fold.apply(&journal.entries[2]), Err(FoldError::NeedsBase(_))));
}

#[derive(Debug, Clone)]
enum Step {
    Text(u8, String),
    Artifact(u8, String, bool),
    Boundary,
    NextTurn,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_u8, "[a-z]{1,4}").prop_map(|(m, t)| Step::Text(m, t)),
        3 => (0..3_u8, "[a-z]{1,4}", any::<bool>()).prop_map(|(a, t, app)| Step::Artifact(a, t, app)),
        1 => Just(Step::Boundary),
        1 => Just(Step::NextTurn),
    ]
}

fn build(steps: &[Step]) -> Journal {
    let mut journal = Journal::new();
    let mut attempt = 1;
    for step in steps {
        match step {
            Step::Text(message, text) => journal.text(&message.to_string(), text),
            Step::Artifact(id, text, append) => journal.artifact(&id.to_string(), text, *append),
            Step::Boundary => {
                attempt += 1;
                journal.boundary(attempt);
            }
            Step::NextTurn => {
                journal.end(End::InputRequired);
                journal.follow_up();
                attempt = 1;
            }
        }
    }
    journal
}

proptest! {
    #[test]
    fn a_snapshot_and_the_events_after_it_are_the_fold_of_all(steps in prop::collection::vec(step(), 0..40), cut in any::<prop::sample::Index>()) {
        let journal = build(&steps);
        let whole = journal.fold();
        let k = cut.index(journal.entries.len()) + 1;
        let snapshot = journal.fold_until(k);
        // As it is stored: the state as JSON, and the base of the turn beside it.
        let text = serde_json::to_string(snapshot.state()).unwrap();
        let base = snapshot.base.clone();
        let mut fold = Fold::resume(snapshot.at(), snapshot.turn(), serde_json::from_str(&text).unwrap(), base);
        for entry in &journal.entries[k..] {
            fold.apply(entry).unwrap();
        }
        prop_assert_eq!(fold.state(), whole.state());
        prop_assert_eq!(fold.at(), whole.at());
    }

    #[test]
    fn crashes_leave_no_trace_in_the_fold(before in prop::collection::vec(step(), 0..8), lost in prop::collection::vec(step(), 0..8), after in prop::collection::vec(step(), 0..8)) {
        let keep = |steps: &[Step]| -> Vec<Step> {
            steps.iter().filter(|s| !matches!(s, Step::Boundary | Step::NextTurn)).cloned().collect()
        };
        let mut with = before.clone();
        with.push(Step::NextTurn);
        let mut without = with.clone();
        with.extend(keep(&lost));
        with.push(Step::Boundary);
        for steps in [&mut with, &mut without] {
            steps.extend(keep(&after));
        }
        let (with, without) = (build(&with).fold().into_state(), build(&without).fold().into_state());
        prop_assert_eq!(with.artifacts, without.artifacts);
        prop_assert_eq!(with.messages, without.messages);
        prop_assert_eq!(with.status.message, without.status.message);
    }
}

#[test]
fn small_messages_of_a_task_that_is_over_stay_in_its_snapshot() {
    let mut record = record();
    for (text, end, stay) in [
        ("hello".to_owned(), End::Completed, true),
        ("hello".to_owned(), End::InputRequired, false),
        ("x".repeat(1_900), End::Failed, true),
        ("x".repeat(2_048), End::Canceled, false),
    ] {
        record.message.parts = vec![Part::text(text)];
        let mut state = Folded::new_task(&record);
        let told = state.take_messages_at(end);
        assert_eq!(
            (told.len(), state.messages.len()),
            if stay { (0, 1) } else { (1, 0) },
            "{end:?}"
        );
        // Clients see the same.
        assert_eq!(state.into_task("t".into(), "c".into(), told).history.unwrap().len(), 1);
    }
}

#[test]
fn the_user_message_of_a_new_task_is_its_history() {
    let journal = Journal::new();
    let task = journal
        .fold()
        .into_state()
        .into_task("t".into(), "c".into(), Vec::new());
    let history = task.history.unwrap();
    assert_eq!(history.len(), 1);
    assert_eq!(history[0].role, Role::User);
}
