//! Clusters that go on with the next registry where one does not answer, and importers that do with what they are told
//! what a controller does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mcs_core::ids::{ClusterId, ServiceKey};
use mcs_core::model::{Frame, MemberState, Object, ObjectKey, Since};
use mcs_core::registry::Op;
use mcs_core::time::{Clock, Timestamp};
use mcs_core::version::{Leaf, Sum, Version};
use mcs_core::view::{Applied, AppliedSource, Decision, Source, View, Wanted};
use mcs_proto::client::{RegistryClient, SyncStream};
use mcs_proto::convert::Member;
use mcs_proto::status::CallFailed;
use mcs_runtime::clock::SystemClock;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use super::LEASE;
use crate::started::{id, key, leaf, member, prod, put, registration};

/// Before all registries are asked again.
const PAUSE: Duration = Duration::from_millis(50);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a cluster has, and what became of its calls.
#[derive(Debug, Default)]
struct Standing {
    seq: u64,
    exports: BTreeMap<ServiceKey, Op>,
    home: usize,
    is_registered: bool,
    is_silent: bool,
    is_degraded: bool,
    /// Heartbeats that some registry answered, and when the last of them was sent.
    answered: usize,
    renewed_at: Timestamp,
    /// Calls that one registry did not take, with its words.
    failed: Vec<String>,
    /// Heartbeats that no registry took.
    unanswered: usize,
}

/// A cluster. It may hold a call for the limit of a controller with the default lease, 3 s.
pub(super) struct Cluster {
    pub(super) member: Member,
    speaker: Arc<Speaker>,
    task: JoinHandle<()>,
}

struct Speaker {
    member: Member,
    homes: Vec<(usize, RegistryClient)>,
    standing: Mutex<Standing>,
    /// One call at a time.
    turn: tokio::sync::Mutex<()>,
}

