//! Keeps one clusterset of this process and those of other processes over the same store alike.
//!
//! Six loops for each clusterset, none of which waits for another, and each of which has at most one call to the
//! store under way (reads of several members excepted):
//!
//! | loop | does | when |
//! |---|---|---|
//! | `hear` | reads what all replicas say, from which [`mcs_core::registry`] knows who was heard and what to read | every refresh interval; a slow read delays the next one and is not overtaken |
//! | `read` | reads what was named, several members at once, compares members that are served here, and asks their replica for what stays torn | when there is something; what is torn soon again |
//! | `beat` | says whose leases were renewed here | when that is due; bulk writes and reads do not hold it up |
//! | `news` | says what changed | after it was stored, at most four times a second |
//! | `records` | has what is old written again | once a day |
//! | `tidy` | removes what dead replicas of the own region said | once a lease |
//!
//! The order of a change is: its exports, the record of the member, the news. A reader that has the news before the
//! records sees sums that differ and reads again. What it cannot read for long it says in its own news, as if it had
//! changed it: the replica that serves the member compares the table with what it holds, and writes what is missing.
//!
//! **Rejected**: one loop for all (a store that is slow to read would let leases run out elsewhere); a read of all
//! exports in turn (its cost grows with what does not change).

mod daily;
mod read;
mod tell;
mod todo;
mod unfit;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use mcs_core::ids::{ClusterId, ClustersetId, Region};
use mcs_core::registry::{Reading, Who};
use mcs_core::replicas::{Beat, News};
use mcs_core::time::Timestamp;
use mcs_core::timing::Timing;
use mcs_proto::convert::Member;
use mcs_runtime::clock::sleep_until;
use mcs_runtime::shutdown::Drain;
use tokio::sync::{Notify, watch};
use tracing::{info, warn};

use self::todo::{Job, Queue, Todo};
use self::unfit::Unfit;
use crate::clusterset::{Clusterset, State};
use crate::keeper::{Keeper, Trouble};
use crate::store::{Failed, Replica};

/// How a registry and others over one store keep up with each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replication {
    /// The region that this process runs in, where it has one.
    pub region: Option<Region>,
    /// What others changed is looked for so often.
    pub refresh_interval: Duration,
    /// The clusters of a region that has fallen silent as a whole are kept for so long after their leases.
    pub grace: Duration,
}

impl Default for Replication {
    /// No region, 2 s and 15 minutes.
    fn default() -> Self {
        Self { region: None, refresh_interval: Duration::from_secs(2), grace: Duration::from_secs(15 * 60) }
    }
}

/// What the loops of a clusterset wait for.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    /// What the replicas say is to be read before its time.
    hear: Notify,
    /// Something is to be read.
    read: Notify,
    /// Renewals are to be told.
    pub(crate) beat: Notify,
    /// Changes are to be told.
    pub(crate) news: Notify,
}

/// What a clusterset has beside its registry, over a store that others write, too.
#[derive(Debug)]
pub(crate) struct Shared {
    signals: Arc<Signals>,
    /// Whether its loops run.
    is_followed: AtomicBool,
    reads: Mutex<Reads>,
    /// Whether clusters register or watch here, so that the others are to know of this replica.
    is_joined: AtomicBool,
    progress: watch::Sender<Progress>,
}

/// How far the beginning of a clusterset is.
#[derive(Clone, Debug, Default)]
struct Progress {
    /// Everything was read once.
    read: bool,
    /// Since when the others can know of this replica: what it says of a lease counts.
    beaten: Option<Timestamp>,
    /// How often one of the two failed, and why it did last.
    failures: u32,
    last: Option<Failed>,
}

