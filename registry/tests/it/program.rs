//! The program itself: flags, and its end.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use mcs_core::model::{Frame, Since};
use mcs_core::registry::Policy;
use mcs_core::timing::Timing;
use mcs_core::version::{Sum, Version};
use mcs_registry::args::Args;
use mcs_registry::{Config, Replication};
use mcs_runtime::dynamodb::double::{Double, TABLE};
use mcs_runtime::tls::testing::Ca;

use crate::started::{LIMIT, client, http, id, member, prod, registration};

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mcs-registry"));
    for (name, _) in std::env::vars() {
        if name.starts_with("DYN_MCS_") {
            command.env_remove(name);
        }
    }
    command
}

fn told(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8(output.stderr.clone()).unwrap())
}

#[test]
fn bad_flags_end_it_with_code_2_and_one_line_that_names_the_flag() {
    let cases: [(&[&str], &str); 34] = [
        (&["--grpc-listen=9090"], "--grpc-listen"),
        (&["--rest-listen=::1:8080"], "--rest-listen"),
        (&["--admin-listen=here"], "--admin-listen"),
        (&["--store=disk"], "--store"),
        (&["--store=dynamodb", "--dynamodb-table=ab"], "--dynamodb-table"),
        (&["--store=dynamodb", "--dynamodb-endpoint=localhost:8000"], "--dynamodb-endpoint"),
        (&["--store=dynamodb", "--region=eu/west"], "--region"),
        (&["--dynamodb-table=mcs"], "--dynamodb-table"),
        (&["--store=memory", "--dynamodb-endpoint=http://localhost:8000"], "--dynamodb-endpoint"),
        (&["--store=dynamodb", "--region=EU_west"], "--region"),
        (&["--store=dynamodb", "--region="], "--region"),
        (&["--store=dynamodb", "--refresh-interval=2"], "--refresh-interval"),
        (&["--store=dynamodb", "--refresh-interval=99ms"], "--refresh-interval"),
        (&["--store=dynamodb", "--refresh-interval=5001ms"], "--refresh-interval"),
        (&["--store=dynamodb", "--lease-duration=3s"], "--refresh-interval"),
        (&["--replication-grace=25h"], "--replication-grace"),
        (&["--lease-duration=30"], "--lease-duration"),
        (&["--lease-duration=10ms"], "--lease-duration"),
        (&["--mass-expiry-threshold=1.5"], "--mass-expiry-threshold"),
        (&["--lease-duration=25h", "--max-connection-age=30days"], "--lease-duration"),
        (&["--lease-duration=500000000000years"], "--lease-duration"),
        (&["--mass-expiry-hold=25h"], "--mass-expiry-hold"),
        (&["--max-connection-age=119s"], "--max-connection-age"),
        (&["--max-connection-age=2years"], "--max-connection-age"),
        (&["--max-message-bytes=1000"], "--max-message-bytes"),
        (&["--max-clusters=0"], "--max-clusters"),
        (&["--max-exports-per-cluster=-1"], "--max-exports-per-cluster"),
        (&["--max-connections=0"], "--max-connections"),
        (&["--max-streams=0"], "--max-streams"),
        (&["--max-writes-per-second=0"], "--max-writes-per-second"),
        (&["--tls-cert-file=tls.crt"], "--tls-key-file"),
        (&["--tls-key-file=tls.key"], "--tls-cert-file"),
        (&["--tls-client-ca-file=ca.crt"], "--tls-cert-file"),
        (&["--unknown"], "--unknown"),
    ];
    for (flags, named) in cases {
        let (code, line) = told(&program().args(flags).output().unwrap());
        assert_eq!((code, line.lines().count()), (Some(2), 1), "{flags:?}: {line}");
        assert!(line.contains(named), "{flags:?}: {line}");
    }
    let (code, line) = told(&program().env("DYN_MCS_LEASE_DURATION", "soon").output().unwrap());
    assert_eq!((code, line.lines().count()), (Some(2), 1), "{line}");
    assert!(line.contains("DYN_MCS_LEASE_DURATION"), "{line}");
}

