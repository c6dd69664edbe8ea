//! Settling: what happens to a turn outside its worker's emits. A caller reads the context, decides in
//! [`crate::domain::due`], and commits exactly what it decided if the context is still as it was read.

use a2a::Message;

use super::journal::{NewEvent, events_args, history_args};
use super::keys::queue_name;
use super::retention::Keep;
use super::script::{Args, Name, Reply};
use super::turns::json;
use super::{Store, StoreError};
use crate::domain::class::Class;
use crate::domain::due::{Charge, Live, Standing, StorageWait};
use crate::domain::fold::Folded;
use crate::domain::reason::FailReason;
use crate::domain::record::{Tries, TurnRecord};
use crate::domain::state::{self, End};
use crate::ids::{ContextKey, EntryId, LeaseToken, Nonce, Partition, TaskId, TurnId};

/// A context as it was read.
#[derive(Debug, Clone)]
pub struct ContextView {
    /// Where.
    pub partition: Partition,
    /// Which.
    pub context: ContextKey,
    /// Redis ms of the read.
    pub now: u64,
    /// Redis ms before which no lease is judged.
    pub grace: u64,
    /// The live turn.
    pub live: Option<LiveTurn>,
}

/// The live turn of a context.
#[derive(Debug, Clone)]
pub struct LiveTurn {
    /// What never changes.
    pub record: TurnRecord,
    /// Its number in the journal.
    pub number: u32,
    /// What was counted.
    pub tries: Tries,
    /// Where it began or, since it was answered, goes on.
    pub first: EntryId,
    /// The journal's last entry.
    pub last: EntryId,
    /// Who holds it, if anyone.
    pub token: Option<LeaseToken>,
    /// The worker that holds or last held it.
    pub worker: String,
    /// When the lease runs out (Redis ms).
    pub until: u64,
    /// Whether its cancel was requested.
    pub canceled: bool,
    /// Since when it is live (Redis ms).
    pub since: u64,
    /// When it is queued again (Redis ms), if it waits for that.
    pub at: Option<u64>,
    /// Until when it waits for its user's answer (Redis ms), if it does.
    pub suspended: Option<u64>,
    epoch: String,
    entry: String,
    queue: String,
    waiting: bool,
}

impl LiveTurn {
    /// Where it stands.
    pub fn standing(&self) -> Standing {
        match (&self.token, self.suspended, self.at) {
            (Some(_), ..) => Standing::Leased { until: self.until },
            (None, Some(until), _) => Standing::Suspended { until },
            (None, None, Some(at)) => Standing::Delayed { at },
            (None, None, None) => Standing::Queued { waiting: self.waiting },
        }
    }

    /// The facts that decisions need; `storage` of one that [`Self::waits_for`] one.
    pub fn facts(&self, storage: Option<StorageWait>) -> Live<'_> {
        Live {
            record: &self.record,
            since: self.since,
            tries: self.tries,
            standing: self.standing(),
            canceled: self.canceled,
            storage,
        }
    }

    /// Whose workers alone may take it, if it waits for them.
    pub fn waits_for(&self) -> Option<&str> {
        let queued = self.standing() == Standing::Queued { waiting: true };
        let takers = self.queue.split(':').nth(1).filter(|takers| takers.contains('@'));
        takers.filter(|_| queued)
    }

    /// The task.
    pub fn task(&self) -> TaskId {
        self.record.task
    }
}

/// Whether the commit happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// Yes.
    Done,
    /// The context has changed since it was read: read it again.
    Changed,
}

/// What became of the request to end a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Its worker was told.
    Told,
    /// Nobody holds it: the caller settles it.
    Unheld,
    /// It waits behind another turn of its context: the caller withdraws it.
    Waiting,
    /// It is over.
    Gone,
}

