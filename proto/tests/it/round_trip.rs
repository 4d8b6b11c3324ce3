//! What is written reads back equal.

use crate::model::{cluster, frame, key, leaf, op, region, spec, sum, uid, version};
use mcs_core::ids::ClustersetId;
use mcs_core::model::HeldExport;
use mcs_core::registry::Registration;
use mcs_core::validate::{Dropped, Refusal};
use mcs_proto::convert::{self, Member, OpReader, OpResult, ReadOp};
use mcs_proto::frames::{FrameReader, steps};
use mcs_proto::pb;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use prost::Message;
use std::sync::Arc;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_frame_reads_back_equal(frames in vec(frame(), 0..6)) {
        let mut reader = FrameReader::default();
        let mut read = Vec::new();
        for step in frames.iter().flat_map(steps) {
            let step = pb::WatchResponse::decode(&*step.encode_to_vec()).unwrap();
            read.extend(reader.push(step).unwrap());
        }
        prop_assert_eq!(read, frames);
    }

    #[test]
    fn every_change_reads_back_equal(ops in vec(op(), 0..6)) {
        let mut reader = OpReader::default();
        let mut read = Vec::new();
        for message in ops.iter().flat_map(convert::op) {
            let message = pb::Op::decode(&*message.encode_to_vec()).unwrap();
            read.extend(reader.push(message).unwrap());
        }
        let sent: Vec<_> =
            ops.into_iter().map(|op| ReadOp { key: op.key().into(), read: Ok((op, Vec::new())) }).collect();
        prop_assert_eq!(read, sent);
        prop_assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn every_registration_reads_back_equal(
        cluster in cluster(), uid in uid(), region in of(region()), build in "[ -~]{0,9}", version in version(), sum in sum()
    ) {
        let member = Member { clusterset: ClustersetId::new("prod").unwrap(), cluster, uid: uid.clone() };
        let sent = Registration { uid, region, instance: "pod-1".parse().unwrap(), build: build.parse().unwrap(), version, sum };
        let message = convert::registration(&member, &sent);
        prop_assert_eq!(convert::read_registration(message), Ok((member, sent)));
    }

    #[test]
    fn every_result_reads_back_equal(
        key in key(), field in "[ -~]{0,9}", problem in "[ -~]{0,9}", refused in any::<bool>(), held in of((leaf(), spec()))
    ) {
        let outcome = if refused {
            Err(Refusal::new(field, problem))
        } else {
            Ok(vec![Dropped { address: "10.0.0.1".to_owned(), field, problem }])
        };
        let held = held.map(|(leaf, spec)| HeldExport { leaf, spec: Arc::new(spec) });
        let mut message = convert::result((&key).into(), outcome.clone());
        message.held = held.as_ref().map(convert::held_export);
        prop_assert_eq!(convert::read_result(message), Ok(OpResult { key, outcome, held }));
    }

    /// Whatever bytes arrive, reading them ends in a value or an error.
    #[test]
    fn no_bytes_break_a_reader(bytes in vec(any::<u8>(), 0..200)) {
        if let Ok(step) = pb::WatchResponse::decode(&*bytes) {
            let _read = FrameReader::default().push(step);
        }
        if let Ok(op) = pb::Op::decode(&*bytes) {
            let _read = OpReader::default().push(op);
        }
    }
}

#[test]
fn what_cannot_be_read_names_its_field() {
    let request = |change: fn(&mut pb::RegisterRequest)| {
        let mut request = pb::RegisterRequest {
            clusterset: "prod".to_owned(),
            cluster: "east".to_owned(),
            uid: "u-1".to_owned(),
            version: Some(pb::Version { term: 1, seq: 1 }),
            sum: vec![0; 16],
            ..pb::RegisterRequest::default()
        };
        change(&mut request);
        convert::read_registration(request).map(|_| ()).map_err(|error| error.to_string())
    };
    let told = [
        request(|_| {}),
        request(|request| request.clusterset.clear()),
        request(|request| request.cluster = "East".to_owned()),
        request(|request| request.version = None),
        request(|request| request.sum = vec![0; 3]),
        request(|request| request.region = "a region".to_owned()),
        request(|request| request.instance = "pod\n1".to_owned()),
        request(|request| request.build = "1".repeat(254)),
    ];
    let first_words = told.map(|told| told.map_err(|text| text.chars().take(30).collect::<String>()));
    assert_eq!(
        first_words,
        [
            Ok(()),
            Err("clusterset: \"\" must not be emp".to_owned()),
            Err("cluster: \"East\" must consist o".to_owned()),
            Err("version: is missing".to_owned()),
            Err("sum: has 3 bytes, must have 16".to_owned()),
            Err("region: \"a region\" must consis".to_owned()),
            Err("instance: \"pod\\n1\" must consis".to_owned()),
            Err(format!("build: \"{}", "1".repeat(22))),
        ]
    );
}

#[test]
fn one_unreadable_change_is_refused_by_itself() {
    let mut reader = OpReader::default();
    let spec = pb::ExportSpec {
        created_at: Some(mcs_proto::well_known::Timestamp { seconds: 1, nanos: 0 }),
        ports: vec![pb::Port { port: 70_000, ..pb::Port::default() }],
        ..pb::ExportSpec::default()
    };
    let key = pb::ServiceKey { namespace: "shop".to_owned(), name: "cart".to_owned() };
    let put = pb::PutExport { leaf: vec![1; 16], spec: Some(spec), endpoints: None };
    let op = pb::Op { key: Some(key.clone()), act: Some(pb::op::Act::Put(put)), changed_at: None };
    assert_eq!(
        reader.push(op).unwrap(),
        Some(ReadOp { key, read: Err(Refusal::new("spec.ports[0].port", "70000 must be 1 to 65535")) })
    );
    let upper = pb::ServiceKey { namespace: "shop".to_owned(), name: "Cart".to_owned() };
    let op = pb::Op {
        key: Some(upper.clone()),
        act: Some(pb::op::Act::Delete(pb::DeleteExport {})),
        changed_at: None,
    };
    let read = reader.push(op).unwrap().unwrap();
    assert_eq!((read.key, read.read.unwrap_err().field), (upper, "name".to_owned()));
}

#[test]
fn an_endpoint_that_cannot_be_read_is_left_out_and_named() {
    let endpoint = |address: &str| pb::Endpoint { address: address.to_owned(), ..pb::Endpoint::default() };
    let set = pb::EndpointSet {
        groups: vec![pb::EndpointGroup {
            family: pb::IpFamily::Ipv4.into(),
            ports: Vec::new(),
            endpoints: vec![endpoint("10.0.0.1"), endpoint("fd00::1"), endpoint("db-0.example")],
        }],
        more: false,
    };
    let (mut read, mut dropped) = Default::default();
    convert::read_endpoints(set, &mut read, &mut dropped).unwrap();
    let named = |address: &str, problem: &str| Dropped {
        address: address.to_owned(),
        field: "address".to_owned(),
        problem: problem.to_owned(),
    };
    assert_eq!(read.len(), 1);
    assert_eq!(
        dropped,
        [named("fd00::1", "must be an IPv4 address"), named("db-0.example", "must be an IP address")]
    );
}
