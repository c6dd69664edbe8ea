//! `make chaos`: a whole cluster of real processes under load, hurt in every way at random but repeatable moments, and
//! proof afterwards that it kept its promises. The report goes to `target/chaos`.
//!
//! ```text
//! schedule (pure) ──> strikes ──> cluster: seats with proxies around gateways, workers, the nodes of Redis
//!                                    ^
//! load ──> follow ───────────────────┘ over the wire ──> history ──> verdict, recoveries (pure) ──> page
//!                        after: keys, listings, replays, processes ──┘
//! ```
//!
//! The pure parts, and their tests, are `relevo_loadtest::chaos`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a harness that fails ends"
)]
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::disallowed_methods,
    reason = "a program of its own beside the product"
)]

mod after;
mod agent;
mod cluster;
mod follow;
#[path = "../../../shared/tests/it/invariants.rs"]
mod invariants;
mod load;
mod nodes;
#[path = "../../../shared/tests/it/probe.rs"]
#[allow(dead_code, reason = "the store's tests use all of it")]
mod probe;
mod strikes;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Parser;
use relevo_loadtest::chaos::count;
use relevo_loadtest::chaos::history::{Breach, Promise, Run, judge_end, judge_listing, judge_runs};
use relevo_loadtest::chaos::page::Report;
use relevo_loadtest::chaos::schedule::{Ground, Kind, plan};
use relevo_loadtest::chaos::series::Course;
use tokio::time::{Instant, timeout};

use cluster::Cluster;
use load::Shared;
use nodes::Redis;

/// Everyone has ended by then, or never will.
const ENDING: Duration = Duration::from_mins(3);

/// Shorter runs are not divided between one node and several.
const DIVIDED: u64 = 300;
/// How many nodes are several.
const SEVERAL: u64 = 3;

/// Hurts a cluster under load and checks that it keeps its promises.
#[derive(Debug, Clone, Parser)]
#[command(name = "chaos", version)]
struct Flags {
    /// How long load is given and faults come
    #[arg(long, env = "CHAOS_SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(10..=86_400))]
    seconds: u64,
    /// What decides faults and load; random when it is not given
    #[arg(long, env = "CHAOS_SEED")]
    seed: Option<u64>,
    /// Nodes of Redis: 1, or 2 to 8 in a Redis Cluster. Not given: in half of the time 1, in the other half 3, and in runs of less than five
    /// minutes, which the seed decides, only one of both
    #[arg(long, env = "CHAOS_NODES", value_parser = clap::value_parser!(u64).range(1..=8))]
    nodes: Option<u64>,
    /// Conversations at once
    #[arg(long, env = "CHAOS_CONTEXTS", default_value_t = 24)]
    contexts: u64,
    /// Gateways; half of them give their messages to a program that is never run twice. Four or more: two are also behind haproxy
    #[arg(long, env = "CHAOS_GATEWAYS", default_value_t = 4, value_parser = gateways)]
    gateways: usize,
    /// Workers
    #[arg(long, env = "CHAOS_WORKERS", default_value_t = 3, value_parser = some)]
    workers: usize,
    /// Only these kinds of faults, with commas between them; `none` is none
    #[arg(long, env = "CHAOS_FAULTS", value_delimiter = ',', value_parser = kinds)]
    faults: Vec<Option<Kind>>,
    /// `appendfsync` of Redis. With `everysec` a Redis that is killed while its disk is busy loses what it had acknowledged
    #[arg(long, env = "CHAOS_FSYNC", default_value = "always", value_parser = ["always", "everysec"])]
    fsync: String,
    /// Keep the logs of all processes whatever the verdict is
    #[arg(long, env = "CHAOS_KEEP_LOGS")]
    keep_logs: bool,
    /// Where the report goes; that of a run on several nodes into the folder `nodes` there
    #[arg(long, env = "CHAOS_DIR")]
    dir: Option<PathBuf>,
}

fn kinds(word: &str) -> Result<Option<Kind>, String> {
    let known = || Kind::ALL.map(Kind::as_str).join(", ");
    match word {
        "none" => Ok(None),
        word => Kind::parse(word)
            .map(Some)
            .ok_or_else(|| format!("must be among {}", known())),
    }
}

fn some(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=64).contains(number));
    number.ok_or_else(|| "must be 1 to 64".to_owned())
}

fn gateways(text: &str) -> Result<usize, String> {
    some(text)?
        .checked_sub(1)
        .filter(|rest| *rest > 0)
        .map(|rest| rest + 1)
        .ok_or_else(|| "must be 2 to 64".to_owned())
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some(agent::ASKED) {
        agent::serve(&args.next().expect("where starts are written down"));
        return ExitCode::SUCCESS;
    }
    let flags = Flags::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(run(&flags))
}

/// `target/chaos`, beside the profile of this program.
fn usual_dir() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.ancestors().nth(3).unwrap().join("chaos")
}

