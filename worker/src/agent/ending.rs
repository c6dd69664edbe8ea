//! Ends that agents of several kinds come to, and reading what was before a turn as long as it takes.

use relevo_shared::domain::event::{self, TURN};
use relevo_shared::domain::reason::FailReason;
use relevo_shared::domain::record::TurnRecord;
use relevo_shared::store::StoreError;
use serde_json::json;

use super::{CancelToken, Ending, Metadata, Outcome, Turn};
use crate::runner::write::back_off;

/// How much of a failure's text is shown.
const LONGEST: usize = 4 << 10;

/// What a run returns that was told to stop: nobody reads it.
pub(super) fn stopped() -> Outcome {
    Outcome::Failed(FailReason::AgentError, "stopped".to_owned())
}

/// FAILED `agent_error`, with a text for the reader.
pub(super) fn failed(record: &TurnRecord, text: &str) -> Outcome {
    let shown: String = text.chars().take(LONGEST).collect();
    ended(record, Ending::Failed, "failure", &shown, FailReason::AgentError)
}

/// A message that cannot be used: a new task is FAILED with the words, one that exists waits for another message.
pub(super) fn refused(record: &TurnRecord, words: &str) -> Outcome {
    let ending = if record.new_task {
        Ending::Failed
    } else {
        Ending::InputRequired
    };
    ended(record, ending, "refusal", words, FailReason::InvalidMessage)
}

fn ended(record: &TurnRecord, ending: Ending, what: &str, text: &str, reason: FailReason) -> Outcome {
    let message = event::agent_message(record, what, text);
    let facts = json!({ "reason": reason.as_str() });
    Outcome::Ended(ending, Some(message), Some(Metadata::from([(TURN.to_owned(), facts)])))
}

/// What `read` reads, as soon as Redis says it. One that refuses is asked until the turn must stop: that is not the agent's doing.
pub(super) async fn until_read<T, F: Future<Output = Result<T, StoreError>>>(
    turn: &Turn,
    cancel: &CancelToken,
    read: impl Fn() -> F,
) -> Result<T, Outcome> {
    let mut tries = 0;
    loop {
        match read().await {
            Ok(value) => return Ok(value),
            Err(error @ (StoreError::Refused { .. } | StoreError::Corrupt { .. })) => {
                return Err(Outcome::Crashed(error.to_string()));
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, turn.id = %turn.record.turn, "the past cannot be read");
                tokio::select! {
                    () = back_off(tries) => tries += 1,
                    _ = cancel.canceled() => return Err(stopped()),
                }
            }
        }
    }
}
