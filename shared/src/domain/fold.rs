//! The fold: a task is what its journal says, events applied in order, void ones left out.
//!
//! - Status texts with one messageId are one message: consecutive text parts are joined. Another messageId moves the earlier
//!   message to the history. An update without a message leaves the current message of the turn in place.
//! - Artifact chunks with `append` are added to the artifact of that id, others replace it.
//! - A boundary takes everything back that came after its `validThrough`.

use std::collections::HashMap;
use std::io;

use a2a::{Artifact, Message, Part, PartContent, StreamResponse, Task, TaskArtifactUpdateEvent, TaskStatus};
use a2a::{TaskState, TaskStatusUpdateEvent};
use serde::de::Error as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::class::{Class, Kind};
use super::event::{TURN, valid_through};
use super::record::TurnRecord;
use super::state::End;
use crate::ids::EntryId;

/// Most bytes of messages, as JSON, that a snapshot holds for good: a listing reads snapshots even if it shows no history.
const SMALL_MESSAGES: usize = 2 << 10;

/// Room for so many bytes, which nobody keeps.
struct AtMost(usize);

impl io::Write for AtMost {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
        self.0 = left;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A journal entry as it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where.
    pub id: EntryId,
    /// Which turn, what it means.
    pub kind: Kind,
    /// The event, as it goes to clients.
    pub bytes: Vec<u8>,
}

/// Why the fold cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum FoldError {
    /// The entry is not an event.
    #[error("journal entry {id} is not an event")]
    Corrupt {
        /// Which.
        id: EntryId,
        /// What the parser said.
        #[source]
        source: serde_json::Error,
    },
    /// A boundary takes back more than this fold remembers: read the task again, its snapshot has been reset.
    #[error("boundary {0} reaches back before this snapshot")]
    NeedsBase(EntryId),
    /// The first entry of a journal must be the task.
    #[error("the journal does not begin with a task")]
    NoTask,
}

/// The folded state: what snapshots hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Folded {
    /// Record version.
    pub v: u32,
    /// Current status with its whole message.
    pub status: TaskStatus,
    /// Artifacts, merged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
    /// Messages of this turn that the stored history does not hold yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<Message>,
    /// Task metadata.
    #[serde(default, skip_serializing_if = "HashMap::is_empty")]
    pub metadata: HashMap<String, Value>,
}

impl Folded {
    /// The state right after the first event of a turn that creates its task.
    pub fn new_task(record: &TurnRecord) -> Self {
        let status = TaskStatus {
            state: TaskState::Submitted,
            message: None,
            timestamp: super::event::timestamp(record.submitted),
        };
        Self {
            v: 1,
            status,
            artifacts: Vec::new(),
            messages: vec![record.message.clone()],
            metadata: HashMap::new(),
        }
    }

    /// Takes out what the stored history has to receive, so that the snapshot does not hold it twice.
    pub fn take_messages(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.messages)
    }

    /// What the stored history has to receive when the turn ends. A task that is over gets no more messages: small ones stay here,
    /// where they are read with the task.
    pub fn take_messages_at(&mut self, end: End) -> Vec<Message> {
        let stay = end.is_terminal() && serde_json::to_writer(AtMost(SMALL_MESSAGES), &self.messages).is_ok();
        if stay { Vec::new() } else { self.take_messages() }
    }

    /// The task as clients see it. `history` is what is stored of earlier turns.
    pub fn into_task(self, id: String, context_id: String, mut history: Vec<Message>) -> Task {
        history.extend(self.messages);
        Task {
            id,
            context_id,
            status: self.status,
            artifacts: (!self.artifacts.is_empty()).then_some(self.artifacts),
            history: (!history.is_empty()).then_some(history),
            metadata: (!self.metadata.is_empty()).then_some(self.metadata),
        }
    }

    /// Begins another turn: the last answer is no longer the status message. The stored history receives it.
    pub fn begin_turn(&mut self) -> Option<Message> {
        self.metadata.remove(TURN);
        self.status.message.take()
    }

    fn status_update(&mut self, update: TaskStatusUpdateEvent) {
        let message = match (self.status.message.take(), update.status.message) {
            (Some(mut now), Some(next)) if now.message_id == next.message_id => {
                join(&mut now.parts, next.parts);
                Some(now)
            }
            (Some(before), Some(next)) => {
                self.messages.push(before);
                Some(next)
            }
            (before, next) => next.or(before),
        };
        self.status = TaskStatus {
            state: update.status.state,
            message,
            timestamp: update.status.timestamp,
        };
        if let Some(facts) = update.metadata.and_then(|mut m| m.remove(TURN)) {
            self.metadata.insert(TURN.to_owned(), facts);
        }
    }

    fn artifact_update(&mut self, update: TaskArtifactUpdateEvent) {
        let TaskArtifactUpdateEvent { artifact, append, .. } = update;
        let known = self
            .artifacts
            .iter_mut()
            .find(|a| a.artifact_id == artifact.artifact_id);
        match known {
            Some(known) if append == Some(true) => join(&mut known.parts, artifact.parts),
            Some(known) => *known = artifact,
            None => self.artifacts.push(artifact),
        }
    }
}

/// Adds parts, joining a text with the text before it when both are plain.
pub fn join(parts: &mut Vec<Part>, more: Vec<Part>) {
    for part in more {
        if let (
            Some(Part {
                content: PartContent::Text(text),
                filename: None,
                media_type: None,
                metadata: None,
            }),
            true,
        ) = (parts.last_mut(), is_plain(&part))
            && let PartContent::Text(next) = part.content
        {
            text.push_str(&next);
        } else {
            parts.push(part);
        }
    }
}

