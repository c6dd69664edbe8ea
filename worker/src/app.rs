//! A worker as a value: built (listener, Redis, agents), then run until shutdown. Nothing here is static: several workers live in one
//! process.

mod serve;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use relevo_shared::ids::{StorageId, WorkerId};
use relevo_shared::janitor::{Janitor, JanitorMetrics, JanitorSettings, Reaper, ReaperMetrics};
use relevo_shared::objects::{Objects, ObjectsError};
use relevo_shared::platform::admin::Admin;
use relevo_shared::platform::config::{Settings, WORKER_ADMIN};
use relevo_shared::platform::egress::{Egress, EgressMetrics, SetupError};
use relevo_shared::platform::listen::{BindError, bind};
use relevo_shared::platform::metrics::{MetricsError, Registry};
use relevo_shared::platform::readiness::Readiness;
use relevo_shared::platform::ready_file::{ReadyFile, ReadyFileError};
use relevo_shared::platform::shutdown::{Phase, Shutdown};
use relevo_shared::platform::tasks::{self, AbortOnDrop, Kind, Tasks};
use relevo_shared::platform::{entropy, tasks::spawn_thread};
use relevo_shared::store::{
    ConnectOptions, Keep, LeaseClient, RedisClock, Serves, Store, StoreError, StoreMetrics, millis,
};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot, watch};

use crate::agent::a2a;
use crate::agent::openai::{self, ModelMetrics};
use crate::config::Config;
use crate::drain;
use crate::metrics::{Instruments, WorkerMetrics};
use crate::runner::control;
use crate::runner::leases::{Authority, Leases};
use crate::runner::renew::{Heartbeat, Renewal};
use crate::runner::stow::Artifacts;
use crate::runner::take::{HandOver, Worker};
use serve::{Outside, own_slots, roots, serve, turn_settings};

/// How often the worker says that it lives.
const SEEN: Duration = Duration::from_secs(2);
/// How often the main runtime ticks for the renewal thread.
const TICK: Duration = Duration::from_millis(500);
/// A worker that has not looked for work for so long, with slots free, is not ready.
const LOOKED: Duration = Duration::from_secs(10);
/// How long the renewal thread may take to end: it may be inside a call to a Redis that does not answer.
const RENEWAL_ENDS: Duration = Duration::from_secs(2);

