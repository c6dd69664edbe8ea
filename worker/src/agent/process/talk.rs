//! The conversation of one turn: lines in, lines out, until the process says that it is over or something else ends it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use a2a::Message;
use relevo_shared::domain::record::TurnRecord;
use tokio::time::{Instant, sleep_until};

use super::child::{Child, SLACK};
use super::lines::Line;
use super::wire::{self, Named, Said};
use crate::agent::{CancelToken, Enclosed, EventSink, SinkClosed, StopReason};

/// What is wrong with a file when the agent works in `/`, or in a directory that was not there when the worker started.
const NO_WORKSPACE: &str =
    "an artifact names a file, and the agent has no directory of its own: its `cwd` says which it is";

/// What is said of a program whose output does not end with it: its supervisor was killed, and something that it started lives on.
const HELD: &str = "the program is gone without an end of the turn, and something else holds its standard output";

/// How a conversation ended.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one value per turn")]
pub(super) enum Verdict {
    /// By an `end`, `suspend` or `error` line.
    Ended(Said),
    /// By something that is not of the protocol.
    Broken(String),
    /// By the end of standard output.
    Silent(&'static str),
    /// Because the turn had to stop. `answered`: the process ended the turn itself when it was asked to.
    Stopped { reason: StopReason, answered: bool },
}

/// A process that was asked to stop.
struct Stopping {
    reason: StopReason,
    /// When it is told by a signal; `None` once it was.
    term_at: Option<Instant>,
    /// When it is ended by force: its supervisor should have done so.
    gone_at: Instant,
}

/// One turn's conversation.
pub(super) struct Talk<'a> {
    pub(super) child: &'a mut Child,
    pub(super) record: &'a TurnRecord,
    pub(super) sink: &'a EventSink,
    pub(super) cancel: &'a CancelToken,
    pub(super) grace: Duration,
    pub(super) names: Names,
    /// Where its files lie.
    pub(super) workspace: Option<Arc<Path>>,
}

/// The ids of the messages of a turn. A process may name its messages; what it names is unique in the turn only.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// What the process calls the current message, if it has named it.
    current: Option<String>,
    /// Whether there is a current message.
    begun: bool,
}

fn concluded(verdict: Verdict, stopping: Option<&Stopping>) -> Verdict {
    match stopping {
        None => verdict,
        Some(Stopping { reason, term_at, .. }) => {
            let answered = term_at.is_some() && matches!(verdict, Verdict::Ended(_));
            let reason = *reason;
            Verdict::Stopped { reason, answered }
        }
    }
}

