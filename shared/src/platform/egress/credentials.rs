//! What shows a server who calls: headers that go to one origin and nowhere else.

use std::fmt;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use url::{Origin, Url};

use crate::platform::config::Secret;

/// A header that cannot be sent. Never shows a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// Not the name of a header.
    #[error("`{0}` is no name of a header")]
    Name(String),
    /// Headers carry visible ASCII.
    #[error("the value of `{0}` must be visible ASCII characters and spaces, and not empty")]
    Value(String),
    /// The client sets it itself.
    #[error("`{0}` is set by the client itself")]
    Taken(String),
}

/// Headers that frame a request, or that say what its body is.
const TAKEN: [&str; 13] = [
    "host",
    "content-length",
    "content-type",
    "content-encoding",
    "transfer-encoding",
    "connection",
    "upgrade",
    "te",
    "trailer",
    "expect",
    "accept",
    "accept-encoding",
    "last-event-id",
];

/// The headers of one origin.
#[derive(Clone)]
pub struct Credentials {
    origin: Origin,
    headers: HeaderMap,
}

// By hand: the values are secrets.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.headers.keys().map(HeaderName::as_str).collect();
        f.debug_struct("Credentials")
            .field("headers", &names)
            .finish_non_exhaustive()
    }
}

impl Credentials {
    /// None, for the origin of a URL.
    pub fn new(url: &Url) -> Self {
        Self {
            origin: url.origin(),
            headers: HeaderMap::new(),
        }
    }

    /// With a bearer token.
    ///
    /// # Errors
    /// [`CredentialsError`]
    pub fn bearer(self, token: &Secret) -> Result<Self, CredentialsError> {
        if token.expose().trim().is_empty() {
            return Err(CredentialsError::Value(AUTHORIZATION.to_string()));
        }
        self.header(
            AUTHORIZATION.as_str(),
            &Secret::new(format!("Bearer {}", token.expose())),
        )
    }

    /// With a header.
    ///
    /// # Errors
    /// [`CredentialsError`]
    pub fn header(mut self, name: &str, value: &Secret) -> Result<Self, CredentialsError> {
        let name = header_name(name)?;
        let mut value = header_value(value.expose()).ok_or_else(|| CredentialsError::Value(name.to_string()))?;
        value.set_sensitive(true);
        self.headers.insert(name, value);
        Ok(self)
    }

    /// What goes along with a request to `url`.
    pub(super) fn of(&self, url: &Url) -> Option<&HeaderMap> {
        (url.origin() == self.origin).then_some(&self.headers)
    }
}

/// The name of a header that a configuration may set.
///
/// # Errors
/// [`CredentialsError`]
pub(crate) fn header_name(name: &str) -> Result<HeaderName, CredentialsError> {
    let known = HeaderName::from_bytes(name.as_bytes());
    let known = known.map_err(|_invalid| CredentialsError::Name(name.to_owned()))?;
    if TAKEN.contains(&known.as_str()) {
        return Err(CredentialsError::Taken(name.to_owned()));
    }
    Ok(known)
}

fn header_value(text: &str) -> Option<HeaderValue> {
    let visible = !text.trim().is_empty() && text.bytes().all(|c| (b' '..=b'~').contains(&c));
    HeaderValue::from_str(text).ok().filter(|_| visible)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    #[test]
    fn credentials_go_to_their_own_origin_only() {
        let own = url("https://agents.example/a2a");
        let credentials = Credentials::new(&own).bearer(&Secret::new("hunter2")).unwrap();
        for good in [
            "https://agents.example/",
            "https://agents.example:443/b?c",
            "HTTPS://AGENTS.example",
        ] {
            assert!(credentials.of(&url(good)).is_some(), "{good}");
        }
        for other in [
            "http://agents.example/",
            "https://agents.example:444/",
            "https://agents.example.evil.example/",
            "https://agents.example./",
            "https://sub.agents.example/",
        ] {
            assert!(credentials.of(&url(other)).is_none(), "{other}");
        }
        assert!(!format!("{credentials:?}").contains("hunter2"));
    }

    #[test]
    fn what_is_no_header_is_refused_without_its_value() {
        let none = Credentials::new(&url("http://h"));
        for (name, value) in [
            ("a b", "x"),
            ("", "x"),
            ("Host", "x"),
            ("content-LENGTH", "1"),
            ("X-Key", ""),
            ("X-Key", "a\r\nb: hunter2"),
        ] {
            let error = none.clone().header(name, &Secret::new(value)).unwrap_err();
            assert!(!error.to_string().contains("hunter2"), "{name}: {error}");
        }
        assert!(none.clone().bearer(&Secret::new("")).is_err());
        assert!(none.header("X-Api-Key", &Secret::new("a b")).is_ok());
    }
}
