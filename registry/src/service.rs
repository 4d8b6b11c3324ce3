//! The use cases: what comes in is checked, goes to the registry of its clusterset, and is answered. Both transports
//! end here.
//!
//! A clusterset is made by its first registration or watch (over a store that others write, too: whoever asks for it),
//! and read from the store then; one in which nobody registered is forgotten when nobody watches it. What a call changed is stored before it is answered, or the answer says that it is
//! `degraded` ([`crate::keeper`]).

mod listed;
mod tasks;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::Stream;
use mcs_core::ids::{ClusterUid, ClustersetId, Epoch, ServiceKey};
use mcs_core::model::{HeldExport, Report};
use mcs_core::rate::Rate;
use mcs_core::registry::{Op, Policy, Refused, Registered, Registration, Removed, Renewed};
use mcs_core::time::{Clock, Timestamp, WallMillis};
use mcs_core::validate::{Dropped, Refusal};
use mcs_core::version::{Leaf, Sum, Version};
use mcs_proto::chunks::MAX_DROPPED;
use mcs_proto::convert::{Member, ReadOp, read_key};
use mcs_proto::encoded::EncodedStep;
use mcs_proto::pb;
use mcs_runtime::logs::Sparse;
use mcs_runtime::shutdown::Drain;
use tokio::sync::Notify;
use tonic::Status;
use tracing::{info, warn};

use crate::caller::{Remover, Writer};
use crate::clusterset::{Clusterset, State};
use crate::error::{Error, Excess};
use crate::keeper::{Condition, Keeper};
use crate::metrics::{Fate, Metrics};
use crate::replicas::Replication;
use crate::store::Failed;
use crate::watch;

/// The most clustersets in which somebody registered, and the most others that are watched: they are made by whoever
/// names them, and who may only read must not take the place of who registers.
const MAX_CLUSTERSETS: usize = 1_000;

/// The most records of a clusterset that wait for a store that does not take them: ten clusters with as many exports as
/// a cluster may have. Further changes are to be sent again: a store that is back is given what waits within a
/// heartbeat, and more than that it could not take.
const MAX_WAITING: usize = 100_000;

/// What callers were denied is logged at most this often: whoever has a certificate can ask for it.
const DENIALS: Rate = Rate::per_second(1);

/// That a clusterset cannot be read is logged at most this often.
const UNREADS: Rate = Rate::per_second(1);

/// What becomes of one change: endpoints that were left out, or why it is refused.
pub(crate) type Outcome = Result<Vec<Dropped>, Refusal>;

/// What became of a write.
#[derive(Debug)]
pub(crate) struct Written {
    /// One outcome a change, in order.
    pub(crate) outcomes: Vec<(pb::ServiceKey, Outcome)>,
    /// Whether it may be in memory only, since the store did not take it.
    pub(crate) degraded: bool,
}

/// The end of a sync.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Synced {
    /// How many exports went.
    pub(crate) deleted: usize,
    /// Whether it may be in memory only, since the store did not take it.
    pub(crate) degraded: bool,
}

/// The use cases of one registry process.
pub(crate) struct Service {
    policy: Policy,
    epoch: Epoch,
    clock: Arc<dyn Clock>,
    started: Timestamp,
    clustersets: Mutex<BTreeMap<ClustersetId, Arc<Clusterset>>>,
    /// There may be a deadline where there was none.
    deadlines: Notify,
    /// How this process and others over one store keep up with each other, if it has such a store.
    replication: Option<Replication>,
    /// A clusterset was begun that has to keep up with others.
    begun: Notify,
    keeper: Arc<Keeper>,
    metrics: Metrics,
    denials: Sparse,
    unreads: Sparse,
    shutdown: Drain,
}

impl Service {
    /// A registry that knows nothing yet.
    pub(crate) fn new(
        policy: Policy,
        epoch: Epoch,
        clock: Arc<dyn Clock>,
        replication: Replication,
        keeper: Keeper,
        metrics: Metrics,
        shutdown: Drain,
    ) -> Self {
        Self {
            policy,
            epoch,
            started: clock.elapsed(),
            clock,
            clustersets: Mutex::default(),
            deadlines: Notify::new(),
            replication: Some(replication).filter(|_| keeper.calls().is_shared()),
            begun: Notify::new(),
            keeper: Arc::new(keeper),
            metrics,
            denials: Sparse::new(DENIALS),
            unreads: Sparse::new(UNREADS),
            shutdown,
        }
    }

