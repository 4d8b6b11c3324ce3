//! A view in the cluster `gamma`, fed by hand: frames of one or several registries, what is applied, what is its own.

use mcs_core::ids::{Build, ClusterId, ClusterUid, Epoch, Region, ServiceKey};
use mcs_core::model::{
    Change, Endpoint, EndpointMap, EndpointPort, EndpointSet, Frame, GoodPort, GroupKey, Header,
    ImportDefinition, IpFamily, MemberState, Object, ObjectKey, Part, PartSet, Participant, Port, Protocol,
    Section,
};
use mcs_core::time::{Timestamp, WallMillis};
use mcs_core::version::{Leaf, Sum, Version};
use mcs_core::view::{Applied, AppliedSource, Decision, NotHeld, Source, View};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

/// How long an absent cluster is kept.
pub(crate) const GRACE: Duration = Duration::from_secs(30);

/// The version of every registry.
pub(crate) const BUILD: &str = "1.0.0";

pub(crate) struct Feed {
    pub(crate) view: View,
    pub(crate) now: Timestamp,
    /// When the changes of the parts that are told were seen.
    pub(crate) changed_at: Option<WallMillis>,
    revision: u64,
    applied: Applied,
}

/// What a decision says of each cluster: the last byte of its endpoints' addresses, or that it is kept.
pub(crate) type Sources = BTreeMap<String, Option<Vec<u8>>>;

impl Feed {
    /// A view that knows that nothing is exported here.
    pub(crate) fn new() -> Self {
        let mut view = View::new(id("gamma"));
        view.own_listed();
        Self {
            view,
            now: Timestamp::from_millis(1_000),
            changed_at: None,
            revision: 0,
            applied: Applied::default(),
        }
    }

    /// A view whose first snapshot listed `gamma` and one export of `alpha` with one endpoint, which is applied.
    pub(crate) fn with_alpha() -> Self {
        let mut feed = Self::new();
        feed.begin(1);
        feed.section("gamma", active(1));
        feed.section("alpha", active(5));
        feed.header(&[("alpha", 5)]);
        feed.part("alpha", 5, &[1]);
        feed.end(true);
        feed.apply();
        feed
    }

    pub(crate) fn begin(&mut self, epoch: u128) {
        self.begin_by(BUILD, epoch);
    }

    pub(crate) fn begin_by(&mut self, build: &str, epoch: u128) {
        self.frame(Frame::Begin { epoch: Epoch(epoch), absent_grace: GRACE, build: build_of(build) });
    }

    /// Tells that the parts of `cluster` need not be told.
    pub(crate) fn kept(&mut self, cluster: &str, set: PartSet, seq: u64) -> Result<(), NotHeld> {
        let version = Version::new(1, seq);
        self.view.handle_frame(Frame::Kept { cluster: id(cluster), set, version }, self.now)
    }

    pub(crate) fn end(&mut self, complete: bool) {
        self.frame(Frame::End { revision: self.revision, complete });
    }

    pub(crate) fn progress(&mut self, complete: bool) {
        self.frame(Frame::Progress { revision: self.revision, complete });
    }

    pub(crate) fn section(&mut self, cluster: &str, section: Section) {
        self.change(ObjectKey::Section(id(cluster)), Some(Object::Section(of(cluster, section))));
    }

    pub(crate) fn section_gone(&mut self, cluster: &str) {
        self.change(ObjectKey::Section(id(cluster)), None);
    }

    /// A merge of one port, http 80, with these participants and the versions of their exports.
    pub(crate) fn header(&mut self, participants: &[(&str, u64)]) {
        self.header_of(&port_of("http"), participants);
    }

    pub(crate) fn header_of(&mut self, port: &Port, participants: &[(&str, u64)]) {
        let header = header_of(port, participants);
        self.change(ObjectKey::Header(key()), Some(Object::Header(header)));
    }

    pub(crate) fn header_gone(&mut self) {
        self.change(ObjectKey::Header(key()), None);
    }

    pub(crate) fn part(&mut self, cluster: &str, seq: u64, addresses: &[u8]) {
        self.part_of(cluster, "", seq, addresses);
    }

