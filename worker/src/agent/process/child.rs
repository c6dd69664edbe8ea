//! One process under its supervisor: started, spoken to, watched, and surely ended.
//!
//! [`Child::end`] ends it and waits until nothing of it is left; dropping it kills it without waiting. A supervisor that does not
//! do it in time is no excuse: its tree is uprooted.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use relevo_shared::agents::ProcessConfig;
use relevo_shared::platform::clock;
use relevo_shared::platform::tasks::{self, AbortOnDrop, Kind, Tasks};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::unix::pipe;
use tokio::process::{ChildStdout, Command};
use tokio::sync::oneshot;

use super::env;
use super::lines::Lines;
use super::stderr::{Log, pump};
use super::uproot::uproot;
use super::warden::{Warden, Watch, binary};
use crate::agent::Turn;
use crate::runner::leases::Guard;
use crate::supervise::link::{Deadline, Exit, Link, Say, Watched, pair};
use crate::supervise::tree::{Marks, Root};
use crate::supervise::{RUN, SUBCOMMAND};

/// How much of standard output is read at once: with the pipe's own 64 KiB, all that a flooding process gets ahead by.
const READ_AHEAD: usize = 16 << 10;
/// How long the end of a tree may take beyond its grace: reaping, and a machine that is busy.
pub(super) const SLACK: Duration = Duration::from_secs(1);
/// The same of a tree that is killed at once, because its lease is as good as over.
const PROMPT: Duration = Duration::from_millis(250);
/// The end of a process that obeyed the word to stop.
pub(super) const SIGTERM: Exit = Exit::Signal(Signal::TERM.as_raw());

/// Why there is no process.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    /// A variable is missing.
    #[error("{0}")]
    Environment(env::Missing),
    /// The system refused something.
    #[error("the process cannot be started: {0}")]
    System(#[from] io::Error),
}

/// What the supervisor reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Fate {
    /// How the command ended.
    pub(super) exit: Option<Exit>,
    /// Whether nothing of its tree is left.
    pub(super) gone: bool,
}

/// What is on its way to standard input.
#[derive(Debug)]
pub(super) struct Input {
    pipe: Option<pipe::Sender>,
    waiting: VecDeque<u8>,
}

impl Input {
    /// Adds to what is on its way.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.pipe.is_some() {
            self.waiting.extend(bytes);
        }
    }

    /// Whether something is on its way.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Writes some of it. A process that does not read is no error: it need not listen. Cancel-safe.
    pub(super) async fn write(&mut self) {
        let Some(pipe) = &mut self.pipe else {
            self.waiting.clear();
            return;
        };
        let (bytes, _) = self.waiting.as_slices();
        match pipe.write(bytes).await {
            Ok(count) => drop(self.waiting.drain(..count)),
            Err(_) => self.close(),
        }
    }

    /// Lets the process see the end of its input.
    pub(super) fn close(&mut self) {
        self.pipe = None;
        self.waiting.clear();
    }
}

/// A process.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) link: Arc<Link>,
    /// Who sees to its supervisor when this worker does not.
    watch: Arc<Watch>,
    pub(super) input: Input,
    pub(super) lines: Lines<BufReader<ChildStdout>>,
    pub(super) fate: Fate,
    pid: Option<Pid>,
    marks: Marks,
    /// Within which time it was told to end by itself, if it was.
    told: Option<Duration>,
    log: Arc<Mutex<Log>>,
    _pump: AbortOnDrop<()>,
    pumped: oneshot::Receiver<()>,
    /// The supervisor. Not killed with this value: it has a tree to end.
    supervisor: Option<tokio::process::Child>,
    tasks: Tasks,
}

impl Drop for Child {
    fn drop(&mut self) {
        // Whoever had no time to end it in order goes on as if it were gone: so it is killed at once.
        let limit = self.told.map_or(PROMPT, |within| within + SLACK);
        if !self.fate.gone && self.told.is_none() {
            self.stop(Duration::ZERO);
        }
        self.link.close();
        let Some(mut supervisor) = self.supervisor.take().filter(|_| !self.fate.gone) else {
            return;
        };
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        // A supervisor that was stopped hears nothing.
        let see_to_it = async move {
            if tokio::time::timeout(limit, supervisor.wait()).await.is_err() {
                uproot(&mut supervisor).await;
            }
        };
        drop(tasks::spawn(&self.tasks, "agent end", Kind::BestEffort, see_to_it));
    }
}

