//! The four operations on push configs: this server does not push, and says so before it looks at anything.

use crate::auth::Permit;
use crate::error::ApiError;
use crate::request::PushConfig;

/// Refuses.
pub(crate) fn push_config(_: &Permit<PushConfig>, _: &PushConfig) -> ApiError {
    ApiError::PushNotSupported
}
