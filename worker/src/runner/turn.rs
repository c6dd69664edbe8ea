//! One turn's life from lease to end: the agent runs, its events are batched and written, and whatever happens the turn ends, is
//! given back, or belongs to someone else. Nothing is written outside the fence. How it ends is in [`settle`].

use std::sync::Arc;
use std::time::Duration;

use relevo_shared::domain::due::only_stops;
use relevo_shared::domain::reason::FailReason;
use relevo_shared::domain::record::CrashPolicy;
use relevo_shared::ids::Nonce;
use relevo_shared::platform::tasks::{self, Handle, Kind};
use relevo_shared::platform::{clock, entropy};
use relevo_shared::store::{EmitReply, SessionItems, StoreError, Taken};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::draft::{Draft, OverLimit};
use super::leases::{Guard, Lease, News};
use super::opening::Opening;
use super::past::Past;
use super::projection::{Paths, Projection};
use super::sink::{Enclosed, EventSink, Item, Metadata, Output, SessionError};
use super::stow::Stowed;
use super::take::{Served, Worker};
use super::write;
use crate::agent::{CancelToken, Ending, Outcome, StopReason, Stopped, Turn};

mod elsewhere;
mod settle;
mod stow;
mod suspend;

/// How long a turn runs whose task nobody can see, find or cancel: whoever waited for an answer without one may be gone.
const UNSEEN: Duration = Duration::from_secs(10);
/// How many items of the agent are heard at once.
const HEARD: usize = 16;
/// The label of a turn that has become somebody else's.
const LOST: &str = "lost";
/// How long events wait for company before they are written.
const BATCH_WAIT: Duration = Duration::from_millis(3);

/// How an attempt went, and what follows.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "one lives at a time, on the stack of its turn")]
enum Attempt {
    /// The agent returned.
    Returned(Outcome),
    /// The agent panicked, or its task was torn down.
    Crashed,
    /// The client's cancel.
    Canceled,
    /// The turn ran as long as it may.
    Overdue,
    /// The lease is someone else's.
    Lost,
    /// The lease can no longer be trusted, or nothing can be written: Redis did not answer, or does not let this worker in.
    Unsure,
    /// Acknowledged writes were lost.
    Diverged,
    /// The worker stops.
    Draining,
    /// The artifact store is away.
    NoArtifacts,
    /// This worker's configuration does not have the agent; another's may.
    Unknown,
    /// The agent produced too much.
    OverLimit,
    /// The attempt had only to stop what a crashed one has begun elsewhere.
    Stopped(Stopped),
    /// What the agent produced is not taken, with a sentence for the reader of the task.
    Refused(FailReason, String),
}

/// A leased turn being run.
pub(crate) struct TurnRun {
    worker: Arc<Worker>,
    taken: Arc<Taken>,
    lease: Arc<Lease>,
    news: watch::Receiver<News>,
    draft: Draft,
    /// What clients may see of the metadata under the profile's key, if it has one.
    projection: Option<Projection>,
    /// How long the session is, when it was said to be of another length.
    other_length: Option<u64>,
    /// What the agent says about how it stopped.
    stopped: Option<Metadata>,
    /// Whether the agent has said something.
    said: bool,
    /// What is known of the task's artifacts.
    stowed: Stowed,
    started: Instant,
    /// When this attempt has run as long as it may.
    overdue: Instant,
}

impl TurnRun {
    pub(crate) fn new(worker: Arc<Worker>, taken: Taken, lease: Arc<Lease>) -> Self {
        let bounds = worker.bounds(&taken.record.agent);
        let draft = Draft::new(&taken, bounds.output, worker.stamp(&taken));
        let started = Instant::now();
        let news = lease.news();
        let profile = worker.agents.get(&taken.record.agent).map(|served| &served.profile);
        let projection = profile.and_then(|profile| Projection::of(profile, Paths::new(worker.roots.known())));
        let deadline = taken.record.deadline;
        let left = deadline.map(|at| Duration::from_millis(at.saturating_sub(worker.clock.now())));
        let overdue = started + left.map_or(bounds.max_duration, |left| left.min(bounds.max_duration));
        Self {
            worker,
            taken: Arc::new(taken),
            lease,
            news,
            draft,
            projection,
            other_length: None,
            stopped: None,
            said: false,
            stowed: Stowed::default(),
            started,
            overdue,
        }
    }

