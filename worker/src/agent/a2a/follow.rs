//! One turn on a server: the message goes out, the events come in, and whatever is cut is looked up until the task has its end.

use std::sync::Arc;
use std::time::Duration;

use a2a::{Message, Part, StreamResponse, Task, TaskState};
use relevo_shared::domain::event;
use relevo_shared::domain::record::TurnRecord;
use tokio::time::{Instant, sleep};

use super::card::Dialect;
use super::dialect::{Ask, Fault};
use super::link::{Events, Link, Trouble};
use super::memory::Memory;
use super::relay::{End, Relay, Say};
use crate::agent::ending::{failed, stopped};
use crate::agent::{EventSink, Outcome, SinkClosed, Turn};

/// How often a server is asked that does not stream, at first and later.
const FIRST_LOOK: Duration = Duration::from_millis(200);
const LAST_LOOK: Duration = Duration::from_secs(5);
/// The longest pause between two looks at a server that is away.
const AWAY_LOOK: Duration = Duration::from_secs(1);
/// The longest id of a server's that is remembered.
const LONGEST_ID: usize = 1024;

/// One turn on a server.
pub(super) struct Follow<'a> {
    record: Arc<TurnRecord>,
    sink: &'a EventSink,
    memory: Memory,
    relay: Relay,
    message: Message,
    /// How long a server that has the task may be away.
    patience: Duration,
    /// The upstream task, once it is known.
    task: Option<String>,
    /// Whether its context is known, too.
    placed: bool,
    /// Whether the message may have arrived.
    sent: bool,
    /// Whether a stream has ended before the task.
    cut: bool,
}

/// What ends the turn from within.
enum Stop {
    Trouble(Trouble),
    Over(Box<Outcome>),
}

impl<T: Into<Trouble>> From<T> for Stop {
    fn from(trouble: T) -> Self {
        Self::Trouble(trouble.into())
    }
}

type Step<T> = Result<T, Stop>;

impl<'a> Follow<'a> {
    pub(super) fn new(
        turn: &Turn,
        sink: &'a EventSink,
        memory: Memory,
        relay: Relay,
        message: Message,
        patience: Duration,
    ) -> Self {
        let task = memory.of_turn(&turn.record).map(str::to_owned);
        Self {
            record: Arc::clone(&turn.record),
            sink,
            memory,
            relay,
            message,
            patience,
            sent: task.is_some(),
            placed: false,
            cut: false,
            task,
        }
    }

    pub(super) fn record(&self) -> Arc<TurnRecord> {
        Arc::clone(&self.record)
    }

    pub(super) fn is_sent(&self) -> bool {
        self.sent
    }

    /// Runs until the server has ended the turn.
    pub(super) async fn run(&mut self, link: &Link) -> Result<Outcome, Trouble> {
        match self.go(link).await {
            Err(Stop::Over(outcome)) => Ok(*outcome),
            Err(Stop::Trouble(trouble)) => Err(trouble),
            Ok(never) => match never {},
        }
    }

    async fn go(&mut self, link: &Link) -> Step<std::convert::Infallible> {
        if self.task.is_some() {
            // An earlier attempt began it.
            match self.watch(link).await {
                Err(Stop::Trouble(Trouble::Fault(Fault::NotFound(_)))) => self.task = None,
                other => return other,
            }
        }
        self.send(link).await?;
        self.watch(link).await
    }

    /// Sends the message, and passes on what is heard of it until the connection ends.
    async fn send(&mut self, link: &Link) -> Step<()> {
        let message = self.message.clone();
        let record = self.record();
        let ask = Ask::Send {
            message: &message,
            modes: &record.accepted_output_modes,
            stream: link.interface.streaming,
        };
        // A task that goes on may be shown as it stood before the message.
        let mut stale = message.task_id.is_some();
        // Set before, so that a turn that is stopped in between does not count as not begun.
        self.sent = true;
        if !link.interface.streaming {
            let answer = link.ask(ask).await;
            self.sent = !answer.as_ref().is_err_and(Trouble::is_unsent);
            return self.take(answer?, stale).await;
        }
        let events = link.open(ask).await;
        self.sent = !events.as_ref().is_err_and(Trouble::is_unsent);
        let mut events = events?;
        let end = loop {
            match events.next().await {
                Ok(Some(event)) => self.heard(&mut events, event, std::mem::take(&mut stale)).await?,
                Ok(None) if self.task.is_none() => return Err(Trouble::broke_off(&link.interface).into()),
                Ok(None) => break None,
                Err(trouble) if trouble.may_pass() && self.task.is_some() => break Some(trouble),
                Err(trouble) => return Err(trouble.into()),
            }
        };
        self.cut(end.as_ref());
        Ok(())
    }

