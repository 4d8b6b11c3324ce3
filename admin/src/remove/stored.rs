//! Removal of a cluster's records from the store that registries share.
//!
//! No registry decides here, so this is careful: a lease counts as active when its record says so, and also when the last beat of
//! a registry tells of a renewal within a lease, whatever was recorded. Whoever was asked is asked about what is still so.

use super::{DeleteCluster, NotRemoved, named, state};
use crate::confirm::Confirm;
use crate::output::counted;
use mcs_core::model::MemberState;
use mcs_core::replicas::UidTag;
use mcs_core::timing::DEFAULT_LEASE;
use mcs_core::version::Version;
use mcs_proto::convert::Member;
use mcs_proto::pb;
use mcs_registry::store::{Failed, Known, MemberRecord, Members, Removed, Replica, Store};
use std::collections::BTreeSet;
use std::time::Duration;

/// Removes the records of a cluster from a store at this place; gives the text to print.
///
/// # Errors
/// Why it was not removed.
pub(crate) async fn from_store(
    store: &dyn Store,
    place: &str,
    args: &DeleteCluster,
    confirm: &mut Confirm<'_>,
) -> Result<String, NotRemoved> {
    let removal = Removal { store, place, args };
    let DeleteCluster { clusterset, cluster, yes, .. } = args;
    let mut targets = removal.look().await?;
    if !yes {
        let what = removal.size(&targets).await?;
        let uids: Vec<_> = targets.iter().map(Target::shown).collect();
        confirm.ask(
            &format!(
                "cluster {cluster} of clusterset {clusterset} in {place} ({}) has {what}",
                uids.join("; ")
            ),
            "Remove its records?",
        )?;
        // Somebody may have taken their time.
        let now = removal.look().await?;
        if let Some(changed) = targets.iter().find(|target| !now.contains(target)) {
            let (clusterset, cluster) = (clusterset.clone(), cluster.clone());
            return Err(NotRemoved::Changed { clusterset, cluster, uid: changed.member.uid.to_string() });
        }
        targets = now;
    }
    let size = removal.size(&targets).await?;
    for Target { member, record } in &targets {
        let newest = Version::new(u64::MAX, u64::MAX);
        let as_of = record.as_ref().map_or(newest, |record| record.version);
        if store.remove(member, as_of).await.map_err(|why| removal.unfinished(why))? == Removed::Newer {
            let (clusterset, cluster) = (clusterset.clone(), cluster.clone());
            return Err(NotRemoved::Changed { clusterset, cluster, uid: member.uid.to_string() });
        }
    }
    let uids = named(targets.iter().map(|target| target.member.uid.as_str()));
    Ok(format!("removed cluster {cluster} of clusterset {clusterset} (UID {uids}) from {place}: {size}\n"))
}

/// A cluster that is to go; without a record where that cannot be read.
#[derive(Clone, Debug, PartialEq)]
struct Target {
    member: Member,
    record: Option<MemberRecord>,
}

impl Target {
    fn shown(&self) -> String {
        let state = self.record.as_ref().map_or("unreadable", |record| in_words(record.state));
        format!("UID {}, {state}", self.member.uid)
    }
}

/// What is asked for.
struct Removal<'a> {
    store: &'a dyn Store,
    place: &'a str,
    args: &'a DeleteCluster,
}

