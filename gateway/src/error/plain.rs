//! Refusals below any protocol: paths, methods, labels and bodies that cannot be read.

use axum::body::Body;
use axum::http::header::{ALLOW, CONNECTION, CONTENT_TYPE};
use axum::http::{HeaderValue, Response};

use super::{BAD_BODY, MEDIA_TYPE, METHOD_NOT_ALLOWED, NO_PATH, Row, TIMEOUT, TOO_LARGE};

/// Refusals below any protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plain {
    /// No such path.
    NotFound,
    /// The path exists, with these methods.
    MethodNotAllowed(&'static str),
    /// The body did not come in time.
    Timeout,
    /// The body is too large.
    TooLarge,
    /// The body holds so many values that reading it would take many times its size.
    TooMany,
    /// The body is not JSON by its label.
    UnsupportedMediaType,
    /// The body broke off.
    BadBody,
}

impl Plain {
    pub(super) fn row(self) -> &'static Row {
        match self {
            Self::NotFound => &NO_PATH,
            Self::MethodNotAllowed(_) => &METHOD_NOT_ALLOWED,
            Self::Timeout => &TIMEOUT,
            Self::TooLarge | Self::TooMany => &TOO_LARGE,
            Self::UnsupportedMediaType => &MEDIA_TYPE,
            Self::BadBody => &BAD_BODY,
        }
    }

    pub(super) fn text(self) -> &'static str {
        match self {
            Self::NotFound => "not found",
            Self::MethodNotAllowed(_) => "method not allowed",
            Self::Timeout => "the request took too long",
            Self::TooLarge => "the request is too large",
            Self::TooMany => "the request holds too many values; some 25,000 objects or 200,000 numbers are read",
            Self::UnsupportedMediaType => "Content-Type must be application/json",
            Self::BadBody => "the request broke off",
        }
    }

    /// The answer in plain text.
    pub(crate) fn respond(self) -> Response<Body> {
        let mut response = Response::new(Body::from(format!("{}\n", self.text())));
        let text = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, text);
        self.dress(response)
    }

    /// Sets what does not depend on the body.
    pub(super) fn dress(self, mut response: Response<Body>) -> Response<Body> {
        *response.status_mut() = self.row().status;
        let headers = response.headers_mut();
        if let Self::MethodNotAllowed(allowed) = self {
            headers.insert(ALLOW, HeaderValue::from_static(allowed));
        }
        if matches!(self, Self::Timeout | Self::TooLarge | Self::BadBody) {
            // What is left of the body is not read.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    pub(crate) fn label(self) -> &'static str {
        self.row().label
    }
}
