//! What a controller still has to tell its registry.
//!
//! The leading controller feeds in what the cluster exports ([`Outbox::set`], [`Outbox::unset`]); this machine answers
//! with the next [`Call`] to make, and learns from the [`Answer`]. It guarantees that
//!
//! - after the last change and the last fault the registry holds exactly what the cluster exports and the registry
//!   accepts: every doubt (a failed call, a sum that differs) ends in a comparison of the whole set;
//! - one act (Register, Write, Sync) is under way at a time, so that versions rise in the order in which a registry
//!   sees them; renewals go beside them, so that a long sync costs no lease;
//! - a change is sent at once, further ones of the same export at most every [`COALESCE`](crate::timing::COALESCE), the last state always;
//! - a refused export is not sent again until it changes, and holds up no other. What the registry took of it before
//!   stands, and its endpoints stay current under the definition that was taken, also after a change of leader: a sync
//!   that is refused an export learns what is held of it.
//!
//! Rejected: a queue of changes (the last state of each export is all that counts, so this holds states and compares);
//! retrying a failed write as it is (it may have been taken, and may be old by then: registering compares sums, which
//! tells at the price of one small call).

mod answers;
mod calls;
mod link;
mod told;

use crate::failover::Failover;
pub use calls::{Answer, Call, Failure, OpAnswer, Process, Progress, SyncCause};

use crate::ids::ServiceKey;
use crate::model::{EndpointSet, ExportSpec, HeldExport};
use crate::registry::Op;
use crate::time::{Timestamp, WallMillis};
use crate::timing::Timing;
use crate::version::{Leaf, Sum, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use told::{Claim, Refused, estimated_bytes, put};

/// A batch of changes ends before its estimated size exceeds this many bytes, so that it fits one message.
const BATCH_BYTES: usize = 512 * 1024;

/// A delete, at most: its key.
const DELETE_BYTES: usize = 140;

/// One export as the cluster has it now.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    leaf: Leaf,
    spec: Arc<ExportSpec>,
    endpoints: Arc<EndpointSet>,
    /// When it was seen to have become so, until a registry has taken it; not of what was so already when this leader
    /// began.
    changed_at: Option<WallMillis>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// Not registered; the next try is due then.
    Down { retry_at: Timestamp },
    /// A leader with this term has written; nothing is sent any more. A leader with a higher term has another outbox.
    Deposed { floor: u64 },
    /// Registered; the set is to be compared as a whole.
    Doubtful,
    /// Registered; the registry holds what it was told.
    Steady,
}

#[derive(Clone, Debug)]
struct Act {
    version: Version,
    url: usize,
    /// The try at its registry that it belongs to.
    attempt: u64,
    kind: ActKind,
}

#[derive(Clone, Debug)]
enum ActKind {
    Register { claims: BTreeMap<ServiceKey, Claim>, sent_at: Timestamp },
    Write { sent: BTreeMap<ServiceKey, Sent> },
    Sync { claims: BTreeMap<ServiceKey, Claim>, whole: bool },
}

/// One export in a Write.
#[derive(Clone, Debug)]
struct Sent {
    /// Its state; none when it is deleted.
    state: Option<State>,
    /// Whether its definition was left out, since the registry was believed to have it.
    endpoints_only: bool,
}

#[derive(Clone, Copy, Debug)]
struct Renewal {
    attempt: u64,
    sent_at: Timestamp,
    acts_begun: u64,
}

/// The exporting side of one member; see the module.
#[derive(Debug)]
pub struct Outbox {
    timing: Timing,
    registries: Failover,
    /// Why registries that were asked since one last took this cluster would not have it.
    denied: Option<String>,
    term: u64,
    seq: u64,
    told_version: Version,
    exports: BTreeMap<ServiceKey, State>,
    /// What the registry holds, as far as this leader knows.
    told: BTreeMap<ServiceKey, HeldExport>,
    sum: Sum,
    refused: BTreeMap<ServiceKey, Refused>,
    /// Why the registry will not have this cluster.
    turned_away: Option<String>,
    pending: BTreeSet<ServiceKey>,
    sent_at: BTreeMap<ServiceKey, Timestamp>,
    link: Link,
    sync_cause: SyncCause,
    act: Option<Act>,
    acts_begun: u64,
    renewal: Option<Renewal>,
    renew_at: Timestamp,
    /// The registry process that took the last registration or renewal.
    told_by: Option<Process>,
    /// Whether all exports are to be put, as they are and whatever the registry wants.
    resend: bool,
    /// Whether the registry is to be asked what it holds before a renewal is due.
    in_doubt: bool,
    lease_until: Timestamp,
    dirty: BTreeSet<ServiceKey>,
}

