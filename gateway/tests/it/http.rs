//! Requests and answers of the tests over HTTP. Every answer of A2A 1.0 is judged by its schema before a test sees it.

use std::ops::Deref;

use relevo_testkit::schema::{Shape, judge, judge_envelope, of_method, without_0_3};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A request in the making: a [`RequestBuilder`] whose answer is judged.
pub struct Request(pub RequestBuilder);

/// A [`Response`] whose body is judged when it is read.
#[derive(Debug)]
pub struct Reply {
    response: Response,
    judge: Judge,
}

/// What an answer must look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judge {
    /// In the envelope of JSON-RPC; of an operation that is not known nothing but the envelope is judged.
    Rpc(Option<Shape>),
    /// As it is, on HTTP+JSON.
    Rest(Shape),
    /// An agent card that clients of A2A 0.3 can read, too.
    BothCard,
    /// Not of A2A 1.0.
    Nobody,
}

impl Request {
    pub fn header(self, name: &str, value: impl AsRef<[u8]>) -> Self {
        Self(self.0.header(name, value.as_ref()))
    }

    pub fn body(self, body: impl Into<reqwest::Body>) -> Self {
        Self(self.0.body(body))
    }

    pub fn json(self, body: &Value) -> Self {
        Self(self.0.json(body))
    }

    pub fn query(self, query: &(impl serde::Serialize + ?Sized)) -> Self {
        Self(self.0.query(query))
    }

    pub async fn send(self) -> reqwest::Result<Reply> {
        let (client, request) = self.0.build_split();
        let request = request?;
        let judge = Judge::of(&request);
        let response = client.execute(request).await?;
        Ok(Reply { response, judge })
    }
}

impl Deref for Reply {
    type Target = Response;

    fn deref(&self) -> &Response {
        &self.response
    }
}

impl Reply {
    pub async fn bytes(self) -> reqwest::Result<bytes::Bytes> {
        let label = self.response.headers().get("content-type");
        let label = label
            .and_then(|label| label.to_str().ok())
            .unwrap_or_default()
            .to_owned();
        let ok = self.response.status().is_success();
        // Whoever is not let in is answered as the reference server does, without a protocol.
        let stranger = self.response.status() == StatusCode::UNAUTHORIZED;
        let bytes = self.response.bytes().await?;
        if label.ends_with("json") && !stranger {
            self.judge.answer(ok, &bytes);
        }
        Ok(bytes)
    }

    pub async fn text(self) -> reqwest::Result<String> {
        Ok(String::from_utf8(self.bytes().await?.to_vec()).unwrap())
    }

    pub async fn json<T: DeserializeOwned>(self) -> reqwest::Result<T> {
        Ok(serde_json::from_slice(&self.bytes().await?).unwrap())
    }

    /// The body of a stream, whose events are judged by [`Judge::event`].
    pub fn into_stream(self) -> (Response, Judge) {
        (self.response, self.judge)
    }
}

impl Judge {
    fn of(request: &reqwest::Request) -> Self {
        let path = request.url().path();
        let version = request.headers().get("a2a-version");
        if path == "/.well-known/agent-card.json" {
            return version.map_or(Self::BothCard, |_| Self::Rest(Shape::Card));
        }
        if version.is_none_or(|version| !version.as_bytes().starts_with(b"1.")) {
            return Self::Nobody;
        }
        if path == "/" {
            let body = request.body().and_then(reqwest::Body::as_bytes).unwrap_or_default();
            let body: Value = serde_json::from_slice(body).unwrap_or_default();
            return Self::Rpc(body["method"].as_str().and_then(of_method));
        }
        of_path(request.method(), path).map_or(Self::Nobody, Self::Rest)
    }

    fn answer(self, ok: bool, body: &[u8]) {
        let read = || -> Value { serde_json::from_slice(body).expect("the answer is JSON") };
        match self {
            Self::Nobody => {}
            Self::BothCard => judge(Shape::Card, &without_0_3(read())),
            Self::Rest(shape) if ok => judge(shape, &read()),
            Self::Rest(_) => judge(Shape::RestError, &read()),
            Self::Rpc(shape) => judge_envelope(&read(), shape),
        }
    }

    /// An event of a stream; `failed`: it is labelled as an error.
    pub fn event(self, data: &str, failed: bool) {
        let read = || -> Value { serde_json::from_str(data).expect("the event is JSON") };
        match self {
            Self::Nobody | Self::BothCard => {}
            Self::Rest(_) if failed => judge(Shape::RestError, &read()),
            Self::Rest(_) => judge(Shape::Event, &read()),
            Self::Rpc(_) => judge_envelope(&read(), Some(Shape::Event)),
        }
    }
}

/// What a path of HTTP+JSON answers with; a tenant may stand before it.
fn of_path(method: &Method, path: &str) -> Option<Shape> {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let shape = |segments: &[&str]| match segments {
        ["message:send" | "message%3Asend"] => Some(Shape::Sent),
        ["message:stream"] => Some(Shape::Event),
        ["tasks"] => Some(Shape::Page),
        ["tasks", id] if id.ends_with(":subscribe") => Some(Shape::Event),
        ["tasks", _] => Some(Shape::Task),
        ["tasks", _, "pushNotificationConfigs"] if method == Method::GET => Some(Shape::Configs),
        ["tasks", _, "pushNotificationConfigs"] => Some(Shape::Config),
        ["tasks", _, "pushNotificationConfigs", _] if method == Method::GET => Some(Shape::Config),
        ["extendedAgentCard"] => Some(Shape::Card),
        _ => None,
    };
    shape(&segments).or_else(|| shape(segments.get(1..)?))
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;

    use futures_util::FutureExt as _;
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use crate::client::{Client, message};

    /// Answers one request with these bytes.
    async fn answer(listener: &TcpListener, label: &str, body: &str) {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        // The requests here end with this text.
        while !request.ends_with(b"}}}") {
            let mut bytes = [0; 4_096];
            let read = stream.read(&mut bytes).await.unwrap();
            request.extend_from_slice(&bytes[..read]);
        }
        let length = body.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {label}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    }

    /// Whether the test's client accepts an answer.
    async fn accepts(stream: bool, body: &str) -> bool {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(listener.local_addr().unwrap());
        let calling = async {
            if stream {
                client.stream("SendStreamingMessage", message("hi")).await.rest().await;
            } else {
                client.call("SendMessage", message("hi")).await;
            }
        };
        let label = if stream {
            "text/event-stream"
        } else {
            "application/json"
        };
        let (called, ()) = tokio::join!(AssertUnwindSafe(calling).catch_unwind(), answer(&listener, label, body));
        called.is_ok()
    }

    #[tokio::test]
    async fn a_broken_reply_or_event_fails_the_test_that_gets_it() {
        let task = json!({ "id": "t", "contextId": "c", "status": {
            "state": "TASK_STATE_WORKING", "timestamp": "2026-11-30T10:39:06.380Z",
        } });
        let mut broken = task.clone();
        broken["kind"] = "task".into();
        for (task, right) in [(task, true), (broken, false)] {
            let reply = json!({ "jsonrpc": "2.0", "id": "q", "result": { "task": task } }).to_string();
            assert_eq!(accepts(false, &reply).await, right, "{reply}");
            let events = format!("retry: 1\nid: 1\ndata: {reply}\n\n");
            assert_eq!(accepts(true, &events).await, right, "{events}");
        }
        let bare = json!({ "jsonrpc": "2.0", "id": "q", "error": { "code": -32603, "message": "x" } });
        assert!(!accepts(false, &bare.to_string()).await, "an error without its details");
    }
}
