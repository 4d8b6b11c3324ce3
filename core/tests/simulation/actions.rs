//! What befalls the world: changes that users make, and faults.

use crate::cluster::collect_garbage;
use crate::content::{random_endpoints, random_spec};
use crate::facts::{CLAIMANT, LEASE, TIMING, keys};
use crate::network::{Body, Request};
use crate::world::{Event, World};
use mcs_core::ids::ServiceKey;
use mcs_core::timing::COALESCE;
use rand::Rng;
use rand::seq::IndexedRandom;
use std::rc::Rc;
use std::time::Duration;

/// How many actions a history has.
pub(crate) const ACTIONS: usize = 30;

/// Something that befalls a cluster, or an export of it; says whether it made sense.
type Action = fn(&mut World, usize, &ServiceKey) -> bool;

/// What can happen, how often among a hundred, and what it is counted as.
const CHOICES: [(u32, &str, Action); 25] = [
    (24, "endpoints changed", World::change_endpoints),
    (7, "definitions changed", World::change_definition),
    (10, "exports added", World::add_export),
    (7, "exports removed", World::remove_export),
    (2, "bursts of changes", World::change_often),
    (4, "registries killed", World::kill_registry),
    (3, "registries paused", World::pause_registry),
    (6, "controllers killed", World::kill_controller),
    (4, "controllers killed within a plan", World::kill_within_plan),
    (3, "leaders deposed", World::depose),
    (2, "old leaders woken", World::wake_old_leader),
    (4, "controllers paused", World::pause_controller),
    (5, "clusters cut off", World::cut_off),
    (3, "clusters cut off together", World::silence_most),
    (3, "objects deleted by hand", World::delete_by_hand),
    (2, "clusters removed by force", World::remove_cluster),
    (2, "clusters that left", World::leave),
    (2, "Leases deleted", World::delete_lease),
    (2, "Leases restored", World::restore_lease),
    (2, "wall clocks set", World::set_wall_clock),
    (2, "claimants of an id", World::claim),
    (2, "registries beside each other", World::add_twin),
    (2, "watchers stalled", World::stall),
    (2, "watches broken at once", World::break_watches),
    (1, "long calms", World::calm),
];

impl World {
    /// Does one action at random. One that makes no sense now is skipped, and counted.
    pub(crate) fn act(&mut self) {
        let claims = self.leader(CLAIMANT).is_some() && self.rng.random_bool(0.1);
        let cluster = if claims { CLAIMANT } else { self.rng.random_range(0..self.size) };
        let key = keys().choose(&mut self.rng).expect("a key").clone();
        let (_, what, action) =
            *CHOICES.choose_weighted(&mut self.rng, |(weight, ..)| *weight).expect("an action");
        let done = action(self, cluster, &key);
        self.log(|| format!("ACTION {what}: cluster {cluster}, {key}, done: {done}"));
        self.count(if done { what } else { "actions skipped" });
    }

    pub(crate) fn some_time(&mut self, leases: u32) -> Duration {
        self.rng.random_range(Duration::ZERO..leases * LEASE)
    }

    pub(crate) fn add_export(&mut self, cluster: usize, key: &ServiceKey) -> bool {
        if self.clusters[cluster].exports.contains_key(key) {
            return false;
        }
        let created_at = self.wall(cluster);
        let exported = (random_spec(&mut self.rng, created_at), random_endpoints(&mut self.rng, cluster));
        self.clusters[cluster].exports.insert(key.clone(), exported);
        self.own_changed(cluster, key);
        true
    }

    fn change_endpoints(&mut self, cluster: usize, key: &ServiceKey) -> bool {
        let endpoints = random_endpoints(&mut self.rng, cluster);
        let Some((_, held)) = self.clusters[cluster].exports.get_mut(key) else { return false };
        *held = endpoints;
        self.own_changed(cluster, key);
        true
    }

    /// Changes all endpoints of a cluster several times a second.
    fn change_often(&mut self, cluster: usize, _: &ServiceKey) -> bool {
        let mut changed = false;
        for _ in 0..8 {
            for key in keys() {
                changed |= self.change_endpoints(cluster, key);
            }
            self.pass(COALESCE);
        }
        changed
    }

