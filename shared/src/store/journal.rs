//! Journals: appended by `emit` and `finish` under the fence, read by position.

use a2a::{Message, TaskState};
use bytes::Bytes;
use redis::{RedisError, Value};

use super::connection::{At, Via, command};
use super::retention::Keep;
use super::script::{Args, MAX_BYTES, Name, Reply, text};
use super::turns::{Queued, json};
use super::{Store, StoreError};
use crate::domain::class::{Class, Kind};
use crate::domain::event::{self, Event};
use crate::domain::fold::{Entry, Folded};
use crate::domain::position::read_is_continuous;
use crate::domain::state::{self, End};
use crate::ids::{ContextKey, EntryId, Epoch, LeaseToken, Nonce, Partition, TaskId, TurnId};

/// What a call holds beside events, items and snapshot: ids, kinds and counts.
const FRAME: usize = 256 << 10;

/// An event ready to be appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// What it means.
    pub kind: Kind,
    /// The bytes that everyone receives.
    pub bytes: Bytes,
    /// The time of the status that it brings (ms), by which tasks are listed; none without a status.
    pub status_at: Option<u64>,
}

impl NewEvent {
    /// An event of a task's `turn`-th turn.
    pub fn new(turn: u32, event: &Event) -> Self {
        Self::with_bytes(turn, event, event.bytes())
    }

    /// The same for a caller that has made its bytes already.
    pub fn with_bytes(turn: u32, event: &Event, bytes: Vec<u8>) -> Self {
        Self {
            kind: Kind {
                turn,
                class: event.class,
            },
            bytes: bytes.into(),
            status_at: event::status_time(&event.body),
        }
    }
}

/// Whether a batch opens its attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// No: the attempt is open.
    No,
    /// The first attempt: begins with WORKING.
    Working,
    /// A later one: begins with a boundary, and the snapshot goes back to the turn's start.
    Boundary,
}

impl Open {
    fn word(self) -> &'static str {
        match self {
            Self::No => "",
            Self::Working => "working",
            Self::Boundary => "boundary",
        }
    }
}

/// Events that one attempt appends in one step.
#[derive(Debug)]
pub struct Batch<'a> {
    /// Where.
    pub partition: Partition,
    /// The context that is leased.
    pub context: &'a ContextKey,
    /// Fencing number.
    pub epoch: Epoch,
    /// The right to write.
    pub token: &'a LeaseToken,
    /// The turn.
    pub turn: TurnId,
    /// The task whose journal it is.
    pub task: TaskId,
    /// The entry it follows.
    pub prev: EntryId,
    /// Fresh for each batch, kept for its repeats.
    pub nonce: Nonce,
    /// Time of the last event (Redis ms).
    pub stamp: u64,
    /// The state after the batch.
    pub state: TaskState,
    /// Whether it opens the attempt.
    pub open: Open,
    /// The folded state after the batch as JSON, when it is time to keep one. One that is too large for a call is left out:
    /// readers fold the journal instead.
    pub snapshot: Option<&'a [u8]>,
    /// The events.
    pub events: &'a [NewEvent],
    /// The agent, whose session a boundary takes back to the turn's start.
    pub agent: &'a str,
    /// What its session receives. `finish` and `suspend` append none.
    pub session: Option<&'a SessionItems>,
}

/// Items for the session of an agent in a context.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionItems {
    /// How long it must be before; in a batch that opens a later attempt, how long it was when the turn began.
    pub expect: u64,
    /// JSON, in order.
    pub items: Vec<Vec<u8>>,
}

/// How an attempt ends, beside its last batch.
#[derive(Debug)]
pub struct Finish<'a> {
    /// How.
    pub end: End,
    /// The folded state after the end, without what the history receives.
    pub snapshot: &'a Folded,
    /// What the stored history receives.
    pub history: &'a [Message],
    /// The first entry of the journal to keep.
    pub trim_below: Option<EntryId>,
    /// Retention.
    pub keep: &'a Keep,
    /// How long a repeated submit of the turn is answered, in ms; 10 min at the least.
    pub remember_ms: u64,
    /// Whether it is an answer without a task, if nobody has seen the task.
    pub direct: bool,
    /// Where it was taken from.
    pub queued: &'a Queued,
}

