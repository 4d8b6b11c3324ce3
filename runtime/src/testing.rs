//! Programs under test, as they are shipped: what they log, and what the system says of their process.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub mod hostile;
pub mod witness;

/// One MiB.
pub const MIB: usize = 1024 * 1024;

/// Longer than anything takes on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(60);

const POLL: Duration = Duration::from_millis(20);

/// A process, killed when it is dropped.
pub struct Process {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
}

impl Process {
    /// Starts a program, and reads what it logs whether or not a test asks, so that it does not fill the pipe. Of the
    /// variables that programs and the AWS SDK read it has those that `command` sets, and none of this process.
    pub fn start(command: &mut Command) -> Self {
        let given: Vec<_> = command.get_envs().map(|(name, _)| name.to_owned()).collect();
        for (name, _) in std::env::vars_os() {
            let is_read = ["DYN_", "AWS_"].iter().any(|begin| name.to_string_lossy().starts_with(begin));
            if is_read && !given.contains(&name) {
                command.env_remove(name);
            }
        }
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (stderr, lines) = (BufReader::new(child.stderr.take().unwrap()), Arc::clone(&log));
        std::thread::spawn(move || {
            for line in stderr.split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8(line).unwrap();
                lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        Self { child, log }
    }

    /// Kills it without warning.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends it a signal, as `-TERM`.
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("sh").args(["-c", &format!("kill {signal} {}", self.child.id())]).status();
        assert!(sent.unwrap().success(), "{signal}");
    }

    /// Waits until it has ended.
    pub async fn ended(&mut self) -> ExitStatus {
        let log = Arc::clone(&self.log);
        let told =
            move || format!("it does not end: {:#?}", log.lock().unwrap_or_else(PoisonError::into_inner));
        until(told, || self.child.try_wait().unwrap()).await
    }

    /// What it has logged.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for a line of its log with these words.
    pub async fn logged(&self, words: &str) -> String {
        let found = || self.log().into_iter().find(|line| line.contains(words));
        until(|| format!("'{words}' is not logged: {:#?}", self.log()), found).await
    }

    /// The bytes of memory that it has now, besides what it has mapped of its own file.
    pub fn memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    }

    /// How many files it has open, connections among them.
    pub fn handles(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// Waits until it has no more files open than this.
    pub async fn gives_back(&self, handles: usize) {
        let wait = || (self.handles() <= handles).then_some(());
        until(|| format!("{} files are open, {handles} were", self.handles()), wait).await;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A field of a line of a log: as text ` name=VALUE `, as JSON `"name":"VALUE"`.
pub fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let begins = [format!(" {name}="), format!("\"{name}\":\"")];
    let found = begins.iter().find_map(|begin| line.split_once(begin.as_str()));
    let (_, value) = found.unwrap_or_else(|| panic!("{name} is not in {line}"));
    value.split(['"', ' ']).next().unwrap()
}

/// Waits until there is something, which nothing reports by itself.
pub async fn until<T>(else_told: impl Fn() -> String, mut look: impl FnMut() -> Option<T>) -> T {
    let looking = async {
        let mut polls = tokio::time::interval(POLL);
        loop {
            if let Some(found) = look() {
                return found;
            }
            polls.tick().await;
        }
    };
    tokio::time::timeout(LIMIT, looking).await.unwrap_or_else(|_| panic!("{}", else_told()))
}