    /// Names this process.
    pub(crate) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What the wall clock says.
    pub(crate) fn wall(&self) -> Option<WallMillis> {
        self.clock.wall_millis()
    }

    /// Whether other registries may use the same store.
    pub(crate) fn shares_store(&self) -> bool {
        self.keeper.calls().is_shared()
    }

    /// The clustersets in which somebody has registered, by id.
    pub(crate) fn begun(&self) -> Vec<ClustersetId> {
        let known = self.clustersets.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().filter(|(_, clusterset)| clusterset.has_begun()).map(|(id, _)| id.clone()).collect()
    }

    /// How long each renewal holds.
    pub(crate) const fn lease(&self) -> Duration {
        self.policy.timing.lease()
    }

    /// A stream on which a caller says nothing for so long is given up.
    pub(crate) fn dead_stream(&self) -> Duration {
        self.policy.timing.dead_stream()
    }

    /// The most exports that a cluster may name.
    pub(crate) const fn max_exports(&self) -> usize {
        self.policy.max_exports
    }

    /// How the store is.
    pub(crate) fn store_condition(&self) -> Condition {
        self.keeper.condition()
    }

    /// A request ends with this error, which is counted or logged where it tells of something.
    pub(crate) fn failed(&self, error: Error) -> Error {
        if let Error::Denied(denied) = &error
            && let Some(unsaid) = self.denials.due(self.clock.elapsed())
        {
            let (clusterset, cluster) = (&denied.clusterset, &denied.cluster);
            warn!(%clusterset, %cluster, %denied, unsaid, "call denied");
        }
        self.metrics.failed(error)
    }

    /// The most clusters of a clusterset.
    pub(crate) const fn max_clusters(&self) -> usize {
        self.policy.max_clusters
    }

    /// Ends with the drain.
    pub(crate) const fn shutdown(&self) -> &Drain {
        &self.shutdown
    }

