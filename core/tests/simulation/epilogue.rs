//! One fault in a world where all is well, so that what is promised of it can be checked to the letter.
//!
//! Amid other faults only what may never happen can be checked. Here all clusters are in reach and agree, one thing
//! befalls them, and what is promised of it in time and number must hold.

use crate::facts::{LEASE, POLICY, TIMING, cluster_id, keys};
use crate::world::World;
use mcs_core::ids::{ClusterId, ServiceKey};
use mcs_core::model::MemberState;
use mcs_core::time::Timestamp;
use rand::Rng;
use rand::seq::IndexedRandom;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long after the fact all importers have carried out what the registry said, in a network that works.
const CARRIED_OUT: Duration = Duration::from_millis(600);

/// What exists of one source in the imports of one cluster: the slices with their resource versions.
type Slices = BTreeMap<(ServiceKey, String), (ClusterId, String)>;

/// What must not change while nothing is said to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Done {
    /// Writes that the API servers took.
    writes: u64,
    /// Leases that were judged to have run out, by the registry that runs.
    verdicts: u64,
}

impl World {
    /// Lets one thing happen, and checks what is promised of it.
    pub(crate) fn epilogue(&mut self) {
        self.steady_clusters_send_renewals_only();
        type Check = fn(&mut World);
        const CHECKS: [(&str, Check); 8] = [
            ("restarts in a calm", World::invariant_14_restarts_write_nothing),
            ("restarts in a calm", World::invariant_14_restarts_write_nothing),
            ("brief mass silences", World::a_brief_mass_silence_changes_nothing),
            ("long mass silences", World::a_long_mass_silence_is_judged_after_the_hold),
            ("deaths in a calm", World::a_dead_cluster_is_gone_in_time_and_nothing_else),
            ("registries upgraded in a calm", World::what_an_older_registry_dropped_is_told_to_a_newer_one),
            ("registries stopped in a calm", World::a_registry_that_stood_still_judges_nothing),
            ("controllers stopped in a calm", World::a_controller_that_stood_still_comes_back),
        ];
        let (what, check) = *CHECKS.choose(&mut self.rng).expect("a check");
        self.log(|| format!("EPILOGUE {what}"));
        self.count(what);
        check(self);
        self.check_convergence(None);
    }

    fn done(&self) -> Done {
        let verdicts = self.server.as_ref().map_or(0, |server| server.registry.counts().expired);
        Done { writes: self.clusters.iter().map(|cluster| cluster.writes).sum(), verdicts }
    }

    /// Nothing is resent for ever: what agrees is renewed, and no more.
    fn steady_clusters_send_renewals_only(&mut self) {
        let (done, acts) = (self.done(), self.acts);
        self.pass(2 * LEASE);
        assert_eq!(self.acts, acts, "resent: Register, Write or Sync though all agree");
        assert_eq!(self.done(), done, "resent: writes though nothing changed");
    }

    /// 14. The restart of every controller and of the registry writes nothing.
    fn invariant_14_restarts_write_nothing(&mut self) {
        if self.is_any_left_out() {
            // There may be room for it now, which a new leader tries.
            return;
        }
        let writes = self.done().writes;
        self.log(|| "RESTART of all controllers".to_owned());
        self.controllers.clear();
        for cluster in 0..self.size {
            self.start_controller(cluster);
        }
        self.pass(4 * LEASE);
        assert_eq!(self.done().writes, writes, "invariant 14: the restart of the controllers writes");
        self.log(|| "RESTART of the registry".to_owned());
        self.stop_server();
        self.pass(LEASE / 10);
        self.start_server();
        self.pass(5 * LEASE);
        assert_eq!(self.done().writes, writes, "invariant 14: the restart of the registry writes");
    }

    /// 60 % of the clusters or more, at random.
    fn majority(&mut self) -> Vec<usize> {
        let all: Vec<usize> = (0..self.size).collect();
        let least = (self.size * 60).div_ceil(100);
        let many = self.rng.random_range(least..=self.size);
        all.choose_multiple(&mut self.rng, many).copied().collect()
    }

    fn cut_all(&mut self, clusters: &[usize], time: Duration) {
        for cluster in clusters {
            self.cut[*cluster] = self.now + time;
        }
    }

    /// Most clusters fall silent at once; when all are back before the hold is over, nothing had changed anywhere.
    fn a_brief_mass_silence_changes_nothing(&mut self) {
        // The hold begins no sooner than two thirds of a lease after the cut. Who is back renews after the time limit of
        // a call that was lost and the longest pause after it.
        let back = TIMING.call_limit() + TIMING.max_backoff() + TIMING.call_limit();
        let longest = LEASE - TIMING.heartbeat() + POLICY.mass_expiry_hold - back;
        self.slow = self.rng.random_bool(0.5);
        let settles = self.some_time(1) + LEASE;
        self.pass(settles);
        let silent = self.majority();
        let time = self.rng.random_range(LEASE / 2..longest);
        self.log(|| format!("SILENCE of {silent:?} for {time:?}"));
        let done = self.done();
        self.cut_all(&silent, time);
        self.pass(time + back);
        assert_eq!(self.done(), done, "mass silence: something changed, though {silent:?} came back");
        self.pass(2 * LEASE);
        assert_eq!(self.done(), done, "mass silence: something changed after {silent:?} came back");
    }

