//! Retention: how long things are kept, and their deletion.

use super::script::{Args, Name};
use super::{Store, StoreError};
use crate::ids::Partition;

/// How long things are kept, in ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// A task after its end.
    pub task_ms: u64,
    /// A task that waits for its user.
    pub idle_ms: u64,
    /// A context without a turn.
    pub context_ms: u64,
    /// The journal of a task without a turn.
    pub journal_ms: u64,
    /// A task that never ran.
    pub refused_ms: u64,
    /// Most dead letters per partition.
    pub dead: u64,
}

impl Default for Keep {
    fn default() -> Self {
        let day = 86_400_000;
        Self {
            task_ms: day,
            idle_ms: 7 * day,
            context_ms: 7 * day,
            journal_ms: 3_600_000,
            refused_ms: 600_000,
            dead: 1_000,
        }
    }
}

impl Keep {
    pub(super) fn task_ms(&self, terminal: bool) -> u64 {
        if terminal { self.task_ms } else { self.idle_ms }
    }
}

impl Store {
    /// Deletes a member of `retain` whole, if its time has come and no turn is live. Says whether it did.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn purge(&self, partition: Partition, member: &str, keep: &Keep) -> Result<bool, StoreError> {
        let mut args = Args::new();
        args.push(self.publish()).push(member).number(keep.context_ms);
        let reply = self.run(Name::Purge, partition, &args).await?;
        match reply.tag.as_str() {
            "PURGED" => Ok(true),
            "KEPT" => Ok(false),
            _ => Err(reply.unknown()),
        }
    }
}
