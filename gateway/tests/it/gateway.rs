//! Gateways in this process.

use std::net::SocketAddr;
use std::time::Duration;

use relevo_gateway::{App, Config, RunError};
use relevo_shared::platform::config::Loader;
use relevo_shared::platform::metrics::Registry;
use relevo_shared::platform::shutdown::Shutdown;
use relevo_shared::platform::tasks::{self, Handle, Kind, Tasks};
use relevo_shared::store::{ConnectOptions, Store, StoreMetrics};
use relevo_testkit::RedisServer;

use crate::client::Client;
use crate::hand::Hand;

pub struct Gateway {
    pub listen: SocketAddr,
    pub grpc: SocketAddr,
    pub admin: SocketAddr,
    pub shutdown: Shutdown,
    running: Option<Handle<Result<(), RunError>>>,
}

impl Gateway {
    /// A gateway on free ports with these settings.
    pub async fn start(redis: &RedisServer, settings: &[(&str, &str)]) -> Self {
        Self::start_at(&redis.url(), settings).await
    }

    /// The same for a Redis at an address, which may be a proxy.
    pub async fn start_at(redis: &str, settings: &[(&str, &str)]) -> Self {
        Self::start_with(redis, "", settings).await
    }

    /// The same with a file of settings, for tables.
    pub async fn start_with(redis: &str, file: &str, settings: &[(&str, &str)]) -> Self {
        let base = [
            ("redis.url", redis),
            ("gateway.listen", "127.0.0.1:0"),
            ("gateway.grpc_listen", "127.0.0.1:0"),
            ("admin.listen", "127.0.0.1:0"),
        ];
        let set = |loader: Loader, (key, value): &(&str, &str)| loader.set(*key, *value);
        let loader = base.iter().chain(settings).fold(Loader::new().text("file", file), set);
        let shutdown = Shutdown::new();
        let app: App = Config::load(loader).unwrap().build(shutdown.clone()).await.unwrap();
        let (listen, grpc, admin) = (app.listen(), app.grpc().unwrap(), app.admin().unwrap());
        let readiness = app.readiness().clone();
        let running = tasks::spawn(&Tasks::new(Shutdown::new()), "gateway", Kind::BestEffort, async move {
            app.run().await
        });
        readiness.ready().await;
        Self {
            listen,
            grpc,
            admin,
            shutdown,
            running: Some(running),
        }
    }

    pub fn client(&self) -> Client {
        Client::new(self.listen)
    }

    /// A client with headers of its own.
    pub fn client_with(&self, headers: &[(&'static str, &str)]) -> Client {
        Client::with_headers(self.listen, headers)
    }

    /// Drains it and waits for its end.
    pub async fn stop(self) -> Result<(), RunError> {
        self.shutdown.trigger();
        self.ended().await
    }

    /// Waits for its end.
    pub async fn ended(mut self) -> Result<(), RunError> {
        self.running.take().unwrap().join().await.expect("the gateway panicked")
    }

    /// The value of a metric, all its labels summed up.
    pub async fn metric(&self, name: &str) -> f64 {
        let text = reqwest::get(format!("http://{}/metrics", self.admin))
            .await
            .unwrap()
            .text()
            .await
            .unwrap();
        let value = |line: &str| {
            let rest = line.strip_prefix(name)?;
            rest.starts_with([' ', '{'])
                .then(|| rest.rsplit(' ').next()?.parse::<f64>().ok())?
        };
        text.lines().filter_map(value).sum()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.shutdown.abort();
    }
}

/// The store, as a worker has it.
pub async fn store(redis: &RedisServer) -> Store {
    store_at(&redis.url()).await
}

pub async fn store_at(url: &str) -> Store {
    let options = ConnectOptions {
        url: url.to_owned(),
        username: None,
        password: None,
        prefix: "relevo".to_owned(),
        partitions: 64,
        timeout: Duration::from_secs(5),
        pool_size: 2,
    };
    Store::connect(&options, StoreMetrics::register(&Registry::new()).unwrap())
        .await
        .unwrap()
}

/// Every key of Redis that holds something a client caused.
pub fn client_keys(redis: &RedisServer) -> Vec<String> {
    let keys = redis.cli(&["KEYS", "*"]);
    let ours = |key: &&str| !key.ends_with(":meta") && !key.ends_with(":layout") && !key.is_empty();
    keys.lines().filter(ours).map(str::to_owned).collect()
}

/// The same with a file of settings.
pub async fn world_with(file: &str, settings: &[(&str, &str)]) -> World {
    let redis = RedisServer::start();
    let gateway = Gateway::start_with(&redis.url(), file, settings).await;
    let hand = Hand::new(store(&redis).await);
    World { redis, gateway, hand }
}

/// A gateway, its Redis, and a worker.
pub struct World {
    pub redis: RedisServer,
    pub gateway: Gateway,
    pub hand: Hand,
}

pub async fn world(settings: &[(&str, &str)]) -> World {
    let redis = RedisServer::start();
    let gateway = Gateway::start(&redis, settings).await;
    let hand = Hand::new(store(&redis).await);
    World { redis, gateway, hand }
}
