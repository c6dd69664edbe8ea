//! How errors look on the wire: the error object of JSON-RPC, and `google.rpc.Status` as REST has it.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, Response, StatusCode};
use relevo_shared::platform::config::Statuses;
use serde_json::{Value, json};

use super::catalogue::{Grpc, Row};
use super::{ApiError, Plain};

impl ApiError {
    /// The objects of `error.data` and `error.details`: what happened by name, and the fields that are wrong.
    fn details(&self) -> Vec<Value> {
        let mut info = error_info(self.row());
        if let (Value::Object(info), metadata @ Value::Object(_)) = (&mut info, self.metadata()) {
            info.insert("metadata".to_owned(), metadata);
        }
        let mut details = vec![info];
        if let Self::InvalidParams(violations) = self {
            let violations: Vec<Value> = violations
                .iter()
                .map(|v| json!({ "field": v.field, "description": v.description }))
                .collect();
            details.push(json!({ "@type": a2a::BAD_REQUEST_TYPE, "fieldViolations": violations }));
        }
        details
    }

    /// The error object of JSON-RPC.
    pub(crate) fn to_json(&self) -> Value {
        json!({ "code": self.row().code, "message": self.message(), "data": self.details() })
    }

    /// The body on REST.
    pub(crate) fn to_status(&self, statuses: Statuses) -> Value {
        status(self.row().statuses(statuses), &self.message(), &self.details())
    }

    /// The answer on JSON-RPC, `body` being the whole of it.
    pub(crate) fn respond(&self, body: Vec<u8>) -> Response<Body> {
        let mut response = json_response(body);
        *response.status_mut() = self.rpc_status();
        self.add_retry_after(&mut response);
        response
    }

    /// The answer on REST, labelled as `media_type`.
    pub(crate) fn respond_rest(&self, media_type: &HeaderValue, statuses: Statuses) -> Response<Body> {
        self.respond_rest_with(self.to_status(statuses).to_string().into_bytes(), media_type, statuses)
    }

    /// The same, `body` being the whole of it.
    pub(crate) fn respond_rest_with(
        &self,
        body: Vec<u8>,
        media_type: &HeaderValue,
        statuses: Statuses,
    ) -> Response<Body> {
        let mut response = labelled(body, media_type);
        *response.status_mut() = self.row().statuses(statuses).0;
        self.add_retry_after(&mut response);
        response
    }

    fn add_retry_after(&self, response: &mut Response<Body>) {
        if let Some(seconds) = self.retry_after() {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
    }
}

impl Plain {
    /// The answer on REST, labelled as `media_type`.
    pub(crate) fn respond_rest(self, media_type: &HeaderValue) -> Response<Body> {
        let row = self.row();
        let body = status((row.status, row.grpc), self.text(), &[error_info(row)]);
        self.dress(labelled(body.to_string().into_bytes(), media_type))
    }

    /// The answer on REST of A2A 0.3, which has the codes of JSON-RPC there, too.
    pub(crate) fn respond_old(self) -> Response<Body> {
        let body = json!({ "code": a2a::error_code::INVALID_REQUEST, "message": self.text(), "data": [error_info(self.row())] });
        self.dress(json_response(body.to_string().into_bytes()))
    }
}

fn error_info(row: &Row) -> Value {
    json!({ "@type": a2a::ERROR_INFO_TYPE, "reason": row.reason, "domain": row.domain })
}

fn status((http, grpc): (StatusCode, Grpc), message: &str, details: &[Value]) -> Value {
    let code = http.as_u16();
    json!({ "error": { "code": code, "status": grpc.name(), "message": message, "details": details } })
}

/// A JSON answer.
pub(crate) fn json_response(body: Vec<u8>) -> Response<Body> {
    labelled(body, &HeaderValue::from_static("application/json"))
}

/// A JSON answer under this label.
pub(crate) fn labelled(body: Vec<u8>, media_type: &HeaderValue) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(CONTENT_TYPE, media_type.clone());
    response
}
