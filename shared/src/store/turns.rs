//! Turns: accepted by `submit`, refused by `refuse`, handed to a worker by `take`.

use a2a::Message;

use super::connection::{At, Via, command};
use super::journal::history_args;
use super::keys::queue_name;
use super::retention::Keep;
use super::script::{Args, Name, Reply};
use super::{Interrupt, MOST_WAITING, Store, StoreError};
use crate::domain::event::Event;
use crate::domain::fold::Folded;
use crate::domain::record::{BusyPolicy, Tries, TurnRecord, VERSION};
use crate::domain::state;
use crate::ids::{ContextKey, EntryId, Epoch, LeaseToken, Nonce, Partition, ScopeKey, StorageId, TurnId, WorkerId};

/// How long an ended turn answers a repeated submit, in ms.
pub(super) const KEEP_TURN_MS: u64 = 600_000;

/// A message that asks for a turn.
#[derive(Debug)]
pub struct Submit<'a> {
    /// The turn.
    pub record: &'a TurnRecord,
    /// Its first event.
    pub first: &'a Event,
    /// The batch of that event.
    pub nonce: Nonce,
    /// For a task that exists: its last entry as it was read.
    pub follows: Option<EntryId>,
    /// Most turns that the scope may have in the turn's partition, live and waiting; none: any number.
    pub scope_limit: Option<u64>,
    /// For a task that exists: the answer that stops being the status message, then the user's message.
    pub history: &'a [Message],
    /// What ends for it, when its context is busy and it may interrupt.
    pub interrupt: Option<&'a Interrupt>,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Submitted {
    /// The turn waits for a worker, or for its context. A repeat of an accepted submit says the same.
    Accepted {
        /// The turn's first entry.
        first: EntryId,
        /// Which turn of its task.
        number: u32,
        /// Redis ms.
        now: u64,
        /// Whether it had been accepted before.
        repeat: bool,
        /// How many turns of its context came before it, when it was accepted; 0: it is the live one.
        place: u64,
        /// Whose workers alone take it, as far as is known.
        storage: Option<StorageId>,
    },
    /// The context has another live turn, and no place for this one behind it.
    Busy,
    /// The task has a live turn.
    Working,
    /// The task accepts no further message.
    Terminal,
    /// The scope has as many turns as it may have.
    Limited,
    /// The task is gone, or is not in this scope and context.
    NotFound,
    /// The task, or what was to be interrupted, has changed since it was read: read it again.
    Changed,
}

/// A message that is answered with a task born FAILED.
#[derive(Debug)]
pub struct Refused<'a> {
    /// What the turn would have been.
    pub record: &'a TurnRecord,
    /// The whole task.
    pub event: &'a Event,
    /// Its folded state.
    pub state: &'a Folded,
    /// The batch of that event.
    pub nonce: Nonce,
    /// How long it is kept, in ms.
    pub keep_ms: u64,
}

/// Asks for turns.
#[derive(Debug)]
pub struct Take<'a> {
    /// Where.
    pub partition: Partition,
    /// From which queues: those of a pool, or of those of its workers that have a storage ([`crate::ids::takers`]).
    pub takers: &'a str,
    /// Who.
    pub worker: &'a WorkerId,
    /// One per turn that may be taken.
    pub tokens: &'a [LeaseToken],
    /// Lease time to live, in ms.
    pub ttl_ms: u64,
    /// Whether this repeats a call whose reply was lost.
    pub repeat: bool,
    /// Whether a turn on its last attempt may be taken.
    pub last: bool,
    /// How many own pending entries a repeat looks at: at least the slots of the worker.
    pub slots: usize,
}

/// What came.
#[derive(Debug)]
pub struct Took {
    /// Redis ms.
    pub now: u64,
    /// Whether the queue may hold more.
    pub full: bool,
    /// Leased turns.
    pub turns: Vec<Taken>,
}

/// A leased turn.
#[derive(Debug, Clone)]
pub struct Taken {
    /// What never changes.
    pub record: TurnRecord,
    /// Where it lives.
    pub partition: Partition,
    /// Its context.
    pub context: ContextKey,
    /// The right to write.
    pub token: LeaseToken,
    /// The fencing number.
    pub epoch: Epoch,
    /// The context's fencing number before, unless this is its first.
    pub previous: Option<Epoch>,
    /// Its number in the journal.
    pub number: u32,
    /// What was counted.
    pub tries: Tries,
    /// Where it began or, since it was answered, goes on.
    pub first: EntryId,
    /// The journal's last entry.
    pub last: EntryId,
    /// The task as it was before this turn or its last answer, when there was one.
    pub base: Option<Folded>,
    /// Whether it is on its last attempt.
    pub last_attempt: bool,
    /// Whether its cancel was requested before it was taken.
    pub canceled: bool,
    /// Since when it is the live turn of its context (Redis ms).
    pub since: u64,
    /// Where it was taken from.
    pub queued: Queued,
}

