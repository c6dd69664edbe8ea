//! The reading end: what a stream or a waiting call holds.

use std::sync::Arc;
use std::time::Duration;

use relevo_shared::domain::retry::jitter;
use relevo_shared::ids::{EntryId, TaskId};
use relevo_shared::platform::entropy;
use relevo_shared::store::{JournalRead, Retry, StoreError};

use super::Inner;
use super::feed::{Event, Feed, Reason, Todo};

/// Waits between reads while Redis is away.
const FIRST_PAUSE_MS: u64 = 100;
const LONGEST_PAUSE_MS: u64 = 2_000;

/// What a listener hears.
#[derive(Debug)]
pub(crate) enum News {
    /// The next events, in order; never empty.
    Events(Vec<Event>),
    /// The position does not exist any more.
    Gap,
    /// The journal is not readable, and will not get better.
    Broken(StoreError),
}

/// Hears what follows a position in a task's journal. Leaves the hub when it is dropped.
pub(crate) struct Listener {
    hub: Arc<Inner>,
    feed: Arc<Feed>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener")
            .field("feed", &self.feed)
            .finish_non_exhaustive()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.hub.table().part(&self.feed);
    }
}

/// Marks the end of a read also when it is given up in the middle.
struct Reading<'a> {
    feed: &'a Feed,
    ended: bool,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.feed.give_up_read(Some(Reason::Missed));
        }
    }
}

impl Listener {
    pub(super) fn new(hub: Arc<Inner>, feed: Arc<Feed>) -> Self {
        Self { hub, feed }
    }

    /// The last entry that was heard.
    pub(crate) fn position(&self) -> EntryId {
        self.feed.position()
    }

    /// The task it listens to.
    pub(crate) fn task(&self) -> TaskId {
        self.feed.task()
    }

    /// Goes on from another position.
    pub(crate) fn reset(&mut self, position: EntryId) {
        self.feed.reset(position);
    }

    /// What is already in the journal is to be read: for a listener on a task that existed before it joined.
    pub(crate) fn look(&mut self) {
        self.feed.fall_behind(Reason::Join);
    }

    /// Waits for what follows. Cancel-safe: nothing is lost when it is dropped and called again.
    pub(crate) async fn next(&mut self) -> News {
        let mut pause = FIRST_PAUSE_MS;
        loop {
            let (from, count, reason) = match self.feed.next() {
                Todo::Deliver(events) => return News::Events(events),
                Todo::Wait => {
                    self.feed.news().await;
                    continue;
                }
                Todo::Read(from, count, reason) => (from, count, reason),
            };
            self.count(reason);
            // Boxed: a listener waits nearly always, and would hold the room for a read all the time.
            match Box::pin(self.read_from(from, count)).await {
                Ok(Some(events)) if events.is_empty() => {}
                Ok(Some(events)) => return News::Events(events),
                Ok(None) => return News::Gap,
                Err(error) if error.retry() == Retry::Never => return News::Broken(error),
                Err(error) => {
                    tracing::debug!(
                        error = &error as &dyn std::error::Error,
                        "a journal cannot be read; trying again"
                    );
                    // Streams are held while Redis is away.
                    tokio::time::sleep(Duration::from_millis(jitter(pause, entropy::u64()))).await;
                    pause = (pause * 2).min(LONGEST_PAUSE_MS);
                }
            }
        }
    }

    /// Reads once, whatever is known: the events after the position (none at the journal's end), or `None` for a gap.
    pub(crate) async fn read(&self) -> Result<Option<Vec<Event>>, StoreError> {
        match self.feed.first() {
            // A doorbell that continued at the position says that it exists.
            Todo::Deliver(events) => Ok(Some(events)),
            Todo::Wait => Ok(Some(Vec::new())),
            Todo::Read(from, count, reason) => {
                self.count(reason);
                self.read_from(from, count).await
            }
        }
    }

    fn count(&self, reason: Reason) {
        self.hub
            .metrics
            .journal_reads
            .with_label_values(&[reason.label()])
            .inc();
    }

    async fn read_from(&self, from: EntryId, count: usize) -> Result<Option<Vec<Event>>, StoreError> {
        let mut reading = Reading {
            feed: &self.feed,
            ended: false,
        };
        let read = self.hub.store.read_journal(self.feed.task(), from, count).await?;
        reading.ended = true;
        Ok(match read {
            JournalRead::Entries(entries) => Some(self.feed.end_read(count, entries)),
            JournalRead::Gap => {
                self.feed.give_up_read(None);
                None
            }
        })
    }
}
