//! The last resort against a tree whose supervisor does not do its work in time, because somebody stopped it.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;

use crate::supervise::tree;

/// How soon what must die is looked for again: what was forked meanwhile is found in the next round.
const AGAIN: Duration = Duration::from_millis(20);

/// Kills everything below a supervisor and wakes it, until it has left, which it does when nothing is left below it. It is not
/// killed itself: while it is there, stopped or not, orphans stay below it. Cancel-safe.
pub(super) async fn uproot(supervisor: &mut Child) {
    // None has this number else: it has not been reaped.
    let id = supervisor.id().and_then(|id| i32::try_from(id).ok());
    let Some(pid) = id.and_then(Pid::from_raw) else { return };
    tracing::warn!(
        pid = pid.as_raw_nonzero().get(),
        "the supervisor of an agent does not end it in time: the worker does"
    );
    loop {
        // ORDER: killed before it is woken, so that nothing can stop it again.
        drop(tokio::task::spawn_blocking(move || tree::signal_below(pid, Signal::KILL)).await);
        let _ = kill_process(pid, Signal::CONT);
        if tokio::time::timeout(AGAIN, supervisor.wait()).await.is_ok() {
            return;
        }
    }
}
