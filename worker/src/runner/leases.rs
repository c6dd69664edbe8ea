//! The leases that this worker holds, shared between their turns and the renewal thread.
//!
//! Authority is local: it ends two thirds of the time to live after the last successful renewal was *sent*. From then on the agent
//! is told to stop, and at five sixths it is dropped; both before Redis may give the context to someone else. Whoever keeps an
//! agent alive outside this process learns of every renewal from the thread that made it ([`Guard`]).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use relevo_shared::ids::{ContextKey, LeaseToken, Partition, TurnId};
use relevo_shared::platform::clock;
use relevo_shared::store::{Held, millis};
use tokio::sync::watch;

use crate::supervise::link::Deadline;

/// What the renewal thread learned about a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct News {
    /// It belongs to someone else, or to nobody.
    pub(crate) lost: bool,
    /// The turn's cancel was requested.
    pub(crate) canceled: bool,
}

/// One lease.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) held: Held,
    pub(crate) partition: Partition,
    /// Boot clock ms at which the last successful renewal (or the take) was sent.
    renewed: AtomicU64,
    /// Boot clock ms after which it is not renewed any more.
    expires: u64,
    news: watch::Sender<News>,
    follower: Mutex<Option<Follower>>,
}

/// Told when the lease was renewed. Must not wait: the renewal thread calls it.
struct Follower(Box<dyn Fn(Duration) + Send + Sync>);

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Follower")
    }
}

impl Lease {
    /// When it was last renewed for sure, by the boot clock.
    pub(crate) fn renewed(&self) -> Duration {
        Duration::from_millis(self.renewed.load(Ordering::Acquire))
    }

    /// Listens to news.
    pub(crate) fn news(&self) -> watch::Receiver<News> {
        self.news.subscribe()
    }

    pub(crate) fn renewed_at(&self, sent: Duration) {
        self.renewed.fetch_max(millis(sent), Ordering::AcqRel);
        if let Some(follower) = &*self.follower() {
            follower.0(self.renewed());
        }
    }

    fn follower(&self) -> MutexGuard<'_, Option<Follower>> {
        self.follower.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tell(&self, change: impl FnOnce(&mut News)) {
        self.news.send_modify(change);
    }
}

/// All leases of a worker, by token: a worker may take a turn again while an older attempt of it here is not over yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leases(Arc<Mutex<HashMap<LeaseToken, Arc<Lease>>>>);

impl Leases {
    fn table(&self) -> MutexGuard<'_, HashMap<LeaseToken, Arc<Lease>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a lease that was taken by a call sent at `sent`, to be renewed for at most `limit`.
    pub(crate) fn add(&self, held: Held, partition: Partition, sent: Duration, limit: Duration) -> Arc<Lease> {
        let lease = Arc::new(Lease {
            held: held.clone(),
            partition,
            renewed: AtomicU64::new(millis(sent)),
            expires: millis(sent.saturating_add(limit)),
            news: watch::Sender::new(News::default()),
            follower: Mutex::default(),
        });
        self.table().insert(held.token, Arc::clone(&lease));
        lease
    }

    /// Forgets a lease.
    pub(crate) fn remove(&self, token: &LeaseToken) {
        self.table().remove(token);
    }

    /// What is to be renewed now, by partition.
    pub(crate) fn by_partition(&self) -> HashMap<Partition, Vec<Arc<Lease>>> {
        let now = millis(clock::boottime());
        let mut groups: HashMap<Partition, Vec<Arc<Lease>>> = HashMap::new();
        for lease in self
            .table()
            .values()
            .filter(|lease| lease.expires > now && !lease.news.borrow().lost)
        {
            groups.entry(lease.partition).or_default().push(Arc::clone(lease));
        }
        groups
    }

    /// Tells the turn of a context that its cancel was requested.
    pub(crate) fn cancel(&self, context: &ContextKey, turn: TurnId) {
        for lease in self
            .table()
            .values()
            .filter(|l| l.held.turn == turn && l.held.context == *context)
        {
            lease.tell(|news| news.canceled = true);
        }
    }
}

/// What a lease allows a process that runs for it.
#[derive(Debug, Clone)]
pub(crate) struct Guard {
    lease: Arc<Lease>,
    authority: Authority,
}

impl Guard {
    pub(crate) fn new(lease: Arc<Lease>, authority: Authority) -> Self {
        Self { lease, authority }
    }

    /// The context that is leased.
    pub(crate) fn context(&self) -> &ContextKey {
        &self.lease.held.context
    }

    /// Until when it may live, as things stand.
    pub(crate) fn deadline(&self) -> Deadline {
        self.authority.deadline(self.lease.renewed())
    }

