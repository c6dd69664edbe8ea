//! The last resort against a tree whose supervisor does not do its work in time, because somebody stopped it.

use std::time::Duration;

use rustix::process::Pid;
use tokio::process::Child;

use crate::supervise::tree::Root;

/// How soon what must die is looked for again: what was forked meanwhile is found in the next round.
const AGAIN: Duration = Duration::from_millis(20);

/// Kills everything below a supervisor and wakes it, until it has left. Cancel-safe.
pub(super) async fn uproot(supervisor: &mut Child) {
    // None has this number else: it has not been reaped.
    let id = supervisor.id().and_then(|id| i32::try_from(id).ok());
    let Some(root) = id.and_then(Pid::from_raw).and_then(Root::of) else {
        return;
    };
    tracing::warn!(
        pid = root.pid.as_raw_nonzero().get(),
        "the supervisor of an agent does not end it in time: the worker does"
    );
    loop {
        drop(tokio::task::spawn_blocking(move || root.uproot()).await);
        if tokio::time::timeout(AGAIN, supervisor.wait()).await.is_ok() {
            return;
        }
    }
}
