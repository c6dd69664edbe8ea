//! The runtime of a process: begun for one future, gone soon after it.
//!
//! Owns how many threads a process computes on, and how it ends. Work on a blocking thread cannot be stopped, and a runtime that is
//! dropped waits for it: a process that has drained must not hang on a slow disk.

use std::future::Future;
use std::io;
use std::num::NonZeroUsize;
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};

/// How long what is left over has to be dropped.
const LEFT_OVER: Duration = Duration::from_millis(500);

/// Runs `main` to its end; what it leaves behind is not waited for. Without a number of threads: half of the cores, rounded up.
/// See ADR 21.
///
/// # Errors
/// When the system gives no threads.
pub fn run<F: Future>(threads: Option<NonZeroUsize>, main: F) -> io::Result<F::Output> {
    let mut builder = match threads.map_or_else(half_of_the_cores, NonZeroUsize::get) {
        1 => Builder::new_current_thread(),
        threads => {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(threads);
            builder
        }
    };
    let runtime = builder.enable_all().build()?;
    let output = runtime.block_on(main);
    runtime.shutdown_timeout(LEFT_OVER);
    Ok(output)
}

fn half_of_the_cores() -> usize {
    available_parallelism().map_or(1, |cores| cores.get().div_ceil(2))
}

/// On how many threads the runtime computes that this is called in.
pub(crate) fn threads() -> usize {
    Handle::try_current().map_or(1, |handle| handle.metrics().num_workers())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_blocking_thread_that_never_ends_keeps_nobody() {
        for threads in [1, 2] {
            let (hold, held) = mpsc::channel::<()>();
            let begun = run(NonZeroUsize::new(threads), async {
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

    #[test]
    fn a_process_computes_on_as_many_threads_as_it_is_told() {
        for count in 1..4 {
            assert_eq!(run(NonZeroUsize::new(count), async { threads() }).unwrap(), count);
        }
        let cores = available_parallelism().unwrap().get();
        let unasked = run(None, async { threads() }).unwrap();
        assert!(unasked >= 1 && unasked <= cores);
    }
}
