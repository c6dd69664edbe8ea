//! How a turn leaves this worker: its end is written, it is given back, or it waits for its user ([`super::suspend`]).

use a2a::{Artifact, Message, TaskState};
use relevo_shared::agents::{GoodEnd, Profile};
use relevo_shared::domain::class::Class;
use relevo_shared::domain::event::{self, TURN, direct_facts};
use relevo_shared::domain::reason::FailReason;
use relevo_shared::domain::record::CrashPolicy;
use relevo_shared::domain::state::End;
use relevo_shared::ids::Nonce;
use relevo_shared::janitor::{GivenBack, Why, give_back};
use relevo_shared::platform::shutdown::Phase;
use relevo_shared::platform::{clock, entropy};
use relevo_shared::store::{EmitReply, Retry};
use serde_json::Value;

use super::super::draft::Close;
use super::super::sink::{Metadata, Output};
use super::super::write;
use super::{Attempt, LOST, TurnRun, unwritten};
use crate::agent::{Ending, Outcome};

/// What [`TurnRun::end`] says when an answer without a task was not taken; never a label.
const SEEN: &str = "";

impl TurnRun {
    /// Carries out what the attempt led to; returns the metric label.
    pub(super) async fn settle(&mut self, attempt: Attempt) -> &'static str {
        match attempt {
            Attempt::Returned(Outcome::Ended(ending, message, metadata)) => {
                let (mut message, metadata) = self.projected(message, metadata);
                let stowed = match self.stow_message(message.as_mut()).await {
                    Ok(stowed) => stowed,
                    Err(over) => return Box::pin(self.settle(over)).await,
                };
                // What is in the artifact store belongs to a task.
                if ending == Ending::Direct
                    && !stowed
                    && message.is_some()
                    && self.is_unseen()
                    && let Some(label) = self.answer(message.clone(), metadata.clone()).await
                {
                    return label;
                }
                if let Some(over) = self.answer_as_artifact(ending, message.as_ref()).await {
                    return Box::pin(self.settle(over)).await;
                }
                match self.last_words(message, metadata.as_ref()).await {
                    Ok(message) => {
                        let close = Close {
                            message,
                            metadata,
                            ..Close::plain(self.end_of(ending))
                        };
                        self.end(close).await
                    }
                    Err(over) => Box::pin(self.settle(over)).await,
                }
            }
            Attempt::Returned(Outcome::Suspended(need, message, metadata)) => {
                let (mut message, metadata) = self.projected(message, metadata);
                if let Err(over) = self.stow_message(message.as_mut()).await {
                    return Box::pin(self.settle(over)).await;
                }
                match self.last_words(message, metadata.as_ref()).await {
                    Ok(message) => self.suspend(need, message, metadata).await,
                    Err(over) => Box::pin(self.settle(over)).await,
                }
            }
            Attempt::Returned(Outcome::Failed(reason, text)) => {
                let record = &self.taken.record;
                tracing::warn!(
                    task.id = %record.task, turn.id = %record.turn, agent.name = record.agent,
                    reason = reason.as_str(), text, "the agent failed"
                );
                self.end(Close::failed(reason)).await
            }
            Attempt::Returned(Outcome::Crashed(text)) => {
                let record = &self.taken.record;
                tracing::warn!(
                    task.id = %record.task, turn.id = %record.turn, agent.name = record.agent,
                    text, "the agent is gone in the middle of the turn"
                );
                match self.taken.record.policy {
                    CrashPolicy::Fail => self.end(Close::failed(FailReason::AgentExited)).await,
                    CrashPolicy::Restart => self.give_back(Why::Crash).await,
                }
            }
            Attempt::Refused(reason, text) => self.not_taken(reason, &text).await,
            Attempt::OverLimit => self.cut_off(FailReason::OutputLimit).await,
            Attempt::Overdue => self.cut_off(FailReason::DeadlineExceeded).await,
            Attempt::Canceled => {
                self.draft.drop_waiting();
                let close = Close {
                    metadata: self.stopped.take(),
                    ..Close::plain(End::Canceled)
                };
                self.end(close).await
            }
            Attempt::Lost => {
                self.worker.metrics.leases_lost.inc();
                LOST
            }
            Attempt::Crashed => self.give_back(Why::Crash).await,
            Attempt::Stopped(stopped) => self.give_back(Why::Stopped(stopped)).await,
            Attempt::Unsure | Attempt::Diverged => self.give_back(Why::HandOver(FailReason::RedisUnavailable)).await,
            Attempt::NoArtifacts => self.give_back(Why::HandOver(FailReason::ArtifactsUnavailable)).await,
            Attempt::Unknown => {
                let record = &self.taken.record;
                tracing::warn!(
                    task.id = %record.task, turn.id = %record.turn, agent.name = record.agent,
                    "the agent is not configured on this worker: its turn is given back for one that knows it"
                );
                self.give_back(Why::HandOver(FailReason::AgentError)).await
            }
            Attempt::Draining => {
                // What the agent said before it was stopped is worth keeping for a turn that ends here.
                let _written = self.flush().await;
                self.give_back(Why::HandOver(FailReason::WorkerDrained)).await
            }
        }
    }

    /// FAILED, with the words that say why nothing more is taken.
    async fn not_taken(&mut self, reason: FailReason, text: &str) -> &'static str {
        let record = &self.taken.record;
        tracing::warn!(
            task.id = %record.task, turn.id = %record.turn, agent.name = record.agent,
            reason = reason.as_str(), text, "what the agent produced is not taken"
        );
        let message = event::agent_message(record, "failure", text);
        self.end(Close {
            message: Some(message),
            ..Close::failed(reason)
        })
        .await
    }

    /// FAILED, with what the agent says about how it stopped.
    async fn cut_off(&mut self, reason: FailReason) -> &'static str {
        let close = Close {
            metadata: self.stopped.take(),
            ..Close::failed(reason)
        };
        self.end(close).await
    }

    /// The last words as clients may see them. A message without parts is none.
    fn projected(
        &mut self,
        message: Option<Message>,
        mut metadata: Option<Metadata>,
    ) -> (Option<Message>, Option<Metadata>) {
        let mut message = message.filter(|message| !message.parts.is_empty());
        if let Some(projection) = &mut self.projection {
            projection.last(message.as_mut(), &mut metadata);
        }
        (message, metadata)
    }

    /// How an ending of the agent ends the turn: what a good one is, its profile says.
    fn end_of(&self, ending: Ending) -> End {
        match ending {
            Ending::Completed | Ending::Direct => match self.profile().map(|profile| profile.good_end) {
                Some(GoodEnd::InputRequired) => End::InputRequired,
                Some(GoodEnd::Completed) | None => End::Completed,
            },
            Ending::Canceled => End::Canceled,
            Ending::Failed => End::Failed,
            Ending::Rejected => End::Rejected,
            Ending::InputRequired => End::InputRequired,
            Ending::AuthRequired => End::AuthRequired,
        }
    }

    fn profile(&self) -> Option<&Profile> {
        let served = self.worker.agents.get(&self.taken.record.agent)?;
        Some(&served.profile)
    }

    /// Before a good end, the whole answer as an artifact, where the profile wants that.
    async fn answer_as_artifact(&mut self, ending: Ending, last: Option<&Message>) -> Option<Attempt> {
        let good = matches!(ending, Ending::Completed | Ending::Direct);
        let wanted = good && self.profile().is_some_and(|profile| profile.answer_artifact);
        let parts = if wanted { self.draft.answer(last) } else { Vec::new() };
        // An answer that fits once must not fail because it does not fit twice.
        if parts.is_empty() || !self.draft.can_repeat(&parts, last) {
            return None;
        }
        let artifact = Artifact {
            artifact_id: format!("{}.answer", self.taken.record.turn),
            name: Some("answer".to_owned()),
            description: None,
            parts,
            metadata: None,
            extensions: None,
        };
        let output = Output::Artifact {
            artifact,
            append: false,
            last_chunk: true,
            metadata: None,
        };
        self.say(output).await
    }

    /// Says ahead what is too long for the event that ends the turn; returns what is left for it.
    async fn last_words(
        &mut self,
        message: Option<Message>,
        metadata: Option<&Metadata>,
    ) -> Result<Option<Message>, Attempt> {
        if self.draft.fits(&(&message, metadata)) {
            return Ok(message);
        }
        if message.is_none() || !self.draft.fits(&metadata) {
            return Err(Attempt::OverLimit);
        }
        let ahead = Output::Status {
            state: TaskState::Working,
            message,
            metadata: None,
            class: Class::Normal,
        };
        self.say(ahead).await.map_or(Ok(None), Err)
    }

    /// Answers without a task; `None` when somebody has seen the task, or the answer is too long for one event.
    async fn answer(&mut self, message: Option<Message>, metadata: Option<Metadata>) -> Option<&'static str> {
        if !self.draft.fits(&(&message, metadata.as_ref())) {
            return None;
        }
        let close = Close {
            message,
            metadata: Some(direct_metadata(metadata)),
            direct: true,
            ..Close::plain(End::Completed)
        };
        let label = self.end(close).await;
        (label != SEEN).then_some(label)
    }

    /// Whether clients may still be answered without a task: nothing has been said that needs one.
    pub(super) fn is_unseen(&self) -> bool {
        self.taken.record.direct && self.taken.record.new_task && !self.said
    }

    pub(super) async fn end(&mut self, close: Close) -> &'static str {
        let (end, direct) = (close.end, close.direct);
        let now = self.worker.stamp(&self.taken);
        let prev = self.draft.position();
        let nonce = Nonce(entropy::u64());
        let (ready, after) = match self.draft.ending(&self.taken.record, nonce, close, now) {
            Ok(batch) => batch,
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the end of a turn cannot be folded"
                );
                return self.give_back(Why::Crash).await;
            }
        };
        match write::finish(
            &self.worker.store,
            &self.taken,
            (&ready, after),
            prev,
            write::Ending { end, direct },
            &self.worker.settings.keep,
        )
        .await
        {
            Ok(EmitReply::Done { now, .. }) => {
                self.worker.clock.learn(now);
                end.label()
            }
            Ok(EmitReply::Canceled) if end != End::Canceled => {
                // The cancel came before the end: the order of the two scripts decides.
                self.draft.drop_waiting();
                Box::pin(self.end(Close::plain(End::Canceled))).await
            }
            Ok(EmitReply::Seen) => SEEN,
            Ok(EmitReply::Diverged) => self.give_back(Why::HandOver(FailReason::RedisUnavailable)).await,
            Ok(refused) => {
                self.refused("finish", &refused);
                self.worker.metrics.leases_lost.inc();
                LOST
            }
            Err(error) => Box::pin(self.settle(unwritten(&error))).await,
        }
    }

    /// Gives the turn back as soon as Redis answers; the token makes every repeat safe. A Redis that answers but refuses is asked
    /// until the lease has run out: then the turn is the janitor's.
    pub(super) async fn give_back(&self, why: Why) -> &'static str {
        let taken = &self.taken;
        let keep = &self.worker.settings.keep;
        let until = clock::boottime() + self.worker.settings.ttl;
        let mut tries = 0;
        loop {
            match give_back(
                &self.worker.store,
                taken.partition,
                &taken.context,
                &taken.token,
                why,
                keep,
            )
            .await
            {
                Ok(GivenBack::Queued) if why == Why::Crash => return "crashed",
                Ok(GivenBack::Queued) => return "handed_back",
                Ok(GivenBack::Ended(end)) => return end.label(),
                Ok(GivenBack::Gone) => {
                    self.worker.metrics.fenced.with_label_values(&["hand_back"]).inc();
                    self.worker.metrics.leases_lost.inc();
                    return LOST;
                }
                Err(error)
                    if (error.retry() == Retry::Later || clock::boottime() < until)
                        && self.worker.tasks.shutdown().phase() != Phase::Abort =>
                {
                    write::back_off(tries).await;
                    tries += 1;
                }
                Err(error) => {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "a turn could not be given back"
                    );
                    return "abandoned";
                }
            }
        }
    }
}

/// What the event of an answer without a task carries beside it.
fn direct_metadata(metadata: Option<Metadata>) -> Metadata {
    let mut metadata = metadata.unwrap_or_default();
    let mut facts = direct_facts();
    if let (Value::Object(all), Some(Value::Object(own))) = (&mut facts, metadata.remove(TURN)) {
        all.extend(own);
    }
    metadata.insert(TURN.to_owned(), facts);
    metadata
}
