//! The lines between worker and process, version 1 (docs/agents.md): one JSON object each.

use std::path::Path;

use a2a::{Artifact, Message, Task, TaskState};
use relevo_shared::domain::record::TurnRecord;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::agent::{Ending, Metadata, Need, StopReason, Turn};
pub(super) use file::Named;

mod file;
mod wrong;

/// Longest line to the process, in MiB.
const LONGEST_IN: usize = 4;
/// The same where the profile makes a text of the message: both are in the line, and what the profile takes must fit.
const LONGEST_WITH_PROMPT: usize = 16;
/// Longest messageId of the agent's own, in bytes.
const LONGEST_ID: usize = 128;
/// Metadata keys that only the server writes.
const RESERVED: &str = "urn:relevo:a2a:";

/// What was before a turn.
#[derive(Debug)]
pub(super) struct Past {
    pub(super) task: Task,
    pub(super) history: Vec<Message>,
    pub(super) session: Vec<Box<RawValue>>,
}

/// What a process said.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Said {
    /// The turn goes on.
    Status {
        state: TaskState,
        message: Option<Message>,
        metadata: Option<Metadata>,
    },
    /// A piece of an artifact, with the files that some of its parts stand for.
    Artifact {
        artifact: Artifact,
        files: Vec<Named>,
        append: bool,
        last_chunk: bool,
        metadata: Option<Metadata>,
    },
    /// Something to remember in this context.
    Session { items: Vec<Vec<u8>>, expect: u64 },
    /// The turn is over.
    End(Ending, Option<Message>, Option<Metadata>),
    /// The turn waits for its user.
    Suspend(Need, Option<Message>, Option<Metadata>),
    /// The turn went wrong.
    Error { text: String, retryable: bool },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", tag = "type")]
enum Line {
    #[serde(rename_all = "camelCase")]
    Status {
        state: Option<String>,
        message: Option<Map<String, Value>>,
        metadata: Option<Metadata>,
        #[serde(flatten)]
        place: Place,
    },
    #[serde(rename_all = "camelCase")]
    Artifact {
        artifact: Map<String, Value>,
        #[serde(default)]
        append: bool,
        #[serde(default)]
        last_chunk: bool,
        metadata: Option<Metadata>,
        #[serde(flatten)]
        place: Place,
    },
    #[serde(rename_all = "camelCase")]
    Session {
        items: Vec<Value>,
        expect: u64,
        #[serde(flatten)]
        place: Place,
    },
    #[serde(rename_all = "camelCase")]
    End {
        state: Option<String>,
        message: Option<Map<String, Value>>,
        metadata: Option<Metadata>,
        #[serde(default)]
        direct: bool,
        #[serde(flatten)]
        place: Place,
    },
    #[serde(rename_all = "camelCase")]
    Suspend {
        state: Option<String>,
        message: Option<Map<String, Value>>,
        metadata: Option<Metadata>,
        #[serde(flatten)]
        place: Place,
    },
    #[serde(rename_all = "camelCase")]
    Error {
        text: String,
        #[serde(default)]
        retryable: bool,
        #[serde(flatten)]
        place: Place,
    },
}

/// Ids that a line need not hold; when it does they must be the turn's.
#[derive(Deserialize)]
struct Place {
    #[serde(rename = "taskId")]
    task: Option<String>,
    #[serde(rename = "contextId")]
    context: Option<String>,
    #[serde(rename = "turnId")]
    turn: Option<String>,
}

impl Place {
    fn check(&self, record: &TurnRecord) -> Result<(), String> {
        let other = |id: &Option<String>, mine: &str| id.as_ref().is_some_and(|id| id != mine);
        if other(&self.task, &record.task.to_string()) {
            return Err("it names another task".to_owned());
        }
        if other(&self.context, &record.context_id) {
            return Err("it names another context".to_owned());
        }
        if other(&self.turn, &record.turn.to_string()) {
            return Err("it names another turn".to_owned());
        }
        Ok(())
    }
}

