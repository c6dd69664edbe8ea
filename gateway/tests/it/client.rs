//! An A2A client that shows what is on the wire.

use std::net::SocketAddr;

use relevo_testkit::poll;
use reqwest::header::HeaderName;
use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::http::{Judge, Reply, Request};

#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    pub url: String,
}

impl Client {
    pub fn new(listen: SocketAddr) -> Self {
        Self::with_headers(listen, &[])
    }

    /// One whose requests all have these headers.
    pub fn with_headers(listen: SocketAddr, headers: &[(&'static str, &str)]) -> Self {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        let http = reqwest::Client::builder()
            .no_proxy()
            .default_headers(headers.collect())
            .timeout(poll::LONGEST)
            .build()
            .unwrap();
        Self {
            http,
            url: format!("http://{listen}/"),
        }
    }

    pub fn get(&self, path: &str) -> Request {
        Request(self.http.get(format!("{}{path}", self.url)))
    }

    /// A request with these bytes as its body.
    pub fn post(&self, body: impl Into<reqwest::Body>) -> Request {
        self.post_unversioned(body).header("a2a-version", "1.0")
    }

    /// The same from a client that names no version, as those of 0.3 do.
    pub fn post_unversioned(&self, body: impl Into<reqwest::Body>) -> Request {
        let json = "application/json";
        Request(self.http.post(&self.url))
            .header("content-type", json)
            .body(body)
    }

    /// The same on HTTP+JSON.
    pub fn unversioned(&self, method: Method, path: &str) -> Request {
        Request(self.http.request(method, format!("{}{path}", self.url)))
    }

    /// A request of HTTP+JSON.
    pub fn rest(&self, method: Method, path: &str) -> Request {
        self.unversioned(method, path).header("a2a-version", "1.0")
    }

    pub fn request(&self, method: &str, params: &Value) -> Request {
        self.post(json!({ "jsonrpc": "2.0", "id": "q", "method": method, "params": params }).to_string())
    }

    /// The whole answer of a call.
    pub async fn answer(&self, method: &str, params: Value) -> Value {
        let response = self.request(method, &params).send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "application/json");
        response.json().await.unwrap()
    }

    /// The result of a call that succeeds.
    pub async fn call(&self, method: &str, params: Value) -> Value {
        let mut answer = self.answer(method, params).await;
        assert!(answer["error"].is_null(), "{answer}");
        answer["result"].take()
    }

    /// The code and the reason of a call that fails.
    pub async fn refused(&self, method: &str, params: Value) -> (i64, String) {
        let answer = self.answer(method, params).await;
        let error = &answer["error"];
        assert!(error.is_object(), "{answer}");
        (
            error["code"].as_i64().unwrap(),
            error["data"][0]["reason"].as_str().unwrap().to_owned(),
        )
    }

    /// Opens a stream.
    pub async fn stream(&self, method: &str, params: Value) -> Stream {
        Stream::of(self.request(method, &params).send().await.unwrap())
    }

    /// Opens a stream at a position.
    pub async fn resume(&self, method: &str, params: Value, cursor: &str) -> Stream {
        let request = self.request(method, &params).header("last-event-id", cursor);
        Stream::of(request.send().await.unwrap())
    }

    /// A call with an idempotency key: its result, or its error.
    pub async fn keyed(&self, key: &str, params: &Value) -> Result<Value, Value> {
        let request = self.request("SendMessage", params).header("idempotency-key", key);
        let mut answer: Value = request.send().await.unwrap().json().await.unwrap();
        match answer["error"].take() {
            Value::Null => Ok(answer["result"].take()),
            error => Err(error),
        }
    }

    pub async fn task(&self, id: &str) -> Value {
        self.call("GetTask", json!({ "id": id })).await
    }
}

/// Parameters of a message.
pub fn message(text: &str) -> Value {
    json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": text }] } })
}

/// The same in a context.
pub fn message_in(context: &str, text: &str) -> Value {
    let mut params = message(text);
    params["message"]["contextId"] = context.into();
    params
}

/// The same for a task.
pub fn message_to(task: &str, text: &str) -> Value {
    let mut params = message(text);
    params["message"]["taskId"] = task.into();
    params
}

/// One event as it came.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    pub id: Option<String>,
    pub data: String,
}

impl Frame {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap()
    }

    pub fn result(&self) -> Value {
        let mut json = self.json();
        assert!(json["error"].is_null(), "{json}");
        json["result"].take()
    }

    /// The state it shows.
    pub fn state(&self) -> String {
        let result = self.result();
        let status = if result["task"].is_object() {
            &result["task"]
        } else {
            &result["statusUpdate"]
        };
        status["status"]["state"]
            .as_str()
            .unwrap_or_default()
            .trim_start_matches("TASK_STATE_")
            .to_owned()
    }

    /// The text of its status message.
    pub fn text(&self) -> String {
        let result = self.result();
        result["statusUpdate"]["status"]["message"]["parts"][0]["text"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    pub fn cursor(&self) -> String {
        self.id.clone().expect("the event has an id")
    }
}

/// A stream of server-sent events.
pub struct Stream {
    pub response: Response,
    judge: Judge,
    text: String,
    /// Everything that is no event: comments and `retry:`.
    pub asides: Vec<String>,
}

impl Stream {
    pub fn of(reply: Reply) -> Self {
        assert_eq!(reply.headers()["content-type"], "text/event-stream");
        let (response, judge) = reply.into_stream();
        Self {
            response,
            judge,
            text: String::new(),
            asides: Vec::new(),
        }
    }

    /// The next line; `None` at the end.
    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.text.find('\n') {
                let line = self.text[..end].to_owned();
                self.text.drain(..=end);
                return Some(line);
            }
            let bytes = self.response.chunk().await.expect("the stream does not break")?;
            self.text.push_str(std::str::from_utf8(&bytes).unwrap());
        }
    }

    /// The next event; `None` at the end.
    pub async fn next(&mut self) -> Option<Frame> {
        let (mut id, mut data, mut failed) = (None, None, false);
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                // Some clients take any empty line for the end of an event.
                let data: String = data.expect("an empty line ends an event");
                self.judge.event(&data, failed);
                return Some(Frame { id, data });
            } else if let Some(value) = line.strip_prefix("data: ") {
                data = Some(value.to_owned());
            } else if let Some(value) = line.strip_prefix("id: ") {
                id = Some(value.to_owned());
            } else if line.starts_with("event: ") {
                failed = true;
            } else {
                self.asides.push(line);
            }
        }
    }

    /// The next line, which belongs to no event.
    pub async fn aside(&mut self) -> String {
        let line = self.line().await.expect("the stream goes on");
        assert!(line.starts_with(':'), "{line}");
        line
    }

    /// The next event, which must come.
    pub async fn event(&mut self) -> Frame {
        self.next().await.expect("the stream goes on")
    }

    /// All events to the end.
    pub async fn rest(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }

    /// Whether it has ended, without an event.
    pub async fn ended(&mut self) -> bool {
        self.next().await.is_none()
    }
}
