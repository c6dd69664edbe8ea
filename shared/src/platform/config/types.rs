//! Value types that hide what they hold: secrets and URLs with credentials.

use std::fmt;

use super::Setting;
use super::mask::{is_password_parameter, mask_url};
use super::value::quoted;

/// What is shown instead of a secret.
pub(super) const MASK: &str = "***";

/// A value that is never shown: neither by `Debug` nor by the printed configuration nor in an error.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps `value`.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself, for the one call that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(MASK)
    }
}

impl Setting for Secret {
    const EXPECTED: &'static str = "a secret that is not empty";
    const SECRET: bool = true;

    fn parse(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self::new(text))
    }

    fn print(&self) -> Option<String> {
        Some(quoted(MASK))
    }

    fn mask(_: &str) -> String {
        MASK.to_owned()
    }
}

/// A URL whose credentials are never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct ServiceUrl(String);

impl ServiceUrl {
    /// Reads an absolute URL.
    pub fn new(text: &str) -> Option<Self> {
        url::Url::parse(text.trim()).ok().map(|_| Self(text.trim().to_owned()))
    }

    /// The URL as written, credentials included.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// `redis`, `https`, …
    pub fn scheme(&self) -> &str {
        self.0.split_once(':').map_or("", |(scheme, _)| scheme)
    }

    /// Whether it carries a user name, a password or both.
    pub fn has_credentials(&self) -> bool {
        mask_url(&self.0) != self.0
    }

    /// Whether it carries a password, as user information or as the parameter of a socket's URL.
    pub fn has_password(&self) -> bool {
        let parameter = |url: &url::Url| url.query_pairs().any(|(name, _)| is_password_parameter(&name));
        url::Url::parse(&self.0).is_ok_and(|url| url.password().is_some() || parameter(&url))
    }
}

impl fmt::Debug for ServiceUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&mask_url(&self.0), formatter)
    }
}

impl fmt::Display for ServiceUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&mask_url(&self.0))
    }
}

impl Setting for ServiceUrl {
    const EXPECTED: &'static str = "a URL such as \"redis://127.0.0.1:6379\" or \"https://relevo.example.com\"";

    fn parse(text: &str) -> Option<Self> {
        Self::new(text)
    }

    fn print(&self) -> Option<String> {
        Some(quoted(&self.to_string()))
    }

    fn mask(text: &str) -> String {
        mask_url(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_shown_by_nothing() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret:?}"), "***");
        assert_eq!(secret.print().unwrap(), r#""***""#);
        assert_eq!(secret.expose(), "hunter2");
    }

    #[test]
    fn a_url_is_shown_without_its_password() {
        let url = ServiceUrl::parse("redis://:hunter2@127.0.0.1:6379").unwrap();
        assert!(url.has_password());
        assert_eq!(url.scheme(), "redis");
        for shown in [format!("{url:?}"), url.to_string(), url.print().unwrap()] {
            assert!(!shown.contains("hunter2"), "{shown}");
        }
        assert_eq!(url.expose(), "redis://:hunter2@127.0.0.1:6379");
    }

    #[test]
    fn a_user_name_alone_is_no_password() {
        for (url, password, credentials) in [
            ("redis://h", false, false),
            ("redis://relevo@h", false, true),
            ("redis://relevo:x@h", true, true),
            ("unix:///s?db=1", false, false),
            ("unix:///s?user=relevo&pass=x", true, true),
        ] {
            let parsed = ServiceUrl::new(url).unwrap();
            assert_eq!(
                (parsed.has_password(), parsed.has_credentials()),
                (password, credentials),
                "{url}"
            );
        }
    }

    #[test]
    fn a_text_that_is_no_url_is_refused() {
        assert_eq!(ServiceUrl::parse("127.0.0.1:6379"), None);
        assert_eq!(ServiceUrl::parse(""), None);
    }
}
