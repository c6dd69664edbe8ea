//! The process: reads the command line, runs the load, prints the report.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use relevo_loadtest::driver;
use relevo_loadtest::settings::Settings;

const USAGE: u8 = 2;

fn main() -> anyhow::Result<ExitCode> {
    let settings = Settings::parse();
    if let Err(wrong) = settings.check() {
        writeln!(std::io::stderr(), "relevo-loadtest: {wrong}").ok();
        return Ok(ExitCode::from(USAGE));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("no runtime")?;
    if settings.verify
        && let Some(other) = runtime
            .block_on(driver::other_agent(&settings))
            .context("no HTTP client")?
    {
        let wrong = format!("--verify: the agent is {other}; only the answers of the agent demo can be checked");
        writeln!(std::io::stderr(), "relevo-loadtest: {wrong}").ok();
        return Ok(ExitCode::from(USAGE));
    }
    let report = runtime.block_on(driver::run(&settings)).context("no HTTP client")?;
    let text = if settings.json {
        format!("{:#}\n", report.to_json())
    } else {
        report.to_string()
    };
    // A reader that went away is no reason to fail.
    std::io::stdout().write_all(text.as_bytes()).ok();
    Ok(if report.is_good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
