//! A2A 0.3 over JSON-RPC: the older shapes, translated into those of 1.0 and back. Pure: JSON in, JSON out.
//!
//! Nothing but shapes is decided here. What a request may say is judged by the reader of all bindings, which sees it as 1.0.

use a2a::methods;
use serde_json::{Map, Value, json};

/// What the card says about it.
pub(crate) const VERSION: &str = "0.3.0";

/// The operation that a method of 0.3 stands for.
pub(crate) fn method(name: &str) -> Option<&'static str> {
    Some(match name {
        "message/send" => methods::SEND_MESSAGE,
        "message/stream" => methods::SEND_STREAMING_MESSAGE,
        "tasks/get" => methods::GET_TASK,
        "tasks/cancel" => methods::CANCEL_TASK,
        "tasks/resubscribe" => methods::SUBSCRIBE_TO_TASK,
        "tasks/pushNotificationConfig/set" => methods::CREATE_PUSH_CONFIG,
        "tasks/pushNotificationConfig/get" => methods::GET_PUSH_CONFIG,
        "tasks/pushNotificationConfig/list" => methods::LIST_PUSH_CONFIGS,
        "tasks/pushNotificationConfig/delete" => methods::DELETE_PUSH_CONFIG,
        "agent/getAuthenticatedExtendedCard" => methods::GET_EXTENDED_AGENT_CARD,
        _ => return None,
    })
}

/// Parameters of an operation as 1.0 has them.
pub(crate) fn params(method: &str, params: Value) -> Value {
    let Value::Object(mut params) = params else {
        return params;
    };
    // 0.3 knows no tenants: a member of that name means nothing.
    params.remove("tenant");
    match method {
        methods::SEND_MESSAGE | methods::SEND_STREAMING_MESSAGE => {
            change(&mut params, "message", message);
            change(&mut params, "configuration", configuration);
        }
        methods::CREATE_PUSH_CONFIG
        | methods::GET_PUSH_CONFIG
        | methods::LIST_PUSH_CONFIGS
        | methods::DELETE_PUSH_CONFIG => {
            let id = if method == methods::CREATE_PUSH_CONFIG {
                "taskId"
            } else {
                "id"
            };
            return json!({ "taskId": params.remove(id), "id": params.remove("pushNotificationConfigId") });
        }
        _ => {}
    }
    Value::Object(params)
}

/// Applies a change to a member that is an object; anything else is left to the reader to refuse.
fn change(object: &mut Map<String, Value>, name: &str, how: impl Fn(&mut Map<String, Value>)) {
    if let Some(Value::Object(member)) = object.get_mut(name) {
        how(member);
    }
}

fn rename(object: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = object.remove(from) {
        object.insert(to.to_owned(), value);
    }
}

fn configuration(configuration: &mut Map<String, Value>) {
    match configuration.remove("blocking") {
        Some(Value::Bool(blocking)) => drop(configuration.insert("returnImmediately".to_owned(), (!blocking).into())),
        Some(Value::Null) | None => {}
        // The reader says what it must be.
        Some(other) => drop(configuration.insert("returnImmediately".to_owned(), other)),
    }
    rename(configuration, "pushNotificationConfig", "taskPushNotificationConfig");
}

fn message(message: &mut Map<String, Value>) {
    message.remove("kind");
    if let Some(Value::String(role)) = message.get_mut("role") {
        match role.as_str() {
            "user" => "ROLE_USER".clone_into(role),
            "agent" => "ROLE_AGENT".clone_into(role),
            _ => {}
        }
    }
    if let Some(Value::Array(parts)) = message.get_mut("parts") {
        for value in parts {
            if let Value::Object(fields) = value {
                part(fields);
            }
        }
    }
}

fn part(part: &mut Map<String, Value>) {
    part.remove("kind");
    let Some(Value::Object(mut file)) = part.remove("file") else {
        return;
    };
    for (from, to) in [
        ("bytes", "raw"),
        ("uri", "url"),
        ("mimeType", "mediaType"),
        ("name", "filename"),
    ] {
        if let Some(value) = file.remove(from) {
            part.insert(to.to_owned(), value);
        }
    }
}

/// The result of an operation, or the event of a stream, as 0.3 has it; `last`: the stream ends with it.
pub(crate) fn result(value: Value, last: bool) -> Value {
    let Value::Object(mut fields) = value else { return value };
    if let Some(update) = fields.remove("statusUpdate") {
        return old_status_update(update, last);
    }
    for (name, how) in [
        ("task", old_task as fn(Value) -> Value),
        ("message", old_message),
        ("artifactUpdate", old_artifact_update),
    ] {
        if let Some(inner) = fields.remove(name) {
            return how(inner);
        }
    }
    // GetTask and CancelTask answer with the task itself.
    old_task(Value::Object(fields))
}

