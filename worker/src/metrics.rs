//! Everything a worker measures.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use relevo_shared::platform::clock;
use relevo_shared::platform::metrics::RUN;
use relevo_shared::store::{Taken, millis};

relevo_shared::metrics! {
    /// What a worker counts.
    pub(crate) struct Instruments {
        /// Slots of this worker, free and in use.
        slots: GaugeVec = "relevo_worker_slots" ["state"],
        /// Turns that left this worker, by how.
        turns: CounterVec = "relevo_worker_turns_total" ["outcome"],
        /// Seconds from when a turn is accepted, or answered, and its context is free for it to its first lease.
        queue_wait: Histogram = "relevo_worker_queue_wait_seconds" in RUN,
        /// Seconds from the lease of a turn to its end on this worker.
        turn_duration: Histogram = "relevo_worker_turn_duration_seconds" in RUN,
        /// Writes that the fence refused, by script.
        fenced: CounterVec = "relevo_worker_fenced_total" ["script"],
        /// Leases that went to someone else while a turn ran here.
        leases_lost: Counter = "relevo_worker_leases_lost_total",
        /// Attempts that began here, by kind: first, later, or answered, which goes on with one that suspended the turn.
        attempts: CounterVec = "relevo_worker_attempts_total" ["kind"],
        /// Parts for the artifact store, by what became of them: stored, known (the task has the same content there), over_limit, over_quota, refused
        /// (a file that the agent named and that is not taken), failed (the turn is handed to another worker).
        artifacts: CounterVec = "relevo_worker_artifacts_total" ["outcome"],
        /// Bytes written to the artifact store.
        artifact_bytes: Counter = "relevo_worker_artifact_bytes_total",
    }
}

/// The instruments and when work was last looked for.
#[derive(Debug, Clone)]
pub(crate) struct WorkerMetrics {
    instruments: Instruments,
    looked: Arc<AtomicU64>,
}

impl std::ops::Deref for WorkerMetrics {
    type Target = Instruments;

    fn deref(&self) -> &Instruments {
        &self.instruments
    }
}

impl WorkerMetrics {
    pub(crate) fn new(instruments: Instruments) -> Self {
        // A series that appears with its first event is missed by `increase()`.
        for script in ["emit", "finish", "suspend", "hand_back"] {
            instruments.fenced.with_label_values(&[script]);
        }
        for outcome in ["stored", "known", "over_limit", "over_quota", "refused", "failed"] {
            instruments.artifacts.with_label_values(&[outcome]);
        }
        Self {
            instruments,
            looked: Arc::default(),
        }
    }

    /// A turn was leased.
    pub(crate) fn taken(&self, taken: &Taken, now: u64) {
        if taken.tries.opened == 0 && taken.tries.handbacks == 0 {
            let waited = Duration::from_millis(now.saturating_sub(taken.since));
            self.queue_wait.observe(waited.as_secs_f64());
        }
        let kind = match (taken.tries.opened, taken.record.answers()) {
            (0, 0) => "first",
            (0, _) => "answered",
            _ => "later",
        };
        self.attempts.with_label_values(&[kind]).inc();
    }

    /// Work was looked for, or every slot is busy.
    pub(crate) fn looked(&self) {
        self.looked.store(millis(clock::boottime()), Ordering::Relaxed);
    }

    /// How long ago that was.
    pub(crate) fn since_looked(&self) -> Duration {
        let last = Duration::from_millis(self.looked.load(Ordering::Relaxed));
        clock::boottime().saturating_sub(last)
    }
}

#[cfg(test)]
mod tests {
    use relevo_shared::platform::metrics::{metrics_table, mistakes};
    use relevo_testkit::docs::check_block;

    use super::*;

    #[test]
    fn the_metrics_follow_the_rules_and_are_documented() {
        assert_eq!(mistakes(Instruments::METRICS), Vec::<String>::new());
        check_block(
            "observability.md",
            "worker metrics",
            &metrics_table(Instruments::METRICS),
        );
    }
}
