//! The only plug-in point: what runs a turn. An agent receives the turn and a sink, and returns how the turn ended.
//!
//! An agent that needs its user in the middle suspends the turn: it returns, and is run again with the answer.
//!
//! What an agent must tolerate: it may be run again for the same turn (at least once, unless its policy is `fail`); the epoch
//! rises with every run, and what an earlier run streamed is void; its cancel token may fire at any time.

pub mod a2a;
pub mod demo;
mod ending;
pub mod openai;
pub mod process;
mod secrets;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ::a2a::{Message, Part, Task};
pub use relevo_shared::domain::event::Stopped;
use relevo_shared::domain::reason::FailReason;
use relevo_shared::domain::record::{Sender, TurnRecord};
use relevo_shared::ids::Epoch;
use relevo_shared::store::StoreError;
use tokio::sync::watch;
use tokio::time::Instant;

pub use crate::input::Prompt;
use crate::runner::leases::Guard;
use crate::runner::past::Past;
pub use crate::runner::sink::{Enclosed, EventSink, Metadata, SESSION_BYTES, SESSION_ITEMS, SessionError, SinkClosed};

/// What an agent is given.
#[derive(Debug, Clone)]
pub struct Turn {
    /// The turn as it was accepted: ids, message, sender, metadata.
    pub record: Arc<TurnRecord>,
    /// Which turn of its task, from 1.
    pub number: u32,
    /// Which attempt, from 1; hand-backs count too, answers do not.
    pub attempt: u32,
    /// Fencing number: rises with every run of the context.
    pub epoch: Epoch,
    /// The fencing number of the run of this context before this one, if there was one.
    pub previous: Option<Epoch>,
    /// The lease that the turn runs under.
    pub(crate) guard: Guard,
    /// What was before the turn.
    pub(crate) past: Past,
    /// The message as one text, and where the context works, if the agent's profile makes such.
    pub prompt: Option<Prompt>,
    /// Session items (JSON) of earlier attempts of this turn that outlived them ([`Agent::outliving`]): they follow those of the session.
    pub outlived: Vec<Vec<u8>>,
    /// When it is told to stop because its time is over.
    pub until: Instant,
}

impl Turn {
    /// How often its user has answered. The message is the last answer then, and nothing said before it is void.
    pub fn answers(&self) -> u32 {
        self.record.answers()
    }

    /// Who sent the message.
    pub fn sender(&self) -> &Sender {
        &self.record.sender
    }

    /// The words of the message: its prompt, or its texts.
    pub fn text(&self) -> String {
        if let Some(prompt) = &self.prompt {
            return prompt.text.clone();
        }
        let texts: Vec<&str> = self.record.message.parts.iter().filter_map(Part::as_text).collect();
        texts.join("\n")
    }

    /// The task as it was when the turn began, without history, and the messages before the turn's own, oldest first.
    ///
    /// # Errors
    /// [`StoreError`]; it may be asked again.
    pub async fn past(&self) -> Result<(Task, Vec<Message>), StoreError> {
        self.past.load().await
    }

    /// The items (JSON) of the agent's session in this context as it was when the turn began. To be asked before any are added.
    ///
    /// # Errors
    /// [`StoreError`]; it may be asked again.
    pub async fn session(&self) -> Result<Vec<Vec<u8>>, StoreError> {
        self.past.session().await
    }
}

/// How an agent ends a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Done.
    Completed,
    /// Done with a message alone, without a task, where that is possible: else as if it was [`Ending::Completed`].
    Direct,
    /// Stopped, of the agent's own accord.
    Canceled,
    /// Went wrong, as an answer.
    Failed,
    /// The message is refused.
    Rejected,
    /// Another message is needed.
    InputRequired,
    /// Credentials are needed.
    AuthRequired,
}

/// What an agent waits for that suspends its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// An answer.
    Input,
    /// Credentials, or the word that they are there.
    Credentials,
}

/// What an agent returns.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The turn has ended, with a last message if there is more to say, and what its event carries beside it.
    Ended(Ending, Option<Message>, Option<Metadata>),
    /// The turn waits for its user, with a last message if there is more to say, and what its event carries beside it. The agent
    /// is run again with the answer, by any worker: what it must know then belongs into its session.
    Suspended(Need, Option<Message>, Option<Metadata>),
    /// The agent could not do its work.
    Failed(FailReason, String),
    /// The agent is gone in the middle of its work: a charged attempt, or the end `agent_exited` when it must not run twice.
    Crashed(String),
}

/// Why a turn must stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// Its client asked.
    Client,
    /// Its time is over.
    Deadline,
    /// What it produced is not taken: a file, or more than it may.
    Refused,
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

/// The future of a stop elsewhere.
pub type Stopping<'a> = Pin<Box<dyn Future<Output = Stopped> + Send + 'a>>;

/// How long most agents may take to stop.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// Runs turns. One value serves many turns at once.
pub trait Agent: Send + Sync + 'static {
    /// Runs one turn to its end. Events go into the sink; they are in the journal before anyone sees them.
    fn run<'a>(&'a self, turn: Turn, sink: &'a EventSink, cancel: CancelToken) -> Running<'a>;

    /// How long a run that was told to stop may take before it is dropped, while its lease holds.
    fn patience(&self) -> Duration {
        PATIENCE
    }

    /// Stops what a crashed attempt of a turn that must not run twice has begun elsewhere, as far as the items say that outlived it
    /// ([`Agent::outliving`]). The turn ends FAILED then. It may take as long as the agent's patience.
    fn stop_elsewhere(&self, _record: Arc<TurnRecord>, _outlived: Vec<Vec<u8>>) -> Stopping<'_> {
        Box::pin(std::future::ready(Stopped::Abandoned))
    }

    /// Tells the session items (JSON) that outlive an attempt which crashed, unlike all others: what the agent has begun elsewhere
    /// and must find again. By default there are none.
    fn outliving(&self) -> Option<fn(&[u8]) -> bool> {
        None
    }
}
