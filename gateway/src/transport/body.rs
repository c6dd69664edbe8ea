//! Reading a request's body within its limits.

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use tokio::time::{Instant, timeout_at};

use crate::error::Plain;

/// Whether the body is labelled as JSON.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let label = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let media_type = label.split(';').next().unwrap_or_default().trim();
    media_type.eq_ignore_ascii_case("application/json") || media_type.eq_ignore_ascii_case("application/a2a+json")
}

/// Reads the whole body.
pub(crate) async fn read(headers: &HeaderMap, body: Body, limit: usize, deadline: Instant) -> Result<Bytes, Plain> {
    let length = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.parse().ok());
    let announced: usize = length.unwrap_or(0);
    if announced > limit {
        return Err(Plain::TooLarge);
    }
    let collect = collect(body, limit, announced);
    timeout_at(deadline, collect).await.unwrap_or(Err(Plain::Timeout))
}

async fn collect(body: Body, limit: usize, announced: usize) -> Result<Bytes, Plain> {
    let mut pieces = body.into_data_stream();
    let Some(first) = pieces.next().await else {
        return Ok(Bytes::new());
    };
    let first = first.map_err(|_broken| Plain::BadBody)?;
    if first.len() == announced {
        // The usual case: all of it came with the head, and is not copied.
        return Ok(first);
    }
    let mut whole = BytesMut::from(first);
    loop {
        if whole.len() > limit {
            return Err(Plain::TooLarge);
        }
        match pieces.next().await {
            None => return Ok(whole.freeze()),
            Some(piece) => whole.extend_from_slice(&piece.map_err(|_broken| Plain::BadBody)?),
        }
    }
}

/// What the parser says, without the client's text.
pub(crate) fn describe(error: &serde_json::Error) -> String {
    let what = if error.is_eof() {
        "it ends too early"
    } else {
        "syntax error"
    };
    format!("{what} at line {} column {}", error.line(), error.column())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn json_is_known_by_its_label() {
        let labelled =
            |label: &'static str| is_json(&HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(label))]));
        for right in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/a2a+json",
        ] {
            assert!(labelled(right), "{right}");
        }
        for wrong in ["text/plain", "application/jsonp", ""] {
            assert!(!labelled(wrong), "{wrong}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }

    #[tokio::test]
    async fn a_body_beyond_the_limit_is_refused_whatever_it_announces() {
        let soon = Instant::now() + std::time::Duration::from_mins(1);
        let read = |bytes: &'static [u8]| read_all(bytes, soon);
        assert_eq!(read(b"12345678").await, Ok(Bytes::from_static(b"12345678")));
        assert_eq!(read(b"123456789").await, Err(Plain::TooLarge));
    }

    async fn read_all(bytes: &'static [u8], deadline: Instant) -> Result<Bytes, Plain> {
        let pieces = bytes
            .chunks(3)
            .map(|piece| Ok::<_, std::io::Error>(Bytes::copy_from_slice(piece)));
        let pieces: Vec<_> = pieces.collect();
        let body = Body::from_stream(futures_util::stream::iter(pieces));
        read(&HeaderMap::new(), body, 8, deadline).await
    }
}