#[test]
fn files_of_tls_that_cannot_be_used_end_it_with_code_1_and_are_named_with_the_cause() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (own, other) = (Ca::new("ca").server(1), Ca::new("ca").server(2));
    std::fs::write(path("tls.crt"), own.cert).unwrap();
    std::fs::write(path("tls.key"), other.key).unwrap();
    let listen =
        ["--grpc-listen", "--rest-listen", "--admin-listen"].map(|flag| format!("{flag}=127.0.0.1:0"));
    let with = |key: &str| {
        let files = [("--tls-cert-file", path("tls.crt")), ("--tls-key-file", path(key))];
        let files = files.map(|(flag, file)| format!("{flag}={}", file.display()));
        told(&program().args(&listen).args(files).output().unwrap())
    };
    for (key, cause) in [("tls.key", "is not that of the certificate"), ("none.key", "No such file")] {
        let (code, text) = with(key);
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains(key) && text.contains(cause), "{text}");
    }
}

#[test]
fn flags_give_the_configuration_and_have_the_documented_defaults() {
    let read = |flags: &[&str]| {
        let args = std::iter::once("mcs-registry").chain(flags.iter().copied());
        mcs_runtime::args::try_parse::<Args>(&mcs_runtime::args::MCS, args).unwrap()
    };
    let config = |lease: u64, percent, hold: u64| Config {
        policy: Policy {
            timing: Timing::of_lease(Duration::from_secs(lease)),
            mass_expiry_threshold_percent: percent,
            mass_expiry_min_active: 3,
            mass_expiry_hold: Duration::from_secs(hold),
            max_clusters: 1_000,
            max_exports: 10_000,
            max_writes_per_second: 1_000,
        },
        replication: Replication::default(),
        max_connection_age: Duration::from_secs(30 * 60),
        max_message_bytes: 4 * 1024 * 1024,
        max_connections: 5_000,
        max_streams: 10_000,
        max_request_bytes: 256 * 1024 * 1024,
    };
    assert_eq!(read(&[]).config(), config(30, 50, 30));
    assert_eq!(read(&["--lease-duration=3s", "--mass-expiry-threshold=0.29"]).config(), config(3, 29, 3));
    assert_eq!(read(&["--mass-expiry-hold=2m"]).config(), config(30, 50, 120));
    let shared =
        |refresh: &str| read(&["--store=dynamodb", "--region=eu-west-1", refresh, "--replication-grace=1h"]);
    let replication = |millis| Replication {
        region: Some("eu-west-1".parse().unwrap()),
        refresh_interval: Duration::from_millis(millis),
        grace: Duration::from_secs(60 * 60),
    };
    assert_eq!(shared("--refresh-interval=100ms").config().replication, replication(100));
    assert_eq!(shared("--refresh-interval=5s").config().replication, replication(5_000));
    let ports = read(&[]);
    let listens =
        [ports.grpc_listen, ports.rest_listen, ports.admin_listen].map(|listen| listen.address().port());
    assert_eq!(listens, [9090, 8080, 9091]);
}

#[test]
fn a_port_that_is_taken_ends_it_with_code_1() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let flag = format!("--grpc-listen={}", taken.local_addr().unwrap());
    let (code, text) = told(&program().arg(flag).output().unwrap());
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("cannot listen on"), "{text}");
}

#[tokio::test]
async fn sigterm_ends_it_within_seconds_while_a_watch_is_open() {
    let mut running = Running::start();
    let mut watch =
        client(running.grpc).watch(&prod(), &id("importer"), None, Since::default()).await.unwrap();
    while !matches!(watch.next().await.unwrap(), Frame::End { .. }) {}

    let kill =
        Command::new("sh").args(["-c", &format!("kill -TERM {}", running.child.id())]).status().unwrap();
    assert!(kill.success());
    let ended = async { while watch.next().await.is_ok() {} };
    tokio::time::timeout(LIMIT, ended).await.unwrap();
    let waited = tokio::task::spawn_blocking(move || running.child.wait().unwrap().code());
    let code = tokio::time::timeout(LIMIT, waited).await.unwrap().unwrap();
    assert_eq!(code, Some(0));
}

