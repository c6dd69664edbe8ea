//! Bytes to operations and back, one file per binding.

pub(crate) mod artifact;
pub(crate) mod body;
pub(crate) mod card;
pub(crate) mod dispatch;
pub(crate) mod grpc;
pub(crate) mod jsonrpc;
pub(crate) mod rest;
pub(crate) mod sse;
pub(crate) mod v03;
mod version;

use a2a::SVC_PARAM_EXTENSIONS;
use axum::http::header::IF_NONE_MATCH;
use axum::http::{HeaderMap, HeaderValue};
use tokio::time::Instant;

use crate::auth::Unauthenticated;
use crate::services::{Call, Inner, Key};

/// What clients of 0.3 call the header of extensions.
const OLD_EXTENSIONS: &str = "x-a2a-extensions";
/// Longest position that a client may send.
const LONGEST_CURSOR: usize = 256;

/// What a request's headers say beside its body. Whoever shows no valid credential, where there are any, gets no further.
pub(crate) fn call(services: &Inner, headers: &HeaderMap, received: Instant) -> Result<Call, Unauthenticated> {
    let caller = services.credentials.identify(headers)?;
    let mut call = Call::new(received, services.settings.gateway.request_timeout);
    let text = |name: &str| {
        headers
            .get(name)
            .map(|value| value.to_str().unwrap_or("\u{fffd}").trim().to_owned())
    };
    // A browser that has seen no id yet sends an empty one.
    call.last_event_id = text("last-event-id").filter(|id| !id.is_empty()).map(|mut id| {
        id.truncate(id.floor_char_boundary(LONGEST_CURSOR));
        id
    });
    call.idempotency_key = text("idempotency-key").map(Key::Given);
    call.traceparent = text("traceparent").filter(|value| is_traceparent(value));
    call.caller = caller;
    call.extensions = services.extensions.activate(extensions(headers));
    Ok(call)
}

/// The URIs that a client lists.
fn extensions(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lists = [SVC_PARAM_EXTENSIONS, OLD_EXTENSIONS];
    let values = lists.into_iter().flat_map(|name| headers.get_all(name));
    // Each by itself: one that is no text is none of ours, and takes no other with it.
    let items = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    items.filter_map(|item| str::from_utf8(item).ok()).map(str::trim)
}

/// Tells a client which of its extensions are active, also under the name that it has for the header itself.
pub(crate) fn tell_extensions(call: &Call, request: &HeaderMap, headers: &mut HeaderMap) {
    let value = call
        .extensions
        .listed()
        .and_then(|list| HeaderValue::from_str(&list).ok());
    if let Some(value) = value {
        if request.contains_key(OLD_EXTENSIONS) {
            headers.insert(OLD_EXTENSIONS, value.clone());
        }
        headers.insert(SVC_PARAM_EXTENSIONS, value);
    }
}

/// Whether a client that sends these headers has what is under this tag.
fn knows(headers: &HeaderMap, tag: &str) -> bool {
    let lists = headers.get_all(IF_NONE_MATCH).into_iter();
    let mut tags = lists
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .map(str::trim);
    tags.any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
}

/// `00-<32 hex>-<16 hex>-<2 hex>`, the only version there is.
fn is_traceparent(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let hex = |part: &&str| part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    parts.iter().map(|part| part.len()).eq([2, 32, 16, 2]) && parts.iter().all(hex) && text.starts_with("00")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_well_formed_trace_contexts_are_kept() {
        assert!(is_traceparent(
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        ));
        for wrong in [
            "",
            "00",
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-x-y-z",
        ] {
            assert!(!is_traceparent(wrong), "{wrong}");
        }
        assert!(!is_traceparent(
            "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        ));
    }
}
