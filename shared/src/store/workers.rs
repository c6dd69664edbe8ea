//! The registry of workers: who was seen when. For people; nothing is decided from it.

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

/// A worker that was silent for a day is forgotten.
const FORGET_MS: u64 = 86_400_000;

impl Store {
    /// Says that a worker lives.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn worker_seen(&self, worker: &WorkerId, now: u64) -> Result<(), StoreError> {
        let mut add = command("ZADD");
        add.arg(self.keys().workers()).arg(now).arg(worker.as_str());
        let mut forget = command("ZREMRANGEBYSCORE");
        forget
            .arg(self.keys().workers())
            .arg("-inf")
            .arg(now.saturating_sub(FORGET_MS));
        let both = vec![(At::Bell, add), (At::Bell, forget)];
        self.pipelined("ZADD", both).await.map(drop)
    }

    /// Says that a worker has left.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn worker_left(&self, worker: &WorkerId) -> Result<(), StoreError> {
        let mut remove = command("ZREM");
        remove.arg(self.keys().workers()).arg(worker.as_str());
        self.one("ZREM", At::Bell, &remove).await.map(drop)
    }

    /// Every worker that is remembered.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn workers(&self) -> Result<Vec<WorkerSeen>, StoreError> {
        let mut range = command("ZRANGE");
        range.arg(self.keys().workers()).arg(0).arg(-1).arg("WITHSCORES");
        let Value::Array(values) = self.one("ZRANGE", At::Bell, &range).await? else {
            return Err(StoreError::corrupt("workers", "not a list"));
        };
        let pair = |pair: &[Value]| match pair {
            [worker, seen] => Some(WorkerSeen {
                worker: text(worker)?,
                seen: text(seen)?.parse().ok()?,
            }),
            _ => None,
        };
        Ok(values.chunks(2).filter_map(pair).collect())
    }
}
