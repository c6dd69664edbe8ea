//! What a turn does with parts that are too large for events, and with files: it brings them to the artifact store before their event
//! is written, and stops when something else ends the attempt meanwhile.

use std::sync::Arc;
use std::time::Duration;

use a2a::{Message, Part};
use relevo_shared::domain::reason::FailReason;
use relevo_shared::domain::record::TurnRecord;
use relevo_shared::store::Taken;
use tokio::time::Instant;

use super::super::sink::{Enclosed, Output};
use super::super::stow::{self, Errand, StowError, Stowed};
use super::super::take::Worker;
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
        let large = |part: &&mut Part| artifacts.takes(part, self.draft.fits_nowhere(part));
        let parts: Vec<&mut Part> = parts.iter_mut().filter(large).collect();
        if parts.is_empty() {
            return Ok(false);
        }
        let taken = Arc::clone(&self.taken);
        let mut stowed = std::mem::take(&mut self.stowed);
        let mut errand = errand(&worker, &taken, &mut stowed);
        let work = Box::pin(async {
            for part in parts {
                artifacts.stow(&mut errand, part).await?;
            }
            Ok(())
        });
        let done = self.unless_interrupted(work).await;
        self.stowed = stowed;
        done.map(|()| true)
    }

    /// Puts the content of files where it belongs, for the parts that stand for them.
    pub(super) async fn enclose(&mut self, output: &mut Output, files: &[Enclosed]) -> Result<(), Attempt> {
        let Some(parts) = output.parts_mut() else {
            return Ok(());
        };
        let worker = Arc::clone(&self.worker);
        let taken = Arc::clone(&self.taken);
        let (most, mut left) = (self.draft.most_raw(), self.draft.left());
        let mut stowed = std::mem::take(&mut self.stowed);
        let mut errand = errand(&worker, &taken, &mut stowed);
        let work = Box::pin(async {
            for file in files {
                let Some(part) = parts.get_mut(file.part) else { continue };
                let not_taken = |error: &StowError| log_not_taken(&taken.record, file, error);
                if let Some(artifacts) = &worker.artifacts {
                    let stowed = artifacts.stow_file(&mut errand, part, file).await;
                    stowed.inspect_err(not_taken)?;
                    continue;
                }
                let size = stow::inline_file(part, file, most).await.inspect_err(not_taken)?;
                // No more in memory than could be written.
                left = left.checked_sub(size).ok_or_else(|| {
                    StowError::OverLimit("The agent's files together are more than turn.max_bytes.".to_owned())
                })?;
            }
            Ok(())
        });
        let done = self.unless_interrupted(work).await;
        self.stowed = stowed;
        done
    }

    /// Does what may take its time, unless something else ends the attempt before. What was said before does not wait for it.
    async fn unless_interrupted(&mut self, work: impl Future<Output = Result<(), StowError>>) -> Result<(), Attempt> {
        if !self.draft.is_empty()
            && let Some(over) = self.flush().await
        {
            return Err(over);
        }
        tokio::select! {
            biased;
            over = self.interrupted() => Err(over),
            done = work => done.map_err(not_stowed),
        }
    }

    /// Whoever was too late may have written an object after everything else of the task was deleted: noted again, it is found.
    pub(super) async fn note_what_may_be_left(&self) {
        if let Some(artifacts) = self.worker.artifacts.as_ref().filter(|_| self.stowed.noted) {
            let noted = artifacts.note(&self.worker.store, &self.taken.record);
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

/// On the way to the store for a turn.
fn errand<'a>(worker: &'a Worker, taken: &'a Taken, stowed: &'a mut Stowed) -> Errand<'a> {
    Errand {
        store: &worker.store,
        record: &taken.record,
        epoch: taken.epoch,
        stowed,
        tasks: &worker.tasks,
        metrics: &worker.metrics,
    }
}

/// The whole path is for the log only: the reader of the task learns the name.
fn log_not_taken(record: &TurnRecord, file: &Enclosed, error: &StowError) {
    if let StowError::File { source, .. } = error {
        tracing::warn!(
            task.id = %record.task, turn.id = %record.turn, agent.name = record.agent,
            path = ?file.path, workspace = ?file.workspace, error = source as &dyn std::error::Error,
            "a file of an agent was not taken"
        );
    }
}

fn not_stowed(error: StowError) -> Attempt {
    match error {
        StowError::OverLimit(sentence) => Attempt::Refused(FailReason::OutputLimit, sentence),
        StowError::OverQuota(sentence) => Attempt::Refused(FailReason::QuotaExceeded, sentence),
        StowError::Late => Attempt::Lost,
        StowError::File { sentence, .. } => Attempt::Refused(FailReason::AgentError, sentence),
        StowError::Away(source) => {
            tracing::error!(error = &source as &dyn std::error::Error, "an artifact was not stored");
            Attempt::NoArtifacts
        }
        StowError::Store(error) => unwritten(&error),
    }
}
