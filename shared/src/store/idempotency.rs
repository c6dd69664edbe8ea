//! Keyed sends: a reservation says which task, turn and context a key stands for. It lives in the partition of (scope, key), because a
//! send without a context must be found again by its key alone.

use redis::Value;

use super::connection::{At, command};
use super::script::{Args, Name, text};
use super::{Store, StoreError};
use crate::ids::{IdempotencyKey, Partition, ScopeKey, TaskId, TurnId};

/// What a key stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// The task.
    pub task: TaskId,
    /// The turn.
    pub turn: TurnId,
    /// The context.
    pub context_id: String,
}

/// What became of a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reserved {
    /// The key is this caller's.
    New,
    /// The same request was made before with these ids.
    Exists(Reservation),
    /// Another request was made with this key.
    Conflict,
}

impl Store {
    /// Where a key lives.
    pub fn place_key(&self, scope: &ScopeKey, key: &str) -> (IdempotencyKey, Partition) {
        IdempotencyKey::of(scope, key, self.partitions())
    }

    /// Reserves a key for `wanted`, or returns what it stands for already. Safe to send twice: the repeat finds its own ids.
    ///
    /// # Errors
    /// [`StoreError`]; after `Unavailable` the same call resolves it.
    pub async fn reserve(
        &self,
        key: &(IdempotencyKey, Partition),
        digest: &str,
        wanted: &Reservation,
        keep_ms: u64,
    ) -> Result<Reserved, StoreError> {
        let mut args = Args::new();
        args.push(key.0.as_str())
            .push(digest)
            .push(wanted.task.to_string())
            .push(wanted.turn.to_string())
            .push(&wanted.context_id)
            .number(keep_ms);
        let mut reply = self.run(Name::Reserve, key.1, &args).await?;
        match reply.tag.as_str() {
            "RESERVED" => Ok(Reserved::New),
            "CONFLICT" => Ok(Reserved::Conflict),
            "EXISTS" => {
                let _now: u64 = reply.parsed()?;
                let wrong = || StoreError::corrupt("reservation", "an id is not readable");
                let task = TaskId::parse(&reply.text()?).ok_or_else(wrong)?;
                let turn = TurnId::parse(&reply.text()?).ok_or_else(wrong)?;
                Ok(Reserved::Exists(Reservation {
                    task,
                    turn,
                    context_id: reply.text()?,
                }))
            }
            _ => Err(reply.unknown()),
        }
    }

    /// Whether a turn was accepted under a key and is remembered.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn has_accepted(&self, (key, partition): &(IdempotencyKey, Partition)) -> Result<bool, StoreError> {
        let mut reserved = command("HGET");
        reserved.arg(self.keys().idempotency(*partition, key)).arg("turn");
        let reserved = self.one("HGET", At::Partition(*partition), &reserved).await?;
        let Some(turn) = text(&reserved).and_then(|turn| TurnId::parse(&turn)) else {
            return Ok(false);
        };
        let mut exists = command("EXISTS");
        exists.arg(self.keys().turn(turn));
        let at = At::Partition(turn.partition());
        Ok(self.one("EXISTS", at, &exists).await? == Value::Int(1))
    }
}
