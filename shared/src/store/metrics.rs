//! What the store measures: each script by its outcome, and the doorbells that Redis refused.

use std::time::Duration;

use prometheus::{HistogramOpts, HistogramVec, IntCounter, Registry};

/// Buckets for scripts: from a pipelined call on loopback to a stalled server.
const BUCKETS: [f64; 10] = [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25, 1.0];

/// A metric could not be registered.
pub type RegisterError = prometheus::Error;

/// Metrics of a process' store.
#[derive(Debug, Clone)]
pub struct StoreMetrics {
    script_seconds: HistogramVec,
    doorbells_refused: IntCounter,
}

impl StoreMetrics {
    /// Creates them and registers them.
    ///
    /// # Errors
    /// When a metric of that name is registered already.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let opts = HistogramOpts::new(
            "relevo_store_script_seconds",
            "Time from sending a script to its reply, by script and outcome.",
        )
        .buckets(BUCKETS.to_vec());
        let script_seconds = HistogramVec::new(opts, &["script", "outcome"])?;
        let doorbells_refused = IntCounter::new(
            "relevo_store_doorbells_refused_total",
            "Doorbells that Redis refused to publish although their events were written: streams find those late.",
        )?;
        registry.register(Box::new(script_seconds.clone()))?;
        registry.register(Box::new(doorbells_refused.clone()))?;
        Ok(Self {
            script_seconds,
            doorbells_refused,
        })
    }

    pub(super) fn script(&self, script: &str, outcome: &str, took: Duration) {
        self.script_seconds
            .with_label_values(&[script, outcome])
            .observe(took.as_secs_f64());
    }

    pub(super) fn doorbell_refused(&self) {
        self.doorbells_refused.inc();
    }
}
