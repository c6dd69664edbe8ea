//! What operations work with: the store, the hub, the clock, the agents, the limits. One value per gateway, no statics.

use std::sync::Arc;
use std::time::Duration;

use a2a::AgentCard;
use relevo_shared::agents::Agents;
use relevo_shared::objects::Objects;
use relevo_shared::platform::config::Settings;
use relevo_shared::platform::tasks::Tasks;
use relevo_shared::store::{Keep, RedisClock, Store};
use tokio::time::Instant;

use crate::admission::Admission;
use crate::auth::{Caller, Credentials};
use crate::drain::Drain;
use crate::hub::Hub;
use crate::metrics::GatewayMetrics;
use crate::operations::extensions::{Active, Extensions};
use crate::request::SecretKeys;
use crate::ringer::Ringer;

/// Everything behind the transports. Cheap to clone.
pub(crate) type Services = Arc<Inner>;

/// See [`Services`].
pub(crate) struct Inner {
    pub(crate) store: Store,
    /// The artifact store, if there is one.
    pub(crate) objects: Option<Objects>,
    pub(crate) hub: Hub,
    pub(crate) ringer: Ringer,
    pub(crate) clock: RedisClock,
    pub(crate) agents: Agents,
    pub(crate) settings: Settings,
    pub(crate) keep: Keep,
    pub(crate) metrics: GatewayMetrics,
    pub(crate) admission: Admission,
    pub(crate) drain: Drain,
    pub(crate) tasks: Tasks,
    pub(crate) secrets: SecretKeys,
    pub(crate) credentials: Credentials,
    pub(crate) extensions: Extensions,
    /// What callers with a credential may know, where there are credentials.
    pub(crate) extended_card: Option<AgentCard>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Services").finish_non_exhaustive()
    }
}

/// What a send is known by when it is sent again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Key {
    /// `Idempotency-Key`, as sent.
    Given(String),
    /// The id of its message.
    Message(String),
}

/// What came with a request beside its parameters.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// When the request came.
    pub(crate) received: Instant,
    /// When it must be answered, unless it waits for a turn.
    pub(crate) deadline: Instant,
    /// `Last-Event-ID`, as sent.
    pub(crate) last_event_id: Option<String>,
    /// What the send is known by when it is sent again.
    pub(crate) idempotency_key: Option<Key>,
    /// W3C trace context, if it is well-formed.
    pub(crate) traceparent: Option<String>,
    /// Whose it is.
    pub(crate) caller: Caller,
    /// The extensions that it has switched on.
    pub(crate) extensions: Active,
}

impl Call {
    /// A call that came now.
    pub(crate) fn new(received: Instant, limit: Duration) -> Self {
        Self {
            received,
            deadline: received + limit,
            last_event_id: None,
            idempotency_key: None,
            traceparent: None,
            caller: Caller::default(),
            extensions: Active::default(),
        }
    }
}
