//! One history: a start, faults and changes, a heal, and what must have come of it.

use crate::actions::ACTIONS;
use crate::facts::{LEASE, MOST_CLUSTERS, cluster_id, keys};
use crate::invariants;
use crate::world::{Counts, EventLog, World};
use mcs_core::ids::ServiceKey;
use mcs_core::merge::merge;
use mcs_core::model::MemberState;
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// After the heal, all is well within this time: a lease and a hold for what is silent, a lease each for a registry to
/// be complete and for its grace, what late calls may add, and the rest of a pause.
const HEALED: u32 = 12;

/// Runs the history of `seed`; says how often what happened. Panics where an invariant is broken.
pub(crate) fn run(seed: u64, event_log: Option<EventLog>) -> Counts {
    let mut world = World::new(seed, event_log);
    world.start_server();
    for cluster in 0..world.size {
        for key in keys() {
            if world.rng.random_bool(0.6) {
                world.add_export(cluster, key);
            }
        }
        world.start_controller(cluster);
    }
    world.pass(2 * LEASE);
    for _ in 0..ACTIONS {
        world.act();
        let time = match world.rng.random_range(0..10) {
            0..3 => LEASE / 100,
            3..8 => world.some_time(1) / 2,
            _ => world.some_time(2),
        };
        world.pass(time);
        world.check_watchers();
    }
    world.log(|| "HEAL".to_owned());
    let dead = world.rng.random_bool(0.3).then(|| world.rng.random_range(0..world.size));
    world.heal(dead);
    world.pass(HEALED * LEASE);
    world.check_watchers();
    world.check_convergence(dead);
    if dead.is_none() {
        world.invariant_14_restarts_write_nothing();
    }
    world.stop_server();
    world.counts
}

impl World {
    fn heal(&mut self, dead: Option<usize>) {
        self.faults = false;
        self.cut = [self.now; MOST_CLUSTERS];
        self.controllers.retain(|_, controller| controller.leads && Some(controller.cluster) != dead);
        for controller in self.controllers.values_mut() {
            controller.dies_after = None;
        }
        self.dead = dead;
        self.start_server();
        for cluster in 0..self.size {
            self.start_controller(cluster);
        }
    }

    fn check_watchers(&self) {
        let Some(server) = &self.server else { return };
        server.witness.check_all(&server.registry, &server.log, &self.book);
        for controller in self.controllers.values() {
            invariants::invariant_06_a_watcher_has_what_the_log_has(
                &controller.mirror,
                &server.registry,
                &server.log,
            );
        }
    }

    /// The registry holds what the live clusters export, and every live cluster shows exactly that.
    fn check_convergence(&mut self, dead: Option<usize>) {
        let registry = &self.server.as_ref().expect("a registry").registry;
        for (index, cluster) in self.clusters[..self.size].iter().enumerate() {
            let member = registry.member(&cluster.id);
            if Some(index) == dead {
                let state = member.map(|member| member.state());
                assert!(
                    state.is_none_or(|state| state == MemberState::Expired),
                    "{} is dead, but {state:?}",
                    cluster.id
                );
                continue;
            }
            let member = member.unwrap_or_else(|| panic!("convergence: {} is not known", cluster.id));
            assert_eq!(member.state(), MemberState::Active, "convergence: {}", cluster.id);
            let held: BTreeMap<ServiceKey, _> = member
                .exports()
                .iter()
                .map(|(key, export)| (key.clone(), (export.spec.clone(), export.endpoints.clone())))
                .collect();
            assert_eq!(held, cluster.exports, "convergence: the exports of {}", cluster.id);
        }
        for (index, importer) in
            self.clusters[..self.size].iter().enumerate().filter(|(index, _)| Some(*index) != dead)
        {
            for key in keys() {
                self.check_import(index, key, dead);
            }
            let unknown: Vec<_> = importer.imports.keys().filter(|key| !keys().contains(key)).collect();
            assert!(unknown.is_empty(), "convergence: {unknown:?}");
        }
    }

    fn check_import(&self, importer: usize, key: &ServiceKey, dead: Option<usize>) {
        let registry = &self.server.as_ref().expect("a registry").registry;
        let home = &self.clusters[importer];
        let place = format!("convergence: {key} in {}", home.id);
        // An expired cluster's definition stays in the merge, so that no cluster IP changes.
        let merged: BTreeMap<_, _> = registry
            .members()
            .filter_map(|(cluster, member)| {
                let export = member.exports().get(key)?;
                Some((cluster.clone(), (export.version, &*export.spec)))
            })
            .collect();
        let Some(header) = merge(&merged) else {
            assert_eq!(home.imports.get(key), None, "{place}: no cluster exports it");
            return;
        };
        let existing = home.existing(key);
        let import = existing.import.as_ref().unwrap_or_else(|| panic!("{place}: there is no ServiceImport"));
        assert_eq!(import.spec.ports, header.definition.ports, "{place}: ports");
        assert_eq!(import.spec.service_type, header.definition.service_type, "{place}: type");
        let mut clusters = BTreeSet::new();
        let mut shown: BTreeMap<_, BTreeSet<IpAddr>> = BTreeMap::new();
        for index in (0..self.size).filter(|index| Some(*index) != dead) {
            let Some((_, endpoints)) = self.clusters[index].exports.get(key) else { continue };
            clusters.insert(cluster_id(index));
            let participant = header.participants.iter().find(|part| part.cluster == cluster_id(index));
            let good = &participant.unwrap_or_else(|| panic!("{place}: {index} takes no part")).good_ports;
            for (group, members) in endpoints.groups() {
                let usable =
                    group.ports.iter().any(|port| good.iter().any(|good| good.export_name == port.name));
                if usable {
                    shown.entry(cluster_id(index)).or_default().extend(members.keys());
                }
            }
        }
        assert_eq!(import.status.clusters, clusters, "{place}: status.clusters");
        let mut applied: BTreeMap<_, BTreeSet<IpAddr>> = BTreeMap::new();
        for slice in &existing.slices {
            let source = slice.source.clone().expect("a source");
            applied.entry(source).or_default().extend(slice.endpoints.keys());
        }
        assert_eq!(applied, shown, "{place}: endpoints");
    }

    /// 14. Once all is settled, the restart of every controller and of the registry writes nothing.
    fn invariant_14_restarts_write_nothing(&mut self) {
        let writes = |world: &Self| world.clusters.iter().map(|cluster| cluster.writes).sum::<u64>();
        let settled = writes(self);
        self.log(|| "RESTART of all controllers".to_owned());
        self.controllers.clear();
        for cluster in 0..self.size {
            self.start_controller(cluster);
        }
        self.pass(4 * LEASE);
        assert_eq!(writes(self), settled, "invariant 14: the restart of the controllers writes");
        self.log(|| "RESTART of the registry".to_owned());
        self.stop_server();
        self.pass(LEASE / 10);
        self.start_server();
        self.pass(5 * LEASE);
        assert_eq!(writes(self), settled, "invariant 14: the restart of the registry writes");
        self.check_convergence(None);
    }
}
