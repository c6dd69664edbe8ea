//! Tasks, read whole by folding.

use a2a::{Message, Task, TaskState};
use redis::Value;

use super::journal::{JournalRead, parse_entries};
use super::script::{Args, Name, Reply};
use super::turns::read_json;
use super::{Store, StoreError};
use crate::domain::class::Class;
use crate::domain::fold::{Entry, Fold, FoldError, Folded};
use crate::domain::state;
use crate::ids::{ContextKey, EntryId, ScopeKey, TaskId, TurnId};

/// Journal entries per read. Snapshots come at least every 512 entries, so one read is the rule.
const PAGE: usize = 600;

/// How much of the stored history a reader wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryLength {
    /// Everything.
    All,
    /// The latest n messages.
    Latest(u32),
}

impl HistoryLength {
    /// The task with no more history than that.
    #[must_use]
    pub fn limit(self, mut task: Task) -> Task {
        if let (Self::Latest(limit), Some(history)) = (self, &mut task.history) {
            let excess = history
                .len()
                .saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX));
            history.drain(..excess);
            if history.is_empty() {
                task.history = None;
            }
        }
        task
    }
}

/// A task as it is stored.
#[derive(Debug, Clone)]
pub struct StoredTask {
    /// The task.
    pub task: TaskId,
    /// Redis ms of the read.
    pub now: u64,
    /// Who may see it.
    pub scope: ScopeKey,
    /// Its context.
    pub context: ContextKey,
    /// The client's name of it.
    pub context_id: String,
    /// The state.
    pub state: TaskState,
    /// Status time (Redis ms).
    pub updated: u64,
    /// The journal's last entry that is folded in.
    pub last: EntryId,
    /// How many turns it has had.
    pub number: u32,
    /// Its turn, live or waiting.
    pub live: Option<TurnId>,
    /// Whether that is suspended: a message is its answer.
    pub suspended: bool,
    /// Whether it accepts no further message.
    pub terminal: bool,
    /// The folded state.
    pub folded: Folded,
    /// Stored messages of earlier turns, as many as were asked for.
    pub history: Vec<Message>,
    /// Who may see it.
    pub shown: Shown,
    /// The agent that it was given to; empty for one that was stored by an earlier version, or refused.
    pub agent: String,
}

/// Whether a task is there for clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// It is.
    Yes,
    /// Not yet: its agent may still answer without one.
    NotYet,
    /// It never will be: its agent has answered without one.
    Never,
}

impl StoredTask {
    /// Its turn, unless that waits for its user.
    pub fn running(&self) -> Option<TurnId> {
        self.live.filter(|_| !self.suspended)
    }

    /// The task as clients see it, with at most `limit` messages of history.
    pub fn into_task(self, limit: HistoryLength) -> Task {
        let task = self
            .folded
            .into_task(self.task.to_string(), self.context_id, self.history);
        limit.limit(task)
    }
}

impl Store {
    /// Reads a task whole; `None` when there is none of that id.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn read_task(&self, task: TaskId, history: HistoryLength) -> Result<Option<StoredTask>, StoreError> {
        if !self.may_hold(task) {
            return Ok(None);
        }
        // A boundary may reset the snapshot between two pages of a long journal: then the next look finds a consistent one.
        for _ in 0..4 {
            match self.read_task_once(task, history).await {
                Err(ReadError::Again) => {}
                Err(ReadError::Store(error)) => return Err(error),
                Ok(stored) => return Ok(stored),
            }
        }
        Err(StoreError::corrupt("task", "its snapshot and its journal do not fit"))
    }

    /// Shows a task that nobody saw so far, unless it was answered without one and somebody got the answer. Says whether it may be
    /// seen now. Safe to send twice.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn show_task(&self, task: TaskId, unheard: bool) -> Result<bool, StoreError> {
        let mut args = Args::new();
        args.push(task.to_string()).push(if unheard { "1" } else { "" });
        let reply = self.run(Name::Show, task.partition(), &args).await?;
        match reply.tag.as_str() {
            "SHOWN" => Ok(true),
            "DIRECT" | "GONE" => Ok(false),
            _ => Err(reply.unknown()),
        }
    }

    async fn read_task_once(&self, task: TaskId, history: HistoryLength) -> Result<Option<StoredTask>, ReadError> {
        let mut args = Args::new();
        let wanted = match history {
            HistoryLength::All => "-1".to_owned(),
            HistoryLength::Latest(n) => n.to_string(),
        };
        args.push(task.to_string()).push(wanted).number(PAGE as u64);
        let mut reply = self.run(Name::ReadTask, task.partition(), &args).await?;
        match reply.tag.as_str() {
            "NONE" => return Ok(None),
            "TASK" => {}
            _ => return Err(reply.unknown().into()),
        }
        let head = Head::read(&mut reply)?;
        let history = Head::history(&mut reply)?;
        let entries = parse_entries(Value::Array(reply.list()?))?;
        let shown = match reply.text()?.as_str() {
            "" => Shown::Yes,
            "1" => Shown::NotYet,
            _ => Shown::Never,
        };
        let agent = reply.text()?;
        let folded = self.fold(task, &head, entries).await?;
        Ok(Some(StoredTask {
            agent,
            ..head.into_task(task, folded, history, shown)
        }))
    }

    async fn fold(&self, task: TaskId, head: &Head, mut entries: Vec<Entry>) -> Result<Folded, ReadError> {
        let mut fold = match head.snapshot()? {
            Some((state, at)) if at == head.last => return Ok(state),
            Some((state, at)) => {
                let Some(first) = entries.first().filter(|e| e.id == at) else {
                    return Err(ReadError::Again);
                };
                let fold = Fold::resume(at, first.kind.turn, state, None);
                entries.remove(0);
                fold
            }
            None => {
                let Some(first) = entries.first() else {
                    return Err(ReadError::Again);
                };
                let fold = Fold::first(first)?;
                entries.remove(0);
                fold
            }
        };
        loop {
            for entry in &entries {
                fold.apply(entry)?;
                if fold.at() == head.last {
                    return Ok(fold.into_state());
                }
            }
            if fold.at() == head.last {
                return Ok(fold.into_state());
            }
            entries = match self.read_journal(task, fold.at(), PAGE).await? {
                JournalRead::Entries(entries) if !entries.is_empty() => entries,
                JournalRead::Entries(_) | JournalRead::Gap => return Err(ReadError::Again),
            };
        }
    }
}

