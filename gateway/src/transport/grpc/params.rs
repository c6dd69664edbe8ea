//! Requests of gRPC in the form that the reader of requests knows: ProtoJSON, so that one set of rules judges all bindings.

use a2a_pb::proto::part::Content;
use a2a_pb::proto::{
    CancelTaskRequest, GetTaskRequest, ListTasksRequest, Message, Part, SendMessageConfiguration, SendMessageRequest,
    SubscribeToTaskRequest,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, SecondsFormat};
use prost_types::value::Kind;
use prost_types::{Struct, Timestamp};
use serde_json::{Map, Number, Value};

use crate::request::{Path, Violations, whole};

/// The parameters of an operation. What JSON has no form for is a violation, with its place.
pub(super) trait Params {
    fn params(self, violations: &mut Violations) -> Value;
}

/// An object in the making. What is at its default is left out: it says nothing.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn set(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    fn some(self, name: &str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.set(name, value),
            None => self,
        }
    }

    fn text(self, name: &str, text: String) -> Self {
        self.some(name, Some(text).filter(|text| !text.is_empty()))
    }

    fn texts(self, name: &str, texts: Vec<String>) -> Self {
        self.some(name, Some(texts).filter(|texts| !texts.is_empty()))
    }

    fn metadata(self, metadata: Option<Struct>, parent: &Path<'_>, violations: &mut Violations) -> Self {
        let path = Path::Key(parent, "metadata");
        self.some("metadata", metadata.map(|fields| object(fields, &path, violations)))
    }

    fn into_value(self) -> Value {
        Value::Object(self.0)
    }
}

fn object(fields: Struct, path: &Path<'_>, violations: &mut Violations) -> Value {
    let mut map = Map::new();
    for (name, member) in fields.fields {
        let member = value(member, &Path::Key(path, &name), violations);
        map.insert(name, member);
    }
    Value::Object(map)
}

fn value(value: prost_types::Value, path: &Path<'_>, violations: &mut Violations) -> Value {
    match value.kind {
        // Clients that make their messages of JSON say null by no kind at all.
        Some(Kind::NullValue(_)) | None => Value::Null,
        Some(Kind::BoolValue(flag)) => Value::Bool(flag),
        Some(Kind::NumberValue(number)) => self::number(number).map_or_else(
            || {
                violations.add(path, "must be a finite number");
                Value::Null
            },
            Value::Number,
        ),
        Some(Kind::StringValue(text)) => Value::String(text),
        Some(Kind::StructValue(fields)) => object(fields, path, violations),
        Some(Kind::ListValue(list)) => {
            let items = list.values.into_iter().enumerate();
            items
                .map(|(place, item)| self::value(item, &Path::At(path, place), violations))
                .collect()
        }
    }
}

/// A number as JSON: gRPC has doubles only, and 1 is what clients of the other bindings write for one.
fn number(number: f64) -> Option<Number> {
    whole(number).map_or_else(|| Number::from_f64(number), |whole| Some(whole.into()))
}

impl Params for SendMessageRequest {
    fn params(self, violations: &mut Violations) -> Value {
        Fields::default()
            .text("tenant", self.tenant)
            .some("message", self.message.map(|sent| message(sent, violations)))
            .some("configuration", self.configuration.map(configuration))
            .metadata(self.metadata, &Path::Root, violations)
            .into_value()
    }
}

fn configuration(configuration: SendMessageConfiguration) -> Value {
    // That there is one is all that matters of a push config.
    let push = configuration
        .task_push_notification_config
        .map(|_| Fields::default().into_value());
    Fields::default()
        .texts("acceptedOutputModes", configuration.accepted_output_modes)
        .some("taskPushNotificationConfig", push)
        .some("historyLength", configuration.history_length)
        .set("returnImmediately", configuration.return_immediately)
        .into_value()
}

fn message(message: Message, violations: &mut Violations) -> Value {
    let path = Path::Key(&Path::Root, "message");
    let list = Path::Key(&path, "parts");
    let parts = message.parts.into_iter().enumerate();
    let parts: Vec<Value> = parts
        .map(|(place, sent)| part(sent, &Path::At(&list, place), violations))
        .collect();
    Fields::default()
        .text("messageId", message.message_id)
        .text("contextId", message.context_id)
        .text("taskId", message.task_id)
        .set("role", message.role)
        .set("parts", parts)
        .metadata(message.metadata, &path, violations)
        .texts("extensions", message.extensions)
        .texts("referenceTaskIds", message.reference_task_ids)
        .into_value()
}

fn part(part: Part, path: &Path<'_>, violations: &mut Violations) -> Value {
    let fields = Fields::default();
    let fields = match part.content {
        Some(Content::Text(text)) => fields.set("text", text),
        Some(Content::Raw(bytes)) => fields.set("raw", STANDARD.encode(bytes)),
        Some(Content::Url(url)) => fields.set("url", url),
        Some(Content::Data(data)) => fields.set("data", value(data, &Path::Key(path, "data"), violations)),
        None => fields,
    };
    fields
        .text("filename", part.filename)
        .text("mediaType", part.media_type)
        .metadata(part.metadata, path, violations)
        .into_value()
}

impl Params for GetTaskRequest {
    fn params(self, _: &mut Violations) -> Value {
        Fields::default()
            .text("tenant", self.tenant)
            .text("id", self.id)
            .some("historyLength", self.history_length)
            .into_value()
    }
}

