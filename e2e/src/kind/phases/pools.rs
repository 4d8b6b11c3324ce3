//! Phase 5.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::Scene;
use crate::{
    kind::{
        LONG,
        charts::{DISCOVERY_RELEASE, install_discovery, upgrade},
        member::Member,
        network::each,
        shop::{container, make_namespace, ready_endpoints, ready_pods, scale, servers},
    },
    wait_at_most,
    workload::SERVED,
};

const URL: &str = "http://discovery.eu.example:8080";
const DGD: &str = "my-dgd";
const RELAYS: &str = "my-dgd-pool-relay";
const FRONTENDS: &str = "my-dgd-frontend";
const ROUTERS: &str = "global-router";
/// Where pools and routers are.
const INFERENCE: &str = "inference";
const ROUTING: &str = "routing";
/// The cluster as which Karmada knows `west`.
const KARMADA_WEST: &str = "member-west";

pub(super) async fn run(scene: &Scene<'_>) -> Result<String> {
    let Scene { east, west, north, .. } = scene;
    scene.install_plaintext().await?;
    let values = [
        "service.type=LoadBalancer",
        "poolDiscovery=mcs",
        "router.namespace=routing",
        "router.service=global-router",
        "router.portName=grpc",
    ];
    scene.step("installing the discovery service in east", install_discovery(east, &values)).await?;
    for namespace in [INFERENCE, ROUTING] {
        each(scene.members, |member| make_namespace(member, namespace)).await?;
    }
    let (relays, routers) = ("2 relays, 1 frontend", "2 routers");
    for member in [west, north] {
        let deploying = deploy(member, member.name());
        scene
            .step(&format!("deploying a pool of {relays}, and {routers}, in {}", member.name()), deploying)
            .await?;
    }
    let mut pools = Vec::new();
    let mut routers = Vec::new();
    for member in [north, west] {
        pools.push(pool(member, member.name(), member.plan.region, 2).await?);
        routers.extend(replicas(member, member.name()).await?);
    }
    let listing = lists(east, "pools", Value::from(pools.clone()));
    scene.step("both pools are listed, and the list is complete", listing).await?;
    scene.step("the four routers are listed", lists(east, "routers", sorted(routers))).await?;
    scene.screen.json(&list(east, "pools").await?)?;
    scene.screen.json(&list(east, "routers").await?)?;

    scene.step("scaling the relays of west to 3", scale(west, INFERENCE, RELAYS, 3)).await?;
    pools[1] = pool(west, west.name(), west.plan.region, 3).await?;
    scene.step("the third is listed", lists(east, "pools", Value::from(pools.clone()))).await?;
    scene.step("scaling the relays of north to none", scale(north, INFERENCE, RELAYS, 0)).await?;
    scene.step("the pool of north goes", lists(east, "pools", json!([pools[1]]))).await?;

    scene
        .step(
            "letting the service read Karmada's naming",
            upgrade(east, DISCOVERY_RELEASE, &["poolDiscovery=karmada"]),
        )
        .await?;
    scene.step("writing slices of west as Karmada does", as_karmada(east, west)).await?;
    let relay = [relay(KARMADA_WEST)];
    scene.step("registering that pool", west.apply(&relay)).await?;
    let karmada = pool(west, KARMADA_WEST, "", 3).await?;
    scene
        .step("it is listed, and what mcs-controller wrote is not", lists(east, "pools", json!([karmada])))
        .await?;
    let routers = sorted(replicas(west, KARMADA_WEST).await?);
    scene.step("so are its routers", lists(east, "routers", routers)).await?;
    Ok("2 pools and 4 routers by mcs-controller's slices, 1 pool and 2 routers by Karmada's; scaling followed".to_owned())
}

/// A pool that registers as a cluster, and routers.
async fn deploy(member: &Member, cluster: &str) -> Result<()> {
    let named = format!("--name={}/$(POD)", member.name());
    let (url, pool) = (format!("--url={URL}"), format!("--pool={cluster}/{INFERENCE}/{DGD}"));
    let objects = [
        servers(INFERENCE, RELAYS, "grpc", 2, &["relay", &url, &pool]),
        servers(INFERENCE, FRONTENDS, "http", 1, &["serve", &named]),
        servers(ROUTING, ROUTERS, "grpc", 2, &["serve", &named]),
    ];
    member.apply(&objects.concat()).await
}