impl Outbox {
    /// An outbox of a leader with `term`, that may talk to `urls` registries in order.
    pub fn new(timing: Timing, urls: usize, term: u64, now: Timestamp) -> Self {
        Self {
            timing,
            registries: Failover::new(urls),
            denied: None,
            term,
            seq: 0,
            told_version: Version::new(term, 0),
            exports: BTreeMap::new(),
            told: BTreeMap::new(),
            sum: Sum::EMPTY,
            refused: BTreeMap::new(),
            turned_away: None,
            pending: BTreeSet::new(),
            sent_at: BTreeMap::new(),
            link: Link::Down { retry_at: now },
            sync_cause: SyncCause::Start,
            act: None,
            acts_begun: 0,
            renewal: None,
            renew_at: now,
            told_by: None,
            resend: false,
            in_doubt: false,
            lease_until: now + timing.lease(),
            dirty: BTreeSet::new(),
        }
    }

    /// The cluster exports `key` so, since `changed_at` where that was seen; equal content changes nothing.
    pub fn set(
        &mut self,
        key: ServiceKey,
        spec: Arc<ExportSpec>,
        endpoints: Arc<EndpointSet>,
        changed_at: Option<WallMillis>,
    ) {
        let leaf = Leaf::of(&key, &spec, &endpoints);
        if self.exports.get(&key).is_some_and(|known| known.leaf == leaf) {
            return;
        }
        if !self.refusal_stands(&key, &spec) {
            self.refused.remove(&key);
        }
        self.exports.insert(key.clone(), State { leaf, spec, endpoints, changed_at });
        self.compare(key);
    }

    /// The cluster does not export `key`.
    pub fn unset(&mut self, key: &ServiceKey) {
        self.refused.remove(key);
        let told = self.told.contains_key(key);
        if !told {
            self.sent_at.remove(key);
        }
        if self.exports.remove(key).is_some() || told {
            self.compare(key.clone());
        }
    }

    /// The durations of the lease that the registry granted last.
    pub const fn timing(&self) -> Timing {
        self.timing
    }

    /// The registry to call: an index into the list of URLs.
    pub const fn url(&self) -> usize {
        self.registries.current()
    }

    /// The registry that the act under way is for: another than [`Outbox::url`] when it is asked to take this cluster
    /// over from that.
    pub fn act_url(&self) -> usize {
        self.act.as_ref().map_or_else(|| self.url(), |act| act.url)
    }

    /// Why the set is compared as a whole, or was last.
    pub const fn sync_cause(&self) -> SyncCause {
        self.sync_cause
    }

    /// Whether the registry has accepted this leader.
    pub const fn is_registered(&self) -> bool {
        matches!(self.link, Link::Doubtful | Link::Steady)
    }

    /// The highest term seen by the registry, when it is above this leader's.
    pub const fn floor(&self) -> Option<u64> {
        match self.link {
            Link::Deposed { floor } => Some(floor),
            Link::Down { .. } | Link::Doubtful | Link::Steady => None,
        }
    }

    /// Whether a lease has passed since the last accepted renewal was sent; with none yet, since this leader began: its
    /// predecessor's last renewal was before that.
    pub const fn lease_has_ended(&self, now: Timestamp) -> bool {
        self.lease_until.has_passed(now)
    }

    /// When the lease ends unless it is renewed.
    pub const fn lease_until(&self) -> Timestamp {
        self.lease_until
    }

    /// An export whose [`Progress`] may have changed since it was last handed out.
    pub fn next_dirty(&mut self) -> Option<ServiceKey> {
        self.dirty.pop_first()
    }

