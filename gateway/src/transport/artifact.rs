//! Contents of parts over HTTP: `GET` and `HEAD` of the URLs that parts have, one range of them, and marks by which clients see whether
//! they have them already. What agents made is never shown as a page of this server: it has the label that the agent gave it, is not
//! to be guessed at, and is to be saved.

mod range;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, ETAG, LAST_MODIFIED, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use relevo_shared::objects::{Object, Objects, ObjectsError, Wanted};
use tokio::time::Instant;

use super::jsonrpc::refused;
use super::{call, knows};
use crate::auth::{Principal, Unauthenticated, authorise};
use crate::error::{ApiError, Plain, not_modified, part_of, range_not_satisfiable};
use crate::observe::Observed;
use crate::operations::{StoredPart, find_artifact, open_artifact};
use crate::request::GetArtifact;
use crate::services::{Call, Inner, Services};
use range::Range;

/// The method in metrics and logs.
const METHOD: &str = "artifact";
/// Content never changes under its URL, but who may see it can.
const PRIVATE: HeaderValue = HeaderValue::from_static("private, no-cache");
const UNKNOWN_TYPE: HeaderValue = HeaderValue::from_static("application/octet-stream");
/// What a browser that shows it all the same must not do.
const SANDBOX: HeaderValue = HeaderValue::from_static("default-src 'none'; sandbox");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Serves the content of a part.
pub(crate) async fn serve(State(services): State<Services>, request: Request<Body>) -> Response<Body> {
    let received = Instant::now();
    let (method, headers) = (request.method(), request.headers());
    let Some(objects) = &services.objects else {
        return Plain::NotFound.respond();
    };
    if method != Method::GET && method != Method::HEAD {
        let plain = Plain::MethodNotAllowed("GET, HEAD");
        Observed::new(&services.metrics, "none", received).finish(plain.label());
        return plain.respond();
    }
    let call = match call(&services, headers, received) {
        Ok(call) => call,
        Err(Unauthenticated) => return refused(&services, received),
    };
    let mut observed = Observed::new(&services.metrics, METHOD, received);
    let answered = match GetArtifact::of(request.uri().path()) {
        Some(wanted) => Box::pin(answer(&services, objects, &call, &wanted, method, headers)).await,
        None => Err(ApiError::TaskNotFound(String::new())),
    };
    match answered {
        Ok(Answer::Short(response)) => {
            observed.finish("ok");
            response
        }
        Ok(Answer::Content(mut response, object, length)) => {
            *response.body_mut() = body(&services, object, length, observed);
            response
        }
        // One answer for all that is not there, or not the caller's.
        Err(ApiError::TaskNotFound(_)) => {
            observed.finish(Plain::NotFound.label());
            Plain::NotFound.respond()
        }
        Err(error) => {
            error.log();
            observed.finish(error.label());
            error.respond_rest(&JSON, services.settings.compat.errors)
        }
    }
}

enum Answer {
    /// Without the content.
    Short(Response<Body>),
    /// With it, as it comes, and its length.
    Content(Response<Body>, Object, u64),
}

