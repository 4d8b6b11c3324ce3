//! The program: it says where it listens, and a signal ends it in order.

use crate::service::{PATIENCE, ask, registration};
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

pub(crate) struct Program {
    child: Child,
    log: Lines<BufReader<ChildStderr>>,
    pub(crate) address: SocketAddr,
}

impl Program {
    pub(crate) async fn start(args: &[&str]) -> Self {
        Self::start_with(args, &[]).await
    }

    pub(crate) async fn start_with(
        args: &[impl AsRef<OsStr>],
        environment: &[(&'static str, String)],
    ) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_global-discovery-service"))
            .args(["--listen=127.0.0.1:0", "--log-format=json"])
            .args(args)
            .env_clear()
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let listens = tokio::time::timeout(PATIENCE, async {
            while let Some(line) = log.next_line().await.unwrap() {
                let line: serde_json::Value = serde_json::from_str(&line).unwrap();
                if let Some(address) = find(&line, "listen") {
                    return address.parse().unwrap();
                }
            }
            panic!("the program ended without a word");
        });
        let address = listens.await.expect("the program does not say where it listens");
        Self { child, log, address }
    }

    pub(crate) async fn signal(&self, name: &str) {
        let id = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args([name, &id]).status().await.unwrap().success());
    }

    /// Its exit code, and what it logged until then.
    pub(crate) async fn ended(mut self) -> (Option<i32>, String) {
        let end = async {
            let mut log = String::new();
            while let Some(line) = self.log.next_line().await.unwrap() {
                log.push_str(&line);
                log.push('\n');
            }
            (self.child.wait().await.unwrap().code(), log)
        };
        tokio::time::timeout(PATIENCE, end).await.expect("the program does not end")
    }
}

/// A field of a JSON log line, wherever the format puts it.
fn find(line: &serde_json::Value, field: &str) -> Option<String> {
    let found = line.get(field).or_else(|| line.get("fields")?.get(field))?;
    Some(found.as_str()?.to_owned())
}

#[tokio::test]
async fn sigterm_drains_and_ends_with_code_0() {
    let program = Program::start(&["--drain-delay-secs=1", "--shutdown-grace-secs=5"]).await;
    let body = registration("chat").to_string();
    assert_eq!(ask(program.address, "POST", "/pools", &body).await.0, 200);
    program.signal("-TERM").await;
    // The signal takes a moment to arrive; requests are answered meanwhile.
    let unready = async { while ask(program.address, "GET", "/healthz", "").await.0 != 503 {} };
    tokio::time::timeout(PATIENCE, unready).await.expect("never unready");
    assert_eq!(ask(program.address, "GET", "/pools", "").await.0, 200);
    let (code, log) = program.ended().await;
    assert_eq!(code, Some(0), "{log}");
}

#[tokio::test]
async fn a_second_signal_ends_the_program_at_once() {
    let program = Program::start(&["--drain-delay-secs=3600"]).await;
    program.signal("-INT").await;
    let unready = async { while ask(program.address, "GET", "/healthz", "").await.0 != 503 {} };
    tokio::time::timeout(PATIENCE, unready).await.expect("never unready");
    program.signal("-TERM").await;
    let (code, log) = program.ended().await;
    assert_eq!(code, Some(1), "{log}");
}
