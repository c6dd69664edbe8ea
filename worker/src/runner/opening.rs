//! What comes before an agent is called: its message is read by the rules of its profile, and the context is tied to its workspace.
//!
//! A message that cannot be used ends the turn without damage: a new task is FAILED with the words, one that exists is again
//! what it was before, with the words as its status; a suspended turn that it answers is suspended again.

use std::sync::Arc;

use a2a::TaskState;
use relevo_shared::agents::Profile;
use relevo_shared::domain::event;
use relevo_shared::domain::event::TURN;
use relevo_shared::domain::reason::FailReason;
use relevo_shared::domain::record::TurnRecord;
use relevo_shared::ids::StorageId;
use relevo_shared::store::{Bound, Retry, Store, StoreError, Taken};
use serde_json::json;

use super::sink::Metadata;
use super::write::back_off;
use crate::agent::{CancelToken, Ending, Need, Outcome};
use crate::input::{self, Prompt, Roots, Unusable};

const ELSEWHERE: Unusable = Unusable::new("A2A context belongs to a different workspace");

/// What is needed for it.
pub(super) struct Opening {
    pub(super) store: Store,
    pub(super) taken: Arc<Taken>,
    pub(super) record: Arc<TurnRecord>,
    pub(super) roots: Arc<Roots>,
    pub(super) storage: Option<StorageId>,
}

impl Opening {
    /// The prompt, if the profile makes one; or how the turn ends instead.
    pub(super) async fn prompt(self, profile: Arc<Profile>, cancel: &CancelToken) -> Result<Option<Prompt>, Outcome> {
        let prompt = match input::read(profile, Arc::clone(&self.record), Arc::clone(&self.roots)).await {
            None => return Ok(None),
            Some(Ok(prompt)) => prompt,
            Some(Err(unusable)) => return Err(self.refuse(unusable)),
        };
        match self.bind(&prompt, cancel).await {
            Some(Ok(Bound::Here)) => Ok(Some(prompt)),
            Some(Ok(Bound::Elsewhere)) => Err(self.refuse(ELSEWHERE)),
            Some(Err(error)) => Err(Outcome::Crashed(error.to_string())),
            // The turn is someone else's, or must stop: what is returned then is read by nobody.
            Some(Ok(Bound::Fenced)) | None => Err(Outcome::Failed(FailReason::AgentError, "stopped".to_owned())),
        }
    }

    /// Asks until Redis answers, or the turn must stop.
    async fn bind(&self, prompt: &Prompt, cancel: &CancelToken) -> Option<Result<Bound, StoreError>> {
        let workspace = prompt.workspace.as_os_str().as_encoded_bytes();
        let mut tries = 0;
        loop {
            let storage = self.storage.as_ref();
            match self.store.bind_workspace(&self.taken, workspace, storage).await {
                Err(error) if error.retry() == Retry::Later => {
                    tokio::select! {
                        () = back_off(tries) => tries += 1,
                        _ = cancel.canceled() => return None,
                    }
                }
                answer => return Some(answer),
            }
        }
    }

    fn refuse(&self, Unusable { words, why }: Unusable) -> Outcome {
        tracing::info!(why, "the message cannot be used");
        let record = &self.taken.record;
        let before = self.taken.base.as_ref().map(|base| &base.status.state);
        let ending = match before {
            None => Ending::Failed,
            Some(TaskState::AuthRequired) => Ending::AuthRequired,
            Some(_) => Ending::InputRequired,
        };
        let message = event::agent_message(record, "refusal", words);
        let facts = json!({ "reason": FailReason::InvalidMessage.as_str() });
        let metadata = Metadata::from([(TURN.to_owned(), facts)]);
        let (message, metadata) = (Some(message), Some(metadata));
        match (record.answers(), before) {
            (0, _) | (_, None) => Outcome::Ended(ending, message, metadata),
            // An answer that cannot be used is none.
            (_, Some(TaskState::AuthRequired)) => Outcome::Suspended(Need::Credentials, message, metadata),
            (_, Some(_)) => Outcome::Suspended(Need::Input, message, metadata),
        }
    }
}
