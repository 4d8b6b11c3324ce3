//! Runs our own programs as processes, as a user would: with flags and environment, signals and logs.
//!
//! They end with the process that started them, like the clusters do.

use std::{
    env,
    fs::{self, File},
    future::ready,
    io,
    net::{Ipv4Addr, SocketAddr},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::{
    assets::workspace_root,
    ports::free_port,
    process::{GUARD, log_tail},
    stack::get,
    wait::wait_for,
};

/// A signal that ends a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Ends it in order.
    Term,
    /// Ends it at once.
    Kill,
    /// Stops it where it stands.
    Stop,
    /// Lets it go on.
    Continue,
}

impl Signal {
    const fn flag(self) -> &'static str {
        match self {
            Self::Term => "-TERM",
            Self::Kill => "-KILL",
            Self::Stop => "-STOP",
            Self::Continue => "-CONT",
        }
    }
}

/// A program of ours that runs. It is killed when this is dropped.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    pid: u32,
    log: PathBuf,
}

/// The path of a program of the workspace, built by the build that made the running test or tool.
///
/// # Errors
/// It is not built.
pub fn find(name: &str) -> Result<PathBuf> {
    let running = env::current_exe().context("the path of the running program")?;
    let beside = running.ancestors().skip(1).take(2).map(|folder| folder.join(name));
    let built = ["debug", "release"].map(|profile| workspace_root().join("target").join(profile).join(name));
    let found = beside.chain(built).find(|path| path.is_file());
    found.with_context(|| format!("{name} is not built; run `cargo build --workspace --bins`"))
}

/// A free address on loopback.
///
/// # Errors
/// There is no free port.
pub fn free_address() -> Result<SocketAddr> {
    Ok((Ipv4Addr::LOCALHOST, free_port()?).into())
}

impl Program {
    /// Starts the program `binary`; its output is appended to `<name>.log` in `folder`.
    ///
    /// # Errors
    /// It is not built, or does not start.
    pub async fn start(
        binary: &str,
        name: &str,
        folder: &Path,
        arguments: &[String],
        environment: &[(&str, String)],
    ) -> Result<Self> {
        let mut command = guarded(&find(binary)?);
        command.args(arguments).envs(environment.iter().map(|(name, value)| (name, value)));
        Self::spawn(command, name, folder).await
    }

    /// Starts a program that is not ours, in `folder`; its output is appended to `<name>.log` there.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start_foreign(
        file: &Path,
        name: &str,
        folder: &Path,
        arguments: &[String],
        environment: &[(&str, String)],
    ) -> Result<Self> {
        let mut command = guarded(file);
        command
            .args(arguments)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .current_dir(folder);
        Self::spawn(command, name, folder).await
    }

    async fn spawn(mut command: Command, name: &str, folder: &Path) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let pid_file = folder.join(format!("{name}.pid"));
        match fs::remove_file(&pid_file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let output = File::options().create(true).append(true).open(&log);
        let output = output.with_context(|| format!("opening {}", log.display()))?;
        command.env("PID_FILE", &pid_file);
        command.stdin(Stdio::piped()).stdout(output.try_clone()?).stderr(output);
        // Ctrl-C in a terminal is for us; we end what we started, in order.
        command.process_group(0);
        let mut child = command.spawn().with_context(|| format!("starting {name}"))?;
        let stdin = child.stdin.take();
        let read = || {
            fs::read_to_string(&pid_file)
                .map_err(anyhow::Error::from)
                .and_then(|text| Ok(text.trim().parse()?))
        };
        let pid = wait_for(&format!("the process id of {name}"), || ready(read())).await?;
        fs::remove_file(&pid_file)?;
        Ok(Self { name: name.to_owned(), child, stdin, pid, log })
    }

    /// What it is called in logs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id.
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The last lines of its log, for messages.
    pub fn log_tail(&self) -> String {
        log_tail(&self.log)
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// The program has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let sent = Command::new("kill").args([signal.flag(), &self.pid.to_string()]).status();
        if sent.context("sending a signal")?.success() { Ok(()) } else { bail!("{} has ended", self.name) }
    }

    /// Waits until the program has ended.
    ///
    /// # Errors
    /// It still runs after the limit of [`wait_for`].
    pub async fn ended(&mut self) -> Result<ExitStatus> {
        let name = self.name.clone();
        wait_for(&format!("the end of {name}"), || {
            ready(match self.child.try_wait() {
                Ok(Some(status)) => Ok(status),
                Ok(None) => Err("still running".to_owned()),
                Err(error) => Err(error.to_string()),
            })
        })
        .await
    }

    /// Sends a signal that ends the program, and waits until it has ended.
    ///
    /// # Errors
    /// It does not end.
    pub async fn end(mut self, signal: Signal) -> Result<ExitStatus> {
        self.signal(signal)?;
        self.ended().await
    }

    /// Waits until `url`, the program's readiness probe, answers with success.
    ///
    /// # Errors
    /// It does not, or the program has ended; the message has the end of its log.
    pub async fn ready(&mut self, url: &str) -> Result<()> {
        let what = format!("{} to be ready", self.name);
        let ready = wait_for(&what, || {
            let ended = self.check();
            async move {
                ended?;
                get(url).await.map(drop)
            }
        });
        ready.await.with_context(|| log_tail(&self.log))
    }

    /// How the program ended, once it has.
    ///
    /// # Errors
    /// The system cannot tell.
    pub(crate) fn status(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Fails when the program has ended, with the end of its log.
    ///
    /// # Errors
    /// It has ended.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("{} ended ({status}); {}", self.name, self.log_tail()),
            None => Ok(()),
        }
    }
}

/// A command that ends with us, also when we are killed.
fn guarded(file: &Path) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(GUARD).arg(file);
    command
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // Fails only when the program ends at this moment.
            let _ = self.signal(Signal::Kill);
        }
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}
