//! The worker's side of its warden ([`crate::supervise`]): started with the first supervisor, told of each and of every renewal,
//! replaced when it dies.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use relevo_shared::platform::tasks::{self, AbortOnDrop, Kind, Tasks};
use rustix::process::Pid;
use tokio::process::{Child, Command};
use tokio::sync::Notify;

use crate::supervise::link::{Link, Say, Watched, pair};
use crate::supervise::{SUBCOMMAND, WATCH};

/// How soon a warden that could not be started, or that died, is started again.
const AGAIN: Duration = Duration::from_secs(1);

/// What starts this very file, even when another version has replaced it, or the binary that knows the subcommand.
pub(super) fn binary(supervisor: Option<&Path>) -> PathBuf {
    supervisor.map_or_else(|| PathBuf::from("/proc/self/exe"), Path::to_path_buf)
}

/// The warden of a worker.
#[derive(Debug)]
pub(crate) struct Warden {
    shared: Arc<Shared>,
    _keeping: AbortOnDrop<()>,
}

#[derive(Debug, Default)]
struct Shared {
    told: Mutex<Told>,
    /// There is something for the keeper to look at.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Told {
    link: Option<Link>,
    /// Whether it has not listened once.
    deaf: bool,
    watched: HashMap<Pid, Watched>,
}

impl Told {
    /// Takes a new warden and tells it all.
    fn take(&mut self, link: Link) {
        self.link = Some(link);
        self.deaf = false;
        let all: Vec<Watched> = self.watched.values().copied().collect();
        for watched in all {
            self.say(&Say::Watch(watched));
        }
    }

    fn say(&mut self, what: &Say) {
        let said = self.link.as_ref().map(|link| link.say(what));
        self.deaf |= matches!(said, Some(Err(_)));
    }
}

impl Shared {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the warden; should there be none that listens, the keeper sees to it.
    fn tell(&self, told: &mut Told, watched: Watched) {
        told.say(&Say::Watch(watched));
        if told.deaf || told.link.is_none() {
            self.changed.notify_one();
        }
    }

    async fn until(&self, is: impl Fn(&Told) -> bool) {
        while !is(&self.told()) {
            self.changed.notified().await;
        }
    }
}

/// One supervisor that is watched, until this is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    shared: Arc<Shared>,
    pid: Pid,
}

impl Warden {
    /// One that starts when it is needed. `supervisor` is the binary with the subcommand, this one when unset. Within a runtime.
    pub(crate) fn new(supervisor: Option<&Path>, tasks: &Tasks) -> Arc<Self> {
        let shared = Arc::new(Shared::default());
        let keeping = keep(Arc::clone(&shared), binary(supervisor));
        Arc::new(Self {
            shared,
            _keeping: tasks::background(tasks, "warden", Kind::BestEffort, keeping),
        })
    }

    /// Has a supervisor watched. One that is not told, because there is no warden just now, is told to the next.
    pub(super) fn watch(&self, watched: Watched) -> Watch {
        let pid = watched.supervisor.pid;
        let mut told = self.shared.told();
        told.watched.insert(pid, watched);
        self.shared.tell(&mut told, watched);
        Watch {
            shared: Arc::clone(&self.shared),
            pid,
        }
    }
}

impl Watch {
    /// Its supervisor has done its work.
    pub(super) fn is_over(&self) {
        let mut told = self.shared.told();
        if told.watched.remove(&self.pid).is_some() {
            // One that does not hear it looks for itself.
            told.say(&Say::Forget(self.pid));
        }
    }

    /// Moves the time of its tree. Does not wait.
    pub(super) fn until(&self, kill: Duration) {
        let mut told = self.shared.told();
        let Some(watched) = told.watched.get_mut(&self.pid) else {
            return;
        };
        watched.kill = kill;
        let watched = *watched;
        self.shared.tell(&mut told, watched);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.told().watched.remove(&self.pid);
    }
}

/// Keeps a warden alive and informed.
async fn keep(shared: Arc<Shared>, program: PathBuf) {
    loop {
        shared.until(|told| !told.watched.is_empty()).await;
        match spawn(&program) {
            Ok((mut child, link)) => {
                shared.told().take(link);
                tokio::select! {
                    _ = child.wait() => {}
                    () = shared.until(|told| told.deaf) => {}
                }
                tracing::warn!("the warden of agents died or does not listen: it is replaced");
                // ORDER: killed before its socket is closed, which it would take for the end of this worker.
                let _ = child.kill().await;
                shared.told().link = None;
            }
            Err(error) => tracing::error!(%error, "the warden of agents cannot be started"),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

fn spawn(program: &Path) -> io::Result<(Child, Link)> {
    let (link, theirs) = pair()?;
    let child = Command::new(program)
        .arg0("relevo-warden")
        .args([SUBCOMMAND, WATCH])
        .env_clear()
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .current_dir("/")
        .spawn()?;
    Ok((child, link))
}
