//! A small A2A client over JSON-RPC: one HTTP client for everything, connections kept, events read as they come.
//!
//! It knows several addresses of one cluster; callers say which one to use, since moving on after a failure is theirs to
//! decide. It never repeats a call. Called by [`crate::turn`] and by the tests of the cluster.

use std::time::Duration;

use a2a::{Message, StreamResponse, Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent};
use reqwest::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::sse::{Frame, Parser, SseError};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A stream that is silent for longer is broken: gateways send a comment every 15 s.
const SILENCE: Duration = Duration::from_mins(1);

/// An error object of JSON-RPC.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct RpcError {
    /// The code.
    pub code: i64,
    /// For people.
    pub message: String,
    /// Details, as sent.
    #[serde(default)]
    pub data: Value,
}

impl RpcError {
    /// The reason in its ErrorInfo, empty without one.
    pub fn reason(&self) -> &str {
        let details = self.data.as_array().map(Vec::as_slice).unwrap_or_default();
        details
            .iter()
            .find_map(|detail| detail.get("reason")?.as_str())
            .unwrap_or_default()
    }
}

/// A call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No connection: the call was not sent.
    #[error("no connection")]
    Connect(#[source] reqwest::Error),
    /// The connection broke: the outcome is unknown.
    #[error("the connection broke")]
    Broken(#[source] reqwest::Error),
    /// Nothing came for too long.
    #[error("nothing came for {0:?}")]
    Silent(Duration),
    /// The server refused for now, with a time to come back.
    #[error("status {status}: {}", error.message)]
    Overload {
        /// 429 or 503.
        status: u16,
        /// Seconds.
        retry_after: Option<u64>,
        /// The error object.
        error: RpcError,
    },
    /// The server answered with an error.
    #[error("error {}: {}", .0.code, .0.message)]
    Rpc(RpcError),
    /// What came is not what this protocol says.
    #[error("not an answer of A2A: {0}")]
    Foreign(String),
}

impl From<SseError> for CallError {
    fn from(error: SseError) -> Self {
        Self::Foreign(error.to_string())
    }
}

impl CallError {
    /// The label in reports.
    pub fn kind(&self) -> String {
        match self {
            Self::Connect(_) => "connect".to_owned(),
            Self::Broken(_) => "broken".to_owned(),
            Self::Silent(_) => "silent".to_owned(),
            Self::Overload { status, .. } => format!("http_{status}"),
            Self::Rpc(error) => format!("rpc{}", error.code),
            Self::Foreign(_) => "foreign_answer".to_owned(),
        }
    }

    /// Whether the server refused the call without having done anything.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Overload { .. })
    }
}

/// A message on its way.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// Unique.
    pub message_id: &'a str,
    /// The conversation.
    pub context: &'a str,
    /// The task that it continues.
    pub task: Option<&'a str>,
    /// What it says.
    pub text: &'a str,
}

impl Outgoing<'_> {
    /// The parameters of SendMessage.
    pub fn params(&self) -> Value {
        let mut message = json!({
            "messageId": self.message_id,
            "contextId": self.context,
            "role": "ROLE_USER",
            "parts": [{ "text": self.text }],
        });
        if let (Some(task), Value::Object(message)) = (self.task, &mut message) {
            message.insert("taskId".to_owned(), task.into());
        }
        json!({ "message": message })
    }
}

/// Sees every answer and event as it came, with the method that it is of.
pub type Eye = fn(&str, &[u8]);

/// Speaks to a cluster. Clones share their connections.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    urls: Vec<String>,
    eye: Option<Eye>,
}

#[derive(Deserialize)]
struct Answer<T> {
    result: Option<T>,
    error: Option<RpcError>,
}

/// The union of A2A as its members: a2a's own reader goes through a map first, which costs a driver too much.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    task: Option<Task>,
    message: Option<Message>,
    status_update: Option<TaskStatusUpdateEvent>,
    artifact_update: Option<TaskArtifactUpdateEvent>,
}

impl Body {
    fn event(self) -> Option<StreamResponse> {
        let Self {
            task,
            message,
            status_update,
            artifact_update,
        } = self;
        task.map(StreamResponse::Task)
            .or(message.map(StreamResponse::Message))
            .or(status_update.map(StreamResponse::StatusUpdate))
            .or(artifact_update.map(StreamResponse::ArtifactUpdate))
    }
}

