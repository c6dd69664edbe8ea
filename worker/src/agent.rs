//! The only plug-in point: what runs a turn. An agent receives the turn and a sink, and returns how the turn ended.
//!
//! What an agent must tolerate: it may be run again for the same turn (at least once, unless its policy is `fail`); the epoch
//! rises with every run, and what an earlier run streamed is void; its cancel token may fire at any time.

pub mod demo;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use a2a::Message;
use relevo_shared::domain::reason::FailReason;
use relevo_shared::domain::record::{Sender, TurnRecord};
use relevo_shared::ids::Epoch;
use tokio::sync::watch;

pub use crate::runner::sink::{EventSink, SinkClosed};

/// What an agent is given.
#[derive(Debug, Clone)]
pub struct Turn {
    /// The turn as it was accepted: ids, message, sender, metadata.
    pub record: Arc<TurnRecord>,
    /// Which turn of its task, from 1.
    pub number: u32,
    /// Which attempt, from 1; hand-backs count too.
    pub attempt: u32,
    /// Fencing number: rises with every run of the context.
    pub epoch: Epoch,
}

impl Turn {
    /// Who sent the message.
    pub fn sender(&self) -> &Sender {
        &self.record.sender
    }
}

/// How an agent ends a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Done.
    Completed,
    /// Went wrong, as an answer.
    Failed,
    /// The message is refused.
    Rejected,
    /// Another message is needed.
    InputRequired,
    /// Credentials are needed.
    AuthRequired,
}

/// What an agent returns.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The turn has ended, with a last message if there is more to say.
    Ended(Ending, Option<Message>),
    /// The agent could not do its work.
    Failed(FailReason, String),
}

/// Why a turn must stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// Its client asked.
    Client,
    /// Its time is over.
    Deadline,
    /// The worker shuts down.
    Drain,
    /// The lease is not (or may not be) this worker's any more.
    Lease,
}

/// Tells an agent to stop. Clones are the same value.
#[derive(Debug, Clone)]
pub struct CancelToken(watch::Receiver<Option<StopReason>>);

impl CancelToken {
    pub(crate) fn new() -> (watch::Sender<Option<StopReason>>, Self) {
        let (sender, receiver) = watch::channel(None);
        (sender, Self(receiver))
    }

    /// Why it must stop, if it must.
    pub fn reason(&self) -> Option<StopReason> {
        *self.0.borrow()
    }

    /// Waits until it must stop. Cancel-safe.
    pub async fn canceled(&self) -> StopReason {
        let mut receiver = self.0.clone();
        loop {
            let reason = *receiver.borrow_and_update();
            if let Some(reason) = reason {
                return reason;
            }
            if receiver.changed().await.is_err() {
                // The runner is gone: nobody waits for the turn any more.
                return StopReason::Lease;
            }
        }
    }
}

/// The future of a run.
pub type Running<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// Runs turns. One value serves many turns at once.
pub trait Agent: Send + Sync + 'static {
    /// Runs one turn to its end. Events go into the sink; they are in the journal before anyone sees them.
    fn run<'a>(&'a self, turn: Turn, sink: &'a EventSink, cancel: CancelToken) -> Running<'a>;
}
