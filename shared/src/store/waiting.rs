//! Turns that wait for their context, behind its live turn: whoever ends that one begins the next, in the same step.
//!
//! Only a turn that creates its task waits, so a waiting turn has never run: its end needs no fence, only that it still waits.

use a2a::Message;
use redis::Value;

use super::connection::{At, command};
use super::journal::{NewEvent, events_args, history_args};
use super::retention::Keep;
use super::script::{Args, Name, text};
use super::settle::{Settled, settled};
use super::turns::json;
use super::{Store, StoreError};
use crate::domain::fold::Folded;
use crate::domain::record::TurnRecord;
use crate::domain::state::{self, End};
use crate::ids::{ContextKey, EntryId, Nonce, Partition, TaskId, TurnId};

/// Most turns that wait in a context.
pub const MOST_WAITING: u64 = 16;

/// The end of a turn that waits, as its task was read.
#[derive(Debug, Clone)]
pub struct Withdrawal {
    /// The turn.
    pub turn: TurnId,
    /// Its task.
    pub task: TaskId,
    /// The task's last entry.
    pub follows: EntryId,
    /// The batch.
    pub nonce: Nonce,
    /// Time of the end (Redis ms).
    pub stamp: u64,
    /// The event.
    pub event: NewEvent,
    /// The folded state after it, without what the history receives.
    pub snapshot: Folded,
    /// What the stored history receives.
    pub history: Vec<Message>,
    /// How long a repeated submit is answered, in ms.
    pub remember_ms: u64,
}

/// Everything of a context that ends for a turn which interrupts it, as it was read.
#[derive(Debug, Clone)]
pub struct Interrupt {
    /// The live turn, whose cancel is requested.
    pub live: TurnId,
    /// All that wait, in their order.
    pub waiting: Vec<Withdrawal>,
    /// How long they are kept.
    pub keep: Keep,
}

impl Store {
    /// The turns that wait in a context, in their order.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn waiting_turns(
        &self,
        partition: Partition,
        context: &ContextKey,
    ) -> Result<Vec<TurnRecord>, StoreError> {
        let mut range = command("LRANGE");
        range.arg(self.keys().waiting(partition, context)).arg(0).arg(-1);
        let Value::Array(turns) = self.one("LRANGE", At::Partition(partition), &range).await? else {
            return Err(StoreError::corrupt("waiting turns", "not a list"));
        };
        let mut records = Vec::with_capacity(turns.len());
        for turn in turns.iter().filter_map(text) {
            let turn = TurnId::parse(&turn).ok_or_else(|| StoreError::corrupt("waiting turns", "not a turn"))?;
            // One that is over by now is missed by whoever compares.
            records.extend(self.accepted_turn(turn).await?);
        }
        Ok(records)
    }

    /// What a turn was accepted with, until it is over.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn accepted_turn(&self, turn: TurnId) -> Result<Option<TurnRecord>, StoreError> {
        let mut get = command("HGET");
        get.arg(self.keys().turn(turn)).arg("r");
        match self.one("HGET", At::Partition(turn.partition()), &get).await? {
            Value::BulkString(record) => self.read_record(&record).map(Some),
            _ => Ok(None),
        }
    }

    /// Ends a task whose turn waits, if it still does.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn withdraw(
        &self,
        context: &ContextKey,
        withdrawal: &Withdrawal,
        keep: &Keep,
    ) -> Result<Settled, StoreError> {
        let mut args = Args::new();
        args.push(self.publish()).push(context.as_str());
        withdrawal_args(&mut args, withdrawal, keep)?;
        settled(&self.run(Name::Withdraw, withdrawal.task.partition(), &args).await?)
    }

    pub(super) fn interrupt_args(args: &mut Args, interrupt: Option<&Interrupt>) -> Result<(), StoreError> {
        let Some(Interrupt { waiting, keep, .. }) = interrupt else {
            args.number(0);
            return Ok(());
        };
        args.number(waiting.len() as u64);
        waiting.iter().try_for_each(|each| withdrawal_args(args, each, keep))
    }

    /// Rings for the turn that a script has queued, if it has: who takes it is not empty. A lost bell costs a second.
    pub(super) async fn ring_for_next(&self, takers: &str, partition: Partition, now: u64) {
        if !takers.is_empty() {
            drop(self.ring(takers, partition, now).await);
        }
    }
}

fn withdrawal_args(args: &mut Args, withdrawal: &Withdrawal, keep: &Keep) -> Result<(), StoreError> {
    args.push(withdrawal.turn.to_string())
        .push(withdrawal.task.to_string())
        .push(withdrawal.follows.to_string())
        .push(withdrawal.nonce.to_string())
        .number(withdrawal.stamp)
        .push(state::word(&End::Canceled.state()))
        .push(json("snapshot", &withdrawal.snapshot)?);
    Store::keep_args(args, keep, true, withdrawal.remember_ms);
    history_args(args, &withdrawal.history)?;
    events_args(args, std::slice::from_ref(&withdrawal.event));
    Ok(())
}
