//! `relevo demo`: a cluster of processes that loses a worker in the middle of an answer, and what its client sees of it.
//!
//! Owns the story and its check. It uses what anybody could use: the binaries of gateway and worker, an A2A client, SIGKILL;
//! only to know which worker to kill it looks into Redis as an operator would. Whatever happens, no process is left behind.

mod cluster;
mod story;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use relevo_shared::platform::entropy;
use relevo_shared::platform::shutdown::Shutdown;
use relevo_shared::platform::tasks::Tasks;

use crate::child::Nursery;
use crate::data_dir::DataDir;
use crate::exit::{Exit, Problem};
use crate::print::Screen;
use crate::redis::Redis;
use cluster::Processes;

/// Longer than the story takes on the slowest machine.
const LIMIT: Duration = Duration::from_mins(3);

/// A longer one leaves no room for a socket's path of 107 bytes.
const LONGEST_TEMP_DIR: usize = 60;

/// Shows a cluster that survives the loss of a worker: 2 gateways and 3 workers as processes, one of them is killed.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:\n  0  the answer arrived whole\n  1  it did not, or the cluster did not start")]
pub(crate) struct DemoArgs {
    /// How many chunks the agent streams
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(10..=10_000))]
    chunks: u32,
    /// Milliseconds before each
    #[arg(long, value_name = "MS", default_value_t = 150, value_parser = clap::value_parser!(u32).range(20..=60_000))]
    delay: u32,
}

/// Tells the story.
pub(crate) async fn run(args: DemoArgs, screen: &Screen) -> Result<Exit, Problem> {
    let shutdown = Shutdown::new();
    let tasks = Tasks::new(shutdown.clone());
    let _signals = Shutdown::on_signals(&tasks).map_err(anyhow::Error::from)?;
    let mut dir = Scratch(scratch());
    let nursery = Nursery::start(&tasks)?;

    // Dropping it, whichever way it ends, kills every process; the nursery does so once more.
    let telling = tell(&args, &nursery, &dir.0, screen);
    let told = tokio::select! {
        told = tokio::time::timeout(LIMIT, telling) => told,
        () = shutdown.draining() => return Err(Problem::failed("interrupted; every process is stopped")),
    };
    let told = told.map_err(|_late| Problem::failed("the demo took too long"))?;
    if !matches!(told, Ok(Exit::Good)) {
        screen.note(&format!("the logs of all processes are kept in {}", dir.0.display()));
        dir.0 = PathBuf::new();
    }
    told
}

async fn tell(args: &DemoArgs, nursery: &Nursery, dir: &std::path::Path, screen: &Screen) -> Result<Exit, Problem> {
    let data = DataDir::claim(dir).await?;
    let redis = Redis::start(nursery, &data).await?;
    screen.line(&format!("redis-server    pid {}", redis.pid()))?;
    let mut processes = Processes::start(nursery, data.path(), redis.url(), screen).await?;
    let told = story::tell(args.chunks, args.delay, redis.url(), &mut processes, screen).await;
    processes.stop().await;
    redis.stop().await?;
    told
}

/// A name for a directory nobody has, short enough for a socket in it.
fn scratch() -> PathBuf {
    let mut base = std::env::temp_dir();
    if base.as_os_str().len() > LONGEST_TEMP_DIR {
        base = PathBuf::from("/tmp");
    }
    base.join(format!("relevo-demo-{:016x}", entropy::u64()))
}

/// A directory that goes with this value.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}
