//! Keyed sends (`Idempotency-Key`): a message that is sent again with its key runs once, cluster-wide, and the repeat attaches to
//! the turn of the first.
//!
//! ORDER: reserve, then submit with exactly the reserved ids. It does not matter which of two racing gateways submits, nor whether a
//! gateway died between the two: the submit has one effect. A key stands for its request whatever the answer is: one that was
//! refused may be sent again, another may not. Nothing gives a key free before its time: whoever holds its ids may be about to submit.

use a2a::StreamResponse;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use relevo_shared::domain::event;
use relevo_shared::ids::{Cursor, EntryId, TaskId};
use relevo_shared::store::{HistoryLength, Reservation, Reserved, Shown, millis};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::extensions::IDEMPOTENCY;
use super::held::Waiting;
use super::opening::Opening;
use super::submit::{Accepted, New, Sent, admit};
use super::{until_answered, wait};
use crate::auth::Principal;
use crate::error::ApiError;
use crate::hub::Want;
use crate::request::{SendMessage, whole};
use crate::services::{Call, Inner, Key, Services};

/// How errors name the header.
const FIELD: &str = "Idempotency-Key";
/// Longest key, in bytes.
const LONGEST: usize = 256;
/// Without authentication everyone shares one scope: a short key could be guessed, or taken by accident.
const SHORTEST_ANONYMOUS: usize = 16;

/// How long a repeated submit of a send is answered, in ms.
pub(super) fn remember(services: &Inner, call: &Call) -> u64 {
    match call.idempotency_key {
        Some(_) => millis(services.settings.retention.idempotency),
        None => 0,
    }
}

/// The key of a send that carries it in its metadata, for clients that cannot set headers. It is taken out: a request is the same
/// wherever its key was.
pub(crate) fn from_metadata(call: &Call, request: &mut SendMessage) -> Result<Option<String>, ApiError> {
    let Some(facts) = request.metadata.remove(IDEMPOTENCY) else {
        return Ok(None);
    };
    let path = format!("metadata.{IDEMPOTENCY}.key");
    let Some(key) = facts.get("key").and_then(Value::as_str) else {
        return Err(ApiError::invalid(path, "must be a text"));
    };
    if matches!(&call.idempotency_key, Some(Key::Given(header)) if header != key) {
        return Err(ApiError::invalid(path, format!("is another key than that of {FIELD}")));
    }
    Ok(Some(key.to_owned()))
}

/// Reserves the key of a send for `wanted`, or returns the ids that it stands for already.
pub(super) async fn reserve(
    services: &Services,
    principal: &Principal,
    call: &Call,
    request: &SendMessage,
    wanted: Reservation,
    kind: New,
) -> Result<Reservation, ApiError> {
    let Some(key) = &call.idempotency_key else {
        return Ok(wanted);
    };
    check(key, principal.is_anonymous())?;
    let field = field(key);
    let key = services.store.place_key(principal.scope(), &stored(key));
    // A repeat of what was accepted attaches to it; anything else is new work and must be admitted, without leaving a trace.
    if let Err(refused) = admit(services, principal, kind).await
        && !until_answered(call.deadline, || services.store.has_accepted(&key)).await?
    {
        return Err(refused);
    }
    let digest = digest(request);
    let keep = millis(services.settings.retention.idempotency);
    let reserve = || services.store.reserve(&key, &digest, &wanted, keep);
    let reserved = until_answered(call.deadline, reserve).await?;
    match reserved {
        Reserved::New => Ok(wanted),
        Reserved::Exists(ids) => Ok(ids),
        Reserved::Conflict => Err(ApiError::invalid(field, "was used for another request")),
    }
}

fn check(key: &Key, anonymous: bool) -> Result<(), ApiError> {
    let shortest = if anonymous { SHORTEST_ANONYMOUS } else { 1 };
    let (fits, rule) = match key {
        Key::Given(text) => (
            text.bytes().all(|b| (0x20..0x7f).contains(&b)) && (shortest..=LONGEST).contains(&text.len()),
            format!("must be {shortest} to {LONGEST} printable ASCII characters"),
        ),
        // What an id may hold, and how long it may be, is judged where it is read.
        Key::Message(id) => (
            id.len() >= shortest,
            format!("must be at least {shortest} bytes: it is what the message is known by when it is sent again"),
        ),
    };
    if fits {
        return Ok(());
    }
    Err(ApiError::invalid(field(key), rule))
}

/// How errors name it.
const fn field(key: &Key) -> &'static str {
    match key {
        Key::Given(_) => FIELD,
        Key::Message(_) => "message.messageId",
    }
}

/// The text that it is stored under. No header holds the character that ids have there.
fn stored(key: &Key) -> String {
    match key {
        Key::Given(text) => text.clone(),
        Key::Message(id) => format!("\u{1}{id}"),
    }
}

/// What makes two requests the same: message and configuration as they were sent, whatever the binding.
fn digest(request: &SendMessage) -> String {
    let history = match request.history {
        HistoryLength::All => None,
        HistoryLength::Latest(n) => Some(n),
    };
    // Object members are sorted: equal requests give equal texts.
    let mut canonical = json!({
        "message": request.message,
        "acceptedOutputModes": request.accepted_output_modes,
        "historyLength": history,
        "returnImmediately": request.return_immediately,
        "metadata": request.metadata,
    });
    plain_numbers(&mut canonical);
    URL_SAFE_NO_PAD.encode(Sha256::digest(canonical.to_string()))
}

