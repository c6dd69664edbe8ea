//! The renewal thread: an OS thread with its own connection, so that no busy runtime holds it up. It renews only while the
//! main runtime ticks: a worker that cannot work must lose its leases.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use relevo_shared::ids::ContextKey;
use relevo_shared::platform::clock;
use relevo_shared::store::{Held, LeaseClient, RedisClock, millis};

use super::leases::{Lease, Leases};

/// How long the main runtime may not have ticked before its leases are left to run out.
const STUCK: Duration = Duration::from_secs(3);

/// The main runtime's sign of life. Clones are the same value.
#[derive(Debug, Clone, Default)]
pub(crate) struct Heartbeat(Arc<AtomicU64>);

impl Heartbeat {
    /// Called by a task of the main runtime, at least every second.
    pub(crate) fn tick(&self) {
        self.0.store(millis(clock::boottime()), Ordering::Release);
    }

    fn is_stuck(&self) -> bool {
        let last = self.0.load(Ordering::Acquire);
        last != 0 && millis(clock::boottime()).saturating_sub(last) > millis(STUCK)
    }
}

/// What the thread works with.
pub(crate) struct Renewal {
    pub(crate) client: LeaseClient,
    pub(crate) leases: Leases,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) clock: RedisClock,
    pub(crate) ttl: Duration,
    pub(crate) every: Duration,
    pub(crate) stop: Arc<AtomicBool>,
}

impl Renewal {
    /// Renews until it is told to stop. Runs on a thread of its own; unpark it to stop at once.
    pub(crate) fn work(mut self) {
        while !self.stop.load(Ordering::Acquire) {
            let started = clock::boottime();
            if self.heartbeat.is_stuck() {
                tracing::error!("the runtime does not tick: leases are left to run out");
            } else {
                self.renew_all();
            }
            let spent = clock::boottime().saturating_sub(started);
            std::thread::park_timeout(self.every.saturating_sub(spent).max(Duration::from_millis(1)));
        }
    }

    fn renew_all(&mut self) {
        for (partition, leases) in self.leases.by_partition() {
            let held: Vec<Held> = leases.iter().map(|lease| lease.held.clone()).collect();
            // ORDER: the clock is read before the call is sent; authority counts from the sending.
            let sent = clock::boottime();
            match self.client.renew(partition, millis(self.ttl), &held) {
                Ok(renewed) => {
                    self.clock.learn(renewed.now);
                    let by_context: HashMap<&ContextKey, &Arc<Lease>> =
                        leases.iter().map(|lease| (&lease.held.context, lease)).collect();
                    for context in &renewed.lost {
                        if let Some(lease) = by_context.get(context) {
                            lease.tell(|news| news.lost = true);
                        }
                    }
                    for context in &renewed.canceled {
                        if let Some(lease) = by_context.get(context) {
                            lease.tell(|news| news.canceled = true);
                        }
                    }
                    for lease in leases
                        .iter()
                        .filter(|lease| !renewed.lost.contains(&lease.held.context))
                    {
                        lease.renewed_at(sent);
                    }
                }
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        partition = partition.0,
                        "leases could not be renewed"
                    );
                }
            }
        }
    }
}
