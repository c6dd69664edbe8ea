//! The batch that is being put together, and the folded task it leads to. Pure: what is written, and when, is the caller's.

use std::collections::HashSet;

use a2a::{Artifact, Message, Part, PartContent, StreamResponse, TaskArtifactUpdateEvent, TaskState};
use relevo_shared::domain::class::{Class, Kind};
use relevo_shared::domain::event::{self, Event};
use relevo_shared::domain::fold::{Fold, FoldError, Folded};
use relevo_shared::domain::reason::FailReason;
use relevo_shared::domain::record::TurnRecord;
use relevo_shared::domain::state::End;
use relevo_shared::ids::{Cursor, EntryId, Nonce};
use relevo_shared::store::{NewEvent, Open, SessionItems, Taken};

use super::sink::{Item, Metadata};

/// A batch is sent when it holds this many events,
pub(crate) const BATCH_EVENTS: usize = 64;
/// or this many bytes.
pub(crate) const BATCH_BYTES: usize = 256 << 10;
/// A snapshot is kept after this many events,
const SNAPSHOT_EVENTS: u64 = 512;
/// or this many bytes,
const SNAPSHOT_BYTES: usize = 256 << 10;
/// but not before this part of what the last one held: all snapshots of a long answer together are a few times its length.
const SNAPSHOT_PART: usize = 2;
/// What an event's envelope may need beside its text or bytes.
const ENVELOPE: usize = 4 << 10;

/// The most that a turn may produce.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutputLimits {
    pub(crate) events: u64,
    pub(crate) bytes: u64,
    pub(crate) event_bytes: usize,
}

/// The agent produced more than the limits allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OverLimit;

/// What waits to be written for one attempt.
pub(crate) struct Draft {
    number: u32,
    limits: OutputLimits,
    /// The task as the journal has it.
    written: Fold,
    events: Vec<(NewEvent, StreamResponse)>,
    session: Option<SessionItems>,
    bytes: usize,
    open: Open,
    state: TaskState,
    stamp: u64,
    total_events: u64,
    total_bytes: u64,
    since_snapshot: (u64, usize),
    /// How long the last snapshot was, as far as this attempt knows.
    snapshot_bytes: usize,
    /// After a boundary the first chunk of every artifact replaces what an earlier attempt left with plain clients.
    replaced: Option<HashSet<String>>,
}

/// How a turn ends, and what its last event holds.
#[derive(Debug, Clone)]
pub(crate) struct Close {
    pub(crate) end: End,
    pub(crate) message: Option<Message>,
    pub(crate) reason: Option<FailReason>,
    pub(crate) metadata: Option<Metadata>,
}

impl Close {
    /// An end without more to say.
    pub(crate) fn plain(end: End) -> Self {
        Self {
            end,
            message: None,
            reason: None,
            metadata: None,
        }
    }

    /// FAILED, with its reason.
    pub(crate) fn failed(reason: FailReason) -> Self {
        Self {
            reason: Some(reason),
            ..Self::plain(End::Failed)
        }
    }
}

/// A batch ready to be sent.
pub(crate) struct Ready {
    pub(crate) nonce: Nonce,
    pub(crate) open: Open,
    pub(crate) state: TaskState,
    pub(crate) stamp: u64,
    pub(crate) events: Vec<NewEvent>,
    pub(crate) session: Option<SessionItems>,
    /// The folded task after it as JSON, when it is time to keep one.
    pub(crate) snapshot: Option<Vec<u8>>,
}

