//! Steps of a watch ↔ [`Frame`].
//!
//! A frame is one message, but for a part whose endpoints, or a header whose participants are too many for one: further
//! messages follow at once, so a reader that takes messages in order gets whole frames only.

use crate::chunks::{SetReader, pack, split};
use crate::convert::{
    part_set, read_header, read_key, read_leaf, read_part_set, read_section, read_sixteen, read_version,
    required, section,
};
use crate::pb;
use crate::pb::watch_response::Step;
use mcs_core::ids::{Build, ClusterId, ClusterUid, Epoch, ServiceKey};
use mcs_core::model::{Change, Frame, Header, Object, ObjectKey, Part};
use mcs_core::validate::Refusal;
use std::sync::Arc;

/// A frame as messages.
pub fn steps(frame: &Frame) -> Vec<pb::WatchResponse> {
    let one = |revision, step| vec![pb::WatchResponse { revision, step: Some(step) }];
    match frame {
        Frame::Begin { epoch, absent_grace, build } => one(
            0,
            Step::Begin(pb::WatchBegin {
                epoch: epoch.0.to_be_bytes().to_vec(),
                absent_grace: Some((*absent_grace).into()),
                build: build.to_string(),
            }),
        ),
        Frame::Kept { cluster, set, version } => {
            let set = Some(part_set(cluster, set));
            one(0, Step::Kept(pb::PartsKept { set, version: Some((*version).into()) }))
        }
        Frame::Change(change) => change_steps(change),
        Frame::End { revision, complete } => one(*revision, Step::End(pb::WatchEnd { complete: *complete })),
        Frame::Progress { revision, complete } => {
            one(*revision, Step::Progress(pb::WatchProgress { complete: *complete }))
        }
    }
}

/// A change as messages.
pub fn change_steps(change: &Change) -> Vec<pb::WatchResponse> {
    let steps = match (&change.key, &change.object) {
        (ObjectKey::Section(cluster), Some(Object::Section(told))) => {
            vec![Step::Section(section(cluster, told))]
        }
        (ObjectKey::Header(key), Some(Object::Header(told))) => header_steps(key, told),
        (ObjectKey::Part(key, cluster), Some(Object::Part(told))) => part_steps(key, cluster, told),
        (ObjectKey::Section(cluster), _) => {
            vec![Step::SectionGone(pb::SectionGone { cluster: cluster.to_string() })]
        }
        (ObjectKey::Header(key), _) => vec![Step::HeaderGone(pb::HeaderGone { key: Some(key.into()) })],
        (ObjectKey::Part(key, cluster), _) => {
            vec![Step::PartGone(pb::PartGone { key: Some(key.into()), cluster: cluster.to_string() })]
        }
    };
    steps.into_iter().map(|step| pb::WatchResponse { revision: change.revision, step: Some(step) }).collect()
}

fn header_steps(key: &ServiceKey, header: &Header) -> Vec<Step> {
    let mut lists = participants(header).into_iter();
    let first = lists.next().unwrap_or_default();
    let head = pb::Header {
        key: Some(key.into()),
        definition: Some((&header.definition).into()),
        participants: first,
        conflicts: header.conflicts.iter().map(Into::into).collect(),
        more: lists.len() > 0,
    };
    let mut steps = vec![Step::Header(head)];
    while let Some(participants) = lists.next() {
        steps.push(Step::Participants(pb::Participants { participants, more: lists.len() > 0 }));
    }
    steps
}

/// The participants of a merged Service, in as many lists as messages are needed for them.
pub fn participants(header: &Header) -> Vec<Vec<pb::Participant>> {
    pack(header.participants.iter().map(pb::Participant::from))
}

fn part_steps(key: &ServiceKey, cluster: &ClusterId, part: &Part) -> Vec<Step> {
    let mut chunks = split(&part.endpoints).into_iter();
    let first = Step::Part(pb::Part {
        key: Some(key.into()),
        cluster: cluster.to_string(),
        uid: part.uid.to_string(),
        version: Some(part.version.into()),
        leaf: part.leaf.to_bytes().to_vec(),
        endpoints: chunks.next(),
        changed_at: part.changed_at.map(Into::into),
    });
    std::iter::once(first).chain(chunks.map(Step::Chunk)).collect()
}

/// A registry that names more clusters as participants of one Service is not believed: far more than a clusterset has.
const MAX_PARTICIPANTS: usize = 100_000;

/// Puts frames together from the messages of one stream.
#[derive(Debug, Default)]
pub struct FrameReader {
    pending: Option<Pending>,
}

/// A frame of which more is to come.
#[derive(Debug)]
enum Pending {
    Part(PendingPart),
    Header { revision: u64, header: pb::Header },
}

impl Pending {
    const fn revision(&self) -> u64 {
        match self {
            Self::Part(PendingPart { revision, .. }) | Self::Header { revision, .. } => *revision,
        }
    }
}

#[derive(Debug)]
struct PendingPart {
    revision: u64,
    key: ObjectKey,
    part: Part,
    endpoints: SetReader,
}

