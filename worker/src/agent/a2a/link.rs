//! The way to a server: its card, kept as long as it says, and requests to the interface that was chosen.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use a2a::StreamResponse;
use relevo_shared::domain::record::TurnRecord;
use relevo_shared::platform::egress::header::{ACCEPT, HeaderName, HeaderValue, IF_NONE_MATCH};
use relevo_shared::platform::egress::{Answer, Call, Client, EgressError, Method, Url};
use relevo_shared::platform::sse::{Frame, Parser};
use tokio::time::Instant;

use super::card::{self, Dialect, Interface};
use super::dialect::{self, Ask, Fault};
use crate::agent::secrets::Secrets;

/// How long a card is good that does not say so, and at the most.
const FRESH: Duration = Duration::from_mins(5);
const LONGEST_FRESH: Duration = Duration::from_hours(1);
/// How long the card may take, all of it.
const CARD: Duration = Duration::from_secs(30);
/// How long an answer may take. A server that does not answer at once works meanwhile, whatever it was asked.
const HEAD: Duration = Duration::from_mins(10);
/// A stream without a word for so long is looked after.
const SILENCE: Duration = Duration::from_mins(1);
/// The largest event, and the largest answer.
const EVENT: usize = 32 << 20;
/// All of a stream: far more than a turn may hold.
const STREAM: usize = 1 << 30;
/// The header that makes a message that is sent twice one.
const KEY: &str = "idempotency-key";
/// How much of an error page is read.
const ERROR: usize = 64 << 10;

/// Why there is no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum Trouble {
    /// Not sent, or no whole answer.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// The server's HTTP status.
    #[error("HTTP status {0}")]
    Status(u16),
    /// The server's error.
    #[error("{0:?}")]
    Fault(Fault),
    /// The card is of no use.
    #[error("the agent card: {0}")]
    Card(String),
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Trouble {
    /// Whether the same request may go well later.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Egress(error) => error.may_pass(),
            Self::Status(status) => *status >= 500 || *status == 429,
            Self::Fault(_) | Self::Card(_) => false,
        }
    }

    /// Whether the server has certainly not begun anything.
    pub(super) fn is_unsent(&self) -> bool {
        matches!(self, Self::Egress(error) if error.is_unsent())
    }

    /// A stream that ended, in whatever manner, before there was anything of a task.
    pub(super) fn broke_off(interface: &Interface) -> Self {
        Self::Egress(EgressError::Broken {
            origin: interface.url.origin().ascii_serialization(),
            text: "the stream ended before there was a task".to_owned(),
        })
    }

    /// Whether the server is left alone for a while.
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Egress(EgressError::Open { .. }))
    }

    /// For readers of the task: what follows "the upstream server ".
    pub(super) fn public(&self) -> String {
        match self {
            Self::Egress(error) => error.public(),
            Self::Status(401 | 403) => "refuses the credentials".to_owned(),
            Self::Status(status @ 500..) => format!("failed (HTTP status {status})"),
            Self::Status(status) => format!("answers with HTTP status {status}"),
            Self::Fault(Fault::NotFound(_)) => "no longer knows the task".to_owned(),
            Self::Fault(Fault::Failed(_)) => "failed".to_owned(),
            Self::Fault(Fault::Refused(text)) => format!("refuses: {text}"),
            Self::Fault(Fault::Malformed(what)) => format!("says what is no A2A: {what}"),
            Self::Card(text) => format!("has an agent card that is of no use: {text}"),
        }
    }
}

#[derive(Debug)]
struct Cached {
    interface: Arc<Interface>,
    etag: Option<HeaderValue>,
    until: Instant,
}

/// A server, for all turns.
#[derive(Debug)]
pub(super) struct Server {
    client: Client,
    url: Url,
    secrets: Secrets,
    card: Mutex<Option<Cached>>,
}

impl Server {
    pub(super) fn new(client: Client, url: Url, secrets: Secrets) -> Self {
        Self {
            client,
            url,
            secrets,
            card: Mutex::default(),
        }
    }

