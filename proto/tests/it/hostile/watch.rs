//! What a registry may tell a watcher, played to the view of an importing cluster in which imports are applied.

use super::texts::is_plain;
use mcs_core::ids::{ClusterId, ClusterUid, ServiceKey};
use mcs_core::model::{
    Endpoint, EndpointMap, EndpointSet, Frame, GroupKey, IpFamily, MemberState, Object, ObjectKey,
};
use mcs_core::time::Timestamp;
use mcs_core::version::Version;
use mcs_core::view::{Applied, AppliedSource, Decision, Source, View, Wanted};
use mcs_proto::frames::{FrameReader, steps};
use mcs_proto::pb;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

/// What happens at a watcher, one after the other.
#[derive(Clone, PartialEq, Message)]
pub struct Script {
    /// The events.
    #[prost(message, repeated, tag = "1")]
    pub events: Vec<Event>,
}

/// One event.
#[derive(Clone, PartialEq, Message)]
pub struct Event {
    /// Which.
    #[prost(oneof = "What", tags = "1, 2, 3, 4")]
    pub what: Option<What>,
}

/// What happens.
#[derive(Clone, PartialEq, prost::Oneof)]
#[expect(clippy::large_enum_variant, reason = "nearly every event is a step")]
pub enum What {
    /// A message of the stream.
    #[prost(message, tag = "1")]
    Step(pb::WatchResponse),
    /// Nothing, for so many milliseconds.
    #[prost(uint32, tag = "2")]
    Wait(u32),
    /// The stream breaks.
    #[prost(bool, tag = "3")]
    Broken(bool),
    /// What is dirty is decided and applied.
    #[prost(bool, tag = "4")]
    Reconcile(bool),
}

/// The importing cluster.
pub const OWN: &str = "gamma";

/// Plays a script, and looks at each decision.
///
/// # Panics
/// What must hold does not.
pub fn play(bytes: &[u8]) {
    let Ok(script) = Script::decode(bytes) else { return };
    let mut importer = Importer::new();
    for event in script.events {
        match event.what {
            Some(What::Step(step)) => importer.step(step),
            Some(What::Wait(millis)) => importer.wait(Duration::from_millis(millis.into())),
            Some(What::Broken(_)) => importer.broken(),
            Some(What::Reconcile(_)) => importer.reconcile(),
            None => {}
        }
    }
    importer.reconcile();
}

/// What was said since the last `Begin`, as far as it can be the cause of a delete.
#[derive(Default)]
struct Said {
    ended: bool,
    /// By the last word on the stream that lives.
    complete: bool,
    /// The highest version at which a cluster's whole set was told, by UID.
    whole: BTreeMap<ClusterId, BTreeMap<ClusterUid, Version>>,
    expired: BTreeSet<ClusterId>,
    /// Whether the own cluster was listed at some time.
    own_listed: bool,
}

struct Importer {
    now: Timestamp,
    view: View,
    reader: FrameReader,
    said: Said,
    applied: BTreeMap<ServiceKey, Applied>,
}

impl Importer {
    /// Two imports are applied: `shop/cart` of alpha and beta, whose versions are known, and `shop/till` of alpha and of
    /// the own cluster, with nothing known.
    fn new() -> Self {
        let mut view = View::new(id(OWN));
        let known = |cluster: &str, seq| AppliedSource {
            uid: Some(uid(cluster)),
            version: Some(Version::new(1, seq)),
        };
        let cart = [(id("alpha"), known("alpha", 5)), (id("beta"), known("beta", 3))];
        let till = [(id("alpha"), AppliedSource::default()), (id(OWN), AppliedSource::default())];
        let applied: BTreeMap<_, _> = [(key("cart"), cart), (key("till"), till)]
            .map(|(key, clusters)| (key, Applied { clusters: clusters.into() }))
            .into();
        for (key, applied) in &applied {
            view.seed(key.clone(), applied.clone());
        }
        view.set_own(key("till"), Some(own_endpoints()));
        view.own_listed();
        let now = Timestamp::from_millis(1_000);
        Self { now, view, reader: FrameReader::default(), said: Said::default(), applied }
    }

    fn step(&mut self, step: pb::WatchResponse) {
        match self.reader.push(step) {
            Ok(Some(frame)) => self.frame(frame),
            Ok(None) => {}
            Err(error) => {
                assert!(is_plain(&error.to_string()), "{error:?}");
                assert!(error.to_string().len() <= 2_000, "{error:?}");
                self.broken();
            }
        }
    }

