//! The configuration of a worker: which sections it reads, its flags, and the rules between them.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use relevo_shared::agents::{AgentConfig, Agents};
use relevo_shared::objects::Objects;
use relevo_shared::platform::config::{ConfigErrors, EXIT_CONFIG, Loader, Settings, process_env};

use crate::agent::{a2a, openai, process};

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
}

/// Refuses agents that could not run on this machine, before the first turn finds out.
pub fn check_agents<'a>(agents: impl IntoIterator<Item = &'a AgentConfig>, errors: &mut ConfigErrors) {
    for agent in agents {
        process::check(agent, errors);
        openai::check(agent, errors);
        a2a::check(agent, errors);
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
        Ok(_) if args.check_config => Started::Print("the configuration is good\n".to_owned()),
        Ok(config) => Started::Run(Box::new(config)),
    }
}
