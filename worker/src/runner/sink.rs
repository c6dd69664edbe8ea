//! The agent's end of the pipe to the runner: bounded, so that an agent that is faster than Redis waits.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use a2a::{Artifact, Message, Part, TaskState};
use relevo_shared::domain::class::Class;
use relevo_shared::domain::event;
use relevo_shared::domain::record::TurnRecord;
use relevo_shared::store::SessionItems;
use tokio::sync::{mpsc, oneshot};

pub use super::stow::Enclosed;

/// How many items wait for the runner at the most.
const WAITING: usize = 64;

/// Metadata of an event.
pub type Metadata = HashMap<String, serde_json::Value>;

/// What an agent hands to the runner.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a session is the rare one")]
pub(crate) enum Item {
    /// What everyone sees, with the files that some of its parts stand for.
    Output(Output, Vec<Enclosed>),
    /// Items for the session, written with everything before them.
    Session {
        /// The items.
        items: SessionItems,
        /// Told how long the session is then.
        written: oneshot::Sender<Result<u64, SessionError>>,
    },
}

/// What an agent produced.
#[derive(Debug)]
pub(crate) enum Output {
    /// A status.
    Status {
        /// The state.
        state: TaskState,
        /// What is said.
        message: Option<Message>,
        /// What the event carries beside it.
        metadata: Option<Metadata>,
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
        /// What the event carries beside it.
        metadata: Option<Metadata>,
    },
}

impl Output {
    /// What is in it.
    pub(crate) fn parts_mut(&mut self) -> Option<&mut Vec<Part>> {
        match self {
            Self::Status { message, .. } => message.as_mut().map(|message| &mut message.parts),
            Self::Artifact { artifact, .. } => Some(&mut artifact.parts),
        }
    }
}

/// Items were not added to a session. Nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// It is not as long as it was said to be.
    #[error("the session has {0} items")]
    Length(u64),
    /// It would have too many items.
    #[error("a session has at most {SESSION_ITEMS} items")]
    TooMany,
    /// Too much at once.
    #[error("items of more than {SESSION_BYTES} bytes cannot be added at once")]
    TooLarge,
}

/// Most items of a session.
pub const SESSION_ITEMS: u64 = 10_000;
/// Most bytes that are added to one at once.
pub const SESSION_BYTES: usize = 1 << 20;

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
        // A turn that goes on with its user's answer has said messages before.
        let n = match self.record.answers() {
            0 => n.to_string(),
            answers => format!("{answers}-{n}"),
        };
        event::agent_message(&self.record, &n, text)
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
        self.status(TaskState::Working, Some(self.message(text)), None).await
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
        self.status(TaskState::Working, Some(message), None).await
    }

    /// Says that credentials are awaited out of band while the turn goes on.
    ///
    /// # Errors
    /// [`SinkClosed`] when the turn is over for this agent.
    pub async fn auth_required(&self, text: &str) -> Result<(), SinkClosed> {
        self.status(TaskState::AuthRequired, Some(self.message(text)), None)
            .await
    }

    /// Streams a status in a state that does not end the turn: WORKING, SUBMITTED, or AUTH_REQUIRED while credentials are awaited
    /// out of band. Any other state is said as WORKING: it exists only as the outcome. A message without parts is none.
    ///
    /// # Errors
    /// [`SinkClosed`] when the turn is over for this agent.
    pub async fn status(
        &self,
        state: TaskState,
        message: Option<Message>,
        metadata: Option<Metadata>,
    ) -> Result<(), SinkClosed> {
        let (state, class) = match state {
            TaskState::AuthRequired => (state, Class::Waiting),
            TaskState::Submitted => (state, Class::Normal),
            _ => (TaskState::Working, Class::Normal),
        };
        let output = Output::Status {
            state,
            message: message.filter(|message| !message.parts.is_empty()),
            metadata,
            class,
        };
        self.send(Item::Output(output, Vec::new())).await
    }

    /// Streams a piece of an artifact.
    ///
    /// # Errors
    /// [`SinkClosed`] when the turn is over for this agent.
    pub async fn artifact(&self, artifact: Artifact, append: bool, last_chunk: bool) -> Result<(), SinkClosed> {
        self.artifact_with(artifact, append, last_chunk, None).await
    }

    /// Streams a piece of an artifact in an event with metadata. One without parts is none.
    ///
    /// # Errors
    /// [`SinkClosed`] when the turn is over for this agent.
    pub async fn artifact_with(
        &self,
        artifact: Artifact,
        append: bool,
        last_chunk: bool,
        metadata: Option<Metadata>,
    ) -> Result<(), SinkClosed> {
        self.artifact_of_files(artifact, Vec::new(), append, last_chunk, metadata)
            .await
    }

    /// The same with parts that stand for files: each gets the content of its file before anyone sees it, as what is kept in the
    /// artifact store, or as bytes where there is none.
    ///
    /// # Errors
    /// [`SinkClosed`] when the turn is over for this agent. A file that cannot be taken ends it.
    pub async fn artifact_of_files(
        &self,
        artifact: Artifact,
        files: Vec<Enclosed>,
        append: bool,
        last_chunk: bool,
        metadata: Option<Metadata>,
    ) -> Result<(), SinkClosed> {
        if artifact.parts.is_empty() {
            return Ok(());
        }
        let output = Output::Artifact {
            artifact,
            append,
            last_chunk,
            metadata,
        };
        self.send(Item::Output(output, files)).await
    }

    /// Adds items (JSON) to the agent's session in this context, with the events before them, and waits until they are written.
    /// `expect` is how long the session must be. Returns how long it is then.
    ///
    /// # Errors
    /// [`SinkClosed`] when the turn is over for this agent; inside, [`SessionError`].
    pub async fn session(&self, items: Vec<Vec<u8>>, expect: u64) -> Result<Result<u64, SessionError>, SinkClosed> {
        if expect.saturating_add(items.len() as u64) > SESSION_ITEMS {
            return Ok(Err(SessionError::TooMany));
        }
        if items.iter().map(Vec::len).sum::<usize>() > SESSION_BYTES {
            return Ok(Err(SessionError::TooLarge));
        }
        let (written, answer) = oneshot::channel();
        let items = SessionItems { expect, items };
        self.send(Item::Session { items, written }).await?;
        answer.await.or(Err(SinkClosed))
    }

    async fn send(&self, item: Item) -> Result<(), SinkClosed> {
        self.items.send(item).await.map_err(|_wrong| SinkClosed)
    }
}