/// Reads a line. The error is a sentence for the log that says what is wrong by names ([`wrong`]).
pub(super) fn read(line: &[u8], record: &TurnRecord) -> Result<Said, String> {
    let text = std::str::from_utf8(line).map_err(|error| format!("it is not UTF-8: {error}"))?;
    let line: Line = serde_json::from_str(text).map_err(|error| wrong::line(text, &error))?;
    match line {
        Line::Status {
            state,
            message,
            metadata,
            place,
        } => {
            place.check(record)?;
            let state = state.as_deref().map_or(Ok(TaskState::Working), read_state)?;
            let (message, metadata) = (read_message(message, record)?, checked(metadata)?);
            Ok(match ending(&state) {
                Some(ending) if state != TaskState::AuthRequired => Said::End(ending, message, metadata),
                _ => Said::Status {
                    state,
                    message,
                    metadata,
                },
            })
        }
        Line::Artifact {
            artifact,
            append,
            last_chunk,
            metadata,
            place,
        } => {
            place.check(record)?;
            let (artifact, files) = file::artifact(artifact)?;
            if artifact.artifact_id.is_empty() {
                return Err("the artifact has no artifactId".to_owned());
            }
            if artifact.parts.is_empty() {
                return Err("the artifact has no parts".to_owned());
            }
            Ok(Said::Artifact {
                artifact,
                files,
                append,
                last_chunk,
                metadata: checked(metadata)?,
            })
        }
        Line::Session { items, expect, place } => {
            place.check(record)?;
            // Numbers and texts come back as they are; the space between them does not.
            let items = items.iter().map(|item| item.to_string().into_bytes()).collect();
            Ok(Said::Session { items, expect })
        }
        Line::End {
            state,
            message,
            metadata,
            direct,
            place,
        } => {
            place.check(record)?;
            let known = state.as_deref().map_or(Ok(TaskState::Completed), read_state)?;
            let ending = ending(&known).ok_or_else(|| format!("state `{}` ends no turn", state.unwrap_or_default()))?;
            let message = read_message(message, record)?;
            let ending = match ending {
                Ending::Completed if direct && message.is_some() => Ending::Direct,
                // There is no answer that could stand alone: the turn ends as it would without the word.
                ending => ending,
            };
            Ok(Said::End(ending, message, checked(metadata)?))
        }
        Line::Suspend {
            state,
            message,
            metadata,
            place,
        } => {
            place.check(record)?;
            let known = state.as_deref().map_or(Ok(TaskState::InputRequired), read_state)?;
            let need = match known {
                TaskState::InputRequired => Need::Input,
                TaskState::AuthRequired => Need::Credentials,
                _ => {
                    let state = state.unwrap_or_default();
                    return Err(format!(
                        "state `{state}` suspends no turn: input-required and auth-required do"
                    ));
                }
            };
            Ok(Said::Suspend(need, read_message(message, record)?, checked(metadata)?))
        }
        Line::Error { text, retryable, place } => {
            place.check(record)?;
            Ok(Said::Error { text, retryable })
        }
    }
}

/// `TASK_STATE_INPUT_REQUIRED`, `INPUT_REQUIRED` and `input-required` are one.
fn read_state(text: &str) -> Result<TaskState, String> {
    let word = text.to_ascii_uppercase().replace('-', "_");
    let word = word.strip_prefix("TASK_STATE_").unwrap_or(&word);
    relevo_shared::domain::state::from_word(word).ok_or_else(|| wrong::state(text))
}

fn ending(state: &TaskState) -> Option<Ending> {
    match state {
        TaskState::Completed => Some(Ending::Completed),
        TaskState::Failed => Some(Ending::Failed),
        TaskState::Canceled => Some(Ending::Canceled),
        TaskState::Rejected => Some(Ending::Rejected),
        TaskState::InputRequired => Some(Ending::InputRequired),
        TaskState::AuthRequired => Some(Ending::AuthRequired),
        TaskState::Unspecified | TaskState::Submitted | TaskState::Working => None,
    }
}

/// A message with everything filled in that the server knows better. Without a messageId it is left empty: that of the current one.
/// One without parts says nothing and is none.
fn read_message(message: Option<Map<String, Value>>, record: &TurnRecord) -> Result<Option<Message>, String> {
    let Some(mut message) = message else { return Ok(None) };
    let place = Place {
        task: text_of(&message, "taskId"),
        context: text_of(&message, "contextId"),
        turn: None,
    };
    place.check(record)?;
    if file::is_in(&message) {
        return Err("its message has a part with `file`: files are for artifacts".to_owned());
    }
    message.insert("taskId".to_owned(), json!(record.task.to_string()));
    message.insert("contextId".to_owned(), json!(record.context_id));
    message.insert("role".to_owned(), json!("ROLE_AGENT"));
    message.entry("messageId").or_insert_with(|| json!(""));
    message.entry("parts").or_insert_with(|| json!([]));
    // What serde says may quote the message.
    let message = Value::Object(message);
    let message = Message::deserialize(&message).map_err(|_quoted| wrong::message(&message))?;
    if message.message_id.len() > LONGEST_ID || message.message_id.chars().any(char::is_control) {
        return Err(format!(
            "its messageId is longer than {LONGEST_ID} bytes or holds control characters"
        ));
    }
    Ok(Some(message).filter(|message| !message.parts.is_empty()))
}

