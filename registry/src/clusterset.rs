//! One clusterset: what [`Registry`] decides, and the log that watchers follow.
//!
//! Every call goes through one lock and is preceded by a look at the clock, so that no answer shows a lease that has
//! run out. What changed is encoded once, when it changes, and told to all watchers by a revision; they take it from
//! the log at their own pace. The log has a lock of its own, which watchers share: they wait for no call that is served
//! meanwhile, and no call waits for more than one batch of each that reads. It is written under the lock of the
//! registry, so it has all that a call changed before the call is answered. Verdicts that a change tells of are logged
//! when the locks are free again.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use mcs_core::ids::{ClusterId, ClustersetId, Epoch};
use mcs_core::model::{Object, ObjectKey};
use mcs_core::registry::{Member, Policy, Registry, Restored};
use mcs_core::time::{Clock, Timestamp};
use mcs_core::version::Version;
use tokio::sync::{OnceCell, watch};
use tracing::info;

use crate::news::Ring;
use crate::refusals::Refusals;
use crate::replicas::{Replication, Shared};
use crate::shown::{Shown, Told};
use crate::store::{Calls, Failed, Known, MemberRecord};
use crate::unsaved::{Batch, Stored, Unsaved};
use crate::verdicts::{Cause, Verdict, Verdicts};

/// One clusterset.
pub(crate) struct Clusterset {
    id: ClustersetId,
    state: Mutex<State>,
    shown: RwLock<Shown>,
    reached: watch::Sender<Reached>,
    clock: Arc<dyn Clock>,
    lease: Duration,
    absent_grace: Duration,
    epoch: Epoch,
    /// Set once what the store holds was read.
    read: OnceCell<()>,
    /// What goes with a store that others write, too.
    shared: Option<Shared>,
}

/// What watchers are woken for when it changes: the revision, and whether the view is complete.
pub(crate) type Reached = (u64, bool);

/// What is behind the lock.
pub(crate) struct State {
    pub(crate) registry: Registry,
    /// What changed, and is not in the log yet.
    untold: Vec<Told>,
    pub(crate) unsaved: Unsaved,
    /// What the other replicas are told of what changed here.
    pub(crate) news: Ring,
    verdicts: Verdicts,
    refusals: Refusals,
}

impl State {
    /// Encodes what the registry changed, and says what was judged.
    fn drain(&mut self, cause: Cause, now: Timestamp) -> Vec<Verdict> {
        let mut judged = self.verdicts.of_all(&self.registry, now);
        while let Some(change) = self.registry.next_change() {
            match cause {
                Cause::Call | Cause::Time => {
                    let act = newest_act(&self.registry, &change.key);
                    self.unsaved.note(&change, cause == Cause::Call, act);
                }
                Cause::Heard => self.unsaved.heard(&change),
                Cause::Read => self.unsaved.learned(&change),
            }
            if let ObjectKey::Section(cluster) = &change.key {
                let section = match &change.object {
                    Some(Object::Section(section)) => Some(section),
                    _ => None,
                };
                judged.extend(self.verdicts.of_one(cluster, section, cause, &self.registry, now));
            }
            self.untold.push(change.into());
        }
        judged
    }
}

/// The newest act of the cluster that a change is about.
fn newest_act(registry: &Registry, changed: &ObjectKey) -> Version {
    let (ObjectKey::Section(cluster) | ObjectKey::Part(_, cluster)) = changed else {
        return Version::default();
    };
    registry.member(cluster).map(Member::newest_act).unwrap_or_default()
}

impl Clusterset {
    /// A clusterset without clusters; `replication` is that of a store that others write, too.
    pub(crate) fn new(
        id: ClustersetId,
        policy: Policy,
        epoch: Epoch,
        clock: Arc<dyn Clock>,
        replication: Option<&Replication>,
    ) -> Self {
        let now = clock.elapsed();
        let registry = match replication {
            None => Registry::new(policy, epoch, now),
            Some(Replication { region, grace, .. }) => {
                Registry::shared(policy, epoch, region.clone(), *grace, now)
            }
        };
        let absent_grace = registry.absent_grace();
        Self {
            id,
            state: Mutex::new(State {
                registry,
                untold: Vec::new(),
                unsaved: Unsaved::default(),
                news: Ring::new(epoch),
                verdicts: Verdicts::default(),
                refusals: Refusals::default(),
            }),
            shown: RwLock::default(),
            reached: watch::Sender::new((0, false)),
            clock,
            lease: policy.timing.lease(),
            absent_grace,
            epoch,
            read: OnceCell::new(),
            shared: replication.map(|_| Shared::new(now)),
        }
    }

    /// What goes with a store that others write, too.
    pub(crate) const fn shared(&self) -> Option<&Shared> {
        self.shared.as_ref()
    }

    /// Names it.
    pub(crate) const fn id(&self) -> &ClustersetId {
        &self.id
    }

    /// Whether what the store holds of it was read.
    pub(crate) fn is_read(&self) -> bool {
        self.read.initialized()
    }

    /// Whether anything was ever told of it: somebody has registered, or the store holds somebody.
    pub(crate) fn has_begun(&self) -> bool {
        self.reached.borrow().0 > 0
    }

    /// All that the store holds was read.
    pub(crate) fn set_read(&self) {
        // It may have been read before.
        let _ = self.read.set(());
    }

    /// Reads what a store holds that nobody else writes, unless that was done.
    pub(crate) async fn read(&self, calls: &Calls) -> Result<(), Failed> {
        self.read.get_or_try_init(|| self.restore(calls)).await.copied()
    }

