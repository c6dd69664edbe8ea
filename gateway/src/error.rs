//! What a request can end in other than a result: the only file that knows HTTP statuses, JSON-RPC codes, gRPC statuses
//! and reasons. `docs/errors.md` is generated from its catalogue.
//!
//! An error has a public text and, where something of ours failed, an internal source that only the log sees. Called by
//! the operations (which only name what happened) and by the transports (which only write what `body` makes of it).

mod body;
mod grpc;
mod plain;
mod text;

use std::time::Duration;

use a2a::error_code as code;
use axum::body::Body;
use axum::http::header::ETAG;
use axum::http::{HeaderValue, Response, StatusCode};
use relevo_shared::ids::TaskId;
use relevo_shared::store::StoreError;

use crate::request::Violation;
pub(crate) use body::{json_response, labelled};
pub(crate) use plain::Plain;
pub(crate) use text::echo;

/// Who names the reasons that are not the protocol's.
const OUR_DOMAIN: &str = "relevo";
/// When a client may try again after Redis could not be reached: a failover takes some seconds.
const REDIS_PAUSE: Duration = Duration::from_secs(2);

/// A status of gRPC; the REST binding names it, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grpc {
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
}

impl Grpc {
    /// As `google.rpc.Code` numbers it.
    pub(crate) fn number(self) -> i32 {
        self as i32
    }

    /// As `google.rpc.Code` spells it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Self::NotFound => "NOT_FOUND",
            Self::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Self::FailedPrecondition => "FAILED_PRECONDITION",
            Self::OutOfRange => "OUT_OF_RANGE",
            Self::Unimplemented => "UNIMPLEMENTED",
            Self::Internal => "INTERNAL",
            Self::Unavailable => "UNAVAILABLE",
            Self::DataLoss => "DATA_LOSS",
        }
    }
}

/// One kind of error on every binding.
#[derive(Debug)]
pub(crate) struct Row {
    /// The label in metrics and logs.
    label: &'static str,
    /// `ErrorInfo.reason`.
    reason: &'static str,
    /// `ErrorInfo.domain`.
    domain: &'static str,
    /// The JSON-RPC code; below the protocol there is none.
    code: Option<i32>,
    /// The status on REST.
    status: StatusCode,
    grpc: Grpc,
    #[cfg_attr(not(test), expect(dead_code, reason = "for docs/errors.md"))]
    when: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "for docs/errors.md"))]
    who: &'static str,
}

