//! Taking turns: wait for a free slot, then for the bell, then take from the partition it names.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use relevo_shared::ids::{LeaseToken, Partition, WorkerId};
use relevo_shared::platform::tasks::{self, Kind, Tasks};
use relevo_shared::platform::{clock, entropy};
use relevo_shared::store::{Held, Keep, RedisClock, Retry, Store, StoreError, Take, Taken, Took, millis};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::draft::OutputLimits;
use super::leases::{Authority, Leases};
use super::turn::TurnRun;
use super::write::back_off;
use crate::agent::Agent;
use crate::metrics::WorkerMetrics;

/// How long one wait for the bell lasts. A worker that dies meanwhile swallows one bell at the most; the janitor rings again.
const BELL_WAIT: Duration = Duration::from_secs(2);

/// What a worker's turns need to know.
#[derive(Debug, Clone)]
pub(crate) struct TurnSettings {
    pub(crate) ttl: Duration,
    pub(crate) max_duration: Duration,
    pub(crate) slots: usize,
    pub(crate) output: OutputLimits,
    pub(crate) keep: Keep,
}

/// Tells running turns that the drain's deadline has come.
#[derive(Debug, Clone)]
pub(crate) struct HandOver(pub(crate) watch::Receiver<bool>);

impl HandOver {
    /// Waits until running turns must be given back. Cancel-safe.
    pub(crate) async fn wait(mut self) {
        if self.0.wait_for(|now| *now).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// What every part of a worker shares.
pub(crate) struct Worker {
    pub(crate) id: WorkerId,
    pub(crate) store: Store,
    pub(crate) agents: HashMap<String, Arc<dyn Agent>>,
    pub(crate) settings: TurnSettings,
    pub(crate) authority: Authority,
    pub(crate) leases: Leases,
    pub(crate) clock: RedisClock,
    pub(crate) tasks: Tasks,
    pub(crate) metrics: WorkerMetrics,
    pub(crate) hand_over: HandOver,
    pub(crate) slots: Arc<Semaphore>,
    /// Whether a turn on its last attempt runs here: such turns run one at a time, so that a poisoned one dies alone.
    pub(crate) last_attempt: AtomicBool,
}

impl Worker {
    /// The stamp of the next event: Redis' time, never before the turn was accepted.
    pub(crate) fn stamp(&self, taken: &Taken) -> u64 {
        self.clock.now().max(taken.record.submitted)
    }

    /// Takes turns of a pool until draining begins. Returns when no take is outstanding.
    pub(crate) async fn take_turns(self: Arc<Self>, pool: String) {
        let shutdown = self.tasks.shutdown().clone();
        let mut waiter = self.store.bell_waiter(&pool);
        let mut failures = 0;
        loop {
            // Both waits are given up when draining begins; nothing is leased by them.
            let next = tokio::select! {
                biased;
                () = shutdown.draining() => return,
                next = self.next_partition(&pool, &mut waiter) => next,
            };
            let taken = match next {
                Ok(Some((partition, permit))) => self.take_from(&pool, partition, permit).await,
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            match taken {
                Ok(()) => failures = 0,
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        pool,
                        "no turns can be taken now"
                    );
                    tokio::select! {
                        () = shutdown.draining() => return,
                        () = back_off(failures) => {}
                    }
                    failures = failures.saturating_add(1);
                }
            }
        }
    }

    /// A free slot, then a partition that has something for it.
    async fn next_partition(
        &self,
        pool: &str,
        waiter: &mut relevo_shared::store::BellWaiter,
    ) -> Result<Option<(Partition, OwnedSemaphorePermit)>, StoreError> {
        let Ok(permit) = Arc::clone(&self.slots).acquire_owned().await else {
            return std::future::pending().await;
        };
        let partition = match self.store.answer_bell(pool).await? {
            Some(partition) => Some(partition),
            None => waiter.wait(BELL_WAIT).await?,
        };
        self.metrics.looked();
        Ok(partition.map(|partition| (partition, permit)))
    }

    async fn take_from(
        self: &Arc<Self>,
        pool: &str,
        partition: Partition,
        first: OwnedSemaphorePermit,
    ) -> Result<(), StoreError> {
        // At most a quarter of what is free, so that one partition does not starve the others.
        let free = self.slots.available_permits() + 1;
        let mut permits = vec![first];
        while permits.len() < free.div_ceil(4) {
            match Arc::clone(&self.slots).try_acquire_owned() {
                Ok(permit) => permits.push(permit),
                Err(_) => break,
            }
        }
        let tokens: Vec<LeaseToken> = permits.iter().map(|_| LeaseToken::new(entropy::u128())).collect();
        let last = !self.last_attempt.swap(true, Ordering::AcqRel);
        let sent = clock::boottime();
        let took = self.take_until_known(pool, partition, &tokens, last).await;
        let got_last = took
            .as_ref()
            .is_ok_and(|took| took.turns.iter().any(|turn| turn.last_attempt));
        if last && !got_last {
            self.last_attempt.store(false, Ordering::Release);
        }
        let took = took?;
        self.clock.learn(took.now);
        if took.full {
            drop(self.store.ring(pool, partition, took.now).await);
        }
        for (taken, permit) in took.turns.into_iter().zip(permits) {
            self.start(taken, permit, sent);
        }
        Ok(())
    }

    /// Takes; after a lost reply the same call, marked as a repeat, says what it got. Once a lease time has passed, whatever was
    /// leased has run out and is the janitor's.
    async fn take_until_known(
        &self,
        pool: &str,
        partition: Partition,
        tokens: &[LeaseToken],
        last: bool,
    ) -> Result<Took, StoreError> {
        let started = clock::boottime();
        let mut tries = 0;
        loop {
            let take = Take {
                partition,
                pool,
                worker: &self.id,
                tokens,
                ttl_ms: millis(self.settings.ttl),
                repeat: tries > 0,
                last,
                slots: self.settings.slots,
            };
            match self.store.take(&take).await {
                Err(error) if error.retry() == Retry::Later => {
                    if clock::boottime().saturating_sub(started) > self.settings.ttl / 3 {
                        return Err(error);
                    }
                    back_off(tries).await;
                    tries += 1;
                }
                answer => return answer,
            }
        }
    }

    fn start(self: &Arc<Self>, taken: Taken, permit: OwnedSemaphorePermit, sent: Duration) {
        let held = Held {
            context: taken.context.clone(),
            token: taken.token.clone(),
            turn: taken.record.turn,
        };
        // A turn is renewed a little longer than it may run, so that its own end comes first.
        let limit = self.settings.max_duration + self.settings.ttl;
        let lease = self.leases.add(held, taken.partition, sent, limit);
        let last_attempt = taken.last_attempt;
        let run = TurnRun::new(Arc::clone(self), taken, lease);
        let worker = Arc::clone(self);
        tasks::spawn(&self.tasks, "turn", Kind::BestEffort, async move {
            let _slot = permit;
            run.run().await;
            if last_attempt {
                worker.last_attempt.store(false, Ordering::Release);
            }
        });
    }
}
