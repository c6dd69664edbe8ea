//! The answer of a server: its head at once, its body piece by piece or as a whole, bounded in silence and in size.

use std::time::Duration;

use bytes::Bytes;
use reqwest::header::HeaderMap;
use reqwest::{Response, StatusCode};

use super::error::EgressError;
use super::upstreams::Permit;

/// An answer whose head is there.
#[derive(Debug)]
pub struct Answer {
    response: Response,
    permit: Permit,
    origin: String,
    silence: Duration,
    limit: usize,
    read: usize,
}

impl Answer {
    pub(super) fn new(response: Response, permit: Permit, origin: String, silence: Duration, limit: usize) -> Self {
        Self {
            response,
            permit,
            origin,
            silence,
            limit,
            read: 0,
        }
    }

    /// Its status: anything but a redirect.
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// Its headers.
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// A header that is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// The next piece of the body; `None` at its end. Cancel-safe.
    ///
    /// # Errors
    /// [`EgressError`]: it breaks off, is silent for too long, or is too large.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, EgressError> {
        let error = match tokio::time::timeout(self.silence, self.response.chunk()).await {
            Ok(Ok(Some(piece))) => {
                self.read = self.read.saturating_add(piece.len());
                if self.read <= self.limit {
                    return Ok(Some(piece));
                }
                let origin = self.origin.clone();
                let limit = self.limit;
                let error = EgressError::TooLarge { origin, limit };
                self.permit.void(error.label());
                return Err(error);
            }
            Ok(Ok(None)) => {
                self.finished();
                return Ok(None);
            }
            Ok(Err(error)) => EgressError::from_client(&self.origin, &error),
            Err(_elapsed) => EgressError::Silent {
                origin: self.origin.clone(),
                waited: self.silence,
            },
        };
        self.permit.failed(error.label());
        Err(error)
    }

    /// The whole body.
    ///
    /// # Errors
    /// [`EgressError`]
    pub async fn bytes(mut self) -> Result<Vec<u8>, EgressError> {
        let mut all = Vec::new();
        while let Some(piece) = self.piece().await? {
            all.extend_from_slice(&piece);
        }
        Ok(all)
    }

    /// The answer has come to its end. Whoever reads an event stream knows its end before the connection does.
    pub fn finished(&mut self) {
        let status = self.response.status();
        if status.is_server_error() {
            self.permit.failed("server_error");
        } else if status.is_client_error() {
            self.permit.declined();
        } else {
            self.permit.succeeded();
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // Nobody has to read what a broken server says about it.
        if self.response.status().is_server_error() {
            self.permit.failed("server_error");
        }
    }
}
