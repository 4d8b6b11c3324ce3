//! Phase 7.

use anyhow::{Result, bail, ensure};
use kube::ResourceExt;
use mcs_controller::api::ServiceExport;
use mcs_core::names::{LABEL_MANAGED_BY, MANAGED_BY};
use serde_json::json;

use super::{EU, Scene, greeter, install_controller_plaintext};
use crate::{
    kind::{
        LONG,
        charts::{CONTROLLER, REGISTRY, SYSTEM, uninstall},
        member::Member,
        network::each,
        shop::{GREETER, SHOP, Traffic, imported, names, remove_namespaces},
    },
    wait_at_most,
};

/// A Service that its user exports by hand.
const TILL: &str = "till";
/// The CRDs, which stay.
const CRDS: [&str; 3] = [
    "clusterproperties.about.k8s.io",
    "serviceexports.multicluster.x-k8s.io",
    "serviceimports.multicluster.x-k8s.io",
];
/// The label of all that the chart makes.
const PART_OF: &str = "app.kubernetes.io/part-of";
/// What tells of others, or of what was.
const PASSED_OVER: [&str; 3] = ["events", "events.events.k8s.io", "componentstatuses"];

pub(super) async fn run(scene: &Scene<'_>) -> Result<String> {
    let Scene { east, west, north, .. } = scene;
    scene.install_plaintext().await?;
    scene.step("exporting 2 servers of west and of north", scene.serve(west, 2)).await?;
    north.apply(&greeter(north, 2)).await?;
    for member in [west, north] {
        member.apply(&till()).await?;
    }
    let clusters = ["north", "west"];
    let importing = each(scene.members, |member| imported(member, SHOP, GREETER, 4, &clusters));
    let addresses = scene.step("waiting for the import in each cluster", importing).await?;
    let client = Traffic::start(east, SHOP, "client", format!("{}:8080", addresses[0]));
    let mut client = scene.step("sending from east to the clusterset IP", client).await?;
    client.begin().await?;

    scene.step("helm uninstall in west", uninstall(west, CONTROLLER, SYSTEM)).await?;
    scene.step("west has nothing of ours, and all that users made", nothing_of_ours(west)).await?;
    scene.step("east imports from north alone", imported(east, SHOP, GREETER, 2, &["north"])).await?;
    let servers = names(&[(north, 2)]).await?;
    scene.step("north alone answers", client.is_answered_by(&servers)).await?;
    let answered = client.without_failure(0).await?;
    scene.step("installing it again in west", install_controller_plaintext(west, &[EU])).await?;
    scene.step("west is back", imported(east, SHOP, GREETER, 4, &clusters)).await?;
    let servers = names(&[(north, 2), (west, 2)]).await?;
    scene.step("all four answer", client.is_answered_by(&servers)).await?;

    scene.step("helm uninstall of the registry", uninstall(east, REGISTRY, SYSTEM)).await?;
    let leaving = each(scene.members, |member| uninstall(member, CONTROLLER, SYSTEM));
    scene.step("helm uninstall in each cluster, with no registry in reach", leaving).await?;
    let looking = each(&scene.members[1..], nothing_of_ours);
    scene.step("they have nothing of ours, and all that users made", looking).await?;
    scene.step("nor has east", is_clean(east)).await?;
    let removing = each(scene.members, |member| remove_namespaces(member, &[SYSTEM]));
    scene.step("their namespaces can be deleted", removing).await?;
    Ok(format!(
        "west left ({answered} requests, none failed) and came back; all left without a registry, and nothing stayed"
    ))
}

/// A Service without Pods and a ServiceExport by hand.
fn till() -> [serde_json::Value; 2] {
    let metadata = json!({ "namespace": SHOP, "name": TILL });
    [
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": { "selector": { "app": TILL }, "ports": [{ "name": "http", "port": 80 }] },
        }),
        json!({ "apiVersion": "multicluster.x-k8s.io/v1beta1", "kind": "ServiceExport", "metadata": metadata }),
    ]
}

async fn nothing_of_ours(member: &Member) -> Result<()> {
    is_clean(member).await?;
    let exports = member.api::<ServiceExport>(SHOP).list(&Default::default()).await?.items;
    let left: Vec<_> =
        exports.iter().map(|export| (export.name_any(), export.finalizers().to_vec())).collect();
    ensure!(left == [(TILL.to_owned(), Vec::new())], "there are the ServiceExports {left:?}");
    for service in [TILL, GREETER] {
        member.kubectl(&["-n", SHOP, "get", "service", service]).await?;
    }
    for crd in CRDS {
        member.kubectl(&["get", "crd", crd]).await?;
    }
    // That the cluster has left stands in its Lease, which nobody holds.
    let holder = ["-n", SYSTEM, "get", "lease", "mcs-controller", "-o", "jsonpath={.spec.holderIdentity}"];
    let holder = member.kubectl(&holder).await?;
    ensure!(holder.is_empty(), "{holder} holds the Lease");
    Ok(())
}

/// Waits until nothing that the cluster can list is marked as the controller's or the releases'.
async fn is_clean(member: &Member) -> Result<()> {
    let kinds = member.kubectl(&["api-resources", "--verbs=list", "-o", "name"]).await?;
    let kinds: Vec<_> = kinds.lines().filter(|kind| !PASSED_OVER.contains(kind)).collect();
    let kinds = kinds.join(",");
    let ours = [format!("{LABEL_MANAGED_BY}={MANAGED_BY}"), format!("{PART_OF}=global-discovery-mcs")];
    for selector in ours {
        wait_at_most(LONG, &format!("nothing with {selector} in {}", member.name()), async || {
            let found = member.kubectl(&["get", &kinds, "-A", "-l", &selector, "-o", "name"]).await?;
            if !found.is_empty() {
                bail!("{found}");
            }
            Ok(())
        })
        .await?;
    }
    Ok(())
}
