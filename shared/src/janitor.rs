//! The janitor: recovery, deadlines, delayed retries, lost bells, retention. Runs in every process, gateways too, because none of
//! it needs an agent; each step is compare-and-commit, so many janitors at once only waste a call.
//!
//! It also holds what others settle: a worker gives a turn back ([`give_back`]), a cancel ends a turn that nobody holds ([`conclude`])
//! or that waits behind another ([`withdraw`]), a message takes the place of both ([`interrupt`]).

mod conclude;
mod metrics;
mod reap;
mod withdraw;

pub use conclude::{Conclusion, GivenBack, Why, cancel_idle, commit, conclude, give_back};
pub use metrics::JanitorMetrics;
pub use reap::{Reaper, ReaperMetrics};
pub use withdraw::{end_interrupted, interrupt, withdraw};

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use crate::domain::due::{StorageWait, Verdict, judge};
use crate::domain::reason::FailReason;
use crate::ids::{ContextKey, Partition};
use crate::platform::{clock, entropy};
use crate::store::{Keep, LiveTurn, Retry, Settled, Store, StoreError, Swept};

/// How often every partition is looked at, cluster-wide.
const PASS: Duration = Duration::from_secs(1);
/// Most contexts and most expired members per look.
const BATCH: usize = 100;
/// Most looks at one partition per pass: what 2,500 ended turns a second leave behind is a few looks at each of 64 partitions.
const LOOKS: usize = 20;
/// How many members are deleted at a time.
const PURGES: usize = 16;

