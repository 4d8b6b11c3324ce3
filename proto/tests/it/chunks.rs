//! Sets above what one message may carry.

use crate::model::{endpoints, many};
use mcs_core::ids::{ClusterId, ClusterUid, ServiceKey};
use mcs_core::merge::{Exported, merge};
use mcs_core::model::{Change, ExportSpec, Frame, Object, ObjectKey, Part, Port, Protocol};
use mcs_core::registry::Op;
use mcs_core::time::WallMillis;
use mcs_core::version::{Leaf, Version};
use mcs_proto::chunks::{CHUNK_BYTES, SetReader, pack, split};
use mcs_proto::convert::{self, OpReader};
use mcs_proto::frames::{FrameReader, change_steps};
use mcs_proto::lists::join_import;
use mcs_proto::pb;
use proptest::prelude::*;
use prost::Message;
use std::sync::Arc;

/// O19: a set of 30,000 endpoints.
#[test]
fn a_large_set_is_told_in_small_messages_and_is_whole_with_the_last() {
    let set = many(30_000);
    let chunks = split(&set);
    assert!(chunks.len() > 1);
    assert!(chunks.iter().all(|chunk| chunk.encoded_len() <= CHUNK_BYTES));
    let (last, before) = chunks.split_last().unwrap();
    assert!(before.iter().all(|chunk| chunk.more) && !last.more);

    let mut reader = SetReader::default();
    let whole: Vec<_> = chunks.into_iter().map(|chunk| reader.push(Some(chunk))).collect();
    assert_eq!(whole.iter().position(|whole| *whole), Some(whole.len() - 1));
    assert_eq!(reader.finish(), Ok((set, Vec::new())));
}

#[test]
fn a_part_in_chunks_is_one_frame_and_a_break_within_it_is_an_error() {
    let change = Change {
        revision: 9,
        key: ObjectKey::Part(ServiceKey::new("shop", "cart").unwrap(), ClusterId::new("east").unwrap()),
        object: Some(Object::Part(Part {
            uid: ClusterUid::new("u-1").unwrap(),
            version: Version::new(1, 2),
            leaf: Leaf::default(),
            endpoints: Arc::new(many(30_000)),
            changed_at: WallMillis::from_unix_millis(1_700_000_000_123),
        })),
    };
    let steps = change_steps(&change);
    let mut reader = FrameReader::default();
    let read: Vec<_> = steps.iter().filter_map(|step| reader.push(step.clone()).unwrap()).collect();
    assert_eq!(read, [Frame::Change(change)]);

    let mut broken = FrameReader::default();
    assert_eq!(broken.push(steps[0].clone()), Ok(None));
    let other = pb::WatchResponse {
        revision: 10,
        step: Some(pb::watch_response::Step::Progress(pb::WatchProgress { complete: true })),
    };
    assert!(broken.push(other).is_err());
}

/// A thousand clusters with as many ports as there may be, with the longest names.
#[test]
fn a_header_of_many_participants_is_one_frame_and_a_break_within_it_is_an_error() {
    let spec = ExportSpec { ports: (1..=64).map(port).collect(), ..ExportSpec::default() };
    let clusters: Vec<_> =
        (0..1_000).map(|index| ClusterId::new(format!("cluster-{index:03}")).unwrap()).collect();
    let uid = ClusterUid::new("u-1").unwrap();
    let exported = |cluster: &ClusterId| {
        (cluster.clone(), Exported { uid: &uid, version: Version::new(1, 2), spec: &spec })
    };
    let header = merge(&clusters.iter().map(exported).collect()).unwrap();
    let change = Change {
        revision: 9,
        key: ObjectKey::Header(ServiceKey::new("shop", "cart").unwrap()),
        object: Some(Object::Header(header)),
    };
    let steps = change_steps(&change);
    assert!(steps.iter().all(|step| step.encoded_len() <= CHUNK_BYTES + 64 * 1024));
    let mut reader = FrameReader::default();
    let read: Vec<_> = steps.iter().filter_map(|step| reader.push(step.clone()).unwrap()).collect();
    assert_eq!(read, [Frame::Change(change)]);

    let refused = "participants: must follow a header whose `more` is set";
    for wrong in [pb::WatchResponse { revision: 10, ..steps[1].clone() }, steps[0].clone()] {
        let mut broken = FrameReader::default();
        assert_eq!(broken.push(steps[0].clone()), Ok(None));
        assert_eq!(broken.push(wrong).unwrap_err().to_string(), refused);
    }
    let mut broken = FrameReader::default();
    assert_eq!(broken.push(steps[1].clone()).unwrap_err().to_string(), "participants: follow no header");
}

fn port(number: u16) -> Port {
    Port {
        name: format!("{}-{number:02}", "p".repeat(60)),
        protocol: Protocol::Tcp,
        port: number,
        app_protocol: None,
    }
}

#[test]
fn a_stream_that_ends_within_a_set_gives_no_change() {
    let op = Op::PutEndpoints {
        key: ServiceKey::new("shop", "cart").unwrap(),
        leaf: Leaf::default(),
        replaces: None,
        endpoints: Arc::new(many(30_000)),
        changed_at: None,
    };
    let mut reader = OpReader::default();
    let messages = convert::op(&op);
    assert_eq!(reader.push(messages[0].clone()), Ok(None));
    assert!(reader.finish().is_err());

    let mut reader = OpReader::default();
    assert!(reader.push(messages[1].clone()).is_err(), "a chunk that follows nothing");
}

#[test]
fn packed_messages_stay_below_the_limit_and_in_order() {
    let names: Vec<_> = (0..40_000)
        .map(|index| pb::ServiceKey { namespace: "shop".to_owned(), name: format!("service-{index:050}") })
        .collect();
    let packed = pack(names.clone());
    assert!(packed.len() > 1);
    assert!(packed.iter().all(|keys| pb::SyncWants { keys: keys.clone() }.encoded_len() <= CHUNK_BYTES));
    assert_eq!(packed.concat(), names);
}

proptest! {
    #[test]
    fn every_set_is_told_whole(set in endpoints()) {
        let mut reader = SetReader::default();
        for chunk in split(&set) {
            reader.push(Some(chunk));
        }
        prop_assert_eq!(reader.finish(), Ok((set, Vec::new())));
    }
}

#[test]
fn pieces_of_a_listed_import_join_to_one() {
    let part = |endpoints: Option<pb::EndpointSet>| pb::ImportPart {
        cluster: "east".to_owned(),
        region: "eu-west-1".to_owned(),
        endpoint_count: 30_000,
        endpoints,
    };
    let import = |parts| pb::Import {
        key: Some(pb::ServiceKey { namespace: "shop".to_owned(), name: "cart".to_owned() }),
        parts,
        ..pb::Import::default()
    };
    let set = many(30_000);
    let mut joined = Vec::new();
    for chunk in split(&set) {
        join_import(&mut joined, import(vec![part(Some(chunk))]));
    }
    let told = joined[0].parts[0].endpoints.clone();
    assert_eq!(joined, [import(vec![part(told.clone())])]);
    let mut reader = SetReader::default();
    assert!(reader.push(told));
    assert_eq!(reader.finish(), Ok((set, Vec::new())));
}
