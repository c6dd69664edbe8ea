//! `relevo dev`: a whole cluster in one process, on a Redis of its own whose data stays.
//!
//! Owns the composition: gateways and workers as values, one admin listener for all, one drain. The same scripts and
//! the same guarantees as in production; what it lacks is a second machine. Order of the end: gateways and workers drain,
//! then Redis writes what it has and ends.

mod apps;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use relevo_shared::agents::{AgentKind, Agents};
use relevo_shared::platform::config::{Loader, ServiceUrl, Settings, process_env};
use relevo_shared::platform::logging;
use relevo_shared::platform::ready_file::ReadyFile;
use relevo_shared::platform::shutdown::Shutdown;
use relevo_shared::platform::tasks::Tasks;

use crate::child::Nursery;
use crate::data_dir::{self, DataDir};
use crate::exit::{Exit, Problem};
use crate::print::Screen;
use crate::redis::Redis;
use crate::server::DEFAULT_URL;
use apps::Apps;

/// How long running turns have after Ctrl-C; what has not ended is handed back and goes on at the next start.
const DRAIN: Duration = Duration::from_secs(6);

const HELP: &str = "\
Stop it with Ctrl-C: running turns have a few seconds, the rest goes on at the next start. A second Ctrl-C stops at once.

Exit codes:
  0   stopped as asked
  1   it could not start, or something it needs failed
  2   the command line is wrong
  64  the configuration is wrong";

/// Runs a cluster for development in this process: gateways, workers, and a Redis of its own whose data is kept.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct DevArgs {
    /// How many gateways
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    gateways: u16,
    /// How many workers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
    /// The port of the first gateway on 127.0.0.1; the others follow, then /livez, /readyz and /metrics. 0 takes free ones
    #[arg(long, value_name = "PORT", default_value_t = 41242)]
    port: u16,
    /// Where Redis keeps its data
    #[arg(long, value_name = "DIR", default_value = data_dir::DEFAULT)]
    data_dir: PathBuf,
    /// TOML or YAML file with agents and settings, see `relevo config reference`; its address of Redis does not count here
    #[arg(long, value_name = "FILE", env = "RELEVO_CONFIG")]
    config: Option<PathBuf>,
    /// Write the process id and the addresses to this file once ready
    #[arg(long, value_name = "PATH", hide = true)]
    ready_file: Option<PathBuf>,
}

/// Where the parts listen.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Addresses {
    gateways: Vec<SocketAddr>,
    admin: SocketAddr,
}

impl Addresses {
    /// One port after the other; the admin listener comes last, so that one gateway and its admin listener are where those
    /// of a gateway process would be.
    fn of(port: u16, gateways: u16, admin: Option<SocketAddr>) -> Result<Self, Problem> {
        let at = |offset: u16| {
            let place = if port == 0 { Some(0) } else { port.checked_add(offset) };
            let missing = || Problem::Usage(format!("--port {port} leaves too few ports: the last is 65535"));
            Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, place.ok_or_else(missing)?)))
        };
        Ok(Self {
            gateways: (0..gateways).map(at).collect::<Result<_, Problem>>()?,
            admin: admin.map_or_else(|| at(gateways), Ok)?,
        })
    }
}

/// Runs it until it is told to stop.
pub(crate) async fn run(args: DevArgs, screen: &Screen) -> Result<Exit, Problem> {
    let (mut settings, agents) = load(args.config.clone())?;
    let addresses = Addresses::of(args.port, args.gateways, settings.admin.listen)?;
    logging::init(&settings.log);
    let dir = DataDir::claim(&args.data_dir).await?;
    settings.redis.url = ServiceUrl::new(&data_dir::redis_url(dir.path())?)
        .ok_or_else(|| Problem::failed("the data directory cannot be written as a URL"))?;

    let shutdown = Shutdown::new();
    let tasks = Tasks::new(shutdown.clone());
    let _signals = Shutdown::on_signals(&tasks).map_err(anyhow::Error::from)?;
    let nursery = Nursery::start(&tasks)?;
    let mut redis = tokio::select! {
        redis = Redis::start(&nursery, &dir) => redis?,
        () = shutdown.draining() => return Ok(Exit::Good),
    };
    let ended = {
        let serving = Box::pin(serve(&args, settings, agents, &addresses, &tasks, screen));
        tokio::select! {
            ended = serving => ended,
            status = redis.ended() => {
                let log = dir.path().join("redis.log");
                return Err(Problem::failed(format!("redis-server ended ({status}); see {}", log.display())));
            }
        }
    };
    redis.stop().await?;
    if ended.is_ok() {
        screen.note(&format!("stopped; tasks are kept in {}", args.data_dir.display()));
    }
    ended
}

