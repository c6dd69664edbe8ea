//! Which web pages may call: the card is public, everything else is for the origins of `gateway.cors_origins`.

use axum::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, ETAG, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, Method};
use std::time::Duration;
use tower_http::cors::{AllowOrigin, Any, CorsLayer};

/// How long a browser may go by what a preflight said.
const MAX_AGE: Duration = Duration::from_mins(10);

/// What pages may send.
const SENT: [HeaderName; 9] = [
    ACCEPT,
    AUTHORIZATION,
    CONTENT_TYPE,
    HeaderName::from_static("a2a-version"),
    HeaderName::from_static("a2a-extensions"),
    HeaderName::from_static("x-a2a-extensions"),
    HeaderName::from_static("idempotency-key"),
    HeaderName::from_static("last-event-id"),
    HeaderName::from_static("traceparent"),
];
/// What pages may read beside what they always may.
const READ: [HeaderName; 5] = [
    ETAG,
    RETRY_AFTER,
    WWW_AUTHENTICATE,
    HeaderName::from_static("a2a-extensions"),
    HeaderName::from_static("x-a2a-extensions"),
];

/// What pages may send; `key` is the header of API keys.
fn sent(key: &str) -> Vec<HeaderName> {
    SENT.into_iter().chain(HeaderName::try_from(key)).collect()
}

/// For the operations; nothing without origins.
pub(crate) fn operations(origins: &[String], key: &str) -> Option<CorsLayer> {
    let allowed = match origins {
        [] => return None,
        [all] if all == "*" => AllowOrigin::any(),
        some => AllowOrigin::list(some.iter().filter_map(|origin| HeaderValue::from_str(origin).ok())),
    };
    let layer = CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        .allow_headers(sent(key))
        .expose_headers(READ)
        .max_age(MAX_AGE);
    Some(layer)
}

/// For the card.
pub(crate) fn card(key: &str) -> CorsLayer {
    CorsLayer::new()
        .allow_origin(Any)
        .allow_methods([Method::GET, Method::HEAD])
        .allow_headers(sent(key))
        .expose_headers([ETAG])
        .max_age(MAX_AGE)
}
