//! The processes below this one: found in /proc, signalled without hitting a stranger, reaped to the last.

use std::collections::{HashMap, HashSet};

use relevo_shared::ids::{Epoch, TurnId};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open, pidfd_send_signal, wait,
};

use super::link::Exit;

/// How often in a row what was forked meanwhile is looked for.
const ROUNDS: u32 = 32;

/// What is below a process, children first. Zombies are left out: signals do not reach them.
fn descendants(root: Pid) -> Vec<Pid> {
    let Ok(listing) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut children: HashMap<i32, Vec<(i32, bool)>> = HashMap::new();
    for entry in listing.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if let Some(stat) = stat(pid) {
            children.entry(stat.parent).or_default().push((pid, stat.alive));
        }
    }
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    let mut open = vec![root.as_raw_nonzero().get()];
    while let Some(parent) = open.pop() {
        for (pid, alive) in children.remove(&parent).unwrap_or_default() {
            if seen.insert(pid) {
                open.push(pid);
                found.extend(Pid::from_raw(pid).filter(|_| alive));
            }
        }
    }
    found
}

/// What the system says of a process.
struct Stat {
    parent: i32,
    /// Whether it is more than a zombie.
    alive: bool,
    /// When it was started, in ticks of the system's clock.
    born: u64,
}

fn stat(pid: i32) -> Option<Stat> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    // The name in brackets may hold anything, brackets too.
    let (_, rest) = text.rsplit_once(')')?;
    let mut words = rest.split_whitespace();
    let state = words.next()?;
    Some(Stat {
        parent: words.next()?.parse().ok()?,
        alive: !matches!(state, "Z" | "X" | "x"),
        // The 22nd field of the line; the one before was the fourth.
        born: words.nth(17)?.parse().ok()?,
    })
}

/// The process at the top of a tree. Its number alone could be another's, once it has been reaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) pid: Pid,
    pub(super) born: u64,
}

impl Root {
    /// Whoever has this number now.
    pub(crate) fn of(pid: Pid) -> Option<Self> {
        stat(pid.as_raw_nonzero().get()).map(|stat| Self { pid, born: stat.born })
    }

    /// Whether it lives, stopped or not.
    pub(crate) fn is_there(self) -> bool {
        stat(self.pid.as_raw_nonzero().get()).is_some_and(|stat| stat.alive && stat.born == self.born)
    }

    /// Kills everything below it and wakes it, should it have been stopped. It leaves by itself when nothing is left below it; killed,
    /// it would leave orphans to someone else.
    pub(crate) fn uproot(self) {
        // ORDER: killed before it is woken, so that nothing can stop it again.
        signal_below(self, Signal::KILL);
        if self.is_there() {
            let _ = kill_process(self.pid, Signal::CONT);
        }
    }
}

/// What the environment of an agent's processes says, also of those that are not below their supervisor any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Marks {
    pub(crate) turn: TurnId,
    pub(crate) epoch: Epoch,
}

impl Marks {
    /// The variables, with their values. Another attempt of the turn has another epoch.
    pub(crate) fn variables(self) -> [(&'static str, String); 2] {
        [
            ("RELEVO_TURN_ID", self.turn.to_string()),
            ("RELEVO_EPOCH", self.epoch.0.to_string()),
        ]
    }

    /// Kills what a supervisor that died before its tree has left behind. What has given itself another environment is not found.
    pub(crate) fn kill_bearers(self) {
        let wanted = self
            .variables()
            .map(|(name, value)| format!("{name}={value}").into_bytes());
        for _ in 0..ROUNDS {
            if kill_bearers_once(&wanted) == 0 {
                return;
            }
        }
    }
}

fn kill_bearers_once(wanted: &[Vec<u8>]) -> usize {
    let listing = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let number = |entry: std::fs::DirEntry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?);
    let mut killed = 0;
    for pid in listing.filter_map(number).filter(|pid| *pid != getpid()) {
        // ORDER: the handle first, then the look whose number it is. A zombie has no environment.
        let handle = pidfd_open(pid, PidfdFlags::empty());
        let path = format!("/proc/{}/environ", pid.as_raw_nonzero());
        let environment = std::fs::read(path).unwrap_or_default();
        let bears = |variable: &Vec<u8>| environment.split(|byte| *byte == 0).any(|has| has == variable);
        if !wanted.iter().all(bears) {
            continue;
        }
        killed += 1;
        match handle {
            Ok(handle) => drop(pidfd_send_signal(handle, Signal::KILL)),
            Err(_) => drop(kill_process(pid, Signal::KILL)),
        }
    }
    killed
}