/// Builds the parts, runs them, and lets them drain.
async fn serve(
    args: &DevArgs,
    settings: Settings,
    agents: Agents,
    addresses: &Addresses,
    tasks: &Tasks,
    screen: &Screen,
) -> Result<Exit, Problem> {
    let shutdown = tasks.shutdown();
    let words = greeting(agents.default_agent().kind);
    let apps = Apps::build(settings, agents, addresses, args.workers, tasks).await?;
    let running = apps.run()?;
    let mut ready_file = None;
    tokio::select! {
        () = running.ready() => {
            say(args, &running.gateways, running.admin, words, screen)?;
            if let Some(path) = &args.ready_file {
                let written = ReadyFile::write(path, running.gateways.first().copied(), running.grpc, running.admin);
                ready_file = Some(written.map_err(anyhow::Error::from)?);
            }
        }
        () = shutdown.draining() => {}
    }
    shutdown.draining().await;
    screen.note("stopping; press Ctrl-C again to stop at once");
    let ended = running.ended(screen).await;
    drop(ready_file);
    match shutdown.failure() {
        Some(failure) => Err(Problem::failed(failure)),
        None => ended,
    }
}

/// What the default agent can be told: only the built-in one does what a script says.
fn greeting(kind: AgentKind) -> &'static str {
    match kind {
        AgentKind::Demo => "chunks=10 delay=300",
        AgentKind::Process | AgentKind::OpenAi | AgentKind::A2a => "Hello",
    }
}

fn say(
    args: &DevArgs,
    gateways: &[SocketAddr],
    admin: SocketAddr,
    words: &str,
    screen: &Screen,
) -> Result<(), Problem> {
    screen.line(&format!(
        "relevo dev: a cluster in one process (pid {})",
        std::process::id()
    ))?;
    for address in gateways {
        screen.line(&format!("  gateway  http://{address}"))?;
    }
    screen.line(&format!("  workers  {}", args.workers))?;
    screen.line(&format!("  admin    http://{admin}/metrics, /readyz, /livez"))?;
    screen.line(&format!("  redis    {}", data_dir::socket(&args.data_dir).display()))?;
    let url = gateways
        .first()
        .map(|address| format!("http://{address}"))
        .unwrap_or_default();
    let option = if url == DEFAULT_URL {
        String::new()
    } else {
        format!(" --url {url}")
    };
    screen.line("")?;
    screen.line("Try, in another terminal:")?;
    screen.line(&format!("  relevo call \"{words}\" --stream{option}"))?;
    screen.line(&format!("  relevo status --data-dir {}", args.data_dir.display()))
}

/// The configuration of all parts, fit for a cluster that somebody watches.
fn load(file: Option<PathBuf>) -> Result<(Settings, Agents), Problem> {
    let env = process_env();
    let quiet = file.is_none() && env.iter().all(|(name, _)| name != "RELEVO_LOG_LEVEL");
    let mut loader = Loader::new().file(file).env(env);
    if quiet {
        loader = loader.set("log.level", "warn");
    }
    let (mut settings, agents) = loader.load_with(|settings, errors| {
        let agents = Agents::read(settings, errors);
        relevo_worker::check_agents(agents.all(), errors);
        relevo_gateway::check_credentials(settings, errors);
        agents
    })?;
    // The Redis is this command's own: nobody else reaches its socket, and it knows no passwords.
    settings.redis.username = None;
    settings.redis.password = None;
    settings.worker.pools = agents.pools();
    // A worker's name is one worker's.
    settings.worker.id = None;
    // No load balancer needs to notice, and somebody waits at the terminal.
    settings.drain.delay = Duration::ZERO;
    let most = DRAIN.max(relevo_worker::drain_needs(agents.all()));
    settings.drain.deadline = settings.drain.deadline.min(most);
    Ok((settings, agents))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(port: u16, gateways: u16) -> Option<(Vec<u16>, u16)> {
        let addresses = Addresses::of(port, gateways, None).ok()?;
        Some((
            addresses.gateways.iter().map(SocketAddr::port).collect(),
            addresses.admin.port(),
        ))
    }

    #[test]
    fn the_parts_listen_on_one_port_after_the_other() {
        assert_eq!(ports(41242, 1), Some((vec![41242], 41243)));
        assert_eq!(ports(41242, 3), Some((vec![41242, 41243, 41244], 41245)));
        assert_eq!(ports(0, 2), Some((vec![0, 0], 0)));
        assert_eq!(ports(65535, 1), None);
    }

    #[test]
    fn only_the_demo_agent_is_given_a_script() {
        for kind in AgentKind::ALL {
            assert_eq!(greeting(kind) == "Hello", kind != AgentKind::Demo, "{kind:?}");
        }
    }

    #[test]
    fn a_configured_admin_address_is_used() {
        let admin = SocketAddr::from(([127, 0, 0, 1], 9));
        assert_eq!(Addresses::of(65535, 1, Some(admin)).unwrap().admin, admin);
    }
}
