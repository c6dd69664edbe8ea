//! Which tasks have objects in the artifact store. A task is noted before its first object is written, so that none is left behind;
//! the objects themselves are `crate::objects`.

use super::connection::{At, Via, command};
use super::overview::time_ms;
use super::script::{Args, Name, text};
use super::{Store, StoreError};
use crate::ids::{OwnerKey, Partition, TaskId};

/// A note is looked at again after this while its task is there, in ms. The end of the task brings it forward.
const LOOK_MS: u64 = 86_400_000;
/// How long whoever deletes the objects of a task has for it, in ms. Then somebody else may.
pub const CLAIM_MS: u64 = 120_000;

/// Tasks that are gone and whose objects are to be deleted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GoneTasks {
    /// What [`Store::objects_deleted`] wants to be told.
    pub claim: u64,
    /// The tasks, with the principal that the objects of each are counted for, if they are.
    pub tasks: Vec<(TaskId, Option<OwnerKey>)>,
}

impl Store {
    /// Notes that a task may have objects, before the first is written, and for whom they are counted, if they are. Safe to send
    /// twice.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn note_objects(&self, task: TaskId, owner: Option<&OwnerKey>) -> Result<(), StoreError> {
        let mut args = Args::new();
        args.push("note")
            .push(task.to_string())
            .number(LOOK_MS)
            .push(owner.map_or("", OwnerKey::as_str));
        let reply = self.run(Name::Objects, task.partition(), &args).await?;
        match reply.tag.as_str() {
            "NOTED" => Ok(()),
            _ => Err(reply.unknown()),
        }
    }

    /// The partitions with notes whose time has come: one cheap request per node. Those of a node of a cluster that is away are
    /// left out.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn noted_partitions(&self) -> Result<Vec<Partition>, StoreError> {
        let partitions: Vec<Partition> = self.keys().layout().all().collect();
        let mut commands = Vec::with_capacity(partitions.len() + 1);
        commands.push((At::Any, command("TIME")));
        for partition in &partitions {
            let mut first = command("ZRANGE");
            first
                .arg(self.keys().objects(*partition))
                .arg(0)
                .arg(0)
                .arg("WITHSCORES");
            commands.push((At::Partition(*partition), first));
        }
        let mut answers = self.answered("ZRANGE", Via::Lane, commands).await?.into_iter();
        let now = answers.next().flatten().and_then(time_ms).unwrap_or(u64::MAX);
        Ok(partitions
            .into_iter()
            .zip(answers)
            .filter(|(_, answer)| answer.as_ref().is_some_and(|answer| is_due(answer, now)))
            .map(|(partition, _)| partition)
            .collect())
    }

    /// Tasks of a partition that are gone and have a note. Nobody else is told of them for [`CLAIM_MS`].
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn gone_with_objects(&self, partition: Partition, limit: usize) -> Result<GoneTasks, StoreError> {
        let mut args = Args::new();
        args.push("gone").number(limit as u64).number(CLAIM_MS).number(LOOK_MS);
        let mut reply = self.run(Name::Objects, partition, &args).await?;
        match reply.tag.as_str() {
            "GONE" => {
                let (claim, tasks, owners) = (reply.parsed()?, reply.texts()?, reply.texts()?);
                let owner = |text: String| (!text.is_empty()).then(|| OwnerKey::from_text(text));
                let gone = tasks.iter().zip(owners);
                let gone = gone.filter_map(|(id, of)| Some((TaskId::parse(id)?, owner(of))));
                Ok(GoneTasks {
                    claim,
                    tasks: gone.collect(),
                })
            }
            _ => Err(reply.unknown()),
        }
    }

    /// The objects of a task are deleted. Says whether its note is, too: it stays when it was made anew since the claim.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn objects_deleted(&self, task: TaskId, claim: u64) -> Result<bool, StoreError> {
        let mut args = Args::new();
        args.push("done").push(task.to_string()).number(claim);
        let reply = self.run(Name::Objects, task.partition(), &args).await?;
        match reply.tag.as_str() {
            "DONE" => Ok(true),
            "KEPT" => Ok(false),
            _ => Err(reply.unknown()),
        }
    }
}

/// Whether the first member's time has come; one whose score cannot be read is looked at.
fn is_due(answer: &redis::Value, now: u64) -> bool {
    match answer {
        redis::Value::Array(items) => match items.as_slice() {
            [] => false,
            [_, score] => text(score)
                .and_then(|at| at.parse().ok())
                .is_none_or(|at: u64| at <= now),
            _ => true,
        },
        _ => false,
    }
}