/// 1.0 and 1 are one number, and some bindings cannot tell them apart.
fn plain_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(plain) = number.as_f64().filter(|_| number.is_f64()).and_then(whole) {
                *number = plain.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(plain_numbers),
        Value::Object(members) => members.values_mut().for_each(plain_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Attaches a repeated send to the turn of the first: its events from the turn's first one on, or its answer.
pub(super) async fn attach(
    services: &Services,
    call: &Call,
    task: TaskId,
    number: u32,
    first: EntryId,
    want: Option<Want>,
) -> Result<Sent, ApiError> {
    let entry = until_answered(call.deadline, || services.store.read_entry(task, first)).await?;
    let stored = wait::read(services, task, HistoryLength::All, call.deadline).await?;
    let over = stored.running().is_none() || stored.number > number;
    let last = stored.last;
    let shown = stored.shown;
    if let (Shown::Never, Some(message)) = (shown, event::direct_message(&stored.folded)) {
        return Ok(Sent::Direct(Box::new(message), Cursor { task, entry: last }));
    }
    let now = stored.into_task(HistoryLength::All);
    let requested = Cursor { task, entry: first };
    let cursor = Cursor { task, entry: last };
    let (opening, over) = match entry {
        // A stream begins with its task: the first entry of a new task shows it, what followed comes from the journal.
        Some(entry) if shows_task(&entry.bytes) => {
            let opening = Opening {
                task: now,
                cursor: requested,
                bytes: Some(entry.bytes),
            };
            (opening, false)
        }
        // That of a follow-up does not: the task as it is holds everything so far.
        Some(_) => {
            let opening = Opening {
                task: now,
                cursor,
                bytes: None,
            };
            (opening, over)
        }
        // The journal of that turn is gone: what is left is what it led to.
        None => {
            let opening = Opening {
                task: event::gap(now, &requested.to_string(), cursor),
                cursor,
                bytes: None,
            };
            (opening, over)
        }
    };
    let Some(want) = want.filter(|_| !over) else {
        return Ok(Sent::Answered(Box::new(opening)));
    };
    let mut listener = services.hub.join(task, opening.cursor.entry, want).await;
    listener.look();
    Ok(Sent::Accepted(Box::new(Accepted {
        number,
        listener: Some(listener),
        opening,
        fresh: false,
        held: (shown == Shown::NotYet).then(|| Waiting::new(services, task)),
        place: 0,
    })))
}

fn shows_task(event: &[u8]) -> bool {
    matches!(serde_json::from_slice(event), Ok(StreamResponse::Task(_)))
}

#[cfg(test)]
mod tests {
    use a2a::{Message, Part, Role};

    use super::*;

    fn request(text: &str) -> SendMessage {
        SendMessage {
            tenant: String::new(),
            message: Message {
                message_id: "m".into(),
                ..Message::new(Role::User, vec![Part::text(text)])
            },
            accepted_output_modes: Vec::new(),
            history: HistoryLength::All,
            return_immediately: false,
            inline_push: false,
            metadata: std::collections::BTreeMap::new(),
        }
    }

    #[test]
    fn equal_requests_have_one_digest_and_others_have_others() {
        assert_eq!(digest(&request("a")), digest(&request("a")));
        assert_ne!(digest(&request("a")), digest(&request("b")));
        let immediate = SendMessage {
            return_immediately: true,
            ..request("a")
        };
        assert_ne!(digest(&request("a")), digest(&immediate));
        let with = |number: Value| SendMessage {
            metadata: std::collections::BTreeMap::from([("n".to_owned(), json!([{ "n": number }]))]),
            ..request("a")
        };
        assert_eq!(digest(&with(json!(1))), digest(&with(json!(1.0))));
        assert_ne!(digest(&with(json!(1))), digest(&with(json!(1.5))));
    }

    #[test]
    fn a_key_in_the_metadata_is_taken_out_and_must_be_that_of_the_header() {
        let keyed = |facts: Value| SendMessage {
            metadata: std::collections::BTreeMap::from([(IDEMPOTENCY.to_owned(), facts)]),
            ..request("a")
        };
        let mut call = Call::new(tokio::time::Instant::now(), std::time::Duration::from_secs(1));
        let mut sent = keyed(json!({ "key": "k" }));
        assert_eq!(from_metadata(&call, &mut sent).unwrap().as_deref(), Some("k"));
        assert_eq!(digest(&sent), digest(&request("a")));
        assert!(from_metadata(&call, &mut request("a")).unwrap().is_none());
        for wrong in [json!({}), json!("k"), json!({ "key": 1 })] {
            assert!(from_metadata(&call, &mut keyed(wrong)).is_err());
        }
        call.idempotency_key = Some(Key::Given("other".to_owned()));
        assert!(from_metadata(&call, &mut keyed(json!({ "key": "k" }))).is_err());
        assert!(from_metadata(&call, &mut keyed(json!({ "key": "other" }))).is_ok());
    }

    #[test]
    fn a_key_has_a_length_and_is_printable() {
        let check = |text: &str, anonymous| check(&Key::Given(text.to_owned()), anonymous);
        assert!(check(&"k".repeat(16), true).is_ok());
        assert!(check(&"k".repeat(15), true).is_err());
        assert!(check("k", false).is_ok());
        for bad in ["", "a\u{fffd}b", &"k".repeat(257)] {
            assert!(check(bad, false).is_err(), "{bad}");
        }
        let by_id = |id: &str, anonymous| super::check(&Key::Message(id.to_owned()), anonymous);
        assert!(by_id("é", false).is_ok() && by_id(&"é".repeat(8), true).is_ok());
        assert!(by_id(&"m".repeat(15), true).is_err());
        assert_ne!(
            stored(&Key::Given("m".to_owned())),
            stored(&Key::Message("m".to_owned()))
        );
    }
}
