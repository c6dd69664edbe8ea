//! GetExtendedAgentCard: the card for callers that have shown a credential. Where there are no credentials there is none.

use a2a::AgentCard;

use crate::auth::Permit;
use crate::error::ApiError;
use crate::request::ExtendedCard;
use crate::services::Inner;

/// Returns it.
pub(crate) fn extended_card(
    services: &Inner,
    _: &Permit<ExtendedCard>,
    _: &ExtendedCard,
) -> Result<AgentCard, ApiError> {
    let card = services.extended_card.clone();
    card.ok_or(ApiError::Unsupported("There is no extended agent card"))
}