    /// The next call to make now. Ask again after every answer and change, and when [`Outbox::poll_timeout`] comes.
    pub fn next_call(&mut self, now: Timestamp) -> Option<Call> {
        if self.renewal_at().is_some_and(|at| at.has_passed(now)) {
            self.in_doubt = false;
            let attempt = self.registries.attempt();
            self.renewal = Some(Renewal { attempt, sent_at: now, acts_begun: self.acts_begun });
            return Some(Call::Renew { version: self.told_version, sum: self.sum });
        }
        if self.act.is_some() {
            return None;
        }
        if let Some(url) = self.better_registry() {
            return Some(self.ask(url, now));
        }
        match self.link {
            Link::Down { retry_at } if retry_at.has_passed(now) => Some(self.register(now)),
            Link::Down { .. } | Link::Deposed { .. } => None,
            Link::Doubtful => Some(self.sync()),
            Link::Steady => self.write(now),
        }
    }

    /// When [`Outbox::next_call`] has something to do without a further event.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let act = match (&self.act, self.link) {
            (None, _) if self.better_registry().is_some() => Some(Timestamp::ZERO),
            (Some(_), _) | (None, Link::Deposed { .. }) => None,
            (None, Link::Down { retry_at }) => Some(retry_at),
            (None, Link::Doubtful) => Some(Timestamp::ZERO),
            (None, Link::Steady) => self.pending.iter().map(|key| self.due(key)).min(),
        };
        self.renewal_at().into_iter().chain(act).chain(self.registries.poll_timeout(self.timing)).min()
    }

    /// What the registry wants of the sync under way.
    pub fn sync_ops(&self, wants: &[ServiceKey]) -> Vec<Op> {
        let Some(Act { kind: ActKind::Sync { claims, whole }, .. }) = &self.act else { return Vec::new() };
        match whole {
            true => claims.iter().map(|(key, claim)| put(key, &claim.state)).collect(),
            false => wants.iter().filter_map(|key| Some(put(key, &claims.get(key)?.state))).collect(),
        }
    }

    fn sync(&mut self) -> Call {
        let whole = std::mem::take(&mut self.resend);
        let claims = if whole { self.all_claims() } else { self.claims() };
        let names = claims.iter().map(|(key, claim)| (key.clone(), claim.leaf)).collect();
        Call::Sync { version: self.begin(ActKind::Sync { claims, whole }), names }
    }

    fn write(&mut self, now: Timestamp) -> Option<Call> {
        let due: Vec<_> = self.pending.iter().filter(|key| self.due(key).has_passed(now)).cloned().collect();
        let (mut ops, mut sent, mut bytes) = (Vec::new(), BTreeMap::new(), 0);
        for key in due {
            let state = self.wanted(&key);
            bytes += state.as_ref().map_or(DELETE_BYTES, estimated_bytes);
            if !ops.is_empty() && bytes > BATCH_BYTES {
                break;
            }
            let told = self.told.get(&key);
            let endpoints_only =
                state.as_ref().zip(told).is_some_and(|(state, told)| state.spec == told.spec);
            let replaces = told.map(|held| held.leaf);
            ops.push(match &state {
                None => Op::Delete { key: key.clone() },
                Some(state) if endpoints_only => Op::PutEndpoints {
                    key: key.clone(),
                    leaf: state.leaf,
                    replaces,
                    endpoints: Arc::clone(&state.endpoints),
                    changed_at: state.changed_at,
                },
                Some(state) => put(&key, state),
            });
            self.sent_at.insert(key.clone(), now);
            sent.insert(key, Sent { state, endpoints_only });
        }
        if ops.is_empty() {
            return None;
        }
        for key in sent.keys() {
            self.pending.remove(key);
        }
        Some(Call::Write { version: self.begin(ActKind::Write { sent }), ops })
    }

    /// The set is to be compared as a whole.
    const fn doubt_all(&mut self, cause: SyncCause) {
        self.link = Link::Doubtful;
        self.sync_cause = cause;
    }

    fn begin(&mut self, kind: ActKind) -> Version {
        self.begin_at(self.url(), kind)
    }

    fn begin_at(&mut self, url: usize, kind: ActKind) -> Version {
        self.acts_begun += 1;
        self.seq += 1;
        let version = Version::new(self.term, self.seq);
        self.act = Some(Act { version, url, attempt: self.registries.attempt(), kind });
        version
    }
}
