//! `relevo status`: what a cluster is doing.

use clap::Args;
use std::collections::BTreeMap;

use relevo_shared::ids::StorageId;
use relevo_shared::store::{Overview, SILENT_MS, Serving, WorkerSeen};
use serde_json::json;

use crate::exit::{Exit, Problem};
use crate::operator::RedisArgs;
use crate::print::{Screen, age};

/// Shows what a cluster is doing: backlog, workers, running turns.
#[derive(Debug, Args)]
#[command(after_help = crate::exit::HELP_REDIS)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    redis: RedisArgs,
    /// How many turns at the most
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Print JSON; times are in milliseconds
    #[arg(long)]
    json: bool,
}

/// Reads and shows it.
pub(crate) async fn run(args: StatusArgs, screen: &Screen) -> Result<Exit, Problem> {
    let cluster = args.redis.connect(screen).await?;
    let overview = cluster.store.overview_with_turns(&cluster.pools, args.limit).await?;
    let workers = cluster.store.workers().await?;
    let serving = cluster.store.serving().await?;
    let pools = pools(&overview, &cluster.pools, &serving);
    let storages = storages(&overview, &serving);
    if args.json {
        screen.json(&as_json(&overview, &workers, &pools, &storages))?;
    } else {
        as_text(&overview, &workers, &pools, &storages, screen)?;
    }
    Ok(Exit::Good)
}

/// A pool: of an agent, or one that somebody serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Pool {
    /// Turns that are queued or run; none is known of a pool that is of no agent here.
    turns: Option<u64>,
    /// Workers that serve it.
    workers: u64,
}

fn pools(overview: &Overview, known: &[String], serving: &[Serving]) -> BTreeMap<String, Pool> {
    let mut all: BTreeMap<String, Pool> = BTreeMap::new();
    for name in known {
        let turns = Some(overview.pools.get(name).copied().unwrap_or(0));
        all.insert(name.clone(), Pool { turns, workers: 0 });
    }
    let live = serving.iter().filter(|entry| entry.is_live(overview.now));
    for entry in live.filter(|entry| entry.storage.is_none()) {
        all.entry(entry.pool.clone()).or_default().workers += 1;
    }
    all
}

/// Turns that only workers with a storage of a pool take, and how many such workers there are; by pool and storage.
type Storages = BTreeMap<(String, StorageId), (u64, u64)>;

/// Those that hold turns, or that somebody has.
fn storages(overview: &Overview, serving: &[Serving]) -> Storages {
    let counts = overview.storages.iter();
    let mut all: Storages = counts.map(|(name, turns)| (name.clone(), (*turns, 0))).collect();
    for entry in serving.iter().filter(|entry| entry.is_live(overview.now)) {
        if let Some(storage) = &entry.storage {
            all.entry((entry.pool.clone(), storage.clone())).or_default().1 += 1;
        }
    }
    all
}

fn as_json(
    overview: &Overview,
    workers: &[WorkerSeen],
    pools: &BTreeMap<String, Pool>,
    storages: &Storages,
) -> serde_json::Value {
    let storages = storages.iter().map(|((pool, storage), (turns, workers))| {
        json!({ "pool": pool, "storage": storage.as_str(), "turns": turns, "workers": workers })
    });
    let turns = overview.turns.iter().map(|turn| {
        json!({
            "turn": turn.turn,
            "task": turn.task,
            "agent": turn.agent,
            "worker": turn.worker,
            "suspended": turn.suspended,
            "storage": turn.storage.as_ref().map(StorageId::as_str),
            "attempt": turn.attempt,
            "ageMs": turn.age_ms,
        })
    });
    let workers = workers
        .iter()
        .map(|worker| json!({ "worker": worker.worker, "seenMs": overview.now.saturating_sub(worker.seen) }));
    json!({
        "backlog": overview.backlog,
        "behind": overview.behind,
        "suspended": overview.suspended,
        "missingPartitions": overview.missing,
        "oldestMs": overview.oldest_ms,
        "pools": pools.iter().map(|(name, pool)| json!({ "pool": name, "turns": pool.turns, "workers": pool.workers })).collect::<Vec<_>>(),
        "storages": storages.collect::<Vec<_>>(),
        "workers": workers.collect::<Vec<_>>(),
        "turns": turns.collect::<Vec<_>>(),
    })
}

fn as_text(
    overview: &Overview,
    workers: &[WorkerSeen],
    pools: &BTreeMap<String, Pool>,
    storages: &Storages,
    screen: &Screen,
) -> Result<(), Problem> {
    let oldest = if overview.backlog == 0 {
        String::new()
    } else {
        format!(", the oldest {} old", age(overview.oldest_ms))
    };
    let behind = match overview.behind {
        0 => String::new(),
        behind => format!(", {behind} behind another of their context"),
    };
    screen.line(&format!(
        "backlog: {} turns queued or running{behind}{oldest}",
        overview.backlog - overview.behind
    ))?;
    if overview.suspended > 0 {
        screen.line(&format!("suspended: {} turns wait for their users", overview.suspended))?;
    }
    if overview.missing > 0 {
        screen.line(&format!(
            "{} partitions are not counted: their node of Redis is away",
            overview.missing
        ))?;
    }
    screen.line("")?;
    let pool = |(name, pool): (&String, &Pool)| {
        let turns = pool.turns.map_or_else(|| "-".to_owned(), |turns| turns.to_string());
        let note = if pool.workers == 0 { "no worker serves it" } else { "" };
        vec![name.clone(), turns, pool.workers.to_string(), note.to_owned()]
    };
    screen.table(
        &["POOL", "TURNS", "WORKERS", ""],
        &pools.iter().map(pool).collect::<Vec<_>>(),
    )?;
    screen.line("")?;
    if !storages.is_empty() {
        let storage = |((pool, storage), (turns, workers)): (&(String, StorageId), &(u64, u64))| {
            let note = if *workers == 0 { "no worker has it" } else { "" };
            vec![
                pool.clone(),
                storage.to_string(),
                turns.to_string(),
                workers.to_string(),
                note.to_owned(),
            ]
        };
        screen.table(
            &["POOL", "STORAGE", "TURNS", "WORKERS", ""],
            &storages.iter().map(storage).collect::<Vec<_>>(),
        )?;
        screen.line("")?;
    }
    let worker = |worker: &WorkerSeen| {
        let seen = overview.now.saturating_sub(worker.seen);
        let note = if seen > SILENT_MS { "silent" } else { "" };
        vec![worker.worker.clone(), format!("{} ago", age(seen)), note.to_owned()]
    };
    screen.table(&["WORKER", "SEEN", ""], &workers.iter().map(worker).collect::<Vec<_>>())?;
    screen.line("")?;
    let turn = |turn: &relevo_shared::store::RunningTurn| {
        vec![
            turn.task.clone(),
            turn.agent.clone(),
            age(turn.age_ms),
            turn.attempt.to_string(),
            match (&turn.worker, &turn.storage) {
                (Some(worker), _) => worker.clone(),
                (None, Some(storage)) => format!("(waits for {storage})"),
                (None, None) if turn.suspended => "(suspended)".to_owned(),
                (None, None) => "(waits)".to_owned(),
            },
        ]
    };
    let turns: Vec<_> = overview.turns.iter().map(turn).collect();
    screen.table(&["TASK", "AGENT", "AGE", "ATTEMPT", "WORKER"], &turns)
}
