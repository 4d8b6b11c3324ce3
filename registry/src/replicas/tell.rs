//! What this replica tells the others: its renewals and its news.

use std::sync::Arc;

use mcs_core::registry::{self, Registry};
use mcs_runtime::clock::sleep_until;
use mcs_runtime::shutdown::Drain;
use tracing::{debug, info, warn};

use super::Loop;
use super::daily::{DAY, Daily};
use crate::keeper::Trouble;
use crate::news::APART;
use crate::unsaved::Unsaved;

impl Loop {
    /// Writes renewals when they are due, until the clusterset is forgotten or the drain; then it takes them back. What is
    /// being written then is waited for, so that it does not come after.
    pub(super) async fn beats(&self, shutdown: &Drain) {
        while !shutdown.is_draining() {
            let Some(clusterset) = self.clusterset.upgrade() else { return };
            let Some(shared) = clusterset.shared() else { return };
            if let Some(beat) = clusterset.due_beat(shared) {
                match self.keeper.calls().beat(clusterset.id(), &beat).await {
                    Ok(()) => {
                        self.keeper.is_well(clusterset.id(), Trouble::Unheard);
                        clusterset.is_beaten(shared, beat.number);
                    }
                    // The next one, which stands for it, is due soon.
                    Err(failed) => {
                        self.keeper.is_troubled(clusterset.id(), Trouble::Unheard, &failed);
                        shared.fails(failed);
                    }
                }
            }
            drop(clusterset);
            tokio::select! {
                () = self.signals.beat.notified() => {}
                () = shutdown.draining() => {}
            }
        }
        self.retires().await;
    }

    /// Writes what changed here, until the clusterset is forgotten.
    pub(super) async fn news(&self) {
        let mut failures = 0;
        loop {
            let Some(clusterset) = self.clusterset.upgrade() else { return };
            let clock = Arc::clone(clusterset.clock());
            let mut next = None;
            if let Some(news) = clusterset.due_news() {
                next = Some(clock.elapsed() + APART);
                match self.keeper.calls().news(clusterset.id(), &news).await {
                    Ok(()) => {
                        failures = 0;
                        clusterset.are_told();
                    }
                    Err(failed) => {
                        failures += 1;
                        debug!(clusterset = %clusterset.id(), error = %failed, "news cannot be written");
                        next = Some(clock.elapsed() + self.keeper.retry_in(failures).max(APART));
                    }
                }
            }
            drop(clusterset);
            match next {
                Some(_) => sleep_until(&*clock, next).await,
                None => self.signals.news.notified().await,
            }
        }
    }

    /// Has the records of members that are served here written again once a day, as the store collects what nobody
    /// writes, until the clusterset is forgotten.
    pub(super) async fn refreshes_records(&self) {
        let Some(clock) = self.clusterset.upgrade().map(|clusterset| Arc::clone(clusterset.clock())) else {
            return;
        };
        // Whatever time of the day replicas are replaced at.
        let mut daily = Daily::from(clock.elapsed() + DAY.mul_f64(rand::random()));
        loop {
            sleep_until(&*clock, Some(daily.next())).await;
            let Some(clusterset) = self.clusterset.upgrade() else { return };
            for member in daily.due(clusterset.served(), clock.elapsed()) {
                match self.keeper.calls().fading(&member).await {
                    Ok(keys) => {
                        let again = |unsaved: &mut Unsaved, registry: &Registry| {
                            let held = registry.member(&member.cluster);
                            let as_of = held.map(registry::Member::version).unwrap_or_default();
                            unsaved.again(&member.cluster, &member.uid, as_of, keys);
                        };
                        clusterset.unsaved(again);
                    }
                    Err(failed) => {
                        let (clusterset, cluster) = (&member.clusterset, &member.cluster);
                        warn!(%clusterset, %cluster, error = %failed, "records are not refreshed today: tried again soon");
                        daily.has_failed(member, clock.elapsed());
                    }
                }
            }
        }
    }

    /// Removes what replicas of the own region said that died long ago, which every refresh reads, until the clusterset is
    /// forgotten.
    pub(super) async fn tidies(&self) {
        let Some(clock) = self.clusterset.upgrade().map(|clusterset| Arc::clone(clusterset.clock())) else {
            return;
        };
        loop {
            sleep_until(&*clock, Some(clock.elapsed() + self.timing.lease())).await;
            let Some(clusterset) = self.clusterset.upgrade() else { return };
            for epoch in clusterset.unsaved(|_, registry| registry.left_behind()) {
                if let Err(failed) = self.keeper.calls().retire(clusterset.id(), epoch).await {
                    debug!(clusterset = %clusterset.id(), error = %failed, "items of a dead replica stay");
                    break;
                }
                info!(clusterset = %clusterset.id(), %epoch, "items of a dead replica removed");
            }
        }
    }

    /// The process ends: the others need not wait for what it says of a verdict.
    async fn retires(&self) {
        let Some(clusterset) = self.clusterset.upgrade() else { return };
        let (id, epoch) = (clusterset.id(), clusterset.epoch());
        if let Err(failed) = self.keeper.calls().retire(id, epoch).await {
            info!(clusterset = %id, error = %failed, "this replica's items stay in the store: the others wait a lease for it");
        }
    }
}
