//! One caller for every binding: the same operation with the same parameters, and what came back in the same form.

use std::fmt::Write as _;

use a2a_pb::proto;
use reqwest::Method;
use serde_json::{Map, Value, json};
use tonic::Streaming;

use crate::client::{Client, Stream};
use crate::gateway::Gateway;
use crate::grpc_client;
use crate::http::{Reply, Request};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    JsonRpc,
    Rest,
    Grpc,
}

pub const ALL: [Binding; 3] = [Binding::JsonRpc, Binding::Rest, Binding::Grpc];

/// What an error says on every binding.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    pub reason: String,
    pub message: String,
    /// `ErrorInfo` and `BadRequest`.
    pub details: Value,
    /// The binding's own code: of JSON-RPC, HTTP or gRPC.
    pub code: i64,
}

pub type Outcome = Result<Value, Refusal>;

/// Speaks one binding with a gateway.
pub struct Caller {
    pub binding: Binding,
    pub client: Client,
    grpc: grpc_client::Client,
}

/// A stream on any binding.
pub enum Feed {
    Sse(Binding, Stream),
    Grpc(Streaming<proto::StreamResponse>),
}

impl Caller {
    pub fn new(binding: Binding, gateway: &Gateway) -> Self {
        Self::with_headers(binding, gateway, &[])
    }

    /// One whose requests all have these headers.
    pub fn with_headers(binding: Binding, gateway: &Gateway, headers: &[(&'static str, &str)]) -> Self {
        Self {
            binding,
            client: gateway.client_with(headers),
            grpc: grpc_client::Client::with_headers(gateway.grpc, headers),
        }
    }

    pub fn grpc(&self) -> &grpc_client::Client {
        &self.grpc
    }

    /// The answer of a call that answers once.
    pub async fn call(&self, method: &str, params: Value) -> Outcome {
        if self.binding == Binding::Grpc {
            return self.grpc.call(method, params).await;
        }
        let response = self.send(method, params, None).await;
        self.outcome(response).await
    }

    /// A call that must succeed.
    pub async fn result(&self, method: &str, params: Value) -> Value {
        let outcome = self.call(method, params).await;
        outcome.unwrap_or_else(|refusal| panic!("{:?} {method}: {refusal:?}", self.binding))
    }

    /// Opens a stream, at a position if one is given.
    pub async fn open(&self, method: &str, params: Value, cursor: Option<&str>) -> Result<Feed, Refusal> {
        if self.binding == Binding::Grpc {
            return self.grpc.open(method, params, cursor).await.map(Feed::Grpc);
        }
        let response = self.send(method, params, cursor).await;
        if response.headers()["content-type"] == "text/event-stream" {
            return Ok(Feed::Sse(self.binding, Stream::of(response)));
        }
        match self.outcome(response).await {
            Err(refusal) => Err(refusal),
            Ok(answer) => panic!("{:?} {method}: not a stream: {answer}", self.binding),
        }
    }

    async fn send(&self, method: &str, params: Value, cursor: Option<&str>) -> Reply {
        let mut request = match self.binding {
            Binding::JsonRpc => self.client.request(method, &params),
            Binding::Rest => self.rest(method, params),
            Binding::Grpc => panic!("gRPC has a client of its own"),
        };
        if let Some(cursor) = cursor {
            request = request.header("last-event-id", cursor);
        }
        request.send().await.unwrap()
    }

    async fn outcome(&self, response: Reply) -> Outcome {
        let status = response.status();
        let mut answer: Value = response.json().await.unwrap();
        let error = answer["error"].take();
        match self.binding {
            Binding::JsonRpc if error.is_null() => Ok(answer["result"].take()),
            Binding::JsonRpc => Err(refusal(&error, &error["data"])),
            Binding::Rest if status.is_success() => {
                answer.as_object_mut().unwrap().remove("error");
                Ok(answer)
            }
            Binding::Rest => {
                assert_eq!(error["code"], status.as_u16(), "{error}");
                Err(refusal(&error, &error["details"]))
            }
            Binding::Grpc => panic!("gRPC has a client of its own"),
        }
    }

    /// The request as HTTP+JSON has it: fields in the path, the others in the query or the body.
    pub fn rest(&self, method: &str, params: Value) -> Request {
        let mut fields = match params {
            Value::Object(fields) => fields,
            Value::Null => Map::new(),
            other => panic!("{other}"),
        };
        let mut field = |name: &str| -> String {
            let value = fields.remove(name).unwrap_or_default();
            encode(value.as_str().unwrap_or_default())
        };
        let tenant = field("tenant");
        let (verb, path) = match method {
            "SendMessage" => (Method::POST, "message:send".to_owned()),
            "SendStreamingMessage" => (Method::POST, "message:stream".to_owned()),
            "GetTask" => (Method::GET, format!("tasks/{}", field("id"))),
            "ListTasks" => (Method::GET, "tasks".to_owned()),
            "CancelTask" => (Method::POST, format!("tasks/{}:cancel", field("id"))),
            "SubscribeToTask" => (Method::GET, format!("tasks/{}:subscribe", field("id"))),
            "CreateTaskPushNotificationConfig" => (Method::POST, configs(&field("taskId"))),
            "ListTaskPushNotificationConfigs" => (Method::GET, configs(&field("taskId"))),
            "GetTaskPushNotificationConfig" => (Method::GET, format!("{}/{}", configs(&field("taskId")), field("id"))),
            "DeleteTaskPushNotificationConfig" => {
                (Method::DELETE, format!("{}/{}", configs(&field("taskId")), field("id")))
            }
            "GetExtendedAgentCard" => (Method::GET, "extendedAgentCard".to_owned()),
            other => panic!("{other}"),
        };
        let path = if tenant.is_empty() {
            path
        } else {
            format!("{tenant}/{path}")
        };
        let request = self.client.rest(verb.clone(), &path);
        if verb == Method::POST {
            return request
                .header("content-type", "application/json")
                .body(Value::Object(fields).to_string());
        }
        let text = |value: Value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let query: Vec<(String, String)> = fields.into_iter().map(|(name, value)| (name, text(value))).collect();
        request.query(&query)
    }
}

impl Feed {
    /// The next event with its position; `None` at the end.
    pub async fn next(&mut self) -> Option<(Value, String)> {
        match self {
            Self::Grpc(stream) => stream.message().await.unwrap().as_ref().map(grpc_client::event),
            Self::Sse(binding, stream) => {
                let frame = stream.next().await?;
                let event = if *binding == Binding::Rest {
                    frame.json()
                } else {
                    frame.result()
                };
                Some((event, frame.cursor()))
            }
        }
    }

    /// All events to the end.
    pub async fn rest(&mut self) -> Vec<(Value, String)> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}

fn configs(task: &str) -> String {
    format!("tasks/{task}/pushNotificationConfigs")
}

fn refusal(error: &Value, details: &Value) -> Refusal {
    assert!(error["code"].is_i64(), "{error}");
    Refusal {
        reason: details[0]["reason"].as_str().unwrap_or_default().to_owned(),
        message: error["message"].as_str().unwrap().to_owned(),
        details: details.clone(),
        code: error["code"].as_i64().unwrap(),
    }
}

/// A text as one segment of a path.
pub fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' => encoded.push(char::from(byte)),
            other => write!(encoded, "%{other:02X}").unwrap(),
        }
    }
    encoded
}