impl Cluster {
    /// A cluster that speaks to the first of these, as long as it answers.
    pub(super) fn new(name: &str, homes: Vec<(usize, RegistryClient)>) -> Self {
        let member = member(name, &format!("uid-of-{name}"));
        let standing = Mutex::new(Standing { seq: 1, ..Standing::default() });
        let turn = tokio::sync::Mutex::new(());
        let speaker = Arc::new(Speaker { member: member.clone(), homes, standing, turn });
        let beating = Arc::clone(&speaker);
        let task = tokio::spawn(async move {
            let mut heartbeats = tokio::time::interval(LEASE / 3);
            heartbeats.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                heartbeats.tick().await;
                beating.heartbeat().await;
            }
        });
        Self { member, speaker, task }
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        lock(&self.speaker.standing)
    }

    /// Exports a Service with so many endpoints. Whatever does not take it now is told by the next heartbeat.
    pub(super) async fn put(&self, name: &str, count: u32) {
        self.speaker.change(put(name, count)).await;
    }

    /// Says nothing any more.
    pub(super) fn falls_silent(&self) {
        self.standing().is_silent = true;
    }

    /// Which registry it speaks to, by number.
    pub(super) fn served_by(&self) -> usize {
        self.speaker.homes[self.standing().home].0
    }

    /// Whether its registry said last that its store is away.
    pub(super) fn is_degraded(&self) -> bool {
        self.standing().is_degraded
    }

    /// How many heartbeats were answered.
    pub(super) fn answered(&self) -> usize {
        self.standing().answered
    }

    /// When the last heartbeat was sent that was answered.
    pub(super) fn renewed_at(&self) -> Timestamp {
        self.standing().renewed_at
    }

    /// How many heartbeats no registry took.
    pub(super) fn unanswered(&self) -> usize {
        self.standing().unanswered
    }

    /// What registries said that did not take a call.
    pub(super) fn failed(&self) -> Vec<String> {
        self.standing().failed.clone()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Speaker {
    async fn change(&self, op: Op) {
        let _turn = self.turn.lock().await;
        let (version, home) = {
            let mut standing = lock(&self.standing);
            standing.seq += 1;
            standing.exports.insert(op.key().clone(), op.clone());
            (Version::new(1, standing.seq), standing.is_registered.then_some(standing.home))
        };
        let Some(home) = home else { return };
        let (registry, client) = &self.homes[home];
        let written = client.write(&self.member, version, &[op]).await;
        let mut standing = lock(&self.standing);
        match written {
            Ok(written) => {
                standing.is_degraded = written.degraded;
                let refused = written.results.into_iter().filter_map(|(_, result)| result.err());
                standing.failed.extend(refused.map(|refusal| format!("registry {registry}: {refusal:?}")));
            }
            Err(failed) => standing.failed.push(format!("registry {registry}: {failed}")),
        }
    }

    /// Renews at one registry after the other until one takes it.
    async fn heartbeat(&self) {
        let _turn = self.turn.lock().await;
        if lock(&self.standing).is_silent {
            return;
        }
        for _ in &self.homes {
            let (home, now) = (lock(&self.standing).home, SystemClock.elapsed());
            let (registry, client) = &self.homes[home];
            match self.renew(client).await {
                Ok(()) => {
                    let mut standing = lock(&self.standing);
                    (standing.answered, standing.renewed_at) = (standing.answered + 1, now);
                    return;
                }
                Err(failed) => {
                    let mut standing = lock(&self.standing);
                    standing.failed.push(format!("registry {registry}: {failed}"));
                    standing.is_registered = false;
                    standing.home = (home + 1) % self.homes.len();
                }
            }
        }
        lock(&self.standing).unanswered += 1;
    }

    async fn renew(&self, client: &RegistryClient) -> Result<(), CallFailed> {
        let (version, sum, _) = self.said();
        let is_registered = lock(&self.standing).is_registered;
        let renewed = if is_registered {
            match client.renew(&self.member, version, sum).await {
                Ok(renewed) => {
                    lock(&self.standing).is_degraded = renewed.degraded;
                    Some(renewed.differs)
                }
                Err(CallFailed::UnknownCluster) => None,
                Err(failed) => return Err(failed),
            }
        } else {
            None
        };
        let differs = match renewed {
            Some(differs) => differs,
            None => {
                let registration = registration(&self.member, version, sum);
                let registered = client.register(&self.member, &registration).await?;
                lock(&self.standing).is_registered = true;
                registered.differs
            }
        };
        if differs { self.sync(client).await } else { Ok(()) }
    }

    async fn sync(&self, client: &RegistryClient) -> Result<(), CallFailed> {
        lock(&self.standing).seq += 1;
        let (version, _, names) = self.said();
        let (wanted, sync): (Vec<ServiceKey>, SyncStream) =
            client.begin_sync(&self.member, version, &names).await?;
        let ops: Vec<Op> = {
            let standing = lock(&self.standing);
            wanted.iter().filter_map(|key| standing.exports.get(key).cloned()).collect()
        };
        sync.finish(&ops).await.map(drop)
    }

    fn said(&self) -> (Version, Sum, Vec<(ServiceKey, Leaf)>) {
        let standing = lock(&self.standing);
        let names: Vec<_> = standing.exports.iter().map(|(key, op)| (key.clone(), leaf(op))).collect();
        (Version::new(1, standing.seq), names.iter().map(|(_, leaf)| *leaf).collect(), names)
    }
}

/// Something that must not be, of a cluster that lives and exports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// The importer deletes all of its endpoints of a Service.
    Deleted(ServiceKey),
    /// The importer deletes some of them.
    Fewer(ServiceKey, usize, usize),
    /// A registry says that an export of it ended.
    PartGone(ServiceKey),
    /// A registry says that its lease ran out.
    Expired,
    /// A registry says that it is gone.
    Gone,
    /// A registry says that it knows all clusters, and it is not among them.
    NotInAll,
}

/// What an importer has, and what was wrong.
#[derive(Debug, Default)]
struct Imported {
    applied: BTreeMap<ServiceKey, Applied>,
    counts: BTreeMap<(ServiceKey, ClusterId), usize>,
    /// The clusters that the present snapshot lists.
    listed: BTreeSet<ClusterId>,
    complete: bool,
    /// The clusters that a view that says it is complete has to list.
    expected: BTreeSet<ClusterId>,
    wrong: Vec<(ClusterId, Wrong)>,
    watches: usize,
}

/// An importing controller, without an API server: it shows and deletes by the rules of the view.
pub(super) struct Importer {
    /// Its own cluster, which exports nothing.
    pub(super) own: Cluster,
    imported: Arc<Mutex<Imported>>,
    task: JoinHandle<()>,
}

impl Importer {
    /// An importer that watches the first of these, as long as it answers.
    pub(super) fn new(name: &str, homes: Vec<(usize, RegistryClient)>) -> Self {
        let imported = Arc::new(Mutex::new(Imported::default()));
        let (own, noted) = (Cluster::new(name, homes.clone()), Arc::clone(&imported));
        let own_id = id(name);
        let task = tokio::spawn(async move {
            let mut view = View::new(own_id.clone());
            view.own_listed();
            for (_, client) in homes.iter().cycle() {
                let watch = client.watch(&prod(), &own_id, view.resume(), Since::default()).await;
                if let Ok(mut watch) = watch {
                    lock(&noted).watches += 1;
                    while let Ok(frame) = watch.next().await {
                        lock(&noted).take(&mut view, frame);
                    }
                }
                view.disconnected();
                tokio::time::sleep(PAUSE).await;
            }
        });
        Self { own, imported, task }
    }

