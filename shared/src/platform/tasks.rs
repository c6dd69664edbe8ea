//! Spawning: the only place where tasks and threads begin.
//!
//! Owns their names, their count and what follows when one dies. It refuses to lose a panic: an `Essential` task that
//! panics, or ends while the process is running, starts shutdown; of a `BestEffort` one a panic is logged. Called from
//! everywhere that needs concurrency. How many may run is the caller's matter: a permit taken before the spawn and
//! moved into the future.

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use futures_util::FutureExt as _;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use super::shutdown::{Phase, Shutdown};

/// What the death of a task means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The process is of no use without it: a panic, or an end before shutdown, starts shutdown.
    Essential,
    /// One of many: a panic is logged.
    BestEffort,
}

/// The tasks of one process. Clones are the same value.
#[derive(Clone, Debug)]
pub struct Tasks {
    tracker: TaskTracker,
    shutdown: Shutdown,
    live: Live,
}

impl Tasks {
    /// No task yet; `shutdown` is what an essential one's death starts.
    pub fn new(shutdown: Shutdown) -> Self {
        Self {
            tracker: TaskTracker::new(),
            shutdown,
            live: Live::default(),
        }
    }

    /// The shutdown it was made with.
    pub fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    /// The names of the tasks now alive, with how many there are of each; for the log line of a drain that hangs.
    pub fn live(&self) -> BTreeMap<&'static str, usize> {
        self.live.names().clone()
    }

    /// Waits until every task begun with [`spawn`] has ended. Cancel-safe. Background tasks are not waited for.
    pub async fn finished(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}

/// Begins a task that [`Tasks::finished`] waits for. Dropping the handle leaves it running.
pub fn spawn<F>(tasks: &Tasks, name: &'static str, kind: Kind, future: F) -> Handle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let watched = watched(tasks, name, kind, future);
    Handle(start(tasks.tracker.track_future(watched)))
}

/// Begins a task that lives no longer than the returned value and that nothing waits for: listeners that must still
/// answer while everything else is being finished.
pub fn background<F>(tasks: &Tasks, name: &'static str, kind: Kind, future: F) -> AbortOnDrop<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    AbortOnDrop(Handle(start(watched(tasks, name, kind, future))))
}

/// Begins a named thread, for what must go on when the runtime does not. It dies with its panic logged and `kind`
/// decides the rest, as for a task.
///
/// # Errors
/// When the operating system gives no thread.
pub fn spawn_thread<T>(
    tasks: &Tasks,
    name: &'static str,
    kind: Kind,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<thread::JoinHandle<Option<T>>>
where
    T: Send + 'static,
{
    let shutdown = tasks.shutdown.clone();
    let alive = tasks.live.enter(name);
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        let _alive = alive;
        let ended = catch_unwind(AssertUnwindSafe(work));
        judge(&shutdown, name, kind, ended)
    })
}

#[expect(clippy::disallowed_methods, reason = "this is the spawn everything else must use")]
fn start<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(future)
}

fn watched<F>(
    tasks: &Tasks,
    name: &'static str,
    kind: Kind,
    future: F,
) -> impl Future<Output = Option<F::Output>> + Send + use<F>
where
    F: Future<Output: Send> + Send + 'static,
{
    let shutdown = tasks.shutdown.clone();
    // Counted from now on, not from the first poll: a drain that looks in between must see it.
    let alive = tasks.live.enter(name);
    // Not an async block: that would hold the future twice, as it was given and as it is waited for.
    let watched = AssertUnwindSafe(future).catch_unwind().map(move |ended| {
        let _alive = alive;
        judge(&shutdown, name, kind, ended)
    });
    watched.instrument(tracing::debug_span!("part", part = name))
}

type Ended<T> = Result<T, Box<dyn Any + Send>>;

fn judge<T>(shutdown: &Shutdown, name: &str, kind: Kind, ended: Ended<T>) -> Option<T> {
    match ended {
        Ok(output) => {
            if kind == Kind::Essential && shutdown.phase() == Phase::Running {
                shutdown.fail(format!("{name} ended early"));
            }
            Some(output)
        }
        Err(panic) => {
            tracing::error!(name, panic = panic_text(&*panic), "a task panicked");
            if kind == Kind::Essential {
                shutdown.fail(format!("{name} panicked"));
            }
            None
        }
    }
}

/// What a panic said.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text")
}

/// A task begun with [`spawn`].
#[derive(Debug)]
pub struct Handle<T>(JoinHandle<Option<T>>);

impl<T> Handle<T> {
    /// Stops it at its next await.
    pub fn abort(&self) {
        self.0.abort();
    }

    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// Waits for its output; `None` if it panicked or was aborted. Cancel-safe in that the task goes on.
    pub async fn join(self) -> Option<T> {
        self.0.await.ok().flatten()
    }

