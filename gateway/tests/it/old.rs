//! A caller of A2A 0.3 for both of its bindings: the same call, and what came back in the shapes of JSON-RPC.

use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::binding::encode;
use crate::client::{Client, Frame, Stream};
use crate::http::Request;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    JsonRpc,
    Rest,
}

pub const BOTH: [Binding; 2] = [Binding::JsonRpc, Binding::Rest];

pub struct Caller {
    pub binding: Binding,
    pub client: Client,
}

/// Parameters of a message.
pub fn message(text: &str) -> Value {
    json!({
        "message": { "kind": "message", "messageId": "m", "role": "user", "parts": [{ "kind": "text", "text": text }] },
        "configuration": { "blocking": true },
    })
}

impl Caller {
    pub fn new(binding: Binding, client: Client) -> Self {
        Self { binding, client }
    }

    /// A request as clients of 0.3 send it: without a version. Parameters are those of JSON-RPC.
    pub fn request(&self, method: &str, params: &Value) -> Request {
        match self.binding {
            Binding::JsonRpc => {
                let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
                self.client.post_unversioned(body.to_string())
            }
            Binding::Rest => self.rest(method, params),
        }
    }

    fn rest(&self, method: &str, params: &Value) -> Request {
        let name = params["id"].as_str().or(params["taskId"].as_str()).unwrap_or_default();
        let id = encode(name);
        let configs = format!("tasks/{id}/pushNotificationConfigs");
        let config = format!(
            "{configs}/{}",
            params["pushNotificationConfigId"].as_str().unwrap_or_default()
        );
        let (verb, path) = match method {
            "message/send" => (Method::POST, "message:send".to_owned()),
            "message/stream" => (Method::POST, "message:stream".to_owned()),
            "tasks/get" => (Method::GET, format!("tasks/{id}")),
            "tasks/cancel" => (Method::POST, format!("tasks/{id}:cancel")),
            "tasks/resubscribe" => (Method::GET, format!("tasks/{id}:subscribe")),
            "tasks/pushNotificationConfig/set" => (Method::POST, configs),
            "tasks/pushNotificationConfig/list" => (Method::GET, configs),
            "tasks/pushNotificationConfig/get" => (Method::GET, config),
            "tasks/pushNotificationConfig/delete" => (Method::DELETE, config),
            other => panic!("{other}"),
        };
        let request = self.client.unversioned(verb.clone(), &format!("v1/{path}"));
        if verb != Method::POST {
            let length = params["historyLength"].as_i64();
            return request.query(&length.map(|length| [("historyLength", length)]));
        }
        let body = match method {
            "tasks/cancel" => json!({ "name": format!("tasks/{name}") }),
            "tasks/pushNotificationConfig/set" => json!({ "parent": format!("tasks/{name}"),
                "config": { "pushNotificationConfig": params["pushNotificationConfig"] } }),
            _ => proto_json(params.clone()),
        };
        request
            .header("content-type", "application/json")
            .body(body.to_string())
    }

    /// The result of a call, or the code of its error.
    pub async fn call(&self, method: &str, params: Value) -> Result<Value, i64> {
        self.answer(self.request(method, &params)).await
    }

    pub async fn answer(&self, request: Request) -> Result<Value, i64> {
        let response = request.send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "application/json");
        let ok = response.status().is_success();
        let mut answer: Value = response.json().await.unwrap();
        if self.binding == Binding::JsonRpc {
            assert_eq!(answer["id"], 7);
            let code = answer["error"]["code"].as_i64();
            return code.map_or_else(|| Ok(answer["result"].take()), Err);
        }
        if ok {
            return Ok(of_proto_json(answer));
        }
        assert!(answer["message"].is_string(), "{answer}");
        Err(answer["code"].as_i64().unwrap())
    }

    /// Opens a stream, at a position if one is given.
    pub async fn open(&self, method: &str, params: &Value, cursor: Option<&str>) -> Stream {
        let mut request = self.request(method, params);
        if let Some(cursor) = cursor {
            request = request.header("last-event-id", cursor);
        }
        Stream::of(request.send().await.unwrap())
    }

    /// An event in the shape of JSON-RPC.
    pub fn event(&self, frame: &Frame) -> Value {
        match self.binding {
            Binding::JsonRpc => frame.result(),
            Binding::Rest => of_proto_json(frame.json()),
        }
    }
}

