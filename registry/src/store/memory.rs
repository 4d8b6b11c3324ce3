//! The store that is the memory of the process: records end with it.
//!
//! It shares definitions and endpoints with the registry that decides, so a record costs its keys. All calls are made
//! under one lock, so there is nothing between two writes of one call.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use mcs_core::ids::{ClustersetId, Epoch, ServiceKey};
use mcs_core::model::Export;
use mcs_core::replicas::{Beat, News};
use mcs_core::version::Version;
use mcs_proto::convert::Member;

use super::{
    Erased, Exports, Failed, Found, Held, Known, MemberRecord, Members, Replica, Store, Write, Wrote,
};

/// Records in memory.
#[derive(Debug, Default)]
pub struct Memory {
    members: Mutex<BTreeMap<Member, Records>>,
}

#[derive(Debug, Default)]
struct Records {
    member: Option<MemberRecord>,
    exports: BTreeMap<ServiceKey, Export>,
}

impl Records {
    fn take(&mut self, write: Write) -> Wrote {
        match write {
            Write::Put(key, export) => {
                if self.exports.get(&key).is_some_and(|known| known.version > export.version) {
                    return Wrote::Older;
                }
                self.exports.insert(key, export);
            }
            Write::Delete(key, version) => {
                if self.exports.get(&key).is_some_and(|known| known.version > version) {
                    return Wrote::Older;
                }
                self.exports.remove(&key);
            }
            Write::Member(record) => {
                if self.member.as_ref().is_some_and(|known| known.version > record.version) {
                    return Wrote::Older;
                }
                self.member = Some(record);
            }
        }
        Wrote::Taken
    }
}

impl Memory {
    fn with<T>(&self, act: impl FnOnce(&mut BTreeMap<Member, Records>) -> T) -> T {
        act(&mut self.members.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[tonic::async_trait]
impl Store for Memory {
    fn is_shared(&self) -> bool {
        false
    }

    async fn check(&self) -> Result<(), Failed> {
        Ok(())
    }

    async fn write(&self, member: &Member, writes: Vec<Write>) -> Result<Vec<Wrote>, Failed> {
        Ok(self.with(|members| {
            let records = members.entry(member.clone()).or_default();
            writes.into_iter().map(|write| records.take(write)).collect()
        }))
    }

    async fn remove(&self, member: &Member, as_of: Version) -> Result<Erased, Failed> {
        Ok(self.with(|members| {
            let Some(records) = members.get_mut(member) else { return Erased::Gone { exports: 0 } };
            if records.member.as_ref().is_some_and(|record| record.version > as_of) {
                return Erased::Newer;
            }
            let before = records.exports.len();
            records.exports.retain(|_, export| export.version > as_of);
            let exports = before - records.exports.len();
            records.member = None;
            if records.exports.is_empty() {
                members.remove(member);
            }
            Erased::Gone { exports }
        }))
    }

    async fn members(&self, clusterset: &ClustersetId) -> Result<Members, Failed> {
        let whole = self.with(|members| {
            let of = members.iter().filter(|(member, _)| member.clusterset == *clusterset);
            of.filter_map(|(member, records)| Some((member.clone(), records.member.clone()?))).collect()
        });
        Ok(Members { whole, ..Members::default() })
    }

    async fn member(&self, member: &Member) -> Result<Option<Found>, Failed> {
        Ok(self.with(|members| members.get(member)?.member.clone()).map(Found::Record))
    }

    async fn exports(&self, member: &Member, _: &Known) -> Result<Exports, Failed> {
        let held = |members: &mut BTreeMap<_, Records>| Some(members.get(member)?.exports.clone());
        let whole = self.with(held).unwrap_or_default();
        Ok(Exports { whole, torn: BTreeSet::new() })
    }

    async fn export(
        &self,
        member: &Member,
        key: &ServiceKey,
        _: Option<&Export>,
    ) -> Result<Option<Held>, Failed> {
        Ok(self.with(|members| members.get(member)?.exports.get(key).cloned().map(Held::Whole)))
    }

    async fn fading(&self, _: &Member) -> Result<BTreeSet<ServiceKey>, Failed> {
        Ok(BTreeSet::new())
    }

    async fn replicas(&self, _: &ClustersetId) -> Result<Vec<Replica>, Failed> {
        Ok(Vec::new())
    }

    async fn beat(&self, _: &ClustersetId, _: &Beat) -> Result<(), Failed> {
        Ok(())
    }

    async fn news(&self, _: &ClustersetId, _: &News) -> Result<(), Failed> {
        Ok(())
    }

    async fn retire(&self, _: &ClustersetId, _: Epoch) -> Result<(), Failed> {
        Ok(())
    }
}
