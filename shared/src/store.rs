//! The only code that speaks Redis: keys, typed scripts, one module per aggregate.
//!
//! Three sentences carry it: every script is safe to send twice; every append names what it follows; every live turn sits in
//! exactly one timer index (`due`). What a script must decide about A2A is decided in [`crate::domain`] and handed to it as bytes.
//! Callers see domain verbs (submit, take, emit, finish, renew, settle), never Redis verbs or Redis types.

mod bell;
mod clock;
mod close;
mod connection;
mod dead;
mod doorbell;
mod error;
mod idempotency;
mod journal;
mod keys;
mod layout;
mod leases;
mod listing;
mod metrics;
mod objects;
mod overview;
mod preflight;
mod reference;
mod retention;
mod script;
mod settings;
mod settle;
mod subscriber;
mod suspend;
mod sweep;
mod tasks;
mod turns;
mod used;
mod waiting;
mod workers;
mod workspace;

pub use bell::BellWaiter;
pub use clock::{RedisClock, millis};
pub use close::CloseTask;
pub use connection::ConnectOptions;
pub use dead::DeadTurn;
pub use doorbell::Doorbell;
pub use error::{Retry, StoreError};
pub use idempotency::{Reservation, Reserved};
pub use journal::{Batch, EmitReply, Finish, JournalRead, NewEvent, Open, SessionItems};
pub use keys::{Keys, documented as documented_keys};
pub use leases::{Held, LeaseClient, Renewed};
pub use listing::{ListFilter, Listed};
pub use metrics::StoreMetrics;
pub use objects::{CLAIM_MS, GoneTasks};
pub use overview::{Overview, RunningTurn};
pub use preflight::Preflight;
pub use reference::{keys_table, scripts_table};
pub use retention::Keep;
pub use script::{SCRIPTS, ScriptText};
pub use settle::{Asked, ContextView, LiveTurn, SettleEnd, Settled};
pub use subscriber::{Heard, Subscriber, SubscriberHandle};
pub use suspend::{Answering, Suspend};
pub use sweep::Swept;
pub use tasks::{HistoryLength, Shown, StoredTask};
pub use turns::{Queued, Refused, Submit, Submitted, Take, Taken, Took};
pub use used::{Use, Used};
pub use waiting::{Interrupt, MOST_WAITING, Withdrawal};
pub use workers::{SILENT_MS, Serves, Serving, WorkerSeen};
pub use workspace::Bound;

use std::sync::Arc;

use crate::ids::{ContextKey, Layout, Partition, ScopeKey, TaskId};
use connection::Link;
use script::Scripts;

/// A handle on Redis. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    link: Link,
    keys: Keys,
    scripts: Scripts,
    metrics: StoreMetrics,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("keys", &self.inner.keys)
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Connects, checks that this Redis can be used (version, eviction, layout), logs what should be known of it, and returns the
    /// handle. An empty Redis is laid out: this is for the processes of a cluster.
    ///
    /// # Errors
    /// [`StoreError`]: unreachable, or a reason why this Redis must not be used.
    pub async fn connect(options: &ConnectOptions, metrics: StoreMetrics) -> Result<Self, StoreError> {
        let store = Self::open(options, metrics).await?;
        store.preflight().await?.log();
        store.agree_on_layout().await?;
        Ok(store)
    }

    /// The same for a cluster that exists, without ever laying out a Redis: this is for the tools of an operator.
    ///
    /// # Errors
    /// [`StoreError`]: unreachable, no cluster has used this Redis, or a reason why it must not be used.
    pub async fn connect_existing(options: &ConnectOptions, metrics: StoreMetrics) -> Result<Self, StoreError> {
        let store = Self::open(options, metrics).await?;
        store.preflight().await?;
        store.find_layout().await?;
        Ok(store)
    }

    async fn open(options: &ConnectOptions, metrics: StoreMetrics) -> Result<Self, StoreError> {
        let layout = Layout::new(options.partitions).map_err(|source| StoreError::Refused {
            rule: source.to_string(),
        })?;
        let keys = Keys::new(&options.prefix, layout)?;
        let link = Link::open(options, &keys).await?;
        Ok(Self {
            inner: Arc::new(Inner {
                link,
                keys,
                scripts: Scripts::new(),
                metrics,
            }),
        })
    }

    /// Where everything lies.
    pub fn keys(&self) -> &Keys {
        &self.inner.keys
    }

    /// P.
    pub fn partitions(&self) -> u16 {
        self.inner.keys.layout().partitions()
    }

    /// The key and the partition of a context.
    pub fn place(&self, scope: &ScopeKey, context_id: &str) -> (ContextKey, Partition) {
        ContextKey::of(scope, context_id, self.partitions())
    }

    /// Whether an id can be one of ours: its partition exists.
    pub fn may_hold(&self, task: TaskId) -> bool {
        task.partition().0 < self.partitions()
    }

    fn link(&self) -> &Link {
        &self.inner.link
    }

    fn metrics(&self) -> &StoreMetrics {
        &self.inner.metrics
    }
}
