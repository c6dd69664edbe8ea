//! Rings for workers. Owns the one place from which a gateway rings, off the path of the calls: turns that are accepted while a
//! ring is on its way share the next one. It refuses to insist: a bell that was not rung costs a second, the janitor rings it.

use std::collections::BTreeMap;

use relevo_shared::ids::Partition;
use relevo_shared::platform::tasks::{self, AbortOnDrop, Kind, Tasks};
use relevo_shared::store::Store;
use tokio::sync::mpsc;

/// Bells that wait to be rung, at the most.
const WAITING: usize = 4_096;
/// Bells of one ring, at the most.
const TOGETHER: usize = 256;

struct Bell {
    takers: String,
    partition: Partition,
    /// Redis ms.
    since: u64,
}

/// Takes bells to ring.
#[derive(Debug, Clone)]
pub(crate) struct Ringer(mpsc::Sender<Bell>);

impl Ringer {
    /// Starts it; it ends with the second value.
    pub(crate) fn start(store: Store, tasks: &Tasks) -> (Self, AbortOnDrop<()>) {
        let (bells, waiting) = mpsc::channel(WAITING);
        let running = tasks::background(tasks, "ringer", Kind::Essential, drive(store, waiting));
        (Self(bells), running)
    }

    /// Has it said that a partition holds a turn for these takers since `since` (Redis ms). Waits for nothing.
    pub(crate) fn ring(&self, takers: String, partition: Partition, since: u64) {
        let bell = Bell {
            takers,
            partition,
            since,
        };
        if self.0.try_send(bell).is_err() {
            tracing::debug!("too many bells wait; the janitor rings");
        }
    }
}

async fn drive(store: Store, mut waiting: mpsc::Receiver<Bell>) {
    let mut bells = Vec::new();
    while waiting.recv_many(&mut bells, TOGETHER).await > 0 {
        let mut all: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for bell in bells.drain(..) {
            all.entry(bell.takers).or_default().push((bell.partition, bell.since));
        }
        for (takers, partitions) in all {
            if let Err(error) = store.ring_all(&takers, &partitions).await {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "the bell was not rung; the janitor will"
                );
            }
        }
    }
    // The gateway holds the other end as long as it runs.
    std::future::pending::<()>().await;
}