/// An object of a kind.
fn of_kind(kind: &str, value: Value, how: impl Fn(&mut Map<String, Value>)) -> Value {
    let Value::Object(mut fields) = value else { return value };
    how(&mut fields);
    fields.insert("kind".to_owned(), kind.into());
    Value::Object(fields)
}

fn each(object: &mut Map<String, Value>, name: &str, how: impl Fn(Value) -> Value) {
    if let Some(Value::Array(list)) = object.get_mut(name) {
        for item in list {
            *item = how(item.take());
        }
    }
}

fn old_task(task: Value) -> Value {
    of_kind("task", task, |task| {
        old_status(task);
        each(task, "artifacts", old_artifact);
        each(task, "history", old_message);
    })
}

fn old_status_update(update: Value, last: bool) -> Value {
    of_kind("status-update", update, |update| {
        old_status(update);
        update.insert("final".to_owned(), last.into());
    })
}

fn old_artifact_update(update: Value) -> Value {
    of_kind("artifact-update", update, |update| {
        if let Some(artifact) = update.get_mut("artifact") {
            *artifact = old_artifact(artifact.take());
        }
    })
}

/// Changes the status in an object.
fn old_status(object: &mut Map<String, Value>) {
    let Some(Value::Object(status)) = object.get_mut("status") else {
        return;
    };
    if let Some(message) = status.get_mut("message") {
        *message = old_message(message.take());
    }
    let state = status.get("state").and_then(Value::as_str).unwrap_or_default();
    let state = match state.strip_prefix("TASK_STATE_") {
        None | Some("UNSPECIFIED") => "unknown".to_owned(),
        Some(name) => name.to_ascii_lowercase().replace('_', "-"),
    };
    status.insert("state".to_owned(), state.into());
}

fn old_message(message: Value) -> Value {
    of_kind("message", message, |message| {
        let role = if message.get("role").and_then(Value::as_str) == Some("ROLE_USER") {
            "user"
        } else {
            "agent"
        };
        message.insert("role".to_owned(), role.into());
        each(message, "parts", old_part);
    })
}

fn old_artifact(artifact: Value) -> Value {
    let Value::Object(mut fields) = artifact else {
        return artifact;
    };
    each(&mut fields, "parts", old_part);
    Value::Object(fields)
}

fn old_part(part: Value) -> Value {
    let Value::Object(mut part) = part else { return part };
    let mut old = Map::new();
    if let Some(text) = part.remove("text") {
        old.insert("kind".to_owned(), "text".into());
        old.insert("text".to_owned(), text);
    } else if let Some(data) = part.remove("data") {
        // 0.3 has objects only.
        let data = if data.is_object() {
            data
        } else {
            json!({ "value": data })
        };
        old.insert("kind".to_owned(), "data".into());
        old.insert("data".to_owned(), data);
    } else {
        let mut file = Map::new();
        for (from, to) in [
            ("raw", "bytes"),
            ("url", "uri"),
            ("mediaType", "mimeType"),
            ("filename", "name"),
        ] {
            if let Some(value) = part.remove(from) {
                file.insert(to.to_owned(), value);
            }
        }
        old.insert("kind".to_owned(), "file".into());
        old.insert("file".to_owned(), Value::Object(file));
    }
    if let Some(metadata) = part.remove("metadata") {
        old.insert("metadata".to_owned(), metadata);
    }
    Value::Object(old)
}

/// Codes that 0.3 does not know are internal errors there.
pub(crate) fn error(mut error: Value) -> Value {
    if let Some(code) = error
        .get_mut("code")
        .filter(|code| matches!(code.as_i64(), Some(-32008 | -32009)))
    {
        *code = (-32603).into();
    }
    error
}

