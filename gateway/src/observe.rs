//! One line of the access log and one count per request, however it ends.

use tokio::time::Instant;

use crate::metrics::GatewayMetrics;

/// How a request ended of which nobody waited for the answer.
const ABANDONED: &str = "abandoned";

/// A request that is being watched. When it is dropped before [`Observed::finish`], its client went away.
#[derive(Debug)]
pub(crate) struct Observed {
    metrics: GatewayMetrics,
    method: &'static str,
    received: Instant,
    first_event: bool,
    finished: bool,
}

impl Observed {
    pub(crate) fn new(metrics: &GatewayMetrics, method: &'static str, received: Instant) -> Self {
        Self {
            metrics: metrics.clone(),
            method,
            received,
            first_event: false,
            finished: false,
        }
    }

    /// The first event of a stream is on its way.
    pub(crate) fn first_event(&mut self) {
        if !std::mem::replace(&mut self.first_event, true) {
            let seconds = self.received.elapsed().as_secs_f64();
            self.metrics
                .first_event
                .with_label_values(&[self.method])
                .observe(seconds);
        }
    }

    /// It ended. Only the first call counts.
    pub(crate) fn finish(&mut self, outcome: &'static str) {
        if std::mem::replace(&mut self.finished, true) {
            return;
        }
        let took = self.received.elapsed();
        self.metrics.requests.with_label_values(&[self.method, outcome]).inc();
        self.metrics
            .duration
            .with_label_values(&[self.method])
            .observe(took.as_secs_f64());
        let duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        tracing::info!(method = self.method, outcome, duration_ms, "request");
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        self.finish(ABANDONED);
    }
}
