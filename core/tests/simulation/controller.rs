//! A controller process: an outbox and a view, and the driver that carries out what they decide.

use crate::calls::Pending;
use crate::facts::{CLAIMANT, TIMING, keys};
use crate::invariants;
use crate::mirror::Mirror;
use crate::network::{Body, Request};
use crate::world::{Event, World};
use mcs_core::ids::{Build, ClusterUid, ServiceKey};
use mcs_core::model::{EndpointSet, Frame, Since};
use mcs_core::outbox::Outbox;
use mcs_core::plan::Existing;
use mcs_core::time::Timestamp;
use mcs_core::version::{Leaf, Sum, Version};
use mcs_core::view::{Decision, View};
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Controller {
    pub(crate) pid: u64,
    pub(crate) cluster: usize,
    /// Whether it leads; a deposed one goes on talking for a while, and is told nothing new of its cluster.
    pub(crate) leads: bool,
    /// It stands still until then.
    pub(crate) paused: Timestamp,
    /// It dies after so many writes more.
    pub(crate) dies_after: Option<u32>,
    pub(crate) outbox: Outbox,
    pub(crate) view: View,
    pub(crate) mirror: Mirror,
    /// What its outbox was fed.
    pub(crate) exports: BTreeMap<ServiceKey, (Leaf, Arc<EndpointSet>)>,
    pub(crate) calls: BTreeMap<u64, Pending>,
    stream: Option<Stream>,
    watch_at: Timestamp,
    wakes_at: Timestamp,
    /// Imports of which somebody changed an object.
    pub(crate) touched: BTreeSet<ServiceKey>,
    /// What was decided of each import, and what existed, when nothing was left to write: a plan has no other input.
    pub(crate) settled: BTreeMap<ServiceKey, (Decision, Rc<Existing>)>,
    /// What it renewed its lease with last.
    pub(crate) renewed: Option<(Version, Sum)>,
    /// The version of the registry that answered last.
    pub(crate) build: Option<Build>,
    /// Whether that is another one than before, and not everything was put since.
    pub(crate) changed_version: bool,
    /// Exports that a registry refused, as they are.
    pub(crate) refused: BTreeMap<ServiceKey, Leaf>,
    /// The versions shown so far.
    pub(crate) shown: BTreeMap<(ServiceKey, ClusterUid), Version>,
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    id: u64,
    heard: Timestamp,
}

impl World {
    /// A new leader, with a term above all before it, that finds what is applied.
    pub(crate) fn start_controller(&mut self, cluster: usize) {
        let gone = self.dead == Some(cluster) || (cluster == CLAIMANT && !self.faults);
        if gone || self.leader(cluster).is_some() {
            return;
        }
        let pid = self.fresh_id();
        let term = self.next_term(cluster);
        let home = &self.clusters[cluster];
        let mut controller = Box::new(Controller {
            pid,
            cluster,
            leads: true,
            paused: Timestamp::ZERO,
            dies_after: None,
            outbox: Outbox::new(TIMING, 1, term, self.now),
            view: View::new(home.id.clone()),
            mirror: Mirror::default(),
            exports: BTreeMap::new(),
            calls: BTreeMap::new(),
            stream: None,
            watch_at: self.now,
            wakes_at: Timestamp::ZERO,
            touched: BTreeSet::new(),
            shown: BTreeMap::new(),
            settled: BTreeMap::new(),
            renewed: None,
            build: None,
            changed_version: false,
            refused: BTreeMap::new(),
        });
        for key in home.imports.keys() {
            controller.view.seed(key.clone(), home.applied(key));
        }
        for key in keys() {
            controller.learn_export(key, home.exports.get(key));
        }
        controller.view.own_listed();
        self.log(|| format!("controller {pid} of cluster {cluster} starts with term {term}"));
        self.controllers.insert(pid, controller);
        self.drive(pid);
    }

    /// The term of a leader that acquires the Lease: above that of the Lease, and above the seconds of the clock when the
    /// replica started, which may be a while ago.
    fn next_term(&mut self, cluster: usize) -> u64 {
        let age = self.rng.random_range(0..60);
        let floor = self.wall(cluster).unix_secs().saturating_sub(age).unsigned_abs();
        let home = &mut self.clusters[cluster];
        home.term = home.term.max(floor) + 1;
        home.terms.push(home.term);
        home.term
    }

    /// The pid of the leader of `cluster`.
    pub(crate) fn leader(&self, cluster: usize) -> Option<u64> {
        let mut leaders = self.controllers.values().filter(|controller| controller.leads);
        leaders.find(|controller| controller.cluster == cluster).map(|controller| controller.pid)
    }

    /// Tells the leader of `cluster` what its own watches saw.
    pub(crate) fn own_changed(&mut self, cluster: usize, key: &ServiceKey) {
        let Some(pid) = self.leader(cluster) else { return };
        let exported = self.clusters[cluster].exports.get(key).cloned();
        if let Some(controller) = self.controllers.get_mut(&pid) {
            controller.learn_export(key, exported.as_ref());
        }
        self.drive(pid);
    }