/// One run after the other.
async fn run(flags: &Flags) -> ExitCode {
    let seed = flags
        .seed
        .unwrap_or_else(|| RandomState::new().build_hasher().finish() % 1_000_000);
    let runs = match flags.nodes {
        Some(nodes) => vec![nodes],
        None if flags.seconds >= DIVIDED => vec![1, SEVERAL],
        None => vec![if seed.is_multiple_of(2) { 1 } else { SEVERAL }],
    };
    let mut good = true;
    for nodes in &runs {
        let setting = Setting {
            seed,
            seconds: flags.seconds / count(runs.len()),
            nodes: usize::try_from(*nodes).unwrap(),
        };
        good &= one(flags, &setting).await;
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What one run is about.
struct Setting {
    seed: u64,
    seconds: u64,
    nodes: usize,
}

/// One run; whether every promise was kept.
async fn one(flags: &Flags, setting: &Setting) -> bool {
    let Setting { seed, seconds, nodes } = *setting;
    let wanted: Vec<Kind> = if flags.faults.is_empty() {
        Kind::ALL.to_vec()
    } else {
        flags.faults.iter().copied().flatten().collect()
    };
    println!(
        "chaos: {seconds} s, nodes of Redis: {nodes}, seed {seed} (again: make chaos CHAOS_SEED={seed} CHAOS_SECONDS={seconds} \
         CHAOS_NODES={nodes})"
    );
    let redis = Redis::start(nodes, &flags.fsync);
    let cluster = Arc::new(Cluster::start(flags.gateways, flags.workers, redis).await);
    let length = Duration::from_secs(seconds);
    let balanced = cluster.balancer.is_some();
    let ground = Ground {
        length,
        nodes,
        gateways: flags.gateways,
        workers: flags.workers,
        balanced,
        kinds: wanted.clone(),
    };
    let begun = Instant::now();
    let shared = Arc::new(Shared::new(cluster.urls(), flags.gateways, begun));
    let load = load::start(&shared, seed, flags.contexts, balanced);
    let strikes = strikes::carry_out(&cluster, begun, plan(seed, &ground)).await;
    tokio::time::sleep_until(begun + length).await;
    shared.stopped.store(true, Ordering::Relaxed);
    let mut breaches = Vec::new();
    if timeout(ENDING, load.join_all()).await.is_err() {
        breaches.push(Breach::new(Promise::Ended, "conversations do not end"));
    }

    println!("chaos: the faults are over; checking");
    let (turns, told, events, troubles) = shared.take();
    breaches.extend(told);
    breaches.extend(turns.iter().flat_map(judge_end));
    let (replayed, found) = after::replays(&shared, seed, &turns).await;
    breaches.extend(found);
    breaches.extend(after::idle(&cluster).await);
    let tasks = match after::listing(&shared).await {
        Ok(listed) => {
            breaches.extend(judge_listing(&turns, &listed));
            listed.len()
        }
        Err(error) => {
            breaches.push(Breach::new(Promise::Ended, format!("tasks cannot be listed: {error}")));
            0
        }
    };
    let starts = cluster.starts();
    let runs: Vec<Run> = starts.lines().filter_map(start_of).collect();
    breaches.extend(judge_runs(&turns, &runs));
    breaches.extend(after::swept(&cluster, tasks).await);
    after::stop(&cluster).await;
    breaches.extend(after::processes(&cluster).await);
    cluster.expect_no_panics();
    breaches.extend(cluster.take_breaches());

    let report = Report {
        facts: facts(flags, setting, &wanted, &cluster),
        figures: vec![
            ("processes started", cluster.started()),
            (
                "starts that failed while Redis was away",
                cluster.failed_starts.load(Ordering::Relaxed),
            ),
            ("tasks listed", tasks as u64),
            ("streams replayed", replayed as u64),
            ("starts of the at-most-once agent", runs.len() as u64),
        ],
        course: Course {
            turns,
            events,
            troubles,
            strikes,
            length: seconds * 1_000,
        },
        breaches,
    };
    publish(flags, setting, &cluster, &report)
}

fn start_of(line: &str) -> Option<Run> {
    let (nonce, epoch) = line.split_once(' ')?;
    Some(Run {
        nonce: nonce.to_owned(),
        epoch: epoch.to_owned(),
    })
}

fn facts(flags: &Flags, setting: &Setting, kinds: &[Kind], cluster: &Cluster) -> Vec<(&'static str, String)> {
    let info = cluster.redis.node(0).info("server");
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let words: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
    let balancer = if cluster.balancer.is_some() {
        ", two of them also behind haproxy"
    } else {
        ""
    };
    vec![
        ("seed", setting.seed.to_string()),
        ("seconds", setting.seconds.to_string()),
        ("nodes of Redis", setting.nodes.to_string()),
        ("conversations at once", flags.contexts.to_string()),
        ("gateways", format!("{}{balancer}", flags.gateways)),
        ("workers", flags.workers.to_string()),
        ("faults", words.join(", ")),
        ("lease.ttl", "4s".to_owned()),
        ("appendfsync", flags.fsync.clone()),
        ("Relevo", env!("CARGO_PKG_VERSION").to_owned()),
        ("Redis", info.get("redis_version").cloned().unwrap_or_default()),
        (
            "build",
            if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
        ),
        ("cores", cores.to_string()),
    ]
}

/// Writes the report; keeps the logs when a promise was broken.
fn publish(flags: &Flags, setting: &Setting, cluster: &Cluster, report: &Report) -> bool {
    let mut dir = flags.dir.clone().unwrap_or_else(usual_dir);
    if setting.nodes > 1 {
        dir.push("nodes");
    }
    std::fs::create_dir_all(&dir).unwrap();
    let (html, json): (&Path, &Path) = (&dir.join("report.html"), &dir.join("report.json"));
    std::fs::write(html, report.to_html()).unwrap();
    std::fs::write(json, format!("{:#}\n", report.to_json())).unwrap();
    println!("{}", report.to_text());
    println!("report: {} and {}", html.display(), json.display());
    let good = report.breaches.is_empty();
    if !good || flags.keep_logs {
        let logs = dir.join("logs");
        cluster.keep_logs(&logs);
        let turns: Vec<String> = report.course.turns.iter().map(|turn| format!("{turn:?}\n")).collect();
        std::fs::write(logs.join("turns.log"), turns.concat()).unwrap();
        println!("logs of all processes: {}", logs.display());
    }
    good
}
