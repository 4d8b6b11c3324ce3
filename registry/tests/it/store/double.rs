//! A store that fails when a test says so.

use std::collections::BTreeMap;
use std::sync::Arc;

use mcs_core::ids::{ClustersetId, ServiceKey};
use mcs_core::model::Export;
use mcs_proto::convert::Member;
use mcs_registry::store::{Failed, MemberRecord, Memory, Store, Write, Wrote};
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
}

impl Double {
    pub(super) fn in_mood(mood: Mood) -> Arc<Self> {
        Arc::new(Self { records: Memory::default(), mood: watch::Sender::new(mood) })
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
    async fn check(&self) -> Result<(), Failed> {
        self.read().await
    }

    async fn write(&self, member: &Member, writes: Vec<Write>) -> Result<Vec<Wrote>, Failed> {
        self.write().await?;
        Store::write(&self.records, member, writes).await
    }

    async fn remove(&self, member: &Member) -> Result<(), Failed> {
        self.write().await?;
        self.records.remove(member).await
    }

    async fn members(&self, clusterset: &ClustersetId) -> Result<Vec<(Member, MemberRecord)>, Failed> {
        self.read().await?;
        self.records.members(clusterset).await
    }

    async fn exports(&self, member: &Member) -> Result<BTreeMap<ServiceKey, Export>, Failed> {
        self.read().await?;
        self.records.exports(member).await
    }
}