    fn imported(&self) -> MutexGuard<'_, Imported> {
        lock(&self.imported)
    }

    /// How many endpoints it shows of a cluster's Service.
    pub(super) fn shows(&self, name: &str, cluster: &str) -> Option<usize> {
        self.imported().counts.get(&(key(name), id(cluster))).copied()
    }

    /// Whether its registry said last that all clusters are known.
    pub(super) fn is_complete(&self) -> bool {
        self.imported().complete
    }

    /// How many watches it has begun.
    pub(super) fn watches(&self) -> usize {
        self.imported().watches
    }

    /// From now on, whoever says that all clusters are known has to list these.
    pub(super) fn expects(&self, clusters: impl IntoIterator<Item = ClusterId>) {
        self.imported().expected = clusters.into_iter().collect();
    }

    /// What was wrong.
    pub(super) fn wrong(&self) -> Vec<(ClusterId, Wrong)> {
        self.imported().wrong.clone()
    }
}

impl Drop for Importer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Imported {
    fn take(&mut self, view: &mut View, frame: Frame) {
        self.note(&frame);
        let now = SystemClock.elapsed();
        view.handle_frame(frame, now).unwrap();
        view.handle_timeout(now);
        while let Some(key) = view.next_dirty() {
            view.applied(key.clone(), self.applied.get(&key).cloned().unwrap_or_default());
            match view.decide(&key) {
                Decision::Keep => {}
                Decision::Remove => {
                    let gone = self.applied.remove(&key).unwrap_or_default().clusters;
                    gone.into_keys().for_each(|cluster| self.deleted(&key, cluster));
                    view.removed(&key);
                }
                Decision::Apply(wanted) => self.apply(&key, wanted),
            }
        }
    }

    fn apply(&mut self, key: &ServiceKey, wanted: Wanted) {
        let before = std::mem::take(&mut self.applied.entry(key.clone()).or_default().clusters);
        let mut after = BTreeMap::new();
        for (cluster, source) in before {
            if wanted.sources.contains_key(&cluster) {
                after.insert(cluster, source);
            } else {
                self.deleted(key, cluster);
            }
        }
        for (cluster, source) in wanted.sources {
            let Source::Show(shown) = source else { continue };
            let count = shown.endpoints.len();
            if let Some(before) = self.counts.insert((key.clone(), cluster.clone()), count)
                && count < before
            {
                self.wrong.push((cluster.clone(), Wrong::Fewer(key.clone(), before, count)));
            }
            after.insert(cluster, AppliedSource { uid: shown.uid, version: shown.version });
        }
        self.applied.insert(key.clone(), Applied { clusters: after });
    }

    fn deleted(&mut self, key: &ServiceKey, cluster: ClusterId) {
        self.counts.remove(&(key.clone(), cluster.clone()));
        self.wrong.push((cluster, Wrong::Deleted(key.clone())));
    }

    /// What is wrong whatever an importer makes of it.
    fn note(&mut self, frame: &Frame) {
        match frame {
            Frame::Begin { .. } => {
                self.listed.clear();
                self.complete = false;
            }
            Frame::Kept { .. } => {}
            Frame::Change(change) => match (&change.key, &change.object) {
                (ObjectKey::Section(cluster), Some(Object::Section(section))) => {
                    self.listed.insert(cluster.clone());
                    if section.state == MemberState::Expired {
                        self.wrong.push((cluster.clone(), Wrong::Expired));
                    }
                }
                (ObjectKey::Section(cluster), _) => {
                    self.listed.remove(cluster);
                    self.wrong.push((cluster.clone(), Wrong::Gone));
                }
                (ObjectKey::Part(key, cluster), None) => {
                    self.wrong.push((cluster.clone(), Wrong::PartGone(key.clone())));
                }
                (ObjectKey::Part(..) | ObjectKey::Header(_), _) => {}
            },
            Frame::End { complete, .. } | Frame::Progress { complete, .. } => {
                self.complete = *complete;
                if *complete {
                    let missing = self.expected.difference(&self.listed).cloned();
                    self.wrong.extend(missing.map(|cluster| (cluster, Wrong::NotInAll)));
                }
            }
        }
    }
}
