//! What `docs/discovery.md` lists as lines of the log and as metrics is what the service logs and tells, and of each
//! warning `docs/troubleshooting.md` says what to do.

use crate::lists::registrations;
use crate::service::{Service, exchange, head};
use crate::table::world::Replica;
use mcs_runtime::dynamodb::double::Double;
use mcs_runtime::logs::testing;
use mcs_runtime::tls::testing::{Ca, Secret, shake};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpStream;

const GUIDE: &str = include_str!("../../../docs/discovery.md");
const HELP: &str = include_str!("../../../docs/troubleshooting.md");

#[test]
fn every_line_of_the_log_is_documented_with_its_level() {
    let sources = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    assert_eq!(testing::of_page(GUIDE, "Log lines"), testing::of_folder(sources));
}

#[test]
fn of_every_warning_it_is_said_what_to_do() {
    let (_, section) = HELP.split_once("\n## The discovery service's log\n").unwrap();
    let section = section.split_once("\n## ").unwrap().0;
    let lines = testing::of_page(GUIDE, "Log lines").into_iter().filter(|(_, level)| level != "info");
    let missing: Vec<String> =
        lines.map(|(line, _)| line).filter(|line| !section.contains(&format!("`{line}`"))).collect();
    assert_eq!(missing, Vec::<String>::new());
}

/// Name, type and labels. One service has a table, and one has certificates: together they tell all there is.
#[tokio::test]
async fn every_metric_is_documented_with_its_type_and_labels() {
    let replica = Replica::start(&Double::start().await, &Arc::default()).await;
    let (ca, clients) = (Ca::new("ca"), Ca::new("clients"));
    let secret = Secret::new(&ca.server(1), Some(&clients.pem()));
    let guarded = Service::start_with(registrations(), |config| config.tls = Some(secret.files(true))).await;
    let stream = TcpStream::connect(guarded.address).await.unwrap();
    let mut stream = shake(&ca.client(Some(&clients.server(9)), &[]), stream).await.unwrap();
    let over_tls = exchange(&mut stream, &head("GET", "/metrics", &[], 0), b"").await.body;
    let told = replica.get("/metrics").await.1 + &over_tls;

    let rows = GUIDE.lines().filter_map(|line| line.strip_prefix("| `global_discovery_"));
    let documented = rows.map(|row| {
        let mut cells = row.split(" | ").map(|cell| cell.replace('`', "").trim().to_owned());
        [cells.next().unwrap(), cells.next().unwrap(), cells.next().unwrap()]
    });
    assert_eq!(documented.collect::<BTreeSet<_>>(), metrics(&told));
}

/// Each metric of a text of Prometheus, without what all begin with: name, type and labels.
fn metrics(told: &str) -> BTreeSet<[String; 3]> {
    let mut kind = ("", "");
    let mut metrics: BTreeMap<&str, (&str, BTreeSet<&str>)> = BTreeMap::new();
    for line in told.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            kind = declared.split_once(' ').unwrap();
        } else if !line.starts_with('#') && line.starts_with("global_discovery_") {
            let labels = line.split_once('{').map_or("", |(_, labels)| labels);
            let names = labels.split(',').filter_map(|label| Some(label.split_once('=')?.0));
            let (_, known) = metrics.entry(kind.0).or_insert((kind.1, BTreeSet::new()));
            known.extend(names.filter(|name| *name != "le"));
        }
    }
    let name = |name: &str| name.strip_prefix("global_discovery_").unwrap().to_owned();
    let labels = |labels: BTreeSet<&str>| labels.into_iter().collect::<Vec<_>>().join(", ");
    metrics.into_iter().map(|(key, (kind, names))| [name(key), kind.to_owned(), labels(names)]).collect()
}