/// The place of a turn in a queue, as the scripts name it. The same for as long as its lease holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Queued {
    pub(super) counts_for: String,
    pub(super) entry: String,
    pub(super) queue: String,
}

impl Store {
    /// Accepts a turn, or says why not. Safe to send twice.
    ///
    /// # Errors
    /// [`StoreError`]; after `Unavailable` the outcome is unknown and the same call resolves it.
    pub async fn submit(&self, submit: &Submit<'_>) -> Result<Submitted, StoreError> {
        let record = submit.record;
        let scope = record.scope();
        let (context, partition) = self.place(&scope, &record.context_id);
        let mut args = Args::new();
        args.push(self.publish())
            .push(&record.pool)
            .push(record.turn.to_string())
            .push(context.as_str())
            .push(&record.context_id)
            .push(scope.as_str())
            .push(record.task.to_string())
            .push(json("turn record", record)?)
            .push(submit.nonce.to_string())
            .push(submit.follows.map(|id| id.to_string()).unwrap_or_default())
            .number(record.submitted)
            .push(state::word(&a2a::TaskState::Submitted))
            .number(expires(record))
            .number(submit.scope_limit.unwrap_or(0))
            .number(may_wait(submit))
            .number(record.queue_age.saturating_add(1))
            .push(record.deadline.map(|at| at.to_string()).unwrap_or_default())
            .push(submit.interrupt.map(|all| all.live.to_string()).unwrap_or_default())
            .flag(record.direct && record.new_task)
            .push(&record.agent)
            .flag(record.workspace);
        history_args(&mut args, submit.history)?;
        args.number(1)
            .push(submit.first.bytes())
            .push(submit.first.class.letter().to_string());
        Self::interrupt_args(&mut args, submit.interrupt)?;
        let mut reply = self.run(Name::Submit, partition, &args).await?;
        submitted(&mut reply)
    }

    /// How many turns a scope has, live and waiting, cluster-wide, as far as they are counted and their nodes answer.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn live_turns(&self, scope: &ScopeKey) -> Result<u64, StoreError> {
        let partitions: Vec<Partition> = self.keys().layout().all().collect();
        let mut commands = Vec::with_capacity(partitions.len());
        for partition in &partitions {
            let mut count = command("ZCARD");
            count.arg(self.keys().live_turns(*partition, scope));
            commands.push((At::Partition(*partition), count));
        }
        let counts = self.answered("ZCARD", Via::Exclusive, commands).await?;
        counts.iter().flatten().map(super::script::number).sum()
    }

    /// Stores a task that is born FAILED. Returns its only entry and Redis ms.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn refuse(&self, refused: &Refused<'_>) -> Result<(EntryId, u64), StoreError> {
        let record = refused.record;
        let scope = record.scope();
        let (context, partition) = self.place(&scope, &record.context_id);
        let mut args = Args::new();
        args.push(scope.as_str())
            .push(context.as_str())
            .push(&record.context_id)
            .push(record.task.to_string())
            .push(refused.nonce.to_string())
            .number(record.submitted)
            .push(state::word(&refused.state.status.state))
            .push(json("snapshot", refused.state)?)
            .push(refused.event.bytes())
            .number(refused.keep_ms)
            .push(json("message", &record.message)?);
        let mut reply = self.run(Name::Refuse, partition, &args).await?;
        match reply.tag.as_str() {
            "OK" | "DUPLICATE" => Ok((reply.parsed()?, reply.parsed()?)),
            _ => Err(reply.unknown()),
        }
    }

    /// Leases up to one turn per token. Queues that do not exist are created.
    ///
    /// # Errors
    /// [`StoreError`]; after `Unavailable` the same call with `repeat` resolves it.
    pub async fn take(&self, take: &Take<'_>) -> Result<Took, StoreError> {
        let mut args = Args::new();
        args.push(take.takers)
            .push(take.worker.as_str())
            .number(take.tokens.len() as u64)
            .number(take.ttl_ms)
            .flag(take.repeat)
            .flag(take.last)
            .number(take.slots as u64);
        for token in take.tokens {
            args.push(token.as_str());
        }
        let mut reply = self.run(Name::Take, take.partition, &args).await?;
        if reply.tag != "TAKEN" {
            return Err(reply.unknown());
        }
        let now = reply.parsed()?;
        let full = reply.flag()?;
        let last_queue = queue_name(take.takers, ":last");
        let mut turns = Vec::new();
        for row in reply.rows()? {
            match taken(self, row, take.partition, &last_queue) {
                Ok(turn) => turns.push(turn),
                // Of a later version, perhaps. Nobody runs it until its lease runs out; the others must not share that.
                Err(error) => {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "a turn that was taken cannot be read"
                    );
                }
            }
        }
        Ok(Took { now, full, turns })
    }
}

