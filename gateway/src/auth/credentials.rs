//! Finding the caller of a request by its credential.
//!
//! What is kept of a credential is its SHA-256 digest, and callers are looked up by it: no comparison takes longer for a
//! better guess. Any credential that is right is enough; one that is wrong beside it does not matter, as with the reference
//! server. The order is bearer token, HTTP Basic, API key.

use std::collections::HashMap;
use std::sync::Arc;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use relevo_shared::platform::config::{ConfigErrors, Settings};
use sha2::{Digest as _, Sha256};

use super::{Caller, read};

/// SHA-256 of a credential.
pub(super) type Digest = [u8; 32];

/// No credential that is right came with a request that needs one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unauthenticated;

/// Every credential, and whose it is.
#[derive(Clone, Default)]
pub(crate) struct Credentials {
    pub(super) bearer: HashMap<Digest, Arc<str>>,
    pub(super) basic: HashMap<Digest, Arc<str>>,
    pub(super) api_key: HashMap<Digest, Arc<str>>,
    pub(super) header: Option<HeaderName>,
}

// By hand: not even digests of weak secrets belong into a log.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials")
            .field("bearer", &self.bearer.len())
            .field("basic", &self.basic.len())
            .field("api_key", &self.api_key.len())
            .finish_non_exhaustive()
    }
}

impl Credentials {
    /// Reads `[auth]` and `[principals]`, files and variables they name included.
    pub(crate) fn read(settings: &Settings, errors: &mut ConfigErrors) -> Self {
        read::credentials(settings, errors)
    }

    /// Whether callers must show one.
    pub(crate) fn are_required(&self) -> bool {
        !(self.bearer.is_empty() && self.basic.is_empty() && self.api_key.is_empty())
    }

    /// Which schemes there are, for the card.
    pub(crate) fn schemes(&self) -> Schemes<'_> {
        Schemes {
            bearer: !self.bearer.is_empty(),
            basic: !self.basic.is_empty(),
            api_key: self.header.as_ref().filter(|_| !self.api_key.is_empty()),
        }
    }

    /// What `WWW-Authenticate` says beside a refusal: one value per scheme that it has words for.
    pub(crate) fn challenges(&self) -> impl Iterator<Item = HeaderValue> {
        let bearer = (!self.bearer.is_empty()).then_some("Bearer realm=\"relevo\"");
        let basic = (!self.basic.is_empty()).then_some("Basic realm=\"relevo\", charset=\"UTF-8\"");
        // No registered scheme says "API key"; a 401 must carry a challenge all the same.
        let key = (bearer.is_none() && basic.is_none()).then_some("ApiKey realm=\"relevo\"");
        [bearer, basic, key].into_iter().flatten().map(HeaderValue::from_static)
    }

    /// Whose request it is.
    pub(crate) fn identify(&self, headers: &HeaderMap) -> Result<Caller, Unauthenticated> {
        if !self.are_required() {
            return Ok(Caller::default());
        }
        let authorization = headers.get_all(AUTHORIZATION);
        let shown = authorization.iter().filter_map(|value| scheme(value));
        for (scheme, rest) in shown {
            let found = if scheme.eq_ignore_ascii_case("bearer") {
                self.bearer.get(&digest(rest.as_bytes()))
            } else if scheme.eq_ignore_ascii_case("basic") {
                decoded(rest).and_then(|pair| self.basic.get(&digest(&pair)))
            } else {
                None
            };
            if let Some(name) = found {
                return Ok(Caller::named(name));
            }
        }
        let keys = self.header.as_ref().map(|name| headers.get_all(name));
        keys.into_iter()
            .flatten()
            .find_map(|key| self.api_key.get(&digest(key.as_bytes())))
            .map(Caller::named)
            .ok_or(Unauthenticated)
    }
}

/// The schemes of a deployment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schemes<'a> {
    pub(crate) bearer: bool,
    pub(crate) basic: bool,
    /// The header of API keys.
    pub(crate) api_key: Option<&'a HeaderName>,
}

