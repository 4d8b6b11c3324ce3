//! What a whole section proves: a part or a definition whose content never changed there is not old, whatever its
//! version says.

use mcs_core::ids::{Build, ClusterId, ClusterUid, Epoch, ServiceKey};
use mcs_core::model::{
    Change, Endpoint, EndpointMap, EndpointPort, Frame, GoodPort, GroupKey, Header, ImportDefinition,
    IpFamily, MemberState, Object, ObjectKey, Part, Participant, Port, Protocol, Section,
};
use mcs_core::time::Timestamp;
use mcs_core::version::{Leaf, Sum, Version};
use mcs_core::view::{Applied, AppliedSource, Decision, Source, View, Wanted};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn a_part_that_another_registry_holds_at_an_older_version_is_shown_when_its_section_has_caught_up() {
    let mut view = View::new(cluster("west"));
    tell(&mut view, 1, section("1.6"), part("1.6", 2), header("1.6"));
    assert_eq!(shown(&mut view), Some((version("1.6"), 2)));

    // The content went back to what the second registry holds of 1.5, so it was not put there again.
    tell(&mut view, 2, section("1.7"), part("1.5", 1), header("1.5"));

    assert_eq!(
        shown(&mut view),
        Some((version("1.7"), 1)),
        "as of the section, so that 1.6 cannot come back"
    );
    tell(&mut view, 1, section("1.6"), part("1.6", 2), header("1.6"));
    assert_eq!(shown(&mut view), None, "the first registry lags now");
}

#[test]
fn a_registry_that_lags_brings_back_no_state_from_between_a_part_and_its_whole_section() {
    let mut view = View::new(cluster("west"));
    // The content was another one at 1.5, which this registry was never told.
    tell(&mut view, 2, section("1.7"), part("1.3", 1), header("1.3"));
    assert_eq!(shown(&mut view), Some((version("1.7"), 1)));

    tell(&mut view, 1, section("1.6"), part("1.5", 2), header("1.5"));
    assert_eq!(shown(&mut view), None);
}

#[test]
fn a_registry_that_lags_brings_back_no_definition_from_between_an_export_and_its_whole_section() {
    let mut view = View::new(cluster("west"));
    tell(&mut view, 2, section("1.7"), part("1.3", 1), header("1.3"));
    assert_eq!(port(&mut view), 80);

    tell(&mut view, 1, section("1.6"), part("1.5", 2), header_of("1.5", 8080));
    assert_eq!(port(&mut view), 80);
}

/// A merge is told before the section of the cluster that it takes in.
#[test]
fn a_merge_of_another_cluster_that_had_the_id_for_a_while_holds_up_none_of_the_first() {
    let mut view = View::new(cluster("west"));
    tell(&mut view, 1, section("1.5"), part("1.5", 1), header("1.5"));
    let other = ClusterUid::new("uid-other").expect("a UID");
    let mut of_other = header_of("9.1", 8080);
    of_other.participants[0].uid = other.clone();
    let told = [
        (ObjectKey::Header(key()), Object::Header(of_other)),
        (ObjectKey::Section(cluster("east")), Object::Section(Section { uid: other, ..section("9.1") })),
        (ObjectKey::Header(key()), Object::Header(header_of("2.1", 9090))),
        (ObjectKey::Part(key(), cluster("east")), Object::Part(part("2.1", 1))),
        (ObjectKey::Section(cluster("east")), Object::Section(section("2.1"))),
    ];
    for (revision, (key, object)) in (4..).zip(told) {
        change(&mut view, revision, key, object);
        if revision == 4 {
            assert_eq!(port(&mut view), 8080);
        }
    }
    assert_eq!(port(&mut view), 9090);
}

#[test]
fn an_id_that_was_another_clusters_for_a_while_does_not_hide_what_was_seen() {
    let mut view = View::new(cluster("west"));
    tell(&mut view, 1, section("2.5"), part("2.5", 2), header("2.5"));
    assert_eq!(shown(&mut view), Some((version("2.5"), 2)));
    let other = ClusterUid::new("uid-other").expect("a UID");
    let of_other = Section { uid: other.clone(), ..section("1.1") };
    let mut merge = header("1.1");
    merge.participants[0].uid = other.clone();
    tell(&mut view, 2, of_other, Part { uid: other, ..part("1.1", 3) }, merge);
    assert_eq!(shown(&mut view), Some((version("1.1"), 3)));

    // It is back, and its new state was put in a term that is below the one before.
    tell(&mut view, 3, section("3.1"), part("1.9", 1), header("1.9"));
    assert_eq!(shown(&mut view), Some((version("3.1"), 1)), "as of its section");
}