/// Ids, positions and times by the order of their first appearance: what is left is what two runs must have in common.
#[derive(Debug, Default)]
pub struct Names(Vec<String>);

impl Names {
    pub fn replace(&mut self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&text)),
            Value::Array(items) => items.into_iter().map(|item| self.replace(item)).collect(),
            Value::Object(members) => {
                let named = |(name, member)| (name, self.replace(member));
                // gRPC cannot tell an empty list from none.
                let told = |(name, member): &(String, Value)| name != "artifacts" || *member != json!([]);
                Value::Object(members.into_iter().filter(told).map(named).collect())
            }
            // gRPC has doubles only.
            Value::Number(number) => match number.as_f64() {
                Some(double) if double.fract() == 0.0 && double.abs() < 9e15 => format!("{double:.0}").parse().unwrap(),
                _ => Value::Number(number),
            },
            other => other,
        }
    }

    fn text(&mut self, text: &str) -> String {
        if text.len() >= 20 && text.ends_with('Z') && text.as_bytes()[10] == b'T' {
            return "<time>".to_owned();
        }
        let is_uuid = |part: &str| {
            part.split('-').map(str::len).eq([8, 4, 4, 4, 12])
                && part.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit())
        };
        match text.get(..36) {
            Some(id) if is_uuid(id) => {
                let place = self.0.iter().position(|known| known == id).unwrap_or_else(|| {
                    self.0.push(id.to_owned());
                    self.0.len() - 1
                });
                // Behind an id stands the number of a message, or a position with a random part.
                let rest = text[36..].split('-').next().unwrap_or_default();
                format!("<id {place}>{rest}")
            }
            _ => text.to_owned(),
        }
    }
}

#[test]
fn names_are_given_in_the_order_of_appearance() {
    let id = "01a22c0a-cb27-7fff-b5e2-511366f7343c";
    let mut names = Names::default();
    let named = names.replace(json!([id, "x", format!("{id}.0"), "2026-11-30T10:39:06.380Z"]));
    assert_eq!(named, json!(["<id 0>", "x", "<id 0>.0", "<time>"]));
}
