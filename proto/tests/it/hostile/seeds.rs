//! What mutations begin with: scripts in which all goes well, and a few in which it does not.

use super::watch::{id, key, uid};
use super::{answers, members, watch};
use mcs_core::ids::{Build, ClustersetId, Epoch, Region};
use mcs_core::merge::{Exported, merge};
use mcs_core::model::{
    Change, Endpoint, EndpointMap, EndpointPort, EndpointSet, ExportSpec, Frame, GroupKey, Header,
    HeldExport, IpFamily, MemberState, Object, ObjectKey, Part, PartSet, Port, Protocol, Section,
    SessionAffinity,
};
use mcs_core::registry::{Op, Refused, Registration};
use mcs_core::time::WallTime;
use mcs_core::validate::{Dropped, Refusal};
use mcs_core::version::{Leaf, Sum, Version};
use mcs_proto::convert::{self, Member};
use mcs_proto::frames::steps;
use mcs_proto::pb;
use mcs_proto::pb::sync_request::Step as Ask;
use mcs_proto::pb::sync_response::Step as Tell;
use mcs_proto::pb::watch_response::Step;
use mcs_proto::status;
use prost::Message;
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The target of `cargo fuzz`, a name, and the content.
pub type Seed = (&'static str, &'static str, Vec<u8>);

/// All seeds of the targets of this crate.
pub fn all() -> Vec<Seed> {
    let mut seeds = Vec::new();
    for (name, script) in [("life", life()), ("conflict", conflict()), ("refused", refused())] {
        seeds.push(("registry_messages", name, script.encode_to_vec()));
    }
    for (name, script) in [("snapshot", snapshot()), ("changes", changes()), ("leave", leave())] {
        seeds.push(("watch_frames", name, script.encode_to_vec()));
    }
    for (name, script) in [("accepted", accepted()), ("failing", failing())] {
        seeds.push(("answers", name, script.encode_to_vec()));
    }
    seeds.extend(json());
    for (name, text) in [
        ("https", "https://registry.example"),
        ("port", "http://10.0.0.1:9090/"),
        ("ipv6", "http://[fd00::1]:9090"),
        ("idn", "https://b\u{fc}cher.example:443"),
        ("surplus", "https://me:secret@registry.example/path?query#fragment"),
        ("version", "1795978809.17"),
        ("cluster", "use1-a"),
        ("region", "eu-west-1_b.2"),
    ] {
        seeds.push(("urls_and_flags", name, text.as_bytes().to_vec()));
    }
    seeds
}

/// A cluster's life: it registers, writes all kinds of changes, renews, syncs, falls silent, comes back and leaves.
fn life() -> members::Script {
    use members::Act;
    let cart = put("cart", 80, &["10.0.0.1", "10.0.0.2"]);
    let Op::Put { leaf: cart_leaf, .. } = cart else { return members::Script::default() };
    let more = Op::PutEndpoints {
        key: key("cart"),
        leaf: Leaf::from_bytes([7; 16]),
        replaces: Some(cart_leaf),
        endpoints: dual(),
        changed_at: None,
    };
    let names = vec![name("cart", cart_leaf), name("till", Leaf::from_bytes([9; 16]))];
    let sync = [
        Ask::Begin(pb::SyncBegin {
            clusterset: "prod".to_owned(),
            cluster: "east".to_owned(),
            uid: "uid-of-east".to_owned(),
            version: Some(version(5)),
        }),
        Ask::Names(pb::SyncNames { names }),
        Ask::NamesEnd(pb::SyncNamesEnd {}),
        Ask::Op(convert::op(&cart).remove(0)),
        Ask::Op(convert::op(&put("till", 443, &["fd00::1"])).remove(0)),
        Ask::End(pb::SyncEnd {}),
    ];
    script([
        Act::Register(register("east", 1)),
        Act::Write(write("east", 2, &[cart, put("till", 443, &["fd00::1"])])),
        Act::Write(write("east", 3, &[more, Op::Delete { key: key("till") }])),
        Act::Renew(renew("east", 3)),
        Act::Wait(10_000),
        Act::Sync(members::Syncs {
            stream: sync.into_iter().map(|step| pb::SyncRequest { step: Some(step) }).collect(),
        }),
        Act::Wait(40_000),
        Act::Renew(renew("east", 5)),
        Act::Remove(remove("east", "uid-of-east", false)),
    ])
}

