//! What runs in the Pods of `make e2e`.

use std::process::ExitCode;

use clap::Parser;
use mcs_e2e::workload::Role;

/// Plays a part in the Pods of the end-to-end tests
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    role: Role,
}

fn main() -> ExitCode {
    let Args { role } = Args::parse();
    mcs_runtime::program::run(|shutdown| async move { role.play(&shutdown.watch()).await })
}