impl Params for ListTasksRequest {
    fn params(self, _: &mut Violations) -> Value {
        Fields::default()
            .text("tenant", self.tenant)
            .text("contextId", self.context_id)
            .set("status", self.status)
            .some("pageSize", self.page_size)
            .text("pageToken", self.page_token)
            .some("historyLength", self.history_length)
            .some(
                "statusTimestampAfter",
                self.status_timestamp_after.map(|time| timestamp(&time)),
            )
            .some("includeArtifacts", self.include_artifacts)
            .into_value()
    }
}

/// What is no moment becomes a text that the reader refuses.
fn timestamp(time: &Timestamp) -> String {
    let nanos = u32::try_from(time.nanos).unwrap_or(u32::MAX);
    DateTime::from_timestamp(time.seconds, nanos)
        .map_or_else(String::new, |time| time.to_rfc3339_opts(SecondsFormat::AutoSi, true))
}

impl Params for CancelTaskRequest {
    fn params(self, violations: &mut Violations) -> Value {
        Fields::default()
            .text("tenant", self.tenant)
            .text("id", self.id)
            .metadata(self.metadata, &Path::Root, violations)
            .into_value()
    }
}

impl Params for SubscribeToTaskRequest {
    fn params(self, _: &mut Violations) -> Value {
        Fields::default()
            .text("tenant", self.tenant)
            .text("id", self.id)
            .into_value()
    }
}

/// Of what is refused before anything is looked at, the tenant.
pub(super) struct Tenant(pub(super) String);

impl Params for Tenant {
    fn params(self, _: &mut Violations) -> Value {
        Fields::default().text("tenant", self.0).into_value()
    }
}

#[cfg(test)]
mod hostile;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::error::ApiError;

    #[test]
    fn what_is_unset_is_left_out_and_the_rest_is_protojson() {
        let sent = SendMessageRequest {
            message: Some(Message {
                message_id: "m".to_owned(),
                role: 1,
                parts: vec![
                    Part {
                        content: Some(Content::Raw(vec![255])),
                        filename: "f".to_owned(),
                        ..Part::default()
                    },
                    Part::default(),
                ],
                ..Message::default()
            }),
            ..SendMessageRequest::default()
        };
        let expected = json!({ "message": {
            "messageId": "m", "role": 1, "parts": [{ "raw": "/w==", "filename": "f" }, {}],
        } });
        let mut violations = Violations::default();
        assert_eq!(sent.params(&mut violations), expected);
        assert_eq!(GetTaskRequest::default().params(&mut violations), json!({}));
        assert!(violations.into_result(()).is_ok());
    }

    #[test]
    fn what_json_cannot_say_is_named_and_the_rest_is_what_it_was() {
        let of = |kind| prost_types::Value { kind };
        let fields = |members: Vec<(&str, Option<Kind>)>| Struct {
            fields: members
                .into_iter()
                .map(|(name, kind)| (name.to_owned(), of(kind)))
                .collect(),
        };
        let list = |values: Vec<Option<Kind>>| {
            Some(Kind::ListValue(prost_types::ListValue {
                values: values.into_iter().map(of).collect(),
            }))
        };
        let number = |number| Some(Kind::NumberValue(number));
        let sent = |data, metadata: Option<Kind>| SendMessageRequest {
            message: Some(Message {
                parts: vec![Part {
                    content: Some(Content::Data(of(data))),
                    metadata: Some(fields(vec![("p", metadata.clone())])),
                    ..Part::default()
                }],
                metadata: Some(fields(vec![("m", metadata.clone())])),
                ..Message::default()
            }),
            metadata: Some(fields(vec![("r", metadata)])),
            ..SendMessageRequest::default()
        };
        let mut violations = Violations::default();
        let data = list(vec![
            number(1.5),
            Some(Kind::NullValue(0)),
            None,
            Some(Kind::BoolValue(true)),
        ]);
        let read = sent(data, Some(Kind::StringValue("x".to_owned()))).params(&mut violations);
        assert_eq!(
            read["message"]["parts"],
            json!([{ "data": [1.5, null, null, true], "metadata": { "p": "x" } }])
        );
        assert!(violations.into_result(()).is_ok());
        for bad in [number(f64::NAN), number(f64::INFINITY), number(f64::NEG_INFINITY)] {
            let data = list(vec![
                number(0.0),
                Some(Kind::StructValue(fields(vec![("x", bad.clone())]))),
            ]);
            let mut violations = Violations::default();
            sent(data, bad).params(&mut violations);
            let Err(ApiError::InvalidParams(found)) = violations.into_result(()) else {
                panic!("nothing is wrong")
            };
            let mut found: Vec<&str> = found.iter().map(|violation| violation.field.as_str()).collect();
            found.sort_unstable();
            assert_eq!(
                found,
                [
                    "message.metadata.m",
                    "message.parts[0].data[1].x",
                    "message.parts[0].metadata.p",
                    "metadata.r",
                ]
            );
        }
    }

    #[test]
    fn a_whole_number_is_printed_as_one_as_far_as_doubles_are_exact() {
        let print = |of| number(of).unwrap().to_string();
        for (of, text) in [
            (1.0, "1"),
            (-0.0, "0"),
            (-7.0, "-7"),
            (8e15, "8000000000000000"),
            (1.5, "1.5"),
            (1e300, "1e+300"),
        ] {
            assert_eq!(print(of), text);
        }
        assert!(number(f64::NAN).is_none());
    }

    #[test]
    fn a_time_is_printed_or_refused_later() {
        let print = |seconds, nanos| timestamp(&Timestamp { seconds, nanos });
        assert_eq!(print(0, 0), "1970-01-01T00:00:00Z");
        assert_eq!(print(0, 1), "1970-01-01T00:00:00.000000001Z");
        assert_eq!(print(i64::MAX, 0), "");
        assert_eq!(print(0, -1), "");
    }
}
