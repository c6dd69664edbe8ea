//! Gateways and workers as processes beside each other, on free ports.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use relevo_shared::platform::config::process_env;
use relevo_shared::platform::ready_file::ReadyInfo;
use reqwest::Url;
use rustix::process::Signal;
use tokio::time::Instant;

use crate::child::{Nursery, Running};
use crate::exit::Problem;
use crate::print::Screen;

/// How long a process may take to be ready, and to end.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);

/// Short, so that nobody waits long for the recovery; a cluster in earnest has a longer lease.
const SETTINGS: [(&str, &str); 4] = [
    ("RELEVO_LEASE_TTL", "4s"),
    ("RELEVO_DRAIN_DELAY", "0s"),
    ("RELEVO_DRAIN_DEADLINE", "10s"),
    ("RELEVO_LOG_LEVEL", "info"),
];

/// A worker process.
#[derive(Debug)]
pub(super) struct Worker {
    /// Its name in Redis.
    pub(super) name: String,
    /// The process.
    pub(super) process: Running,
}

/// The cluster.
#[derive(Debug)]
pub(super) struct Processes {
    gateways: Vec<(Running, Url)>,
    workers: Vec<Worker>,
}

impl Processes {
    /// Starts 2 gateways and 3 workers and waits until each is ready.
    pub(super) async fn start(nursery: &Nursery, dir: &Path, redis: &str, screen: &Screen) -> Result<Self, Problem> {
        let starter = Starter { nursery, dir, redis };
        let mut waiting = Vec::new();
        for name in ["gateway-1", "gateway-2"] {
            waiting.push((
                name,
                starter.start("relevo-gateway", name, &["--listen", "127.0.0.1:0"])?,
            ));
        }
        for name in ["worker-1", "worker-2", "worker-3"] {
            waiting.push((name, starter.start("relevo-worker", name, &[])?));
        }
        let (mut gateways, mut workers) = (Vec::new(), Vec::new());
        for (name, mut process) in waiting {
            let ready = starter.ready(name, &mut process).await?;
            let pid = process.pid();
            if let Some(address) = ready.listen {
                let url = Url::parse(&format!("http://{address}")).map_err(anyhow::Error::from)?;
                screen.line(&format!("{name:<15} pid {pid}, {}", url.as_str().trim_end_matches('/')))?;
                gateways.push((process, url));
            } else {
                screen.line(&format!("{name:<15} pid {pid}"))?;
                workers.push(Worker {
                    name: name.to_owned(),
                    process,
                });
            }
        }
        Ok(Self { gateways, workers })
    }

    /// The address of the first gateway, and of the last.
    pub(super) fn ends(&self) -> Result<(&Url, &Url), Problem> {
        let missing = || Problem::failed("no gateway said where it listens");
        let (_, first) = self.gateways.first().ok_or_else(missing)?;
        let (_, last) = self.gateways.last().ok_or_else(missing)?;
        Ok((first, last))
    }

    /// The worker of a name.
    pub(super) fn worker(&mut self, name: &str) -> Option<&mut Worker> {
        self.workers.iter_mut().find(|worker| worker.name == name)
    }

    /// Lets them drain and end.
    pub(super) async fn stop(self) {
        let workers = self.workers.into_iter().map(|worker| worker.process);
        let mut all: Vec<Running> = workers
            .chain(self.gateways.into_iter().map(|(process, _)| process))
            .collect();
        for process in &mut all {
            process.signal(Signal::TERM);
        }
        for process in all {
            process.stop(PATIENCE).await;
        }
    }
}

struct Starter<'a> {
    nursery: &'a Nursery,
    dir: &'a Path,
    redis: &'a str,
}

impl Starter<'_> {
    fn start(&self, binary: &str, name: &str, args: &[&str]) -> Result<Running, Problem> {
        let program = beside_this(binary)?;
        let log = File::create(self.dir.join(format!("{name}.log"))).map_err(anyhow::Error::from)?;
        self.nursery.spawn(&program, |command| {
            for (variable, _) in process_env() {
                command.env_remove(variable);
            }
            command
                .args(["--redis", self.redis, "--admin-listen", "127.0.0.1:0", "--ready-file"])
                .arg(self.ready_file(name))
                .args(args)
                .envs(SETTINGS)
                .env("RELEVO_WORKER_ID", name)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log);
        })
    }

    async fn ready(&self, name: &str, process: &mut Running) -> Result<ReadyInfo, Problem> {
        let start = Instant::now();
        loop {
            if let Some(status) = process.ended() {
                let log = std::fs::read_to_string(self.dir.join(format!("{name}.log"))).unwrap_or_default();
                return Err(Problem::failed(format!(
                    "{name} ended at once ({status}):\n{}",
                    log.trim_end()
                )));
            }
            if let Ok(text) = std::fs::read_to_string(self.ready_file(name)) {
                return Ok(serde_json::from_str(&text).map_err(anyhow::Error::from)?);
            }
            if start.elapsed() >= PATIENCE {
                return Err(Problem::failed(format!(
                    "{name} was not ready within {} s",
                    PATIENCE.as_secs()
                )));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn ready_file(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.ready"))
    }
}

/// Another binary of this build.
fn beside_this(binary: &str) -> Result<PathBuf, Problem> {
    let own = std::env::current_exe().map_err(anyhow::Error::from)?;
    let path = own.with_file_name(binary);
    if path.is_file() {
        return Ok(path);
    }
    let text = format!(
        "{} is missing; build it: cargo build --workspace --bins (or run `make demo`)",
        path.display()
    );
    Err(Problem::failed(text))
}