impl Client {
    /// A client of the cluster at `urls`.
    ///
    /// # Errors
    /// When the system gives no TLS or resolver.
    pub fn new(urls: Vec<String>) -> Result<Self, reqwest::Error> {
        let mut headers = HeaderMap::new();
        headers.insert("a2a-version", HeaderValue::from_static("1.0"));
        let http = reqwest::Client::builder()
            .default_headers(headers)
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(Duration::from_secs(30))
            .tcp_nodelay(true)
            .no_proxy()
            .build()?;
        Ok(Self { http, urls, eye: None })
    }

    /// The same client with somebody who looks at everything that comes.
    #[must_use]
    pub fn watched(self, eye: Eye) -> Self {
        Self { eye: Some(eye), ..self }
    }

    fn look(&self, method: &str, body: &[u8]) {
        if let Some(eye) = self.eye {
            eye(method, body);
        }
    }

    /// How many addresses it knows.
    pub fn addresses(&self) -> usize {
        self.urls.len()
    }

    /// Calls an operation at the `at`-th address (modulo their number) and returns its result.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn call<T: for<'de> Deserialize<'de>>(
        &self,
        at: usize,
        method: &str,
        params: &Value,
    ) -> Result<T, CallError> {
        self.call_with(at, method, params, &[]).await
    }

    /// [`Client::call`] with headers of the caller's.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn call_with<T: for<'de> Deserialize<'de>>(
        &self,
        at: usize,
        method: &str,
        params: &Value,
        headers: &[(&str, &str)],
    ) -> Result<T, CallError> {
        let response = self.post(at, method, params, headers).await?;
        let (status, retry_after) = (response.status().as_u16(), retry_after(&response));
        let body = response.bytes().await.map_err(CallError::Broken)?;
        self.look(method, &body);
        answer(&body, status, retry_after)
    }

    /// SendMessage, or its like: returns the task.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn send(&self, at: usize, message: &Outgoing<'_>) -> Result<Task, CallError> {
        let body: Body = self.call(at, "SendMessage", &message.params()).await?;
        body.task.ok_or_else(|| CallError::Foreign("no task".to_owned()))
    }

    /// GetTask.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn get(&self, at: usize, task: &str) -> Result<Task, CallError> {
        self.call(at, "GetTask", &json!({ "id": task })).await
    }

    /// CancelTask.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn cancel(&self, at: usize, task: &str) -> Result<Task, CallError> {
        self.call(at, "CancelTask", &json!({ "id": task })).await
    }

    /// Opens the stream of an operation, with headers of the caller's.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn open(
        &self,
        at: usize,
        method: &str,
        params: &Value,
        headers: &[(&str, &str)],
    ) -> Result<EventStream, CallError> {
        let response = self.post(at, method, params, headers).await?;
        let kind = response.headers().get(reqwest::header::CONTENT_TYPE);
        if kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream")) {
            return Ok(EventStream {
                eye: self.eye,
                method: method.to_owned(),
                response,
                parser: Parser::default(),
                retry_ms: None,
                comments: 0,
            });
        }
        let (status, retry_after) = (response.status().as_u16(), retry_after(&response));
        let body = response.bytes().await.map_err(CallError::Broken)?;
        self.look(method, &body);
        let other: Value = answer(&body, status, retry_after)?;
        Err(CallError::Foreign(format!("no stream: {other}")))
    }

    /// SendStreamingMessage.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn stream(&self, at: usize, message: &Outgoing<'_>) -> Result<EventStream, CallError> {
        self.open(at, "SendStreamingMessage", &message.params(), &[]).await
    }

    /// SubscribeToTask, after the event `last_event_id` if there is one.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn subscribe(
        &self,
        at: usize,
        task: &str,
        last_event_id: Option<&str>,
    ) -> Result<EventStream, CallError> {
        let headers = last_event_id.map(|id| [("last-event-id", id)]);
        let headers = headers.as_ref().map_or(&[][..], |headers| headers);
        self.open(at, "SubscribeToTask", &json!({ "id": task }), headers).await
    }

    async fn post(
        &self,
        at: usize,
        method: &str,
        params: &Value,
        headers: &[(&str, &str)],
    ) -> Result<reqwest::Response, CallError> {
        let url = self.urls.get(at % self.urls.len().max(1));
        let url = url.ok_or_else(|| CallError::Foreign("no address is known".to_owned()))?;
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let mut request = self.http.post(url).json(&body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.map_err(|error| {
            if error.is_connect() {
                CallError::Connect(error)
            } else {
                CallError::Broken(error)
            }
        })
    }
}

