//! What must hold: at each verdict, at each change of a replica, and when all is well again.

use super::process::{GRACE, Process};
use super::table::{Key, Value};
use super::world::World;
use crate::facts::{CLAIMANT, LEASE, cluster_id, cluster_uid, keys, place_of};
use crate::invariants;
use mcs_core::ids::{ClusterId, ClusterUid, Epoch, ServiceKey};
use mcs_core::model::MemberState;
use mcs_core::registry::Who;
use mcs_core::time::Timestamp;
use mcs_core::version::{Sum, Version};
use std::collections::BTreeMap;
use std::time::Duration;

/// The versions of a member that a replica held.
pub(crate) struct Floors {
    uid: ClusterUid,
    version: Version,
    exports: BTreeMap<ServiceKey, Version>,
}

impl Floors {
    fn of(uid: &ClusterUid) -> Self {
        Self { uid: uid.clone(), version: Version::default(), exports: BTreeMap::new() }
    }
}

impl World {
    /// Up to when a replica has read each other one that is well. One that it never read takes no clusters before a lease
    /// has passed.
    fn known_until(&self, slot: usize, process: &Process) -> BTreeMap<Epoch, Timestamp> {
        let now = self.now;
        let mut known_until = BTreeMap::from([(process.epoch, now)]);
        for (other, one) in self.slots.iter().enumerate() {
            let Some(one) = one else { continue };
            let is_well = one.serves && one.sick.has_passed(now) && (one.started + 2 * LEASE).has_passed(now);
            let in_reach = self.cut_until.has_passed(now) || one.region == process.region;
            if other != slot && is_well && in_reach && process.read.contains_key(&one.epoch) {
                known_until.insert(one.epoch, self.read_until(process, one.epoch));
            }
        }
        known_until
    }

    /// When the newest item that a replica read of another one was made.
    fn read_until(&self, process: &Process, epoch: Epoch) -> Timestamp {
        let read = process.read.get(&epoch).copied().unwrap_or_default();
        self.made.get(&(epoch, read)).copied().unwrap_or_default()
    }

    /// The newest renewal that a replica knows and that was within a lease by the item that tells it.
    fn known_renewal(
        &self,
        place: usize,
        known_until: &BTreeMap<Epoch, Timestamp>,
    ) -> Option<(Timestamp, Epoch)> {
        let runs = |(at, by): &&(Timestamp, Epoch)| {
            known_until.get(by).is_some_and(|until| *at > until.ago(LEASE) && at.has_passed(*until))
        };
        self.heard[place].iter().rev().find(runs).copied()
    }

    /// 3. A member that expires was silent for a lease at every replica that is well, as far as each was read when the
    ///    verdict was passed; and each was read to the end of that lease, unless its region is silent for lease and grace.
    pub(crate) fn check_verdict(&mut self, slot: usize, process: &Process, uid: &ClusterUid) {
        let (place, now) = (place_of(uid), self.now);
        let known_until = self.known_until(slot, process);
        let renewal = self.known_renewal(place, &known_until);
        assert!(
            renewal.is_none(),
            "invariant 3: {uid} expired at replica {slot}, and renewed at {renewal:?}, known until {known_until:?}"
        );
        let known =
            |(at, by): &&(Timestamp, Epoch)| known_until.get(by).is_some_and(|until| at.has_passed(*until));
        let Some((last, _)) = self.heard[place].iter().rev().find(known) else { return };
        for one in self.slots.iter().flatten() {
            let Some(until) = known_until.get(&one.epoch) else { continue };
            let is_silent =
                |epoch: &Epoch| (self.read_until(process, *epoch) + LEASE + GRACE).has_passed(now);
            let mut of_region =
                process.read.keys().filter(|epoch| self.regions.get(epoch) == Some(&one.region));
            let given_up = one.region != process.region && of_region.all(is_silent);
            assert!(
                given_up || (*last + LEASE).has_passed(*until),
                "invariant 3: {uid} expired at replica {slot}, and renewed at {last:?}, and {} was read until {until:?}",
                one.epoch
            );
        }
    }

