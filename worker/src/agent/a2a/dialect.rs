//! Requests to a server and what it answers, in the three ways that are spoken. Pure: JSON in, JSON out.
//!
//! Inside, everything is A2A 1.0. Errors hold at most a short text of the server's.

use a2a::{Message, StreamResponse};
use relevo_shared::domain::wire;
use relevo_shared::platform::egress::{Method, Url};
use serde_json::{Map, Value, json};

use super::card::{Dialect, Interface};
use crate::agent::secrets::Secrets;

/// Most values (numbers, texts, lists, objects) of an answer: each takes far more room than its text.
const MOST_VALUES: usize = 1_000_000;
/// The code of a JSON-RPC server that failed.
const INTERNAL: i64 = -32603;
/// The code of one that does not know the task.
const UNKNOWN_TASK: i64 = -32001;

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ask<'a> {
    /// A turn begins or goes on; `stream`: events are wanted.
    Send {
        message: &'a Message,
        modes: &'a [String],
        stream: bool,
    },
    /// What is the task now?
    Get(&'a str),
    /// It must stop.
    Cancel(&'a str),
    /// Its events from now on.
    Subscribe(&'a str),
}

impl Ask<'_> {
    /// Whether it names a task of the server's, which the server may not know.
    pub(super) fn names_a_task(self) -> bool {
        match self {
            Self::Send { message, .. } => message.task_id.is_some(),
            Self::Get(_) | Self::Cancel(_) | Self::Subscribe(_) => true,
        }
    }
}

/// The server says no, or nothing that can be understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// It does not know the task; its words.
    NotFound(String),
    /// Its own error about what was asked.
    Refused(String),
    /// Its own error about itself: the words are for logs.
    Failed(String),
    /// What it says is not A2A.
    Malformed(&'static str),
}

/// A request as it is sent.
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) body: Option<Vec<u8>>,
}

pub(super) fn request(interface: &Interface, ask: Ask<'_>) -> Request {
    match interface.dialect {
        Dialect::Rest => rest(interface, ask),
        Dialect::Rpc | Dialect::OldRpc => rpc(interface, ask),
    }
}

fn rpc(interface: &Interface, ask: Ask<'_>) -> Request {
    let old = interface.dialect == Dialect::OldRpc;
    let (new_name, old_name) = match ask {
        Ask::Send { stream: true, .. } => ("SendStreamingMessage", "message/stream"),
        Ask::Send { stream: false, .. } => ("SendMessage", "message/send"),
        Ask::Get(_) => ("GetTask", "tasks/get"),
        Ask::Cancel(_) => ("CancelTask", "tasks/cancel"),
        Ask::Subscribe(_) => ("SubscribeToTask", "tasks/resubscribe"),
    };
    let mut params = match ask {
        Ask::Send { message, modes, .. } if old => {
            json!({ "message": old_message(message), "configuration": { "acceptedOutputModes": modes, "blocking": false } })
        }
        Ask::Send { message, modes, .. } => sending(message, modes),
        Ask::Get(task) | Ask::Cancel(task) | Ask::Subscribe(task) => json!({ "id": task }),
    };
    if let (Some(tenant), Value::Object(params)) = (&interface.tenant, &mut params) {
        params.insert("tenant".to_owned(), tenant.as_str().into());
    }
    let name = if old { old_name } else { new_name };
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": name, "params": params });
    Request {
        method: Method::POST,
        url: interface.url.clone(),
        body: Some(body.to_string().into_bytes()),
    }
}

fn rest(interface: &Interface, ask: Ask<'_>) -> Request {
    let mut url = interface.url.clone();
    let (method, path, body) = match ask {
        Ask::Send { message, modes, stream } => {
            let verb = if stream { "message:stream" } else { "message:send" };
            (Method::POST, vec![verb.to_owned()], Some(sending(message, modes)))
        }
        Ask::Get(task) => (Method::GET, vec!["tasks".to_owned(), task.to_owned()], None),
        Ask::Subscribe(task) => (Method::GET, vec!["tasks".to_owned(), format!("{task}:subscribe")], None),
        Ask::Cancel(task) => (
            Method::POST,
            vec!["tasks".to_owned(), format!("{task}:cancel")],
            Some(json!({})),
        ),
    };
    // URLs of these schemes have a path.
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(interface.tenant.iter()).extend(path);
    }
    Request {
        method,
        url,
        body: body.map(|body| body.to_string().into_bytes()),
    }
}

