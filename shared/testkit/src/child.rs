//! A child process that cannot outlive the test.
//!
//! Drop kills and reaps it. For the case that the test process itself is killed, the kernel does it: `setpriv
//! --pdeathsig KILL` (util-linux) sets the parent death signal before it becomes the program. Two details make that
//! hold:
//! - The signal is sent when the *thread* that forked ends, and test threads end early. So every child is forked by one
//!   thread that lives as long as the process.
//! - A parent that dies between fork and `prctl` sends nothing. So a shell compares its parent with the expected one
//!   after the signal was set, and only then becomes the program.
//!
//! Called by `process.rs` and `redis_server.rs`.

use std::ffi::OsStr;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::Duration;
use std::{fs, io, process, thread};

use rustix::process::{Pid, Signal, kill_process};

use crate::poll;

/// Becomes `"$@"` if the parent is still the one that asked (`$0`).
const EXEC_IF_PARENT_LIVES: &str = r#"test "$PPID" = "$0" && exec "$@""#;

type Order = (Command, mpsc::Sender<io::Result<Child>>);

/// The thread that forks; it is process-wide because it must outlive every test thread.
static SPAWNER: OnceLock<mpsc::Sender<Order>> = OnceLock::new();

/// A command that runs `program` tied to the life of this process.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "--", "sh", "-c", EXEC_IF_PARENT_LIVES])
        .arg(process::id().to_string())
        .arg(program);
    command
}

/// Forks on the spawner thread. `command` must come from [`command`].
pub(crate) fn spawn(command: Command) -> Child {
    let spawner = SPAWNER.get_or_init(|| {
        let (orders, inbox) = mpsc::channel::<Order>();
        thread::Builder::new()
            .name("testkit-spawner".to_owned())
            .spawn(move || {
                for (mut command, answer) in inbox {
                    answer.send(command.spawn()).ok();
                }
            })
            .expect("the spawner thread starts");
        orders
    });
    let (answer, child) = mpsc::channel();
    spawner.send((command, answer)).expect("the spawner thread lives");
    child
        .recv()
        .expect("the spawner thread answers")
        .expect("setpriv runs (Debian package util-linux)")
}

/// A running child. Signals go only to a process that was not reaped, so never to a stranger with a reused id.
#[derive(Debug)]
pub(crate) struct Guarded {
    child: Mutex<Child>,
    id: u32,
}

impl Guarded {
    pub(crate) fn spawn(command: Command) -> Self {
        let child = spawn(command);
        let id = child.id();
        Self {
            child: Mutex::new(child),
            id,
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// How it ended, or `None` while it runs (or is stopped).
    pub(crate) fn status(&self) -> Option<ExitStatus> {
        self.lock().try_wait().expect("a child can be waited for")
    }

    /// Sends a signal; `false` if the process has ended already.
    pub(crate) fn signal(&self, signal: Signal) -> bool {
        // The guard is held across the signal: nobody can reap the child in between.
        let mut child = self.lock();
        if child.try_wait().expect("a child can be waited for").is_some() {
            return false;
        }
        let id = Pid::from_child(&child);
        kill_process(id, signal).expect("a child that was not reaped can be signalled");
        true
    }

    /// SIGSTOP, and waits until every thread of the process stands still.
    pub(crate) fn stop(&self) -> bool {
        if !self.signal(Signal::STOP) {
            return false;
        }
        poll::until_sync("the process to stop", || match self.status() {
            Some(status) => Err(format!("it ended: {status}")),
            None => all_threads_stopped(self.id).map_err(|error| error.to_string()),
        });
        true
    }

    /// SIGKILL, and waits for the end.
    pub(crate) fn kill(&self) {
        let mut child = self.lock();
        // An error means that it has ended; the wait below then returns at once.
        child.kill().ok();
        child.wait().expect("a child can be waited for");
    }

    #[track_caller]
    pub(crate) fn wait(&self, what: &str, limit: Duration) -> ExitStatus {
        poll::within_sync(limit, what, || self.status().ok_or("still running"))
    }

    fn lock(&self) -> MutexGuard<'_, Child> {
        // A poisoned guard still holds a child that must be killed.
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.kill();
    }
}

fn all_threads_stopped(id: u32) -> io::Result<()> {
    for thread in fs::read_dir(format!("/proc/{id}/task"))? {
        let stat = fs::read_to_string(thread?.path().join("stat"))?;
        // `id (name) state ...`, where the name may itself contain brackets.
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        if state != Some('T') {
            return Err(io::Error::other(format!("a thread is in state {state:?}")));
        }
    }
    Ok(())
}
