//! The bell: which partitions hold undelivered turns. A hint, rung by commands of its own; the janitor rings again what was lost.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value};

use super::connection::{At, Via, command, unserved};
use super::script::{Args, Name, text};
use super::{Store, StoreError};
use crate::ids::Partition;

impl Store {
    /// Says that a partition holds an undelivered turn. `now` is Redis ms: the oldest is answered first.
    ///
    /// # Errors
    /// [`StoreError`]; callers may ignore it, the janitor rings within a second.
    pub async fn ring(&self, takers: &str, partition: Partition, now: u64) -> Result<(), StoreError> {
        self.ring_all(takers, &[(partition, now)]).await
    }

    /// The same for several partitions, each with its own time.
    ///
    /// # Errors
    /// [`StoreError`]; callers may ignore it, the janitor rings within a second.
    pub async fn ring_all(&self, takers: &str, partitions: &[(Partition, u64)]) -> Result<(), StoreError> {
        // Bells are hints: nobody waits for a node that is away.
        if self.is_clustered() && self.link().node(At::Bell).is_ok_and(|node| node.is_away()) {
            return Err(StoreError::Unavailable(unserved()));
        }
        let bell = self.keys().bell(takers);
        if takers.contains('@') {
            return self.ring_by_script(&bell, partitions).await;
        }
        let mut ring = command("ZADD");
        ring.arg(&bell).arg("NX");
        for (partition, since) in partitions {
            ring.arg(since).arg(partition.0);
        }
        match self.one("ZADD", At::Bell, &ring).await {
            // A full Redis refuses the plain command, but accepted turns must go on: they are what frees memory.
            Err(error) if error.is_full() => self.ring_by_script(&bell, partitions).await,
            answer => answer.map(drop),
        }
    }

    async fn ring_by_script(&self, bell: &str, partitions: &[(Partition, u64)]) -> Result<(), StoreError> {
        let mut args = Args::new();
        for (partition, since) in partitions {
            args.number(*since).number(u64::from(partition.0));
        }
        let rung = self.run_on(Name::Ring, At::Bell, bell, &args).await?;
        if rung.tag == "RUNG" {
            Ok(())
        } else {
            Err(rung.unknown())
        }
    }

    /// Takes the partition that waits longest, without waiting.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn answer_bell(&self, takers: &str) -> Result<Option<Partition>, StoreError> {
        let mut pop = command("ZPOPMIN");
        pop.arg(self.keys().bell(takers));
        let value = self.one("ZPOPMIN", At::Bell, &pop).await?;
        Ok(member(&value, 0).filter(|p| p.0 < self.partitions()))
    }

    /// A waiter with a connection of its own.
    pub fn bell_waiter(&self) -> BellWaiter {
        BellWaiter {
            store: self.clone(),
            connection: None,
        }
    }

    /// The partitions that hold turns for these takers, waiting or running, as far as their nodes answer: what a worker goes by while
    /// the node of the bells is away.
    ///
    /// # Errors
    /// [`StoreError`] when no node answers.
    pub async fn without_bells(&self, pools: &[String]) -> Result<Vec<(String, Partition)>, StoreError> {
        let (mut asked, mut commands) = (Vec::new(), Vec::new());
        for partition in self.keys().layout().all() {
            for pool in pools {
                for suffix in ["", ":first", ":last"] {
                    let mut length = command("XLEN");
                    length.arg(self.keys().queue(partition, pool, suffix));
                    commands.push((At::Partition(partition), length));
                    asked.push((pool, partition));
                }
            }
        }
        let lengths = self.answered("XLEN", Via::Exclusive, commands).await?;
        let filled = |length: &Option<Value>| matches!(length, Some(Value::Int(1..)));
        let mut found: Vec<(String, Partition)> = asked
            .into_iter()
            .zip(lengths)
            .filter(|(_, length)| filled(length))
            .map(|((pool, partition), _)| (pool.clone(), partition))
            .collect();
        found.dedup();
        Ok(found)
    }
}

/// Waits for bells on a dedicated connection.
pub struct BellWaiter {
    store: Store,
    connection: Option<MultiplexedConnection>,
}

impl std::fmt::Debug for BellWaiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BellWaiter")
    }
}

impl BellWaiter {
    /// Waits up to `limit` for a partition of any of these takers; when several ring, of the first. A call that is given up may
    /// swallow a bell: the janitor rings again.
    ///
    /// # Errors
    /// [`StoreError`]; the connection is dropped then.
    pub async fn wait(&mut self, pools: &[String], limit: Duration) -> Result<Option<(String, Partition)>, StoreError> {
        let keys: Vec<String> = pools.iter().map(|pool| self.store.keys().bell(pool)).collect();
        let answer = self.wait_once(&keys, limit).await;
        if let Err(error) = &answer {
            self.connection = None;
            self.store.link().doubt(At::Bell, error).await;
        }
        let value = answer.map_err(|source| StoreError::from_redis("BZPOPMIN", source))?;
        let Some(partition) = member(&value, 1).filter(|p| p.0 < self.store.partitions()) else {
            return Ok(None);
        };
        let rung = text_at(&value, 0).and_then(|rung| keys.iter().position(|key| *key == rung));
        Ok(rung.and_then(|at| pools.get(at)).map(|pool| (pool.clone(), partition)))
    }

    async fn wait_once(&mut self, keys: &[String], limit: Duration) -> Result<Value, RedisError> {
        // Taken out while it waits: a wait that is given up must not leave its reply to the next one.
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.store.link().node(At::Bell)?.dedicated(limit).await?,
        };
        let mut pop = command("BZPOPMIN");
        pop.arg(keys).arg(limit.as_secs_f64());
        let value = connection.send_packed_command(&pop).await?.extract_error()?;
        self.connection = Some(connection);
        Ok(value)
    }
}

fn member(value: &Value, at: usize) -> Option<Partition> {
    text_at(value, at)?.parse().ok().map(Partition)
}

fn text_at(value: &Value, at: usize) -> Option<String> {
    let Value::Array(values) = value else { return None };
    text(values.get(at)?)
}
