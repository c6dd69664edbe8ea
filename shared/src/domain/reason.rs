//! Why a turn ended FAILED: a closed set, in event metadata, dead letters and metric labels.

use serde::{Deserialize, Serialize};

use super::record::CrashPolicy;

/// Why a turn ended FAILED.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailReason {
    /// The agent said so, or answered something that is not valid.
    AgentError,
    /// The agent's process went away in the middle of a turn that must not run twice.
    AgentExited,
    /// Every attempt crashed.
    AttemptsExhausted,
    /// The turn's deadline passed.
    DeadlineExceeded,
    /// The turn waited in the queue longer than `limits.queue_age`.
    QueueExpired,
    /// No worker that has the workspace of the context was there for `limits.storage_wait`.
    WorkspaceUnavailable,
    /// The worker shut down in the middle of a turn that must not run twice.
    WorkerDrained,
    /// Redis was away for longer than the lease in the middle of a turn that must not run twice.
    RedisUnavailable,
    /// The artifact store was away for too long in the middle of a turn that must not run twice.
    ArtifactsUnavailable,
    /// The agent produced more than the limits allow.
    OutputLimit,
    /// The principal's artifacts are as much as they may be.
    QuotaExceeded,
    /// The turn was handed back too often.
    HandbacksExhausted,
    /// The context was busy with another turn.
    ContextBusy,
    /// The message breaks a rule of the agent's profile that only the worker can check.
    InvalidMessage,
}

impl FailReason {
    /// The word used in metadata, dead letters and metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AgentError => "agent_error",
            Self::AgentExited => "agent_exited",
            Self::AttemptsExhausted => "attempts_exhausted",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::QueueExpired => "queue_expired",
            Self::WorkspaceUnavailable => "workspace_unavailable",
            Self::WorkerDrained => "worker_drained",
            Self::RedisUnavailable => "redis_unavailable",
            Self::ArtifactsUnavailable => "artifacts_unavailable",
            Self::OutputLimit => "output_limit",
            Self::QuotaExceeded => "quota_exceeded",
            Self::HandbacksExhausted => "handbacks_exhausted",
            Self::ContextBusy => "context_busy",
            Self::InvalidMessage => "invalid_message",
        }
    }

    /// A sentence for the person who reads the task.
    pub fn text(self) -> &'static str {
        match self {
            Self::AgentError => "The agent failed.",
            Self::AgentExited => "The agent stopped in the middle of the turn, and this agent is never run twice.",
            Self::AttemptsExhausted => {
                "The turn was tried as often as it may be; each time its agent crashed or its worker was lost."
            }
            Self::DeadlineExceeded => "The deadline of the turn passed.",
            Self::QueueExpired => "The turn waited too long for a worker.",
            Self::WorkspaceUnavailable => {
                "No worker that has the workspace of this conversation was there in time. It can go on when one is back."
            }
            Self::WorkerDrained => "The worker shut down in the middle of the turn, and this agent is never run twice.",
            Self::RedisUnavailable => {
                "The store was away in the middle of the turn, and this agent is never run twice."
            }
            Self::ArtifactsUnavailable => {
                "The artifact store was away in the middle of the turn, and this agent is never run twice."
            }
            Self::OutputLimit => {
                "The agent produced more than turn.max_events, turn.max_bytes or turn.event_bytes allow."
            }
            Self::QuotaExceeded => "Your tasks have as many bytes of artifacts as they may have.",
            Self::HandbacksExhausted => "The turn was handed from worker to worker too often.",
            Self::ContextBusy => "Task is already working.",
            Self::InvalidMessage => "The message cannot be used.",
        }
    }
}

/// What ended the attempt after which a turn is not tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastAttempt {
    /// Its worker died, or was out of reach for longer than its lease.
    WorkerLost,
    /// Its agent stopped without an end, or said that it cannot go on now.
    AgentStopped,
}

impl LastAttempt {
    /// The word used in metadata.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WorkerLost => "worker_lost",
            Self::AgentStopped => "agent_stopped",
        }
    }

    /// A sentence for the person who reads the task: how often the turn may be tried, and what ended the last attempt, if that is known.
    pub fn text(last: Option<Self>, policy: CrashPolicy, attempts: u32) -> String {
        let what = match last {
            Some(Self::WorkerLost) => "its worker was lost",
            Some(Self::AgentStopped) => "its agent stopped before it had answered",
            None => "its agent stopped before it had answered or its worker was lost",
        };
        match policy {
            CrashPolicy::Fail => format!("The turn ended because {what}, and this agent is never run twice."),
            CrashPolicy::Restart => {
                format!("The turn was tried as often as it may be ({attempts}); the last attempt ended because {what}.")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_attempt_is_told_with_how_many_there_may_be() {
        assert_eq!(
            LastAttempt::text(Some(LastAttempt::WorkerLost), CrashPolicy::Restart, 3),
            "The turn was tried as often as it may be (3); the last attempt ended because its worker was lost."
        );
        assert_eq!(
            LastAttempt::text(Some(LastAttempt::AgentStopped), CrashPolicy::Fail, 3),
            "The turn ended because its agent stopped before it had answered, and this agent is never run twice."
        );
        assert_eq!(
            LastAttempt::text(None, CrashPolicy::Fail, 1),
            "The turn ended because its agent stopped before it had answered or its worker was lost, and this agent is never run twice."
        );
    }
}
