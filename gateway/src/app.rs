//! A gateway from its listeners to its end. Several can live in one process: nothing here is static.
//!
//! Order of the start: listeners, so that a port in use is found at once; Redis; everything else. Order of the stop:
//! not ready; after `drain.delay` nothing new is accepted and streams that wait for nothing go; streams and calls with
//! running turns may finish; in the last fifth of `drain.deadline` the rest is closed, paced; then everything ends.

mod accept;
mod watch;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use a2a::AgentCard;
use futures_util::FutureExt as _;
use relevo_shared::janitor::{Janitor, JanitorMetrics, JanitorSettings, Reaper, ReaperMetrics};
use relevo_shared::objects::{Objects, ObjectsError};
use relevo_shared::platform::admin::Admin;
use relevo_shared::platform::clock;
use relevo_shared::platform::config::{ConfigErrors, GATEWAY_ADMIN};
use relevo_shared::platform::listen::{BindError, bind};
use relevo_shared::platform::metrics::{MetricsError, Registry};
use relevo_shared::platform::readiness::Readiness;
use relevo_shared::platform::ready_file::{ReadyFile, ReadyFileError};
use relevo_shared::platform::shutdown::Shutdown;
use relevo_shared::platform::tasks::{self, AbortOnDrop, Kind, Tasks};
use relevo_shared::store::{ConnectOptions, Keep, RedisClock, Store, StoreError, StoreMetrics, millis};
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout_at};

use crate::admission::{self, Admission};
use crate::auth::Credentials;
use crate::config::Config;
use crate::drain::Drain;
use crate::hub::{self, Hub, HubSettings};
use crate::metrics::GatewayMetrics;
use crate::operations::agent_card::{address_of, agent_card, extended_card, url_of};
use crate::operations::extensions::Extensions;
use crate::request::SecretKeys;
use crate::ringer::Ringer;
use crate::router::router;
use crate::services::{Inner, Services};
use crate::transport::card::Card;
use crate::transport::grpc;
use accept::{Accepting, Protocol};

/// The condition of readiness that the watch of Redis keeps.
const REDIS: &str = "redis";
/// How long connections that are cut off may take to end.
const CUT_OFF: Duration = Duration::from_secs(1);
/// The label that tells the metrics of the parts of one process apart.
const PART_LABEL: &str = "instance";
/// How long a start waits for the doorbell connection; without it streams work, but slowly.
const HUB_PATIENCE: Duration = Duration::from_secs(2);

