//! An open event stream.

use std::pin::Pin;
use std::time::Duration;

use a2a::StreamResponse;
use futures_util::{Stream, StreamExt as _};
use relevo_shared::platform::sse::{Frame, Parser};
use reqwest::Response;
use serde_json::Value;

use super::error::{ClientError, RpcError};

/// A stream with cursors that is silent for longer than this is broken: Relevo sends a comment every 15 s.
const SILENCE: Duration = Duration::from_mins(1);
/// The largest event that is read: far above what Relevo sends (1 MiB and an envelope), far below what hurts.
const LARGEST: usize = 64 << 20;

type Bytes = Pin<Box<dyn Stream<Item = Result<Vec<u8>, reqwest::Error>> + Send>>;

/// What a stream said.
#[derive(Debug)]
pub(crate) enum Heard {
    /// An event, with the cursor to resume after it.
    Event(Option<String>, Box<StreamResponse>),
    /// A sign of life.
    Alive,
    /// How long to wait before reconnecting.
    Retry(Duration),
}

/// The events of one connection.
pub(crate) struct EventStream {
    bytes: Bytes,
    parser: Parser,
    url: String,
    /// Whether the server gives cursors: then it is one that sends comments too.
    cursors: bool,
}

impl std::fmt::Debug for EventStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventStream")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl EventStream {
    pub(super) fn new(response: Response, url: String) -> Self {
        Self {
            bytes: Box::pin(response.bytes_stream().map(|piece| piece.map(|bytes| bytes.to_vec()))),
            parser: Parser::new(LARGEST),
            url,
            cursors: false,
        }
    }

    /// The next thing it says; `None` when the server closed it in good order.
    pub(crate) async fn next(&mut self) -> Result<Option<Heard>, ClientError> {
        loop {
            if let Some(frame) = self.parser.frame() {
                return self.read(frame).map(Some);
            }
            let Some(piece) = self.piece().await? else {
                return Ok(None);
            };
            let fed = self.parser.feed(&piece);
            fed.map_err(|error| self.foreign(error.to_string()))?;
        }
    }

    async fn piece(&mut self) -> Result<Option<Vec<u8>>, ClientError> {
        let next = self.bytes.next();
        let piece = if self.cursors {
            let silent = |_| ClientError::Silent { url: self.url.clone() };
            tokio::time::timeout(SILENCE, next).await.map_err(silent)?
        } else {
            next.await
        };
        piece.transpose().map_err(|source| ClientError::Broken {
            url: self.url.clone(),
            source: source.without_url(),
        })
    }

    fn read(&mut self, frame: Frame) -> Result<Heard, ClientError> {
        let (id, data) = match frame {
            Frame::Comment => return Ok(Heard::Alive),
            Frame::Retry(wait) => return Ok(Heard::Retry(wait)),
            Frame::Event { id, data } => (id.filter(|id| !id.is_empty()), data),
        };
        self.cursors |= id.is_some();
        let unreadable = |error: serde_json::Error| self.foreign(format!("an event: {error}"));
        let mut answer: Value = serde_json::from_str(&data).map_err(unreadable)?;
        if let Some(error) = answer.get("error") {
            return Err(ClientError::Refused(RpcError::read(error, None)));
        }
        let result = answer.get_mut("result").map(Value::take).unwrap_or_default();
        let event = serde_json::from_value(result).map_err(unreadable)?;
        Ok(Heard::Event(id, Box::new(event)))
    }

    fn foreign(&self, detail: String) -> ClientError {
        ClientError::Foreign {
            url: self.url.clone(),
            detail,
        }
    }
}
