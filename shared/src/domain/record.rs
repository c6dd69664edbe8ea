//! The turn as it is stored: one packed JSON blob (`turn:<id>` field `r`) beside the few fields that scripts change.

use std::collections::BTreeMap;

use a2a::Message;
use serde::{Deserialize, Serialize};

use super::suspension::Suspension;
use crate::ids::{ContextKey, ScopeKey, TaskId, TurnId};

/// The version that this build writes. Readers accept it and those before; a record of a later version is left alone, for a process
/// that knows it.
pub const VERSION: u32 = 4;
/// The version of a record that says nothing which came later: processes of before can be trusted with it.
const FIRST: u32 = 1;
/// That of a turn that may wait, interrupt, or be answered without a task.
const SECOND: u32 = 2;
/// That of a turn that its agent has suspended.
const THIRD: u32 = 3;

/// What happens to a turn whose attempt crashed after its agent began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CrashPolicy {
    /// Run it again from the turn's start; what was streamed becomes void.
    Restart,
    /// At most once: the turn ends FAILED.
    Fail,
}

/// What a message for a context does whose turn is live, when it creates its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BusyPolicy {
    /// It is answered with a task born FAILED.
    #[default]
    Reject,
    /// It waits.
    Queue,
    /// It ends the live turn and everything that waits, and runs when the live turn has stopped.
    Interrupt,
}

impl BusyPolicy {
    /// Every policy there is.
    pub const ALL: [Self; 3] = [Self::Reject, Self::Queue, Self::Interrupt];

    /// The word in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reject => "reject",
            Self::Queue => "queue",
            Self::Interrupt => "interrupt",
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_reject(&self) -> bool {
        *self == Self::Reject
    }
}

/// Who sent the message. Never a token.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Sender {
    /// Tenant, empty without one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tenant: String,
    /// Stable subject, empty without authentication.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// What it may do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
}

impl Sender {
    /// The scope that this sender's tasks and contexts live in.
    pub fn scope(&self) -> ScopeKey {
        ScopeKey::of(&self.tenant, &self.subject)
    }
}

/// Everything about a turn that never changes, until its agent suspends it and its user answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct TurnRecord {
    /// Record version.
    pub v: u32,
    /// The turn.
    pub turn: TurnId,
    /// Its task.
    pub task: TaskId,
    /// The client's name of the context.
    pub context_id: String,
    /// Who sent it.
    #[serde(default)]
    pub sender: Sender,
    /// The message, with task and context filled in; the last answer, after a suspension.
    pub message: Message,
    /// Which agent runs it.
    pub agent: String,
    /// Which workers serve it.
    pub pool: String,
    /// What a crash does.
    pub policy: CrashPolicy,
    /// Whether a turn that must not run twice gets one more attempt after a crash, which stops what the crashed one has begun
    /// elsewhere and does nothing else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stop_after_crash: bool,
    /// How many attempts it has.
    pub attempts: u32,
    /// How many uncharged hand-backs and requeues it has.
    pub handbacks: u32,
    /// When it was accepted (Redis ms, as stamped by the gateway), or last answered.
    pub submitted: u64,
    /// When it stops being worth running (Redis ms).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<u64>,
    /// How long it may wait for its first worker, in ms, from when it is its context's live turn.
    pub queue_age: u64,
    /// What it does when its context is busy.
    #[serde(default, skip_serializing_if = "BusyPolicy::is_reject")]
    pub busy: BusyPolicy,
    /// How long a repeated submit of this turn is answered after its end, in ms; 0 is the usual 10 min.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub remember_ms: u64,
    /// Whether this turn created its task.
    pub new_task: bool,
    /// Whether its agent may answer with a message alone, so that there is no task for clients until there is more to show.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub direct: bool,
    /// Whether it works in the workspace of its context, so that it is for workers that have that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub workspace: bool,
    /// The media types that the client takes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accepted_output_modes: Vec<String>,
    /// The extensions of the protocol that the client has switched on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
    /// W3C trace context of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Request metadata that is not secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, serde_json::Value>,
    /// What its agent's suspensions left, if it was suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspension: Option<Suspension>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl TurnRecord {
    /// The same under the earliest version whose processes do what it asks for. What waits or interrupts, and what may be answered
    /// without a task, is of the second; what its agent has suspended, of the third; what is stopped elsewhere after a crash, of the
    /// fourth: processes of before would run it twice.
    #[must_use]
    pub fn versioned(self) -> Self {
        let v = match &self {
            Self {
                stop_after_crash: true, ..
            } => VERSION,
            Self {
                suspension: Some(_), ..
            } => THIRD,
            Self { direct: true, .. } => SECOND,
            Self { busy, .. } if *busy != BusyPolicy::Reject => SECOND,
            _ => FIRST,
        };
        Self { v, ..self }
    }

    /// The scope of its sender.
    pub fn scope(&self) -> ScopeKey {
        self.sender.scope()
    }

    /// The key of its context.
    pub fn context_key(&self, partitions: u16) -> ContextKey {
        ContextKey::of(&self.scope(), &self.context_id, partitions).0
    }
}

/// The counters that scripts keep for a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Tries {
    /// Attempts that crashed after their agent began.
    pub charged: u32,
    /// Hand-backs and uncharged requeues.
    pub handbacks: u32,
    /// Attempts that opened (their first event is in the journal).
    pub opened: u32,
    /// Whether the last opened attempt has not been settled: its agent may have begun.
    pub begun: bool,
}
