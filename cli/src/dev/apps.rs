//! The gateways and workers of a development cluster as values: built, run, ended together.

use std::collections::HashMap;
use std::net::SocketAddr;

use relevo_gateway::{BuildError, RunError};
use relevo_shared::agents::Agents;
use relevo_shared::objects::Objects;
use relevo_shared::platform::admin::Admin;
use relevo_shared::platform::config::Settings;
use relevo_shared::platform::listen::{BindError, bind};
use relevo_shared::platform::metrics::Registry;
use relevo_shared::platform::readiness::Readiness;
use relevo_shared::platform::tasks::{self, AbortOnDrop, Handle, Kind, Tasks};
use relevo_worker::StartError;
use tokio::net::TcpListener;

use super::Addresses;
use crate::exit::{Exit, Problem};
use crate::print::Screen;

/// The parts, not yet running. Their listeners are bound.
pub(super) struct Apps {
    gateways: Vec<relevo_gateway::App>,
    workers: Vec<relevo_worker::App>,
    listener: TcpListener,
    admin: Admin,
    tasks: Tasks,
}

impl Apps {
    /// Builds every part.
    pub(super) async fn build(
        mut settings: Settings,
        agents: Agents,
        addresses: &Addresses,
        workers: u16,
        tasks: &Tasks,
    ) -> Result<Self, Problem> {
        let shutdown = tasks.shutdown();
        // Any gateway serves what a worker has stored; the URLs name the first.
        settings.gateway.listen = addresses.gateways.first().copied().unwrap_or(settings.gateway.listen);
        let objects = Objects::open(&settings.artifacts).map_err(anyhow::Error::from)?;
        let listener = bind("admin.listen", addresses.admin).await.map_err(taken)?;
        let mut apps = Self {
            gateways: Vec::new(),
            workers: Vec::new(),
            listener,
            admin: Admin::new("dev").map_err(anyhow::Error::from)?,
            tasks: tasks.clone(),
        };
        for (n, address) in (1..).zip(&addresses.gateways) {
            let mut config = relevo_gateway::Config::new(settings.clone(), agents.clone());
            config.settings.gateway.listen = *address;
            config.part = Some(format!("gateway-{n}"));
            config.objects.clone_from(&objects);
            let app = Box::pin(config.build(shutdown.clone()))
                .await
                .map_err(|error| match error {
                    BuildError::Bind(error) => taken(error),
                    other @ (BuildError::Address(_)
                    | BuildError::Store(_)
                    | BuildError::Objects(_)
                    | BuildError::Metrics(_)
                    | BuildError::Config(_)) => Problem::Failed(other.into()),
                })?;
            apps = apps.shown(app.registry(), app.readiness());
            apps.gateways.push(app);
        }
        for n in 1..=workers {
            let config = relevo_worker::Config {
                settings: settings.clone(),
                agents: agents.clone(),
                objects: objects.clone(),
                ..relevo_worker::Config::default()
            };
            let registry = labelled(format!("worker-{n}"))?;
            let app = relevo_worker::App::build_without_admin(config, registry.clone(), shutdown.clone());
            let app = Box::pin(app).await.map_err(anyhow::Error::from)?;
            apps = apps.shown(&registry, app.readiness());
            apps.workers.push(app);
        }
        Ok(apps)
    }

    fn shown(mut self, registry: &Registry, readiness: &Readiness) -> Self {
        self.admin = self.admin.registry(registry.clone()).readiness(readiness.clone());
        self
    }

    /// Starts every part.
    pub(super) fn run(self) -> Result<Running, Problem> {
        let admin = self.listener.local_addr().map_err(anyhow::Error::from)?;
        let gateways: Vec<SocketAddr> = self.gateways.iter().map(relevo_gateway::App::listen).collect();
        let grpc = self.gateways.first().and_then(relevo_gateway::App::grpc);
        let readiness = self.gateways.iter().map(|app| app.readiness().clone());
        let readiness = readiness
            .chain(self.workers.iter().map(|app| app.readiness().clone()))
            .collect();
        let tasks = &self.tasks;
        let parts = self.gateways.into_iter().map(|app| {
            let running = Box::pin(app.run());
            Part::Gateway(tasks::spawn(tasks, "gateway", Kind::Essential, running))
        });
        let mut all: Vec<Part> = parts.collect();
        all.extend(self.workers.into_iter().map(|app| {
            let running = Box::pin(app.run());
            Part::Worker(tasks::spawn(tasks, "worker", Kind::Essential, running))
        }));
        Ok(Running {
            gateways,
            grpc,
            admin,
            readiness,
            parts: all,
            _admin: self.admin.serve(self.listener, &self.tasks),
        })
    }
}

fn taken(error: BindError) -> Problem {
    Problem::Failed(anyhow::Error::from(error).context("choose another --port"))
}

/// A registry whose metrics say which part they are of, as those of a gateway with a `part` do.
fn labelled(part: String) -> Result<Registry, Problem> {
    let label = HashMap::from([("instance".to_owned(), part)]);
    Ok(Registry::new_custom(None, Some(label)).map_err(anyhow::Error::from)?)
}

/// A part at work.
enum Part {
    Gateway(Handle<Result<(), RunError>>),
    Worker(Handle<Result<bool, StartError>>),
}

/// The parts at work.
pub(super) struct Running {
    /// Where the gateways are.
    pub(super) gateways: Vec<SocketAddr>,
    /// Where the first of them serves gRPC, if it does.
    pub(super) grpc: Option<SocketAddr>,
    /// Where the admin listener is.
    pub(super) admin: SocketAddr,
    readiness: Vec<Readiness>,
    parts: Vec<Part>,
    _admin: AbortOnDrop<()>,
}

impl Running {
    /// Waits until every part accepts work.
    pub(super) async fn ready(&self) {
        for readiness in &self.readiness {
            readiness.ready().await;
        }
    }

    /// Waits until every part has ended. Connections that had to be cut off are no failure here.
    pub(super) async fn ended(self, screen: &Screen) -> Result<Exit, Problem> {
        let mut first = None;
        for part in self.parts {
            let failure = match part {
                Part::Gateway(handle) => match handle.join().await {
                    Some(Ok(())) => None,
                    Some(Err(cut_off @ RunError::CutOff(_))) => {
                        screen.note(&cut_off.to_string());
                        None
                    }
                    Some(Err(error)) => Some(Problem::Failed(error.into())),
                    None => Some(Problem::failed("a gateway ended by a panic")),
                },
                Part::Worker(handle) => match handle.join().await {
                    Some(Ok(true)) => None,
                    Some(Ok(false)) => {
                        screen.note("a worker was stopped with turns running; they are recovered at the next start");
                        None
                    }
                    Some(Err(error)) => Some(Problem::Failed(error.into())),
                    None => Some(Problem::failed("a worker ended by a panic")),
                },
            };
            first = first.or(failure);
        }
        first.map_or(Ok(Exit::Good), Err)
    }
}
