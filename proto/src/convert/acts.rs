//! What a member's controller says: who it is, registrations, changes and their results.

use super::merged::read_region;
use super::{read_key, read_leaf, read_sixteen, read_sum, read_version, required};
use crate::chunks::{CHUNK_BYTES, SetReader, split};
use crate::pb;
use crate::pb::op::Act;
use mcs_core::ids::{Build, ClusterId, ClusterUid, ClustersetId, Instance, ServiceKey};
use mcs_core::model::{EndpointSet, ExportSpec, HeldExport};
use mcs_core::registry::{Op, Registration};
use mcs_core::text::shown;
use mcs_core::time::WallMillis;
use mcs_core::validate::{Dropped, Refusal, check_endpoints, check_export};
use mcs_core::version::{Leaf, Version};
use prost::Message;
use std::sync::Arc;

/// A cluster as it names itself in every call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// Its clusterset.
    pub clusterset: ClustersetId,
    /// Its id.
    pub cluster: ClusterId,
    /// The UID of its `kube-system` Namespace.
    pub uid: ClusterUid,
}

impl Member {
    /// Reads who calls.
    ///
    /// # Errors
    /// The field that is wrong.
    pub fn read(clusterset: String, cluster: String, uid: String) -> Result<Self, Refusal> {
        Ok(Self {
            clusterset: ClustersetId::new(clusterset)?,
            cluster: ClusterId::new(cluster)?,
            uid: ClusterUid::new(uid)?,
        })
    }
}

/// A registration as a message.
pub fn registration(member: &Member, registration: &Registration) -> pb::RegisterRequest {
    pb::RegisterRequest {
        clusterset: member.clusterset.to_string(),
        cluster: member.cluster.to_string(),
        uid: registration.uid.to_string(),
        region: registration.region.as_ref().map_or_else(String::new, ToString::to_string),
        instance: registration.instance.to_string(),
        build: registration.build.to_string(),
        version: Some(registration.version.into()),
        sum: registration.sum.to_bytes().to_vec(),
    }
}

/// Reads a registration.
///
/// # Errors
/// The field that is wrong.
pub fn read_registration(request: pb::RegisterRequest) -> Result<(Member, Registration), Refusal> {
    let member = Member::read(request.clusterset, request.cluster, request.uid)?;
    let registration = Registration {
        uid: member.uid.clone(),
        region: read_region(request.region)?,
        instance: Instance::new(request.instance)?,
        build: Build::new(request.build)?,
        version: read_version(request.version)?,
        sum: read_sum(&request.sum)?,
    };
    Ok((member, registration))
}

/// Reads who writes, and the version of the act, from the first message of a Write.
///
/// # Errors
/// The field that is wrong.
pub fn read_write_head(request: &mut pb::WriteRequest) -> Result<(Member, Version), Refusal> {
    let take = std::mem::take::<String>;
    let member =
        Member::read(take(&mut request.clusterset), take(&mut request.cluster), take(&mut request.uid))?;
    Ok((member, read_version(request.version)?))
}

/// A change as messages: itself, then the further chunks of its endpoints.
pub fn op(op: &Op) -> Vec<pb::Op> {
    let (key, leaf, spec, endpoints, changed_at) = match op {
        Op::Delete { key } => return vec![with_key(key, Act::Delete(pb::DeleteExport {}))],
        Op::Put { key, leaf, spec, endpoints, changed_at } => (key, leaf, Some(spec), endpoints, changed_at),
        Op::PutEndpoints { key, leaf, endpoints, changed_at, .. } => (key, leaf, None, endpoints, changed_at),
    };
    let leaf = leaf.to_bytes().to_vec();
    let mut chunks = split(endpoints).into_iter();
    let endpoints = chunks.next();
    let first = match spec {
        Some(spec) => Act::Put(pb::PutExport { leaf, spec: Some(spec.as_ref().into()), endpoints }),
        None => Act::PutEndpoints(pb::PutEndpoints { leaf, endpoints, replaces: replaces(op) }),
    };
    let first = pb::Op { changed_at: changed_at.map(Into::into), ..with_key(key, first) };
    std::iter::once(first).chain(chunks.map(|chunk| with_key(key, Act::Chunk(chunk)))).collect()
}

/// The hash of the state that endpoints change; empty where that may be any.
fn replaces(op: &Op) -> Vec<u8> {
    match op {
        Op::PutEndpoints { replaces: Some(leaf), .. } => leaf.to_bytes().to_vec(),
        Op::PutEndpoints { replaces: None, .. } | Op::Put { .. } | Op::Delete { .. } => Vec::new(),
    }
}

fn with_key(key: &ServiceKey, act: Act) -> pb::Op {
    pb::Op { key: Some(key.into()), act: Some(act), changed_at: None }
}