/// What clients of 0.3 read in a card, beside what it says to others.
pub(crate) fn card(card: &mut Value, url: &str) {
    let Value::Object(fields) = card else { return };
    fields.insert("protocolVersion".to_owned(), VERSION.into());
    fields.insert("url".to_owned(), url.into());
    fields.insert("preferredTransport".to_owned(), "JSONRPC".into());
    fields.insert("supportsAuthenticatedExtendedCard".to_owned(), false.into());
    let interface = json!({ "url": url, "protocolBinding": "JSONRPC", "protocolVersion": "0.3" });
    if let Some(Value::Array(interfaces)) = fields.get_mut("supportedInterfaces") {
        // Last: who knows both versions takes the later one.
        interfaces.push(interface);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_one_of_1_0() {
        let old = json!({
            "tenant": "x",
            "message": { "kind": "message", "role": "user", "messageId": "m", "contextId": "c", "parts": [
                { "kind": "text", "text": "hi", "metadata": { "a": 1 } },
                { "kind": "data", "data": { "b": 2 } },
                { "kind": "file", "file": { "bytes": "AA==", "mimeType": "image/png", "name": "a.png" } },
                { "kind": "file", "file": { "uri": "https://example.com/a" } },
            ] },
            "configuration": { "blocking": false, "historyLength": 3, "acceptedOutputModes": ["text/plain"] },
            "metadata": { "k": "v" },
        });
        let new = json!({
            "message": { "role": "ROLE_USER", "messageId": "m", "contextId": "c", "parts": [
                { "text": "hi", "metadata": { "a": 1 } },
                { "data": { "b": 2 } },
                { "raw": "AA==", "mediaType": "image/png", "filename": "a.png" },
                { "url": "https://example.com/a" },
            ] },
            "configuration": { "returnImmediately": true, "historyLength": 3, "acceptedOutputModes": ["text/plain"] },
            "metadata": { "k": "v" },
        });
        assert_eq!(params(methods::SEND_MESSAGE, old), new);
        let push = json!({ "message": {}, "configuration": { "pushNotificationConfig": { "url": "u" } } });
        let read = params(methods::SEND_MESSAGE, push);
        assert_eq!(read["configuration"]["taskPushNotificationConfig"]["url"], "u");
    }

    #[test]
    fn what_is_no_object_is_left_to_the_reader() {
        for odd in [
            json!(null),
            json!([1]),
            json!("x"),
            json!({ "message": 1, "configuration": [] }),
        ] {
            assert_eq!(params(methods::SEND_MESSAGE, odd.clone()), odd);
        }
        let odd = json!({ "message": { "parts": [1, { "file": 7 }], "role": 3 } });
        assert_eq!(
            params(methods::SEND_MESSAGE, odd)["message"],
            json!({ "parts": [1, {}], "role": 3 })
        );
    }

    #[test]
    fn a_task_is_shown_as_one_of_0_3() {
        let message = json!({ "messageId": "m", "role": "ROLE_AGENT", "parts": [{ "text": "x" }, { "data": [1] }] });
        let old_message = json!({ "kind": "message", "messageId": "m", "role": "agent", "parts": [
            { "kind": "text", "text": "x" }, { "kind": "data", "data": { "value": [1] } },
        ] });
        let task = json!({
            "id": "t", "contextId": "c",
            "status": { "state": "TASK_STATE_INPUT_REQUIRED", "message": message, "timestamp": "2026-01-01T00:00:00.000Z" },
            "artifacts": [{ "artifactId": "a", "parts": [{ "raw": "AA==", "mediaType": "x/y", "filename": "f" }] }],
            "history": [message],
        });
        let old = json!({
            "kind": "task", "id": "t", "contextId": "c",
            "status": { "state": "input-required", "message": old_message, "timestamp": "2026-01-01T00:00:00.000Z" },
            "artifacts": [{ "artifactId": "a", "parts": [
                { "kind": "file", "file": { "bytes": "AA==", "mimeType": "x/y", "name": "f" } },
            ] }],
            "history": [old_message],
        });
        assert_eq!(result(task.clone(), true), old);
        assert_eq!(result(json!({ "task": task }), false), old);
        assert_eq!(result(json!({ "message": message }), true), old_message);
    }

    #[test]
    fn the_last_status_of_a_stream_says_so() {
        for (state, old) in [
            ("TASK_STATE_SUBMITTED", "submitted"),
            ("TASK_STATE_WORKING", "working"),
            ("TASK_STATE_AUTH_REQUIRED", "auth-required"),
            ("TASK_STATE_INPUT_REQUIRED", "input-required"),
            ("TASK_STATE_CANCELED", "canceled"),
            ("TASK_STATE_UNSPECIFIED", "unknown"),
        ] {
            for last in [false, true] {
                let event =
                    json!({ "statusUpdate": { "taskId": "t", "contextId": "c", "status": { "state": state } } });
                let expected = json!({
                    "kind": "status-update", "taskId": "t", "contextId": "c", "status": { "state": old }, "final": last,
                });
                assert_eq!(result(event, last), expected);
            }
        }
        let event = json!({ "artifactUpdate": { "taskId": "t", "contextId": "c", "append": true,
            "artifact": { "artifactId": "a", "parts": [{ "url": "u" }] } } });
        assert_eq!(
            result(event, false),
            json!({ "kind": "artifact-update", "taskId": "t", "contextId": "c", "append": true,
                "artifact": { "artifactId": "a", "parts": [{ "kind": "file", "file": { "uri": "u" } }] } })
        );
    }

    #[test]
    fn errors_that_0_3_does_not_know_are_internal() {
        assert_eq!(error(json!({ "code": -32009 }))["code"], -32603);
        assert_eq!(error(json!({ "code": -32001 }))["code"], -32001);
    }
}
