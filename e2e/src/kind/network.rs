//! What an operator's network does for the clusters: routes between their Pods, load balancers, and names.
//!
//! The nodes are containers on one docker network, so a static route to each other's Pods is all that routing needs. Load
//! balancers are played: a Service of type LoadBalancer in [`BALANCED`] is told a fixed address, which the nodes of the
//! other clusters route to this one, where kube-proxy takes it. The names of these addresses are in each cluster's DNS.

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, future::try_join_all};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Service},
};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::json;
use tokio_util::task::AbortOnDropHandle;

use super::member::{Member, PLANS};

/// The Services of type LoadBalancer that get an address, in the order of their addresses.
pub(crate) const BALANCED: [&str; 3] = ["mcs-registry", "dynamodb", "global-discovery-service"];
/// The names in DNS: of which cluster, which Service.
const NAMES: [(&str, usize, usize); 4] = [
    ("registry.eu.example", 0, 0),
    ("registry.us.example", 1, 0),
    ("dynamodb.eu.example", 0, 1),
    ("discovery.eu.example", 0, 2),
];
/// The line of a Corefile that kubeadm has made, and what it becomes.
const KUBERNETES: &str = "kubernetes cluster.local in-addr.arpa ip6.arpa {\n";
const KUBERNETES_OF_CLUSTERSETS: &str = "kubernetes cluster.local clusterset.local in-addr.arpa ip6.arpa {\n        multicluster clusterset.local\n";
/// From this version on CoreDNS answers for `clusterset.local`.
const ANSWERS_CLUSTERSETS: (u32, u32, u32) = (1, 12, 2);

/// Lets each cluster's Pods and load balancers be reached from the others. Again is harmless.
pub(crate) async fn route(members: &[Member]) -> Result<()> {
    for to in members {
        let (node, pods) = to.node_addresses().await?;
        for from in members.iter().filter(|from| from.plan != to.plan) {
            for range in [pods.clone(), to.plan.edge()] {
                from.on_node(&["ip", "route", "replace", &range, "via", &node]).await?;
            }
        }
    }
    Ok(())
}

/// Plays the load balancers of the clusters until it is dropped.
pub(crate) fn balance(members: &[Member]) -> Vec<AbortOnDropHandle<()>> {
    let balancing =
        members.iter().cloned().map(|member| AbortOnDropHandle::new(tokio::spawn(balance_one(member))));
    balancing.collect()
}

async fn balance_one(member: Member) {
    let services: Api<Service> = Api::all(member.client.clone());
    // A watch that fails, as while the cluster is stopped, begins anew after a pause.
    let mut seen = watcher(services, watcher::Config::default()).default_backoff().applied_objects().boxed();
    loop {
        let Ok(Some(service)) = seen.try_next().await else { continue };
        let is_balanced =
            service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer");
        let place = BALANCED.iter().position(|name| *name == service.name_any());
        let (true, Some(place)) = (is_balanced, place) else { continue };
        let address = member.plan.balancer(u8::try_from(place).unwrap_or_default()).to_string();
        let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": address }] } } });
        let services: Api<Service> = member.api(&service.namespace().unwrap_or_default());
        // What is refused is tried with the next change; who waits for the address says so.
        let _ =
            services.patch_status(&service.name_any(), &PatchParams::default(), &Patch::Merge(&status)).await;
    }
}

/// Tells a cluster's DNS the names of load balancers, and has it answer for nothing else. Again is harmless.
pub(crate) async fn name(member: &Member) -> Result<()> {
    change_corefile(member, |corefile| with_names(&without_clustersets(corefile))).await
}

/// Takes back [`answer_clustersets`], before what CoreDNS then needs goes: without it none that starts gets ready.
pub(crate) async fn forget_clustersets(member: &Member) -> Result<()> {
    change_corefile(member, |corefile| Ok(without_clustersets(corefile))).await
}

/// Has a cluster's CoreDNS answer for `clusterset.local`, where it can; whether it does. The CRDs must be there, and the
/// permission to read ServiceImports: without them CoreDNS is not ready.
pub(crate) async fn answer_clustersets(member: &Member) -> Result<bool> {
    let log = member.kubectl(&["-n", "kube-system", "logs", "-l", "k8s-app=kube-dns", "--tail=-1"]).await?;
    let version = version(&log).context("the log of CoreDNS has no version")?;
    if version < ANSWERS_CLUSTERSETS {
        return Ok(false);
    }
    change_corefile(member, with_clustersets).await?;
    Ok(true)
}

