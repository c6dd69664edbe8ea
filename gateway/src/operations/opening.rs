//! The task as it is when a turn begins: what a stream opens with, and what a call that does not wait answers.

use a2a::{StreamResponse, Task};
use bytes::Bytes;
use relevo_shared::domain::wire;
use relevo_shared::ids::Cursor;
use relevo_shared::store::HistoryLength;

/// A task at one entry of its journal.
pub(super) struct Opening {
    /// The task.
    pub(super) task: Task,
    /// The entry.
    pub(super) cursor: Cursor,
    /// The event that shows it, as stored or as it would be.
    pub(super) bytes: Option<Vec<u8>>,
}

impl Opening {
    /// The event that shows the task, with no more history than that.
    pub(super) fn into_bytes(self, limit: HistoryLength) -> Bytes {
        let print = |task| wire::to_vec(&StreamResponse::Task(limit.limit(task)));
        let bytes = match (self.bytes, limit) {
            (None, _) => print(self.task),
            (Some(bytes), HistoryLength::All) => bytes,
            (Some(bytes), HistoryLength::Latest(_)) => match serde_json::from_slice(&bytes) {
                Ok(StreamResponse::Task(task)) => print(task),
                _ => bytes,
            },
        };
        Bytes::from(bytes)
    }
}