/// A Pod that registers the pool of a cluster, and is none of its relays.
fn relay(cluster: &str) -> Value {
    let (url, pool) = (format!("--url={URL}"), format!("--pool={cluster}/{INFERENCE}/{DGD}"));
    let container = container(&["relay", &url, &pool], &[json!({ "name": "grpc", "containerPort": SERVED })]);
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "namespace": INFERENCE, "name": "registers" },
        "spec": { "containers": [container] },
    })
}

/// What is listed of a pool of so many relays.
async fn pool(member: &Member, cluster: &str, region: &str, relays: usize) -> Result<Value> {
    let relays = addresses(&ready_pods(member, INFERENCE, RELAYS, relays).await?);
    let frontends = addresses(&ready_pods(member, INFERENCE, FRONTENDS, 1).await?);
    let region = Some(region).filter(|region| !region.is_empty());
    Ok(json!({
        "key": { "cluster_id": cluster, "namespace": INFERENCE, "dgd_name": DGD },
        "location": { "region": region, "availability_zone": null, "datacenter": null },
        "model": "example/model", "capabilities": ["chat"], "capacity": [{ "workers": 4 }],
        "frontends": frontends.iter().map(|address| format!("http://{address}:{SERVED}/")).collect::<Vec<_>>(),
        "relay_identities": relays.iter().map(|address| format!("ip:{address}")).collect::<Vec<_>>(),
    }))
}

/// What is listed of the routers of a cluster.
async fn replicas(member: &Member, cluster: &str) -> Result<Vec<Value>> {
    let addresses = addresses(&ready_pods(member, ROUTING, ROUTERS, 2).await?);
    let replica = |address: &String| json!({ "id": format!("{cluster}/{address}"), "url": format!("http://{address}:{SERVED}/") });
    Ok(addresses.iter().map(replica).collect())
}

fn sorted(mut items: Vec<Value>) -> Value {
    items.sort_by_key(|item| item["id"].as_str().unwrap_or_default().to_owned());
    items.into()
}

fn addresses(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter().filter_map(|pod| pod.status.as_ref()?.pod_ip.clone()).collect()
}

async fn list(member: &Member, what: &str) -> Result<Value> {
    let service = "global-discovery-service:8080";
    let answer =
        member.get(&format!("namespaces/{DISCOVERY_RELEASE}/services/{service}/proxy/{what}")).await?;
    serde_json::from_str(&answer).with_context(|| format!("the list of {what}: {answer}"))
}

async fn lists(member: &Member, what: &str, wanted: Value) -> Result<()> {
    wait_at_most(LONG, &format!("the {what} {wanted}"), async || {
        let list = list(member, what).await?;
        ensure!(list[what] == wanted && list["complete"] == true, "{list}");
        Ok(())
    })
    .await
}

/// The slices of a cluster, named as Karmada names them.
async fn as_karmada(to: &Member, from: &Member) -> Result<()> {
    let mut objects = Vec::new();
    for (namespace, service, port, count) in
        [(INFERENCE, RELAYS, "grpc", 3), (INFERENCE, FRONTENDS, "http", 1), (ROUTING, ROUTERS, "grpc", 2)]
    {
        let pods = ready_pods(from, namespace, service, count).await?;
        objects.push(karmada_slice(namespace, KARMADA_WEST, service, port, &addresses(&pods)));
    }
    // They stand beside those of mcs-controller.
    let ours = ready_endpoints(to, INFERENCE, RELAYS).await?;
    ensure!(ours.len() == 3, "east has imported {ours:?}");
    to.apply(&objects).await
}

/// A slice as Karmada brings it to a cluster.
pub(super) fn karmada_slice(
    namespace: &str,
    cluster: &str,
    service: &str,
    port: &str,
    addresses: &BTreeSet<String>,
) -> Value {
    let endpoint = |address: &String| json!({ "addresses": [address], "conditions": { "ready": true, "serving": true, "terminating": false } });
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "namespace": namespace, "name": format!("imported-{cluster}-{service}-b2c4d"),
            "labels": {
                "kubernetes.io/service-name": format!("derived-{service}"),
                "endpointslice.kubernetes.io/managed-by": "endpointslice-dispatch-controller.karmada.io",
            },
        },
        "addressType": "IPv4",
        "endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": [{ "name": port, "port": SERVED, "protocol": "TCP" }],
    })
}