impl Talk<'_> {
    /// Talks until it is over. The process may still live then.
    pub(super) async fn run(mut self) -> Verdict {
        let mut stopping: Option<Stopping> = None;
        // Until when more of what a tree has written is waited for, once nothing of it is left.
        let mut ends_at: Option<Instant> = None;
        loop {
            let child = &mut *self.child;
            if child.fate.gone {
                ends_at.get_or_insert_with(|| Instant::now() + SLACK);
            }
            let term_at = stopping.as_ref().and_then(|stopping| stopping.term_at);
            let gone_at = stopping.as_ref().map(|stopping| stopping.gone_at);
            // Every branch is cancel-safe: what has been read or written is kept in the child.
            tokio::select! {
                biased;
                reason = self.cancel.canceled(), if stopping.is_none() => {
                    stopping = Some(self.ask_to_stop(reason));
                }
                () = sleep_until(term_at.unwrap_or_else(Instant::now)), if term_at.is_some() => {
                    child.stop(self.grace / 2);
                    if let Some(stopping) = &mut stopping {
                        stopping.term_at = None;
                    }
                }
                () = sleep_until(gone_at.unwrap_or_else(Instant::now)), if gone_at.is_some() && !child.fate.gone => {
                    child.uproot().await;
                }
                heard = child.link.hear(), if !child.fate.gone => child.note(heard.map(|(what, _)| what)),
                () = child.input.write(), if child.input.is_waiting() => {}
                line = child.lines.next() => {
                    if let Some(verdict) = self.line(line, stopping.is_some()).await {
                        return concluded(verdict, stopping.as_ref());
                    }
                }
                () = sleep_until(ends_at.unwrap_or_else(Instant::now)), if ends_at.is_some() => {
                    return concluded(Verdict::Silent(HELD), stopping.as_ref());
                }
            }
        }
    }

    fn ask_to_stop(&mut self, reason: StopReason) -> Stopping {
        self.child.input.push(&wire::cancel(reason));
        let term_at = if reason == StopReason::Lease {
            // No time to be polite: the lease may be someone else's soon.
            self.child.stop(self.grace);
            None
        } else {
            Some(Instant::now() + self.grace / 2)
        };
        let gone_at = Instant::now() + self.grace + SLACK;
        Stopping {
            reason,
            term_at,
            gone_at,
        }
    }

    async fn line(&mut self, line: Option<Line>, stopping: bool) -> Option<Verdict> {
        let bytes = match line {
            None => return Some(Verdict::Silent("standard output ended without an end of the turn")),
            Some(Line::Half(_)) => {
                return Some(Verdict::Silent(
                    "the last line has no line end, and no end of the turn came",
                ));
            }
            Some(Line::TooLong(_)) => return Some(Verdict::Broken("a line is longer than max_line".to_owned())),
            Some(Line::Whole(bytes)) => bytes,
        };
        if bytes.trim_ascii().is_empty() {
            return None;
        }
        let said = match wire::read(&bytes, self.record) {
            Ok(said) => said,
            Err(why) => return Some(Verdict::Broken(format!("a line is not of the protocol: {why}"))),
        };
        if stopping && !matches!(said, Said::End(..) | Said::Suspend(..) | Said::Error { .. }) {
            return None;
        }
        let sent = match said {
            Said::Status {
                state,
                message,
                metadata,
            } => {
                let message = self.with_id(message);
                self.sink.status(state, message, metadata).await
            }
            Said::Artifact {
                artifact,
                files,
                append,
                last_chunk,
                metadata,
            } => {
                let Some(files) = self.enclosed(files) else {
                    return Some(Verdict::Broken(NO_WORKSPACE.to_owned()));
                };
                self.sink
                    .artifact_of_files(artifact, files, append, last_chunk, metadata)
                    .await
            }
            Said::Session { items, expect } => match self.sink.session(items, expect).await {
                Ok(Ok(length)) => {
                    self.child.input.push(&wire::committed(length));
                    Ok(())
                }
                Ok(Err(refused)) => return Some(Verdict::Broken(refused.to_string())),
                Err(closed) => Err(closed),
            },
            Said::End(ending, message, metadata) => {
                return Some(Verdict::Ended(Said::End(ending, self.with_id(message), metadata)));
            }
            Said::Suspend(need, message, metadata) => {
                return Some(Verdict::Ended(Said::Suspend(need, self.with_id(message), metadata)));
            }
            Said::Error { .. } => return Some(Verdict::Ended(said)),
        };
        // The runner does not listen: it asks to stop, or is gone, which is the same.
        sent.err().map(|SinkClosed| Verdict::Stopped {
            reason: StopReason::Lease,
            answered: false,
        })
    }

    /// Where files lie; `None` when there are some and nobody knows where.
    fn enclosed(&self, files: Vec<Named>) -> Option<Vec<Enclosed>> {
        let enclosed = |Named { part, path }| {
            let workspace = Arc::clone(self.workspace.as_ref()?);
            let path = workspace.join(path);
            Some(Enclosed { part, path, workspace })
        };
        files.into_iter().map(enclosed).collect()
    }

    /// A message without an id, or with the id of the one before it, continues that. Any other is a message of its own, whose id
    /// no other message has: the turn's, its number, and what the process calls it.
    fn with_id(&mut self, message: Option<Message>) -> Option<Message> {
        let mut message = message?;
        let names = &mut self.names;
        let given = Some(std::mem::take(&mut message.message_id)).filter(|id| !id.is_empty());
        if given.is_some() && given != names.current {
            if std::mem::replace(&mut names.begun, true) {
                self.sink.next_answer();
            }
            names.current = given;
        }
        names.begun = true;
        let id = self.sink.message("").message_id;
        message.message_id = match &names.current {
            Some(name) => format!("{id}.{name}"),
            None => id,
        };
        Some(message)
    }
}
