//! An A2A 1.0 client for the JSON-RPC binding: discovery, calls, event streams.
//!
//! Owns what goes over the wire and how its errors are told apart. It retries nothing: whoever calls knows what may be
//! sent twice. Called by the commands that talk to a server.

mod discover;
mod error;
mod stream;

pub(crate) use discover::card;
pub(crate) use error::{ClientError, RpcError};
pub(crate) use stream::{EventStream, Heard};

use std::time::Duration;

use relevo_shared::platform::config::mask_url;
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{RequestBuilder, Response, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// How long an answer may take that waits for no agent.
pub(crate) const ANSWER: Duration = Duration::from_secs(30);
/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);

/// A server's interface.
#[derive(Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    url: Url,
    tenant: Option<String>,
    extensions: Option<HeaderValue>,
}

impl Client {
    /// Lists extensions of the protocol with every call.
    pub(crate) fn with_extensions(mut self, list: HeaderValue) -> Self {
        self.extensions = Some(list);
        self
    }

    /// Where it calls, without credentials.
    pub(crate) fn address(&self) -> String {
        shown(&self.url)
    }

    /// Calls an operation; `limit` bounds the whole exchange.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        params: Value,
        limit: Option<Duration>,
    ) -> Result<T, ClientError> {
        let mut request = self.request(method, params).header("accept", "application/json");
        if let Some(limit) = limit {
            request = request.timeout(limit);
        }
        let response = request.send().await.map_err(|source| self.unreachable(source))?;
        let result = self.result(response).await?;
        serde_json::from_value(result).map_err(|error| self.foreign(format!("its answer: {error}")))
    }

    /// Opens a stream, after `cursor` if there is one.
    pub(crate) async fn stream(
        &self,
        method: &str,
        params: Value,
        cursor: Option<&str>,
    ) -> Result<EventStream, ClientError> {
        let mut request = self.request(method, params).header("accept", "text/event-stream");
        if let Some(cursor) = cursor {
            request = request.header("last-event-id", cursor);
        }
        let response = request.send().await.map_err(|source| self.unreachable(source))?;
        let kind = response
            .headers()
            .get("content-type")
            .and_then(|kind| kind.to_str().ok());
        if response.status().is_success() && kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
            return Ok(EventStream::new(response, self.address()));
        }
        self.result(response).await?;
        Err(self.foreign("its answer is not an event stream".to_owned()))
    }

    fn request(&self, method: &str, mut params: Value) -> RequestBuilder {
        if let (Some(tenant), Some(params)) = (&self.tenant, params.as_object_mut()) {
            params.insert("tenant".to_owned(), json!(tenant));
        }
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let mut request = self.http.post(self.url.clone()).header("a2a-version", a2a::VERSION);
        if let Some(list) = &self.extensions {
            request = request.header("a2a-extensions", list);
        }
        request.json(&body)
    }

    /// The `result` of a JSON-RPC answer.
    async fn result(&self, response: Response) -> Result<Value, ClientError> {
        let (status, retry_after) = (response.status(), retry_after(&response));
        if status == StatusCode::UNAUTHORIZED {
            return Err(ClientError::Unauthorized { url: self.address() });
        }
        let bytes = response.bytes().await.map_err(|source| ClientError::Broken {
            url: self.address(),
            source: source.without_url(),
        })?;
        let answer: Option<Value> = serde_json::from_slice(&bytes).ok();
        if let Some(error) = answer.as_ref().and_then(|answer| answer.get("error")) {
            return Err(ClientError::Refused(RpcError::read(error, retry_after)));
        }
        if !status.is_success() {
            return Err(ClientError::Status {
                url: self.address(),
                status: status.as_u16(),
                retry_after,
            });
        }
        let result = answer.and_then(|mut answer| answer.get_mut("result").map(Value::take));
        result.ok_or_else(|| self.foreign("its answer is no JSON-RPC answer".to_owned()))
    }

    fn unreachable(&self, source: reqwest::Error) -> ClientError {
        ClientError::Unreachable {
            url: self.address(),
            source: source.without_url(),
        }
    }

    fn foreign(&self, detail: String) -> ClientError {
        ClientError::Foreign {
            url: self.address(),
            detail,
        }
    }
}

/// The HTTP side. No limit for a whole exchange: a stream lasts as long as its turn.
fn http(base: &Url, credentials: HeaderMap) -> Result<reqwest::Client, ClientError> {
    let mut builder = reqwest::Client::builder()
        .default_headers(credentials)
        // A redirect would carry them elsewhere.
        .redirect(Policy::none())
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        .tcp_keepalive(Duration::from_secs(15))
        .user_agent(concat!("relevo/", env!("CARGO_PKG_VERSION")));
    if discover::is_here(base) {
        builder = builder.no_proxy();
    }
    builder.build().map_err(|source| ClientError::Unreachable {
        url: shown(base),
        source,
    })
}

fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response
        .headers()
        .get("retry-after")?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some(Duration::from_secs(seconds))
}

/// An address as it may be shown.
fn shown(url: &Url) -> String {
    mask_url(url.as_str().trim_end_matches('/'))
}
