//! The processes below this one: found in /proc, signalled without hitting a stranger, reaped to the last.

use std::collections::{HashMap, HashSet};

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open, pidfd_send_signal, wait,
};

use super::link::Exit;

/// What is below a process, children first. Zombies are left out: signals do not reach them.
pub(super) fn descendants(root: Pid) -> Vec<Pid> {
    let Ok(listing) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut children: HashMap<i32, Vec<(i32, bool)>> = HashMap::new();
    for entry in listing.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if let Some((parent, alive)) = stat(pid) {
            children.entry(parent).or_default().push((pid, alive));
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

/// Parent and whether it is more than a zombie.
fn stat(pid: i32) -> Option<(i32, bool)> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    // The name in brackets may hold anything, brackets too.
    let (_, rest) = text.rsplit_once(')')?;
    let mut words = rest.split_whitespace();
    let state = words.next()?;
    let parent = words.next()?.parse().ok()?;
    Some((parent, !matches!(state, "Z" | "X" | "x")))
}

/// Sends a signal to everything below this process; returns how many there were.
pub(super) fn signal(signal: Signal) -> usize {
    signal_below(getpid(), signal)
}

/// The same below another, which must not have been reaped.
pub(crate) fn signal_below(root: Pid, signal: Signal) -> usize {
    let found = descendants(root);
    for pid in &found {
        // ORDER: the handle first, then the look whether its number still is one of them: a number may be given away in between.
        match pidfd_open(*pid, PidfdFlags::empty()) {
            Ok(handle) if is_below(root, *pid) => {
                let _ = pidfd_send_signal(handle, signal);
            }
            // Sandboxes that forbid handles.
            Err(Errno::NOSYS | Errno::PERM) if is_below(root, *pid) => {
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
    while let Some((parent, _)) = stat(at) {
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
    use std::process::{Command, Stdio};

    use super::*;

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
        assert_eq!(signal_below(pid, Signal::KILL), 1);
        shell.wait().unwrap();
        assert!(!descendants(getpid()).contains(&pid));
        assert!(!is_below(getpid(), Pid::INIT));
    }
}
