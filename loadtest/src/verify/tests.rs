use a2a::{TaskArtifactUpdateEvent, TaskStatus};
use proptest::prelude::*;
use relevo_shared::ids::Partition;
use serde_json::json;

use super::*;

const CONTEXT: &str = "c-1";

fn task_id() -> TaskId {
    TaskId::new(1_700_000_000_000, Partition(3), 7)
}

fn cursor(seq: u64) -> String {
    Cursor {
        task: task_id(),
        entry: EntryId {
            seq,
            nonce: seq / 4 + 1,
        },
    }
    .to_string()
}

fn expect(chunks: u64) -> Expect {
    Expect::of(&format!("chunks={chunks} nonce=q")).unwrap()
}

fn message(role: Role, text: &str) -> Message {
    Message::new(role, vec![Part::text(text)])
}

fn task(state: TaskState, history: Vec<Message>) -> Task {
    Task {
        id: task_id().to_string(),
        context_id: CONTEXT.to_owned(),
        status: TaskStatus {
            state,
            message: None,
            timestamp: None,
        },
        artifacts: None,
        history: Some(history),
        metadata: None,
    }
}

fn update(state: TaskState, text: Option<&str>) -> StreamResponse {
    StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
        task_id: task_id().to_string(),
        context_id: CONTEXT.to_owned(),
        status: TaskStatus {
            state,
            message: text.map(|text| message(Role::Agent, text)),
            timestamp: None,
        },
        metadata: None,
    })
}

fn number(n: u64) -> StreamResponse {
    update(TaskState::Working, Some(&format!("seq={n} nonce=q\n")))
}

fn boundary(through: u64) -> StreamResponse {
    let StreamResponse::StatusUpdate(mut update) = update(TaskState::Working, None) else {
        unreachable!()
    };
    let facts = json!({ "boundary": true, "attempt": 2, "validThrough": cursor(through) });
    update.metadata = Some([(RESUME.to_owned(), facts)].into());
    StreamResponse::StatusUpdate(update)
}

/// An undisturbed stream.
fn stream(chunks: u64) -> Vec<StreamResponse> {
    let opening = StreamResponse::Task(task(
        TaskState::Submitted,
        vec![message(Role::User, "chunks=3 nonce=q")],
    ));
    let mut events = vec![opening, update(TaskState::Working, None)];
    events.extend((0..chunks).map(number));
    events.push(update(TaskState::Completed, Some("done nonce=q")));
    events
}

/// What is found when the events come with these places.
fn judge_at(chunks: u64, events: &[(u64, StreamResponse)]) -> Vec<Kind> {
    let mut check = StreamCheck::new(expect(chunks), CONTEXT);
    for (seq, event) in events {
        check.event(Some(&cursor(*seq)), event);
    }
    let mut kinds: Vec<Kind> = check.finish().into_iter().map(|violation| violation.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

fn judge(chunks: u64, events: Vec<StreamResponse>) -> Vec<Kind> {
    let numbered: Vec<_> = (1..).zip(events).collect();
    judge_at(chunks, &numbered)
}

#[test]
fn an_undisturbed_stream_is_clean() {
    assert_eq!(judge(3, stream(3)), []);
    assert_eq!(judge(0, stream(0)), []);
}

#[test]
fn a_repeated_number_is_an_error_unless_a_boundary_voids_the_first() {
    let mut repeated = stream(3);
    repeated.insert(4, number(1));
    assert_eq!(judge(3, repeated), [Kind::Duplicate]);

    let mut restarted = stream(3);
    restarted.splice(2..2, [number(0), number(1), boundary(1)]);
    assert_eq!(judge(3, restarted), []);

    // The boundary keeps what came up to the third event: number 0.
    let mut kept = stream(3);
    kept.splice(2..2, [number(0), number(1), boundary(3)]);
    assert_eq!(judge(3, kept), [Kind::Duplicate]);
}

#[test]
fn every_kind_of_fault_is_told_apart() {
    let mut foreign = stream(3);
    foreign.insert(3, update(TaskState::Working, Some("seq=1 nonce=other\n")));
    assert_eq!(judge(3, foreign), [Kind::Foreign]);

    let mut unfinished = stream(3);
    unfinished.pop();
    assert_eq!(judge(3, unfinished), [Kind::Unfinished]);

    let mut failed = stream(3);
    failed.pop();
    failed.push(update(TaskState::Failed, None));
    assert_eq!(judge(3, failed), [Kind::Unfinished]);

    let mut mute = stream(3);
    mute.pop();
    mute.push(update(TaskState::Completed, None));
    assert_eq!(judge(3, mute), [Kind::Lost]);

    let mut late = stream(3);
    late.push(update(TaskState::Working, None));
    assert_eq!(judge(3, late), [Kind::Reordered, Kind::Unfinished]);
}

#[test]
fn what_came_of_a_turn_that_ended_early_must_be_whole() {
    let early = |events: Vec<StreamResponse>| {
        let mut check = StreamCheck::new(expect(9), CONTEXT);
        for (seq, event) in (1..).zip(events) {
            check.event(Some(&cursor(seq)), &event);
        }
        let found = check.finish_early().into_iter();
        found.map(|violation| violation.kind).collect::<Vec<_>>()
    };
    let mut canceled = stream(3);
    canceled.pop();
    assert_eq!(early(canceled.clone()), [Kind::Unfinished]);
    canceled.push(update(TaskState::Canceled, None));
    assert_eq!(early(canceled.clone()), []);
    let mut late = canceled.clone();
    late.push(number(3));
    assert_eq!(early(late), [Kind::Reordered, Kind::Unfinished]);
    // Without the first number, as no place shows it.
    canceled.remove(2);
    assert_eq!(early(canceled), [Kind::Lost]);
}

#[test]
fn places_tell_what_no_number_shows() {
    let events = stream(1);
    let at = |places: [u64; 4]| judge_at(1, &places.into_iter().zip(events.clone()).collect::<Vec<_>>());
    assert_eq!(at([1, 2, 3, 4]), []);
    assert_eq!(at([1, 2, 3, 5]), [Kind::Lost]);
    assert_eq!(at([1, 3, 2, 4]), [Kind::Lost, Kind::Reordered]);
    // A follow-up turn begins anywhere.
    assert_eq!(at([7, 8, 9, 10]), []);
    // The same event again, which its number would tell as well.
    assert!(at([1, 2, 2, 3]).contains(&Kind::Duplicate));
}

#[test]
fn a_gap_is_told_and_what_follows_is_judged_from_its_snapshot() {
    let mut snapshot = task(TaskState::Working, vec![message(Role::User, "chunks=3 nonce=q")]);
    snapshot.status.message = Some(message(Role::Agent, "seq=0 nonce=q\nseq=1 nonce=q\n"));
    snapshot.metadata = Some([(RESUME.to_owned(), json!({ "gap": true }))].into());
    let mut events: Vec<_> = (1..).zip(stream(3)).take(3).collect();
    events.extend([
        (3, StreamResponse::Task(snapshot)),
        (4, number(2)),
        (5, update(TaskState::Completed, Some("done nonce=q"))),
    ]);
    assert_eq!(judge_at(3, &events), [Kind::Gap]);
}

#[test]
fn another_task_or_context_is_foreign() {
    let mut check = StreamCheck::new(expect(0), "c-2");
    check.event(None, &update(TaskState::Completed, Some("done nonce=q")));
    assert_eq!(check.finish()[0].kind, Kind::Foreign);
}

#[test]
fn an_artifact_in_pieces_is_counted_like_a_text() {
    let piece = |n: u64, append| {
        StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
            task_id: task_id().to_string(),
            context_id: CONTEXT.to_owned(),
            artifact: Artifact {
                artifact_id: "a".to_owned(),
                name: None,
                description: None,
                parts: vec![Part::text(format!("seq={n} nonce=q\n"))],
                metadata: None,
                extensions: None,
            },
            append: Some(append),
            last_chunk: None,
            metadata: None,
        })
    };
    let mut events = stream(0);
    events.splice(2..2, [piece(0, false), piece(1, true)]);
    assert_eq!(judge(2, events.clone()), []);
    events.splice(4..4, [boundary(1), piece(0, false), piece(1, true)]);
    assert_eq!(judge(2, events.clone()), []);
    events[3] = piece(1, false);
    assert_eq!(judge(2, events), [Kind::Reordered]);
}

