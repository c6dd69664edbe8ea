//! What replies and events of A2A 1.0 must look like: the JSON schemas that are published with it, made as strict as the
//! proto file.
//!
//! `a2a.schema.json` is the bundle of 1.0.0, which is not normative: it describes what ProtoJSON reads, both spellings of every
//! name and numbers as texts included, and says of nothing that it is required. What the proto file says of printing is added here.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "the bundle is part of the build, and a test fails by panicking"
)]

use std::collections::HashMap;
use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::{Value, json};

/// What something is judged as: the name of its schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// An agent card.
    Card,
    /// A push config.
    Config,
    /// A list of them.
    Configs,
    /// An event of a stream.
    Event,
    /// A page of tasks.
    Page,
    /// The answer to a message.
    Sent,
    /// A task.
    Task,
    /// An error object of JSON-RPC.
    RpcError,
    /// The body of an error on HTTP+JSON.
    RestError,
}

impl Shape {
    fn name(self) -> &'static str {
        match self {
            Self::Card => "Agent Card",
            Self::Config => "Task Push Notification Config",
            Self::Configs => "List Task Push Notification Configs Response",
            Self::Event => "Stream Response",
            Self::Page => "List Tasks Response",
            Self::Sent => "Send Message Response",
            Self::Task => "Task",
            Self::RpcError => "Rpc Error",
            Self::RestError => "Rest Error",
        }
    }
}

/// Fields that are `REQUIRED` in the proto file.
const REQUIRED: [(&str, &[&str]); 17] = [
    (
        "Agent Card",
        &[
            "name",
            "description",
            "supportedInterfaces",
            "version",
            "capabilities",
            "defaultInputModes",
            "defaultOutputModes",
            "skills",
        ],
    ),
    ("Agent Card Signature", &["protected", "signature"]),
    ("Agent Interface", &["url", "protocolBinding", "protocolVersion"]),
    ("Agent Provider", &["url", "organization"]),
    ("Agent Skill", &["id", "name", "description", "tags"]),
    ("API Key Security Scheme", &["location", "name"]),
    ("Artifact", &["artifactId", "parts"]),
    ("Authentication Info", &["scheme"]),
    ("HTTP Auth Security Scheme", &["scheme"]),
    (
        "List Tasks Response",
        &["tasks", "nextPageToken", "pageSize", "totalSize"],
    ),
    ("Message", &["messageId", "role", "parts"]),
    ("Open Id Connect Security Scheme", &["openIdConnectUrl"]),
    ("Task", &["id", "status"]),
    ("Task Artifact Update Event", &["taskId", "contextId", "artifact"]),
    ("Task Push Notification Config", &["url"]),
    // By our own rule: since when it is so.
    ("Task Status", &["state", "timestamp"]),
    ("Task Status Update Event", &["taskId", "contextId", "status"]),
];

/// Of which exactly one member is there.
const ONE_OF: [(&str, &[&str]); 4] = [
    ("Part", &["text", "raw", "url", "data"]),
    (
        "Security Scheme",
        &[
            "apiKeySecurityScheme",
            "httpAuthSecurityScheme",
            "oauth2SecurityScheme",
            "openIdConnectSecurityScheme",
            "mtlsSecurityScheme",
        ],
    ),
    ("Send Message Response", &["task", "message"]),
    (
        "Stream Response",
        &["task", "message", "statusUpdate", "artifactUpdate"],
    ),
];

static VALIDATORS: LazyLock<HashMap<&str, Validator>> = LazyLock::new(|| {
    let definitions = definitions();
    let shapes = [
        Shape::Card,
        Shape::Config,
        Shape::Configs,
        Shape::Event,
        Shape::Page,
        Shape::Sent,
        Shape::Task,
        Shape::RpcError,
        Shape::RestError,
    ];
    let validator = |shape: Shape| {
        let reference = format!("#/definitions/{}", shape.name().replace(' ', ""));
        let schema = json!({ "$ref": reference, "definitions": definitions });
        (shape.name(), jsonschema::validator_for(&schema).unwrap())
    };
    shapes.map(validator).into_iter().collect()
});

