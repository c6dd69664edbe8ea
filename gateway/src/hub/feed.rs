//! One listener's place: its position, what waits for it, and whether the journal must be read.
//!
//! INVARIANT: `position` is the id of the last entry that was put into the queue (or the start). Entries enter the queue
//! in journal order only: from a doorbell whose `prev` is the position, or from a read that began at it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use relevo_shared::domain::class::Kind;
use relevo_shared::domain::fold::Entry;
use relevo_shared::domain::position::{self, Next};
use relevo_shared::ids::{EntryId, TaskId};
use relevo_shared::store::Doorbell;
use tokio::sync::Notify;
use tokio::time::Instant;

/// An event as a listener gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// Where it stands in the journal.
    pub(crate) id: EntryId,
    /// What it means.
    pub(crate) kind: Kind,
    /// What clients see; empty for listeners that only want to know what happened.
    pub(crate) bytes: Bytes,
}

/// What a listener is interested in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// The events themselves.
    Events,
    /// What they mean, and the events themselves as long as all of them together are few bytes: a waiting call folds its answer
    /// from them, or reads it when they were more.
    Few,
    /// Only what they mean.
    Kinds,
}

/// Most bytes that are kept for [`Want::Few`].
const FEW: usize = 32 << 10;

/// Why the journal must be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The listener is new on a task that exists.
    Join,
    /// A doorbell did not continue at the position.
    Missed,
    /// A doorbell came without its events.
    Large,
    /// The listener did not keep up.
    Budget,
    /// A look without a doorbell found something.
    Reread,
}

impl Reason {
    /// The metric label.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Join => "join",
            Self::Missed => "missed",
            Self::Large => "large",
            Self::Budget => "budget",
            Self::Reread => "reread",
        }
    }
}

/// Entries per read to begin with, each at most `turn.event_bytes`; then by their size.
const FIRST_WINDOW: usize = 4;
const LARGEST_WINDOW: usize = 256;

#[derive(Debug)]
struct State {
    want: Want,
    /// Bytes that [`Want::Few`] may still keep.
    few: usize,
    position: EntryId,
    queue: VecDeque<Event>,
    queued: usize,
    behind: Option<Reason>,
    reading: bool,
    /// When the position was last known to be the journal's end, or was being read.
    checked: Option<Instant>,
    window: usize,
}

/// Shared by the hub, which fills it, and its listener, which empties it.
#[derive(Debug)]
pub(super) struct Feed {
    task: TaskId,
    budget: usize,
    state: Mutex<State>,
    news: Notify,
}

/// What the listener has to do.
#[derive(Debug)]
pub(super) enum Todo {
    /// Deliver these.
    Deliver(Vec<Event>),
    /// Read up to so many entries from the position.
    Read(EntryId, usize, Reason),
    /// Wait for news.
    Wait,
}

impl Feed {
    pub(super) fn new(task: TaskId, position: EntryId, want: Want, budget: usize) -> Self {
        let state = State {
            want,
            few: FEW,
            position,
            queue: VecDeque::new(),
            queued: 0,
            behind: None,
            reading: false,
            checked: Some(Instant::now()),
            window: FIRST_WINDOW,
        };
        Self {
            task,
            budget,
            state: Mutex::new(state),
            news: Notify::new(),
        }
    }

