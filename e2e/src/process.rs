//! Runs one program of a control plane.
//!
//! Guarantee: it ends with us, also when we are killed or panic. It is bound to the pipe to its standard input,
//! whose other end only we hold and which the kernel closes for us. Rejected: PR_SET_PDEATHSIG, which needs
//! unsafe code and is bound to the thread that spawned, not to the process.

use std::{
    fs::{self, File},
    future::ready,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result};

use crate::{
    assets::{Assets, Program},
    wait::wait_at_most,
};

const STOP_LIMIT: Duration = Duration::from_secs(5);
const TAIL_LINES: usize = 20;

/// Ready-made binaries do not watch their standard input, so this shell does it for them.
/// Who waits for their process id finds it in the file that `PID_FILE` names.
pub(crate) const GUARD: &str = r#"exec 3<&0
"$0" "$@" 3<&- </dev/null &
program=$!
[ -z "${PID_FILE:-}" ] || { echo "$program" >"$PID_FILE.new" && mv "$PID_FILE.new" "$PID_FILE"; }
{ cat <&3 >/dev/null; kill -9 "$program" 2>/dev/null; } &
exec 3<&-
wait "$program""#;

/// A running program. It is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    program: Program,
    child: Child,
    stdin: Option<ChildStdin>,
    log: PathBuf,
    /// Where its process id is when it has a guard around it.
    pid_file: Option<PathBuf>,
}

impl Process {
    /// Starts a program; its output is appended to a log file in `folder`.
    pub(crate) fn spawn(
        assets: &Assets,
        program: Program,
        arguments: &[String],
        folder: &Path,
    ) -> Result<Self> {
        let log = folder.join(format!("{program}.log"));
        let output = File::options().create(true).append(true).open(&log);
        let output = output.with_context(|| format!("opening {}", log.display()))?;
        let path = assets.path(program);
        let pid_file = (!assets.end_with_stdin()).then(|| folder.join(format!("{program}.pid")));
        let mut command = if assets.end_with_stdin() {
            let mut command = Command::new(&path);
            command.env("CONTROLPLANE_EXIT_WITH_STDIN", "1");
            command
        } else {
            let mut command = Command::new("sh");
            command.arg("-c").arg(GUARD).arg(&path);
            command
        };
        command.envs(pid_file.iter().map(|file| ("PID_FILE", file)));
        command.args(arguments).stdin(Stdio::piped()).stdout(output.try_clone()?).stderr(output);
        // Ctrl-C in a terminal is for us; we end what we started, in order.
        command.process_group(0);
        let mut child = command.spawn().with_context(|| format!("starting {}", path.display()))?;
        let stdin = child.stdin.take();
        Ok(Self { program, child, stdin, log, pid_file })
    }

    /// The id of the process, or of the guard around it.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The id of the process of the program itself.
    pub(crate) fn program_id(&self) -> Result<u32> {
        let Some(file) = &self.pid_file else { return Ok(self.child.id()) };
        let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        text.trim().parse().with_context(|| format!("{} has no process id", file.display()))
    }

    /// Fails when the program has ended, with the end of its log.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => anyhow::bail!("{} ended ({status}); {}", self.program, self.log_tail()),
            None => Ok(()),
        }
    }

    /// The last lines of the log.
    pub(crate) fn log_tail(&self) -> String {
        log_tail(&self.log)
    }

    /// Whether the program found its port taken.
    pub(crate) fn lost_its_port(&self) -> bool {
        fs::read_to_string(&self.log).is_ok_and(|text| text.contains("address already in use"))
    }

    /// Kills the program with SIGKILL and waits until it is gone.
    pub(crate) async fn kill(self) -> Result<()> {
        let killed = Command::new("kill").args(["-KILL", &self.program_id()?.to_string()]).status();
        anyhow::ensure!(killed.context("sending a signal")?.success(), "{} has ended", self.program);
        self.ended().await
    }

    /// Ends the program and waits until it is gone.
    pub(crate) async fn stop(mut self) -> Result<()> {
        drop(self.stdin.take());
        self.ended().await
    }

    async fn ended(mut self) -> Result<()> {
        let program = self.program;
        let child = &mut self.child;
        wait_at_most(STOP_LIMIT, &format!("the end of {program}"), || {
            ready(match child.try_wait() {
                Ok(Some(status)) => Ok(status),
                Ok(None) => Err("still running".to_owned()),
                Err(error) => Err(error.to_string()),
            })
        })
        .await?;
        Ok(())
    }
}

/// The last lines of a log.
pub(crate) fn log_tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let tail = &lines[lines.len().saturating_sub(TAIL_LINES)..];
    format!("the end of {}:\n{}", log.display(), tail.join("\n"))
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // Both fail only when the process has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
