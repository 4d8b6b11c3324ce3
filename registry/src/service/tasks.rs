//! What the service does unasked: it judges leases, and keeps the store up to date.

use std::sync::Arc;
use std::time::Duration;

use mcs_runtime::clock::sleep_until;
use mcs_runtime::ready;
use tracing::info;

use super::Service;
use crate::keeper::Condition;
use crate::store::Failed;

/// The registry looks at the clock at least this often, so that a pause is noticed.
const LONGEST_REST: Duration = Duration::from_millis(250);

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

    /// Keeps the store up to date, and tries on while it does not take what it is given, until the drain. `ready` is
    /// told when the store answers for the first time.
    pub(crate) async fn keep(self: Arc<Self>, ready: ready::Handle) {
        let mut failures = 0;
        let mut answered = false;
        while !self.shutdown.is_draining() {
            match self.save_all(failures > 0 || !answered).await {
                Ok(()) => {
                    failures = 0;
                    if let Some(lasted) = self.keeper.recovered() {
                        info!(?lasted, "store takes what it is given again");
                    }
                    answered = true;
                    ready.ready();
                }
                Err((failed, condition)) => {
                    failures += 1;
                    self.tell_store(condition != Condition::Away);
                    self.keeper.failed(None, &failed, condition);
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

    /// Saves all that is not saved; after an outage the store is asked first, and its members take their time.
    async fn save_all(&self, recovering: bool) -> Result<(), (Failed, Condition)> {
        if recovering {
            self.keeper.calls().check().await.map_err(|failed| (failed, Condition::Away))?;
            self.tell_store(true);
        }
        for clusterset in self.clustersets() {
            let clusters = clusterset.unsaved(|unsaved, _| unsaved.clusters());
            for cluster in &clusters {
                if let Err(failed) = self.keeper.save(&clusterset, cluster).await {
                    let away = self.keeper.calls().check().await.is_err();
                    return Err((failed, if away { Condition::Away } else { Condition::Behind }));
                }
                if recovering {
                    tokio::time::sleep(self.keeper.spread(clusters.len())).await;
                }
            }
        }
        Ok(())
    }

    /// Leases are judged while the store answers.
    fn tell_store(&self, answers: bool) {
        for clusterset in self.clustersets() {
            clusterset.with(|state, now| state.registry.store_answers(answers, now));
        }
    }
}
