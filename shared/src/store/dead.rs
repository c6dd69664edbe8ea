//! Dead letters: turns that nobody will run again, for an operator to look at and to send once more.

use redis::Value;

use super::connection::{At, command};
use super::script::text;
use super::{Store, StoreError};
use crate::domain::record::TurnRecord;
use crate::ids::{Partition, TurnId};

/// A dead letter.
#[derive(Debug, Clone)]
pub struct DeadTurn {
    /// When it was written (Redis ms).
    pub at: u64,
    /// Why it died.
    pub reason: String,
    /// The turn.
    pub record: TurnRecord,
}

impl Store {
    /// The latest dead letters of all partitions, newest first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn dead_turns(&self, limit: usize) -> Result<Vec<DeadTurn>, StoreError> {
        let partitions: Vec<Partition> = self.keys().layout().all().collect();
        let mut commands = Vec::with_capacity(partitions.len());
        for partition in &partitions {
            let mut range = command("XREVRANGE");
            range
                .arg(self.keys().dead(*partition))
                .arg("+")
                .arg("-")
                .arg("COUNT")
                .arg(limit);
            commands.push((At::Partition(*partition), range));
        }
        let answers = self.pipelined("XREVRANGE", commands).await?;
        let mut dead = Vec::new();
        for answer in answers {
            let Value::Array(rows) = answer else {
                return Err(StoreError::corrupt("dead letters", "not a list"));
            };
            for row in rows {
                dead.push(self.dead_letter(row)?);
            }
        }
        dead.sort_unstable_by_key(|turn| std::cmp::Reverse(turn.at));
        dead.truncate(limit);
        Ok(dead)
    }

    /// One dead letter.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn dead_turn(&self, turn: TurnId) -> Result<Option<DeadTurn>, StoreError> {
        if turn.partition().0 >= self.partitions() {
            return Ok(None);
        }
        let mut range = command("XREVRANGE");
        range.arg(self.keys().dead(turn.partition())).arg("+").arg("-");
        let answer = self.one("XREVRANGE", At::Partition(turn.partition()), &range).await?;
        let Value::Array(rows) = answer else {
            return Err(StoreError::corrupt("dead letters", "not a list"));
        };
        let all = rows
            .into_iter()
            .map(|row| self.dead_letter(row))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(all.into_iter().find(|dead| dead.record.turn == turn))
    }

    fn dead_letter(&self, row: Value) -> Result<DeadTurn, StoreError> {
        let wrong = || StoreError::corrupt("dead letter", "not readable");
        let Value::Array(row) = row else { return Err(wrong()) };
        let [id, Value::Array(fields)] = row.as_slice() else {
            return Err(wrong());
        };
        let at = text(id)
            .and_then(|id| id.split_once('-').and_then(|(ms, _)| ms.parse().ok()))
            .ok_or_else(wrong)?;
        let field = |name: &str| {
            fields.chunks(2).find_map(|pair| match pair {
                [key, value] if text(key).as_deref() == Some(name) => Some(value),
                _ => None,
            })
        };
        let reason = field("reason").and_then(text).ok_or_else(wrong)?;
        let Some(Value::BulkString(record)) = field("r") else {
            return Err(wrong());
        };
        Ok(DeadTurn {
            at,
            reason,
            record: self.read_record(record)?,
        })
    }
}
