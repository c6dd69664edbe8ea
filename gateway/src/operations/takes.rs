//! Whether an agent takes a message, as far as its profile says.

use a2a::{Message, PartContent};
use relevo_shared::agents::{AgentConfig, Profile};

use super::extensions::check_agent;
use crate::error::ApiError;
use crate::services::Call;

/// Refuses what it does not take: an extension that must be switched on is not, or a part has another type.
pub(super) fn takes(agent: &AgentConfig, call: &Call, message: &Message) -> Result<(), ApiError> {
    check_agent(&agent.profile, &call.extensions)?;
    check_media_types(&agent.profile, message)
}

/// Refuses parts of a type that the card does not list. What a text or JSON is by its form needs no type; what bytes are, nobody
/// knows.
fn check_media_types(profile: &Profile, message: &Message) -> Result<(), ApiError> {
    for (place, part) in message.parts.iter().enumerate() {
        let implied = match part.content {
            PartContent::Text(_) => "text/plain",
            PartContent::Data(_) => "application/json",
            PartContent::Raw(_) | PartContent::Url(_) => "",
        };
        let given = part.media_type.as_deref().filter(|text| !text.trim().is_empty());
        let found = given.unwrap_or(implied);
        if !profile.takes(found) {
            return Err(ApiError::ContentType(
                format!("message.parts[{place}].mediaType"),
                found.to_owned(),
            ));
        }
    }
    Ok(())
}