/// What became of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EmitReply {
    /// It is in the journal; `last` is its last entry.
    Done {
        /// The journal's end.
        last: EntryId,
        /// Redis ms.
        now: u64,
        /// Whether the batch had been written before.
        repeat: bool,
    },
    /// The lease is gone: nothing was written and nothing will be.
    Fenced,
    /// The journal is not as it was: acknowledged entries were lost. Nothing was written.
    Diverged,
    /// The turn was cancelled: only an end CANCELED is accepted.
    Canceled,
    /// It cannot be an answer without a task: somebody has seen the task. Nothing was written.
    Seen,
    /// The session is not as long as it was said to be. Nothing was written.
    Session {
        /// How long it is.
        length: u64,
    },
}

/// A read of a journal from a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JournalRead {
    /// What follows the position, in order; may be empty.
    Entries(Vec<Entry>),
    /// The position does not exist (any more).
    Gap,
}

impl Batch<'_> {
    /// Whether a snapshot of this length fits into the call.
    fn has_room_for(&self, snapshot: usize) -> bool {
        let events: usize = self.events.iter().map(|event| event.bytes.len()).sum();
        let items: usize = self
            .session
            .iter()
            .flat_map(|session| &session.items)
            .map(Vec::len)
            .sum();
        events + items + snapshot <= MAX_BYTES - FRAME
    }
}

impl Store {
    /// Appends a batch. Safe to send twice.
    ///
    /// # Errors
    /// [`StoreError`]; after `Unavailable` the same call resolves it.
    pub async fn emit(&self, batch: &Batch<'_>) -> Result<EmitReply, StoreError> {
        let mut args = self.batch_args(batch);
        let status = batch.events.iter().rev().find_map(|event| event.status_at);
        args.push(
            batch
                .snapshot
                .filter(|s| batch.has_room_for(s.len()))
                .unwrap_or_default(),
        )
        .push(status.map(|at| at.to_string()).unwrap_or_default());
        events_args(&mut args, batch.events);
        args.push(batch.agent);
        match batch.session {
            Some(session) => {
                args.number(session.expect).number(session.items.len() as u64);
                for item in &session.items {
                    args.list(item.clone());
                }
            }
            None => {
                args.push("").number(0);
            }
        }
        let mut reply = self.run(Name::Emit, batch.partition, &args).await?;
        self.emit_reply(&mut reply)
    }

    /// Appends the last batch of an attempt and frees its context. Safe to send twice.
    ///
    /// # Errors
    /// [`StoreError`]; after `Unavailable` the same call resolves it.
    pub async fn finish(&self, batch: &Batch<'_>, finish: &Finish<'_>) -> Result<EmitReply, StoreError> {
        let mut args = self.batch_args(batch);
        let class = if finish.end.is_terminal() {
            Class::Terminal
        } else {
            Class::Interrupted
        };
        args.push(json("snapshot", finish.snapshot)?)
            .push(class.letter().to_string())
            .push(match (finish.end, finish.direct) {
                (End::Canceled, _) => "1",
                (_, true) => "2",
                (_, false) => "",
            })
            .push(finish.trim_below.map(|id| id.to_string()).unwrap_or_default());
        Self::keep_args(&mut args, finish.keep, finish.end.is_terminal(), finish.remember_ms);
        history_args(&mut args, finish.history)?;
        events_args(&mut args, batch.events);
        args.push(batch.agent)
            .push(&finish.queued.counts_for)
            .push(&finish.queued.entry)
            .push(&finish.queued.queue);
        let mut reply = self.run(Name::Finish, batch.partition, &args).await?;
        let answer = self.emit_reply(&mut reply)?;
        if let EmitReply::Done { now, repeat: false, .. } = answer {
            self.ring_for_next(&reply.text()?, batch.partition, now).await;
        }
        Ok(answer)
    }

