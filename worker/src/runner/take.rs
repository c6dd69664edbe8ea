//! Taking turns: wait for a free slot, then for the bell of any pool (or of the worker's storage in it), then take from the partition it
//! names.

mod bells;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use relevo_shared::agents::{AgentLimits, Profile};
use relevo_shared::ids::{LeaseToken, Partition, StorageId, WorkerId};
use relevo_shared::platform::config::ByteSize;
use relevo_shared::platform::tasks::{self, Kind, Tasks};
use relevo_shared::platform::{clock, entropy};
use relevo_shared::store::{Held, Keep, RedisClock, Retry, Store, StoreError, Take, Taken, Took, millis};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use bells::{Bells, Rung};

use super::draft::OutputLimits;
use super::leases::{Authority, Leases};
use super::stow::Artifacts;
use super::turn::TurnRun;
use super::write::back_off;
use crate::agent::Agent;
use crate::input::Roots;
use crate::metrics::WorkerMetrics;

/// Most turns of one take: each costs a token, whether there is a turn for it or not.
const MOST_TAKEN: usize = 16;
/// How long one wait for the bell lasts. A worker that dies meanwhile swallows one bell at the most; the janitor rings again.
const BELL_WAIT: Duration = Duration::from_secs(2);
/// How long a take is repeated while a node of a cluster is away: other nodes have turns, too.
const AWAY: Duration = Duration::from_secs(1);

/// What a worker's turns need to know.
#[derive(Debug, Clone)]
pub(crate) struct TurnSettings {
    pub(crate) ttl: Duration,
    /// Of agents that have none of their own.
    pub(crate) bounds: Bounds,
    pub(crate) max_suspended: Duration,
    /// All of them, of whichever agents.
    pub(crate) slots: usize,
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

/// An agent, and how it speaks.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) agent: Arc<dyn Agent>,
    pub(crate) profile: Arc<Profile>,
    pub(crate) bounds: Bounds,
}

/// How long an attempt may run, and how much it may say.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) max_duration: Duration,
    pub(crate) output: OutputLimits,
}

impl Bounds {
    /// The narrower of these and an agent's own.
    pub(crate) fn within(self, own: &AgentLimits) -> Self {
        let narrower = |ours: u64, own: Option<u64>| own.map_or(ours, |own| ours.min(own));
        Self {
            max_duration: own
                .max_duration
                .map_or(self.max_duration, |own| self.max_duration.min(own)),
            output: OutputLimits {
                events: narrower(self.output.events, own.max_events),
                bytes: narrower(self.output.bytes, own.max_bytes.map(ByteSize::get)),
                ..self.output
            },
        }
    }
}

/// What every part of a worker shares.
pub(crate) struct Worker {
    pub(crate) id: WorkerId,
    pub(crate) store: Store,
    pub(crate) agents: HashMap<String, Served>,
    pub(crate) roots: Arc<Roots>,
    /// Where their content is, if that is told apart.
    pub(crate) storage: Option<StorageId>,
    pub(crate) artifacts: Option<Artifacts>,
    pub(crate) settings: TurnSettings,
    pub(crate) authority: Authority,
    pub(crate) leases: Leases,
    pub(crate) clock: RedisClock,
    pub(crate) tasks: Tasks,
    pub(crate) metrics: WorkerMetrics,
    pub(crate) hand_over: HandOver,
    /// Those that agents without slots of their own share.
    pub(crate) slots: Arc<Semaphore>,
    /// Those of pools whose agents have slots of their own.
    pub(crate) own_slots: BTreeMap<String, Arc<Semaphore>>,
    /// One permit for turns on their last attempt: they run one at a time, so that a poisoned one dies alone.
    pub(crate) last_attempt: Arc<Semaphore>,
}

impl Worker {
    /// Those of an agent's turns.
    pub(crate) fn bounds(&self, agent: &str) -> Bounds {
        self.agents
            .get(agent)
            .map_or(self.settings.bounds, |served| served.bounds)
    }

    /// The stamp of the next event: Redis' time, never before the turn was accepted.
    pub(crate) fn stamp(&self, taken: &Taken) -> u64 {
        self.clock.now().max(taken.record.submitted)
    }

