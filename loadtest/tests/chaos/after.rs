//! What must hold when the faults are over: everything has ended, is listed as it ended, can be replayed anywhere, and
//! leaves neither keys nor processes behind.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use a2a::{StreamResponse, Task};
use relevo_loadtest::chaos::history::{Breach, Listed, Promise, Turn, judge_replay};
use relevo_loadtest::chaos::left::{Kept, Key, judge_idle, judge_swept};
use relevo_loadtest::chaos::random::Random;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::cluster::Cluster;
use crate::follow::digest;
use crate::invariants;
use crate::load::Shared;
use crate::nodes::Redis;
use crate::probe::{Content, Dump};

/// How long what is over may take to be gone.
const PATIENCE: Duration = Duration::from_mins(1);
/// How long a thousand keys may take to be deleted, beside that.
const PER_THOUSAND: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(500);
const CALL: Duration = Duration::from_secs(20);
/// How many turns are replayed at most.
const REPLAYS: usize = 1_000;
/// Which part of the run's numbers is the replays'.
const PART: u64 = 2;

fn key(name: &str, content: &Content, expires: bool) -> Key {
    // `relevo:{tag}:name`, `relevo:{bell}:pool`, `relevo:layout`.
    let short = name.strip_prefix("relevo:").unwrap_or(name);
    let short = match short.split_once("}:") {
        Some(("{bell", _)) => "bell",
        Some((_, rest)) => rest,
        None => short,
    };
    let kept = match content {
        Content::Hash(fields) => Kept::Hash(fields.clone()),
        Content::Scores(scores) => Kept::Members(scores.keys().cloned().collect()),
        Content::Stream(stream) => {
            let pending = stream.groups.values().map(|group| group.pending.len()).sum();
            Kept::Stream(stream.entries.len(), pending)
        }
        Content::Text(_) | Content::List(_) => Kept::Other,
    };
    Key {
        name: short.to_owned(),
        kept,
        expires,
    }
}

fn keys(dump: &Dump) -> Vec<Key> {
    dump.iter()
        .map(|(name, (content, expires))| key(name, content, *expires))
        .collect()
}

/// Looks until a judgement finds nothing, and returns what it finds in the end.
async fn until_clean(
    redis: &Redis,
    limit: Duration,
    before: impl Fn(&Redis),
    judge: impl Fn(&[Key]) -> Vec<Breach>,
) -> (Vec<Breach>, Dump) {
    let since = Instant::now();
    loop {
        let (found, dump) = tokio::task::block_in_place(|| {
            before(redis);
            let dump = redis.dump();
            (judge(&keys(&dump)), dump)
        });
        if found.is_empty() || since.elapsed() > limit {
            return (found, dump);
        }
        tokio::time::sleep(LOOK).await; // pace: of looking
    }
}

/// No turn lives, and everything in Redis fits together.
pub async fn idle(cluster: &Cluster) -> Vec<Breach> {
    let (mut found, dump) = until_clean(&cluster.redis, PATIENCE, |_| {}, judge_idle).await;
    if found.is_empty() {
        found.extend(consistent(dump));
    }
    found
}

/// The invariants that the store's own tests check after each step.
fn consistent(mut dump: Dump) -> Vec<Breach> {
    // What answers repeated sends is no part of a partition's own state.
    dump.retain(|name, _| !name.contains("}:idem:"));
    let prefixes: BTreeSet<String> = dump
        .keys()
        .filter(|name| !name.contains("{bell}"))
        .filter_map(|name| Some(format!("{}}}:", name.split_once("}:")?.0)))
        .collect();
    let judge = |prefix: &String| {
        let hold = || invariants::hold(&dump, prefix, &BTreeSet::new(), &mut invariants::Memory::default());
        let panic = catch_unwind(AssertUnwindSafe(hold)).err()?;
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let detail = format!("{prefix}* {}", text.unwrap_or_default());
        Some(Breach::new(Promise::Keys, detail))
    };
    prefixes.iter().filter_map(judge).collect()
}

/// Every task that the cluster knows.
pub async fn listing(shared: &Shared) -> Result<Vec<Listed>, String> {
    let mut listed = Vec::new();
    let mut page = String::new();
    for door in 0.. {
        let params = json!({ "pageSize": 100, "historyLength": 50, "pageToken": page });
        let call = shared.client.call(door % shared.gateways, "ListTasks", &params);
        let answer: Value = timeout(CALL, call)
            .await
            .map_err(|elapsed| elapsed.to_string())?
            .map_err(|error| error.to_string())?;
        let tasks: Vec<Task> = serde_json::from_value(answer["tasks"].clone()).map_err(|error| error.to_string())?;
        listed.extend(tasks.into_iter().map(told));
        answer["nextPageToken"]
            .as_str()
            .unwrap_or_default()
            .clone_into(&mut page);
        if page.is_empty() {
            break;
        }
    }
    Ok(listed)
}

