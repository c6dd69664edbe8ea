//! Requests of gRPC in the form that the reader of requests knows: ProtoJSON, so that one set of rules judges all bindings.

use a2a_pb::pbconv::proto_value_to_json_value;
use a2a_pb::proto::part::Content;
use a2a_pb::proto::{
    CancelTaskRequest, GetTaskRequest, ListTasksRequest, Message, Part, SendMessageConfiguration, SendMessageRequest,
    SubscribeToTaskRequest,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, SecondsFormat};
use prost_types::{Struct, Timestamp};
use serde_json::{Map, Value};

/// The parameters of an operation.
pub(super) trait Params {
    fn params(self) -> Value;
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

    fn metadata(self, metadata: Option<Struct>) -> Self {
        self.some("metadata", metadata.map(object))
    }

    fn into_value(self) -> Value {
        Value::Object(self.0)
    }
}

fn object(fields: Struct) -> Value {
    let member = |(name, value)| (name, proto_value_to_json_value(&value));
    Value::Object(fields.fields.into_iter().map(member).collect())
}

impl Params for SendMessageRequest {
    fn params(self) -> Value {
        Fields::default()
            .text("tenant", self.tenant)
            .some("message", self.message.map(message))
            .some("configuration", self.configuration.map(configuration))
            .metadata(self.metadata)
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

fn message(message: Message) -> Value {
    let parts: Vec<Value> = message.parts.into_iter().map(part).collect();
    Fields::default()
        .text("messageId", message.message_id)
        .text("contextId", message.context_id)
        .text("taskId", message.task_id)
        .set("role", message.role)
        .set("parts", parts)
        .metadata(message.metadata)
        .texts("extensions", message.extensions)
        .texts("referenceTaskIds", message.reference_task_ids)
        .into_value()
}

fn part(part: Part) -> Value {
    let fields = Fields::default();
    let fields = match part.content {
        Some(Content::Text(text)) => fields.set("text", text),
        Some(Content::Raw(bytes)) => fields.set("raw", STANDARD.encode(bytes)),
        Some(Content::Url(url)) => fields.set("url", url),
        Some(Content::Data(value)) => fields.set("data", proto_value_to_json_value(&value)),
        None => fields,
    };
    fields
        .text("filename", part.filename)
        .text("mediaType", part.media_type)
        .metadata(part.metadata)
        .into_value()
}

impl Params for GetTaskRequest {
    fn params(self) -> Value {
        Fields::default()
            .text("tenant", self.tenant)
            .text("id", self.id)
            .some("historyLength", self.history_length)
            .into_value()
    }
}

impl Params for ListTasksRequest {
    fn params(self) -> Value {
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
    fn params(self) -> Value {
        Fields::default()
            .text("tenant", self.tenant)
            .text("id", self.id)
            .metadata(self.metadata)
            .into_value()
    }
}

impl Params for SubscribeToTaskRequest {
    fn params(self) -> Value {
        Fields::default()
            .text("tenant", self.tenant)
            .text("id", self.id)
            .into_value()
    }
}

/// Of what is refused before anything is looked at, the tenant.
pub(super) struct Tenant(pub(super) String);

impl Params for Tenant {
    fn params(self) -> Value {
        Fields::default().text("tenant", self.0).into_value()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
        assert_eq!(sent.params(), expected);
        assert_eq!(GetTaskRequest::default().params(), json!({}));
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
