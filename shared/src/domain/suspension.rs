//! Suspended turns. An agent that needs its user in the middle of its work suspends the turn: nobody holds it, it stays the live turn
//! of its context, and the user's next message to the task is the answer with which it goes on.
//!
//! What was said before a suspension stays said: an attempt that crashes after the answer is void from the answer on, not from the
//! turn's start. In the journal each answer begins as a message to an idle task does, under the next number.

use std::collections::BTreeMap;

use a2a::Message;
use serde::{Deserialize, Serialize};

use super::record::{Tries, TurnRecord};
use crate::ids::EntryId;

/// What the suspensions of a turn left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspension {
    /// How often its user has answered.
    pub answers: u32,
    /// Which attempt suspended it: the same goes on.
    pub attempt: u32,
    /// Where it goes on since the last answer; none before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Place>,
}

/// The place of an answer in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Its first entry.
    pub entry: EntryId,
    /// Its number.
    pub number: u32,
}

/// A message that answers a suspended turn, and what its request said beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The message, with task and context filled in.
    pub message: Message,
    /// When (Redis ms).
    pub at: u64,
    /// Where it is in the journal.
    pub from: Place,
    /// The media types that the client takes.
    pub accepted_output_modes: Vec<String>,
    /// The extensions that the client has switched on.
    pub extensions: Vec<String>,
    /// W3C trace context of the request.
    pub traceparent: Option<String>,
    /// Request metadata that is not secret.
    pub metadata: BTreeMap<String, serde_json::Value>,
}

impl TurnRecord {
    /// Which attempt a worker runs that takes the turn now, from 1; hand-backs count too, answers do not.
    pub fn attempt(&self, tries: Tries) -> u32 {
        match &self.suspension {
            None => tries.opened.saturating_add(1),
            Some(suspension) => suspension.attempt.saturating_add(tries.opened),
        }
    }

    /// How often its user has answered it.
    pub fn answers(&self) -> u32 {
        self.suspension.as_ref().map_or(0, |suspension| suspension.answers)
    }

    /// The number in the journal under which the turn began, of the one under which it goes on.
    pub fn began_as(&self, number: u32) -> u32 {
        number.saturating_sub(self.answers())
    }

    /// Where the turn began or, since it was answered, goes on. The arguments are what its keys say of its beginning.
    pub fn goes_on_from(&self, entry: EntryId, number: u32) -> Place {
        let answered = self.suspension.as_ref().and_then(|suspension| suspension.from);
        answered.unwrap_or(Place { entry, number })
    }

    /// The record while the turn is suspended by the attempt `attempt`.
    #[must_use]
    pub fn suspended(&self, attempt: u32) -> Self {
        let suspension = Suspension {
            answers: self.answers(),
            attempt,
            from: self.suspension.as_ref().and_then(|suspension| suspension.from),
        };
        let record = Self {
            suspension: Some(suspension),
            ..self.clone()
        };
        record.versioned()
    }

    /// The record with which a suspended turn goes on.
    #[must_use]
    pub fn answered(&self, answer: Answer) -> Self {
        let suspension = Suspension {
            answers: self.answers().saturating_add(1),
            attempt: self.suspension.as_ref().map_or(1, |suspension| suspension.attempt),
            from: Some(answer.from),
        };
        let record = Self {
            suspension: Some(suspension),
            message: answer.message,
            submitted: answer.at,
            // The task is there, and has been seen.
            new_task: false,
            direct: false,
            accepted_output_modes: answer.accepted_output_modes,
            extensions: answer.extensions,
            traceparent: answer.traceparent,
            metadata: answer.metadata,
            ..self.clone()
        };
        record.versioned()
    }
}

#[cfg(test)]
mod tests {
    use a2a::{Part, Role};

    use super::*;
    use crate::domain::due::tests::record;

    const FROM: Place = Place {
        entry: EntryId { seq: 7, nonce: 1 },
        number: 4,
    };

    fn opened(opened: u32) -> Tries {
        Tries {
            opened,
            ..Tries::default()
        }
    }

    fn answer() -> Answer {
        Answer {
            message: Message::new(Role::User, vec![Part::text("yes")]),
            at: 5_000,
            from: FROM,
            accepted_output_modes: Vec::new(),
            extensions: Vec::new(),
            traceparent: None,
            metadata: BTreeMap::new(),
        }
    }

    #[test]
    fn an_answer_goes_on_with_the_attempt_that_asked() {
        let asked = record().suspended(2);
        assert_eq!((asked.v, asked.answers()), (3, 0));
        assert_eq!(asked.goes_on_from(EntryId::START, 3).number, 3);
        let resumed = asked.answered(answer());
        assert_eq!((resumed.attempt(opened(0)), resumed.attempt(opened(1))), (2, 3));
        assert_eq!(resumed.goes_on_from(EntryId::START, 3), FROM);
        assert_eq!((resumed.answers(), resumed.began_as(4)), (1, 3));
        assert_eq!((resumed.turn, resumed.new_task), (asked.turn, false));
        let again = resumed.suspended(resumed.attempt(opened(0))).answered(answer());
        assert_eq!((again.answers(), again.attempt(opened(0))), (2, 2));
    }

    #[test]
    fn a_turn_that_was_never_suspended_says_nothing_of_it() {
        let record = record();
        assert_eq!((record.attempt(opened(0)), record.attempt(opened(2))), (1, 3));
        assert!(!serde_json::to_string(&record).unwrap().contains("suspension"));
        let text = serde_json::to_string(&record.suspended(1)).unwrap();
        assert_eq!(serde_json::from_str::<TurnRecord>(&text).unwrap(), record.suspended(1));
    }
}
