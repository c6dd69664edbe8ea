//! Agents of `kind = "openai"`: a chat model behind an endpoint that speaks OpenAI's chat completions.
//!
//! Owns one turn's way to the model and back: the conversation of the context, which is the agent's session, goes along with what the
//! user says; what the model says is streamed; a whole answer is remembered. A model cannot go on where it was cut off, so an answer
//! that is cut is worth nothing: the turn fails, or is run again where its policy says so. Called by the runner through [`Agent`].

mod answer;
mod conversation;
mod metrics;
mod parts;
mod reply;
mod request;
mod trouble;
mod voice;
mod waits;

use std::path::Path;

use relevo_shared::agents::{AgentConfig, OpenAiConfig, System};
use relevo_shared::domain::reason::FailReason;
use relevo_shared::domain::record::CrashPolicy;
use relevo_shared::platform::config::ConfigErrors;
use relevo_shared::platform::egress::header::{ACCEPT, HeaderName, HeaderValue};
use relevo_shared::platform::egress::{Call, Client, Egress, Method, SetupError, Url};
use relevo_shared::platform::entropy;
use tokio::time::Instant;

use super::ending::{failed, refused, stopped, until_read};
use super::secrets::Secrets;
use super::{Agent, CancelToken, Ending, EventSink, Outcome, Running, SinkClosed, Turn};
use answer::Finished;
use conversation::{Conversation, exchange};
use metrics::Counted;
pub(crate) use metrics::ModelMetrics;
use parts::Said;
use trouble::{Kind, Trouble};
use voice::Voice;
use waits::Waits;

/// Most bytes of an answer as it comes: each word of a stream has an envelope of some hundred bytes.
const LARGEST_ANSWER: usize = 256 << 20;
/// Most bytes of a file with what the model is told before every conversation.
const LARGEST_SYSTEM: u64 = 1 << 20;
/// The turn, so that a server that knows the header answers it once.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Asks a model.
#[derive(Debug)]
pub struct OpenAi {
    name: String,
    config: OpenAiConfig,
    endpoint: Url,
    client: Client,
    secrets: Secrets,
    metrics: ModelMetrics,
}

/// Why there is no answer.
#[derive(Debug)]
enum Unanswered {
    /// The runner does not listen any more.
    Stopped,
    Trouble(Trouble),
}

impl From<SinkClosed> for Unanswered {
    fn from(SinkClosed: SinkClosed) -> Self {
        Self::Stopped
    }
}

impl From<Trouble> for Unanswered {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

/// A whole answer, and whether it was said piece by piece.
struct Answered {
    finished: Finished,
    spoken: bool,
}

impl OpenAi {
    /// The agent of this name. Its credentials are read now.
    ///
    /// # Errors
    /// [`StartError`]
    pub(crate) fn new(
        name: &str,
        config: OpenAiConfig,
        egress: &Egress,
        metrics: ModelMetrics,
    ) -> Result<Self, StartError> {
        let credentials = config.upstream.credentials();
        let credentials = credentials.map_err(|(key, rule)| StartError::Credentials { key, rule })?;
        Ok(Self {
            name: name.to_owned(),
            endpoint: config.endpoint(),
            client: egress.client(name, &config.upstream.url, credentials)?,
            secrets: Secrets::of(&config.upstream),
            config,
            metrics,
        })
    }

    async fn turn(&self, turn: &Turn, sink: &EventSink, cancel: &CancelToken) -> Outcome {
        let record = &turn.record;
        let conversation = match until_read(turn, cancel, || turn.session()).await {
            Ok(items) => Conversation::read(&items),
            Err(outcome) => return outcome,
        };
        if conversation.is_full() {
            return failed(record, "This conversation is as long as it can be: begin another one.");
        }
        let prompt = turn.prompt.as_ref().map(|prompt| prompt.text.as_str());
        let said = match parts::said(&record.message, prompt, self.config.images) {
            Ok(said) => said,
            Err(words) => return refused(record, &words),
        };
        let body = match self.body(&conversation, &said).await {
            Ok(body) => body,
            Err(text) => return failed(record, &text),
        };
        match self.ask(turn, sink, &body).await {
            Ok(answered) => conclude(answered, &said, &conversation, sink).await,
            Err(Unanswered::Stopped) => stopped(),
            Err(Unanswered::Trouble(trouble)) => unanswered(turn, trouble),
        }
    }

