//! Watches: snapshot, changes, resumption, end.

use mcs_core::ids::{Build, Region};
use mcs_core::model::{
    Change, Conflict, ConflictField, ExportSpec, Frame, GoodPort, Header, ImportDefinition, IpFamily,
    MemberState, Object, ObjectKey, Part, PartSet, Participant, Port, Section, Since,
};
use mcs_core::registry::Op;
use mcs_core::time::{Timestamp, WallTime};
use mcs_core::version::{Leaf, Sum, Version};
use mcs_core::view::{Decision, Source, View};
use mcs_proto::client::WatchStream;
use mcs_proto::frames::FrameReader;
use mcs_proto::lists::join_import;
use mcs_proto::pb;
use mcs_proto::pb::imports_client::ImportsClient;
use mcs_proto::status::CallFailed;
use std::sync::Arc;
use tonic::transport::Endpoint;

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
        .by
        .epoch
        .unwrap();

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
                uid: east.member.uid.clone(),
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
            changed_at: None,
        }),
    ];
    let [begin, told @ .., end] = frames.as_slice() else { panic!("{frames:?}") };
    assert_eq!(
        *begin,
        Frame::Begin { epoch, absent_grace: LEASE, build: Build::new(mcs_runtime::version()).unwrap() }
    );
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
        registry.client.watch(&prod(), &id("importer"), Some((epoch, revision)), Since::default()).await
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
        assert_eq!(registered.unwrap().by.epoch, Some(*epoch));
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

/// A registry that restarts: watchers say what they have, and are told no endpoint again.
#[tokio::test]
async fn a_watcher_is_not_told_again_what_it_has_by_the_registry_that_comes_after() {
    let (cart, till) = (put("cart", 2), put("till", 3));
    let mut view = View::new(id("importer"));
    view.own_listed();
    let take = |view: &mut View, frame: Frame| view.handle_frame(frame, Timestamp::ZERO).unwrap();

    let first = Started::new().await;
    let mut east = first.register("east").await;
    east.write(&[cart.clone(), till.clone()]).await;
    first.watch().await.1.into_iter().for_each(|frame| take(&mut view, frame));
    let dirty: Vec<_> = std::iter::from_fn(|| view.next_dirty()).collect();
    let told: Vec<_> = dirty.iter().map(|key| view.decide(key)).collect();
    assert!(matches!(&told[..], [Decision::Apply(_), Decision::Apply(_)]), "{told:?}");
    first.shutdown.drain();

    let second = Started::new().await;
    let since = view.since();
    assert_eq!(since.sets.keys().collect::<Vec<_>>(), [&id("east")]);
    let mut watch = second.client.watch(&prod(), &id("importer"), None, since).await.unwrap();
    let registration = registration(&east.member, Version::new(2, 1), east.sum);
    second.client.register(&east.member, &registration).await.unwrap();
    let names = [(key("cart"), leaf(&cart)), (key("till"), leaf(&till))];
    let (wants, sync) = second.client.begin_sync(&east.member, Version::new(2, 2), &names).await.unwrap();
    assert_eq!(wants.len(), 2);
    sync.finish(&[cart, till]).await.unwrap();

    let mut seen = Vec::new();
    let whole = |frame: &Frame| match frame {
        Frame::Change(Change { object: Some(Object::Section(section)), .. }) => section.whole,
        _ => false,
    };
    loop {
        let frame = tokio::time::timeout(LIMIT, watch.next()).await.unwrap().unwrap();
        let last = whole(&frame);
        seen.push(frame.clone());
        take(&mut view, frame);
        if last {
            break;
        }
    }
    assert!(
        !seen.iter().any(|frame| matches!(frame, Frame::Change(Change { key: ObjectKey::Part(..), .. }))),
        "{seen:?}"
    );
    let set = PartSet { uid: east.member.uid.clone(), sum: east.sum };
    let kept = Frame::Kept { cluster: id("east"), set, version: Version::new(2, 2) };
    assert!(seen.contains(&kept), "{seen:?}");
    let mut now: Vec<_> = [key("cart"), key("till")].iter().map(|key| view.decide(key)).collect();
    for decision in &mut now {
        let Decision::Apply(wanted) = decision else { panic!("{decision:?}") };
        let Some(Source::Show(shown)) = wanted.sources.get_mut(&id("east")) else { panic!("{wanted:?}") };
        assert_eq!(shown.version.replace(Version::new(1, 2)), Some(Version::new(2, 2)));
    }
    assert_eq!(now, told);
}

#[tokio::test]
async fn what_a_watcher_has_is_read_with_its_fields() {
    let registry = Started::new().await;
    let channel = Endpoint::from_shared(format!("http://{}", registry.grpc)).unwrap().connect_lazy();
    let mut client = ImportsClient::new(channel);
    let good = || pb::PartSet { cluster: "east".to_owned(), uid: "u-1".to_owned(), sum: vec![1; 16] };
    let cases = [
        (pb::PartSet { cluster: "East".to_owned(), ..good() }, "since[1].cluster: \"East\" must consist"),
        (pb::PartSet { uid: String::new(), ..good() }, "since[1].uid: \"\" must not be empty"),
        (pb::PartSet { sum: vec![1; 3], ..good() }, "since[1].sum: has 3 bytes, must have 16"),
    ];
    for (set, problem) in cases {
        let request = pb::WatchRequest {
            clusterset: "prod".to_owned(),
            cluster: "importer".to_owned(),
            since: vec![good(), set],
            ..pb::WatchRequest::default()
        };
        let refused = client.watch(request).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
        assert!(refused.message().starts_with(problem), "{}", refused.message());
    }
    // What is beyond the most clusters is told again; refusing it would keep the watcher out.
    let request = pb::WatchRequest {
        clusterset: "prod".to_owned(),
        cluster: "importer".to_owned(),
        since: (0..2_000).map(|number| pb::PartSet { cluster: format!("c{number}"), ..good() }).collect(),
        ..pb::WatchRequest::default()
    };
    client.watch(request).await.unwrap();
}

