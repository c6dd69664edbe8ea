//! The eight states of a task, as short words for Redis and as A2A states on the wire.

use a2a::TaskState;

/// The word that stands for a state in Redis (`task:<id>` field `state`, index names).
pub fn word(state: &TaskState) -> &'static str {
    match state {
        TaskState::Unspecified => "UNSPECIFIED",
        TaskState::Submitted => "SUBMITTED",
        TaskState::Working => "WORKING",
        TaskState::Completed => "COMPLETED",
        TaskState::Failed => "FAILED",
        TaskState::Canceled => "CANCELED",
        TaskState::InputRequired => "INPUT_REQUIRED",
        TaskState::Rejected => "REJECTED",
        TaskState::AuthRequired => "AUTH_REQUIRED",
    }
}

/// The state that a word of Redis stands for.
pub fn from_word(word: &str) -> Option<TaskState> {
    ALL.iter().find(|state| self::word(state) == word).cloned()
}

/// Every state a stored task can be in.
pub const ALL: [TaskState; 8] = [
    TaskState::Submitted,
    TaskState::Working,
    TaskState::Completed,
    TaskState::Failed,
    TaskState::Canceled,
    TaskState::InputRequired,
    TaskState::Rejected,
    TaskState::AuthRequired,
];

/// How a turn may end: the states an agent, the janitor or a cancel can leave a task in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// Done.
    Completed,
    /// Went wrong.
    Failed,
    /// Stopped on request.
    Canceled,
    /// The agent refused the message.
    Rejected,
    /// The agent waits for another message.
    InputRequired,
    /// The agent waits for credentials.
    AuthRequired,
}

impl End {
    /// The A2A state.
    pub fn state(self) -> TaskState {
        match self {
            Self::Completed => TaskState::Completed,
            Self::Failed => TaskState::Failed,
            Self::Canceled => TaskState::Canceled,
            Self::Rejected => TaskState::Rejected,
            Self::InputRequired => TaskState::InputRequired,
            Self::AuthRequired => TaskState::AuthRequired,
        }
    }

    /// Whether the task accepts no further message.
    pub fn is_terminal(self) -> bool {
        self.state().is_terminal()
    }

    /// The word used in metric labels.
    pub fn label(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
            Self::Rejected => "rejected",
            Self::InputRequired => "input_required",
            Self::AuthRequired => "auth_required",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back() {
        for state in ALL {
            assert_eq!(from_word(word(&state)), Some(state));
        }
        assert_eq!(from_word("RUNNING"), None);
    }
}