    pub(super) fn emit_reply(&self, reply: &mut Reply) -> Result<EmitReply, StoreError> {
        Ok(match reply.tag.as_str() {
            "DONE" => {
                let (last, now, repeat) = (reply.parsed()?, reply.parsed()?, reply.flag()?);
                if !repeat && reply.text()? == "0" {
                    self.metrics().doorbell_refused();
                }
                EmitReply::Done { last, now, repeat }
            }
            "FENCED" => EmitReply::Fenced,
            "DIVERGED" => EmitReply::Diverged,
            "CANCELLED" => EmitReply::Canceled,
            "SEEN" => EmitReply::Seen,
            "SESSION" => EmitReply::Session {
                length: reply.parsed()?,
            },
            _ => return Err(reply.unknown()),
        })
    }

    pub(super) fn batch_args(&self, batch: &Batch<'_>) -> Args {
        let mut args = Args::new();
        args.push(self.publish())
            .push(batch.context.as_str())
            .number(batch.epoch.0)
            .push(batch.token.as_str())
            .push(batch.turn.to_string())
            .push(batch.task.to_string())
            .push(batch.prev.to_string())
            .push(batch.nonce.to_string())
            .number(batch.stamp)
            .push(state::word(&batch.state))
            .push(batch.open.word());
        args
    }

    /// Reads the session of a turn's agent as it was when the turn began.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn read_session(
        &self,
        partition: Partition,
        context: &ContextKey,
        agent: &str,
        turn: TurnId,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let key = self.keys().session(partition, context, agent);
        match self.session_at_start(partition, turn).await? {
            Some(0) => Ok(Vec::new()),
            // What an earlier attempt of this turn appended is void.
            Some(length) => {
                self.session_items(partition, &key, "0", &(length - 1).to_string())
                    .await
            }
            None => self.session_items(partition, &key, "0", "-1").await,
        }
    }

    /// Reads what attempts of the turn have added to the session of its agent: before the first write of the next one, what is void.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn read_session_of_attempts(
        &self,
        partition: Partition,
        context: &ContextKey,
        agent: &str,
        turn: TurnId,
    ) -> Result<(u64, Vec<Vec<u8>>), StoreError> {
        let Some(length) = self.session_at_start(partition, turn).await? else {
            return Ok((0, Vec::new()));
        };
        let key = self.keys().session(partition, context, agent);
        let items = self.session_items(partition, &key, &length.to_string(), "-1").await?;
        Ok((length, items))
    }

    /// How many items the session had when the turn began, once an attempt of it has written.
    async fn session_at_start(&self, partition: Partition, turn: TurnId) -> Result<Option<u64>, StoreError> {
        let mut start = command("HGET");
        start.arg(self.keys().turn(turn)).arg("slen");
        let start = self.one("HGET", At::Partition(partition), &start).await?;
        Ok(text(&start).and_then(|length| length.parse().ok()))
    }

    async fn session_items(
        &self,
        partition: Partition,
        key: &str,
        from: &str,
        to: &str,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let mut range = command("LRANGE");
        range.arg(key).arg(from).arg(to);
        let Value::Array(items) = self.one("LRANGE", At::Partition(partition), &range).await? else {
            return Err(StoreError::corrupt("session", "not a list"));
        };
        let item = |item| match item {
            Value::BulkString(bytes) => Ok(bytes),
            _ => Err(StoreError::corrupt("session", "an item is not readable")),
        };
        items.into_iter().map(item).collect()
    }

    /// Reads up to `count` entries after `position`. The read begins at the position itself, so that a position that no longer
    /// exists is noticed.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn read_journal(&self, task: TaskId, position: EntryId, count: usize) -> Result<JournalRead, StoreError> {
        let range = self.range(task, position, count);
        let value = self.one("XRANGE", At::Partition(task.partition()), &range).await?;
        Ok(judge_read(position, parse_entries(value)?))
    }

    /// Reads one entry, if it is still there.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn read_entry(&self, task: TaskId, id: EntryId) -> Result<Option<Entry>, StoreError> {
        let mut range = command("XRANGE");
        range
            .arg(self.keys().journal(task))
            .arg(id.to_string())
            .arg(id.to_string());
        let value = self.one("XRANGE", At::Partition(task.partition()), &range).await?;
        Ok(parse_entries(value)?.pop())
    }

    /// The same for many journals in one write per node.
    ///
    /// # Errors
    /// [`StoreError`] when none could be read.
    pub async fn read_journals(
        &self,
        positions: &[(TaskId, EntryId)],
        count: usize,
    ) -> Result<Vec<Result<JournalRead, StoreError>>, StoreError> {
        if positions.is_empty() {
            return Ok(Vec::new());
        }
        let read = |(task, position): &(TaskId, EntryId)| {
            (At::Partition(task.partition()), self.range(*task, *position, count))
        };
        let values = self.link().many(Via::Lane, positions.iter().map(read).collect()).await;
        let failed = |source| StoreError::from_redis("XRANGE", source);
        let judge = |(value, (_, position)): (Result<Value, RedisError>, &(TaskId, EntryId))| {
            let entries = parse_entries(value.map_err(failed)?)?;
            Ok(judge_read(*position, entries))
        };
        Ok(values.map_err(failed)?.into_iter().zip(positions).map(judge).collect())
    }

    fn range(&self, task: TaskId, position: EntryId, count: usize) -> redis::Cmd {
        let mut range = command("XRANGE");
        let from = if position == EntryId::START {
            "-".to_owned()
        } else {
            position.to_string()
        };
        range
            .arg(self.keys().journal(task))
            .arg(from)
            .arg("+")
            .arg("COUNT")
            .arg(count.saturating_add(1));
        range
    }
}