    pub(crate) fn frame(&mut self, pid: u64, stream: u64, frame: Frame) {
        let now = self.now;
        let Some(mut controller) = self.controllers.remove(&pid) else { return };
        if let Some(open) = controller.stream.as_mut().filter(|open| open.id == stream) {
            open.heard = now;
            self.log(|| format!("controller {pid} is told {frame:?}"));
            invariants::invariant_12_revisions_rise(&controller.mirror, &frame);
            controller.mirror.take(&frame, now);
            controller.view.handle_frame(frame, now).expect("what it is said to have");
            self.controllers.insert(pid, controller);
            // What is to be done waits in a queue, so a decision may come after several frames.
            if self.rng.random_bool(0.25) {
                self.drive(pid);
            } else {
                let at = now + self.rng.random_range(Duration::ZERO..Duration::from_millis(20));
                self.wake(pid, at);
            }
        } else {
            self.controllers.insert(pid, controller);
        }
    }

    pub(crate) fn broken(&mut self, pid: u64, stream: u64) {
        let now = self.now;
        let Some(controller) = self.controllers.get_mut(&pid) else { return };
        if controller.stream.is_some_and(|open| open.id == stream) {
            controller.lose_watch(now);
            self.drive(pid);
        }
    }

    /// Lets a controller do all that there is to do now.
    pub(crate) fn drive(&mut self, pid: u64) {
        let now = self.now;
        let Some(mut controller) = self.controllers.remove(&pid) else { return };
        if !controller.paused.has_passed(now) {
            let paused = controller.paused;
            controller.wakes_at = paused;
            self.controllers.insert(pid, controller);
            return self.at(paused, Event::Wake { pid });
        }
        if let Some(floor) = controller.outbox.floor() {
            if !controller.leads {
                self.log(|| format!("controller {pid} is deposed"));
                return;
            }
            // A higher term is another lead, which begins from what exists.
            let home = &mut self.clusters[controller.cluster];
            home.term = home.term.max(floor);
            return self.start_controller(controller.cluster);
        }
        self.watch(&mut controller);
        self.make_calls(&mut controller);
        controller.view.handle_timeout(now);
        while let Some(key) = controller.outbox.next_dirty() {
            controller.show_own(&key);
        }
        while let Some(key) = controller.touched.pop_first().or_else(|| controller.view.next_dirty()) {
            if controller.leads && !self.reconcile(&mut controller, &key) {
                return self.die(&controller);
            }
        }
        let stream_due = match controller.stream {
            Some(stream) => stream.heard + TIMING.dead_stream(),
            None => controller.watch_at,
        };
        let due = [controller.outbox.poll_timeout(), controller.view.poll_timeout(), Some(stream_due)];
        let at =
            due.into_iter().flatten().min().unwrap_or(Timestamp::MAX).max(now + Duration::from_millis(1));
        self.controllers.insert(pid, controller);
        self.wake(pid, at);
    }

    /// Has a controller driven at `at`, unless it is driven before.
    fn wake(&mut self, pid: u64, at: Timestamp) {
        let Some(controller) = self.controllers.get_mut(&pid) else { return };
        if at < controller.wakes_at || controller.wakes_at.has_passed(self.now) {
            controller.wakes_at = at;
            self.at(at, Event::Wake { pid });
        }
    }

    fn watch(&mut self, controller: &mut Controller) {
        let now = self.now;
        if controller.stream.is_some_and(|stream| (stream.heard + TIMING.dead_stream()).has_passed(now)) {
            controller.lose_watch(now);
        }
        if controller.stream.is_none() && controller.watch_at.has_passed(now) {
            let id = self.fresh_id();
            controller.stream = Some(Stream { id, heard: now });
            // Another replica of its registry cannot go on for the one before.
            let resume = controller.view.resume().filter(|_| self.rng.random_bool(0.9));
            if resume.is_some() {
                self.count("watches resumed");
            }
            // A controller of an earlier release does not say what it has.
            let since = if self.rng.random_bool(0.8) { controller.view.since() } else { Since::default() };
            let body = Body::Watch { stream: id, resume, since };
            let (pid, cluster) = (controller.pid, controller.cluster);
            self.send_in_order(vec![Request { pid, cluster, call: id, server: None, body }]);
        }
    }
}

impl Controller {
    fn learn_export(&mut self, key: &ServiceKey, exported: Option<&crate::cluster::Exported>) {
        match exported {
            Some((spec, endpoints)) => {
                let leaf = Leaf::of(key, spec, endpoints);
                self.refused.retain(|refused, as_it_was| refused != key || *as_it_was == leaf);
                self.exports.insert(key.clone(), (leaf, Arc::clone(endpoints)));
                self.outbox.set(key.clone(), Arc::clone(spec), Arc::clone(endpoints), None);
            }
            None => {
                self.exports.remove(key);
                self.refused.remove(key);
                self.outbox.unset(key);
            }
        }
        self.show_own(key);
    }

    /// Tells the view of the own export, if there is one that counts.
    fn show_own(&mut self, key: &ServiceKey) {
        let own = self.exports.get(key).filter(|_| self.outbox.is_exported(key));
        self.view.set_own(key.clone(), own.map(|(_, endpoints)| Arc::clone(endpoints)));
    }

    pub(crate) fn tell_applied(&mut self, key: &ServiceKey, home: &crate::cluster::Cluster) {
        if home.imports.contains_key(key) {
            self.view.applied(key.clone(), home.applied(key));
        } else {
            self.view.removed(key);
        }
    }

    fn lose_watch(&mut self, now: Timestamp) {
        self.stream = None;
        self.outbox.doubt();
        self.view.disconnected();
        self.mirror.complete_since = None;
        self.watch_at = now + TIMING.first_backoff();
    }
}
