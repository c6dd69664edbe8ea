//! Ending a task that waits for a message and has no turn: a cancel of an interrupted task.

use a2a::Message;

use super::journal::{NewEvent, events_args, history_args};
use super::retention::Keep;
use super::script::{Args, Name};
use super::turns::json;
use super::{Settled, Store, StoreError};
use crate::domain::fold::Folded;
use crate::domain::state::{self, End};
use crate::ids::{EntryId, Nonce, TaskId};

/// The end of a task without a turn.
#[derive(Debug)]
pub struct CloseTask<'a> {
    /// The task.
    pub task: TaskId,
    /// Its last entry, as it was read.
    pub follows: EntryId,
    /// How it ends; terminal.
    pub end: End,
    /// The batch.
    pub nonce: Nonce,
    /// Time of the end (Redis ms).
    pub stamp: u64,
    /// The event.
    pub event: &'a NewEvent,
    /// The folded state after it, without what the history receives.
    pub snapshot: &'a Folded,
    /// What the stored history receives.
    pub history: &'a [Message],
}

impl Store {
    /// Ends a task that has no turn, if it is still as it was read. Safe to send twice.
    ///
    /// # Errors
    /// [`StoreError`]; after `Unavailable` the same call resolves it.
    pub async fn close_task(&self, close: &CloseTask<'_>, keep: &Keep) -> Result<Settled, StoreError> {
        let mut args = Args::new();
        args.push(self.publish())
            .push(close.task.to_string())
            .push(close.follows.to_string())
            .push(close.nonce.to_string())
            .number(close.stamp)
            .push(state::word(&close.end.state()))
            .push(json("snapshot", close.snapshot)?)
            .number(keep.task_ms)
            .number(keep.journal_ms);
        history_args(&mut args, close.history)?;
        events_args(&mut args, std::slice::from_ref(close.event));
        let reply = self.run(Name::Close, close.task.partition(), &args).await?;
        match reply.tag.as_str() {
            "OK" => Ok(Settled::Done),
            "RETRY" => Ok(Settled::Changed),
            _ => Err(reply.unknown()),
        }
    }
}
