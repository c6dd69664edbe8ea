//! The agent `demo`: does what the text of the message says, so that a cluster can be tried and tested without a model.
//!
//! A text whose first word is a known `key=value` drives it; unknown keys are passed over:
//! `chunks=N` (default 5, at most 100,000) status updates whose text holds `seq=i nonce=X` for i from 0, `nonce=X` (at most 256
//! bytes), `delay=MS` before each (at most 60 s), `size=BYTES` padding per chunk (at most 1 MiB), `hold=S` seconds of silence before
//! the end (at most 3,600), `end=completed|input-required|failed|rejected|auth-required`, `direct=1` for an
//! answer with the last message alone, `artifact=chunks|file`: chunks of an
//! artifact instead of status updates, or one file of them, as many as fit into 1 MiB. The last message holds the nonce too.
//! `suspend=input-required|auth-required`: in place of the end the turn waits for its user, whose answer drives what follows in
//! the same way. Any other text is echoed in chunks.

use std::time::Duration;

use a2a::{Artifact, Part};
use relevo_shared::domain::reason::FailReason;

use super::{Agent, CancelToken, Ending, EventSink, Need, Outcome, Running, Turn};

/// How many pieces an echo has at the most.
const ECHO_CHUNKS: usize = 5;
const MAX_CHUNKS: u64 = 100_000;
const MAX_DELAY_MS: u64 = 60_000;
const MAX_SIZE: u64 = 1 << 20;
const MAX_HOLD_S: f64 = 3_600.0;
const MAX_NONCE: usize = 256;
const MAX_FILE: usize = 1 << 20;

/// The demo agent.
#[derive(Debug, Default, Clone, Copy)]
pub struct Demo;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Status,
    ArtifactChunks,
    ArtifactFile,
}

/// What a driving text asks for.
#[derive(Debug, Clone, PartialEq)]
struct Script {
    chunks: u64,
    nonce: String,
    delay: Duration,
    size: usize,
    hold: Duration,
    end: Ending,
    answer: Answer,
    direct: bool,
    suspend: Option<Need>,
}

impl Script {
    /// Reads a driving text; `None` when the first word does not drive.
    fn parse(text: &str) -> Option<Self> {
        let mut script = Self {
            chunks: 5,
            nonce: "0".to_owned(),
            delay: Duration::ZERO,
            size: 0,
            hold: Duration::ZERO,
            end: Ending::Completed,
            answer: Answer::Status,
            direct: false,
            suspend: None,
        };
        let mut words = text.split(' ').filter(|word| !word.is_empty());
        if !script.take(words.next()?) {
            return None;
        }
        for word in words {
            script.take(word);
        }
        Some(script)
    }

    /// Takes one word over; says whether it drives.
    fn take(&mut self, word: &str) -> bool {
        let Some((key, value)) = word.split_once('=') else {
            return false;
        };
        let number = value.parse::<u64>().ok();
        match (key, number) {
            ("chunks", Some(n)) => self.chunks = n.min(MAX_CHUNKS),
            ("delay", Some(n)) => self.delay = Duration::from_millis(n.min(MAX_DELAY_MS)),
            ("size", Some(n)) => self.size = usize::try_from(n.min(MAX_SIZE)).unwrap_or(0),
            ("hold", _) => match value.parse::<f64>() {
                Ok(seconds) if seconds >= 0.0 => self.hold = Duration::from_secs_f64(seconds.min(MAX_HOLD_S)),
                Ok(_) | Err(_) => return false,
            },
            ("nonce", _) if value.len() <= MAX_NONCE => value.clone_into(&mut self.nonce),
            ("end", _) => match value {
                "completed" => self.end = Ending::Completed,
                "input-required" => self.end = Ending::InputRequired,
                "failed" => self.end = Ending::Failed,
                "rejected" => self.end = Ending::Rejected,
                "auth-required" => self.end = Ending::AuthRequired,
                _ => return false,
            },
            ("suspend", _) => match value {
                "input-required" => self.suspend = Some(Need::Input),
                "auth-required" => self.suspend = Some(Need::Credentials),
                _ => return false,
            },
            ("direct", Some(n)) => self.direct = n == 1,
            ("artifact", _) => match value {
                "chunks" => self.answer = Answer::ArtifactChunks,
                "file" => self.answer = Answer::ArtifactFile,
                _ => return false,
            },
            _ => return false,
        }
        true
    }

    fn chunk(&self, seq: u64) -> String {
        let mut text = format!("seq={seq} nonce={}", self.nonce);
        if self.size > 0 {
            text.push(' ');
            text.extend(std::iter::repeat_n('x', self.size));
        }
        text.push('\n');
        text
    }