fn whole(parts: &[&str]) -> Task {
    let mut whole = task(TaskState::Completed, vec![message(Role::User, "chunks=3 nonce=q")]);
    let mut answer = message(Role::Agent, "");
    answer.parts = parts.iter().map(|text| Part::text(*text)).collect();
    whole.status.message = Some(answer);
    whole
}

fn judge_task(task: &Task) -> Vec<Kind> {
    check_task(task, CONTEXT, &[expect(3)])
        .into_iter()
        .map(|violation| violation.kind)
        .collect()
}

#[test]
fn a_task_holds_each_number_once() {
    let text = "seq=0 nonce=q\nseq=1 nonce=q\nseq=2 nonce=q\n";
    assert_eq!(judge_task(&whole(&[text, "done nonce=q"])), []);
    assert_eq!(judge_task(&whole(&[text, text, "done nonce=q"])), [Kind::Duplicate; 3]);
    assert_eq!(
        judge_task(&whole(&["seq=0 nonce=q\nseq=2 nonce=q\n", "done nonce=q"])),
        [Kind::Lost]
    );
    assert_eq!(judge_task(&whole(&[text])), [Kind::Lost]);
    assert_eq!(
        judge_task(&whole(&[text, "seq=0 nonce=z\n", "done nonce=q"])),
        [Kind::Foreign]
    );
    let mut failed = whole(&[text, "done nonce=q"]);
    failed.status.state = TaskState::Failed;
    assert_eq!(judge_task(&failed), [Kind::Unfinished]);
    let mut asked_twice = whole(&[text, "done nonce=q"]);
    asked_twice
        .history
        .as_mut()
        .unwrap()
        .push(message(Role::User, "chunks=3 nonce=q"));
    assert_eq!(judge_task(&asked_twice), [Kind::Duplicate]);
}

proptest! {
    /// However often a stream is cut and resumed exactly where it was, and however often an attempt is voided, it is clean.
    #[test]
    fn restarts_at_any_point_are_clean(chunks in 1_u64..20, crashes in prop::collection::vec(0_u64..20, 0..4)) {
        let mut events = stream(chunks);
        for crash in crashes {
            let heard: Vec<_> = (0..crash.min(chunks)).map(number).collect();
            // Before the attempts that are there already: each is voided by the boundary that follows it.
            events.splice(2..2, heard.into_iter().chain([boundary(1)]));
        }
        prop_assert_eq!(judge(chunks, events), []);
    }

    /// Taking one event out, saying one twice or swapping two is always noticed.
    #[test]
    fn no_single_fault_passes(chunks in 2_u64..20, at in any::<prop::sample::Index>(), fault in 0..3) {
        let mut events: Vec<_> = (1..).zip(stream(chunks)).collect();
        let at = at.index(events.len() - 1);
        match fault {
            // The first event cannot be missed by its place: nothing says where a turn begins.
            0 => drop(events.remove(at.max(1))),
            1 => events.insert(at, events[at].clone()),
            _ => events.swap(at, at + 1),
        }
        prop_assert_ne!(judge_at(chunks, &events), []);
    }
}
