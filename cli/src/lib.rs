//! The command line: a development cluster, an A2A client, and the tools of an operator.
//!
//! - `call`, `task` and `card` are a client like any other: they know a URL and speak A2A ([`client`], [`follow`], [`show`]).
//! - `dev` and `demo` run a cluster on a Redis of their own.
//! - `status` and `dead` look into Redis directly; they are for operators, not part of A2A.
//!
//! All output goes through [`mod@print`], every exit code is in [`exit`].

mod call;
mod card;
mod child;
mod client;
mod config;
mod data_dir;
mod dead;
mod demo;
mod dev;
mod exit;
mod follow;
mod operator;
mod print;
mod redis;
mod save;
mod server;
mod show;
mod status;
mod tasks;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use exit::{Exit, Problem};
use print::Screen;
use relevo_shared::platform::runtime;
use relevo_worker::supervise;

/// What every complaint begins with.
const NAME: &str = "relevo";

/// Relevo: agents behind stateless gateways and a fleet of workers.
#[derive(Debug, Parser)]
#[command(name = NAME, version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[expect(clippy::large_enum_variant, reason = "one value, read once")]
#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    ForPeople(ForPeople),
    #[command(hide = true)]
    Tied(child::TiedArgs),
}

#[derive(Debug, Subcommand)]
enum ForPeople {
    Call(call::CallArgs),
    Task(tasks::TaskArgs),
    Card(card::CardArgs),
    Dev(dev::DevArgs),
    Demo(demo::DemoArgs),
    Status(status::StatusArgs),
    Dead(dead::DeadArgs),
    Config(config::ConfigArgs),
}

/// Reads the command line and does what it asks for.
pub fn main() -> ExitCode {
    // The workers of `dev` keep the processes of their agents under a second life of this binary.
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == supervise::SUBCOMMAND) {
        return supervise::main(words);
    }
    let cli = Cli::parse();
    let screen = Screen::new();
    let command = match cli.command {
        Command::ForPeople(command) => command,
        // Before there is a runtime: what it becomes is to be tied from its first thread on.
        Command::Tied(args) => {
            let (code, why) = child::tied(args);
            screen.note(&format!("{NAME}: {why}"));
            return ExitCode::from(code);
        }
    };
    let ended = match runtime::run(None, run(command, &screen)) {
        Ok(ended) => ended,
        Err(error) => Err(Problem::Failed(anyhow::Error::from(error).context("no runtime"))),
    };
    match ended {
        Ok(exit) => exit.into(),
        Err(problem) => {
            if !matches!(problem, Problem::Closed) {
                screen.note(&format!("{NAME}: {}", exit::chain(&problem)));
            }
            ExitCode::from(problem.code())
        }
    }
}

async fn run(command: ForPeople, screen: &Screen) -> Result<Exit, Problem> {
    match command {
        ForPeople::Call(args) => call::run(args, screen).await,
        ForPeople::Task(args) => tasks::run(args, screen).await,
        ForPeople::Card(args) => card::run(args, screen).await,
        ForPeople::Dev(args) => dev::run(args, screen).await,
        ForPeople::Demo(args) => demo::run(args, screen).await,
        ForPeople::Status(args) => status::run(args, screen).await,
        ForPeople::Dead(args) => dead::run(args, screen).await,
        ForPeople::Config(args) => config::run(args, screen),
    }
}