/// A worker cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The admin address is taken.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Redis cannot be used.
    #[error("redis cannot be used")]
    Store(#[from] StoreError),
    /// The artifact store cannot be used.
    #[error(transparent)]
    Objects(#[from] ObjectsError),
    /// A metric is declared twice.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The ready file cannot be written.
    #[error(transparent)]
    ReadyFile(#[from] ReadyFileError),
    /// The system gives no signal handler or thread.
    #[error("the system refused a handler or a thread")]
    System(#[from] std::io::Error),
    /// `[egress]` cannot be used.
    #[error(transparent)]
    Egress(#[from] SetupError),
    /// An agent cannot be made.
    #[error("agents.{0} cannot be made")]
    Agent(String, #[source] openai::StartError),
    /// An agent cannot be made.
    #[error("agents.{0} cannot be made")]
    Upstream(String, #[source] a2a::StartError),
    /// `worker.id` is not a name.
    #[error("worker.id must be 1 to 64 characters of [A-Za-z0-9_.-], not `{0}`")]
    WorkerId(String),
    /// `workspace.storage_id` is not a name.
    #[error("workspace.storage_id {rule}, not `{0}`", rule = StorageId::RULE)]
    StorageId(String),
}

/// A worker that is ready to run.
pub struct App {
    worker: Arc<Worker>,
    settings: Settings,
    serves: Serves,
    janitor: Janitor,
    reaper: Option<Reaper>,
    readiness: Readiness,
    registry: Registry,
    admin: Option<TcpListener>,
    admin_address: Option<SocketAddr>,
    ready_file: Option<PathBuf>,
    hand_over: watch::Sender<bool>,
    tasks: Tasks,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App")
            .field("worker", &self.worker.id)
            .finish_non_exhaustive()
    }
}

impl App {
    /// Builds a worker with an admin listener of its own.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn build(config: Config, ready_file: Option<PathBuf>, shutdown: Shutdown) -> Result<Self, StartError> {
        let address = config.settings.admin.listen.unwrap_or(WORKER_ADMIN);
        let listener = bind("admin.listen", address).await?;
        let mut app = Self::build_without_admin(config, Registry::new(), shutdown).await?;
        app.admin_address = listener.local_addr().ok();
        app.admin = Some(listener);
        app.ready_file = ready_file;
        Ok(app)
    }

    /// Builds a worker whose metrics and readiness somebody else shows.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn build_without_admin(
        config: Config,
        registry: Registry,
        shutdown: Shutdown,
    ) -> Result<Self, StartError> {
        for warning in config.warnings() {
            tracing::warn!("{warning}");
        }
        let Config {
            settings,
            agents,
            supervisor,
            objects,
        } = config;
        let objects = match objects {
            Some(objects) => Some(objects),
            None => Objects::open_shared(&settings.artifacts)?,
        };
        let id = match &settings.worker.id {
            None => WorkerId::random(entropy::u64()),
            Some(text) => WorkerId::parse(text).ok_or_else(|| StartError::WorkerId(text.clone()))?,
        };
        let storage = match &settings.workspace.storage_id {
            None => None,
            Some(text) => Some(StorageId::parse(text).ok_or_else(|| StartError::StorageId(text.clone()))?),
        };
        let metrics = WorkerMetrics::new(Instruments::register(&registry)?);
        let options = ConnectOptions::from_settings(&settings.redis);
        let outside = Outside {
            egress: Egress::new(&settings.egress, EgressMetrics::register(&registry)?)?,
            models: ModelMetrics::register(&registry)?,
        };
        let store = Store::connect(&options, StoreMetrics::register(&registry)?).await?;
        let keep = Keep::from_settings(&settings.retention);
        let janitor_settings = JanitorSettings {
            lease_ttl_ms: millis(settings.lease.ttl),
            keep,
            pools: agents.pools(),
            storage_wait_ms: millis(settings.limits.storage_wait),
        };
        let janitor = Janitor::new(store.clone(), janitor_settings, JanitorMetrics::register(&registry)?);
        let reaper = match objects.clone() {
            Some(objects) => Some(Reaper::new(store.clone(), objects, ReaperMetrics::register(&registry)?)),
            None => None,
        };
        let (hand_over, told) = watch::channel(false);
        let tasks = Tasks::new(shutdown.clone());
        let shared = settings.worker.slots.get();
        let own_slots = own_slots(&settings, &agents);
        let slots = shared + own_slots.values().sum::<usize>();
        let served = serve(&agents, &settings, &tasks, supervisor.as_ref(), &outside)?;
        let worker = Arc::new(Worker {
            id,
            store,
            agents: served,
            roots: Arc::new(roots(&settings, &agents)),
            storage: storage.clone(),
            artifacts: objects.clone().map(|objects| Artifacts::new(objects, &settings)),
            settings: turn_settings(&settings, slots, keep),
            authority: Authority {
                ttl: settings.lease.ttl,
            },
            leases: Leases::default(),
            clock: RedisClock::default(),
            tasks: tasks.clone(),
            metrics,
            hand_over: HandOver(told),
            slots: Arc::new(Semaphore::new(shared)),
            own_slots: own_slots
                .into_iter()
                .map(|(pool, slots)| (pool, Arc::new(Semaphore::new(slots))))
                .collect(),
            last_attempt: Arc::new(Semaphore::new(1)),
        });
        Ok(Self {
            worker,
            serves: Serves {
                pools: settings.worker.pools.clone(),
                storage,
            },
            janitor,
            reaper,
            readiness: Readiness::new(shutdown, &["redis", "work"]),
            registry,
            admin: None,
            admin_address: None,
            ready_file: None,
            hand_over,
            tasks,
            settings,
        })
    }

    /// Where the admin listener is.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address
    }

    /// Whether it accepts work.
    pub fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// The worker's name.
    pub fn id(&self) -> &WorkerId {
        &self.worker.id
    }

    /// Runs until shutdown, which the process' signals start.
    ///
    /// # Errors
    /// [`StartError`] for what fails at the start. `Ok(false)`: it had to give work up, or stopped because of a failure.
    pub async fn run_with_signals(self) -> Result<bool, StartError> {
        let _signals = Shutdown::on_signals(&self.tasks)?;
        self.run().await
    }

    /// Runs until the shutdown it was built with.
    ///
    /// # Errors
    /// [`StartError`] for what fails at the start. `Ok(false)`: it had to give work up, or stopped because of a failure.
    pub async fn run(mut self) -> Result<bool, StartError> {
        let shutdown = self.tasks.shutdown().clone();
        let stop = Arc::new(AtomicBool::new(false));
        let heartbeat = Heartbeat::default();
        let renewal = Renewal {
            client: LeaseClient::new(self.worker.store.clone()).with_timeout(self.settings.lease.renew_every()),
            leases: self.worker.leases.clone(),
            heartbeat: heartbeat.clone(),
            clock: self.worker.clock.clone(),
            ttl: self.settings.lease.ttl,
            every: self.settings.lease.renew_every(),
            stop: Arc::clone(&stop),
        };
        let (renews, renewed) = oneshot::channel::<()>();
        let renewing = spawn_thread(&self.tasks, "renew", Kind::Essential, move || {
            let _renews = renews;
            renewal.work();
        })?;
        let _admin = self.serve_admin()?;
        let _beside = self.beside(&heartbeat);
        let _ready = self.write_ready_file().await?;
        tracing::info!(worker.id = %self.worker.id, "taking turns");

        let taking = self.take_turns();
        shutdown.draining().await;
        for taking in taking {
            taking.join().await;
        }
        let clean = self.drain(&shutdown).await;
        stop.store(true, Ordering::Release);
        renewing.thread().unpark();
        drop(self.worker.store.worker_left(&self.worker.id, &self.serves).await);
        if tokio::time::timeout(RENEWAL_ENDS, renewed).await.is_err() {
            tracing::warn!("the renewal thread waits for redis: the process ends without it");
        }
        Ok(clean && shutdown.failure().is_none())
    }

    /// Takes turns of all pools, and those of them for the storage that is here: a pool with slots of its own waits for nobody else's.
    fn take_turns(&self) -> Vec<tasks::Handle<()>> {
        let own_slots = &self.worker.own_slots;
        let shared = self.serves.pools.iter().filter(|pool| !own_slots.contains_key(*pool));
        let mut all: Vec<(Vec<String>, _)> = vec![(shared.cloned().collect(), &self.worker.slots)];
        all.retain(|(pools, _)| !pools.is_empty());
        all.extend(own_slots.iter().map(|(pool, slots)| (vec![pool.clone()], slots)));
        let take = |(pools, slots)| {
            let storage = self.serves.storage.clone();
            let takers = Serves { pools, storage }.takers();
            let taking = Arc::clone(&self.worker).take_turns(takers, Arc::clone(slots));
            tasks::spawn(&self.tasks, "take", Kind::Essential, taking)
        };
        all.into_iter().map(take).collect()
    }

    /// Lets running turns finish; gives back what has not when the deadline comes. Says whether nothing had to be abandoned.
    async fn drain(&self, shutdown: &Shutdown) -> bool {
        let deadline = self.settings.drain.deadline;
        let agents = self.worker.agents.values().map(|served| served.agent.patience());
        let patience = drain::let_run(deadline, agents.max().unwrap_or_default());
        let running = self.worker.tasks.live().get("turn").copied().unwrap_or(0);
        tracing::info!(running, "draining");
        let finished = self.tasks.finished();
        tokio::select! {
            () = finished => return true,
            () = tokio::time::sleep(patience) => {}
            () = shutdown.aborted() => {}
        }
        self.hand_over.send_replace(true);
        let rest = deadline.saturating_sub(patience).max(Duration::from_secs(1));
        let given = tokio::time::timeout(rest, self.tasks.finished()).await;
        if given.is_err() {
            tracing::error!(tasks = ?self.tasks.live(), "the drain's deadline has come: what still runs is left to recovery");
        }
        given.is_ok() && shutdown.phase() != Phase::Abort
    }

    fn serve_admin(&mut self) -> Result<Option<AbortOnDrop<()>>, StartError> {
        let Some(listener) = self.admin.take() else {
            return Ok(None);
        };
        let admin = Admin::new("worker")?
            .registry(self.registry.clone())
            .readiness(self.readiness.clone());
        Ok(Some(admin.serve(listener, &self.tasks)))
    }

    async fn write_ready_file(&self) -> Result<Option<ReadyFile>, StartError> {
        let (Some(path), Some(admin)) = (&self.ready_file, self.admin_address) else {
            return Ok(None);
        };
        tokio::select! {
            () = self.readiness.ready() => Ok(Some(ReadyFile::write(path, None, None, admin)?)),
            () = self.tasks.shutdown().draining() => Ok(None),
        }
    }

    /// What goes on beside the turns until the worker is gone.
    fn beside(&self, heartbeat: &Heartbeat) -> Vec<AbortOnDrop<()>> {
        let ticking = heartbeat.clone();
        let tick = async move {
            loop {
                ticking.tick();
                tokio::time::sleep(TICK).await;
            }
        };
        let janitor = self.janitor.clone().run(std::future::pending());
        let mut all = vec![
            tasks::background(&self.tasks, "tick", Kind::Essential, tick),
            tasks::background(&self.tasks, "janitor", Kind::Essential, janitor),
            tasks::background(
                &self.tasks,
                "control",
                Kind::Essential,
                control::listen(Arc::clone(&self.worker)),
            ),
            tasks::background(
                &self.tasks,
                "seen",
                Kind::Essential,
                say_that_it_lives(Arc::clone(&self.worker), self.serves.clone(), self.readiness.clone()),
            ),
        ];
        let reaper = self.reaper.clone().map(Reaper::run);
        all.extend(reaper.map(|reaper| tasks::background(&self.tasks, "reaper", Kind::Essential, reaper)));
        all
    }
}

async fn say_that_it_lives(worker: Arc<Worker>, serves: Serves, readiness: Readiness) {
    // Ready before the first look: a look may wait for its first bell.
    worker.metrics.looked();
    loop {
        match worker.store.now().await {
            Ok(now) => {
                worker.clock.learn(now);
                readiness.meet("redis");
                drop(worker.store.worker_seen(&worker.id, &serves, now).await);
            }
            Err(error) => readiness.fail("redis", error.to_string()),
        }
        let own = worker.own_slots.values().map(|slots| slots.available_permits());
        let free = worker.slots.available_permits() + own.sum::<usize>();
        let busy = worker.settings.slots.saturating_sub(free);
        for (state, count) in [("free", free), ("used", busy)] {
            worker
                .metrics
                .slots
                .with_label_values(&[state])
                .set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        if free > 0 && worker.metrics.since_looked() > LOOKED {
            readiness.fail("work", "no turn was looked for within 10 s");
        } else {
            readiness.meet("work");
        }
        tokio::time::sleep(SEEN).await;
    }
}