const PARSE: Row = Row {
    label: "parse_error",
    reason: "PARSE_ERROR",
    domain: a2a::PROTOCOL_DOMAIN,
    code: Some(code::PARSE_ERROR),
    status: StatusCode::BAD_REQUEST,
    grpc: Grpc::InvalidArgument,
    when: "The body is not JSON, or nested too deeply to be read.",
    who: "The client repairs the request.",
};
const INVALID_REQUEST: Row = Row {
    label: "invalid_request",
    reason: "INVALID_REQUEST",
    domain: a2a::PROTOCOL_DOMAIN,
    code: Some(code::INVALID_REQUEST),
    status: StatusCode::BAD_REQUEST,
    grpc: Grpc::InvalidArgument,
    when: "JSON, but no JSON-RPC request: no object, a batch, a notification, a wrong `jsonrpc`, `id` or `method`.",
    who: "The client repairs the request.",
};
const METHOD_NOT_FOUND: Row = Row {
    label: "method_not_found",
    reason: "METHOD_NOT_FOUND",
    domain: a2a::PROTOCOL_DOMAIN,
    code: Some(code::METHOD_NOT_FOUND),
    status: StatusCode::NOT_FOUND,
    grpc: Grpc::Unimplemented,
    when: "No operation of that name. Names are exact.",
    who: "The client uses a method of A2A 1.0.",
};
const INVALID_PARAMS: Row = Row {
    label: "invalid_params",
    reason: "INVALID_PARAMS",
    domain: a2a::PROTOCOL_DOMAIN,
    code: Some(code::INVALID_PARAMS),
    status: StatusCode::BAD_REQUEST,
    grpc: Grpc::InvalidArgument,
    when: "Fields are missing, of the wrong type or out of bounds; each is named in `BadRequest.fieldViolations`.",
    who: "The client repairs the fields.",
};
const TASK_NOT_FOUND: Row = Row {
    label: "task_not_found",
    reason: "TASK_NOT_FOUND",
    domain: a2a::PROTOCOL_DOMAIN,
    code: Some(code::TASK_NOT_FOUND),
    status: StatusCode::NOT_FOUND,
    grpc: Grpc::NotFound,
    when: "No such task, or not the caller's: the two look the same.",
    who: "The client forgets the task.",
};
const TASK_NOT_CANCELABLE: Row = Row {
    label: "task_not_cancelable",
    reason: "TASK_NOT_CANCELABLE",
    domain: a2a::PROTOCOL_DOMAIN,
    code: Some(code::TASK_NOT_CANCELABLE),
    status: StatusCode::BAD_REQUEST,
    grpc: Grpc::FailedPrecondition,
    when: "The task has ended.",
    who: "Nobody: there is nothing to stop.",
};
const PUSH_NOT_SUPPORTED: Row = Row {
    label: "push_not_supported",
    reason: "PUSH_NOTIFICATION_NOT_SUPPORTED",
    domain: a2a::PROTOCOL_DOMAIN,
    code: Some(code::PUSH_NOTIFICATION_NOT_SUPPORTED),
    status: StatusCode::BAD_REQUEST,
    grpc: Grpc::FailedPrecondition,
    when: "An operation on push configs, or one inside a message: the card announces no push.",
    who: "The client subscribes or polls.",
};
const UNSUPPORTED: Row = Row {
    label: "unsupported_operation",
    reason: "UNSUPPORTED_OPERATION",
    domain: a2a::PROTOCOL_DOMAIN,
    code: Some(code::UNSUPPORTED_OPERATION),
    status: StatusCode::BAD_REQUEST,
    grpc: Grpc::FailedPrecondition,
    when: "Not possible here or in this state: a message to an ended or working task, a subscription to an ended one, the extended card.",
    who: "The client reads the text.",
};
const VERSION_NOT_SUPPORTED: Row = Row {
    label: "version_not_supported",
    reason: "VERSION_NOT_SUPPORTED",
    domain: a2a::PROTOCOL_DOMAIN,
    code: Some(code::VERSION_NOT_SUPPORTED),
    status: StatusCode::BAD_REQUEST,
    grpc: Grpc::FailedPrecondition,
    when: "`A2A-Version` is not 1.x; a missing one means 0.3.",
    who: "The client sends `A2A-Version: 1.0`.",
};
const RATE_LIMITED: Row = Row {
    label: "rate_limited",
    reason: "RATE_LIMITED",
    domain: OUR_DOMAIN,
    code: Some(code::INTERNAL_ERROR),
    status: StatusCode::TOO_MANY_REQUESTS,
    grpc: Grpc::ResourceExhausted,
    when: "The caller has as many turns running as it may have.",
    who: "The client tries again after `Retry-After`.",
};
const UNAVAILABLE: Row = Row {
    label: "unavailable",
    reason: "UNAVAILABLE",
    domain: OUR_DOMAIN,
    code: Some(code::INTERNAL_ERROR),
    status: StatusCode::SERVICE_UNAVAILABLE,
    grpc: Grpc::Unavailable,
    when: "Too many turns wait, or Redis is nearly full or away; `metadata.cause` says which. `metadata.outcome` = `unknown`: the turn may have been taken all the same.",
    who: "The client tries again after `Retry-After`, with its idempotency key; the operator watches the cause.",
};
const STATE_LOST: Row = Row {
    label: "state_lost",
    reason: "STATE_LOST",
    domain: OUR_DOMAIN,
    code: Some(code::INTERNAL_ERROR),
    status: StatusCode::INTERNAL_SERVER_ERROR,
    grpc: Grpc::DataLoss,
    when: "The task disappeared under an open stream or a waiting call: Redis came back with an older state.",
    who: "The client asks for the task; the operator looks at Redis.",
};
const MOVED: Row = Row {
    label: "moved",
    reason: "STREAM_MOVED",
    domain: OUR_DOMAIN,
    code: None,
    status: StatusCode::SERVICE_UNAVAILABLE,
    grpc: Grpc::Unavailable,
    when: "gRPC only: a stream was closed at an event because it is old or the gateway stops. The other bindings just end it.",
    who: "The client subscribes again with the last position.",
};
const INTERNAL: Row = Row {
    label: "internal",
    reason: "INTERNAL_ERROR",
    domain: OUR_DOMAIN,
    code: Some(code::INTERNAL_ERROR),
    status: StatusCode::INTERNAL_SERVER_ERROR,
    grpc: Grpc::Internal,
    when: "A mistake of the server; the log has it.",
    who: "The operator reads the log.",
};
const NO_PATH: Row = Row {
    label: "not_found",
    reason: "NOT_FOUND",
    domain: OUR_DOMAIN,
    code: None,
    status: StatusCode::NOT_FOUND,
    grpc: Grpc::NotFound,
    when: "No such path.",
    who: "The client repairs the address.",
};
const METHOD_NOT_ALLOWED: Row = Row {
    label: "method_not_allowed",
    reason: "METHOD_NOT_ALLOWED",
    domain: OUR_DOMAIN,
    code: None,
    status: StatusCode::METHOD_NOT_ALLOWED,
    grpc: Grpc::Unimplemented,
    when: "The path exists, with the methods in `Allow`.",
    who: "The client uses one of them.",
};
const TIMEOUT: Row = Row {
    label: "timeout",
    reason: "REQUEST_TIMEOUT",
    domain: OUR_DOMAIN,
    code: None,
    status: StatusCode::REQUEST_TIMEOUT,
    grpc: Grpc::DeadlineExceeded,
    when: "The body did not come within `gateway.request_timeout`.",
    who: "The client sends faster, or tries again.",
};
const TOO_LARGE: Row = Row {
    label: "too_large",
    reason: "REQUEST_TOO_LARGE",
    domain: OUR_DOMAIN,
    code: None,
    status: StatusCode::PAYLOAD_TOO_LARGE,
    grpc: Grpc::OutOfRange,
    when: "The body is larger than `gateway.body_limit`, or holds more values than about 25,000 objects or 200,000 numbers.",
    who: "The client sends less.",
};
const MEDIA_TYPE: Row = Row {
    label: "unsupported_media_type",
    reason: "CONTENT_TYPE_NOT_SUPPORTED",
    domain: a2a::PROTOCOL_DOMAIN,
    code: None,
    status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
    grpc: Grpc::InvalidArgument,
    when: "`Content-Type` is neither `application/json` nor `application/a2a+json`.",
    who: "The client labels its JSON.",
};
const BAD_BODY: Row = Row {
    label: "bad_body",
    reason: "BAD_BODY",
    domain: OUR_DOMAIN,
    code: None,
    status: StatusCode::BAD_REQUEST,
    grpc: Grpc::InvalidArgument,
    when: "The body broke off.",
    who: "The client sends it again.",
};

