use std::collections::BTreeMap;

use a2a::Role;
use proptest::prelude::*;
use relevo_shared::domain::record::{CrashPolicy, Sender, Tries, VERSION};
use relevo_shared::ids::{ContextKey, Epoch, LeaseToken, Partition, ScopeKey, TaskId, TurnId};

use super::*;

fn taken(opened: u32) -> Taken {
    let record = TurnRecord {
        v: VERSION,
        turn: TurnId::new(1, Partition(3), 2),
        task: TaskId::new(1, Partition(3), 1),
        context_id: "c-1".into(),
        sender: Sender::default(),
        message: Message {
            message_id: "m-1".into(),
            ..Message::new(Role::User, vec![Part::text("hello")])
        },
        agent: "demo".into(),
        pool: "default".into(),
        policy: CrashPolicy::Restart,
        attempts: 3,
        handbacks: 20,
        submitted: 1_000,
        deadline: None,
        queue_age: 60_000,
        remember_ms: 0,
        new_task: true,
        accepted_output_modes: Vec::new(),
        traceparent: None,
        metadata: BTreeMap::new(),
    };
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
    }
}

const LIMITS: OutputLimits = OutputLimits {
    events: 1_000,
    bytes: 1 << 20,
    event_bytes: 8 << 10,
};

fn say(text: &str) -> Item {
    let message = Message {
        message_id: "t.0".into(),
        ..Message::new(Role::Agent, vec![Part::text(text)])
    };
    Item::Status {
        state: TaskState::Working,
        message: Some(message),
        metadata: None,
        class: Class::Normal,
    }
}

fn chunk(id: &str, text: &str, append: bool) -> Item {
    let artifact = Artifact {
        artifact_id: id.into(),
        name: None,
        description: None,
        parts: vec![Part::text(text)],
        metadata: None,
        extensions: None,
    };
    Item::Artifact {
        artifact,
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
    let text = String::from_utf8(later.events[0].bytes.clone()).unwrap();
    assert!(text.contains(r#""attempt":3"#) && text.contains("1-5"), "{text}");
}

#[test]
fn after_a_boundary_the_first_chunk_of_every_artifact_replaces() {
    let taken = taken(1);
    let mut draft = Draft::new(&taken, LIMITS, 2_000);
    for item in [chunk("a", "1", true), chunk("a", "2", true), chunk("b", "1", true)] {
        draft.push(&taken.record, item, 2_000).unwrap();
    }
    assert_eq!(appends(&draft.ready(Nonce(1)).unwrap()), [false, true, false]);
}

#[test]
fn a_batch_stays_the_same_however_often_it_is_made_and_goes_when_it_is_written() {
    let taken = taken(0);
    let mut draft = Draft::new(&taken, LIMITS, 2_000);
    draft.push(&taken.record, say("a"), 2_000).unwrap();
    let (one, two) = (draft.ready(Nonce(1)).unwrap(), draft.ready(Nonce(1)).unwrap());
    assert_eq!(one.events, two.events);
    draft.written(one);
    assert!(draft.is_empty());
    assert_eq!(draft.position(), EntryId { seq: 3, nonce: 1 });
}

#[test]
fn a_cancel_keeps_only_what_opens_the_attempt() {
    let taken = taken(0);
    let mut draft = Draft::new(&taken, LIMITS, 2_000);
    draft.push(&taken.record, say("a"), 2_000).unwrap();
    draft.drop_waiting();
    let ready = draft
        .ending(&taken.record, Nonce(1), Close::plain(End::Canceled), 3_000)
        .unwrap();
    let classes: Vec<Class> = ready.events.iter().map(|e| e.kind.class).collect();
    assert_eq!(classes, [Class::Normal, Class::Terminal]);
    assert_eq!(ready.after.state().status.state, TaskState::Canceled);
}

#[test]
fn too_many_events_or_bytes_are_noticed() {
    let taken = taken(0);
    let few = OutputLimits { events: 3, ..LIMITS };
    let mut draft = Draft::new(&taken, few, 2_000);
    assert!(draft.push(&taken.record, say("a"), 2_000).is_ok());
    assert!(draft.push(&taken.record, say("b"), 2_000).is_ok());
    assert_eq!(draft.push(&taken.record, say("c"), 2_000), Err(OverLimit));
    let mut draft = Draft::new(&taken, LIMITS, 2_000);
    let file = Item::Artifact {
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
    assert_eq!(draft.push(&taken.record, file, 2_000), Err(OverLimit));
}

#[test]
fn metadata_goes_with_the_first_piece_and_is_never_cut() {
    let taken = taken(0);
    let mut draft = Draft::new(&taken, LIMITS, 2_000);
    let with = |text: &str, value: String| {
        let Item::Status {
            state, message, class, ..
        } = say(text)
        else {
            unreachable!()
        };
        let metadata = Some(Metadata::from([("k".to_owned(), value.into())]));
        Item::Status {
            state,
            message,
            metadata,
            class,
        }
    };
    let long = "x".repeat(10_000);
    draft.push(&taken.record, with(&long, "v".into()), 2_000).unwrap();
    let ready = draft.ready(Nonce(1)).unwrap();
    let holds = |event: &NewEvent| String::from_utf8_lossy(&event.bytes).contains(r#""metadata":{"k":"v"}"#);
    assert_eq!(
        ready.events.iter().map(holds).collect::<Vec<_>>(),
        [false, true, false, false]
    );
    let mut draft = Draft::new(&taken, LIMITS, 2_000);
    assert_eq!(draft.push(&taken.record, with("a", long), 2_000), Err(OverLimit));
}

#[test]
fn a_status_without_a_message_leaves_the_message() {
    let taken = taken(0);
    let mut draft = Draft::new(&taken, LIMITS, 2_000);
    draft.push(&taken.record, say("a"), 2_000).unwrap();
    let waiting = Item::Status {
        state: TaskState::AuthRequired,
        message: None,
        metadata: None,
        class: Class::Waiting,
    };
    draft.push(&taken.record, waiting, 2_000).unwrap();
    let ready = draft.ready(Nonce(1)).unwrap();
    let status = &ready.after.state().status;
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
    let ready = Draft::new(&taken, LIMITS, 2_000)
        .ending(&taken.record, Nonce(1), close, 3_000)
        .unwrap();
    let text = String::from_utf8_lossy(&ready.events[1].bytes).into_owned();
    assert!(
        text.contains(r#""k":"v""#) && text.contains(r#""reason":"agent_error""#),
        "{text}"
    );
}

proptest! {
    #[test]
    fn a_text_that_is_cut_fits_and_reads_as_it_was(text in "[a-z\"\\\\\n\u{1}é😀]{0,200}") {
        let text = text.repeat(100);
        let taken = taken(0);
        let limits = OutputLimits { events: 1_000_000, bytes: 1 << 30, event_bytes: 8 << 10 };
        let mut draft = Draft::new(&taken, limits, 2_000);
        draft.push(&taken.record, say(&text), 2_000).unwrap();
        let ready = draft.ready(Nonce(1)).unwrap();
        prop_assert!(ready.events.iter().all(|e| e.bytes.len() <= limits.event_bytes));
        let message = ready.after.state().status.message.clone().unwrap();
        let read: String = message.parts.iter().filter_map(Part::as_text).collect();
        prop_assert_eq!(read, text);
    }
}
