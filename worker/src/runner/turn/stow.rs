//! What a turn does with parts that are too large for events: it brings them to the artifact store before their event is written, and
//! stops when something else ends the attempt meanwhile.

use std::sync::Arc;
use std::time::Duration;

use a2a::{Message, Part};
use tokio::time::Instant;

use super::super::sink::Output;
use super::super::stow::{self, StowError};
use super::{Attempt, TurnRun, ended_by, unwritten};

/// How long a note is tried of what a worker that has lost its lease may have written.
const LAST_NOTE: Duration = Duration::from_secs(10);

impl TurnRun {
    /// Leaves of an output only what belongs into events.
    pub(super) async fn stow(&mut self, output: &mut Output) -> Result<(), Attempt> {
        match output.parts_mut() {
            Some(parts) => self.stow_parts(parts).await.map(drop),
            None => Ok(()),
        }
    }

    /// The same for a message. Says whether there was a part for the store.
    pub(super) async fn stow_message(&mut self, message: Option<&mut Message>) -> Result<bool, Attempt> {
        match message {
            Some(message) => self.stow_parts(&mut message.parts).await,
            None => Ok(false),
        }
    }

    /// The same for parts. Says whether there was one for the store.
    async fn stow_parts(&mut self, parts: &mut [Part]) -> Result<bool, Attempt> {
        let worker = Arc::clone(&self.worker);
        let Some(artifacts) = &worker.artifacts else {
            return Ok(false);
        };
        let taken = |part: &&mut Part| artifacts.takes(part, self.draft.fits_nowhere(part));
        let parts: Vec<&mut Part> = parts.iter_mut().filter(taken).collect();
        if parts.is_empty() {
            return Ok(false);
        }
        // What was said before does not wait for it.
        if !self.draft.is_empty()
            && let Some(over) = self.flush().await
        {
            return Err(over);
        }
        let record = Arc::clone(&self.taken);
        let mut stowed = std::mem::take(&mut self.stowed);
        let work = async {
            for part in parts {
                artifacts
                    .stow(&worker.store, &record.record, &mut stowed, part, &worker.metrics)
                    .await?;
            }
            Ok(())
        };
        let done = tokio::select! {
            biased;
            over = self.interrupted() => Err(over),
            done = work => done.map_err(|error: StowError| not_stowed(&error)),
        };
        self.stowed = stowed;
        done.map(|()| true)
    }

    /// Whoever was too late may have written an object after everything else of the task was deleted: noted again, it is found.
    pub(super) async fn note_what_may_be_left(&self) {
        if self.stowed.noted {
            let noted = stow::note(&self.worker.store, self.taken.record.task);
            drop(tokio::time::timeout(LAST_NOTE, noted).await);
        }
    }

    /// Resolves when something else than the agent ends the attempt.
    async fn interrupted(&mut self) -> Attempt {
        let shutdown = self.worker.tasks.shutdown().clone();
        let mut hand_over = std::pin::pin!(self.worker.hand_over.clone().wait());
        loop {
            let alarm = self.overdue.min(Instant::now() + self.authority_left());
            tokio::select! {
                biased;
                changed = self.news.changed() => {
                    if let Some(over) = ended_by(changed.ok().map(|()| *self.news.borrow())) {
                        return over;
                    }
                }
                () = &mut hand_over => return Attempt::Draining,
                () = shutdown.aborted() => return Attempt::Draining,
                () = tokio::time::sleep_until(alarm) => {
                    if let Some(over) = self.out_of_time(Instant::now()) {
                        return over;
                    }
                }
            }
        }
    }
}

fn not_stowed(error: &StowError) -> Attempt {
    match error {
        StowError::OverLimit => Attempt::OverLimit,
        StowError::Away(_) => {
            tracing::error!(error = error as &dyn std::error::Error, "an artifact was not stored");
            Attempt::NoArtifacts
        }
        StowError::Store(error) => unwritten(error),
    }
}
