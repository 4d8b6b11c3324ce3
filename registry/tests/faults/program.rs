//! The program, started with flags, and what the system says of its process.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::started::LIMIT;

/// One MiB.
pub(crate) const MIB: usize = 1024 * 1024;

const POLL: Duration = Duration::from_millis(20);

/// The program, killed when it is dropped.
pub(crate) struct Program {
    child: Child,
    flags: Vec<String>,
    environment: Vec<(&'static str, String)>,
    log: Arc<Mutex<Vec<String>>>,
    pub(crate) grpc: SocketAddr,
    pub(crate) rest: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Program {
    /// Starts it on free ports, and waits until it serves.
    pub(crate) async fn start(flags: &[&str]) -> Self {
        Self::start_in(flags, Vec::new()).await
    }

    /// [`Program::start`] with these variables in its environment.
    pub(crate) async fn start_in(flags: &[&str], environment: Vec<(&'static str, String)>) -> Self {
        let free: SocketAddr = "127.0.0.1:0".parse().unwrap();
        Self::started(flags.iter().map(ToString::to_string).collect(), environment, [free; 3]).await
    }

    /// Kills it without warning, and starts it anew on its ports.
    pub(crate) async fn restart(mut self) -> Self {
        self.kill();
        self.again().await
    }

    /// Ends it in order, as a rollout does, and starts it anew on its ports.
    pub(crate) async fn roll(mut self) -> Self {
        let sent = Command::new("sh").args(["-c", &format!("kill -TERM {}", self.child.id())]).status();
        assert!(sent.unwrap().success());
        let log = Arc::clone(&self.log);
        let told =
            move || format!("it does not end: {:#?}", log.lock().unwrap_or_else(PoisonError::into_inner));
        let ended = until(told, || self.child.try_wait().unwrap()).await;
        assert!(ended.success(), "{ended}: {:#?}", self.log());
        self.again().await
    }

    /// Kills it without warning, for good.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    async fn again(&self) -> Self {
        let ports = [self.grpc, self.rest, self.admin];
        Self::started(self.flags.clone(), self.environment.clone(), ports).await
    }

    async fn started(
        flags: Vec<String>,
        environment: Vec<(&'static str, String)>,
        [grpc, rest, admin]: [SocketAddr; 3],
    ) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mcs-registry"));
        let is_ours = |name: &str| name.starts_with("DYN_MCS_") || name.starts_with("AWS_");
        for (name, _) in std::env::vars().filter(|(name, _)| is_ours(name)) {
            command.env_remove(name);
        }
        command.envs(environment.iter().cloned());
        for (flag, address) in [("grpc", grpc), ("rest", rest), ("admin", admin)] {
            command.arg(format!("--{flag}-listen={address}"));
        }
        let mut child = command.args(&flags).stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (stderr, lines) = (BufReader::new(child.stderr.take().unwrap()), Arc::clone(&log));
        // Read whether or not a test asks, so that what is logged does not fill the pipe.
        std::thread::spawn(move || {
            for line in stderr.split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8(line).unwrap();
                lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        let mut program = Self { child, flags, environment, log, grpc, rest, admin };
        let line = program.logged("registry starts").await;
        // As text ` grpc=ADDRESS `, as JSON `"grpc":"ADDRESS"`.
        let address = |port: &str| {
            let (_, after) = line.split_once(port).unwrap();
            let address = after.trim_start_matches(['"', ':', '=']);
            address.split(['"', ' ']).next().unwrap().parse().unwrap()
        };
        let (grpc, rest, admin) = (address("grpc"), address("rest"), address("admin"));
        (program.grpc, program.rest, program.admin) = (grpc, rest, admin);
        program
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("sh").args(["-c", &format!("kill {signal} {}", self.child.id())]).status();
        assert!(sent.unwrap().success(), "{signal}");
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for a line of its log with these words.
    pub(crate) async fn logged(&self, words: &str) -> String {
        let found = || self.log().into_iter().find(|line| line.contains(words));
        until(|| format!("'{words}' is not logged: {:#?}", self.log()), found).await
    }

    /// The bytes of memory that it has now, besides what it has mapped of its own file.
    pub(crate) fn memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    }

    /// How many files it has open, connections among them.
    pub(crate) fn handles(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// Waits until it has no more files open than this.
    pub(crate) async fn gives_back(&self, handles: usize) {
        let wait = || (self.handles() <= handles).then_some(());
        until(|| format!("{} files are open, {handles} were", self.handles()), wait).await;
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until there is something, which nothing reports by itself.
pub(crate) async fn until<T>(else_told: impl Fn() -> String, mut look: impl FnMut() -> Option<T>) -> T {
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