/// The bundle's definitions and ours, by their names without spaces.
fn definitions() -> Value {
    let bundle: Value = serde_json::from_str(include_str!("../a2a.schema.json")).unwrap();
    let mut definitions = bundle["definitions"].clone();
    let all = definitions.as_object_mut().unwrap();
    for (name, fields) in REQUIRED {
        all[name]["required"] = json!(fields);
    }
    for (name, members) in ONE_OF {
        let one: Vec<Value> = members.iter().map(|member| json!({ "required": [member] })).collect();
        all[name]["oneOf"] = one.into();
    }
    // Section 5.6.1: UTC with `Z`, and by our own rule three digits of milliseconds.
    all["Timestamp"]["pattern"] = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$".into();
    // Section 22, 10: lists that are required have members, except those that find nothing.
    for (name, list) in [
        ("Message", "parts"),
        ("Artifact", "parts"),
        ("Agent Card", "supportedInterfaces"),
    ] {
        all[name]["properties"][list]["minItems"] = 1.into();
    }
    let detail = json!({ "type": "object", "required": ["@type"], "properties": { "@type": { "type": "string" } } });
    let details = json!({ "type": "array", "minItems": 1, "items": detail });
    let text = json!({ "type": "string", "minLength": 1 });
    all.insert(
        "Rpc Error".to_owned(),
        json!({
            "type": "object", "additionalProperties": false, "required": ["code", "message", "data"],
            "properties": { "code": { "type": "integer" }, "message": text, "data": details },
        }),
    );
    let status = json!({
        "type": "object", "additionalProperties": false, "required": ["code", "status", "message", "details"],
        "properties": { "code": { "type": "integer" }, "status": text, "message": text, "details": details },
    });
    all.insert(
        "Rest Error".to_owned(),
        json!({
            "type": "object", "additionalProperties": false, "required": ["error"], "properties": { "error": status },
        }),
    );
    let named = std::mem::take(all)
        .into_iter()
        .map(|(name, schema)| (name.replace(' ', ""), strict(schema)));
    Value::Object(named.collect())
}

/// What is printed has one spelling: no names of the proto file, no numbers as texts, no enum values as numbers.
fn strict(schema: Value) -> Value {
    match schema {
        Value::Array(items) => items.into_iter().map(strict).collect(),
        Value::Object(mut fields) => {
            // The other spelling of a name stands among the patterns.
            if fields.contains_key("additionalProperties") {
                fields.remove("patternProperties");
            }
            fields.remove("$schema");
            if let Some(Value::Array(choices)) = fields.get_mut("anyOf") {
                let is = |choice: &Value, kind: &str| choice["type"] == kind;
                let of_enum = choices.iter().any(|choice| choice.get("enum").is_some());
                choices.retain(|choice| is(choice, if of_enum { "string" } else { "integer" }));
            }
            if let Some(Value::String(reference)) = fields.get_mut("$ref") {
                let name = reference
                    .trim_end_matches(".jsonschema.json")
                    .rsplit('.')
                    .next()
                    .unwrap();
                *reference = format!("#/definitions/{name}");
            }
            Value::Object(fields.into_iter().map(|(name, value)| (name, strict(value))).collect())
        }
        other => other,
    }
}

/// What is wrong with a value, if something is.
pub fn fault(shape: Shape, value: &Value) -> Option<String> {
    let fault = VALIDATORS[shape.name()].iter_errors(value).next()?;
    Some(format!(
        "{} at {:?} of a {shape:?}: {value}",
        fault,
        fault.instance_path().to_string()
    ))
}

/// What a method of JSON-RPC answers with, each event of it where it is a stream.
pub fn of_method(method: &str) -> Option<Shape> {
    Some(match method {
        "SendMessage" => Shape::Sent,
        "SendStreamingMessage" | "SubscribeToTask" => Shape::Event,
        "GetTask" | "CancelTask" => Shape::Task,
        "ListTasks" => Shape::Page,
        "CreateTaskPushNotificationConfig" | "GetTaskPushNotificationConfig" => Shape::Config,
        "ListTaskPushNotificationConfigs" => Shape::Configs,
        "GetExtendedAgentCard" => Shape::Card,
        _ => return None,
    })
}

/// Fails the test that got a value which is not of its shape.
pub fn judge(shape: Shape, value: &Value) {
    if let Some(fault) = fault(shape, value) {
        panic!("{fault}");
    }
}

