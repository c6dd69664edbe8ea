//! The command line.

use std::process::ExitCode;

/// See ADR 13.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    relevo_cli::main()
}