    /// Takes turns into these slots, as these takers ([`relevo_shared::ids::takers`]), until draining begins. Returns when no take is
    /// outstanding.
    pub(crate) async fn take_turns(self: Arc<Self>, takers: Vec<String>, slots: Arc<Semaphore>) {
        let shutdown = self.tasks.shutdown().clone();
        let mut bells = Bells::new(&self.store, takers);
        let mut failures = 0;
        loop {
            // Both waits are given up when draining begins; nothing is leased by them.
            let next = tokio::select! {
                biased;
                () = shutdown.draining() => return,
                next = self.next_partition(&mut bells, &slots, BELL_WAIT) => next,
            };
            let taken = match next {
                Ok(Some((rung, permit))) => self.take_from(&rung, &slots, permit).await,
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            match taken {
                Ok(()) => failures = 0,
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "no turns can be taken now");
                    tokio::select! {
                        () = shutdown.draining() => return,
                        () = back_off(failures) => {}
                    }
                    failures = failures.saturating_add(1);
                }
            }
        }
    }

    /// A free slot, then a partition of any pool that has something for it.
    async fn next_partition(
        &self,
        bells: &mut Bells,
        slots: &Arc<Semaphore>,
        wait: Duration,
    ) -> Result<Option<(Rung, OwnedSemaphorePermit)>, StoreError> {
        let Ok(permit) = Arc::clone(slots).acquire_owned().await else {
            return std::future::pending().await;
        };
        let rung = bells.next(&self.store, wait).await?;
        self.metrics.looked();
        Ok(rung.map(|rung| (rung, permit)))
    }

    async fn take_from(
        self: &Arc<Self>,
        Rung { takers, partition }: &Rung,
        slots: &Arc<Semaphore>,
        first: OwnedSemaphorePermit,
    ) -> Result<(), StoreError> {
        let partition = *partition;
        // The janitor rings for it when its node is back.
        if self.store.is_away(partition) {
            return Ok(());
        }
        // At most a quarter of what is free, so that one partition does not starve the others. A partition that has more rings again.
        let free = slots.available_permits() + 1;
        let mut permits = vec![first];
        while permits.len() < free.div_ceil(4).min(MOST_TAKEN) {
            match Arc::clone(slots).try_acquire_owned() {
                Ok(permit) => permits.push(permit),
                Err(_) => break,
            }
        }
        let tokens: Vec<LeaseToken> = permits.iter().map(|_| LeaseToken::new(entropy::u128())).collect();
        let mut last = Arc::clone(&self.last_attempt).try_acquire_owned().ok();
        let sent = clock::boottime();
        let took = self
            .take_until_known(takers, partition, &tokens, last.is_some())
            .await?;
        self.clock.learn(took.now);
        if took.full {
            drop(self.store.ring(takers, partition, took.now).await);
        }
        for (taken, permit) in took.turns.into_iter().zip(permits) {
            let alone = if taken.last_attempt { last.take() } else { None };
            self.start(taken, permit, alone, sent);
        }
        Ok(())
    }

    /// Takes; after a lost reply the same call, marked as a repeat, says what it got. Once a lease time has passed, whatever was
    /// leased has run out and is the janitor's.
    async fn take_until_known(
        &self,
        takers: &str,
        partition: Partition,
        tokens: &[LeaseToken],
        last: bool,
    ) -> Result<Took, StoreError> {
        let started = clock::boottime();
        let limit = if self.store.is_clustered() {
            AWAY.min(self.settings.ttl / 3)
        } else {
            self.settings.ttl / 3
        };
        let mut tries = 0;
        loop {
            let take = Take {
                partition,
                takers,
                worker: &self.id,
                tokens,
                ttl_ms: millis(self.settings.ttl),
                repeat: tries > 0,
                last,
                slots: self.settings.slots,
            };
            match self.store.take(&take).await {
                Err(error) if error.retry() == Retry::Later => {
                    if clock::boottime().saturating_sub(started) > limit {
                        return Err(error);
                    }
                    back_off(tries).await;
                    tries += 1;
                }
                answer => return answer,
            }
        }
    }

    fn start(
        self: &Arc<Self>,
        taken: Taken,
        slot: OwnedSemaphorePermit,
        alone: Option<OwnedSemaphorePermit>,
        sent: Duration,
    ) {
        let held = Held {
            context: taken.context.clone(),
            token: taken.token.clone(),
            turn: taken.record.turn,
        };
        // A turn is renewed a little longer than it may run, so that its own end comes first.
        let limit = self.bounds(&taken.record.agent).max_duration + self.settings.ttl;
        let lease = self.leases.add(held, taken.partition, sent, limit);
        let holds = Holds {
            _slot: slot,
            _alone: alone,
            leases: self.leases.clone(),
            token: taken.token.clone(),
        };
        let run = TurnRun::new(Arc::clone(self), taken, lease);
        // Boxed at once: it is large, and every layer around it would move it again.
        let run = Box::pin(run.run());
        tasks::spawn(&self.tasks, "turn", Kind::BestEffort, holds.during(run));
    }
}

/// What a turn holds while it runs here: its slot, the right of a last attempt, and a lease that is renewed. All of it is given back
/// however its task ends, also by a panic.
struct Holds {
    _slot: OwnedSemaphorePermit,
    _alone: Option<OwnedSemaphorePermit>,
    leases: Leases,
    token: LeaseToken,
}

impl Holds {
    async fn during(self, run: impl Future<Output = ()>) {
        run.await;
    }
}

impl Drop for Holds {
    fn drop(&mut self) {
        self.leases.remove(&self.token);
    }
}

#[cfg(test)]
mod tests;
