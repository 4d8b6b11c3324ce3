//! One history: a start, faults and changes, a heal, and what must have come of it.

use crate::actions::ACTIONS;
use crate::controller::Controller;
use crate::facts::{CLAIMANT, LEASE, PLACES, keys};
use crate::invariants;
use crate::world::{Counts, EventLog, World};
use rand::Rng;

/// After the heal, all is well within this time: a lease and a hold for what is silent, a lease each for a registry to
/// be complete and for its grace, what late calls may add, and the rest of a pause.
pub(crate) const HEALED: u32 = 12;

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
        world.epilogue();
    }
    world.stop_server();
    world.counts
}

impl World {
    fn heal(&mut self, dead: Option<usize>) {
        self.faults = false;
        self.stop_twin();
        if self.server.as_ref().is_some_and(|server| server.is_old) {
            self.stop_server();
        }
        self.cut = [self.now; PLACES];
        let stays = |controller: &Controller| {
            controller.leads && controller.cluster != CLAIMANT && Some(controller.cluster) != dead
        };
        self.controllers.retain(|_, controller| stays(controller));
        for controller in self.controllers.values_mut() {
            controller.dies_after = None;
        }
        self.dead = dead;
        self.mend_leases();
        self.start_server();
        for watcher in self.server.iter_mut().flat_map(|server| server.watchers.values_mut()) {
            watcher.frames_left = u32::MAX;
            watcher.stalled = self.now;
        }
        for cluster in 0..self.size {
            self.start_controller(cluster);
        }
    }

    /// A Lease that was set back, while the registry that knew of later terms is gone, is raised by hand: what its leader
    /// says counts nowhere before its term has passed those that importers have seen. So is one that gave two leaders one
    /// term.
    fn mend_leases(&mut self) {
        for place in 0..self.size {
            let home = &mut self.clusters[place];
            let highest = home.terms.iter().copied().max().unwrap_or_default();
            let twice = home.terms.iter().filter(|term| **term == highest).count() > 1;
            if home.term < highest || twice {
                home.term = highest;
                self.count("Leases raised by hand");
                self.controllers.retain(|_, controller| controller.cluster != place);
            }
        }
    }

    fn check_watchers(&self) {
        for server in self.server.iter().chain(&self.twin) {
            server.witness.check_all(&server.registry, &server.log, &self.book);
        }
        for controller in self.controllers.values() {
            let Some(server) = self.watched_by(&controller.mirror) else { continue };
            invariants::invariant_06_a_watcher_has_what_the_log_has(
                &self.clusters[controller.cluster].id,
                &controller.mirror,
                &server.registry,
                &server.log,
            );
        }
    }
}
