//! Agents of `kind = "a2a"`: an A2A server behind ours. Its events are told to our clients under our ids.
//!
//! Owns the way from a turn to an upstream task and back. The upstream task is remembered before its first event is passed on, so
//! a later attempt of the turn goes on with it. Messages that may have arrived are not sent again by this attempt; questions about
//! a task are, since they change nothing. Refuses to guess: what is no A2A ends the turn. Called by the runner through [`Agent`].

mod card;
mod dialect;
mod follow;
mod link;
mod memory;
mod relay;

use std::sync::Arc;
use std::time::Duration;

use a2a::Role;
use relevo_shared::agents::{A2aConfig, AgentConfig};
use relevo_shared::domain::event::TURN;
use relevo_shared::domain::record::{CrashPolicy, TurnRecord};
use relevo_shared::platform::config::ConfigErrors;
use relevo_shared::platform::egress::{Egress, SetupError};
use relevo_shared::store::StoreError;
use serde_json::Value;
use tokio::time::Instant;

use super::ending::{failed, stopped, until_read};
use super::secrets::Secrets;
use super::{Agent, CancelToken, Ending, EventSink, Metadata, Outcome, Running, StopReason, Stopped, Stopping, Turn};
use crate::runner::write::back_off;
use follow::Follow;
use link::{Link, Server, Trouble};
use memory::Memory;

/// How long a cancel may take upstream until the turn is given up.
const CANCEL: Duration = Duration::from_secs(5);
/// How long one that is told to stop may take.
pub(crate) const PATIENCE: Duration = CANCEL.saturating_add(Duration::from_secs(1));
/// How often a server that is there, and gives no card, is asked for it at the most.
const CARDS: u32 = 4;

/// An agent cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its table says no URL.
    #[error("it has no url")]
    NoUrl,
    /// Its credentials cannot be read.
    #[error("{0}: {1}")]
    Credentials(String, String),
    /// The client cannot be made.
    #[error(transparent)]
    Client(#[from] SetupError),
}

/// Runs turns on an A2A server.
#[derive(Debug)]
pub struct A2a {
    server: Server,
    patience: Duration,
}

impl A2a {
    /// An agent of that name. Its credentials are read now.
    ///
    /// # Errors
    /// [`StartError`]
    pub fn new(name: &str, config: &A2aConfig, egress: &Egress) -> Result<Self, StartError> {
        let credentials = config.upstream.credentials();
        let credentials = credentials.map_err(|(key, rule)| StartError::Credentials(key, rule))?;
        let client = egress.client(name, &config.upstream.url, credentials)?;
        Ok(Self {
            server: Server::new(client, config.upstream.url.clone(), Secrets::of(&config.upstream)),
            patience: config.patience,
        })
    }

    async fn turn(&self, turn: Turn, sink: &EventSink, cancel: &CancelToken) -> Outcome {
        let (artifacts, memory) = match until_read(&turn, cancel, || read_past(&turn)).await {
            Ok(past) => past,
            Err(outcome) => return outcome,
        };
        let record = &turn.record;
        let mut message = record.message.clone();
        message.message_id = record.turn.to_string();
        message.role = Role::User;
        // Those are ids of ours.
        message.reference_task_ids = None;
        message.context_id = memory.context().map(str::to_owned);
        message.task_id = if record.new_task {
            None
        } else {
            memory.of_task(record).map(str::to_owned)
        };
        let relay = relay::Relay::new(message.message_id.clone(), artifacts);
        let mut follow = Follow::new(&turn, sink, memory, relay, message, self.patience);
        let reason = tokio::select! {
            outcome = self.work(&mut follow) => return outcome,
            reason = cancel.canceled() => reason,
        };
        self.stop(&follow, reason).await
    }

