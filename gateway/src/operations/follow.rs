//! Streams: what a listener hears, as events for a client, until their end.
//!
//! A stream opened with or for a turn ends at that turn's end, or when its agent suspends it; one opened on an idle task ends when the task does. It
//! also ends, before its end and at an event boundary, when it is too old or the gateway stops: the client comes back
//! with its cursor. A position that no longer exists becomes a snapshot that says so; a task that no longer exists, an
//! error.

use std::pin::Pin;

use a2a::StreamResponse;
use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream;
use relevo_shared::domain::class::{Class, Kind};
use relevo_shared::domain::{event, wire};
use relevo_shared::ids::{Cursor, EntryId};
use relevo_shared::platform::metrics::Gauge;
use relevo_shared::store::{HistoryLength, StoredTask};
use tokio::time::Instant;

use super::until_answered;
use crate::drain::Seat;
use crate::error::ApiError;
use crate::hub::{Event, Listener, News};
use crate::services::{Inner, Services};

/// An event on its way to a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StreamEvent {
    /// Where the client can go on after it.
    pub(crate) cursor: Cursor,
    /// The StreamResponse, as stored.
    pub(crate) body: Bytes,
    /// Whether the stream ends with it.
    pub(crate) last: bool,
}

/// What a stream consists of.
#[derive(Debug)]
pub(crate) enum StreamItem {
    /// Events, in order.
    Events(Vec<StreamEvent>),
    /// It ends here because of this.
    Failed(ApiError),
    /// It ends here although more will follow: come back.
    Moved,
}

/// A stream of a task's events.
pub(crate) type EventStream = Pin<Box<dyn Stream<Item = StreamItem> + Send>>;

/// What ends a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// The end of this turn.
    Turn(u32),
    /// The end of the task.
    Task,
}

impl Until {
    fn ended_by(self, kind: Kind) -> bool {
        match (self, kind.class) {
            (_, Class::Terminal) => true,
            (Self::Turn(number), Class::Interrupted) => kind.turn >= number,
            (Self::Turn(number), Class::Normal | Class::Waiting | Class::Boundary) => kind.turn > number,
            (Self::Task, _) => false,
        }
    }

    /// Whether it had ended when the task looked like this.
    fn ended_at(self, stored: &StoredTask) -> bool {
        match self {
            Self::Turn(number) => stored.terminal || stored.running().is_none() || stored.number > number,
            Self::Task => stored.terminal,
        }
    }
}

/// Counts a stream while it is open.
struct Open(Gauge);