    /// The Service changes, or its ServiceExport is made anew.
    pub(crate) fn change_definition(&mut self, cluster: usize, key: &ServiceKey) -> bool {
        let made = self.rng.random_bool(0.3).then(|| self.wall(cluster));
        let Some((held, _)) = self.clusters[cluster].exports.get_mut(key) else { return false };
        let created_at = made.unwrap_or(held.created_at);
        *held = random_spec(&mut self.rng, created_at);
        self.own_changed(cluster, key);
        true
    }

    fn remove_export(&mut self, cluster: usize, key: &ServiceKey) -> bool {
        let removed = self.clusters[cluster].exports.remove(key).is_some();
        self.own_changed(cluster, key);
        removed
    }

    fn kill_registry(&mut self, _: usize, _: &ServiceKey) -> bool {
        let runs = self.server.is_some();
        self.stop_server();
        let down = self.some_time(2);
        self.at(self.now + down, Event::StartServer);
        runs
    }

    fn pause_registry(&mut self, _: usize, _: &ServiceKey) -> bool {
        self.server_paused = self.server_paused.max(self.now + self.some_time(3));
        self.server.is_some()
    }

    fn kill_controller(&mut self, cluster: usize, _: &ServiceKey) -> bool {
        let down = self.some_time(3);
        self.at(self.now + down, Event::StartController(cluster));
        self.leader(cluster).and_then(|pid| self.controllers.remove(&pid)).is_some()
    }

    fn kill_within_plan(&mut self, cluster: usize, _: &ServiceKey) -> bool {
        let after = self.rng.random_range(1..6);
        let Some(pid) = self.leader(cluster) else { return false };
        let Some(controller) = self.controllers.get_mut(&pid) else { return false };
        controller.dies_after = Some(after);
        true
    }

    /// Another replica leads; the old leader has not heard of it.
    fn depose(&mut self, cluster: usize, _: &ServiceKey) -> bool {
        let Some(pid) = self.leader(cluster) else { return false };
        let lives = self.some_time(2);
        if let Some(controller) = self.controllers.get_mut(&pid) {
            controller.leads = false;
        }
        self.at(self.now + lives, Event::Retire(pid));
        self.start_controller(cluster);
        true
    }

    /// A leader sleeps while another one leads and its cluster changes, and wakes to a registry that knows neither.
    fn wake_old_leader(&mut self, cluster: usize, key: &ServiceKey) -> bool {
        let Some(old) = self.leader(cluster) else { return false };
        let sleeps = LEASE + self.some_time(1);
        if let Some(controller) = self.controllers.get_mut(&old) {
            controller.leads = false;
            controller.paused = controller.paused.max(self.now + sleeps);
        }
        self.at(self.now + 2 * sleeps, Event::Retire(old));
        self.start_controller(cluster);
        self.pass(LEASE / 3);
        self.change_endpoints(cluster, key);
        self.pass(sleeps - LEASE / 3);
        self.stop_server();
        self.start_server();
        self.pause_controller(cluster, key);
        self.pass(LEASE);
        true
    }

    fn pause_controller(&mut self, cluster: usize, _: &ServiceKey) -> bool {
        let until = self.now + self.some_time(3);
        self.pause_until(cluster, until)
    }

    fn cut_off(&mut self, cluster: usize, _: &ServiceKey) -> bool {
        self.cut[cluster] = self.cut[cluster].max(self.now + self.some_time(3));
        true
    }

    fn silence_most(&mut self, spared: usize, _: &ServiceKey) -> bool {
        let until = self.now + self.some_time(4);
        let all = self.rng.random_bool(0.3);
        for cluster in (0..self.size).filter(|cluster| all || *cluster != spared) {
            self.cut[cluster] = self.cut[cluster].max(until);
        }
        true
    }

    fn delete_by_hand(&mut self, cluster: usize, key: &ServiceKey) -> bool {
        let what = self.rng.random_range(0..3);
        let Some(existing) = self.clusters[cluster].imports.get_mut(key) else { return false };
        let existing = Rc::make_mut(existing);
        match what {
            0 => drop(existing.slices.pop()),
            1 => drop(existing.service.take()),
            _ => {
                if let Some(import) = existing.import.take() {
                    collect_garbage(existing, &import.meta.identity.uid);
                }
            }
        }
        if *existing == mcs_core::plan::Existing::default() {
            self.clusters[cluster].imports.remove(key);
        }
        self.touched(cluster, key);
        true
    }