/// A change as it was read, complete with its endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOp {
    /// The key as it was sent, also when it is not a valid one: the result names it.
    pub key: pb::ServiceKey,
    /// The change and the endpoints left out of it, or why it is refused.
    pub read: Result<(Op, Vec<Dropped>), Refusal>,
}

impl ReadOp {
    /// Its key, and the change by the rules of Kubernetes objects: an export that breaks one is refused, an endpoint left
    /// out beside those that could not be read.
    pub fn checked(self) -> (pb::ServiceKey, Result<(Op, Vec<Dropped>), Refusal>) {
        (self.key, self.read.and_then(|(op, unreadable)| check(op, unreadable)))
    }
}

fn check(op: Op, mut dropped: Vec<Dropped>) -> Result<(Op, Vec<Dropped>), Refusal> {
    let mut checked = |endpoints: &EndpointSet| {
        let (kept, more) = check_endpoints(endpoints);
        dropped.extend(more);
        Arc::new(kept)
    };
    let op = match op {
        Op::Delete { key } => Op::Delete { key },
        Op::PutEndpoints { key, leaf, replaces, endpoints, changed_at } => {
            Op::PutEndpoints { key, leaf, replaces, endpoints: checked(&endpoints), changed_at }
        }
        Op::Put { key, leaf, spec, endpoints, changed_at } => {
            check_export(&key, &spec)?;
            Op::Put { key, leaf, spec, endpoints: checked(&endpoints), changed_at }
        }
    };
    Ok((op, dropped))
}

/// Puts changes together from a stream of messages. A change that cannot be read is refused by itself.
#[derive(Debug, Default)]
pub struct OpReader {
    pending: Option<Pending>,
}

#[derive(Debug)]
struct Pending {
    key: pb::ServiceKey,
    head: Result<Head, Refusal>,
    changed_at: Option<WallMillis>,
    endpoints: SetReader,
}

#[derive(Debug)]
struct Head {
    key: ServiceKey,
    leaf: Leaf,
    spec: Option<ExportSpec>,
    replaces: Option<Leaf>,
}

impl OpReader {
    /// Takes a message; a change when it is told with all its endpoints.
    ///
    /// # Errors
    /// When the message does not fit those before it, which ends the stream.
    pub fn push(&mut self, op: pb::Op) -> Result<Option<ReadOp>, Refusal> {
        let key = op.key.unwrap_or_default();
        let changed_at = op.changed_at.and_then(Into::into);
        let read_key = || read_key(Some(&key));
        let (head, endpoints) = match (op.act, self.pending.take()) {
            (Some(Act::Chunk(chunk)), Some(pending)) if pending.key == key => {
                return Ok(self.go_on(pending, Some(chunk)));
            }
            (Some(Act::Chunk(_)), _) => {
                return Err(Refusal::new(
                    "ops.chunk",
                    "must follow a put of the same key whose `more` is set",
                ));
            }
            (_, Some(_)) => {
                return Err(Refusal::new("ops", "a chunk must follow a put whose `more` is set"));
            }
            (None, None) => {
                let refused = Refusal::new("act", "is missing or of a later release");
                return Ok(Some(ReadOp { key, read: Err(refused) }));
            }
            (Some(Act::Delete(_)), None) => {
                let read = read_key().map(|key| (Op::Delete { key }, Vec::new()));
                return Ok(Some(ReadOp { key, read }));
            }
            (Some(Act::Put(put)), None) => {
                (read_put(read_key(), &put.leaf, Some(put.spec), &[]), put.endpoints)
            }
            (Some(Act::PutEndpoints(put)), None) => {
                (read_put(read_key(), &put.leaf, None, &put.replaces), put.endpoints)
            }
        };
        let pending = Pending { key, head, changed_at, endpoints: SetReader::default() };
        Ok(self.go_on(pending, endpoints))
    }

    fn go_on(&mut self, mut pending: Pending, chunk: Option<pb::EndpointSet>) -> Option<ReadOp> {
        if !pending.endpoints.push(chunk) {
            self.pending = Some(pending);
            return None;
        }
        let changed_at = pending.changed_at;
        let read = pending.head.and_then(|head| {
            let (endpoints, dropped) = pending.endpoints.finish()?;
            let (key, leaf, endpoints) = (head.key, head.leaf, Arc::new(endpoints));
            let op = match head.spec {
                Some(spec) => Op::Put { key, leaf, spec: Arc::new(spec), endpoints, changed_at },
                None => Op::PutEndpoints { key, leaf, replaces: head.replaces, endpoints, changed_at },
            };
            Ok((op, dropped))
        });
        Some(ReadOp { key: pending.key, read })
    }

    /// Ends the stream.
    ///
    /// # Errors
    /// When endpoints of the last change are missing.
    pub fn finish(self) -> Result<(), Refusal> {
        match self.pending {
            None => Ok(()),
            Some(_) => Err(Refusal::new("ops", "the stream ended within a set of endpoints")),
        }
    }
}

