//! Phase 7.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use kube::ResourceExt;
use mcs_controller::api::ServiceExport;
use mcs_core::names::{LABEL_MANAGED_BY, MANAGED_BY};
use serde_json::json;

use super::{EU, Scene, greeter, install_controller_plaintext};
use crate::{
    kind::{
        LONG,
        charts::{
            CONTROLLER, COREDNS_ROLE, DISCOVERY_RELEASE, REGISTRY, SYSTEM, install_discovery, renewals,
            uninstall,
        },
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
    let before = scene.step("noting the names of all objects", each(scene.members, objects)).await?;
    let names_before = scene.members.iter().map(Member::name).zip(before);
    let before: BTreeMap<_, _> = names_before.collect();
    scene.install_plaintext().await?;
    let values = [
        "poolDiscovery=mcs",
        "router.namespace=routing",
        "router.service=global-router",
        "router.portName=grpc",
    ];
    scene.step("installing the discovery service in east", install_discovery(east, &values)).await?;
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
    // One whose lease has ended is listed for days: only a cluster that has said so is gone.
    let listing = wait_at_most(LONG, "an answer of the registry", async || renewals(east).await);
    let listed = scene.step("looking whether the registry has heard of it", listing).await?;
    let listed: Vec<_> = listed.keys().collect();
    ensure!(listed == ["east", "north"], "the registry lists {listed:?}");
    scene.step("west has nothing of ours, and all that users made", nothing_of_ours(west, &before)).await?;
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
    let uninstalling = uninstall(east, DISCOVERY_RELEASE, DISCOVERY_RELEASE);
    scene.step("helm uninstall of the discovery service", uninstalling).await?;
    let looking = each(&scene.members[1..], |member| nothing_of_ours(member, &before));
    scene.step("they have nothing of ours, and all that users made", looking).await?;
    scene.step("nor has east", is_clean(east, &before)).await?;
    let removing = each(scene.members, |member| remove_namespaces(member, &[SYSTEM, DISCOVERY_RELEASE]));
    scene.step("their namespaces can be deleted", removing).await?;
    Ok(format!(
        "west left, and the registry heard of it ({answered} requests, none failed), and came back; all left without a \
         registry; of ours only the CRDs and a Lease that nobody holds stayed"
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

/// The names of objects as `<kind> <namespace or -> <name>`, by cluster.
type Before = BTreeMap<&'static str, BTreeSet<String>>;

async fn nothing_of_ours(member: &Member, before: &Before) -> Result<()> {
    is_clean(member, before).await?;
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

/// All that can be listed.
async fn kinds(member: &Member) -> Result<String> {
    let kinds = member.kubectl(&["api-resources", "--verbs=list", "-o", "name"]).await?;
    let kinds: Vec<_> = kinds.lines().filter(|kind| !PASSED_OVER.contains(kind)).collect();
    Ok(kinds.join(","))
}

/// The names of all objects but those that Kubernetes makes and removes by itself.
async fn objects(member: &Member) -> Result<BTreeSet<String>> {
    const COLUMNS: &str = "custom-columns=KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name";
    let kinds = kinds(member).await?;
    let listed = member.kubectl(&["get", &kinds, "-A", "--no-headers", "-o", COLUMNS]).await?;
    let mut objects = BTreeSet::new();
    for line in listed.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let [kind, namespace, name] = <[&str; 3]>::try_from(words).ok().with_context(|| line.to_owned())?;
        let namespace = if namespace == "<none>" { "-" } else { namespace };
        if !is_of_kubernetes(kind, namespace) {
            objects.insert(format!("{kind} {namespace} {name}"));
        }
    }
    Ok(objects)
}

/// Whether what is of a kind in a namespace comes and goes without us.
fn is_of_kubernetes(kind: &str, namespace: &str) -> bool {
    match kind {
        "CertificateSigningRequest" | "IPAddress" => true,
        "Pod" | "ReplicaSet" | "Endpoints" | "EndpointSlice" | "Lease" => {
            ["kube-system", "kube-node-lease", SHOP].contains(&namespace)
        }
        _ => false,
    }
}

/// Whether an object may be there afterwards: what users made, what stays, and what Kubernetes makes for either.
fn may_stay(object: &str) -> bool {
    let words: Vec<_> = object.split(' ').collect();
    let namespaces = [SYSTEM, DISCOVERY_RELEASE, SHOP];
    match words[..] {
        ["CustomResourceDefinition", _, name] => CRDS.contains(&name),
        ["APIService", _, name] => CRDS.iter().any(|crd| {
            let group = crd.split_once('.').map(|(_, group)| group);
            group == name.split_once('.').map(|(_, group)| group)
        }),
        ["Namespace", _, name] => namespaces.contains(&name),
        ["ServiceAccount", namespace, "default"] | ["ConfigMap", namespace, "kube-root-ca.crt"] => {
            namespaces.contains(&namespace)
        }
        // That the cluster has left.
        ["Lease", SYSTEM, "mcs-controller"] => true,
        // A release may keep it, for CoreDNS.
        ["ClusterRole" | "ClusterRoleBinding", _, COREDNS_ROLE] => true,
        ["Deployment" | "Service", SHOP, GREETER] | ["Service" | "ServiceExport", SHOP, TILL] => true,
        _ => false,
    }
}

/// Waits until nothing that the cluster can list is marked as the controller's or the releases', and until there is no
/// other object, marked or not, than there was before.
async fn is_clean(member: &Member, before: &Before) -> Result<()> {
    let before = before.get(member.name()).context("a cluster that was not looked at")?;
    wait_at_most(LONG, &format!("the end of all that came to {}", member.name()), async || {
        let now = objects(member).await?;
        let more: Vec<_> = now.difference(before).filter(|object| !may_stay(object)).collect();
        ensure!(more.is_empty(), "{more:?}");
        anyhow::Ok(())
    })
    .await?;
    let kinds = kinds(member).await?;
    let ours = [format!("{LABEL_MANAGED_BY}={MANAGED_BY}"), format!("{PART_OF}=global-discovery-mcs")];
    for selector in ours {
        wait_at_most(LONG, &format!("nothing with {selector} in {}", member.name()), async || {
            let found = member.kubectl(&["get", &kinds, "-A", "-l", &selector, "-o", "name"]).await?;
            let found: Vec<_> = found.lines().filter(|name| !name.ends_with(COREDNS_ROLE)).collect();
            if !found.is_empty() {
                bail!("{found:?}");
            }
            Ok(())
        })
        .await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_known_to_stay_may_stay() {
        for object in [
            "APIService - v1beta1.multicluster.x-k8s.io",
            "APIService - v1beta1.about.k8s.io",
            "CustomResourceDefinition - serviceimports.multicluster.x-k8s.io",
            "ConfigMap global-discovery kube-root-ca.crt",
            "Lease mcs-system mcs-controller",
            "ServiceExport shop till",
        ] {
            assert!(may_stay(object), "{object}");
        }
        for object in [
            "APIService - v1.example.com",
            "ClusterRole - mcs-controller:mcs-system",
            "Lease shop mcs-controller",
            "Secret mcs-system sh.helm.release.v1.mcs.v1",
            "ServiceExport shop greeter",
            "ServiceImport shop greeter",
        ] {
            assert!(!may_stay(object), "{object}");
        }
    }
}
