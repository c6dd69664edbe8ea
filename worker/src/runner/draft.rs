//! The batch that is being put together, and the folded task it leads to. Pure: what is written, and when, is the caller's.

use std::collections::HashSet;

use a2a::{Message, Part, StreamResponse, TaskArtifactUpdateEvent, TaskState};
use relevo_shared::domain::class::{Class, Kind};
use relevo_shared::domain::event::{self, Event};
use relevo_shared::domain::fold::{Fold, FoldError, Folded, join};
use relevo_shared::domain::reason::FailReason;
use relevo_shared::domain::record::TurnRecord;
use relevo_shared::domain::state::End;
use relevo_shared::ids::{Cursor, EntryId, Nonce};
use relevo_shared::store::{NewEvent, Open, SessionItems, Taken};

use super::sink::{Metadata, Output};
use cut::Room;

mod cut;

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
/// nor once the task may hold more than this: it would hold up Redis, and a script takes only so much. The end is kept anyway.
const SNAPSHOT_MOST: u64 = 32 << 20;
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
    /// What the task holds, as far as it is known: what it held at the turn's start, and the events of this attempt.
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
    /// Whether it is an answer without a task.
    pub(crate) direct: bool,
}

impl Close {
    /// An end without more to say.
    pub(crate) fn plain(end: End) -> Self {
        Self {
            end,
            message: None,
            reason: None,
            metadata: None,
            direct: false,
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
        // What earlier turns left is written again with every snapshot: it counts, or a task grows with every turn.
        let before = match &taken.base {
            None => 0,
            Some(_) => json_len(&state),
        };
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
            total_bytes: before,
            since_snapshot: (0, 0),
            snapshot_bytes: 0,
            replaced: None,
        };
        let record = &taken.record;
        let opening = if taken.tries.opened == 0 {
            draft.open = Open::Working;
            event::working(record, now)
        } else {
            let valid = Cursor {
                task: record.task,
                entry: taken.first,
            };
            draft.open = Open::Boundary;
            draft.replaced = Some(HashSet::new());
            event::boundary(record, record.attempt(taken.tries), valid, now)
        };
        let bytes = opening.bytes();
        draft.add(opening, bytes);
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

    /// Cuts what the agent produced into events that fit, to be pushed one by one.
    pub(crate) fn cut(&mut self, record: &TurnRecord, output: Output, now: u64) -> Result<Vec<Event>, OverLimit> {
        match output {
            Output::Status {
                state,
                message,
                mut metadata,
                mut class,
            } => {
                let messages = match message {
                    None => vec![None],
                    Some(message) => cut::message(message, self.room())?.into_iter().map(Some).collect(),
                };
                let event = |message| {
                    let mut update = event::status(record, state.clone(), message, now);
                    // Only the first piece carries class and metadata: one item is one step for those who wait.
                    update.metadata = metadata.take();
                    Event {
                        body: StreamResponse::StatusUpdate(update),
                        class: std::mem::replace(&mut class, Class::Normal),
                    }
                };
                Ok(messages.into_iter().map(event).collect())
            }
            Output::Artifact {
                artifact,
                mut append,
                last_chunk,
                mut metadata,
            } => {
                let id = artifact.artifact_id.clone();
                let pieces = cut::artifact(artifact, self.room())?;
                if self.replaced.as_mut().is_some_and(|replaced| replaced.insert(id)) {
                    append = false;
                }
                let count = pieces.len();
                let event = |(n, artifact)| {
                    let update = TaskArtifactUpdateEvent {
                        task_id: record.task.to_string(),
                        context_id: record.context_id.clone(),
                        artifact,
                        append: Some(std::mem::replace(&mut append, true)),
                        last_chunk: Some(last_chunk && n == count),
                        metadata: metadata.take(),
                    };
                    Event {
                        body: StreamResponse::ArtifactUpdate(update),
                        class: Class::Normal,
                    }
                };
                Ok((1..).zip(pieces).map(event).collect())
            }
        }
    }

    /// Whether a part fits into no event, and cannot be cut.
    pub(crate) fn fits_nowhere(&self, part: &Part) -> bool {
        cut::fits_nowhere(part, self.room())
    }

    /// Whether a value fits into an event.
    pub(crate) fn fits(&self, value: &impl serde::Serialize) -> bool {
        json_len(value) <= self.room().bytes as u64
    }

    /// Most bytes of a part that fits into an event, where they are base64.
    pub(crate) fn most_raw(&self) -> u64 {
        (self.room().bytes / 4 * 3) as u64
    }

    /// How many bytes the turn may still produce.
    pub(crate) fn left(&self) -> u64 {
        self.limits.bytes.saturating_sub(self.total_bytes)
    }

    /// Whether these parts could be said once more before `last` ends the turn, without more than the limits allow.
    pub(crate) fn can_repeat(&self, parts: &[Part], last: Option<&Message>) -> bool {
        let (bytes, rest) = (json_len(&parts), json_len(&last));
        let pieces = bytes / (self.most() - ENVELOPE) as u64 + 1;
        let envelopes = (pieces + 2).saturating_mul(ENVELOPE as u64);
        let all = self.total_bytes.saturating_add(bytes + rest).saturating_add(envelopes);
        all <= self.limits.bytes && self.total_events.saturating_add(pieces + 2) <= self.limits.events
    }

    /// The largest event. Its envelope, and something in it, has room whatever the settings.
    fn most(&self) -> usize {
        self.limits.event_bytes.max(2 * ENVELOPE)
    }

    fn room(&self) -> Room {
        Room {
            bytes: self.most() - ENVELOPE,
            pieces: self.limits.events.saturating_sub(self.total_events),
        }
    }

    /// Adds an event, unless it is more than the limits allow. To be written when the draft is full then: a script takes only so
    /// much at once.
    pub(crate) fn push(&mut self, event: Event, now: u64) -> Result<(), OverLimit> {
        let bytes = event.bytes();
        let total = self.total_bytes.saturating_add(bytes.len() as u64);
        // What is beside the parts is not cut.
        if self.total_events >= self.limits.events || total > self.limits.bytes || bytes.len() > self.most() {
            return Err(OverLimit);
        }
        if let StreamResponse::StatusUpdate(update) = &event.body {
            self.state = update.status.state.clone();
        }
        self.stamp = self.stamp.max(now);
        self.add(event, bytes);
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

    fn add(&mut self, event: Event, bytes: Vec<u8>) {
        self.bytes += bytes.len();
        self.total_bytes += bytes.len() as u64;
        self.total_events += 1;
        let new = NewEvent::with_bytes(self.number, &event, bytes);
        self.events.push((new, event.body));
    }

    /// Throws away what waits. What opens the attempt stays.
    pub(crate) fn drop_waiting(&mut self) {
        self.session = None;
        let keep = usize::from(self.open != Open::No);
        self.events.truncate(keep);
        self.bytes = self.events.iter().map(|(event, _)| event.bytes.len()).sum();
    }

    /// Makes the waiting events a batch. It stays the same batch however often it is sent.
    pub(crate) fn ready(&self, nonce: Nonce) -> Result<Ready, FoldError> {
        let (count, bytes) = self.since_snapshot;
        let (count, bytes) = (count + self.events.len() as u64, bytes + self.bytes);
        let due = (count >= SNAPSHOT_EVENTS || bytes >= SNAPSHOT_BYTES)
            && bytes >= self.snapshot_bytes / SNAPSHOT_PART
            && self.total_bytes <= SNAPSHOT_MOST;
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
        let mut facts = None;
        if let (StreamResponse::StatusUpdate(update), Some(mut metadata)) = (&mut event.body, close.metadata) {
            facts = metadata.remove(event::TURN);
            metadata.extend(update.metadata.take().unwrap_or_default());
            update.metadata = Some(metadata);
        }
        if let Some(facts) = facts {
            event::add_facts(&mut event, facts);
        }
        let new = NewEvent::new(self.number, &event);
        let mut after = self.fold(nonce)?;
        after.apply_event(after.at().after(1, nonce), new.kind, event.body)?;
        let mut events: Vec<NewEvent> = self.events.iter().map(|(event, _)| event.clone()).collect();
        events.push(new);
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

    /// Everything that the agent has said as its current answer, `last` included, which has not been written.
    pub(crate) fn answer(&self, last: Option<&Message>) -> Vec<Part> {
        let Ok(fold) = self.fold(Nonce(0)) else {
            return Vec::new();
        };
        let before = fold.into_state().status.message;
        match (before, last) {
            (Some(before), Some(last)) if before.message_id == last.message_id => {
                let mut parts = before.parts;
                join(&mut parts, last.parts.clone());
                parts
            }
            (_, Some(last)) => last.parts.clone(),
            (Some(before), None) => before.parts,
            (None, None) => Vec::new(),
        }
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

/// The task right after the turn's first event, or that of its last answer.
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

/// How long a value is as JSON.
fn json_len(value: &impl serde::Serialize) -> u64 {
    serde_json::to_vec(value).map_or(0, |bytes| bytes.len() as u64)
}

#[cfg(test)]
mod tests;
