//! The renewal thread: an OS thread with its own connection, so that no busy runtime holds it up. It renews only while the
//! main runtime ticks: a worker that cannot work must lose its leases.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use relevo_shared::ids::LeaseToken;
use relevo_shared::platform::clock;
use relevo_shared::store::{Held, LeaseClient, RedisClock, Renewed, millis};

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
        // A node that is silent holds up whatever comes after it: those that are known to answer come first.
        let mut all: Vec<_> = self.leases.by_partition().into_iter().collect();
        all.sort_by_key(|(partition, _)| !self.client.is_connected(*partition));
        for (partition, leases) in all {
            let held: Vec<Held> = leases.iter().map(|lease| lease.held.clone()).collect();
            // ORDER: the clock is read before the call is sent; authority counts from the sending.
            let sent = clock::boottime();
            match self.client.renew(partition, millis(self.ttl), &held) {
                Ok(renewed) => {
                    self.clock.learn(renewed.now);
                    pass_on(&leases, &renewed, sent);
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

/// Tells each lease what the renewal that was sent at `sent` said about its token.
fn pass_on(leases: &[Arc<Lease>], renewed: &Renewed, sent: Duration) {
    let lost: HashSet<&LeaseToken> = renewed.lost.iter().collect();
    let canceled: HashSet<&LeaseToken> = renewed.canceled.iter().collect();
    for lease in leases {
        if lost.contains(&lease.held.token) {
            lease.tell(|news| news.lost = true);
            continue;
        }
        if canceled.contains(&lease.held.token) {
            lease.tell(|news| news.canceled = true);
        }
        lease.renewed_at(sent);
    }
}

#[cfg(test)]
mod tests {
    use relevo_shared::ids::{ContextKey, Partition, ScopeKey, TurnId};

    use super::*;
    use crate::runner::leases::News;

    /// The finish of a turn was not answered yet, and the same worker has taken the next turn of the context.
    #[test]
    fn an_old_lease_of_a_context_that_is_lost_leaves_the_current_one() {
        let (context, partition) = ContextKey::of(&ScopeKey::of("", ""), "c-1", 64);
        let table = Leases::default();
        let leases = [1, 2, 3].map(|n| {
            let held = Held {
                context: context.clone(),
                token: LeaseToken::new(n),
                turn: TurnId::new(1, Partition(partition.0), 1),
            };
            table.add(held, partition, Duration::from_secs(10), Duration::from_mins(1))
        });
        let renewed = Renewed {
            now: 1,
            lost: vec![LeaseToken::new(1)],
            canceled: vec![LeaseToken::new(3)],
        };
        pass_on(&leases, &renewed, Duration::from_secs(20));
        let news = leases.each_ref().map(|lease| *lease.news().borrow());
        let (lost, canceled) = (
            News {
                lost: true,
                canceled: false,
            },
            News {
                lost: false,
                canceled: true,
            },
        );
        assert_eq!(news, [lost, News::default(), canceled]);
        let renewed = leases.each_ref().map(|lease| lease.renewed().as_secs());
        assert_eq!(renewed, [10, 20, 20]);
    }
}
