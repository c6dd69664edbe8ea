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

/// What the server itself speaks, whatever the agent: URI and meaning.
pub(crate) const OWN: [(&str, &str); 3] = [
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
];

/// The extensions of a deployment.
#[derive(Debug, Clone)]
pub(crate) struct Extensions {
    spoken: Vec<Arc<str>>,
    required: Vec<Arc<str>>,
}

impl Extensions {
    /// Ours and those of the profile.
    pub(crate) fn of(profile: &Profile) -> Self {
        let own = OWN.iter().map(|(uri, _)| Arc::from(*uri));
        let added = profile
            .extensions
            .iter()
            .map(|extension| Arc::from(extension.uri.as_str()));
        let required = profile.extensions.iter().filter(|extension| extension.required);
        Self {
            spoken: own.chain(added).collect(),
            required: required.map(|extension| Arc::from(extension.uri.as_str())).collect(),
        }
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
        let extensions = Extensions::of(&profile());
        let active = extensions.activate(["urn:x:v1", "urn:y:v1", RESUME, RESUME, "urn:x:v2"].into_iter());
        assert_eq!(active.listed().unwrap(), format!("{RESUME}, urn:x:v1"));
        assert!(active.contains(RESUME) && !active.contains(TURN));
        assert_eq!(extensions.activate(std::iter::empty()).listed(), None);
    }

    #[test]
    fn what_is_required_must_be_active() {
        let extensions = Extensions::of(&profile());
        assert!(extensions.check(&extensions.activate(["urn:x:v1"].into_iter())).is_ok());
        let error = extensions.check(&Active::default()).unwrap_err();
        assert!(matches!(error, ApiError::ExtensionRequired(uri) if &*uri == "urn:x:v1"));
        assert!(Extensions::of(&Profile::generic()).check(&Active::default()).is_ok());
    }
}
