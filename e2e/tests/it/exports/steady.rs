//! Where nothing changed, nothing is written.

use super::*;
use mcs_core::names::{EXPORT_WANTED, LABEL_EXPORT};
use std::time::Duration;

const WRITES: &str = "mcs_controller_object_writes_total";

/// Changes the endpoint of the export `probe` and waits for it in both clusters: all that came before is worked on then.
async fn probe(scene: &Scene, address: &str) -> Result<()> {
    let endpoints = json!({ "endpoints": [{ "addresses": [address] }] });
    merge(&scene.east::<EndpointSlice>(), "probe-a", endpoints).await?;
    for client in [&scene.east, &scene.west] {
        imports(client, &scene.ns, "probe", &[address]).await?;
    }
    for replica in ["east", "west"] {
        wait_for("an idle controller", async || {
            expect(metric(&scene.stack, replica, "mcs_controller_queue_length").await?, &0.0)
        })
        .await?;
    }
    Ok(())
}

/// All objects of both clusters but those of the probe, and what the registry holds of the exports.
async fn state(scene: &Scene) -> Result<BTreeMap<String, Value>> {
    let derived = scene.derived("probe")?;
    let mut state = BTreeMap::new();
    for (cluster, client) in [("east", &scene.east), ("west", &scene.west)] {
        for (name, object) in ours(client, &scene.ns).await? {
            if !name.contains("probe") && !name.contains(&derived) {
                state.insert(format!("{cluster} {name}"), object);
            }
        }
    }
    let exports = scene.stack.rest("exports?includeEndpoints=true").await?;
    for export in exports["exports"].as_array().context("exports")? {
        if !export.to_string().contains("probe") {
            state.insert(format!("export {}", state.len()), export.clone());
        }
    }
    Ok(state)
}

/// O03: a restart of the controllers, another order in a source slice, and a foreign annotation cost no write.
#[tokio::test]
async fn nothing_is_written_when_nothing_changed() -> Result<()> {
    // With a short lease, a restart under load would be a real change: the cluster's endpoints leave the imports.
    let mut scene = Scene::with("steady", |options| options.lease = Duration::from_secs(30)).await?;
    let ports = json!([{ "name": "http", "port": 80, "protocol": "TCP" }, { "name": "adm", "port": 90, "protocol": "TCP" }]);
    let metadata = json!({ "name": "cart", "labels": { LABEL_EXPORT: EXPORT_WANTED } });
    let spec = json!({ "ports": ports, "sessionAffinity": "ClientIP", "trafficDistribution": "PreferClose" });
    let endpoint = |address: &str| json!({ "addresses": [address], "zone": "us-east-1a", "nodeName": "n1" });
    let endpoints = json!([endpoint("10.0.0.1"), endpoint("10.0.0.2"), endpoint("10.0.0.3")]);
    create_json::<EndpointSlice>(&scene.east(), slice_json("cart-a", "cart", ports, endpoints)).await?;
    create_json::<Service>(&scene.east(), json!({ "metadata": metadata, "spec": spec })).await?;
    let headless = json!({ "metadata": { "name": "db" }, "spec": { "clusterIP": "None" } });
    create_json::<Service>(&scene.east(), headless).await?;
    let endpoints = json!([{ "addresses": ["10.0.1.1"], "hostname": "db-0" }]);
    create_json::<EndpointSlice>(&scene.east(), slice_json("db-a", "db", Value::Null, endpoints)).await?;
    create(&scene.east(), &service_export("db")).await?;
    scene.export("probe", ("http", 80), &["10.0.9.1"]).await?;
    for client in [&scene.east, &scene.west] {
        imports(client, &scene.ns, "cart", &["10.0.0.1", "10.0.0.2", "10.0.0.3"]).await?;
        imports(client, &scene.ns, "db", &["10.0.1.1"]).await?;
    }
    for name in ["cart", "db", "probe"] {
        wait_for_conditions(&scene.east(), name, &ACCEPTED).await?;
    }
    probe(&scene, "10.0.9.2").await?;
    let before = state(&scene).await?;
    assert!(before.len() > 10, "{:?}", before.keys());

    let pair = pair().await?;
    for (cluster, replica) in [(&pair.west, "west"), (&pair.east, "east")] {
        scene.stack.end_controller(replica, mcs_e2e::programs::Signal::Term).await?;
        scene.stack.start_controller(cluster, replica).await?;
        scene.stack.ready().await?;
        wait_for("a snapshot of the clusterset", async || {
            expect(
                scene.stack.controller(replica)?.program.log().matches("snapshot of the clusterset").count(),
                &2,
            )
        })
        .await?;
        wait_for("an idle controller", async || {
            expect(metric(&scene.stack, replica, "mcs_controller_queue_length").await?, &0.0)
        })
        .await?;
        assert_eq!(metric(&scene.stack, replica, WRITES).await?, 0.0, "writes of {replica} after a restart");
    }
    probe(&scene, "10.0.9.3").await?;
    compare(&before, &state(&scene).await?);

    let slice = scene.east::<EndpointSlice>().get("cart-a").await?;
    let reversed = json!({
        "ports": slice.ports.iter().flatten().rev().collect::<Vec<_>>(),
        "endpoints": slice.endpoints.iter().rev().collect::<Vec<_>>(),
    });
    merge(&scene.east::<EndpointSlice>(), "cart-a", reversed).await?;
    let changed = scene.east::<EndpointSlice>().get("cart-a").await?;
    assert_ne!(changed.resource_version(), slice.resource_version());
    probe(&scene, "10.0.9.4").await?;
    compare(&before, &state(&scene).await?);

    let derived = scene.derived("cart")?;
    let name = slices(&scene.west, &scene.ns, "cart").await?.first().context("a slice")?.name_any();
    let foreign = json!({ "metadata": { "annotations": { "other.example/x": "1" }, "labels": { "other.example/l": "1" } } });
    merge(&scene.west::<EndpointSlice>(), &name, foreign.clone()).await?;
    merge(&scene.west::<Service>(), &derived, foreign.clone()).await?;
    merge(&scene.west::<ServiceImport>(), "cart", foreign.clone()).await?;
    merge(&scene.east::<ServiceExport>(), "cart", foreign).await?;
    let before = state(&scene).await?;
    probe(&scene, "10.0.9.5").await?;
    compare(&before, &state(&scene).await?);

    // They outlive a change that is ours.
    merge(&scene.east::<EndpointSlice>(), "cart-a", json!({ "endpoints": [{ "addresses": ["10.0.0.9"] }] }))
        .await?;
    scene.imports("cart", &["10.0.0.9"]).await?;
    let slice = scene.west::<EndpointSlice>().get(&name).await?;
    assert_eq!(
        (slice.annotations().get("other.example/x"), slice.labels().get("other.example/l")),
        (Some(&"1".to_owned()), Some(&"1".to_owned()))
    );
    Ok(())
}

fn compare(before: &BTreeMap<String, Value>, after: &BTreeMap<String, Value>) {
    let names = |state: &BTreeMap<String, Value>| state.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(before), names(after));
    for (name, object) in before {
        assert_eq!(object, &after[name], "{name}");
    }
}
