//! What watchers of a clusterset see: its log, and the messages that tell it.
//!
//! A change is encoded once, when it changes, for all who are told of it then. What stays of it differs by what there
//! is most of: the messages of sections and headers stay, those of parts while they are new or large; who is told an
//! older part, as in a snapshot, has it encoded from the packed endpoints, which the registry holds anyway. That costs
//! about as much as sending it, and a third of the memory.
//!
//! Large parts are kept encoded since a message that is made for one watcher is held for it until it reads.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use mcs_core::ids::ClusterId;
use mcs_core::log::StateLog;
use mcs_core::model::{Change, Object, ObjectKey, Part, PartSet};
use mcs_core::registry::Registry;
use mcs_core::version::Version;
use mcs_proto::encoded::EncodedStep;
use mcs_proto::frames::change_steps;

/// The messages of new parts are kept up to this many bytes: those of some hundred changes, so that all who follow them
/// share them.
const RECENT_BYTES: usize = 256 * 1024;

/// The messages of a part stay if they have more bytes than this.
const LARGE_BYTES: usize = 16 * 1024;

/// What the log has of an object.
#[derive(Clone, Debug)]
pub(crate) enum Kept {
    /// Its message.
    Step(EncodedStep),
    /// Its messages.
    Steps(Arc<[EncodedStep]>),
    /// The part whose messages are made when it is told.
    Part(Part),
}

/// A change, encoded.
pub(crate) struct Told {
    key: ObjectKey,
    revision: u64,
    kept: Option<Kept>,
    /// Those that are not kept.
    steps: Vec<EncodedStep>,
}

impl From<Change> for Told {
    fn from(change: Change) -> Self {
        let mut steps = encode(&change);
        let Change { key, revision, object } = change;
        let kept = match object {
            None => None,
            Some(Object::Part(part)) if bytes(&steps) <= LARGE_BYTES => Some(Kept::Part(part)),
            Some(_) if steps.len() == 1 => steps.pop().map(Kept::Step),
            Some(_) => Some(Kept::Steps(std::mem::take(&mut steps).into())),
        };
        Self { key, revision, kept, steps }
    }
}

fn encode(change: &Change) -> Vec<EncodedStep> {
    change_steps(change).iter().map(EncodedStep::from).collect()
}

fn bytes(steps: &[EncodedStep]) -> usize {
    steps.iter().map(EncodedStep::len).sum()
}

/// What watchers see.
#[derive(Default)]
pub(crate) struct Shown {
    pub(crate) log: StateLog<Kept>,
    /// Whether every cluster is known.
    pub(crate) complete: bool,
    /// The set that each cluster's parts in the log are, where that is known, and as of which version. It stands while
    /// no section tells another one: a set that changes has another sum.
    proven: BTreeMap<ClusterId, (PartSet, Version)>,
    recent: Recent,
}

impl Shown {
    /// The set that the parts of `cluster` are, and the version as of which it is all of them.
    pub(crate) fn proven(&self, cluster: &ClusterId) -> Option<(PartSet, Version)> {
        self.proven.get(cluster).cloned()
    }

    /// Takes a change into the log.
    pub(crate) fn take(&mut self, told: Told, registry: &Registry) {
        let Told { key, revision, kept, steps } = told;
        if let ObjectKey::Section(cluster) = &key {
            match registry.proven(cluster) {
                Some(proven) => drop(self.proven.insert(cluster.clone(), proven)),
                None => drop(self.proven.remove(cluster)),
            }
        }
        self.recent.keep(revision, steps);
        self.log.append(key, revision, kept);
    }

    /// Adds the messages of an object of the log to `batch`.
    pub(crate) fn tell(
        &self,
        revision: u64,
        key: &ObjectKey,
        kept: Option<&Kept>,
        batch: &mut VecDeque<EncodedStep>,
    ) {
        let part = match kept {
            Some(Kept::Step(step)) => return batch.push_back(step.clone()),
            Some(Kept::Steps(steps)) => return batch.extend(steps.iter().cloned()),
            Some(Kept::Part(part)) => Some(part),
            None => None,
        };
        match self.recent.get(revision) {
            Some(steps) => batch.extend(steps.iter().cloned()),
            None => {
                let object = part.cloned().map(Object::Part);
                batch.extend(encode(&Change { revision, key: key.clone(), object }));
            }
        }
    }
}

/// The messages of the last changes, in the order of revisions.
#[derive(Debug, Default)]
struct Recent {
    steps: VecDeque<(u64, Vec<EncodedStep>)>,
    bytes: usize,
}

impl Recent {
    fn keep(&mut self, revision: u64, steps: Vec<EncodedStep>) {
        if steps.is_empty() {
            return;
        }
        self.bytes += bytes(&steps);
        self.steps.push_back((revision, steps));
        while self.bytes > RECENT_BYTES {
            let Some((_, oldest)) = self.steps.pop_front() else { return };
            self.bytes -= bytes(&oldest);
        }
    }

    fn get(&self, revision: u64) -> Option<&[EncodedStep]> {
        let place = self.steps.binary_search_by_key(&revision, |(of, _)| *of).ok()?;
        self.steps.get(place).map(|(_, steps)| &**steps)
    }
}