/// Why a gateway cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A listener.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A listener without an address.
    #[error("a listener has no address")]
    Address(#[source] std::io::Error),
    /// Redis.
    #[error("cannot use the store")]
    Store(#[from] StoreError),
    /// The artifact store.
    #[error(transparent)]
    Objects(#[from] ObjectsError),
    /// A metric.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The credentials of callers.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
}

/// Why a gateway did not end cleanly.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Something it cannot do without has failed.
    #[error("{0}")]
    Failed(String),
    /// Requests were cut off at the deadline, or by a second signal.
    #[error("{0} connections were cut off")]
    CutOff(usize),
    /// The ready file.
    #[error(transparent)]
    ReadyFile(#[from] ReadyFileError),
}

/// A gateway that is built and not yet running.
#[derive(Debug)]
pub struct App {
    services: Services,
    config: Config,
    listener: TcpListener,
    listen: SocketAddr,
    grpc: Option<(TcpListener, SocketAddr)>,
    admin: Option<(TcpListener, SocketAddr)>,
    registry: Registry,
    readiness: Readiness,
    shutdown: Shutdown,
    tasks: Tasks,
    janitor: Janitor,
    reaper: Option<Reaper>,
    hub: hub::Running,
    ringer: AbortOnDrop<()>,
    card: Card,
}

impl Config {
    /// Binds the listeners, then reaches Redis, then makes everything else.
    ///
    /// # Errors
    /// [`BuildError`] names what could not be had.
    pub async fn build(self, shutdown: Shutdown) -> Result<App, BuildError> {
        let mut errors = ConfigErrors::new();
        let credentials = Credentials::read(&self.settings, &mut errors);
        let credentials = errors.into_result(credentials)?;
        let (listener, listen) = bind_at("gateway.listen", self.settings.gateway.listen).await?;
        let grpc = match self.settings.gateway.grpc_listen {
            Some(wanted) => Some(bind_at("gateway.grpc_listen", wanted).await?),
            None => None,
        };
        let admin = match self.part {
            Some(_) => None,
            None => Some(self.bind_admin().await?),
        };
        let objects = match self.objects.clone() {
            Some(objects) => Some(objects),
            None => Objects::open_shared(&self.settings.artifacts)?,
        };
        let registry = self.registry()?;
        let metrics = GatewayMetrics::register(&registry)?;
        let store = Store::connect(
            &ConnectOptions::from_settings(&self.settings.redis),
            StoreMetrics::register(&registry)?,
        )
        .await?;
        let clock = RedisClock::default();
        clock.learn(store.now().await?);
        let tasks = Tasks::new(shutdown.clone());
        let hub_settings = HubSettings {
            reread: self.settings.stream.reread,
            byte_budget: self.settings.stream.byte_budget.as_len(),
        };
        let (hub, running) = Hub::start(store.clone(), hub_settings, metrics.clone(), &tasks);
        let (ringer, ringing) = Ringer::start(store.clone(), &tasks);
        let janitor_settings = JanitorSettings {
            lease_ttl_ms: millis(self.settings.lease.ttl),
            keep: Keep::from_settings(&self.settings.retention),
            pools: self.agents.pools(),
            storage_wait_ms: millis(self.settings.limits.storage_wait),
        };
        let janitor = Janitor::new(store.clone(), janitor_settings, JanitorMetrics::register(&registry)?);
        let reaper = match objects.clone() {
            Some(objects) => Some(Reaper::new(store.clone(), objects, ReaperMetrics::register(&registry)?)),
            None => None,
        };
        let public = self.public_card(&credentials, listen, grpc.as_ref().map(|(_, address)| *address));
        let card = self.card(&public, listen);
        let services = Arc::new(Inner {
            extensions: Extensions::of(self.agents.in_order().map(|agent| &agent.profile)),
            extended_card: credentials.are_required().then(|| extended_card(&self.agents, &public)),
            credentials,
            admission: Admission::new(self.settings.limits.clone()),
            keep: Keep::from_settings(&self.settings.retention),
            secrets: SecretKeys::new(&self.settings.secrets.metadata_keys),
            agents: self.agents.clone(),
            settings: self.settings.clone(),
            drain: Drain::new(),
            tasks: tasks.clone(),
            store,
            objects,
            hub,
            ringer,
            clock,
            metrics,
        });
        let readiness = Readiness::new(shutdown.clone(), &[REDIS]);
        Ok(App {
            services,
            config: self,
            listener,
            listen,
            grpc,
            admin,
            registry,
            readiness,
            shutdown,
            tasks,
            janitor,
            reaper,
            hub: running,
            ringer: ringing,
            card,
        })
    }

    fn public_card(&self, credentials: &Credentials, listen: SocketAddr, grpc: Option<SocketAddr>) -> AgentCard {
        let gateway = &self.settings.gateway;
        if gateway.public_url.is_none() && !listen.ip().is_loopback() {
            // A part of `relevo dev` has no one else to tell; others are reached by names that only their operator knows.
            tracing::warn!(
                url = self.url(listen),
                "the agent card sends clients to this address; set gateway.public_url to the one they can reach"
            );
        }
        if !credentials.are_required() && !listen.ip().is_loopback() {
            tracing::warn!(
                "everyone who reaches this gateway may call it: there is no credential in [auth] or [principals]"
            );
        }
        let grpc = grpc.map(|listen| {
            let public = gateway.grpc_public.clone();
            public.unwrap_or_else(|| address_of(listen).to_string())
        });
        agent_card(&self.agents, credentials.schemes(), &self.url(listen), grpc.as_deref())
    }

    /// Where clients reach it.
    fn url(&self, listen: SocketAddr) -> String {
        let public = self.settings.gateway.public_url.as_ref();
        public.map_or_else(|| url_of(listen), |url| url.expose().to_owned())
    }

    fn card(&self, public: &AgentCard, listen: SocketAddr) -> Card {
        let url = self.url(listen);
        let old = self.settings.gateway.a2a_0_3.then_some(url.as_str());
        let since = UNIX_EPOCH + Duration::from_millis(clock::now_ms());
        Card::new(
            public,
            old,
            self.settings.auth.card,
            &self.settings.auth.api_key_header,
            since,
        )
    }

    fn registry(&self) -> Result<Registry, MetricsError> {
        let Some(part) = &self.part else {
            return Ok(Registry::new());
        };
        let label = HashMap::from([(PART_LABEL.to_owned(), part.clone())]);
        Registry::new_custom(None, Some(label)).map_err(|source| MetricsError {
            name: PART_LABEL,
            source,
        })
    }

    async fn bind_admin(&self) -> Result<(TcpListener, SocketAddr), BuildError> {
        let wanted = self.settings.admin.listen.unwrap_or(GATEWAY_ADMIN);
        bind_at("admin.listen", wanted).await
    }
}

async fn bind_at(setting: &'static str, wanted: SocketAddr) -> Result<(TcpListener, SocketAddr), BuildError> {
    let listener = bind(setting, wanted).await?;
    let address = listener.local_addr().map_err(BuildError::Address)?;
    Ok((listener, address))
}

impl App {
    /// Where it serves A2A.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Where it serves gRPC, if it does.
    pub fn grpc(&self) -> Option<SocketAddr> {
        self.grpc.as_ref().map(|(_, address)| *address)
    }

    /// Where its own admin listener is.
    pub fn admin(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(|(_, address)| *address)
    }

    /// What it measures, for a shared admin listener.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Whether it accepts work, for a shared admin listener.
    pub fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// Its tasks, for [`Shutdown::on_signals`].
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// Serves until the shutdown it was built with, and stops in order.
    ///
    /// # Errors
    /// [`RunError`] when it failed, or when requests had to be cut off.
    pub async fn run(self) -> Result<(), RunError> {
        let Self {
            services,
            config,
            listener,
            listen,
            grpc,
            admin,
            registry,
            readiness,
            shutdown,
            tasks,
            janitor,
            reaper,
            hub,
            ringer,
            card,
        } = self;
        let router = router(Services::clone(&services), card);
        let background = background(&services, &readiness, janitor, reaper);
        let (admin, admin_address) = match admin {
            Some((listener, address)) => {
                let admin = Admin::new("gateway").map(|a| a.registry(registry).readiness(readiness.clone()));
                let admin = admin.map_err(|error| RunError::Failed(error.to_string()))?;
                (Some(admin.serve(listener, &tasks)), address)
            }
            None => (None, GATEWAY_ADMIN),
        };
        if !services.hub.connected(HUB_PATIENCE).await {
            tracing::warn!("no doorbell connection yet; streams are fed by reading until there is one");
        }
        let mut health = None;
        let mut accepting = vec![accept::start(listener, Protocol::Http1, router, &services)];
        let grpc_address = grpc.as_ref().map(|(_, address)| *address);
        if let Some((listener, address)) = grpc {
            let built = grpc::router(&services).await;
            let (router, checks) = built.map_err(|error| RunError::Failed(error.to_string()))?;
            health = Some(checks);
            accepting.push(accept::start(listener, Protocol::Http2, router, &services));
            tracing::info!(%address, "gRPC is served");
        }
        let ready_file = tokio::select! {
            () = readiness.ready() => match &config.ready_file {
                Some(path) => Some(ReadyFile::write(path, Some(listen), grpc_address, admin_address)?),
                None => None,
            },
            () = shutdown.draining() => None,
        };
        let credentials = if services.credentials.are_required() {
            "required"
        } else {
            "none"
        };
        tracing::info!(%listen, credentials, "the gateway is ready");
        shutdown.draining().await;
        let ended = stop(&services, &shutdown, &tasks, &accepting, health).await;
        drop((ready_file, background, hub, ringer, admin));
        match shutdown.failure() {
            Some(failure) => Err(RunError::Failed(failure)),
            None => ended,
        }
    }
}

/// Begins what goes on beside requests.
fn background(
    services: &Services,
    readiness: &Readiness,
    janitor: Janitor,
    reaper: Option<Reaper>,
) -> Vec<AbortOnDrop<()>> {
    let begin = |name, task| tasks::background(&services.tasks, name, Kind::Essential, task);
    let shutdown = services.tasks.shutdown().clone();
    let backlog = admission::watch(Services::clone(services));
    let redis = watch::redis(Services::clone(services), readiness.clone());
    // It goes on while requests are finished: a turn that they wait for may need it.
    let janitor = async move { janitor.run(shutdown.aborted()).await };
    let mut all = vec![
        begin("backlog", backlog.boxed()),
        begin("redis-watch", redis.boxed()),
        begin("janitor", janitor.boxed()),
    ];
    all.extend(reaper.map(|reaper| begin("reaper", reaper.run().boxed())));
    all
}

/// Stops in order; returns when nothing runs any more.
async fn stop(
    services: &Inner,
    shutdown: &Shutdown,
    tasks: &Tasks,
    accepting: &[Accepting],
    mut health: Option<grpc::Health>,
) -> Result<(), RunError> {
    let drain = &services.settings.drain;
    let begun = Instant::now();
    let closing = begun + drain.deadline / 5 * 4;
    let end = begun + drain.deadline;
    if let Some(health) = &health {
        health.leave().await;
    }
    tokio::select! {
        () = tokio::time::sleep(drain.delay) => {}
        () = shutdown.aborted() => {}
    }
    accepting.iter().for_each(Accepting::stop);
    if let Some(health) = &mut health {
        health.end().await;
    }
    services.drain.begin();
    let finish = async {
        if timeout_at(closing, tasks.finished()).await.is_err() {
            tracing::warn!(left = ?tasks.live(), "closing the streams that are left");
            services
                .drain
                .close(end.saturating_duration_since(Instant::now()) / 10 * 9);
            let _ = timeout_at(end, tasks.finished()).await;
        }
    };
    tokio::select! {
        () = finish => {}
        () = shutdown.aborted() => {}
    }
    accepting.iter().for_each(Accepting::cut_off);
    // Each ends at its next step; what does not is not waited for.
    let _ = timeout_at(Instant::now() + CUT_OFF, tasks.finished()).await;
    match accepting.iter().map(Accepting::were_cut_off).sum() {
        0 => Ok(()),
        cut => Err(RunError::CutOff(cut)),
    }
}
