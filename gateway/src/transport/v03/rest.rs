//! The shapes of A2A 0.3 on HTTP+JSON: `ProtoJSON` of its proto file `a2a.v1`.

use a2a::methods;
use serde_json::{Map, Value, json};

use super::{Fields, change, changed, each, moved, object_of, push_config, rename, translated};
use crate::error::ApiError;

#[cfg(test)]
mod tests;

/// The one state that the two protocols spell differently.
const CANCELED: &str = "TASK_STATE_CANCELED";
const CANCELLED: &str = "TASK_STATE_CANCELLED";

/// Parameters of an operation as 1.0 has them: the body or the query, without what the path says.
///
/// # Errors
/// A message whose parts stand under both names, or that does so itself: which of the two counts would be a guess.
pub(crate) fn params(method: &str, mut params: Fields) -> Result<Fields, ApiError> {
    // 0.3 knows no tenants: a member of that name means nothing.
    params.remove("tenant");
    match method {
        methods::SEND_MESSAGE | methods::SEND_STREAMING_MESSAGE => {
            only_one(&params, "", "request", "message")?;
            rename(&mut params, "request", "message");
            if let Some(Value::Object(message)) = params.get("message") {
                only_one(message, "message.", "content", "parts")?;
            }
            change(&mut params, "message", message);
            change(&mut params, "configuration", configuration);
        }
        methods::LIST_TASKS if params.get("status").and_then(Value::as_str) == Some(CANCELLED) => {
            params.insert("status".to_owned(), CANCELED.into());
        }
        methods::CREATE_PUSH_CONFIG => {
            // The request itself, or, as the proto file binds the body, its member `config`.
            let mut params = match params.remove("config") {
                Some(Value::Object(config)) => config,
                _ => params,
            };
            rename(&mut params, "push_notification_config", "pushNotificationConfig");
            let mut config = match params.remove("pushNotificationConfig") {
                Some(Value::Object(config)) => config,
                _ => Fields::new(),
            };
            push_config(&mut config);
            return Ok(config);
        }
        _ => {}
    }
    Ok(params)
}

/// Refuses two members that mean the same, the name of 0.3 and that of 1.0; null is the same as absent.
fn only_one(fields: &Fields, place: &str, old: &str, new: &str) -> Result<(), ApiError> {
    let given = |name| fields.get(name).is_some_and(|value| !value.is_null());
    if given(old) && given(new) {
        let field = format!("{place}{old}");
        return Err(ApiError::invalid(
            field,
            format!("is given twice, as {old} and as {new}"),
        ));
    }
    Ok(())
}

fn configuration(configuration: &mut Fields) {
    // A bool without presence: what is not true is false, and printers leave it out.
    let at_once = match configuration.remove("blocking") {
        Some(Value::Bool(blocking)) => (!blocking).into(),
        Some(Value::Null) | None => true.into(),
        // The reader says what it must be.
        Some(other) => other,
    };
    configuration.insert("returnImmediately".to_owned(), at_once);
    // A number without presence: zero is what was not said.
    for name in ["historyLength", "history_length"] {
        if configuration
            .get(name)
            .is_some_and(|length| *length == 0 || *length == "0")
        {
            configuration.remove(name);
        }
    }
    rename(configuration, "push_notification", "taskPushNotificationConfig");
    rename(configuration, "pushNotification", "taskPushNotificationConfig");
    change(configuration, "taskPushNotificationConfig", push_config);
}

fn message(message: &mut Fields) {
    // 1.0 calls them parts; what 0.3 does not know is passed over.
    message.remove("parts");
    rename(message, "content", "parts");
    each(message, "parts", |value| changed(value, part));
}

fn part(part: &mut Fields) {
    // Where 1.0 has members that 0.3 does not, they mean nothing.
    for unknown in ["raw", "url", "filename", "mediaType", "media_type"] {
        part.remove(unknown);
    }
    // A data part is a message with one field; anything else the reader misses.
    if let Some(Value::Object(mut data)) = part.remove("data") {
        let data = data.remove("data").unwrap_or_else(|| json!({}));
        part.insert("data".to_owned(), data);
    }
    if let Some(Value::Object(mut file)) = part.remove("file") {
        for (snake, camel) in [
            ("file_with_bytes", "fileWithBytes"),
            ("file_with_uri", "fileWithUri"),
            ("mime_type", "mimeType"),
        ] {
            rename(&mut file, snake, camel);
        }
        let names = [
            ("fileWithBytes", "raw"),
            ("fileWithUri", "url"),
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
    changed(value, |fields| {
        // GetTask and CancelTask answer with the task itself.
        if fields.contains_key("status") {
            return old_task(fields);
        }
        change(fields, "task", old_task);
        change(fields, "message", old_message);
        change(fields, "artifactUpdate", |update| {
            change(update, "artifact", old_artifact);
        });
        change(fields, "statusUpdate", |update| {
            change(update, "status", old_status);
            update.insert("final".to_owned(), last.into());
        });
        each(fields, "tasks", |task| changed(task, old_task));
    })
}

fn old_task(task: &mut Fields) {
    change(task, "status", old_status);
    each(task, "artifacts", |artifact| changed(artifact, old_artifact));
    each(task, "history", |message| changed(message, old_message));
}

fn old_status(status: &mut Fields) {
    change(status, "message", old_message);
    if status.get("state").and_then(Value::as_str) == Some(CANCELED) {
        status.insert("state".to_owned(), CANCELLED.into());
    }
}

fn old_message(message: &mut Fields) {
    // Readers of then refuse what they do not know.
    message.remove("referenceTaskIds");
    rename(message, "parts", "content");
    each(message, "content", |part| changed(part, old_part));
}

fn old_artifact(artifact: &mut Fields) {
    each(artifact, "parts", |part| changed(part, old_part));
}

fn old_part(part: &mut Fields) {
    let mut old = Map::new();
    if let Some(text) = part.remove("text") {
        old.insert("text".to_owned(), text);
    } else if let Some(data) = part.remove("data") {
        old.insert("data".to_owned(), json!({ "data": object_of(data) }));
    } else {
        let mut file = Map::new();
        let names = [
            ("raw", "fileWithBytes"),
            ("url", "fileWithUri"),
            ("mediaType", "mimeType"),
            ("filename", "name"),
        ];
        moved(part, &mut file, names);
        old.insert("file".to_owned(), Value::Object(file));
    }
    if let Some(metadata) = part.remove("metadata") {
        old.insert("metadata".to_owned(), metadata);
    }
    *part = old;
}

/// The body of an error: what JSON-RPC has in its envelope, by itself. Fields are named as 0.3 names them.
pub(crate) fn error_body(error: &ApiError) -> Vec<u8> {
    let error = super::error(error.to_json()).to_string();
    error.replace("message.parts", "message.content").into_bytes()
}