impl Draft {
    /// The draft of a taken turn, holding its opening event.
    pub(crate) fn new(taken: &Taken, limits: OutputLimits, now: u64) -> Self {
        let state = at_turn_start(taken);
        let base = Some((taken.first, state.clone()));
        let mut draft = Self {
            number: taken.number,
            limits,
            written: Fold::resume(taken.last, taken.number, state, base),
            events: Vec::new(),
            session: None,
            bytes: 0,
            open: Open::No,
            state: TaskState::Working,
            stamp: now,
            total_events: 0,
            total_bytes: 0,
            since_snapshot: (0, 0),
            snapshot_bytes: 0,
            replaced: None,
        };
        let record = &taken.record;
        if taken.tries.opened == 0 {
            draft.open = Open::Working;
            draft.add(event::working(record, now));
        } else {
            let valid = Cursor {
                task: record.task,
                entry: taken.first,
            };
            draft.open = Open::Boundary;
            draft.replaced = Some(HashSet::new());
            draft.add(event::boundary(record, taken.tries.opened + 1, valid, now));
        }
        draft
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty() && self.session.is_none()
    }

    /// Whether it is time to send whatever the clock says.
    pub(crate) fn is_full(&self) -> bool {
        self.events.len() >= BATCH_EVENTS || self.bytes >= BATCH_BYTES
    }

    /// The journal's end as this attempt knows it.
    pub(crate) fn position(&self) -> EntryId {
        self.written.at()
    }

    /// Adds what the agent produced, cut into events that fit.
    pub(crate) fn push(&mut self, record: &TurnRecord, item: Item, now: u64) -> Result<(), OverLimit> {
        let room = self.limits.event_bytes.saturating_sub(ENVELOPE).max(1);
        match item {
            Item::Session { items, .. } => self.set_session(items),
            Item::Status {
                state,
                message,
                mut metadata,
                class,
            } => {
                let mut first = true;
                let messages = message.map_or_else(|| Ok(vec![None]), |message| pieces(message, room))?;
                for message in messages {
                    // Only the first piece carries class and metadata: one item is one step for those who wait.
                    let class = if first { class } else { Class::Normal };
                    first = false;
                    self.state = state.clone();
                    let mut update = event::status(record, state.clone(), message, now);
                    update.metadata = metadata.take();
                    self.limited(
                        Event {
                            body: StreamResponse::StatusUpdate(update),
                            class,
                        },
                        now,
                    )?;
                }
            }
            Item::Artifact {
                artifact,
                mut append,
                last_chunk,
                mut metadata,
            } => {
                if let Some(replaced) = &mut self.replaced
                    && replaced.insert(artifact.artifact_id.clone())
                {
                    append = false;
                }
                let pieces = artifact_pieces(artifact, room)?;
                let count = pieces.len();
                for (n, artifact) in (1..).zip(pieces) {
                    let update = TaskArtifactUpdateEvent {
                        task_id: record.task.to_string(),
                        context_id: record.context_id.clone(),
                        artifact,
                        append: Some(append),
                        last_chunk: Some(last_chunk && n == count),
                        metadata: metadata.take(),
                    };
                    append = true;
                    self.limited(
                        Event {
                            body: StreamResponse::ArtifactUpdate(update),
                            class: Class::Normal,
                        },
                        now,
                    )?;
                }
            }
        }
        Ok(())
    }

    /// Adds session items to what waits: they are written before anything else is added.
    pub(crate) fn set_session(&mut self, items: SessionItems) {
        self.session = Some(items);
    }

    /// Takes back session items that were refused.
    pub(crate) fn drop_session(&mut self) {
        self.session = None;
    }

    fn limited(&mut self, event: Event, now: u64) -> Result<(), OverLimit> {
        self.stamp = self.stamp.max(now);
        let size = self.add(event);
        let over = self.total_events > self.limits.events || self.total_bytes > self.limits.bytes;
        // What is beside the parts is not cut.
        if over || size > self.limits.event_bytes.max(ENVELOPE) {
            Err(OverLimit)
        } else {
            Ok(())
        }
    }

    fn add(&mut self, event: Event) -> usize {
        let kind = Kind {
            turn: self.number,
            class: event.class,
        };
        let bytes = event.bytes();
        let size = bytes.len();
        self.bytes += size;
        self.total_bytes += size as u64;
        self.total_events += 1;
        self.events.push((NewEvent { kind, bytes }, event.body));
        size
    }