/// JSON of JSON-RPC as that of HTTP+JSON.
fn proto_json(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(proto_json).collect(),
        Value::Object(mut fields) => {
            let kind = fields.remove("kind").unwrap_or_default();
            if kind == "data" {
                let data = fields["data"].take();
                fields["data"] = json!({ "data": data });
                return Value::Object(fields);
            }
            let renamed = fields
                .into_iter()
                .map(|(name, value)| match (name.as_str(), kind.as_str()) {
                    ("role", _) => (name, format!("ROLE_{}", value.as_str().unwrap().to_uppercase()).into()),
                    ("parts", _) => ("content".to_owned(), proto_json(value)),
                    ("bytes", _) => ("fileWithBytes".to_owned(), value),
                    ("uri", _) => ("fileWithUri".to_owned(), value),
                    _ => (name, proto_json(value)),
                });
            Value::Object(renamed.collect())
        }
        other => other,
    }
}

/// The other way round: an answer or event, whose wrapper says its kind.
fn of_proto_json(value: Value) -> Value {
    for (wrapper, kind) in [
        ("task", "task"),
        ("message", "message"),
        ("statusUpdate", "status-update"),
        ("artifactUpdate", "artifact-update"),
    ] {
        if value[wrapper].is_object() {
            assert_eq!(value.as_object().unwrap().len(), 1, "{value}");
            return shaped(value[wrapper].clone(), kind);
        }
    }
    shaped(value, "task")
}

fn shaped(value: Value, kind: &str) -> Value {
    let Value::Object(fields) = value else {
        panic!("{value}")
    };
    let list = |value: Value, how: &dyn Fn(Value) -> Value| {
        let Value::Array(items) = value else { panic!("{value}") };
        Value::Array(items.into_iter().map(how).collect())
    };
    let mut shape: Map<String, Value> = fields
        .into_iter()
        .map(|(name, value)| match name.as_str() {
            "status" => (name, status(value)),
            "artifact" => (name, artifact(value)),
            "artifacts" => (name, list(value, &artifact)),
            "history" => (name, list(value, &|message| shaped(message, "message"))),
            "content" => ("parts".to_owned(), list(value, &part)),
            "role" => (
                name,
                value
                    .as_str()
                    .unwrap()
                    .trim_start_matches("ROLE_")
                    .to_lowercase()
                    .into(),
            ),
            _ => (name, value),
        })
        .collect();
    shape.insert("kind".to_owned(), kind.into());
    Value::Object(shape)
}

fn artifact(mut artifact: Value) -> Value {
    let parts = artifact["parts"].as_array().unwrap().iter().cloned().map(part);
    artifact["parts"] = parts.collect();
    artifact
}

fn status(mut status: Value) -> Value {
    let state = status["state"].as_str().unwrap().trim_start_matches("TASK_STATE_");
    // The proto file of 0.3 has two of them.
    let state = state.replace("CANCELLED", "CANCELED").replace('_', "-").to_lowercase();
    status["state"] = state.into();
    if status["message"].is_object() {
        status["message"] = shaped(status["message"].take(), "message");
    }
    status
}

fn part(mut part: Value) -> Value {
    let fields = part.as_object_mut().unwrap();
    if let Some(Value::Object(mut data)) = fields.remove("data") {
        fields.insert("data".to_owned(), data.remove("data").unwrap());
        fields.insert("kind".to_owned(), "data".into());
    } else if let Some(Value::Object(file)) = fields.remove("file") {
        let file = file.into_iter().map(|(name, value)| match name.as_str() {
            "fileWithBytes" => ("bytes".to_owned(), value),
            "fileWithUri" => ("uri".to_owned(), value),
            _ => (name, value),
        });
        fields.insert("file".to_owned(), Value::Object(file.collect()));
        fields.insert("kind".to_owned(), "file".into());
    } else {
        fields.insert("kind".to_owned(), "text".into());
    }
    part
}
