//! One turn's life from lease to end: the agent runs, its events are batched and written, and whatever happens the turn ends, is
//! given back, or belongs to someone else. Nothing is written outside the fence.

use std::sync::Arc;
use std::time::Duration;

use relevo_shared::domain::reason::FailReason;
use relevo_shared::domain::record::CrashPolicy;
use relevo_shared::domain::state::End;
use relevo_shared::ids::Nonce;
use relevo_shared::janitor::{GivenBack, Why, give_back};
use relevo_shared::platform::shutdown::Phase;
use relevo_shared::platform::tasks::{self, Handle, Kind};
use relevo_shared::platform::{clock, entropy};
use relevo_shared::store::{EmitReply, Retry, SessionItems, Taken};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::draft::{Close, Draft, OverLimit};
use super::leases::{Guard, Lease, News};
use super::past::Past;
use super::sink::{EventSink, Item, SessionError};
use super::take::Worker;
use super::write;
use crate::agent::{CancelToken, Ending, Outcome, StopReason, Turn};

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
    /// The lease can no longer be trusted: Redis did not answer.
    Unsure,
    /// Acknowledged writes were lost.
    Diverged,
    /// The worker stops.
    Draining,
    /// The agent produced too much.
    OverLimit,
}

/// A leased turn being run.
pub(crate) struct TurnRun {
    worker: Arc<Worker>,
    taken: Arc<Taken>,
    lease: Arc<Lease>,
    news: watch::Receiver<News>,
    draft: Draft,
    /// How long the session is, when it was said to be of another length.
    other_length: Option<u64>,
    started: Instant,
}