enum ReadError {
    Again,
    Store(StoreError),
}

impl From<StoreError> for ReadError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<FoldError> for ReadError {
    fn from(error: FoldError) -> Self {
        match error {
            FoldError::NeedsBase(_) => Self::Again,
            FoldError::Corrupt { .. } | FoldError::NoTask => {
                Self::Store(StoreError::corrupt("journal", error.to_string()))
            }
        }
    }
}

/// The fields of the task's hash.
struct Head {
    now: u64,
    scope: ScopeKey,
    context: ContextKey,
    context_id: String,
    state: TaskState,
    last: EntryId,
    updated: u64,
    number: u32,
    live: Option<TurnId>,
    suspended: bool,
    terminal: bool,
    snapshot: Vec<u8>,
    snapshot_at: String,
}

impl Head {
    fn read(reply: &mut Reply) -> Result<Self, StoreError> {
        let now = reply.parsed()?;
        let scope = ScopeKey::from_text(reply.text()?);
        let context = ContextKey::from_text(reply.text()?);
        let context_id = reply.text()?;
        let word = reply.text()?;
        let state = state::from_word(&word).ok_or_else(|| StoreError::corrupt("task", format!("state {word}")))?;
        let last = reply.parsed()?;
        let _created: u64 = reply.parsed()?;
        let updated = reply.parsed()?;
        let number = reply.parsed()?;
        let live = TurnId::parse(&reply.text()?);
        let class = reply.text()?;
        let is = |wanted: Class| class == wanted.letter().to_string();
        let (suspended, terminal) = (live.is_some() && is(Class::Interrupted), is(Class::Terminal));
        let snapshot = reply.bytes()?;
        let snapshot_at = reply.text()?;
        let (_base, _base_at) = (reply.bytes()?, reply.text()?);
        Ok(Self {
            now,
            scope,
            context,
            context_id,
            state,
            last,
            updated,
            number,
            live,
            suspended,
            terminal,
            snapshot,
            snapshot_at,
        })
    }

    fn history(reply: &mut Reply) -> Result<Vec<Message>, StoreError> {
        let read = |value: Value| match value {
            Value::BulkString(bytes) => read_json("message", &bytes),
            other => Err(StoreError::corrupt("history", format!("{other:?}"))),
        };
        reply.list()?.into_iter().map(read).collect()
    }

    fn snapshot(&self) -> Result<Option<(Folded, EntryId)>, StoreError> {
        if self.snapshot.is_empty() {
            return Ok(None);
        }
        let at = self
            .snapshot_at
            .parse()
            .map_err(|_wrong| StoreError::corrupt("task", "snapshot position"))?;
        Ok(Some((read_json("snapshot", &self.snapshot)?, at)))
    }

    fn into_task(self, task: TaskId, folded: Folded, history: Vec<Message>, shown: Shown) -> StoredTask {
        StoredTask {
            task,
            now: self.now,
            scope: self.scope,
            context: self.context,
            context_id: self.context_id,
            state: self.state,
            updated: self.updated,
            last: self.last,
            number: self.number,
            live: self.live,
            suspended: self.suspended,
            terminal: self.terminal,
            folded,
            history,
            shown,
            agent: String::new(),
        }
    }
}
