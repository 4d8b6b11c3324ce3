//! The REST lists, to the letter.

use mcs_core::registry::Op;
use serde_json::{Value, json};
use std::sync::Arc;

use super::http::get;
use crate::started::{LEASE, Started, key, leaf, put};

pub(crate) fn base64(bytes: &[u8]) -> Value {
    let cluster = mcs_proto::pb::Cluster { sum: bytes.to_vec(), ..Default::default() };
    serde_json::to_value(cluster).unwrap()["sum"].clone()
}

#[tokio::test]
async fn clusters_are_listed_with_their_leases() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    east.write(&[put("cart", 2)]).await;
    registry.pass(std::time::Duration::from_secs(5)).await;
    let expected = json!({
        "clusters": [{
            "clusterset": "prod",
            "cluster": "east",
            "uid": "uid-of-east",
            "region": "eu-west-1",
            "instance": "mcs-controller-0",
            "build": "0.1.0",
            "version": {"term": "1", "seq": "2"},
            "sum": base64(&east.sum.to_bytes()),
            "lease": {"state": "LEASE_STATE_ACTIVE", "renewedAt": "2026-11-29T19:00:04Z", "duration": "60s"},
            "exports": 1,
            "endpoints": 2,
        }],
        "nextPageToken": "",
        "complete": false,
    });
    let listed = get(&registry, "/v1/clustersets/prod/clusters").await;
    assert_eq!(listed, (200, expected));
    registry.pass(LEASE).await;
    let (_, listed) = get(&registry, "/v1/clustersets/prod/clusters").await;
    assert_eq!(listed["clusters"][0]["lease"]["state"], "LEASE_STATE_EXPIRED");
}

#[tokio::test]
async fn imports_are_listed_with_and_without_endpoints() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    east.write(&[put("cart", 1)]).await;
    let expected = |parts: Value| {
        json!({
            "imports": [{
                "key": {"namespace": "shop", "name": "cart"},
                "definition": {
                    "type": "SERVICE_TYPE_CLUSTER_SET_IP",
                    "ports": [{"name": "http", "protocol": "PROTOCOL_TCP", "port": 80}],
                    "sessionAffinity": "SESSION_AFFINITY_NONE",
                    "internalTrafficPolicy": "INTERNAL_TRAFFIC_POLICY_CLUSTER",
                    "ipFamilies": ["IP_FAMILY_IPV4"],
                    "labels": {},
                    "annotations": {},
                },
                "participants": [{
                    "cluster": "east",
                    "version": {"term": "1", "seq": "2"},
                    "goodPorts": [{"importName": "http", "exportName": "http"}],
                    "uid": "uid-of-east",
                }],
                "conflicts": [],
                "parts": [parts],
            }],
            "nextPageToken": "",
            "complete": false,
        })
    };
    let part = json!({"cluster": "east", "region": "eu-west-1", "endpointCount": 1});
    let mut with_endpoints = part.clone();
    with_endpoints["endpoints"] = json!({
        "groups": [{
            "family": "IP_FAMILY_IPV4",
            "ports": [{"name": "http", "protocol": "PROTOCOL_TCP", "port": 8080}],
            "endpoints": [{"address": "10.0.0.0", "ready": true, "zone": "eu-west-1a"}],
        }],
        "more": false,
    });
    assert_eq!(get(&registry, "/v1/clustersets/prod/imports").await.1, expected(part));
    assert_eq!(
        get(&registry, "/v1/clustersets/prod/imports?includeEndpoints=true").await.1,
        expected(with_endpoints)
    );
}

/// Whose ports all differ has no endpoint that anybody reaches.
#[tokio::test]
async fn a_cluster_without_a_port_of_the_import_is_no_part_of_it() {
    let registry = Started::new().await;
    registry.register("east").await.write(&[put("cart", 1)]).await;
    let Op::Put { key, leaf, spec, endpoints, .. } = put("cart", 2) else { panic!() };
    let mut other = (*spec).clone();
    other.ports[0].port = 81;
    let spec = Arc::new(other);
    registry.register("west").await.write(&[Op::Put { key, leaf, spec, endpoints, changed_at: None }]).await;
    let (_, import) = get(&registry, "/v1/clustersets/prod/imports/shop/cart?includeEndpoints=true").await;
    let of_parts = |field: &str| -> Vec<Value> {
        import["parts"].as_array().unwrap().iter().map(|part| part[field].clone()).collect()
    };
    assert_eq!(import["participants"].as_array().unwrap().len(), 2);
    assert_eq!((of_parts("cluster"), of_parts("endpointCount")), (vec![json!("east")], vec![json!(1)]));
}