    /// Throws away what waits. What opens the attempt stays.
    pub(crate) fn drop_waiting(&mut self) {
        self.session = None;
        let keep = usize::from(self.open != Open::No);
        self.events.truncate(keep);
        self.bytes = self.events.iter().map(|(event, _)| event.bytes.len()).sum();
    }

    /// Throws away the oversized last event of an agent that produced too much.
    pub(crate) fn drop_last(&mut self) {
        if self.events.len() > 1 {
            self.events.pop();
        }
    }

    /// Makes the waiting events a batch. It stays the same batch however often it is sent.
    pub(crate) fn ready(&self, nonce: Nonce) -> Result<Ready, FoldError> {
        let (count, bytes) = self.since_snapshot;
        let (count, bytes) = (count + self.events.len() as u64, bytes + self.bytes);
        let due = (count >= SNAPSHOT_EVENTS || bytes >= SNAPSHOT_BYTES) && bytes >= self.snapshot_bytes / SNAPSHOT_PART;
        // A boundary goes back to the turn's start: nothing before it is worth keeping.
        let snapshot = if due && self.open == Open::No {
            serde_json::to_vec(self.fold(nonce)?.state()).ok()
        } else {
            None
        };
        Ok(Ready {
            nonce,
            open: self.open,
            state: self.state.clone(),
            stamp: self.stamp,
            events: self.events.iter().map(|(event, _)| event.clone()).collect(),
            session: self.session.clone(),
            snapshot,
        })
    }

    /// Makes the waiting events and the end a batch; with the task after it.
    pub(crate) fn ending(
        &mut self,
        record: &TurnRecord,
        nonce: Nonce,
        close: Close,
        now: u64,
    ) -> Result<(Ready, Folded), FoldError> {
        self.stamp = self.stamp.max(now);
        let mut event = match (close.message, close.reason) {
            (None, Some(reason)) => event::failed(record, reason, self.stamp),
            (message, reason) => event::ended(record, close.end, message, reason, self.stamp),
        };
        if let (StreamResponse::StatusUpdate(update), Some(mut metadata)) = (&mut event.body, close.metadata) {
            metadata.extend(update.metadata.take().unwrap_or_default());
            update.metadata = Some(metadata);
        }
        let kind = Kind {
            turn: self.number,
            class: event.class,
        };
        let bytes = event.bytes();
        let mut after = self.fold(nonce)?;
        after.apply_event(after.at().after(1, nonce), kind, event.body)?;
        let mut events: Vec<NewEvent> = self.events.iter().map(|(event, _)| event.clone()).collect();
        events.push(NewEvent { kind, bytes });
        let ready = Ready {
            nonce,
            open: self.open,
            state: close.end.state(),
            stamp: self.stamp,
            events,
            session: self.session.clone(),
            snapshot: None,
        };
        Ok((ready, after.into_state()))
    }

    /// The task as it is when what waits is written.
    fn fold(&self, nonce: Nonce) -> Result<Fold, FoldError> {
        let mut after = self.written.clone();
        apply(
            &mut after,
            nonce,
            self.events.iter().map(|(event, body)| (event.kind, body.clone())),
        )?;
        Ok(after)
    }

    /// The batch is in the journal. Nothing was added since it was made.
    pub(crate) fn written(&mut self, ready: &Ready) -> Result<(), FoldError> {
        let events = std::mem::take(&mut self.events);
        if let Some(snapshot) = &ready.snapshot {
            self.since_snapshot = (0, 0);
            self.snapshot_bytes = snapshot.len();
        } else {
            let (count, bytes) = self.since_snapshot;
            self.since_snapshot = (count + events.len() as u64, bytes + self.bytes);
        }
        self.open = Open::No;
        self.session = None;
        self.bytes = 0;
        apply(
            &mut self.written,
            ready.nonce,
            events.into_iter().map(|(event, body)| (event.kind, body)),
        )
    }
}

