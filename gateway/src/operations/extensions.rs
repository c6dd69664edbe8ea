//! Extensions of the protocol: which there are, which a request has switched on, which it must.
//!
//! Owns the negotiation, the same on all bindings: a client lists URIs, those that are spoken become active and are told
//! back, others do not matter. What an active extension does is its own file's matter.

use std::sync::Arc;

use relevo_shared::agents::Profile;
use relevo_shared::domain::event::{RESUME, TURN};

use crate::error::ApiError;

/// `metadata` under it may carry a message's idempotency key.
pub(crate) const IDEMPOTENCY: &str = "urn:relevo:a2a:idempotency:v1";

/// `metadata` under it may name the skill that a message is for.
pub(crate) const SKILL: &str = "urn:relevo:a2a:skill:v1";

/// What the server itself speaks, whatever the agent: URI and meaning.
pub(crate) const OWN: [(&str, &str); 4] = [
    (
        RESUME,
        "Positions of events: a stream resumes exactly where it broke off (Last-Event-ID), attempts that were void and gaps are marked.",
    ),
    (
        IDEMPOTENCY,
        "A send with a key runs once: Idempotency-Key, or `key` in the metadata of the request under this URI.",
    ),
    (
        TURN,
        "Why a turn failed, whether it still runs, whether its cancel was requested.",
    ),
    (
        SKILL,
        "Which skill of this card a message is for: `id` in its metadata under this URI.",
    ),
];

/// The extensions of a deployment.
#[derive(Debug, Clone)]
pub(crate) struct Extensions {
    spoken: Vec<Arc<str>>,
    required: Vec<Arc<str>>,
}

impl Extensions {
    /// Ours and those of the profiles; of them only those of the first are required of every request.
    pub(crate) fn of<'a>(profiles: impl IntoIterator<Item = &'a Profile>) -> Self {
        let mut spoken: Vec<Arc<str>> = OWN.iter().map(|(uri, _)| Arc::from(*uri)).collect();
        let mut required = Vec::new();
        for (place, profile) in profiles.into_iter().enumerate() {
            for extension in &profile.extensions {
                let uri: Arc<str> = Arc::from(extension.uri.as_str());
                if place == 0 && extension.required {
                    required.push(Arc::clone(&uri));
                }
                if !spoken.contains(&uri) {
                    spoken.push(uri);
                }
            }
        }
        Self { spoken, required }
    }

    /// Those of the listed ones that are spoken, each once, in the order of the card.
    pub(crate) fn activate<'a>(&self, listed: impl Iterator<Item = &'a str>) -> Active {
        let listed: Vec<&str> = listed.collect();
        let active = self.spoken.iter().filter(|uri| listed.contains(&uri.as_ref()));
        Active(active.cloned().collect())
    }

    /// Refuses a request that has not switched on what is required.
    pub(crate) fn check(&self, active: &Active) -> Result<(), ApiError> {
        match self.required.iter().find(|uri| !active.contains(uri)) {
            Some(missing) => Err(ApiError::ExtensionRequired(Arc::clone(missing))),
            None => Ok(()),
        }
    }
}

/// Refuses a message for an agent whose profile requires what the request has not switched on.
pub(super) fn check_agent(profile: &Profile, active: &Active) -> Result<(), ApiError> {
    let mut required = profile.extensions.iter().filter(|extension| extension.required);
    match required.find(|extension| !active.contains(&extension.uri)) {
        Some(missing) => Err(ApiError::ExtensionRequired(Arc::from(missing.uri.as_str()))),
        None => Ok(()),
    }
}

/// The extensions that are active for a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Active(Vec<Arc<str>>);

impl Active {
    /// Whether this one is.
    pub(crate) fn contains(&self, uri: &str) -> bool {
        self.0.iter().any(|active| **active == *uri)
    }

    /// As the header and the metadata list them; `None` when there are none.
    pub(crate) fn listed(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.join(", "))
    }

    /// Each URI.
    pub(crate) fn uris(&self) -> Vec<String> {
        self.0.iter().map(ToString::to_string).collect()
    }
}

#[cfg(test)]
mod tests {
    use relevo_shared::agents::Extension;

    use super::*;

    fn profile() -> Profile {
        let mut profile = Profile::generic();
        profile.extensions = vec![Extension {
            uri: "urn:x:v1".to_owned(),
            description: String::new(),
            required: true,
            params: std::collections::BTreeMap::new(),
        }];
        profile
    }

    #[test]
    fn what_is_spoken_becomes_active_once_and_the_rest_does_not_matter() {
        let extensions = Extensions::of([&profile()]);
        let active = extensions.activate(["urn:x:v1", "urn:y:v1", RESUME, RESUME, "urn:x:v2"].into_iter());
        assert_eq!(active.listed().unwrap(), format!("{RESUME}, urn:x:v1"));
        assert!(active.contains(RESUME) && !active.contains(TURN));
        assert_eq!(extensions.activate(std::iter::empty()).listed(), None);
    }

    #[test]
    fn what_is_required_must_be_active() {
        let extensions = Extensions::of([&profile()]);
        assert!(extensions.check(&extensions.activate(["urn:x:v1"].into_iter())).is_ok());
        let error = extensions.check(&Active::default()).unwrap_err();
        assert!(matches!(error, ApiError::ExtensionRequired(uri) if &*uri == "urn:x:v1"));
        assert!(Extensions::of([&Profile::generic()]).check(&Active::default()).is_ok());
    }

    #[test]
    fn what_another_agent_requires_is_required_of_its_messages_only() {
        let extensions = Extensions::of([&Profile::generic(), &profile(), &profile()]);
        assert!(extensions.check(&Active::default()).is_ok());
        assert!(check_agent(&profile(), &Active::default()).is_err());
        let active = extensions.activate(["urn:x:v1"].into_iter());
        assert_eq!(active.uris(), ["urn:x:v1"]);
        assert!(check_agent(&profile(), &active).is_ok());
    }
}
