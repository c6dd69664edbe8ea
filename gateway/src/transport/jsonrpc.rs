//! JSON-RPC 2.0: the envelope, the version, the name of the operation, the answer.

mod envelope;

use envelope::Envelope;
pub(crate) use envelope::RpcId;

use a2a::methods;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CONNECTION, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Request, Response};
use serde_json::Value;
use tokio::time::Instant;

use super::dispatch::{Answer, dispatch, known};
use super::sse::Wrap;
use super::{body, call, sse, tell_extensions, v03, version};
use crate::auth::Unauthenticated;
use crate::error::{ApiError, json_response, unauthorized};
use crate::observe::Observed;
use crate::services::{Call, Inner, Services};

/// Serves `POST /`.
pub(crate) async fn serve(State(services): State<Services>, request: Request<Body>) -> Response<Body> {
    let received = Instant::now();
    let (parts, body) = request.into_parts();
    let call = match call(&services, &parts.headers, received) {
        Ok(call) => call,
        Err(Unauthenticated) => return refused(&services, received),
    };
    let limit = services.settings.gateway.body_limit.as_len();
    if !body::is_json(&parts.headers) {
        let found = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let error = ApiError::ContentType("Content-Type".to_owned(), found.unwrap_or("missing").to_owned());
        let mut response = refuse(
            Observed::new(&services.metrics, "none", received),
            &RpcId::null(),
            &error,
        );
        // What was not read cannot be skipped.
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
        return response;
    }
    let mut response = match body::read(&parts.headers, body, limit, call.deadline).await {
        Ok(bytes) => answer(&services, &parts, &call, &bytes).await,
        Err(plain) => {
            Observed::new(&services.metrics, "none", received).finish(plain.label());
            plain.respond()
        }
    };
    tell_extensions(&call, &parts.headers, response.headers_mut());
    response
}

/// The answer to a request without a valid credential, the same on both bindings of HTTP.
pub(crate) fn refused(services: &Inner, received: Instant) -> Response<Body> {
    Observed::new(&services.metrics, "none", received).finish(ApiError::Unauthenticated.label());
    unauthorized(services.credentials.challenges())
}

async fn answer(services: &Services, parts: &Parts, call: &Call, bytes: &Bytes) -> Response<Body> {
    let envelope = match Envelope::parse(bytes) {
        Ok(envelope) => envelope,
        Err(refused) => {
            let (id, error) = *refused;
            return refuse(Observed::new(&services.metrics, "none", call.received), &id, &error);
        }
    };
    let dialect = Dialect::of(services, parts, &envelope.method);
    let method = dialect.method(&envelope.method);
    let mut observed = Observed::new(&services.metrics, method.unwrap_or("unknown"), call.received);
    let answered = match (dialect.check(parts), method) {
        (Err(error), _) => Err(error),
        (Ok(()), None) => Err(ApiError::MethodNotFound(envelope.method)),
        // Boxed: the futures of all operations together are large.
        (Ok(()), Some(method)) => {
            let params = dialect.params(method, envelope.params);
            Box::pin(dispatch(services, call, method, params)).await
        }
    };
    let result = match answered.map(Answer::printed) {
        Ok(Ok(result)) => dialect.result(method.unwrap_or_default(), result),
        Ok(Err(events)) => {
            return sse::respond(events, dialect.wrap(envelope.id), services, call, observed);
        }
        Err(error) => {
            error.log();
            observed.finish(error.label());
            return error.respond(dialect.error_body(&envelope.id, &error));
        }
    };
    observed.finish("ok");
    json_response(success(&envelope.id, &result))
}

/// Whose shapes a request speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    Current,
    /// A2A 0.3.
    Old,
}

impl Dialect {
    /// Methods of 0.3 have other names: which shapes are spoken is seen by them, also where the version says 1.x, as it does of
    /// clients that name the latest one they know.
    fn of(services: &Inner, parts: &Parts, method: &str) -> Self {
        let (headers, query) = (&parts.headers, parts.uri.query());
        let named_old = version::is_old(headers, query) && method.contains('/');
        let is_method = v03::rpc::method(method).is_some() && version::check(headers, query).is_ok();
        if services.settings.gateway.a2a_0_3 && (named_old || is_method) {
            Self::Old
        } else {
            Self::Current
        }
    }

    fn method(self, name: &str) -> Option<&'static str> {
        match self {
            Self::Current => known(name),
            Self::Old => v03::rpc::method(name),
        }
    }

    fn check(self, parts: &Parts) -> Result<(), ApiError> {
        match self {
            Self::Current => version::check(&parts.headers, parts.uri.query()),
            Self::Old => Ok(()),
        }
    }

    fn params(self, method: &str, params: Value) -> Value {
        match self {
            Self::Current => params,
            Self::Old => v03::rpc::params(method, params),
        }
    }

    fn result(self, method: &str, result: Vec<u8>) -> Vec<u8> {
        match self {
            Self::Current => result,
            Self::Old if method == methods::GET_EXTENDED_AGENT_CARD => v03::card::printed(&result),
            Self::Old => v03::rpc::printed(&result, true),
        }
    }

    fn wrap(self, id: RpcId) -> Wrap {
        match self {
            Self::Current => Wrap::Rpc(id),
            Self::Old => Wrap::Old(id),
        }
    }

    fn error_body(self, id: &RpcId, error: &ApiError) -> Vec<u8> {
        match self {
            Self::Current => error_body(id, error),
            Self::Old => old_error_body(id, error),
        }
    }
}

fn refuse(mut observed: Observed, id: &RpcId, error: &ApiError) -> Response<Body> {
    error.log();
    observed.finish(error.label());
    error.respond(error_body(id, error))
}

fn success(id: &RpcId, result: &[u8]) -> Vec<u8> {
    [
        br#"{"jsonrpc":"2.0","id":"#.as_slice(),
        id.raw().as_bytes(),
        br#","result":"#,
        result,
        b"}",
    ]
    .concat()
}

/// The whole answer of a request that failed.
pub(crate) fn error_body(id: &RpcId, error: &ApiError) -> Vec<u8> {
    failure(id, &error.to_json().to_string())
}

/// The same for a client of 0.3.
pub(crate) fn old_error_body(id: &RpcId, error: &ApiError) -> Vec<u8> {
    failure(id, &v03::error(error.to_json()).to_string())
}

fn failure(id: &RpcId, error: &str) -> Vec<u8> {
    [
        br#"{"jsonrpc":"2.0","id":"#.as_slice(),
        id.raw().as_bytes(),
        br#","error":"#,
        error.as_bytes(),
        b"}",
    ]
    .concat()
}
