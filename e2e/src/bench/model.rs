//! A controller without an API server: the outbox, the view and the client that `mcs-controller` has, driven as it
//! drives them. What would be written to the cluster is remembered, and what would be deleted is counted.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::Result;
use futures::{StreamExt, stream::FuturesUnordered};
use mcs_core::{
    ids::{Build, ClusterId, ClusterUid, Epoch, Instance, ServiceKey},
    model::{EndpointSet, ExportSpec, Frame, Group, GroupKey, Object},
    outbox::{Answer, Call, Outbox},
    registry::Registration,
    time::{Clock, Timestamp},
    timing::Timing,
    validate::Refusal,
    view::{Applied, AppliedSource, Decision, NotHeld, Source, View},
};
use mcs_proto::{
    client::{RegistryClient, Synced, Written},
    convert::Member,
    status::CallFailed,
};
use mcs_runtime::clock::{SystemClock, sleep_until};
use tokio::sync::{Notify, watch};

/// What a cluster exports.
pub type Exports = Vec<(ServiceKey, Arc<ExportSpec>, Arc<EndpointSet>)>;

/// How far a model has come with one registry process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reached {
    /// Where the registry holds what the cluster exports: its process.
    pub told: Option<Epoch>,
    /// Where all clusters are listed and shown: the registry's process.
    pub shown: Option<Epoch>,
    /// When the later of the two was reached last.
    pub at: Timestamp,
}

impl Reached {
    /// Whether both are reached in one process, other than `before`.
    pub fn is_whole(&self, before: Option<Epoch>) -> bool {
        self.told.is_some() && self.told == self.shown && self.told != before
    }
}

/// A model; it acts until it is dropped.
#[derive(Debug)]
pub struct Model {
    client: RegistryClient,
    member: Member,
    instance: Instance,
    build: Build,
    clusters: usize,
    state: Mutex<State>,
    outbox_changed: Notify,
    reached: watch::Sender<Reached>,
}

#[derive(Debug)]
struct State {
    outbox: Outbox,
    view: View,
    /// The process that took the last registration.
    registered: Option<Epoch>,
    applied: BTreeMap<ServiceKey, BTreeMap<ClusterId, Shown>>,
    deleted: u64,
}

/// What is shown of one source cluster.
#[derive(Clone, Debug, Default)]
struct Shown {
    source: AppliedSource,
    endpoints: Arc<EndpointSet>,
}

impl Model {
    /// A controller of `member`, which is one of `clusters`, that talks through `client`.
    ///
    /// # Errors
    /// None: the names are valid.
    pub fn new(
        client: RegistryClient,
        member: Member,
        clusters: usize,
        exports: &Exports,
        timing: Timing,
    ) -> Result<Self> {
        let mut outbox = Outbox::new(timing, 1, 1, SystemClock.elapsed());
        let mut view = View::new(member.cluster.clone());
        for (key, spec, endpoints) in exports {
            outbox.set(key.clone(), Arc::clone(spec), Arc::clone(endpoints), None);
            view.set_own(key.clone(), Some(Arc::clone(endpoints)));
        }
        view.own_listed();
        let state = State { outbox, view, registered: None, applied: BTreeMap::new(), deleted: 0 };
        Ok(Self {
            client,
            member,
            instance: "model".parse()?,
            build: "model".parse()?,
            clusters,
            state: Mutex::new(state),
            outbox_changed: Notify::new(),
            reached: watch::Sender::default(),
        })
    }

    /// Acts as a leading controller does, until dropped.
    pub async fn act(self: Arc<Self>) {
        tokio::join!(self.talk(), self.listen());
    }

    /// How far it has come.
    pub fn reached(&self) -> watch::Receiver<Reached> {
        self.reached.subscribe()
    }

    /// How many endpoints it would have deleted so far.
    pub fn deleted(&self) -> u64 {
        self.state().deleted
    }

    /// How many endpoints it would show, of how many clusters.
    pub fn shows(&self) -> (usize, usize) {
        let state = self.state();
        let shown = state.applied.values().flat_map(BTreeMap::iter);
        let clusters: BTreeSet<_> = shown.clone().map(|(cluster, _)| cluster).collect();
        (shown.map(|(_, shown)| shown.endpoints.len()).sum(), clusters.len())
    }