    async fn body(&self, conversation: &Conversation, said: &Said) -> Result<Vec<u8>, String> {
        let system = match &self.config.system {
            None => None,
            Some(System::Text(text)) => Some(text.clone()),
            Some(System::File(path)) => Some(
                read_system(path)
                    .await
                    .inspect_err(|error| {
                        tracing::error!(
                            agent.name = self.name,
                            error,
                            "what the model is told first cannot be read"
                        );
                    })
                    .map_err(|_shown_in_the_log| "What this agent tells its model first cannot be read.".to_owned())?,
            ),
        };
        request::body(&self.config, system.as_deref(), conversation, &said.now).map_err(|error| error.to_string())
    }

    /// Asks until there is an answer, or none is to be had. A server that is busy, or not there, has done nothing: it is asked again.
    async fn ask(&self, turn: &Turn, sink: &EventSink, body: &[u8]) -> Result<Answered, Unanswered> {
        let mut waits = Waits::new(self.config.retry_for);
        loop {
            let mut voice = Voice::new(sink);
            let counted = Counted::new(&self.metrics, &self.name);
            let trouble = match self.once(turn, body, waits.began(), &mut voice).await {
                Ok(finished) => {
                    counted.end(finished.label);
                    let spoken = voice.spoke();
                    return Ok(Answered { finished, spoken });
                }
                Err(Unanswered::Stopped) => return Err(Unanswered::Stopped),
                Err(Unanswered::Trouble(trouble)) => trouble,
            };
            counted.end(trouble.label);
            tracing::warn!(
                task.id = %turn.record.task, turn.id = %turn.record.turn, agent.name = self.name,
                outcome = trouble.label, text = trouble.text, "a model gave no answer"
            );
            let wanted = match trouble.kind {
                Kind::Busy(wanted) => wanted,
                Kind::Open(again) if waits.began() => Some(again),
                Kind::Open(_) | Kind::Passing | Kind::Lasting | Kind::TooMuch => return Err(trouble.into()),
            };
            let again = waits
                .next(wanted, entropy::u64())
                .map(|wait| Instant::now() + wait)
                .filter(|again| *again < turn.until);
            // An answer that would come too late is not waited for.
            let Some(again) = again else {
                return Err(trouble.into());
            };
            tokio::time::sleep_until(again).await;
        }
    }

    /// One request and its answer. `repeat`: the turn has asked before.
    async fn once(
        &self,
        turn: &Turn,
        body: &[u8],
        repeat: bool,
        voice: &mut Voice<'_>,
    ) -> Result<Finished, Unanswered> {
        let began = Instant::now();
        let sent = self.client.send(self.call(turn, body).repeat(repeat)).await;
        let mut answer = sent.map_err(|error| reply::trouble(&self.name, &error))?;
        let reading = reply::Reading {
            agent: &self.name,
            secrets: &self.secrets,
            metrics: &self.metrics,
            began,
        };
        let finished = reading.read(&mut answer, self.config.stream, voice).await?;
        if let Some(usage) = finished.usage {
            self.metrics.took(&self.name, usage);
        }
        Ok(finished)
    }

    fn call(&self, turn: &Turn, body: &[u8]) -> Call {
        let accept = if self.config.stream {
            "text/event-stream"
        } else {
            "application/json"
        };
        let mut call = Call::new(Method::POST, self.endpoint.clone())
            .json(body.to_vec())
            .header(ACCEPT, HeaderValue::from_static(accept))
            .within(self.config.idle_timeout)
            .silent_for(self.config.idle_timeout)
            .at_most(LARGEST_ANSWER);
        let id = turn.record.turn.to_string();
        for (name, value) in [
            (IDEMPOTENCY_KEY, Some(id.as_str())),
            (TRACEPARENT, turn.record.traceparent.as_deref()),
        ] {
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
                call = call.header(name, value);
            }
        }
        call
    }
}