async fn answer(
    services: &Inner,
    objects: &Objects,
    call: &Call,
    request: &GetArtifact,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Answer, ApiError> {
    let permit = authorise(Principal::new(&call.caller, &request.tenant));
    let part = find_artifact(services, &permit, call, request).await?;
    let mark = format!("\"{}\"", request.digest);
    let etag = HeaderValue::from_str(&mark).unwrap_or(HeaderValue::from_static("\"\""));
    if knows(headers, &mark) {
        let mut response = not_modified(&etag);
        response.headers_mut().insert(CACHE_CONTROL, PRIVATE);
        return Ok(Answer::Short(response));
    }
    let range = if method == Method::GET {
        Range::of(headers, &mark, part.size)
    } else {
        Range::All
    };
    let wanted = match &range {
        _ if method == Method::HEAD => Wanted::Nothing,
        Range::All => Wanted::All,
        Range::Bytes(bytes) => Wanted::Bytes(bytes.clone()),
        Range::Nowhere => return Ok(Answer::Short(range_not_satisfiable(part.size))),
    };
    let object = open_artifact(objects, call, request, &part, wanted).await?;
    let mut response = Response::new(Body::empty());
    let length = match range {
        Range::Bytes(bytes) => {
            response = part_of(response);
            let text = format!("bytes {}-{}/{}", bytes.start, bytes.end.saturating_sub(1), part.size);
            insert(response.headers_mut(), CONTENT_RANGE, &text);
            bytes.end - bytes.start
        }
        Range::All | Range::Nowhere => part.size,
    };
    dress(response.headers_mut(), &part);
    let headers = response.headers_mut();
    headers.insert(ETAG, etag);
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    insert(headers, LAST_MODIFIED, &httpdate::fmt_http_date(object.modified));
    Ok(if method == Method::HEAD {
        Answer::Short(response)
    } else {
        Answer::Content(response, object, length)
    })
}

/// What does not depend on how much is asked for.
fn dress(headers: &mut HeaderMap, part: &StoredPart) {
    let label = part.media_type.as_deref().filter(|text| is_media_type(text));
    let label = label.and_then(|text| HeaderValue::from_str(text).ok());
    headers.insert(CONTENT_TYPE, label.unwrap_or(UNKNOWN_TYPE));
    insert(headers, CONTENT_DISPOSITION, &disposition(part.filename.as_deref()));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_SECURITY_POLICY, SANDBOX);
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(CACHE_CONTROL, PRIVATE);
}

fn insert(headers: &mut HeaderMap, name: axum::http::HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::from_str(text) {
        headers.insert(name, value);
    }
}

/// `type/subtype`, with or without parameters, of visible ASCII.
fn is_media_type(text: &str) -> bool {
    let token = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|c| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c))
    };
    let kind = text.split(';').next().unwrap_or_default().trim_end();
    let visible = text.bytes().all(|c| (b' '..=b'~').contains(&c));
    visible
        && kind
            .split_once('/')
            .is_some_and(|(kind, subtype)| token(kind) && token(subtype))
}

/// To be saved under the last segment of the agent's name for it; what browsers might read as more than a name is taken out.
fn disposition(filename: Option<&str>) -> String {
    let name = filename.unwrap_or_default();
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let name: String = name.chars().filter(|c| !c.is_control()).take(LONGEST_NAME).collect();
    let name = name.trim_matches(['.', ' ']);
    if name.is_empty() {
        return "attachment".to_owned();
    }
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || "-_.()[] ".contains(c) {
            c
        } else {
            '_'
        }
    };
    let ascii: String = name.chars().map(plain).collect();
    let full = percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC);
    format!("attachment; filename=\"{ascii}\"; filename*=UTF-8''{full}")
}

/// Longest name of a file, in characters: more than any file system takes.
const LONGEST_NAME: usize = 200;

/// The bytes as the client takes them; a connection that breaks, or a store that does, ends it. It is read to its end when the last of them
/// is taken: nobody comes for the end of a body of a known length.
fn body(services: &Inner, object: Object, length: u64, mut observed: Observed) -> Body {
    if length == 0 {
        observed.finish("ok");
    }
    let count = services.metrics.artifact_bytes.clone();
    let pieces = stream::unfold(Some((object.bytes, length, observed)), move |state| {
        let count = count.clone();
        async move {
            let (mut bytes, left, mut observed) = state?;
            match bytes.next().await {
                Some(Ok(piece)) => {
                    let size = piece.len() as u64;
                    count.inc_by(size);
                    let left = left.saturating_sub(size);
                    if left == 0 {
                        observed.finish("ok");
                    }
                    Some((Ok(piece), Some((bytes, left, observed))))
                }
                Some(Err(error)) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "an artifact broke off");
                    observed.finish("broken_off");
                    Some((Err::<Bytes, ObjectsError>(error), None))
                }
                None => {
                    observed.finish("broken_off");
                    None
                }
            }
        }
    });
    Body::from_stream(pieces)
}

#[cfg(test)]
mod tests;