fn told(task: Task) -> Listed {
    let messages = task.history.iter().flatten();
    let asked = messages.filter(|message| message.role == a2a::Role::User);
    let texts = asked
        .flat_map(|message| &message.parts)
        .filter_map(|part| part.as_text());
    let nonces = texts
        .filter_map(|text| text.split_once("nonce="))
        .map(|(_, nonce)| nonce.to_owned());
    Listed {
        nonces: nonces.collect(),
        state: task.status.state,
        task: task.id,
    }
}

/// Streams are read again from random places, at random gateways: exactly what followed comes.
pub async fn replays(shared: &Shared, seed: u64, turns: &[Turn]) -> (usize, Vec<Breach>) {
    let mut random = Random::new(seed, PART);
    let mut found = Vec::new();
    let mut kept: Vec<&Turn> = turns
        .iter()
        .filter(|turn| turn.end.is_some() && !turn.events.is_empty())
        .collect();
    random.shuffle(&mut kept);
    kept.truncate(REPLAYS);
    for turn in &kept {
        // After the end of a task nothing comes: it absorbs. After any other end comes what the next message leads to.
        let last = turn.events.len() - 1;
        let over = turn.end.as_ref().is_some_and(|end| end.state.is_terminal());
        let from = match (over, random.chance(30)) {
            (true, true) => last,
            (true, false) => random.place(last + 1),
            (false, _) if last == 0 => continue,
            (false, _) => random.place(last),
        };
        let door = random.place(shared.gateways);
        match timeout(CALL, replay(shared, door, turn, from)).await {
            Ok(Ok(events)) => found.extend(judge_replay(turn, from, &events)),
            Ok(Err(error)) => found.push(Breach::new(Promise::Replay, format!("turn {}: {error}", turn.nonce))),
            Err(_) => found.push(Breach::new(Promise::Replay, format!("turn {}: no end", turn.nonce))),
        }
    }
    (kept.len(), found)
}

async fn replay(shared: &Shared, door: usize, turn: &Turn, from: usize) -> Result<Vec<(String, u64)>, String> {
    let task = turn.task.as_deref().unwrap_or_default();
    let open = shared.client.subscribe(door, task, Some(&turn.events[from].0)).await;
    let mut stream = open.map_err(|error| error.to_string())?;
    let mut events = Vec::new();
    while let Some(event) = stream.next().await.map_err(|error| error.to_string())? {
        let digest = match &event.event {
            // It says so itself when it is no event of the stream.
            StreamResponse::Task(_) if relevo_loadtest::verify::is_gap(&event.event) => 0,
            other => digest(other),
        };
        events.push((event.id.unwrap_or_default(), digest));
    }
    Ok(events)
}

/// Makes everything due that is kept for a time, and waits until the janitors have deleted it.
pub async fn swept(cluster: &Cluster, tasks: usize) -> Vec<Breach> {
    let limit = PATIENCE + PER_THOUSAND * u32::try_from(tasks / 1_000).unwrap_or(u32::MAX);
    let (mut found, _) = until_clean(&cluster.redis, limit, Redis::make_all_due, judge_swept).await;
    // Thousands of keys of one kind say no more than a few.
    found.truncate(20);
    found
}

/// Every process stops when it is asked to.
pub async fn stop(cluster: &Cluster) {
    for seat in cluster.seats() {
        if let Some(life) = seat.sitting() {
            cluster.end(&life).await;
        }
    }
}

/// No process of the cluster, nor of its agents, is left.
pub async fn processes(cluster: &Cluster) -> Vec<Breach> {
    let mark = cluster.mark();
    let since = Instant::now();
    loop {
        let left = alive(&mark);
        if left.is_empty() || since.elapsed() > PATIENCE {
            let breach = |(pid, line)| Breach::new(Promise::Processes, format!("process {pid} is left: {line}"));
            return left.into_iter().map(breach).collect();
        }
        tokio::time::sleep(LOOK).await; // pace: of looking
    }
}

/// Every process whose command line holds the mark.
pub fn alive(mark: &str) -> BTreeMap<u32, String> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(mark).then_some((pid, line))
    });
    processes.collect()
}
