//! What is counted of requests to servers of others.

crate::metrics! {
    /// What a process counts of the servers that it calls.
    pub struct EgressMetrics {
        /// Requests to servers behind agents, by how they ended: ok, client_error (the server refused), server_error, refused
        /// (an address), certificate, connect, broken, silent, redirect, too_large, breaker (not sent), abandoned (by the turn).
        requests: CounterVec = "relevo_egress_requests_total" ["agent", "outcome"],
        /// Servers that failed again and again and are left alone now, by agent.
        open_breakers: GaugeVec = "relevo_egress_breakers_open" ["agent"],
        /// Times that a server was left alone because it had failed again and again.
        breakers_opened: CounterVec = "relevo_egress_breakers_opened_total" ["agent"],
    }
}

#[cfg(test)]
mod tests {
    use relevo_testkit::docs::check_block;

    use super::*;
    use crate::platform::metrics::{metrics_table, mistakes};

    #[test]
    fn the_metrics_follow_the_rules_and_are_documented() {
        assert_eq!(mistakes(EgressMetrics::METRICS), Vec::<String>::new());
        check_block(
            "observability.md",
            "egress metrics",
            &metrics_table(EgressMetrics::METRICS),
        );
    }
}
