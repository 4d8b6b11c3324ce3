//! Whose an object is, and what is exported of it.

use super::*;
use mcs_core::names::{
    ANNOTATION_CLUSTERSET, ANNOTATION_DERIVED_SERVICE, EXPORT_WANTED, LABEL_EXPORT, LABEL_MANAGED_BY,
    LABEL_SOURCE_CLUSTER, MANAGED_BY,
};

/// O04: nothing imported is exported again, whoever asks for it; a Service without endpoints of its own never is.
#[tokio::test]
async fn what_was_imported_is_never_exported_again() -> Result<()> {
    let scene = Scene::start("loop").await?;
    let port = ("http", 8080);
    let exports = scene.west::<ServiceExport>();
    scene.export("cart", port, &["10.0.0.1"]).await?;
    scene.imports("cart", &["10.0.0.1"]).await?;

    let derived = scene.derived("cart")?;
    let label = json!({ "metadata": { "labels": { LABEL_EXPORT: EXPORT_WANTED } } });
    merge(&scene.west::<Service>(), &derived, label).await?;
    let mut foreign = scene.slice("cart-foreign", "cart", port, &["10.77.0.1"])?;
    foreign.labels_mut().insert(LABEL_SOURCE_CLUSTER.to_owned(), "gamma".to_owned());
    create(&scene.west(), &foreign).await?;
    create(&scene.west(), &scene.slice("cart-local", "cart", port, &["10.9.0.1"])?).await?;
    create(&scene.west(), &objects::service_without_selector(&scene.ns, "cart", &[port])).await?;
    create(&exports, &service_export("cart")).await?;

    for client in [&scene.east, &scene.west] {
        imports(client, &scene.ns, "cart", &["10.0.0.1", "10.9.0.1"]).await?;
        let mut by_source = BTreeMap::new();
        for slice in slices(client, &scene.ns, "cart").await? {
            by_source.insert(slice.labels()[LABEL_SOURCE_CLUSTER].clone(), union([&slice]));
        }
        let wanted = [("east".to_owned(), set(&["10.0.0.1"])), ("west".to_owned(), set(&["10.9.0.1"]))];
        assert_eq!(by_source, wanted.into());
    }
    wait_for_conditions(&exports, "cart", &ACCEPTED).await?;
    let names: Vec<_> = list(&exports).await?.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["cart"]);

    create(&exports, &service_export(&derived)).await?;
    create_json::<Service>(
        &scene.west(),
        json!({ "metadata": { "name": "out" }, "spec": { "type": "ExternalName", "externalName": "example.com" } }),
    )
    .await?;
    create(&exports, &service_export("out")).await?;
    wait_for_conditions(&exports, &derived, &INVALID_TYPE).await?;
    wait_for_conditions(&exports, "out", &INVALID_TYPE).await?;
    let imports: Vec<_> =
        list(&scene.east::<ServiceImport>()).await?.iter().map(ResourceExt::name_any).collect();
    assert_eq!(imports, ["cart"]);

    // An export that was accepted is withdrawn when its Service turns into one that cannot be exported.
    let spec = json!({ "spec": { "type": "ExternalName", "externalName": "example.com", "clusterIP": null, "clusterIPs": null } });
    merge(&scene.west::<Service>(), "cart", spec).await?;
    super::imports(&scene.east, &scene.ns, "cart", &["10.0.0.1"]).await?;
    wait_for_conditions(&exports, "cart", &INVALID_TYPE).await
}

/// The ServiceImport has the exported labels and annotations, and the Service's annotations of our prefix; nothing else
/// of the Service or the ServiceExport.
#[tokio::test]
async fn only_what_is_meant_for_export_travels_with_a_service() -> Result<()> {
    let scene = Scene::start("marks").await?;
    let port = ("http", 8080);
    create(&scene.east(), &scene.slice("cart-a", "cart", port, &["10.0.0.1"])?).await?;
    let metadata = json!({
        "name": "cart",
        "labels": { "team": "shop", "dynamo.nvidia.com/mcs-label": "no" },
        "annotations": { "note": "private", "dynamo.nvidia.com/mcs-role": "old", "dynamo.nvidia.com/mcs-model": "m" },
    });
    let spec = json!({ "ports": [{ "name": "http", "port": 80 }] });
    create_json::<Service>(&scene.east(), json!({ "metadata": metadata, "spec": spec })).await?;
    let spec = json!({
        "exportedLabels": { "tier": "gold" },
        "exportedAnnotations": { "note": "public", "dynamo.nvidia.com/mcs-role": "relay" },
    });
    let metadata = json!({
        "name": "cart",
        "labels": { "team": "export" },
        "annotations": { "private": "x", "dynamo.nvidia.com/mcs-export-only": "no" },
    });
    create_json::<ServiceExport>(&scene.east(), json!({ "metadata": metadata, "spec": spec })).await?;
    scene.imports("cart", &["10.0.0.1"]).await?;

    let derived = scene.derived("cart")?;
    let imports = scene.west::<ServiceImport>();
    let marks = async |labels: &[(&str, &str)], annotations: &[(&str, &str)]| {
        let map = |entries: &[(&str, &str)]| -> BTreeMap<String, String> {
            entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let mut annotations = map(annotations);
        annotations.insert(ANNOTATION_DERIVED_SERVICE.to_owned(), derived.clone());
        annotations.insert(ANNOTATION_CLUSTERSET.to_owned(), scene.ns.clone());
        let mut labels = map(labels);
        labels.insert(LABEL_MANAGED_BY.to_owned(), MANAGED_BY.to_owned());
        wait_for("the marks of the import", async || {
            let import = imports.get("cart").await?;
            expect(
                (import.labels().clone(), import.annotations().clone()),
                &(labels.clone(), annotations.clone()),
            )
        })
        .await
    };
    let all =
        [("note", "public"), ("dynamo.nvidia.com/mcs-role", "relay"), ("dynamo.nvidia.com/mcs-model", "m")];
    marks(&[("tier", "gold")], &all).await?;
    let service = scene.west::<Service>().get(&derived).await?;
    let labels = BTreeMap::from([
        (LABEL_MANAGED_BY.to_owned(), MANAGED_BY.to_owned()),
        (LABEL_SERVICE_NAME.to_owned(), "cart".to_owned()),
    ]);
    let annotations = BTreeMap::from([(ANNOTATION_CLUSTERSET.to_owned(), scene.ns.clone())]);
    assert_eq!((service.labels(), service.annotations()), (&labels, &annotations));

    // What is taken back goes.
    merge(
        &scene.east::<ServiceExport>(),
        "cart",
        json!({ "spec": { "exportedLabels": null, "exportedAnnotations": null } }),
    )
    .await?;
    marks(&[], &[("dynamo.nvidia.com/mcs-role", "old"), ("dynamo.nvidia.com/mcs-model", "m")]).await
}