fn sending(message: &Message, modes: &[String]) -> Value {
    let mut configuration = json!({ "returnImmediately": true });
    if !modes.is_empty() {
        configuration = json!({ "returnImmediately": true, "acceptedOutputModes": modes });
    }
    json!({ "message": value_of(message), "configuration": configuration })
}

fn value_of(message: &Message) -> Value {
    // What is printed is JSON.
    serde_json::from_slice(&wire::to_vec(message)).unwrap_or_default()
}

/// A message as 0.3 has it.
fn old_message(message: &Message) -> Value {
    let mut message = value_of(message);
    if let Value::Object(fields) = &mut message {
        fields.insert("kind".to_owned(), "message".into());
        fields.insert("role".to_owned(), "user".into());
        for part in fields
            .get_mut("parts")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            *part = old_part(part.take());
        }
    }
    message
}

fn old_part(part: Value) -> Value {
    let Value::Object(mut part) = part else { return part };
    let mut old = Map::new();
    if let Some(text) = part.remove("text") {
        old.extend([("kind".to_owned(), "text".into()), ("text".to_owned(), text)]);
    } else if let Some(data) = part.remove("data") {
        let data = if data.is_object() {
            data
        } else {
            json!({ "value": data })
        };
        old.extend([("kind".to_owned(), "data".into()), ("data".to_owned(), data)]);
    } else {
        let names = [
            ("raw", "bytes"),
            ("url", "uri"),
            ("mediaType", "mimeType"),
            ("filename", "name"),
        ];
        let file = moved(&mut part, names);
        old.extend([("kind".to_owned(), "file".into()), ("file".to_owned(), file.into())]);
    }
    old.extend(
        part.remove("metadata")
            .map(|metadata| ("metadata".to_owned(), metadata)),
    );
    Value::Object(old)
}

fn moved<const N: usize>(from: &mut Map<String, Value>, names: [(&str, &str); N]) -> Map<String, Value> {
    let moved = names
        .into_iter()
        .filter_map(|(old, new)| Some((new.to_owned(), from.remove(old)?)));
    moved.collect()
}

/// What an answer or an event says. `task`: the answer to a question about a task, which is the task itself in 1.0.
/// Credentials of ours that it quotes are struck out.
pub(super) fn read(dialect: Dialect, body: &[u8], task: bool, secrets: &Secrets) -> Result<StreamResponse, Fault> {
    if values(body) > MOST_VALUES {
        return Err(Fault::Malformed("more than a million values at once"));
    }
    let mut body: Value = serde_json::from_slice(body).map_err(|_error| Fault::Malformed("no JSON"))?;
    secrets.strike_from(&mut body);
    if dialect != Dialect::Rest {
        if let Some(error) = body.get("error").filter(|error| !error.is_null()) {
            return Err(fault(error));
        }
        body = body
            .get_mut("result")
            .map(Value::take)
            .ok_or(Fault::Malformed("neither a result nor an error"))?;
    } else if let Some(error) = body.get("error").filter(|error| error.is_object()) {
        return Err(fault(error));
    }
    let body = match dialect {
        Dialect::OldRpc => upgraded(body)?,
        Dialect::Rpc | Dialect::Rest if task && body.get("task").is_none() => json!({ "task": body }),
        Dialect::Rpc | Dialect::Rest => body,
    };
    serde_json::from_value(body).map_err(|_error| Fault::Malformed("nothing that A2A knows"))
}

