//! proto3 JSON: camelCase, enum names, lists also when empty, `Z`, `"30s"`, unknown fields ignored.

use crate::model::{cluster, frame, key, op, region, sum, uid, version};
use mcs_core::ids::ClustersetId;
use mcs_core::registry::Registration;
use mcs_core::validate::{Dropped, Refusal};
use mcs_proto::convert::{self, Member};
use mcs_proto::frames::steps;
use mcs_proto::pb;
use mcs_proto::pb::op::Act;
use mcs_proto::well_known::{Duration, Timestamp};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_step_of_a_watch_is_read_back_equal(frames in vec(frame(), 0..6)) {
        for step in frames.iter().flat_map(steps) {
            prop_assert_eq!(&read_back(&step), &step);
        }
    }

    #[test]
    fn every_change_is_read_back_equal(ops in vec(op(), 0..6)) {
        for mut op in ops.iter().flat_map(convert::op) {
            // What no calendar shows is shown as its nearest end.
            if let Some(Act::Put(pb::PutExport { spec: Some(spec), .. })) = &mut op.act {
                spec.created_at = spec.created_at.map(|time| Timestamp {
                    seconds: time.seconds % 60_000_000_000,
                    nanos: (time.seconds % 1_000_000_000).abs().try_into().unwrap(),
                });
            }
            let request = pb::WriteRequest { ops: vec![op.clone()], ..pb::WriteRequest::default() };
            prop_assert_eq!(read_back(&request), request);
            let step = pb::SyncRequest { step: Some(pb::sync_request::Step::Op(op)) };
            prop_assert_eq!(read_back(&step), step);
        }
    }

    #[test]
    fn every_registration_and_result_is_read_back_equal(
        cluster in cluster(), uid in uid(), region in of(region()), version in version(), sum in sum(),
        key in key(), text in ".{0,9}", build in "[ -~]{0,9}", span in any::<i64>(), nanos in 0..1_000_000_000_i32
    ) {
        let member = Member { clusterset: ClustersetId::new("prod").unwrap(), cluster, uid: uid.clone() };
        let (instance, build) = ("pod-1".parse().unwrap(), build.parse().unwrap());
        let sent = Registration { uid, region, instance, build, version, sum };
        let request = convert::registration(&member, &sent);
        prop_assert_eq!(read_back(&request), request);

        let dropped = Dropped { address: text.clone(), field: text.clone(), problem: text.clone() };
        let results = [Ok(vec![dropped]), Err(Refusal::new(text.clone(), text))]
            .map(|outcome| convert::result((&key).into(), outcome));
        let response = pb::WriteResponse { results: results.into(), degraded: true };
        prop_assert_eq!(read_back(&response), response);

        let duration = Some(Duration { seconds: span, nanos: if span < 0 { -nanos } else { nanos } });
        let lease = pb::Lease { state: 4, renewed_at: None, duration };
        prop_assert_eq!(read_back(&lease), lease);
    }
}

fn read_back<M: Serialize + DeserializeOwned>(message: &M) -> M {
    serde_json::from_str(&serde_json::to_string(message).unwrap()).unwrap()
}
