//! What can go wrong between this command and a server.

use std::time::Duration;

use a2a::error_code;
use serde::Deserialize;
use serde_json::Value;

/// A call that did not work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// A connection that broke.
    #[error("the connection to {url} broke")]
    Broken {
        /// Where to, without credentials.
        url: String,
        /// How.
        source: reqwest::Error,
    },
    /// No connection, or no answer.
    #[error("{url} cannot be reached")]
    Unreachable {
        /// Where to, without credentials.
        url: String,
        /// Why.
        source: reqwest::Error,
    },
    /// An open stream was silent for longer than its keep-alives allow.
    #[error("{url} fell silent")]
    Silent {
        /// Where to, without credentials.
        url: String,
    },
    /// An HTTP status without an A2A answer.
    #[error("{url} answered HTTP {status}")]
    Status {
        /// Where to, without credentials.
        url: String,
        /// The status.
        status: u16,
        /// When to try again, if it said so.
        retry_after: Option<Duration>,
    },
    /// The server wants a credential, or another one.
    #[error(
        "{url} answered 401: it wants a credential, or another one: --token-file, --basic-username or --api-key-file, or the variable RELEVO_TOKEN or RELEVO_API_KEY"
    )]
    Unauthorized {
        /// Where to, without credentials.
        url: String,
    },
    /// The server refused the call.
    #[error("{0}")]
    Refused(RpcError),
    /// The server does not speak A2A as it is known here.
    #[error("{url} does not answer as an A2A 1.0 server: {detail}")]
    Foreign {
        /// Where to, without credentials.
        url: String,
        /// What was wrong.
        detail: String,
    },
}

impl ClientError {
    /// Whether the same call may work a moment later.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Broken { .. } | Self::Silent { .. } => true,
            Self::Status { status, .. } => matches!(status, 408 | 425 | 429 | 500..=599),
            Self::Refused(error) => error.is_passing(),
            Self::Foreign { .. } | Self::Unauthorized { .. } => false,
        }
    }

    /// How long the server asks to wait.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            Self::Refused(error) => error.retry_after,
            Self::Unreachable { .. }
            | Self::Broken { .. }
            | Self::Silent { .. }
            | Self::Foreign { .. }
            | Self::Unauthorized { .. } => None,
        }
    }

    /// Whether the server says that the operation does not apply to this task (any more).
    pub(crate) fn is_unsupported(&self) -> bool {
        matches!(self, Self::Refused(error) if error.code == i64::from(error_code::UNSUPPORTED_OPERATION))
    }
}

/// A JSON-RPC error: its message, then a line for each field that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RpcError {
    /// The code.
    pub(crate) code: i64,
    /// For people.
    pub(crate) message: String,
    /// `ErrorInfo.reason`.
    pub(crate) reason: Option<String>,
    /// (field, description) of each violation.
    pub(crate) violations: Vec<(String, String)>,
    /// The `Retry-After` of the answer.
    pub(crate) retry_after: Option<Duration>,
}

impl std::fmt::Display for RpcError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.message, self.code)?;
        self.violations
            .iter()
            .try_for_each(|(field, description)| write!(f, "\n  {field}: {description}"))
    }
}

impl RpcError {
    /// Reads the `error` of an answer, forgivingly: an error that cannot be read must still be shown.
    pub(crate) fn read(error: &Value, retry_after: Option<Duration>) -> Self {
        let details = error
            .get("data")
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice);
        let reason = details.iter().find_map(|detail| detail.get("reason")?.as_str());
        let violations = details
            .iter()
            .filter_map(|detail| Vec::<Violation>::deserialize(detail.get("fieldViolations")?).ok());
        Self {
            code: error.get("code").and_then(Value::as_i64).unwrap_or_default(),
            message: error
                .get("message")
                .and_then(Value::as_str)
                .unwrap_or("the server gave no reason")
                .to_owned(),
            reason: reason.map(str::to_owned),
            violations: violations.flatten().map(|v| (v.field, v.description)).collect(),
            retry_after,
        }
    }

    /// Overload and outage; anything else will be refused again.
    fn is_passing(&self) -> bool {
        matches!(self.reason.as_deref(), Some("UNAVAILABLE" | "RATE_LIMITED"))
    }
}

#[derive(Deserialize)]
struct Violation {
    #[serde(default)]
    field: String,
    #[serde(default)]
    description: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_error_names_every_field_that_is_wrong() {
        let error = json!({
            "code": -32602,
            "message": "Invalid parameters",
            "data": [
                {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "INVALID_PARAMS", "domain": "a2a-protocol.org"},
                {"@type": "type.googleapis.com/google.rpc.BadRequest",
                 "fieldViolations": [{"field": "message.parts", "description": "must not be empty"}]},
            ],
        });
        let error = RpcError::read(&error, None);
        assert_eq!(
            error.to_string(),
            "Invalid parameters (-32602)\n  message.parts: must not be empty"
        );
        assert!(!error.is_passing());
    }

    #[test]
    fn an_error_of_another_shape_is_still_shown() {
        for (odd, shown) in [
            (json!("boom"), "the server gave no reason (0)"),
            (
                json!({"code": -32001, "message": "x", "data": "free text"}),
                "x (-32001)",
            ),
            (
                json!({"code": -32001, "message": "x", "data": [{"fieldViolations": 7}]}),
                "x (-32001)",
            ),
        ] {
            assert_eq!(RpcError::read(&odd, None).to_string(), shown);
        }
    }

    #[test]
    fn overload_passes() {
        let error = json!({"code": -32603, "message": "busy", "data": [{"reason": "UNAVAILABLE"}]});
        assert!(ClientError::Refused(RpcError::read(&error, None)).is_passing());
    }
}