/// How many values a text of JSON has at the most, without reading it.
fn values(body: &[u8]) -> usize {
    let (mut count, mut quoted, mut escaped) = (0, false, false);
    for byte in body {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' | b'[' | b'{' if !quoted => count += 1,
            _ => {}
        }
    }
    count
}

/// The error of a server, of either binding.
pub(super) fn fault(error: &Value) -> Fault {
    let code = error.get("code").and_then(Value::as_i64).unwrap_or_default();
    let text = error.get("message").and_then(Value::as_str).unwrap_or("without a word");
    let words = format!("{text} ({code})");
    if code == UNKNOWN_TASK || code == 404 {
        return Fault::NotFound(words);
    }
    if code == INTERNAL || (500..600).contains(&code) {
        return Fault::Failed(words);
    }
    Fault::Refused(words)
}

/// A result of 0.3 as one of 1.0: there its member `kind` says what it is.
fn upgraded(mut value: Value) -> Result<Value, Fault> {
    let name = match value.get("kind").and_then(Value::as_str) {
        Some("task") => "task",
        Some("message") => "message",
        Some("status-update") => "statusUpdate",
        Some("artifact-update") => "artifactUpdate",
        _ => return Err(Fault::Malformed("a result of no kind")),
    };
    modern(&mut value);
    Ok(json!({ name: value }))
}

/// Renames what 0.3 has in other words, at any depth but metadata and data.
fn modern(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(modern),
        Value::Object(fields) => {
            let kind = fields.remove("kind");
            fields.remove("final");
            if let Some(Value::String(state)) = fields.get_mut("state") {
                let word = state.to_ascii_uppercase().replace('-', "_");
                *state = if word == "UNKNOWN" {
                    "TASK_STATE_UNSPECIFIED".to_owned()
                } else {
                    format!("TASK_STATE_{word}")
                };
            }
            if let Some(Value::String(role)) = fields.get_mut("role") {
                *role = format!("ROLE_{}", role.to_ascii_uppercase());
            }
            if kind.as_ref().and_then(Value::as_str) == Some("file")
                && let Some(Value::Object(mut file)) = fields.remove("file")
            {
                let names = [
                    ("bytes", "raw"),
                    ("uri", "url"),
                    ("mimeType", "mediaType"),
                    ("name", "filename"),
                ];
                fields.extend(moved(&mut file, names));
            }
            for (name, member) in fields.iter_mut() {
                if !matches!(name.as_str(), "metadata" | "data" | "text") {
                    modern(member);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use a2a::{Part, Role, TaskState};

    use super::*;

    fn interface(dialect: Dialect) -> Interface {
        Interface {
            url: "http://h/a/".parse().unwrap(),
            dialect,
            tenant: Some("t".to_owned()),
            streaming: true,
        }
    }

    fn heard(dialect: Dialect, body: &str) -> Result<StreamResponse, Fault> {
        read(dialect, body.as_bytes(), false, &Secrets::default())
    }

    #[test]
    fn only_who_was_asked_about_a_task_can_say_that_it_knows_none() {
        let mut message = Message::new(Role::User, vec![Part::text("hello")]);
        let send = |message: &Message| {
            Ask::Send {
                message,
                modes: &[],
                stream: true,
            }
            .names_a_task()
        };
        assert!(!send(&message));
        message.task_id = Some("1".to_owned());
        assert!(send(&message));
        for ask in [Ask::Get("1"), Ask::Cancel("1"), Ask::Subscribe("1")] {
            assert!(ask.names_a_task());
        }
    }

    #[test]
    fn every_binding_has_its_own_requests() {
        let message = Message::new(Role::User, vec![Part::text("hello")]);
        let send = Ask::Send {
            message: &message,
            modes: &[],
            stream: true,
        };
        let sent = |dialect, ask| request(&interface(dialect), ask);
        let body = |request: &Request| serde_json::from_slice::<Value>(request.body.as_ref().unwrap()).unwrap();
        let rpc = body(&sent(Dialect::Rpc, send));
        assert_eq!(
            (rpc["method"].as_str(), rpc["params"]["tenant"].as_str()),
            (Some("SendStreamingMessage"), Some("t"))
        );
        let old = body(&sent(Dialect::OldRpc, send));
        assert_eq!(
            (old["method"].as_str(), old["params"]["message"]["parts"][0].clone()),
            (Some("message/stream"), json!({ "kind": "text", "text": "hello" }))
        );
        for (ask, method, path) in [
            (send, Method::POST, "/a/t/message:stream"),
            (Ask::Get("1/2"), Method::GET, "/a/t/tasks/1%2F2"),
            (Ask::Cancel("1"), Method::POST, "/a/t/tasks/1:cancel"),
            (Ask::Subscribe("1"), Method::GET, "/a/t/tasks/1:subscribe"),
        ] {
            let request = sent(Dialect::Rest, ask);
            assert_eq!((request.method, request.url.path()), (method, path));
        }
    }

    #[test]
    fn what_0_3_says_is_read_as_1_0() {
        let part = json!([{ "kind": "text", "text": "a" }, { "kind": "file", "file": { "uri": "http://x", "mimeType": "image/png" } }, { "kind": "data", "data": { "kind": "x", "state": "y" } }]);
        let update = json!({ "kind": "status-update", "taskId": "t", "contextId": "c", "final": true,
            "status": { "state": "input-required", "message": { "kind": "message", "messageId": "m", "role": "agent", "parts": part } } });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "result": update }).to_string();
        let StreamResponse::StatusUpdate(update) = heard(Dialect::OldRpc, &body).unwrap() else {
            panic!()
        };
        assert_eq!(update.status.state, TaskState::InputRequired);
        let message = update.status.message.unwrap();
        assert_eq!(message.role, Role::Agent);
        assert_eq!(
            serde_json::to_value(&message.parts).unwrap(),
            json!([{ "text": "a" }, { "url": "http://x", "mediaType": "image/png" }, { "data": { "kind": "x", "state": "y" } }])
        );
    }

    #[test]
    fn what_would_take_far_more_room_than_its_text_is_not_read() {
        let list = |text: &str, count: usize| format!("{{\"result\":[{}]}}", vec![text; count].join(","));
        for text in ["0", "[]", "{}", "\"\""] {
            let refused = heard(Dialect::Rpc, &list(text, MOST_VALUES));
            assert_eq!(
                refused.unwrap_err(),
                Fault::Malformed("more than a million values at once")
            );
        }
        assert_eq!(values(br#"{"a":"[,{\",\\","b":["x"]}"#), 3);
        let text = format!(
            r#"{{"result":{{"message":{{"messageId":"m","role":"ROLE_AGENT","parts":[{{"text":"{}"}}]}}}}}}"#,
            ",".repeat(2 * MOST_VALUES)
        );
        assert!(heard(Dialect::Rpc, &text).is_ok());
    }

    #[test]
    fn what_is_no_answer_is_a_fault() {
        for (dialect, body, fault) in [
            (Dialect::Rpc, "<html>", Fault::Malformed("no JSON")),
            (Dialect::Rpc, "{}", Fault::Malformed("neither a result nor an error")),
            (
                Dialect::Rpc,
                r#"{"result":{"statusUpdate":{}}}"#,
                Fault::Malformed("nothing that A2A knows"),
            ),
            (
                Dialect::OldRpc,
                r#"{"result":{}}"#,
                Fault::Malformed("a result of no kind"),
            ),
            (
                Dialect::Rpc,
                r#"{"error":{"code":-32001,"message":"x"}}"#,
                Fault::NotFound("x (-32001)".to_owned()),
            ),
            (
                Dialect::Rest,
                r#"{"error":{"code":404,"message":"x"}}"#,
                Fault::NotFound("x (404)".to_owned()),
            ),
            (
                Dialect::Rpc,
                r#"{"error":{"code":-32602,"message":"bad"}}"#,
                Fault::Refused("bad (-32602)".to_owned()),
            ),
            (
                Dialect::Rpc,
                r#"{"error":{"code":-32603,"message":"db.internal"}}"#,
                Fault::Failed("db.internal (-32603)".to_owned()),
            ),
            (
                Dialect::Rest,
                r#"{"error":{"code":500,"message":"db.internal"}}"#,
                Fault::Failed("db.internal (500)".to_owned()),
            ),
        ] {
            assert_eq!(heard(dialect, body).unwrap_err(), fault, "{body}");
        }
    }
}
