//! GetExtendedAgentCard: the card announces none, so the operation is not supported.

use crate::auth::Permit;
use crate::error::ApiError;
use crate::request::ExtendedCard;

/// Refuses.
pub(crate) fn extended_card(_: &Permit<ExtendedCard>, _: &ExtendedCard) -> ApiError {
    ApiError::Unsupported("There is no extended agent card")
}
