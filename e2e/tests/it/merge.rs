//! Several clusters that export one Service: what they share, what they differ in, and what they do not.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::api::{Patch, PatchParams};
use mcs_controller::api::{ServiceExport, ServiceImport};
use mcs_core::model::{ExportSpec, SessionAffinity};
use mcs_e2e::{
    peer::Peer,
    shared::pair,
    stack::{Stack, StackOptions},
    wait_for,
};
use serde_json::{Value, json};

use crate::support::{Place, READY, peer_endpoints, peer_spec};

/// Long before any ServiceExport of a test was made.
const LONG_AGO: i64 = 1_000_000_000;
/// Long after.
const LATE: i64 = 4_000_000_000;

/// O29: alpha is east, beta is west, gamma a peer, and delta one that exports nothing.
#[tokio::test]
async fn a_difference_is_a_conflict_of_every_exporter_and_the_oldest_decides() -> Result<()> {
    let pair = pair().await?;
    let namespace = pair.namespace("conflict").await?;
    let stack =
        Stack::start(StackOptions::for_namespace(namespace.name()), &[&pair.east, &pair.west]).await?;
    let places = pair.clients().map(|client| Place::new(client, namespace.name(), "cart"));
    let [east, west] = &places;
    let ports = [("http", 80)];
    let key = east.key()?;

    east.export(&ports, &["10.1.0.1"]).await?;
    east.says(&READY).await?;
    let gamma = Peer::join(&stack, "gamma").await?;
    let delta = Peer::join(&stack, "delta").await?;
    gamma.export(&key, peer_spec(&ports, LATE), peer_endpoints(&ports, &["10.3.0.1"])?).await?;
    west.create_service(&ports, &["10.2.0.1"]).await?;
    let sticky = Patch::Merge(json!({ "spec": { "sessionAffinity": "ClientIP" } }));
    west.api::<Service>().patch("cart", &PatchParams::default(), &sticky).await?;
    west.create_export().await?;

    let wanted: &[(&str, &[&str])] =
        &[("east", &["10.1.0.1"]), ("gamma", &["10.3.0.1"]), ("west", &["10.2.0.1"])];
    let conflict = [
        ("Valid", "True", "Valid"),
        ("Ready", "True", "Ready"),
        ("Conflict", "True", "SessionAffinityConflict,SessionAffinityConfigConflict"),
    ];
    for place in &places {
        place.says(&conflict).await?;
        let import = place.imports(wanted).await?;
        let spec = import.import.spec.context("a spec")?;
        assert_eq!(spec.session_affinity.as_deref().unwrap_or("None"), "None");
        let message = place.message("Conflict").await?;
        assert!(message.contains("sessionAffinity: 1 of 3 clusters differs from cluster east"), "{message}");
    }
    assert_eq!(
        participants(&stack).await?,
        [("cart".to_owned(), vec!["east", "gamma", "west"].into_iter().map(str::to_owned).collect(), 2)]
    );

    west.delete::<ServiceExport>("cart").await?;
    east.says(&READY).await?;
    drop((gamma, delta));
    Ok(())
}

/// O28, O30: services of one name in two namespaces, and of two names in one.
#[tokio::test]
async fn services_of_other_names_or_namespaces_are_kept_apart_and_never_conflict() -> Result<()> {
    let pair = pair().await?;
    let (first, second) = (pair.namespace("apart").await?, pair.namespace("apart").await?);
    let mut options = StackOptions::for_namespace(first.name());
    options.watch_namespaces.push(second.name().to_owned());
    let stack = Stack::start(options, &[&pair.east, &pair.west]).await?;
    let [east, west] = pair.clients();
    let place =
        |client: &kube::Client, namespace: &str, name: &str| Place::new(client.clone(), namespace, name);
    let exports = [
        (place(&east, first.name(), "cart"), [("http", 80)], "10.0.0.1"),
        (place(&east, first.name(), "pay"), [("https", 443)], "10.0.0.2"),
        (place(&west, first.name(), "cart"), [("http", 80)], "10.0.0.3"),
        (place(&west, second.name(), "cart"), [("other", 9999)], "10.0.0.4"),
    ];
    for (export, ports, address) in &exports {
        export.export(ports, &[address]).await?;
    }
    for (export, ..) in &exports {
        export.says(&READY).await?;
    }
    let other = |client: &kube::Client| place(client, second.name(), "cart");
    for client in [&east, &west] {
        place(client, first.name(), "cart")
            .imports(&[("east", &["10.0.0.1"]), ("west", &["10.0.0.3"])])
            .await?;
        place(client, first.name(), "pay").imports(&[("east", &["10.0.0.2"])]).await?;
        let import = other(client).imports(&[("west", &["10.0.0.4"])]).await?;
        assert_eq!(import.ports(), [("other".to_owned(), 9999)]);
    }
    place(&west, first.name(), "cart").delete::<EndpointSlice>("cart-x").await?;
    for client in [&east, &west] {
        place(client, first.name(), "cart").imports(&[("east", &["10.0.0.1"]), ("west", &[])]).await?;
        other(client).imports(&[("west", &["10.0.0.4"])]).await?;
    }
    drop(stack);
    Ok(())
}