impl Removal<'_> {
    /// What is to go, as it is now.
    async fn look(&self) -> Result<Vec<Target>, NotRemoved> {
        let DeleteCluster { clusterset, cluster, uid, force, .. } = self.args;
        let Members { whole, torn } = self.store.members(clusterset).await.map_err(|why| self.unread(why))?;
        let named_here =
            |member: &Member| member.cluster == *cluster && uid.as_ref().is_none_or(|uid| *uid == member.uid);
        let ids: BTreeSet<_> = whole.iter().map(|(member, _)| member.cluster.to_string()).collect();
        let found: Vec<_> = whole.into_iter().filter(|(member, _)| named_here(member)).collect();
        if found.is_empty() && torn.iter().any(|(id, _)| id == cluster) {
            return self.unreadable(&torn);
        }
        if found.is_empty() {
            return Err(NotRemoved::Absent {
                clusterset: clusterset.clone(),
                cluster: cluster.clone(),
                place: self.place.to_owned(),
                known: named(ids.iter().map(String::as_str)),
            });
        }
        if *force && found.len() > 1 {
            return Err(NotRemoved::Several {
                clusterset: clusterset.clone(),
                cluster: cluster.clone(),
                uids: named(found.iter().map(|(member, _)| member.uid.as_str())),
            });
        }
        let replicas = self.store.replicas(clusterset).await.map_err(|why| self.unread(why))?;
        let mut active = None;
        let mut targets = Vec::new();
        for (member, record) in found {
            let age = renewed(&replicas, &member);
            let is_active =
                record.state != MemberState::Expired || age.is_some_and(|age| age < DEFAULT_LEASE);
            if is_active && !force {
                active.get_or_insert((member, record, age));
            } else {
                targets.push(Target { member, record: Some(record) });
            }
        }
        match active {
            Some((member, record, age)) if targets.is_empty() => Err(NotRemoved::Active {
                clusterset: clusterset.clone(),
                cluster: cluster.clone(),
                uid: member.uid.to_string(),
                state: match record.state {
                    MemberState::Expired => "heard a moment ago, though recorded as expired".to_owned(),
                    other => in_words(other).to_owned(),
                },
                renewed: age.map_or_else(
                    || "at no time that a registry tells of".to_owned(),
                    |age| format!("{:.1}s before the last beat of a registry", age.as_secs_f64()),
                ),
            }),
            _ => Ok(targets),
        }
    }

    /// A record that cannot be read goes by its key alone, where somebody insists.
    fn unreadable(
        &self,
        torn: &BTreeSet<(mcs_core::ids::ClusterId, UidTag)>,
    ) -> Result<Vec<Target>, NotRemoved> {
        let DeleteCluster { clusterset, cluster, uid, force, .. } = self.args;
        match uid {
            Some(uid) if *force && torn.contains(&(cluster.clone(), UidTag::of(uid))) => {
                let member =
                    Member { clusterset: clusterset.clone(), cluster: cluster.clone(), uid: uid.clone() };
                Ok(vec![Target { member, record: None }])
            }
            _ => Err(NotRemoved::Unreadable { clusterset: clusterset.clone(), cluster: cluster.clone() }),
        }
    }

    /// What goes with them.
    async fn size(&self, targets: &[Target]) -> Result<String, NotRemoved> {
        let (mut exports, mut endpoints, mut torn) = (0, 0, 0);
        for Target { member, .. } in targets {
            let read = self.store.exports(member, &Known::new()).await.map_err(|why| self.unread(why))?;
            exports += count(read.whole.len());
            endpoints += read.whole.values().map(|export| count(export.endpoints.len())).sum::<u64>();
            torn += count(read.torn.len());
        }
        let size = format!("{} and {}", counted(exports, "export"), counted(endpoints, "endpoint"));
        Ok(match torn {
            0 => size,
            torn => format!("{size}, and {} that cannot be read", counted(torn, "export")),
        })
    }

    fn unread(&self, why: Failed) -> NotRemoved {
        NotRemoved::Unread { place: self.place.to_owned(), why }
    }

    fn unfinished(&self, why: Failed) -> NotRemoved {
        let DeleteCluster { clusterset, cluster, .. } = self.args;
        let (clusterset, cluster) = (clusterset.clone(), cluster.clone());
        NotRemoved::Unfinished { clusterset, cluster, place: self.place.to_owned(), why }
    }
}

/// How long before its last beat a registry heard a member; of the one that heard it last, as the beats say.
fn renewed(replicas: &[Replica], member: &Member) -> Option<Duration> {
    let tag = UidTag::of(&member.uid);
    replicas.iter().filter_map(|replica| Some(replica.beat.renewals.get(&tag)?.age)).min()
}

fn count(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn in_words(of: MemberState) -> &'static str {
    state(pb::LeaseState::from(of).into())
}

#[cfg(test)]
mod tests;