    /// Whether its view knows every cluster, as far as the registry says.
    pub fn is_complete(&self) -> bool {
        self.state().view.is_complete()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out the calls of the outbox.
    async fn talk(&self) {
        let mut calls = FuturesUnordered::new();
        loop {
            let next = || self.state().outbox.next_call(SystemClock.elapsed());
            while let Some(call) = next() {
                calls.push(self.carry_out(call));
            }
            let deadline = self.state().outbox.poll_timeout();
            tokio::select! {
                Some(answer) = calls.next(), if !calls.is_empty() => self.take(answer),
                () = self.outbox_changed.notified() => {}
                () = sleep_until(&SystemClock, deadline) => {}
            }
        }
    }

    async fn carry_out(&self, call: Call) -> Answer {
        let (client, member) = (&self.client, &self.member);
        match call {
            Call::Register { version, sum } => {
                let registration = Registration {
                    uid: member.uid.clone(),
                    region: None,
                    instance: self.instance.clone(),
                    build: self.build.clone(),
                    version,
                    sum,
                };
                match client.register(member, &registration).await {
                    Ok(answer) => {
                        self.state().registered = answer.by.epoch;
                        Answer::Registered { differs: answer.differs, lease: answer.lease, by: answer.by }
                    }
                    Err(failed) => Answer::ActFailed(failed.into()),
                }
            }
            Call::Renew { version, sum } => match client.renew(member, version, sum).await {
                Ok(answer) => Answer::Renewed {
                    differs: answer.differs,
                    degraded: answer.degraded,
                    lease: answer.lease,
                    by: answer.by,
                },
                Err(failed) => Answer::RenewFailed(failed.into()),
            },
            Call::Write { version, ops } => match client.write(member, version, &ops).await {
                Ok(Written { results, .. }) => Answer::Written(results),
                Err(failed) => Answer::ActFailed(failed.into()),
            },
            Call::Sync { version, names } => {
                let synced = async {
                    let (wants, stream) = client.begin_sync(member, version, &names).await?;
                    let ops = self.state().outbox.sync_ops(&wants);
                    stream.finish(&ops).await
                };
                match synced.await {
                    Ok(Synced { written: Written { results, held, .. }, .. }) => {
                        Answer::Synced { results, held }
                    }
                    Err(failed) => Answer::ActFailed(failed.into()),
                }
            }
        }
    }

    fn take(&self, answer: Answer) {
        let is_told = matches!(answer, Answer::Synced { .. } | Answer::Registered { differs: false, .. });
        let registered = {
            let mut state = self.state();
            state.outbox.handle_answer(answer, SystemClock.elapsed(), rand::random());
            while state.outbox.next_dirty().is_some() {}
            state.registered
        };
        if is_told {
            self.reach(|reached| reached.told = registered);
        }
    }

    fn reach(&self, note: impl FnOnce(&mut Reached)) {
        let now = SystemClock.elapsed();
        self.reached.send_modify(|reached| {
            note(reached);
            reached.at = now;
        });
    }

    /// Keeps the view told.
    async fn listen(&self) {
        let mut failures = 0;
        loop {
            // Why a watch ended does not matter: it is begun again.
            drop(self.follow(&mut failures).await);
            self.state().view.disconnected();
            failures += 1;
            let wait = self.state().outbox.timing().backoff(failures).mul_f64(rand::random());
            self.wait_while_deciding(wait).await;
        }
    }

    async fn follow(&self, failures: &mut u32) -> Result<(), CallFailed> {
        let (resume, since) = {
            let state = self.state();
            (state.view.resume(), state.view.since())
        };
        let Member { clusterset, cluster, .. } = &self.member;
        let mut frames = self.client.watch(clusterset, cluster, resume, since).await?;
        loop {
            let deadline = self.state().view.poll_timeout();
            tokio::select! {
                biased;
                frame = frames.next() => match frame {
                    Ok(frame) => {
                        if matches!(&frame, Frame::End { .. } | Frame::Progress { .. }) {
                            *failures = 0;
                        }
                        if let Err(not_held) = self.hear(frame) {
                            return Err(Refusal::new("kept", not_held.to_string()).into());
                        }
                    }
                    Err(failed) => {
                        self.state().outbox.doubt();
                        self.outbox_changed.notify_one();
                        return Err(failed);
                    }
                },
                () = sleep_until(&SystemClock, deadline) => self.pass(),
            }
        }
    }

    async fn wait_while_deciding(&self, wait: Duration) {
        let until = SystemClock.elapsed() + wait;
        loop {
            let deadline = self.state().view.poll_timeout();
            tokio::select! {
                () = sleep_until(&SystemClock, Some(until)) => return,
                () = sleep_until(&SystemClock, deadline) => self.pass(),
            }
        }
    }

    fn pass(&self) {
        let mut state = self.state();
        state.view.handle_timeout(SystemClock.elapsed());
        state.reconcile();
    }

    fn hear(&self, frame: Frame) -> Result<(), NotHeld> {
        // A cluster is listed after all its parts, so only these can complete what is shown.
        let may_complete = match &frame {
            Frame::Change(change) => matches!(change.object, Some(Object::Section(_))),
            Frame::End { .. } => true,
            Frame::Begin { .. } | Frame::Kept { .. } | Frame::Progress { .. } => false,
        };
        let shown = {
            let mut state = self.state();
            state.view.handle_frame(frame, SystemClock.elapsed())?;
            state.reconcile();
            may_complete.then(|| state.shown(self.clusters)).flatten()
        };
        if shown.is_some() && self.reached.borrow().shown != shown {
            self.reach(|reached| reached.shown = shown);
        }
        Ok(())
    }
}

impl State {
    /// The registry process whose view is shown, once it lists all clusters.
    fn shown(&self, clusters: usize) -> Option<Epoch> {
        self.view.resume().filter(|_| self.view.counts().clusters == clusters).map(|(epoch, _)| epoch)
    }