    /// Calls `tell` with the deadline now and after every renewal, until [`Guard::leave`]. Must not wait.
    pub(crate) fn follow(&self, tell: impl Fn(Deadline) + Send + Sync + 'static) {
        let authority = self.authority;
        let follower = Follower(Box::new(move |renewed| tell(authority.deadline(renewed))));
        let mut place = self.lease.follower();
        // ORDER: inside the mutex, so that no newer deadline is told before this one.
        follower.0(self.lease.renewed());
        *place = Some(follower);
    }

    /// Tells nobody any more.
    pub(crate) fn leave(&self) {
        self.lease.follower().take();
    }
}

/// How long a worker may trust a lease.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Authority {
    pub(crate) ttl: Duration,
}

impl Authority {
    /// When the agent is told to stop.
    pub(crate) fn stop_at(self, renewed: Duration) -> Duration {
        renewed + self.ttl * 2 / 3
    }

    fn deadline(self, renewed: Duration) -> Deadline {
        Deadline {
            term: self.stop_at(renewed),
            kill: self.kill_at(renewed),
        }
    }

    /// When the agent is dropped.
    pub(crate) fn kill_at(self, renewed: Duration) -> Duration {
        renewed + self.ttl * 5 / 6
    }
}

#[cfg(test)]
mod tests {
    use relevo_shared::ids::ScopeKey;

    use super::*;

    fn held(n: u64) -> Held {
        let (context, partition) = ContextKey::of(&ScopeKey::of("", ""), &n.to_string(), 64);
        Held {
            context,
            token: LeaseToken::new(u128::from(n)),
            turn: TurnId::new(1, partition, n),
        }
    }

    #[test]
    fn an_agent_is_stopped_and_dropped_before_the_lease_runs_out() {
        for ttl in [Duration::from_secs(4), Duration::from_secs(15)] {
            let authority = Authority { ttl };
            let sent = Duration::from_secs(100);
            assert!(authority.stop_at(sent) < authority.kill_at(sent));
            assert!(authority.kill_at(sent) < sent + ttl);
        }
    }

    #[test]
    fn a_late_answer_never_takes_authority_back() {
        let leases = Leases::default();
        let lease = leases.add(held(1), Partition(0), Duration::from_secs(10), Duration::from_mins(1));
        lease.renewed_at(Duration::from_secs(20));
        lease.renewed_at(Duration::from_secs(15));
        assert_eq!(lease.renewed(), Duration::from_secs(20));
    }

    #[test]
    fn a_follower_hears_the_deadline_of_every_renewal_until_it_leaves() {
        let lease = Leases::default().add(held(1), Partition(0), Duration::from_secs(10), Duration::from_mins(1));
        let ttl = Duration::from_secs(6);
        let guard = Guard::new(Arc::clone(&lease), Authority { ttl });
        let heard = Arc::new(Mutex::new(Vec::new()));
        let ear = Arc::clone(&heard);
        guard.follow(move |deadline| {
            ear.lock()
                .unwrap()
                .push((deadline.term.as_secs(), deadline.kill.as_secs()));
        });
        lease.renewed_at(Duration::from_secs(20));
        lease.renewed_at(Duration::from_secs(15));
        guard.leave();
        lease.renewed_at(Duration::from_secs(30));
        assert_eq!(*heard.lock().unwrap(), [(14, 15), (24, 25), (24, 25)]);
        assert_eq!(guard.deadline().kill, Duration::from_secs(35));
    }

    #[test]
    fn the_end_of_an_older_attempt_leaves_the_newer_lease_of_the_same_turn() {
        let leases = Leases::default();
        let now = clock::boottime();
        let old = held(1);
        let new = Held {
            token: LeaseToken::new(2),
            ..old.clone()
        };
        leases.add(old.clone(), Partition(1), now, Duration::from_mins(1));
        leases.add(new, Partition(1), now, Duration::from_mins(1));
        leases.remove(&old.token);
        assert_eq!(leases.by_partition().len(), 1);
    }

    #[test]
    fn lost_and_overdue_leases_are_not_renewed() {
        let leases = Leases::default();
        let now = clock::boottime();
        let lost = leases.add(held(1), Partition(1), now, Duration::from_mins(1));
        leases.add(held(2), Partition(2), now, Duration::ZERO);
        leases.add(held(3), Partition(3), now, Duration::from_mins(1));
        lost.tell(|news| news.lost = true);
        assert_eq!(leases.by_partition().into_keys().collect::<Vec<_>>(), [Partition(3)]);
    }

    #[test]
    fn a_cancel_reaches_only_the_turn_it_names() {
        let leases = Leases::default();
        let one = leases.add(held(1), Partition(1), Duration::ZERO, Duration::ZERO);
        let two = leases.add(held(2), Partition(1), Duration::ZERO, Duration::ZERO);
        leases.cancel(&one.held.context, two.held.turn);
        assert!(!one.news.borrow().canceled && !two.news.borrow().canceled);
        leases.cancel(&one.held.context, one.held.turn);
        assert!(one.news.borrow().canceled && !two.news.borrow().canceled);
    }
}