    fn frame(&mut self, frame: Frame) {
        assert_reads_back(&frame);
        match &frame {
            Frame::Begin { .. } => self.said = Said::default(),
            Frame::Kept { .. } => {}
            Frame::End { complete, .. } => {
                self.said.ended = true;
                self.said.complete = *complete;
            }
            Frame::Progress { complete, .. } => self.said.complete = *complete && self.said.ended,
            Frame::Change(change) => {
                if let (ObjectKey::Section(cluster), Some(Object::Section(section))) =
                    (&change.key, &change.object)
                {
                    if section.whole {
                        let whole = self.said.whole.entry(cluster.clone()).or_default();
                        let version = whole.entry(section.uid.clone()).or_default();
                        *version = section.version.max(*version);
                    }
                    if section.state == MemberState::Expired {
                        self.said.expired.insert(cluster.clone());
                    }
                    self.said.own_listed |= *cluster == id(OWN) && section.state.is_listed();
                }
            }
        }
        if let Err(not_held) = self.view.handle_frame(frame, self.now) {
            assert!(is_plain(&not_held.to_string()), "{not_held:?}");
            self.broken();
        }
    }

    /// The connection ends; the next message begins another one.
    fn broken(&mut self) {
        self.reader = FrameReader::default();
        self.said.complete = false;
        self.view.disconnected();
    }

    fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        for _ in 0..64 {
            match self.view.poll_timeout().filter(|due| due.has_passed(until)) {
                Some(due) => self.view.handle_timeout(due.max(self.now)),
                None => break,
            }
        }
        self.now = until;
    }

    fn reconcile(&mut self) {
        let keys: BTreeSet<ServiceKey> = std::iter::from_fn(|| self.view.next_dirty()).collect();
        for key in keys {
            let before = self.applied.get(&key).cloned().unwrap_or_default();
            self.view.applied(key.clone(), before.clone());
            match self.view.decide(&key) {
                Decision::Keep => {}
                Decision::Remove => {
                    assert!(self.said.ended, "{key} is removed before the end of a snapshot");
                    for (cluster, source) in &before.clusters {
                        self.assert_cause(&key, cluster, source);
                    }
                    self.applied.remove(&key);
                    self.view.removed(&key);
                }
                Decision::Apply(wanted) => self.apply(key, before, wanted),
            }
        }
        let _ = (self.view.counts(), self.view.resume(), self.view.is_complete());
    }

    fn apply(&mut self, key: ServiceKey, mut before: Applied, wanted: Wanted) {
        let mut after = Applied::default();
        for (cluster, source) in wanted.sources {
            let known = before.clusters.remove(&cluster);
            let applied = match source {
                Source::Keep => known.unwrap_or_default(),
                Source::Show(shown) => {
                    if let Some(known) = known.filter(|known| known.uid == shown.uid) {
                        assert!(shown.version >= known.version, "{key} of {cluster} goes back");
                    }
                    AppliedSource { uid: shown.uid, version: shown.version }
                }
            };
            after.clusters.insert(cluster, applied);
        }
        for (cluster, source) in &before.clusters {
            self.assert_cause(&key, cluster, source);
        }
        self.view.applied(key.clone(), after.clone());
        self.applied.insert(key, after);
    }

    /// What was applied of a cluster goes for a reason only.
    fn assert_cause(&self, key: &ServiceKey, cluster: &ClusterId, source: &AppliedSource) {
        if *cluster == id(OWN) {
            return;
        }
        let said = &self.said;
        let is_past = |(uid, version): (&ClusterUid, &Version)| {
            source.uid.as_ref() != Some(uid) || source.version.is_none_or(|applied| *version >= applied)
        };
        let whole = said.own_listed && said.whole.get(cluster).is_some_and(|whole| whole.iter().any(is_past));
        let cause = said.ended && (whole || said.expired.contains(cluster) || said.complete);
        assert!(cause, "{key} of {cluster} goes without cause");
    }
}

fn assert_reads_back(frame: &Frame) {
    let mut reader = FrameReader::default();
    let mut read = Vec::new();
    for message in steps(frame) {
        let message = pb::WatchResponse::decode(&*message.encode_to_vec()).unwrap();
        read.extend(reader.push(message).unwrap());
    }
    assert_eq!(read, std::slice::from_ref(frame));
}

fn own_endpoints() -> Arc<EndpointSet> {
    let mut set = EndpointMap::default();
    let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    set.insert(GroupKey::new(IpFamily::V4, []), address, Endpoint::default());
    Arc::new(set.pack())
}

pub fn id(cluster: &str) -> ClusterId {
    ClusterId::new(cluster).unwrap()
}

pub fn uid(cluster: &str) -> ClusterUid {
    ClusterUid::new(format!("uid-of-{cluster}")).unwrap()
}

pub fn key(name: &str) -> ServiceKey {
    ServiceKey::new("shop", name).unwrap()
}
