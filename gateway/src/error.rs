//! What a request can end in other than a result: the only file that knows HTTP statuses and JSON-RPC codes.
//!
//! An error has a public text and, where something of ours failed, an internal source that only the log sees. Called by
//! the operations (which only name what happened) and by the transports (which only write what this file says).

use std::time::Duration;

use a2a::error_code as code;
use axum::body::Body;
use axum::http::header::{ALLOW, CONNECTION, CONTENT_TYPE, ETAG, RETRY_AFTER};
use axum::http::{HeaderValue, Response, StatusCode};
use relevo_shared::ids::TaskId;
use relevo_shared::store::StoreError;
use serde_json::{Value, json};

use crate::request::Violation;

/// Who names the reasons that are not the protocol's.
const OUR_DOMAIN: &str = "relevo";
/// Longest part of a client's text that an error repeats.
const ECHO: usize = 128;
/// When a client may try again after Redis could not be reached: a failover takes some seconds.
const REDIS_PAUSE: Duration = Duration::from_secs(2);

/// Why new work is not taken now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overload {
    /// Too many turns wait.
    Backlog,
    /// Redis is nearly full.
    Memory,
    /// Redis does not answer.
    Redis,
    /// The caller's own limit.
    Scope,
}

impl Overload {
    fn text(self) -> &'static str {
        match self {
            Self::Backlog => "Too many turns are waiting; try again later.",
            Self::Memory => "The store is nearly full; try again later.",
            Self::Redis => "The store cannot be reached; try again later.",
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
        }
    }
}

/// Why an operation has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// The body is not JSON.
    #[error("the body is not JSON: {0}")]
    Parse(String),
    /// The body is JSON but no request.
    #[error("not a request: {0}")]
    InvalidRequest(&'static str),
    /// No operation of that name.
    #[error("no such method")]
    MethodNotFound(String),
    /// The parameters are wrong.
    #[error("the parameters are wrong")]
    InvalidParams(Vec<Violation>),
    /// No such task for this caller.
    #[error("task not found")]
    TaskNotFound(String),
    /// The task has ended.
    #[error("the task has ended")]
    TaskNotCancelable(String),
    /// Push notifications are not served.
    #[error("push notifications are not supported")]
    PushNotSupported,
    /// Not possible here, or not in this state.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
    /// Another protocol version.
    #[error("protocol version not supported")]
    VersionNotSupported(String),
    /// Not now.
    #[error("not available now")]
    Unavailable {
        /// Why.
        why: Overload,
        /// When to try again.
        retry_after: Duration,
        /// The task whose submission may have happened.
        unknown: Option<TaskId>,
        /// What the store said.
        #[source]
        source: Option<StoreError>,
    },
    /// The task disappeared under an open stream.
    #[error("the state of the task was lost")]
    StateLost(TaskId),
    /// A mistake of ours.
    #[error("internal error")]
    Internal(#[source] StoreError),
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            source @ StoreError::Unavailable(_) => Self::redis_away(Some(source)),
            other => Self::Internal(other),
        }
    }
}

impl ApiError {
    /// One wrong field.
    pub(crate) fn invalid(field: impl Into<String>, description: impl Into<String>) -> Self {
        Self::InvalidParams(vec![Violation {
            field: field.into(),
            description: description.into(),
        }])
    }

    /// Redis did not answer at all.
    pub(crate) fn redis_silent() -> Self {
        Self::redis_away(None)
    }

    fn redis_away(source: Option<StoreError>) -> Self {
        let full = source.as_ref().is_some_and(StoreError::is_full);
        Self::Unavailable {
            why: if full { Overload::Memory } else { Overload::Redis },
            retry_after: REDIS_PAUSE,
            unknown: None,
            source,
        }
    }

    /// The submission of this task may have happened all the same.
    pub(crate) fn may_have_submitted(self, task: TaskId) -> Self {
        match self {
            Self::Unavailable {
                why,
                retry_after,
                source,
                ..
            } => Self::Unavailable {
                why,
                retry_after,
                unknown: Some(task),
                source,
            },
            other => other,
        }
    }

