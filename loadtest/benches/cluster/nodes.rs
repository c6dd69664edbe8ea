//! One Redis beside a Redis Cluster of three: what a turn costs, and how evenly the nodes share it.

use std::time::Duration;

use serde_json::{Value, json};

use crate::machine::Machine;
use crate::rounds::{Round, drive};
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
        drive(&machine.url(), "--contexts 16 --duration 2s").await;
        for mode in ["send", "stream"] {
            let shares = machine.used_by_nodes();
            let round = Round::run(&machine, mode, CONTEXTS, length).await;
            let after = machine.used_by_nodes();
            let each: Vec<f64> = after
                .iter()
                .zip(shares)
                .map(|(now, then)| (now - then) / round.turns as f64)
                .collect();
            let mut row = vec![nodes.to_string(), mode.to_owned()];
            row.extend(round.cells());
            row.push(each.iter().map(|us| figure(*us)).collect::<Vec<_>>().join(" / "));
            rows.push(row);
            values.push(json!({
                "nodes": nodes, "mode": mode, "contexts": CONTEXTS, "redis_us_by_node": each, "us": round.us(),
                "report": round.report,
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