/// The same of an answer or event of JSON-RPC: the envelope, and what is in it where that is known.
pub fn judge_envelope(value: &Value, shape: Option<Shape>) {
    let members = value.as_object().expect("the envelope is an object");
    let mut names: Vec<&str> = members.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(value["jsonrpc"], "2.0", "{value}");
    match names.as_slice() {
        ["error", "id", "jsonrpc"] => judge(Shape::RpcError, &value["error"]),
        ["id", "jsonrpc", "result"] => {
            if let Some(shape) = shape {
                judge(shape, &value["result"]);
            }
        }
        _ => panic!("not an envelope: {value}"),
    }
}

/// A card without what it says to clients of A2A 0.3, which 1.0 does not know.
pub fn without_0_3(mut card: Value) -> Value {
    let Some(fields) = card.as_object_mut() else {
        return card;
    };
    for name in [
        "protocolVersion",
        "url",
        "preferredTransport",
        "additionalInterfaces",
        "supportsAuthenticatedExtendedCard",
        "security",
    ] {
        fields.remove(name);
    }
    if let Some(schemes) = fields.get_mut("securitySchemes").and_then(Value::as_object_mut) {
        for scheme in schemes.values_mut().filter_map(Value::as_object_mut) {
            scheme.retain(|name, _| name.ends_with("SecurityScheme"));
        }
    }
    card
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> Value {
        json!({ "id": "t", "contextId": "c", "status": {
            "state": "TASK_STATE_WORKING", "timestamp": "2026-11-30T10:39:06.380Z",
            "message": { "messageId": "m", "role": "ROLE_AGENT", "parts": [{ "data": null }], "metadata": { "a_b": [] } },
        } })
    }

    fn with(pointer: &str, value: Value) -> Value {
        let mut task = task();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        task.pointer_mut(parent).unwrap()[key] = value;
        task
    }

    #[test]
    fn what_is_right_is_right() {
        assert_eq!(fault(Shape::Task, &task()), None);
        assert_eq!(fault(Shape::Sent, &json!({ "task": task() })), None);
        let page = json!({ "tasks": [], "nextPageToken": "", "pageSize": 1, "totalSize": 0 });
        assert_eq!(fault(Shape::Page, &page), None);
    }

    #[test]
    fn everything_that_the_proto_file_forbids_is_found() {
        for (what, broken) in [
            ("a name of nobody's", with("/kind", json!("task"))),
            ("the spelling of the proto file", with("/context_id", json!("c"))),
            ("null for unset", with("/history", json!(null))),
            ("a number for a state", with("/status/state", json!(2))),
            ("a state of 0.3", with("/status/state", json!("working"))),
            (
                "an offset",
                with("/status/timestamp", json!("2026-11-30T10:39:06.380+00:00")),
            ),
            (
                "no milliseconds",
                with("/status/timestamp", json!("2026-11-30T10:39:06Z")),
            ),
            ("a part of no kind", with("/status/message/parts", json!([{}]))),
            (
                "a part of two kinds",
                with("/status/message/parts", json!([{ "text": "", "url": "" }])),
            ),
            ("no parts", with("/status/message/parts", json!([]))),
            ("a role of nobody's", with("/status/message/role", json!("ROLE_X"))),
            ("an empty message", with("/status/message", json!({}))),
            ("no status", json!({ "id": "t" })),
            (
                "a status of no time",
                json!({ "id": "t", "status": { "state": "TASK_STATE_WORKING" } }),
            ),
        ] {
            assert!(fault(Shape::Task, &broken).is_some(), "{what}");
        }
        for (shape, broken) in [
            (Shape::Sent, json!({})),
            (
                Shape::Sent,
                json!({ "task": task(), "message": task()["status"]["message"] }),
            ),
            (
                Shape::Event,
                json!({ "statusUpdate": { "taskId": "t", "status": task()["status"] } }),
            ),
            (Shape::Page, json!({ "tasks": [], "pageSize": 1, "totalSize": 0 })),
            (
                Shape::Page,
                json!({ "tasks": [], "nextPageToken": "", "pageSize": "1", "totalSize": 0 }),
            ),
            (Shape::RpcError, json!({ "code": -32603, "message": "x" })),
            (
                Shape::RestError,
                json!({ "error": { "code": 404, "message": "x", "details": [] } }),
            ),
            (Shape::Card, json!({ "name": "x" })),
        ] {
            assert!(fault(shape, &broken).is_some(), "{shape:?} {broken}");
        }
    }
}
