//! The registry of workers: who was seen when, and which pools and storages they serve. For people; all that is decided from it is that a
//! turn waited long enough for a storage that nobody has.

use redis::Value;

use super::connection::{At, command};
use super::script::text;
use super::{Store, StoreError};
use crate::ids::{StorageId, WorkerId, pool_and_storage, takers};

/// A worker and when it was last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerSeen {
    /// Its name.
    pub worker: String,
    /// Redis ms.
    pub seen: u64,
}

/// What a worker takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Serves {
    /// Turns of these pools.
    pub pools: Vec<String>,
    /// Those among them whose workspace is there, too.
    pub storage: Option<StorageId>,
}

impl Serves {
    /// As [`takers`]: the pools, and the storage in each of them.
    pub fn takers(&self) -> Vec<String> {
        let plain = self.pools.iter().cloned();
        plain.chain(self.of_the_storage()).collect()
    }

    fn of_the_storage(&self) -> impl Iterator<Item = String> {
        let all = self.storage.iter();
        all.flat_map(|storage| self.pools.iter().map(|pool| takers(pool, Some(storage))))
    }
}

/// A worker and a pool that it serves, or a storage that it has in that pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Serving {
    /// The pool.
    pub pool: String,
    /// The storage.
    pub storage: Option<StorageId>,
    /// The worker's name.
    pub worker: String,
    /// Redis ms of when it last said so.
    pub seen: u64,
}

impl Serving {
    /// Whether it does at this time (Redis ms), as far as is known.
    pub fn is_live(&self, now: u64) -> bool {
        now.saturating_sub(self.seen) <= SILENT_MS
    }
}

/// A worker says every 2 s that it lives; one that was silent for longer than this may be gone.
pub const SILENT_MS: u64 = 10_000;

/// A worker that was silent for a day is forgotten.
const FORGET_MS: u64 = 86_400_000;

impl Store {
    /// Says that a worker lives, and what it serves.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn worker_seen(&self, worker: &WorkerId, what: &Serves, now: u64) -> Result<(), StoreError> {
        let mut add = command("ZADD");
        add.arg(self.keys().workers()).arg(now).arg(worker.as_str());
        let mut serve = command("ZADD");
        serve.arg(self.keys().serving());
        for takers in what.takers() {
            serve.arg(now).arg(serves(&takers, worker));
        }
        let mut all = vec![add, serve];
        if what.storage.is_some() {
            let mut have = command("ZADD");
            have.arg(self.keys().served());
            for takers in what.of_the_storage() {
                have.arg(now).arg(takers);
            }
            all.push(have);
        }
        for key in [self.keys().workers(), self.keys().serving(), self.keys().served()] {
            let mut forget = command("ZREMRANGEBYSCORE");
            forget.arg(key).arg("-inf").arg(now.saturating_sub(FORGET_MS));
            all.push(forget);
        }
        let all = all.into_iter().map(|command| (At::Bell, command)).collect();
        self.pipelined("ZADD", all).await.map(drop)
    }

    /// Says that a worker has left. When its storage was last there stays known.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn worker_left(&self, worker: &WorkerId, what: &Serves) -> Result<(), StoreError> {
        let mut remove = command("ZREM");
        remove.arg(self.keys().workers()).arg(worker.as_str());
        let mut serve = command("ZREM");
        serve.arg(self.keys().serving());
        for takers in what.takers() {
            serve.arg(serves(&takers, worker));
        }
        let both = vec![(At::Bell, remove), (At::Bell, serve)];
        self.pipelined("ZREM", both).await.map(drop)
    }

    /// Every worker that is remembered, once for each pool that it serves, and once more for its storage there.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn serving(&self) -> Result<Vec<Serving>, StoreError> {
        let read = self.with_scores("serving", self.keys().serving()).await?;
        let serving = |(member, seen): (String, u64)| {
            let (takers, worker) = member.split_once(' ')?;
            let (pool, storage) = pool_and_storage(takers);
            Some(Serving {
                pool: pool.to_owned(),
                storage,
                worker: worker.to_owned(),
                seen,
            })
        };
        Ok(read.into_iter().filter_map(serving).collect())
    }

    /// When a worker last said that it has this storage of a pool (as [`takers`]; Redis ms); 0: not within a day.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn storage_seen(&self, takers: &str) -> Result<u64, StoreError> {
        let mut score = command("ZSCORE");
        score.arg(self.keys().served()).arg(takers);
        let seen = self.one("ZSCORE", At::Bell, &score).await?;
        Ok(text(&seen).and_then(|seen| seen.parse().ok()).unwrap_or(0))
    }

    /// Every worker that is remembered.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn workers(&self) -> Result<Vec<WorkerSeen>, StoreError> {
        let read = self.with_scores("workers", self.keys().workers()).await?;
        Ok(read
            .into_iter()
            .map(|(worker, seen)| WorkerSeen { worker, seen })
            .collect())
    }

    async fn with_scores(&self, what: &'static str, key: String) -> Result<Vec<(String, u64)>, StoreError> {
        let mut range = command("ZRANGE");
        range.arg(key).arg(0).arg(-1).arg("WITHSCORES");
        let Value::Array(values) = self.one("ZRANGE", At::Bell, &range).await? else {
            return Err(StoreError::corrupt(what, "not a list"));
        };
        let pair = |pair: &[Value]| match pair {
            [member, score] => Some((text(member)?, text(score)?.parse().ok()?)),
            _ => None,
        };
        Ok(values.chunks(2).filter_map(pair).collect())
    }
}

/// Neither has spaces in its name.
fn serves(takers: &str, worker: &WorkerId) -> String {
    format!("{takers} {}", worker.as_str())
}
