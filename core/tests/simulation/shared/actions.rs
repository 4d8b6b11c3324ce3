//! What befalls the world.

use super::table::{Key, Value};
use super::world::{Event, OFF, World};
use crate::content::{random_endpoints, random_spec};
use crate::facts::{CLAIMANT, LEASE, cluster_id, cluster_uid, keys, place_of};
use mcs_core::ids::{ClusterUid, ServiceKey};
use mcs_core::registry::Who;
use mcs_core::time::WallTime;
use mcs_core::version::Version;
use rand::Rng;
use rand::seq::IndexedRandom;
use std::time::Duration;

type Action = fn(&mut World, usize, &ServiceKey) -> bool;

const CHOICES: [(u32, &str, Action); 24] = [
    (20, "endpoints changed", World::change_endpoints),
    (5, "definitions changed", World::change_definition),
    (8, "exports added", World::add_export),
    (8, "exports removed", World::remove_export),
    (3, "bursts of changes", World::change_often),
    (7, "replicas killed", World::kill_replica),
    (3, "replicas rolled", World::roll_replicas),
    (6, "replicas paused", World::pause_replica),
    (3, "wall clocks set", World::set_wall_clock),
    (2, "clocks of tables set", World::set_clock_of_table),
    (6, "regions cut from each other", World::cut_regions),
    (1, "regions cut for longer than the grace", World::cut_long),
    (4, "tables away", World::table_away),
    (3, "tables throttled", World::throttle),
    (4, "replication slow", World::slow_replication),
    (3, "records lost", World::lose_record),
    (6, "leaders killed", World::kill_leader),
    (4, "leaders deposed", World::depose),
    (4, "leaders paused", World::pause_leader),
    (5, "clusters cut off", World::cut_off),
    (2, "clusters removed by force", World::remove_by_force),
    (2, "clusters that left", World::leave),
    (3, "clusters installed anew", World::install_anew),
    (3, "claimants of an id", World::claim),
];

impl World {
    pub(crate) fn act(&mut self) {
        let place = self.rng.random_range(0..self.size);
        let key = keys().choose(&mut self.rng).expect("a key").clone();
        let (_, what, action) =
            *CHOICES.choose_weighted(&mut self.rng, |(weight, ..)| *weight).expect("an action");
        let done = action(self, place, &key);
        self.log(|| format!("ACTION {what}: cluster {place}, {key}, done: {done}"));
        self.count(if done { what } else { "actions skipped" });
    }

    fn some_leases(&mut self, most: u32) -> Duration {
        self.rng.random_range(Duration::ZERO..most * LEASE)
    }

    fn change_endpoints(&mut self, place: usize, key: &ServiceKey) -> bool {
        let endpoints = random_endpoints(&mut self.rng, place);
        let Some((_, held)) = self.owners[place].exports.get_mut(key) else { return false };
        *held = endpoints;
        self.own_changed(place, key);
        true
    }

    fn change_often(&mut self, place: usize, _: &ServiceKey) -> bool {
        let mut changed = false;
        for _ in 0..8 {
            for key in keys() {
                changed |= self.change_endpoints(place, key);
            }
            self.pass(Duration::from_millis(100));
        }
        changed
    }

    fn change_definition(&mut self, place: usize, key: &ServiceKey) -> bool {
        let created = WallTime::from_unix_secs(1_700_000_000 + self.rng.random_range(0..1_000));
        let spec = random_spec(&mut self.rng, created);
        let Some((held, _)) = self.owners[place].exports.get_mut(key) else { return false };
        *held = spec;
        self.own_changed(place, key);
        true
    }

    fn remove_export(&mut self, place: usize, key: &ServiceKey) -> bool {
        let removed = self.owners[place].exports.remove(key).is_some();
        self.own_changed(place, key);
        removed
    }

    fn kill_replica(&mut self, _: usize, _: &ServiceKey) -> bool {
        let slot = self.rng.random_range(0..self.slots.len());
        let down = self.some_leases(2);
        self.at(self.now + down, Event::Start(slot));
        self.slots[slot].take().is_some()
    }

    /// All replicas are replaced, one after the other.
    fn roll_replicas(&mut self, _: usize, _: &ServiceKey) -> bool {
        for slot in 0..self.slots.len() {
            self.slots[slot] = None;
            self.pass(LEASE / 20);
            self.start(slot);
            self.pass(LEASE / 2);
        }
        true
    }

    fn pause_replica(&mut self, _: usize, _: &ServiceKey) -> bool {
        let slot = self.rng.random_range(0..self.slots.len());
        let until = self.now + self.some_leases(3);
        let Some(process) = &mut self.slots[slot] else { return false };
        process.paused = process.paused.max(until);
        process.sick = process.sick.max(until + 2 * LEASE);
        true
    }

    /// The wall clock of a replica's machine jumps, by an hour at most, or is nearly right again.
    fn set_wall_clock(&mut self, _: usize, _: &ServiceKey) -> bool {
        let slot = self.rng.random_range(0..self.slots.len());
        let most = if self.rng.random_bool(0.7) { 120 * OFF } else { OFF };
        self.walls[slot] = self.rng.random_range(-most..most);
        true
    }

    /// What a region writes from now on may lose against what it wrote before and others did, or win.
    fn set_clock_of_table(&mut self, _: usize, _: &ServiceKey) -> bool {
        let region = self.rng.random_range(0..self.tables.len());
        self.skews[region] = self.rng.random_range(-OFF..OFF);
        true
    }