impl Open {
    fn new(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A stream in progress.
pub(super) struct Follow {
    services: Services,
    listener: Listener,
    until: Until,
    /// Whether no turn is running.
    idle: bool,
    opening: Vec<StreamEvent>,
    /// How much history a snapshot holds.
    history: HistoryLength,
    ended: bool,
    expires: Instant,
    seat: Seat,
    _open: Open,
}

impl Follow {
    pub(super) fn new(services: &Services, listener: Listener, until: Until) -> Self {
        Self {
            services: Services::clone(services),
            listener,
            until,
            idle: until == Until::Task,
            opening: Vec::new(),
            history: HistoryLength::All,
            ended: false,
            expires: Instant::now() + services.settings.stream.max_age,
            seat: services.drain.seat(),
            _open: Open::new(services.metrics.streams.clone()),
        }
    }

    /// Snapshots hold no more history than that.
    pub(super) fn limited(mut self, history: HistoryLength) -> Self {
        self.history = history;
        self
    }

    /// Begins with an event that the listener does not hear.
    pub(super) fn opened(mut self, cursor: Cursor, body: Bytes) -> Self {
        let last = false;
        self.opening.push(StreamEvent { cursor, body, last });
        self
    }

    /// Begins with events that were read already.
    pub(super) fn replayed(mut self, events: Vec<Event>) -> Self {
        let events = self.until_end(events);
        self.opening.extend(events);
        self
    }

    /// Begins with a snapshot in place of what followed a position that is gone.
    pub(super) fn reopened(mut self, requested: EntryId, stored: StoredTask) -> Self {
        self.ended = self.until.ended_at(&stored);
        let event = self.bridge(requested, stored);
        self.opening.push(event);
        self
    }

    /// Ends after what it begins with.
    pub(super) fn ended(mut self) -> Self {
        self.ended = true;
        self
    }

    pub(super) fn into_stream(self) -> EventStream {
        Box::pin(stream::unfold(self, |mut follow| async move {
            let item = follow.next().await?;
            Some((item, follow))
        }))
    }

    async fn next(&mut self) -> Option<StreamItem> {
        if !self.opening.is_empty() {
            return Some(StreamItem::Events(std::mem::take(&mut self.opening)));
        }
        if self.ended {
            return None;
        }
        loop {
            if Instant::now() >= self.expires {
                return Some(self.leave());
            }
            let news = tokio::select! {
                biased;
                // First: a busy journal must not keep a stream beyond the gateway's stop.
                () = self.seat.must_go(self.idle) => return Some(self.leave()),
                news = self.listener.next() => news,
                () = tokio::time::sleep_until(self.expires) => return Some(self.leave()),
            };
            match news {
                News::Events(events) => {
                    let events = self.until_end(events);
                    return Some(StreamItem::Events(events));
                }
                News::Broken(error) => return Some(self.fail(error.into())),
                // Boxed: rare, and large for what every idle stream would hold.
                News::Gap => match Box::pin(self.cross_gap()).await {
                    Ok(Some(event)) => return Some(StreamItem::Events(vec![event])),
                    Ok(None) => {}
                    Err(error) => return Some(self.fail(error)),
                },
            }
        }
    }

    fn leave(&mut self) -> StreamItem {
        self.ended = true;
        StreamItem::Moved
    }

    fn fail(&mut self, error: ApiError) -> StreamItem {
        self.ended = true;
        StreamItem::Failed(error)
    }

    /// The events up to the stream's end, if it is among them.
    fn until_end(&mut self, events: Vec<Event>) -> Vec<StreamEvent> {
        let mut out = Vec::with_capacity(events.len());
        for event in events {
            self.idle = event.kind.class.ends_turn();
            let cursor = Cursor {
                task: self.listener.task(),
                entry: event.id,
            };
            let last = self.until.ended_by(event.kind);
            out.push(StreamEvent {
                cursor,
                body: event.bytes,
                last,
            });
            if last {
                self.ended = true;
                break;
            }
        }
        out
    }

    /// Goes on behind a gap: `None` when nothing was missed after all.
    async fn cross_gap(&mut self) -> Result<Option<StreamEvent>, ApiError> {
        let task = self.listener.task();
        // Held while Redis is away, like every open stream, but not for ever.
        let store = &self.services.store;
        let stored = until_answered(self.expires, || store.read_task(task, self.history)).await?;
        let stored = stored.ok_or(ApiError::StateLost(task))?;
        let position = self.listener.position();
        if stored.last == position {
            // The journal of ended turns is dropped after a while; everything in it was delivered.
            self.ended = self.until.ended_at(&stored);
            return Ok(None);
        }
        self.ended = self.until.ended_at(&stored);
        Ok(Some(self.bridge(position, stored)))
    }

    fn bridge(&mut self, requested: EntryId, stored: StoredTask) -> StreamEvent {
        self.services.metrics.resumes.with_label_values(&["gap"]).inc();
        let requested = Cursor {
            task: stored.task,
            entry: requested,
        };
        let cursor = Cursor {
            task: stored.task,
            entry: stored.last,
        };
        self.listener.reset(stored.last);
        self.idle = stored.running().is_none();
        tracing::warn!(task.id = %stored.task, requested = %requested, cursor = %cursor, "a stream met a gap");
        let task = event::gap(stored.into_task(self.history), &requested.to_string(), cursor);
        StreamEvent {
            cursor,
            body: snapshot(task),
            last: self.ended,
        }
    }
}

/// The event that shows a task.
pub(super) fn snapshot(task: a2a::Task) -> Bytes {
    Bytes::from(wire::to_vec(&StreamResponse::Task(task)))
}

/// A stream of one event.
pub(super) fn single(services: &Inner, cursor: Cursor, body: Bytes) -> EventStream {
    let open = Open::new(services.metrics.streams.clone());
    Box::pin(stream::once(async move {
        let _open = open;
        let last = true;
        StreamItem::Events(vec![StreamEvent { cursor, body, last }])
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(until: Until, kind: &str) -> bool {
        until.ended_by(kind.parse().unwrap())
    }

    #[test]
    fn a_stream_of_a_turn_ends_with_its_own_turn_only() {
        for (kind, end) in [
            ("1.i", false),
            ("2.n", false),
            ("2.w", false),
            ("2.b", false),
            ("2.i", true),
            ("2.t", true),
        ] {
            assert_eq!(ends(Until::Turn(2), kind), end, "{kind}");
        }
    }

    #[test]
    fn a_subscription_of_an_idle_task_ends_with_the_task() {
        for (kind, end) in [("1.i", false), ("2.n", false), ("2.i", false), ("7.t", true)] {
            assert_eq!(ends(Until::Task, kind), end, "{kind}");
        }
    }
}
