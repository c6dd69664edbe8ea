use a2a::{Artifact, Part, Role};
use proptest::prelude::*;
use relevo_shared::domain::record::Tries;
use relevo_shared::ids::{ContextKey, Epoch, LeaseToken, ScopeKey};
use relevo_shared::store::Queued;

use super::*;
use crate::fixture::record;

fn taken(opened: u32) -> Taken {
    let record = record();
    let (context, partition) = ContextKey::of(&ScopeKey::of("", ""), "c-1", 64);
    let first = EntryId { seq: 1, nonce: 5 };
    Taken {
        record,
        partition,
        context,
        token: LeaseToken::new(1),
        epoch: Epoch(1),
        previous: None,
        number: 1,
        tries: Tries {
            opened,
            ..Tries::default()
        },
        first,
        last: EntryId {
            seq: if opened == 0 { 1 } else { 9 },
            nonce: 5,
        },
        base: None,
        last_attempt: false,
        canceled: false,
        since: 1_000,
        queued: Queued::default(),
    }
}

const LIMITS: OutputLimits = OutputLimits {
    events: 1_000,
    bytes: 1 << 20,
    event_bytes: 8 << 10,
};

fn put(draft: &mut Draft, taken: &Taken, output: Output) -> Result<(), OverLimit> {
    let events = draft.cut(&taken.record, output, 2_000)?;
    events.into_iter().try_for_each(|event| draft.push(event, 2_000))
}

fn say(text: &str) -> Output {
    let message = Message {
        message_id: "t.0".into(),
        ..Message::new(Role::Agent, vec![Part::text(text)])
    };
    Output::Status {
        state: TaskState::Working,
        message: Some(message),
        metadata: None,
        class: Class::Normal,
    }
}

fn artifact(id: &str, text: &str) -> Artifact {
    Artifact {
        artifact_id: id.into(),
        name: None,
        description: None,
        parts: vec![Part::text(text)],
        metadata: None,
        extensions: None,
    }
}

fn chunk(id: &str, text: &str, append: bool) -> Output {
    Output::Artifact {
        artifact: artifact(id, text),
        append,
        last_chunk: false,
        metadata: None,
    }
}

fn appends(ready: &Ready) -> Vec<bool> {
    let read = |event: &NewEvent| -> Option<bool> {
        let value: serde_json::Value = serde_json::from_slice(&event.bytes).unwrap();
        let update = value["artifactUpdate"].as_object()?;
        // What is false is not printed.
        Some(update.get("append").is_some_and(|append| append == true))
    };
    ready.events.iter().filter_map(read).collect()
}