fn retry_after(response: &reqwest::Response) -> Option<u64> {
    response.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()
}

fn answer<T: for<'de> Deserialize<'de>>(body: &[u8], status: u16, retry_after: Option<u64>) -> Result<T, CallError> {
    let answer: Answer<T> = serde_json::from_slice(body).map_err(|error| {
        let text: String = String::from_utf8_lossy(body).chars().take(200).collect();
        CallError::Foreign(format!("status {status}: {error}: {text}"))
    })?;
    match (answer.result, answer.error) {
        (_, Some(error)) if matches!(status, 429 | 503) => Err(CallError::Overload {
            status,
            retry_after,
            error,
        }),
        (_, Some(error)) => Err(CallError::Rpc(error)),
        (Some(result), None) => Ok(result),
        (None, None) => Err(CallError::Foreign(format!("status {status}: neither result nor error"))),
    }
}

/// An open event stream.
#[derive(Debug)]
pub struct EventStream {
    eye: Option<Eye>,
    method: String,
    response: reqwest::Response,
    parser: Parser,
    retry_ms: Option<u64>,
    comments: u64,
}

/// An event and where to go on after it.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamEvent {
    /// The SSE id.
    pub id: Option<String>,
    /// What it says.
    pub event: StreamResponse,
}

impl EventStream {
    /// The next event; `None` when the server closed the stream in good order. Cancel-safe.
    ///
    /// # Errors
    /// [`CallError`]; the stream is over then.
    pub async fn next(&mut self) -> Result<Option<StreamEvent>, CallError> {
        loop {
            match self.parser.frame()? {
                Some(Frame::Event { id, data }) => {
                    if let Some(eye) = self.eye {
                        eye(&self.method, data.as_bytes());
                    }
                    return read(id, &data).map(Some);
                }
                Some(Frame::Retry(ms)) => self.retry_ms = Some(ms),
                Some(Frame::Comment) => self.comments += 1,
                None => {
                    let piece = tokio::time::timeout(SILENCE, self.response.chunk()).await;
                    match piece
                        .map_err(|_elapsed| CallError::Silent(SILENCE))?
                        .map_err(CallError::Broken)?
                    {
                        Some(bytes) => self.parser.feed(&bytes),
                        None => return Ok(None),
                    }
                }
            }
        }
    }

    /// How long the server asked to wait before coming back.
    pub fn retry(&self) -> Option<Duration> {
        self.retry_ms.map(Duration::from_millis)
    }

    /// Signs of life so far.
    pub fn comments(&self) -> u64 {
        self.comments
    }
}

fn read(id: Option<String>, data: &str) -> Result<StreamEvent, CallError> {
    let foreign = |detail: String| CallError::Foreign(format!("an event: {detail}"));
    let answer: Answer<Body> = serde_json::from_str(data).map_err(|error| foreign(error.to_string()))?;
    if let Some(error) = answer.error {
        return Err(CallError::Rpc(error));
    }
    let event = answer
        .result
        .and_then(Body::event)
        .ok_or_else(|| foreign("no member is known".to_owned()))?;
    Ok(StreamEvent { id, event })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_read_with_its_place() {
        let data = r#"{"jsonrpc":"2.0","id":1,"result":{"statusUpdate":{"taskId":"t","contextId":"c",
            "status":{"state":"TASK_STATE_WORKING"}}}}"#;
        let event = read(Some("t.1-2".to_owned()), data).unwrap();
        assert_eq!(event.id.as_deref(), Some("t.1-2"));
        assert!(matches!(event.event, StreamResponse::StatusUpdate(update) if update.task_id == "t"));
    }

    #[test]
    fn an_error_is_told_by_its_code_and_an_overload_by_its_status() {
        let body =
            br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"m","data":[{"reason":"UNAVAILABLE"}]}}"#;
        let refused = answer::<Value>(body, 503, Some(2)).unwrap_err();
        assert!(refused.is_refusal() && refused.kind() == "http_503", "{refused:?}");
        let failed = answer::<Value>(body, 200, None).unwrap_err();
        assert_eq!(failed.kind(), "rpc-32603");
        assert!(matches!(failed, CallError::Rpc(error) if error.reason() == "UNAVAILABLE"));
        assert_eq!(
            answer::<Value>(b"<html>", 502, None).unwrap_err().kind(),
            "foreign_answer"
        );
    }
}
