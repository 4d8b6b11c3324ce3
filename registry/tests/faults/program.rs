//! The program, started with flags, and what the system says of its process.

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::process::Command;

use mcs_runtime::testing::{Process, field};

/// The program, killed when it is dropped.
pub(crate) struct Program {
    process: Process,
    flags: Vec<String>,
    environment: Vec<(&'static str, String)>,
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
        self.signal("-TERM");
        let ended = self.ended().await;
        assert!(ended.success(), "{ended}: {:#?}", self.log());
        self.again().await
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
        command.envs(environment.iter().cloned());
        for (flag, address) in [("grpc", grpc), ("rest", rest), ("admin", admin)] {
            command.arg(format!("--{flag}-listen={address}"));
        }
        let process = Process::start(command.args(&flags));
        let mut program = Self { process, flags, environment, grpc, rest, admin };
        let line = program.logged("registry starts").await;
        let address = |port: &str| field(&line, port).parse().unwrap();
        let (grpc, rest, admin) = (address("grpc"), address("rest"), address("admin"));
        (program.grpc, program.rest, program.admin) = (grpc, rest, admin);
        program
    }
}

impl Deref for Program {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Program {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}
