//! Agents of `kind = "process"`: a program in any language that reads and writes lines of JSON.
//!
//! Owns the life of their processes: one per turn, or one per context that is kept while it is idle. A process runs under its
//! supervisor ([`crate::supervise`]) and is gone, with everything it started, before its turn is settled. Refuses to guess: what
//! breaks the protocol ends the turn with a reason. Called by the runner through [`Agent`].

mod child;
mod env;
mod keep;
mod lines;
mod stderr;
mod talk;
mod uproot;
mod warden;
mod wire;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use relevo_shared::agents::ProcessConfig;
use relevo_shared::domain::reason::FailReason;
use relevo_shared::domain::record::CrashPolicy;
use relevo_shared::platform::tasks::Tasks;
use relevo_shared::store::StoreError;

use super::ending::{failed, stopped, until_read};
use super::{Agent, CancelToken, EventSink, Outcome, Running, StopReason, Turn};
use child::{Child, SIGTERM, SLACK, start};
pub(crate) use env::check;
use keep::Kept;
use talk::{Names, Talk, Verdict};
pub(crate) use warden::Warden;
use wire::{Past, Said};

/// Runs turns in processes.
#[derive(Debug)]
pub struct Process {
    config: ProcessConfig,
    supervisor: Option<PathBuf>,
    warden: Arc<Warden>,
    tasks: Tasks,
    kept: Option<Arc<Kept>>,
    /// Where the processes run, free of symbolic links; none when that is the whole disk.
    home: Option<Arc<Path>>,
}

impl Process {
    /// An agent whose idle processes are at most `most`. `supervisor` is the binary with the subcommand `supervise`, this one
    /// when unset. Within a runtime.
    pub(crate) fn new(
        config: ProcessConfig,
        supervisor: Option<PathBuf>,
        warden: Arc<Warden>,
        tasks: &Tasks,
        most: usize,
    ) -> Self {
        let kept = config.keep.map(|keep| Kept::new(keep, config.kill_grace, most, tasks));
        let home = config.cwd.clone().map_or_else(std::env::current_dir, Ok);
        let home = home.and_then(|home| home.canonicalize());
        let home = home.ok().filter(|home| home.parent().is_some()).map(Arc::from);
        Self {
            home,
            config,
            supervisor,
            warden,
            tasks: tasks.clone(),
            kept,
        }
    }

    async fn turn(&self, turn: Turn, sink: &EventSink, cancel: &CancelToken) -> Outcome {
        let line = match until_read(&turn, cancel, || read_past(&turn)).await {
            Ok(past) => wire::turn(&turn, &past),
            Err(outcome) => return outcome,
        };
        let line = match line {
            Ok(line) => line,
            Err(text) => return failed(&turn.record, &text),
        };
        let mut child = match self.child(&turn).await {
            // Dropped, a kept one too, when the turn must stop before it began.
            Ok(_) if cancel.reason().is_some() => return stopped(),
            Ok(child) => child,
            Err(error) => return Outcome::Failed(FailReason::AgentError, error.to_string()),
        };
        child.log().begin(&turn.record);
        child.live_by(&turn.guard);
        child.input.push(&line);
        drop(line);
        let talk = Talk {
            child: &mut child,
            record: &turn.record,
            sink,
            cancel,
            grace: self.config.kill_grace,
            names: Names::default(),
            workspace: self.workspace(&turn),
        };
        let verdict = talk.run().await;
        self.conclude(verdict, child, &turn, cancel).await
    }

    /// Where the files of a turn lie: where its context works, if its profile says so, else where the agent does.
    fn workspace(&self, turn: &Turn) -> Option<Arc<Path>> {
        match &turn.prompt {
            Some(prompt) => Some(Arc::from(prompt.workspace.as_path())),
            None => self.home.clone(),
        }
    }

    /// The kept process of the context, if nothing ran in the context since its last turn, or a new one.
    async fn child(&self, turn: &Turn) -> Result<Child, child::StartError> {
        if let Some(idle) = self.kept.as_ref().and_then(|kept| kept.take(turn.guard.context())) {
            let follows = turn.previous == Some(idle.epoch) && (turn.record.turn != idle.turn || idle.asks);
            let mut kept = idle.child;
            if follows && kept.is_quiet() {
                return Ok(kept);
            }
            // It missed a turn that ran elsewhere, ran an attempt of this very turn that is void, said something out of turn, or
            // died: what it remembers is worth nothing.
            kept.end(self.config.kill_grace).await;
        }
        start(
            &self.config,
            self.supervisor.as_deref(),
            &self.warden,
            turn,
            &self.tasks,
        )
    }