/// What is read, and how that goes.
#[derive(Debug)]
struct Reads {
    queue: Queue,
    /// When the records of all members are to be compared, whatever is told.
    compare_at: Timestamp,
    /// Since when what the replicas say cannot be read.
    unheard_since: Option<Timestamp>,
    /// Whether it was read once: without it nothing that is read of a cluster tells whether it lives.
    heard: bool,
    /// Why what they named could not be read at the last try.
    unread: Option<Failed>,
    /// When the last read of what the replicas say began that succeeded.
    heard_at: Timestamp,
    /// When somebody asked for the clusterset last before it was read.
    asked_at: Timestamp,
}

impl Shared {
    /// That of a clusterset of which nothing was read.
    pub(crate) fn new(now: Timestamp) -> Self {
        let reads = Reads {
            queue: Queue::everything(),
            compare_at: Timestamp::MAX,
            unheard_since: None,
            heard: false,
            unread: None,
            heard_at: now,
            asked_at: now,
        };
        Self {
            signals: Arc::default(),
            is_followed: AtomicBool::new(false),
            reads: Mutex::new(reads),
            is_joined: AtomicBool::new(false),
            progress: watch::Sender::default(),
        }
    }

    /// What the loops wait for.
    pub(crate) const fn signals(&self) -> &Arc<Signals> {
        &self.signals
    }

    /// Whether nobody has begun its loops before.
    pub(crate) fn begins(&self) -> bool {
        !self.is_followed.swap(true, Ordering::Relaxed)
    }

    /// How long ago the last read of what the replicas say began that succeeded.
    pub(crate) fn age(&self, now: Timestamp) -> Duration {
        now.since(self.reads().heard_at)
    }

    /// Whether everything was read, and if clusters are `to_join`, the others can know of it.
    pub(crate) fn is_ready(&self, to_join: bool) -> bool {
        let progress = self.progress.borrow();
        progress.read && (progress.beaten.is_some() || !to_join)
    }

    /// Waits until it is ready, or until what is waited for fails, for at most `limit`.
    pub(crate) async fn ready(&self, to_join: bool, limit: Duration, now: Timestamp) -> Result<(), Failed> {
        self.reads().asked_at = now;
        if to_join && !self.is_joined.swap(true, Ordering::Relaxed) {
            self.signals.beat.notify_one();
        }
        let mut changes = self.progress.subscribe();
        let before = changes.borrow_and_update().failures;
        let ready = async {
            while !self.is_ready(to_join) {
                // It ends only with the clusterset, which its caller holds.
                let _ = changes.changed().await;
                let Progress { failures, last, .. } = &*changes.borrow_and_update();
                if let Some(failed) = last.as_ref().filter(|_| *failures > before) {
                    return Err(failed.clone());
                }
            }
            Ok(())
        };
        tokio::time::timeout(limit, ready).await.unwrap_or(Err(Failed::TimedOut { limit }))
    }

    /// The store could not be asked.
    fn fails(&self, failed: Failed) {
        self.progress.send_if_modified(|progress| {
            let waits = !(progress.read && progress.beaten.is_some());
            if waits {
                progress.failures += 1;
                progress.last = Some(failed);
            }
            waits
        });
    }

