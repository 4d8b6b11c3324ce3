//! What a member may send, played to a registry as the gRPC service does it.

use super::texts::is_plain;
use mcs_core::ids::{ClusterId, ClusterUid, ClustersetId, Epoch, ServiceKey};
use mcs_core::merge::{Exported, merge};
use mcs_core::model::{Change, Frame, Object, ObjectKey};
use mcs_core::registry::{Op, Policy, Refused, Registry};
use mcs_core::time::Timestamp;
use mcs_core::validate::{Dropped, Refusal, check_endpoints, check_export};
use mcs_core::version::{Sum, Version};
use mcs_proto::convert::{
    self, Member, OpReader, ReadOp, read_key, read_leaf, read_registration, read_sum, read_version,
    read_write_head,
};
use mcs_proto::frames::{FrameReader, change_steps};
use mcs_proto::pb;
use mcs_proto::pb::sync_request::Step;
use mcs_proto::status;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Calls of members, one after the other.
#[derive(Clone, PartialEq, Message)]
pub struct Script {
    /// The calls.
    #[prost(message, repeated, tag = "1")]
    pub calls: Vec<Call>,
}

/// One call.
#[derive(Clone, PartialEq, Message)]
pub struct Call {
    /// Which.
    #[prost(oneof = "Act", tags = "1, 2, 3, 4, 5, 6")]
    pub act: Option<Act>,
}

/// What a member does.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Act {
    /// Registers.
    #[prost(message, tag = "1")]
    Register(pb::RegisterRequest),
    /// Renews.
    #[prost(message, tag = "2")]
    Renew(pb::RenewRequest),
    /// Writes.
    #[prost(message, tag = "3")]
    Write(Writes),
    /// Syncs.
    #[prost(message, tag = "4")]
    Sync(Syncs),
    /// Leaves, or is removed.
    #[prost(message, tag = "5")]
    Remove(pb::RemoveClusterRequest),
    /// Nothing, for so many milliseconds.
    #[prost(uint32, tag = "6")]
    Wait(u32),
}

/// The stream of a Write.
#[derive(Clone, PartialEq, Message)]
pub struct Writes {
    /// Its messages.
    #[prost(message, repeated, tag = "1")]
    pub stream: Vec<pb::WriteRequest>,
}

/// The stream of a Sync.
#[derive(Clone, PartialEq, Message)]
pub struct Syncs {
    /// Its messages.
    #[prost(message, repeated, tag = "1")]
    pub stream: Vec<pb::SyncRequest>,
}

const LEASE: Duration = Duration::from_secs(30);
const MAX_CLUSTERS: usize = 4;
const MAX_EXPORTS: usize = 6;
/// Registries of this many clustersets are kept.
const MAX_CLUSTERSETS: usize = 3;
/// A text that is told of a refusal is at most this long.
const MAX_TEXT: usize = 2_000;

/// Plays a script, and looks at everything after each call.
///
/// # Panics
/// What must hold does not.
pub fn play(bytes: &[u8]) {
    let Ok(script) = Script::decode(bytes) else { return };
    let mut world = World { now: Timestamp::from_millis(1_000), sets: BTreeMap::new() };
    for call in script.calls {
        let Some(act) = call.act else { continue };
        match world.act(act) {
            Ok(()) => {}
            Err(Broken::Field(error)) => {
                assert_told(&error.field);
                assert_told(&error.problem);
                assert_told(status::invalid(&error).message());
            }
            Err(Broken::Refused(refused)) => assert_told(status::refused(&refused).message()),
        }
        world.check();
    }
}

enum Broken {
    Field(Refusal),
    Refused(Refused),
}

impl From<Refusal> for Broken {
    fn from(error: Refusal) -> Self {
        Self::Field(error)
    }
}