    /// All clustersets. Those that nobody uses any more are forgotten.
    pub(crate) fn clustersets(&self) -> Vec<Arc<Clusterset>> {
        let mut known = self.clustersets.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, clusterset| is_used(clusterset));
        known.values().cloned().collect()
    }

    /// All clustersets, those included that nobody uses any more.
    fn all(&self) -> Vec<Arc<Clusterset>> {
        let known = self.clustersets.lock().unwrap_or_else(PoisonError::into_inner);
        known.values().cloned().collect()
    }

    /// Whether what was said last, of whatever clusterset, may be in memory only.
    pub(crate) fn is_degraded(&self) -> bool {
        self.keeper.is_degraded()
    }

    /// Whether what was said last of a cluster may be in memory only, or it is better served by another replica.
    pub(crate) fn is_degraded_for(&self, member: &Member) -> bool {
        match self.known(&member.clusterset) {
            Some(known) => self.keeper.is_degraded_for(&known, &member.cluster),
            None => self.keeper.condition() != Condition::Fine,
        }
    }

    /// A clusterset that was read from the store.
    fn known(&self, clusterset: &ClustersetId) -> Option<Arc<Clusterset>> {
        let known = self.clustersets.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(clusterset).filter(|known| known.is_read()).cloned()
    }

    /// A clusterset, which is read from the store if it was not.
    async fn read(&self, clusterset: &ClustersetId, for_what: For) -> Result<Arc<Clusterset>, Error> {
        let known = self.known_or_new(clusterset, for_what)?;
        let to_join = for_what == For::Registration;
        let read = match known.shared() {
            None => known.read(self.keeper.calls()).await,
            Some(shared) if shared.is_ready(to_join) => return Ok(known),
            Some(shared) => {
                self.begun.notify_one();
                shared.ready(to_join, self.policy.timing.store_limit(), self.clock.elapsed()).await
            }
        };
        // Also one that cannot be read is looked at now and then: it is forgotten when nobody asks for it.
        self.deadlines.notify_one();
        read.inspect_err(|failed| self.unread(clusterset, failed))?;
        Ok(known)
    }

    /// What a clusterset has that others may have written to is read before it is listed or changed, if it was not.
    /// What cannot be read is not complete.
    pub(crate) async fn look_up(&self, clusterset: &str) {
        if self.replication.is_some()
            && let Ok(clusterset) = ClustersetId::new(clusterset)
            && self.known(&clusterset).is_none()
        {
            // It was logged, and the answer says that it is not complete.
            let _ = self.read(&clusterset, For::Watch).await;
        }
    }

    /// Says what the store said; callers are told nothing of it, and may ask as often as they like.
    fn unread(&self, clusterset: &ClustersetId, failed: &Failed) {
        if let Some(unsaid) = self.unreads.due(self.clock.elapsed()) {
            let retry_helps = failed.retry_helps();
            warn!(%clusterset, error = %failed, retry_helps, unsaid, "clusterset cannot be read from the store");
        }
    }

    fn known_or_new(&self, clusterset: &ClustersetId, for_what: For) -> Result<Arc<Clusterset>, Error> {
        let mut known = self.clustersets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(clusterset) {
            return Ok(Arc::clone(known));
        }
        known.retain(|_, clusterset| is_used(clusterset));
        let alike =
            known.values().filter(|known| known.has_begun() == (for_what == For::Registration)).count();
        if alike >= MAX_CLUSTERSETS {
            let excess = match for_what {
                For::Registration => Excess::Clustersets,
                For::Watch => Excess::WatchedClustersets,
            };
            return Err(Error::TooMuch { excess, most: MAX_CLUSTERSETS });
        }
        info!(%clusterset, "clusterset begun");
        let (clock, replication) = (Arc::clone(&self.clock), self.replication.as_ref());
        let new = Clusterset::new(clusterset.clone(), self.policy, self.epoch, clock, replication);
        let new = Arc::new(new);
        known.insert(clusterset.clone(), Arc::clone(&new));
        Ok(new)
    }

    fn of_member(&self, member: &Member) -> Result<Arc<Clusterset>, Error> {
        let unknown = || Refused::Unknown { cluster: member.cluster.clone() };
        Ok(self.known(&member.clusterset).ok_or_else(unknown)?)
    }

    /// Takes a cluster into its clusterset, or its lead over.
    pub(crate) async fn register(
        &self,
        writer: &Writer,
        registration: Registration,
    ) -> Result<Registered, Error> {
        let member = writer.member();
        let clusterset = self.read(&member.clusterset, For::Registration).await?;
        let Registration { version, instance, build, region, .. } = registration.clone();
        let region = region.map(|region| region.to_string());
        let claimed_at = self.clock.wall_millis();
        let register = |state: &mut State, now| {
            let registered = state.registry.register(&member.cluster, registration, now)?;
            state.registry.note_claim(&member.cluster, &member.uid, claimed_at);
            Ok(registered)
        };
        let answer = clusterset.logged(register, |answer| {
            if let Ok(registered) = answer {
                info!(
                    clusterset = %member.clusterset, cluster = %member.cluster, uid = %member.uid, region, %version,
                    %instance, %build, differs = registered.differs, "cluster registered"
                );
            }
        });
        self.deadlines.notify_one();
        let answer = clusterset.unless_refused(&member.cluster, "register", answer)?;
        self.keeper.save_now(&clusterset, &member.cluster).await;
        Ok(answer)
    }

    /// Renews a lease.
    pub(crate) fn renew(
        &self,
        writer: &Writer,
        version: Version,
        sum: Sum,
        report: Report,
    ) -> Result<Renewed, Error> {
        let member = writer.member();
        let clusterset = self.of_member(member)?;
        let renew = |state: &mut State, now| {
            let renewed = state.registry.renew(&member.cluster, &member.uid, version, sum, now)?;
            state.registry.note_report(&member.cluster, report);
            Ok(renewed)
        };
        Ok(clusterset.unless_refused(&member.cluster, "renew", clusterset.with(renew))?)
    }

    /// Counts a write, before anything of it is looked at.
    pub(crate) fn count_write(&self, writer: &Writer) -> Result<(), Error> {
        let member = writer.member();
        let count = |state: &mut State, now| state.registry.count_write(&member.cluster, &member.uid, now);
        let clusterset = self.of_member(member)?;
        clusterset.unless_refused(&member.cluster, "write", clusterset.with(count))?;
        self.keeps(&clusterset)
    }

    /// Refuses changes while too many wait for a store that does not take them.
    fn keeps(&self, clusterset: &Clusterset) -> Result<(), Error> {
        if self.keeper.condition() == Condition::Fine {
            return Ok(());
        }
        let waiting = clusterset.unsaved(|unsaved, _| unsaved.records());
        if waiting < MAX_WAITING { Ok(()) } else { Err(Error::Behind { waiting }) }
    }

    /// Takes changes as [`Service::take_changes`] does, and stores them.
    pub(crate) async fn write(
        &self,
        writer: &Writer,
        version: Version,
        ops: Vec<ReadOp>,
    ) -> Result<Written, Error> {
        let outcomes = self.take_changes(writer, version, ops)?;
        Ok(Written { outcomes, degraded: self.save(writer.member()).await })
    }

    /// Stores what is not stored of a member; says whether it may be in memory only.
    async fn save(&self, member: &Member) -> bool {
        match self.known(&member.clusterset) {
            Some(clusterset) => self.keeper.save_now(&clusterset, &member.cluster).await,
            None => self.is_degraded_for(member),
        }
    }

    /// Takes changes, each by itself: one outcome a change. All outcomes together name at most [`MAX_DROPPED`]
    /// endpoints that were left out. Within a sync they are stored at its end.
    pub(crate) fn take_changes(
        &self,
        writer: &Writer,
        version: Version,
        ops: Vec<ReadOp>,
    ) -> Result<Vec<(pb::ServiceKey, Outcome)>, Error> {
        let member = writer.member();
        let clusterset = self.of_member(member)?;
        let mut outcomes: Vec<(pb::ServiceKey, Outcome)> = Vec::with_capacity(ops.len());
        let (mut accepted, mut places) = (Vec::new(), Vec::new());
        let (mut left_out, mut named) = (0, 0);
        let mut keys = BTreeSet::new();
        for op in ops {
            let (key, checked) = op.checked();
            // Deletes are taken first, so the caller's order would not be kept.
            let mut is_first = |op: &Op| keys.insert(op.key().clone());
            let checked = checked.and_then(
                |(op, dropped)| {
                    if is_first(&op) { Ok((op, dropped)) } else { Err(twice()) }
                },
            );
            let outcome = checked.map(|(op, mut dropped)| {
                places.push(outcomes.len());
                accepted.push(op);
                left_out += dropped.len();
                dropped.iter().for_each(|dropped| self.metrics.writes().dropped(dropped));
                dropped.truncate(MAX_DROPPED - named);
                named += dropped.len();
                dropped
            });
            outcomes.push((key, outcome));
        }
        // Another replica may have stored what is not held here: a delete is stored all the same.
        let is_deleted = |op: &Op| matches!(op, Op::Delete { .. });
        let deleted: Vec<ServiceKey> = match clusterset.shared() {
            Some(_) => accepted.iter().filter(|op| is_deleted(op)).map(|op| op.key().clone()).collect(),
            None => Vec::new(),
        };
        let write = |state: &mut State, now| {
            let written = state.registry.write(&member.cluster, &member.uid, version, accepted, now)?;
            if !deleted.is_empty() {
                state.unsaved.again(&member.cluster, &member.uid, version, deleted);
            }
            Ok(written)
        };
        let written = clusterset.unless_refused(&member.cluster, "write", clusterset.with(write))?;
        for (place, outcome) in places.into_iter().zip(written) {
            if let Err(refusal) = outcome {
                outcomes[place].1 = Err(refusal);
            }
        }
        for refusal in outcomes.iter().filter_map(|(_, outcome)| outcome.as_ref().err()) {
            self.metrics.refused(refusal);
        }
        clusterset.log_outcomes(&member.cluster, version, &outcomes, left_out);
        Ok(outcomes)
    }

    /// What is held of an export that its owner was refused.
    pub(crate) fn held(&self, writer: &Writer, key: &pb::ServiceKey) -> Option<HeldExport> {
        let member = writer.member();
        let key = read_key(Some(key)).ok()?;
        self.known(&member.clusterset)?.with(|state, _| {
            let known = state.registry.member(&member.cluster)?;
            known.held(&key).filter(|_| *known.uid() == member.uid)
        })
    }

    /// Begins a sync.
    pub(crate) fn begin_sync(&self, writer: &Writer, version: Version) -> Result<(), Error> {
        let member = writer.member();
        let begin =
            |state: &mut State, now| state.registry.begin_sync(&member.cluster, &member.uid, version, now);
        let clusterset = self.of_member(member)?;
        let begun = clusterset.logged(begin, |begun| {
            if begun.is_ok() {
                info!(clusterset = %member.clusterset, cluster = %member.cluster, %version, "sync begun");
            }
        });
        clusterset.unless_refused(&member.cluster, "sync", begun)?;
        self.keeps(&clusterset)
    }

    /// Says which of the named exports are wanted.
    pub(crate) fn wanted(
        &self,
        writer: &Writer,
        version: Version,
        names: &[(ServiceKey, Leaf)],
    ) -> Result<Vec<ServiceKey>, Error> {
        let member = writer.member();
        let wanted =
            |state: &mut State, _| state.registry.wanted(&member.cluster, &member.uid, version, names);
        let clusterset = self.of_member(member)?;
        let wanted = clusterset.unless_refused(&member.cluster, "sync", clusterset.with(wanted))?;
        self.metrics.writes().synced(Fate::Named, names.len());
        self.metrics.writes().synced(Fate::Wanted, wanted.len());
        Ok(wanted)
    }

    /// Ends a sync, and stores what it brought.
    pub(crate) async fn end_sync(
        &self,
        writer: &Writer,
        version: Version,
        named: &BTreeSet<ServiceKey>,
    ) -> Result<Synced, Error> {
        let member = writer.member();
        let end = |state: &mut State, now| {
            state.registry.end_sync(&member.cluster, &member.uid, version, named, now)
        };
        let clusterset = self.of_member(member)?;
        let ended = clusterset.logged(end, |ended| {
            if let Ok(deleted) = ended {
                info!(
                    clusterset = %member.clusterset, cluster = %member.cluster, %version, exports = named.len(),
                    deleted, "sync ended"
                );
            }
        });
        let deleted = clusterset.unless_refused(&member.cluster, "sync", ended)?;
        self.metrics.writes().synced(Fate::Deleted, deleted);
        Ok(Synced { deleted, degraded: self.save(member).await })
    }

    /// Removes a cluster with all it exports; where `only` names one, no other that has its id by now.
    pub(crate) async fn remove(
        &self,
        remover: &Remover,
        uid: Option<&ClusterUid>,
        only: Option<&ClusterUid>,
        force: bool,
    ) -> Result<Removed, Error> {
        let (clusterset, cluster) = (remover.clusterset(), remover.cluster());
        let unknown = || Refused::Unknown { cluster: cluster.clone() };
        self.look_up(clusterset.as_str()).await;
        let known = self.known(clusterset).ok_or_else(unknown)?;
        let by = if uid.is_some() || remover.is_itself() { "itself" } else { "administrator" };
        let remove = |state: &mut State, now| {
            if let (Some(only), Some(held)) = (only, state.registry.member(cluster))
                && held.uid() != only
            {
                let (cluster, holder) = (cluster.clone(), held.uid().clone());
                return Err(Error::Another { cluster, holder, wanted: only.clone() });
            }
            Ok(state.registry.remove(cluster, uid, force, now))
        };
        let removed = known.logged(remove, |removed| {
            if let Ok(Ok(Removed { exports, endpoints })) = removed {
                info!(%clusterset, %cluster, by, force, exports, endpoints, "cluster removed");
            }
        })?;
        let removed = known.unless_refused(cluster, "remove", removed)?;
        self.keeper.save_now(&known, cluster).await;
        Ok(removed)
    }

    /// Watches the imports of a clusterset.
    pub(crate) async fn watch(
        &self,
        clusterset: &ClustersetId,
        request: watch::Request,
    ) -> Result<impl Stream<Item = Result<EncodedStep, Status>> + Send + use<>, Error> {
        if self.shutdown.is_draining() {
            return Err(Error::Draining);
        }
        let clusterset = self.read(clusterset, For::Watch).await?;
        Ok(watch::stream(clusterset, request, self.metrics.watches().clone(), self.shutdown.clone()))
    }
}

/// Of two changes of one export in one call, the second is refused.
fn twice() -> Refusal {
    Refusal::new("key", "is named by an earlier change of this call: send one after the other")
}

/// What a clusterset is asked for that may not be there yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    Registration,
    Watch,
}

/// Whether somebody registered in a clusterset, watches it or is about to, or waits for it to be read. Asked with the lock of
/// all clustersets, of which nobody can be given one meanwhile.
fn is_used(clusterset: &Arc<Clusterset>) -> bool {
    Arc::strong_count(clusterset) > 1 || clusterset.has_begun() || clusterset.is_wanted()
}