    pub(super) fn task(&self) -> TaskId {
        self.task
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there may be something to do. Cancel-safe.
    pub(super) async fn news(&self) {
        self.news.notified().await;
    }

    /// The id of the last entry that was queued or delivered.
    pub(super) fn position(&self) -> EntryId {
        self.state().position
    }

    /// Goes on from another position; what was queued is dropped, what may have been missed is read.
    pub(super) fn reset(&self, position: EntryId) {
        let mut state = self.state();
        state.position = position;
        state.queue.clear();
        state.queued = 0;
        state.behind = Some(Reason::Join);
    }

    /// The journal must be read.
    pub(super) fn fall_behind(&self, reason: Reason) {
        self.state().fall_behind(reason);
        self.news.notify_one();
    }

    /// Takes a doorbell.
    pub(super) fn ring(&self, bell: &Doorbell) {
        let mut state = self.state();
        match position::doorbell(state.position, bell.prev, bell.last) {
            Next::Seen => return,
            Next::Unknown => state.fall_behind(Reason::Missed),
            // A read is under way: it may or may not see these entries.
            Next::Continues if state.reading || state.behind.is_some() => state.fall_behind(Reason::Missed),
            Next::Continues => self.take(&mut state, bell),
        }
        drop(state);
        self.news.notify_one();
    }

    fn take(&self, state: &mut State, bell: &Doorbell) {
        state.checked = Some(Instant::now());
        let carried = bell.events.iter().map(|event| event.bytes.as_ref().map(Bytes::len));
        let carried: Option<usize> = carried.sum();
        state.want_less(carried);
        let size = if state.want == Want::Kinds {
            0
        } else {
            carried.unwrap_or(0)
        };
        if state.want == Want::Events && carried.is_none() {
            state.fall_behind(Reason::Large);
        } else if state.queued + size > self.budget {
            state.fall_behind(Reason::Budget);
        } else {
            state.queued += size;
            state.position = bell.last;
            let keep = state.want != Want::Kinds;
            state.queue.extend(bell.events.iter().map(|event| Event {
                id: event.id,
                kind: event.kind,
                bytes: event.bytes.clone().filter(|_| keep).unwrap_or_default(),
            }));
        }
    }

    /// What the listener has to do next. After [`Todo::Read`] it must call [`Feed::end_read`].
    pub(super) fn next(&self) -> Todo {
        let mut state = self.state();
        if !state.queue.is_empty() {
            state.queued = 0;
            return Todo::Deliver(state.queue.drain(..).collect());
        }
        match state.behind.take() {
            Some(reason) => {
                state.reading = true;
                Todo::Read(state.position, state.window, reason)
            }
            None => Todo::Wait,
        }
    }

    /// What to do when nothing but the journal is to be trusted: a read, unless doorbells have already brought what follows the
    /// position.
    pub(super) fn first(&self) -> Todo {
        self.state().fall_behind(Reason::Join);
        self.next()
    }

    /// Ends a read that gave these entries, and returns them as events: no more than the budget, and at least one.
    pub(super) fn end_read(&self, asked: usize, mut entries: Vec<Entry>) -> Vec<Event> {
        let mut state = self.state();
        state.reading = false;
        state.checked = Some(Instant::now());
        let bytes: usize = entries.iter().map(|entry| entry.bytes.len()).sum();
        let whole = entries.len();
        let mut room = self.budget;
        let fits = entries.iter().take_while(|entry| {
            let fits = entry.bytes.len() <= room;
            room = room.saturating_sub(entry.bytes.len());
            fits
        });
        let fitting = fits.count().max(1);
        state.want_less(Some(bytes));
        if state.want == Want::Events {
            entries.truncate(fitting);
        }
        if whole >= asked || entries.len() < whole {
            state.fall_behind(Reason::Budget);
        }
        state.adapt(bytes, whole, self.budget);
        if let Some(last) = entries.last() {
            state.position = last.id;
        }
        let keep = state.want != Want::Kinds;
        let event = |entry: Entry| Event {
            id: entry.id,
            kind: entry.kind,
            bytes: if keep { Bytes::from(entry.bytes) } else { Bytes::new() },
        };
        entries.into_iter().map(event).collect()
    }

    /// Ends a read that gave nothing to go on with; `again` when it must be repeated.
    pub(super) fn give_up_read(&self, again: Option<Reason>) {
        let mut state = self.state();
        state.reading = false;
        state.checked = Some(Instant::now());
        if let Some(reason) = again {
            state.fall_behind(reason);
        }
    }

    /// The position, if it was not looked at for `age` and nobody is about to.
    pub(super) fn due(&self, now: Instant, age: Duration) -> Option<EntryId> {
        let state = self.state();
        let busy = state.reading || state.behind.is_some() || !state.queue.is_empty();
        let old = state.checked.is_none_or(|checked| now.duration_since(checked) >= age);
        (!busy && old).then_some(state.position)
    }

    /// Nothing was found behind the position.
    pub(super) fn confirm(&self, position: EntryId) {
        let mut state = self.state();
        if state.position == position {
            state.checked = Some(Instant::now());
        }
    }

    /// The position must be looked at as soon as possible.
    pub(super) fn doubt(&self) {
        self.state().checked = None;
    }
}

impl State {
    /// Counts what a listener of [`Want::Few`] gets; more than a few, or a batch without its events, and it gets no more bytes.
    fn want_less(&mut self, bytes: Option<usize>) {
        if self.want != Want::Few {
            return;
        }
        match bytes.and_then(|bytes| self.few.checked_sub(bytes)) {
            Some(left) => self.few = left,
            None => self.want = Want::Kinds,
        }
    }

    fn fall_behind(&mut self, reason: Reason) {
        self.behind.get_or_insert(reason);
    }

    /// Reads fewer entries at once when they are large, so that a read stays near the budget.
    fn adapt(&mut self, bytes: usize, entries: usize, budget: usize) {
        if bytes > budget {
            self.window = (entries / 2).max(1);
        } else if entries >= self.window && bytes < budget / 4 {
            self.window = (self.window * 2).min(LARGEST_WINDOW);
        }
    }
}

#[cfg(test)]
mod tests;