fn read_put(
    key: Result<ServiceKey, Refusal>,
    leaf: &[u8],
    spec: Option<Option<pb::ExportSpec>>,
    replaces: &[u8],
) -> Result<Head, Refusal> {
    let read_spec =
        |spec| ExportSpec::try_from(required(spec, "spec")?).map_err(|error: Refusal| error.within("spec"));
    let replaces = match replaces {
        [] => None,
        leaf => Some(Leaf::from_bytes(read_sixteen(leaf, "replaces")?)),
    };
    Ok(Head { key: key?, leaf: read_leaf(leaf)?, spec: spec.map(read_spec).transpose()?, replaces })
}

/// The most bytes of a field and of a problem that a peer names: they end in logs and conditions.
const MAX_FIELD: usize = 400;
const MAX_PROBLEM: usize = 1_000;

/// The most bytes of each part of a key that is named back: a valid one has no more.
const MAX_KEY_PART: usize = 63;

/// What is said of a refusal where there is no room for its reason.
const NO_ROOM: &str = "refused; send fewer changes at once to be told why";

/// What became of the changes of one write, in their order. The first [`CHUNK_BYTES`] are told in full, of refusals after
/// that the key and the field: so the results of [`MAX_CHANGES`](crate::chunks::MAX_CHANGES) stay below the size of a message that any reader takes.
pub fn results(
    outcomes: impl IntoIterator<Item = (pb::ServiceKey, Result<Vec<Dropped>, Refusal>)>,
) -> Vec<pb::OpResult> {
    let mut bytes = 0;
    let told = |(key, outcome)| {
        let mut told = result(key, outcome);
        if let Some(refused) = &mut told.refused
            && bytes > CHUNK_BYTES
        {
            *refused = pb::Refusal { field: cut(&refused.field, MAX_KEY_PART), problem: NO_ROOM.to_owned() };
        }
        bytes += told.encoded_len();
        told
    };
    outcomes.into_iter().map(told).collect()
}

fn cut(text: &str, most: usize) -> String {
    if text.len() > most { shown(text, most) } else { text.to_owned() }
}

/// What became of a change, as a message.
pub fn result(key: pb::ServiceKey, result: Result<Vec<Dropped>, Refusal>) -> pb::OpResult {
    let (refused, dropped) = match result {
        Ok(dropped) => (None, dropped),
        Err(Refusal { field, problem }) => {
            let refusal = pb::Refusal { field: cut(&field, MAX_FIELD), problem: cut(&problem, MAX_PROBLEM) };
            (Some(refusal), Vec::new())
        }
    };
    let key =
        pb::ServiceKey { namespace: cut(&key.namespace, MAX_KEY_PART), name: cut(&key.name, MAX_KEY_PART) };
    let left_out = |dropped: Dropped| pb::DroppedEndpoint {
        address: dropped.address,
        field: dropped.field,
        problem: dropped.problem,
    };
    pb::OpResult { key: Some(key), refused, dropped: dropped.into_iter().map(left_out).collect(), held: None }
}

/// What a registry holds of an export, as a message.
pub fn held_export(held: &HeldExport) -> pb::HeldExport {
    pb::HeldExport { leaf: held.leaf.to_bytes().to_vec(), spec: Some(held.spec.as_ref().into()) }
}

/// What became of a change, as a registry says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpResult {
    /// The Service.
    pub key: ServiceKey,
    /// The endpoints that were left out, or why it is refused.
    pub outcome: Result<Vec<Dropped>, Refusal>,
    /// What stands of an export that a sync was refused.
    pub held: Option<HeldExport>,
}

/// Reads what became of a change. What the registry says of it is cut to what can be shown.
///
/// # Errors
/// When its key is wrong, or what is held cannot be read.
pub fn read_result(result: pb::OpResult) -> Result<OpResult, Refusal> {
    let key = read_key(result.key.as_ref())?;
    let left_out = |dropped: pb::DroppedEndpoint| Dropped {
        address: shown(&dropped.address, MAX_FIELD),
        field: shown(&dropped.field, MAX_FIELD),
        problem: shown(&dropped.problem, MAX_PROBLEM),
    };
    let outcome = match result.refused {
        Some(refused) => Err(Refusal {
            field: shown(&refused.field, MAX_FIELD),
            problem: shown(&refused.problem, MAX_PROBLEM),
        }),
        None => Ok(result.dropped.into_iter().map(left_out).collect()),
    };
    let held = result.held.map(read_held).transpose().map_err(|error| error.within("held"))?;
    Ok(OpResult { key, outcome, held })
}

fn read_held(held: pb::HeldExport) -> Result<HeldExport, Refusal> {
    let spec =
        ExportSpec::try_from(required(held.spec, "spec")?).map_err(|error: Refusal| error.within("spec"))?;
    Ok(HeldExport { leaf: read_leaf(&held.leaf)?, spec: Arc::new(spec) })
}
