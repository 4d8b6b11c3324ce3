//! What people do to objects of this system is mended.

use super::*;
use mcs_core::names::{
    ANNOTATION_SOURCE_VERSION, EXPORT_WANTED, LABEL_EXPORT, LABEL_MANAGED_BY, LABEL_SLICE_MANAGED_BY,
    LABEL_SOURCE_CLUSTER, MANAGED_BY_KUBERNETES,
};

/// What our objects say, without what every write and every new object changes.
async fn content(client: &Client, ns: &str) -> Result<BTreeMap<String, Value>> {
    let mut all = ours(client, ns).await?;
    for object in all.values_mut() {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.retain(|field, _| {
                ["labels", "annotations", "finalizers", "deletionTimestamp"].contains(&field.as_str())
            });
        }
        if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
            annotations.remove(ANNOTATION_SOURCE_VERSION);
        }
        // Which addresses a derived Service has is Kubernetes' choice; that the import has the same is checked apart.
        if let Some(spec) = object["spec"].as_object_mut() {
            spec.retain(|field, _| !["ips", "clusterIP", "clusterIPs"].contains(&field.as_str()));
        }
        for condition in object["status"]["conditions"].as_array_mut().into_iter().flatten() {
            condition["lastTransitionTime"].take();
            condition["observedGeneration"].take();
        }
    }
    Ok(all)
}

/// Waits until everything is as it was, and the import has the derived Service's addresses.
async fn mended(scene: &Scene, damage: &str, whole: &[BTreeMap<String, Value>; 2]) -> Result<()> {
    let derived = scene.derived("cart")?;
    wait_for(&format!("the repair of: {damage}"), async || {
        for (client, whole) in [&scene.east, &scene.west].into_iter().zip(whole) {
            let is = content(client, &scene.ns).await?;
            let differs = |name: &&String| is.get(*name) != whole.get(*name);
            let names: BTreeSet<_> = is.keys().chain(whole.keys()).filter(differs).collect();
            let differing: Vec<_> =
                names.iter().map(|name| (name, is.get(*name), whole.get(*name))).collect();
            anyhow::ensure!(differing.is_empty(), "{differing:?}");
        }
        let import = scene.west::<ServiceImport>().get("cart").await?;
        let service = scene.west::<Service>().get(&derived).await?.spec.unwrap_or_default();
        expect(import.spec.unwrap_or_default().ips, &service.cluster_ips.unwrap_or_default())?;
        for slice in slices(&scene.west, &scene.ns, "cart").await? {
            let owners: Vec<_> = slice.owner_references().iter().map(|owner| owner.uid.clone()).collect();
            expect(owners, &vec![import.metadata.uid.clone().unwrap_or_default()])?;
        }
        Ok(())
    })
    .await
}

