//! Exports and imports that come and go: Services made again, owners, exports deleted, controllers and registries that
//! were away meanwhile.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::{
    api::{
        core::v1::{Namespace, Service},
        discovery::v1::EndpointSlice,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use mcs_controller::api::{ServiceExport, ServiceImport};
use mcs_core::{
    names::{FINALIZER_EXPORT, LABEL_EXPORT},
    time::Clock,
    timing::FINALIZER_LIMIT,
};
use mcs_e2e::{
    objects::{self, Port},
    programs::Signal,
    shared::pair,
    stack::{Stack, StackOptions},
    wait_at_most, wait_for,
};
use mcs_runtime::clock::SystemClock;
use serde_json::{Value, json};

use crate::support::{Place, READY};

const HTTP: [Port<'_>; 1] = [("http", 80)];
const NO_SERVICE: [(&str, &str, &str); 2] = [("Valid", "False", "NoService"), ("Ready", "False", "Pending")];

/// O21.
#[tokio::test]
async fn a_service_deleted_and_made_again_is_exported_as_it_is_now() -> Result<()> {
    let pair = pair().await?;
    let namespace = pair.namespace("again").await?;
    let stack =
        Stack::start(StackOptions::for_namespace(namespace.name()), &[&pair.east, &pair.west]).await?;
    let [east, west] = pair.clients().map(|client| Place::new(client, namespace.name(), "cart"));

    east.create_export().await?;
    east.says(&NO_SERVICE).await?;
    west.imports_nothing().await?;

    east.create_service(&HTTP, &["10.0.0.1", "10.0.0.2"]).await?;
    west.imports(&[("east", &["10.0.0.1", "10.0.0.2"])]).await?;
    east.says(&READY).await?;

    east.delete::<Service>("cart").await?;
    east.says(&NO_SERVICE).await?;
    west.imports_nothing().await?;
    east.imports_nothing().await?;

    let ports = [("web", 8080)];
    east.delete::<EndpointSlice>("cart-x").await?;
    east.create_service(&ports, &["10.0.0.9"]).await?;
    let import = west.imports(&[("east", &["10.0.0.9"])]).await?;
    let port = ("web".to_owned(), 8080);
    assert_eq!(
        (import.ports(), import.service_ports(), import.slice_ports()),
        (vec![port.clone()], vec![port.clone()], [("east".to_owned(), [port].into())].into())
    );
    east.says(&READY).await?;
    drop(stack);
    Ok(())
}

/// O22.
#[tokio::test]
async fn owners_are_of_the_same_namespace_and_what_goes_with_them_is_made_again_or_stays_a_users()
-> Result<()> {
    let pair = pair().await?;
    let namespace = pair.namespace("owners").await?;
    let ns = namespace.name();
    let stack = Stack::start(StackOptions::for_namespace(ns), &[&pair.east, &pair.west]).await?;
    let [east, west] = pair.clients().map(|client| Place::new(client, ns, "cart"));
    let [east_pay, west_pay] = pair.clients().map(|client| Place::new(client, ns, "pay"));

    let mut labelled = objects::service_without_selector(ns, "cart", &HTTP);
    labelled.labels_mut().insert(LABEL_EXPORT.to_owned(), "true".to_owned());
    let service = east.api::<Service>().create(&PostParams::default(), &labelled).await?;
    east.create_slice("cart-x", &HTTP, &["10.0.0.1"]).await?;
    east_pay.export(&HTTP, &["10.0.0.2"]).await?;
    let import = west.imports(&[("east", &["10.0.0.1"])]).await?;
    west_pay.imports(&[("east", &["10.0.0.2"])]).await?;

    let owner = |api_version: &str, kind: &str, uid: Option<String>| OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: "cart".to_owned(),
        uid: uid.unwrap_or_default(),
        block_owner_deletion: None,
        controller: None,
    };
    let plain = |references: &[OwnerReference]| -> Vec<OwnerReference> {
        let plain = references.iter().cloned();
        plain.map(|it| OwnerReference { controller: None, block_owner_deletion: None, ..it }).collect()
    };
    let export = east.api::<ServiceExport>().get("cart").await?;
    assert_eq!(plain(export.owner_references()), [owner("v1", "Service", service.uid())]);
    let by_import =
        |import: &ServiceImport| owner("multicluster.x-k8s.io/v1beta1", "ServiceImport", import.uid());
    assert_eq!(import.service.owner_references(), [by_import(&import.import)]);
    for slice in &import.slices {
        assert_eq!(slice.owner_references(), [by_import(&import.import)]);
    }
    assert_eq!(import.import.owner_references(), []);

    west.delete::<ServiceImport>("cart").await?;
    wait_for("all of the import made again", async || {
        let again = west.import().await?;
        ensure!(again.import.uid() != import.import.uid(), "the ServiceImport is still there");
        ensure!(
            again.service.owner_references() == [by_import(&again.import)],
            "{:?}",
            again.service.metadata
        );
        ensure!(!again.slices.is_empty(), "no slices");
        for slice in &again.slices {
            ensure!(slice.owner_references() == [by_import(&again.import)], "{:?}", slice.metadata);
        }
        ensure!(again.addresses() == import.addresses(), "{:?}", again.addresses());
        Ok(())
    })
    .await?;

    east.delete::<Service>("cart").await?;
    east_pay.delete::<Service>("pay").await?;
    east.export_is_gone().await?;
    west.imports_nothing().await?;
    east_pay.says(&NO_SERVICE).await?;
    west_pay.imports_nothing().await?;
    drop(stack);
    Ok(())
}

/// O23, O31.
#[tokio::test]
async fn an_import_has_the_endpoints_of_each_cluster_that_still_exports_and_goes_with_the_last() -> Result<()>
{
    let pair = pair().await?;
    let namespace = pair.namespace("last").await?;
    let stack =
        Stack::start(StackOptions::for_namespace(namespace.name()), &[&pair.east, &pair.west]).await?;
    let places = pair.clients().map(|client| Place::new(client, namespace.name(), "cart"));
    let [east, west] = &places;
    let of_east: &[&str] = &["10.1.0.1", "10.1.0.2"];

    east.export(&HTTP, of_east).await?;
    west.export(&HTTP, &["10.2.0.1"]).await?;
    for place in &places {
        place.imports(&[("east", of_east), ("west", &["10.2.0.1"])]).await?;
        place.says(&READY).await?;
    }
    west.set_addresses(&[]).await?;
    for place in &places {
        place.imports(&[("east", of_east), ("west", &[])]).await?;
    }
    west.set_addresses(&["10.2.0.2"]).await?;
    for place in &places {
        place.imports(&[("east", of_east), ("west", &["10.2.0.2"])]).await?;
    }
    let before = versions(east).await?;

    east.delete::<ServiceExport>("cart").await?;
    east.export_is_gone().await?;
    for place in &places {
        place.imports(&[("west", &["10.2.0.2"])]).await?;
    }
    west.delete::<ServiceExport>("cart").await?;
    west.export_is_gone().await?;
    for place in &places {
        place.imports_nothing().await?;
    }
    assert_eq!(versions(east).await?, before);
    drop(stack);
    Ok(())
}

/// O37. The lease is long, so that nothing goes but by the comparison at the controller's start.
#[tokio::test]
async fn what_changed_while_the_controller_was_down_is_told_at_its_start() -> Result<()> {
    let pair = pair().await?;
    let namespace = pair.namespace("down").await?;
    let ns = namespace.name();
    let options = StackOptions { lease: Duration::from_secs(30), ..StackOptions::for_namespace(ns) };
    let mut stack = Stack::start(options, &[&pair.east, &pair.west]).await?;
    let [east, west] = pair.clients();
    let names = ["a", "b", "c"];
    let [in_east, in_west] =
        [east, west].map(|client| names.map(|name| Place::new(client.clone(), ns, name)));

    for (number, (east, west)) in in_east.iter().zip(&in_west).enumerate() {
        let address = format!("10.0.0.{number}");
        east.export(&HTTP, &[&address]).await?;
        west.imports(&[("east", &[&address])]).await?;
    }
    in_east[2].create_slice("c-y", &HTTP, &["10.0.0.77"]).await?;
    in_west[2].imports(&[("east", &["10.0.0.2", "10.0.0.77"])]).await?;

    stack.end_controller("east", Signal::Term).await?;
    in_east[0].delete::<Service>("a").await?;
    let unfinalized = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    in_east[1].api::<ServiceExport>().patch("b", &PatchParams::default(), &unfinalized).await?;
    in_east[1].delete::<ServiceExport>("b").await?;
    in_east[1].export_is_gone().await?;
    in_east[2].delete::<EndpointSlice>("c-x").await?;
    stack.start_controller(&pair.east, "east").await?;

    in_west[2].imports(&[("east", &["10.0.0.77"])]).await?;
    in_west[0].imports_nothing().await?;
    in_west[1].imports_nothing().await?;
    in_east[0].says(&NO_SERVICE).await?;
    assert_eq!(exported(&stack).await?, [("c".to_owned(), "east".to_owned())]);
    Ok(())
}

/// O39: the same process, which was stopped for longer than its lease, and one that starts anew.
#[tokio::test]
async fn what_the_registry_lost_while_a_controller_was_cut_off_goes_when_it_is_back() -> Result<()> {
    let pair = pair().await?;
    let namespace = pair.namespace("missed").await?;
    let ns = namespace.name();
    let mut stack = Stack::start(StackOptions::for_namespace(ns), &[&pair.east, &pair.west]).await?;
    let [east, west] = pair.clients();
    let place = |client: &kube::Client, name: &str| Place::new(client.clone(), ns, name);

    place(&east, "cart").export(&HTTP, &["10.0.0.1"]).await?;
    place(&west, "cart").imports(&[("east", &["10.0.0.1"])]).await?;
    stack.controller("west")?.program.signal(Signal::Stop)?;
    lease_is(&stack, "west", "LEASE_STATE_EXPIRED").await?;
    place(&east, "cart").delete::<ServiceExport>("cart").await?;
    place(&east, "cart").export_is_gone().await?;
    place(&east, "pay").export(&HTTP, &["10.0.0.2"]).await?;
    place(&east, "pay").says(&READY).await?;
    stack.controller("west")?.program.signal(Signal::Continue)?;
    place(&west, "pay").imports(&[("east", &["10.0.0.2"])]).await?;
    place(&west, "cart").imports_nothing().await?;

    stack.end_controller("west", Signal::Kill).await?;
    place(&east, "pay").delete::<ServiceExport>("pay").await?;
    place(&east, "pay").export_is_gone().await?;
    place(&east, "cart").create_export().await?;
    place(&east, "cart").says(&READY).await?;
    stack.start_controller(&pair.west, "west").await?;
    place(&west, "cart").imports(&[("east", &["10.0.0.1"])]).await?;
    place(&west, "pay").imports_nothing().await?;
    Ok(())
}

/// O26. While the registry is away the exporting cluster also goes on by itself; O39: the deletion that no registry
/// saw reaches the other cluster when one is back. The limit does not depend on the lease, which is short here.
#[tokio::test]
async fn a_finalizer_waits_a_minute_for_a_registry_that_is_away_and_the_record_goes_when_it_is_back()
-> Result<()> {
    let pair = pair().await?;
    let (kept, deleted) = (pair.namespace("away").await?, pair.namespace("terminating").await?);
    let ns = kept.name();
    let mut options = StackOptions::for_namespace(ns);
    options.watch_namespaces.push(deleted.name().to_owned());
    let mut stack = Stack::start(options, &[&pair.east, &pair.west]).await?;
    // A Role goes with its namespace, and a controller that is started anew could not look into it.
    stack.allow_everywhere(&pair.east).await?;
    let [east, west] = pair.clients();
    let place = |client: &kube::Client, name: &str| Place::new(client.clone(), ns, name);
    let (lost, lost_west) =
        (Place::new(east.clone(), deleted.name(), "cart"), Place::new(west.clone(), deleted.name(), "cart"));

    place(&east, "cart").export(&HTTP, &["10.0.0.1"]).await?;
    place(&east, "pay").export(&HTTP, &["10.0.0.2"]).await?;
    lost.export(&HTTP, &["10.0.0.3"]).await?;
    for client in [&east, &west] {
        place(client, "cart").imports(&[("east", &["10.0.0.1"])]).await?;
        place(client, "pay").imports(&[("east", &["10.0.0.2"])]).await?;
    }
    lost_west.imports(&[("east", &["10.0.0.3"])]).await?;
    for place in [&place(&east, "cart"), &lost] {
        place.says(&READY).await?;
    }

    stack.end_registry(Signal::Kill).await?;
    let clock = SystemClock;
    let began = clock.elapsed();
    place(&east, "cart").delete::<ServiceExport>("cart").await?;
    Api::<Namespace>::all(east.clone()).delete(deleted.name(), &DeleteParams::default()).await?;
    place(&east, "pay").set_addresses(&["10.0.0.4"]).await?;
    place(&east, "pay").imports(&[("east", &["10.0.0.4"])]).await?;
    let deleting = place(&east, "cart").api::<ServiceExport>().get("cart").await?;
    assert_eq!(deleting.finalizers(), [FINALIZER_EXPORT]);
    let waits = [READY[0], ("Ready", "Unknown", "Pending"), READY[2]];
    place(&east, "cart").says(&waits).await?;
    // Its Service may have gone first, so that it was no valid export any more.
    for place in [&place(&east, "cart"), &lost] {
        wait_for("a condition that says what the finalizer waits for", async || {
            let message = place.message("Ready").await?;
            ensure!(
                message.contains("the finalizer stays until a registry has let the export go"),
                "{message}"
            );
            Ok(())
        })
        .await?;
    }
    stack.end_controller("east", Signal::Term).await?;
    stack.start_controller(&pair.east, "east").await?;

    wait_at_most(FINALIZER_LIMIT * 2, "the end of the ServiceExport", async || {
        let found = place(&east, "cart").api::<ServiceExport>().get_opt("cart").await?;
        ensure!(found.is_none(), "{found:?}");
        Ok::<_, anyhow::Error>(())
    })
    .await?;
    let waited = clock.elapsed().since(began);
    ensure!(waited >= FINALIZER_LIMIT, "after {waited:?} without a registry");
    wait_for("the end of the namespace", async || {
        let found = Api::<Namespace>::all(east.clone()).get_opt(deleted.name()).await?;
        ensure!(found.is_none(), "{:?}", found.and_then(|found| found.status));
        Ok(())
    })
    .await?;
    place(&west, "cart").imports(&[("east", &["10.0.0.1"])]).await?;

    stack.start_registry().await?;
    place(&west, "pay").imports(&[("east", &["10.0.0.4"])]).await?;
    for client in [&east, &west] {
        place(client, "cart").imports_nothing().await?;
    }
    lost_west.imports_nothing().await?;
    assert_eq!(exported(&stack).await?, [("pay".to_owned(), "east".to_owned())]);

    // What could never be exported holds nothing up.
    let nameless = ServiceExport {
        metadata: ObjectMeta { name: Some("no.service".to_owned()), ..ObjectMeta::default() },
        ..ServiceExport::default()
    };
    let place = place(&east, "no.service");
    place.api::<ServiceExport>().create(&PostParams::default(), &nameless).await?;
    place.delete::<ServiceExport>("no.service").await?;
    place.export_is_gone().await
}

/// The cluster goes on, and says of its exports how they stand, though its controller has never spoken with a registry:
/// nobody has renewed its lease for as long as it has led.
#[tokio::test]
async fn a_controller_that_starts_while_no_registry_answers_says_a_lease_later_that_it_has_run_out()
-> Result<()> {
    let pair = pair().await?;
    let namespace = pair.namespace("outage").await?;
    let ns = namespace.name();
    let mut stack = Stack::start(StackOptions::for_namespace(ns), &[&pair.east]).await?;
    let place = |name: &str| Place::new(pair.east.client(), ns, name);
    place("cart").export(&HTTP, &["10.0.0.1"]).await?;
    place("cart").says(&READY).await?;
    place("cart").imports(&[("east", &["10.0.0.1"])]).await?;

    stack.end_controller("east", Signal::Term).await?;
    stack.end_registry(Signal::Kill).await?;
    place("cart").says(&READY).await?;
    stack.start_controller(&pair.east, "east").await?;
    place("new").export(&HTTP, &["10.0.0.2"]).await?;
    place("new").says(&[("Valid", "True", "Valid"), ("Ready", "Unknown", "Pending")]).await?;
    let expired = ("Ready", "False", "ClusterLeaseExpired");
    place("cart").says(&[READY[0], expired, READY[2]]).await?;
    place("new").says(&[READY[0], expired]).await?;
    place("cart").imports(&[("east", &["10.0.0.1"])]).await?;

    stack.start_registry().await?;
    for name in ["cart", "new"] {
        place(name).says(&READY).await?;
    }
    place("new").imports(&[("east", &["10.0.0.2"])]).await?;
    Ok(())
}

/// O32.
#[tokio::test]
async fn a_second_cluster_of_the_same_id_is_refused_while_the_first_has_its_lease() -> Result<()> {
    let pair = pair().await?;
    let namespace = pair.namespace("twice").await?;
    let ns = namespace.name();
    let mut stack = Stack::start(StackOptions::for_namespace(ns), &[&pair.east]).await?;
    let [first, second] = pair.clients().map(|client| Place::new(client, ns, "cart"));
    first.export(&HTTP, &["10.1.0.1"]).await?;
    first.says(&READY).await?;
    let before = versions(&first).await?;

    stack.prepare(&pair.west).await?;
    second.export(&HTTP, &["10.2.0.1"]).await?;
    stack.start_controller_as(&pair.west, "second", "east").await?;
    second.says(&[("Valid", "True", "Valid"), ("Ready", "False", "Failed")]).await?;
    let message = second.message("Ready").await?;
    let uid = async |place: &Place| -> Result<String> {
        Api::<Namespace>::all(place.client.clone()).get("kube-system").await?.uid().context("a UID")
    };
    let named = [uid(&first).await?, uid(&second).await?, "east".to_owned()];
    for name in &named {
        assert!(message.contains(name), "{name} is not in {message:?}");
    }
    let log = stack.controller("second")?.program.log();
    assert!(log.contains(&message), "{message:?} is not in the log");
    first.imports(&[("east", &["10.1.0.1"])]).await?;
    first.says(&READY).await?;
    assert_eq!(
        (exported_addresses(&stack).await?, versions(&first).await?),
        (vec!["10.1.0.1".to_owned()], before)
    );

    // When the first one's lease has run out, the id is the second's, and nothing is mixed.
    stack.end_controller("east", Signal::Kill).await?;
    second.imports(&[("east", &["10.2.0.1"])]).await?;
    second.says(&READY).await?;
    assert_eq!(exported_addresses(&stack).await?, ["10.2.0.1"]);
    Ok(())
}

/// The versions of the Service and its own slice: what nobody may write but the user.
async fn versions(place: &Place) -> Result<[Option<String>; 2]> {
    Ok([
        place.api::<Service>().get(&place.name).await?.resource_version(),
        place.api::<EndpointSlice>().get(&format!("{}-x", place.name)).await?.resource_version(),
    ])
}

/// Names and clusters of all exports that the registry holds.
async fn exported(stack: &Stack) -> Result<Vec<(String, String)>> {
    let answer = stack.rest("exports").await?;
    let exports = answer["exports"].as_array().context("a list of exports")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(exports.iter().map(|export| (text(&export["key"]["name"]), text(&export["cluster"]))).collect())
}

/// The addresses of all exports that the registry holds.
async fn exported_addresses(stack: &Stack) -> Result<Vec<String>> {
    let answer = stack.rest("exports?includeEndpoints=true").await?;
    let mut found = Vec::new();
    for export in answer["exports"].as_array().context("a list of exports")? {
        for group in export["endpoints"]["groups"].as_array().into_iter().flatten() {
            for endpoint in group["endpoints"].as_array().into_iter().flatten() {
                found.push(endpoint["address"].as_str().unwrap_or_default().to_owned());
            }
        }
    }
    Ok(found)
}

/// Waits until the registry says so of a cluster's lease.
async fn lease_is(stack: &Stack, cluster: &str, state: &str) -> Result<()> {
    wait_for(&format!("{state} of {cluster}"), async || {
        let answer = stack.rest("clusters").await?;
        let clusters = answer["clusters"].as_array().context("a list of clusters")?;
        let found = clusters.iter().find(|found| found["cluster"] == cluster);
        ensure!(found.is_some_and(|found| found["lease"]["state"] == state), "{clusters:?}");
        Ok(())
    })
    .await
}
