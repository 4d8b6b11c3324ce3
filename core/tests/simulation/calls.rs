//! The exporting half of a controller's driver: the calls that its outbox asks for, and the answers.

use crate::book::Said;
use crate::controller::Controller;
use crate::facts::{TIMING, cluster_uid, keys, region};
use crate::network::{Body, Reply, Request};
use crate::world::{Event, World};
use mcs_core::ids::ServiceKey;
use mcs_core::outbox::{Answer, Call, Progress};
use mcs_core::registry::{Op, Registration};
use mcs_core::version::{Leaf, Version};
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A call that was not answered yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    Renew,
    /// With the leaves that were put.
    Act {
        put: BTreeMap<ServiceKey, Leaf>,
    },
    Sync {
        version: Version,
        named: BTreeSet<ServiceKey>,
        put: BTreeMap<ServiceKey, Leaf>,
        /// The registry process at the other end of the stream.
        server: Option<u64>,
        /// Whether the registry's version has changed, so that everything is put.
        whole: bool,
    },
}

impl World {
    pub(crate) fn answered(&mut self, pid: u64, call: u64, reply: Reply) {
        let now = self.now;
        let Some(controller) = self.controllers.get_mut(&pid) else { return };
        let Some(pending) = controller.calls.get(&call).cloned() else { return };
        match reply {
            Reply::Wants(wants) => {
                let Pending::Sync { version, named, server, whole, .. } = pending else { return };
                let ops = controller.outbox.sync_ops(&wants);
                let cluster = controller.cluster;
                if !whole {
                    controller.check_resent(&ops);
                }
                if let Some(Pending::Sync { put, .. }) = controller.calls.get_mut(&call) {
                    *put = leaves(&ops);
                }
                self.say((cluster, pid), version, &ops);
                if whole {
                    self.count("syncs of everything");
                }
                let request = |body| Request { pid, cluster, call, server, body };
                let put = |op| request(Body::SyncOps { version, ops: vec![op] });
                let mut requests: Vec<Request> = ops.into_iter().map(put).collect();
                requests.push(request(Body::SyncEnd { version, named }));
                self.send_in_order(requests);
                return;
            }
            Reply::Answer(answer) => {
                controller.calls.remove(&call);
                controller.note_refusals(&pending, &answer);
                controller.note_version(&answer, &pending);
                let stands = matches!(&answer, Answer::Synced { held, .. } if !held.is_empty());
                let answer = match (pending, answer) {
                    (Pending::Renew, Answer::ActFailed(failure)) => Answer::RenewFailed(failure),
                    (_, answer) => answer,
                };
                controller.outbox.handle_answer(answer, now, self.rng.random());
                let split = controller.view.is_split();
                controller.view.told_to(controller.outbox.registry());
                if !split && controller.view.is_split() {
                    self.count("views split");
                }
                if stands {
                    self.count("leaders told what stands");
                }
            }
            Reply::Removed | Reply::Nothing => return,
        }
        self.drive(pid);
    }

    pub(crate) fn make_calls(&mut self, controller: &mut Controller) {
        let now = self.now;
        while let Some(call) = controller.outbox.next_call(now) {
            let (pid, cluster) = (controller.pid, controller.cluster);
            let mut server = None;
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
                    (Body::Register(registration), Pending::Act { put: BTreeMap::new() }, TIMING.call_limit())
                }
                Call::Renew { version, sum } => {
                    controller.renewed = Some((version, sum));
                    (Body::Renew { version, sum }, Pending::Renew, TIMING.call_limit())
                }
                Call::Write { version, ops } => {
                    controller.check_resent(&ops);
                    self.say((cluster, pid), version, &ops);
                    let put = leaves(&ops);
                    (Body::Write { version, ops }, Pending::Act { put }, TIMING.call_limit())
                }
                Call::Sync { version, names } => {
                    self.say_all(controller, version);
                    self.count("syncs");
                    let named = names.iter().map(|(key, _)| key.clone()).collect();
                    // A sync is a stream: it ends with the process that it began with.
                    server = Some(self.registry_of(cluster));
                    let whole = std::mem::take(&mut controller.changed_version);
                    let pending = Pending::Sync { version, named, put: BTreeMap::new(), server, whole };
                    (Body::SyncBegin { version, names }, pending, 4 * TIMING.call_limit())
                }
            };
            self.acts += u64::from(pending != Pending::Renew);
            let call = self.fresh_id();
            controller.calls.insert(call, pending);
            self.at(now + limit, Event::CallLimit { pid, call });
            self.log(|| format!("controller {pid} of cluster {cluster} calls {call}: {body:?}"));
            self.send(Request { pid, cluster, call, server, body });
        }
    }

    fn say_all(&mut self, controller: &Controller, version: Version) {
        for key in keys() {
            let speaker = (controller.cluster, controller.pid);
            let refused = matches!(controller.outbox.progress(key), Some(Progress::Refused(_)));
            let said = match controller.exports.get(key).cloned() {
                _ if refused => self.book.last_refusal(speaker, key),
                Some((leaf, endpoints)) => Said::Has(leaf, endpoints),
                None => Said::Gone,
            };
            self.book.say(speaker, key, version, said);
        }
    }

    fn say(&mut self, speaker: (usize, u64), version: Version, ops: &[Op]) {
        for op in ops {
            let said = match op {
                Op::Put { leaf, endpoints, .. } | Op::PutEndpoints { leaf, endpoints, .. } => {
                    Said::Has(*leaf, Arc::clone(endpoints))
                }
                Op::Delete { .. } => Said::Gone,
            };
            self.book.say(speaker, op.key(), version, said);
        }
    }
}

impl Controller {
    /// Takes note of what a registry refused.
    fn note_refusals(&mut self, pending: &Pending, answer: &Answer) {
        let (Answer::Written(results) | Answer::Synced { results, .. }) = answer else { return };
        let (Pending::Act { put } | Pending::Sync { put, .. }) = pending else { return };
        for (key, _) in results.iter().filter(|(_, result)| result.is_err()) {
            let as_it_is = self.exports.get(key).map(|(leaf, _)| *leaf);
            if let Some(leaf) = put.get(key).copied().filter(|leaf| Some(*leaf) == as_it_is) {
                self.refused.insert(key.clone(), leaf);
            }
        }
    }

    /// A registry of another version may take what was refused.
    fn note_version(&mut self, answer: &Answer, pending: &Pending) {
        match (answer, pending) {
            (Answer::Registered { by, .. } | Answer::Renewed { by, .. }, _) => {
                let before = self.build.replace(by.build.clone());
                self.changed_version |= before.is_some_and(|before| before != by.build);
            }
            (Answer::Synced { .. }, Pending::Sync { whole: true, .. }) => self.refused.clear(),
            (Answer::ActFailed(_), Pending::Sync { whole: true, .. }) => self.changed_version = true,
            _ => {}
        }
    }

    /// Nothing is resent for ever: what was refused is not put again before it changes.
    fn check_resent(&self, ops: &[Op]) {
        for (key, leaf) in leaves(ops) {
            assert_ne!(
                self.refused.get(&key),
                Some(&leaf),
                "resent: {key}, which was refused and did not change"
            );
        }
    }
}

/// The leaves of whole exports that are put.
fn leaves(ops: &[Op]) -> BTreeMap<ServiceKey, Leaf> {
    let put = |op: &Op| match op {
        Op::Put { key, leaf, .. } => Some((key.clone(), *leaf)),
        Op::PutEndpoints { .. } | Op::Delete { .. } => None,
    };
    ops.iter().filter_map(put).collect()
}
