//! The events that the server itself writes: submitted, working, boundary, end. Agents' events come from the worker's sink.

use std::collections::HashMap;

use a2a::{Message, Part, Role, StreamResponse, Task, TaskState, TaskStatus, TaskStatusUpdateEvent};
use chrono::{DateTime, Utc};
use serde_json::{Map, Value, json};

use super::class::Class;
use super::fold::Folded;
use super::reason::{FailReason, LastAttempt};
use super::record::TurnRecord;
use super::state::End;
use super::wire;
use crate::ids::{Cursor, TaskId};

/// Metadata key of everything about attempts and cursors.
pub const RESUME: &str = "urn:relevo:a2a:resume:v1";
/// Metadata key of every other fact that the server adds.
pub const TURN: &str = "urn:relevo:a2a:turn:v1";

/// An event and what it means.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// What clients see.
    pub body: StreamResponse,
    /// What waiters see.
    pub class: Class,
}

impl Event {
    /// The bytes that are stored and sent, once and for all.
    pub fn bytes(&self) -> Vec<u8> {
        wire::to_vec(&self.body)
    }
}

/// The time that events carry.
pub fn timestamp(ms: u64) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp_millis(i64::try_from(ms).ok()?)
}

/// A status update without extras.
pub fn status(record: &TurnRecord, state: TaskState, message: Option<Message>, now: u64) -> TaskStatusUpdateEvent {
    TaskStatusUpdateEvent {
        task_id: record.task.to_string(),
        context_id: record.context_id.clone(),
        status: TaskStatus {
            state,
            message,
            timestamp: timestamp(now),
        },
        metadata: None,
    }
}

/// The first event of a turn: a new task in full, or the news that an existing one has another message.
pub fn submitted(record: &TurnRecord, now: u64) -> Event {
    let body = if record.new_task {
        StreamResponse::Task(Task {
            id: record.task.to_string(),
            context_id: record.context_id.clone(),
            status: TaskStatus {
                state: TaskState::Submitted,
                message: None,
                timestamp: timestamp(now),
            },
            artifacts: None,
            history: Some(vec![record.message.clone()]),
            metadata: None,
        })
    } else {
        StreamResponse::StatusUpdate(status(record, TaskState::Submitted, None, now))
    };
    Event {
        body,
        class: Class::Normal,
    }
}

/// The first event of a first attempt.
pub fn working(record: &TurnRecord, now: u64) -> Event {
    Event {
        body: StreamResponse::StatusUpdate(status(record, TaskState::Working, None, now)),
        class: Class::Normal,
    }
}

/// The first event of a later attempt: what came after `valid_through` is void.
pub fn boundary(record: &TurnRecord, attempt: u32, valid_through: Cursor, now: u64) -> Event {
    let mut update = status(record, TaskState::Working, None, now);
    let facts = json!({ "boundary": true, "attempt": attempt, "validThrough": valid_through.to_string() });
    update.metadata = Some(HashMap::from([(RESUME.to_owned(), facts)]));
    Event {
        body: StreamResponse::StatusUpdate(update),
        class: Class::Boundary,
    }
}

/// The last event of a turn.
pub fn ended(record: &TurnRecord, end: End, message: Option<Message>, reason: Option<FailReason>, now: u64) -> Event {
    let mut update = status(record, end.state(), message, now);
    if let Some(reason) = reason {
        update.metadata = Some(HashMap::from([(TURN.to_owned(), json!({ "reason": reason.as_str() }))]));
    }
    let class = if end.is_terminal() {
        Class::Terminal
    } else {
        Class::Interrupted
    };
    Event {
        body: StreamResponse::StatusUpdate(update),
        class,
    }
}

/// Whether what a turn had begun elsewhere has stopped when the turn ends before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// It has.
    Acknowledged,
    /// Nobody knows: it may still be at work.
    Abandoned,
}

impl Stopped {
    /// The facts of the turn that say so.
    pub fn facts(self) -> Value {
        let word = match self {
            Self::Acknowledged => "acknowledged",
            Self::Abandoned => "abandoned",
        };
        json!({ "stopped": word })
    }
}

/// Adds facts of the turn to the event that ends it.
pub fn add_facts(event: &mut Event, more: Value) {
    let StreamResponse::StatusUpdate(update) = &mut event.body else {
        return;
    };
    let metadata = update.metadata.get_or_insert_default();
    let facts = metadata.entry(TURN.to_owned()).or_insert_with(|| json!({}));
    if let (Value::Object(facts), Value::Object(more)) = (facts, more) {
        facts.extend(more);
    }
}

/// The facts of a turn that waits for its user, and is no idle task.
pub fn suspended_facts() -> Value {
    json!({ "suspended": true })
}

/// The facts of a turn that was answered with a message alone.
pub fn direct_facts() -> Value {
    json!({ "direct": true })
}

/// The message that answers without a task, if an end says that it is one. Clients get it as it would be without a task.
pub fn direct_answer(event: &StreamResponse) -> Option<Message> {
    let StreamResponse::StatusUpdate(update) = event else {
        return None;
    };
    let facts = update.metadata.as_ref()?.get(TURN)?;
    facts.get("direct").filter(|direct| **direct == Value::Bool(true))?;
    update.status.message.clone().map(without_task)
}

/// The same of a task that was folded.
pub fn direct_message(state: &Folded) -> Option<Message> {
    state.status.message.clone().map(without_task)
}

