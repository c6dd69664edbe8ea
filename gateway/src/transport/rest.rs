//! HTTP+JSON: paths and queries instead of an envelope, bare results, `google.rpc.Status` for errors.

mod dialect;
mod query;
mod route;

use a2a::methods;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response};
use bytes::Bytes;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::card::PRIVATE;
use super::dispatch::{Answer, dispatch};
use super::jsonrpc::refused;
use super::{body, call, sse, tell_extensions};
use crate::auth::Unauthenticated;
use crate::error::{ApiError, Plain, labelled};
use crate::observe::Observed;
use crate::services::{Call, Services};
use dialect::Dialect;
use route::Route;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const A2A_JSON: HeaderValue = HeaderValue::from_static("application/a2a+json");

/// Serves every path that no other binding has.
pub(crate) async fn serve(State(services): State<Services>, request: Request<Body>) -> Response<Body> {
    let received = Instant::now();
    let (parts, body) = request.into_parts();
    let Some((dialect, route)) = Dialect::of(&services, &parts) else {
        return Plain::NotFound.respond();
    };
    let method = match route.operation(&parts.method) {
        Ok(method) => method,
        Err(allowed) => {
            let plain = Plain::MethodNotAllowed(allowed);
            Observed::new(&services.metrics, "none", received).finish(plain.label());
            return dialect.refuse_plain(plain);
        }
    };
    let call = match call(&services, &parts.headers, received) {
        Ok(call) => call,
        Err(Unauthenticated) => return refused(&services, received),
    };
    let mut response = answer(&services, &parts, body, (route, method), &call, &dialect).await;
    tell_extensions(&call, &parts.headers, response.headers_mut());
    response
}

async fn answer(
    services: &Services,
    parts: &Parts,
    body: Body,
    (route, method): (Route, &'static str),
    call: &Call,
    dialect: &Dialect,
) -> Response<Body> {
    let mut observed = Observed::new(&services.metrics, method, call.received);
    let bytes = match bytes(services, parts, body, call).await {
        Ok(bytes) => bytes,
        Err(plain) => {
            observed.finish(plain.label());
            return dialect.refuse_plain(plain);
        }
    };
    let answered = match params(dialect, method, parts, route, &bytes) {
        // Boxed: the futures of all operations together are large.
        Ok(params) => Box::pin(dispatch(services, call, method, params)).await,
        Err(error) => Err(error),
    };
    let result = match answered.map(Answer::printed) {
        Ok(Ok(result)) => dialect.result(method, result),
        Ok(Err(events)) => return sse::respond(events, dialect.wrap(), services, call, observed),
        Err(error) => {
            error.log();
            observed.finish(error.label());
            return dialect.refuse(&error, services.settings.compat.errors);
        }
    };
    observed.finish("ok");
    let mut response = labelled(result, &dialect.label());
    if method == methods::GET_EXTENDED_AGENT_CARD {
        response.headers_mut().insert(CACHE_CONTROL, PRIVATE);
    }
    response
}

/// The body of a POST; of nothing else is it read. None at all needs no label.
async fn bytes(services: &Services, parts: &Parts, body: Body, call: &Call) -> Result<Bytes, Plain> {
    if parts.method != Method::POST {
        return Ok(Bytes::new());
    }
    let labelled = parts.headers.contains_key(CONTENT_TYPE);
    if labelled && !body::is_json(&parts.headers) {
        return Err(Plain::UnsupportedMediaType);
    }
    let limit = services.settings.gateway.body_limit.as_len();
    let bytes = body::read(&parts.headers, body, limit, call.deadline).await?;
    if labelled || bytes.is_empty() {
        Ok(bytes)
    } else {
        Err(Plain::UnsupportedMediaType)
    }
}

/// The parameters of the operation. What the path says wins over the body and the query.
fn params(dialect: &Dialect, method: &str, parts: &Parts, route: Route, bytes: &Bytes) -> Result<Value, ApiError> {
    dialect.check(parts)?;
    let params = if parts.method == Method::POST {
        members(bytes)?
    } else {
        query::params(parts.uri.query().unwrap_or_default())?
    };
    let mut params = dialect.params(method, params)?;
    for (name, value) in route.fields {
        if name == "taskId" {
            params.remove("task_id");
        }
        params.insert(name.to_owned(), Value::String(value));
    }
    Ok(Value::Object(params))
}

fn members(bytes: &Bytes) -> Result<Map<String, Value>, ApiError> {
    if bytes.trim_ascii().is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(members)) => Ok(members),
        // What some clients print for "no body".
        Ok(Value::Null) => Ok(Map::new()),
        Ok(_) => Err(ApiError::invalid("body", "must be an object")),
        Err(error) => Err(ApiError::Parse(body::describe(&error))),
    }
}

