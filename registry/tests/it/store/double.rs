//! A store that fails when a test says so.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use mcs_core::ids::{ClusterId, ClustersetId, Epoch, ServiceKey};
use mcs_core::model::Export;
use mcs_core::replicas::{Beat, News};
use mcs_core::version::Version;
use mcs_proto::convert::Member;
use mcs_registry::store::{
    Erased, Exports, Failed, Found, Held, Known, Members, Memory, Replica, Store, Write, Wrote,
};
use tokio::sync::watch;

/// What becomes of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    /// They are made.
    Fine,
    /// None is made.
    Away,
    /// None is ever answered.
    Silent,
    /// Writes are refused for their number, reads are made.
    Throttled,
}

/// Records that survive the registries over them.
pub(super) struct Double {
    records: Memory,
    mood: watch::Sender<Mood>,
    /// Writes of this cluster are refused for their number.
    hot: Mutex<Option<ClusterId>>,
}

impl Double {
    pub(super) fn in_mood(mood: Mood) -> Arc<Self> {
        let records = Memory::default();
        Arc::new(Self { records, mood: watch::Sender::new(mood), hot: Mutex::default() })
    }

    /// Writes of this cluster are refused for their number; none: those of no cluster.
    pub(super) fn is_hot(&self, cluster: Option<&ClusterId>) {
        *self.hot.lock().unwrap() = cluster.cloned();
    }

    pub(super) fn turn(&self, mood: Mood) {
        self.mood.send_replace(mood);
    }

    /// What is held, whatever the mood.
    pub(super) const fn records(&self) -> &Memory {
        &self.records
    }

    async fn read(&self) -> Result<(), Failed> {
        match *self.mood.borrow() {
            Mood::Fine | Mood::Throttled => return Ok(()),
            Mood::Away => return Err(Failed::Away { reason: "connection refused".to_owned() }),
            Mood::Silent => {}
        }
        std::future::pending().await
    }

    async fn write(&self) -> Result<(), Failed> {
        if *self.mood.borrow() == Mood::Throttled {
            return Err(Failed::Throttled { reason: "rate exceeded".to_owned() });
        }
        self.read().await
    }
}

#[tonic::async_trait]
impl Store for Double {
    fn is_shared(&self) -> bool {
        false
    }

    async fn check(&self) -> Result<(), Failed> {
        self.read().await
    }

    async fn write(&self, member: &Member, writes: Vec<Write>) -> Result<Vec<Wrote>, Failed> {
        self.write().await?;
        let is_hot = self.hot.lock().is_ok_and(|hot| hot.as_ref() == Some(&member.cluster));
        if is_hot {
            return Err(Failed::Throttled { reason: "rate exceeded".to_owned() });
        }
        Store::write(&self.records, member, writes).await
    }

    async fn remove(&self, member: &Member, as_of: Version) -> Result<Erased, Failed> {
        self.write().await?;
        self.records.remove(member, as_of).await
    }

    async fn members(&self, clusterset: &ClustersetId) -> Result<Members, Failed> {
        self.read().await?;
        self.records.members(clusterset).await
    }

    async fn member(&self, member: &Member) -> Result<Option<Found>, Failed> {
        self.read().await?;
        self.records.member(member).await
    }

    async fn exports(&self, member: &Member, known: &Known) -> Result<Exports, Failed> {
        self.read().await?;
        self.records.exports(member, known).await
    }

    async fn export(
        &self,
        member: &Member,
        key: &ServiceKey,
        known: Option<&Export>,
    ) -> Result<Option<Held>, Failed> {
        self.read().await?;
        self.records.export(member, key, known).await
    }

    async fn fading(&self, member: &Member) -> Result<BTreeSet<ServiceKey>, Failed> {
        self.read().await?;
        self.records.fading(member).await
    }

    async fn replicas(&self, clusterset: &ClustersetId) -> Result<Vec<Replica>, Failed> {
        self.read().await?;
        self.records.replicas(clusterset).await
    }

    async fn beat(&self, clusterset: &ClustersetId, beat: &Beat) -> Result<(), Failed> {
        self.write().await?;
        self.records.beat(clusterset, beat).await
    }

    async fn news(&self, clusterset: &ClustersetId, news: &News) -> Result<(), Failed> {
        self.write().await?;
        Store::news(&self.records, clusterset, news).await
    }

    async fn retire(&self, clusterset: &ClustersetId, replica: Epoch) -> Result<(), Failed> {
        self.write().await?;
        self.records.retire(clusterset, replica).await
    }
}