    /// Whether the record of a cluster was lost, and nobody far away can tell that from a removal: items are late.
    fn was_lost_in_doubt(&self, uid: &ClusterUid) -> bool {
        self.records_lost.get(uid).is_some_and(|at| {
            let late = self.lag > LEASE / 6 || self.cuts.values().any(|until| *until > *at);
            self.now.since(*at) < 10 * LEASE && late
        })
    }

    pub(crate) fn was_removed(&self, uid: &ClusterUid) -> bool {
        self.removed.get(uid).is_some_and(|at| self.now.since(*at) < 40 * LEASE)
            || self.was_lost_in_doubt(uid)
    }

    /// Whether nobody took a renewal of a place for a lease.
    pub(crate) fn is_silent(&self, place: usize, now: Timestamp) -> bool {
        self.heard[place].last().is_none_or(|(at, _)| now.since(*at) >= LEASE)
    }

    /// 2. A member goes without a call since somebody removed it, another cluster has its id, or nobody is known to have
    ///    heard it for a lease.
    pub(crate) fn check_gone(
        &mut self,
        slot: usize,
        process: &Process,
        uid: &ClusterUid,
        by: Option<&ClusterUid>,
    ) {
        if by.is_some() {
            self.count("ids taken over");
            self.removed.insert(uid.clone(), self.now);
            return;
        }
        let contested = self.owners[CLAIMANT].term > 0 && [0, CLAIMANT].contains(&place_of(uid));
        let known_until = self.known_until(slot, process);
        let runs = |(at, by): &(Timestamp, Epoch)| {
            self.now.since(*at) < LEASE && known_until.get(by).is_some_and(|until| at.has_passed(*until))
        };
        let silent = !self.heard[place_of(uid)].iter().any(runs);
        assert!(
            self.was_removed(uid) || contested || silent,
            "invariant 2: {uid} went at replica {slot}, and nobody removed it"
        );
    }

    /// 1, 5 and 7 of a member of a replica.
    pub(crate) fn check_member(&mut self, process: &mut Process, cluster: &ClusterId) {
        let Some(member) = process.registry.member(cluster) else {
            process.floors.remove(cluster);
            return;
        };
        invariants::invariant_07_a_sum_is_that_of_the_leaves(cluster, member);
        let mark = member.newest_act();
        invariants::invariant_05_a_section_names_what_is_held(cluster, member, &self.book, mark);
        let floors = process.floors.entry(cluster.clone()).or_insert_with(|| Floors::of(member.uid()));
        if floors.uid != *member.uid() {
            *floors = Floors::of(member.uid());
        }
        assert!(
            member.version() >= floors.version,
            "invariant 1: {cluster} as of {} after {}",
            member.version(),
            floors.version
        );
        floors.version = member.version();
        for (key, export) in member.exports() {
            let floor = floors.exports.entry(key.clone()).or_default();
            let held = export.version;
            assert!(held >= *floor, "invariant 1: {key} of {cluster} at {held} after {floor}");
            *floor = held;
        }
    }

    /// 6. Lists, logs and merges agree.
    pub(crate) fn check_all(&self) {
        for process in self.slots.iter().flatten() {
            invariants::invariant_06_list_log_and_merge_agree(&process.registry, &process.log);
        }
    }

