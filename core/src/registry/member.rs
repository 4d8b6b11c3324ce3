//! One member: its lease, what it exports, and how much of that is known to be all of it.

use super::MAX_EXPORTS;
use super::elsewhere::Elsewhere;
use crate::ids::{Build, ClusterUid, Instance, Region, ServiceKey};
use crate::lease::Lease;
use crate::model::{Export, HeldExport, MemberState, Part, PartSet, Report, Section};
use crate::rate::Bucket;
use crate::replicas::UidTag;
use crate::time::{Timestamp, WallMillis};
use crate::validate::Refusal;
use crate::version::{Sum, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The field of the refusal of an export above the limit.
pub const TOO_MANY: &str = "exports";

/// A member as this registry knows it.
#[derive(Clone, Debug)]
pub struct Member {
    pub(super) uid: ClusterUid,
    pub(super) region: Option<Region>,
    pub(super) instance: Instance,
    pub(super) build: Build,
    /// The set that is held is the member's whole set as of this version.
    pub(super) as_of: Version,
    /// The newest act seen. An older one is ignored.
    pub(super) mark: Version,
    /// Whether the member said that it has something else than what is held: `as_of` stands until that is repaired.
    pub(super) behind: bool,
    /// Whether the whole set was known at some time since this process started.
    pub(super) whole: bool,
    pub(super) sum: Sum,
    pub(super) exports: BTreeMap<ServiceKey, Export>,
    /// How many endpoints all exports have.
    pub(super) endpoints: usize,
    pub(super) sync: Option<OpenSync>,
    pub(super) lease: Lease,
    pub(super) standing: Standing,
    /// When, on the judging clock, something is to be decided of this member.
    pub(super) due: Timestamp,
    pub(super) last_renewed: Timestamp,
    /// Whether its exports are in the log: from the time on that it is whole, or that a store told them.
    pub(super) in_log: bool,
    /// What watchers were told of its section last.
    pub(super) told: Option<Section>,
    /// How many more writes it may send now.
    pub(super) writes: Bucket,
    /// What it said of itself.
    pub(super) report: Report,
    /// Stands for its UID among replicas.
    pub(super) tag: UidTag,
    /// When it took its id, by the wall clock of the registry that let it.
    pub(super) claimed_at: Option<WallMillis>,
    /// What it is to replicas of a shared store.
    pub(super) elsewhere: Elsewhere,
}

/// How a member's lease was judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It runs.
    Running,
    /// It has run out, and the verdict waits.
    Held,
    /// It has run out; the verdict was at this moment of the judging clock. A member that `renews` since, and has something
    /// else than what is held, keeps its id and stays hidden until that is repaired: what it had is not shown again.
    Expired { at: Timestamp, renews: bool },
}

/// A sync that has begun.
#[derive(Clone, Debug)]
pub(super) struct OpenSync {
    pub(super) version: Version,
    /// What newer acts put or deleted since: the sync has no say in it.
    pub(super) touched: BTreeSet<ServiceKey>,
    /// What is held but was neither named nor touched: it goes with the end, unless it is named before.
    pub(super) going: BTreeSet<ServiceKey>,
}

/// What became of an export that was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PutEffect {
    /// It is as it was.
    Nothing,
    /// Its definition is as it was, so that the merge is not concerned.
    Endpoints,
    /// It is new, or its definition is.
    Definition,
}

impl Member {
    /// A member of which nothing is known but that it renewed now: `judged` on the judging clock.
    pub(super) fn new(uid: ClusterUid, judged: Timestamp, now: Timestamp) -> Self {
        Self {
            tag: UidTag::of(&uid),
            claimed_at: None,
            elsewhere: Elsewhere::default(),
            uid,
            region: None,
            instance: Instance::default(),
            build: Build::default(),
            as_of: Version::default(),
            mark: Version::default(),
            behind: true,
            whole: false,
            sum: Sum::EMPTY,
            exports: BTreeMap::new(),
            endpoints: 0,
            sync: None,
            lease: Lease::renewed_at(judged),
            standing: Standing::Running,
            due: judged,
            last_renewed: now,
            in_log: false,
            told: None,
            writes: Bucket::default(),
            report: Report::default(),
        }
    }

