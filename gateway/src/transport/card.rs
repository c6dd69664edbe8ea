//! The agent card over HTTP: made once, served with marks by which clients see whether theirs is still good.
//!
//! Everything here is a pure function of the card, so that all gateways of a deployment say the same. `Last-Modified` is
//! therefore no time at which anything happened: it is made from the content, lies in the past, and is good for nothing but
//! to be sent back. `If-Modified-Since` is compared by equality, as nginx does; a client that sends a time of its own gets
//! the card.

use std::time::{Duration, UNIX_EPOCH};

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, VARY};
use axum::http::{HeaderMap, HeaderValue, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::v03;
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
    bytes: Bytes,
    etag: HeaderValue,
    changed: HeaderValue,
    private: bool,
    /// The headers that credentials are in.
    vary: HeaderValue,
}

impl Card {
    /// With `old`, the address where A2A 0.3 is spoken, also for clients of that; `private` when it takes a credential. `key` is the
    /// header of API keys.
    pub(crate) fn new(card: &a2a::AgentCard, old: Option<&str>, private: bool, key: &str) -> Self {
        // It is a tree of texts: this cannot fail.
        let mut card = serde_json::to_value(card).unwrap_or_default();
        if let Some(url) = old {
            v03::card::add(&mut card, url);
        }
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
            private,
            vary: text(format!("authorization, {}", key.to_ascii_lowercase())),
        }
    }

    /// Answers a request with these headers. HEAD is answered alike; the server leaves the body out.
    pub(crate) fn respond(&self, headers: &HeaderMap) -> Response<Body> {
        let mut response = if self.is_known(headers) {
            not_modified(&self.etag)
        } else {
            let mut response = json_response(Vec::new());
            *response.body_mut() = Body::from(self.bytes.clone());
            response.headers_mut().insert(ETAG, self.etag.clone());
            response
        };
        let headers = response.headers_mut();
        headers.insert(LAST_MODIFIED, self.changed.clone());
        headers.insert(CACHE_CONTROL, if self.private { PRIVATE } else { PUBLIC });
        if self.private {
            headers.insert(VARY, self.vary.clone());
        }
        response
    }

    /// RFC 9110, section 13.2.2: tags decide, the time only where there are none.
    fn is_known(&self, headers: &HeaderMap) -> bool {
        if !headers.contains_key(IF_NONE_MATCH) {
            return headers.get(IF_MODIFIED_SINCE) == Some(&self.changed);
        }
        let ours = self.etag.to_str().unwrap_or_default();
        let lists = headers
            .get_all(IF_NONE_MATCH)
            .into_iter()
            .filter_map(|value| value.to_str().ok());
        let mut tags = lists.flat_map(|list| list.split(',')).map(str::trim);
        tags.any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == ours)
    }
}

#[cfg(test)]
mod tests {
    use relevo_shared::agents::Agents;

    use super::*;
    use crate::auth::Credentials;
    use crate::operations::agent_card::agent_card;

    fn card(url: &str, private: bool) -> Card {
        let card = agent_card(&Agents::default(), Credentials::default().schemes(), url, None);
        Card::new(&card, None, private, "X-API-Key")
    }

    fn status(card: &Card, known: &str) -> u16 {
        let headers = HeaderMap::from_iter([(IF_NONE_MATCH, HeaderValue::from_str(known).unwrap())]);
        card.respond(&headers).status().as_u16()
    }

    #[test]
    fn a_known_card_is_not_sent_again_and_a_changed_one_is() {
        let (card, other) = (card("http://a", false), card("http://b", false));
        let etag = card.etag.to_str().unwrap().to_owned();
        assert_eq!(status(&card, &etag), 304);
        assert_eq!(status(&card, &format!("\"x\", W/{etag}")), 304);
        assert_eq!(status(&card, "*"), 304);
        assert_eq!(status(&other, &etag), 200);
    }

    fn since(card: &Card, time: &HeaderValue) -> u16 {
        let headers = HeaderMap::from_iter([(IF_MODIFIED_SINCE, time.clone())]);
        card.respond(&headers).status().as_u16()
    }

    #[test]
    fn the_time_of_change_is_the_contents_and_only_that_very_time_is_known() {
        let (one, other) = (card("http://a", false), card("http://b", false));
        assert_eq!(one.changed, card("http://a", false).changed);
        assert_ne!(one.changed, other.changed);
        assert_eq!(since(&one, &one.changed), 304);
        assert_eq!(since(&other, &one.changed), 200);
        assert_eq!(
            since(&one, &HeaderValue::from_static("Fri, 01 Jan 2038 00:00:00 GMT")),
            200
        );
        assert_eq!(since(&one, &HeaderValue::from_static("yesterday")), 200);
        // A tag that is not ours outweighs a time that is.
        let both = HeaderMap::from_iter([
            (IF_NONE_MATCH, HeaderValue::from_static("\"x\"")),
            (IF_MODIFIED_SINCE, one.changed.clone()),
        ]);
        assert_eq!(one.respond(&both).status(), 200);
        assert!(httpdate::parse_http_date(one.changed.to_str().unwrap()).is_ok());
    }

    #[test]
    fn a_card_for_some_is_cached_by_nobody_else() {
        let said = |private| {
            let response = card("http://a", private).respond(&HeaderMap::new());
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