    async fn restore(&self, calls: &Calls) -> Result<(), Failed> {
        let mut members = Vec::new();
        for (member, record) in calls.members(&self.id).await?.whole {
            let exports = calls.exports(&member, &Known::new()).await?.whole;
            members.push((member, record, exports));
        }
        let (count, mut exports) = (members.len(), 0);
        self.with(|state, now| {
            for (member, MemberRecord { region, version, sum, state: was, claimed_at: _ }, held) in members {
                exports += held.len();
                let restored = Restored { uid: member.uid, region, version, sum, state: was, exports: held };
                state.registry.restore(&member.cluster, restored, now);
            }
            // One line says it of all.
            state.drain(Cause::Call, now);
            state.unsaved.all_is_saved();
        });
        info!(clusterset = %self.id, clusters = count, exports, "clusterset read from the store");
        Ok(())
    }

    /// Looks at what is not saved yet, and at what is held.
    pub(crate) fn unsaved<T>(&self, look: impl FnOnce(&mut Unsaved, &Registry) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { unsaved, registry, .. } = &mut *state;
        look(unsaved, registry)
    }

    /// Looks at what was logged of what was refused.
    pub(crate) fn refusals<T>(&self, look: impl FnOnce(&mut Refusals, &Registry) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { refusals, registry, .. } = &mut *state;
        look(refusals, registry)
    }

    /// Records of this cluster id were written: the others are told.
    pub(crate) fn is_saved(&self, cluster: &ClusterId, batch: &Batch) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Stored { gone, changed } = state.unsaved.saved(cluster, batch);
        let Some(shared) = &self.shared else { return };
        // That it went comes after all that it said: who still reads its record reads again.
        for (uid, Version { term, seq }) in gone {
            state.news.tell(&uid, Version::new(term, seq.saturating_add(1)), []);
        }
        if let Some((uid, keys)) = &changed {
            let held = state.registry.member(cluster).filter(|held| held.uid() == uid);
            let version = held.map(Member::version).unwrap_or_default();
            state.news.tell(uid, version, keys);
        }
        drop(state);
        shared.signals().news.notify_one();
    }

    /// Does something with the registry at this moment, then tells watchers what changed.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        self.logged(act, |_| {})
    }

    /// As [`Clusterset::with`]; `log` logs what was done, between what the time changed and what that changed.
    pub(crate) fn logged<T>(&self, act: impl FnOnce(&mut State, Timestamp) -> T, log: impl FnOnce(&T)) -> T {
        self.act(Cause::Call, act, log)
    }

    /// As [`Clusterset::with`], with what other replicas say.
    pub(crate) fn heard<T>(&self, act: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        self.act(Cause::Heard, act, |_| {})
    }

    /// As [`Clusterset::with`], with what other replicas wrote.
    pub(crate) fn learned<T>(&self, act: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        self.act(Cause::Read, act, |_| {})
    }

    fn act<T>(&self, cause: Cause, act: impl FnOnce(&mut State, Timestamp) -> T, log: impl FnOnce(&T)) -> T {
        // What a panic left behind is a registry between two changes; its clusters' sums show what is missing.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.elapsed();
        state.registry.handle_timeout(now);
        let before = state.drain(Cause::Time, now);
        let answer = act(&mut state, now);
        let after = state.drain(cause, now);
        let reached = (state.registry.revision(), state.registry.is_complete(now));
        self.show(&mut state, reached);
        let beats = self.shared.as_ref().filter(|_| state.registry.beat_due(now));
        drop(state);
        if let Some(shared) = beats {
            shared.signals().beat.notify_one();
        }
        let verdicts = |judged: Vec<Verdict>| judged.iter().for_each(|verdict| verdict.log(&self.id));
        verdicts(before);
        log(&answer);
        verdicts(after);
        // A later moment may have been told already; its revision stands.
        self.reached.send_if_modified(|told| {
            let newer = reached.0 > told.0 || (reached.0 == told.0 && reached.1 != told.1);
            if newer {
                *told = reached;
            }
            newer
        });
        answer
    }

    /// Takes what is untold into the log.
    fn show(&self, state: &mut State, (_, complete): Reached) {
        let State { registry, untold, .. } = state;
        if untold.is_empty() && self.shown(|shown| shown.complete) == complete {
            return;
        }
        let mut shown = self.shown.write().unwrap_or_else(PoisonError::into_inner);
        untold.drain(..).for_each(|told| shown.take(told, registry));
        shown.complete = complete;
    }

    /// Looks at what watchers see.
    pub(crate) fn shown<T>(&self, look: impl FnOnce(&Shown) -> T) -> T {
        look(&self.shown.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lets the registry judge, and wakes watchers that may have to be told of its completeness. Says when it is to be
    /// called again.
    pub(crate) fn judge(&self) -> Option<Timestamp> {
        self.with(|state, _| state.registry.poll_timeout())
    }

    /// Learns of changes.
    pub(crate) fn changes(&self) -> watch::Receiver<Reached> {
        self.reached.subscribe()
    }

    /// How many watch.
    pub(crate) fn watchers(&self) -> usize {
        self.reached.receiver_count()
    }

    /// The clock by which it judges.
    pub(crate) const fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The lease of its clusters.
    pub(crate) const fn lease(&self) -> Duration {
        self.lease
    }

    /// How long importers keep a cluster that a complete view does not list.
    pub(crate) const fn absent_grace(&self) -> Duration {
        self.absent_grace
    }

    /// Has the log keep so many removals from now on, and forget all else.
    #[cfg(test)]
    pub(crate) fn keep_removals(&self, most: usize) {
        self.shown.write().unwrap_or_else(PoisonError::into_inner).log =
            mcs_core::log::StateLog::keeping(most);
    }

    /// Names the log.
    pub(crate) const fn epoch(&self) -> Epoch {
        self.epoch
    }
}
