//! Reading a request's body within its limits.

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::error::Plain;

/// Most memory that the values of a request may take, beside its texts.
const HEAVIEST: usize = 16 << 20;
/// What an object takes: a leaf of a tree, whatever it holds.
const OBJECT: usize = 640;
/// What a member or an item takes.
const VALUE: usize = 72;

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
    let bytes = timeout_at(deadline, collect).await.unwrap_or(Err(Plain::Timeout))?;
    if weight(&bytes) > HEAVIEST {
        return Err(Plain::TooMany);
    }
    Ok(bytes)
}

/// About how much memory the values of a JSON text take when they are read, beside the text: tiny objects take a hundred
/// times what they are written in.
fn weight(text: &[u8]) -> usize {
    // Nothing is heavier than an empty object in two bytes.
    if text.len().saturating_mul(OBJECT / 2) <= HEAVIEST {
        return 0;
    }
    let (mut weight, mut quoted, mut escaped) = (0_usize, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' => weight += OBJECT,
            b'[' | b',' | b':' => weight += VALUE,
            _ => {}
        }
    }
    weight
}

/// The same of values that were read already.
pub(crate) fn is_too_heavy(value: &Value) -> bool {
    fn weigh(value: &Value) -> usize {
        match value {
            Value::Array(list) => VALUE + list.iter().map(weigh).sum::<usize>(),
            Value::Object(map) => OBJECT + map.values().map(|value| VALUE + weigh(value)).sum::<usize>(),
            _ => VALUE,
        }
    }
    weigh(value) > HEAVIEST
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
    #[test]
    fn many_tiny_values_are_too_heavy_and_long_texts_are_not() {
        let list = |item: &str, count| format!("[{}0]", format!("{item},").repeat(count));
        for (text, heavy) in [
            (list("{}", 20_000), false),
            (list(r#"{"":0}"#, 30_000), true),
            (list("1", 200_000), false),
            (list("1", 300_000), true),
            (format!("[\"{}\"]", "{,:\\\"[".repeat(1_000_000)), false),
        ] {
            assert_eq!(weight(text.as_bytes()) > HEAVIEST, heavy, "{}...", &text[..20]);
            let value: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(is_too_heavy(&value), heavy, "{}...", &text[..20]);
        }
    }

    #[test]
    fn the_heaviest_request_is_read_and_one_value_more_is_not() {
        // An object, its member and a list, and as many items as make up the rest.
        let items = (HEAVIEST - OBJECT) / VALUE - 2;
        assert_eq!(OBJECT + (items + 2) * VALUE, HEAVIEST);
        for (items, heavy) in [(items, false), (items + 1, true)] {
            let value = serde_json::json!({ "": vec![0; items] });
            assert_eq!(is_too_heavy(&value), heavy, "{items}");
            // In a text the items are known by the commas between them.
            let text = serde_json::json!({ "": vec![0; items + 1] }).to_string();
            assert_eq!(weight(text.as_bytes()) > HEAVIEST, heavy, "{items}");
        }
    }
}
