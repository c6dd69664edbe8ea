//! One Redis beside a Redis Cluster of three: what a turn costs, and how evenly the nodes share it.

use std::time::Duration;

use serde_json::{Value, json};

use crate::machine::Machine;
use crate::rounds::{drive, ms};
use crate::table::{figure, print};

const CONTEXTS: usize = 128;

pub async fn run(length: Duration) -> Value {
    let (mut rows, mut values) = (Vec::new(), Vec::new());
    for nodes in [1, 3] {
        let machine = if nodes == 1 {
            Machine::start()
        } else {
            Machine::start_on_cluster(nodes)
        };
        let url = machine.url();
        drive(&url, "--contexts 16 --duration 2s").await;
        for mode in ["send", "stream"] {
            let (before, shares) = (machine.used(), machine.used_by_nodes());
            let flags = format!(
                "--mode {mode} --contexts {CONTEXTS} --duration {}ms",
                length.as_millis()
            );
            let report = drive(&url, &flags).await;
            let turns = report["turns"].as_u64().unwrap();
            let cost = machine.used().per_turn(before, turns);
            let after = machine.used_by_nodes();
            let each: Vec<f64> = after
                .iter()
                .zip(shares)
                .map(|(now, then)| (now - then) / turns as f64)
                .collect();
            let rate = report["turns_per_second"].as_f64().unwrap();
            rows.push(vec![
                nodes.to_string(),
                mode.to_owned(),
                figure(rate),
                ms(&report, "turn_ms", "p50"),
                ms(&report, "turn_ms", "p99"),
                figure(cost.gateway),
                figure(cost.worker),
                figure(cost.redis),
                each.iter().map(|us| figure(*us)).collect::<Vec<_>>().join(" / "),
            ]);
            values.push(json!({
                "nodes": nodes, "mode": mode, "contexts": CONTEXTS, "report": report, "redis_us_by_node": each,
                "us": { "gateway": cost.gateway, "worker": cost.worker, "redis": cost.redis, "driver": cost.driver },
            }));
        }
    }
    print(
        &format!("One Redis and a Redis Cluster of three, {CONTEXTS} contexts"),
        &[
            "nodes",
            "mode",
            "turns/s",
            "p50 ms",
            "p99 ms",
            "gateway us",
            "worker us",
            "redis us",
            "of each node",
        ],
        &rows,
    );
    Value::Array(values)
}