fn without_task(mut message: Message) -> Message {
    message.task_id = None;
    message
}

/// The last event of a task that has no turn.
pub fn ended_task(task: TaskId, context_id: &str, end: End, now: u64) -> Event {
    let update = TaskStatusUpdateEvent {
        task_id: task.to_string(),
        context_id: context_id.to_owned(),
        status: TaskStatus {
            state: end.state(),
            message: None,
            timestamp: timestamp(now),
        },
        metadata: None,
    };
    Event {
        body: StreamResponse::StatusUpdate(update),
        class: Class::Terminal,
    }
}

/// The end that the server itself writes when a turn cannot go on, with a sentence for the reader.
pub fn failed(record: &TurnRecord, reason: FailReason, now: u64) -> Event {
    let message = agent_message(record, "failure", reason.text());
    ended(record, End::Failed, Some(message), Some(reason), now)
}

/// The same after the last attempt of a turn, with what ended it, if that is known.
pub fn exhausted(record: &TurnRecord, last: Option<LastAttempt>, now: u64) -> Event {
    let text = LastAttempt::text(last, record.policy, record.attempts);
    let message = agent_message(record, "failure", &text);
    let mut event = ended(
        record,
        End::Failed,
        Some(message),
        Some(FailReason::AttemptsExhausted),
        now,
    );
    if let Some(last) = last {
        add_facts(&mut event, json!({ "lastAttempt": last.as_str() }));
    }
    event
}

/// A task that is born FAILED.
pub fn refused(record: &TurnRecord, reason: FailReason, now: u64) -> Event {
    refused_saying(record, reason, reason.text(), now)
}

/// The same with words of its own.
pub fn refused_saying(record: &TurnRecord, reason: FailReason, text: &str, now: u64) -> Event {
    let facts: Value = json!({ "reason": reason.as_str() });
    let body = StreamResponse::Task(Task {
        id: record.task.to_string(),
        context_id: record.context_id.clone(),
        status: TaskStatus {
            state: TaskState::Failed,
            message: Some(agent_message(record, "failure", text)),
            timestamp: timestamp(now),
        },
        artifacts: None,
        history: Some(vec![record.message.clone()]),
        metadata: Some(HashMap::from([(TURN.to_owned(), facts)])),
    });
    Event {
        body,
        class: Class::Terminal,
    }
}

/// A text of the agent's in this turn. `n` distinguishes the turn's messages.
pub fn agent_message(record: &TurnRecord, n: &str, text: &str) -> Message {
    Message {
        message_id: message_id(record, n),
        context_id: Some(record.context_id.clone()),
        task_id: Some(record.task.to_string()),
        role: Role::Agent,
        parts: vec![Part::text(text)],
        metadata: None,
        extensions: None,
        reference_task_ids: None,
    }
}

/// The id of the `n`-th message of a turn, or of what it says after an answer: texts of two such stretches are never one message.
fn message_id(record: &TurnRecord, n: &str) -> String {
    match record.answers() {
        0 => format!("{}.{n}", record.turn),
        answers => format!("{}.{answers}.{n}", record.turn),
    }
}

/// Marks a snapshot that replaces a position which no longer exists.
pub fn gap(mut task: Task, requested: &str, cursor: Cursor) -> Task {
    let facts = json!({ "gap": true, "requested": requested, "cursor": cursor.to_string() });
    task.metadata.get_or_insert_default().insert(RESUME.to_owned(), facts);
    task
}

/// Adds facts about the turn to a task that is answered.
pub fn with_turn_facts(mut task: Task, facts: &Map<String, Value>) -> Task {
    let entry = task
        .metadata
        .get_or_insert_default()
        .entry(TURN.to_owned())
        .or_insert_with(|| json!({}));
    if let Value::Object(map) = entry {
        map.extend(facts.clone());
    }
    task
}

/// Reads the void range of a boundary: everything after the returned cursor is void.
pub fn valid_through(update: &TaskStatusUpdateEvent) -> Option<Cursor> {
    let facts = update.metadata.as_ref()?.get(RESUME)?;
    facts.get("validThrough")?.as_str()?.parse().ok()
}

/// The time of the status (ms) that an event brings; an artifact brings none.
pub fn status_time(body: &StreamResponse) -> Option<u64> {
    let status = match body {
        StreamResponse::Task(task) => &task.status,
        StreamResponse::StatusUpdate(update) => &update.status,
        StreamResponse::Message(_) | StreamResponse::ArtifactUpdate(_) => return None,
    };
    status
        .timestamp
        .and_then(|at| u64::try_from(at.timestamp_millis()).ok())
}

/// The attempt number of a boundary.
pub fn attempt(update: &TaskStatusUpdateEvent) -> Option<u64> {
    update.metadata.as_ref()?.get(RESUME)?.get("attempt")?.as_u64()
}

/// The task that an event speaks of.
pub fn task_of(body: &StreamResponse) -> Option<TaskId> {
    match body {
        StreamResponse::Task(task) => TaskId::parse(&task.id),
        StreamResponse::Message(message) => TaskId::parse(message.task_id.as_deref()?),
        StreamResponse::StatusUpdate(update) => TaskId::parse(&update.task_id),
        StreamResponse::ArtifactUpdate(update) => TaskId::parse(&update.task_id),
    }
}
