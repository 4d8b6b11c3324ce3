//! `mcs-controller leave`: what goes with a cluster that leaves its clusterset, and what stays.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Service, discovery::v1::EndpointSlice};
use kube::{
    Api, ResourceExt,
    api::{ListParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use mcs_controller::api::{ServiceExport, ServiceImport};
use mcs_core::names::{ANNOTATION_CLUSTERSET, ANNOTATION_LEFT, LABEL_EXPORT, LABEL_MANAGED_BY, MANAGED_BY};
use mcs_e2e::{
    objects::{self, Port},
    programs::{Program, Signal},
    shared::pair,
    stack::{Stack, StackOptions, get},
    wait_for,
};
use serde_json::json;

use crate::support::{Place, READY};

const HTTP: [Port<'_>; 1] = [("http", 80)];

#[tokio::test]
async fn a_cluster_that_leaves_takes_along_what_was_made_and_nothing_else_and_may_join_again() -> Result<()> {
    let pair = pair().await?;
    let namespace = pair.namespace("leaving").await?;
    let ns = namespace.name();
    let mut stack = Stack::start(StackOptions::for_namespace(ns), &[&pair.east, &pair.west]).await?;
    stack.start_controller(&pair.east, "standby").await?;
    stack.ready().await?;
    let [east, west] = pair.clients().map(|client| Place::new(client, ns, "cart"));
    let pay = Place::new(pair.west.client(), ns, "pay");
    let till = Place::new(pair.east.client(), ns, "till");
    // Made for a label, made by a user, and imported.
    east.create_service(&HTTP, &["10.0.0.1"]).await?;
    let labelled = Patch::Merge(json!({ "metadata": { "labels": { LABEL_EXPORT: "true" } } }));
    east.api::<Service>().patch("cart", &PatchParams::default(), &labelled).await?;
    till.export(&HTTP, &["10.0.0.2"]).await?;
    pay.export(&HTTP, &["10.1.0.1"]).await?;
    west.imports(&[("east", &["10.0.0.1"])]).await?;
    Place::new(pair.east.client(), ns, "pay").imports(&[("west", &["10.1.0.1"])]).await?;
    for place in [&east, &till] {
        place.says(&READY).await?;
    }
    // Of somebody else: another implementation, and another clusterset.
    let foreign = ObjectMeta { name: Some("foreign".to_owned()), ..ObjectMeta::default() };
    let import = ServiceImport {
        metadata: foreign,
        spec: Some(serde_json::from_value(json!({ "type": "ClusterSetIP", "ports": [] }))?),
        ..ServiceImport::default()
    };
    east.api::<ServiceImport>().create(&PostParams::default(), &import).await?;
    let mut service = objects::service_without_selector(ns, "other", &HTTP);
    service.labels_mut().insert(LABEL_MANAGED_BY.to_owned(), MANAGED_BY.to_owned());
    service.annotations_mut().insert(ANNOTATION_CLUSTERSET.to_owned(), "another".to_owned());
    east.api::<Service>().create(&PostParams::default(), &service).await?;

    let mut leave = stack.leave(&pair.east).await?;
    let ended = leave.ended().await?;
    assert!(ended.success(), "{ended}: {}", leave.log_tail());
    for told in ["removed from the registry", "exports=1 finalizers=2 imports=3 slices=3 services=3"] {
        assert!(leave.log().contains(told), "{told}: {}", leave.log());
    }
    for place in [&west, &Place::new(pair.west.client(), ns, "till")] {
        place.imports_nothing().await?;
    }
    let clusters = stack.rest("clusters").await?;
    let names: Vec<_> =
        clusters["clusters"].as_array().context("a list")?.iter().map(|it| &it["cluster"]).collect();
    assert_eq!(names, [&json!("west")]);
    only_foreign_is_left(&east, ns).await?;
    let export = till.api::<ServiceExport>().get("till").await?;
    assert_eq!(export.finalizers(), Vec::<String>::new());
    for replica in ["east", "standby"] {
        leads(&stack, replica, false).await?;
    }
    assert!(lease(&stack, &till).await?.annotations().contains_key(ANNOTATION_LEFT));

    // Controllers that ran stay out; one that is started now joins again.
    stack.start_controller(&pair.east, "again").await?;
    leads(&stack, "again", true).await?;
    west.imports(&[("east", &["10.0.0.1"])]).await?;
    till.says(&READY).await?;
    for replica in ["east", "standby"] {
        leads(&stack, replica, false).await?;
    }
    assert!(!lease(&stack, &till).await?.annotations().contains_key(ANNOTATION_LEFT));

    // With no registry in reach the cluster is cleaned all the same.
    stack.end_registry(Signal::Kill).await?;
    let mut leave = stack.leave(&pair.east).await?;
    logged(&leave, "the registry does not remove this cluster").await?;
    logged(&leave, "no registry has removed this cluster").await?;
    let ended = leave.ended().await?;
    assert!(ended.success(), "{ended}: {}", leave.log_tail());
    only_foreign_is_left(&east, ns).await?;
    leads(&stack, "again", false).await
}

/// Of what carries our label, only that of another clusterset; of ServiceImports, only that of another implementation.
async fn only_foreign_is_left(place: &Place, namespace: &str) -> Result<()> {
    wait_for("the end of all that was made", async || {
        let ours = ListParams::default().labels(&format!("{LABEL_MANAGED_BY}={MANAGED_BY}"));
        let mut found = BTreeMap::<&str, Vec<String>>::new();
        let services: Api<Service> = Api::namespaced(place.client.clone(), namespace);
        found.insert("Service", services.list(&ours).await?.iter().map(ResourceExt::name_any).collect());
        let slices = place.api::<EndpointSlice>().list(&ours).await?;
        found.insert("EndpointSlice", slices.iter().map(ResourceExt::name_any).collect());
        let exports = place.api::<ServiceExport>().list(&ours).await?;
        found.insert("ServiceExport", exports.iter().map(ResourceExt::name_any).collect());
        let imports = place.api::<ServiceImport>().list(&ListParams::default()).await?;
        found.insert("ServiceImport", imports.iter().map(ResourceExt::name_any).collect());
        let expected = [
            ("EndpointSlice", vec![]),
            ("Service", vec!["other".to_owned()]),
            ("ServiceExport", vec![]),
            ("ServiceImport", vec!["foreign".to_owned()]),
        ];
        ensure!(found == expected.into(), "{found:?}");
        Ok::<_, anyhow::Error>(())
    })
    .await
}

async fn lease(stack: &Stack, place: &Place) -> Result<Lease> {
    let leases = Api::<Lease>::namespaced(place.client.clone(), &stack.system_namespace());
    Ok(leases.get("mcs-controller").await?)
}

async fn leads(stack: &Stack, replica: &str, wanted: bool) -> Result<()> {
    wait_for(&format!("{replica} to lead: {wanted}"), async || {
        let text = get(&format!("http://{}/metrics", stack.controller(replica)?.admin)).await?;
        let text = String::from_utf8(text.to_vec())?;
        let line = format!("mcs_controller_leader {}", u8::from(wanted));
        ensure!(text.lines().any(|found| found == line), "{}", stack.controller(replica)?.program.log_tail());
        Ok(())
    })
    .await
}

async fn logged(program: &Program, text: &str) -> Result<()> {
    mcs_e2e::wait::wait_at_most(mcs_e2e::wait::LIMIT * 2, &format!("{text:?} in its log"), async || {
        ensure!(program.log().contains(text), "{}", program.log_tail());
        Ok::<_, anyhow::Error>(())
    })
    .await
}
