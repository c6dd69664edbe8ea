//! The supervisor's life: start the command, pass deadlines and orders on to its tree, leave when the tree is gone.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use relevo_shared::platform::clock;
use rustix::process::{Pid, Signal, getpid, set_child_subreaper, setsid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use tokio::signal::unix::{SignalKind, signal};

use super::link::{Deadline, Link, Say};
use super::{EXEC, SUBCOMMAND, tree};

/// The clock of deadlines goes on while the machine sleeps, that of timers does not: it is looked at so often.
const LOOK: Duration = Duration::from_millis(500);
/// How soon what must die is looked for again.
const AGAIN: Duration = Duration::from_millis(10);
/// How many times in a row, at first.
const ROUNDS: u32 = 32;

/// Runs a command and ends it; returns when nothing of it is left.
pub(super) fn run(grace: Duration, command: &[OsString]) -> ExitCode {
    // A session of its own: a Ctrl-C for the worker is no business of agents that the worker lets finish.
    let ready = setsid().and_then(|_| set_child_subreaper(Some(getpid())));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (Ok(()), Ok(runtime)) = (ready, runtime) else {
        return ExitCode::FAILURE;
    };
    match runtime.block_on(supervise(grace, command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

async fn supervise(grace: Duration, command: &[OsString]) -> io::Result<()> {
    let link = Link::new(io::stdin().as_fd().try_clone_to_owned()?)?;
    // The worker decides; a signal to the whole group or service must not leave a tree without its keeper.
    let _deaf = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
    let mut ended = signal(SignalKind::child())?;
    let Some((Say::Start(deadline), Some(stdin))) = link.hear().await else {
        return Ok(());
    };
    let started = if deadline.term <= clock::boottime() {
        Err(io::Error::other("the lease has run out"))
    } else {
        start(command, stdin)
    };
    let pid = match started {
        Ok(pid) => pid,
        Err(error) => {
            link.say(&Say::Failed(error.to_string()))?;
            return link.say(&Say::Gone);
        }
    };
    let_go()?;
    drop(link.say(&Say::Started(pid.as_raw_nonzero().get())));

    let mut keeper = Keeper {
        grace,
        deadline,
        stop: None,
        killed: 0,
        worker: true,
    };
    loop {
        let reaped = tree::reap(Some(pid));
        if let Some(exit) = reaped.watched {
            drop(link.say(&Say::Exited(exit)));
            keeper.stop_within(grace);
        }
        if reaped.all {
            break;
        }
        let wait = keeper.look();
        tokio::select! {
            _ = ended.recv() => {}
            heard = link.hear(), if keeper.worker => keeper.hear(heard.as_ref().map(|(what, _)| what)),
            () = tokio::time::sleep(wait) => {}
        }
    }
    drop(link.say(&Say::Gone));
    Ok(())
}

/// Starts the command by way of [`super::exec`], which gives it a session and ties it to this process.
fn start(command: &[OsString], stdin: OwnedFd) -> io::Result<Pid> {
    let me = getpid().as_raw_nonzero().to_string();
    // Never waited for by this handle: [`tree::reap`] takes every exit code.
    let child = Command::new("/proc/self/exe")
        .arg(SUBCOMMAND)
        .args([EXEC, &me])
        .args(command)
        .stdin(Stdio::from(stdin))
        .spawn()?;
    Ok(Pid::from_child(&child))
}

/// Lets go of the command's output, so that the worker sees its end when the command's tree lets go of it.
fn let_go() -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)?;
    Ok(())
}

struct Keeper {
    grace: Duration,
    deadline: Deadline,
    /// When it must be dead, once it was told to stop.
    stop: Option<Duration>,
    /// How often it was killed.
    killed: u32,
    /// Whether the worker is there.
    worker: bool,
}

impl Keeper {
    fn hear(&mut self, what: Option<&Say>) {
        match what {
            Some(Say::Deadline(deadline)) => self.deadline = *deadline,
            Some(Say::Stop(within)) => self.stop_within(*within),
            Some(_) => {}
            None => {
                self.worker = false;
                self.stop_within(self.grace);
            }
        }
    }

    /// Tells everything to stop. A later order may only shorten the time.
    fn stop_within(&mut self, within: Duration) {
        let at = clock::boottime() + within;
        let first = self.stop.is_none();
        self.stop = Some(self.stop.map_or(at, |before| before.min(at)));
        if first {
            tree::signal(Signal::TERM);
        }
    }

    /// Does what is due; returns when to look again.
    fn look(&mut self) -> Duration {
        let now = clock::boottime();
        if self.stop.is_none() && now >= self.deadline.term {
            self.stop_within(self.grace);
        }
        let due = match self.stop {
            // The lease counts more than the grace.
            Some(at) => at.min(self.deadline.kill),
            None => self.deadline.term,
        };
        if self.stop.is_some() && now >= due {
            // What was forked meanwhile is found in the next round. What the system does not let die is asked less and less often.
            let rounds = ROUNDS >> self.killed.min(5);
            let wait = AGAIN * (1 << self.killed.min(5));
            self.killed = self.killed.saturating_add(1);
            for _ in 0..rounds {
                if tree::signal(Signal::KILL) == 0 {
                    break;
                }
            }
            return wait;
        }
        due.saturating_sub(now).clamp(Duration::from_millis(1), LOOK)
    }
}