    /// Runs the turn until it is no longer this worker's.
    pub(crate) async fn run(mut self) {
        let record = Arc::new(self.taken.record.clone());
        self.worker.metrics.taken(&self.taken, self.worker.clock.now());
        let attempt = if self.taken.canceled {
            Attempt::Canceled
        } else {
            self.attempt(&record).await
        };
        let label = self.settle(attempt).await;
        if label == LOST {
            self.note_what_may_be_left().await;
        }
        self.worker.metrics.turns.with_label_values(&[label]).inc();
        self.worker
            .metrics
            .turn_duration
            .observe(self.started.elapsed().as_secs_f64());
        tracing::info!(
            task.id = %record.task, turn.id = %record.turn, epoch = self.taken.epoch.0, outcome = label, "turn over"
        );
    }

    async fn attempt(&mut self, record: &Arc<relevo_shared::domain::record::TurnRecord>) -> Attempt {
        let Some(Served { agent, profile, .. }) = self.worker.agents.get(&record.agent).cloned() else {
            return Attempt::Unknown;
        };
        if only_stops(record, self.taken.tries) {
            return self.stop_elsewhere(agent.as_ref()).await;
        }
        if record.policy == CrashPolicy::Fail {
            // At most once: the journal says that it began before it begins.
            if let Some(over) = self.flush().await {
                return over;
            }
        }
        let past = Past::new(self.worker.store.clone(), Arc::clone(&self.taken));
        let outlived = match self.outlived(&past, agent.as_ref()).await {
            Ok(outlived) => outlived,
            Err(over) => return over,
        };
        let (sink, items) = EventSink::new(Arc::clone(record));
        let (stop, cancel) = CancelToken::new();
        let turn = Turn {
            record: Arc::clone(record),
            number: record.began_as(self.taken.number),
            attempt: record.attempt(self.taken.tries),
            epoch: self.taken.epoch,
            previous: self.taken.previous,
            guard: Guard::new(Arc::clone(&self.lease), self.worker.authority),
            past,
            prompt: None,
            outlived,
            until: self.overdue,
        };
        let patience = agent.patience();
        let opening = Opening {
            store: self.worker.store.clone(),
            taken: Arc::clone(&self.taken),
            record: Arc::clone(record),
            roots: Arc::clone(&self.worker.roots),
            storage: self.worker.storage.clone(),
        };
        let running = async move {
            match opening.prompt(profile, &cancel).await {
                Ok(prompt) => agent.run(Turn { prompt, ..turn }, &sink, cancel).await,
                Err(outcome) => outcome,
            }
        };
        let handle = tasks::spawn(&self.worker.tasks, "agent", Kind::BestEffort, running);
        self.watch(handle, items, &stop, patience).await
    }

    /// Follows the agent until the attempt is over. When this returns, the agent is gone.
    async fn watch(
        &mut self,
        handle: Handle<Outcome>,
        mut items: mpsc::Receiver<Item>,
        stop: &watch::Sender<Option<StopReason>>,
        patience: Duration,
    ) -> Attempt {
        let ending = self.follow(&mut items).await;
        match ending {
            None => match handle.join().await {
                Some(outcome) => Attempt::Returned(outcome),
                None => Attempt::Crashed,
            },
            Some(attempt) => {
                stop.send_replace(Some(match attempt {
                    Attempt::Canceled => StopReason::Client,
                    Attempt::Overdue => StopReason::Deadline,
                    Attempt::OverLimit | Attempt::Refused(..) => StopReason::Refused,
                    Attempt::Draining => StopReason::Drain,
                    Attempt::Returned(_)
                    | Attempt::Crashed
                    | Attempt::Lost
                    | Attempt::Unsure
                    | Attempt::Diverged
                    | Attempt::NoArtifacts
                    | Attempt::Unknown
                    | Attempt::Stopped(_) => StopReason::Lease,
                }));
                let outcome = self.stop_agent(handle, items, patience).await;
                if let Some(Outcome::Ended(Ending::Canceled, _, facts)) = outcome {
                    self.stopped = facts;
                }
                attempt
            }
        }
    }

