//! Stopping: one value, passed down explicitly, that says how far it has come.
//!
//! Owns the phase of the process and the signals that advance it. It refuses to go back, and it stops nothing itself:
//! whoever does work watches the phase. Called from each process' `app.rs`, from [`super::tasks`] when something
//! essential dies, and by tests in place of signals.

use std::io;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::tasks::{self, AbortOnDrop, Kind, Tasks};

/// How far stopping has come. It only ever grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Not stopping.
    Running,
    /// No new work; what runs goes on until `drain.deadline`.
    Draining,
    /// Now.
    Abort,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    failure: Option<String>,
}

/// The phase of one process. Clones are the same value.
#[derive(Clone, Debug)]
pub struct Shutdown(Arc<watch::Sender<State>>);

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

impl Shutdown {
    /// Running.
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(State {
            phase: Phase::Running,
            failure: None,
        })))
    }

    /// How far it has come.
    pub fn phase(&self) -> Phase {
        self.0.borrow().phase
    }

    /// Starts draining, as SIGTERM does. Nothing happens if that has begun already.
    pub fn trigger(&self) {
        self.advance(Phase::Draining);
    }

    /// Stops now, as a second signal does.
    pub fn abort(&self) {
        self.advance(Phase::Abort);
    }

    /// Starts draining because something the process cannot do without has failed; the process then exits with 1. The
    /// first reason is kept.
    pub fn fail(&self, reason: impl Into<String>) {
        let reason = reason.into();
        tracing::error!(reason, "stopping after a failure");
        self.0.send_modify(|state| {
            state.failure.get_or_insert(reason);
        });
        self.advance(Phase::Draining);
    }

    /// Why the process stops, if not because it was told to.
    pub fn failure(&self) -> Option<String> {
        self.0.borrow().failure.clone()
    }

    /// Waits until draining, or more, has begun. Cancel-safe.
    pub async fn draining(&self) {
        self.reached(Phase::Draining).await;
    }

    /// Waits until everything must stop now. Cancel-safe.
    pub async fn aborted(&self) {
        self.reached(Phase::Abort).await;
    }

    /// Lets SIGTERM and SIGINT start draining and a second one of either stop at once, for as long as the returned
    /// value lives. Once called, these signals no longer end the process by themselves.
    ///
    /// # Errors
    /// When the operating system refuses the handlers.
    pub fn on_signals(tasks: &Tasks) -> io::Result<AbortOnDrop<()>> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let shutdown = tasks.shutdown().clone();
        let watching = async move {
            loop {
                // Both branches are cancel-safe: a signal that is not received stays pending.
                let name = tokio::select! {
                    _ = terminate.recv() => "SIGTERM",
                    _ = interrupt.recv() => "SIGINT",
                };
                shutdown.signalled(name);
            }
        };
        Ok(tasks::background(tasks, "signals", Kind::Essential, watching))
    }

    fn signalled(&self, signal: &str) {
        if self.phase() == Phase::Running {
            tracing::info!(signal, "draining; a second signal stops at once");
            self.trigger();
        } else {
            tracing::warn!(signal, "second signal: stopping at once");
            self.abort();
        }
    }

    fn advance(&self, to: Phase) {
        self.0.send_if_modified(|state| {
            let further = to > state.phase;
            state.phase = state.phase.max(to);
            further
        });
    }

    async fn reached(&self, phase: Phase) {
        let mut states = self.0.subscribe();
        // It cannot be closed while `self` holds the sender.
        let _ = states.wait_for(|state| state.phase >= phase).await;
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    #[test]
    fn the_phase_never_goes_back() {
        let shutdown = Shutdown::new();
        assert_eq!(shutdown.phase(), Phase::Running);
        shutdown.abort();
        shutdown.trigger();
        assert_eq!(shutdown.phase(), Phase::Abort);
    }

    #[tokio::test]
    async fn waiting_ends_for_what_is_already_past() {
        let shutdown = Shutdown::new();
        shutdown.abort();
        shutdown.draining().await;
        shutdown.aborted().await;
    }

    #[tokio::test]
    async fn every_clone_sees_the_trigger() {
        let shutdown = Shutdown::new();
        let seen = shutdown.clone();
        let (seen, ()) = tokio::join!(
            async move {
                seen.draining().await;
                seen.phase()
            },
            async { shutdown.trigger() }
        );
        assert_eq!(seen, Phase::Draining);
    }

    #[test]
    fn the_first_failure_is_the_reason() {
        let shutdown = Shutdown::new();
        assert_eq!(shutdown.failure(), None);
        shutdown.fail("the janitor panicked");
        shutdown.fail("so did another");
        assert_eq!(shutdown.failure().as_deref(), Some("the janitor panicked"));
        assert_eq!(shutdown.phase(), Phase::Draining);
    }

    #[tokio::test]
    async fn the_first_signal_drains_and_the_second_aborts() {
        let shutdown = Shutdown::new();
        let tasks = Tasks::new(shutdown.clone());
        let _signals = Shutdown::on_signals(&tasks).unwrap();
        kill_process(getpid(), Signal::TERM).unwrap();
        shutdown.draining().await;
        assert_eq!(shutdown.phase(), Phase::Draining);
        kill_process(getpid(), Signal::INT).unwrap();
        shutdown.aborted().await;
    }
}
