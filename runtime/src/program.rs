//! From a `main` function to an exit code: the tokio runtime, the signals, and one line for a failure.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;

use crate::shutdown::Shutdown;

/// Threads that still run when the program is over are given up after this.
const LAST_THREADS: Duration = Duration::from_secs(1);

/// Runs `program` to its end. It is told of SIGTERM and SIGINT through the [`Shutdown`]; the second signal ends it
/// where it stands. Exit code 0 when it returned well, 1 with the causes in the log when not.
pub fn run<F>(program: impl FnOnce(Shutdown) -> F) -> ExitCode
where
    F: Future<Output = anyhow::Result<()>>,
{
    match try_run(program) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn try_run<F>(program: impl FnOnce(Shutdown) -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the threads of the program")?;
    let result = runtime.block_on(async {
        let shutdown = Shutdown::on_signals().context("cannot listen for signals")?;
        let watch = shutdown.watch();
        tokio::select! {
            biased;
            () = watch.aborted() => anyhow::bail!("ended by a second signal"),
            result = program(shutdown) => result,
        }
    });
    runtime.shutdown_timeout(LAST_THREADS);
    result
}
