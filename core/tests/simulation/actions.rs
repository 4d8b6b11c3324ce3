//! What befalls the world: changes that users make, and faults.

use crate::cluster::collect_garbage;
use crate::facts::{LEASE, keys, random_endpoints, random_spec};
use crate::network::{Body, Request};
use crate::world::{Event, World};
use mcs_core::ids::ServiceKey;
use rand::Rng;
use rand::seq::IndexedRandom;
use std::rc::Rc;
use std::time::Duration;

/// How many actions a history has.
pub(crate) const ACTIONS: usize = 30;

impl World {
    /// Does one action at random. One that makes no sense now is skipped, and counted.
    pub(crate) fn act(&mut self) {
        let cluster = self.rng.random_range(0..self.size);
        let key = keys().choose(&mut self.rng).expect("a key").clone();
        let (what, done) = match self.rng.random_range(0..100) {
            0..28 => ("endpoints changed", self.change_endpoints(cluster, &key)),
            28..36 => ("definitions changed", self.change_definition(cluster, &key)),
            36..48 => ("exports added", self.add_export(cluster, &key)),
            48..56 => ("exports removed", self.remove_export(cluster, &key)),
            56..60 => ("registries killed", self.kill_registry()),
            60..63 => ("registries paused", self.pause_registry()),
            63..70 => ("controllers killed", self.kill_controller(cluster)),
            70..74 => ("controllers killed within a plan", self.kill_within_plan(cluster)),
            74..77 => ("leaders deposed", self.depose(cluster)),
            77..79 => ("old leaders woken", self.wake_old_leader(cluster, &key)),
            79..84 => ("controllers paused", self.pause_controller(cluster)),
            84..90 => ("clusters cut off", self.cut_off(cluster)),
            90..93 => ("clusters cut off together", self.silence_most(cluster)),
            93..97 => ("objects deleted by hand", self.delete_by_hand(cluster, &key)),
            97..99 => ("clusters removed by force", self.remove_cluster(cluster)),
            _ => ("long calms", self.calm()),
        };
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
        let exported = (random_spec(&mut self.rng), random_endpoints(&mut self.rng, cluster));
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

    fn change_definition(&mut self, cluster: usize, key: &ServiceKey) -> bool {
        let spec = random_spec(&mut self.rng);
        let Some((held, _)) = self.clusters[cluster].exports.get_mut(key) else { return false };
        *held = spec;
        self.own_changed(cluster, key);
        true
    }

    fn remove_export(&mut self, cluster: usize, key: &ServiceKey) -> bool {
        let removed = self.clusters[cluster].exports.remove(key).is_some();
        self.own_changed(cluster, key);
        removed
    }

    fn kill_registry(&mut self) -> bool {
        let runs = self.server.is_some();
        self.stop_server();
        let down = self.some_time(2);
        self.at(self.now + down, Event::StartServer);
        runs
    }

    fn pause_registry(&mut self) -> bool {
        self.server_paused = self.server_paused.max(self.now + self.some_time(3));
        self.server.is_some()
    }

    fn kill_controller(&mut self, cluster: usize) -> bool {
        let Some(pid) = self.leader(cluster) else { return false };
        self.controllers.remove(&pid);
        let down = self.some_time(3);
        self.at(self.now + down, Event::StartController(cluster));
        true
    }

    fn kill_within_plan(&mut self, cluster: usize) -> bool {
        let after = self.rng.random_range(1..6);
        let Some(pid) = self.leader(cluster) else { return false };
        let Some(controller) = self.controllers.get_mut(&pid) else { return false };
        controller.dies_after = Some(after);
        true
    }

    /// Another replica leads; the old leader has not heard of it.
    fn depose(&mut self, cluster: usize) -> bool {
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
        self.pause_controller(cluster);
        self.pass(LEASE);
        true
    }

    fn pause_controller(&mut self, cluster: usize) -> bool {
        let until = self.now + self.some_time(3);
        self.pause_until(cluster, until)
    }

    fn cut_off(&mut self, cluster: usize) -> bool {
        self.cut[cluster] = self.cut[cluster].max(self.now + self.some_time(3));
        true
    }

    fn silence_most(&mut self, spared: usize) -> bool {
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

    fn remove_cluster(&mut self, cluster: usize) -> bool {
        let call = self.fresh_id();
        self.arrive(Request { pid: 0, cluster, call, server: None, body: Body::Remove });
        self.server.is_some()
    }

    fn calm(&mut self) -> bool {
        let time = 3 * LEASE + self.some_time(3);
        self.pass(time);
        true
    }
}