    async fn conclude(&self, verdict: Verdict, mut child: Child, turn: &Turn, cancel: &CancelToken) -> Outcome {
        let grace = self.config.kill_grace;
        match verdict {
            Verdict::Ended(said) => {
                let outcome = outcome(said, turn);
                match outcome {
                    // The next attempt must not remember this one.
                    Outcome::Crashed(_) => self.see_out(child, cancel).await,
                    Outcome::Suspended(..) => self.keep_or_end(child, turn, true, cancel).await,
                    Outcome::Ended(..) | Outcome::Failed(..) => self.keep_or_end(child, turn, false, cancel).await,
                }
                outcome
            }
            Verdict::Stopped {
                reason: StopReason::Client | StopReason::Deadline | StopReason::Refused,
                answered: true,
            } if self.kept.is_some() => {
                self.keep_or_end(child, turn, false, cancel).await;
                stopped()
            }
            Verdict::Stopped { .. } => {
                child.end(grace).await;
                stopped()
            }
            Verdict::Broken(text) => {
                // What follows is the worker's doing, and would read like a cause.
                let exit = child.fate.exit;
                child.end(grace).await;
                let words = child.last_words(exit).await;
                tracing::warn!(
                    task.id = %turn.record.task, turn.id = %turn.record.turn, agent.name = turn.record.agent,
                    words, "an agent broke the protocol"
                );
                Outcome::Failed(FailReason::AgentError, text)
            }
            Verdict::Silent(text) => {
                let exit = child.fate.exit;
                child.end(grace).await;
                let exit = exit.or(child.fate.exit.filter(|exit| *exit != SIGTERM));
                Outcome::Crashed(format!("{text}: {}", child.last_words(exit).await))
            }
        }
    }

    /// After the end of a turn, or its suspension: the process waits for what follows, or is seen out.
    async fn keep_or_end(&self, child: Child, turn: &Turn, asks: bool, cancel: &CancelToken) {
        let Some(kept) = &self.kept else {
            return self.see_out(child, cancel).await;
        };
        let over = kept.put(turn.guard.context().clone(), child, turn, asks);
        if let Some(mut over) = over {
            over.end(self.config.kill_grace).await;
        }
    }

    /// Lets a process that has nothing more to do end by itself, for a while.
    async fn see_out(&self, mut child: Child, cancel: &CancelToken) {
        child.input.close();
        let left = tokio::select! {
            left = child.until_gone(self.config.kill_grace) => left,
            _ = cancel.canceled() => false,
        };
        if !left {
            child.end(self.config.kill_grace).await;
        }
    }
}

impl Agent for Process {
    fn run<'a>(&'a self, turn: Turn, sink: &'a EventSink, cancel: CancelToken) -> Running<'a> {
        Box::pin(async move { self.turn(turn, sink, &cancel).await })
    }

    fn patience(&self) -> Duration {
        patience(&self.config)
    }
}

/// How long a program that is told to stop may take, until it is gone with everything that it started.
pub(crate) fn patience(config: &ProcessConfig) -> Duration {
    config.kill_grace + 2 * SLACK
}

async fn read_past(turn: &Turn) -> Result<Past, StoreError> {
    let (task, history) = turn.past().await?;
    let item = |bytes: &Vec<u8>| {
        serde_json::from_slice(bytes).map_err(|error| StoreError::Refused {
            rule: format!("a session holds what is no JSON: {error}"),
        })
    };
    let session = turn.session().await?.iter().map(item).collect::<Result<_, _>>()?;
    Ok(Past { task, history, session })
}

fn outcome(said: Said, turn: &Turn) -> Outcome {
    match said {
        Said::End(ending, message, metadata) => Outcome::Ended(ending, message, metadata),
        Said::Suspend(need, message, metadata) => Outcome::Suspended(need, message, metadata),
        Said::Error { text, retryable } if retryable && turn.record.policy == CrashPolicy::Restart => {
            Outcome::Crashed(text)
        }
        Said::Error { text, .. } => failed(&turn.record, &text),
        // Never an end.
        Said::Status { .. } | Said::Artifact { .. } | Said::Session { .. } => stopped(),
    }
}
