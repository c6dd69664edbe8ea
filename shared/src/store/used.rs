//! What the tasks of a principal have in the artifact store, counted in one place per principal. A task's bytes are set, not added to, by
//! the run that is about to write them: repeated or begun anew, a run counts once.

use super::script::{Args, Name};
use super::{Store, StoreError};
use crate::ids::{Epoch, OwnerKey, TaskId};

/// What the objects of a task are counted as.
#[derive(Debug, Clone, Copy)]
pub struct Use<'a> {
    /// For whom.
    pub owner: &'a OwnerKey,
    /// Whose they are.
    pub task: TaskId,
    /// How many bytes they have from now on.
    pub bytes: u64,
    /// The most that all tasks of the principal may have.
    pub most: u64,
    /// Of the run that says so.
    pub epoch: Epoch,
}

/// Whether a principal may have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Used {
    /// It is counted; what all its tasks have now.
    Counted(u64),
    /// It would be more than the principal may have. Nothing has changed; what all its tasks have.
    Over(u64),
    /// A later run counts for the task. Nothing has changed.
    Late,
}

impl Store {
    /// Counts what a task is about to have, unless that is more than its principal may have. What a task has already is never
    /// refused. Safe to send twice.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn use_bytes(&self, wanted: &Use<'_>) -> Result<Used, StoreError> {
        let mut args = Args::new();
        args.push("use")
            .push(wanted.owner.as_str())
            .push(wanted.task.to_string())
            .number(wanted.bytes)
            .number(wanted.most)
            .number(wanted.epoch.0);
        let home = wanted.owner.partition(self.partitions());
        let mut reply = self.run(Name::Used, home, &args).await?;
        match reply.tag.as_str() {
            "USED" => Ok(Used::Counted(reply.parsed()?)),
            "OVER" => Ok(Used::Over(reply.parsed()?)),
            "LATE" => Ok(Used::Late),
            _ => Err(reply.unknown()),
        }
    }

    /// Nothing of a task is counted any more. Safe to send twice. Returns what the other tasks of the principal have.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn free_bytes(&self, owner: &OwnerKey, task: TaskId) -> Result<u64, StoreError> {
        let mut args = Args::new();
        args.push("free").push(owner.as_str()).push(task.to_string());
        let home = owner.partition(self.partitions());
        let mut reply = self.run(Name::Used, home, &args).await?;
        match reply.tag.as_str() {
            "FREED" => reply.parsed(),
            _ => Err(reply.unknown()),
        }
    }
}
