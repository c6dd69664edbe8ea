//! What the cluster does right now, for operators and for the cluster gauges.

use std::collections::BTreeMap;

use redis::{Cmd, Value};

use super::connection::{At, Via, command};
use super::script::text;
use super::{LiveTurn, Store, StoreError};
use crate::domain::record::Tries;
use crate::ids::{ContextKey, Partition, StorageId, TurnId, pool_and_storage};

/// The cluster at one moment.
#[derive(Debug, Clone, Default)]
pub struct Overview {
    /// Redis ms.
    pub now: u64,
    /// Turns that are queued, run, or wait behind another of their context.
    pub backlog: u64,
    /// Those that wait behind another.
    pub behind: u64,
    /// Turns that wait for their user, which no worker has to do with.
    pub suspended: u64,
    /// Age of the oldest of the backlog in ms.
    pub oldest_ms: u64,
    /// How many partitions could not be looked at because their node of a cluster is away.
    pub missing: usize,
    /// Turns that are queued or run, by the pool whose workers take them.
    pub pools: BTreeMap<String, u64>,
    /// Those of them that only workers with a storage take, by pool and storage.
    pub storages: BTreeMap<(String, StorageId), u64>,
    /// Live turns, oldest first, as many as were asked for.
    pub turns: Vec<RunningTurn>,
}

/// A live turn.
#[derive(Debug, Clone)]
pub struct RunningTurn {
    /// The turn.
    pub turn: String,
    /// Its task.
    pub task: String,
    /// Its agent.
    pub agent: String,
    /// The worker that holds it; none while it waits.
    pub worker: Option<String>,
    /// The storage whose workers it waits for, if it does.
    pub storage: Option<StorageId>,
    /// Whether it waits for its user.
    pub suspended: bool,
    /// Age since it was accepted, in ms.
    pub age_ms: u64,
    /// Which attempt.
    pub attempt: u32,
}

/// The queues of one pool, or storage, in a partition.
const QUEUES: usize = 3;

impl Overview {
    /// What [`Store::look_at_queues`] found; how many turns are there.
    fn count_queues(&mut self, answers: &[Option<Value>]) -> u64 {
        let before = self.backlog;
        for pair in answers.chunks_exact(2) {
            if let [Some(length), Some(oldest)] = pair {
                self.count(length, accepted_ms(oldest));
            }
        }
        self.backlog - before
    }

    fn count(&mut self, turns: &Value, oldest: Option<u64>) {
        if let Value::Int(turns) = turns {
            self.backlog += u64::try_from(*turns).unwrap_or(0);
        }
        if let Some(since) = oldest {
            self.oldest_ms = self.oldest_ms.max(self.now.saturating_sub(since));
        }
    }
}