    /// The UID of its `kube-system` Namespace.
    pub const fn uid(&self) -> &ClusterUid {
        &self.uid
    }

    /// Its region, where it has one.
    pub const fn region(&self) -> Option<&Region> {
        self.region.as_ref()
    }

    /// The controller that registered it last.
    pub const fn instance(&self) -> &Instance {
        &self.instance
    }

    /// That controller's version.
    pub const fn build(&self) -> &Build {
        &self.build
    }

    /// What is held is the member's whole set as of this version.
    pub const fn version(&self) -> Version {
        self.as_of
    }

    /// The newest act seen of it. What is held may lack others.
    pub const fn newest_act(&self) -> Version {
        self.mark
    }

    /// The sum of the leaves that are held.
    pub const fn sum(&self) -> Sum {
        self.sum
    }

    /// What this registry thinks of it.
    pub const fn state(&self) -> MemberState {
        match (self.standing, self.whole) {
            (Standing::Expired { .. }, _) => MemberState::Expired,
            (Standing::Held, true) => MemberState::Held,
            (Standing::Running, true) => MemberState::Active,
            (Standing::Held | Standing::Running, false) => MemberState::Syncing,
        }
    }

    /// What a store is to keep as its state. What is held while acts are missing, without what newer ones deleted, is its
    /// set as of no version: who reads that is to take it for a part.
    pub fn recorded_state(&self) -> MemberState {
        let state = self.state();
        let is_shown = matches!(state, MemberState::Active | MemberState::Held);
        let is_part = self.behind && self.elsewhere.deleted.values().any(|at| *at > self.as_of);
        if is_shown && is_part { MemberState::Syncing } else { state }
    }

    /// Whether its whole set was known at some time since this registry started.
    #[cfg(any(test, feature = "test-util"))]
    pub const fn is_whole(&self) -> bool {
        self.whole
    }

    /// Whether watchers are told of its exports.
    #[cfg(any(test, feature = "test-util"))]
    pub const fn is_in_log(&self) -> bool {
        self.in_log
    }

    /// When it registered or renewed last, on the process's clock.
    pub const fn last_renewed(&self) -> Timestamp {
        self.last_renewed
    }

    /// What it said of itself with its last renewal.
    pub const fn report(&self) -> &Report {
        &self.report
    }

    /// When it took its id, by the wall clock of the registry that let it, where that is known.
    pub const fn claimed_at(&self) -> Option<WallMillis> {
        self.claimed_at
    }

    /// What it exports. It is shown and merged as the member's state says.
    pub const fn exports(&self) -> &BTreeMap<ServiceKey, Export> {
        &self.exports
    }

    /// What is held of one export, for an owner who cannot have it replaced.
    pub fn held(&self, key: &ServiceKey) -> Option<HeldExport> {
        let export = self.exports.get(key)?;
        Some(HeldExport { leaf: export.leaf, spec: Arc::clone(&export.spec) })
    }

    /// How many endpoints all its exports have.
    pub const fn endpoints(&self) -> usize {
        self.endpoints
    }

    /// Whether another cluster may not take its id.
    pub(super) const fn holds_its_id(&self) -> bool {
        !matches!(self.standing, Standing::Expired { renews: false, .. })
    }

    /// Takes a sign of life. What is hidden stays so unless it is `proven`.
    pub(super) const fn renewed(&mut self, proven: bool) {
        self.standing = match self.standing {
            Standing::Expired { at, .. } if !proven => Standing::Expired { at, renews: true },
            Standing::Expired { .. } | Standing::Held | Standing::Running => Standing::Running,
        };
    }

    /// Whether a sync of `version` has begun and is not over.
    pub(super) fn is_open(&self, version: Version) -> bool {
        self.sync.as_ref().is_some_and(|sync| sync.version == version)
    }