/// An end that the server writes.
#[derive(Debug)]
pub struct SettleEnd<'a> {
    /// How.
    pub end: End,
    /// Why, when an operator should see it.
    pub dead: Option<FailReason>,
    /// Only when the lease has run out and no grace holds.
    pub only_expired: bool,
    /// The batch.
    pub nonce: Nonce,
    /// Time of the end (Redis ms).
    pub stamp: u64,
    /// The events.
    pub events: &'a [NewEvent],
    /// The folded state after them, without what the history receives.
    pub snapshot: &'a Folded,
    /// What the stored history receives.
    pub history: &'a [Message],
    /// The first entry of the journal to keep.
    pub trim_below: Option<EntryId>,
}

impl Store {
    /// Reads what is needed to judge a context.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn read_context(&self, partition: Partition, context: &ContextKey) -> Result<ContextView, StoreError> {
        let mut args = Args::new();
        args.push(context.as_str());
        let mut reply = self.run(Name::ReadContext, partition, &args).await?;
        let (now, grace) = (reply.parsed()?, reply.parsed()?);
        let live = match reply.tag.as_str() {
            "NONE" => None,
            "CONTEXT" => Some(live_turn(self, &mut reply)?),
            _ => return Err(reply.unknown()),
        };
        Ok(ContextView {
            partition,
            context: context.clone(),
            now,
            grace,
            live,
        })
    }

    /// Queues the turn again and rings for it, or lets it wait until `at`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn settle_requeue(
        &self,
        view: &ContextView,
        only_expired: bool,
        charge: Charge,
        last: bool,
        at: u64,
    ) -> Result<Settled, StoreError> {
        let Some(live) = &view.live else {
            return Ok(Settled::Changed);
        };
        let mut args = self.expected_args(view, live, only_expired);
        let queue = queue_name(&live.record.pool, if last { ":last" } else { ":first" });
        let look = if at == 0 {
            view.now + crate::domain::due::QUEUED_CHECK_MS
        } else {
            at
        };
        // A turn whose deadline passes while it waits ends then, not at the next look.
        let look = live.record.deadline.map_or(look, |deadline| look.min(deadline));
        args.push(if at == 0 { queue.as_str() } else { "" })
            .push(match charge {
                Charge::None => "",
                Charge::Handback => "handback",
                Charge::Attempt => "attempt",
            })
            .number(look);
        let mut reply = self.run(Name::SettleRequeue, view.partition, &args).await?;
        let settled = settled(&reply)?;
        if settled == Settled::Done {
            let now = reply.parsed()?;
            self.ring_for_next(&reply.text()?, view.partition, now).await;
        }
        Ok(settled)
    }

    /// Ends the turn.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn settle_end(
        &self,
        view: &ContextView,
        end: &SettleEnd<'_>,
        keep: &Keep,
    ) -> Result<Settled, StoreError> {
        let Some(live) = &view.live else {
            return Ok(Settled::Changed);
        };
        let mut args = self.expected_args(view, live, end.only_expired);
        let class = if end.end.is_terminal() {
            Class::Terminal
        } else {
            Class::Interrupted
        };
        args.push(end.nonce.to_string())
            .number(end.stamp)
            .push(state::word(&end.end.state()))
            .push(json("snapshot", end.snapshot)?)
            .push(class.letter().to_string())
            .push(end.trim_below.map(|id| id.to_string()).unwrap_or_default());
        Self::keep_args(&mut args, keep, end.end.is_terminal(), live.record.remember_ms);
        args.push(end.dead.map_or("", FailReason::as_str)).number(keep.dead);
        history_args(&mut args, end.history)?;
        events_args(&mut args, end.events);
        let mut reply = self.run(Name::SettleEnd, view.partition, &args).await?;
        let settled = settled(&reply)?;
        if settled == Settled::Done {
            let (_last, now): (EntryId, u64) = (reply.parsed()?, reply.parsed()?);
            self.ring_for_next(&reply.text()?, view.partition, now).await;
        }
        Ok(settled)
    }

    /// Sets when the context is looked at again. One without a turn is no longer watched, unless turns wait: the first becomes live.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn settle_due(&self, view: &ContextView, at: u64) -> Result<Settled, StoreError> {
        let mut args = Args::new();
        let live = view.live.as_ref();
        args.push(view.context.as_str())
            .push(live.map(|l| l.record.turn.to_string()).unwrap_or_default())
            .push(live.map_or("", |l| &l.epoch))
            .push(live.and_then(|l| l.token.as_ref()).map_or("", LeaseToken::as_str))
            .push(live.map_or("", |l| &l.entry))
            .number(at);
        let mut reply = self.run(Name::SettleDue, view.partition, &args).await?;
        let settled = settled(&reply)?;
        if settled == Settled::Done {
            self.ring_for_next(&reply.text()?, view.partition, view.now).await;
        }
        Ok(settled)
    }

    /// Asks for the end of a turn.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn request_cancel(
        &self,
        partition: Partition,
        context: &ContextKey,
        turn: TurnId,
        nonce: Nonce,
    ) -> Result<Asked, StoreError> {
        let mut args = Args::new();
        args.push(self.publish())
            .push(context.as_str())
            .push(turn.to_string())
            .push(nonce.to_string());
        let reply = self.run(Name::Cancel, partition, &args).await?;
        match reply.tag.as_str() {
            "REQUESTED" => Ok(Asked::Told),
            "UNLEASED" => Ok(Asked::Unheld),
            "WAITING" => Ok(Asked::Waiting),
            "GONE" => Ok(Asked::Gone),
            _ => Err(reply.unknown()),
        }
    }

    fn expected_args(&self, view: &ContextView, live: &LiveTurn, only_expired: bool) -> Args {
        let mut args = Args::new();
        args.push(self.publish())
            .push(view.context.as_str())
            .push(live.record.turn.to_string())
            .push(&live.epoch)
            .push(live.token.as_ref().map_or("", LeaseToken::as_str))
            .push(format!("{} {}", live.entry, live.queue))
            .push(live.last.to_string())
            .push(live.record.task.to_string())
            .flag(only_expired)
            .flag(live.canceled);
        args
    }
}