/// Every kind of error, in the order of the document.
#[cfg(test)]
const CATALOGUE: [&Row; 20] = [
    &PARSE,
    &INVALID_REQUEST,
    &METHOD_NOT_FOUND,
    &INVALID_PARAMS,
    &TASK_NOT_FOUND,
    &TASK_NOT_CANCELABLE,
    &PUSH_NOT_SUPPORTED,
    &UNSUPPORTED,
    &VERSION_NOT_SUPPORTED,
    &RATE_LIMITED,
    &UNAVAILABLE,
    &STATE_LOST,
    &MOVED,
    &INTERNAL,
    &NO_PATH,
    &METHOD_NOT_ALLOWED,
    &TIMEOUT,
    &TOO_LARGE,
    &MEDIA_TYPE,
    &BAD_BODY,
];

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

    /// A submit whose first answer was lost was then refused for a reason of the store's: it may have happened all the same.
    pub(crate) fn unknown_outcome(self, task: TaskId) -> Self {
        let error = match self {
            Self::Internal(source) => Self::redis_away(Some(source)),
            other => other,
        };
        error.may_have_submitted(task)
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

/// The client has it already.
pub(crate) fn not_modified(etag: &HeaderValue) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    response.headers_mut().insert(ETAG, etag.clone());
    response
}

#[cfg(test)]
mod tests;