#[test]
fn a_part_older_than_what_is_applied_waits_while_its_section_is_older_too() {
    let mut view = View::new(cluster("west"));
    let source = AppliedSource { uid: Some(uid("east")), version: Some(version("1.6")) };
    view.seed(key(), Applied { clusters: BTreeMap::from([(cluster("east"), source)]) });

    tell(&mut view, 2, section("1.5"), part("1.5", 1), header("1.5"));

    assert_eq!(shown(&mut view), None);
}

/// The version and the number of endpoints that are to be shown of `east`.
fn shown(view: &mut View) -> Option<(Version, usize)> {
    while view.next_dirty().is_some() {}
    let Decision::Apply(wanted) = view.decide(&key()) else { return None };
    match wanted.sources.get(&cluster("east"))? {
        Source::Show(shown) => Some((shown.version?, shown.endpoints.len())),
        Source::Keep => None,
    }
}

fn tell(view: &mut View, epoch: u128, section: Section, part: Part, header: Header) {
    let objects = [
        (ObjectKey::Section(cluster("east")), Object::Section(section)),
        (ObjectKey::Header(key()), Object::Header(header)),
        (ObjectKey::Part(key(), cluster("east")), Object::Part(part)),
    ];
    let begin =
        Frame::Begin { epoch: Epoch(epoch), absent_grace: Duration::from_secs(30), build: Build::default() };
    take(view, begin);
    for (revision, (key, object)) in (1..).zip(objects) {
        change(view, revision, key, object);
    }
    take(view, Frame::End { revision: 3, complete: true });
}

fn change(view: &mut View, revision: u64, key: ObjectKey, object: Object) {
    take(view, Frame::Change(Change { revision, key, object: Some(object) }));
}

fn take(view: &mut View, frame: Frame) {
    view.handle_frame(frame, Timestamp::ZERO).expect("a frame that fits");
}

/// The first port of the definition that is to be there.
fn port(view: &mut View) -> u16 {
    while view.next_dirty().is_some() {}
    match view.decide(&key()) {
        Decision::Apply(Wanted { definition: Some(definition), .. }) => definition.ports[0].port,
        decision => panic!("no definition: {decision:?}"),
    }
}

fn section(at: &str) -> Section {
    let state = MemberState::Active;
    Section { uid: uid("east"), region: None, state, whole: true, version: version(at), sum: Sum::EMPTY }
}

fn part(at: &str, endpoints: u8) -> Part {
    let port = EndpointPort { name: "http".to_owned(), port: Some(8080), ..EndpointPort::default() };
    let group = GroupKey::new(IpFamily::V4, [port]);
    let mut set = EndpointMap::default();
    for number in 0..endpoints {
        set.insert(group.clone(), [10, 0, 0, number].into(), Endpoint::default());
    }
    let leaf = Leaf::from_bytes([endpoints; 16]);
    Part { uid: uid("east"), version: version(at), leaf, endpoints: Arc::new(set.pack()), changed_at: None }
}

fn header(at: &str) -> Header {
    header_of(at, 80)
}

fn header_of(at: &str, port: u16) -> Header {
    let port = Port { name: "http".to_owned(), protocol: Protocol::Tcp, port, app_protocol: None };
    let good = GoodPort { import_name: "http".to_owned(), export_name: "http".to_owned() };
    Header {
        definition: ImportDefinition { ports: vec![port], ..ImportDefinition::default() },
        participants: vec![Participant {
            cluster: cluster("east"),
            uid: uid("east"),
            version: version(at),
            good_ports: vec![good],
        }],
        conflicts: Vec::new(),
    }
}

fn cluster(id: &str) -> ClusterId {
    ClusterId::new(id).expect("a cluster id")
}

fn uid(id: &str) -> ClusterUid {
    ClusterUid::new(format!("uid-{id}")).expect("a UID")
}

fn key() -> ServiceKey {
    ServiceKey::new("shop", "cart").expect("a key")
}

fn version(text: &str) -> Version {
    text.parse().expect("a version")
}
