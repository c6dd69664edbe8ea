//! The agent card over HTTP: made once, served with marks by which clients see whether theirs is still good.
//!
//! There are two of them where A2A 0.3 is served: one by the letter of 1.0 for requests that name it, and one that says beside that
//! what clients of 0.3 read, for all others.
//!
//! What is sent is a pure function of the card, so that all gateways of a deployment say the same. `Last-Modified` is
//! therefore no time at which anything happened: it is made from the content, lies in the past, and is good for nothing but
//! to be sent back. In `If-Modified-Since` a later time is known only if this gateway has served the card since then: another
//! may have served another card before.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use a2a::SVC_PARAM_VERSION;
use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, VARY};
use axum::http::{HeaderMap, HeaderValue, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{knows, v03, version};
use crate::error::{json_response, not_modified};

/// How long a client may use a card without asking: a deployment that changes it is seen within a minute.
const PUBLIC: HeaderValue = HeaderValue::from_static("public, max-age=60");
/// The same for a card that is not for everyone.
pub(crate) const PRIVATE: HeaderValue = HeaderValue::from_static("private, max-age=60");

/// 2020-01-01 in seconds, and how long after it the made-up times of change lie: five years.
const FIRST_CHANGE: u64 = 1_577_836_800;
const CHANGES: u64 = 5 * 365 * 86_400;

/// A card as it is sent.
#[derive(Debug, Clone)]
pub(crate) struct Card {
    strict: Printed,
    /// The one that clients of A2A 0.3 can read, too.
    both: Option<Printed>,
    private: bool,
    /// The headers that decide what is sent.
    vary: Option<HeaderValue>,
    /// Since when it is served.
    since: SystemTime,
}

/// What is sent, with its marks.
#[derive(Debug, Clone)]
struct Printed {
    bytes: Bytes,
    etag: HeaderValue,
    changed: HeaderValue,
}

impl Card {
    /// Served from `since` on. With `old`, the address where A2A 0.3 is spoken, also for clients of that; `private` when it takes a
    /// credential. `key` is the header of API keys.
    pub(crate) fn new(card: &a2a::AgentCard, old: Option<&str>, private: bool, key: &str, since: SystemTime) -> Self {
        // It is a tree of texts: this cannot fail.
        let mut strict = serde_json::to_value(card).unwrap_or_default();
        let both = old.map(|url| {
            v03::card::list(&mut strict, url);
            let mut both = strict.clone();
            v03::card::add(&mut both, url);
            Printed::of(&both)
        });
        let mut vary = Vec::new();
        vary.extend(both.is_some().then(|| SVC_PARAM_VERSION.to_ascii_lowercase()));
        vary.extend(private.then(|| format!("authorization, {}", key.to_ascii_lowercase())));
        Self {
            strict: Printed::of(&strict),
            both,
            private,
            vary: HeaderValue::from_str(&vary.join(", "))
                .ok()
                .filter(|list| !list.is_empty()),
            since,
        }
    }

    /// Answers a request with these headers. HEAD is answered alike; the server leaves the body out.
    pub(crate) fn respond(&self, headers: &HeaderMap, query: Option<&str>) -> Response<Body> {
        let printed = match &self.both {
            Some(both) if version::check(headers, query).is_err() => both,
            _ => &self.strict,
        };
        let mut response = if printed.is_known(headers, self.since) {
            not_modified(&printed.etag)
        } else {
            let mut response = json_response(Vec::new());
            *response.body_mut() = Body::from(printed.bytes.clone());
            response.headers_mut().insert(ETAG, printed.etag.clone());
            response
        };
        let headers = response.headers_mut();
        headers.insert(LAST_MODIFIED, printed.changed.clone());
        headers.insert(CACHE_CONTROL, if self.private { PRIVATE } else { PUBLIC });
        if let Some(vary) = &self.vary {
            headers.insert(VARY, vary.clone());
        }
        response
    }
}

impl Printed {
    fn of(card: &Value) -> Self {
        let bytes = card.to_string().into_bytes();
        let digest = Sha256::digest(&bytes);
        let mut mark = URL_SAFE_NO_PAD.encode(digest);
        mark.truncate(22);
        let text = |text: String| HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("\"card\""));
        let after = digest.iter().take(4).fold(0, |sum, byte| (sum << 8) | u64::from(*byte)) % CHANGES;
        let changed = UNIX_EPOCH + Duration::from_secs(FIRST_CHANGE + after);
        Self {
            bytes: Bytes::from(bytes),
            etag: text(format!("\"{mark}\"")),
            changed: text(httpdate::fmt_http_date(changed)),
        }
    }

    /// RFC 9110, section 13.2.2: tags decide, the time only where there are none.
    fn is_known(&self, headers: &HeaderMap, since: SystemTime) -> bool {
        if !headers.contains_key(IF_NONE_MATCH) {
            let given = headers.get(IF_MODIFIED_SINCE);
            let time = given.and_then(|given| httpdate::parse_http_date(given.to_str().ok()?).ok());
            return given == Some(&self.changed) || time.is_some_and(|time| time >= since);
        }
        knows(headers, self.etag.to_str().unwrap_or_default())
    }
}