    /// The interface of its card, read anew when it is no longer fresh. A server that does not give it then is spoken to as before.
    pub(super) async fn interface(&self, repeat: bool) -> Result<Arc<Interface>, Trouble> {
        let known = {
            let cached = self.card.lock().unwrap_or_else(PoisonError::into_inner);
            match &*cached {
                Some(card) if Instant::now() < card.until => return Ok(Arc::clone(&card.interface)),
                Some(card) => Some((Arc::clone(&card.interface), card.etag.clone())),
                None => None,
            }
        };
        let read = tokio::time::timeout(CARD, self.read_card(known.clone(), repeat)).await;
        let slow = |_elapsed| {
            Err(Trouble::Egress(EgressError::Silent {
                origin: self.url.origin().ascii_serialization(),
                waited: CARD,
            }))
        };
        match (read.unwrap_or_else(slow), known) {
            (Err(trouble), Some((interface, _))) if trouble.may_pass() => Ok(interface),
            (read, _) => read,
        }
    }

    async fn read_card(
        &self,
        known: Option<(Arc<Interface>, Option<HeaderValue>)>,
        repeat: bool,
    ) -> Result<Arc<Interface>, Trouble> {
        let mut call = Call::new(Method::GET, card::address(&self.url))
            .repeat(repeat)
            .aside()
            .header(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some((_, Some(etag))) = &known {
            call = call.header(IF_NONE_MATCH, etag.clone());
        }
        let answer = self.client.send(call).await?;
        let fresh = answer.header("cache-control").map_or(FRESH, max_age);
        let etag = answer.headers().get("etag").cloned();
        let interface = match (answer.status().as_u16(), known) {
            (304, Some((interface, _))) => interface,
            (200, _) => {
                let body = serde_json::from_slice(&answer.bytes().await?);
                let body = body.map_err(|_error| Trouble::Card("it is no JSON".to_owned()))?;
                let interface = card::choose(&body, &self.url).map_err(Trouble::Card)?;
                self.client.check(&interface.url).map_err(EgressError::Refused)?;
                Arc::new(interface)
            }
            (status, _) => return Err(Trouble::Status(status)),
        };
        let cached = Cached {
            interface: Arc::clone(&interface),
            etag,
            until: Instant::now() + fresh,
        };
        *self.card.lock().unwrap_or_else(PoisonError::into_inner) = Some(cached);
        Ok(interface)
    }
}

/// How long a card is good by its `Cache-Control`.
fn max_age(header: &str) -> Duration {
    let mut directives = header.split(',').map(|directive| directive.trim().to_ascii_lowercase());
    let age = directives.find_map(|directive| match directive.as_str() {
        "no-store" | "no-cache" => Some(0),
        other => other.strip_prefix("max-age=")?.parse().ok(),
    });
    age.map_or(FRESH, Duration::from_secs).min(LONGEST_FRESH)
}

/// A server, for one turn.
#[derive(Debug, Clone)]
pub(super) struct Link {
    client: Client,
    pub(super) interface: Arc<Interface>,
    headers: Vec<(&'static str, HeaderValue)>,
    secrets: Secrets,
    /// Whether the turn has asked before.
    repeat: bool,
}

impl Link {
    /// `record`: its turn makes a message that is sent twice one; `repeat`: it has asked before.
    pub(super) async fn new(server: &Server, record: &TurnRecord, repeat: bool) -> Result<Self, Trouble> {
        let interface = server.interface(repeat).await?;
        let (key, trace) = (record.turn.to_string(), record.traceparent.as_deref());
        let version = if interface.dialect == Dialect::OldRpc {
            "0.3"
        } else {
            "1.0"
        };
        let headers = [
            ("a2a-version", Some(version)),
            (KEY, Some(key.as_str())),
            ("traceparent", trace),
        ];
        let value = |(name, value): (&'static str, Option<&str>)| Some((name, HeaderValue::from_str(value?).ok()?));
        Ok(Self {
            client: server.client.clone(),
            interface,
            headers: headers.into_iter().filter_map(value).collect(),
            secrets: server.secrets.clone(),
            repeat,
        })
    }

    /// Asks and waits for the answer.
    pub(super) async fn ask(&self, ask: Ask<'_>) -> Result<StreamResponse, Trouble> {
        let answer = self.send(ask, "application/json").await?;
        let body = answer.bytes().await?;
        self.read(&body, !matches!(ask, Ask::Send { .. }), ask.names_a_task())
    }

    /// What an answer says, without our credentials. `task`: the answer is a task; `named`: it is about one that was named.
    fn read(&self, body: &[u8], task: bool, named: bool) -> Result<StreamResponse, Trouble> {
        let read = dialect::read(self.interface.dialect, body, task, &self.secrets);
        read.map_err(|fault| self.shown(fault, named).into())
    }

    /// A fault as it may be shown. One who was asked for a new task and says that it does not know it refuses.
    fn shown(&self, fault: Fault, named: bool) -> Fault {
        match fault {
            Fault::NotFound(text) if named => Fault::NotFound(self.secrets.shown(&text)),
            Fault::NotFound(text) | Fault::Refused(text) => Fault::Refused(self.secrets.shown(&text)),
            Fault::Failed(text) => Fault::Failed(self.secrets.shown(&text)),
            Fault::Malformed(_) => fault,
        }
    }

    /// Asks for events.
    pub(super) async fn open(&self, ask: Ask<'_>) -> Result<Events, Trouble> {
        let answer = self.send(ask, "text/event-stream").await?;
        let streams = answer
            .header("content-type")
            .is_some_and(|kind| kind.trim_start().starts_with("text/event-stream"));
        if streams {
            let parser = Parser::new(EVENT);
            return Ok(Events::Open(Box::new(Stream {
                answer,
                parser,
                link: self.clone(),
                named: ask.names_a_task(),
            })));
        }
        // The error of a server that refuses, or the answer of one that does not stream this time.
        let event = self.read(&answer.bytes().await?, false, ask.names_a_task())?;
        Ok(Events::One(Some(Box::new(event))))
    }

    async fn send(&self, ask: Ask<'_>, accept: &'static str) -> Result<Answer, Trouble> {
        let request = dialect::request(&self.interface, ask);
        let stream = accept == "text/event-stream";
        let mut call = Call::new(request.method, request.url)
            .within(HEAD)
            .silent_for(SILENCE)
            .at_most(if stream { STREAM } else { EVENT })
            .header(ACCEPT, HeaderValue::from_static(accept));
        let sends = matches!(ask, Ask::Send { .. });
        // Who has a task there has asked before.
        call = call.repeat(self.repeat || !sends);
        // Questions about a task are no repetitions of the message.
        for (name, value) in self.headers.iter().filter(|(name, _)| sends || *name != KEY) {
            call = call.header(HeaderName::from_static(name), value.clone());
        }
        if let Some(body) = request.body {
            call = call.json(body);
        }
        let answer = self.client.send(call).await?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        // The words of an error that is the server's own say more than the status, if there are any.
        let fault = if status.is_client_error() {
            words(answer).await
        } else {
            None
        };
        let fault = fault.map(|fault| self.shown(fault, ask.names_a_task()));
        Err(fault.map_or(Trouble::Status(status.as_u16()), Trouble::Fault))
    }
}

async fn words(mut answer: Answer) -> Option<Fault> {
    let status = answer.status().as_u16();
    let mut body = Vec::new();
    while let Some(piece) = answer.piece().await.ok()? {
        body.extend_from_slice(&piece);
        if body.len() > ERROR {
            return None;
        }
    }
    let body: serde_json::Value = serde_json::from_slice(&body).ok()?;
    // Credentials that are refused are told apart by their status.
    let error = body
        .get("error")
        .filter(|error| error.is_object() && !matches!(status, 401 | 403 | 429))?;
    Some(dialect::fault(error))
}

/// Events of a task.
#[derive(Debug)]
pub(super) enum Events {
    Open(Box<Stream>),
    One(Option<Box<StreamResponse>>),
}

#[derive(Debug)]
pub(super) struct Stream {
    answer: Answer,
    parser: Parser,
    link: Link,
    /// Whether it was asked for by the name of a task.
    named: bool,
}

impl Events {
    /// The next one; `None` when the server has closed the stream.
    pub(super) async fn next(&mut self) -> Result<Option<StreamResponse>, Trouble> {
        let stream = match self {
            Self::One(event) => return Ok(event.take().map(|event| *event)),
            Self::Open(stream) => stream,
        };
        loop {
            match stream.parser.frame() {
                Some(Frame::Event { data, .. }) => {
                    return Ok(Some(stream.link.read(data.as_bytes(), false, stream.named)?));
                }
                Some(Frame::Comment | Frame::Retry(_)) => {}
                None => {
                    let Some(piece) = stream.answer.piece().await? else {
                        return Ok(None);
                    };
                    stream
                        .parser
                        .feed(&piece)
                        .map_err(|_large| Fault::Malformed("an event of more than 32 MiB"))?;
                }
            }
        }
    }

    /// The last event was heard: the connection is of no further use.
    pub(super) fn finished(&mut self) {
        if let Self::Open(stream) = self {
            stream.answer.finished();
        }
    }
}
