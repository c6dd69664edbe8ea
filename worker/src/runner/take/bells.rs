//! Bells, heard; and doing without them while the node of a Redis Cluster that holds them is away.

use std::time::Duration;

use relevo_shared::ids::Partition;
use relevo_shared::platform::entropy;
use relevo_shared::store::{BellWaiter, Retry, Store, StoreError};
use tokio::time::Instant;

/// How long a worker does without bells after the node of a cluster that holds them was away.
const DEAF: Duration = Duration::from_secs(1);
/// The pause between two looks at the queues meanwhile.
const LOOK: Duration = Duration::from_millis(250);

/// How many times in a row bells are waited for without a look before.
const QUIET: u32 = 16;

/// A partition that has undelivered turns for these takers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rung {
    pub(super) takers: String,
    pub(super) partition: Partition,
}

/// The bells of a worker's pools, and of its storage in them, heard in turn: none is first for ever.
pub(super) struct Bells {
    takers: Vec<String>,
    waiter: BellWaiter,
    /// Until when the node of the bells, which was away, is not asked.
    deaf: Option<Instant>,
    /// What the queues showed meanwhile.
    found: Vec<Rung>,
    /// How often it is waited at once, because nothing rang when it was looked: that costs Redis one command and not two.
    quiet: u32,
}

impl Bells {
    pub(super) fn new(store: &Store, takers: Vec<String>) -> Self {
        let waiter = store.bell_waiter();
        Self {
            takers,
            waiter,
            deaf: None,
            found: Vec::new(),
            quiet: 0,
        }
    }

    /// The next that rings within this time, or that holds turns while no bell can be heard.
    pub(super) async fn next(&mut self, store: &Store, wait: Duration) -> Result<Option<Rung>, StoreError> {
        if self.deaf.is_some_and(|until| Instant::now() < until) {
            return self.look(store).await;
        }
        match self.heard(store, wait).await {
            Err(error) if error.retry() == Retry::Later && store.is_clustered() => {
                tracing::debug!(error = &error as &dyn std::error::Error, "no bell is heard");
                self.deaf = Some(Instant::now() + DEAF);
                self.look(store).await
            }
            heard => {
                self.deaf = None;
                heard
            }
        }
    }

    /// A partition that holds turns, in an order that differs from worker to worker.
    async fn look(&mut self, store: &Store) -> Result<Option<Rung>, StoreError> {
        if self.found.is_empty() {
            tokio::time::sleep(LOOK).await;
            let found = store.without_bells(&self.takers).await?;
            let mut found: Vec<Rung> = found
                .into_iter()
                .map(|(takers, partition)| Rung { takers, partition })
                .collect();
            let turn = entropy::u64() % u64::try_from(found.len().max(1)).unwrap_or(1);
            found.rotate_left(usize::try_from(turn).unwrap_or(0));
            self.found = found;
        }
        Ok(self.found.pop())
    }

    async fn heard(&mut self, store: &Store, wait: Duration) -> Result<Option<Rung>, StoreError> {
        if !self.takers.is_empty() {
            self.takers.rotate_left(1);
        }
        if self.quiet == 0 {
            // Cheaper than to wait where there is always something: over the connection that others share.
            for takers in &self.takers {
                if let Some(partition) = store.answer_bell(takers).await? {
                    let takers = takers.clone();
                    return Ok(Some(Rung { takers, partition }));
                }
            }
            self.quiet = QUIET;
        }
        self.quiet -= 1;
        let rung = self.waiter.wait(&self.takers, wait).await?;
        Ok(rung.map(|(takers, partition)| Rung { takers, partition }))
    }
}
