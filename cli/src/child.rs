//! Child processes that cannot outlive this one, however it ends.
//!
//! Owns how they are started and stopped. The kernel kills a child when the thread that forked it ends, so every child is
//! forked by one thread, the [`Nursery`], and dropping that kills what is left. The signal must be asked for by the child
//! itself: this binary starts again as `relevo tied`, asks, looks whether its parent still lives, and becomes the program
//! ([`tied`]). Children have a process group of their own: Ctrl-C reaches this process alone, which stops them in order.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc;
use std::time::Duration;

use clap::Args;
use relevo_shared::platform::tasks::{Kind, Tasks, spawn_thread};
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};

use crate::exit::Problem;

/// How often a child is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// What a shell answers when a program is not there.
pub(crate) const NOT_FOUND: u8 = 127;

type Order = (Command, mpsc::Sender<io::Result<Child>>);

/// The thread that forks. Children that still run when it is dropped are killed.
#[derive(Debug)]
pub(crate) struct Nursery {
    orders: mpsc::Sender<Order>,
}

impl Nursery {
    /// Starts the thread.
    pub(crate) fn start(tasks: &Tasks) -> Result<Self, Problem> {
        let (orders, inbox) = mpsc::channel::<Order>();
        let fork = move || {
            for (mut command, answer) in inbox {
                // Whoever asked may have gone; then the child is dropped and dies with this thread.
                let _ = answer.send(command.spawn());
            }
        };
        spawn_thread(tasks, "nursery", Kind::BestEffort, fork).map_err(anyhow::Error::from)?;
        Ok(Self { orders })
    }

    /// Starts `program`; `prepare` adds arguments, environment, files.
    pub(crate) fn spawn(
        &self,
        program: impl AsRef<OsStr>,
        prepare: impl FnOnce(&mut Command),
    ) -> Result<Running, Problem> {
        let program = program.as_ref();
        let failed = |why: &str| Problem::failed(format!("cannot start {}: {why}", program.display()));
        let mut command = Command::new("/proc/self/exe");
        command
            .arg("tied")
            .arg(std::process::id().to_string())
            .arg(program)
            .process_group(0);
        prepare(&mut command);
        let (answer, child) = mpsc::channel();
        self.orders
            .send((command, answer))
            .map_err(|error| failed(&error.to_string()))?;
        match child.recv() {
            Ok(Ok(child)) => Ok(Running { child }),
            Ok(Err(error)) => Err(failed(&error.to_string())),
            Err(error) => Err(failed(&error.to_string())),
        }
    }
}

/// A child that was started. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
}

impl Running {
    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends a signal, unless it has ended.
    pub(crate) fn signal(&mut self, signal: Signal) {
        // It is not reaped between the look and the signal: only this value can reap it.
        if self.ended().is_none() {
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    /// Waits until it has ended.
    pub(crate) async fn wait(&mut self) -> ExitStatus {
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// SIGTERM, and SIGKILL when that has not ended it after `patience`. Says whether it ended by itself.
    pub(crate) async fn stop(mut self, patience: Duration) -> bool {
        self.signal(Signal::TERM);
        tokio::time::timeout(patience, self.wait()).await.is_ok()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Becomes another program, tied to the life of the process that asked. For `relevo` itself.
#[derive(Debug, Args)]
pub(crate) struct TiedArgs {
    /// The process that asks
    parent: i32,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Becomes the program. Returns only when that is impossible, with the exit code and what to say.
pub(crate) fn tied(args: TiedArgs) -> (u8, String) {
    let TiedArgs { parent, command } = args;
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return (1, format!("cannot be tied to its parent: {error}"));
    }
    // ORDER: after the signal was asked for; a parent that died before that sends none.
    if getppid().map(Pid::as_raw_nonzero).map(std::num::NonZero::get) != Some(parent) {
        return (1, "its parent has gone".to_owned());
    }
    let mut command = command.into_iter();
    let program = command.next().unwrap_or_default();
    let error = Command::new(&program).args(command).exec();
    let code = if error.kind() == io::ErrorKind::NotFound {
        NOT_FOUND
    } else {
        1
    };
    (code, format!("cannot run {}: {error}", program.display()))
}