    /// Waits for the agent to obey, drops it when it does not in time.
    async fn stop_agent(
        &self,
        handle: Handle<Outcome>,
        mut items: mpsc::Receiver<Item>,
        patience: Duration,
    ) -> Option<Outcome> {
        let until = clock::boottime() + patience;
        // What it still says is heard and dropped, so that it can come to its end. The sink goes when the agent does.
        loop {
            // Asked anew each time: the lease is renewed meanwhile.
            let kill_at = self.worker.authority.kill_at(self.lease.renewed());
            let left = until.min(kill_at).saturating_sub(clock::boottime());
            tokio::select! {
                item = items.recv() => if item.is_none() { break },
                () = tokio::time::sleep(left) => {
                    let kill_at = self.worker.authority.kill_at(self.lease.renewed());
                    if until.min(kill_at) <= clock::boottime() {
                        handle.abort();
                        break;
                    }
                }
            }
        }
        handle.join().await
    }

    /// The end of an attempt that may go on no longer.
    fn out_of_time(&self, now: Instant) -> Option<Attempt> {
        if self.authority_left().is_zero() {
            return Some(Attempt::Unsure);
        }
        (now >= self.overdue).then_some(Attempt::Overdue)
    }

    /// Writes what the agent says until it has said everything (`None`), or something else ends the attempt.
    async fn follow(&mut self, items: &mut mpsc::Receiver<Item>) -> Option<Attempt> {
        let shutdown = self.worker.tasks.shutdown().clone();
        let mut hand_over = std::pin::pin!(self.worker.hand_over.clone().wait());
        let mut flush_at = Instant::now() + BATCH_WAIT;
        let mut show_at = self.is_unseen().then(|| self.started + UNSEEN);
        let mut said = Vec::with_capacity(HEARD);
        loop {
            let mut alarm = self.overdue.min(Instant::now() + self.authority_left());
            if !self.draft.is_empty() {
                alarm = alarm.min(flush_at);
            }
            if let Some(at) = show_at {
                alarm = alarm.min(at);
            }
            tokio::select! {
                biased;
                changed = self.news.changed() => {
                    let over = ended_by(changed.ok().map(|()| *self.news.borrow()));
                    if over.is_some() {
                        return over;
                    }
                }
                () = &mut hand_over => return Some(Attempt::Draining),
                () = shutdown.aborted() => return Some(Attempt::Draining),
                () = tokio::time::sleep_until(alarm) => {
                    let now = Instant::now();
                    let over = self.out_of_time(now);
                    if over.is_some() {
                        return over;
                    }
                    if show_at.is_some_and(|at| now >= at) {
                        show_at = None;
                        if let Some(over) = self.show().await {
                            return Some(over);
                        }
                    }
                    if now >= flush_at && !self.draft.is_empty()
                        && let Some(over) = self.flush().await
                    {
                        return Some(over);
                    }
                }
                count = items.recv_many(&mut said, HEARD) => {
                    if count == 0 {
                        return None;
                    }
                    for item in said.drain(..) {
                        let over = match item {
                            Item::Session { items, written } => self.write_session(items, written).await,
                            Item::Output(mut output, files) => {
                                let projection = self.projection.as_mut();
                                if projection.is_some_and(|projection| !projection.output(&mut output)) {
                                    continue;
                                }
                                if self.draft.is_empty() {
                                    flush_at = Instant::now() + BATCH_WAIT;
                                }
                                self.say_with(output, files).await
                            }
                        };
                        if over.is_some() {
                            return over;
                        }
                    }
                }
            }
        }
    }

    /// Adds what the agent said to what waits, and writes it whenever it is enough for a batch.
    async fn say(&mut self, output: Output) -> Option<Attempt> {
        self.say_with(output, Vec::new()).await
    }