impl From<Refused> for Broken {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

struct World {
    now: Timestamp,
    sets: BTreeMap<ClustersetId, Set>,
}

struct Set {
    registry: Registry,
    /// What watchers were told and not told to forget.
    shown: BTreeMap<ObjectKey, Object>,
    revision: u64,
}

impl World {
    fn act(&mut self, act: Act) -> Result<(), Broken> {
        match act {
            Act::Register(request) => {
                let (member, registration) = read_registration(request)?;
                assert_told(registration.instance.as_str());
                assert_told(registration.build.as_str());
                let again = convert::registration(&member, &registration);
                assert_eq!(read_registration(reread(&again)), Ok((member.clone(), registration.clone())));
                let now = self.now;
                let Some(set) = self.set_or_new(&member.clusterset) else { return Ok(()) };
                set.registry.register(&member.cluster, registration, now)?;
            }
            Act::Renew(request) => {
                let member = Member::read(request.clusterset, request.cluster, request.uid)?;
                let (version, sum) = (read_version(request.version)?, read_sum(&request.sum)?);
                let now = self.now;
                let set = self.set(&member)?;
                set.registry.renew(&member.cluster, &member.uid, version, sum, now)?;
            }
            Act::Write(Writes { mut stream }) => {
                let Some(first) = stream.first_mut() else { return Ok(()) };
                let (member, version) = read_write_head(first)?;
                let (mut reader, mut ops) = (OpReader::default(), Vec::new());
                for op in stream.into_iter().flat_map(|message| message.ops) {
                    ops.extend(reader.push(op)?);
                }
                reader.finish()?;
                self.write(&member, version, ops)?;
            }
            Act::Sync(Syncs { stream }) => self.sync(stream)?,
            Act::Remove(request) => {
                let clusterset = ClustersetId::new(request.clusterset).map_err(Refusal::from)?;
                let cluster = ClusterId::new(request.cluster).map_err(Refusal::from)?;
                let uid = Some(request.uid).filter(|uid| !uid.is_empty()).map(ClusterUid::new);
                let uid = uid.transpose().map_err(Refusal::from)?;
                let now = self.now;
                if let Some(set) = self.sets.get_mut(&clusterset) {
                    set.registry.remove(&cluster, uid.as_ref(), request.force, now)?;
                }
            }
            Act::Wait(millis) => self.wait(Duration::from_millis(u64::from(millis))),
        }
        Ok(())
    }

    fn set_or_new(&mut self, clusterset: &ClustersetId) -> Option<&mut Set> {
        if !self.sets.contains_key(clusterset) && self.sets.len() >= MAX_CLUSTERSETS {
            return None;
        }
        let now = self.now;
        let new =
            || Set { registry: Registry::new(policy(), Epoch(7), now), shown: BTreeMap::new(), revision: 0 };
        Some(self.sets.entry(clusterset.clone()).or_insert_with(new))
    }

    fn set(&mut self, member: &Member) -> Result<&mut Set, Refused> {
        let unknown = || Refused::Unknown { cluster: member.cluster.clone() };
        self.sets.get_mut(&member.clusterset).ok_or_else(unknown)
    }

    fn write(&mut self, member: &Member, version: Version, ops: Vec<ReadOp>) -> Result<(), Broken> {
        let now = self.now;
        let mut accepted = Vec::new();
        for op in ops {
            match op.checked().1 {
                Ok((op, dropped)) => {
                    dropped.iter().for_each(assert_dropped);
                    assert_reads_back(&op);
                    accepted.push(op);
                }
                Err(refusal) => assert_refusal(&refusal),
            }
        }
        let outcomes =
            self.set(member)?.registry.write(&member.cluster, &member.uid, version, accepted, now)?;
        outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).for_each(assert_refusal);
        Ok(())
    }

    /// Stops at the first message that is out of turn, like a stream that breaks.
    fn sync(&mut self, stream: Vec<pb::SyncRequest>) -> Result<(), Broken> {
        let now = self.now;
        let mut asks = stream.into_iter().map_while(|message| message.step);
        let Some(Step::Begin(begin)) = asks.next() else { return Ok(()) };
        let member = Member::read(begin.clusterset, begin.cluster, begin.uid)?;
        let version = read_version(begin.version)?;
        let Member { cluster, uid, .. } = &member;
        self.set(&member)?.registry.begin_sync(cluster, uid, version, now)?;
        self.check();
        let mut named = BTreeSet::new();
        loop {
            match asks.next() {
                Some(Step::Names(more)) => {
                    let read =
                        |name: &pb::SyncName| Ok((read_key(name.key.as_ref())?, read_leaf(&name.leaf)?));
                    let names = more.names.iter().map(read).collect::<Result<Vec<_>, Refusal>>()?;
                    let wanted = self.set(&member)?.registry.wanted(cluster, uid, version, &names)?;
                    assert!(wanted.iter().all(|key| names.iter().any(|(name, _)| name == key)));
                    named.extend(names.into_iter().map(|(key, _)| key));
                }
                Some(Step::NamesEnd(_)) => break,
                _ => return Ok(()),
            }
        }
        let mut reader = OpReader::default();
        loop {
            match asks.next() {
                Some(Step::Op(op)) => {
                    if let Some(op) = reader.push(op)? {
                        self.write(&member, version, vec![op])?;
                        self.check();
                    }
                }
                Some(Step::End(_)) => break,
                _ => return Ok(()),
            }
        }
        reader.finish()?;
        self.set(&member)?.registry.end_sync(cluster, uid, version, &named, now)?;
        Ok(())
    }

    fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        for set in self.sets.values_mut() {
            // A deadline that is not met would be asked for again and again.
            for _ in 0..64 {
                match set.registry.poll_timeout().filter(|due| due.has_passed(until)) {
                    Some(due) => set.registry.handle_timeout(due.max(self.now)),
                    None => break,
                }
            }
            set.registry.handle_timeout(until);
        }
        self.now = until;
    }

    fn check(&mut self) {
        for set in self.sets.values_mut() {
            while let Some(change) = set.registry.next_change() {
                assert!(change.revision > set.revision, "revisions rise");
                set.revision = change.revision;
                assert_tells(&change);
                match change.object {
                    Some(object) => drop(set.shown.insert(change.key, object)),
                    None => drop(set.shown.remove(&change.key)),
                }
            }
            check_members(&set.registry);
            assert_eq!(set.shown, state(&set.registry), "what is told is what is held");
        }
    }
}

fn policy() -> Policy {
    Policy {
        max_clusters: MAX_CLUSTERS,
        max_exports: MAX_EXPORTS,
        max_writes_per_second: 4,
        ..Policy::of_lease(LEASE)
    }
}

fn check_members(registry: &Registry) {
    assert!(registry.members().count() <= MAX_CLUSTERS);
    for (_, member) in registry.members() {
        assert_told(member.instance().as_str());
        assert_told(member.build().as_str());
        let fresh: Sum = member.exports().values().map(|export| export.leaf).collect();
        assert_eq!(member.sum(), fresh, "a sum is that of the leaves");
        assert!(member.exports().len() <= 2 * MAX_EXPORTS);
        for (key, export) in member.exports() {
            assert_eq!(check_export(key, &export.spec), Ok(()));
            let (kept, dropped) = check_endpoints(&export.endpoints);
            assert_eq!((&kept, dropped.as_slice()), (&*export.endpoints, [].as_slice()));
        }
    }
}

/// What a watcher that was told everything has.
fn state(registry: &Registry) -> BTreeMap<ObjectKey, Object> {
    let mut state = BTreeMap::new();
    let mut exports: BTreeMap<&ServiceKey, BTreeMap<ClusterId, _>> = BTreeMap::new();
    for (id, member) in registry.members() {
        let section = mcs_core::model::Section {
            uid: member.uid().clone(),
            region: member.region().cloned(),
            state: member.state(),
            whole: member.is_whole(),
            version: member.version(),
            sum: if member.is_whole() { member.sum() } else { Sum::EMPTY },
        };
        state.insert(ObjectKey::Section(id.clone()), Object::Section(section));
        for (key, export) in member.exports().iter().filter(|_| member.is_in_log()) {
            let part = mcs_core::model::Part {
                uid: member.uid().clone(),
                version: export.version,
                leaf: export.leaf,
                endpoints: export.endpoints.clone(),
                changed_at: export.changed_at,
            };
            state.insert(ObjectKey::Part(key.clone(), id.clone()), Object::Part(part));
            if member.is_whole() {
                let exported = Exported { uid: member.uid(), version: export.version, spec: &export.spec };
                exports.entry(key).or_default().insert(id.clone(), exported);
            }
        }
    }
    assert!(registry.imports(None).eq(exports.keys().copied()), "what whole members export is merged");
    for key in registry.imports(None) {
        let header = registry.header(key).unwrap();
        // A definition is older than its export where only endpoints changed since.
        let mut fresh = merge(&exports[key]).unwrap();
        for (fresh, told) in fresh.participants.iter_mut().zip(&header.participants) {
            assert!(told.version <= fresh.version);
            fresh.version = told.version;
        }
        assert_eq!(header, fresh, "the merge of {key}");
        state.insert(ObjectKey::Header(key.clone()), Object::Header(header));
    }
    state
}

fn assert_reads_back(op: &Op) {
    let mut reader = OpReader::default();
    let mut read = Vec::new();
    for message in convert::op(op) {
        read.extend(reader.push(reread(&message)).unwrap());
    }
    assert_eq!(read, [ReadOp { key: op.key().into(), read: Ok((op.clone(), Vec::new())) }]);
}

fn assert_tells(change: &Change) {
    let mut reader = FrameReader::default();
    let mut read = Vec::new();
    for message in change_steps(change) {
        read.extend(reader.push(reread(&message)).unwrap());
    }
    assert_eq!(read, [Frame::Change(change.clone())]);
}

fn reread<M: Message + Default>(message: &M) -> M {
    M::decode(&*message.encode_to_vec()).unwrap()
}

fn assert_refusal(refusal: &Refusal) {
    assert_told(&refusal.field);
    assert_told(&refusal.problem);
}

fn assert_dropped(dropped: &Dropped) {
    assert_told(&dropped.address);
    assert_told(&dropped.field);
    assert_told(&dropped.problem);
}

/// What ends in a log line or an event.
fn assert_told(text: &str) {
    assert!(is_plain(text), "{text:?}");
    assert!(text.len() <= MAX_TEXT, "{} bytes: {text:?}", text.len());
}