/// Accepted, in conflict, with whom, and expired: a controller learns it of its own exports by the watch, without any
/// message of its own.
#[tokio::test]
async fn the_state_of_its_own_exports_reaches_a_cluster_by_its_watch() {
    let registry = Started::new().await;
    let (mut east, mut west) = (registry.register("east").await, registry.register("west").await);
    let mut view = View::new(id("east"));
    let client = registry.client.clone();
    let mut watch = client.watch(&prod(), &id("east"), None, Since::default()).await.unwrap();
    let mut parts = 0;
    let until =
        async |watch: &mut WatchStream, view: &mut View, parts: &mut usize, is_so: fn(&View) -> bool| {
            while !is_so(view) {
                let frame = tokio::time::timeout(LIMIT, watch.next()).await.unwrap().unwrap();
                *parts +=
                    usize::from(matches!(&frame, Frame::Change(Change { key: ObjectKey::Part(..), .. })));
                view.handle_frame(frame, Timestamp::ZERO).unwrap();
            }
        };
    east.write(&[put("cart", 1)]).await;
    until(&mut watch, &mut view, &mut parts, |view| view.own_conflicts(&key("cart")).is_some()).await;
    let accepted: &[Conflict] = &[];
    assert_eq!(
        (view.own_conflicts(&key("cart")), parts),
        (Some(accepted), 0),
        "its own endpoints are not told"
    );

    let mut other = spec();
    other.created_at = WallTime::from_unix_secs(other.created_at.unix_secs() - 1);
    other.ports[0].port = 81;
    let (other, endpoints) = (Arc::new(other), Arc::new(endpoints(1)));
    let leaf = Leaf::of(&key("cart"), &other, &endpoints);
    west.write(&[Op::Put { key: key("cart"), leaf, spec: other, endpoints, changed_at: None }]).await;
    let conflicts =
        |view: &View| view.own_conflicts(&key("cart")).is_some_and(|conflicts| !conflicts.is_empty());
    until(&mut watch, &mut view, &mut parts, conflicts).await;
    let conflict = Conflict { field: ConflictField::Ports, winner: id("west"), differing: 1, clusters: 2 };
    assert_eq!(view.own_conflicts(&key("cart")), Some(&[conflict][..]));

    let own = view.own_section().unwrap();
    assert_eq!((&own.uid, own.state, own.whole), (&east.member.uid, MemberState::Active, true));
    registry.pass(LEASE / 2).await;
    west.client.renew(&west.member, west.version(), west.sum).await.unwrap();
    registry.pass(LEASE / 2).await;
    let expired = |view: &View| view.own_section().is_some_and(|own| own.state == MemberState::Expired);
    until(&mut watch, &mut view, &mut parts, expired).await;
    assert!(view.own_conflicts(&key("cart")).is_some(), "it stays in the merge");
}

/// A quarter of gRPC's default limit, and what is around it.
const SMALL: usize = 1024 * 1024 + 128 * 1024;

#[tokio::test]
async fn no_message_grows_with_the_clusters_that_export_a_service() {
    const CLUSTERS: usize = 130;
    let registry = Started::with(|policy| policy.max_clusters = CLUSTERS).await;
    let Op::Put { key: cart, leaf, endpoints, .. } = put("cart", 0) else { panic!() };
    let port = |port: u16| Port { name: format!("{}-{port:02}", "p".repeat(60)), port, ..Port::default() };
    let many_ports = Arc::new(ExportSpec { ports: (1..=64).map(port).collect(), ..spec() });
    for index in 0..CLUSTERS {
        let mut cluster = registry.register(&format!("cluster-{index:03}")).await;
        let spec = many_ports.clone();
        cluster
            .write(&[Op::Put {
                key: cart.clone(),
                leaf,
                spec,
                endpoints: endpoints.clone(),
                changed_at: None,
            }])
            .await;
    }

    let channel = Endpoint::from_shared(format!("http://{}", registry.grpc)).unwrap();
    let mut client = ImportsClient::new(channel.connect().await.unwrap()).max_decoding_message_size(SMALL);
    let request = pb::WatchRequest {
        clusterset: "prod".to_owned(),
        cluster: "importer".to_owned(),
        ..Default::default()
    };
    let mut steps = client.watch(request).await.unwrap().into_inner();
    let mut reader = FrameReader::default();
    let header = loop {
        let frame = reader.push(steps.message().await.unwrap().unwrap()).unwrap();
        if let Some(Frame::Change(Change { object: Some(Object::Header(header)), .. })) = frame {
            break header;
        }
    };
    assert_eq!(header.participants.len(), CLUSTERS);

    let mut request = pb::ListImportsRequest { clusterset: "prod".to_owned(), ..Default::default() };
    let mut listed = Vec::new();
    loop {
        let page = client.list_imports(request.clone()).await.unwrap().into_inner();
        page.imports.into_iter().for_each(|import| join_import(&mut listed, import));
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            break;
        }
    }
    let told: Vec<_> = header.participants.iter().map(pb::Participant::from).collect();
    assert_eq!((listed.len(), &listed[0].participants), (1, &told));
}
