//! Suspended turns: a lease holder leaves its turn to wait for its user, and a message of that user resumes it.

use a2a::Message;

use super::journal::{Batch, EmitReply, NewEvent, events_args, history_args};
use super::keys::queue_name;
use super::script::{Args, Name};
use super::turns::{KEEP_TURN_MS, Submitted, json, submitted};
use super::{Store, StoreError};
use crate::domain::event::Event;
use crate::domain::fold::Folded;
use crate::domain::record::TurnRecord;
use crate::domain::state;
use crate::ids::{EntryId, Nonce, TurnId};

/// How an attempt leaves its turn to wait, beside its last batch.
#[derive(Debug)]
pub struct Suspend<'a> {
    /// The turn as it is from now on ([`TurnRecord::suspended`]).
    pub record: &'a TurnRecord,
    /// The folded state after the batch, without what the history receives.
    pub snapshot: &'a Folded,
    /// What the stored history receives.
    pub history: &'a [Message],
    /// The first entry of the journal to keep.
    pub trim_below: Option<EntryId>,
    /// How long it may wait, in ms.
    pub longest_ms: u64,
}

/// A message to the task of a suspended turn.
#[derive(Debug)]
pub struct Answering<'a> {
    /// The turn as it is from now on ([`TurnRecord::answered`]).
    pub record: &'a TurnRecord,
    /// What a repeat is known by.
    pub id: TurnId,
    /// Its first event.
    pub first: &'a Event,
    /// The batch of that event.
    pub nonce: Nonce,
    /// The task's last entry as it was read.
    pub follows: EntryId,
    /// The question that stops being the status message, then the user's message.
    pub history: &'a [Message],
    /// Whether the turn is on its last attempt.
    pub last_attempt: bool,
    /// How long a repeat is answered, in ms; 10 min at the least.
    pub remember_ms: u64,
}

impl Store {
    /// Appends the last batch of an attempt and leaves its turn to wait for its user. Safe to send twice.
    ///
    /// # Errors
    /// [`StoreError`]; after `Unavailable` the same call resolves it.
    pub async fn suspend(&self, batch: &Batch<'_>, suspend: &Suspend<'_>) -> Result<EmitReply, StoreError> {
        let record = suspend.record;
        let mut args = self.batch_args(batch);
        args.push(json("snapshot", suspend.snapshot)?)
            .push(json("turn record", record)?)
            .number(suspend.longest_ms)
            .push(record.deadline.map(|at| at.to_string()).unwrap_or_default())
            .push(suspend.trim_below.map(|id| id.to_string()).unwrap_or_default());
        history_args(&mut args, suspend.history)?;
        events_args(&mut args, batch.events);
        args.push(batch.agent);
        let mut reply = self.run(Name::Suspend, batch.partition, &args).await?;
        self.emit_reply(&mut reply)
    }

    /// Resumes a suspended turn, or says why not. Safe to send twice.
    ///
    /// # Errors
    /// [`StoreError`]; after `Unavailable` the outcome is unknown and the same call resolves it.
    pub async fn answer(&self, answering: &Answering<'_>) -> Result<Submitted, StoreError> {
        let record = answering.record;
        let scope = record.scope();
        let (context, partition) = self.place(&scope, &record.context_id);
        let place = record.goes_on_from(answering.follows.after(1, answering.nonce), 0);
        let suffix = if answering.last_attempt { ":last" } else { ":first" };
        let mut args = Args::new();
        args.push(self.publish())
            .push(queue_name(&record.pool, suffix))
            .push(record.turn.to_string())
            .push(context.as_str())
            .push(scope.as_str())
            .push(record.task.to_string())
            .push(json("turn record", record)?)
            .push(answering.id.to_string())
            .push(answering.nonce.to_string())
            .push(answering.follows.to_string())
            .number(record.submitted)
            .push(state::word(&a2a::TaskState::Submitted))
            .number(u64::from(place.number))
            .number(record.queue_age.saturating_add(1))
            .push(record.deadline.map(|at| at.to_string()).unwrap_or_default())
            .number(answering.remember_ms.max(KEEP_TURN_MS))
            .flag(record.workspace);
        history_args(&mut args, answering.history)?;
        events_args(&mut args, &[NewEvent::new(place.number, answering.first)]);
        submitted(&mut self.run(Name::Answer, partition, &args).await?)
    }
}
