//! How replies and events are printed: ProtoJSON as A2A wants it.
//!
//! Required fields are always there, everything else only when it says something, and times are UTC with `Z` and exactly
//! three digits of milliseconds. Events are printed once, when they are written; what is stored is what clients get.
//! Reading is not done here: the types' own parser reads what this prints.

use std::collections::HashMap;

use a2a::{
    Artifact, Message, Part, PartContent, SendMessageResponse, StreamResponse, Task, TaskArtifactUpdateEvent,
    TaskStatus, TaskStatusUpdateEvent,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::SecondsFormat;
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_json::Value;

/// A value of the protocol that prints as clients expect it.
#[derive(Debug)]
pub struct Wire<'a, T>(pub &'a T);

/// Prints a value.
pub fn to_vec<T>(value: &T) -> Vec<u8>
where
    for<'a> Wire<'a, T>: Serialize,
{
    // Maps with string keys and numbers are all there is: this cannot fail.
    serde_json::to_vec(&Wire(value)).unwrap_or_default()
}

/// Prints a page of tasks, each of which was printed before.
pub fn page(tasks: &[Vec<u8>], next_page_token: &str, page_size: i32, total_size: i32) -> Vec<u8> {
    let token = Value::from(next_page_token);
    let rest = format!(r#"],"nextPageToken":{token},"pageSize":{page_size},"totalSize":{total_size}}}"#);
    let mut page = br#"{"tasks":["#.to_vec();
    page.reserve(tasks.iter().map(|task| task.len() + 1).sum::<usize>() + rest.len());
    for (place, task) in tasks.iter().enumerate() {
        if place > 0 {
            page.push(b',');
        }
        page.extend_from_slice(task);
    }
    page.extend_from_slice(rest.as_bytes());
    page
}

/// An object in the making.
struct Fields<S: SerializeMap>(S);

impl<S: SerializeMap> Fields<S> {
    fn required(&mut self, name: &'static str, value: &(impl Serialize + ?Sized)) -> Result<(), S::Error> {
        self.0.serialize_entry(name, value)
    }

    /// A text, unless it is empty.
    fn text(&mut self, name: &'static str, value: Option<&String>) -> Result<(), S::Error> {
        match value {
            Some(text) if !text.is_empty() => self.required(name, text),
            _ => Ok(()),
        }
    }

    /// A list, unless it is empty.
    fn texts(&mut self, name: &'static str, value: Option<&Vec<String>>) -> Result<(), S::Error> {
        match value {
            Some(list) if !list.is_empty() => self.required(name, list),
            _ => Ok(()),
        }
    }

    /// A flag, if it is set.
    fn flag(&mut self, name: &'static str, value: Option<bool>) -> Result<(), S::Error> {
        if value == Some(true) {
            self.required(name, &true)
        } else {
            Ok(())
        }
    }

    /// An object of any content, unless it is empty.
    fn metadata(&mut self, value: Option<&HashMap<String, Value>>) -> Result<(), S::Error> {
        match value {
            Some(map) if !map.is_empty() => self.required("metadata", map),
            _ => Ok(()),
        }
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        self.0.end()
    }
}

fn object<S: Serializer>(serializer: S) -> Result<Fields<S::SerializeMap>, S::Error> {
    serializer.serialize_map(None).map(Fields)
}

/// A list of values of the protocol.
struct List<'a, T>(&'a [T]);

impl<'a, T> Serialize for List<'a, T>
where
    Wire<'a, T>: Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for item in self.0 {
            list.serialize_element(&Wire(item))?;
        }
        list.end()
    }
}

impl Serialize for Wire<'_, StreamResponse> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = object(serializer)?;
        match self.0 {
            StreamResponse::Task(task) => fields.required("task", &Wire(task))?,
            StreamResponse::Message(message) => fields.required("message", &Wire(message))?,
            StreamResponse::StatusUpdate(update) => fields.required("statusUpdate", &Wire(update))?,
            StreamResponse::ArtifactUpdate(update) => fields.required("artifactUpdate", &Wire(update))?,
        }
        fields.end()
    }
}

impl Serialize for Wire<'_, SendMessageResponse> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = object(serializer)?;
        match self.0 {
            SendMessageResponse::Task(task) => fields.required("task", &Wire(task))?,
            SendMessageResponse::Message(message) => fields.required("message", &Wire(message))?,
        }
        fields.end()
    }
}

impl Serialize for Wire<'_, Task> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = object(serializer)?;
        fields.required("id", &self.0.id)?;
        // Optional in the proto file; every task here has one, and the reader of the journal wants it.
        fields.required("contextId", &self.0.context_id)?;
        fields.required("status", &Wire(&self.0.status))?;
        // A client that asks for artifacts is told that there are none.
        if let Some(artifacts) = &self.0.artifacts {
            fields.required("artifacts", &List(artifacts))?;
        }
        if let Some(history) = self.0.history.as_ref().filter(|history| !history.is_empty()) {
            fields.required("history", &List(history))?;
        }
        fields.metadata(self.0.metadata.as_ref())?;
        fields.end()
    }
}

impl Serialize for Wire<'_, TaskStatus> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = object(serializer)?;
        fields.required("state", &self.0.state)?;
        if let Some(message) = &self.0.message {
            fields.required("message", &Wire(message))?;
        }
        if let Some(time) = &self.0.timestamp {
            fields.required("timestamp", &time.to_rfc3339_opts(SecondsFormat::Millis, true))?;
        }
        fields.end()
    }
}

