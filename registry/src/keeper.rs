//! Brings what is held to the store, and knows how the store is.
//!
//! A call is answered when the store took what it changed. When the store does not, the answer says that it is
//! `degraded`, all that was said stands in memory, and one task tries on: what is not saved is noted
//! ([`crate::unsaved`]), so nothing is queued and nothing lost. While that lasts, calls do not wait for the store.
//! While it cannot be asked at all, no lease is judged and no view is complete.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mcs_core::ids::{ClusterId, ClustersetId};
use mcs_core::time::{Clock, Timestamp};
use mcs_core::timing::Timing;
use tokio::sync::Notify;
use tracing::field::display;
use tracing::{info, warn};

use crate::clusterset::Clusterset;
use crate::store::{Calls, Erased, Failed, Write, Wrote};

/// One call to the store writes at most so many records: it is to be answered within its limit.
const WRITES_A_CALL: usize = 64;

/// How the store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// It takes what it is given.
    Fine,
    /// It answers, but did not take a write.
    Behind,
    /// It does not answer.
    Away,
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fine => "fine",
            Self::Behind => "behind",
            Self::Away => "away",
        })
    }
}

/// What is known of the store.
#[derive(Debug)]
struct Health {
    /// How it is, whatever it is asked for.
    whole: Condition,
    /// Of these clusters it did not take what it was given last.
    behind: BTreeSet<(ClustersetId, ClusterId)>,
    /// Since when it is not fine.
    since: Option<Timestamp>,
}

impl Health {
    fn condition(&self) -> Condition {
        match self.whole {
            Condition::Fine if !self.behind.is_empty() => Condition::Behind,
            whole => whole,
        }
    }

    /// Whether what was said of a cluster just now is for the task that tries on to save: then the cluster is behind until
    /// that is done, also where the store as a whole is fine again before.
    fn waits(&mut self, clusterset: &ClustersetId, cluster: &ClusterId) -> bool {
        let waits = self.is_behind(clusterset, cluster);
        if waits {
            self.behind.insert((clusterset.clone(), cluster.clone()));
        }
        waits
    }

    /// Whether what is said of a cluster may be in memory only.
    fn is_behind(&self, clusterset: &ClustersetId, cluster: &ClusterId) -> bool {
        self.whole != Condition::Fine || self.behind.iter().any(|(id, of)| (id, of) == (clusterset, cluster))
    }
}

/// Why clusters are better served by another replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trouble {
    /// The store does not take renewals: the clusters look silent elsewhere.
    Unheard,
    /// The store does not say what the other replicas do: they wait for an answer of this one in vain.
    Deaf,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unheard => "store does not take renewals",
            Self::Deaf => "store does not say what other replicas do",
        })
    }
}

/// Keeps the store up to date.
pub(crate) struct Keeper {
    calls: Calls,
    timing: Timing,
    health: Mutex<Health>,
    /// Clustersets whose clusters are better served by another replica, and why.
    troubles: Mutex<BTreeSet<(ClustersetId, Trouble)>>,
    clock: Arc<dyn Clock>,
    wake: Notify,
}

impl Keeper {
    /// A keeper of a store that is taken to be fine.
    pub(crate) fn new(calls: Calls, timing: Timing, clock: Arc<dyn Clock>) -> Self {
        let health = Mutex::new(Health { whole: Condition::Fine, behind: BTreeSet::new(), since: None });
        Self { calls, timing, health, troubles: Mutex::default(), clock, wake: Notify::new() }
    }