/// A page goes on at its token, in whatever was written meanwhile.
#[tokio::test]
async fn pages_of_exports_go_on_at_a_service_and_cluster() {
    let registry = Started::new().await;
    let names = ["a", "a-b", "a0", "ab", "b"];
    for cluster in ["east", "east-2", "west"] {
        registry.register(cluster).await.write(&names.map(|name| put(name, 1))).await;
    }
    for of in ["", "&cluster=east-2"] {
        let (mut seen, mut token) = (Vec::new(), String::new());
        loop {
            let path = format!("/v1/clustersets/prod/exports?pageSize=2&pageToken={token}{of}");
            let (_, page) = get(&registry, &path).await;
            let exports = page["exports"].as_array().unwrap();
            let named = |export: &Value| {
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                (text(&export["key"]["name"]), text(&export["cluster"]))
            };
            seen.extend(exports.iter().map(named));
            token = page["nextPageToken"].as_str().unwrap().to_owned();
            if token.is_empty() {
                break;
            }
        }
        let clusters: &[&str] = if of.is_empty() { &["east", "east-2", "west"] } else { &["east-2"] };
        let all = names.iter().flat_map(|name| clusters.iter().map(|id| (name.to_string(), id.to_string())));
        assert_eq!(seen, all.collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn exports_are_listed_by_service_and_cluster() {
    let registry = Started::new().await;
    for cluster in ["west", "east"] {
        registry.register(cluster).await.write(&[put("till", 1), put("cart", 1)]).await;
    }
    let named = |listed: &Value| -> Vec<String> {
        let exports = listed["exports"].as_array().unwrap();
        exports.iter().map(|export| format!("{} {}", export["key"]["name"], export["cluster"])).collect()
    };
    let (_, all) = get(&registry, "/v1/clustersets/prod/exports").await;
    assert_eq!(
        named(&all),
        ["\"cart\" \"east\"", "\"cart\" \"west\"", "\"till\" \"east\"", "\"till\" \"west\""]
    );
    assert_eq!(all["exports"][0]["leaf"], base64(&leaf(&put("cart", 1)).to_bytes()));
    let (_, west) = get(&registry, "/v1/clustersets/prod/exports?cluster=west").await;
    assert_eq!(named(&west), ["\"cart\" \"west\"", "\"till\" \"west\""]);
}

#[tokio::test]
async fn pages_follow_each_other_to_the_end() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    // Names that one string order and the order of keys could tell apart.
    let names = ["a", "a-b", "a0", "ab", "b"];
    let ops: Vec<Op> = names.iter().map(|name| put(name, 1)).collect();
    east.write(&ops).await;
    let mut seen = Vec::new();
    let mut token = String::new();
    loop {
        let path = format!("/v1/clustersets/prod/imports?pageSize=2&pageToken={token}");
        let (_, page) = get(&registry, &path).await;
        let imports = page["imports"].as_array().unwrap();
        assert!(imports.len() <= 2);
        seen.extend(imports.iter().map(|import| import["key"]["name"].as_str().unwrap().to_owned()));
        token = page["nextPageToken"].as_str().unwrap().to_owned();
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(seen, names);
}

/// O07: one number with two protocols stays two ports.
#[tokio::test]
async fn one_port_number_with_two_protocols_is_two_ports() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    let Op::Put { spec, endpoints, .. } = put("dns", 1) else { panic!() };
    let mut both = (*spec).clone();
    let port = |name: &str, protocol| mcs_core::model::Port {
        name: name.to_owned(),
        protocol,
        port: 53,
        ..Default::default()
    };
    both.ports = vec![
        port("dns-tcp", mcs_core::model::Protocol::Tcp),
        port("dns-udp", mcs_core::model::Protocol::Udp),
    ];
    east.write(&[Op::Put {
        key: key("dns"),
        leaf: Default::default(),
        spec: Arc::new(both),
        endpoints,
        changed_at: None,
    }])
    .await;
    let (_, listed) = get(&registry, "/v1/clustersets/prod/imports").await;
    assert_eq!(
        listed["imports"][0]["definition"]["ports"],
        json!([
            {"name": "dns-tcp", "protocol": "PROTOCOL_TCP", "port": 53},
            {"name": "dns-udp", "protocol": "PROTOCOL_UDP", "port": 53},
        ])
    );
}

#[tokio::test]
async fn an_unknown_clusterset_is_an_empty_list_that_says_whether_it_is_complete() {
    let registry = Started::new().await;
    let empty = |complete| {
        let body = json!({"clusters": [], "nextPageToken": "", "complete": complete});
        (200, body)
    };
    assert_eq!(get(&registry, "/v1/clustersets/other/clusters").await, empty(false));
    registry.pass(LEASE).await;
    assert_eq!(get(&registry, "/v1/clustersets/other/clusters").await, empty(true));
}

/// O62: parameters of a later release are ignored.
#[tokio::test]
async fn unknown_parameters_are_ignored() {
    let registry = Started::new().await;
    assert_eq!(get(&registry, "/v1/clustersets/prod/clusters?futureField=1").await.0, 200);
}