/// Starts the process of an agent under the lease of a turn. `supervisor` is the binary that knows the subcommand.
pub(super) fn start(
    config: &ProcessConfig,
    supervisor: Option<&Path>,
    warden: &Warden,
    turn: &Turn,
    tasks: &Tasks,
) -> Result<Child, StartError> {
    let variables = env::variables(config).map_err(StartError::Environment)?;
    let marks = Marks {
        turn: turn.record.turn,
        epoch: turn.epoch,
    };
    let (link, theirs) = pair()?;
    let (stdin_end, input) = io::pipe()?;
    let mut command = Command::new(binary(supervisor));
    command
        .arg0("relevo-supervise")
        .args([SUBCOMMAND, RUN, &config.kill_grace.as_millis().to_string()])
        .args(&config.command)
        .env_clear()
        .envs(variables)
        .envs(marks.variables())
        .env("RELEVO_ATTEMPT", turn.attempt.to_string())
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(cwd) = &config.cwd {
        command.current_dir(cwd);
    }
    let mut child = command.spawn()?;
    drop(command);
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(io::Error::other("no pipes").into());
    };
    let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let Some(root) = pid.and_then(Root::of) else {
        return Err(io::Error::other("/proc does not show it").into());
    };
    let deadline = turn.guard.deadline();
    // ORDER: watched before there is a program that could stop it.
    let watch = Arc::new(warden.watch(Watched {
        supervisor: root,
        grace: config.kill_grace,
        kill: deadline.kill,
        marks,
    }));
    link.say_with(&Say::Start(deadline), stdin_end.as_fd())?;
    let log = Arc::new(Mutex::new(Log::default()));
    let (done, pumped) = oneshot::channel();
    let to = Arc::clone(&log);
    let reading = async move {
        pump(BufReader::new(stderr), to).await;
        // Whoever waits for the last bytes may be gone.
        let _ = done.send(());
    };
    Ok(Child {
        link: Arc::new(link),
        watch,
        input: Input {
            pipe: Some(pipe::Sender::from_owned_fd(input.into())?),
            waiting: VecDeque::new(),
        },
        lines: Lines::new(BufReader::with_capacity(READ_AHEAD, stdout), config.max_line.as_len()),
        fate: Fate::default(),
        pid: None,
        marks,
        told: None,
        log,
        _pump: tasks::background(tasks, "agent stderr", Kind::BestEffort, reading),
        pumped,
        supervisor: Some(child),
        tasks: tasks.clone(),
    })
}

impl Child {
    /// What it writes to standard error from now on belongs to this turn.
    pub(super) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ties its life to a lease: every renewal moves its deadline, from the thread that renews.
    pub(super) fn live_by(&self, guard: &Guard) {
        let (link, watch) = (Arc::clone(&self.link), Arc::clone(&self.watch));
        guard.follow(move |deadline| {
            // A supervisor that cannot be told lets the old deadline stand, which is the safe side.
            drop(link.say(&Say::Deadline(deadline)));
            watch.until(deadline.kill);
        });
    }

    /// Lets it live on without a lease, idle, for a while.
    pub(super) fn rest(&self, guard: &Guard, keep: Duration) {
        guard.leave();
        let term = clock::boottime() + keep;
        let kill = term + SLACK;
        drop(self.link.say(&Say::Deadline(Deadline { term, kill })));
        self.watch.until(kill);
    }

    /// SIGTERM now, SIGKILL after this.
    pub(super) fn stop(&self, within: Duration) {
        drop(self.link.say(&Say::Stop(within)));
    }

    /// Takes over what the supervisor said; `None`: it is gone.
    pub(super) fn note(&mut self, what: Option<Say>) {
        match what {
            Some(Say::Started(pid)) => self.pid = Pid::from_raw(pid),
            Some(Say::Exited(exit)) => self.fate.exit = Some(exit),
            Some(Say::Failed(why)) => self.log().add(&format!("the command cannot be run: {why}")),
            Some(Say::Gone) => {
                self.watch.is_over();
                self.fate.gone = true;
            }
            Some(Say::Start(_) | Say::Deadline(_) | Say::Stop(_) | Say::Watch(_) | Say::Forget(_)) => {}
            None => {
                // The supervisor died before its tree: its command dies with it, the rest is ended here.
                if let Some(group) = self.pid.filter(|_| !self.fate.gone) {
                    tracing::error!(pid = group.as_raw_nonzero().get(), "the supervisor of an agent died");
                    let _ = kill_process_group(group, Signal::KILL);
                    self.marks.kill_bearers();
                }
                self.fate.gone = true;
            }
        }
    }

    /// Lets it end by itself: SIGTERM now, SIGKILL after this. No turn waits for it.
    pub(super) fn dismiss(mut self, within: Duration) {
        self.stop(within);
        self.told = Some(within);
    }

    /// Whether it lives and has said nothing since its last turn. The system is asked, not the reactor, which may not have
    /// turned since: a process that died before this call is not quiet.
    pub(super) fn is_quiet(&mut self) -> bool {
        for what in self.link.heard() {
            self.note(what);
        }
        self.fate == Fate::default() && !self.input.is_waiting() && self.lines.is_silent()
    }

    /// Its last words, once its tree is gone, and how it ended, if that was its own doing.
    pub(super) async fn last_words(&mut self, exit: Option<Exit>) -> String {
        drop(tokio::time::timeout(SLACK, &mut self.pumped).await);
        let exit = exit.map(|exit| format!("{exit}; ")).unwrap_or_default();
        format!("{exit}stderr: {}", self.log().tail())
    }

    /// Ends it and waits until its tree is gone, by force if its supervisor does not. What it still says is dropped.
    pub(super) async fn end(&mut self, within: Duration) {
        self.stop(within);
        self.input.close();
        if !self.until_gone(within + SLACK).await {
            self.uproot().await;
        }
    }

    /// Ends its tree by force, which its supervisor did not do in time. Cancel-safe.
    pub(super) async fn uproot(&mut self) {
        if let Some(supervisor) = &mut self.supervisor {
            uproot(supervisor).await;
        }
        self.fate.gone = true;
    }

    /// Waits for the end of its tree, for at most this long; says whether it came. What it still says is dropped.
    pub(super) async fn until_gone(&mut self, limit: Duration) -> bool {
        let until = tokio::time::Instant::now() + limit;
        let mut reading = true;
        while !self.fate.gone {
            tokio::select! {
                // The fields are borrowed apart: a line is read while the fate is watched.
                line = self.lines.next(), if reading => reading = line.is_some(),
                heard = self.link.hear() => self.note(heard.map(|(what, _)| what)),
                () = tokio::time::sleep_until(until) => return false,
            }
        }
        true
    }
}
