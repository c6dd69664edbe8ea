//! What a send turn asks of Redis, and what Redis executes for it: by few contexts, whose turns share little, and by many. What is
//! done by the second and not by the turn, as the janitor's looks and the renewals, is counted while nothing runs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::machine::Machine;
use crate::redis::{executed, monitor};
use crate::rounds::drive;
use crate::table::{figure, print};

/// Contexts and turns.
const LOADS: [(u64, u64); 3] = [(4, 1_000), (16, 3_000), (128, 7_000)];
const QUIET: Duration = Duration::from_secs(4);

type Counts = BTreeMap<String, u64>;

/// What was asked and executed in a stretch of time.
struct Stretch {
    asked: Counts,
    executed: Counts,
    seconds: f64,
}

impl Stretch {
    async fn of(machine: &Machine, work: impl Future<Output = ()>) -> Self {
        let (before, watch, begun) = (executed(&machine.redis), monitor(&machine.redis), Instant::now());
        work.await;
        let seconds = begun.elapsed().as_secs_f64();
        let mut executed = executed(&machine.redis);
        for (name, calls) in &mut executed {
            *calls -= before.get(name).copied().unwrap_or(0);
        }
        Self {
            asked: watch.stop(),
            executed,
            seconds,
        }
    }
}

fn sum(counts: &Counts) -> f64 {
    counts.values().sum::<u64>() as f64
}

pub async fn run(machine: &Machine) -> Value {
    let quiet = Stretch::of(machine, tokio::time::sleep(QUIET)).await;
    let by_second = |counts: &Counts| sum(counts) / quiet.seconds;
    let (quiet_asked, quiet_executed) = (by_second(&quiet.asked), by_second(&quiet.executed));
    let (mut rows, mut values) = (Vec::new(), Vec::new());
    for (contexts, turns) in LOADS {
        let flags = format!("--mode send --contexts {contexts} --turns {turns}");
        let busy = Stretch::of(machine, async {
            drive(&machine.url(), &flags).await;
        })
        .await;
        let requests = (sum(&busy.asked) - quiet_asked * busy.seconds) / turns as f64;
        let executed = (sum(&busy.executed) - quiet_executed * busy.seconds) / turns as f64;
        let mut most: Vec<(&String, &u64)> = busy.executed.iter().collect();
        most.sort_by_key(|(_, calls)| std::cmp::Reverse(**calls));
        let of = |(name, calls): &(&String, &u64)| format!("{name} {}", figure(**calls as f64 / turns as f64));
        rows.push(vec![
            contexts.to_string(),
            figure(requests),
            figure(executed),
            most.iter().take(8).map(of).collect::<Vec<_>>().join(", "),
        ]);
        values.push(
            json!({ "contexts": contexts, "turns": turns, "requests": requests, "executed": executed,
            "all": busy.executed }),
        );
    }
    print(
        &format!(
            "Redis per send turn (without the {} requests and {} commands of a second in which nothing runs)",
            figure(quiet_asked),
            figure(quiet_executed)
        ),
        &[
            "contexts",
            "requests",
            "executed commands",
            "most of them, all included",
        ],
        &rows,
    );
    json!({ "quiet_per_second": { "requests": quiet_asked, "executed": quiet_executed }, "turns": values })
}
