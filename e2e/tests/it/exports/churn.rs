//! Endpoints that come, change and go.

use k8s_openapi::api::core::v1::Namespace;
use mcs_core::names::{EXPORT_WANTED, LABEL_EXPORT};

use super::*;

/// O01, O02, O06: one slice of several goes, a set is replaced, a slice hangs in deletion, the last one goes.
#[tokio::test]
async fn the_imported_endpoints_are_those_of_the_live_slices_at_every_moment() -> Result<()> {
    let scene = Scene::start("churn").await?;
    let slices = scene.east::<EndpointSlice>();
    let port = ("http", 8080);
    scene.export("cart", port, &["10.0.0.1", "10.0.0.2"]).await?;
    create(&slices, &scene.slice("cart-b", "cart", port, &["10.0.0.3"])?).await?;
    scene.imports("cart", &["10.0.0.1", "10.0.0.2", "10.0.0.3"]).await?;
    let unions = Unions::follow(scene.west(), "cart").await?;

    delete(&slices, "cart-b").await?;
    scene.imports("cart", &["10.0.0.1", "10.0.0.2"]).await?;

    let replaced = scene.slice("cart-a", "cart", port, &["10.0.0.2", "10.0.0.9"])?;
    merge(&slices, "cart-a", json!({ "endpoints": replaced.endpoints })).await?;
    scene.imports("cart", &["10.0.0.2", "10.0.0.9"]).await?;

    create(&slices, &scene.slice("cart-c", "cart", port, &["10.0.0.7"])?).await?;
    scene.imports("cart", &["10.0.0.2", "10.0.0.7", "10.0.0.9"]).await?;
    merge(&slices, "cart-a", json!({ "metadata": { "finalizers": ["other.example/x"] } })).await?;
    delete(&slices, "cart-a").await?;
    scene.imports("cart", &["10.0.0.7"]).await?;
    assert!(slices.get("cart-a").await?.metadata.deletion_timestamp.is_some());
    merge(&slices, "cart-a", json!({ "metadata": { "finalizers": null } })).await?;

    delete(&slices, "cart-c").await?;
    scene.imports("cart", &[]).await?;
    let seen = [
        set(&["10.0.0.1", "10.0.0.2", "10.0.0.3"]),
        set(&["10.0.0.1", "10.0.0.2"]),
        set(&["10.0.0.2", "10.0.0.9"]),
        set(&["10.0.0.2", "10.0.0.7", "10.0.0.9"]),
        set(&["10.0.0.7"]),
        set(&[]),
    ];
    wait_for("the observer to see the end", async || expect(unions.seen(), &seen.to_vec())).await?;
    // The export itself stays, and with it the import.
    wait_for_conditions(&scene.east(), "cart", &ACCEPTED).await?;
    let status = scene.west::<ServiceImport>().get("cart").await?.status.context("a status")?;
    let clusters: Vec<_> = status.clusters.iter().map(|entry| entry.cluster.as_str()).collect();
    assert_eq!(clusters, ["east"]);
    Ok(())
}

/// O06: a ServiceExport counts as deleted from its deletion on, not from the end of all finalizers.
#[tokio::test]
async fn a_service_export_that_hangs_in_deletion_exports_nothing() -> Result<()> {
    let scene = Scene::start("hanging").await?;
    scene.export("cart", ("http", 8080), &["10.0.0.1"]).await?;
    scene.export("mail", ("http", 8080), &["10.0.1.1"]).await?;
    scene.imports("cart", &["10.0.0.1"]).await?;
    scene.imports("mail", &["10.0.1.1"]).await?;
    let exports = scene.east::<ServiceExport>();
    let finalizers = json!([{ "op": "add", "path": "/metadata/finalizers/-", "value": "other.example/x" }]);
    let patch = Patch::Json::<()>(serde_json::from_value(finalizers)?);
    exports.patch("cart", &PatchParams::default(), &patch).await?;
    delete(&exports, "cart").await?;
    let gone = async || expect(scene.west::<ServiceImport>().get_opt("cart").await?.is_none(), &true);
    wait_for("the end of the import", gone).await?;
    wait_for("the end of our finalizer", async || {
        expect(exports.get("cart").await?.finalizers().to_vec(), &vec!["other.example/x".to_owned()])
    })
    .await?;
    scene.imports("mail", &["10.0.1.1"]).await?;
    merge(&exports, "cart", json!({ "metadata": { "finalizers": null } })).await
}

