//! Every metric that a gateway exports.

use relevo_shared::platform::metrics::HTTP;

relevo_shared::metrics! {
    /// What a gateway counts.
    pub struct GatewayMetrics {
        /// Requests answered, by operation and how they ended.
        requests: CounterVec = "relevo_gateway_requests_total" ["method", "outcome"],
        /// Seconds from a request to the end of its answer, by operation; of a stream, to its end.
        duration: HistogramVec = "relevo_gateway_request_duration_seconds" ["method"] in HTTP,
        /// Seconds from a streaming request to its first event, by operation.
        first_event: HistogramVec = "relevo_gateway_first_event_seconds" ["method"] in HTTP,
        /// Streams open now.
        streams: Gauge = "relevo_gateway_streams_open",
        /// Streams that began at a client's cursor, by what was found there.
        resumes: CounterVec = "relevo_gateway_stream_resumes_total" ["outcome"],
        /// Journals read for streams and waiting calls, by why a doorbell was not enough.
        journal_reads: CounterVec = "relevo_gateway_journal_reads_total" ["reason"],
        /// Doorbell connections that were opened.
        hub_connections: Counter = "relevo_gateway_hub_connections_total",
        /// Channels that are followed now.
        hub_channels: Gauge = "relevo_gateway_hub_channels",
        /// Bytes of artifacts sent.
        artifact_bytes: Counter = "relevo_gateway_artifact_bytes_total",
        /// Connections open now.
        connections: Gauge = "relevo_gateway_connections_open",
        /// Turns queued, running, or waiting behind another in the whole cluster; the same from every process, so take the maximum.
        backlog: Gauge = "relevo_cluster_backlog_turns",
        /// Those of them that wait behind another turn of their context; the same from every process, so take the maximum.
        behind: Gauge = "relevo_cluster_waiting_turns",
        /// Turns that wait for their users, beside the backlog; the same from every process, so take the maximum.
        suspended: Gauge = "relevo_cluster_suspended_turns",
        /// Age of the oldest turn of the backlog in seconds; the same from every process, so take the maximum.
        oldest: FloatGauge = "relevo_cluster_oldest_turn_age_seconds",
        /// Turns queued or running, by pool; the same from every process, so take the maximum.
        pool_turns: GaugeVec = "relevo_cluster_pool_turns" ["pool"],
        /// Workers that serve a pool of an agent; 0 with turns in it means that nobody takes them. The same from every process, so take
        /// the maximum.
        pool_workers: GaugeVec = "relevo_cluster_pool_workers" ["pool"],
        /// Turns queued or running that only workers with a storage take, by pool and storage, while there are any; of the 100 storages
        /// with the most, the others together are `(other)`. The same from every process, so take the maximum.
        storage_turns: GaugeVec = "relevo_cluster_storage_turns" ["pool", "storage"],
        /// Workers that have a storage of a pool, where it has turns; 0 means that they wait for one, for `limits.storage_wait`. Of
        /// `(other)`, 0 if one of those storages has none. The same from every process, so take the maximum.
        storage_workers: GaugeVec = "relevo_cluster_storage_workers" ["pool", "storage"],
    }
}

#[cfg(test)]
mod tests {
    use relevo_shared::platform::metrics::{metrics_table, mistakes};
    use relevo_testkit::docs::check_block;

    use super::*;

    #[test]
    fn the_metrics_follow_the_rules_and_are_documented() {
        assert_eq!(mistakes(GatewayMetrics::METRICS), Vec::<String>::new());
        check_block(
            "observability.md",
            "gateway metrics",
            &metrics_table(GatewayMetrics::METRICS),
        );
    }
}