/// Folds the events of a batch in.
fn apply(fold: &mut Fold, nonce: Nonce, events: impl Iterator<Item = (Kind, StreamResponse)>) -> Result<(), FoldError> {
    let at = fold.at();
    for (n, (kind, body)) in (1..).zip(events) {
        fold.apply_event(at.after(n, nonce), kind, body)?;
    }
    Ok(())
}

/// The task right after the turn's first event.
pub(crate) fn at_turn_start(taken: &Taken) -> Folded {
    match &taken.base {
        None => Folded::new_task(&taken.record),
        Some(before) => {
            let mut state = before.clone();
            state.begin_turn();
            state.messages.clear();
            state.status.state = TaskState::Submitted;
            state.status.timestamp = event::timestamp(taken.record.submitted);
            state
        }
    }
}

/// Cuts a message into messages of the same id that fit; texts are cut, other parts are not.
fn pieces(message: Message, room: usize) -> Result<Vec<Option<Message>>, OverLimit> {
    let groups = part_groups(&message.parts, room)?;
    if groups.len() <= 1 {
        return Ok(vec![Some(message)]);
    }
    Ok(groups
        .into_iter()
        .map(|parts| {
            Some(Message {
                parts,
                ..message.clone()
            })
        })
        .collect())
}

fn artifact_pieces(artifact: Artifact, room: usize) -> Result<Vec<Artifact>, OverLimit> {
    let groups = part_groups(&artifact.parts, room)?;
    if groups.len() <= 1 {
        return Ok(vec![artifact]);
    }
    Ok(groups
        .into_iter()
        .map(|parts| Artifact {
            parts,
            ..artifact.clone()
        })
        .collect())
}

fn part_groups(parts: &[Part], room: usize) -> Result<Vec<Vec<Part>>, OverLimit> {
    let mut groups: Vec<Vec<Part>> = vec![Vec::new()];
    let mut used = 0;
    for part in parts.iter().flat_map(|part| cut(part, room)) {
        let size = part_size(&part);
        if size > room {
            return Err(OverLimit);
        }
        if used + size > room && used > 0 {
            groups.push(Vec::new());
            used = 0;
        }
        used += size;
        if let Some(group) = groups.last_mut() {
            group.push(part);
        }
    }
    Ok(groups)
}

/// Cuts a plain text; anything else is one piece.
fn cut(part: &Part, room: usize) -> Vec<Part> {
    let PartContent::Text(text) = &part.content else {
        return vec![part.clone()];
    };
    let plain = part.filename.is_none() && part.media_type.is_none() && part.metadata.is_none();
    if !plain || json_len(text) <= room {
        return vec![part.clone()];
    }
    let (mut cuts, mut piece, mut used) = (Vec::new(), String::new(), 0);
    for letter in text.chars() {
        let size = letter_len(letter);
        if used + size > room {
            cuts.push(Part::text(std::mem::take(&mut piece)));
            used = 0;
        }
        piece.push(letter);
        used += size;
    }
    cuts.push(Part::text(piece));
    cuts
}

/// What a letter needs in JSON: control characters become six.
fn letter_len(letter: char) -> usize {
    match letter {
        '"' | '\\' | '\n' | '\r' | '\t' => 2,
        c if u32::from(c) < 0x20 => 6,
        c => c.len_utf8(),
    }
}

fn json_len(text: &str) -> usize {
    text.chars().map(letter_len).sum()
}

fn part_size(part: &Part) -> usize {
    let content = match &part.content {
        PartContent::Text(text) | PartContent::Url(text) => json_len(text),
        PartContent::Raw(bytes) => bytes.len().div_ceil(3) * 4,
        PartContent::Data(value) => value.to_string().len(),
    };
    let extra = part
        .metadata
        .as_ref()
        .map_or(0, |m| serde_json::to_string(m).map_or(0, |t| t.len()));
    content + extra
}

#[cfg(test)]
mod tests;
