//! What janitors did.

use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

/// Counters of a process' janitor.
#[derive(Debug, Clone)]
pub struct JanitorMetrics {
    recovered: IntCounterVec,
    purged: IntCounter,
}

impl JanitorMetrics {
    /// Creates them and registers them.
    ///
    /// # Errors
    /// When a metric of that name is registered already.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let help = "Turns that the janitor settled, by what it did with them.";
        let recovered = IntCounterVec::new(Opts::new("relevo_janitor_recovered_total", help), &["outcome"])?;
        let help = "Tasks and contexts that were deleted because their retention had passed.";
        let purged = IntCounter::new("relevo_janitor_purged_total", help)?;
        registry.register(Box::new(recovered.clone()))?;
        registry.register(Box::new(purged.clone()))?;
        Ok(Self { recovered, purged })
    }

    pub(super) fn recovered(&self, outcome: &str) {
        self.recovered.with_label_values(&[outcome]).inc();
    }

    pub(super) fn purged(&self) {
        self.purged.inc();
    }
}
