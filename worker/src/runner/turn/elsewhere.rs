//! What a turn has begun on servers of others: the next attempt finds it again, or, where there must be none, stops it.

use std::sync::Arc;

use relevo_shared::domain::event::Stopped;
use relevo_shared::store::SessionItems;

use super::{Attempt, TurnRun, unwritten};
use crate::agent::Agent;
use crate::runner::past::Past;

impl TurnRun {
    /// What of the session items of earlier attempts outlives them: written again in the very step that takes the others back.
    pub(super) async fn outlived(&mut self, past: &Past, agent: &dyn Agent) -> Result<Vec<Vec<u8>>, Attempt> {
        let Some(outlives) = agent.outliving().filter(|_| self.taken.tries.opened > 0) else {
            return Ok(Vec::new());
        };
        let (expect, mut items) = past.attempts().await.map_err(|error| unwritten(&error))?;
        items.retain(|item| outlives(item));
        if !items.is_empty() {
            let session = SessionItems {
                expect,
                items: items.clone(),
            };
            self.draft.set_session(session);
            if let Some(over) = self.flush().await {
                return Err(over);
            }
        }
        Ok(items)
    }

    /// Lets the agent stop what a crashed attempt has begun elsewhere. Nothing is written: what that attempt said stays.
    pub(super) async fn stop_elsewhere(&self, agent: &dyn Agent) -> Attempt {
        let past = Past::new(self.worker.store.clone(), Arc::clone(&self.taken));
        let mut items = match past.attempts().await {
            Ok((_length, items)) => items,
            Err(error) => return unwritten(&error),
        };
        items.retain(|item| agent.outliving().is_some_and(|outlives| outlives(item)));
        let stopping = agent.stop_elsewhere(Arc::new(self.taken.record.clone()), items);
        tokio::select! {
            stopped = tokio::time::timeout(agent.patience(), stopping) => {
                Attempt::Stopped(stopped.unwrap_or(Stopped::Abandoned))
            }
            () = self.authority_ends() => Attempt::Unsure,
        }
    }
}