impl Store {
    /// Counts what waits and runs in the queues of `pools`, and what waits behind that, as far as the nodes answer.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn overview(&self, pools: &[String]) -> Result<Overview, StoreError> {
        let partitions: Vec<Partition> = self.keys().layout().all().collect();
        let mut commands = vec![(At::Any, command("TIME"))];
        for partition in partitions.iter().copied() {
            let behind = self.keys().all_waiting(partition);
            let mut count = command("ZCARD");
            count.arg(&behind);
            let mut oldest = command("ZRANGE");
            oldest.arg(&behind).arg(0).arg(0);
            let mut suspended = command("ZCARD");
            suspended.arg(self.keys().suspended(partition));
            let mut storages = command("ZRANGE");
            storages.arg(self.keys().storages(partition)).arg(0).arg(-1);
            for command in [count, oldest, suspended, storages] {
                commands.push((At::Partition(partition), command));
            }
        }
        for partition in partitions.iter().copied() {
            for pool in pools {
                self.look_at_queues(partition, pool, &mut commands);
            }
        }
        let mut answers = self.answered("XLEN", Via::Exclusive, commands).await?.into_iter();
        let mut overview = Overview {
            now: answers.next().flatten().and_then(time_ms).unwrap_or(0),
            ..Overview::default()
        };
        let facts = partitions.len() * 4;
        let (behind, queued) = answers.as_slice().split_at_checked(facts).unwrap_or_default();
        let mut storages = Vec::new();
        for (counts, partition) in behind.chunks_exact(4).zip(partitions) {
            let [
                Some(count),
                Some(Value::Array(oldest)),
                Some(Value::Int(suspended)),
                Some(Value::Array(takers)),
            ] = counts
            else {
                overview.missing += 1;
                continue;
            };
            overview.count(count, oldest.first().and_then(turn_ms));
            overview.suspended += u64::try_from(*suspended).unwrap_or(0);
            storages.extend(takers.iter().filter_map(text).map(|takers| (partition, takers)));
        }
        overview.behind = overview.backlog;
        for (answers, pool) in queued.chunks_exact(QUEUES * 2).zip(pools.iter().cycle()) {
            let turns = overview.count_queues(answers);
            *overview.pools.entry(pool.clone()).or_default() += turns;
        }
        self.count_storages(&mut overview, pools, &storages).await?;
        Ok(overview)
    }

    /// Adds the turns that only workers with a storage take.
    async fn count_storages(
        &self,
        overview: &mut Overview,
        pools: &[String],
        found: &[(Partition, String)],
    ) -> Result<(), StoreError> {
        let (mut commands, mut looked_at) = (Vec::new(), Vec::new());
        for (partition, takers) in found {
            if let (pool, Some(storage)) = pool_and_storage(takers)
                && pools.iter().any(|known| known == pool)
            {
                self.look_at_queues(*partition, takers, &mut commands);
                looked_at.push((pool.to_owned(), storage));
            }
        }
        if commands.is_empty() {
            return Ok(());
        }
        let answers = self.answered("XLEN", Via::Exclusive, commands).await?;
        for (answers, (pool, storage)) in answers.chunks_exact(QUEUES * 2).zip(looked_at) {
            let turns = overview.count_queues(answers);
            *overview.pools.entry(pool.clone()).or_default() += turns;
            *overview.storages.entry((pool, storage)).or_default() += turns;
        }
        Ok(())
    }

    /// Asks for the length and the first entry of each queue of these takers.
    fn look_at_queues(&self, partition: Partition, takers: &str, commands: &mut Vec<(At, Cmd)>) {
        for suffix in ["", ":first", ":last"] {
            let queue = self.keys().queue(partition, takers, suffix);
            let mut length = command("XLEN");
            length.arg(&queue);
            let mut oldest = command("XRANGE");
            oldest.arg(&queue).arg("-").arg("+").arg("COUNT").arg(1);
            commands.push((At::Partition(partition), length));
            commands.push((At::Partition(partition), oldest));
        }
    }

    /// The same with the live turns themselves, oldest first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn overview_with_turns(&self, pools: &[String], limit: usize) -> Result<Overview, StoreError> {
        let mut overview = self.overview(pools).await?;
        for partition in self.keys().layout().all().filter(|partition| !self.is_away(*partition)) {
            for context in self.live_contexts(partition).await? {
                let view = self.read_context(partition, &context).await?;
                let Some(live) = view.live else { continue };
                overview.turns.push(RunningTurn {
                    turn: live.record.turn.to_string(),
                    task: live.record.task.to_string(),
                    agent: live.record.agent.clone(),
                    worker: live.token.as_ref().map(|_| live.worker.clone()),
                    age_ms: view.now.saturating_sub(live.record.submitted),
                    suspended: live.suspended.is_some(),
                    storage: live.waits_for().and_then(|takers| pool_and_storage(takers).1),
                    attempt: attempt(&live),
                });
            }
        }
        overview
            .turns
            .sort_unstable_by_key(|turn| std::cmp::Reverse(turn.age_ms));
        overview.turns.truncate(limit);
        Ok(overview)
    }

    /// Contexts with a live turn.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn live_contexts(&self, partition: Partition) -> Result<Vec<ContextKey>, StoreError> {
        let mut range = command("ZRANGE");
        range.arg(self.keys().due(partition)).arg(0).arg(-1);
        let Value::Array(values) = self.one("ZRANGE", At::Partition(partition), &range).await? else {
            return Err(StoreError::corrupt("due", "not a list"));
        };
        Ok(values.iter().filter_map(text).map(ContextKey::from_text).collect())
    }

    /// Redis ms.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn now(&self) -> Result<u64, StoreError> {
        let value = self.one("TIME", At::Any, &command("TIME")).await?;
        time_ms(value).ok_or_else(|| StoreError::corrupt("TIME", "not a time"))
    }
}

/// The attempt that runs, or ran last.
fn attempt(live: &LiveTurn) -> u32 {
    let opened = live.tries.opened.saturating_sub(1);
    live.record.attempt(Tries { opened, ..live.tries })
}

/// Reads the reply of TIME.
pub(super) fn time_ms(value: Value) -> Option<u64> {
    let Value::Array(parts) = value else { return None };
    let seconds: u64 = text(parts.first()?)?.parse().ok()?;
    let micros: u64 = text(parts.get(1)?)?.parse().ok()?;
    Some(seconds * 1_000 + micros / 1_000)
}

/// When the turn of the first entry of a queue was accepted: a turn that was queued again is as old as it is.
fn accepted_ms(value: &Value) -> Option<u64> {
    let Value::Array(rows) = value else { return None };
    let Value::Array(row) = rows.first()? else { return None };
    let Value::Array(fields) = row.get(1)? else { return None };
    let mut pairs = fields.chunks_exact(2);
    pairs.find_map(|pair| match pair {
        [name, turn] if text(name).as_deref() == Some("t") => turn_ms(turn),
        _ => None,
    })
}

fn turn_ms(turn: &Value) -> Option<u64> {
    Some(TurnId::parse(&text(turn)?)?.ms())
}