    async fn work(&self, follow: &mut Follow<'_>) -> Outcome {
        let record = follow.record();
        let began = Instant::now();
        let mut tries = 0;
        loop {
            let mut linked = false;
            let repeat = tries > 0 || follow.is_sent();
            let worked = match Link::new(&self.server, &record, repeat).await {
                Ok(link) => {
                    linked = true;
                    follow.run(&link).await
                }
                Err(trouble) => Err(trouble),
            };
            let trouble = match worked {
                Ok(outcome) => return outcome,
                Err(trouble) => trouble,
            };
            tries += 1;
            let in_time = began.elapsed() < self.patience;
            let again = if follow.is_sent() {
                // The task of an earlier attempt, on a server that is away.
                !linked && in_time
            } else if trouble.is_unsent() {
                // Nothing can happen twice. A server that is left alone has kept others waiting already.
                in_time && (tries > 1 || !trouble.is_open())
            } else {
                tries < CARDS
            };
            let again = again && trouble.may_pass();
            if tries == 1 || !again {
                tracing::warn!(
                    task.id = %record.task, turn.id = %record.turn, agent.name = record.agent, tries, again,
                    error = &trouble as &dyn std::error::Error, "an upstream server gives no answer"
                );
            }
            if !again {
                return self.conclude(&trouble, follow).await;
            }
            back_off(tries).await;
        }
    }

    /// The turn must stop: so must the upstream task, unless another attempt goes on with it.
    async fn stop(&self, follow: &Follow<'_>, reason: StopReason) -> Outcome {
        let restarts = follow.record().policy == CrashPolicy::Restart;
        if restarts && matches!(reason, StopReason::Lease | StopReason::Drain) {
            return stopped();
        }
        let how = if follow.is_sent() {
            self.cancel(&follow.record(), follow.task()).await
        } else {
            Stopped::Acknowledged
        };
        let facts = Metadata::from([(TURN.to_owned(), how.facts())]);
        Outcome::Ended(Ending::Canceled, None, Some(facts))
    }

    /// How a turn ends whose server gives no answer any more. A task that nobody will listen to is told to stop.
    async fn conclude(&self, trouble: &Trouble, follow: &Follow<'_>) -> Outcome {
        let record = follow.record();
        let text = format!("the upstream server {}", trouble.public());
        let unknown = matches!(trouble, Trouble::Fault(dialect::Fault::NotFound(_)));
        // Another attempt asks again: it goes on with the task if there is one, else it sends the message again, with the same id.
        if follow.is_sent() && (unknown || trouble.may_pass()) && record.policy == CrashPolicy::Restart {
            return Outcome::Crashed(text);
        }
        let mut outcome = failed(&record, &text);
        if !unknown
            && let Some(task) = follow.task()
            && let Outcome::Ended(_, _, Some(metadata)) = &mut outcome
            && let Some(facts) = metadata.get_mut(TURN).and_then(Value::as_object_mut)
        {
            let stopped = self.cancel(&record, Some(task)).await.facts();
            facts.extend(stopped.as_object().cloned().unwrap_or_default());
        }
        outcome
    }

    /// Asks the server to stop a task, if it is known.
    async fn cancel(&self, record: &TurnRecord, task: Option<&str>) -> Stopped {
        let stopping = async {
            let task = task?;
            let link = Link::new(&self.server, record, true).await;
            follow::cancel(&link.ok()?, task).await
        };
        match tokio::time::timeout(CANCEL, stopping).await {
            Ok(Some(())) => Stopped::Acknowledged,
            Ok(None) | Err(_) => Stopped::Abandoned,
        }
    }
}

impl Agent for A2a {
    fn run<'a>(&'a self, turn: Turn, sink: &'a EventSink, cancel: CancelToken) -> Running<'a> {
        Box::pin(async move { self.turn(turn, sink, &cancel).await })
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }

    fn stop_elsewhere(&self, record: Arc<TurnRecord>, outlived: Vec<Vec<u8>>) -> Stopping<'_> {
        Box::pin(async move {
            let memory = Memory::read(&outlived);
            self.cancel(&record, memory.of_turn(&record)).await
        })
    }

    fn outliving(&self) -> Option<fn(&[u8]) -> bool> {
        Some(memory::is_item)
    }
}

/// Refuses what could not be called from this machine, before the first turn finds out.
pub(crate) fn check(agent: &AgentConfig, errors: &mut ConfigErrors) {
    let Some(config) = &agent.a2a else { return };
    if let Err((key, rule)) = config.upstream.credentials() {
        errors.refuse(format!("agents.{}.{key}", agent.name), rule);
    }
}

/// The artifacts that the task has already, and what is remembered.
async fn read_past(turn: &Turn) -> Result<(Vec<a2a::Artifact>, Memory), StoreError> {
    let artifacts = if turn.record.new_task {
        None
    } else {
        turn.past().await?.0.artifacts
    };
    let mut session = turn.session().await?;
    session.extend(turn.outlived.iter().cloned());
    Ok((artifacts.unwrap_or_default(), Memory::read(&session)))
}