    /// 8. Owners, replicas and tables hold one thing, and importers show it.
    pub(crate) fn check_convergence(&mut self, dead: Option<usize>) {
        for place in 0..self.size {
            let id = cluster_id(place);
            let who = Who { cluster: id.clone(), uid: cluster_uid(place) };
            let leader = self.owners[place].leaders.values().find(|leader| leader.leads);
            let renewed = leader.and_then(|leader| leader.renewed);
            for (slot, process) in self.slots.iter().enumerate() {
                let process = process.as_ref().expect("a process");
                let member = process.registry.member(&id);
                assert!(
                    process.registry.is_complete(self.now),
                    "convergence: replica {slot} is not complete"
                );
                if dead == Some(place) {
                    let state = member.map(|member| member.state());
                    let gone = state.is_none_or(|state| state == MemberState::Expired);
                    assert!(gone, "convergence: {id} is dead, but {state:?} at replica {slot}");
                    continue;
                }
                let member =
                    member.unwrap_or_else(|| panic!("convergence: {id} is not known to replica {slot}"));
                assert_eq!(
                    (member.uid(), member.state()),
                    (&who.uid, MemberState::Active),
                    "convergence: {id} at replica {slot}"
                );
                assert_eq!(
                    Some((member.version(), member.sum())),
                    renewed,
                    "invariant 8: {id} at replica {slot}, and as its owner has it"
                );
            }
            if dead == Some(place) {
                continue;
            }
            for (region, table) in self.tables.iter().enumerate() {
                let Some(Value::Record(record)) = table.value(&Key::Record(who.clone())) else {
                    panic!("invariant 8: {id} has no record in region {region}")
                };
                assert_eq!(
                    Some((record.version, record.sum)),
                    renewed,
                    "invariant 8: the record of {id} in region {region}"
                );
                let leaves = keys().iter().filter_map(|key| {
                    match table.value(&Key::Export(who.clone(), key.clone())) {
                        Some(Value::Export(export)) => Some(export.leaf),
                        _ => None,
                    }
                });
                let sum: Sum = leaves.collect();
                if sum != record.sum {
                    self.lost.push((region, who.clone()));
                }
            }
        }
        for importer in &self.importers {
            if dead == Some(importer.place) {
                continue;
            }
            for key in keys() {
                let shows = importer.shows.get(key).cloned().unwrap_or_default();
                let shows: BTreeMap<_, _> =
                    shows.into_iter().map(|(id, shows)| (id, shows.endpoints)).collect();
                let exported: BTreeMap<_, _> = (0..self.size)
                    .filter(|place| dead != Some(*place))
                    .filter_map(|place| {
                        let (_, endpoints) = self.owners[place].exports.get(key)?;
                        Some((cluster_id(place), endpoints.clone()))
                    })
                    .collect();
                assert_eq!(shows, exported, "convergence: {key} in {}", importer.place);
            }
        }
        if !self.lost.is_empty() {
            self.count("exports lost in a table");
        }
    }

    /// No replica writes exports again and again as they stand: what is refused is read, and each loss is one rewrite.
    pub(crate) fn check_repeats(&mut self, epoch: Epoch, who: &Who) {
        let now = self.now;
        let repeats = self.repeats.entry((epoch, who.clone())).or_default();
        repeats.retain(|at| !(*at + 3 * LEASE).has_passed(now));
        repeats.push(now);
        assert!(
            repeats.len() <= 4,
            "writes: {epoch} writes what stands of {who:?} again and again: {repeats:?}"
        );
    }

    /// While clusters do nothing but renew, beats are all that is written. Where a cluster goes to another replica, its record
    /// may be: by each the claim that it has.
    pub(crate) fn nothing_is_written_while_nothing_happens(&mut self) {
        let before = self.writes;
        self.log(|| "CALM".to_owned());
        self.pass(6 * LEASE);
        let [records, exports, news] = std::array::from_fn(|kind| self.writes[kind] - before[kind]);
        let fine = records <= self.size && exports == 0 && news <= records;
        assert!(
            fine,
            "writes: {records} of records, {exports} of exports, {news} of news while nothing happens"
        );
    }

    /// 4. A cluster that dies while all is well is gone from all replicas within a lease and a sixth, and not before it.
    pub(crate) fn a_dead_cluster_is_gone_in_time(&mut self) {
        if self.size < 3 {
            return;
        }
        let id = cluster_id(0);
        self.owners[0].leaders.clear();
        self.owners[0].dead = true;
        self.pass(Duration::from_millis(100));
        let (last, _) = *self.heard[0].last().expect("a renewal");
        self.pass((last + LEASE).since(self.now) - Duration::from_millis(1));
        let states = |world: &Self| -> Vec<_> {
            world
                .slots
                .iter()
                .flatten()
                .map(|process| process.registry.member(&id).map(|member| member.state()))
                .collect()
        };
        let slots = self.slots.len();
        let all = |state| vec![Some(state); slots];
        assert_eq!(states(self), all(MemberState::Active), "a death: judged within the lease");
        let bound = LEASE / 6 + 5 * Duration::from_millis(400) + 3 * Duration::from_millis(200);
        self.pass(bound);
        assert_eq!(states(self), all(MemberState::Expired), "a death: {bound:?} after the lease");
        self.count("deaths in a calm");
    }
}
