//! The whole path: a Service exported in one cluster works in another, and what disturbs it.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service, discovery::v1::EndpointSlice};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use mcs_controller::api::{ServiceExport, ServiceImport};
use mcs_core::names::{LABEL_EXPORT, LABEL_SERVICE_NAME, derived_service_name};
use mcs_e2e::{
    objects,
    shared::pair,
    stack::{Stack, StackOptions},
    wait_for,
};
use serde_json::json;

#[tokio::test]
async fn a_labelled_service_of_one_cluster_is_usable_in_the_other_and_follows_its_scale() -> Result<()> {
    let pair = pair().await?;
    let namespace = pair.namespace("path").await?;
    let ns = namespace.name();
    let mut options = StackOptions::for_namespace(ns);
    // A watched namespace that does not exist holds up nothing.
    options.watch_namespaces.insert(0, format!("{ns}-missing"));
    let stack = Stack::start(options, &[&pair.east, &pair.west]).await?;
    let (east, west) = (pair.east.client(), pair.west.client());

    export_deployment(&east, ns, "cart", 2).await?;
    wait_for("the import in west with two endpoints", async || imported(&west, ns, "cart", 2).await).await?;

    let import = Api::<ServiceImport>::namespaced(west.clone(), ns).get("cart").await?;
    let derived = derived_service_name(&mcs_core::ids::ServiceKey::new(ns, "cart")?);
    let service = Api::<Service>::namespaced(west.clone(), ns).get(&derived).await?;
    let ips = service.spec.context("a spec")?.cluster_ips.context("cluster IPs")?;
    assert_eq!(import.spec.context("a spec")?.ips, ips);
    let export = Api::<ServiceExport>::namespaced(east.clone(), ns).get("cart").await?;
    let conditions = export.status.context("a status")?.conditions;
    let conditions: Vec<_> =
        conditions.iter().map(|it| (it.type_.as_str(), it.status.as_str(), it.reason.as_str())).collect();
    assert_eq!(
        conditions,
        [("Valid", "True", "Valid"), ("Ready", "True", "Ready"), ("Conflict", "False", "NoConflicts")]
    );

    scale(&east, ns, "cart", 3).await?;
    wait_for("three endpoints in west", async || imported(&west, ns, "cart", 3).await).await?;
    scale(&east, ns, "cart", 1).await?;
    wait_for("one endpoint in west", async || imported(&west, ns, "cart", 1).await).await?;
    drop(stack);
    Ok(())
}

/// A Deployment with a Service that is labelled for export.
pub(crate) async fn export_deployment(
    client: &Client,
    namespace: &str,
    name: &str,
    replicas: u16,
) -> Result<()> {
    let ports = [("http", 8080)];
    let mut service = objects::service(namespace, name, &ports);
    service.labels_mut().insert(LABEL_EXPORT.to_owned(), "true".to_owned());
    let deployment = objects::deployment(namespace, name, replicas, &ports);
    Api::<Deployment>::namespaced(client.clone(), namespace)
        .create(&PostParams::default(), &deployment)
        .await?;
    Api::<Service>::namespaced(client.clone(), namespace).create(&PostParams::default(), &service).await?;
    Ok(())
}

/// Scales a Deployment.
pub(crate) async fn scale(client: &Client, namespace: &str, name: &str, replicas: u16) -> Result<()> {
    let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
    let deployments = Api::<Deployment>::namespaced(client.clone(), namespace);
    deployments.patch(name, &PatchParams::default(), &patch).await.map(drop).map_err(Into::into)
}

/// The imported addresses of a Service, when there are `count` of them.
pub(crate) async fn imported(
    client: &Client,
    namespace: &str,
    name: &str,
    count: usize,
) -> Result<BTreeSet<String>> {
    let slices = slices(client, namespace, name).await?;
    let addresses: BTreeSet<_> = slices
        .iter()
        .flat_map(|slice| &slice.endpoints)
        .flat_map(|endpoint| endpoint.addresses.clone())
        .collect();
    anyhow::ensure!(addresses.len() == count, "{} endpoints: {addresses:?}", addresses.len());
    Ok(addresses)
}

/// The imported slices of a Service.
pub(crate) async fn slices(client: &Client, namespace: &str, name: &str) -> Result<Vec<EndpointSlice>> {
    let selector = ListParams::default().labels(&format!("{LABEL_SERVICE_NAME}={name}"));
    Ok(Api::<EndpointSlice>::namespaced(client.clone(), namespace).list(&selector).await?.items)
}
