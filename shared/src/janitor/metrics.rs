//! What janitors did.

crate::metrics! {
    /// Counters of a process' janitor.
    pub struct JanitorMetrics {
        /// Turns that the janitor settled, by what it did with them.
        recovered: CounterVec = "relevo_janitor_recovered_total" ["outcome"],
        /// How often another Redis server answered than before (a restart or a failover), by whether it may be used.
        restarted: CounterVec = "relevo_janitor_redis_restarts_total" ["outcome"],
        /// Tasks, contexts and journals that were deleted because their retention had passed.
        purged: Counter = "relevo_janitor_purged_total",
    }
}

impl JanitorMetrics {
    /// Shows these outcomes from the start: a series that appears with its first event is missed by `increase()`.
    pub(super) fn begin(&self, outcomes: &[&str]) {
        for outcome in outcomes {
            self.recovered.with_label_values(&[outcome]);
        }
    }

    pub(super) fn recovered(&self, outcome: &str) {
        self.recovered.with_label_values(&[outcome]).inc();
    }

    pub(super) fn restarted(&self, outcome: &str) {
        self.restarted.with_label_values(&[outcome]).inc();
    }

    pub(super) fn purged(&self) {
        self.purged.inc();
    }
}
