//! The janitor: recovery, deadlines, delayed retries, lost bells, retention. Runs in every process, gateways too, because none of
//! it needs an agent; each step is compare-and-commit, so many janitors at once only waste a call.
//!
//! It also holds the two things that others settle: a worker gives a turn back ([`give_back`]), a cancel ends a turn that nobody
//! holds ([`conclude`]).

mod conclude;
mod metrics;

pub use conclude::{Conclusion, GivenBack, Why, cancel_idle, commit, conclude, give_back};
pub use metrics::JanitorMetrics;

use std::time::Duration;

use crate::domain::due::{Verdict, judge};
use crate::ids::{ContextKey, Partition};
use crate::platform::{clock, entropy};
use crate::store::{Keep, Retry, Settled, Store, StoreError, Swept};

/// How often every partition is looked at, cluster-wide.
const PASS: Duration = Duration::from_secs(1);
/// Most contexts and most expired members per look.
const BATCH: usize = 100;

/// What the janitor needs to know.
#[derive(Debug, Clone)]
pub struct JanitorSettings {
    /// Lease time to live, in ms: the grace after a restart of Redis.
    pub lease_ttl_ms: u64,
    /// Retention.
    pub keep: Keep,
    /// Every pool that turns are queued for.
    pub pools: Vec<String>,
}

/// Looks after the partitions.
#[derive(Debug, Clone)]
pub struct Janitor {
    store: Store,
    settings: JanitorSettings,
    metrics: JanitorMetrics,
}

impl Janitor {
    /// A janitor for a store.
    pub fn new(store: Store, settings: JanitorSettings, metrics: JanitorMetrics) -> Self {
        Self {
            store,
            settings,
            metrics,
        }
    }

    /// Works until `stop` resolves.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        loop {
            // Spread over [half, whole] of the pass, so that processes do not look at the same instant.
            let wait = crate::domain::retry::jitter(u64::try_from(PASS.as_millis()).unwrap_or(1_000), entropy::u64());
            tokio::select! {
                () = &mut stop => return,
                () = tokio::time::sleep(Duration::from_millis(wait)) => {}
            }
            if let Err(error) = self.pass().await {
                tracing::debug!(error = &error as &dyn std::error::Error, "the janitor could not look");
            }
        }
    }

    /// Looks at every partition that nobody has looked at within the second.
    ///
    /// # Errors
    /// [`StoreError`] when Redis is away; the next pass goes on.
    pub async fn pass(&self) -> Result<(), StoreError> {
        for partition in self.store.unswept().await? {
            self.go_on(self.look_after(partition).await, "a partition cannot be looked at")?;
        }
        Ok(())
    }

    async fn look_after(&self, partition: Partition) -> Result<(), StoreError> {
        let ttl = self.settings.lease_ttl_ms;
        match self.store.sweep(partition, ttl, BATCH, &self.settings.pools).await? {
            Some(swept) => self.tidy(partition, swept).await,
            None => Ok(()),
        }
    }

    /// What cannot be read must not keep the rest waiting: it is counted and told. A Redis that is away ends the pass.
    fn go_on(&self, outcome: Result<(), StoreError>, what: &str) -> Result<(), StoreError> {
        match outcome {
            Err(error) if error.retry() == Retry::Never => {
                self.metrics.recovered("unreadable");
                tracing::error!(error = &error as &dyn std::error::Error, "{what}");
                Ok(())
            }
            other => other,
        }
    }

    async fn tidy(&self, partition: Partition, swept: Swept) -> Result<(), StoreError> {
        for pool in &swept.waiting {
            // Best effort: nothing else waits because a bell cannot be rung.
            drop(self.store.ring(pool, partition, swept.now).await);
        }
        for context in &swept.due {
            let outcome = self.look_at(partition, context).await;
            self.go_on(outcome, &format!("the due context {context} cannot be judged"))?;
        }
        for member in &swept.expired {
            let purged = self.store.purge(partition, member, &self.settings.keep).await;
            if matches!(purged, Ok(true)) {
                self.metrics.purged();
            }
            self.go_on(purged.map(drop), &format!("{member} cannot be deleted"))?;
        }
        Ok(())
    }

    /// Judges one due context and commits what follows.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn look_at(&self, partition: Partition, context: &ContextKey) -> Result<(), StoreError> {
        let view = self.store.read_context(partition, context).await?;
        let verdict = judge(
            view.live.as_ref().map(crate::store::LiveTurn::facts),
            view.now,
            view.grace,
        );
        let only_expired = view.live.as_ref().is_some_and(|live| live.token.is_some());
        let settled = commit(&self.store, &view, verdict, only_expired, &self.settings.keep).await?;
        if settled == Settled::Done
            && let Some(label) = label(verdict)
        {
            self.metrics.recovered(label);
            if let Some(live) = &view.live {
                tracing::info!(
                    task.id = %live.record.task, turn.id = %live.record.turn, outcome = label,
                    worker.id = live.worker, at_ms = clock::now_ms(), "a turn was settled"
                );
            }
        }
        Ok(())
    }
}

/// The metric label of a verdict that changes something.
fn label(verdict: Verdict) -> Option<&'static str> {
    match verdict {
        Verdict::Forget | Verdict::Later { .. } => None,
        Verdict::Requeue {
            charge: crate::domain::due::Charge::Attempt,
            ..
        } => Some("next_attempt"),
        Verdict::Requeue { .. } => Some("requeued"),
        Verdict::End {
            reason: Some(reason), ..
        } => Some(reason.as_str()),
        Verdict::End { end, .. } => Some(end.label()),
    }
}
