//! The agent card over HTTP: made once, served with an ETag.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderValue, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::v03;
use crate::error::{json_response, not_modified};

/// How long a client may use a card without asking: a deployment that changes it is seen within a minute.
const CACHE: HeaderValue = HeaderValue::from_static("public, max-age=60");

/// A card as it is sent.
#[derive(Debug, Clone)]
pub(crate) struct Card {
    bytes: Bytes,
    etag: HeaderValue,
}

impl Card {
    /// With `old`, the address where A2A 0.3 is spoken, also for clients of that.
    pub(crate) fn new(card: &a2a::AgentCard, old: Option<&str>) -> Self {
        // It is a tree of texts: this cannot fail.
        let mut card = serde_json::to_value(card).unwrap_or_default();
        if let Some(url) = old {
            v03::card(&mut card, url);
        }
        let bytes = card.to_string().into_bytes();
        let mut mark = URL_SAFE_NO_PAD.encode(Sha256::digest(&bytes));
        mark.truncate(22);
        let etag = HeaderValue::from_str(&format!("\"{mark}\"")).unwrap_or(HeaderValue::from_static("\"card\""));
        Self {
            bytes: Bytes::from(bytes),
            etag,
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
        response.headers_mut().insert(CACHE_CONTROL, CACHE);
        response
    }

    fn is_known(&self, headers: &HeaderMap) -> bool {
        let ours = self.etag.to_str().unwrap_or_default();
        let lists = headers
            .get_all(IF_NONE_MATCH)
            .into_iter()
            .filter_map(|value| value.to_str().ok());
        let mut tags = lists.flat_map(|list| list.split(',')).map(str::trim);
        tags.any(|tag| tag == "*" || tag.trim_start_matches("W/") == ours)
    }
}

#[cfg(test)]
mod tests {
    use relevo_shared::agents::Agents;

    use super::*;
    use crate::operations::agent_card::agent_card;

    fn status(card: &Card, known: &str) -> u16 {
        let headers = HeaderMap::from_iter([(IF_NONE_MATCH, HeaderValue::from_str(known).unwrap())]);
        card.respond(&headers).status().as_u16()
    }

    #[test]
    fn a_known_card_is_not_sent_again_and_a_changed_one_is() {
        let card = Card::new(&agent_card(&Agents::default(), "http://a", None), None);
        let other = Card::new(&agent_card(&Agents::default(), "http://b", None), None);
        let etag = card.etag.to_str().unwrap().to_owned();
        assert_eq!(status(&card, &etag), 304);
        assert_eq!(status(&card, &format!("\"x\", W/{etag}")), 304);
        assert_eq!(status(&card, "*"), 304);
        assert_eq!(status(&other, &etag), 200);
    }
}