    fn cut(&mut self, time: Duration) -> bool {
        let regions = self.tables.len();
        if regions < 2 {
            return false;
        }
        let (one, other) = (self.rng.random_range(0..regions), self.rng.random_range(0..regions));
        if one == other {
            return false;
        }
        let until = self.now + time;
        let both = self.rng.random_bool(0.7);
        for way in [(one, other), (other, one)].into_iter().take(if both { 2 } else { 1 }) {
            let known = self.cuts.entry(way).or_default();
            *known = until.max(*known);
        }
        true
    }

    fn cut_regions(&mut self, _: usize, _: &ServiceKey) -> bool {
        let time = self.some_leases(5);
        self.cut(time)
    }

    fn cut_long(&mut self, _: usize, _: &ServiceKey) -> bool {
        let time = super::process::GRACE + LEASE + self.some_leases(5);
        self.cut_until = self.cut_until.max(self.now + time + 2 * LEASE);
        self.cut(time)
    }

    fn table_away(&mut self, _: usize, _: &ServiceKey) -> bool {
        let region = self.rng.random_range(0..self.tables.len());
        self.tables[region].away = self.now + self.some_leases(3);
        true
    }

    fn throttle(&mut self, _: usize, _: &ServiceKey) -> bool {
        let region = self.rng.random_range(0..self.tables.len());
        self.tables[region].throttled = self.now + self.some_leases(4);
        true
    }

    /// Items take up to three leases to the other regions, or are fast again.
    fn slow_replication(&mut self, _: usize, _: &ServiceKey) -> bool {
        self.lag = if self.rng.random_bool(0.5) {
            Duration::from_millis(800)
        } else {
            LEASE / 5 + self.some_leases(3)
        };
        true
    }

    /// An older removal wins over the record of a cluster, in all regions.
    fn lose_record(&mut self, place: usize, _: &ServiceKey) -> bool {
        let region = self.rng.random_range(0..self.tables.len());
        let key = Key::Record(Who { cluster: cluster_id(place), uid: cluster_uid(place) });
        let Some(Value::Record(record)) = self.tables[region].value(&key) else { return false };
        let version = record.version;
        let mark = Value::Removed(Version { seq: version.seq.saturating_sub(1), ..version });
        let value = self.rng.random_bool(0.5).then_some(mark);
        self.write(region, key, value);
        self.records_lost.insert(cluster_uid(place), self.now);
        true
    }

    fn kill_leader(&mut self, place: usize, _: &ServiceKey) -> bool {
        let down = self.some_leases(3);
        self.at(self.now + down, Event::Lead(place));
        let before = self.owners[place].leaders.len();
        self.owners[place].leaders.retain(|_, leader| !leader.leads);
        self.owners[place].leaders.len() < before
    }

    fn depose(&mut self, place: usize, _: &ServiceKey) -> bool {
        let lives = self.some_leases(2);
        let mut old = None;
        for (pid, leader) in self.owners[place].leaders.iter_mut().filter(|(_, leader)| leader.leads) {
            leader.leads = false;
            old = Some(*pid);
        }
        let Some(pid) = old else { return false };
        self.at(self.now + lives, Event::Retire(place, pid));
        self.lead(place);
        true
    }

    fn pause_leader(&mut self, place: usize, _: &ServiceKey) -> bool {
        let until = self.now + self.some_leases(3);
        let mut paused = false;
        for leader in self.owners[place].leaders.values_mut() {
            leader.paused = until;
            paused = true;
        }
        paused
    }

    fn cut_off(&mut self, place: usize, _: &ServiceKey) -> bool {
        let until = self.now + self.some_leases(3);
        self.owners[place].cut = self.owners[place].cut.max(until);
        true
    }

    fn remove_by_force(&mut self, place: usize, _: &ServiceKey) -> bool {
        let slot = self.rng.random_range(0..self.slots.len());
        // Whoever has the id.
        let held = self.slots[slot].as_ref().and_then(|process| process.registry.member(&cluster_id(place)));
        let held = held.map(|member| member.uid().clone());
        if let Some(uid) = held {
            self.note_removed(&uid);
        }
        self.remove(slot, place, None)
    }

    fn leave(&mut self, place: usize, _: &ServiceKey) -> bool {
        self.owners[place].leaders.clear();
        let slot = self.rng.random_range(0..self.slots.len());
        let away = Duration::from_millis(100) + self.some_leases(6);
        self.at(self.now + away, Event::Lead(place));
        self.note_removed(&cluster_uid(place));
        self.remove(slot, place, Some(&cluster_uid(place)))
    }

    /// It leaves, its Lease goes with it, and it comes back on a clock that is behind.
    fn install_anew(&mut self, place: usize, key: &ServiceKey) -> bool {
        let left = self.leave(place, key);
        let back = self.rng.random_range(1..4);
        let owner = &mut self.owners[place];
        owner.term = owner.term.saturating_sub(back);
        left
    }

    /// What it said before counts no more.
    fn note_removed(&mut self, uid: &ClusterUid) {
        self.removed.insert(uid.clone(), self.now);
        self.heard[place_of(uid)].clear();
    }

    fn claim(&mut self, _: usize, _: &ServiceKey) -> bool {
        if !self.owners[CLAIMANT].leaders.is_empty() {
            self.owners[CLAIMANT].leaders.clear();
            return true;
        }
        for key in keys() {
            if self.rng.random_bool(0.5) {
                self.add_export(CLAIMANT, key);
            }
        }
        self.lead(CLAIMANT);
        true
    }
}
