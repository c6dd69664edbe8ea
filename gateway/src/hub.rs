//! The hub: one subscription connection per gateway, many listeners.
//!
//! Owns who listens to which task and hands every doorbell to them. A doorbell is only an accelerator: what a listener
//! gets is decided by its position in the journal (`domain::position`), every open position is read again every
//! `stream.reread`, every second while the connection is away, and after it was replaced. Refuses to slow anyone down: a
//! listener that does not keep up loses its buffer, not its place, and reads the journal when it comes back.
//!
//! Called by the operations that follow a turn: [`Hub::join`] before they submit or read.

mod feed;
mod listener;
mod reread;
mod session;
mod table;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use relevo_shared::ids::{EntryId, TaskId};
use relevo_shared::platform::tasks::{self, AbortOnDrop, Kind, Tasks};
use relevo_shared::store::{Heard, Store};
use tokio::sync::{Notify, mpsc, watch};

pub(crate) use feed::{Event, Want};
pub(crate) use listener::{Listener, News};

use crate::metrics::GatewayMetrics;
use feed::Feed;
use table::{Joined, Table};

/// How the hub behaves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HubSettings {
    /// How often an open position is read again although nobody rang.
    pub(crate) reread: Duration,
    /// Bytes kept for one listener.
    pub(crate) byte_budget: usize,
}

/// Joins listeners to tasks. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Hub {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub").finish_non_exhaustive()
    }
}

struct Inner {
    store: Store,
    settings: HubSettings,
    metrics: GatewayMetrics,
    table: Mutex<Table>,
    /// Tasks whose channel is to be followed.
    wanted: mpsc::UnboundedSender<TaskId>,
    /// Whether the subscription connection is there.
    connected: watch::Sender<bool>,
    /// Positions are due now.
    due: Notify,
}

/// The hub's own tasks; they end with this.
#[derive(Debug)]
pub(crate) struct Running {
    _session: AbortOnDrop<()>,
    _reread: AbortOnDrop<()>,
}

impl Hub {
    /// Starts the hub.
    pub(crate) fn start(
        store: Store,
        settings: HubSettings,
        metrics: GatewayMetrics,
        tasks: &Tasks,
    ) -> (Self, Running) {
        let (wanted, wishes) = mpsc::unbounded_channel();
        let inner = Arc::new(Inner {
            store,
            settings,
            metrics,
            table: Mutex::new(Table::default()),
            wanted,
            connected: watch::Sender::new(false),
            due: Notify::new(),
        });
        let running = Running {
            _session: tasks::background(
                tasks,
                "hub",
                Kind::Essential,
                session::drive(Arc::clone(&inner), wishes),
            ),
            _reread: tasks::background(tasks, "hub-reread", Kind::Essential, reread::drive(Arc::clone(&inner))),
        };
        (Self { inner }, running)
    }

    /// Waits until the subscription connection is there, at most `limit`.
    pub(crate) async fn connected(&self, limit: Duration) -> bool {
        let mut connected = self.inner.connected.subscribe();
        let waiting = tokio::time::timeout(limit, connected.wait_for(|connected| *connected));
        matches!(waiting.await, Ok(Ok(_)))
    }

    /// Listens to a task from a position on. Returns when Redis has acknowledged the subscription, or at once when the
    /// connection is away: then the position is read every second.
    pub(crate) async fn join(&self, task: TaskId, position: EntryId, want: Want) -> Listener {
        let feed = Arc::new(Feed::new(task, position, want, self.inner.settings.byte_budget));
        let joined = self.inner.table().join(&feed);
        // The listener exists from here on: it leaves the table when it is dropped, also in the middle of waiting.
        let listener = Listener::new(Arc::clone(&self.inner), feed);
        if let Joined::Waits { acknowledged, wish } = joined {
            if wish {
                // The session has ended for good only when the process ends.
                let _ = self.inner.wanted.send(task);
            }
            // An error means that the connection was lost: the position is read every second then.
            let _ = acknowledged.await;
        }
        listener
    }
}

impl Inner {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a message to whoever listens to its channel.
    fn ring(&self, heard: &Heard) {
        // The channel of a task ends in its id.
        let id = heard
            .channel
            .len()
            .checked_sub(36)
            .and_then(|at| heard.channel.get(at..));
        if let Some(task) = id.and_then(TaskId::parse) {
            self.table().ring(task, &heard.payload);
        }
    }
}
