//! What a request can end in other than a result: the only file that knows HTTP statuses, JSON-RPC codes, gRPC statuses
//! and reasons. `docs/errors.md` is generated from its catalogue.
//!
//! An error has a public text and, where something of ours failed, an internal source that only the log sees. Called by
//! the operations (which only name what happened) and by the transports (which only write what `body` makes of it).

mod body;
mod catalogue;
mod grpc;
mod plain;
mod text;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CONNECTION, CONTENT_RANGE, ETAG, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Response, StatusCode};
use relevo_shared::ids::TaskId;
use relevo_shared::store::StoreError;

use crate::request::Violation;
pub(crate) use body::{json_response, labelled};
#[cfg(test)]
use catalogue::CATALOGUE;
use catalogue::{
    BAD_BODY, CONTENT_TYPE, EXTENSION_REQUIRED, INTERNAL, INVALID_PARAMS, INVALID_REQUEST, MEDIA_TYPE,
    METHOD_NOT_ALLOWED, METHOD_NOT_FOUND, MOVED, NO_PATH, PARSE, PUSH_NOT_SUPPORTED, RATE_LIMITED, Row, STATE_LOST,
    TASK_NOT_CANCELABLE, TASK_NOT_FOUND, TIMEOUT, TOO_LARGE, UNAUTHENTICATED, UNAVAILABLE, UNSUPPORTED,
    VERSION_NOT_SUPPORTED,
};
pub(crate) use plain::Plain;
pub(crate) use text::echo;

/// Who names the reasons that are not the protocol's.
const OUR_DOMAIN: &str = "relevo";
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
    /// The artifact store does not answer.
    Artifacts,
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
    /// The client does not speak an extension that it must.
    #[error("an extension is required")]
    ExtensionRequired(Arc<str>),
    /// A media type that is not taken: the field that has it, and what it is.
    #[error("media type not supported")]
    ContentType(String, String),
    /// Nobody knows who calls.
    #[error("no valid credential")]
    Unauthenticated,
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
    /// A stream ends although more will follow; only gRPC has no other way to say it.
    #[error("the stream was closed by the server")]
    Moved,
    /// An event that is stored and cannot be read.
    #[error("a stored event cannot be read")]
    Unreadable(#[source] serde_json::Error),
    /// A mistake of ours.
    #[error("internal error")]
    Internal(#[source] StoreError),
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            source @ (StoreError::Unavailable(_) | StoreError::Unreachable { .. }) => Self::redis_away(Some(source)),
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

    /// The artifact store does not answer, or not what it should.
    pub(crate) fn artifacts_away() -> Self {
        Self::Unavailable {
            why: Overload::Artifacts,
            retry_after: REDIS_PAUSE,
            unknown: None,
            source: None,
        }
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

    /// A submit whose first answer was lost was then refused for a reason of the store's: it may have happened all the same.
    pub(crate) fn unknown_outcome(self, task: TaskId) -> Self {
        let error = match self {
            Self::Internal(source) => Self::redis_away(Some(source)),
            other => other,
        };
        error.may_have_submitted(task)
    }

    /// Whether a turn may have been submitted all the same.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Self::Unavailable { unknown: Some(_), .. })
    }

    /// This task was, or may have been, submitted all the same.
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

    /// What it is on every binding.
    pub(crate) fn row(&self) -> &'static Row {
        match self {
            Self::Parse(_) => &PARSE,
            Self::InvalidRequest(_) => &INVALID_REQUEST,
            Self::MethodNotFound(_) => &METHOD_NOT_FOUND,
            Self::InvalidParams(_) => &INVALID_PARAMS,
            Self::TaskNotFound(_) => &TASK_NOT_FOUND,
            Self::TaskNotCancelable(_) => &TASK_NOT_CANCELABLE,
            Self::PushNotSupported => &PUSH_NOT_SUPPORTED,
            Self::Unsupported(_) => &UNSUPPORTED,
            Self::VersionNotSupported(_) => &VERSION_NOT_SUPPORTED,
            Self::ExtensionRequired(_) => &EXTENSION_REQUIRED,
            Self::ContentType(..) => &CONTENT_TYPE,
            Self::Unauthenticated => &UNAUTHENTICATED,
            Self::Unavailable {
                why: Overload::Scope, ..
            } => &RATE_LIMITED,
            Self::Unavailable { .. } => &UNAVAILABLE,
            Self::StateLost(_) => &STATE_LOST,
            Self::Moved => &MOVED,
            Self::Unreadable(_) | Self::Internal(_) => &INTERNAL,
        }
    }

    /// The label in metrics and logs.
    pub(crate) fn label(&self) -> &'static str {
        self.row().label
    }

    /// The status on JSON-RPC: the envelope says what went wrong, except where load balancers must see it.
    fn rpc_status(&self) -> StatusCode {
        match self {
            Self::Unavailable { .. } => self.row().status,
            _ => StatusCode::OK,
        }
    }

    /// Whole seconds to wait before another try.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        match self {
            Self::Unavailable { retry_after, .. } => Some(retry_after.as_secs().max(1)),
            _ => None,
        }
    }
}

/// HTTP's answer to a request without a valid credential, with these challenges.
pub(crate) fn unauthorized(challenges: impl Iterator<Item = HeaderValue>) -> Response<Body> {
    let mut response = json_response(br#"{"error":"Unauthorized"}"#.to_vec());
    *response.status_mut() = UNAUTHENTICATED.status;
    for challenge in challenges {
        response.headers_mut().append(WWW_AUTHENTICATE, challenge);
    }
    // The body of the request is not read.
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// The client has it already.
pub(crate) fn not_modified(etag: &HeaderValue) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    response.headers_mut().insert(ETAG, etag.clone());
    response
}

/// An answer with a part of what was asked for.
pub(crate) fn part_of(mut response: Response<Body>) -> Response<Body> {
    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    response
}

/// There is no such part of something with `size` bytes.
pub(crate) fn range_not_satisfiable(size: u64) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
    if let Ok(range) = HeaderValue::from_str(&format!("bytes */{size}")) {
        response.headers_mut().insert(CONTENT_RANGE, range);
    }
    response
}

#[cfg(test)]
mod tests;
