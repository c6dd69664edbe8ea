//! Idle processes, one per context, until their time is over, the worker drains, or there are too many.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use relevo_shared::ids::{ContextKey, Epoch, TurnId};
use relevo_shared::platform::shutdown::Phase;
use relevo_shared::platform::tasks::{self, AbortOnDrop, Kind, Tasks};
use tokio::time::Instant;

use super::child::Child;
use crate::agent::Turn;

/// How often idle processes are looked at. Their supervisors end them on time by themselves, should this worker not be able to.
const LOOK: Duration = Duration::from_secs(1);

/// A process between two turns.
#[derive(Debug)]
pub(super) struct Idle {
    pub(super) child: Child,
    /// The epoch of its last turn.
    pub(super) epoch: Epoch,
    /// Its last turn.
    pub(super) turn: TurnId,
    /// Whether it has suspended that turn: it may go on with it, should nothing else have run.
    pub(super) asks: bool,
    until: Instant,
}

/// The idle processes of one agent on one worker.
#[derive(Debug)]
pub(super) struct Kept {
    keep: Duration,
    grace: Duration,
    most: usize,
    tasks: Tasks,
    idle: Mutex<HashMap<ContextKey, Idle>>,
    sweeper: OnceLock<AbortOnDrop<()>>,
}

impl Kept {
    pub(super) fn new(keep: Duration, grace: Duration, most: usize, tasks: &Tasks) -> Arc<Self> {
        let kept = Arc::new(Self {
            keep,
            grace,
            most: most.max(1),
            tasks: tasks.clone(),
            idle: Mutex::default(),
            sweeper: OnceLock::new(),
        });
        let sweeping = sweep(Arc::downgrade(&kept), tasks.clone());
        let sweeper = tasks::background(tasks, "idle processes", Kind::BestEffort, sweeping);
        drop(kept.sweeper.set(sweeper));
        kept
    }

    fn idle(&self) -> MutexGuard<'_, HashMap<ContextKey, Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process of a context.
    pub(super) fn take(&self, context: &ContextKey) -> Option<Idle> {
        self.idle().remove(context)
    }

    /// Keeps a process after a turn. Returns one that must go: an older one, or this one when the worker drains.
    pub(super) fn put(&self, context: ContextKey, child: Child, turn: &Turn, asks: bool) -> Option<Child> {
        if self.tasks.shutdown().phase() != Phase::Running {
            return Some(child);
        }
        child.rest(&turn.guard, self.keep);
        let mut idle = self.idle();
        let before = idle.insert(
            context,
            Idle {
                child,
                epoch: turn.epoch,
                turn: turn.record.turn,
                asks,
                until: Instant::now() + self.keep,
            },
        );
        if before.is_some() || idle.len() <= self.most {
            return before.map(|idle| idle.child);
        }
        let oldest = idle
            .iter()
            .min_by_key(|(_, idle)| idle.until)
            .map(|(key, _)| key.clone());
        oldest.and_then(|key| idle.remove(&key)).map(|idle| idle.child)
    }
}

async fn sweep(kept: Weak<Kept>, tasks: Tasks) {
    loop {
        let draining = tokio::select! {
            () = tokio::time::sleep(LOOK) => false,
            () = tasks.shutdown().draining() => true,
        };
        let Some(kept) = kept.upgrade() else { return };
        let now = Instant::now();
        let over = |idle: &mut Idle| draining || idle.until <= now || !idle.child.is_quiet();
        let leaving: Vec<Idle> = kept
            .idle()
            .extract_if(|_, idle| over(idle))
            .map(|(_, idle)| idle)
            .collect();
        for idle in leaving {
            idle.child.dismiss(kept.grace);
        }
        if draining {
            return;
        }
    }
}