#[tokio::test]
async fn ports_are_the_union_of_all_exporters_and_each_serves_those_it_defines_alike() -> Result<()> {
    let pair = pair().await?;
    let namespace = pair.namespace("union").await?;
    let stack =
        Stack::start(StackOptions::for_namespace(namespace.name()), &[&pair.east, &pair.west]).await?;
    let [east, west] = pair.clients().map(|client| Place::new(client, namespace.name(), "cart"));
    let key = east.key()?;

    // The target port may differ from cluster to cluster.
    east.create_service(&[("http", 80), ("admin", 9000)], &[]).await?;
    east.delete::<EndpointSlice>("cart-x").await?;
    east.create_slice("cart-x", &[("http", 8080), ("admin", 9001)], &["10.1.0.1"]).await?;
    east.create_export().await?;
    west.imports(&[("east", &["10.1.0.1"])]).await?;

    // The peer is younger: its metrics port joins, its other admin port does not.
    let gamma = Peer::join(&stack, "gamma").await?;
    let ports = [("http", 80), ("admin", 9100), ("metrics", 9090)];
    let endpoints = || peer_endpoints(&ports, &["10.3.0.1"]);
    gamma.export(&key, peer_spec(&ports, LATE), endpoints()?).await?;
    let import = west.imports(&[("east", &["10.1.0.1"]), ("gamma", &["10.3.0.1"])]).await?;
    let union = named(&[("http", 80), ("admin", 9000), ("metrics", 9090)]);
    assert_eq!((import.ports(), import.service_ports()), (union.clone(), union));
    let of = |east: &[(&str, i32)], gamma: &[(&str, i32)]| {
        BTreeMap::from([
            ("east".to_owned(), named(east).into_iter().collect()),
            ("gamma".to_owned(), named(gamma).into_iter().collect()),
        ])
    };
    let served = of(&[("http", 8080), ("admin", 9001)], &[("http", 80), ("metrics", 9090)]);
    assert_eq!(import.slice_ports(), served);
    let conflict =
        [("Valid", "True", "Valid"), ("Ready", "True", "Ready"), ("Conflict", "True", "PortConflict")];
    east.says(&conflict).await?;

    // Made the oldest, it decides, also on labels and affinity; its ServiceImport and derived Service stay the same.
    let before = import;
    let older = ExportSpec {
        session_affinity: SessionAffinity::ClientIp,
        session_affinity_timeout: Some(60),
        labels: BTreeMap::from([("team".to_owned(), "gamma".to_owned())]),
        ..peer_spec(&ports, LONG_AGO)
    };
    gamma.export(&key, older, endpoints()?).await?;
    let after = wait_for("the oldest export's definition", async || {
        let import = west.import().await?;
        ensure!(
            import.ports() == named(&ports.map(|(name, port)| (name, i32::from(port)))),
            "{:?}",
            import.ports()
        );
        ensure!(import.service_ports() == import.ports(), "{:?}", import.service_ports());
        let served = of(&[("http", 8080)], &[("http", 80), ("admin", 9100), ("metrics", 9090)]);
        ensure!(import.slice_ports() == served, "{:?}", import.slice_ports());
        Ok(import)
    })
    .await?;
    let timeout = |import: &ServiceImport| {
        let config = import.spec.clone().and_then(|spec| spec.session_affinity_config);
        config.and_then(|config| config.client_ip?.timeout_seconds)
    };
    assert_eq!(timeout(&after.import), Some(60));
    let label = after.import.metadata.labels.as_ref().and_then(|labels| labels.get("team"));
    assert_eq!(label.map(String::as_str), Some("gamma"));
    let uids = |import: &crate::support::Import| {
        (
            import.import.metadata.uid.clone(),
            import.service.metadata.uid.clone(),
            import.import.spec.clone().map(|spec| spec.ips),
        )
    };
    assert_eq!(uids(&after), uids(&before));

    // Alone again, the younger one decides, and none of the other is left.
    gamma.withdraw(&key).await?;
    wait_for("the definition of east alone", async || {
        let import = west.import().await?;
        ensure!(import.clusters() == ["east"], "{:?}", import.clusters());
        ensure!(import.ports() == named(&[("http", 80), ("admin", 9000)]), "{:?}", import.ports());
        let ports = BTreeMap::from([(
            "east".to_owned(),
            named(&[("http", 8080), ("admin", 9001)]).into_iter().collect(),
        )]);
        ensure!(import.slice_ports() == ports, "{:?}", import.slice_ports());
        ensure!(timeout(&import.import).is_none(), "{:?}", import.import.spec);
        let labels = import.import.metadata.labels.unwrap_or_default();
        ensure!(!labels.contains_key("team"), "{labels:?}");
        Ok(())
    })
    .await?;
    east.says(&READY).await
}

fn named(ports: &[(&str, i32)]) -> Vec<(String, i32)> {
    ports.iter().map(|(name, port)| ((*name).to_owned(), *port)).collect()
}

/// Of each merged Service: its name, who takes part, and on how many fields they differ.
async fn participants(stack: &Stack) -> Result<Vec<(String, Vec<String>, usize)>> {
    let answer = stack.rest("imports").await?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut found = Vec::new();
    for import in answer["imports"].as_array().context("a list of imports")? {
        let participants = import["participants"].as_array().context("participants")?;
        let participants = participants.iter().map(|it| text(&it["cluster"])).collect();
        found.push((
            text(&import["key"]["name"]),
            participants,
            import["conflicts"].as_array().map_or(0, Vec::len),
        ));
    }
    Ok(found)
}
