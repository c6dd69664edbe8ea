//! Telling a client inside an event where it stands, under the resume extension: for bindings and libraries that show no SSE ids.

use std::collections::HashMap;

use a2a::StreamResponse;
use relevo_shared::domain::event::RESUME;
use relevo_shared::ids::Cursor;
use serde_json::{Map, Value};

/// Adds the position to what the event says about resuming.
pub(crate) fn add_cursor(body: &mut StreamResponse, cursor: Cursor) {
    let metadata: &mut Option<HashMap<String, Value>> = match body {
        StreamResponse::Task(task) => &mut task.metadata,
        StreamResponse::Message(message) => &mut message.metadata,
        StreamResponse::StatusUpdate(update) => &mut update.metadata,
        StreamResponse::ArtifactUpdate(update) => &mut update.metadata,
    };
    let facts = metadata
        .get_or_insert_default()
        .entry(RESUME.to_owned())
        .or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(facts) = facts {
        facts.insert("cursor".to_owned(), cursor.to_string().into());
    }
}
