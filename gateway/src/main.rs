//! The process `relevo-gateway`: see the library for what it does.

use std::process::ExitCode;

fn main() -> ExitCode {
    relevo_gateway::main()
}