    /// Asks the store.
    pub(crate) const fn calls(&self) -> &Calls {
        &self.calls
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the store is.
    pub(crate) fn condition(&self) -> Condition {
        self.health().condition()
    }

    /// Whether what was said last may be in memory only, or the clusters of some clusterset are better served by another
    /// replica.
    pub(crate) fn is_degraded(&self) -> bool {
        self.condition() != Condition::Fine || !self.troubles().is_empty()
    }

    /// Whether what was said last of this cluster may be in memory only, or it is better served by another replica: that
    /// of one cluster is no reason for others to leave, nor that of one clusterset for the clusters of others.
    pub(crate) fn is_degraded_for(&self, clusterset: &Clusterset, cluster: &ClusterId) -> bool {
        let is_troubled = || self.troubles().iter().any(|(of, _)| of == clusterset.id());
        self.health().is_behind(clusterset.id(), cluster) || is_troubled() || clusterset.is_new_to_others()
    }

    fn troubles(&self) -> MutexGuard<'_, BTreeSet<(ClustersetId, Trouble)>> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clusters of a clusterset are better served by another replica.
    pub(crate) fn is_troubled(&self, clusterset: &ClustersetId, trouble: Trouble, failed: &Failed) {
        if self.troubles().insert((clusterset.clone(), trouble)) {
            warn!(
                %clusterset, %trouble, error = %failed, retry_helps = failed.retry_helps(),
                "answers are degraded, so that clusters go to another replica"
            );
        }
    }

    /// That trouble is over.
    pub(crate) fn is_well(&self, clusterset: &ClustersetId, trouble: Trouble) {
        if self.troubles().remove(&(clusterset.clone(), trouble)) {
            info!(%clusterset, %trouble, "clusters may stay at this replica again");
        }
    }

    /// Nobody asks for a clusterset any more.
    pub(crate) fn is_forgotten(&self, clusterset: &ClustersetId) {
        self.troubles().retain(|(of, _)| of != clusterset);
    }

    /// The store answered, be it that it is asked for too much.
    pub(crate) fn answers(&self) {
        self.health().whole = Condition::Fine;
    }

    /// Of all that is not saved, this is left: whatever else it did not take is not waited for.
    pub(crate) fn are_left(&self, unsaved: &[(Arc<Clusterset>, ClusterId)]) {
        let left = |(id, cluster): &(ClustersetId, ClusterId)| {
            unsaved.iter().any(|(clusterset, of)| (clusterset.id(), of) == (id, cluster))
        };
        self.health().behind.retain(left);
    }

    /// Takes notice of a store that is fine; says for how long it was not, if it was not.
    pub(crate) fn recovered(&self) -> Option<Duration> {
        let mut health = self.health();
        (health.whole, health.behind) = (Condition::Fine, BTreeSet::new());
        let since = health.since.take()?;
        Some(self.clock.elapsed().since(since))
    }

    /// Something is to be saved that no call waits for.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Something is to be saved.
    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// How long to wait after so many failures.
    pub(crate) fn retry_in(&self, failures: u32) -> Duration {
        self.timing.backoff(failures).mul_f64(rand::random())
    }

    /// How long to wait between two of `members` after an outage, so that all are saved within about a heartbeat, and
    /// the store is not met by all at once.
    pub(crate) fn spread(&self, members: usize) -> Duration {
        self.timing.heartbeat().div_f64(members.max(1) as f64).mul_f64(rand::random())
    }

    /// Saves what of one cluster id is not saved; says whether it may be in memory only.
    pub(crate) async fn save_now(&self, clusterset: &Clusterset, cluster: &ClusterId) -> bool {
        if self.health().waits(clusterset.id(), cluster) {
            return true;
        }
        let mut given_up = WakeOnDrop(Some(self));
        // Its caller waits: what takes longer goes on without it.
        let limit = self.timing.store_limit();
        let saved = tokio::time::timeout(limit, self.save(clusterset, cluster)).await;
        match saved.unwrap_or(Err(Failed::TimedOut { limit })) {
            Ok(()) => {
                given_up.0 = None;
                self.is_degraded_for(clusterset, cluster)
            }
            Err(failed) => {
                self.takes_nothing_of(clusterset.id(), cluster, &failed);
                if matches!(failed, Failed::TimedOut { .. } | Failed::Away { .. }) {
                    // Whether it answers at all is for the task that tries on to find out. Others do not wait meanwhile.
                    self.health().whole = Condition::Behind;
                }
                true
            }
        }
    }

    /// The store did not take what it was given of a cluster.
    pub(crate) fn takes_nothing_of(&self, clusterset: &ClustersetId, cluster: &ClusterId, failed: &Failed) {
        let note = |health: &mut Health| {
            health.behind.insert((clusterset.clone(), cluster.clone()));
        };
        self.failed(note, Some((clusterset, cluster)), failed);
    }

    /// The store is so, whatever it is asked for.
    pub(crate) fn is_as_a_whole(&self, condition: Condition, failed: &Failed) {
        self.failed(|health| health.whole = condition, None, failed);
    }

    /// Notes a failure, and logs the first of an outage: with what was to be stored, where it was something.
    fn failed(
        &self,
        note: impl FnOnce(&mut Health),
        of: Option<(&ClustersetId, &ClusterId)>,
        failed: &Failed,
    ) {
        let (before, condition) = {
            let mut health = self.health();
            let before = health.condition();
            note(&mut health);
            let now = self.clock.elapsed();
            health.since.get_or_insert(now);
            (before, health.condition())
        };
        if before != condition {
            let (clusterset, cluster) = (of.map(|(id, _)| display(id)), of.map(|(_, id)| display(id)));
            warn!(
                clusterset, cluster, %condition, error = %failed, retry_helps = failed.retry_helps(),
                "store does not take what it is given: it is held in memory, answers are degraded"
            );
        }
    }

    /// Saves what of one cluster id is not saved.
    pub(crate) async fn save(&self, clusterset: &Clusterset, cluster: &ClusterId) -> Result<(), Failed> {
        self.save_all_of(clusterset, cluster).await?;
        self.health().behind.remove(&(clusterset.id().clone(), cluster.clone()));
        Ok(())
    }

    async fn save_all_of(&self, clusterset: &Clusterset, cluster: &ClusterId) -> Result<(), Failed> {
        let Some(turn) = clusterset.unsaved(|unsaved, _| unsaved.turn(cluster)) else { return Ok(()) };
        let _turn = turn.lock().await;
        let batch = |clusterset: &Clusterset| {
            clusterset.unsaved(|unsaved, registry| unsaved.batch(clusterset.id(), cluster, registry))
        };
        // Who had the turn before may have saved it.
        let Some(batch) = batch(clusterset) else { return Ok(()) };
        for (member, as_of) in &batch.gone {
            if self.calls.remove(member, *as_of).await? == Erased::Newer {
                info!(clusterset = %member.clusterset, %cluster, newer = 1, "store holds newer records, which stand");
            }
        }
        if let Some((member, writes)) = &batch.writes {
            for some in writes.chunks(WRITES_A_CALL) {
                let wrote = self.calls.write(member, some.to_vec()).await?;
                let newer = wrote.iter().filter(|wrote| **wrote == Wrote::Older).count();
                if newer > 0 {
                    info!(clusterset = %member.clusterset, %cluster, newer, "store holds newer records, which stand");
                    clusterset.is_to_be_read(member);
                }
                let keys = some.iter().filter_map(|write| match write {
                    Write::Put(key, _) | Write::Delete(key, _) => Some(key.clone()),
                    Write::Member(_) => None,
                });
                clusterset.unsaved(|unsaved, _| unsaved.wrote(cluster, &batch, keys.collect()));
            }
        }
        clusterset.is_saved(cluster, &batch);
        Ok(())
    }
}

/// Wakes the task that saves when a caller gives its call up: what it changed stays noted.
struct WakeOnDrop<'a>(Option<&'a Keeper>);

impl Drop for WakeOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(keeper) = self.0 {
            keeper.wake();
        }
    }
}
