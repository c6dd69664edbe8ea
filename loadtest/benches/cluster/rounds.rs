//! Closed and open loops of turns, and what each turn cost whom.

use std::time::Duration;

use clap::Parser as _;
use relevo_loadtest::driver;
use relevo_loadtest::settings::Settings;
use serde_json::{Value, json};

use crate::machine::{Machine, Used};
use crate::table::{figure, print};

const TEXT: &str = "chunks=5 nonce={nonce}";

/// Runs the load driver with these flags.
pub async fn drive(url: &str, flags: &str) -> Value {
    drive_with(url, flags, TEXT).await
}

/// The same with another text.
pub async fn drive_with(url: &str, flags: &str, text: &str) -> Value {
    let flags = flags.split_whitespace();
    let settings = Settings::parse_from(["bench", "--url", url, "--text", text].into_iter().chain(flags));
    let report = driver::run(&settings).await.unwrap();
    assert!(report.is_good() && report.tally().failed == 0, "{report}");
    report.to_json()
}

fn number(value: &Value, path: &str) -> f64 {
    value
        .pointer(path)
        .and_then(Value::as_f64)
        .unwrap_or_else(|| panic!("{path} in {value}"))
}

pub fn ms(value: &Value, what: &str, quantile: &str) -> String {
    figure(number(value, &format!("/{what}/{quantile}")))
}

/// One closed loop: what the driver reports, and what a turn took of each process.
pub struct Round {
    pub report: Value,
    pub cost: Used,
    pub turns: u64,
    pub rate: f64,
}

impl Round {
    pub async fn run(machine: &Machine, mode: &str, contexts: usize, length: Duration) -> Self {
        let before = machine.used();
        let flags = format!(
            "--mode {mode} --contexts {contexts} --duration {}ms",
            length.as_millis()
        );
        let report = drive(&machine.url(), &flags).await;
        let turns = report["turns"].as_u64().unwrap();
        Self {
            cost: machine.used().per_turn(before, turns),
            turns,
            rate: number(&report, "/turns_per_second"),
            report,
        }
    }

    /// Turns per second, latency, and microseconds of gateway, worker and Redis.
    pub fn cells(&self) -> [String; 6] {
        [
            figure(self.rate),
            ms(&self.report, "turn_ms", "p50"),
            ms(&self.report, "turn_ms", "p99"),
            figure(self.cost.gateway),
            figure(self.cost.worker),
            figure(self.cost.redis),
        ]
    }

    pub fn us(&self) -> Value {
        let Used {
            gateway,
            worker,
            redis,
            driver,
        } = self.cost;
        json!({ "gateway": gateway, "worker": worker, "redis": redis, "driver": driver })
    }
}

pub async fn run(machine: &Machine, length: Duration) -> Value {
    let url = machine.url();
    drive(&url, "--contexts 16 --duration 2s").await;
    let mut rows = Vec::new();
    let mut values = Vec::new();
    let mut best = 0.0_f64;
    for mode in ["send", "stream"] {
        for contexts in [1, 16, 128, 1_000] {
            let round = Round::run(machine, mode, contexts, length).await;
            best = best.max(round.rate);
            let mut row = vec![mode.to_owned(), contexts.to_string()];
            row.extend(round.cells());
            row.push(figure(round.cost.driver));
            rows.push(row);
            values.push(json!({ "mode": mode, "contexts": contexts, "report": round.report, "us": round.us() }));
        }
    }
    print(
        "Closed loop",
        &[
            "mode",
            "contexts",
            "turns/s",
            "p50 ms",
            "p99 ms",
            "gateway us",
            "worker us",
            "redis us",
            "driver us",
        ],
        &rows,
    );
    let open = open_loop(&url, best / 2.0, length).await;
    json!({ "closed": values, "open": open, "memory": memory(machine).await })
}

/// The first event while the cluster does half of what it can.
async fn open_loop(url: &str, rate: f64, length: Duration) -> Value {
    let flags = format!(
        "--mode stream --contexts 256 --rate {rate:.0} --duration {}ms",
        length.as_millis()
    );
    let report = drive(url, &flags).await;
    print(
        "Open loop, streams, at half of the best rate",
        &[
            "turns/s asked for",
            "first event p50 ms",
            "p99 ms",
            "turn p50 ms",
            "p99 ms",
        ],
        &[vec![
            figure(rate),
            ms(&report, "first_event_ms", "p50"),
            ms(&report, "first_event_ms", "p99"),
            ms(&report, "turn_ms", "p50"),
            ms(&report, "turn_ms", "p99"),
        ]],
    );
    report
}

/// Bytes of Redis per finished task in a context of its own.
async fn memory(machine: &Machine) -> Value {
    const TURNS: u64 = 2_000;
    let before = machine.redis.used_memory();
    drive(&machine.url(), &format!("--mode send --contexts 64 --turns {TURNS}")).await;
    let bytes = machine.redis.used_memory().saturating_sub(before) as f64 / TURNS as f64;
    print("Memory of Redis", &["bytes per finished task"], &[vec![figure(bytes)]]);
    json!({ "bytes_per_task": bytes })
}
