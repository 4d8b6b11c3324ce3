//! Phase 8.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use futures::try_join;
use k8s_openapi::api::{
    core::v1::{Event, Service},
    discovery::v1::EndpointSlice,
};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::{EU, Scene, check, install_controller_plaintext, pools::karmada_slice};
use crate::{
    kind::{
        LONG,
        charts::{CONTROLLER, install_registry, upgrade},
        member::Member,
        network::each,
        shop::{GREETER, SHOP, Traffic, imported, names, ready_pods, scale},
    },
    wait_at_most,
    workload::SERVED,
};

/// What Karmada calls its Service for the import.
const DERIVED: &str = "derived-greeter";
const GROUP: &str = "multicluster.x-k8s.io";
/// The Event on a ServiceImport that somebody else made.
const NOT_OURS: &str = "ServiceImportNotOurs";
/// Requests for which it is looked whether something fails.
const FURTHER: u64 = 100;

pub(super) async fn run(scene: &Scene<'_>) -> Result<String> {
    let Scene { east, west, north, .. } = scene;
    scene.step("installing a registry in east", install_registry(east, &[])).await?;
    let installing = async {
        try_join!(install_controller_plaintext(west, &[EU]), install_controller_plaintext(north, &[EU]))
    };
    scene.step("installing controllers in west and north", installing).await?;
    scene.step("exporting 2 servers of west", scene.serve(west, 2)).await?;
    let servers = names(&[(west, 2)]).await?;
    scene.step("giving east the CRDs of Karmada, v1alpha1 alone", karmada_crds(east)).await?;
    scene.step("importing into east as Karmada does", import_as_karmada(east, west)).await?;
    let to = format!("{DERIVED}.{SHOP}.svc.cluster.local:{SERVED}");
    let theirs = Traffic::start(east, SHOP, "client-karmada", to.clone());
    let mut theirs = scene.step(&format!("sending from east to {to}"), theirs).await?;
    scene.step("both servers of west answer", theirs.is_answered_by(&servers)).await?;
    theirs.begin().await?;
    let before = identities(east).await?;

    scene.step("installing the controller in east", install_controller_plaintext(east, &[EU])).await?;
    scene.step("it tells that the ServiceImport is not its own", is_told(east)).await?;
    let url = format!("http://{EU}");
    let checking = each(scene.members, |member| check(scene.members, member, &url, &[]));
    scene.step("mcs-admin check, in each cluster", checking).await?;
    ensure!(identities(east).await? == before, "Karmada's objects were changed");

    let adopting = upgrade(east, CONTROLLER, &["controller.adoptUnmanagedImports=true"]);
    scene.step("upgrading it with controller.adoptUnmanagedImports=true", adopting).await?;
    let address = scene.step("it is imported", imported(east, SHOP, GREETER, 2, &["west"])).await?;
    let ours = Traffic::start(east, SHOP, "client", format!("{address}:{SERVED}"));
    let mut ours = scene.step("sending from east to the clusterset IP", ours).await?;
    for client in [&theirs, &ours] {
        scene.step("both servers of west answer", client.is_answered_by(&servers)).await?;
    }
    ours.begin().await?;
    let after = identities(east).await?;
    let same = |(before, after): (&(String, String), &(String, String))| before.0 == after.0;
    ensure!(before.iter().zip(&after).all(same), "Karmada's objects were made anew: {before:?}, {after:?}");
    ensure!(before[1..] == after[1..], "Karmada's Service or slice was changed: {before:?}, {after:?}");
    let side_by_side = theirs.without_failure(FURTHER).await?;

    let removing = async {
        east.api::<EndpointSlice>(SHOP).delete(&slice_name(), &DeleteParams::default()).await?;
        east.api::<Service>(SHOP).delete(DERIVED, &DeleteParams::default()).await?;
        Ok(())
    };
    scene.step("removing Karmada's Service and slice", removing).await?;
    scene.step("scaling west to 3 servers", scale(west, SHOP, GREETER, 3)).await?;
    let servers = names(&[(west, 3)]).await?;
    scene.step("all three answer", ours.is_answered_by(&servers)).await?;
    let answered = ours.without_failure(FURTHER).await?;
    Ok(format!(
        "{side_by_side} requests by Karmada's Service while ours came beside it and {answered} by ours while Karmada's went, none failed"
    ))
}

/// CRDs as Karmada has them, in place of ours.
async fn karmada_crds(member: &Member) -> Result<()> {
    let names = [("ServiceExport", "serviceexports"), ("ServiceImport", "serviceimports")];
    let full = names.map(|(_, plural)| format!("{plural}.{GROUP}"));
    member.kubectl(&["delete", "crd", "--ignore-not-found", &full[0], &full[1]]).await?;
    let crds = names.map(|(kind, plural)| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.{GROUP}") },
            "spec": {
                "group": GROUP, "scope": "Namespaced",
                "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List") },
                "versions": [{
                    "name": "v1alpha1", "served": true, "storage": true, "subresources": { "status": {} },
                    "schema": {
                        "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                    },
                }],
            },
        })
    });
    member.apply(&crds).await
}

fn slice_name() -> String {
    format!("imported-west-{GREETER}-b2c4d")
}

async fn import_as_karmada(to: &Member, from: &Member) -> Result<()> {
    let pods = ready_pods(from, SHOP, GREETER, 2).await?;
    let addresses: BTreeSet<_> = pods.iter().filter_map(|pod| pod.status.as_ref()?.pod_ip.clone()).collect();
    let port = json!({ "name": "http", "port": SERVED, "protocol": "TCP" });
    let objects: [Value; 3] = [
        json!({
            "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "ServiceImport",
            "metadata": { "namespace": SHOP, "name": GREETER },
            "spec": { "type": "ClusterSetIP", "ports": [port] },
        }),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "namespace": SHOP, "name": DERIVED },
            "spec": { "ports": [port] },
        }),
        karmada_slice(SHOP, "west", GREETER, "http", &addresses),
    ];
    to.apply(&objects).await
}

async fn is_told(member: &Member) -> Result<()> {
    wait_at_most(LONG, &format!("an Event {NOT_OURS}"), async || {
        let events = member.api::<Event>(SHOP).list(&Default::default()).await?.items;
        let told = events.iter().any(|event| {
            event.reason.as_deref() == Some(NOT_OURS)
                && event.involved_object.name.as_deref() == Some(GREETER)
        });
        ensure!(told, "{} others", events.len());
        Ok(())
    })
    .await
}

/// Karmada's objects: the UID and the version of the ServiceImport, the Service and the slice.
async fn identities(member: &Member) -> Result<[(String, String); 3]> {
    let slice = slice_name();
    let identity = async |kind: &str, name: &str| {
        let columns = "jsonpath={.metadata.uid} {.metadata.resourceVersion}";
        let told = member.kubectl(&["-n", SHOP, "get", kind, name, "-o", columns]).await?;
        let (uid, version) = told.split_once(' ').with_context(|| format!("{kind} {name}: {told}"))?;
        anyhow::Ok((uid.to_owned(), version.to_owned()))
    };
    Ok([
        // By the version that both Karmada's CRD and ours serve.
        identity("serviceimports.v1alpha1.multicluster.x-k8s.io", GREETER).await?,
        identity("service", DERIVED).await?,
        identity("endpointslice", &slice).await?,
    ])
}
