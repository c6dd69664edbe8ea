//! What the store measures: each script by its outcome.

use std::time::Duration;

use crate::platform::metrics::FAST;

crate::metrics! {
    /// Metrics of a process' store.
    pub struct StoreMetrics {
        /// Seconds from sending a script to its reply, by script and outcome.
        script_seconds: HistogramVec = "relevo_store_script_seconds" ["script", "outcome"] in FAST,
        /// Doorbells that Redis refused to publish; readers find their events in the journal within seconds.
        doorbells_refused: Counter = "relevo_store_doorbells_refused_total",
        /// Turn records met that are of a later version than this process knows, and left alone: an upgrade is half done.
        newer_records: Counter = "relevo_store_newer_records_total",
    }
}

impl StoreMetrics {
    pub(super) fn doorbell_refused(&self) {
        self.doorbells_refused.inc();
    }

    pub(super) fn newer_record(&self) {
        self.newer_records.inc();
    }

    pub(super) fn script(&self, script: &str, outcome: &str, took: Duration) {
        self.script_seconds
            .with_label_values(&[script, outcome])
            .observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use relevo_testkit::docs::check_block;

    use super::*;
    use crate::janitor::{JanitorMetrics, ReaperMetrics};
    use crate::platform::metrics::{ProcessMetrics, metrics_table, mistakes};

    #[test]
    fn the_metrics_follow_the_rules_and_are_documented() {
        let all = [StoreMetrics::METRICS, JanitorMetrics::METRICS, ReaperMetrics::METRICS].concat();
        assert_eq!(mistakes(&all), Vec::<String>::new());
        check_block("observability.md", "store metrics", &metrics_table(&all));
        check_block(
            "observability.md",
            "process metrics",
            &metrics_table(ProcessMetrics::METRICS),
        );
    }
}
