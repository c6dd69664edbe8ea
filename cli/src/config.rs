//! `relevo config`: the configuration that gateways and workers share.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use relevo_shared::agents::Agents;
use relevo_shared::platform::config::{Loader, Settings, default_file, process_env, reference_markdown};

use crate::exit::{Exit, Problem};
use crate::print::Screen;

/// Checks and explains the configuration of gateways and workers.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print what is in effect, from file and environment, without secrets
    Print {
        /// The TOML or YAML file
        #[arg(long, value_name = "FILE", env = "RELEVO_CONFIG")]
        config: Option<PathBuf>,
    },
    /// Check file and environment; exits with 64 when something is wrong
    Check {
        /// The TOML or YAML file
        #[arg(long, value_name = "FILE", env = "RELEVO_CONFIG")]
        config: Option<PathBuf>,
    },
    /// Print every setting with its meaning
    Reference {
        /// As a file to begin with, everything commented out
        #[arg(long)]
        toml: bool,
    },
}

/// Runs the subcommand.
pub(crate) fn run(args: ConfigArgs, screen: &Screen) -> Result<Exit, Problem> {
    match args.command {
        Command::Print { config } => screen.text(&load(config)?.0.to_toml())?,
        Command::Check { config } => {
            let (settings, agents) = load(config)?;
            for warning in relevo_worker::warnings(&settings, agents.all()) {
                screen.note(&format!("warning: {warning}"));
            }
            screen.note("the configuration is good");
        }
        Command::Reference { toml: true } => screen.text(&default_file())?,
        Command::Reference { toml: false } => screen.text(&reference_markdown())?,
    }
    Ok(Exit::Good)
}

fn load(file: Option<PathBuf>) -> Result<(Settings, Agents), Problem> {
    let loader = Loader::new().file(file).env(process_env());
    Ok(loader.load_with(|settings, errors| {
        relevo_gateway::check_credentials(settings, errors);
        Agents::read(settings, errors)
    })?)
}
