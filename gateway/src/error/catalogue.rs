//! The catalogue: every kind of error with what it is on each binding. docs/errors.md is generated from it.

use a2a::error_code as code;
use axum::http::StatusCode;
use relevo_shared::platform::config::Statuses;

use super::OUR_DOMAIN;

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
    Unauthenticated = 16,
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
            Self::Unauthenticated => "UNAUTHENTICATED",
        }
    }
}

/// One kind of error on every binding.
#[derive(Debug)]
pub(crate) struct Row {
    /// The label in metrics and logs.
    pub(super) label: &'static str,
    /// `ErrorInfo.reason`.
    pub(super) reason: &'static str,
    /// `ErrorInfo.domain`.
    pub(super) domain: &'static str,
    /// The JSON-RPC code; below the protocol there is none.
    pub(super) code: Option<i32>,
    /// The status on REST.
    pub(super) status: StatusCode,
    pub(super) grpc: Grpc,
    /// What both were in A2A 1.0.0, where that was something else.
    pub(super) older: Option<(StatusCode, Grpc)>,
    #[cfg_attr(not(test), expect(dead_code, reason = "for docs/errors.md"))]
    pub(super) when: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "for docs/errors.md"))]
    pub(super) who: &'static str,
}

pub(super) const PARSE: Row = Row {
    label: "parse_error",
    reason: "PARSE_ERROR",
    domain: a2a::PROTOCOL_DOMAIN,
    code: Some(code::PARSE_ERROR),
    status: StatusCode::BAD_REQUEST,
    grpc: Grpc::InvalidArgument,
    older: None,
    when: "The body is not JSON, or nested too deeply to be read.",
    who: "The client repairs the request.",
};
pub(super) const INVALID_REQUEST: Row = Row {
    label: "invalid_request",
    reason: "INVALID_REQUEST",
    domain: a2a::PROTOCOL_DOMAIN,
    code: Some(code::INVALID_REQUEST),
    status: StatusCode::BAD_REQUEST,
    grpc: Grpc::InvalidArgument,
    older: None,
    when: "JSON, but no JSON-RPC request: no object, a batch, a notification, a wrong `jsonrpc`, `id` or `method`.",
    who: "The client repairs the request.",
};
pub(super) const METHOD_NOT_FOUND: Row = Row {
    label: "method_not_found",
    reason: "METHOD_NOT_FOUND",
    domain: a2a::PROTOCOL_DOMAIN,
    code: Some(code::METHOD_NOT_FOUND),
    status: StatusCode::NOT_FOUND,
    grpc: Grpc::Unimplemented,
    older: None,
    when: "No operation of that name. Names are exact.",
    who: "The client uses a method of A2A 1.0.",
};
pub(super) const INVALID_PARAMS: Row = Row {
    label: "invalid_params",
    reason: "INVALID_PARAMS",
    domain: a2a::PROTOCOL_DOMAIN,
    code: Some(code::INVALID_PARAMS),
    status: StatusCode::BAD_REQUEST,
    grpc: Grpc::InvalidArgument,
    older: None,
    when: "Fields are missing, of the wrong type or out of bounds; each is named in `BadRequest.fieldViolations`.",
    who: "The client repairs the fields.",
};
pub(super) const TASK_NOT_FOUND: Row = Row {
    label: "task_not_found",
    reason: "TASK_NOT_FOUND",
    domain: a2a::PROTOCOL_DOMAIN,
    code: Some(code::TASK_NOT_FOUND),
    status: StatusCode::NOT_FOUND,
    grpc: Grpc::NotFound,
    older: None,
    when: "No such task, or not the caller's: the two look the same.",
    who: "The client forgets the task.",
};
pub(super) const TASK_NOT_CANCELABLE: Row = Row {
    label: "task_not_cancelable",
    reason: "TASK_NOT_CANCELABLE",
    domain: a2a::PROTOCOL_DOMAIN,
    code: Some(code::TASK_NOT_CANCELABLE),
    status: StatusCode::BAD_REQUEST,
    grpc: Grpc::FailedPrecondition,
    older: Some((StatusCode::CONFLICT, Grpc::FailedPrecondition)),
    when: "The task has ended.",
    who: "Nobody: there is nothing to stop.",
};
pub(super) const PUSH_NOT_SUPPORTED: Row = Row {
    label: "push_not_supported",
    reason: "PUSH_NOTIFICATION_NOT_SUPPORTED",
    domain: a2a::PROTOCOL_DOMAIN,
    code: Some(code::PUSH_NOTIFICATION_NOT_SUPPORTED),
    status: StatusCode::BAD_REQUEST,
    grpc: Grpc::FailedPrecondition,
    older: Some((StatusCode::BAD_REQUEST, Grpc::Unimplemented)),
    when: "An operation on push configs, or one inside a message: the card announces no push.",
    who: "The client subscribes or polls.",
};
pub(super) const UNSUPPORTED: Row = Row {
    label: "unsupported_operation",
    reason: "UNSUPPORTED_OPERATION",
    domain: a2a::PROTOCOL_DOMAIN,
    code: Some(code::UNSUPPORTED_OPERATION),
    status: StatusCode::BAD_REQUEST,
    grpc: Grpc::FailedPrecondition,
    older: Some((StatusCode::BAD_REQUEST, Grpc::Unimplemented)),
    when: "Not possible here or in this state: a message to an ended or working task, a subscription to an ended one, the extended card.",
    who: "The client reads the text.",
};
pub(super) const VERSION_NOT_SUPPORTED: Row = Row {
    label: "version_not_supported",
    reason: "VERSION_NOT_SUPPORTED",
    domain: a2a::PROTOCOL_DOMAIN,
    code: Some(code::VERSION_NOT_SUPPORTED),
    status: StatusCode::BAD_REQUEST,
    grpc: Grpc::FailedPrecondition,
    older: Some((StatusCode::BAD_REQUEST, Grpc::Unimplemented)),
    when: "`A2A-Version` is not 1.x; a missing one means 0.3.",
    who: "The client sends `A2A-Version: 1.0`.",
};
pub(super) const EXTENSION_REQUIRED: Row = Row {
    label: "extension_required",
    reason: "EXTENSION_SUPPORT_REQUIRED",
    domain: a2a::PROTOCOL_DOMAIN,
    code: Some(code::EXTENSION_SUPPORT_REQUIRED),
    status: StatusCode::BAD_REQUEST,
    grpc: Grpc::FailedPrecondition,
    older: None,
    when: "The agent card requires an extension that `A2A-Extensions` does not list; `metadata.extension` names it.",
    who: "The client lists it, if it knows it.",
};
pub(super) const CONTENT_TYPE: Row = Row {
    label: "content_type_not_supported",
    reason: "CONTENT_TYPE_NOT_SUPPORTED",
    domain: a2a::PROTOCOL_DOMAIN,
    code: Some(code::CONTENT_TYPE_NOT_SUPPORTED),
    status: StatusCode::BAD_REQUEST,
    grpc: Grpc::InvalidArgument,
    older: Some((StatusCode::UNSUPPORTED_MEDIA_TYPE, Grpc::InvalidArgument)),
    when: "A part has a media type that is not among the card's `defaultInputModes` (`metadata.field`), or the body of a JSON-RPC request is not labelled as JSON.",
    who: "The client sends what the card lists.",
};
pub(super) const UNAUTHENTICATED: Row = Row {
    label: "unauthenticated",
    reason: "UNAUTHENTICATED",
    domain: OUR_DOMAIN,
    code: None,
    status: StatusCode::UNAUTHORIZED,
    grpc: Grpc::Unauthenticated,
    older: None,
    when: "No credential, or a wrong one; `WWW-Authenticate` says which there are. The body is `{\"error\":\"Unauthorized\"}` on both bindings of HTTP.",
    who: "The client shows a credential that the card announces.",
};
pub(super) const RATE_LIMITED: Row = Row {
    label: "rate_limited",
    reason: "RATE_LIMITED",
    domain: OUR_DOMAIN,
    code: Some(code::INTERNAL_ERROR),
    status: StatusCode::TOO_MANY_REQUESTS,
    grpc: Grpc::ResourceExhausted,
    older: None,
    when: "The caller has as many turns running as it may have.",
    who: "The client tries again after `Retry-After`.",
};
pub(super) const UNAVAILABLE: Row = Row {
    label: "unavailable",
    reason: "UNAVAILABLE",
    domain: OUR_DOMAIN,
    code: Some(code::INTERNAL_ERROR),
    status: StatusCode::SERVICE_UNAVAILABLE,
    grpc: Grpc::Unavailable,
    older: None,
    when: "Too many turns wait, Redis is nearly full or away, or an artifact cannot be read; `metadata.cause` says which. `metadata.outcome` = `unknown`: the turn may have been taken all the same.",
    who: "The client tries again after `Retry-After`, with its idempotency key; the operator watches the cause.",
};
pub(super) const STATE_LOST: Row = Row {
    label: "state_lost",
    reason: "STATE_LOST",
    domain: OUR_DOMAIN,
    code: Some(code::INTERNAL_ERROR),
    status: StatusCode::INTERNAL_SERVER_ERROR,
    grpc: Grpc::DataLoss,
    older: None,
    when: "The task disappeared under an open stream or a waiting call: Redis came back with an older state.",
    who: "The client asks for the task; the operator looks at Redis.",
};
pub(super) const MOVED: Row = Row {
    label: "moved",
    reason: "STREAM_MOVED",
    domain: OUR_DOMAIN,
    code: None,
    status: StatusCode::SERVICE_UNAVAILABLE,
    grpc: Grpc::Unavailable,
    older: None,
    when: "gRPC only: a stream was closed at an event because it is old or the gateway stops. The other bindings just end it.",
    who: "The client subscribes again with the last position.",
};
pub(super) const INTERNAL: Row = Row {
    label: "internal",
    reason: "INTERNAL_ERROR",
    domain: OUR_DOMAIN,
    code: Some(code::INTERNAL_ERROR),
    status: StatusCode::INTERNAL_SERVER_ERROR,
    grpc: Grpc::Internal,
    older: None,
    when: "A mistake of the server; the log has it.",
    who: "The operator reads the log.",
};
pub(super) const NO_PATH: Row = Row {
    label: "not_found",
    reason: "NOT_FOUND",
    domain: OUR_DOMAIN,
    code: None,
    status: StatusCode::NOT_FOUND,
    grpc: Grpc::NotFound,
    older: None,
    when: "No such path; no such artifact, or not the caller's.",
    who: "The client repairs the address.",
};
pub(super) const METHOD_NOT_ALLOWED: Row = Row {
    label: "method_not_allowed",
    reason: "METHOD_NOT_ALLOWED",
    domain: OUR_DOMAIN,
    code: None,
    status: StatusCode::METHOD_NOT_ALLOWED,
    grpc: Grpc::Unimplemented,
    older: None,
    when: "The path exists, with the methods in `Allow`.",
    who: "The client uses one of them.",
};
pub(super) const TIMEOUT: Row = Row {
    label: "timeout",
    reason: "REQUEST_TIMEOUT",
    domain: OUR_DOMAIN,
    code: None,
    status: StatusCode::REQUEST_TIMEOUT,
    grpc: Grpc::DeadlineExceeded,
    older: None,
    when: "The body did not come within `gateway.request_timeout`.",
    who: "The client sends faster, or tries again.",
};
pub(super) const TOO_LARGE: Row = Row {
    label: "too_large",
    reason: "REQUEST_TOO_LARGE",
    domain: OUR_DOMAIN,
    code: None,
    status: StatusCode::PAYLOAD_TOO_LARGE,
    grpc: Grpc::OutOfRange,
    older: None,
    when: "The body is larger than `gateway.body_limit`, or holds more values than about 25,000 objects or 200,000 numbers.",
    who: "The client sends less.",
};
pub(super) const MEDIA_TYPE: Row = Row {
    label: "unsupported_media_type",
    reason: "CONTENT_TYPE_NOT_SUPPORTED",
    domain: a2a::PROTOCOL_DOMAIN,
    code: None,
    status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
    grpc: Grpc::InvalidArgument,
    older: None,
    when: "`Content-Type` is neither `application/json` nor `application/a2a+json`.",
    who: "The client labels its JSON.",
};
pub(super) const BAD_BODY: Row = Row {
    label: "bad_body",
    reason: "BAD_BODY",
    domain: OUR_DOMAIN,
    code: None,
    status: StatusCode::BAD_REQUEST,
    grpc: Grpc::InvalidArgument,
    older: None,
    when: "The body broke off.",
    who: "The client sends it again.",
};

impl Row {
    /// The statuses on HTTP and on gRPC.
    pub(super) fn statuses(&self, statuses: Statuses) -> (StatusCode, Grpc) {
        let current = (self.status, self.grpc);
        match statuses {
            Statuses::Older => self.older.unwrap_or(current),
            Statuses::Current => current,
        }
    }
}

/// Every kind of error, in the order of the document.
#[cfg(test)]
pub(super) const CATALOGUE: [&Row; 23] = [
    &PARSE,
    &INVALID_REQUEST,
    &METHOD_NOT_FOUND,
    &INVALID_PARAMS,
    &TASK_NOT_FOUND,
    &TASK_NOT_CANCELABLE,
    &PUSH_NOT_SUPPORTED,
    &UNSUPPORTED,
    &VERSION_NOT_SUPPORTED,
    &EXTENSION_REQUIRED,
    &CONTENT_TYPE,
    &UNAUTHENTICATED,
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