impl TurnRun {
    pub(crate) fn new(worker: Arc<Worker>, taken: Taken, lease: Arc<Lease>) -> Self {
        let draft = Draft::new(&taken, worker.settings.output, worker.stamp(&taken));
        let news = lease.news();
        Self {
            worker,
            taken: Arc::new(taken),
            lease,
            news,
            draft,
            other_length: None,
            started: Instant::now(),
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
        self.worker.leases.remove(&self.taken.token);
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
        let Some(agent) = self.worker.agents.get(&record.agent).cloned() else {
            let text = format!("agent {} is not configured on this worker", record.agent);
            return Attempt::Returned(Outcome::Failed(FailReason::AgentError, text));
        };
        if record.policy == CrashPolicy::Fail {
            // At most once: the journal says that it began before it begins.
            if let Some(over) = self.flush().await {
                return over;
            }
        }
        let (sink, items) = EventSink::new(Arc::clone(record));
        let (stop, cancel) = CancelToken::new();
        let turn = Turn {
            record: Arc::clone(record),
            number: self.taken.number,
            attempt: self.taken.tries.opened + 1,
            epoch: self.taken.epoch,
            previous: self.taken.previous,
            guard: Guard::new(Arc::clone(&self.lease), self.worker.authority),
            past: Past::new(self.worker.store.clone(), Arc::clone(&self.taken)),
        };
        let patience = agent.patience();
        let running = async move { agent.run(turn, &sink, cancel).await };
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
                    Attempt::Overdue | Attempt::OverLimit => StopReason::Deadline,
                    Attempt::Draining => StopReason::Drain,
                    Attempt::Returned(_) | Attempt::Crashed | Attempt::Lost | Attempt::Unsure | Attempt::Diverged => {
                        StopReason::Lease
                    }
                }));
                self.stop_agent(handle, items, patience).await;
                attempt
            }
        }
    }

    /// Waits for the agent to obey, drops it when it does not in time.
    async fn stop_agent(&self, handle: Handle<Outcome>, mut items: mpsc::Receiver<Item>, patience: Duration) {
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
        drop(handle.join().await);
    }

    /// Writes what the agent says until it has said everything (`None`), or something else ends the attempt.
    async fn follow(&mut self, items: &mut mpsc::Receiver<Item>) -> Option<Attempt> {
        let record = self.taken.record.clone();
        let overdue = self.started + self.worker.settings.max_duration;
        let shutdown = self.worker.tasks.shutdown().clone();
        let mut hand_over = std::pin::pin!(self.worker.hand_over.clone().wait());
        let mut flush_at = Instant::now() + BATCH_WAIT;
        loop {
            let authority = Instant::now() + self.authority_left();
            tokio::select! {
                biased;
                changed = self.news.changed() => match (changed, *self.news.borrow()) {
                    (Err(_), _) => return Some(Attempt::Lost),
                    (Ok(()), news) if news.lost => return Some(Attempt::Lost),
                    (Ok(()), news) if news.canceled => return Some(Attempt::Canceled),
                    (Ok(()), _) => {}
                },
                () = tokio::time::sleep_until(authority) => {
                    if self.authority_left().is_zero() {
                        return Some(Attempt::Unsure);
                    }
                }
                () = &mut hand_over => return Some(Attempt::Draining),
                () = shutdown.aborted() => return Some(Attempt::Draining),
                () = tokio::time::sleep_until(overdue) => return Some(Attempt::Overdue),
                () = tokio::time::sleep_until(flush_at), if !self.draft.is_empty() => {
                    if let Some(over) = self.flush().await {
                        return Some(over);
                    }
                }
                item = items.recv() => {
                    let item = match item? {
                        Item::Session { items, written } => {
                            if let Some(over) = self.write_session(items, written).await {
                                return Some(over);
                            }
                            continue;
                        }
                        item => item,
                    };
                    if self.draft.is_empty() {
                        flush_at = Instant::now() + BATCH_WAIT;
                    }
                    if self.draft.push(&record, item, self.worker.stamp(&self.taken)) == Err(OverLimit) {
                        self.draft.drop_last();
                        return Some(Attempt::OverLimit);
                    }
                    if self.draft.is_full() && let Some(over) = self.flush().await {
                        return Some(over);
                    }
                }
            }
        }
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
            Err(error) => Some(internal(&error)),
        }
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
            EmitReply::Diverged | EmitReply::Session { .. } => Attempt::Diverged,
            EmitReply::Fenced | EmitReply::Done { .. } => {
                self.worker.metrics.fenced.with_label_values(&[script]).inc();
                Attempt::Lost
            }
        }
    }

    /// Carries out what the attempt led to; returns the metric label.
    async fn settle(&mut self, attempt: Attempt) -> &'static str {
        match attempt {
            Attempt::Returned(Outcome::Ended(ending, message, metadata)) => {
                let end = end_of(ending);
                self.end(Close {
                    message,
                    metadata,
                    ..Close::plain(end)
                })
                .await
            }
            Attempt::Returned(Outcome::Failed(reason, text)) => {
                tracing::warn!(turn.id = %self.taken.record.turn, reason = reason.as_str(), text, "the agent failed");
                self.end(Close::failed(reason)).await
            }
            Attempt::Returned(Outcome::Crashed(text)) => {
                tracing::warn!(turn.id = %self.taken.record.turn, text, "the agent is gone in the middle of the turn");
                match self.taken.record.policy {
                    CrashPolicy::Fail => self.end(Close::failed(FailReason::AgentExited)).await,
                    CrashPolicy::Restart => self.give_back(Why::Crash).await,
                }
            }
            Attempt::OverLimit => self.end(Close::failed(FailReason::OutputLimit)).await,
            Attempt::Overdue => self.end(Close::failed(FailReason::DeadlineExceeded)).await,
            Attempt::Canceled => {
                self.draft.drop_waiting();
                self.end(Close::plain(End::Canceled)).await
            }
            Attempt::Lost => {
                self.worker.metrics.leases_lost.inc();
                "lost"
            }
            Attempt::Crashed => self.give_back(Why::Crash).await,
            Attempt::Unsure | Attempt::Diverged => self.give_back(Why::HandOver(FailReason::RedisUnavailable)).await,
            Attempt::Draining => {
                // What the agent said before it was stopped is worth keeping for a turn that ends here.
                let _written = self.flush().await;
                self.give_back(Why::HandOver(FailReason::WorkerDrained)).await
            }
        }
    }

    async fn end(&mut self, close: Close) -> &'static str {
        let end = close.end;
        let now = self.worker.stamp(&self.taken);
        let prev = self.draft.position();
        let nonce = Nonce(entropy::u64());
        let (ready, after) = match self.draft.ending(&self.taken.record, nonce, close, now) {
            Ok(batch) => batch,
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the end of a turn cannot be folded"
                );
                return self.give_back(Why::Crash).await;
            }
        };
        match write::finish(
            &self.worker.store,
            &self.taken,
            (&ready, after),
            prev,
            end,
            &self.worker.settings.keep,
        )
        .await
        {
            Ok(EmitReply::Done { now, .. }) => {
                self.worker.clock.learn(now);
                end.label()
            }
            Ok(EmitReply::Canceled) if end != End::Canceled => {
                // The cancel came before the end: the order of the two scripts decides.
                self.draft.drop_waiting();
                Box::pin(self.end(Close::plain(End::Canceled))).await
            }
            Ok(EmitReply::Diverged) => self.give_back(Why::HandOver(FailReason::RedisUnavailable)).await,
            Ok(refused) => {
                self.refused("finish", &refused);
                self.worker.metrics.leases_lost.inc();
                "lost"
            }
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the end of a turn was refused"
                );
                self.give_back(Why::Crash).await
            }
        }
    }

    /// Gives the turn back as soon as Redis answers; the token makes every repeat safe.
    async fn give_back(&self, why: Why) -> &'static str {
        let taken = &self.taken;
        let keep = &self.worker.settings.keep;
        let mut tries = 0;
        loop {
            match give_back(
                &self.worker.store,
                taken.partition,
                &taken.context,
                &taken.token,
                why,
                keep,
            )
            .await
            {
                Ok(GivenBack::Queued) if why == Why::Crash => return "crashed",
                Ok(GivenBack::Queued) => return "handed_back",
                Ok(GivenBack::Ended(end)) => return end.label(),
                Ok(GivenBack::Gone) => {
                    self.worker.metrics.fenced.with_label_values(&["hand_back"]).inc();
                    self.worker.metrics.leases_lost.inc();
                    return "lost";
                }
                Err(error) if error.retry() == Retry::Later && self.worker.tasks.shutdown().phase() != Phase::Abort => {
                    write::back_off(tries).await;
                    tries += 1;
                }
                Err(error) => {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "a turn could not be given back"
                    );
                    return "abandoned";
                }
            }
        }
    }
}

fn end_of(ending: Ending) -> End {
    match ending {
        Ending::Completed => End::Completed,
        Ending::Canceled => End::Canceled,
        Ending::Failed => End::Failed,
        Ending::Rejected => End::Rejected,
        Ending::InputRequired => End::InputRequired,
        Ending::AuthRequired => End::AuthRequired,
    }
}

fn internal(error: &(dyn std::error::Error + 'static)) -> Attempt {
    tracing::error!(error, "a batch cannot be written");
    Attempt::Crashed
}
