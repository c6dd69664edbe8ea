//! Reading the answer of a server as it comes: events of a stream, a whole answer, or words about why there is none.

use std::time::Duration;

use relevo_shared::agents::essence;
use relevo_shared::platform::clock;
use relevo_shared::platform::egress::{Answer as Body, EgressError};
use relevo_shared::platform::sse::{Frame, Parser};
use tokio::time::Instant;

use super::Unanswered;
use super::answer::{Answer, Finished};
use super::metrics::ModelMetrics;
use super::trouble::{Trouble, retry_after};
use super::voice::Voice;
use crate::agent::secrets::Secrets;

/// Most bytes of one event of a stream.
const LARGEST_EVENT: usize = 1 << 20;
/// Most bytes of a whole answer, and of a server's words about why there is none.
const LARGEST_WHOLE: usize = 4 << 20;
const LARGEST_WORDS: usize = 64 << 10;
/// How long the end of a body may take after the end of its stream: then its connection can be used again.
const LAST_BYTES: Duration = Duration::from_millis(50);

/// What is known of a request while its answer is read.
pub(super) struct Reading<'a> {
    pub(super) agent: &'a str,
    pub(super) secrets: &'a Secrets,
    pub(super) metrics: &'a ModelMetrics,
    pub(super) began: Instant,
}

impl Reading<'_> {
    pub(super) async fn read(
        &self,
        body: &mut Body,
        stream: bool,
        voice: &mut Voice<'_>,
    ) -> Result<Finished, Unanswered> {
        let status = body.status();
        if !status.is_success() {
            let after = body
                .header("retry-after")
                .and_then(|text| retry_after(text, clock::now_ms()));
            // Half of what it says is as good as nothing.
            let words = self.whole(body, LARGEST_WORDS).await.unwrap_or_default();
            return Err(Trouble::of_status(status.as_u16(), after, &words, self.secrets).into());
        }
        let kind = body.header("content-type").map(essence).unwrap_or_default();
        match kind.as_str() {
            "text/event-stream" => self.stream(body, voice).await,
            // Without a word about it, it should be what was asked for.
            "" if stream => self.stream(body, voice).await,
            "application/json" | "" => self.at_once(body).await,
            _ => {
                let text = "The model's server gave an answer of a kind that cannot be read.";
                Err(Trouble::passing("invalid", text).into())
            }
        }
    }

    async fn at_once(&self, body: &mut Body) -> Result<Finished, Unanswered> {
        let whole = self.whole(body, LARGEST_WHOLE).await?;
        let mut answer = Answer::default();
        let text = answer.whole(&whole, self.secrets)?;
        self.first(&text);
        Ok(answer.end()?)
    }

    async fn stream(&self, body: &mut Body, voice: &mut Voice<'_>) -> Result<Finished, Unanswered> {
        let (mut parser, mut answer) = (Parser::new(LARGEST_EVENT), Answer::default());
        while !answer.is_done() {
            let piece = tokio::select! {
                piece = body.piece() => piece.map_err(|error| trouble(self.agent, &error))?,
                () = at(voice.due()) => {
                    voice.say().await?;
                    continue;
                }
            };
            let Some(piece) = piece else { break };
            let endless = || Trouble::too_much("The model's server sent an event of more than 1 MiB.".to_owned());
            parser.feed(&piece).map_err(|_too_large| endless())?;
            let mut text = String::new();
            while let Some(frame) = parser.frame() {
                if let Frame::Event { data, .. } = frame {
                    text.push_str(&answer.event(&data, self.secrets)?);
                }
            }
            if !text.is_empty() {
                if !voice.spoke() {
                    self.first(&text);
                }
                voice.add(&text).await?;
            }
        }
        let finished = answer.end()?;
        voice.say().await?;
        body.finished();
        let _last = tokio::time::timeout(LAST_BYTES, body.piece()).await;
        Ok(finished)
    }

    async fn whole(&self, body: &mut Body, most: usize) -> Result<Vec<u8>, Trouble> {
        let mut whole = Vec::new();
        while let Some(piece) = body.piece().await.map_err(|error| trouble(self.agent, &error))? {
            whole.extend_from_slice(&piece);
            if whole.len() > most {
                return Err(Trouble::too_much(format!(
                    "The model's answer is longer than {} MiB.",
                    most >> 20
                )));
            }
        }
        Ok(whole)
    }

    fn first(&self, text: &str) {
        if !text.is_empty() {
            let seconds = self.began.elapsed().as_secs_f64();
            self.metrics
                .first_text
                .with_label_values(&[self.agent])
                .observe(seconds);
        }
    }
}

/// What a request without an answer means; what only the operator may read is logged.
pub(super) fn trouble(agent: &str, error: &EgressError) -> Trouble {
    tracing::warn!(
        agent.name = agent,
        error = error as &dyn std::error::Error,
        "the server of a model cannot be read"
    );
    Trouble::of_egress(error)
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
