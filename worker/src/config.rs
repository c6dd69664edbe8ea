//! The configuration of a worker: which sections it reads, its flags, and the rules between them.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use relevo_shared::agents::{AgentConfig, AgentKind, Agents};
use relevo_shared::objects::Objects;
use relevo_shared::platform::config::{ConfigErrors, EXIT_CONFIG, Loader, Settings, print_duration, process_env};

use crate::agent::{PATIENCE, a2a, openai, process};
use crate::drain;

/// Runs agents for a Relevo cluster: takes turns from Redis, streams back what the agents say.
#[derive(Debug, Clone, Default, Parser)]
#[command(name = "relevo-worker", version)]
pub struct Args {
    /// TOML or YAML file; every setting is described in docs/configuration.md
    #[arg(long, value_name = "FILE", env = "RELEVO_CONFIG")]
    pub config: Option<PathBuf>,
    /// Where Redis is: redis://, rediss:// or unix://
    #[arg(long, value_name = "URL")]
    pub redis: Option<String>,
    /// The pools whose turns are taken, separated by commas
    #[arg(long, value_name = "NAMES")]
    pub pools: Option<String>,
    /// Address for /livez, /readyz and /metrics
    #[arg(long, value_name = "ADDR")]
    pub admin_listen: Option<String>,
    /// Write {"pid","admin"} to this file once the worker is ready
    #[arg(long, value_name = "PATH")]
    pub ready_file: Option<PathBuf>,
    /// Check the configuration and exit
    #[arg(long)]
    pub check_config: bool,
    /// Print the effective configuration, without secrets, and exit
    #[arg(long)]
    pub print_config: bool,
}

/// Everything a worker is started with.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The sections.
    pub settings: Settings,
    /// The agents.
    pub agents: Agents,
    /// The binary with the subcommand `supervise`; this process' own when unset.
    pub supervisor: Option<PathBuf>,
    /// The artifact store; the settings' when unset. The parts of one process share it.
    pub objects: Option<Objects>,
}

impl Config {
    /// Reads file, environment and flags.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn load(args: &Args, env: impl IntoIterator<Item = (String, String)>) -> Result<Self, ConfigErrors> {
        let mut loader = Loader::new().file(args.config.clone()).env(env);
        if let Some(url) = &args.redis {
            loader = loader.set("redis.url", url);
        }
        if let Some(pools) = &args.pools {
            loader = loader.set("worker.pools", pools);
        }
        if let Some(address) = &args.admin_listen {
            loader = loader.set("admin.listen", address);
        }
        let (settings, agents) = loader.load_with(|settings, errors| {
            let agents = Agents::read(settings, errors);
            let served = |agent: &&AgentConfig| settings.worker.pools.contains(&agent.pool);
            check_agents(agents.all().iter().filter(served), errors);
            agents
        })?;
        Ok(Self {
            settings,
            agents,
            supervisor: None,
            objects: None,
        })
    }

    /// What is accepted although it does not go together, of what this worker serves.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let served = |agent: &&AgentConfig| self.settings.worker.pools.contains(&agent.pool);
        warnings(&self.settings, self.agents.all().iter().filter(served))
    }
}

/// Refuses agents that could not run on this machine, before the first turn finds out.
pub fn check_agents<'a>(agents: impl IntoIterator<Item = &'a AgentConfig>, errors: &mut ConfigErrors) {
    for agent in agents {
        process::check(agent, errors);
        openai::check(agent, errors);
        a2a::check(agent, errors);
    }
}

/// What is accepted although it does not go together, in words.
pub fn warnings<'a>(settings: &Settings, agents: impl IntoIterator<Item = &'a AgentConfig>) -> Vec<String> {
    let slowest = agents.into_iter().max_by_key(|agent| stops_within(agent));
    let mut warnings = Vec::new();
    if let Some(agent) = slowest.filter(|agent| drain_needs([*agent]) > settings.drain.deadline) {
        let (needs, name) = (drain_needs([agent]), &agent.name);
        warnings.push(format!(
            "drain.deadline = {} is shorter than the {} that agents.{name} may take to stop: a worker may end before its \
             turns are handed on, and they wait for their leases to run out",
            print_duration(settings.drain.deadline),
            print_duration(needs),
        ));
    }
    warnings
}

/// How much of a drain must be left when these agents are told to stop.
pub fn drain_needs<'a>(agents: impl IntoIterator<Item = &'a AgentConfig>) -> Duration {
    let slowest = agents.into_iter().map(stops_within).max();
    drain::needs(slowest.unwrap_or_default())
}

/// How long an agent that was told to stop may take.
fn stops_within(agent: &AgentConfig) -> Duration {
    match (&agent.process, agent.kind) {
        (Some(program), _) => process::patience(program),
        (None, AgentKind::A2a) => a2a::PATIENCE,
        (None, AgentKind::Demo | AgentKind::Process | AgentKind::OpenAi) => PATIENCE,
    }
}

/// What the command line asks for.
#[derive(Debug)]
pub enum Started {
    /// Run with this configuration.
    Run(Box<Config>),
    /// Print this and exit.
    Print(String),
    /// Say this and exit with the code.
    Refuse(String, ExitCode),
}

/// Reads the command line's wishes.
pub fn start(args: &Args) -> Started {
    match Config::load(args, process_env()) {
        Err(errors) => Started::Refuse(errors.to_string(), ExitCode::from(EXIT_CONFIG)),
        Ok(config) if args.print_config => Started::Print(config.settings.to_toml()),
        Ok(config) if args.check_config => {
            let warnings = config
                .warnings()
                .into_iter()
                .map(|warning| format!("warning: {warning}\n"));
            Started::Print(warnings.chain(["the configuration is good\n".to_owned()]).collect())
        }
        Ok(config) => Started::Run(Box::new(config)),
    }
}
