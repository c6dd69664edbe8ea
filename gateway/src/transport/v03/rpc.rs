//! The shapes of A2A 0.3 on JSON-RPC.

use a2a::methods;
use serde_json::{Map, Value, json};

use super::{Fields, change, changed, each, moved, object_of, push_config, rename, translated};

#[cfg(test)]
mod tests;

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
        methods::CREATE_PUSH_CONFIG => {
            let task = params.remove("taskId");
            let mut config = match params.remove("pushNotificationConfig") {
                Some(Value::Object(config)) => config,
                _ => Fields::new(),
            };
            push_config(&mut config);
            config.insert("taskId".to_owned(), task.unwrap_or_default());
            return Value::Object(config);
        }
        methods::GET_PUSH_CONFIG | methods::LIST_PUSH_CONFIGS | methods::DELETE_PUSH_CONFIG => {
            return json!({ "taskId": params.remove("id"), "id": params.remove("pushNotificationConfigId") });
        }
        _ => {}
    }
    Value::Object(params)
}

fn configuration(configuration: &mut Fields) {
    match configuration.remove("blocking") {
        Some(Value::Bool(blocking)) => drop(configuration.insert("returnImmediately".to_owned(), (!blocking).into())),
        Some(Value::Null) | None => {}
        // The reader says what it must be.
        Some(other) => drop(configuration.insert("returnImmediately".to_owned(), other)),
    }
    rename(configuration, "pushNotificationConfig", "taskPushNotificationConfig");
    change(configuration, "taskPushNotificationConfig", push_config);
}

fn message(message: &mut Fields) {
    message.remove("kind");
    if let Some(Value::String(role)) = message.get_mut("role") {
        match role.as_str() {
            "user" => "ROLE_USER".clone_into(role),
            "agent" => "ROLE_AGENT".clone_into(role),
            _ => {}
        }
    }
    each(message, "parts", |value| changed(value, part));
}

fn part(part: &mut Fields) {
    part.remove("kind");
    if let Some(Value::Object(mut file)) = part.remove("file") {
        let names = [
            ("bytes", "raw"),
            ("uri", "url"),
            ("mimeType", "mediaType"),
            ("name", "filename"),
        ];
        moved(&mut file, part, names);
    }
}

/// A result or event of 1.0 as one of 0.3; `last`: the stream ends with it.
pub(crate) fn printed(bytes: &[u8], last: bool) -> Vec<u8> {
    translated(bytes, |value| result(value, last))
}

fn result(value: Value, last: bool) -> Value {
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
fn of_kind(kind: &str, value: Value, how: impl FnOnce(&mut Fields)) -> Value {
    changed(value, |fields| {
        how(fields);
        fields.insert("kind".to_owned(), kind.into());
    })
}

fn old_task(task: Value) -> Value {
    of_kind("task", task, |task| {
        change(task, "status", old_status);
        each(task, "artifacts", old_artifact);
        each(task, "history", old_message);
    })
}

fn old_status_update(update: Value, last: bool) -> Value {
    of_kind("status-update", update, |update| {
        change(update, "status", old_status);
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

fn old_status(status: &mut Fields) {
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
    changed(artifact, |fields| each(fields, "parts", old_part))
}

fn old_part(part: Value) -> Value {
    let Value::Object(mut part) = part else { return part };
    let mut old = Map::new();
    if let Some(text) = part.remove("text") {
        old.insert("kind".to_owned(), "text".into());
        old.insert("text".to_owned(), text);
    } else if let Some(data) = part.remove("data") {
        old.insert("kind".to_owned(), "data".into());
        old.insert("data".to_owned(), object_of(data));
    } else {
        let mut file = Map::new();
        let names = [
            ("raw", "bytes"),
            ("url", "uri"),
            ("mediaType", "mimeType"),
            ("filename", "name"),
        ];
        moved(&mut part, &mut file, names);
        old.insert("kind".to_owned(), "file".into());
        old.insert("file".to_owned(), Value::Object(file));
    }
    if let Some(metadata) = part.remove("metadata") {
        old.insert("metadata".to_owned(), metadata);
    }
    Value::Object(old)
}
