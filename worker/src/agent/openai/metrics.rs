//! What is counted of models.

use relevo_shared::platform::metrics::RUN;

use super::answer::Usage;

relevo_shared::metrics! {
    /// What a worker counts of the models that it asks.
    pub(crate) struct ModelMetrics {
        /// Requests to models, by agent and how they ended: why the model stopped, or what went wrong.
        requests: CounterVec = "relevo_worker_model_requests_total" ["agent", "outcome"],
        /// Tokens that models say they took, by agent and kind: prompt or completion.
        tokens: CounterVec = "relevo_worker_model_tokens_total" ["agent", "kind"],
        /// Seconds from a request to the first text of its answer, by agent.
        first_text: HistogramVec = "relevo_worker_model_first_text_seconds" ["agent"] in RUN,
    }
}

impl ModelMetrics {
    /// Adds what an answer took.
    pub(super) fn took(&self, agent: &str, usage: Usage) {
        for (kind, tokens) in [("prompt", usage.prompt), ("completion", usage.completion)] {
            self.tokens.with_label_values(&[agent, kind]).inc_by(tokens);
        }
    }
}

/// Counts a request when it is over, however that comes about.
#[derive(Debug)]
pub(super) struct Counted<'a> {
    metrics: &'a ModelMetrics,
    agent: &'a str,
    outcome: &'static str,
}

impl<'a> Counted<'a> {
    /// A request that is dropped without a word was canceled.
    pub(super) const fn new(metrics: &'a ModelMetrics, agent: &'a str) -> Self {
        Self {
            metrics,
            agent,
            outcome: "canceled",
        }
    }

    /// Says how it ended.
    pub(super) fn end(mut self, outcome: &'static str) {
        self.outcome = outcome;
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.metrics
            .requests
            .with_label_values(&[self.agent, self.outcome])
            .inc();
    }
}

#[cfg(test)]
mod tests {
    use relevo_shared::platform::metrics::{metrics_table, mistakes};
    use relevo_testkit::docs::check_block;

    use super::*;

    #[test]
    fn the_metrics_follow_the_rules_and_are_documented() {
        assert_eq!(mistakes(ModelMetrics::METRICS), Vec::<String>::new());
        check_block(
            "observability.md",
            "model metrics",
            &metrics_table(ModelMetrics::METRICS),
        );
    }
}
