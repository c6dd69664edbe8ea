//! SendMessage and SendStreamingMessage.

use std::collections::BTreeMap;

use a2a::{Message, Part, PartContent, Role};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use relevo_shared::store::HistoryLength;
use serde_json::Value;

use super::reader::{Object, Path, Violations};
use super::tasks::history_length;
use super::{SecretKeys, read, tenant};
use crate::error::ApiError;

/// Longest context id, as the reference server has it.
const LONGEST_CONTEXT: usize = 128;
/// Longest message id.
const LONGEST_MESSAGE: usize = 256;
/// Most items of lists of names: media types, extensions, references.
const MOST_NAMES: usize = 64;

/// ProtoJSON takes both alphabets, with and without padding.
const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// A message for an agent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SendMessage {
    /// Tenant, empty without one.
    pub(crate) tenant: String,
    /// The message. Its context is valid if it is there; its task is whatever the client wrote.
    pub(crate) message: Message,
    /// The media types the client takes.
    pub(crate) accepted_output_modes: Vec<String>,
    /// How much history the answer holds.
    pub(crate) history: HistoryLength,
    /// Whether to answer before the turn has ended.
    pub(crate) return_immediately: bool,
    /// Whether a push config came with it.
    pub(crate) inline_push: bool,
    /// Metadata of the request.
    pub(crate) metadata: BTreeMap<String, Value>,
}

impl SendMessage {
    /// Reads the parameters.
    ///
    /// # Errors
    /// [`ApiError::InvalidParams`] with every field that is wrong.
    pub(crate) fn parse(params: Value, secrets: &SecretKeys) -> Result<Self, ApiError> {
        read(params, |object, violations| {
            let tenant = tenant(object, violations);
            let message = object.required("message", violations).and_then(|value| {
                let path = object.at("message");
                message(value, &path, secrets, violations)
            });
            let configuration = object.take("configuration").map(|value| {
                let path = object.at("configuration");
                Configuration::read(value, &path, violations)
            });
            let configuration = configuration.unwrap_or_default();
            let metadata = object.metadata("metadata", violations).unwrap_or_default();
            secrets.check(&metadata, &object.at("metadata"), violations);
            Self {
                tenant,
                // A message that could not be read is a violation: this stands in for it and never gets out.
                message: message.unwrap_or_else(|| Message::new(Role::Unspecified, Vec::new())),
                accepted_output_modes: configuration.accepted_output_modes,
                history: configuration.history,
                return_immediately: configuration.return_immediately,
                inline_push: configuration.inline_push,
                metadata: metadata.into_iter().collect(),
            }
        })
    }
}

struct Configuration {
    accepted_output_modes: Vec<String>,
    history: HistoryLength,
    return_immediately: bool,
    inline_push: bool,
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            accepted_output_modes: Vec::new(),
            history: HistoryLength::All,
            return_immediately: false,
            inline_push: false,
        }
    }
}

impl Configuration {
    fn read(value: Value, path: &Path<'_>, violations: &mut Violations) -> Self {
        let Some(mut object) = Object::from_value(value, path, violations) else {
            return Self::default();
        };
        Self {
            accepted_output_modes: object
                .texts("acceptedOutputModes", MOST_NAMES, violations)
                .unwrap_or_default(),
            history: history_length(&mut object, violations).unwrap_or(HistoryLength::All),
            return_immediately: object.flag("returnImmediately", violations).unwrap_or(false),
            inline_push: object.take("taskPushNotificationConfig").is_some(),
        }
    }
}

fn message(value: Value, path: &Path<'_>, secrets: &SecretKeys, violations: &mut Violations) -> Option<Message> {
    let mut object = Object::from_value(value, path, violations)?;
    let message_id = object.required_text("messageId", violations).unwrap_or_default();
    if message_id.len() > LONGEST_MESSAGE || message_id.chars().any(char::is_control) {
        let rule = format!("must be at most {LONGEST_MESSAGE} bytes without control characters");
        violations.add(&object.at("messageId"), rule);
    }
    let context_id = object.text("contextId", violations);
    if let Some(id) = &context_id
        && !is_context_id(id)
    {
        violations.add(&object.at("contextId"), context_rule());
    }
    let task_id = object.text("taskId", violations);
    let role = role(&mut object, violations);
    let parts = parts(&mut object, secrets, violations);
    let metadata = object.metadata("metadata", violations);
    if let Some(metadata) = &metadata {
        secrets.check(metadata, &object.at("metadata"), violations);
    }
    Some(Message {
        message_id,
        context_id,
        task_id,
        role,
        parts,
        metadata,
        extensions: object
            .texts("extensions", MOST_NAMES, violations)
            .filter(|list| !list.is_empty()),
        reference_task_ids: object
            .texts("referenceTaskIds", MOST_NAMES, violations)
            .filter(|list| !list.is_empty()),
    })
}

