//! The charts, installed as docs/install.md says.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{
    images::{DISCOVERY, MCS, TAG},
    member::Member,
};
use crate::assets::workspace_root;

/// The namespace of registry and controller.
pub(crate) const SYSTEM: &str = "mcs-system";
/// The release of a controller.
pub(crate) const CONTROLLER: &str = "mcs";
/// The release of a registry, and its Deployment and Service.
pub(crate) const REGISTRY: &str = "mcs-registry";
/// The release of the discovery service, and its namespace.
pub(crate) const DISCOVERY_RELEASE: &str = "global-discovery";
/// The clusterset.
pub(crate) const CLUSTERSET: &str = "prod";
/// What lets CoreDNS read ServiceImports, a ClusterRole and its binding.
pub(crate) const COREDNS_ROLE: &str = "mcs-coredns:mcs-system";
/// Hooks included; the first start of a Pod on a busy machine is what takes long.
const LIMIT: &str = "10m";

/// Installs a registry.
pub(crate) async fn install_registry(member: &Member, values: &[&str]) -> Result<()> {
    let own = ["registry.enabled=true", "registry.service.type=LoadBalancer"];
    install(member, REGISTRY, MCS, SYSTEM, &[&own, values].concat()).await
}

/// Installs the controller of a cluster.
pub(crate) async fn install_controller(member: &Member, values: &[&str]) -> Result<()> {
    let ids =
        [format!("controller.clustersetId={CLUSTERSET}"), format!("controller.clusterId={}", member.name())];
    let own = ["controller.enabled=true", &ids[0], &ids[1], "coredns.rbac.create=true"];
    install(member, CONTROLLER, MCS, SYSTEM, &[&own, values].concat()).await
}

/// Installs the discovery service.
pub(crate) async fn install_discovery(member: &Member, values: &[&str]) -> Result<()> {
    install(member, DISCOVERY_RELEASE, DISCOVERY, DISCOVERY_RELEASE, values).await
}

async fn install(
    member: &Member,
    release: &str,
    chart: &str,
    namespace: &str,
    values: &[&str],
) -> Result<()> {
    let image = [format!("image.repository={chart}"), format!("image.tag={TAG}")];
    let image: Vec<_> = image.iter().map(String::as_str).collect();
    let chart = chart_folder(chart);
    let first =
        ["install", release, &chart, "-n", namespace, "--create-namespace", "--wait", "--timeout", LIMIT];
    helm(member, &first, &[&image, values].concat()).await
}

/// Upgrades a release, with the values that it has and these.
pub(crate) async fn upgrade(member: &Member, release: &str, values: &[&str]) -> Result<()> {
    let (chart, namespace) = match release {
        DISCOVERY_RELEASE => (DISCOVERY, DISCOVERY_RELEASE),
        _ => (MCS, SYSTEM),
    };
    let chart = chart_folder(chart);
    let first = [
        "upgrade",
        release,
        &chart,
        "-n",
        namespace,
        "--reset-then-reuse-values",
        "--wait",
        "--timeout",
        LIMIT,
    ];
    helm(member, &first, values).await
}

async fn helm(member: &Member, first: &[&str], values: &[&str]) -> Result<()> {
    let values = values.iter().flat_map(|value| ["--set", value]);
    let arguments: Vec<_> = first.iter().copied().chain(values).collect();
    let ran = member.helm(&arguments).await;
    ran.map(drop).with_context(|| format!("in cluster {}", member.name()))
}

/// Uninstalls a release, hooks included.
pub(crate) async fn uninstall(member: &Member, release: &str, namespace: &str) -> Result<()> {
    let ran = member.helm(&["uninstall", release, "-n", namespace, "--wait", "--timeout", LIMIT]).await;
    ran.map(drop).with_context(|| format!("in cluster {}", member.name()))
}

/// The releases of a cluster that are ours: name and namespace.
pub(crate) async fn releases(member: &Member) -> Result<Vec<(String, String)>> {
    let listed = member.helm(&["list", "--all", "--all-namespaces", "-o", "json"]).await?;
    let listed: Vec<Value> = serde_json::from_str(&listed).context("reading the releases")?;
    let text = |release: &Value, field: &str| release[field].as_str().unwrap_or_default().to_owned();
    let ours = |name: &String| [CONTROLLER, REGISTRY, DISCOVERY_RELEASE].contains(&name.as_str());
    let all = listed.iter().map(|release| (text(release, "name"), text(release, "namespace")));
    Ok(all.filter(|(name, _)| ours(name)).collect())
}

/// A list of the registry in a cluster, over REST and in plaintext.
pub(crate) async fn rest(member: &Member, list: &str) -> Result<Value> {
    let path =
        format!("namespaces/{SYSTEM}/services/{REGISTRY}:8080/proxy/v1/clustersets/{CLUSTERSET}/{list}");
    let answer = member.get(&path).await?;
    serde_json::from_str(&answer).with_context(|| format!("the list of {list}: {answer}"))
}

/// The clusters that the registry in a cluster lists, dead ones too: when each has renewed, by its id.
pub(crate) async fn renewals(member: &Member) -> Result<BTreeMap<String, String>> {
    let list = rest(member, "clusters").await?;
    let clusters = list["clusters"].as_array().with_context(|| format!("no clusters in {list}"))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let renewal = |cluster: &Value| (text(&cluster["cluster"]), text(&cluster["lease"]["renewedAt"]));
    Ok(clusters.iter().map(renewal).collect())
}

fn chart_folder(chart: &str) -> String {
    workspace_root().join("charts").join(chart).display().to_string()
}