impl Agent for OpenAi {
    fn run<'a>(&'a self, turn: Turn, sink: &'a EventSink, cancel: CancelToken) -> Running<'a> {
        Box::pin(async move {
            // A request that is dropped closes its connection: the server stops working on it.
            tokio::select! {
                outcome = self.turn(&turn, sink, &cancel) => outcome,
                _ = cancel.canceled() => stopped(),
            }
        })
    }
}

/// Remembers the exchange and ends the turn.
async fn conclude(answered: Answered, said: &Said, conversation: &Conversation, sink: &EventSink) -> Outcome {
    let Answered { finished, spoken } = answered;
    let metadata = Some(finished.metadata());
    if finished.text.is_empty() {
        return Outcome::Ended(Ending::Completed, None, metadata);
    }
    let items = match exchange(&said.kept, &finished.text) {
        Ok(items) => items,
        Err(error) => return Outcome::Failed(FailReason::AgentError, error.to_string()),
    };
    match sink.session(items, conversation.length()).await {
        Ok(Ok(_length)) => {}
        Ok(Err(refused)) => return Outcome::Failed(FailReason::AgentError, refused.to_string()),
        Err(SinkClosed) => return stopped(),
    }
    if spoken {
        Outcome::Ended(Ending::Completed, None, metadata)
    } else {
        Outcome::Ended(Ending::Direct, Some(sink.message(&finished.text)), metadata)
    }
}

/// How a turn ends whose model gave no answer.
fn unanswered(turn: &Turn, trouble: Trouble) -> Outcome {
    match trouble.kind {
        Kind::Busy(_) | Kind::Passing if turn.record.policy == CrashPolicy::Restart => Outcome::Crashed(trouble.text),
        Kind::TooMuch => Outcome::Failed(FailReason::OutputLimit, trouble.text),
        Kind::Busy(_) | Kind::Passing | Kind::Lasting | Kind::Open(_) => failed(&turn.record, &trouble.text),
    }
}

async fn read_system(path: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{} cannot be read: {}", path.display(), error.kind());
    let size = tokio::fs::metadata(path).await.map_err(failed)?.len();
    if size > LARGEST_SYSTEM {
        return Err(format!("{} is longer than 1 MiB", path.display()));
    }
    let text = tokio::fs::read_to_string(path).await.map_err(failed)?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// An agent cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its table names no endpoint.
    #[error("there is no url")]
    NoEndpoint,
    /// Its credentials.
    #[error("{key}: {rule}")]
    Credentials {
        /// The key of its table.
        key: String,
        /// What is wrong; never the value.
        rule: String,
    },
    /// Its HTTP client.
    #[error(transparent)]
    Client(#[from] SetupError),
}

/// Refuses what could not be used on this machine, before the first turn finds out.
pub(crate) fn check(agent: &AgentConfig, errors: &mut ConfigErrors) {
    let Some(config) = &agent.openai else { return };
    let key = |key: &str| format!("agents.{}.{key}", agent.name);
    if let Err((name, rule)) = config.upstream.credentials() {
        errors.refuse(key(&name), rule);
    }
    if let Some(System::File(path)) = &config.system {
        match std::fs::metadata(path) {
            Ok(found) if found.is_file() && found.len() <= LARGEST_SYSTEM => {}
            Ok(_) => errors.refuse(
                key("system"),
                format!("{} must be a file of at most 1 MiB", path.display()),
            ),
            Err(error) => errors.refuse(
                key("system"),
                format!("{} cannot be read: {}", path.display(), error.kind()),
            ),
        }
    }
}
