//! Watches: snapshot, changes, resumption, end.

use mcs_core::ids::Region;
use mcs_core::model::{
    Change, Frame, GoodPort, Header, ImportDefinition, IpFamily, MemberState, Object, ObjectKey, Part,
    Participant, Section,
};
use mcs_core::registry::Op;
use mcs_core::version::{Sum, Version};
use mcs_proto::client::WatchStream;
use mcs_proto::status::CallFailed;
use std::sync::Arc;

use crate::started::{
    LEASE, LIMIT, Started, client, endpoints, id, key, leaf, member, prod, put, registration, spec,
};

fn changes(frames: &[Frame]) -> Vec<(&ObjectKey, bool)> {
    frames
        .iter()
        .filter_map(|frame| match frame {
            Frame::Change(change) => Some((&change.key, change.object.is_some())),
            _ => None,
        })
        .collect()
}

/// Reads to the next progress, which says that all is told.
async fn caught_up(stream: &mut WatchStream) -> Vec<Frame> {
    let mut frames = Vec::new();
    loop {
        match stream.next().await.unwrap() {
            Frame::Progress { .. } => return frames,
            frame => frames.push(frame),
        }
    }
}

#[tokio::test]
async fn a_snapshot_tells_members_headers_and_parts() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    let cart = put("cart", 2);
    east.write(std::slice::from_ref(&cart)).await;
    let epoch = registry
        .client
        .register(&east.member, &registration(&east.member, Version::new(1, 3), east.sum))
        .await
        .unwrap()
        .epoch;

    let (_, frames) = registry.watch().await;
    let spec = spec();
    let expected = [
        ObjectKey::Section(id("east")),
        ObjectKey::Header(key("cart")),
        ObjectKey::Part(key("cart"), id("east")),
    ];
    let objects = [
        Object::Section(Section {
            uid: east.member.uid.clone(),
            region: Some(Region::new("eu-west-1").unwrap()),
            state: MemberState::Active,
            whole: true,
            version: Version::new(1, 3),
            sum: [leaf(&cart)].into_iter().collect(),
        }),
        Object::Header(Header {
            definition: ImportDefinition {
                ports: spec.ports,
                ip_families: vec![IpFamily::V4],
                ..ImportDefinition::default()
            },
            participants: vec![Participant {
                cluster: id("east"),
                version: Version::new(1, 2),
                good_ports: vec![GoodPort { import_name: "http".to_owned(), export_name: "http".to_owned() }],
            }],
            conflicts: Vec::new(),
        }),
        Object::Part(Part {
            uid: east.member.uid.clone(),
            version: Version::new(1, 2),
            leaf: leaf(&cart),
            endpoints: Arc::new(endpoints(2)),
        }),
    ];
    let [begin, told @ .., end] = frames.as_slice() else { panic!("{frames:?}") };
    assert_eq!(*begin, Frame::Begin { epoch, absent_grace: LEASE });
    let told: Vec<_> = told
        .iter()
        .map(|frame| match frame {
            Frame::Change(Change { key, object: Some(object), .. }) => (key.clone(), object.clone()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(told, expected.into_iter().zip(objects).collect::<Vec<_>>());
    assert!(matches!(end, Frame::End { complete: false, .. }));
}

#[tokio::test]
async fn a_watch_goes_on_from_its_revision_with_the_changes_alone() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    east.write(&[put("cart", 1), put("till", 1)]).await;
    let (stream, frames) = registry.watch().await;
    let (Some(Frame::Begin { epoch, .. }), Some(Frame::End { revision, .. })) =
        (frames.first(), frames.last())
    else {
        panic!("{frames:?}")
    };
    drop(stream);
    east.write(&[put("cart", 2), Op::Delete { key: key("till") }]).await;

    let resume = async |epoch, revision| {
        registry.client.watch(&prod(), &id("importer"), Some((epoch, revision))).await
    };
    let told = caught_up(&mut resume(*epoch, *revision).await.unwrap()).await;
    let (part, header, section) = (
        |name| ObjectKey::Part(key(name), id("east")),
        ObjectKey::Header(key("till")),
        ObjectKey::Section(id("east")),
    );
    let mut seen = changes(&told);
    seen.sort();
    let mut expected = vec![(&section, true), (&header, false)];
    let (cart, till) = (part("cart"), part("till"));
    expected.extend([(&cart, true), (&till, false)]);
    expected.sort();
    assert_eq!(seen, expected);

    // Another process's revisions mean nothing here, and what this one never reached does not either.
    for (epoch, revision) in [(mcs_core::ids::Epoch(epoch.0 ^ 1), *revision), (*epoch, *revision + 1_000)] {
        let first = resume(epoch, revision).await.unwrap().next().await.unwrap();
        assert!(matches!(first, Frame::Begin { .. }), "{first:?}");
    }
}

#[tokio::test]
async fn a_restarted_registry_is_another_epoch() {
    let mut epochs = Vec::new();
    for _ in 0..2 {
        let registry = Started::new().await;
        let east = member("east", "u-1");
        let registered =
            registry.client.register(&east, &registration(&east, Version::new(1, 1), Sum::EMPTY)).await;
        let (_, frames) = registry.watch().await;
        let Some(Frame::Begin { epoch, .. }) = frames.first() else { panic!("{frames:?}") };
        assert_eq!(registered.unwrap().epoch, *epoch);
        epochs.push(*epoch);
        registry.shutdown.drain();
    }
    assert_ne!(epochs[0], epochs[1]);
}

#[tokio::test]
async fn a_drain_ends_watches_and_syncs_and_then_the_program() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    let (mut watch, _) = registry.watch().await;
    let version = east.next();
    let (_, sync) = registry.client.begin_sync(&east.member, version, &[]).await.unwrap();

    registry.shutdown.drain();
    let ended = async {
        loop {
            if let Err(failed) = watch.next().await {
                return failed;
            }
        }
    };
    let failed = tokio::time::timeout(LIMIT, ended).await.unwrap();
    assert!(matches!(failed, CallFailed::Unavailable { .. }), "{failed}");
    let unfinished = tokio::time::timeout(LIMIT, sync.finish(&[])).await.unwrap();
    assert!(unfinished.is_err());
    tokio::time::timeout(LIMIT, registry.program).await.unwrap().unwrap().unwrap();
    assert!(client(registry.grpc).list_clusters(&prod()).await.is_err());
}

#[tokio::test]
async fn every_watcher_is_told_the_same() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    let mut watches = Vec::new();
    for _ in 0..5 {
        watches.push(registry.watch().await.0);
    }
    east.write(&[put("cart", 1)]).await;
    let mut told = Vec::new();
    for watch in &mut watches {
        let mut frames = Vec::new();
        while frames.len() < 3 {
            match tokio::time::timeout(LIMIT, watch.next()).await.unwrap().unwrap() {
                Frame::Progress { .. } => {}
                frame => frames.push(frame),
            }
        }
        told.push(frames);
    }
    assert!(told.windows(2).all(|pair| pair[0] == pair[1]));
}
