//! proto3 JSON: camelCase, enum names, lists also when empty, `Z`, `"30s"`, unknown fields ignored.

use mcs_proto::pb;
use mcs_proto::well_known::{Duration, Timestamp};
use serde_json::json;

#[test]
fn a_cluster_has_the_agreed_json() {
    let cluster = pb::Cluster {
        clusterset: "prod".to_owned(),
        cluster: "east".to_owned(),
        uid: "u-1".to_owned(),
        version: Some(pb::Version { term: 2, seq: 7 }),
        sum: vec![0; 16],
        lease: Some(pb::Lease {
            state: pb::LeaseState::Active.into(),
            renewed_at: Some(Timestamp { seconds: 1_795_978_809, nanos: 0 }),
            duration: Some(Duration { seconds: 30, nanos: 0 }),
        }),
        exports: 1,
        ..pb::Cluster::default()
    };
    let written = json!({
        "clusterset": "prod",
        "cluster": "east",
        "uid": "u-1",
        "region": "",
        "instance": "",
        "build": "",
        "version": {"term": "2", "seq": "7"},
        "sum": "AAAAAAAAAAAAAAAAAAAAAA==",
        "lease": {"state": "LEASE_STATE_ACTIVE", "renewedAt": "2026-11-29T19:00:09Z", "duration": "30s"},
        "exports": 1,
        "endpoints": 0,
    });
    assert_eq!(serde_json::to_value(&cluster).unwrap(), written);
    assert_eq!(serde_json::from_value::<pb::Cluster>(written).unwrap(), cluster);
}

#[test]
fn empty_lists_are_written() {
    assert_eq!(
        serde_json::to_value(pb::ListImportsResponse::default()).unwrap(),
        json!({"imports": [], "nextPageToken": "", "complete": false})
    );
}

/// O62: an unknown JSON field.
#[test]
fn unknown_fields_are_ignored() {
    let key: pb::ServiceKey =
        serde_json::from_value(json!({"namespace": "shop", "name": "cart", "futureField": {"x": 1}}))
            .unwrap();
    assert_eq!(key, pb::ServiceKey { namespace: "shop".to_owned(), name: "cart".to_owned() });
}