/// The first word of `Authorization`, and the rest.
fn scheme(value: &HeaderValue) -> Option<(&str, &str)> {
    let (scheme, rest) = value.to_str().ok()?.split_once(' ')?;
    Some((scheme, rest.trim()))
}

/// `user:password`, both there.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let pair = STANDARD.decode(text).ok()?;
    let (user, password) = std::str::from_utf8(&pair).ok()?.split_once(':')?;
    (!user.is_empty() && !password.is_empty()).then_some(())?;
    Some(pair)
}

pub(super) fn digest(credential: &[u8]) -> Digest {
    Sha256::digest(credential).into()
}

#[cfg(test)]
mod tests {
    use relevo_shared::platform::config::Loader;

    use super::*;

    fn credentials(pairs: &[(&str, &str)]) -> Credentials {
        let loader = pairs.iter().fold(Loader::new(), |l, (key, value)| l.set(*key, *value));
        let mut errors = ConfigErrors::new();
        let credentials = Credentials::read(&loader.load().unwrap(), &mut errors);
        assert!(errors.is_empty(), "{errors}");
        credentials
    }

    fn all() -> Credentials {
        credentials(&[
            ("auth.token", "t0ken"),
            ("auth.basic_username", "ann"),
            ("auth.basic_password", "p:w"),
            ("auth.api_key", "k"),
            ("auth.api_key_header", "X-Key"),
        ])
    }

    fn identify(credentials: &Credentials, headers: &[(&str, &str)]) -> Option<String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        let caller = credentials.identify(&map).ok()?;
        Some(caller.0.as_deref().unwrap_or_default().to_owned())
    }

    #[test]
    fn without_credentials_everyone_is_nobody() {
        let open = credentials(&[]);
        assert!(!open.are_required());
        assert_eq!(identify(&open, &[("authorization", "Bearer x")]), Some(String::new()));
    }

    #[test]
    fn any_right_credential_is_enough_and_schemes_have_no_case() {
        let all = all();
        let basic = format!("bAsIc {}", STANDARD.encode("ann:p:w"));
        for (headers, name) in [
            (&[("authorization", "Bearer t0ken")][..], "bearer"),
            (&[("authorization", "bearer  t0ken")], "bearer"),
            (&[("authorization", basic.as_str())], "basic:ann"),
            (&[("x-key", "k")], "api-key:x-key"),
            (&[("authorization", "Bearer wrong"), ("x-key", "k")], "api-key:x-key"),
            (
                &[("authorization", "Digest x"), ("authorization", "Bearer t0ken")],
                "bearer",
            ),
        ] {
            assert_eq!(identify(&all, headers).as_deref(), Some(name), "{headers:?}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let all = all();
        let encoded = |text: &str| format!("Basic {}", STANDARD.encode(text));
        for headers in [
            &[][..],
            &[("authorization", "Bearer")],
            &[("authorization", "Bearer ")],
            &[("authorization", "Bearer T0ken")],
            &[("authorization", "t0ken")],
            &[("authorization", "Basic t0ken")],
            &[("authorization", &encoded("ann:p"))],
            &[("authorization", &encoded("ann:"))],
            &[("authorization", &encoded(":p:w"))],
            &[("authorization", &encoded("annp"))],
            &[("authorization", "Bearer k"), ("x-key", "t0ken")],
            &[("x-api-key", "k")],
            &[("x-key", "")],
        ] {
            assert_eq!(identify(&all, headers), None, "{headers:?}");
        }
    }

    #[test]
    fn a_refusal_says_which_schemes_there_are() {
        let said = |credentials: &Credentials| credentials.challenges().count();
        assert_eq!(said(&all()), 2);
        assert_eq!(said(&credentials(&[("auth.api_key", "k")])), 1);
        assert!(!format!("{:?}", all()).contains("t0ken"));
    }
}