    /// Looks after a task that the server has: what it is now, and its events from there on, until it ends.
    async fn watch(&mut self, link: &Link) -> Step<std::convert::Infallible> {
        let Some(task) = self.task.clone() else {
            return Err(Fault::Malformed("nothing, before there is a task").into());
        };
        let mut heard = Instant::now();
        let mut pause = FIRST_LOOK;
        let mut away = false;
        loop {
            match self.look(link, &task).await {
                Ok(()) => {
                    heard = Instant::now();
                    if std::mem::take(&mut away) {
                        tracing::info!(turn.id = %self.record.turn, agent.name = self.record.agent, "an upstream server is back");
                    }
                }
                Err(Stop::Trouble(trouble)) if trouble.may_pass() && heard.elapsed() < self.patience => {
                    if !std::mem::replace(&mut away, true) {
                        tracing::warn!(
                            task.id = %self.record.task, turn.id = %self.record.turn, agent.name = self.record.agent,
                            error = &trouble as &dyn std::error::Error, "an upstream server is away: its task is waited for"
                        );
                    }
                    pause = pause.min(AWAY_LOOK);
                    sleep(pause).await;
                    pause *= 2;
                    continue;
                }
                Err(stop) => return Err(stop),
            }
            // The Python SDK of 0.3 writes what it tells a second reader into the task a second time: there the task is only asked for.
            if link.interface.streaming
                && link.interface.dialect != Dialect::OldRpc
                && let Ok(mut events) = link.open(Ask::Subscribe(&task)).await
            {
                let begun = Instant::now();
                self.subscribed(link, &task, &mut events).await?;
                heard = Instant::now();
                // One that is closed as soon as it is open is no better than none.
                if begun.elapsed() > LAST_LOOK {
                    pause = FIRST_LOOK;
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(LAST_LOOK);
        }
    }

    /// Passes on a subscription until it breaks. One that begins with the task goes on from there; of another nobody knows where it
    /// begins, so its events only say that it is time to look.
    async fn subscribed(&mut self, link: &Link, task: &str, events: &mut Events) -> Step<()> {
        let mut trusted = false;
        let end = loop {
            let event = match events.next().await {
                Ok(Some(event)) => event,
                Ok(None) => break None,
                Err(trouble) => break Some(trouble),
            };
            trusted |= matches!(event, StreamResponse::Task(_));
            if trusted {
                self.heard(events, event, false).await?;
            } else {
                match self.look(link, task).await {
                    Err(Stop::Trouble(trouble)) if trouble.may_pass() => return Ok(()),
                    other => other?,
                }
            }
        };
        self.cut(end.as_ref());
        Ok(())
    }

    /// Says so in the log, once, when a stream ends before the task does.
    fn cut(&mut self, trouble: Option<&Trouble>) {
        if self.task.is_some() && !std::mem::replace(&mut self.cut, true) {
            tracing::info!(
                task.id = %self.record.task, turn.id = %self.record.turn, agent.name = self.record.agent,
                error = trouble.map(|trouble| trouble as &dyn std::error::Error),
                "the stream of an upstream server ended before its task, which is looked after"
            );
        }
    }

    async fn look(&mut self, link: &Link, task: &str) -> Step<()> {
        let answer = link.ask(Ask::Get(task)).await?;
        self.take(answer, false).await
    }

    async fn heard(&mut self, events: &mut Events, event: StreamResponse, stale: bool) -> Step<()> {
        let taken = self.take(event, stale).await;
        if matches!(taken, Err(Stop::Over(_))) {
            events.finished();
        }
        taken
    }

    /// Remembers whose event it is, and passes it on. `stale`: a task that waits for input may not have seen the message yet.
    async fn take(&mut self, event: StreamResponse, stale: bool) -> Step<()> {
        let (task, context) = match &event {
            StreamResponse::Task(task) => (Some(&task.id), Some(&task.context_id)),
            StreamResponse::StatusUpdate(update) => (Some(&update.task_id), Some(&update.context_id)),
            StreamResponse::ArtifactUpdate(update) => (Some(&update.task_id), Some(&update.context_id)),
            StreamResponse::Message(message) => (None, message.context_id.as_ref()),
        };
        let context = context.cloned().unwrap_or_default();
        let task = task.cloned();
        if task.is_some() && self.task.is_some() && self.task != task {
            return Err(Fault::Malformed("events of another task").into());
        }
        if context.len().max(task.as_ref().map_or(0, String::len)) > LONGEST_ID {
            return Err(Fault::Malformed("an id of more than 1024 bytes").into());
        }
        // The first word of either counts: a server that names another context with every event fills no session.
        let news = self.task != task || (!self.placed && !context.is_empty());
        self.placed |= !context.is_empty();
        if news
            && let Some((item, length)) = self.memory.add(&self.record, task.as_deref(), &context)
            && let Err(refused) = self.sink.session(vec![item], length).await.map_err(closed)?
        {
            return Err(Stop::Over(Box::new(failed(&self.record, &refused.to_string()))));
        }
        self.task = task;
        let waits = |task: &Task| matches!(task.status.state, TaskState::InputRequired | TaskState::AuthRequired);
        let stale = stale && matches!(&event, StreamResponse::Task(task) if waits(task));
        if stale {
            return Ok(());
        }
        let (say, end) = self.relay.event(event);
        for say in say {
            self.say(say).await?;
        }
        end.map_or(Ok(()), |end| Err(Stop::Over(Box::new(self.ended(end)))))
    }

    async fn say(&self, say: Say) -> Step<()> {
        let said = match say {
            Say::Parts {
                number,
                parts,
                metadata,
            } => {
                self.sink
                    .status(TaskState::Working, Some(self.ours(number, parts)), metadata)
                    .await
            }
            Say::Artifact {
                artifact,
                append,
                last_chunk,
                metadata,
            } => self.sink.artifact_with(artifact, append, last_chunk, metadata).await,
        };
        said.map_err(closed)
    }

    fn ended(&self, end: End) -> Outcome {
        let last = end.last.map(|(number, parts)| self.ours(number, parts));
        Outcome::Ended(end.ending, last, end.metadata)
    }

    /// The server's message of that number as ours.
    fn ours(&self, number: usize, parts: Vec<Part>) -> Message {
        Message {
            parts,
            ..event::agent_message(&self.record, &number.to_string(), "")
        }
    }

    /// The upstream task, if it is known.
    pub(super) fn task(&self) -> Option<&str> {
        self.task.as_deref()
    }
}

/// Asks the server to stop a task; `Some` when it has an end.
pub(super) async fn cancel(link: &Link, task: &str) -> Option<()> {
    let mut answer = link.ask(Ask::Cancel(task)).await;
    loop {
        match answer {
            Ok(StreamResponse::Task(found)) if found.id == task && found.status.state.is_terminal() => return Some(()),
            Err(Trouble::Fault(Fault::NotFound(_))) => return Some(()),
            // It cannot be canceled, perhaps because it has ended; or it is told and has not obeyed yet.
            Ok(_) | Err(Trouble::Fault(_)) => {}
            Err(_) => return None,
        }
        sleep(FIRST_LOOK).await;
        answer = link.ask(Ask::Get(task)).await;
    }
}

/// The runner does not listen any more: nobody reads what is returned.
fn closed(_: SinkClosed) -> Stop {
    Stop::Over(Box::new(stopped()))
}
