//! How the tools of an operator reach the Redis of a cluster.
//!
//! Owns the flags and the rule which of them counts. Settings that must agree with the cluster (prefix, partitions,
//! credentials, pools) come from the same file and environment as those of the processes.

use std::path::PathBuf;

use clap::Args;
use relevo_shared::agents::Agents;
use relevo_shared::platform::config::{Loader, Settings, process_env};
use relevo_shared::platform::metrics::Registry;
use relevo_shared::store::{ConnectOptions, Store, StoreMetrics};

use crate::data_dir;
use crate::exit::Problem;
use crate::print::Screen;

/// Names a cluster by its Redis.
#[derive(Debug, Args)]
pub(crate) struct RedisArgs {
    /// The Redis of the cluster: redis://, rediss:// or unix://. A password is better given as
    /// RELEVO_REDIS_PASSWORD_FILE, since a command line is visible to others
    #[arg(long, value_name = "URL", conflicts_with = "data_dir", hide_env = true)]
    redis: Option<String>,
    /// The data directory of a `relevo dev` that runs
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The TOML or YAML file of the cluster's processes
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// A cluster, seen from its Redis.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// Its store.
    pub(crate) store: Store,
    /// Every pool that turns are queued for.
    pub(crate) pools: Vec<String>,
}

impl RedisArgs {
    /// Connects.
    pub(crate) async fn connect(&self, screen: &Screen) -> Result<Cluster, Problem> {
        let env = process_env();
        let named = self.config.is_some() || env.iter().any(|(name, _)| name == "RELEVO_REDIS_URL");
        let mut loader = Loader::new().file(self.config.clone()).env(env);
        match (&self.redis, &self.data_dir) {
            (Some(url), _) => loader = loader.set("redis.url", url),
            (None, Some(dir)) => loader = loader.set("redis.url", running(dir)?),
            (None, None) if named => {}
            (None, None) => {
                let text = "which cluster? Give --redis URL, or --data-dir DIR for one that `relevo dev` runs";
                return Err(Problem::Usage(text.to_owned()));
            }
        }
        let (settings, agents) = loader.load_with(Agents::read)?;
        let cluster = connect(&settings, &agents).await?;
        for warning in cluster.store.preflight().await?.warnings {
            screen.note(&format!("redis: {warning}"));
        }
        Ok(cluster)
    }
}

/// Connects with settings that are known. A Redis that no cluster has used is not laid out but reported.
pub(crate) async fn connect(settings: &Settings, agents: &Agents) -> Result<Cluster, Problem> {
    let metrics = StoreMetrics::register(&Registry::new()).map_err(anyhow::Error::from)?;
    let store = Store::connect_existing(&ConnectOptions::from_settings(&settings.redis), metrics).await?;
    Ok(Cluster {
        store,
        pools: agents.pools(),
    })
}

/// The address of the Redis that runs in a data directory.
fn running(dir: &std::path::Path) -> Result<String, Problem> {
    let nothing = || {
        let text = format!(
            "no cluster runs in {0}; start one: relevo dev --data-dir {0}",
            dir.display()
        );
        Problem::unreachable(text)
    };
    let dir = std::fs::canonicalize(dir).map_err(|_missing| nothing())?;
    if !data_dir::socket(&dir).exists() {
        return Err(nothing());
    }
    data_dir::redis_url(&dir)
}
