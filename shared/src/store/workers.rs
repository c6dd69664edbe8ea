//! The registry of workers: who was seen when, and which pools they serve. For people; nothing is decided from it.

use redis::Value;

use super::connection::{At, command};
use super::script::text;
use super::{Store, StoreError};
use crate::ids::WorkerId;

/// A worker and when it was last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerSeen {
    /// Its name.
    pub worker: String,
    /// Redis ms.
    pub seen: u64,
}

/// A worker and a pool that it serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Serving {
    /// The pool.
    pub pool: String,
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
    /// Says that a worker lives and serves these pools.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn worker_seen(&self, worker: &WorkerId, pools: &[String], now: u64) -> Result<(), StoreError> {
        let mut add = command("ZADD");
        add.arg(self.keys().workers()).arg(now).arg(worker.as_str());
        let mut serve = command("ZADD");
        serve.arg(self.keys().serving());
        for pool in pools {
            serve.arg(now).arg(serves(pool, worker));
        }
        let mut all = vec![add, serve];
        for key in [self.keys().workers(), self.keys().serving()] {
            let mut forget = command("ZREMRANGEBYSCORE");
            forget.arg(key).arg("-inf").arg(now.saturating_sub(FORGET_MS));
            all.push(forget);
        }
        let all = all.into_iter().map(|command| (At::Bell, command)).collect();
        self.pipelined("ZADD", all).await.map(drop)
    }

    /// Says that a worker has left.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn worker_left(&self, worker: &WorkerId, pools: &[String]) -> Result<(), StoreError> {
        let mut remove = command("ZREM");
        remove.arg(self.keys().workers()).arg(worker.as_str());
        let mut serve = command("ZREM");
        serve.arg(self.keys().serving());
        for pool in pools {
            serve.arg(serves(pool, worker));
        }
        let both = vec![(At::Bell, remove), (At::Bell, serve)];
        self.pipelined("ZREM", both).await.map(drop)
    }

    /// Every worker that is remembered, once for each pool that it serves.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn serving(&self) -> Result<Vec<Serving>, StoreError> {
        let read = self.with_scores("serving", self.keys().serving()).await?;
        let serving = |(member, seen): (String, u64)| {
            let (pool, worker) = member.split_once(' ')?;
            Some(Serving {
                pool: pool.to_owned(),
                worker: worker.to_owned(),
                seen,
            })
        };
        Ok(read.into_iter().filter_map(serving).collect())
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
fn serves(pool: &str, worker: &WorkerId) -> String {
    format!("{pool} {}", worker.as_str())
}