/// O05, O06: edited and deleted objects of every kind come back at once, without a word from the registry; what is not
/// ours is left alone.
#[tokio::test]
async fn what_someone_edits_or_deletes_is_mended_at_once() -> Result<()> {
    let mut scene = Scene::start("repair").await?;
    let port = ("http", 8080);
    let mut service = objects::service_without_selector(&scene.ns, "cart", &[port]);
    service.labels_mut().insert(LABEL_EXPORT.to_owned(), EXPORT_WANTED.to_owned());
    create(&scene.east(), &scene.slice("cart-a", "cart", port, &["10.0.0.1", "10.0.0.2"])?).await?;
    create(&scene.east(), &service).await?;
    create(&scene.west(), &scene.slice("cart-w", "cart", port, &["10.9.0.1"])?).await?;
    create(&scene.west(), &service).await?;
    for client in [&scene.east, &scene.west] {
        imports(client, &scene.ns, "cart", &["10.0.0.1", "10.0.0.2", "10.9.0.1"]).await?;
        let exports = Api::namespaced(client.clone(), &scene.ns);
        wait_for_conditions(&exports, "cart", &ACCEPTED).await?;
    }
    let derived = scene.derived("cart")?;
    let foreign = scene.slice("foreign", &derived, port, &["10.55.0.1"])?;
    create(&scene.west(), &foreign).await?;
    scene.restart_west().await?;
    let whole = [content(&scene.east, &scene.ns).await?, content(&scene.west, &scene.ns).await?];
    mended(&scene, "nothing yet", &whole).await?;

    let (slices_api, services) = (scene.west::<EndpointSlice>(), scene.west::<Service>());
    let names: Vec<_> =
        slices(&scene.west, &scene.ns, "cart").await?.iter().map(ResourceExt::name_any).collect();
    let [first, second] = names.as_slice() else { anyhow::bail!("{names:?}") };
    delete(&slices_api, first).await?;
    merge(&slices_api, second, json!({ "endpoints": [] })).await?;
    mended(&scene, "a slice deleted, another emptied", &whole).await?;
    let labels =
        json!({ "metadata": { "labels": { LABEL_SOURCE_CLUSTER: "gamma", LABEL_SLICE_MANAGED_BY: null } } });
    merge(&slices_api, first, labels).await?;
    let labels = json!({ "metadata": { "labels": { LABEL_SERVICE_NAME: null }, "ownerReferences": null } });
    merge(&slices_api, second, labels).await?;
    mended(&scene, "labels of slices changed", &whole).await?;
    let endpoint = json!([{ "addresses": ["10.66.0.1"], "targetRef": { "kind": "Pod", "name": "x" } }]);
    merge(&slices_api, first, json!({ "ports": [{ "name": "http", "port": 1 }], "endpoints": endpoint }))
        .await?;
    mended(&scene, "ports and endpoints of a slice changed", &whole).await?;

    delete(&services, &derived).await?;
    mended(&scene, "derived Service deleted", &whole).await?;
    let ports = json!([{ "name": "http", "port": 8080 }, { "name": "x", "port": 9999 }, { "name": "u", "port": 8080, "protocol": "UDP" }]);
    merge(&services, &derived, json!({ "spec": { "ports": ports, "externalIPs": ["192.0.2.1"] } })).await?;
    mended(&scene, "ports added to the derived Service", &whole).await?;
    merge(
        &services,
        &derived,
        json!({ "spec": { "ports": [{ "name": "http", "port": 81, "targetPort": 82 }] } }),
    )
    .await?;
    mended(&scene, "the number of a port changed", &whole).await?;
    merge(&services, &derived, json!({ "spec": { "type": "NodePort", "sessionAffinity": "ClientIP" } }))
        .await?;
    mended(&scene, "the type of the derived Service changed", &whole).await?;
    let outside = json!({ "spec": { "type": "ExternalName", "externalName": "example.com", "clusterIP": null, "clusterIPs": null } });
    merge(&services, &derived, outside).await?;
    mended(&scene, "derived Service made an ExternalName", &whole).await?;

    let imports_api = scene.west::<ServiceImport>();
    let spec = json!({ "type": "Headless", "ports": [], "ips": ["192.0.2.7"], "trafficDistribution": "PreferClose" });
    let metadata = json!({ "annotations": { mcs_core::names::ANNOTATION_DERIVED_SERVICE: "other" } });
    merge(&imports_api, "cart", json!({ "metadata": metadata, "spec": spec })).await?;
    mended(&scene, "ServiceImport edited", &whole).await?;
    let status = json!({ "status": { "clusters": [{ "cluster": "gamma" }, { "cluster": "west" }], "conditions": [] } });
    imports_api.patch_status("cart", &PatchParams::default(), &Patch::Merge(status)).await?;
    mended(&scene, "status of the ServiceImport edited", &whole).await?;
    delete(&imports_api, "cart").await?;
    mended(&scene, "ServiceImport deleted", &whole).await?;

    let exports = scene.east::<ServiceExport>();
    let status = json!({ "status": { "conditions": [] } });
    exports.patch_status("cart", &PatchParams::default(), &Patch::Merge(status)).await?;
    mended(&scene, "conditions of the ServiceExport removed", &whole).await?;
    merge(&exports, "cart", json!({ "metadata": { "finalizers": null } })).await?;
    mended(&scene, "finalizer of the ServiceExport removed", &whole).await?;
    delete(&exports, "cart").await?;
    mended(&scene, "ServiceExport of a label deleted", &whole).await?;

    // Kubernetes writes slices for a selector, and leaves them when it goes.
    scene.stack.end_controller("west", mcs_e2e::programs::Signal::Term).await?;
    merge(&services, &derived, json!({ "spec": { "selector": { "app": "nothing" } } })).await?;
    let by_kubernetes = async || -> Result<usize> {
        let label =
            format!("kubernetes.io/service-name={derived},{LABEL_SLICE_MANAGED_BY}={MANAGED_BY_KUBERNETES}");
        Ok(slices_api.list(&ListParams::default().labels(&label)).await?.items.len())
    };
    wait_for("slices by Kubernetes", async || expect(by_kubernetes().await?, &1)).await?;
    scene.start_west().await?;
    mended(&scene, "selector added to the derived Service", &whole).await?;
    wait_for("the end of slices by Kubernetes", async || expect(by_kubernetes().await?, &0)).await?;

    // A slice that hangs in deletion is replaced under another name, and goes when it can.
    let slice = slices(&scene.west, &scene.ns, "cart").await?.first().context("a slice")?.name_any();
    merge(&slices_api, &slice, json!({ "metadata": { "finalizers": ["other.example/x"] } })).await?;
    delete(&slices_api, &slice).await?;
    wait_for("a replacement of the slice", async || {
        let live = slices(&scene.west, &scene.ns, "cart").await?;
        let live: Vec<_> = live.iter().filter(|slice| slice.metadata.deletion_timestamp.is_none()).collect();
        expect(union(live), &set(&["10.0.0.1", "10.0.0.2", "10.9.0.1"]))
    })
    .await?;
    merge(&slices_api, &slice, json!({ "metadata": { "finalizers": null } })).await?;
    wait_for("the end of the slice", async || expect(slices_api.get_opt(&slice).await?.is_none(), &true))
        .await?;
    scene.imports("cart", &["10.0.0.1", "10.0.0.2", "10.9.0.1"]).await?;

    let left_alone = slices_api.get("foreign").await?;
    assert_eq!(
        (left_alone.metadata.generation, &left_alone.endpoints, left_alone.labels().get(LABEL_MANAGED_BY)),
        (Some(1), &foreign.endpoints, None)
    );
    Ok(())
}