    async fn play(&self, sink: &EventSink, cancel: &CancelToken) -> Outcome {
        if self.direct {
            if pause(self.hold, cancel).await.is_err() {
                return stopped();
            }
            let message = sink.message(&format!("done nonce={}", self.nonce));
            return Outcome::Ended(Ending::Direct, Some(message), None);
        }
        for seq in 0..self.chunks {
            if pause(self.delay, cancel).await.is_err() {
                return stopped();
            }
            let last = seq + 1 == self.chunks;
            let sent = match self.answer {
                Answer::Status => sink.text(&self.chunk(seq)).await,
                Answer::ArtifactChunks => sink.artifact(self.text_artifact(seq), seq > 0, last).await,
                Answer::ArtifactFile if last => sink.artifact(self.file_artifact(), false, true).await,
                Answer::ArtifactFile => Ok(()),
            };
            if sent.is_err() || cancel.reason().is_some() {
                return stopped();
            }
        }
        if pause(self.hold, cancel).await.is_err() {
            return stopped();
        }
        let last = sink.message(&format!("done nonce={}", self.nonce));
        match self.suspend {
            Some(need) => Outcome::Suspended(need, Some(last), None),
            None => Outcome::Ended(self.end, Some(last), None),
        }
    }

    fn text_artifact(&self, seq: u64) -> Artifact {
        artifact(&self.nonce, vec![Part::text(self.chunk(seq))])
    }

    /// As many chunks as fit into a file.
    fn file(&self) -> String {
        let mut file = String::new();
        for chunk in (0..self.chunks).map(|seq| self.chunk(seq)) {
            if file.len() + chunk.len() > MAX_FILE {
                break;
            }
            file.push_str(&chunk);
        }
        file
    }

    fn file_artifact(&self) -> Artifact {
        let part = Part::raw(self.file().into_bytes())
            .with_filename(format!("{}.bin", self.nonce))
            .with_media_type("application/octet-stream");
        artifact(&self.nonce, vec![part])
    }
}

fn artifact(nonce: &str, parts: Vec<Part>) -> Artifact {
    Artifact {
        artifact_id: format!("demo-{nonce}"),
        name: Some("demo".to_owned()),
        description: None,
        parts,
        metadata: None,
        extensions: None,
    }
}

/// Waits, unless it must stop.
async fn pause(time: Duration, cancel: &CancelToken) -> Result<(), ()> {
    if time.is_zero() {
        return Ok(());
    }
    tokio::select! {
        () = tokio::time::sleep(time) => Ok(()),
        _ = cancel.canceled() => Err(()),
    }
}

/// What is returned to a runner that asked to stop, or went away: it decides how the turn ends.
fn stopped() -> Outcome {
    Outcome::Failed(FailReason::AgentError, "stopped".to_owned())
}

async fn echo(text: &str, sink: &EventSink) -> Outcome {
    let letters: Vec<char> = text.chars().collect();
    let size = letters.len().div_ceil(ECHO_CHUNKS).max(1);
    let mut pieces: Vec<String> = letters.chunks(size).map(|piece| piece.iter().collect()).collect();
    let last = pieces.pop().unwrap_or_default();
    for piece in &pieces {
        if sink.text(piece).await.is_err() {
            return stopped();
        }
    }
    Outcome::Ended(Ending::Completed, Some(sink.message(&last)), None)
}

impl Agent for Demo {
    fn run<'a>(&'a self, turn: Turn, sink: &'a EventSink, cancel: CancelToken) -> Running<'a> {
        Box::pin(async move {
            let text = turn.text();
            match Script::parse(&text) {
                Some(script) => script.play(sink, &cancel).await,
                None => echo(&text, sink).await,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_decides_whether_the_text_drives() {
        assert!(Script::parse("chunks=3 nonce=a").is_some());
        for echoed in [
            "",
            "hello chunks=3",
            "color=red chunks=3",
            "chunks",
            "chunks=x",
            "end=never",
            "suspend=now",
            "hold=-1",
            "hold=NaN",
        ] {
            assert!(Script::parse(echoed).is_none(), "{echoed}");
        }
    }

    #[test]
    fn unknown_words_are_passed_over_and_numbers_are_capped() {
        let script =
            Script::parse("chunks=999999999 what=ever delay=99999999 size=99999999 hold=9999999 nonce=n").unwrap();
        assert_eq!((script.chunks, script.size), (MAX_CHUNKS, 1 << 20));
        assert_eq!(
            (script.delay, script.hold),
            (Duration::from_mins(1), Duration::from_hours(1))
        );
        assert_eq!(script.nonce, "n");
    }

    #[test]
    fn a_file_holds_what_fits_whatever_is_asked_for() {
        let script = Script::parse("chunks=100000 size=1000 nonce=q artifact=file").unwrap();
        let file = script.file();
        assert!(
            file.len() <= MAX_FILE && file.len() + 1_100 > MAX_FILE,
            "{}",
            file.len()
        );
        let whole = Script::parse("chunks=2 size=1000 artifact=file").unwrap();
        assert_eq!(whole.file(), whole.chunk(0) + &whole.chunk(1));
        let long = format!("chunks=1 nonce={}", "n".repeat(MAX_NONCE + 1));
        assert_eq!(Script::parse(&long).unwrap().nonce, "0");
    }

    #[test]
    fn a_chunk_holds_its_number_and_its_nonce() {
        let script = Script::parse("size=4 nonce=q").unwrap();
        assert_eq!(script.chunk(7), "seq=7 nonce=q xxxx\n");
    }
}
