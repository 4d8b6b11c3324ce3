//! What a whole section proves: a part or a definition whose content never changed there is not old, whatever its
//! version says.

use mcs_core::ids::{Build, ClusterId, ClusterUid, Epoch, ServiceKey};
use mcs_core::model::{
    Change, Endpoint, EndpointPort, EndpointSet, Frame, GoodPort, GroupKey, Header, ImportDefinition,
    IpFamily, MemberState, Object, ObjectKey, Part, Participant, Port, Protocol, Section,
};
use mcs_core::time::Timestamp;
use mcs_core::version::{Leaf, Sum, Version};
use mcs_core::view::{Applied, AppliedSource, Decision, Source, View};
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
    let mut frame = |frame| view.handle_frame(frame, Timestamp::ZERO).expect("a frame that fits");
    frame(begin);
    for (revision, (key, object)) in (1..).zip(objects) {
        frame(Frame::Change(Change { revision, key, object: Some(object) }));
    }
    frame(Frame::End { revision: 3, complete: true });
}

fn section(at: &str) -> Section {
    let state = MemberState::Active;
    Section { uid: uid("east"), region: None, state, whole: true, version: version(at), sum: Sum::EMPTY }
}

fn part(at: &str, endpoints: u8) -> Part {
    let port = EndpointPort { name: "http".to_owned(), port: Some(8080), ..EndpointPort::default() };
    let group = GroupKey::new(IpFamily::V4, [port]);
    let mut set = EndpointSet::default();
    for number in 0..endpoints {
        set.insert(group.clone(), [10, 0, 0, number].into(), Endpoint::default());
    }
    let leaf = Leaf::from_bytes([endpoints; 16]);
    Part { uid: uid("east"), version: version(at), leaf, endpoints: Arc::new(set) }
}

fn header(at: &str) -> Header {
    let port = Port { name: "http".to_owned(), protocol: Protocol::Tcp, port: 80, app_protocol: None };
    let good = GoodPort { import_name: "http".to_owned(), export_name: "http".to_owned() };
    Header {
        definition: ImportDefinition { ports: vec![port], ..ImportDefinition::default() },
        participants: vec![Participant {
            cluster: cluster("east"),
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
