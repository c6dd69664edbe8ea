//! The warden's life: one process beside each worker that sees to supervisors when the worker does not, because it is gone or stands
//! still, and they do not do their work either, because a program has stopped them.
//!
//! It knows of each supervisor when nothing of its tree may be left, and waits a little longer; then it kills what is below it, or what
//! bears the marks of its tree, if somebody has killed it. When the worker is gone it leaves with the last of them.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::time::Duration;

use relevo_shared::platform::clock;
use rustix::process::{Pid, setsid};
use tokio::signal::unix::{SignalKind, signal};

use super::link::{Link, Say, Watched};

/// What a supervisor is given to do its work by itself: a machine may be busy.
const PROMPT: Duration = Duration::from_millis(250);
/// How often it is looked whether something is due: the clock of deadlines goes on while the machine sleeps, that of timers does not.
const LOOK: Duration = Duration::from_millis(500);
/// How soon what must die is looked for again: what was forked meanwhile is found in the next round.
const AGAIN: Duration = Duration::from_millis(20);

/// Watches until the worker is gone, and nothing is left that would have to be.
pub(super) fn watch() -> ExitCode {
    // A session of its own: what ends the worker's group must not end this.
    let ready = setsid();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (Ok(_), Ok(runtime)) = (ready, runtime) else {
        return ExitCode::FAILURE;
    };
    match runtime.block_on(live()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

async fn live() -> io::Result<()> {
    let link = Link::new(io::stdin().as_fd().try_clone_to_owned()?)?;
    // It leaves when it is not needed any more.
    let _deaf = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
    let mut warden = Warden {
        watched: HashMap::new(),
        worker: true,
        rounds: 0,
    };
    loop {
        // ORDER: everything that was said before anything is done: it may be that this process stood still for a while.
        for what in link.heard() {
            warden.hear(what.as_ref());
        }
        let wait = warden.look();
        if !warden.worker && warden.watched.is_empty() {
            return Ok(());
        }
        tokio::select! {
            heard = link.hear(), if warden.worker => warden.hear(heard.as_ref().map(|(what, _)| what)),
            () = tokio::time::sleep(wait) => {}
        }
    }
}

struct Warden {
    watched: HashMap<Pid, Watched>,
    /// Whether the worker is there.
    worker: bool,
    /// How often in a row something had to be killed.
    rounds: u32,
}

impl Warden {
    fn hear(&mut self, what: Option<&Say>) {
        match what {
            Some(Say::Watch(watched)) => drop(self.watched.insert(watched.supervisor.pid, *watched)),
            Some(Say::Forget(pid)) => drop(self.watched.remove(pid)),
            // Every supervisor has heard it too, and stops its tree.
            None if self.worker => {
                self.worker = false;
                let now = clock::boottime();
                for watched in self.watched.values_mut() {
                    watched.kill = watched.kill.min(now + watched.grace);
                }
            }
            Some(_) | None => {}
        }
    }

    /// Does what is due; returns when to look again.
    fn look(&mut self) -> Duration {
        let now = clock::boottime();
        let worker = self.worker;
        let due = |watched: &Watched| watched.kill + PROMPT;
        self.watched.retain(|_, watched| {
            let stays = (worker && due(watched) > now) || watched.supervisor.is_there();
            if !stays {
                // Its work is done, or it was killed before: then the worker, which would have said so, may have been, too.
                watched.marks.kill_bearers();
            }
            stays
        });
        let next = self.watched.values().map(due).min();
        if next.is_none_or(|next| next > now) {
            self.rounds = 0;
            let wait = next.map_or(LOOK, |next| next.saturating_sub(now));
            return wait.clamp(Duration::from_millis(1), LOOK);
        }
        for watched in self.watched.values().filter(|watched| due(watched) <= now) {
            watched.supervisor.uproot();
        }
        // What the system does not let die is asked less and less often.
        self.rounds = self.rounds.saturating_add(1);
        AGAIN * (1 << (self.rounds / 8).min(5))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Child, Command, Stdio};

    use relevo_shared::ids::{Epoch, Partition, TurnId};
    use relevo_testkit::poll;
    use rustix::process::{Signal, kill_process, test_kill_process};

    use super::*;
    use crate::supervise::tree::{Marks, Root};

    /// What stands for a supervisor that somebody has stopped, and the number of the process below it.
    fn stopped() -> (Child, Root, Pid) {
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 60 & echo $!; wait"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = Vec::new();
        let mut out = shell.stdout.take().unwrap();
        while line.last() != Some(&b'\n') {
            let mut byte = [0];
            out.read_exact(&mut byte).unwrap();
            line.extend(byte);
        }
        let below = String::from_utf8(line).unwrap().trim().parse().unwrap();
        let root = Root::of(Pid::from_child(&shell)).unwrap();
        kill_process(root.pid, Signal::STOP).unwrap();
        (shell, root, Pid::from_raw(below).unwrap())
    }

    #[test]
    fn a_stopped_supervisor_is_uprooted_after_its_time_and_not_before() {
        let (mut shell, supervisor, below) = stopped();
        let marks = Marks {
            turn: TurnId::new(7, Partition(0), 0),
            epoch: Epoch(41),
        };
        let mut stray = Command::new("sleep").arg("60").envs(marks.variables()).spawn().unwrap();
        let mut warden = Warden {
            watched: HashMap::new(),
            worker: true,
            rounds: 0,
        };
        let mut watched = Watched {
            supervisor,
            grace: Duration::ZERO,
            kill: clock::boottime() + Duration::from_mins(1),
            marks: Marks {
                epoch: Epoch(1),
                ..marks
            },
        };
        let other = Watched {
            supervisor: Root {
                born: supervisor.born + 1,
                ..supervisor
            },
            marks,
            ..watched
        };
        warden.hear(Some(&Say::Watch(watched)));
        assert_eq!(warden.look(), LOOK);
        test_kill_process(below).unwrap();

        // Renewed once more, and then not again.
        watched.kill = clock::boottime().checked_sub(PROMPT).unwrap();
        warden.hear(Some(&Say::Watch(watched)));
        assert_eq!(warden.look(), AGAIN);
        shell.wait().unwrap();
        poll::until_sync("what was below it is dead", || {
            let lives = Root::of(below).is_some_and(Root::is_there);
            if lives { Err("it lives") } else { Ok(()) }
        });
        assert_eq!((warden.look(), warden.watched.len()), (LOOK, 0));

        // One whose number is another's by now is none, and without a worker there is no time left.
        warden.hear(Some(&Say::Watch(other)));
        warden.hear(None);
        assert!(warden.watched.values().all(|watched| watched.kill <= clock::boottime()));
        assert!(stray.try_wait().unwrap().is_none());
        warden.look();
        assert!(!warden.worker && warden.watched.is_empty());
        assert_eq!(stray.wait().unwrap().signal(), Some(9), "of a supervisor that is gone");
    }
}