fn judge_read(position: EntryId, mut entries: Vec<Entry>) -> JournalRead {
    if !read_is_continuous(position, entries.first().map(|e| e.id)) {
        return JournalRead::Gap;
    }
    if position != EntryId::START && !entries.is_empty() {
        entries.remove(0);
    }
    JournalRead::Entries(entries)
}

pub(super) fn history_args(args: &mut Args, history: &[Message]) -> Result<(), StoreError> {
    args.number(history.len() as u64);
    for message in history {
        args.list(json("message", message)?);
    }
    Ok(())
}

pub(super) fn events_args(args: &mut Args, events: &[NewEvent]) {
    args.number(events.len() as u64);
    for event in events {
        args.push(&event.bytes).push(event.kind.to_string());
    }
}

/// Reads the reply of an XRANGE.
pub(super) fn parse_entries(value: Value) -> Result<Vec<Entry>, StoreError> {
    let Value::Array(rows) = value else {
        return Err(StoreError::corrupt("journal", "not a list"));
    };
    rows.into_iter().map(parse_entry).collect()
}

fn parse_entry(row: Value) -> Result<Entry, StoreError> {
    let wrong = || StoreError::corrupt("journal", "an entry is not readable");
    let Value::Array(mut row) = row else {
        return Err(wrong());
    };
    let (Some(Value::Array(fields)), Some(id)) = (row.pop(), row.pop()) else {
        return Err(wrong());
    };
    let id = text(&id).and_then(|t| t.parse().ok()).ok_or_else(wrong)?;
    let (mut kind, mut bytes) = (None, None);
    let mut fields = fields.into_iter();
    while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
        match (text(&name).as_deref(), value) {
            (Some("e"), Value::BulkString(event)) => bytes = Some(event),
            (Some("k"), value) => kind = text(&value).and_then(|t| t.parse().ok()),
            _ => {}
        }
    }
    Ok(Entry {
        id,
        kind: kind.ok_or_else(wrong)?,
        bytes: bytes.ok_or_else(wrong)?,
    })
}