/// Three clusters that export one Service, each otherwise; one goes.
fn conflict() -> members::Script {
    use members::Act;
    let mut acts = Vec::new();
    for (cluster, port) in [("east", 80), ("west", 8080), ("north", 80)] {
        acts.push(Act::Register(register(cluster, 1)));
        acts.push(Act::Write(write(cluster, 2, &[put("cart", port, &["10.0.0.1"])])));
    }
    acts.push(Act::Remove(remove("west", "", true)));
    acts.push(Act::Wait(61_000));
    script(acts)
}

/// Chunks of one set, a change that is refused, an endpoint that is left out, and a stream that breaks.
fn refused() -> members::Script {
    use members::Act;
    let mut chunked = write("east", 2, &[put("cart", 80, &["10.0.0.1", "127.0.0.1"]), put("till", 0, &[])]);
    let mut chunk = chunked.stream[0].ops[0].clone();
    if let Some(pb::op::Act::Put(put)) = &mut chunked.stream[0].ops[0].act
        && let Some(set) = &mut put.endpoints
    {
        set.more = true;
        chunk.act = Some(pb::op::Act::Chunk(pb::EndpointSet { more: false, ..set.clone() }));
    }
    chunked.stream.insert(1, pb::WriteRequest { ops: vec![chunk], ..Default::default() });
    let rest = chunked.stream[0].ops.split_off(1);
    chunked.stream.push(pb::WriteRequest { ops: rest, ..Default::default() });
    let mut broken = chunked.clone();
    broken.stream.truncate(1);
    script([Act::Register(register("east", 1)), Act::Write(chunked), Act::Write(broken)])
}

fn script(acts: impl IntoIterator<Item = members::Act>) -> members::Script {
    members::Script { calls: acts.into_iter().map(|act| members::Call { act: Some(act) }).collect() }
}

fn register(cluster: &str, seq: u64) -> pb::RegisterRequest {
    let member = member(cluster);
    let registration = Registration {
        uid: member.uid.clone(),
        region: Region::new("eu-west-1").ok(),
        instance: "mcs-controller-0".parse().unwrap(),
        build: "0.1.0".parse().unwrap(),
        version: Version::new(1, seq),
        sum: Sum::EMPTY,
    };
    convert::registration(&member, &registration)
}

fn renew(cluster: &str, seq: u64) -> pb::RenewRequest {
    pb::RenewRequest {
        clusterset: "prod".to_owned(),
        cluster: cluster.to_owned(),
        uid: format!("uid-of-{cluster}"),
        version: Some(version(seq)),
        sum: vec![0; 16],
        held_imports: Some(pb::HeldImports {
            total: 2,
            first: vec![pb::ServiceKey { namespace: "shop".to_owned(), name: "cart".to_owned() }],
        }),
        refused_exports: Some(pb::RefusedExports {
            total: 1,
            first: vec![pb::RefusedExport {
                key: Some(pb::ServiceKey { namespace: "shop".to_owned(), name: "till".to_owned() }),
                field: "ports[0].name".to_owned(),
                problem: "is too long".to_owned(),
            }],
        }),
    }
}

fn write(cluster: &str, seq: u64, ops: &[Op]) -> members::Writes {
    let message = pb::WriteRequest {
        clusterset: "prod".to_owned(),
        cluster: cluster.to_owned(),
        uid: format!("uid-of-{cluster}"),
        version: Some(version(seq)),
        ops: ops.iter().flat_map(convert::op).collect(),
    };
    members::Writes { stream: vec![message] }
}

fn remove(cluster: &str, uid: &str, force: bool) -> pb::RemoveClusterRequest {
    pb::RemoveClusterRequest {
        clusterset: "prod".to_owned(),
        cluster: cluster.to_owned(),
        uid: uid.to_owned(),
        force,
        only_uid: String::new(),
    }
}

/// A snapshot of three clusters as the view's own imports have them, whole and complete.
fn snapshot() -> watch::Script {
    let mut events = vec![frame(&begin(1))];
    for (cluster, seq) in [("alpha", 5), ("beta", 3), (watch::OWN, 1)] {
        events.push(frame(&section(cluster, MemberState::Active, seq)));
    }
    events.push(frame(&header("cart", &[("alpha", 5), ("beta", 3)])));
    events.push(frame(&header("till", &[("alpha", 2), (watch::OWN, 1)])));
    events.extend([
        frame(&part("cart", "alpha", 5)),
        frame(&part("cart", "beta", 3)),
        frame(&part("till", "alpha", 2)),
    ]);
    events.push(frame(&Frame::End { revision: 9, complete: true }));
    events.push(what(watch::What::Reconcile(true)));
    watch::Script { events }
}