impl Serialize for Wire<'_, TaskStatusUpdateEvent> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = object(serializer)?;
        fields.required("taskId", &self.0.task_id)?;
        fields.required("contextId", &self.0.context_id)?;
        fields.required("status", &Wire(&self.0.status))?;
        fields.metadata(self.0.metadata.as_ref())?;
        fields.end()
    }
}

impl Serialize for Wire<'_, TaskArtifactUpdateEvent> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = object(serializer)?;
        fields.required("taskId", &self.0.task_id)?;
        fields.required("contextId", &self.0.context_id)?;
        fields.required("artifact", &Wire(&self.0.artifact))?;
        fields.flag("append", self.0.append)?;
        fields.flag("lastChunk", self.0.last_chunk)?;
        fields.metadata(self.0.metadata.as_ref())?;
        fields.end()
    }
}

impl Serialize for Wire<'_, Artifact> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = object(serializer)?;
        fields.required("artifactId", &self.0.artifact_id)?;
        fields.text("name", self.0.name.as_ref())?;
        fields.text("description", self.0.description.as_ref())?;
        fields.required("parts", &List(&self.0.parts))?;
        fields.metadata(self.0.metadata.as_ref())?;
        fields.texts("extensions", self.0.extensions.as_ref())?;
        fields.end()
    }
}

impl Serialize for Wire<'_, Message> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = object(serializer)?;
        fields.required("messageId", &self.0.message_id)?;
        fields.text("contextId", self.0.context_id.as_ref())?;
        fields.text("taskId", self.0.task_id.as_ref())?;
        fields.required("role", &self.0.role)?;
        fields.required("parts", &List(&self.0.parts))?;
        fields.metadata(self.0.metadata.as_ref())?;
        fields.texts("extensions", self.0.extensions.as_ref())?;
        fields.texts("referenceTaskIds", self.0.reference_task_ids.as_ref())?;
        fields.end()
    }
}

impl Serialize for Wire<'_, Part> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = object(serializer)?;
        match &self.0.content {
            PartContent::Text(text) => fields.required("text", text)?,
            PartContent::Raw(bytes) => fields.required("raw", &STANDARD.encode(bytes))?,
            PartContent::Url(url) => fields.required("url", url)?,
            PartContent::Data(value) => fields.required("data", value)?,
        }
        fields.text("filename", self.0.filename.as_ref())?;
        fields.text("mediaType", self.0.media_type.as_ref())?;
        fields.metadata(self.0.metadata.as_ref())?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use a2a::{Role, TaskState};
    use chrono::DateTime;
    use serde_json::json;

    use super::*;

    fn printed<T>(value: &T) -> Value
    where
        for<'a> Wire<'a, T>: Serialize,
    {
        serde_json::from_slice(&to_vec(value)).unwrap()
    }

    fn status(ms: i64) -> TaskStatus {
        TaskStatus {
            state: TaskState::Unspecified,
            message: None,
            timestamp: DateTime::from_timestamp_millis(ms),
        }
    }

    #[test]
    fn a_time_always_has_three_digits_of_milliseconds() {
        for (ms, text) in [
            (1_795_948_746_380, "2026-11-29T10:39:06.380Z"),
            (1_795_948_746_000, "2026-11-29T10:39:06.000Z"),
            (1_795_948_746_001, "2026-11-29T10:39:06.001Z"),
            (0, "1970-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(printed(&status(ms))["timestamp"], text);
        }
    }

    #[test]
    fn what_is_required_is_there_and_what_says_nothing_is_not() {
        let message = Message {
            message_id: String::new(),
            context_id: Some(String::new()),
            task_id: None,
            role: Role::Unspecified,
            parts: Vec::new(),
            metadata: Some(HashMap::new()),
            extensions: Some(Vec::new()),
            reference_task_ids: Some(Vec::new()),
        };
        assert_eq!(
            printed(&message),
            json!({ "messageId": "", "role": "ROLE_UNSPECIFIED", "parts": [] })
        );
        let task = Task {
            id: String::new(),
            context_id: String::new(),
            status: TaskStatus {
                message: Some(message),
                timestamp: None,
                ..status(0)
            },
            artifacts: None,
            history: Some(Vec::new()),
            metadata: None,
        };
        let status = &printed(&task)["status"];
        assert_eq!(status["state"], "TASK_STATE_UNSPECIFIED");
        assert_eq!(printed(&task).as_object().unwrap().len(), 3, "ids and status");
    }

    #[test]
    fn a_page_is_its_tasks_as_they_were_printed() {
        let read = |page: Vec<u8>| serde_json::from_slice::<Value>(&page).unwrap();
        assert_eq!(
            read(page(&[], "", 0, 0)),
            json!({ "tasks": [], "nextPageToken": "", "pageSize": 0, "totalSize": 0 })
        );
        assert_eq!(
            read(page(&[b"{}".to_vec(), b"[1]".to_vec()], "\"", -1, 2)),
            json!({ "tasks": [{}, [1]], "nextPageToken": "\"", "pageSize": -1, "totalSize": 2 })
        );
    }

    #[test]
    fn bytes_are_base64_of_the_standard_alphabet_with_padding() {
        let part = Part::raw(vec![0xfb, 0xff, 0xfe, 0x00]);
        assert_eq!(printed(&part), json!({ "raw": "+//+AA==" }));
        assert_eq!(printed(&Part::data(Value::Null)), json!({ "data": null }));
    }
}
