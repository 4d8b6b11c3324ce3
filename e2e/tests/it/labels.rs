//! ServiceExports that a label asks for, those that people made, and those that name nothing.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use k8s_openapi::{
    api::core::v1::{Namespace, Service},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use mcs_controller::api::ServiceExport;
use mcs_core::names::{
    ANNOTATION_CLUSTERSET, EXPORT_WANTED, FINALIZER_EXPORT, LABEL_EXPORT, LABEL_MANAGED_BY, MANAGED_BY,
};
use mcs_e2e::{
    Cluster, ClusterOptions,
    objects::{self, Port},
    shared::pair,
    stack::{Stack, StackOptions, get},
    wait_for,
};
use serde_json::{Value, json};

use crate::support::{Place, READY, make_namespace};

const HTTP: [Port<'_>; 1] = [("http", 80)];
const NO_SERVICE: [(&str, &str, &str); 2] = [("Valid", "False", "NoService"), ("Ready", "False", "Pending")];
/// Takes a Service's export label off.
const NO_LABEL: Option<&str> = None;

/// O05: what was made for the label is mended as long as it can be told, and goes with the label.
#[tokio::test]
async fn the_export_of_a_label_is_mended_when_somebody_edits_it_and_goes_with_the_label() -> Result<()> {
    let pair = pair().await?;
    let namespace = pair.namespace("label").await?;
    let ns = namespace.name();
    let stack = Stack::start(StackOptions::for_namespace(ns), &[&pair.east, &pair.west]).await?;
    let [east, west] = pair.clients().map(|client| Place::new(client, ns, "cart"));
    let service = labelled(&east, &["10.0.0.1"]).await?;
    east.says(&READY).await?;
    west.imports(&[("east", &["10.0.0.1"])]).await?;
    let made = east.api::<ServiceExport>().get("cart").await?;
    let mut wanted = Marks::of(&made);
    let marks = Marks {
        labels: [(LABEL_MANAGED_BY.to_owned(), MANAGED_BY.to_owned())].into(),
        annotations: [(ANNOTATION_CLUSTERSET.to_owned(), ns.to_owned())].into(),
        owners: vec![owner(&service)],
        finalizers: vec![FINALIZER_EXPORT.to_owned()],
        uid: made.uid(),
    };
    assert_eq!(wanted, marks);

    // What others add stays, and what a user wants to travel does.
    let added = json!({
        "metadata": { "labels": { "team": "shop" }, "annotations": { "note": "mine" } },
        "spec": { "exportedLabels": { "tier": "gold" } },
    });
    edit(&east, added).await?;
    wanted.labels.insert("team".to_owned(), "shop".to_owned());
    wanted.annotations.insert("note".to_owned(), "mine".to_owned());
    for (what, edited) in [
        ("label removed", json!({ "labels": { LABEL_MANAGED_BY: null } })),
        ("label changed", json!({ "labels": { LABEL_MANAGED_BY: "me" } })),
        ("annotation removed", json!({ "annotations": { ANNOTATION_CLUSTERSET: null } })),
        ("annotation changed", json!({ "annotations": { ANNOTATION_CLUSTERSET: "other" } })),
        ("owner removed", json!({ "ownerReferences": null })),
        ("label and owner removed", json!({ "labels": { LABEL_MANAGED_BY: null }, "ownerReferences": null })),
        (
            "label and annotation removed",
            json!({ "labels": { LABEL_MANAGED_BY: null }, "annotations": { ANNOTATION_CLUSTERSET: null } }),
        ),
        ("finalizer removed", json!({ "finalizers": null })),
    ] {
        edit(&east, json!({ "metadata": edited })).await?;
        wait_for(&format!("the repair of: {what}"), async || {
            let found = Marks::of(&east.api::<ServiceExport>().get("cart").await?);
            ensure!(found == wanted, "{found:?}");
            Ok(())
        })
        .await?;
    }
    wait_for("the label that a user exports", async || {
        let import = west.import().await?;
        let found = (import.import.labels().get("tier").cloned(), import.addresses());
        let addresses = [("east".to_owned(), ["10.0.0.1".to_owned()].into())].into();
        ensure!(found == (Some("gold".to_owned()), addresses), "{found:?}");
        Ok(())
    })
    .await?;

    label(&east, NO_LABEL).await?;
    east.export_is_gone().await?;
    west.imports_nothing().await?;
    label(&east, Some(EXPORT_WANTED)).await?;
    west.imports(&[("east", &["10.0.0.1"])]).await?;
    east.says(&READY).await?;
    drop(stack);
    Ok(())
}

#[tokio::test]
async fn a_service_export_made_by_hand_is_neither_taken_over_by_a_label_nor_deleted_with_it() -> Result<()> {
    let pair = pair().await?;
    let namespace = pair.namespace("byhand").await?;
    let stack =
        Stack::start(StackOptions::for_namespace(namespace.name()), &[&pair.east, &pair.west]).await?;
    let [east, west] = pair.clients().map(|client| Place::new(client, namespace.name(), "cart"));
    east.export(&HTTP, &["10.0.0.1"]).await?;
    east.says(&READY).await?;
    west.imports(&[("east", &["10.0.0.1"])]).await?;
    let before = east.api::<ServiceExport>().get("cart").await?;

    for value in [Some(EXPORT_WANTED), NO_LABEL] {
        label(&east, value).await?;
        // What the Service says next is followed, so its label was looked at.
        let number = if value.is_some() { 81 } else { 82 };
        let ports = Patch::Merge(json!({ "spec": { "ports": [{ "name": "http", "port": number }] } }));
        east.api::<Service>().patch("cart", &PatchParams::default(), &ports).await?;
        wait_for("the port to follow", async || {
            let ports = west.import().await?.ports();
            ensure!(ports == [("http".to_owned(), number)], "{ports:?}");
            Ok(())
        })
        .await?;
        let now = east.api::<ServiceExport>().get("cart").await?;
        assert_eq!((Marks::of(&now), &now.spec), (Marks::of(&before), &before.spec), "{value:?}");
    }
    assert_eq!(Marks::of(&before).labels, BTreeMap::new());
    drop(stack);
    Ok(())
}

/// A Service's name is a DNS label; a ServiceExport may have any name that an object can have.
#[tokio::test]
async fn a_service_export_whose_name_no_service_can_have_says_that_there_is_none() -> Result<()> {
    let pair = pair().await?;
    let namespace = pair.namespace("nameless").await?;
    let ns = namespace.name();
    let stack = Stack::start(StackOptions::for_namespace(ns), &[&pair.east]).await?;
    let client = pair.east.client();
    let places = ["no.service".to_owned(), "x".repeat(64), "y".repeat(253)]
        .map(|name| Place::new(client.clone(), ns, &name));
    for place in &places {
        place.create_export().await?;
        place.says(&NO_SERVICE).await?;
        let export = place.api::<ServiceExport>().get(&place.name).await?;
        let generation = export.metadata.generation;
        let conditions = export.status.clone().unwrap_or_default().conditions;
        assert!(conditions.iter().all(|it| it.observed_generation == generation), "{conditions:?}");
        assert_eq!(
            conditions[0].message, "there is no Service of this name in this namespace",
            "of {}",
            place.name
        );
        assert_eq!(export.finalizers(), Vec::<String>::new());
    }
    let status = Patch::Merge(json!({ "status": { "conditions": [] } }));
    let first = &places[0];
    first.api::<ServiceExport>().patch_status(&first.name, &PatchParams::default(), &status).await?;
    first.says(&NO_SERVICE).await?;
    edit(first, json!({ "metadata": { "finalizers": [FINALIZER_EXPORT] } })).await?;
    for place in &places {
        place.delete::<ServiceExport>(&place.name).await?;
        place.export_is_gone().await?;
    }
    drop(stack);
    Ok(())
}

/// A namespace that ends takes no new ServiceExport, though the Services in it that ask for one may go last; the next of
/// its name exports again. With a controller that watches all namespaces, so in a cluster of its own.
#[tokio::test]
async fn a_namespace_that_ends_is_left_alone_and_one_that_is_made_again_exports_again() -> Result<()> {
    let south = Cluster::start(ClusterOptions::new("south", 3, "eu-south-1")).await?;
    let options = StackOptions { watch_namespaces: Vec::new(), ..StackOptions::for_namespace("ending") };
    let stack = Stack::start(options, &[&south]).await?;
    let client = south.client();
    let namespaces = Api::<Namespace>::all(client.clone());
    make_namespace(&client, "shop").await?;
    let names: Vec<_> = (0..12).map(|number| format!("cart-{number}")).collect();
    let places: Vec<_> = names.iter().map(|name| Place::new(client.clone(), "shop", name)).collect();
    for place in &places {
        labelled(place, &["10.0.0.1"]).await?;
    }
    for place in &places {
        place.says(&READY).await?;
        place.imports(&[("south", &["10.0.0.1"])]).await?;
    }
    let last = &places[0];
    let held = |finalizers: Value| Patch::Merge(json!({ "metadata": { "finalizers": finalizers } }));
    let parameters = PatchParams::default();
    last.api::<Service>().patch(&last.name, &parameters, &held(json!(["other.example/x"]))).await?;

    namespaces.delete("shop", &DeleteParams::default()).await?;
    for place in &places {
        place.export_is_gone().await?;
    }
    for place in &places[1..] {
        wait_for("the end of a Service", async || {
            let found = place.api::<Service>().get_opt(&place.name).await?;
            ensure!(found.is_none(), "{:?}", found.map(|found| found.metadata));
            Ok(())
        })
        .await?;
    }
    last.api::<Service>().patch(&last.name, &parameters, &held(Value::Null)).await?;
    wait_for("the end of the namespace", async || {
        let found = namespaces.get_opt("shop").await?;
        ensure!(found.is_none(), "{:?}", found.and_then(|found| found.status));
        Ok(())
    })
    .await?;

    make_namespace(&client, "shop").await?;
    labelled(last, &["10.0.0.2"]).await?;
    last.says(&READY).await?;
    last.imports(&[("south", &["10.0.0.2"])]).await?;
    let metrics = get(&format!("http://{}/metrics", stack.controller("south")?.admin)).await?;
    let metrics = String::from_utf8(metrics.to_vec())?;
    let creations = |outcome: &str| {
        let of = format!(
            "mcs_controller_object_writes_total{{kind=\"ServiceExport\",outcome=\"{outcome}\",verb=\"create\"}} "
        );
        metrics.lines().find_map(|line| line.strip_prefix(&of).map(str::to_owned))
    };
    assert_eq!(["ok", "error"].map(creations), ["13", "0"].map(|count| Some(count.to_owned())));
    Ok(())
}

/// What tells whose a ServiceExport is.
#[derive(Debug, PartialEq)]
struct Marks {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    owners: Vec<OwnerReference>,
    finalizers: Vec<String>,
    uid: Option<String>,
}

impl Marks {
    fn of(export: &ServiceExport) -> Self {
        Self {
            labels: export.labels().clone(),
            annotations: export.annotations().clone(),
            owners: export.owner_references().to_vec(),
            finalizers: export.finalizers().to_vec(),
            uid: export.uid(),
        }
    }
}

fn owner(service: &Service) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Service".to_owned(),
        name: service.name_any(),
        uid: service.uid().unwrap_or_default(),
        ..OwnerReference::default()
    }
}

/// Makes a Service with the export label, and its slice.
async fn labelled(place: &Place, addresses: &[&str]) -> Result<Service> {
    let mut service = objects::service_without_selector(&place.namespace, &place.name, &HTTP);
    service.labels_mut().insert(LABEL_EXPORT.to_owned(), EXPORT_WANTED.to_owned());
    let service = place.api::<Service>().create(&PostParams::default(), &service).await?;
    place.create_slice(&format!("{}-x", place.name), &HTTP, addresses).await?;
    Ok(service)
}

async fn label(place: &Place, value: Option<&str>) -> Result<()> {
    let patch = Patch::Merge(json!({ "metadata": { "labels": { LABEL_EXPORT: value } } }));
    place.api::<Service>().patch(&place.name, &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn edit(place: &Place, change: Value) -> Result<()> {
    let exports = place.api::<ServiceExport>();
    exports.patch(&place.name, &PatchParams::default(), &Patch::Merge(change)).await?;
    Ok(())
}
