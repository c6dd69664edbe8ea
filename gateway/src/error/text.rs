//! What errors say to people and, in `ErrorInfo.metadata`, to programs; and what only the log is told.

use serde_json::{Value, json};

use super::{ApiError, Overload};

/// Longest part of a client's text that an error repeats.
const ECHO: usize = 128;

impl Overload {
    fn text(self) -> &'static str {
        match self {
            Self::Backlog => "Too many turns are waiting; try again later.",
            Self::Memory => "The store is nearly full; try again later.",
            Self::Redis => "The store cannot be reached; try again later.",
            Self::Artifacts => "The artifact store cannot be read; try again later.",
            Self::Scope => "You have as many turns running as you may have; try again later.",
        }
    }

    /// The word in metadata and metrics.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Backlog => "backlog",
            Self::Memory => "memory",
            Self::Redis => "redis",
            Self::Scope => "scope",
            Self::Artifacts => "artifacts",
        }
    }
}

impl ApiError {
    /// What people read.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Parse(detail) => format!("Invalid JSON payload: {detail}"),
            Self::InvalidRequest(detail) => format!("Request payload validation error: {detail}"),
            Self::MethodNotFound(method) => format!("Method not found: {}", echo(method)),
            Self::InvalidParams(violations) => match violations.first() {
                Some(first) => format!("Invalid parameters: {}: {}", first.field, first.description),
                None => "Invalid parameters".to_owned(),
            },
            Self::TaskNotFound(_) => "Task not found".to_owned(),
            Self::TaskNotCancelable(_) => "Task cannot be canceled: it has ended".to_owned(),
            Self::PushNotSupported => "Push notifications are not supported".to_owned(),
            Self::Unsupported(text) => (*text).to_owned(),
            Self::VersionNotSupported(found) if found.is_empty() => {
                "A2A-Version is missing, which means 0.3, and this is not an operation of 0.3; for 1.0 send A2A-Version: 1.0".to_owned()
            }
            Self::VersionNotSupported(found) => {
                format!("A2A-Version {} is not supported here; send A2A-Version: 1.0", echo(found))
            }
            Self::ExtensionRequired(uri) => format!("The extension {uri} is required: list it in A2A-Extensions"),
            Self::ContentType(field, found) => {
                format!("Content type not supported: {field} is {}", echo(found))
            }
            Self::Unauthenticated => "No valid credential".to_owned(),
            Self::Unavailable { why, .. } => why.text().to_owned(),
            Self::StateLost(_) => "The state of the task was lost; ask for it again".to_owned(),
            Self::Moved => "The server closes this stream; come back with last-event-id".to_owned(),
            Self::Unreadable(_) | Self::Internal(_) => "Internal error".to_owned(),
        }
    }

    /// `ErrorInfo.metadata`: texts by name, or null.
    pub(super) fn metadata(&self) -> Value {
        match self {
            Self::TaskNotFound(task) | Self::TaskNotCancelable(task) => json!({ "taskId": echo(task) }),
            Self::StateLost(task) => json!({ "taskId": task.to_string() }),
            Self::VersionNotSupported(_) => json!({ "supportedVersions": a2a::VERSION }),
            Self::ExtensionRequired(uri) => json!({ "extension": &**uri }),
            Self::ContentType(field, found) => json!({ "field": field, "mediaType": echo(found) }),
            Self::Unavailable { why, unknown: None, .. } => json!({ "cause": why.label() }),
            Self::Unavailable {
                why,
                unknown: Some(task),
                ..
            } => {
                json!({ "cause": why.label(), "taskId": task.to_string(), "outcome": "unknown" })
            }
            _ => Value::Null,
        }
    }

    /// Says in the log what the client is not told.
    pub(crate) fn log(&self) {
        match self {
            Self::Internal(source) => {
                tracing::error!(error = source as &dyn std::error::Error, "a request failed");
            }
            Self::Unreadable(source) => {
                tracing::error!(
                    error = source as &dyn std::error::Error,
                    "a stored event cannot be read"
                );
            }
            Self::Unavailable { why, source, .. } => {
                let source = source.as_ref().map(|s| s as &dyn std::error::Error);
                tracing::warn!(reason = why.label(), error = source, "a request was refused");
            }
            Self::StateLost(task) => tracing::warn!(task.id = %task, "a task disappeared under an open stream"),
            _ => {}
        }
    }
}

/// A client's text, shortened, so that an error is never larger than what caused it.
pub(crate) fn echo(text: &str) -> &str {
    text.get(..text.floor_char_boundary(ECHO)).unwrap_or_default()
}
