//! `make demo`: two clusters that share Services, shown as a user would look at them.

use std::process::ExitCode;

use clap::Parser;

/// Shows two clusters that share Services, until Ctrl-C
#[derive(Parser)]
struct Args {
    /// Ends when everything was seen; the exit code is 0 only then
    #[arg(long)]
    once: bool,
}

fn main() -> ExitCode {
    let Args { once } = Args::parse();
    mcs_runtime::program::run(|shutdown| async move {
        Box::pin(mcs_e2e::demo::run(once, &shutdown.watch())).await
    })
}
