//! `make conformance`: runs the conformance suite of the MCS API against two clusters.

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use mcs_e2e::conformance::{self, Options};

/// Runs the conformance suite of the MCS API against two clusters with a registry and controllers
#[derive(Parser)]
struct Args {
    /// The test binary of the suite
    suite: PathBuf,
    /// Clusters with IPv4 alone, instead of both families
    #[arg(long)]
    single_stack: bool,
    /// Further flags of the suite, for example -ginkgo.focus=Headless
    #[arg(last = true)]
    flags: Vec<String>,
}

fn main() -> ExitCode {
    let Args { suite, single_stack, flags } = Args::parse();
    let options = Options { suite, single_stack, flags };
    mcs_runtime::program::run(|shutdown| async move {
        Box::pin(conformance::run(&options, &shutdown.watch())).await
    })
}