pub(super) fn settled(reply: &Reply) -> Result<Settled, StoreError> {
    match reply.tag.as_str() {
        "OK" => Ok(Settled::Done),
        "RETRY" => Ok(Settled::Changed),
        _ => Err(reply.unknown()),
    }
}

fn live_turn(store: &Store, reply: &mut Reply) -> Result<LiveTurn, StoreError> {
    let turn = reply.text()?;
    let epoch = reply.text()?;
    let token = Some(reply.text()?).filter(|t| !t.is_empty()).map(LeaseToken::from_text);
    let until = reply.parsed()?;
    let canceled = !reply.text()?.is_empty();
    let at = reply.text()?;
    let worker = reply.text()?;
    let record = store.read_record(&reply.bytes()?)?;
    if record.turn.to_string() != turn {
        return Err(StoreError::corrupt("turn record", "it names another turn"));
    }
    let began = reply.parsed()?;
    let (charged, handbacks, opened) = (reply.parsed()?, reply.parsed()?, reply.parsed()?);
    let begun = reply.flag()?;
    let (entry, queue) = (reply.text()?, reply.text()?);
    let place = record.goes_on_from(reply.parsed()?, began);
    let _task = reply.text()?;
    let last = reply.parsed()?;
    let waiting = reply.flag()?;
    let since = reply.text()?.parse().unwrap_or(record.submitted);
    Ok(LiveTurn {
        record,
        number: place.number,
        tries: Tries {
            charged,
            handbacks,
            opened,
            begun,
        },
        first: place.entry,
        last,
        token,
        worker,
        until,
        canceled,
        since,
        at: at.parse().ok(),
        suspended: at.strip_prefix('s').and_then(|until| until.parse().ok()),
        epoch,
        entry,
        queue,
        waiting,
    })
}