/// Changes after the snapshot: a port, a part, a header that goes; then another registry that knows less.
fn changes() -> watch::Script {
    let mut script = snapshot();
    let gone = |revision, key| frame(&Frame::Change(Change { revision, key, object: None }));
    script.events.extend([
        frame(&part("cart", "beta", 4)),
        frame(&section("beta", MemberState::Active, 4)),
        what(watch::What::Reconcile(true)),
        gone(12, ObjectKey::Part(key("cart"), id("beta"))),
    ]);
    script.events.extend(in_two(&header("cart", &[("alpha", 5), ("beta", 4)])));
    script.events.extend([
        what(watch::What::Reconcile(true)),
        frame(&header("cart", &[("alpha", 5)])),
        what(watch::What::Reconcile(true)),
        what(watch::What::Broken(true)),
        frame(&begin(2)),
        frame(&section("alpha", MemberState::Syncing, 0)),
        frame(&kept("alpha", 6)),
        frame(&section(watch::OWN, MemberState::Active, 1)),
        frame(&Frame::End { revision: 3, complete: false }),
        what(watch::What::Reconcile(true)),
        frame(&Frame::Progress { revision: 3, complete: true }),
        what(watch::What::Wait(31_000)),
        what(watch::What::Reconcile(true)),
    ]);
    script
}

/// A cluster whose lease runs out, and one that is removed.
fn leave() -> watch::Script {
    let mut script = snapshot();
    let gone = |revision, key| frame(&Frame::Change(Change { revision, key, object: None }));
    script.events.extend([
        frame(&section("beta", MemberState::Expired, 3)),
        gone(11, ObjectKey::Section(id("alpha"))),
        gone(12, ObjectKey::Header(key("till"))),
        what(watch::What::Reconcile(true)),
    ]);
    script
}

fn what(what: watch::What) -> watch::Event {
    watch::Event { what: Some(what) }
}

fn frame(frame: &Frame) -> watch::Event {
    what(watch::What::Step(steps(frame).remove(0)))
}

/// A header whose last participant is told after it.
fn in_two(header: &Frame) -> [watch::Event; 2] {
    let mut first = steps(header).remove(0);
    let Some(Step::Header(told)) = &mut first.step else { panic!() };
    told.more = true;
    let participants = vec![told.participants.pop().unwrap()];
    let step = Some(Step::Participants(pb::Participants { participants, more: false }));
    let last = pb::WatchResponse { revision: first.revision, step };
    [first, last].map(|step| what(watch::What::Step(step)))
}

fn begin(epoch: u128) -> Frame {
    let build = Build::new("0.1.0").unwrap();
    Frame::Begin { epoch: Epoch(epoch), absent_grace: Duration::from_secs(30), build }
}

fn section(cluster: &str, state: MemberState, seq: u64) -> Frame {
    let section = Section {
        uid: uid(cluster),
        region: Region::new("eu-west-1").ok(),
        state,
        whole: state != MemberState::Syncing,
        version: Version::new(1, seq),
        sum: Sum::EMPTY,
    };
    change(ObjectKey::Section(id(cluster)), Object::Section(section))
}

fn header(name: &str, participants: &[(&str, u64)]) -> Frame {
    change(ObjectKey::Header(key(name)), Object::Header(merged(participants)))
}

fn merged(participants: &[(&str, u64)]) -> Header {
    let spec = spec(80);
    let uids: Vec<_> = participants.iter().map(|(cluster, _)| uid(cluster)).collect();
    let mut exports = BTreeMap::new();
    for ((cluster, seq), uid) in participants.iter().zip(&uids) {
        exports.insert(id(cluster), Exported { uid, version: Version::new(1, *seq), spec: &spec });
    }
    merge(&exports).unwrap()
}

fn part(name: &str, cluster: &str, seq: u64) -> Frame {
    let part = Part {
        uid: uid(cluster),
        version: Version::new(1, seq),
        leaf: Leaf::default(),
        endpoints: endpoints(&["10.0.0.1"]),
        changed_at: None,
    };
    change(ObjectKey::Part(key(name), id(cluster)), Object::Part(part))
}