/// What became of a message.
pub(super) fn submitted(reply: &mut Reply) -> Result<Submitted, StoreError> {
    Ok(match reply.tag.as_str() {
        tag @ ("OK" | "DUPLICATE") => {
            let repeat = tag == "DUPLICATE";
            Submitted::Accepted {
                first: reply.parsed()?,
                number: reply.parsed()?,
                now: reply.parsed()?,
                repeat,
                place: reply.parsed()?,
                storage: StorageId::parse(&reply.text()?),
            }
        }
        "BUSY" => Submitted::Busy,
        "LIMITED" => Submitted::Limited,
        "WORKING" => Submitted::Working,
        "TERMINAL" => Submitted::Terminal,
        "NOT_FOUND" => Submitted::NotFound,
        "RETRY" => Submitted::Changed,
        "TAKEN" => return Err(StoreError::corrupt("submit", "a new task id exists already")),
        _ => return Err(reply.unknown()),
    })
}

/// How many turns may be before it: only what creates its task may wait, and what interrupts must say whom.
fn may_wait(submit: &Submit<'_>) -> u64 {
    if submit.record.busy == BusyPolicy::Queue && submit.follows.is_none() {
        MOST_WAITING
    } else {
        0
    }
}

/// When a queued turn is worth nothing any more: its deadline has passed, or it has waited too long for its first worker.
fn expires(record: &TurnRecord) -> u64 {
    let waited = record.submitted.saturating_add(record.queue_age).saturating_add(1);
    record.deadline.map_or(waited, |deadline| deadline.min(waited))
}

fn taken(store: &Store, mut row: Reply, partition: Partition, last_queue: &str) -> Result<Taken, StoreError> {
    let turn = row.text()?;
    let context = ContextKey::from_text(row.text()?);
    let token = LeaseToken::from_text(row.text()?);
    let epoch = Epoch(row.parsed()?);
    let record = store.read_record(&row.bytes()?)?;
    if TurnId::parse(&turn) != Some(record.turn) {
        return Err(StoreError::corrupt("turn record", "it names another turn"));
    }
    let began = row.parsed()?;
    let (charged, handbacks, opened) = (row.parsed()?, row.parsed()?, row.parsed()?);
    let tries = Tries {
        charged,
        handbacks,
        opened,
        begun: false,
    };
    let place = record.goes_on_from(row.parsed()?, began);
    let last = row.parsed()?;
    let base = row.bytes()?;
    let base = if base.is_empty() || record.new_task {
        None
    } else {
        Some(read_json("snapshot", &base)?)
    };
    let queue = row.text()?;
    let last_attempt = queue == last_queue;
    let canceled = row.flag()?;
    let previous = row.text()?.parse().ok().map(Epoch);
    let since = row.text()?.parse().unwrap_or(record.submitted);
    let (entry, counts_for) = (row.text()?, row.text()?);
    Ok(Taken {
        record,
        partition,
        context,
        token,
        epoch,
        previous,
        number: place.number,
        tries,
        first: place.entry,
        last,
        base,
        last_attempt,
        canceled,
        since,
        queued: Queued {
            counts_for,
            entry,
            queue,
        },
    })
}

/// What every version of a record has.
#[derive(serde::Deserialize)]
struct Versioned {
    v: u32,
}

pub(super) fn json<T: serde::Serialize>(what: &'static str, value: &T) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(value).map_err(|e| StoreError::corrupt(what, e.to_string()))
}

pub(super) fn read_json<T: serde::de::DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(bytes).map_err(|e| StoreError::corrupt(what, e.to_string()))
}

impl Store {
    /// The command that rings doorbells: in a cluster they stay on the node of their partition.
    pub(super) fn publish(&self) -> &'static str {
        if self.is_clustered() { "SPUBLISH" } else { "PUBLISH" }
    }

    /// Reads a turn record, unless it is of a later version than this build knows: what is new in it may be what matters.
    pub(super) fn read_record(&self, bytes: &[u8]) -> Result<TurnRecord, StoreError> {
        let record = read_json::<TurnRecord>("turn record", bytes);
        let found = match &record {
            Ok(record) => record.v,
            Err(_) => read_json::<Versioned>("turn record", bytes).map_or(0, |versioned| versioned.v),
        };
        if found > VERSION {
            self.metrics().newer_record();
            let detail =
                format!("it is of version {found}, and this process knows {VERSION}: it is left to newer ones");
            return Err(StoreError::corrupt("turn record", detail));
        }
        record
    }

    /// The retention arguments of a turn's end.
    pub(super) fn keep_args(args: &mut Args, keep: &Keep, terminal: bool, remember: u64) {
        args.number(keep.task_ms(terminal))
            .number(keep.context_ms)
            .number(keep.journal_ms)
            .number(remember.max(KEEP_TURN_MS));
    }
}