    /// Whether an act that is newer than the open sync put or deleted `key`.
    pub(super) fn has_touched(&self, key: &ServiceKey) -> bool {
        self.sync.as_ref().is_some_and(|sync| sync.touched.contains(key))
    }

    /// Why it may have no new export, with `limit` as the most; none when it may. What an open sync is about to delete
    /// does not count, so that a cluster at its limit can change one export for another. That of several syncs that
    /// broke does, from a second `limit` on: without an end nothing goes.
    pub(super) fn is_full(&self, limit: usize) -> Option<Refusal> {
        let held = self.exports.len();
        let going = self.sync.as_ref().map_or(0, |sync| sync.going.len());
        (held.saturating_sub(going) >= limit || held >= limit.saturating_mul(2)).then(|| {
            let problem = format!(
                "the cluster has {limit} exports, the most that this registry takes (--{MAX_EXPORTS}): \
                 delete one, or raise it"
            );
            Refusal::new(TOO_MANY, problem)
        })
    }

    /// Takes it for proven that what is held is all, as of the newest act: a member that renews is shown again. Says whether
    /// that is so for the first time.
    pub(super) fn prove(&mut self) -> bool {
        self.prove_as_of(self.mark)
    }

    /// Takes it for proven that what is held is all, as of a version. Acts that are newer and are not all held keep it
    /// behind. Says whether all of it is known for the first time.
    pub(super) fn prove_as_of(&mut self, version: Version) -> bool {
        let first = !self.whole;
        self.whole = true;
        self.as_of = self.as_of.max(version);
        self.behind = self.as_of < self.mark;
        if let (Standing::Expired { renews: true, .. }, false) = (self.standing, self.behind) {
            self.standing = Standing::Running;
        }
        let as_of = self.as_of;
        self.elsewhere.deleted.retain(|_, version| *version > as_of);
        first
    }

    /// The set that is held, where it is known to be the member's, and as of which version.
    pub(super) fn proven(&self) -> Option<(PartSet, Version)> {
        let known = self.whole && !self.behind;
        known.then(|| (PartSet { uid: self.uid.clone(), sum: self.sum }, self.as_of))
    }

    /// Takes an export, and keeps the sum and the count.
    pub(super) fn put(&mut self, key: &ServiceKey, export: Export) -> PutEffect {
        let effect = match self.exports.get(key) {
            Some(known) if known.spec != export.spec => PutEffect::Definition,
            Some(known) if known.leaf == export.leaf && known.endpoints == export.endpoints => {
                return PutEffect::Nothing;
            }
            Some(_) => PutEffect::Endpoints,
            None => PutEffect::Definition,
        };
        self.sum.add(export.leaf);
        self.endpoints += export.endpoints.len();
        if let Some(known) = self.exports.insert(key.clone(), export) {
            self.sum.remove(known.leaf);
            self.endpoints -= known.endpoints.len();
        }
        effect
    }

    /// Drops an export, and keeps the sum and the count.
    pub(super) fn delete(&mut self, key: &ServiceKey) -> bool {
        let known = self.exports.remove(key);
        if let Some(known) = &known {
            self.sum.remove(known.leaf);
            self.endpoints -= known.endpoints.len();
        }
        if let Some(sync) = &mut self.sync {
            sync.going.remove(key);
        }
        known.is_some()
    }

    pub(super) fn section(&self) -> Section {
        Section {
            uid: self.uid.clone(),
            region: self.region.clone(),
            state: self.state(),
            whole: self.whole,
            version: self.as_of,
            // What a sync has put so far is nothing to tell.
            sum: if self.whole { self.sum } else { Sum::EMPTY },
        }
    }

    pub(super) fn part(&self, key: &ServiceKey) -> Option<Part> {
        let export = self.exports.get(key)?;
        Some(Part {
            uid: self.uid.clone(),
            version: export.version,
            leaf: export.leaf,
            endpoints: export.endpoints.clone(),
            changed_at: export.changed_at,
        })
    }
}