/// What the janitor needs to know.
#[derive(Debug, Clone)]
pub struct JanitorSettings {
    /// Lease time to live, in ms: the grace after a restart of Redis.
    pub lease_ttl_ms: u64,
    /// Retention.
    pub keep: Keep,
    /// Every pool that turns are queued for.
    pub pools: Vec<String>,
    /// How long a turn waits for a worker of its context's storage when there is none, in ms.
    pub storage_wait_ms: u64,
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
        metrics.begin(&["next_attempt", "requeued", FailReason::AttemptsExhausted.as_str()]);
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
            // A pass may be left anywhere: each of its steps is one script.
            let passed = tokio::select! {
                () = &mut stop => return,
                passed = self.pass() => passed,
            };
            if let Err(error) = passed {
                tracing::debug!(error = &error as &dyn std::error::Error, "the janitor could not look");
            }
        }
    }

    /// Looks at every partition that nobody has looked at within the second, and again at those that had more to do than fits
    /// into one look, in turns, so that none of them keeps the others waiting.
    ///
    /// # Errors
    /// [`StoreError`] when Redis is away, or a node of a cluster, whose partitions were left out; the next pass goes on.
    pub async fn pass(&self) -> Result<(), StoreError> {
        let (mut full, mut restarted) = (Vec::new(), false);
        // Partitions of a cluster that cannot be served now; the others are.
        let (mut away, mut failure) = (Vec::new(), None);
        for _ in 0..LOOKS {
            // Asked anew each time: while some are worked off, the second is over for the others.
            let fresh = self.store.unswept().await?;
            full.retain(|partition| !fresh.contains(partition));
            let looks = fresh.into_iter().map(|partition| (partition, false));
            let looks: Vec<_> = looks
                .chain(full.into_iter().map(|partition| (partition, true)))
                .collect();
            full = Vec::new();
            for (partition, go_on) in looks {
                if away.contains(&partition) || (!away.is_empty() && self.store.is_away(partition)) {
                    continue;
                }
                let looked = self.look_after(partition, go_on).await;
                let looked = match self.unless_unreadable(looked, || "a partition cannot be looked at".to_owned()) {
                    Err(error) if self.store.is_clustered() => {
                        away.push(partition);
                        failure = Some(error);
                        continue;
                    }
                    looked => looked?,
                };
                let Some(swept) = looked.flatten() else { continue };
                restarted |= swept.restarted;
                if swept.due.len() >= BATCH || swept.expired.len() >= BATCH {
                    full.push(partition);
                }
            }
            if std::mem::take(&mut restarted) {
                self.examine().await?;
            }
            if full.is_empty() {
                break;
            }
            tokio::task::yield_now().await;
        }
        failure.map_or(Ok(()), Err)
    }

    async fn look_after(&self, partition: Partition, go_on: bool) -> Result<Option<Swept>, StoreError> {
        let (ttl, pools) = (self.settings.lease_ttl_ms, &self.settings.pools);
        let swept = self.store.sweep(partition, ttl, BATCH, go_on, pools).await?;
        if let Some(swept) = &swept {
            self.tidy(partition, swept).await?;
        }
        Ok(swept)
    }

    /// Another server answers than before: what was checked when this process started is checked again.
    async fn examine(&self) -> Result<(), StoreError> {
        let found = match self.store.preflight().await {
            Ok(found) => found,
            Err(error) if error.retry() == Retry::Later => return Err(error),
            Err(error) => {
                self.metrics.restarted("unfit");
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, "redis is another server than before, and must not be used");
                return Ok(());
            }
        };
        self.metrics.restarted("fit");
        tracing::warn!(
            run_id = found.run_ids.join(" "),
            "redis is another server than before, or was restarted"
        );
        found.log();
        Ok(())
    }

    /// What cannot be read must not keep the rest waiting: it is counted and told. A Redis that is away ends the pass.
    fn unless_unreadable<T>(
        &self,
        outcome: Result<T, StoreError>,
        what: impl FnOnce() -> String,
    ) -> Result<Option<T>, StoreError> {
        match outcome {
            Err(error) if error.retry() == Retry::Never => {
                self.metrics.recovered("unreadable");
                tracing::error!(error = &error as &dyn std::error::Error, "{}", what());
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    async fn tidy(&self, partition: Partition, swept: &Swept) -> Result<(), StoreError> {
        for takers in &swept.waiting {
            // Best effort: nothing else waits because a bell cannot be rung.
            drop(self.store.ring(takers, partition, swept.now).await);
        }
        for context in &swept.due {
            let outcome = self.look_at(partition, context).await;
            let judged = self.unless_unreadable(outcome, || format!("the due context {context} cannot be judged"))?;
            if judged.is_none() {
                let outcome = self.store.put_off_context(partition, context).await;
                self.unless_unreadable(outcome, || format!("the due context {context} cannot be put off"))?;
            }
        }
        let mut purges = FuturesUnordered::new();
        for member in &swept.expired {
            if purges.len() >= PURGES {
                purges.next().await.unwrap_or(Ok(()))?;
            }
            purges.push(self.purge(partition, member));
        }
        while let Some(purged) = purges.next().await {
            purged?;
        }
        Ok(())
    }

    async fn purge(&self, partition: Partition, member: &str) -> Result<(), StoreError> {
        let outcome = self.store.purge(partition, member, &self.settings.keep).await;
        let purged = self.unless_unreadable(outcome, || format!("{member} cannot be deleted"))?;
        match purged {
            Some(true) => self.metrics.purged(),
            Some(false) => {}
            None => {
                let outcome = self.store.put_off_member(partition, member).await;
                self.unless_unreadable(outcome, || format!("{member} cannot be put off"))?;
            }
        }
        Ok(())
    }

    /// What a turn waits for that only these may take. A list of workers that cannot be read ends no turn.
    async fn wait_for_storage(&self, takers: &str, now: u64) -> StorageWait {
        StorageWait {
            seen: self.store.storage_seen(takers).await.unwrap_or(now),
            longest: self.settings.storage_wait_ms,
        }
    }

    /// Judges one due context and commits what follows.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn look_at(&self, partition: Partition, context: &ContextKey) -> Result<(), StoreError> {
        let view = self.store.read_context(partition, context).await?;
        let storage = match view.live.as_ref().and_then(LiveTurn::waits_for) {
            Some(takers) => Some(self.wait_for_storage(takers, view.now).await),
            None => None,
        };
        let live = view.live.as_ref().map(|live| live.facts(storage));
        let verdict = judge(live, view.now, view.grace);
        let only_expired = view.live.as_ref().is_some_and(|live| live.token.is_some());
        let settled = commit(&self.store, &view, verdict, only_expired, &self.settings.keep).await?;
        if settled == Settled::Done
            && let Some(label) = label(verdict)
        {
            self.metrics.recovered(label);
            match &view.live {
                // Its lease ran out: whoever held it died, hangs, or cannot reach Redis.
                Some(live) if live.token.is_some() => tracing::warn!(
                    task.id = %live.record.task, turn.id = %live.record.turn, outcome = label,
                    worker.id = live.worker, at_ms = clock::now_ms(), "a worker was lost in the middle of a turn"
                ),
                Some(live) => tracing::info!(
                    task.id = %live.record.task, turn.id = %live.record.turn, outcome = label,
                    worker.id = live.worker, at_ms = clock::now_ms(), "a turn was settled"
                ),
                None => {}
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
