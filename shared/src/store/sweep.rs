//! The janitor's look at a partition.

use super::connection::{At, Via, command};
use super::overview::time_ms;
use super::script::{Args, Name, text};
use super::{Store, StoreError};
use crate::ids::{ContextKey, Partition};

/// What a look found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Swept {
    /// Redis ms.
    pub now: u64,
    /// Redis ms before which no lease is judged.
    pub grace: u64,
    /// Whether another server answers than at the look before.
    pub restarted: bool,
    /// Contexts whose time has come.
    pub due: Vec<ContextKey>,
    /// Members of `retain` whose time has come.
    pub expired: Vec<String>,
    /// Who has undelivered turns to take: pools, and storages of pools.
    pub waiting: Vec<String>,
}

/// A partition that was swept this recently is left alone, in ms. Shorter than the pass of a second, so that jitter loses no turn.
const FRESH_MS: u64 = 900;

/// A consumer of the queues that was silent for a day and holds nothing belongs to a worker that has left.
const SILENT_MS: u64 = 86_400_000;

/// How long something that cannot be judged or deleted stands back, in ms.
const PUT_OFF_MS: u64 = 60_000;

impl Store {
    /// The partitions that nobody has looked at within the second: one cheap request per node. Those of a node of a cluster that is
    /// away are left out.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn unswept(&self) -> Result<Vec<Partition>, StoreError> {
        let partitions: Vec<Partition> = self.keys().layout().all().collect();
        let mut commands = Vec::with_capacity(partitions.len() + 1);
        commands.push((At::Any, command("TIME")));
        for partition in &partitions {
            let mut swept = command("HGET");
            swept.arg(self.keys().meta(*partition)).arg("swept");
            commands.push((At::Partition(*partition), swept));
        }
        let mut answers = self.answered("HGET", Via::Lane, commands).await?.into_iter();
        let now = answers.next().flatten().and_then(time_ms).unwrap_or(0);
        let stale = |answer: &redis::Value| {
            text(answer)
                .and_then(|t| t.parse().ok())
                // A stamp from the future is of a clock that was put back.
                .is_none_or(|at: u64| at > now || now - at >= FRESH_MS)
        };
        Ok(partitions
            .into_iter()
            .zip(answers)
            .filter(|(_, answer)| answer.as_ref().is_some_and(stale))
            .map(|(p, _)| p)
            .collect())
    }

    /// Looks at a partition; `None` when another process did within the second. `go_on`: whoever looked goes on, because its
    /// batch came back full.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn sweep(
        &self,
        partition: Partition,
        ttl_ms: u64,
        limit: usize,
        go_on: bool,
        pools: &[String],
    ) -> Result<Option<Swept>, StoreError> {
        let mut args = Args::new();
        args.number(ttl_ms).number(limit as u64).number(SILENT_MS).flag(go_on);
        for pool in pools {
            args.push(pool);
        }
        let mut reply = self.run(Name::Sweep, partition, &args).await?;
        match reply.tag.as_str() {
            "SKIP" => Ok(None),
            "SWEPT" => Ok(Some(Swept {
                now: reply.parsed()?,
                grace: reply.parsed()?,
                restarted: reply.flag()?,
                due: reply.texts()?.into_iter().map(ContextKey::from_text).collect(),
                expired: reply.texts()?,
                waiting: reply.texts()?,
            })),
            _ => Err(reply.unknown()),
        }
    }

    /// Puts off a context that nobody can judge, unless somebody could since.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn put_off_context(&self, partition: Partition, context: &ContextKey) -> Result<(), StoreError> {
        self.put_off(partition, "due", context.as_str()).await
    }

    /// Puts off a member of `retain` that nobody can delete, unless somebody could since.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn put_off_member(&self, partition: Partition, member: &str) -> Result<(), StoreError> {
        self.put_off(partition, "retain", member).await
    }

    async fn put_off(&self, partition: Partition, index: &str, member: &str) -> Result<(), StoreError> {
        let mut args = Args::new();
        args.push(index).push(member).number(PUT_OFF_MS);
        let reply = self.run(Name::PutOff, partition, &args).await?;
        match reply.tag.as_str() {
            "OK" | "KEPT" => Ok(()),
            _ => Err(reply.unknown()),
        }
    }
}
