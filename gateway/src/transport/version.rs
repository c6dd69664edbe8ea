//! The version of the protocol that a request speaks.

use a2a::SVC_PARAM_VERSION;
use axum::http::HeaderMap;
use url::form_urlencoded;

use crate::error::ApiError;

/// Only 1.x is served; nothing means 0.3. The query may say it where headers cannot be set.
pub(crate) fn check(headers: &HeaderMap, query: Option<&str>) -> Result<(), ApiError> {
    let found = named(headers, query);
    if is_served(&found) {
        Ok(())
    } else {
        Err(ApiError::VersionNotSupported(found))
    }
}

/// Whether 0.3 is spoken: clients of then do not say so, later ones do.
pub(crate) fn is_old(headers: &HeaderMap, query: Option<&str>) -> bool {
    matches!(named(headers, query).as_str(), "" | "0.3" | "0.3.0")
}

/// The version that a request names; empty without one.
fn named(headers: &HeaderMap, query: Option<&str>) -> String {
    let header = headers
        .get(SVC_PARAM_VERSION)
        .map(|value| value.to_str().unwrap_or("\u{fffd}").to_owned());
    let found = header.or_else(|| {
        form_urlencoded::parse(query?.as_bytes())
            .find(|(name, _)| is_parameter(name))
            .map(|(_, value)| value.into_owned())
    });
    found.as_deref().unwrap_or_default().trim().to_owned()
}

/// Whether a query parameter names the version. Names of service parameters have no case.
pub(crate) fn is_parameter(name: &str) -> bool {
    name.eq_ignore_ascii_case(SVC_PARAM_VERSION)
}

/// `1.<minor>`, and a patch number that says nothing.
fn is_served(version: &str) -> bool {
    let numbers: Vec<&str> = version.split('.').collect();
    let digits = |part: &&str| (1..=4).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    matches!(numbers.as_slice(), ["1", _] | ["1", _, _]) && numbers.iter().all(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_1_are_served_and_no_others() {
        for right in ["1.0", "1.0.1", "1.2"] {
            assert!(is_served(right), "{right}");
        }
        for wrong in [
            "", "0.3", "1", "2.0", "10.0", "1.", "1.x", "1.0.0.0", "01.0", "1.0-beta",
        ] {
            assert!(!is_served(wrong), "{wrong}");
        }
    }

    #[test]
    fn the_query_may_name_it_and_the_header_wins() {
        let none = HeaderMap::new();
        assert!(check(&none, Some("x=1&A2A-Version=1.0")).is_ok());
        assert!(check(&none, Some("a2a%2Dversion=1%2E0")).is_ok());
        assert!(check(&none, Some("version=1.0")).is_err());
        assert!(check(&none, None).is_err());
        let mut old = HeaderMap::new();
        old.insert(SVC_PARAM_VERSION, axum::http::HeaderValue::from_static("0.3"));
        assert!(check(&old, Some("A2A-Version=1.0")).is_err());
    }
}
