//! Slices as an API server has them.

use serde_json::{Value, json};

/// A slice as mcs-controller writes it.
pub(crate) fn slice(
    namespace: &str,
    name: &str,
    service: &str,
    port: (&str, u16),
    addresses: &[&str],
) -> Value {
    json!({
        "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
        "metadata": {
            "namespace": namespace, "name": name, "resourceVersion": "90",
            "labels": {
                "multicluster.kubernetes.io/service-name": service,
                "multicluster.kubernetes.io/source-cluster": "east",
                "topology.kubernetes.io/region": "us-east-2"
            }
        },
        "addressType": if addresses.iter().any(|address| address.contains(':')) { "IPv6" } else { "IPv4" },
        "ports": [{"name": port.0, "port": port.1, "protocol": "TCP"}],
        "endpoints": addresses.iter()
            .map(|address| json!({"addresses": [address], "conditions": {"ready": true}}))
            .collect::<Vec<_>>()
    })
}

pub(crate) fn relay(addresses: &[&str]) -> Value {
    slice("ml", "relay", "chat-pool-relay", ("relay", 7000), addresses)
}

pub(crate) fn frontend(addresses: &[&str]) -> Value {
    slice("ml", "frontend", "chat-frontend", ("http", 8000), addresses)
}

pub(crate) fn router(addresses: &[&str]) -> Value {
    slice("routing", "router", "global-router", ("relay", 50051), addresses)
}