    /// Whether what was asked for may have happened all the same.
    pub(crate) fn outcome_is_unknown(&self) -> bool {
        matches!(self, Self::Unavailable { unknown: Some(_), .. })
    }

    /// The JSON-RPC code.
    pub(crate) fn code(&self) -> i32 {
        match self {
            Self::Parse(_) => code::PARSE_ERROR,
            Self::InvalidRequest(_) => code::INVALID_REQUEST,
            Self::MethodNotFound(_) => code::METHOD_NOT_FOUND,
            Self::InvalidParams(_) => code::INVALID_PARAMS,
            Self::TaskNotFound(_) => code::TASK_NOT_FOUND,
            Self::TaskNotCancelable(_) => code::TASK_NOT_CANCELABLE,
            Self::PushNotSupported => code::PUSH_NOTIFICATION_NOT_SUPPORTED,
            Self::Unsupported(_) => code::UNSUPPORTED_OPERATION,
            Self::VersionNotSupported(_) => code::VERSION_NOT_SUPPORTED,
            Self::Unavailable { .. } | Self::StateLost(_) | Self::Internal(_) => code::INTERNAL_ERROR,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Unavailable {
                why: Overload::Scope, ..
            } => "RATE_LIMITED",
            Self::Unavailable { .. } => "UNAVAILABLE",
            Self::StateLost(_) => "STATE_LOST",
            _ => a2a::error_reason(self.code()),
        }
    }

