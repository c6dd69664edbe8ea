//! Whose shapes a request of HTTP+JSON speaks: paths, parameters, answers and errors of 1.0, or those of 0.3 below `/v1`.

use a2a::methods;
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Response};
use relevo_shared::platform::config::Statuses;
use serde_json::{Map, Value};

use super::route::Route;
use super::{JSON, media_type};
use crate::error::{ApiError, Plain};
use crate::services::Inner;
use crate::transport::sse::Wrap;
use crate::transport::{v03, version};

/// See the head of this file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Dialect {
    /// 1.0, its answers labelled like this.
    Current(HeaderValue),
    /// A2A 0.3.
    Old,
}

impl Dialect {
    /// What a request speaks, and what its path means. Who names a version from 1.0 on and a path below `/v1` means a tenant.
    pub(super) fn of(services: &Inner, parts: &Parts) -> Option<(Self, Route)> {
        let path = parts.uri.path();
        let old = path
            .strip_prefix("/v1")
            .filter(|_| services.settings.gateway.a2a_0_3 && version::is_old(&parts.headers, parts.uri.query()));
        match old {
            Some(path) => Some((Self::Old, Route::of_0_3(path)?)),
            None => Some((Self::Current(media_type(&parts.headers)), Route::of(path)?)),
        }
    }

    pub(super) fn check(&self, parts: &Parts) -> Result<(), ApiError> {
        match self {
            Self::Current(_) => version::check(&parts.headers, parts.uri.query()),
            Self::Old => Ok(()),
        }
    }

    /// What the body or the query says, as 1.0 has it.
    pub(super) fn params(&self, method: &str, params: Map<String, Value>) -> Result<Map<String, Value>, ApiError> {
        match self {
            Self::Current(_) => Ok(params),
            Self::Old => v03::rest::params(method, params),
        }
    }

    pub(super) fn result(&self, method: &str, result: Vec<u8>) -> Vec<u8> {
        match self {
            Self::Current(_) => result,
            Self::Old if method == methods::GET_EXTENDED_AGENT_CARD => v03::card::printed(&result),
            Self::Old => v03::rest::printed(&result, true),
        }
    }

    /// The label of its answers.
    pub(super) fn label(&self) -> HeaderValue {
        match self {
            Self::Current(label) => label.clone(),
            Self::Old => JSON,
        }
    }

    pub(super) fn wrap(&self) -> Wrap {
        match self {
            Self::Current(_) => Wrap::Bare,
            Self::Old => Wrap::OldBare,
        }
    }

    pub(super) fn refuse(&self, error: &ApiError, statuses: Statuses) -> Response<Body> {
        match self {
            Self::Current(label) => error.respond_rest(label, statuses),
            Self::Old => error.respond_rest_with(v03::rest::error_body(error), &JSON, statuses),
        }
    }

    pub(super) fn refuse_plain(&self, plain: Plain) -> Response<Body> {
        match self {
            Self::Current(label) => plain.respond_rest(label),
            Self::Old => plain.respond_old(),
        }
    }
}
