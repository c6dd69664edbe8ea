//! The command line of `relevo-gateway`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use relevo_shared::platform::config::{EXIT_CONFIG, Loader, process_env};
use relevo_shared::platform::shutdown::Shutdown;
use relevo_shared::platform::{logging, runtime};

use crate::app::App;
use crate::config::Config;

/// Serves the A2A protocol in front of a Relevo cluster.
///
/// Every setting is also read from the environment, lease.ttl from RELEVO_LEASE_TTL; the command line wins, then the
/// environment, then the file.
#[derive(Debug, Parser)]
#[command(name = "relevo-gateway", version)]
pub struct Arguments {
    /// Read settings from this TOML or YAML file
    #[arg(long, value_name = "FILE", env = "RELEVO_CONFIG")]
    config: Option<PathBuf>,
    /// Where Redis is: redis://, rediss:// or unix:// (setting redis.url)
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// Where to serve A2A (setting gateway.listen)
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Where to serve /livez, /readyz and /metrics (setting admin.listen)
    #[arg(long, value_name = "ADDR")]
    admin_listen: Option<String>,
    /// Write the process id and the addresses (listen, grpc, admin) to this file once ready, as JSON
    #[arg(long, value_name = "PATH")]
    ready_file: Option<PathBuf>,
    /// Check the configuration and exit
    #[arg(long)]
    check_config: bool,
    /// Print the effective configuration and exit
    #[arg(long)]
    print_config: bool,
}

impl Arguments {
    fn loader(&self) -> Loader {
        let flags = [
            ("redis.url", &self.redis),
            ("gateway.listen", &self.listen),
            ("admin.listen", &self.admin_listen),
        ];
        let loader = Loader::new().file(self.config.clone()).env(process_env());
        let set = |loader: Loader, (key, value): (&str, &Option<String>)| match value {
            Some(value) => loader.set(key, value),
            None => loader,
        };
        flags.into_iter().fold(loader, set)
    }
}

/// Runs a gateway as a process: 0 after a clean stop, 1 when it could not start or finish, 64 when the configuration is
/// refused.
#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "what a command answers goes to its terminal"
)]
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // A closed terminal is no reason to fail differently.
            let _ = error.print();
            let help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            return if help {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(EXIT_CONFIG)
            };
        }
    };
    let mut config = match Config::load(arguments.loader()) {
        Ok(config) => config,
        Err(errors) => {
            eprintln!("{errors}");
            return ExitCode::from(EXIT_CONFIG);
        }
    };
    if arguments.print_config {
        print!("{}", config.settings.to_toml());
        return ExitCode::SUCCESS;
    }
    if arguments.check_config {
        println!("the configuration is valid");
        return ExitCode::SUCCESS;
    }
    config.ready_file = arguments.ready_file;
    logging::init(&config.settings.log);
    runtime::run(config.settings.runtime.threads, run(config)).unwrap_or_else(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "no runtime");
        ExitCode::FAILURE
    })
}

async fn run(config: Config) -> ExitCode {
    let shutdown = Shutdown::new();
    let app: App = match config.build(shutdown.clone()).await {
        Ok(app) => app,
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "the gateway cannot start");
            return ExitCode::FAILURE;
        }
    };
    let signals = Shutdown::on_signals(app.tasks());
    if let Err(error) = &signals {
        tracing::error!(error = error as &dyn std::error::Error, "signals cannot be received");
        return ExitCode::FAILURE;
    }
    match app.run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "the gateway did not stop cleanly"
            );
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_settings() {
        let arguments =
            Arguments::try_parse_from(["relevo-gateway", "--redis", "redis://h:1", "--listen", "127.0.0.1:0"]).unwrap();
        let settings = arguments.loader().load().unwrap();
        assert_eq!(settings.redis.url.expose(), "redis://h:1");
        assert_eq!(settings.gateway.listen.port(), 0);
    }
}