    pub(crate) fn part_of(&mut self, cluster: &str, life: &str, seq: u64, addresses: &[u8]) {
        self.part_for(key(), cluster, life, seq, addresses);
    }

    /// As [`Feed::part_of`], of another Service.
    pub(crate) fn other_part_of(&mut self, cluster: &str, life: &str, seq: u64, addresses: &[u8]) {
        let other = ServiceKey::new("shop", "other").expect("a key");
        self.part_for(other, cluster, life, seq, addresses);
    }

    /// The leaf is the first address.
    fn part_for(&mut self, key: ServiceKey, cluster: &str, life: &str, seq: u64, addresses: &[u8]) {
        let part = Part {
            changed_at: self.changed_at,
            uid: uid(life, cluster),
            version: Version::new(1, seq),
            leaf: Leaf::from_bytes([addresses.first().copied().unwrap_or_default(); 16]),
            endpoints: endpoints(addresses),
        };
        self.change(ObjectKey::Part(key, id(cluster)), Some(Object::Part(part)));
    }

    pub(crate) fn part_gone(&mut self, cluster: &str) {
        self.change(ObjectKey::Part(key(), id(cluster)), None);
    }

    /// Carries out the decision: what it shows and keeps is applied from now on.
    pub(crate) fn apply(&mut self) {
        self.drain();
        match self.view.decide(&key()) {
            Decision::Keep => {}
            Decision::Remove => {
                self.applied = Applied::default();
                self.view.removed(&key());
            }
            Decision::Apply(wanted) => {
                let mut before = std::mem::take(&mut self.applied.clusters);
                for (cluster, source) in wanted.sources {
                    let source = match source {
                        Source::Show(shown) => AppliedSource { uid: shown.uid, version: shown.version },
                        Source::Keep => before.remove(&cluster).unwrap_or_default(),
                    };
                    self.applied.clusters.insert(cluster, source);
                }
                self.view.applied(key(), self.applied.clone());
            }
        }
        self.drain();
    }

    /// Tells what a restarted controller finds.
    pub(crate) fn seed(&mut self, sources: &[(&str, u64)]) {
        let source = |(cluster, seq): &(&str, u64)| {
            let source = AppliedSource { uid: Some(uid("", cluster)), version: Some(Version::new(1, *seq)) };
            (id(cluster), source)
        };
        self.applied = Applied { clusters: sources.iter().map(source).collect() };
        self.view.seed(key(), self.applied.clone());
    }

    /// Moves the clock on, and lets the view take what is due on the way.
    pub(crate) fn wait(&mut self, by: Duration) {
        let until = self.now + by;
        while let Some(due) = self.view.poll_timeout().filter(|due| due.has_passed(until)) {
            self.now = due.max(self.now);
            self.view.handle_timeout(self.now);
        }
        self.now = until;
    }

    pub(crate) fn decide(&mut self) -> Decision {
        self.drain();
        self.view.decide(&key())
    }

    /// What shall be shown; panics when the decision is another.
    pub(crate) fn sources(&mut self) -> Sources {
        match self.decide() {
            Decision::Apply(wanted) => {
                let sources = wanted.sources.into_iter().map(|(cluster, source)| {
                    let shown = match source {
                        Source::Show(shown) => Some(last_bytes(&shown.endpoints)),
                        Source::Keep => None,
                    };
                    (cluster.to_string(), shown)
                });
                sources.collect()
            }
            other => panic!("{other:?}"),
        }
    }

    /// The version with which `cluster` shall be shown.
    pub(crate) fn version_of(&mut self, cluster: &str) -> Option<Version> {
        let Decision::Apply(wanted) = self.decide() else { return None };
        match wanted.sources.get(&id(cluster))? {
            Source::Show(shown) => shown.version,
            Source::Keep => None,
        }
    }

    /// The port's name in the definition that shall be there; none when it stays as it is.
    pub(crate) fn definition(&mut self) -> Option<String> {
        match self.decide() {
            Decision::Apply(wanted) => wanted.definition.map(|definition| definition.ports[0].name.clone()),
            other => panic!("{other:?}"),
        }
    }

    /// The keys that became dirty.
    pub(crate) fn drain(&mut self) -> BTreeSet<ServiceKey> {
        std::iter::from_fn(|| self.view.next_dirty()).collect()
    }

