//! A controller process: an outbox and a view, and the driver that carries out what they decide.

use crate::facts::{TIMING, cluster_uid, keys, region};
use crate::invariants;
use crate::mirror::Mirror;
use crate::network::{Body, Reply, Request};
use crate::world::{Event, World};
use mcs_core::ids::{ClusterUid, ServiceKey};
use mcs_core::model::{EndpointSet, Frame, Since};
use mcs_core::outbox::{Answer, Call, Outbox};
use mcs_core::plan::Existing;
use mcs_core::registry::{Op, Registration};
use mcs_core::time::Timestamp;
use mcs_core::version::{Leaf, Version};
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
    exports: BTreeMap<ServiceKey, (Leaf, Arc<EndpointSet>)>,
    calls: BTreeMap<u64, Pending>,
    stream: Option<Stream>,
    watch_at: Timestamp,
    wakes_at: Timestamp,
    /// Imports of which somebody changed an object.
    pub(crate) touched: BTreeSet<ServiceKey>,
    /// What was decided of each import, and what existed, when nothing was left to write: a plan has no other input.
    pub(crate) settled: BTreeMap<ServiceKey, (Decision, Rc<Existing>)>,
    /// The versions shown so far.
    pub(crate) shown: BTreeMap<(ServiceKey, ClusterUid), Version>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pending {
    Renew,
    Act,
    Sync { version: Version, named: BTreeSet<ServiceKey> },
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    id: u64,
    heard: Timestamp,
}

impl World {
    /// A new leader, with a term above all before it, that finds what is applied.
    pub(crate) fn start_controller(&mut self, cluster: usize) {
        if self.leader(cluster).is_some() || self.dead == Some(cluster) {
            return;
        }
        let pid = self.fresh_id();
        let home = &mut self.clusters[cluster];
        home.term += 1;
        let term = home.term;
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

    pub(crate) fn answered(&mut self, pid: u64, call: u64, reply: Reply) {
        let now = self.now;
        let Some(controller) = self.controllers.get_mut(&pid) else { return };
        let Some(pending) = controller.calls.get(&call).cloned() else { return };
        match reply {
            Reply::Wants(wants) => {
                let Pending::Sync { version, named } = pending else { return };
                let ops = controller.outbox.sync_ops(&wants);
                let cluster = controller.cluster;
                let server = self.server.as_ref().map(|server| server.incarnation);
                let request = |body| Request { pid, cluster, call, server, body };
                let put = |op| request(Body::SyncOps { version, ops: vec![op] });
                let mut requests: Vec<Request> = ops.into_iter().map(put).collect();
                requests.push(request(Body::SyncEnd { version, named }));
                self.send_in_order(requests);
                return;
            }
            Reply::Answer(answer) => {
                controller.calls.remove(&call);
                let answer = match (pending, answer) {
                    (Pending::Renew, Answer::ActFailed(failure)) => Answer::RenewFailed(failure),
                    (_, answer) => answer,
                };
                controller.outbox.handle_answer(answer, now, self.rng.random());
            }
            Reply::Removed | Reply::Nothing => return,
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
        while let Some(key) = controller.touched.pop_first().or_else(|| controller.view.next_dirty()) {
            if controller.leads && !self.reconcile(&mut controller, &key) {
                return self.die(&controller);
            }
        }
        while controller.outbox.next_dirty().is_some() {}
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

    fn make_calls(&mut self, controller: &mut Controller) {
        let now = self.now;
        while let Some(call) = controller.outbox.next_call(now) {
            let (pid, cluster) = (controller.pid, controller.cluster);
            let (body, pending, limit) = match call {
                Call::Register { version, sum } => {
                    self.say_all(controller, version);
                    let registration = Registration {
                        uid: cluster_uid(cluster),
                        region: Some(region(cluster)),
                        instance: format!("controller-{pid}").parse().expect("an instance"),
                        build: "0.1.0".parse().expect("a build"),
                        version,
                        sum,
                    };
                    (Body::Register(registration), Pending::Act, TIMING.call_limit())
                }
                Call::Renew { version, sum } => {
                    (Body::Renew { version, sum }, Pending::Renew, TIMING.call_limit())
                }
                Call::Write { version, ops } => {
                    self.say(cluster, version, &ops);
                    (Body::Write { version, ops }, Pending::Act, TIMING.call_limit())
                }
                Call::Sync { version, names } => {
                    self.say_all(controller, version);
                    self.count("syncs");
                    let named = names.iter().map(|(key, _)| key.clone()).collect();
                    (
                        Body::SyncBegin { version, names },
                        Pending::Sync { version, named },
                        4 * TIMING.call_limit(),
                    )
                }
            };
            self.acts += u64::from(pending != Pending::Renew);
            let call = self.fresh_id();
            controller.calls.insert(call, pending);
            self.at(now + limit, Event::CallLimit { pid, call });
            // A sync is a stream: it ends with the process that it began with.
            let server = matches!(body, Body::SyncBegin { .. })
                .then(|| self.server.as_ref().map_or(0, |server| server.incarnation));
            self.log(|| format!("controller {pid} of cluster {cluster} calls {call}: {body:?}"));
            self.send(Request { pid, cluster, call, server, body });
        }
    }

    fn say_all(&mut self, controller: &Controller, version: Version) {
        for key in keys() {
            let said = controller.exports.get(key).cloned();
            self.book.say(controller.cluster, key, version, said);
        }
    }

    fn say(&mut self, cluster: usize, version: Version, ops: &[Op]) {
        for op in ops {
            let said = match op {
                Op::Put { leaf, endpoints, .. } | Op::PutEndpoints { leaf, endpoints, .. } => {
                    Some((*leaf, Arc::clone(endpoints)))
                }
                Op::Delete { .. } => None,
            };
            self.book.say(cluster, op.key(), version, said);
        }
    }
}

impl Controller {
    fn learn_export(&mut self, key: &ServiceKey, exported: Option<&crate::cluster::Exported>) {
        match exported {
            Some((spec, endpoints)) => {
                let leaf = Leaf::of(key, spec, endpoints);
                self.exports.insert(key.clone(), (leaf, Arc::clone(endpoints)));
                self.outbox.set(key.clone(), Arc::clone(spec), Arc::clone(endpoints));
            }
            None => {
                self.exports.remove(key);
                self.outbox.unset(key);
            }
        }
        self.view.set_own(key.clone(), exported.map(|(_, endpoints)| Arc::clone(endpoints)));
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