fn text_of(map: &Map<String, Value>, key: &str) -> Option<String> {
    map.get(key).and_then(Value::as_str).map(str::to_owned)
}

fn checked(metadata: Option<Metadata>) -> Result<Option<Metadata>, String> {
    match &metadata {
        Some(map) if map.keys().any(|key| key.starts_with(RESERVED)) => {
            Err(format!("its metadata holds a key of the server's ({RESERVED}…)"))
        }
        _ => Ok(metadata.filter(|map| !map.is_empty())),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TurnLine<'a> {
    r#type: &'static str,
    version: u32,
    turn: TurnIds<'a>,
    context: Value,
    task: &'a Task,
    message: &'a Message,
    history: &'a [Message],
    /// Whether the oldest messages were left out, so that the line fits.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    history_cut: bool,
    session: SessionLine<'a>,
    principal: Value,
    accepted_output_modes: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    extensions: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace: Option<&'a Path>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    metadata: &'a std::collections::BTreeMap<String, Value>,
}

#[derive(Serialize)]
struct SessionLine<'a> {
    length: usize,
    items: &'a [Box<RawValue>],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TurnIds<'a> {
    id: &'a str,
    number: u32,
    attempt: u32,
    epoch: u64,
    /// How often its user has answered.
    #[serde(skip_serializing_if = "is_zero")]
    resumed: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_ms: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// The line that begins a turn, its end included. The oldest messages of the history are left out when it would be too long. The
/// error is a sentence for the reader of the task.
pub(super) fn turn(turn: &Turn, past: &Past) -> Result<Vec<u8>, String> {
    let record = &turn.record;
    let id = record.turn.to_string();
    let sender = turn.sender();
    let mut line = TurnLine {
        r#type: "turn",
        version: 1,
        turn: TurnIds {
            id: &id,
            number: turn.number,
            attempt: turn.attempt,
            epoch: turn.epoch.0,
            resumed: turn.answers(),
            deadline_ms: record.deadline,
        },
        context: json!({ "id": record.context_id }),
        task: &past.task,
        message: &record.message,
        history: &past.history,
        history_cut: false,
        session: SessionLine {
            length: past.session.len(),
            items: &past.session,
        },
        principal: json!({ "subject": sender.subject, "tenant": sender.tenant, "scopes": sender.scopes }),
        accepted_output_modes: &record.accepted_output_modes,
        extensions: &record.extensions,
        prompt: turn.prompt.as_ref().map(|prompt| prompt.text.as_str()),
        workspace: turn.prompt.as_ref().map(|prompt| prompt.workspace.as_path()),
        traceparent: record.traceparent.as_deref(),
        metadata: &record.metadata,
    };
    let longest = if line.prompt.is_some() {
        LONGEST_WITH_PROMPT
    } else {
        LONGEST_IN
    };
    loop {
        let mut bytes = serde_json::to_vec(&line).map_err(|error| error.to_string())?;
        if bytes.len() < longest << 20 {
            bytes.push(b'\n');
            return Ok(bytes);
        }
        if line.history.is_empty() {
            return Err(format!(
                "The message, the task's artifacts and the session are too long for this agent: together at most {longest} MiB."
            ));
        }
        let half = line.history.len().div_ceil(2);
        line.history = line.history.get(half..).unwrap_or_default();
        line.history_cut = true;
    }
}

/// The answer to a `session` line, its end included.
pub(super) fn committed(length: u64) -> Vec<u8> {
    format!("{{\"type\":\"committed\",\"length\":{length}}}\n").into_bytes()
}

/// The line that asks a process to stop, its end included.
pub(super) fn cancel(reason: StopReason) -> Vec<u8> {
    let reason = match reason {
        StopReason::Client => "client",
        StopReason::Deadline => "deadline",
        StopReason::Refused => "refused",
        StopReason::Drain => "drain",
        StopReason::Lease => "lease",
    };
    format!("{{\"type\":\"cancel\",\"reason\":\"{reason}\"}}\n").into_bytes()
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