fn kept(cluster: &str, seq: u64) -> Frame {
    let set = PartSet { uid: uid(cluster), sum: Sum::EMPTY };
    Frame::Kept { cluster: id(cluster), set, version: Version::new(1, seq) }
}

fn change(key: ObjectKey, object: Object) -> Frame {
    Frame::Change(Change { revision: 10, key, object: Some(object) })
}

/// A registry that takes everything but one export and one endpoint.
fn accepted() -> answers::Script {
    use answers::What;
    let cart = pb::ServiceKey::from(&key("cart"));
    let till = pb::ServiceKey::from(&key("till"));
    let dropped = Dropped {
        address: "127.0.0.1".to_owned(),
        field: "addresses".to_owned(),
        problem: "must not be a loopback address".to_owned(),
    };
    let results = vec![
        convert::result(cart.clone(), Ok(vec![dropped])),
        convert::result(till.clone(), Err(Refusal::new("ports[0].name", "\"Web\" must be a label"))),
    ];
    let held = HeldExport { leaf: Leaf::from_bytes([3; 16]), spec: Arc::default() };
    let held = convert::held_export(&held);
    let sync = [
        Tell::Wants(pb::SyncWants { keys: vec![cart, till] }),
        Tell::WantsEnd(pb::SyncWantsEnd {}),
        Tell::Result(results[0].clone()),
        Tell::Result(pb::OpResult { held: Some(held), ..results[1].clone() }),
        Tell::Done(pb::SyncDone { deleted: 1, degraded: false }),
    ];
    let stream = sync.into_iter().map(|step| pb::SyncResponse { step: Some(step) }).collect();
    told([
        (0, What::Registered(registered(true))),
        (100, What::Synced(answers::Answers { stream })),
        (200, What::Written(pb::WriteResponse { results, degraded: false })),
        (10_000, What::Renewed(renewed())),
        (10_000, What::Renewed(renewed())),
    ])
}

/// A registry that refuses in all ways that it has.
fn failing() -> answers::Script {
    use answers::What;
    let cluster = id("east");
    let refused = [
        Refused::OldTerm { cluster: cluster.clone(), term: 3, floor: 4 },
        Refused::Claimed { cluster: cluster.clone(), holder: uid("a"), caller: uid("b") },
        Refused::Unknown { cluster: cluster.clone() },
        Refused::Active { cluster: cluster.clone() },
        Refused::TooManyClusters { limit: 3 },
        Refused::NoSync { cluster, version: Version::new(1, 2) },
    ];
    let failed = |status: tonic::Status| {
        What::Failed(answers::Trailers {
            code: status.code().into(),
            message: status.message().to_owned(),
            details: status.details().to_vec(),
        })
    };
    let refused = refused.iter().map(status::refused);
    let others = [
        status::invalid(&Refusal::new("uid", "must not be empty")),
        status::unavailable("this registry is shutting down"),
        tonic::Status::permission_denied("no"),
    ];
    let mut script = told(refused.chain(others).map(|status| (6_000, failed(status))));
    script.answers.extend(told([(6_000, What::Registered(registered(false)))]).answers);
    script
}

fn told(answers: impl IntoIterator<Item = (u32, answers::What)>) -> answers::Script {
    let told = |(after, what)| answers::Told { after, what: Some(what) };
    answers::Script { answers: answers.into_iter().map(told).collect() }
}

fn registered(differs: bool) -> pb::RegisterResponse {
    pb::RegisterResponse {
        epoch: vec![1; 16],
        lease_duration: Some(Duration::from_secs(30).into()),
        build: "0.1.0".to_owned(),
        differs,
    }
}

fn renewed() -> pb::RenewResponse {
    pb::RenewResponse {
        state: pb::LeaseState::Active.into(),
        differs: false,
        degraded: false,
        lease_duration: Some(Duration::from_secs(30).into()),
        epoch: vec![1; 16],
        build: "0.2.0".to_owned(),
    }
}