impl FrameReader {
    /// Takes a message; a frame when it is told whole. A step of a later release tells nothing.
    ///
    /// # Errors
    /// What cannot be read. The watch is to be begun again; nothing is to be concluded from what is missing.
    pub fn push(&mut self, message: pb::WatchResponse) -> Result<Option<Frame>, Refusal> {
        let revision = message.revision;
        let Some(step) = message.step else { return Ok(None) };
        if let Some(pending) = self.pending.take() {
            let follows = pending.revision() == revision;
            return match (pending, step) {
                (Pending::Part(part), Step::Chunk(chunk)) if follows => self.go_on(part, Some(chunk)),
                (Pending::Header { mut header, .. }, Step::Participants(told)) if follows => {
                    header.participants.extend(told.participants);
                    header.more = told.more;
                    self.header(revision, header)
                }
                (Pending::Part(_), _) => Err(Refusal::new("chunk", "must follow a part whose `more` is set")),
                (Pending::Header { .. }, _) => {
                    Err(Refusal::new("participants", "must follow a header whose `more` is set"))
                }
            };
        }
        let change = |key, object| Ok(Some(Frame::Change(Change { revision, key, object })));
        match step {
            Step::Begin(begin) => Ok(Some(Frame::Begin {
                epoch: Epoch(u128::from_be_bytes(read_sixteen(&begin.epoch, "epoch")?)),
                absent_grace: required(begin.absent_grace, "absentGrace")?.into(),
                build: Build::new(begin.build)?,
            })),
            Step::Kept(kept) => {
                let set = read_part_set(required(kept.set, "kept.set")?);
                let (cluster, set) = set.map_err(|error| error.within("kept.set"))?;
                let version = read_version(kept.version).map_err(|error| error.within("kept"))?;
                Ok(Some(Frame::Kept { cluster, set, version }))
            }
            Step::Section(told) => {
                let (cluster, told) = read_section(told).map_err(|error| error.within("section"))?;
                change(ObjectKey::Section(cluster), Some(Object::Section(told)))
            }
            Step::SectionGone(gone) => change(ObjectKey::Section(ClusterId::new(gone.cluster)?), None),
            Step::Header(told) => self.header(revision, told),
            Step::HeaderGone(gone) => change(ObjectKey::Header(read_key(gone.key.as_ref())?), None),
            Step::Part(told) => self.begin_part(revision, told),
            Step::PartGone(gone) => {
                change(ObjectKey::Part(read_key(gone.key.as_ref())?, ClusterId::new(gone.cluster)?), None)
            }
            Step::Chunk(_) => Err(Refusal::new("chunk", "follows no part")),
            Step::Participants(_) => Err(Refusal::new("participants", "follow no header")),
            Step::End(end) => Ok(Some(Frame::End { revision, complete: end.complete })),
            Step::Progress(progress) => Ok(Some(Frame::Progress { revision, complete: progress.complete })),
        }
    }

    fn header(&mut self, revision: u64, header: pb::Header) -> Result<Option<Frame>, Refusal> {
        let key = read_key(header.key.as_ref())?;
        if header.participants.len() > MAX_PARTICIPANTS {
            let problem = format!("of {key} are more than {MAX_PARTICIPANTS}");
            return Err(Refusal::new("participants", problem));
        }
        if header.more {
            self.pending = Some(Pending::Header { revision, header });
            return Ok(None);
        }
        let told = read_header(header).map_err(|error| error.within(&key.to_string()))?;
        let object = Some(Object::Header(told));
        Ok(Some(Frame::Change(Change { revision, key: ObjectKey::Header(key), object })))
    }

    fn begin_part(&mut self, revision: u64, told: pb::Part) -> Result<Option<Frame>, Refusal> {
        let key = read_key(told.key.as_ref())?;
        let part = Part {
            uid: ClusterUid::new(told.uid)?,
            version: read_version(told.version)?,
            leaf: read_leaf(&told.leaf)?,
            endpoints: Arc::default(),
            changed_at: told.changed_at.and_then(Into::into),
        };
        let key = ObjectKey::Part(key, ClusterId::new(told.cluster)?);
        self.go_on(PendingPart { revision, key, part, endpoints: SetReader::default() }, told.endpoints)
    }

    fn go_on(
        &mut self,
        mut pending: PendingPart,
        chunk: Option<pb::EndpointSet>,
    ) -> Result<Option<Frame>, Refusal> {
        if !pending.endpoints.push(chunk) {
            self.pending = Some(Pending::Part(pending));
            return Ok(None);
        }
        let (endpoints, dropped) = pending.endpoints.finish()?;
        if let Some(first) = dropped.first() {
            return Err(Refusal::new(format!("endpoints[{}]", first.address), first.problem.clone()));
        }
        let part = Part { endpoints: Arc::new(endpoints), ..pending.part };
        let change =
            Change { revision: pending.revision, key: pending.key, object: Some(Object::Part(part)) };
        Ok(Some(Frame::Change(change)))
    }
}