    /// Ties its life to the returned value.
    pub fn abort_on_drop(self) -> AbortOnDrop<T> {
        AbortOnDrop(self)
    }
}

/// A task that is aborted when this is dropped.
#[derive(Debug)]
#[must_use = "the task ends when this is dropped"]
pub struct AbortOnDrop<T>(Handle<T>);

impl<T> AbortOnDrop<T> {
    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// How many tasks of each name are alive.
#[derive(Clone, Debug, Default)]
struct Live(Arc<Mutex<BTreeMap<&'static str, usize>>>);

impl Live {
    fn names(&self) -> std::sync::MutexGuard<'_, BTreeMap<&'static str, usize>> {
        // A count is right after any panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, name: &'static str) -> Alive {
        *self.names().entry(name).or_default() += 1;
        Alive {
            live: self.clone(),
            name,
        }
    }
}

/// One living task.
struct Alive {
    live: Live,
    name: &'static str,
}

impl Drop for Alive {
    fn drop(&mut self) {
        let mut names = self.live.names();
        if let Some(count) = names.get_mut(self.name) {
            *count -= 1;
            if *count == 0 {
                names.remove(self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    fn tasks() -> Tasks {
        Tasks::new(Shutdown::new())
    }

    #[tokio::test]
    async fn a_task_gives_its_output() {
        let tasks = tasks();
        assert_eq!(
            spawn(&tasks, "sum", Kind::BestEffort, async { 1 + 1 }).join().await,
            Some(2)
        );
        assert_eq!(tasks.shutdown().phase(), Phase::Running);
    }

    #[tokio::test]
    async fn a_best_effort_panic_stops_nothing() {
        let tasks = tasks();
        let handle = spawn(&tasks, "push", Kind::BestEffort, async { panic!("boom") });
        assert_eq!(handle.join().await, None::<()>);
        assert_eq!(tasks.shutdown().phase(), Phase::Running);
    }

    #[tokio::test]
    async fn an_essential_panic_starts_shutdown() {
        let tasks = tasks();
        spawn(&tasks, "janitor", Kind::Essential, async { panic!("boom") });
        tasks.shutdown().draining().await;
        assert_eq!(tasks.shutdown().failure().as_deref(), Some("janitor panicked"));
    }

    #[tokio::test]
    async fn an_essential_task_that_ends_early_starts_shutdown() {
        let tasks = tasks();
        spawn(&tasks, "janitor", Kind::Essential, async {});
        tasks.shutdown().draining().await;
        assert_eq!(tasks.shutdown().failure().as_deref(), Some("janitor ended early"));
    }

    #[tokio::test]
    async fn an_essential_task_may_end_while_draining() {
        let tasks = tasks();
        let shutdown = tasks.shutdown().clone();
        spawn(
            &tasks,
            "janitor",
            Kind::Essential,
            async move { shutdown.draining().await },
        );
        tasks.shutdown().trigger();
        tasks.finished().await;
        assert_eq!(tasks.shutdown().failure(), None);
    }

    #[tokio::test]
    async fn living_tasks_are_counted_by_name_until_they_end() {
        let tasks = tasks();
        let first = spawn(&tasks, "turn", Kind::BestEffort, pending::<()>());
        let second = spawn(&tasks, "turn", Kind::BestEffort, pending::<()>());
        assert_eq!(tasks.live(), BTreeMap::from([("turn", 2)]));
        first.abort();
        second.abort();
        tasks.finished().await;
        assert_eq!(tasks.live(), BTreeMap::new());
    }

    #[tokio::test]
    async fn a_background_task_ends_with_its_handle_and_is_not_waited_for() {
        let tasks = tasks();
        let (alive, ended) = tokio::sync::oneshot::channel::<()>();
        let handle = background(&tasks, "admin", Kind::Essential, async move {
            let _alive = alive;
            pending::<()>().await;
        });
        tasks.finished().await;
        assert!(!handle.is_finished());
        drop(handle);
        assert!(ended.await.is_err(), "what the task held is dropped");
    }

    #[test]
    fn a_thread_is_named_and_its_panic_is_judged() {
        let tasks = tasks();
        let named = spawn_thread(&tasks, "renew", Kind::BestEffort, || {
            thread::current().name().map(str::to_owned)
        });
        assert_eq!(named.unwrap().join().unwrap(), Some(Some("renew".to_owned())));
        let died = spawn_thread(&tasks, "renew", Kind::Essential, || panic!("boom"));
        assert_eq!(died.unwrap().join().unwrap(), None::<()>);
        assert_eq!(tasks.shutdown().failure().as_deref(), Some("renew panicked"));
    }
}
