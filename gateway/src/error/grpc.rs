//! Errors as gRPC has them: a status with `google.rpc` details.

use std::collections::HashMap;
use std::time::Duration;

use relevo_shared::platform::config::Statuses;
use serde_json::Value;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::{ApiError, Plain};

impl ApiError {
    /// The status, with what the details of the other bindings say.
    pub(crate) fn to_grpc(&self, statuses: Statuses) -> Status {
        let row = self.row();
        let mut details = ErrorDetails::new();
        details.set_error_info(row.reason, row.domain, texts(self.metadata()));
        if let Self::InvalidParams(violations) = self {
            for violation in violations {
                details.add_bad_request_violation(&violation.field, &violation.description);
            }
        }
        if let Some(seconds) = self.retry_after() {
            details.set_retry_info(Some(Duration::from_secs(seconds)));
        }
        Status::with_error_details(
            Code::from_i32(row.statuses(statuses).1.number()),
            self.message(),
            details,
        )
    }
}

impl Plain {
    /// The status of what a request is refused with before it is read.
    pub(crate) fn to_grpc(self) -> Status {
        let row = self.row();
        let details = ErrorDetails::with_error_info(row.reason, row.domain, HashMap::new());
        Status::with_error_details(Code::from_i32(row.grpc.number()), self.text(), details)
    }
}

fn texts(metadata: Value) -> HashMap<String, String> {
    let Value::Object(members) = metadata else {
        return HashMap::new();
    };
    let text = |(name, value)| match value {
        Value::String(text) => Some((name, text)),
        _ => None,
    };
    members.into_iter().filter_map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_what_the_other_bindings_say() {
        let status = ApiError::invalid("message.parts", "is required").to_grpc(Statuses::Current);
        assert_eq!(status.code(), Code::InvalidArgument);
        let details = status.get_error_details();
        assert_eq!(details.error_info().unwrap().reason, "INVALID_PARAMS");
        assert_eq!(details.error_info().unwrap().domain, "a2a-protocol.org");
        assert_eq!(
            details.bad_request().unwrap().field_violations[0].field,
            "message.parts"
        );
        let lost = ApiError::TaskNotFound("t".to_owned()).to_grpc(Statuses::Current);
        assert_eq!(lost.code(), Code::NotFound);
        assert_eq!(lost.get_error_details().error_info().unwrap().metadata["taskId"], "t");
        let away = ApiError::redis_silent().to_grpc(Statuses::Current);
        assert_eq!(away.code(), Code::Unavailable);
        let pause = away.get_error_details().retry_info().unwrap().retry_delay;
        assert_eq!(pause, Some(Duration::from_secs(2)));
    }
}
