//! The worker process.

use std::process::ExitCode;

use clap::Parser as _;
use relevo_shared::platform::shutdown::Shutdown;
use relevo_shared::platform::{logging, runtime};
use relevo_worker::{App, Args, Started, start, supervise};

/// See ADR 13.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == supervise::SUBCOMMAND) {
        return supervise::main(words);
    }
    let args = Args::parse();
    let config = match start(&args) {
        Started::Run(config) => config,
        Started::Print(text) => return say(&mut std::io::stdout(), &text, ExitCode::SUCCESS),
        Started::Refuse(text, code) => return say(&mut std::io::stderr(), &format!("{text}\n"), code),
    };
    logging::init(&config.settings.log);
    let threads = config.settings.runtime.threads;
    let run = async {
        let app = App::build(*config, args.ready_file, Shutdown::new()).await?;
        app.run_with_signals().await
    };
    let ended = match runtime::run(threads, run) {
        Ok(ended) => ended,
        Err(error) => {
            return say(
                &mut std::io::stderr(),
                &format!("no runtime: {error}\n"),
                ExitCode::FAILURE,
            );
        }
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let error = anyhow::Error::from(error);
            say(
                &mut std::io::stderr(),
                &format!("relevo-worker cannot run: {error:#}\n"),
                ExitCode::FAILURE,
            )
        }
    }
}

fn say(to: &mut dyn std::io::Write, text: &str, code: ExitCode) -> ExitCode {
    // A reader that went away is no reason to fail.
    drop(to.write_all(text.as_bytes()));
    code
}
