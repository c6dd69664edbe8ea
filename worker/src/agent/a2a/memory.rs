//! What is remembered of a server in a context: the session items of its agent. Pure.
//!
//! One item per upstream task of a turn, written before the first event of that task is passed on. It survives the crash of an attempt,
//! so that the next one goes on with the task instead of beginning another.

use relevo_shared::domain::record::TurnRecord;
use serde::{Deserialize, Serialize};

/// An upstream task, and for whom it was begun or continued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Item {
    /// Our turn.
    turn: String,
    /// Our task.
    of: String,
    /// The server's task; none when it answered with a message alone.
    pub(super) task: Option<String>,
    /// The server's context.
    pub(super) context: Option<String>,
}

/// The session.
#[derive(Debug, Default)]
pub(super) struct Memory {
    items: Vec<Item>,
    length: u64,
}

impl Memory {
    /// What the session holds. What is no item of ours counts for its length only.
    pub(super) fn read(session: &[Vec<u8>]) -> Self {
        Self {
            items: session
                .iter()
                .filter_map(|item| serde_json::from_slice(item).ok())
                .collect(),
            length: session.len() as u64,
        }
    }

    /// The upstream task that an earlier attempt of the turn has got.
    pub(super) fn of_turn(&self, record: &TurnRecord) -> Option<&str> {
        let turn = record.turn.to_string();
        self.items.iter().rfind(|item| item.turn == turn)?.task.as_deref()
    }

    /// The upstream task that a further message of our task goes to.
    pub(super) fn of_task(&self, record: &TurnRecord) -> Option<&str> {
        let task = record.task.to_string();
        self.items.iter().rfind(|item| item.of == task)?.task.as_deref()
    }

    /// The upstream context of our context.
    pub(super) fn context(&self) -> Option<&str> {
        self.items.iter().rev().find_map(|item| item.context.as_deref())
    }

    /// Something to remember: the item as JSON, and how long the session must be before it; `None` when it is remembered already.
    pub(super) fn add(&mut self, record: &TurnRecord, task: Option<&str>, context: &str) -> Option<(Vec<u8>, u64)> {
        let item = Item {
            turn: record.turn.to_string(),
            of: record.task.to_string(),
            task: task.map(str::to_owned),
            context: Some(context.to_owned()).filter(|context| !context.is_empty()),
        };
        if self.items.last() == Some(&item) || (task.is_none() && self.context() == item.context.as_deref()) {
            return None;
        }
        let bytes = serde_json::to_vec(&item).unwrap_or_default();
        self.items.push(item);
        self.length += 1;
        Some((bytes, self.length - 1))
    }
}

/// Whether an item is one that outlives the attempt that wrote it.
pub(super) fn is_item(bytes: &[u8]) -> bool {
    serde_json::from_slice::<Item>(bytes).is_ok()
}