/// The rule for the ids of contexts that clients choose.
pub(super) fn is_context_id(id: &str) -> bool {
    (1..=LONGEST_CONTEXT).contains(&id.len())
        && id
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b':' | b'-'))
}

pub(super) fn context_rule() -> String {
    format!("must be 1 to {LONGEST_CONTEXT} of A-Z, a-z, 0-9, `_`, `.`, `:` and `-`")
}

fn role(object: &mut Object<'_>, violations: &mut Violations) -> Role {
    let rule = match object.required("role", violations) {
        None => return Role::User,
        Some(Value::String(text)) if text == "ROLE_USER" => return Role::User,
        // ProtoJSON also takes the number of an enum value.
        Some(Value::Number(number)) if number.as_i64() == Some(1) => return Role::User,
        Some(Value::String(text)) if text == "ROLE_AGENT" => "must be ROLE_USER: agents answer, clients send",
        Some(_) => "must be ROLE_USER",
    };
    violations.add(&object.at("role"), rule);
    Role::User
}

fn parts(object: &mut Object<'_>, secrets: &SecretKeys, violations: &mut Violations) -> Vec<Part> {
    let values = match object.required("parts", violations) {
        None => return Vec::new(),
        Some(Value::Array(values)) if !values.is_empty() => values,
        Some(other) => {
            let rule = if other.is_array() {
                "must have at least one part"
            } else {
                "must be an array"
            };
            violations.add(&object.at("parts"), rule);
            return Vec::new();
        }
    };
    let path = object.at("parts");
    let part = |(place, value)| part(value, &Path::At(&path, place), secrets, violations);
    values.into_iter().enumerate().filter_map(part).collect()
}

fn part(value: Value, path: &Path<'_>, secrets: &SecretKeys, violations: &mut Violations) -> Option<Part> {
    let mut object = Object::from_value(value, path, violations)?;
    let texts = ["text", "raw", "url"].map(|key| object.take(key).map(|value| (key, value)));
    // `data` is any JSON value, null too.
    let data = object.take_even_null("data").map(|value| ("data", value));
    let mut given = texts.into_iter().flatten().chain(data);
    let content = match (given.next(), given.next()) {
        (Some((key, value)), None) => content(key, value, &object.at(key), violations),
        (None, _) => {
            violations.add(path, "must have one of text, raw, url and data");
            None
        }
        (Some((one, _)), Some((other, _))) => {
            violations.add(
                path,
                format!("must have only one of text, raw, url and data, not both {one} and {other}"),
            );
            None
        }
    };
    let filename = object.text("filename", violations);
    let media_type = object.text("mediaType", violations);
    let metadata = object.metadata("metadata", violations);
    if let Some(metadata) = &metadata {
        secrets.check(metadata, &object.at("metadata"), violations);
    }
    Some(Part {
        content: content?,
        filename,
        media_type,
        metadata,
    })
}

