//! The cluster under measurement, and what its processes use.

use std::fs;
use std::sync::Arc;

use relevo_testkit::{Process, Ready, RedisCluster, RedisServer, binary};

/// One gateway, one worker, one Redis or several nodes of a Redis Cluster.
pub struct Machine {
    /// The first, of several.
    pub redis: Arc<RedisServer>,
    pub nodes: Vec<Arc<RedisServer>>,
    pub gateway: Process,
    pub worker: Process,
    pub ready: Ready,
}

/// Processor time used so far, in microseconds.
#[derive(Debug, Clone, Copy)]
pub struct Used {
    pub gateway: f64,
    pub worker: f64,
    pub redis: f64,
    pub driver: f64,
}

impl Machine {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    pub fn start_with(settings: &[(&str, &str)]) -> Self {
        Self::start_on(vec![Arc::new(RedisServer::start())], settings)
    }

    /// On a Redis Cluster, whose nodes keep no files, as the one Redis does not.
    pub fn start_on_cluster(nodes: usize) -> Self {
        let cluster = RedisCluster::start_with(nodes, &RedisServer::builder());
        Self::start_on(cluster.nodes().to_vec(), &[])
    }

    fn start_on(nodes: Vec<Arc<RedisServer>>, settings: &[(&str, &str)]) -> Self {
        let base = [
            ("RELEVO_LOG_LEVEL", "warn"),
            ("RELEVO_GATEWAY_LISTEN", "127.0.0.1:0"),
            ("RELEVO_ADMIN_LISTEN", "127.0.0.1:0"),
            ("RELEVO_WORKER_SLOTS", "1024"),
        ];
        let settings: Vec<(&str, &str)> = base.iter().chain(settings).copied().collect();
        let redis = Arc::clone(&nodes[0]);
        let url = redis.url();
        let start = |name| Process::spawn_with_ready_file(binary(name), &["--redis", &url], &settings);
        let (gateway, worker) = (start("relevo-gateway"), start("relevo-worker"));
        let ready = gateway.wait_ready();
        worker.wait_ready();
        Self {
            redis,
            nodes,
            gateway,
            worker,
            ready,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.ready.listen.unwrap())
    }

    /// What each node has used so far.
    pub fn used_by_nodes(&self) -> Vec<f64> {
        self.nodes.iter().map(|node| cpu(node.pid())).collect()
    }

    pub fn used(&self) -> Used {
        Used {
            gateway: cpu(self.gateway.pid()),
            worker: cpu(self.worker.pid()),
            redis: self.used_by_nodes().iter().sum(),
            driver: cpu(std::process::id()),
        }
    }
}

impl Used {
    /// Microseconds per turn since `before`.
    pub fn per_turn(self, before: Self, turns: u64) -> Self {
        let turns = turns.max(1) as f64;
        Self {
            gateway: (self.gateway - before.gateway) / turns,
            worker: (self.worker - before.worker) / turns,
            redis: (self.redis - before.redis) / turns,
            driver: (self.driver - before.driver) / turns,
        }
    }
}

/// The scheduler's own count, in microseconds: clock ticks of 10 ms would be too coarse for short rounds.
pub fn cpu(pid: u32) -> f64 {
    let of = |path: std::path::PathBuf| -> Option<f64> {
        let text = fs::read_to_string(path.join("schedstat")).ok()?;
        Some(text.split_whitespace().next()?.parse::<f64>().ok()? / 1_000.0)
    };
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("the process is there");
    threads.filter_map(|thread| of(thread.ok()?.path())).sum()
}

/// Resident memory in bytes.
pub fn resident(pid: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: f64 = line.trim().trim_end_matches(" kB").trim().parse().unwrap();
    kib * 1_024.0
}

pub fn describe() -> String {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().next().unwrap_or("?").to_owned();
    let profile = if cfg!(debug_assertions) {
        "debug build: not for comparing"
    } else {
        "release build"
    };
    format!("{cores} cores, load {load} at the start, {profile}; agent demo, 5 chunks per turn.")
}