    /// The same with the files that some of its parts stand for.
    async fn say_with(&mut self, mut output: Output, files: Vec<Enclosed>) -> Option<Attempt> {
        if !std::mem::replace(&mut self.said, true) && self.taken.record.direct {
            // From here on there is a task for clients.
            if let Some(over) = self.show().await {
                return Some(over);
            }
        }
        if !files.is_empty()
            && let Err(over) = self.enclose(&mut output, &files).await
        {
            return Some(over);
        }
        if let Err(over) = self.stow(&mut output).await {
            return Some(over);
        }
        let now = self.worker.stamp(&self.taken);
        let Ok(events) = self.draft.cut(&self.taken.record, output, now) else {
            return Some(Attempt::OverLimit);
        };
        for event in events {
            if self.draft.push(event, now) == Err(OverLimit) {
                return Some(Attempt::OverLimit);
            }
            if self.draft.is_full()
                && let Some(over) = self.flush().await
            {
                return Some(over);
            }
        }
        None
    }

    /// Writes session items with everything that waits, and tells the agent.
    async fn write_session(
        &mut self,
        items: SessionItems,
        written: oneshot::Sender<Result<u64, SessionError>>,
    ) -> Option<Attempt> {
        let length = items.expect.saturating_add(items.items.len() as u64);
        self.draft.set_session(items);
        let over = self.flush().await;
        if over.is_none() {
            let answer = self
                .other_length
                .take()
                .map_or(Ok(length), |length| Err(SessionError::Length(length)));
            // An agent that is gone needs no answer.
            let _ = written.send(answer);
        }
        over
    }

    fn authority_left(&self) -> Duration {
        self.worker
            .authority
            .stop_at(self.lease.renewed())
            .saturating_sub(clock::boottime())
    }

    /// Writes what waits. `None`: it is written and the attempt goes on.
    async fn flush(&mut self) -> Option<Attempt> {
        let prev = self.draft.position();
        let ready = match self.draft.ready(Nonce(entropy::u64())) {
            Ok(ready) => ready,
            Err(error) => return Some(internal(&error)),
        };
        // A batch whose outcome stays unknown until authority ends is given up: the token makes that safe.
        let reply = tokio::select! {
            reply = write::emit(&self.worker.store, &self.taken, &ready, prev) => reply,
            () = self.authority_ends() => return Some(Attempt::Unsure),
        };
        match reply {
            Ok(EmitReply::Done { now, .. }) => {
                self.worker.clock.learn(now);
                self.draft.written(&ready).err().map(|error| internal(&error))
            }
            Ok(EmitReply::Session { length }) => {
                self.draft.drop_session();
                self.other_length = Some(length);
                None
            }
            Ok(refused) => Some(self.refused("emit", &refused)),
            Err(error) => Some(unwritten(&error)),
        }
    }

    /// Shows a task that nobody saw so far.
    async fn show(&self) -> Option<Attempt> {
        let shown = tokio::select! {
            shown = write::show(&self.worker.store, &self.taken) => shown,
            () = self.authority_ends() => return Some(Attempt::Unsure),
        };
        shown.err().map(|error| unwritten(&error))
    }

    async fn authority_ends(&self) {
        loop {
            let left = self.authority_left();
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }

    fn refused(&self, script: &str, reply: &EmitReply) -> Attempt {
        match reply {
            EmitReply::Canceled => Attempt::Canceled,
            EmitReply::Diverged | EmitReply::Session { .. } | EmitReply::Seen => Attempt::Diverged,
            EmitReply::Fenced | EmitReply::Done { .. } => {
                self.worker.metrics.fenced.with_label_values(&[script]).inc();
                Attempt::Lost
            }
        }
    }
}

/// Whether news of the lease end the attempt; none come when it is gone.
fn ended_by(news: Option<News>) -> Option<Attempt> {
    match news {
        None => Some(Attempt::Lost),
        Some(news) if news.lost => Some(Attempt::Lost),
        Some(news) if news.canceled => Some(Attempt::Canceled),
        Some(_) => None,
    }
}

/// What an error of the store means for the attempt: a batch that the store does not take is the agent's doing, all else is not.
fn unwritten(error: &StoreError) -> Attempt {
    tracing::error!(error = error as &dyn std::error::Error, "a batch was not written");
    if matches!(error, StoreError::Refused { .. }) {
        Attempt::Crashed
    } else {
        Attempt::Unsure
    }
}

fn internal(error: &(dyn std::error::Error + 'static)) -> Attempt {
    tracing::error!(error, "a batch cannot be written");
    Attempt::Crashed
}
