//! Slices as Karmada names them.

use crate::service::{PATIENCE, Service};
use crate::slices::services;
use global_discovery_service::Discovery;
use mcs_core::pools::naming::Naming;
use mcs_runtime::kube::testing::{api_server, status};
use mcs_runtime::logs::testing::Logged;
use serde_json::{Value, json};
use std::time::Duration;

/// A slice in a namespace, of the Service that its label names; pods are named.
fn slice(namespace: &str, name: &str, service: &str, port: (&str, u16), pods: &[(&str, &str)]) -> Value {
    let is_six = pods.iter().any(|(_, address)| address.contains(':'));
    let endpoints = pods.iter().map(|(pod, address)| {
        json!({
            "addresses": [address], "conditions": {"ready": true},
            "targetRef": {"kind": "Pod", "name": pod, "namespace": namespace}
        })
    });
    json!({
        "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
        "metadata": {
            "namespace": namespace, "name": name, "resourceVersion": "90",
            "labels": {"kubernetes.io/service-name": service}
        },
        "addressType": if is_six { "IPv6" } else { "IPv4" },
        "ports": [{"name": port.0, "port": port.1, "protocol": "TCP", "appProtocol": "https"}],
        "endpoints": endpoints.collect::<Vec<_>>()
    })
}

/// How often the log has a message, and of which slices.
fn told(logged: &Logged, message: &str) -> Vec<String> {
    let lines = logged.lines().into_iter().map(|line| serde_json::from_str::<Value>(&line).unwrap());
    lines.filter(|line| line["message"] == message).map(|line| line["slice"].to_string()).collect()
}

#[tokio::test]
async fn slices_that_karmada_has_imported_give_pools_and_routers_and_what_cannot_be_read_is_logged_once() {
    let (logged, _guard) = Logged::take_over();
    let (mut api, client) = api_server();
    let discovery = Discovery::Slices { naming: Naming::Karmada, services: Box::new(services()), client };
    let service = Service::start(discovery).await;

    let (router, relay, http) = (("relay", 50051), ("relay", 7000), ("http", 443));
    let of_pool =
        |name: &str, service: &str, port, pods: &[(&str, &str)]| slice("ml", name, service, port, pods);
    let cut = "s".repeat(58);
    let imported = || {
        vec![
            of_pool(
                "imported-east-chat-pool-relay-x1",
                "derived-chat-pool-relay",
                relay,
                &[("r-0", "10.43.1.2")],
            ),
            of_pool(
                "imported-east-chat-pool-relay-x2",
                "derived-chat-pool-relay",
                relay,
                &[("r-0", "fd00::2")],
            ),
            of_pool("imported-east-chat-frontend-x3", "derived-chat-frontend", http, &[("f-0", "10.43.1.9")]),
            of_pool(
                "imported-east-chat-frontend-x4",
                "derived-chat-frontend",
                http,
                &[("f-0", "fd00::9"), ("f-1", "fd00::a")],
            ),
            slice(
                "routing",
                "imported-us-global-router-east-global-router-x5",
                "derived-global-router",
                router,
                &[("gr-0", "10.43.1.5")],
            ),
            // A cluster's own slices are not imported ones.
            of_pool("chat-pool-relay-x6", "chat-pool-relay", relay, &[("r-9", "10.43.1.99")]),
            // The name is cut, as Kubernetes does with a long one.
            of_pool(
                &format!("imported-east-{cut}x7"),
                &format!("derived-{cut}"),
                relay,
                &[("r-0", "10.43.1.3")],
            ),
        ]
    };
    let asked = api.list().await;
    assert_eq!(asked.query("labelSelector"), Some("kubernetes.io/service-name"));
    asked.listed("70", json!(imported()));
    let routers = json!({
        "routers": [{"id": "us-global-router-east/gr-0", "url": "https://10.43.1.5:50051/"}], "complete": true
    });
    service.until_listed("/routers", routers.clone()).await;
    service.register("chat").await;
    let pool = |frontends: Value| {
        json!({"pools": [{
            "key": {"cluster_id": "east", "namespace": "ml", "dgd_name": "chat"},
            "location": {"region": null, "availability_zone": "us-east-2a", "datacenter": null},
            "model": "llama", "capabilities": ["chat"], "capacity": [{"workers": 4}],
            "frontends": frontends, "relay_identities": ["ip:10.43.1.2", "ip:fd00::2"]
        }], "complete": false})
    };
    let both = json!(["https://10.43.1.9/", "https://[fd00::a]/"]);
    assert_eq!(service.list("/pools").await, pool(both.clone()));

    let unreadable = "EndpointSlice cannot be read, and is passed over";
    let told_once = [json!(format!("ml/imported-east-{cut}x7")).to_string()];
    assert_eq!(told(&logged, unreadable), told_once);
    // Neither a change nor a relist tells it again; what it says otherwise is that it is gone in between.
    let watch = api.watch("70").await;
    watch.event("MODIFIED", &imported()[6]);
    watch.event("ERROR", &status(410, None));
    api.list().await.listed("80", json!(imported()));
    let watch = api.watch("80").await;
    watch.event("DELETED", &imported()[3]);
    service.until_listed("/pools", pool(json!(["https://10.43.1.9/"]))).await;
    assert_eq!(told(&logged, unreadable), told_once);
    watch.event("DELETED", &imported()[6]);
    watch.event("ADDED", &imported()[6]);
    let again = async {
        while told(&logged, unreadable).len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, again).await.expect("not told again");
    assert_eq!(service.list("/routers").await, routers);
}
