//! The supervisor of an agent's process: the hidden subcommand `supervise`, a small life of the same binary.
//!
//! Owns the whole tree of processes below it and the promise that none of them outlives the lease: the worker's renewal thread
//! sends a deadline after each successful renewal, and when it passes, or the worker is gone, or it says so, the tree gets SIGTERM,
//! a grace, and SIGKILL until no descendant is left. Escaping does not help: as child subreaper it inherits every orphan.
//! It refuses to know turns or Redis, and to die before its tree. Started by [`crate::agent::process`], one per agent process.
//! A program may stop its own supervisor, which then keeps no promise: one warden per worker sees to that, also without the worker.
//!
//! ```text
//! worker == control socket ==> supervise run ----> supervise exec: own session, dies with its parent ----> the command
//!    \____________ stdin, stdout, stderr of the command: pipes that the supervisor passes on and lets go of ________/
//! worker == control socket ==> supervise watch: the same deadlines
//! ```

pub(crate) mod link;
mod run;
pub(crate) mod tree;
mod warden;

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::time::Duration;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal, setsid};

/// The word that makes a binary a supervisor.
pub const SUBCOMMAND: &str = "supervise";
/// First word after it: keep a tree of processes.
pub(crate) const RUN: &str = "run";
/// First word after it: see to supervisors.
pub(crate) const WATCH: &str = "watch";
/// First word after it: become the command.
const EXEC: &str = "exec";

/// What a shell answers for a command that it cannot run.
const CANNOT_RUN: u8 = 127;
/// Used wrongly.
const USAGE: u8 = 64;

/// Runs the subcommand with the words after it. To be called before anything else of a `main`, with one thread alive.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter();
    let mode = args.next();
    let number = args.next().and_then(|word| word.to_str()?.parse::<u64>().ok());
    let command: Vec<OsString> = args.collect();
    match (mode.as_ref().and_then(|mode| mode.to_str()), number) {
        (Some(RUN), Some(grace)) if !command.is_empty() => run::run(Duration::from_millis(grace), &command),
        (Some(EXEC), Some(parent)) => exec(parent, &command),
        (Some(WATCH), None) => warden::watch(),
        _ => {
            complain("supervise is started by the worker only");
            ExitCode::from(USAGE)
        }
    }
}

/// Becomes the command, in a session of its own, killed when its supervisor is.
fn exec(parent: u64, command: &[OsString]) -> ExitCode {
    let prepared = setsid().and_then(|_| set_parent_process_death_signal(Some(Signal::KILL)));
    let alive = getppid()
        .map(Pid::as_raw_nonzero)
        .map(|pid| u64::from(pid.get().unsigned_abs()));
    // ORDER: asked after the signal was set; a supervisor that died before would never send it.
    if prepared.is_err() || alive != Some(parent) {
        return ExitCode::from(CANNOT_RUN);
    }
    let Some((program, words)) = command.split_first() else {
        return ExitCode::from(USAGE);
    };
    let error = Command::new(program).args(words).exec();
    complain(&format!("{} cannot be run: {error}", program.to_string_lossy()));
    ExitCode::from(CANNOT_RUN)
}

fn complain(text: &str) {
    // Nobody may listen.
    drop(std::io::Write::write_all(
        &mut std::io::stderr(),
        format!("{text}\n").as_bytes(),
    ));
}
