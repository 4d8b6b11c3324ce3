//! Watches one registry process: keeps its own account of time, renewals and acts, and holds the registry to it.

use crate::book::Book;
use crate::facts::{CLUSTERS, LEASE, POLICY, TIMING, cluster_id};
use crate::invariants;
use mcs_core::ids::{ClusterId, ServiceKey};
use mcs_core::log::StateLog;
use mcs_core::model::{MemberState, Object};
use mcs_core::registry::{Refused, Registry};
use mcs_core::time::Timestamp;
use mcs_core::timing::MAX_TICK;
use mcs_core::version::{Leaf, Sum, Version};
use std::collections::BTreeMap;
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

/// A member before a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) state: MemberState,
    pub(crate) version: Version,
    pub(crate) sum: Sum,
    pub(crate) last_renewed: Timestamp,
    pub(crate) exports: BTreeMap<ServiceKey, (Version, Leaf)>,
}

/// All members before a call, and whether the registry was away before it.
pub(crate) struct Before {
    pub(crate) members: Rc<BTreeMap<ClusterId, Facts>>,
    pub(crate) paused: bool,
    pub(crate) revision: u64,
}

/// One registry process under watch.
pub(crate) struct Witness {
    /// Its own judging clock.
    pub(crate) judged: Timestamp,
    seen: Timestamp,
    /// The members after the last call.
    members: Rc<BTreeMap<ClusterId, Facts>>,
    /// When each member renewed last, on the judging clock and on the world's.
    pub(crate) renewed: BTreeMap<ClusterId, (Timestamp, Timestamp)>,
    /// Since when each member is listed, on the world's clock.
    pub(crate) listed: BTreeMap<ClusterId, Timestamp>,
    /// The highest term that registered, and the newest act.
    pub(crate) floors: BTreeMap<ClusterId, u64>,
    pub(crate) marks: BTreeMap<ClusterId, Version>,
    /// When each expired member was judged, on the judging clock.
    expired: BTreeMap<ClusterId, Timestamp>,
    /// Since when verdicts wait, and whether most members were heard since the last time they did.
    pub(crate) hold_since: Option<Timestamp>,
    pub(crate) calm: bool,
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

impl Witness {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            judged: now,
            seen: now,
            members: Rc::default(),
            renewed: BTreeMap::new(),
            listed: BTreeMap::new(),
            floors: BTreeMap::new(),
            marks: BTreeMap::new(),
            expired: BTreeMap::new(),
            hold_since: None,
            calm: true,
            counts: BTreeMap::new(),
        }
    }

    pub(crate) fn before(&mut self, registry: &Registry, now: Timestamp) -> Before {
        let gap = now.since(self.seen);
        self.seen = now;
        self.judged = self.judged + gap.min(MAX_TICK);
        let paused = gap > TIMING.pause();
        let members = Rc::clone(&self.members);
        if paused {
            for (cluster, (judged, _)) in &mut self.renewed {
                if members.get(cluster).is_some_and(|facts| facts.state != MemberState::Expired) {
                    *judged = self.judged;
                }
            }
        }
        Before { members, paused, revision: registry.revision() }
    }

    pub(crate) fn after(
        &mut self,
        before: &Before,
        registry: &Registry,
        log: &StateLog<Object>,
        (call, refused): (Option<&Call>, Option<&Refused>),
        book: &Book,
        now: Timestamp,
    ) {
        if call.is_some() || registry.revision() != before.revision {
            self.members = Rc::new(facts(registry));
        }
        let after = Rc::clone(&self.members);
        self.listed.retain(|cluster, _| after.get(cluster).is_some_and(|facts| facts.state.is_listed()));
        for (cluster, _) in after.iter().filter(|(_, facts)| facts.state.is_listed()) {
            self.listed.entry(cluster.clone()).or_insert(now);
        }
        if let Some((act, kind)) = call {
            invariants::invariant_09_no_older_term_is_taken(self, act, *kind, refused, before, &after);
            invariants::invariant_15_a_call_changes_one_cluster(act, *kind, before, &after);
            if refused.is_none() {
                self.note(act, *kind, now);
            }
        }
        let removed = call.filter(|(_, kind)| *kind == Kind::Remove).map(|(act, _)| cluster_id(act.cluster));
        for (cluster, facts) in before.members.iter() {
            let expired = after.get(cluster).is_none_or(|facts| facts.state == MemberState::Expired);
            if facts.state != MemberState::Expired && expired && removed.as_ref() != Some(cluster) {
                self.count("verdicts");
                invariants::invariant_03_no_renewed_member_expires(self, cluster, now);
                invariants::invariant_10_no_verdict_while_the_clock_stands(self, cluster);
                self.expired.insert(cluster.clone(), self.judged);
            }
        }
        invariants::invariant_04_a_silent_member_is_gone_in_time(self, &after);
        self.watch_hold(registry, &after);
        if registry.revision() != before.revision {
            invariants::invariant_05_a_section_names_what_is_held(registry, book, &self.marks);
            invariants::invariant_06_list_log_and_merge_agree(registry, log);
            invariants::invariant_07_a_sum_is_that_of_the_leaves(registry);
        }
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn note(&mut self, act: &Act, kind: Kind, now: Timestamp) {
        let cluster = cluster_id(act.cluster);
        if matches!(kind, Kind::Register | Kind::Renew) {
            self.renewed.insert(cluster.clone(), (self.judged, now));
            self.expired.remove(&cluster);
        }
        let Some(version) = act.version else { return };
        if kind == Kind::Register {
            let floor = self.floors.entry(cluster.clone()).or_default();
            *floor = version.term.max(*floor);
        }
        let mark = self.marks.entry(cluster).or_default();
        *mark = version.max(*mark);
    }

    fn watch_hold(&mut self, registry: &Registry, after: &BTreeMap<ClusterId, Facts>) {
        match (self.hold_since, registry.is_holding()) {
            (None, true) => {
                self.count("holds");
                invariants::invariant_11_one_hold_an_incident(self);
                self.hold_since = Some(self.judged);
                self.calm = false;
            }
            (Some(_), false) => {
                self.hold_since = None;
                self.calm = !self.is_mass(after);
            }
            (Some(since), true) => invariants::invariant_11_a_hold_ends_by_its_bound(self, since),
            (None, false) => self.calm |= !self.is_mass(after),
        }
    }

    /// Whether more members are silent than the threshold says.
    fn is_mass(&self, members: &BTreeMap<ClusterId, Facts>) -> bool {
        let (mut active, mut silent) = (0, 0);
        for (cluster, facts) in members {
            let expired = facts.state == MemberState::Expired;
            let recent = self.expired.get(cluster).is_some_and(|at| self.judged.since(*at) < LEASE);
            let late =
                self.renewed.get(cluster).is_some_and(|(at, _)| self.judged.since(*at) >= TIMING.late());
            active += usize::from(!expired || recent);
            silent += usize::from(if expired { recent } else { late });
        }
        active >= POLICY.mass_expiry_min_active.min(CLUSTERS)
            && silent * 100 > active * usize::from(POLICY.mass_expiry_threshold_percent)
    }
}

fn facts(registry: &Registry) -> BTreeMap<ClusterId, Facts> {
    let facts = |(cluster, member): (&ClusterId, &mcs_core::registry::Member)| {
        let exports =
            member.exports().iter().map(|(key, export)| (key.clone(), (export.version, export.leaf)));
        let facts = Facts {
            state: member.state(),
            version: member.version(),
            sum: member.sum(),
            last_renewed: member.last_renewed(),
            exports: exports.collect(),
        };
        (cluster.clone(), facts)
    };
    registry.members().map(facts).collect()
}