    /// Does what the view decides.
    fn reconcile(&mut self) {
        while let Some(key) = self.view.next_dirty() {
            let before = self.applied.remove(&key).unwrap_or_default();
            let clusters = before.iter().map(|(cluster, shown)| (cluster.clone(), shown.source.clone()));
            let applied = Applied { clusters: clusters.collect() };
            if !before.is_empty() {
                self.view.applied(key.clone(), applied);
            }
            let after = match self.view.decide(&key) {
                Decision::Keep => before.clone(),
                Decision::Remove => {
                    self.view.removed(&key);
                    BTreeMap::new()
                }
                Decision::Apply(wanted) => {
                    let shown = wanted.sources.into_iter().map(|(cluster, source)| {
                        let shown = match source {
                            Source::Keep => before.get(&cluster).cloned().unwrap_or_default(),
                            Source::Show(shown) => Shown {
                                source: AppliedSource { uid: shown.uid, version: shown.version },
                                endpoints: shown.endpoints,
                            },
                        };
                        (cluster, shown)
                    });
                    shown.collect()
                }
            };
            self.deleted += lost(&before, &after);
            if !after.is_empty() {
                self.applied.insert(key, after);
            }
        }
    }
}

/// How many endpoints of `before` are not in `after`.
fn lost(before: &BTreeMap<ClusterId, Shown>, after: &BTreeMap<ClusterId, Shown>) -> u64 {
    let mut lost = 0;
    for (cluster, shown) in before {
        let now = after.get(cluster).map(|shown| &shown.endpoints);
        if now.is_some_and(|now| Arc::ptr_eq(now, &shown.endpoints)) {
            continue;
        }
        let kept = now.map(|now| places(now)).unwrap_or_default();
        lost += u64::try_from(places(&shown.endpoints).difference(&kept).count()).unwrap_or(u64::MAX);
    }
    lost
}

fn places(endpoints: &EndpointSet) -> BTreeSet<(GroupKey, IpAddr)> {
    let places =
        |group: Group<'_>| group.members.map(|(address, _)| (group.key.clone(), address)).collect::<Vec<_>>();
    endpoints.groups().flat_map(places).collect()
}

/// The member that a cluster of this name is.
///
/// # Errors
/// A name that is no label.
pub fn member(clusterset: &str, cluster: &str) -> Result<Member> {
    Ok(Member {
        clusterset: clusterset.parse()?,
        cluster: cluster.parse()?,
        uid: ClusterUid::new(format!("{cluster}-uid"))?,
    })
}
