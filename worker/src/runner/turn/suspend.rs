//! How a turn leaves this worker to wait for its user: what was said stays, nobody holds it, and its answer brings it to any worker.

use a2a::Message;
use relevo_shared::domain::event::{TURN, suspended_facts};
use relevo_shared::domain::reason::FailReason;
use relevo_shared::domain::state::End;
use relevo_shared::ids::Nonce;
use relevo_shared::janitor::Why;
use relevo_shared::platform::entropy;
use relevo_shared::store::EmitReply;

use super::super::draft::Close;
use super::super::sink::Metadata;
use super::super::write;
use super::{LOST, TurnRun, unwritten};
use crate::agent::Need;

impl TurnRun {
    /// Suspends the turn; returns the metric label.
    pub(super) async fn suspend(
        &mut self,
        need: Need,
        message: Option<Message>,
        metadata: Option<Metadata>,
    ) -> &'static str {
        let end = match need {
            Need::Input => End::InputRequired,
            Need::Credentials => End::AuthRequired,
        };
        let mut metadata = metadata.unwrap_or_default();
        metadata.insert(TURN.to_owned(), suspended_facts());
        let close = Close {
            message,
            metadata: Some(metadata),
            ..Close::plain(end)
        };
        let now = self.worker.stamp(&self.taken);
        let prev = self.draft.position();
        let nonce = Nonce(entropy::u64());
        let batch = match self.draft.ending(&self.taken.record, nonce, close, now) {
            Ok(batch) => batch,
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the suspension of a turn cannot be folded"
                );
                return self.give_back(Why::Crash).await;
            }
        };
        let longest = self.worker.settings.max_suspended;
        match write::suspend(&self.worker.store, &self.taken, batch, prev, longest).await {
            Ok(EmitReply::Done { now, .. }) => {
                self.worker.clock.learn(now);
                "suspended"
            }
            Ok(EmitReply::Canceled) => {
                // The cancel came before: the order of the two scripts decides.
                self.draft.drop_waiting();
                self.end(Close::plain(End::Canceled)).await
            }
            Ok(EmitReply::Diverged) => self.give_back(Why::HandOver(FailReason::RedisUnavailable)).await,
            Ok(refused) => {
                self.refused("suspend", &refused);
                self.worker.metrics.leases_lost.inc();
                LOST
            }
            Err(error) => Box::pin(self.settle(unwritten(&error))).await,
        }
    }
}