    fn reads(&self) -> MutexGuard<'_, Reads> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What each loop of a clusterset has. It does not keep the clusterset: one that nobody uses is forgotten.
struct Loop {
    clusterset: Weak<Clusterset>,
    id: ClustersetId,
    keeper: Arc<Keeper>,
    signals: Arc<Signals>,
    timing: Timing,
}

/// Keeps a clusterset up to date until it is forgotten or the drain; nothing to do where nobody else writes, or where
/// that has begun.
pub(crate) fn follow(
    clusterset: &Arc<Clusterset>,
    keeper: &Arc<Keeper>,
    refresh_interval: Duration,
    shutdown: Drain,
) -> Option<impl Future<Output = ()> + Send + use<>> {
    let shared = clusterset.shared().filter(|shared| shared.begins())?;
    let loops = Loop {
        clusterset: Arc::downgrade(clusterset),
        id: clusterset.id().clone(),
        keeper: Arc::clone(keeper),
        signals: Arc::clone(shared.signals()),
        timing: Timing::of_lease(clusterset.lease()),
    };
    Some(async move {
        tokio::select! {
            () = loops.hears(refresh_interval) => {}
            () = loops.reads() => {}
            () = loops.beats(&shutdown) => {}
            () = loops.news() => {}
            () = loops.refreshes_records() => {}
            () = loops.tidies() => {}
        }
        loops.keeper.is_forgotten(&loops.id);
    })
}

impl Loop {
    /// Reads what all replicas say in turn, until the clusterset is forgotten.
    async fn hears(&self, interval: Duration) {
        let mut failures = 0;
        loop {
            let Some(clusterset) = self.clusterset.upgrade() else { return };
            let Some(shared) = clusterset.shared() else { return };
            let clock = Arc::clone(clusterset.clock());
            let began = clock.elapsed();
            let next = match self.keeper.calls().replicas(clusterset.id()).await {
                Ok(replicas) => {
                    failures = 0;
                    clusterset.hear(shared, replicas, began);
                    self.keeper.is_well(&self.id, Trouble::Deaf);
                    began + interval
                }
                Err(failed) => {
                    failures += 1;
                    if clusterset.is_unheard(shared, &failed) >= self.timing.degraded_after() {
                        self.keeper.is_troubled(&self.id, Trouble::Deaf, &failed);
                    }
                    clock.elapsed() + self.hears_again_in(&failed, failures, interval)
                }
            };
            drop(clusterset);
            tokio::select! {
                () = sleep_until(&*clock, Some(next)) => {}
                // What did not fit together is named again when it is due.
                () = self.signals.hear.notified(), if failures == 0 => {}
            }
        }
    }

    /// How long to wait after a read that failed.
    fn hears_again_in(&self, failed: &Failed, failures: u32, interval: Duration) -> Duration {
        match failed {
            Failed::Throttled { .. } => spared(self.timing, interval, rand::random()),
            _ => self.keeper.retry_in(failures).min(interval),
        }
    }

    /// Reads what is to be read, until the clusterset is forgotten. A read that takes long, or fails again and again, delays
    /// no other.
    async fn reads(&self) {
        let mut unfit = Unfit::new(self.timing);
        let mut jobs = FuturesUnordered::new();
        loop {
            let Some(clusterset) = self.clusterset.upgrade() else { return };
            let Some(shared) = clusterset.shared() else { return };
            let clock = Arc::clone(clusterset.clock());
            let begun = clusterset.next_jobs(shared);
            jobs.extend(begun.into_iter().map(|job| self.read(Arc::clone(&clusterset), job)));
            let next = clusterset.reads_next(shared);
            // What did not fit together is soon asked for again, before the next refresh.
            if unfit.is_due(clock.elapsed(), |who| clusterset.is_held(who)) {
                self.signals.hear.notify_one();
            }
            let again = unfit.wakes_at();
            drop(clusterset);
            tokio::select! {
                Some((job, again)) = jobs.next(), if !jobs.is_empty() => {
                    if let Job::Member(who, _) = job {
                        unfit.was_read(who, !again, clock.elapsed());
                    }
                }
                () = sleep_until(&*clock, Some(next)) => {}
                () = sleep_until(&*clock, again) => {}
                () = self.signals.read.notified() => {}
            }
        }
    }

