//! Watches one registry process: keeps its own account of time, renewals and acts, and holds the registry to it.
//!
//! What a call may have changed is looked at after the call: the caller, what was told, and of every other member
//! whether it is as it was. All of it is compared from time to time ([`Witness::check_all`]).

use crate::book::Book;
use crate::facts::{LEASE, POLICY, TIMING, cluster_id, cluster_uid, place_of};
use crate::invariants;
use mcs_core::ids::{ClusterId, ClusterUid, ServiceKey};
use mcs_core::log::StateLog;
use mcs_core::model::{MemberState, Object, ObjectKey};
use mcs_core::registry::{Member, Refused, Registry};
use mcs_core::time::Timestamp;
use mcs_core::timing::MAX_TICK;
use mcs_core::version::{Leaf, Sum, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// What a call is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Act {
    pub(crate) cluster: usize,
    pub(crate) version: Option<Version>,
}

/// The kind of a call that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Register,
    Renew,
    Write,
    Begin,
    WithinSync,
    Remove,
}

/// A watched call.
pub(crate) type Call = (Act, Kind);

/// A member as it was after a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) uid: ClusterUid,
    pub(crate) state: MemberState,
    pub(crate) version: Version,
    pub(crate) sum: Sum,
    pub(crate) last_renewed: Timestamp,
    pub(crate) exports: Rc<BTreeMap<ServiceKey, (Version, Leaf)>>,
}

impl Facts {
    fn of(member: &Member, exports: Rc<BTreeMap<ServiceKey, (Version, Leaf)>>) -> Self {
        Self {
            uid: member.uid().clone(),
            state: member.state(),
            version: member.version(),
            sum: member.sum(),
            last_renewed: member.last_renewed(),
            exports,
        }
    }

    /// The facts of `member`, all of them read anew.
    fn fresh(member: &Member) -> Self {
        let export = |(key, export): (&ServiceKey, &mcs_core::model::Export)| {
            (key.clone(), (export.version, export.leaf))
        };
        Self::of(member, Rc::new(member.exports().iter().map(export).collect()))
    }
}

/// All members after a call.
pub(crate) type Members = BTreeMap<ClusterId, Rc<Facts>>;

/// What was before a call: the members, and whether the registry was away.
pub(crate) struct Before {
    pub(crate) members: Members,
    pub(crate) paused: bool,
}

/// What a call left behind.
pub(crate) struct After<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) log: &'a StateLog<Object>,
    /// The objects that were told.
    pub(crate) told: &'a [ObjectKey],
    pub(crate) refused: Option<&'a Refused>,
    pub(crate) now: Timestamp,
}