#[cfg(test)]
mod hostile;

#[cfg(test)]
mod tests {
    use relevo_shared::agents::Agents;

    use super::*;
    use crate::auth::Credentials;
    use crate::operations::agent_card::agent_card;

    /// When the cards here begin to be served.
    const START: &str = "Fri, 01 Jan 2027 00:00:00 GMT";

    fn served(url: &str, old: Option<&str>, private: bool) -> Card {
        let card = agent_card(&Agents::default(), Credentials::default().schemes(), url, None);
        let since = httpdate::parse_http_date(START).unwrap();
        Card::new(&card, old, private, "X-API-Key", since)
    }

    pub(super) fn card(url: &str, private: bool) -> Card {
        served(url, None, private)
    }

    fn status(card: &Card, known: &str) -> u16 {
        let headers = HeaderMap::from_iter([(IF_NONE_MATCH, HeaderValue::from_str(known).unwrap())]);
        card.respond(&headers, None).status().as_u16()
    }

    #[test]
    fn a_known_card_is_not_sent_again_and_a_changed_one_is() {
        let (card, other) = (card("http://a", false), card("http://b", false));
        let etag = card.strict.etag.to_str().unwrap().to_owned();
        assert_eq!(status(&card, &etag), 304);
        assert_eq!(status(&card, &format!("\"x\", W/{etag}")), 304);
        assert_eq!(status(&card, "*"), 304);
        assert_eq!(status(&other, &etag), 200);
    }

    fn since(card: &Card, time: &HeaderValue) -> u16 {
        let headers = HeaderMap::from_iter([(IF_MODIFIED_SINCE, time.clone())]);
        card.respond(&headers, None).status().as_u16()
    }

    #[test]
    fn the_time_of_change_is_the_contents_and_a_later_one_is_known_if_it_was_served_then() {
        let (one, other) = (card("http://a", false), card("http://b", false));
        let changed = &one.strict.changed;
        assert_eq!(*changed, card("http://a", false).strict.changed);
        assert_ne!(*changed, other.strict.changed);
        assert_eq!(since(&one, changed), 304);
        assert_eq!(since(&other, changed), 200);
        for (time, status) in [
            ("Fri, 01 Jan 2038 00:00:00 GMT", 304),
            ("Friday, 01-Jan-38 00:00:00 GMT", 304),
            (START, 304),
            ("Thu, 31 Dec 2026 23:59:59 GMT", 200),
            ("yesterday", 200),
        ] {
            assert_eq!(since(&one, &HeaderValue::from_static(time)), status, "{time}");
        }
        // A tag that is not ours outweighs a time that is.
        let both = HeaderMap::from_iter([
            (IF_NONE_MATCH, HeaderValue::from_static("\"x\"")),
            (IF_MODIFIED_SINCE, changed.clone()),
        ]);
        assert_eq!(one.respond(&both, None).status(), 200);
        assert!(httpdate::parse_http_date(changed.to_str().unwrap()).is_ok());
    }

    #[test]
    fn who_names_1_0_gets_the_card_of_1_0_and_everyone_else_the_one_for_both() {
        let card = served("http://a", Some("http://a"), true);
        let of = |version: Option<&'static str>, query| {
            let version =
                version.map(|version| (SVC_PARAM_VERSION.parse().unwrap(), HeaderValue::from_static(version)));
            let response = card.respond(&version.into_iter().collect(), query);
            assert_eq!(response.headers()[VARY], "a2a-version, authorization, x-api-key");
            response.headers()[ETAG].clone()
        };
        let both = &card.both.as_ref().unwrap().etag;
        assert_ne!(*both, card.strict.etag);
        for (version, query, etag) in [
            (Some("1.0"), None, &card.strict.etag),
            (Some("1.7"), None, &card.strict.etag),
            (None, Some("A2A-Version=1.0"), &card.strict.etag),
            (None, None, both),
            (Some("0.3"), None, both),
            (Some("2.0"), None, both),
        ] {
            assert_eq!(of(version, query), *etag, "{version:?} {query:?}");
        }
    }

    #[test]
    fn a_card_for_some_is_cached_by_nobody_else() {
        let said = |private| {
            let response = card("http://a", private).respond(&HeaderMap::new(), None);
            let headers = response.headers();
            (
                headers[CACHE_CONTROL].to_str().unwrap().to_owned(),
                headers.contains_key(VARY),
            )
        };
        assert_eq!(said(false), ("public, max-age=60".to_owned(), false));
        assert_eq!(said(true), ("private, max-age=60".to_owned(), true));
    }
}
