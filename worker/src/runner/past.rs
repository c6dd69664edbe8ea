//! What was before a turn: the task as it stood and the messages so far. Read only by agents that ask.

use std::sync::Arc;

use a2a::{Message, Task};
use relevo_shared::store::{HistoryLength, Store, StoreError, Taken};

use super::draft::at_turn_start;

/// Where the past of a turn is read from.
#[derive(Clone)]
pub(crate) struct Past {
    store: Store,
    taken: Arc<Taken>,
}

impl std::fmt::Debug for Past {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Past")
    }
}

impl Past {
    pub(crate) fn new(store: Store, taken: Arc<Taken>) -> Self {
        Self { store, taken }
    }

    /// The task without history, and the messages before the turn's own.
    pub(crate) async fn load(&self) -> Result<(Task, Vec<Message>), StoreError> {
        let record = &self.taken.record;
        let mut start = at_turn_start(&self.taken);
        // What an earlier attempt of this turn said is void: only what is stored of earlier turns counts.
        start.messages.clear();
        let task = start.into_task(record.task.to_string(), record.context_id.clone(), Vec::new());
        if record.new_task {
            return Ok((task, Vec::new()));
        }
        let stored = self.store.read_task(record.task, HistoryLength::All).await?;
        let mut history = stored.map(|stored| stored.history).unwrap_or_default();
        // The turn's own is the last of that id: clients may use one again.
        let own = |message: &Message| message.message_id == record.message.message_id;
        if let Some(own) = history.iter().rposition(own) {
            history.remove(own);
        }
        Ok((task, history))
    }

    /// The length of the session at the turn's start, and what attempts of the turn have added to it.
    pub(crate) async fn attempts(&self) -> Result<(u64, Vec<Vec<u8>>), StoreError> {
        let taken = &self.taken;
        let record = &taken.record;
        self.store
            .read_session_of_attempts(taken.partition, &taken.context, &record.agent, record.turn)
            .await
    }

    /// The items of the agent's session as it was when the turn began.
    pub(crate) async fn session(&self) -> Result<Vec<Vec<u8>>, StoreError> {
        let taken = &self.taken;
        let record = &taken.record;
        self.store
            .read_session(taken.partition, &taken.context, &record.agent, record.turn)
            .await
    }
}
