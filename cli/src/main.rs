//! The command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    relevo_cli::main()
}