    /// The label in metrics and logs: the reason in lower case.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Parse(_) => "parse_error",
            Self::InvalidRequest(_) => "invalid_request",
            Self::MethodNotFound(_) => "method_not_found",
            Self::InvalidParams(_) => "invalid_params",
            Self::TaskNotFound(_) => "task_not_found",
            Self::TaskNotCancelable(_) => "task_not_cancelable",
            Self::PushNotSupported => "push_not_supported",
            Self::Unsupported(_) => "unsupported_operation",
            Self::VersionNotSupported(_) => "version_not_supported",
            Self::Unavailable {
                why: Overload::Scope, ..
            } => "rate_limited",
            Self::Unavailable { .. } => "unavailable",
            Self::StateLost(_) => "state_lost",
            Self::Internal(_) => "internal",
        }
    }

    fn message(&self) -> String {
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
                "A2A-Version is missing, which means 0.3; this server speaks 1.0".to_owned()
            }
            Self::VersionNotSupported(found) => {
                format!("A2A-Version {} is not supported; this server speaks 1.0", echo(found))
            }
            Self::Unavailable { why, .. } => why.text().to_owned(),
            Self::StateLost(_) => "The state of the task was lost; ask for it again".to_owned(),
            Self::Internal(_) => "Internal error".to_owned(),
        }
    }

    fn metadata(&self) -> Value {
        match self {
            Self::TaskNotFound(task) | Self::TaskNotCancelable(task) => json!({ "taskId": echo(task) }),
            Self::StateLost(task) => json!({ "taskId": task.to_string() }),
            Self::VersionNotSupported(_) => json!({ "supportedVersions": a2a::VERSION }),
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

    /// The error object of JSON-RPC.
    pub(crate) fn to_json(&self) -> Value {
        let ours = matches!(self, Self::Unavailable { .. } | Self::StateLost(_) | Self::Internal(_));
        let mut info = json!({
            "@type": a2a::ERROR_INFO_TYPE,
            "reason": self.reason(),
            "domain": if ours { OUR_DOMAIN } else { a2a::PROTOCOL_DOMAIN },
        });
        if let (Value::Object(info), metadata @ Value::Object(_)) = (&mut info, self.metadata()) {
            info.insert("metadata".to_owned(), metadata);
        }
        let mut data = vec![info];
        if let Self::InvalidParams(violations) = self {
            let violations: Vec<Value> = violations
                .iter()
                .map(|v| json!({ "field": v.field, "description": v.description }))
                .collect();
            data.push(json!({ "@type": a2a::BAD_REQUEST_TYPE, "fieldViolations": violations }));
        }
        json!({ "code": self.code(), "message": self.message(), "data": data })
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Unavailable {
                why: Overload::Scope, ..
            } => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::OK,
        }
    }

    /// The answer on JSON-RPC, `body` being the whole of it.
    pub(crate) fn respond(&self, body: Vec<u8>) -> Response<Body> {
        let mut response = json_response(body);
        *response.status_mut() = self.status();
        if let Self::Unavailable { retry_after, .. } = self {
            let seconds = retry_after.as_secs().max(1);
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    /// Says in the log what the client is not told.
    pub(crate) fn log(&self) {
        match self {
            Self::Internal(source) => {
                tracing::error!(error = source as &dyn std::error::Error, "a request failed");
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
fn echo(text: &str) -> &str {
    let mut end = text.len().min(ECHO);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// A JSON answer.
pub(crate) fn json_response(body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Refusals below any protocol, answered in plain text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plain {
    /// No such path.
    NotFound,
    /// The path exists, with these methods.
    MethodNotAllowed(&'static str),
    /// The body did not come in time.
    Timeout,
    /// The body is too large.
    TooLarge,
    /// The body is not JSON by its label.
    UnsupportedMediaType,
    /// The body broke off.
    BadBody,
}

impl Plain {
    pub(crate) fn respond(self) -> Response<Body> {
        let (status, text) = match self {
            Self::NotFound => (StatusCode::NOT_FOUND, "not found\n"),
            Self::MethodNotAllowed(_) => (StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n"),
            Self::Timeout => (StatusCode::REQUEST_TIMEOUT, "the request took too long\n"),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "the request is too large\n"),
            Self::UnsupportedMediaType => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "Content-Type must be application/json\n",
            ),
            Self::BadBody => (StatusCode::BAD_REQUEST, "the request broke off\n"),
        };
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        if let Self::MethodNotAllowed(allowed) = self {
            headers.insert(ALLOW, HeaderValue::from_static(allowed));
        }
        if matches!(self, Self::Timeout | Self::TooLarge | Self::BadBody) {
            // What is left of the body is not read.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::MethodNotAllowed(_) => "method_not_allowed",
            Self::Timeout => "timeout",
            Self::TooLarge => "too_large",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::BadBody => "bad_body",
        }
    }
}

/// The client has it already.
pub(crate) fn not_modified(etag: &HeaderValue) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    response.headers_mut().insert(ETAG, etag.clone());
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_carries_an_error_info() {
        let errors = [
            ApiError::Parse("x".into()),
            ApiError::InvalidRequest("x"),
            ApiError::MethodNotFound("m".into()),
            ApiError::invalid("message.parts", "is missing"),
            ApiError::TaskNotFound("t".into()),
            ApiError::Unsupported("no"),
            ApiError::VersionNotSupported("0.3".into()),
        ];
        for error in errors {
            let json = error.to_json();
            assert_eq!(json["data"][0]["@type"], a2a::ERROR_INFO_TYPE, "{json}");
            assert_eq!(json["data"][0]["domain"], "a2a-protocol.org", "{json}");
        }
    }

    #[test]
    fn wrong_fields_are_named() {
        let json = ApiError::invalid("message.parts[0].text", "must be text").to_json();
        assert_eq!(json["code"], -32602);
        assert_eq!(json["data"][1]["fieldViolations"][0]["field"], "message.parts[0].text");
    }

    #[test]
    fn overload_is_a_503_with_a_time_to_come_back() {
        let error = ApiError::Unavailable {
            why: Overload::Backlog,
            retry_after: Duration::from_millis(1),
            unknown: None,
            source: None,
        };
        let response = error.respond(Vec::new());
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()[RETRY_AFTER], "1");
        assert_eq!(error.to_json()["data"][0]["reason"], "UNAVAILABLE");
        assert_eq!(error.to_json()["data"][0]["domain"], "relevo");
    }

    #[test]
    fn an_error_never_repeats_a_long_text() {
        let long = "\u{e9}".repeat(100_000);
        assert!(ApiError::MethodNotFound(long.clone()).to_json().to_string().len() < 1_000);
        assert!(ApiError::TaskNotFound(long).to_json().to_string().len() < 1_000);
    }
}