async fn change_corefile(member: &Member, change: fn(&str) -> Result<String>) -> Result<()> {
    let maps: Api<ConfigMap> = member.api("kube-system");
    let map = maps.get("coredns").await?;
    let before = map.data.and_then(|mut data| data.remove("Corefile")).context("no Corefile")?;
    let after = change(&before)?;
    if after != before {
        let patch = json!({ "data": { "Corefile": after } });
        maps.patch("coredns", &PatchParams::default(), &Patch::Merge(&patch)).await?;
        // It would read the file by itself, within a minute.
        let deployments: Api<Deployment> = member.api("kube-system");
        deployments.restart("coredns").await?;
    }
    let rolled = ["-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=300s"];
    member.kubectl(&rolled).await.map(drop)
}

fn with_names(corefile: &str) -> Result<String> {
    let lines = NAMES.map(|(name, cluster, place)| {
        format!("        {} {name}\n", PLANS[cluster].balancer(u8::try_from(place).unwrap_or_default()))
    });
    let block = format!("    hosts {{\n{}        fallthrough\n    }}\n", lines.concat());
    if corefile.contains(&block) {
        return Ok(corefile.to_owned());
    }
    before_kubernetes(corefile, &block)
}

fn before_kubernetes(corefile: &str, block: &str) -> Result<String> {
    let at = corefile.find("    kubernetes cluster.local").context("the Corefile has no kubernetes")?;
    let (before, after) = corefile.split_at(at);
    Ok(format!("{before}{block}{after}"))
}

/// As docs/install.md has it.
fn with_clustersets(corefile: &str) -> Result<String> {
    if corefile.contains("multicluster") {
        return Ok(corefile.to_owned());
    }
    ensure!(corefile.contains(KUBERNETES), "the Corefile has another kubernetes than expected: {corefile}");
    Ok(corefile.replacen(KUBERNETES, KUBERNETES_OF_CLUSTERSETS, 1))
}

fn without_clustersets(corefile: &str) -> String {
    corefile.replacen(KUBERNETES_OF_CLUSTERSETS, KUBERNETES, 1)
}

/// The version that CoreDNS tells when it starts. Tags of images say less.
fn version(log: &str) -> Option<(u32, u32, u32)> {
    let at = log.find("CoreDNS-")? + "CoreDNS-".len();
    let text = log[at..].split_whitespace().next()?;
    let mut parts = text.split(['.', '-', '+']).map(str::parse::<u32>);
    Some((parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?))
}

/// For each of the members at once.
pub(crate) async fn each<'a, T, F: Future<Output = Result<T>>>(
    members: &'a [Member],
    act: impl Fn(&'a Member) -> F,
) -> Result<Vec<T>> {
    try_join_all(members.iter().map(act)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    const COREFILE: &str = ".:53 {\n    errors\n    kubernetes cluster.local in-addr.arpa ip6.arpa {\n       pods insecure\n    }\n}\n";

    #[test]
    fn names_and_clustersets_are_put_into_a_corefile_once() {
        let named = with_names(COREFILE).expect("a Corefile");
        let both = with_clustersets(&named).expect("a Corefile");
        let wanted = ".:53 {\n    errors\n    hosts {\n        10.201.0.1 registry.eu.example\n        \
                      10.201.1.1 registry.us.example\n        10.201.0.2 dynamodb.eu.example\n        \
                      10.201.0.3 discovery.eu.example\n        fallthrough\n    }\n    \
                      kubernetes cluster.local clusterset.local in-addr.arpa ip6.arpa {\n        \
                      multicluster clusterset.local\n       pods insecure\n    }\n}\n";
        assert_eq!(both, wanted);
        let again = with_clustersets(&with_names(&both).expect("a Corefile")).expect("a Corefile");
        assert_eq!(again, wanted);
        assert_eq!(without_clustersets(&again), named);
        assert_eq!(without_clustersets(&named), named);
    }

    #[test]
    fn a_corefile_that_is_not_understood_is_refused() {
        assert!(with_names(".:53 {\n}\n").is_err());
        assert!(with_clustersets(".:53 {\n}\n").is_err());
    }

    #[test]
    fn coredns_is_known_by_what_it_says_at_its_start() {
        let log = "[INFO] plugin/reload: Running\nCoreDNS-1.12.4\nlinux/amd64, go1.26, \n";
        assert_eq!(version(log), Some((1, 12, 4)));
        assert_eq!(version("no version"), None);
    }
}
