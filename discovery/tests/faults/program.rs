//! The program, started with flags.

use mcs_runtime::testing::{Process, field};
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::process::Command;

/// The program, killed when it is dropped.
pub(crate) struct Program {
    process: Process,
    pub(crate) address: SocketAddr,
}

impl Program {
    /// Starts it on a free port, and waits until it serves.
    pub(crate) async fn start(flags: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_global-discovery-service"));
        let process = Process::start(command.arg("--listen=127.0.0.1:0").args(flags));
        let line = process.logged("global-discovery-service starts").await;
        let address = field(&line, "listen").parse().unwrap();
        Self { process, address }
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