/// One registry process under watch.
pub(crate) struct Witness {
    /// Its own judging clock.
    pub(crate) judged: Timestamp,
    seen: Timestamp,
    /// The members after the last call.
    members: Members,
    /// When each member renewed last, on the judging clock and on the world's.
    pub(crate) renewed: BTreeMap<ClusterId, (Timestamp, Timestamp)>,
    /// Since when each member is listed, on the world's clock.
    pub(crate) listed: BTreeMap<ClusterId, Timestamp>,
    /// The highest term that registered, and the newest act, by place.
    pub(crate) floors: BTreeMap<usize, u64>,
    pub(crate) marks: BTreeMap<usize, Version>,
    /// When each expired member was judged, and when each was heard again after it had been late, on the judging clock.
    expired: BTreeMap<ClusterId, Timestamp>,
    returned: BTreeMap<ClusterId, Timestamp>,
    /// Since when verdicts wait, and whether most members were heard since the last time they did.
    pub(crate) hold_since: Option<Timestamp>,
    pub(crate) calm: bool,
    /// An id that another cluster took over in the last call.
    pub(crate) taken_over: Option<ClusterId>,
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

impl Witness {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            judged: now,
            seen: now,
            members: Members::new(),
            renewed: BTreeMap::new(),
            listed: BTreeMap::new(),
            floors: BTreeMap::new(),
            marks: BTreeMap::new(),
            expired: BTreeMap::new(),
            returned: BTreeMap::new(),
            hold_since: None,
            calm: true,
            taken_over: None,
            counts: BTreeMap::new(),
        }
    }

    pub(crate) fn before(&mut self, now: Timestamp) -> Before {
        let gap = now.since(self.seen);
        self.seen = now;
        self.judged = self.judged + gap.min(MAX_TICK);
        let paused = gap > TIMING.pause();
        if paused {
            for (cluster, (judged, _)) in &mut self.renewed {
                if self.members.get(cluster).is_some_and(|facts| facts.state != MemberState::Expired) {
                    *judged = self.judged;
                }
            }
        }
        Before { members: self.members.clone(), paused }
    }

    pub(crate) fn after(&mut self, before: &Before, call: Option<&Call>, after: &After<'_>, book: &Book) {
        let caller = call.map(|(act, _)| cluster_id(act.cluster));
        self.look(after.registry, caller.as_ref());
        let members = self.members.clone();
        self.listed.retain(|cluster, _| members.get(cluster).is_some_and(|facts| facts.state.is_listed()));
        for (cluster, _) in members.iter().filter(|(_, facts)| facts.state.is_listed()) {
            self.listed.entry(cluster.clone()).or_insert(after.now);
        }
        if let Some((act, kind)) = call {
            invariants::invariant_09_no_older_term_is_taken(
                self,
                act,
                *kind,
                after.refused,
                before,
                &members,
            );
            invariants::invariant_15_a_call_changes_one_cluster(act, *kind, before, &members);
            if *kind == Kind::WithinSync {
                invariants::invariant_02_a_sync_ends_what_its_leader_has_not(act, before, &members, book);
            }
            match after.refused {
                Some(Refused::Claimed { .. }) => self.count("ids claimed in vain"),
                Some(Refused::TooManyWrites { .. }) => self.count("writes too many"),
                _ => {}
            }
            if after.refused.is_none() {
                let known = before.members.get(&cluster_id(act.cluster));
                let is_new = known.is_none_or(|known| known.uid != cluster_uid(act.cluster));
                self.note(act, *kind, is_new, after.now);
            }
        }
        let removed = caller.as_ref().filter(|_| call.is_some_and(|(_, kind)| *kind == Kind::Remove));
        for (cluster, facts) in &before.members {
            if members.get(cluster).is_some_and(|new| new.uid != facts.uid) {
                self.count("ids taken over");
                self.taken_over = Some(cluster.clone());
                invariants::invariant_15_an_id_changes_hands_after_its_lease(cluster, facts);
            }
            let is_back = |new: &Facts| new.uid == facts.uid && new.state.is_listed();
            if facts.state == MemberState::Expired && members.get(cluster).is_some_and(|new| is_back(new)) {
                self.count("members back");
                invariants::invariant_05_who_is_back_is_whole(after.registry, cluster);
            }
            let expired = members.get(cluster).is_none_or(|facts| facts.state == MemberState::Expired);
            if facts.state != MemberState::Expired && expired && removed != Some(cluster) {
                self.count("verdicts");
                invariants::invariant_03_no_renewed_member_expires(self, cluster, after.now);
                invariants::invariant_10_no_verdict_while_the_clock_stands(self, cluster);
                self.expired.insert(cluster.clone(), self.judged);
            }
        }
        invariants::invariant_04_a_silent_member_is_gone_in_time(self, &members);
        self.watch_hold(after.registry, &members);
        self.check_told(caller.as_ref(), after, book);
    }

    /// Takes note of all members: of the caller and of those that changed, all facts are read anew.
    fn look(&mut self, registry: &Registry, caller: Option<&ClusterId>) {
        let facts = |(cluster, member): (&ClusterId, &Member)| {
            let known = self.members.get(cluster).filter(|_| caller != Some(cluster));
            let same = known.filter(|known| Facts::of(member, Rc::clone(&known.exports)) == ***known);
            (cluster.clone(), same.map_or_else(|| Rc::new(Facts::fresh(member)), Rc::clone))
        };
        self.members = registry.members().map(facts).collect();
    }

    /// Checks what was told, and what the caller may have changed without a word.
    fn check_told(&self, caller: Option<&ClusterId>, after: &After<'_>, book: &Book) {
        let sections = after.told.iter().filter_map(|key| match key {
            ObjectKey::Section(cluster) => Some(cluster),
            ObjectKey::Header(_) | ObjectKey::Part(..) => None,
        });
        let clusters: BTreeSet<&ClusterId> = sections.chain(caller).collect();
        for cluster in clusters {
            let Some(member) = after.registry.member(cluster) else { continue };
            let mark = self.marks.get(&place_of(member.uid())).copied().unwrap_or_default();
            invariants::invariant_05_a_section_names_what_is_held(cluster, member, book, mark);
            invariants::invariant_07_a_sum_is_that_of_the_leaves(cluster, member);
        }
        let of_caller = caller.map(|cluster| ObjectKey::Section(cluster.clone()));
        for key in after.told.iter().chain(&of_caller) {
            invariants::invariant_06_list_and_log_agree(after.registry, after.log, key);
        }
        let services: BTreeSet<&ServiceKey> = after
            .told
            .iter()
            .filter_map(|key| match key {
                ObjectKey::Header(service) | ObjectKey::Part(service, _) => Some(service),
                ObjectKey::Section(_) => None,
            })
            .collect();
        for service in services {
            invariants::invariant_06_a_merge_is_fresh(after.registry, service);
        }
    }

    /// Checks everything that a registry holds, whatever changed last.
    pub(crate) fn check_all(&self, registry: &Registry, log: &StateLog<Object>, book: &Book) {
        for (cluster, member) in registry.members() {
            let mark = self.marks.get(&place_of(member.uid())).copied().unwrap_or_default();
            invariants::invariant_05_a_section_names_what_is_held(cluster, member, book, mark);
            invariants::invariant_07_a_sum_is_that_of_the_leaves(cluster, member);
        }
        invariants::invariant_06_list_log_and_merge_agree(registry, log);
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Takes note of a call that was taken; `is_new` says whether it made the cluster a member.
    fn note(&mut self, act: &Act, kind: Kind, is_new: bool, now: Timestamp) {
        let cluster = cluster_id(act.cluster);
        if matches!(kind, Kind::Register | Kind::Renew) {
            let before = self.renewed.insert(cluster.clone(), (self.judged, now));
            if is_new {
                self.returned.remove(&cluster);
            } else if before.is_some_and(|(at, _)| self.judged.since(at) >= TIMING.late()) {
                self.returned.insert(cluster.clone(), self.judged);
            }
            self.expired.remove(&cluster);
        }
        let Some(version) = act.version else { return };
        if kind == Kind::Register {
            let floor = self.floors.entry(act.cluster).or_default();
            *floor = version.term.max(*floor);
        }
        // A registry knows no acts of a member that was removed.
        let mark = self.marks.entry(act.cluster).or_default();
        *mark = if is_new { version } else { version.max(*mark) };
    }

    fn watch_hold(&mut self, registry: &Registry, members: &Members) {
        match (self.hold_since, registry.is_holding()) {
            (None, true) => {
                self.count("holds");
                invariants::invariant_11_one_hold_an_incident(self);
                self.hold_since = Some(self.judged);
                self.calm = false;
            }
            (Some(_), false) => {
                self.hold_since = None;
                self.calm = !self.is_mass(members);
            }
            (Some(since), true) => invariants::invariant_11_a_hold_ends_by_its_bound(self, since),
            (None, false) => self.calm |= !self.is_mass(members),
        }
    }

    /// Whether more members are silent than the threshold says.
    fn is_mass(&self, members: &Members) -> bool {
        let (mut active, mut silent) = (0, 0);
        for (cluster, facts) in members {
            let expired = facts.state == MemberState::Expired;
            let recent = self.expired.get(cluster).is_some_and(|at| self.judged.since(*at) < LEASE);
            let since = |at: &Timestamp| self.judged.since(*at);
            let late = self.renewed.get(cluster).is_some_and(|(at, _)| since(at) >= TIMING.late())
                || self.returned.get(cluster).is_some_and(|at| since(at) < TIMING.heartbeat());
            active += usize::from(!expired || recent);
            silent += usize::from(if expired { recent } else { late });
        }
        active >= POLICY.mass_expiry_min_active
            && silent * 100 > active * usize::from(POLICY.mass_expiry_threshold_percent)
    }
}
