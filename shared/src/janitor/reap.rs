//! Deletes the objects of tasks that are gone. Apart from the pass over the partitions, so that an artifact store that is away keeps
//! nothing else waiting; only processes with a store do it. Each task is claimed for a while, and its note goes only when all its
//! objects have, and its principal is not charged for them any more: whoever dies half-way leaves the note to the next.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};

use crate::domain::retry::jitter;
use crate::ids::{OwnerKey, TaskId};
use crate::objects::{Objects, ObjectsError};
use crate::platform::entropy;
use crate::store::{CLAIM_MS, Store, StoreError};

/// How often it looks.
const PASS_MS: u64 = 5_000;
/// Most tasks of a partition per look; each has a part of the claim's time.
const BATCH: usize = 64;
/// How many tasks are worked on at a time.
const AT_ONCE: usize = 8;

crate::metrics! {
    /// Counters of what becomes of artifacts after their task.
    pub struct ReaperMetrics {
        /// Tasks that are gone, by what became of their artifacts: deleted, or (tried again) failed.
        reaped: CounterVec = "relevo_janitor_reaped_total" ["outcome"],
    }
}

/// Deletes the objects of tasks that are gone.
#[derive(Debug, Clone)]
pub struct Reaper {
    store: Store,
    objects: Objects,
    metrics: ReaperMetrics,
}

impl Reaper {
    /// For a store of tasks and one of artifacts.
    pub fn new(store: Store, objects: Objects, metrics: ReaperMetrics) -> Self {
        for outcome in ["deleted", "failed"] {
            metrics.reaped.with_label_values(&[outcome]);
        }
        Self {
            store,
            objects,
            metrics,
        }
    }

    /// Works until it is dropped; it may be left anywhere.
    pub async fn run(self) {
        loop {
            tokio::time::sleep(Duration::from_millis(jitter(PASS_MS, entropy::u64()))).await;
            if let Err(error) = self.pass().await {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "nobody can say which artifacts are to be deleted"
                );
            }
        }
    }

    /// Looks once at every partition.
    ///
    /// # Errors
    /// [`StoreError`] when Redis is away; an artifact store that is away is logged, and tried again when the claim has run out.
    pub async fn pass(&self) -> Result<(), StoreError> {
        for partition in self.store.noted_partitions().await? {
            loop {
                let gone = self.store.gone_with_objects(partition, BATCH).await?;
                let one = |(task, owner): &(TaskId, Option<OwnerKey>)| self.reap(*task, owner.clone(), gone.claim);
                let work: Vec<_> = gone.tasks.iter().map(one).collect();
                let reaped = stream::iter(work).buffer_unordered(AT_ONCE);
                let failed = reaped.any(|reaped| std::future::ready(!reaped)).await;
                if failed {
                    // The rest waits for its claim to run out, and so does a store that is away.
                    return Ok(());
                }
                if gone.tasks.len() < BATCH {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Says whether the artifact store did what it should.
    async fn reap(&self, task: TaskId, owner: Option<OwnerKey>, claim: u64) -> bool {
        let limit = Duration::from_millis(CLAIM_MS / 2);
        let deleted = tokio::time::timeout(limit, self.objects.delete_all(task)).await;
        let deleted = deleted.unwrap_or_else(|elapsed| {
            Err(ObjectsError::Failed {
                what: "delete",
                source: Box::new(elapsed),
            })
        });
        match deleted {
            Ok(()) => {
                self.metrics.reaped.with_label_values(&["deleted"]).inc();
                // A note that stays is found again; there is nothing left to delete then.
                let freed = match &owner {
                    Some(owner) => self.store.free_bytes(owner, task).await.is_ok(),
                    None => true,
                };
                if freed {
                    drop(self.store.objects_deleted(task, claim).await);
                }
                true
            }
            Err(error) => {
                self.metrics.reaped.with_label_values(&["failed"]).inc();
                tracing::warn!(
                    task.id = %task, error = &error as &dyn std::error::Error,
                    "the artifacts of a task that is gone cannot be deleted now"
                );
                false
            }
        }
    }
}
