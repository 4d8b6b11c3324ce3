//! What Prometheus is told: all of it, so that no metric goes or changes its name unnoticed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mcs_core::model::{ExportSpec, ServiceType, Since};
use mcs_core::registry::Op;
use mcs_core::version::{Leaf, Sum};

use mcs_runtime::tls::testing::Ca;

use crate::started::{
    LEASE, LIMIT, Started, endpoints, endpoints_and_loopback, http, id, key, member, prod, put, spec,
};
use crate::tls::Secret;

/// Every series of a registry that was told everything of [`busy`]. A value that depends on timing is `*`, and the
/// buckets of a histogram are left out.
const ALL: &str = include_str!("metrics/all.txt");

#[tokio::test]
async fn every_metric_is_told_with_its_type_labels_and_value() {
    let (registry, _watch) = busy().await;
    let same = async {
        while told(&registry).await != ALL {
            tokio::task::yield_now().await;
        }
    };
    if tokio::time::timeout(LIMIT, same).await.is_err() {
        assert_eq!(told(&registry).await, ALL);
    }
}

/// The table of the documentation is what a registry tells.
#[tokio::test]
async fn every_metric_is_documented_with_its_type_and_labels() {
    let (registry, _watch) = busy().await;
    let secret = Secret::new(&Ca::new("ca").server(1), None);
    let with_tls = Started::with_tls(secret.files(false)).await;
    let text =
        http(registry.admin, "GET", "/metrics").await.1 + &http(with_tls.admin, "GET", "/metrics").await.1;
    let documented: BTreeSet<(String, String, String)> = include_str!("../../../docs/registry.md")
        .lines()
        .filter_map(|line| line.strip_prefix("| `mcs_registry_"))
        .map(|row| {
            let mut cells = row.split(" | ").map(|cell| cell.replace('`', ""));
            let mut cell = || cells.next().unwrap();
            (cell(), cell(), cell())
        })
        .collect();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE mcs_registry_"));
    let told: BTreeSet<_> = types
        .map(|line| {
            let (name, kind) = line.split_once(' ').unwrap();
            (name.to_owned(), kind.to_owned(), labels(&text, name))
        })
        .collect();
    assert_eq!(documented, told);
}

/// The names of the labels of a metric.
fn labels(text: &str, name: &str) -> String {
    let of = |line: &str| {
        let (series, _) = line.rsplit_once(' ')?;
        let (series, labels) = series.split_once('{').unwrap_or((series, ""));
        let histogram = ["_bucket", "_sum", "_count"].into_iter().find_map(|end| series.strip_suffix(end));
        let series = series.strip_prefix("mcs_registry_")?;
        let histogram = histogram.and_then(|name| name.strip_prefix("mcs_registry_"));
        (series == name || histogram == Some(name)).then(|| {
            let names = labels.split(',').filter_map(|label| Some(label.split_once('=')?.0));
            names.filter(|name| *name != "le").collect::<Vec<_>>().join(", ")
        })
    };
    let found: BTreeSet<String> = text.lines().filter(|line| !line.starts_with('#')).filter_map(of).collect();
    found.into_iter().collect::<Vec<_>>().join(" or ")
}

/// The exposition of the registry's own metrics, without help, buckets and what depends on timing.
async fn told(registry: &Started) -> String {
    let (status, text) = http(registry.admin, "GET", "/metrics").await;
    assert_eq!(status, "200 OK");
    let mut helped = BTreeMap::new();
    let mut told = String::new();
    for line in text.lines().filter(|line| line.contains("mcs_registry_")) {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap();
            helped.insert(name.to_owned(), help.to_owned());
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            told += &format!("{kind}\n");
        } else if !line.contains("_bucket{") && !line.contains("_duration_seconds_sum") {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let varies =
                ["build_info", "refresh_lag", "store_call_duration", "watch_messages", "watch_bytes"];
            let value = if varies.iter().any(|name| series.contains(name)) { "*" } else { value };
            let series = series.replace(mcs_runtime::version(), "VERSION");
            told += &format!("  {} {value}\n", series.trim_start_matches("mcs_registry_"));
        }
    }
    let unhelped: Vec<_> = helped.iter().filter(|(_, help)| help.is_empty()).collect();
    assert_eq!(unhelped, [], "metrics without help");
    told
}

/// A registry that has seen everything that is counted, and an open watch of it that was told everything.
async fn busy() -> (Started, mcs_proto::client::WatchStream) {
    let registry = Started::with(|policy| {
        policy.max_clusters = 3;
        policy.max_exports = 3;
    })
    .await;
    let mut east = registry.register("east").await;
    let mut west = registry.register("west").await;
    registry.register("north").await;

    east.write(&[put("cart", 2), put("till", 1)]).await;
    let headless = ExportSpec { service_type: ServiceType::Headless, ..spec() };
    let mut named = spec();
    named.ports[0].name = "Web".to_owned();
    let loopback = endpoints_and_loopback(1, 1);
    west.write(&[
        definition("cart", headless),
        definition("named", named),
        Op::Put {
            key: key("half"),
            leaf: Leaf::default(),
            spec: Arc::new(spec()),
            endpoints: Arc::new(loopback),
            changed_at: None,
        },
        put("desk", 1),
        put("more", 1),
    ])
    .await;
    let version = west.next();
    let names = [(key("cart"), Leaf::default()), (key("desk"), Leaf::default())];
    let (wants, sync) = registry.client.begin_sync(&west.member, version, &names).await.unwrap();
    assert_eq!(wants, [key("desk")]);
    sync.finish(&[put("desk", 2)]).await.unwrap();

    registry.client.remove(&prod(), &id("north"), None, true).await.unwrap();
    registry.register("north").await;
    let beyond = member("south", "u-1");
    let register = crate::started::registration(&beyond, mcs_core::version::Version::new(1, 1), Sum::EMPTY);
    registry.client.register(&beyond, &register).await.unwrap_err();

    let (watch, frames) = registry.watch().await;
    let Some(mcs_core::model::Frame::Begin { epoch, .. }) = frames.first() else { panic!("{frames:?}") };
    let Some(mcs_core::model::Frame::End { revision, .. }) = frames.last() else { panic!("{frames:?}") };
    for (epoch, revision) in
        [(*epoch, *revision), (*epoch, *revision + 1_000), (mcs_core::ids::Epoch(epoch.0 ^ 1), *revision)]
    {
        let mut other = registry
            .client
            .watch(&prod(), &id("importer"), Some((epoch, revision)), Since::default())
            .await
            .unwrap();
        other.next().await.unwrap();
    }

    registry.client.list_exports(&prod(), false).await.unwrap();
    registry.client.list_imports(&prod(), false).await.unwrap();
    for list in ["clusters", "exports", "imports"] {
        http(registry.rest, "GET", &format!("/v1/clustersets/prod/{list}")).await;
    }
    http(registry.rest, "GET", "/v1/clustersets/Prod/clusters").await;

    // Two of three are silent, and the third has something else than what is held.
    for _ in 0..4 {
        registry.pass(LEASE / 4).await;
        registry.client.renew(&east.member, east.version(), Sum::EMPTY).await.unwrap();
    }
    registry.clock.advance(LEASE);
    (registry, watch)
}

fn definition(name: &str, spec: ExportSpec) -> Op {
    Op::Put {
        key: key(name),
        leaf: Leaf::default(),
        spec: Arc::new(spec),
        endpoints: Arc::new(endpoints(1)),
        changed_at: None,
    }
}