fn content(key: &str, value: Value, path: &Path<'_>, violations: &mut Violations) -> Option<PartContent> {
    match (key, value) {
        ("data", value) => Some(PartContent::Data(value)),
        ("text", Value::String(text)) => Some(PartContent::Text(text)),
        ("url", Value::String(url)) if url.is_empty() => {
            violations.add(path, "must not be empty");
            None
        }
        ("url", Value::String(url)) => Some(PartContent::Url(url)),
        ("raw", Value::String(text)) => {
            let decoded = STANDARD.decode(&text).or_else(|_| URL_SAFE.decode(&text));
            if decoded.is_err() {
                violations.add(path, "must be base64");
            }
            decoded.ok().map(PartContent::Raw)
        }
        _ => {
            violations.add(path, "must be a string");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secrets() -> SecretKeys {
        SecretKeys::new(&["*_security_token".to_owned()])
    }

    fn valid() -> Value {
        json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hi" }] } })
    }

    /// The violated fields when `pointer` of a valid request is replaced (or removed).
    fn violated(pointer: &str, value: Option<Value>) -> Vec<String> {
        let mut params = valid();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let parent = params.pointer_mut(parent).unwrap();
        match (parent, value) {
            (Value::Object(map), Some(value)) => {
                map.insert(key.to_owned(), value);
            }
            (Value::Object(map), None) => {
                map.remove(key);
            }
            (Value::Array(list), Some(value)) => list[key.parse::<usize>().unwrap()] = value,
            other => panic!("{other:?}"),
        }
        match SendMessage::parse(params, &secrets()) {
            Ok(_) => Vec::new(),
            Err(ApiError::InvalidParams(violations)) => violations.into_iter().map(|v| v.field).collect(),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn a_plain_message_is_read() {
        let request = SendMessage::parse(valid(), &secrets()).unwrap();
        assert_eq!(request.message.text(), Some("hi"));
        assert_eq!(
            (request.history, request.return_immediately),
            (HistoryLength::All, false)
        );
    }

    #[test]
    fn every_wrong_field_is_named() {
        for (pointer, value, field) in [
            ("/message", None, "message"),
            ("/message", Some(json!([])), "message"),
            ("/message/messageId", None, "message.messageId"),
            ("/message/messageId", Some(json!("")), "message.messageId"),
            ("/message/messageId", Some(json!("a\u{0}b")), "message.messageId"),
            ("/message/messageId", Some(json!("x".repeat(257))), "message.messageId"),
            ("/message/role", None, "message.role"),
            ("/message/role", Some(json!("ROLE_KING")), "message.role"),
            ("/message/role", Some(json!("ROLE_AGENT")), "message.role"),
            ("/message/role", Some(json!(0)), "message.role"),
            ("/message/parts", None, "message.parts"),
            ("/message/parts", Some(json!([])), "message.parts"),
            ("/message/parts", Some(json!({})), "message.parts"),
            ("/message/parts/0", Some(json!("hi")), "message.parts[0]"),
            ("/message/parts/0", Some(json!({})), "message.parts[0]"),
            (
                "/message/parts/0",
                Some(json!({ "text": "a", "url": "b" })),
                "message.parts[0]",
            ),
            (
                "/message/parts/0",
                Some(json!({ "text": "a", "data": null })),
                "message.parts[0]",
            ),
            ("/message/parts/0", Some(json!({ "text": 1 })), "message.parts[0].text"),
            ("/message/parts/0", Some(json!({ "raw": "!" })), "message.parts[0].raw"),
            ("/message/parts/0", Some(json!({ "url": "" })), "message.parts[0].url"),
            (
                "/message/parts/0",
                Some(json!({ "text": "a", "filename": 1 })),
                "message.parts[0].filename",
            ),
            ("/message/contextId", Some(json!("a/b")), "message.contextId"),
            ("/message/contextId", Some(json!("{}")), "message.contextId"),
            ("/message/contextId", Some(json!("x".repeat(129))), "message.contextId"),
            ("/message/contextId", Some(json!(1)), "message.contextId"),
            ("/message/extensions", Some(json!("x")), "message.extensions"),
            (
                "/message/referenceTaskIds",
                Some(json!([1])),
                "message.referenceTaskIds[0]",
            ),
            ("/message/metadata", Some(json!([])), "message.metadata"),
            ("/metadata", Some(json!(1)), "metadata"),
            ("/tenant", Some(json!({})), "tenant"),
            ("/configuration", Some(json!(1)), "configuration"),
            (
                "/configuration",
                Some(json!({ "historyLength": -1 })),
                "configuration.historyLength",
            ),
            (
                "/configuration",
                Some(json!({ "historyLength": "x" })),
                "configuration.historyLength",
            ),
            (
                "/configuration",
                Some(json!({ "returnImmediately": 1 })),
                "configuration.returnImmediately",
            ),
            (
                "/configuration",
                Some(json!({ "acceptedOutputModes": [1] })),
                "configuration.acceptedOutputModes[0]",
            ),
        ] {
            assert_eq!(violated(pointer, value.clone()), [field], "{pointer} {value:?}");
        }
    }

    #[test]
    fn what_is_unknown_or_empty_is_passed_over() {
        for (pointer, value) in [
            ("/surprise", json!({})),
            ("/message/surprise", json!(1)),
            ("/message/contextId", json!("")),
            ("/message/contextId", json!("a:b.c_d-E")),
            ("/message/taskId", json!("anything")),
            ("/message/metadata", Value::Null),
            ("/message/parts/0", json!({ "data": null })),
            ("/message/parts/0", json!({ "raw": "_-8" })),
            ("/message/parts/0", json!({ "raw": "/+8=" })),
            ("/message/role", json!(1)),
            ("/configuration", json!({ "history_length": 0 })),
        ] {
            assert_eq!(
                violated(pointer, Some(value.clone())),
                Vec::<String>::new(),
                "{pointer} {value}"
            );
        }
    }

    #[test]
    fn credentials_in_metadata_are_refused_at_any_depth() {
        let nested = json!({ "profile": [{ "Cloud_Security_Token": "s3cr3t" }] });
        for (pointer, field) in [("/metadata", "metadata"), ("/message/metadata", "message.metadata")] {
            let fields = violated(pointer, Some(nested.clone()));
            assert_eq!(fields, [format!("{field}.profile[0].Cloud_Security_Token")]);
        }
        let part = json!({ "text": "a", "metadata": { "x_security_token": 1 } });
        assert_eq!(
            violated("/message/parts/0", Some(part)),
            ["message.parts[0].metadata.x_security_token"]
        );
    }
}