    fn remove_cluster(&mut self, cluster: usize, _: &ServiceKey) -> bool {
        let call = self.fresh_id();
        self.arrive(Request { pid: 0, cluster, call, server: None, body: Body::Remove });
        self.server.is_some()
    }

    /// A controller leaves: it says so, takes all that it made along, and may be installed again.
    fn leave(&mut self, cluster: usize, _: &ServiceKey) -> bool {
        let Some(pid) = self.leader(cluster) else { return false };
        self.controllers.remove(&pid);
        self.clusters[cluster].imports.clear();
        if !self.is_cut(cluster) {
            let call = self.fresh_id();
            let leave = Request { pid: 0, cluster, call, server: None, body: Body::Leave };
            self.at(self.now + Duration::from_millis(20), Event::Request(Box::new(leave)));
        }
        let away = self.some_time(3) + Duration::from_millis(40);
        self.at(self.now + away, Event::StartController(cluster));
        true
    }

    /// The Lease is lost with its term, and the leader with it.
    fn delete_lease(&mut self, cluster: usize, key: &ServiceKey) -> bool {
        self.clusters[cluster].term = 0;
        self.kill_controller(cluster, key)
    }

    /// The Lease is as it was some terms ago. Its leader learns of it sooner or later; another one begins.
    fn restore_lease(&mut self, cluster: usize, key: &ServiceKey) -> bool {
        let Some(term) = self.clusters[cluster].terms.choose(&mut self.rng).copied() else { return false };
        self.clusters[cluster].term = term;
        self.depose(cluster, key)
    }

    /// The clock of a cluster's machines jumps.
    fn set_wall_clock(&mut self, cluster: usize, _: &ServiceKey) -> bool {
        self.clusters[cluster].clock_error = match self.rng.random_range(0..3) {
            0 => self.rng.random_range(-30..=30),
            1 => self.rng.random_range(-3_600..0),
            _ => self.rng.random_range(0..=3_600),
        };
        true
    }

    /// Another cluster comes that has the id of the first, or goes again.
    fn claim(&mut self, _: usize, _: &ServiceKey) -> bool {
        if let Some(pid) = self.leader(CLAIMANT) {
            return self.controllers.remove(&pid).is_some();
        }
        for key in keys() {
            if self.rng.random_bool(0.5) {
                self.add_export(CLAIMANT, key);
            }
        }
        self.start_controller(CLAIMANT);
        true
    }

    /// A second registry starts behind the name of the first, and shares nothing with it.
    fn add_twin(&mut self, _: usize, _: &ServiceKey) -> bool {
        if self.server.is_none() || self.twin.is_some() {
            return false;
        }
        self.start_twin();
        let lasts = 2 * LEASE + self.some_time(5);
        self.at(self.now + lasts, Event::StopTwin);
        let time = self.some_time(3);
        self.pass(time);
        true
    }

    /// A watcher takes nothing, for less than a dead stream would, while more is removed than the log remembers.
    fn stall(&mut self, cluster: usize, _: &ServiceKey) -> bool {
        let until = self.now + self.rng.random_range(TIMING.dead_stream() / 3..TIMING.dead_stream());
        let watchers = self.server.iter_mut().flat_map(|server| server.watchers.values_mut());
        let mut stalled = false;
        for watcher in watchers.filter(|watcher| watcher.cluster == cluster) {
            watcher.stalled = until;
            stalled = true;
        }
        for remove in [true, false] {
            for other in (0..self.size).filter(|other| *other != cluster) {
                for key in keys() {
                    if remove {
                        self.remove_export(other, key)
                    } else {
                        self.add_export(other, key)
                    };
                }
            }
            self.pass(2 * COALESCE);
        }
        self.pass(until.since(self.now));
        stalled
    }

    /// All streams break at once, and all watchers come back.
    fn break_watches(&mut self, _: usize, _: &ServiceKey) -> bool {
        let Some(server) = &mut self.server else { return false };
        let watchers = std::mem::take(&mut server.watchers);
        let broken = watchers.len() > 1;
        for (stream, watcher) in watchers {
            let at = watcher.arrives.max(self.now) + Duration::from_millis(5);
            self.at(at, Event::Broken { pid: watcher.pid, stream });
        }
        broken
    }

    fn calm(&mut self, _: usize, _: &ServiceKey) -> bool {
        let time = 3 * LEASE + self.some_time(3);
        self.pass(time);
        true
    }
}
