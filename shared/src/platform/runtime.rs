//! The runtime of a process: begun for one future, gone soon after it.
//!
//! Owns how a process ends. Work on a blocking thread cannot be stopped, and a runtime that is dropped waits for it: a process
//! that has drained must not hang on a slow disk.

use std::future::Future;
use std::io;
use std::time::Duration;

use tokio::runtime::Builder;

/// How long what is left over has to be dropped.
const LEFT_OVER: Duration = Duration::from_millis(500);

/// Runs `main` to its end on all cores; what it leaves behind is not waited for.
///
/// # Errors
/// When the system gives no threads.
pub fn run<F: Future>(main: F) -> io::Result<F::Output> {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let output = runtime.block_on(main);
    runtime.shutdown_timeout(LEFT_OVER);
    Ok(output)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_blocking_thread_that_never_ends_keeps_nobody() {
        let (hold, held) = mpsc::channel::<()>();
        let begun = run(async {
            let (begin, begun) = tokio::sync::oneshot::channel();
            tokio::task::spawn_blocking(move || {
                let _ = begin.send(());
                held.recv()
            });
            begun.await
        });
        assert!(begun.unwrap().is_ok());
        // It was held all the time.
        drop(hold);
    }
}