    /// Makes one read; says whether what was read did not fit together.
    async fn read(&self, clusterset: Arc<Clusterset>, job: Job) -> (Job, bool) {
        let Some(shared) = clusterset.shared() else { return (job, false) };
        let calls = self.keeper.calls();
        match clusterset.read_job(shared, calls, &job).await {
            Ok(done) => {
                calls.metrics().replication().read(done.all, done.torn, done.rewritten);
                shared.reads().queue.is_done(&job);
                clusterset.is_up_to_date(shared);
                (job, done.again)
            }
            Err(failed) => {
                let now = clusterset.clock().elapsed();
                shared.reads().queue.has_failed(job.clone(), now, |failures| self.keeper.retry_in(failures));
                clusterset.is_unread(shared, failed);
                clusterset.is_up_to_date(shared);
                (job, false)
            }
        }
    }
}

/// How long to wait after a read that was throttled; `random` is below 1. A store that is asked for too much is asked more
/// seldom, to make up for what is to be written again: one to three intervals pass, in which no lease is judged. No more than
/// a third of a [pause](Timing::pause): after two in turn leases are not counted anew.
fn spared(timing: Timing, interval: Duration, random: f64) -> Duration {
    interval.mul_f64(1.0 + 2.0 * random).min(timing.pause() / 3).max(interval)
}

impl Clusterset {
    /// Takes what the replicas said, by a read that began at `began`.
    fn hear(&self, shared: &Shared, replicas: Vec<Replica>, began: Timestamp) {
        let replicas: Vec<_> = replicas.into_iter().map(|replica| (replica.beat, replica.news)).collect();
        let was_unheard = {
            let mut reads = shared.reads();
            (reads.heard_at, reads.heard) = (began, true);
            reads.unheard_since.take().is_some()
        };
        let heard = |state: &mut State, now| {
            let Reading { all, members, tell } = state.registry.hear(&replicas, now);
            let tells = !tell.is_empty();
            tell.into_iter().for_each(|entry| state.news.append(entry));
            (Todo { all, members }, tells)
        };
        let (todo, tells) = self.heard(heard);
        if was_unheard {
            info!(clusterset = %self.id(), "store says again what other replicas do");
        }
        if tells {
            shared.signals.news.notify_one();
        }
        let mut reads = shared.reads();
        reads.queue.todo.put_back(todo);
        if reads.queue.has_next(self.clock().elapsed()) {
            shared.signals.read.notify_one();
        }
    }

    /// What the replicas say cannot be read: time stands still until it can. Says for how long it has not been.
    fn is_unheard(&self, shared: &Shared, failed: &Failed) -> Duration {
        let now = self.clock().elapsed();
        self.with(|state, now| state.registry.store_answers(false, now));
        let before = shared.reads().unheard_since;
        if before.is_none() {
            shared.reads().unheard_since = Some(now);
            let retry_helps = failed.retry_helps();
            warn!(
                clusterset = %self.id(), error = %failed, retry_helps,
                "store does not say what other replicas do: no lease is judged, the view is not complete"
            );
        }
        shared.fails(failed.clone());
        now.since(before.unwrap_or(now))
    }

    /// What is to be read cannot be read: the view is not complete until it can.
    fn is_unread(&self, shared: &Shared, failed: Failed) {
        self.with(|state, _| state.registry.lags(true));
        if shared.reads().unread.replace(failed.clone()).is_none() {
            let retry_helps = failed.retry_helps();
            warn!(
                clusterset = %self.id(), error = %failed, retry_helps,
                "store does not give what other replicas changed: the view is not complete"
            );
        }
        shared.fails(failed);
    }

    /// Looks whether all that could not be read was read since: what is to be read besides was told of a moment ago, and is
    /// read like that of any other moment. What was torn is named again.
    fn is_up_to_date(&self, shared: &Shared) {
        let (is_failing, is_read_once) = {
            let (now, reads) = (self.clock().elapsed(), shared.reads());
            (reads.queue.is_failing(), reads.queue.is_read_once(now, self.lease()))
        };
        if !is_failing && shared.reads().unread.take().is_some() {
            info!(clusterset = %self.id(), "store gives again what other replicas changed");
            self.with(|state, _| state.registry.lags(false));
        }
        if is_read_once && !self.is_read() {
            let (mut clusters, mut exports) = (0, 0);
            self.unsaved(|_, registry| {
                for (_, held) in registry.members() {
                    (clusters, exports) = (clusters + 1, exports + held.exports().len());
                }
            });
            info!(clusterset = %self.id(), clusters, exports, "clusterset read from the store");
            self.set_read();
            shared.progress.send_modify(|progress| progress.read = true);
        }
    }