    fn change(&mut self, key: ObjectKey, object: Option<Object>) {
        self.revision += 1;
        self.frame(Frame::Change(Change { revision: self.revision, key, object }));
    }

    fn frame(&mut self, frame: Frame) {
        self.view.handle_frame(frame, self.now).expect("a frame that fits");
    }
}

/// Sources as [`Feed::sources`] gives them.
pub(crate) fn show<const N: usize>(sources: [(&str, Option<&[u8]>); N]) -> Sources {
    sources.into_iter().map(|(cluster, shown)| (cluster.to_owned(), shown.map(<[u8]>::to_vec))).collect()
}

pub(crate) fn key() -> ServiceKey {
    ServiceKey::new("shop", "cart").expect("a key")
}

pub(crate) fn build_of(text: &str) -> Build {
    Build::new(text).expect("a build")
}

pub(crate) fn id(cluster: &str) -> ClusterId {
    ClusterId::new(cluster).expect("a cluster id")
}

/// The UID of a cluster; a cluster that took over the id has another `life`.
pub(crate) fn uid(life: &str, cluster: &str) -> ClusterUid {
    let life = life.strip_suffix(&format!("-{cluster}")).unwrap_or(life);
    let life = if life.is_empty() { "first" } else { life };
    ClusterUid::new(format!("{life}-{cluster}")).expect("a uid")
}

pub(crate) fn endpoints(addresses: &[u8]) -> Arc<EndpointSet> {
    let port = EndpointPort { name: "http".to_owned(), port: Some(8080), ..EndpointPort::default() };
    let group = GroupKey::new(IpFamily::V4, [port]);
    let mut set = EndpointMap::default();
    for address in addresses {
        set.insert(group.clone(), IpAddr::V4(Ipv4Addr::new(10, 0, 0, *address)), Endpoint::default());
    }
    Arc::new(set.pack())
}

fn last_bytes(set: &EndpointSet) -> Vec<u8> {
    let addresses = set.groups().flat_map(|group| group.members).map(|(address, _)| address);
    addresses
        .map(|address| match address {
            IpAddr::V4(address) => address.octets()[3],
            IpAddr::V6(address) => address.octets()[15],
        })
        .collect()
}

pub(crate) fn port_of(name: &str) -> Port {
    Port { name: name.to_owned(), protocol: Protocol::Tcp, port: 80, app_protocol: None }
}

fn header_of(port: &Port, participants: &[(&str, u64)]) -> Header {
    let participant = |(cluster, seq): &(&str, u64)| Participant {
        cluster: id(cluster),
        uid: uid("", cluster),
        version: Version::new(1, *seq),
        good_ports: vec![GoodPort { import_name: port.name.clone(), export_name: "http".to_owned() }],
    };
    Header {
        definition: ImportDefinition {
            ports: vec![port.clone()],
            ip_families: vec![IpFamily::V4],
            ..ImportDefinition::default()
        },
        participants: participants.iter().map(participant).collect(),
        conflicts: Vec::new(),
    }
}

/// `section` as that of `cluster`: the UID of sections made here names a life only.
pub(crate) fn of(cluster: &str, section: Section) -> Section {
    Section { uid: uid(section.uid.as_str(), cluster), ..section }
}

/// A section with this state and version; its cluster is filled in by [`Feed::section`].
pub(crate) fn state(state: MemberState, whole: bool, seq: u64) -> Section {
    Section {
        uid: ClusterUid::new("first").expect("a uid"),
        region: Some(Region::new("eu-west-1").expect("a region")),
        state,
        whole,
        version: Version::new(1, seq),
        sum: Sum::EMPTY,
    }
}

pub(crate) fn active(seq: u64) -> Section {
    state(MemberState::Active, true, seq)
}

pub(crate) fn syncing() -> Section {
    state(MemberState::Syncing, false, 0)
}

pub(crate) fn expired(seq: u64) -> Section {
    state(MemberState::Expired, true, seq)
}

/// The section of a cluster that took over the id.
pub(crate) fn reborn(section: Section) -> Section {
    Section { uid: ClusterUid::new("second").expect("a uid"), ..section }
}