#[test]
fn a_first_attempt_opens_with_working_and_a_later_one_with_a_boundary() {
    let first = Draft::new(&taken(0), LIMITS, 2_000).ready(Nonce(1)).unwrap();
    assert_eq!((first.open, first.events[0].kind.class), (Open::Working, Class::Normal));
    let later = Draft::new(&taken(2), LIMITS, 2_000).ready(Nonce(1)).unwrap();
    assert_eq!(
        (later.open, later.events[0].kind.class),
        (Open::Boundary, Class::Boundary)
    );
    let text = String::from_utf8(later.events[0].bytes.to_vec()).unwrap();
    assert!(text.contains(r#""attempt":3"#) && text.contains("1-5"), "{text}");
}

#[test]
fn after_a_boundary_the_first_chunk_of_every_artifact_replaces() {
    let taken = taken(1);
    let mut draft = Draft::new(&taken, LIMITS, 2_000);
    for item in [chunk("a", "1", true), chunk("a", "2", true), chunk("b", "1", true)] {
        put(&mut draft, &taken, item).unwrap();
    }
    assert_eq!(appends(&draft.ready(Nonce(1)).unwrap()), [false, true, false]);
}

#[test]
fn a_batch_stays_the_same_however_often_it_is_made_and_goes_when_it_is_written() {
    let taken = taken(0);
    let mut draft = Draft::new(&taken, LIMITS, 2_000);
    put(&mut draft, &taken, say("a")).unwrap();
    let (one, two) = (draft.ready(Nonce(1)).unwrap(), draft.ready(Nonce(1)).unwrap());
    assert_eq!(one.events, two.events);
    draft.written(&one).unwrap();
    assert!(draft.is_empty());
    assert_eq!(draft.position(), EntryId { seq: 3, nonce: 1 });
}

#[test]
fn a_cancel_keeps_only_what_opens_the_attempt() {
    let taken = taken(0);
    let mut draft = Draft::new(&taken, LIMITS, 2_000);
    put(&mut draft, &taken, say("a")).unwrap();
    draft.drop_waiting();
    let (ready, after) = draft
        .ending(&taken.record, Nonce(1), Close::plain(End::Canceled), 3_000)
        .unwrap();
    let classes: Vec<Class> = ready.events.iter().map(|e| e.kind.class).collect();
    assert_eq!(classes, [Class::Normal, Class::Terminal]);
    assert_eq!(after.status.state, TaskState::Canceled);
}

#[test]
fn too_many_events_or_bytes_are_noticed() {
    let taken = taken(0);
    let few = OutputLimits { events: 3, ..LIMITS };
    let mut draft = Draft::new(&taken, few, 2_000);
    assert!(put(&mut draft, &taken, say("a")).is_ok());
    assert!(put(&mut draft, &taken, say("b")).is_ok());
    assert_eq!(put(&mut draft, &taken, say("c")), Err(OverLimit));
    let mut draft = Draft::new(&taken, LIMITS, 2_000);
    let file = Output::Artifact {
        artifact: Artifact {
            artifact_id: "f".into(),
            name: None,
            description: None,
            parts: vec![Part::raw(vec![0; 8 << 10])],
            metadata: None,
            extensions: None,
        },
        append: false,
        last_chunk: true,
        metadata: None,
    };
    assert_eq!(put(&mut draft, &taken, file), Err(OverLimit));
}

#[test]
fn what_is_too_much_is_not_added() {
    let taken = taken(0);
    let mut draft = Draft::new(&taken, LIMITS, 2_000);
    let ready = draft.ready(Nonce(1)).unwrap();
    draft.written(&ready).unwrap();
    let file = Output::Artifact {
        artifact: Artifact {
            parts: vec![Part::text("x").with_media_type("y".repeat(9_000))],
            ..artifact("f", "")
        },
        append: false,
        last_chunk: true,
        metadata: None,
    };
    assert_eq!(put(&mut draft, &taken, file), Err(OverLimit));
    assert!(draft.is_empty());
}

#[test]
fn what_earlier_turns_left_counts() {
    let mut taken = taken(0);
    let big = "x".repeat(600 << 10);
    let mut before = Folded::new_task(&taken.record);
    before.artifacts.push(artifact("a", &big));
    taken.base = Some(before);
    taken.record.new_task = false;
    let limits = OutputLimits {
        event_bytes: 1 << 20,
        ..LIMITS
    };
    let mut draft = Draft::new(&taken, limits, 2_000);
    put(&mut draft, &taken, chunk("b", "1", false)).unwrap();
    assert_eq!(put(&mut draft, &taken, chunk("c", &big, false)), Err(OverLimit));
    taken.base = None;
    let mut draft = Draft::new(&taken, limits, 2_000);
    put(&mut draft, &taken, chunk("c", &big, false)).unwrap();
}

#[test]
fn a_text_has_no_more_pieces_than_a_turn_may_have_events() {
    let taken = taken(0);
    for (event_bytes, most) in [(1, 8 << 10), (8 << 10, 8 << 10), (16 << 10, 16 << 10)] {
        let limits = OutputLimits {
            events: 100,
            bytes: 1 << 30,
            event_bytes,
        };
        let mut draft = Draft::new(&taken, limits, 2_000);
        let text = "x".repeat(90 * ((most - ENVELOPE) - 1));
        let events = draft.cut(&taken.record, say(&text), 2_000).unwrap();
        assert!(events.iter().all(|event| event.bytes().len() <= most));
        assert!(draft.cut(&taken.record, say(&text.repeat(2)), 2_000).is_err());
    }
}

#[test]
fn metadata_goes_with_the_first_piece_and_is_never_cut() {
    let taken = taken(0);
    let mut draft = Draft::new(&taken, LIMITS, 2_000);
    let with = |text: &str, value: String| {
        let Output::Status {
            state, message, class, ..
        } = say(text)
        else {
            unreachable!()
        };
        let metadata = Some(Metadata::from([("k".to_owned(), value.into())]));
        Output::Status {
            state,
            message,
            metadata,
            class,
        }
    };
    let long = "x".repeat(10_000);
    put(&mut draft, &taken, with(&long, "v".into())).unwrap();
    let ready = draft.ready(Nonce(1)).unwrap();
    let holds = |event: &NewEvent| String::from_utf8_lossy(&event.bytes).contains(r#""metadata":{"k":"v"}"#);
    assert_eq!(
        ready.events.iter().map(holds).collect::<Vec<_>>(),
        [false, true, false, false]
    );
    let mut draft = Draft::new(&taken, LIMITS, 2_000);
    assert_eq!(put(&mut draft, &taken, with("a", long)), Err(OverLimit));
}

#[test]
fn a_status_without_a_message_leaves_the_message() {
    let taken = taken(0);
    let mut draft = Draft::new(&taken, LIMITS, 2_000);
    put(&mut draft, &taken, say("a")).unwrap();
    let waiting = Output::Status {
        state: TaskState::AuthRequired,
        message: None,
        metadata: None,
        class: Class::Waiting,
    };
    put(&mut draft, &taken, waiting).unwrap();
    let ready = draft.ready(Nonce(1)).unwrap();
    let after = draft.fold(Nonce(1)).unwrap();
    let status = &after.state().status;
    assert_eq!(
        (ready.events[2].kind.class, status.state.clone()),
        (Class::Waiting, TaskState::AuthRequired)
    );
    assert_eq!(status.message.as_ref().unwrap().parts[0].as_text(), Some("a"));
}

#[test]
fn an_end_carries_its_metadata_beside_its_reason() {
    let taken = taken(0);
    let close = Close {
        metadata: Some(Metadata::from([("k".to_owned(), "v".into())])),
        ..Close::failed(FailReason::AgentError)
    };
    let (ready, _) = Draft::new(&taken, LIMITS, 2_000)
        .ending(&taken.record, Nonce(1), close, 3_000)
        .unwrap();
    let text = String::from_utf8_lossy(&ready.events[1].bytes).into_owned();
    assert!(
        text.contains(r#""k":"v""#) && text.contains(r#""reason":"agent_error""#),
        "{text}"
    );
}

/// Writes `count` texts of this size, `per` to a batch; returns after which of them a snapshot was kept.
fn snapshots(taken: &Taken, count: usize, per: usize, size: usize) -> Vec<usize> {
    let limits = OutputLimits {
        events: 1_000_000,
        bytes: 1 << 30,
        event_bytes: 1 << 20,
    };
    let mut draft = Draft::new(taken, limits, 2_000);
    let mut kept = Vec::new();
    let mut whole = String::new();
    for n in 1..=count {
        let text = format!("{n}:{}", "x".repeat(size));
        whole.push_str(&text);
        put(&mut draft, taken, say(&text)).unwrap();
        if n % per == 0 {
            let ready = draft.ready(Nonce(n as u64)).unwrap();
            if let Some(snapshot) = &ready.snapshot {
                let snapshot: Folded = serde_json::from_slice(snapshot).unwrap();
                let message = snapshot.status.message.unwrap();
                assert_eq!(message.parts[0].as_text(), Some(whole.as_str()));
                kept.push(n);
            }
            draft.written(&ready).unwrap();
        }
    }
    assert_eq!(
        draft.written.state().status.message.as_ref().unwrap().parts[0].as_text(),
        Some(whole.as_str())
    );
    kept
}

#[test]
fn small_events_are_kept_by_their_count_and_large_ones_by_their_bytes() {
    assert_eq!(snapshots(&taken(0), 1_100, 10, 1), [520, 1_040]);
    assert_eq!(snapshots(&taken(0), 10, 1, 90_000), [3, 6, 9]);
}

#[test]
fn a_long_answer_is_kept_less_and_less_often() {
    let kept = snapshots(&taken(0), 4_000, 50, 1_000);
    assert!((5..12).contains(&kept.len()), "{kept:?}");
    for pair in kept.windows(2) {
        // What a reader folds beside the snapshot is never more than half of it, and a batch.
        assert!(
            (pair[1] - pair[0]) * 1_000 <= (pair[0] * 1_010 / 2).max(256 << 10) + 50_000,
            "{kept:?}"
        );
    }
}

#[test]
fn no_snapshot_is_kept_of_a_task_that_is_too_large() {
    let taken = taken(0);
    let mut draft = Draft::new(&taken, LIMITS, 2_000);
    let ready = draft.ready(Nonce(1)).unwrap();
    draft.written(&ready).unwrap();
    for _ in 0..600 {
        put(&mut draft, &taken, say("x")).unwrap();
    }
    assert!(draft.ready(Nonce(2)).unwrap().snapshot.is_some());
    draft.total_bytes = SNAPSHOT_MOST + 1;
    assert!(draft.ready(Nonce(2)).unwrap().snapshot.is_none());
}

#[test]
fn no_snapshot_is_kept_with_a_boundary() {
    let taken = taken(1);
    let mut draft = Draft::new(&taken, LIMITS, 2_000);
    for _ in 0..600 {
        put(&mut draft, &taken, say("x")).unwrap();
    }
    let ready = draft.ready(Nonce(1)).unwrap();
    assert!(ready.snapshot.is_none());
    draft.written(&ready).unwrap();
    put(&mut draft, &taken, say("x")).unwrap();
    assert!(draft.ready(Nonce(2)).unwrap().snapshot.is_some());
}

proptest! {
    #[test]
    fn a_text_that_is_cut_fits_and_reads_as_it_was(text in "[a-z\"\\\\\n\u{1}é😀]{0,200}") {
        let text = text.repeat(100);
        let taken = taken(0);
        let limits = OutputLimits { events: 1_000_000, bytes: 1 << 30, event_bytes: 8 << 10 };
        let mut draft = Draft::new(&taken, limits, 2_000);
        put(&mut draft, &taken, say(&text)).unwrap();
        let ready = draft.ready(Nonce(1)).unwrap();
        prop_assert!(ready.events.iter().all(|e| e.bytes.len() <= limits.event_bytes));
        let message = draft.fold(Nonce(1)).unwrap().state().status.message.clone().unwrap();
        let read: String = message.parts.iter().filter_map(Part::as_text).collect();
        prop_assert_eq!(read, text);
    }
}
