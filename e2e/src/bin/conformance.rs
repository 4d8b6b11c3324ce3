//! `make conformance`: runs the conformance suite of the MCS API against two clusters.

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use mcs_e2e::conformance::{self, Options, Provider};

/// Runs the conformance suite of the MCS API against two clusters with a registry and controllers
#[derive(Parser)]
struct Args {
    /// The test binary of the suite
    suite: PathBuf,
    /// Clusters with IPv4 alone, instead of both families
    #[arg(long, conflicts_with = "kind")]
    single_stack: bool,
    /// Two clusters of kind, for all tests, instead of control planes in which Pods are played
    #[arg(long)]
    kind: bool,
    /// Further flags of the suite, for example -ginkgo.focus=Headless
    #[arg(last = true)]
    flags: Vec<String>,
}

fn main() -> ExitCode {
    let Args { suite, single_stack, kind, flags } = Args::parse();
    let provider = match (kind, single_stack) {
        (true, _) => Provider::Kind,
        (false, true) => Provider::SingleStack,
        (false, false) => Provider::DualStack,
    };
    let options = Options { suite, provider, flags };
    mcs_runtime::program::run(|shutdown| async move {
        Box::pin(conformance::run(&options, &shutdown.watch())).await
    })
}
