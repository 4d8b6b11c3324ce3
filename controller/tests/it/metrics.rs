//! What Prometheus is told: all of it, so that no metric goes or changes its name unnoticed.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use kube::Client;
use kube::client::Body;
use mcs_controller::leader::Settings;
use mcs_controller::wiring::{Options, run};
use mcs_core::election::Policy;
use mcs_runtime::clock::SystemClock;
use mcs_runtime::shutdown::Shutdown;
use mcs_runtime::tls::client::ClientFiles;
use mcs_runtime::tls::testing::Ca;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Set to write the list anew instead of comparing it.
const UPDATE: &str = "UPDATE_METRICS";
const LIST: &str = "tests/it/metrics/all.txt";

/// The API server answers nothing, so what is told is there from the start, by a replica that does not lead; only the age
/// of the heartbeat is not.
#[tokio::test]
async fn every_metric_is_told_from_the_start_with_its_help_type_and_labels() {
    let told = list(&metrics().await);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(LIST);
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&file, &told).unwrap();
    }
    let checked_in = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(told, checked_in, "{} is not what is told; run with {UPDATE}=1", file.display());
}

/// The table of the documentation is what a controller tells.
#[tokio::test]
async fn every_metric_is_documented_with_its_type_and_labels() {
    let documented: BTreeSet<_> = include_str!("../../../docs/controller.md")
        .lines()
        .filter_map(|line| line.strip_prefix("| `mcs_controller_"))
        .map(|row| {
            let mut cells = row.split(" | ").map(|cell| cell.replace('`', "").trim().to_owned());
            [cells.next().unwrap(), cells.next().unwrap(), cells.next().unwrap()]
        })
        .collect();
    let mut told = BTreeSet::from([["heartbeat_age_seconds", "gauge", ""].map(str::to_owned)]);
    let list = list(&metrics().await);
    let mut metric = ["", ""];
    for line in list.lines() {
        if let Some(named) = line.strip_prefix("mcs_controller_") {
            let (name, kind) = named.split_once(' ').unwrap();
            metric = [name, kind];
        } else if let Some(series) = line.strip_prefix("  ") {
            let labels = series.split_once('{').map_or("", |(_, labels)| labels).split(',');
            let names: Vec<_> = labels.filter_map(|label| Some(label.split_once('=')?.0)).collect();
            told.insert([metric[0].to_owned(), metric[1].to_owned(), names.join(", ")]);
        }
    }
    assert_eq!(documented, told);
}

/// What a controller tells whose API server answers nothing.
async fn metrics() -> String {
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.crt");
    std::fs::write(&ca, Ca::new("ca").pem()).unwrap();
    let options = Options {
        registries: vec!["https://registry.example".parse().unwrap()],
        tls: ClientFiles { ca: Some(ca), own: None },
        clusterset: Some("prod".parse().unwrap()),
        cluster: Some("east".parse().unwrap()),
        region: None,
        watch_namespaces: Vec::new(),
        create_namespaces: false,
        adopt_unmanaged: false,
        leader: Settings {
            namespace: "mcs-system".to_owned(),
            name: "mcs-controller".to_owned(),
            identity: "controller-1".to_owned(),
            policy: Policy::default(),
        },
    };
    // Whoever asks this server waits for ever.
    let (service, _server) = tower_test::mock::pair::<Request<Body>, Response<Full<Bytes>>>();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = Shutdown::default();
    let clock = Arc::new(SystemClock);
    let running = tokio::spawn(run(options, Client::new(service, "x"), clock, listener, shutdown.watch()));

    let mut connection = TcpStream::connect(address).await.unwrap();
    connection.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    shutdown.drain();
    running.await.unwrap().unwrap();
    answer
}

/// Each metric of this program: help, name and type, and its series without values and buckets.
fn list(answer: &str) -> String {
    let mut list = String::new();
    let mut series = BTreeSet::new();
    for line in answer.lines().filter(|line| line.contains("mcs_controller_")) {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (_, help) = help.split_once(' ').unwrap();
            assert_ne!(help, "", "{line}");
            writeln!(list, "# {help}").unwrap();
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            writeln!(list, "{kind}").unwrap();
        } else if !line.contains("_bucket{") && !line.contains("_sum") {
            let (name, _) = line.rsplit_once(' ').unwrap();
            let name = name.replace(mcs_runtime::version(), "VERSION");
            assert!(series.insert(name.clone()), "{name} twice");
            writeln!(list, "  {}", name.trim_start_matches("mcs_controller_")).unwrap();
        }
    }
    list
}
