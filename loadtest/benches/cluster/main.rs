//! `make bench`: what a turn costs and how fast turns go, beside the floor of Redis and of HTTP, all in one run.
//!
//! One gateway, one worker, one Redis (or three) and the load driver share the machine: compare the figures of one run with each other.
//! The report goes to stdout as Markdown and to a file as JSON.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a measurement that fails ends; counts are far below 2^52"
)]
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::disallowed_methods,
    reason = "a program of its own beside the product: it has no configuration, no tasks to stop, and asks Redis as it likes"
)]

mod bare;
mod commands;
mod floor;
mod idle;
mod listing;
mod machine;
mod neighbours;
mod nodes;
mod redis;
mod rounds;
mod table;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use serde_json::{Map, Value};

use machine::Machine;

/// What can be measured by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Redis alone.
    Floor,
    /// Turns in closed and open loops.
    Rounds,
    /// What turns make Redis do.
    Commands,
    /// Others beside a slow reader.
    Neighbours,
    /// Memory of idle streams.
    Idle,
    /// Pages of ListTasks.
    Listing,
    /// One Redis and a Redis Cluster of three.
    Nodes,
}

#[derive(Debug, Parser)]
struct Flags {
    /// Seconds of a round
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Tasks of which pages are listed
    #[arg(long, default_value_t = 100_000)]
    tasks: u64,
    /// Only this part
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Where the figures go, after each part; `target/bench.json` without
    #[arg(long)]
    json: Option<PathBuf>,
    /// What cargo says to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    if bare::is_asked_for() {
        return bare::serve();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(run(&Flags::parse()));
}

async fn run(flags: &Flags) {
    let length = Duration::from_secs_f64(flags.seconds);
    let wanted = |part: Part| flags.only.is_none_or(|only| only == part);
    let mut all = Map::new();
    let json = flags.json.clone().unwrap_or_else(usual_file);
    let mut keep = |part: &str, value: Value| {
        all.insert(part.to_owned(), value);
        save(&json, &all);
    };
    println!("# Benchmark\n\n{}\n", machine::describe());
    if wanted(Part::Floor) {
        keep("floor", floor::run(length).await);
    }
    if wanted(Part::Rounds) {
        keep("rounds", rounds::run(&Machine::start(), length).await);
    }
    if wanted(Part::Commands) {
        keep("commands", commands::run(&Machine::start()).await);
    }
    if wanted(Part::Neighbours) {
        keep("neighbours", neighbours::run(&Machine::start(), length).await);
    }
    if wanted(Part::Idle) {
        keep("idle", idle::run().await);
    }
    if wanted(Part::Listing) {
        keep("listing", listing::run(&Machine::start(), flags.tasks).await);
    }
    if wanted(Part::Nodes) {
        keep("nodes", nodes::run(length).await);
    }
    println!("as JSON: {}", json.display());
}

/// `target/bench.json`: above the profile and the folder of this program, wherever it was started.
fn usual_file() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.ancestors().nth(3).unwrap().join("bench.json")
}

fn save(file: &Path, parts: &Map<String, Value>) {
    std::fs::write(file, format!("{:#}\n", Value::Object(parts.clone()))).expect("the report can be written");
}