/// `application/a2a+json` for those who name it, else what every client of JSON takes.
fn media_type(headers: &HeaderMap) -> HeaderValue {
    let values = [ACCEPT, CONTENT_TYPE]
        .into_iter()
        .flat_map(|name| headers.get_all(name));
    let named = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .any(|item| {
            let mut parts = item.split(';').map(str::trim);
            let named = parts
                .next()
                .is_some_and(|name| name.eq_ignore_ascii_case("application/a2a+json"));
            named && !parts.any(is_never)
        });
    if named { A2A_JSON } else { JSON }
}

/// Whether a parameter of `Accept` says "not this one".
fn is_never(parameter: &str) -> bool {
    parameter
        .split_once('=')
        .is_some_and(|(name, value)| name.trim().eq_ignore_ascii_case("q") && value.trim().parse() == Ok(0.0_f32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_labelled_as_the_client_labels() {
        let label =
            |name, value: &'static str| media_type(&HeaderMap::from_iter([(name, HeaderValue::from_static(value))]));
        assert_eq!(media_type(&HeaderMap::new()), JSON);
        assert_eq!(label(ACCEPT, "*/*"), JSON);
        assert_eq!(label(ACCEPT, "application/json"), JSON);
        assert_eq!(label(ACCEPT, "application/a2a+json;q=0, application/json"), JSON);
        assert_eq!(label(ACCEPT, "text/html, Application/A2A+json; q=0.5"), A2A_JSON);
        assert_eq!(label(CONTENT_TYPE, "application/a2a+json; charset=utf-8"), A2A_JSON);
    }
}

#[cfg(test)]
mod hostile {
    use proptest::prelude::*;
    use relevo_testkit::hostile::damaged;

    use super::*;

    const PATHS: &[&str] = &[
        "/message:send",
        "/t%20t/message%3Astream",
        "/tasks/01a22c0a-cb27-7fff-b5e2-511366f7343c:subscribe",
        "/a/tasks/b:c:cancel/",
        "/tasks/t/pushNotificationConfigs/c",
        "/extendedAgentCard",
    ];
    const QUERIES: &[&str] = &[
        "contextId=a&pageSize=5&includeArtifacts=true&A2A-Version=1.0",
        "status=TASK_STATE_WORKING&statusTimestampAfter=2026-11-30T10%3A39%3A06.380Z",
        "pageToken=%ff%00&historyLength=-1&x",
    ];

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn damaged_paths_are_read_or_refused(path in damaged(PATHS)) {
            let path = String::from_utf8_lossy(&path);
            for route in [Route::of(&path), Route::of_0_3(&path)].into_iter().flatten() {
                for method in [Method::GET, Method::POST, Method::DELETE, Method::PUT] {
                    if let Err(allowed) = route.operation(&method) {
                        prop_assert!(!allowed.split(", ").any(|allowed| allowed == method.as_str()));
                    }
                }
            }
        }

        #[test]
        fn damaged_queries_are_read_or_refused_by_field(query in damaged(QUERIES)) {
            let query = String::from_utf8_lossy(&query);
            if let Err(error) = query::params(&query) {
                prop_assert!(matches!(error, ApiError::InvalidParams(_)), "{error:?}");
            }
        }

        #[test]
        fn headers_of_any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let Ok(value) = HeaderValue::from_bytes(&bytes) else { return Ok(()) };
            for name in [ACCEPT, CONTENT_TYPE] {
                let headers = HeaderMap::from_iter([(name, value.clone())]);
                media_type(&headers);
                body::is_json(&headers);
            }
        }
    }
}
