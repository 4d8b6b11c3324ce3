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

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::io::{BufRead, BufReader, Lines};
    use std::process::{Child, ChildStdout, Command, Stdio};

    use super::*;

    /// Set for a copy of the test binary that is the program under test; says what it does once it drains.
    const ON_DRAIN: &str = "MCS_RUNTIME_TEST_ON_DRAIN";

    #[test]
    fn the_first_signal_drains_and_a_program_that_drained_ends_well() {
        let mut program = Program::start("return");
        program.says("started");
        program.signal("TERM");
        program.says("draining");
        assert_eq!(program.exit_code(), Some(0));
    }

    #[test]
    fn the_second_signal_ends_a_program_that_does_not_drain() {
        let mut program = Program::start("hang");
        program.says("started");
        program.signal("INT");
        program.says("draining");
        program.signal("TERM");
        assert_eq!(program.exit_code(), Some(1));
    }

    #[test]
    fn a_failure_is_exit_code_1() {
        let mut program = Program::start("fail");
        program.says("started");
        program.signal("TERM");
        program.says("draining");
        assert_eq!(program.exit_code(), Some(1));
    }

    /// The program itself, when the test binary was started for it.
    #[test]
    #[ignore = "started by the tests above"]
    fn the_program_of_the_tests_above() {
        let Ok(on_drain) = std::env::var(ON_DRAIN) else {
            return;
        };
        let code = try_run(|shutdown| async move {
            println!("started");
            shutdown.watch().draining().await;
            println!("draining");
            match on_drain.as_str() {
                "hang" => pending().await,
                "fail" => anyhow::bail!("the disk is full"),
                _ => Ok(()),
            }
        });
        std::process::exit(i32::from(code.is_err()));
    }

    struct Program {
        child: Child,
        lines: Lines<BufReader<ChildStdout>>,
    }

    impl Program {
        fn start(on_drain: &str) -> Self {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "--ignored",
                    "--nocapture",
                    "program::tests::the_program_of_the_tests_above",
                ])
                .env(ON_DRAIN, on_drain)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            Self { child, lines }
        }

        /// Reads on to a line that ends with `text`; the test harness writes before it.
        fn says(&mut self, text: &str) {
            assert!(
                self.lines.any(|line| line.unwrap().ends_with(text)),
                "the program ended before '{text}'"
            );
        }

        fn signal(&self, name: &str) {
            let command = format!("kill -{name} {}", self.child.id());
            assert!(Command::new("sh").args(["-c", &command]).status().unwrap().success());
        }

        fn exit_code(&mut self) -> Option<i32> {
            self.child.wait().unwrap().code()
        }
    }

    impl Drop for Program {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