/// One text for each kind of message, by its place in [`super::json::play`].
fn json() -> Vec<Seed> {
    let write = write("east", 2, &[put("cart", 80, &["10.0.0.1", "fd00::1"])]).stream.remove(0);
    let op = write.ops[0].clone();
    let result = convert::result(
        pb::ServiceKey::from(&key("cart")),
        Err(Refusal::new("ports[0].name", "\"Web\" must be a label")),
    );
    let export_spec = pb::ExportSpec::from(&spec(80));
    let step = |frame: &Frame| steps(frame).remove(0);
    let list = pb::ListExportsRequest {
        clusterset: "prod".to_owned(),
        cluster: "east".to_owned(),
        include_endpoints: true,
        page_size: 10,
        page_token: "shop/cart/east~1".to_owned(),
    };
    let begin = pb::SyncRequest {
        step: Some(Ask::Begin(pb::SyncBegin {
            clusterset: "prod".to_owned(),
            cluster: "east".to_owned(),
            uid: "uid-of-east".to_owned(),
            version: Some(version(5)),
        })),
    };
    let texts = [
        ("register", 0, text(&register("east", 1))),
        ("renew", 1, text(&renew("east", 1))),
        ("write", 2, text(&write)),
        ("sync", 3, text(&begin)),
        ("remove", 4, text(&remove("east", "", true))),
        ("list", 7, text(&list)),
        ("op", 9, text(&op)),
        ("spec", 10, text(&export_spec)),
        ("result", 11, text(&result)),
        ("section", 13, text(&step(&section("alpha", MemberState::Active, 5)))),
        ("header", 13, text(&step(&header("cart", &[("alpha", 5)])))),
        ("part", 13, text(&step(&part("cart", "alpha", 5)))),
        ("begin", 13, text(&step(&self::begin(1)))),
        ("registered", 17, text(&registered(true))),
        ("twice", 10, r#"{"labels":{"a":"1","a":"2"},"createdAt":"1969-12-31T23:59:58.5Z"}"#.to_owned()),
    ];
    let seed =
        |(name, kind, text): (&'static str, u8, String)| ("json", name, [&[kind], text.as_bytes()].concat());
    texts.into_iter().map(seed).collect()
}

fn text(message: &impl Serialize) -> String {
    serde_json::to_string(message).unwrap()
}

fn put(name: &str, port: u16, addresses: &[&str]) -> Op {
    let (spec, endpoints) = (Arc::new(spec(port)), endpoints(addresses));
    Op::Put {
        key: key(name),
        leaf: Leaf::of(&key(name), &spec, &endpoints),
        spec,
        endpoints,
        changed_at: None,
    }
}

fn spec(port: u16) -> ExportSpec {
    ExportSpec {
        created_at: WallTime::from_unix_secs(1_700_000_000),
        ports: vec![Port {
            name: "http".to_owned(),
            protocol: Protocol::Tcp,
            port,
            app_protocol: Some("kubernetes.io/h2c".to_owned()),
        }],
        session_affinity: SessionAffinity::ClientIp,
        session_affinity_timeout: Some(600),
        traffic_distribution: Some("PreferClose".to_owned()),
        ip_families: vec![IpFamily::V4, IpFamily::V6],
        labels: BTreeMap::from([("app.kubernetes.io/name".to_owned(), "cart".to_owned())]),
        annotations: BTreeMap::from([("example.com/note".to_owned(), "two\nlines".to_owned())]),
        ..ExportSpec::default()
    }
}

fn endpoints(addresses: &[&str]) -> Arc<EndpointSet> {
    let mut set = EndpointMap::default();
    for address in addresses {
        let address: IpAddr = address.parse().unwrap();
        let port = EndpointPort { name: "http".to_owned(), port: Some(8080), ..EndpointPort::default() };
        let endpoint = Endpoint {
            ready: Some(true),
            serving: Some(true),
            terminating: Some(false),
            hostname: Some("web-0".to_owned()),
            zone: Some("eu-west-1a".to_owned()),
            node_name: Some("node-1.example".to_owned()),
        };
        set.insert(GroupKey::new(IpFamily::of(address), [port]), address, endpoint);
    }
    Arc::new(set.pack())
}

fn dual() -> Arc<EndpointSet> {
    endpoints(&["10.0.0.3", "fd00::3"])
}

fn name(name: &str, leaf: Leaf) -> pb::SyncName {
    pb::SyncName { key: Some((&key(name)).into()), leaf: leaf.to_bytes().to_vec() }
}

fn version(seq: u64) -> pb::Version {
    pb::Version { term: 1, seq }
}

fn member(cluster: &str) -> Member {
    Member { clusterset: ClustersetId::new("prod").unwrap(), cluster: id(cluster), uid: uid(cluster) }
}
