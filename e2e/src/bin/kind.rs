//! `make e2e`: the programs in three clusters of kind.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use mcs_e2e::kind::{self, Command};

/// Runs the programs in three clusters of kind, phase by phase
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: What,
}

#[derive(Subcommand)]
enum What {
    /// Makes the clusters
    Up,
    /// Deletes them
    Down,
    /// Runs phases by their numbers; without one, all of them, and deletes the clusters when all passed
    Run { phases: Vec<u8> },
}

fn main() -> ExitCode {
    let command = match Args::parse().command {
        What::Up => Command::Up,
        What::Down => Command::Down,
        What::Run { phases } => Command::Run(phases),
    };
    mcs_runtime::program::run(|shutdown| async move { Box::pin(kind::run(command, &shutdown.watch())).await })
}
