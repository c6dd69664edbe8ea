//! What became of a cancel, and whether it was honoured. Pure.
//!
//! Whoever acknowledges a cancel answers with the task as it stands then. From that moment on nothing that the agent says may
//! be added to it, and CANCELED is its only end: that is what a client can see of a writer whom Redis refuses.

use std::collections::BTreeSet;

use a2a::{Task, TaskState};

use crate::expect::{is_last_word, marks};
use crate::verify::texts_of_agent;

/// What became of a cancel.
#[derive(Debug, Clone, PartialEq)]
pub enum Cancel {
    /// Answered with the task CANCELED, which held so much.
    Canceled(Said),
    /// Acknowledged, and the turn still ran then; its task held so much.
    Requested(Said),
    /// Answered with the end that was first.
    Ended(TaskState),
    /// Refused: the task had ended, perhaps by an earlier try of this cancel whose answer was lost.
    TooLate,
    /// No answer came: it may have had its effect or not.
    Unknown,
}

/// What a task holds of the answer of one turn.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Said {
    /// Its numbers.
    pub numbers: BTreeSet<u64>,
    /// Whether its last message is there.
    pub last_word: bool,
}

impl Said {
    /// What `task` holds of the turn of that mark.
    pub fn of(task: &Task, nonce: &str) -> Self {
        let texts = texts_of_agent(task);
        let found = texts.iter().flat_map(|text| marks(text));
        Self {
            numbers: found
                .filter(|mark| mark.nonce == nonce)
                .map(|mark| mark.number)
                .collect(),
            last_word: texts.iter().any(|text| is_last_word(text, nonce)),
        }
    }

    /// Whether it holds more than another. Less it may be: a later attempt makes void what an earlier one said.
    fn exceeds(&self, other: &Self) -> bool {
        !self.numbers.is_subset(&other.numbers) || (self.last_word && !other.last_word)
    }
}

/// How a cancel was not honoured, for people: its turn ended `end`, and its task then held `holds`, if somebody looked.
pub fn broken(cancel: &Cancel, end: &TaskState, holds: Option<&Said>) -> Vec<String> {
    let mut found = Vec::new();
    match cancel {
        Cancel::Canceled(held) | Cancel::Requested(held) => {
            if *end != TaskState::Canceled {
                found.push(format!("the cancel was answered {cancel:?}, the end is {end:?}"));
            }
            if let Some(holds) = holds
                && holds.exceeds(held)
            {
                found.push(format!("the cancel was answered {cancel:?}, and then came {holds:?}"));
            }
        }
        Cancel::Ended(told) if told != end => {
            found.push(format!(
                "the cancel was answered with the end {told:?}, the end is {end:?}"
            ));
        }
        Cancel::Ended(_) | Cancel::TooLate | Cancel::Unknown => {}
    }
    found
}

#[cfg(test)]
mod tests {
    use a2a::{Artifact, Message, Part, Role, TaskStatus};

    use super::*;

    fn said(numbers: &[u64], last_word: bool) -> Said {
        Said {
            numbers: numbers.iter().copied().collect(),
            last_word,
        }
    }

    fn judged(cancel: &Cancel, end: &TaskState, holds: Option<&Said>) -> usize {
        broken(cancel, end, holds).len()
    }

    #[test]
    fn an_acknowledged_cancel_that_did_not_lead_to_canceled_is_told() {
        let (completed, canceled) = (TaskState::Completed, TaskState::Canceled);
        for acknowledged in [Cancel::Canceled, Cancel::Requested] {
            let cancel = acknowledged(said(&[0], false));
            assert_eq!(judged(&cancel, &canceled, None), 0);
            assert_eq!(judged(&cancel, &completed, None), 1);
        }
        let ended = Cancel::Ended(completed.clone());
        assert_eq!(judged(&ended, &completed, None), 0);
        assert_eq!(judged(&ended, &canceled, None), 1);
        for open in [Cancel::TooLate, Cancel::Unknown] {
            assert_eq!(judged(&open, &completed, None), 0);
            assert_eq!(judged(&open, &canceled, None), 0);
        }
    }

    #[test]
    fn what_an_agent_says_after_an_acknowledged_cancel_is_told() {
        for acknowledged in [Cancel::Canceled, Cancel::Requested] {
            let cancel = acknowledged(said(&[0, 1], false));
            let with = |holds| judged(&cancel, &TaskState::Canceled, Some(&holds));
            assert_eq!(with(said(&[0, 1], false)), 0);
            // A worker that opened another attempt with the end has voided what the one before said.
            assert_eq!(with(said(&[], false)), 0);
            assert_eq!(with(said(&[0, 1, 2], false)), 1);
            assert_eq!(with(said(&[0, 1], true)), 1);
        }
        // An answer that was complete, and told after all.
        let cancel = Cancel::Requested(said(&[0], false));
        assert_eq!(judged(&cancel, &TaskState::Completed, Some(&said(&[0, 1], true))), 2);
    }

    #[test]
    fn what_a_task_holds_of_a_turn_is_what_its_agent_said_in_it() {
        let mut task = Task {
            id: "t".to_owned(),
            context_id: "c".to_owned(),
            status: TaskStatus {
                state: TaskState::Canceled,
                message: Some(Message::new(Role::Agent, vec![Part::text("done nonce=b")])),
                timestamp: None,
            },
            artifacts: Some(vec![Artifact {
                artifact_id: "a".to_owned(),
                name: None,
                description: None,
                parts: vec![Part::text("seq=2 nonce=a\nseq=9 nonce=b\n")],
                metadata: None,
                extensions: None,
            }]),
            history: Some(vec![
                Message::new(Role::User, vec![Part::text("seq=7 nonce=a")]),
                Message::new(Role::Agent, vec![Part::text("seq=0 nonce=a\nseq=1 nonce=a\n")]),
            ]),
            metadata: None,
        };
        assert_eq!(Said::of(&task, "a"), said(&[0, 1, 2], false));
        assert_eq!(Said::of(&task, "b"), said(&[9], true));
        task.status.message = None;
        assert_eq!(Said::of(&task, "b"), said(&[9], false));
    }
}