/// Sends a signal to everything below this process; returns how many there were.
pub(super) fn signal(signal: Signal) -> usize {
    Root::of(getpid()).map_or(0, |me| signal_below(me, signal))
}

fn signal_below(root: Root, signal: Signal) -> usize {
    let found = descendants(root.pid);
    for pid in &found {
        // ORDER: the handle first, then the look whether its number still is one of them, then whether the root is who it was: a number
        // may be given away in between.
        let is_one = || is_below(root.pid, *pid) && root.is_there();
        match pidfd_open(*pid, PidfdFlags::empty()) {
            Ok(handle) if is_one() => {
                let _ = pidfd_send_signal(handle, signal);
            }
            // Sandboxes that forbid handles.
            Err(Errno::NOSYS | Errno::PERM) if is_one() => {
                let _ = kill_process(*pid, signal);
            }
            Ok(_) | Err(_) => {}
        }
    }
    found.len()
}

/// Whether a process has `root` among its ancestors.
fn is_below(root: Pid, pid: Pid) -> bool {
    let root = root.as_raw_nonzero().get();
    let mut at = pid.as_raw_nonzero().get();
    while let Some(Stat { parent, .. }) = stat(at) {
        if parent == root {
            return true;
        }
        if parent <= 1 {
            return false;
        }
        at = parent;
    }
    false
}

/// What a round of reaping found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Reaped {
    /// How the watched process ended.
    pub(super) watched: Option<Exit>,
    /// Whether nothing is left below this process.
    pub(super) all: bool,
}

/// Takes over the exit codes of everything that ended. A descendant is a child of this process or has an ancestor that is one, so
/// without children there is nothing.
pub(super) fn reap(watched: Option<Pid>) -> Reaped {
    let mut reaped = Reaped::default();
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => {
                if Some(pid) == watched {
                    let signal = status.terminating_signal().unwrap_or_default();
                    reaped.watched = Some(status.exit_status().map_or(Exit::Signal(signal), Exit::Code));
                }
            }
            Ok(None) => return reaped,
            Err(Errno::INTR) => {}
            Err(_) => {
                reaped.all = true;
                return reaped;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, Stdio};

    use relevo_shared::ids::Partition;

    use super::*;

    #[test]
    fn what_bears_the_marks_of_an_attempt_is_killed_and_that_of_another_is_not() {
        let marks = Marks {
            turn: TurnId::new(7, Partition(0), 0),
            epoch: Epoch(41),
        };
        let another = Marks {
            epoch: Epoch(4),
            ..marks
        };
        let start = |marks: Marks| Command::new("sleep").arg("60").envs(marks.variables()).spawn().unwrap();
        let (mut mine, mut other) = (start(marks), start(another));
        marks.kill_bearers();
        assert_eq!(mine.wait().unwrap().signal(), Some(9));
        assert!(other.try_wait().unwrap().is_none());
        another.kill_bearers();
        assert_eq!(other.wait().unwrap().signal(), Some(9));
    }

    #[test]
    fn children_and_grandchildren_are_found_and_zombies_are_not() {
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 60 & echo; wait"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0];
        std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut line).unwrap();
        let pid = Pid::from_child(&shell);
        let below = descendants(pid);
        assert_eq!(below.len(), 1);
        assert!(descendants(getpid()).contains(&pid));
        assert!(is_below(getpid(), pid) && is_below(getpid(), below[0]) && !is_below(below[0], pid));
        let root = Root::of(pid).unwrap();
        // Another that was given the same number later.
        let other = Root {
            born: root.born + 1,
            ..root
        };
        assert!(root.is_there() && !other.is_there());
        signal_below(other, Signal::KILL);
        assert_eq!(descendants(pid), below);
        assert_eq!(signal_below(root, Signal::KILL), 1);
        shell.wait().unwrap();
        assert!(!root.is_there());
        assert!(!descendants(getpid()).contains(&pid));
        assert!(!is_below(getpid(), Pid::INIT));
    }
}