#[tokio::test]
async fn a_lease_that_runs_out_is_logged_with_its_cluster() {
    let running = Running::start_with(&["--lease-duration=1s"]);
    let east = member("east", "u-1");
    let register = registration(&east, Version::new(1, 1), Sum::EMPTY);
    client(running.grpc).register(&east, &register).await.unwrap();
    let logged = loop {
        let line = running.lines.recv_timeout(LIMIT).unwrap();
        if line["message"].to_string().contains("lease ran out") {
            break ["clusterset", "cluster", "exports"].map(|field| line[field].clone());
        }
    };
    let expected: [serde_json::Value; 3] = ["prod".into(), "east".into(), 0.into()];
    assert_eq!(logged, expected);
}

#[test]
fn a_table_without_a_region_ends_it_with_code_1_and_says_what_to_set() {
    let mut program = program();
    for name in ["AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"] {
        program.env_remove(name);
    }
    program.env("AWS_EC2_METADATA_DISABLED", "true");
    for file in ["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"] {
        program.env(file, "/nonexistent");
    }
    let (code, text) = told(&program.arg("--store=dynamodb").output().unwrap());
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("--region") && text.contains("AWS_REGION"), "{text}");
}

/// Spec: a table that is not there, or may not be used, does not end it; it is used once it is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_registry_is_not_ready_before_its_table_is_there_and_keeps_records_in_it_then() {
    let double = Double::empty(Default::default()).await;
    let flags = [
        "--store=dynamodb".to_owned(),
        format!("--dynamodb-table={TABLE}"),
        format!("--dynamodb-endpoint={}", double.endpoint()),
    ];
    let flags = flags.each_ref().map(String::as_str);
    let running = Running::start_in(&double.environment(), &flags);
    let logged = loop {
        let line = running.lines.recv_timeout(LIMIT).unwrap();
        if line["message"].to_string().contains("store does not take") {
            break line["error"].to_string();
        }
    };
    assert!(logged.contains("no such table") && logged.contains("--dynamodb-table"), "{logged}");
    let ready = async || http(running.admin, "GET", "/readyz").await;
    let (status, missing) = ready().await;
    assert!(status.starts_with("503") && missing.contains("the store"), "{status} {missing}");

    double.create_table(TABLE);
    let waited = async { while !ready().await.0.starts_with("200") {} };
    tokio::time::timeout(LIMIT, waited).await.unwrap();
    let east = member("east", "u-1");
    let register = registration(&east, Version::new(1, 1), Sum::EMPTY);
    client(running.grpc).register(&east, &register).await.unwrap();
    let stored = async {
        let is_of_east = |item: &serde_json::Value| item["sk"]["S"].to_string().contains("east#");
        while !double.items(TABLE).await.iter().any(is_of_east) {}
    };
    tokio::time::timeout(LIMIT, stored).await.unwrap();
}

/// The program, killed when it is dropped.
struct Running {
    child: Child,
    grpc: SocketAddr,
    admin: SocketAddr,
    /// What it logs after its start.
    lines: mpsc::Receiver<serde_json::Value>,
}

impl Running {
    fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(flags: &[&str]) -> Self {
        Self::start_in(&[], flags)
    }

    fn start_in(environment: &[(&str, String)], flags: &[&str]) -> Self {
        let mut child = program()
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .args(flags)
            .args(["--grpc-listen=127.0.0.1:0", "--rest-listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"])
            .arg("--log-format=json")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = mpsc::channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        // Read whether or not a test asks, so that what is logged does not fill the pipe.
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let _ = sender.send(serde_json::from_str(&line).unwrap());
            }
        });
        let address = |line: &serde_json::Value, port: &str| line[port].as_str()?.parse().ok();
        let found = |line: serde_json::Value| Some((address(&line, "grpc")?, address(&line, "admin")?));
        let (grpc, admin) = lines.iter().find_map(found).unwrap();
        Self { child, grpc, admin, lines }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