    /// When something is to be read though nobody says so.
    fn reads_next(&self, shared: &Shared) -> Timestamp {
        let (now, reads) = (self.clock().elapsed(), shared.reads());
        reads.queue.wakes_at(now).map_or(reads.compare_at, |at| at.min(reads.compare_at))
    }

    /// Until the next comparison of all members: not at the same time as the other replicas'.
    fn compares_in(&self) -> Duration {
        Timing::of_lease(self.lease()).compare().mul_f64(0.75 + rand::random::<f64>() / 2.0)
    }

    /// The store holds newer records of this cluster than were written: they are read with the next refresh.
    pub(crate) fn is_to_be_read(&self, member: &Member) {
        self.learned(|state, now| state.registry.is_behind(&member.cluster, &member.uid, now));
    }

    /// The renewals that are to be written now. Of a clusterset that was only listed nothing is said; and nothing by one
    /// that has not heard the others for a lease: they would wait for its answers, and its clusters have left.
    fn due_beat(&self, shared: &Shared) -> Option<Beat> {
        let (now, lease) = (self.clock().elapsed(), self.lease());
        if shared.reads().unheard_since.is_some_and(|since| (since + lease).has_passed(now)) {
            return None;
        }
        let is_of_use = self.has_begun() || self.watchers() > 0 || shared.is_joined.load(Ordering::Relaxed);
        let due = |state: &mut State, now| state.registry.beat_due(now).then(|| state.registry.beat(now));
        if is_of_use { self.with(due) } else { None }
    }

    /// Whether it is yet to be read, and somebody asked for it within a lease: whoever is told that it is not may come again.
    pub(crate) fn is_wanted(&self) -> bool {
        let asked =
            |shared: &Shared| !(shared.reads().asked_at + self.lease()).has_passed(self.clock().elapsed());
        !self.is_read() && self.shared().is_none_or(asked)
    }

    /// They were written.
    fn is_beaten(&self, shared: &Shared, number: u64) {
        self.with(|state, now| state.registry.beat_written(number, now));
        let now = self.clock().elapsed();
        shared
            .progress
            .send_if_modified(|progress| progress.beaten.replace(progress.beaten.unwrap_or(now)).is_none());
    }

    /// Whether others may not know of this replica: a cluster that comes to it may look silent to them, as from far where
    /// its first beat takes long to arrive. For a lease at most: what they have not read by then is no word of them.
    pub(crate) fn is_new_to_others(&self) -> bool {
        let Some(shared) = self.shared() else { return false };
        let beaten = shared.progress.borrow().beaten;
        let is_recent = |at: Timestamp| !(at + self.lease()).has_passed(self.clock().elapsed());
        beaten.is_some_and(is_recent) && !self.unsaved(|_, registry| registry.is_known())
    }

    /// Whether this cluster is a member.
    fn is_held(&self, who: &Who) -> bool {
        self.unsaved(|_, registry| registry.member(&who.cluster).is_some_and(|held| *held.uid() == who.uid))
    }

    /// The members that renew here.
    fn served(&self) -> Vec<Member> {
        let now = self.clock().elapsed();
        let member = |(cluster, held): (&ClusterId, &mcs_core::registry::Member)| Member {
            clusterset: self.id().clone(),
            cluster: cluster.clone(),
            uid: held.uid().clone(),
        };
        self.unsaved(|_, registry| {
            registry.members().filter(|(cluster, _)| registry.serves(cluster, now)).map(member).collect()
        })
    }

    /// The news that are to be written now.
    fn due_news(&self) -> Option<News> {
        self.with(|state, now| state.news.is_behind().then(|| state.news.item(now)))
    }

    /// They were written.
    fn are_told(&self) {
        self.with(|state, _| state.news.written());
    }
}

#[cfg(test)]
mod tests;