    /// Most clusters fall silent, and stay so: they are listed until the hold is over, and gone after it.
    fn a_long_mass_silence_is_judged_after_the_hold(&mut self) {
        let silent = self.majority();
        self.log(|| format!("SILENCE of {silent:?}"));
        let time = LEASE + POLICY.mass_expiry_hold + 2 * LEASE;
        let (verdicts, cut_at) = (self.done().verdicts, self.now);
        self.cut_all(&silent, time);
        self.pass(LEASE - TIMING.heartbeat() + POLICY.mass_expiry_hold - Duration::from_millis(300));
        assert_eq!(self.done().verdicts, verdicts, "mass silence: judged within the hold");
        let last = cut_at + LEASE + POLICY.mass_expiry_hold + CARRIED_OUT;
        self.pass(last.since(self.now));
        let registry = &self.server.as_ref().expect("a registry").registry;
        for (cluster, member) in registry.members() {
            let is_silent = silent.iter().any(|silent| cluster_id(*silent) == *cluster);
            let state = if is_silent { MemberState::Expired } else { MemberState::Active };
            assert_eq!(member.state(), state, "mass silence: {cluster}, after the hold");
        }
        self.pass((cut_at + time).since(self.now) + 3 * LEASE);
    }

    /// A cluster dies: it leaves every import when its lease ends, and nothing else changes. Then it is back.
    fn a_dead_cluster_is_gone_in_time_and_nothing_else(&mut self) {
        let dead = self.rng.random_range(0..self.size);
        let id = cluster_id(dead);
        self.log(|| format!("DEATH of {id}"));
        self.controllers.retain(|_, controller| controller.cluster != dead);
        // What it said last may be under way.
        self.pass(Duration::from_millis(50));
        let witness = &self.server.as_ref().expect("a registry").witness;
        let (_, renewed) = witness.renewed[&id];
        let before = self.slices_but_of(dead);
        let shown = before.iter().filter(|slices| slices.values().any(|(source, _)| *source == id)).count();
        self.pass((renewed + LEASE).since(self.now) - Duration::from_millis(1));
        assert_eq!(self.slices_but_of(dead), before, "a death: something changed within the lease of {id}");
        self.pass(Duration::from_millis(1) + CARRIED_OUT);
        let others: Vec<Slices> = before
            .into_iter()
            .map(|slices| slices.into_iter().filter(|(_, (source, _))| *source != id).collect())
            .collect();
        assert_eq!(self.slices_but_of(dead), others, "a death: {id} is gone, and nothing else");
        if shown > 0 {
            self.count("dead clusters gone from imports");
        }
        self.start_controller(dead);
        self.pass(3 * LEASE);
    }

    /// All imported slices of each cluster but `spared`.
    fn slices_but_of(&self, spared: usize) -> Vec<Slices> {
        let slices = |cluster: &crate::cluster::Cluster| {
            let of = |key: &ServiceKey| cluster.existing(key);
            keys()
                .iter()
                .flat_map(|key| of(key).slices.clone().into_iter().map(move |slice| (key, slice)))
                .map(|(key, slice)| {
                    let identity = slice.meta.identity;
                    let source = slice.source.expect("a source");
                    ((key.clone(), identity.name), (source, identity.resource_version))
                })
                .collect()
        };
        let others = self.clusters[..self.size].iter().enumerate().filter(|(place, _)| *place != spared);
        others.map(|(_, cluster)| slices(cluster)).collect()
    }

    /// The registry stands still for two leases: no lease is judged by that time.
    fn a_registry_that_stood_still_judges_nothing(&mut self) {
        let done = self.done();
        self.server_paused = self.now + 2 * LEASE;
        self.pass(2 * LEASE + 2 * LEASE);
        assert_eq!(self.done(), done, "stopped: the registry judged by the time that it stood still");
    }

    /// The registry is one of an earlier release for a while, which drops what it does not know of that what changes.
    fn what_an_older_registry_dropped_is_told_to_a_newer_one(&mut self) {
        for is_old in [true, false] {
            self.server.as_mut().expect("a registry").is_old = is_old;
            self.pass(2 * LEASE);
            for cluster in (0..self.size).filter(|_| is_old) {
                for key in keys() {
                    self.change_definition(cluster, key);
                }
            }
            self.pass(2 * LEASE);
        }
    }

    /// A controller stands still for two leases: the others drop its cluster, and take it back.
    fn a_controller_that_stood_still_comes_back(&mut self) {
        let cluster = self.rng.random_range(0..self.size);
        let until = self.now + 2 * LEASE;
        self.pause_until(cluster, until);
        self.pass(2 * LEASE - Duration::from_millis(1));
        let registry = &self.server.as_ref().expect("a registry").registry;
        let state = registry.member(&cluster_id(cluster)).map(|member| member.state());
        assert_eq!(state, Some(MemberState::Expired), "stopped: {cluster} is silent for two leases");
        self.pass(2 * LEASE);
    }

    /// Lets the leader of `cluster` stand still.
    pub(crate) fn pause_until(&mut self, cluster: usize, until: Timestamp) -> bool {
        let Some(pid) = self.leader(cluster) else { return false };
        let Some(controller) = self.controllers.get_mut(&pid) else { return false };
        controller.paused = controller.paused.max(until);
        self.at(until, crate::world::Event::Wake { pid });
        true
    }
}
