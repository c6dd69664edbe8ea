//! The agent's end of the pipe to the runner: bounded, so that an agent that is faster than Redis waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use a2a::{Artifact, Message, Part, TaskState};
use relevo_shared::domain::class::Class;
use relevo_shared::domain::event;
use relevo_shared::domain::record::TurnRecord;
use tokio::sync::mpsc;

/// How many items wait for the runner at the most.
const WAITING: usize = 64;

/// What an agent produced.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Item {
    /// A status with a message.
    Status {
        /// The state.
        state: TaskState,
        /// What is said.
        message: Message,
        /// What it means.
        class: Class,
    },
    /// A piece of an artifact.
    Artifact {
        /// The piece.
        artifact: Artifact,
        /// Whether it is added to what is there.
        append: bool,
        /// Whether nothing follows.
        last_chunk: bool,
    },
}

/// The runner does not listen any more: the turn is over for this agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the turn is over")]
pub struct SinkClosed;

/// Where an agent's events go.
#[derive(Debug, Clone)]
pub struct EventSink {
    record: Arc<TurnRecord>,
    items: mpsc::Sender<Item>,
    answer: Arc<AtomicU32>,
}

impl EventSink {
    pub(crate) fn new(record: Arc<TurnRecord>) -> (Self, mpsc::Receiver<Item>) {
        let (items, receiver) = mpsc::channel(WAITING);
        (
            Self {
                record,
                items,
                answer: Arc::default(),
            },
            receiver,
        )
    }

    /// A message of the current answer: texts of one answer are one message in the task.
    pub fn message(&self, text: &str) -> Message {
        let n = self.answer.load(Ordering::Relaxed);
        event::agent_message(&self.record, &n.to_string(), text)
    }

    /// What follows is another message.
    pub fn next_answer(&self) {
        self.answer.fetch_add(1, Ordering::Relaxed);
    }

    /// Streams a piece of the current answer.
    ///
    /// # Errors
    /// [`SinkClosed`] when the turn is over for this agent.
    pub async fn text(&self, text: &str) -> Result<(), SinkClosed> {
        let message = self.message(text);
        self.send(Item::Status {
            state: TaskState::Working,
            message,
            class: Class::Normal,
        })
        .await
    }

    /// Streams parts of the current answer.
    ///
    /// # Errors
    /// [`SinkClosed`] when the turn is over for this agent.
    pub async fn parts(&self, parts: Vec<Part>) -> Result<(), SinkClosed> {
        let message = Message {
            parts,
            ..self.message("")
        };
        self.send(Item::Status {
            state: TaskState::Working,
            message,
            class: Class::Normal,
        })
        .await
    }

    /// Says that credentials are awaited out of band while the turn goes on.
    ///
    /// # Errors
    /// [`SinkClosed`] when the turn is over for this agent.
    pub async fn auth_required(&self, text: &str) -> Result<(), SinkClosed> {
        let message = self.message(text);
        self.send(Item::Status {
            state: TaskState::AuthRequired,
            message,
            class: Class::Waiting,
        })
        .await
    }

    /// Streams a piece of an artifact.
    ///
    /// # Errors
    /// [`SinkClosed`] when the turn is over for this agent.
    pub async fn artifact(&self, artifact: Artifact, append: bool, last_chunk: bool) -> Result<(), SinkClosed> {
        self.send(Item::Artifact {
            artifact,
            append,
            last_chunk,
        })
        .await
    }

    async fn send(&self, item: Item) -> Result<(), SinkClosed> {
        self.items.send(item).await.map_err(|_wrong| SinkClosed)
    }
}