/// A controller that does not know yet that a namespace ends is refused what is new in it. Its permissions must not end
/// with the namespace, as those of a Role do.
#[tokio::test]
async fn a_namespace_that_is_deleted_takes_all_along_and_nothing_is_said_to_be_wrong() -> Result<()> {
    let scene = Scene::start("ending").await?;
    scene.stack.allow_everywhere(&pair().await?.west).await?;
    scene.export("cart", ("http", 8080), &["10.0.0.1"]).await?;
    let labels = json!({ LABEL_EXPORT: EXPORT_WANTED });
    let spec = json!({ "ports": [{ "port": 80 }] });
    let labelled = json!({ "metadata": { "name": "mail", "labels": labels }, "spec": spec });
    create_json::<Service>(&scene.west(), labelled).await?;
    wait_for_conditions(&scene.west(), "mail", &ACCEPTED).await?;
    scene.imports("cart", &["10.0.0.1"]).await?;

    let namespaces: Api<Namespace> = Api::all(scene.west.clone());
    namespaces.delete(&scene.ns, &DeleteParams::default()).await?;
    scene.export("late", ("http", 8080), &["10.0.2.1"]).await?;
    let log = || anyhow::Ok(scene.stack.controller("west")?.program.log());
    wait_for("the import of late to be held", async || {
        let held = log()?.lines().any(|line| line.contains("import held") && line.contains("/late "));
        expect(held, &true)
    })
    .await?;
    wait_for("the end of the namespace", async || {
        let left = namespaces.get_opt(&scene.ns).await?;
        let status = left.map(|left| serde_json::to_string(&left.status)).transpose()?;
        expect(status, &None)
    })
    .await?;
    wait_for("the end of what it exported", async || {
        expect(scene.east::<ServiceImport>().get_opt("mail").await?.is_none(), &true)
    })
    .await?;
    let log = log()?;
    let complaints = log.lines().filter(|line| !line.contains(" INFO "));
    assert_eq!(complaints.collect::<Vec<_>>(), Vec::<&str>::new());
    Ok(())
}

/// O12, O14, O15, O20: a headless Service, with its host names and all three conditions, without ports and with.
#[tokio::test]
async fn endpoints_of_headless_services_are_imported_as_they_are() -> Result<()> {
    let scene = Scene::start("headless").await?;
    let endpoints = json!([
        { "addresses": ["10.0.0.1"], "hostname": "db-0", "conditions": { "ready": true, "serving": false },
          "targetRef": { "kind": "Pod", "name": "db-0", "namespace": scene.ns } },
        { "addresses": ["10.0.0.2"], "conditions": { "ready": false }, "zone": "us-east-1a", "nodeName": "n1",
          "targetRef": { "kind": "Pod", "name": "db-6f7c9-xk2lp", "namespace": scene.ns } },
        { "addresses": ["10.0.0.3"], "hostname": "db-2",
          "conditions": { "ready": false, "serving": true, "terminating": true } },
        { "addresses": ["10.0.0.4"], "conditions": {} },
    ]);
    let port = json!({ "name": "pg", "port": 5432, "protocol": "TCP" });
    for (name, ports) in [("bare", Value::Null), ("db", json!([port]))] {
        let spec = json!({ "clusterIP": "None", "ports": ports, "publishNotReadyAddresses": true });
        create_json::<Service>(&scene.east(), json!({ "metadata": { "name": name }, "spec": spec })).await?;
        create_json::<EndpointSlice>(
            &scene.east(),
            slice_json(&format!("{name}-a"), name, ports.clone(), endpoints.clone()),
        )
        .await?;
        create(&scene.east(), &service_export(name)).await?;
    }
    let imported = |node: Value| {
        json!([
            { "addresses": ["10.0.0.1"], "hostname": "db-0", "conditions": { "ready": true, "serving": false } },
            { "addresses": ["10.0.0.2"], "conditions": { "ready": false }, "zone": "us-east-1a", "nodeName": node },
            { "addresses": ["10.0.0.3"], "hostname": "db-2",
              "conditions": { "ready": false, "serving": true, "terminating": true } },
            { "addresses": ["10.0.0.4"], "conditions": {} },
        ])
    };
    for (name, ports) in [("bare", Value::Null), ("db", json!([port]))] {
        let addresses = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"];
        for (client, node) in [(&scene.east, json!("n1")), (&scene.west, Value::Null)] {
            imports(client, &scene.ns, name, &addresses).await?;
            let slices = slices(client, &scene.ns, name).await?;
            let is: Vec<_> = slices.iter().map(|slice| (&slice.ports, &slice.endpoints)).collect();
            let wanted: EndpointSlice =
                serde_json::from_value(slice_json("", "", ports.clone(), imported(node)))?;
            assert_eq!(is, [(&wanted.ports, &wanted.endpoints)], "{name}");
        }
        let spec = scene.west::<ServiceImport>().get(name).await?.spec.context("a spec")?;
        let ports = port_texts(&spec.ports, |port| format!("{:?} {}", port.name, port.port));
        let wanted = if name == "db" { set(&["Some(\"pg\") 5432"]) } else { set(&[]) };
        assert_eq!((spec.type_.as_str(), spec.ips, ports), ("Headless", vec![], wanted));
        let derived = scene.west::<Service>().get(&scene.derived(name)?).await?.spec.context("a spec")?;
        assert_eq!((derived.cluster_ip.as_deref(), derived.selector), (Some("None"), None));
        wait_for_conditions(&scene.east(), name, &ACCEPTED).await?;
    }
    Ok(())
}
