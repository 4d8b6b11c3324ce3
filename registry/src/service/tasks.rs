//! What the service does unasked: it judges leases, keeps the store up to date, and keeps up with others over it.

use std::sync::Arc;
use std::time::Duration;

use mcs_runtime::clock::sleep_until;
use mcs_runtime::ready;
use tokio::task::JoinSet;
use tracing::info;

use super::Service;
use crate::clusterset::Clusterset;
use crate::keeper::Condition;
use crate::replicas::{self, Replication};
use crate::store::Failed;

/// The registry looks at the clock at least this often, so that a pause is noticed.
const LONGEST_REST: Duration = Duration::from_millis(250);

/// So many members are saved one right after the other; more of them, as after a mass expiry, are spread over a heartbeat.
const AT_ONCE: usize = 8;

impl Service {
    /// Judges leases when they are due, until the drain.
    pub(crate) async fn judge(self: Arc<Self>) {
        let mut due = None;
        while !self.shutdown.is_draining() {
            let now = self.clock.elapsed();
            if let Some(due) = due {
                self.metrics.refreshed(now.since(due));
            }
            let clustersets = self.clustersets();
            let next = clustersets.iter().filter_map(|clusterset| clusterset.judge()).min();
            due = next.map(|next| next.min(now + LONGEST_REST));
            if clustersets.iter().any(|clusterset| clusterset.unsaved(|unsaved, _| !unsaved.is_empty())) {
                self.keeper.wake();
            }
            // What is held meanwhile is not forgotten.
            drop(clustersets);
            tokio::select! {
                () = sleep_until(&*self.clock, due) => {}
                () = self.deadlines.notified() => {}
                () = self.shutdown.draining() => {}
            }
        }
    }

    /// Keeps clustersets up to date with what others do to them over the same store, until the drain.
    pub(crate) async fn follow(self: Arc<Self>) {
        let Some(Replication { refresh_interval, .. }) = self.replication else {
            return self.shutdown.draining().await;
        };
        let mut followed = JoinSet::new();
        loop {
            tokio::select! {
                () = self.begun.notified() => {}
                Some(ended) = followed.join_next() => {
                    if let Err(ended) = ended && ended.is_panic() {
                        // Half a registry must not look alive.
                        std::panic::resume_unwind(ended.into_panic());
                    }
                    continue;
                }
                () = self.shutdown.draining() => break,
            }
            for clusterset in self.all() {
                let shutdown = self.shutdown.clone();
                let follow = replicas::follow(&clusterset, &self.keeper, refresh_interval, shutdown);
                followed.extend(follow.map(tracing::Instrument::in_current_span));
            }
        }
        // They say that they end.
        while followed.join_next().await.is_some() {}
    }

    /// Keeps the store up to date, and tries on while it does not take what it is given, until the drain. `ready` is
    /// told when the store answers for the first time.
    pub(crate) async fn keep(self: Arc<Self>, ready: ready::Handle) {
        let mut failures = 0;
        let mut answered = false;
        // One that throttles answers: it is spared the question.
        let mut throttled = false;
        while !self.shutdown.is_draining() {
            let recovering = failures > 0 || self.keeper.condition() != Condition::Fine;
            match self.save_all(recovering, !answered || (recovering && !throttled)).await {
                Ok(()) => {
                    (failures, throttled) = (0, false);
                    if let Some(lasted) = self.keeper.recovered() {
                        info!(?lasted, "store takes what it is given again");
                    }
                    answered = true;
                    ready.ready();
                }
                Err(failed) => {
                    failures += 1;
                    throttled = matches!(failed, Failed::Throttled { .. });
                    self.tell_store(self.keeper.condition() != Condition::Away);
                }
            }
            let pause = async {
                match failures {
                    0 => self.keeper.woken().await,
                    failures => tokio::time::sleep(self.keeper.retry_in(failures)).await,
                }
            };
            tokio::select! {
                () = pause => {}
                () = self.shutdown.draining() => {}
            }
        }
    }

    /// Saves all that is not saved, if `asks` when the store answers. After an outage its members take their time, as many
    /// members do that are to be saved at once. What it does not take of one is no reason to keep others from it.
    async fn save_all(&self, recovering: bool, asks: bool) -> Result<(), Failed> {
        if asks {
            self.answers().await?;
            self.tell_store(true);
        }
        let unsaved = |clusterset: Arc<Clusterset>| {
            let clusters = clusterset.unsaved(|unsaved, _| unsaved.clusters());
            clusters.into_iter().map(move |cluster| (Arc::clone(&clusterset), cluster))
        };
        let unsaved: Vec<_> = self.clustersets().into_iter().flat_map(unsaved).collect();
        self.keeper.are_left(&unsaved);
        let mut last = None;
        for (clusterset, cluster) in &unsaved {
            match self.keeper.save(clusterset, cluster).await {
                Ok(()) => self.keeper.answers(),
                Err(failed) => {
                    self.keeper.takes_nothing_of(clusterset.id(), cluster, &failed);
                    if matches!(failed, Failed::Throttled { .. }) {
                        self.keeper.answers();
                    } else {
                        self.answers().await?;
                    }
                    // The others do not wait for it, be it too much for the store or refused by it.
                    last = Some(failed);
                }
            }
            if recovering || unsaved.len() > AT_ONCE {
                tokio::time::sleep(self.keeper.spread(unsaved.len())).await;
            }
        }
        last.map_or(Ok(()), Err)
    }

    /// Asks the store whether it answers.
    async fn answers(&self) -> Result<(), Failed> {
        let asked = self.keeper.calls().check().await;
        match &asked {
            Ok(()) => self.keeper.answers(),
            Err(failed @ Failed::Throttled { .. }) => self.keeper.is_as_a_whole(Condition::Behind, failed),
            Err(failed) => self.keeper.is_as_a_whole(Condition::Away, failed),
        }
        asked
    }

    /// Leases are judged while the store answers. Where others write to it, that is known by what they say.
    fn tell_store(&self, answers: bool) {
        if self.replication.is_some() {
            return;
        }
        for clusterset in self.clustersets() {
            clusterset.with(|state, now| state.registry.store_answers(answers, now));
        }
    }
}