fn is_plain(part: &Part) -> bool {
    matches!(
        part,
        Part {
            content: PartContent::Text(_),
            filename: None,
            media_type: None,
            metadata: None
        }
    )
}

/// A fold in progress.
#[derive(Debug, Clone)]
pub struct Fold {
    at: EntryId,
    turn: u32,
    state: Folded,
    /// The state at the first event of the current turn, for boundaries.
    base: Option<(EntryId, Folded)>,
}

impl Fold {
    /// Begins with the first entry of a journal.
    ///
    /// # Errors
    /// [`FoldError`] when it is not a task.
    pub fn first(entry: &Entry) -> Result<Self, FoldError> {
        let StreamResponse::Task(task) = parse(entry.id, &entry.bytes)? else {
            return Err(FoldError::NoTask);
        };
        Ok(Self::begin(entry.id, entry.kind.turn, task))
    }

    /// Begins with the task that the first entry of a journal, or of a turn, shows.
    pub fn begin(at: EntryId, turn: u32, task: Task) -> Self {
        let state = Folded {
            v: 1,
            status: task.status,
            artifacts: task.artifacts.unwrap_or_default(),
            messages: task.history.unwrap_or_default(),
            metadata: task.metadata.unwrap_or_default(),
        };
        Self {
            at,
            turn,
            base: Some((at, state.clone())),
            state,
        }
    }

    /// Goes on from a snapshot. `base` is the state at the current turn's first event, where the caller knows it.
    pub fn resume(at: EntryId, turn: u32, state: Folded, base: Option<(EntryId, Folded)>) -> Self {
        Self { at, turn, state, base }
    }

    /// The id of the last entry that is folded in.
    pub fn at(&self) -> EntryId {
        self.at
    }

    /// The turn that the last entry belongs to.
    pub fn turn(&self) -> u32 {
        self.turn
    }

    /// The state.
    pub fn state(&self) -> &Folded {
        &self.state
    }

    /// The state, to keep.
    pub fn into_state(self) -> Folded {
        self.state
    }

    /// Folds one entry in.
    ///
    /// # Errors
    /// [`FoldError`]; the fold is unchanged then.
    pub fn apply(&mut self, entry: &Entry) -> Result<(), FoldError> {
        self.apply_bytes(entry.id, entry.kind, &entry.bytes)
    }

    /// Folds one entry in, wherever its bytes come from.
    ///
    /// # Errors
    /// [`FoldError`]; the fold is unchanged then.
    pub fn apply_bytes(&mut self, id: EntryId, kind: Kind, bytes: &[u8]) -> Result<(), FoldError> {
        self.apply_event(id, kind, parse(id, bytes)?)
    }

    /// Folds one event in whose bytes need not be read again.
    ///
    /// # Errors
    /// [`FoldError::NeedsBase`]; the fold is unchanged then.
    pub fn apply_event(&mut self, id: EntryId, kind: Kind, body: StreamResponse) -> Result<(), FoldError> {
        if kind.class == Class::Boundary {
            self.take_back(id, &body)?;
        }
        let opens_turn = kind.turn != self.turn;
        if opens_turn {
            // The stored history received the answer of the turn before in the same script as this entry.
            self.state.begin_turn();
            self.state.messages.clear();
        }
        match body {
            StreamResponse::StatusUpdate(update) => self.state.status_update(update),
            StreamResponse::ArtifactUpdate(update) => self.state.artifact_update(update),
            StreamResponse::Message(message) => self.state.messages.push(message),
            StreamResponse::Task(task) => {
                self.state.status = task.status;
                self.state.artifacts = task.artifacts.unwrap_or_default();
            }
        }
        self.at = id;
        self.turn = kind.turn;
        if opens_turn {
            self.base = Some((id, self.state.clone()));
        }
        Ok(())
    }

    fn take_back(&mut self, id: EntryId, body: &StreamResponse) -> Result<(), FoldError> {
        let StreamResponse::StatusUpdate(update) = body else {
            return Ok(());
        };
        let Some(valid) = valid_through(update) else {
            return Ok(());
        };
        match &self.base {
            Some((at, state)) if *at == valid.entry => {
                self.state = state.clone();
                Ok(())
            }
            _ if valid.entry == self.at => Ok(()),
            _ => Err(FoldError::NeedsBase(id)),
        }
    }
}

/// [`StreamResponse`], read in one pass: that of the library goes over a tree of values first.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    status_update: Option<TaskStatusUpdateEvent>,
    artifact_update: Option<TaskArtifactUpdateEvent>,
    task: Option<Task>,
    message: Option<Message>,
}

impl Stored {
    fn body(self) -> Option<StreamResponse> {
        let update = self.status_update.map(StreamResponse::StatusUpdate);
        update
            .or(self.artifact_update.map(StreamResponse::ArtifactUpdate))
            .or(self.task.map(StreamResponse::Task))
            .or(self.message.map(StreamResponse::Message))
    }
}

fn parse(id: EntryId, bytes: &[u8]) -> Result<StreamResponse, FoldError> {
    serde_json::from_slice(bytes)
        .and_then(|stored: Stored| {
            stored
                .body()
                .ok_or_else(|| serde_json::Error::custom("it holds none of the events"))
        })
        .map_err(|source| FoldError::Corrupt { id, source })
}

#[cfg(test)]
mod tests;
