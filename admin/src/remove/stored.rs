//! Removal of a cluster's records from the store that registries share.
//!
//! No registry decides here, so this is careful: a lease counts as active when its record says so, and also when the last beat of
//! a registry that may still run tells of a renewal within a lease, whatever was recorded. Whoever was asked is asked about what is still so.

use super::{DeleteCluster, NotRemoved, named, state};
use crate::confirm::Confirm;
use crate::output::counted;
use mcs_core::model::MemberState;
use mcs_core::replicas::UidTag;
use mcs_core::time::{Clock, WallTime};
use mcs_core::timing::DEFAULT_LEASE;
use mcs_core::version::Version;
use mcs_proto::convert::Member;
use mcs_proto::pb;
use mcs_registry::store::{Erased, Failed, Known, Members, Replica, Store, Torn};
use mcs_runtime::clock::SystemClock;
use std::collections::BTreeSet;
use std::fmt;
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
    let removal = Removal { store, place, args, now: SystemClock.wall() };
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
            return Err(NotRemoved::Changed { clusterset, cluster, uid: changed.who.to_string() });
        }
        targets = now;
    }
    let size = removal.size(&targets).await?;
    for target in &targets {
        if removal.remove(target).await? == Erased::Newer {
            let (clusterset, cluster) = (clusterset.clone(), cluster.clone());
            return Err(match target.as_of {
                // Nothing is newer than this: it is its form that stands.
                UNREAD => NotRemoved::Later { clusterset, cluster },
                _ => NotRemoved::Changed { clusterset, cluster, uid: target.who.to_string() },
            });
        }
    }
    let uids: Vec<_> = targets.iter().map(|target| target.who.to_string()).collect();
    let uids = named(uids.iter().map(String::as_str));
    Ok(format!("removed cluster {cluster} of clusterset {clusterset} (UID {uids}) from {place}: {size}\n"))
}

/// Who is to go: a cluster whose UID is known, or whatever has this key.
#[derive(Clone, Debug, PartialEq)]
enum Who {
    Member(Member),
    Key(UidTag),
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member(member) => write!(f, "{}", member.uid),
            Self::Key(UidTag(tag)) => {
                f.write_str("unknown, tag ")?;
                tag.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

/// A cluster that is to go.
#[derive(Clone, Debug, PartialEq)]
struct Target {
    who: Who,
    /// How it is, for people.
    state: &'static str,
    /// What is newer of it stands.
    as_of: Version,
}

impl Target {
    fn shown(&self) -> String {
        format!("UID {}, {}", self.who, self.state)
    }
}

/// As of when a record goes that cannot be read.
const UNREAD: Version = Version::new(u64::MAX, u64::MAX);

/// What is asked for.
struct Removal<'a> {
    store: &'a dyn Store,
    place: &'a str,
    args: &'a DeleteCluster,
    /// By the wall clock.
    now: WallTime,
}

/// A beat that was written so many seconds ago, by the wall clocks of its registry and of this machine, is that of a registry
/// that has ended, whatever it says of renewals: far more than wall clocks differ, or two beats lie apart.
const STALE: i64 = 10 * 60;

impl Removal<'_> {
    /// What is to go, as it is now.
    async fn look(&self) -> Result<Vec<Target>, NotRemoved> {
        let DeleteCluster { clusterset, cluster, uid, force, .. } = self.args;
        let Members { whole, removed, torn } =
            self.store.members(clusterset).await.map_err(|why| self.unread(why))?;
        let named_here =
            |member: &Member| member.cluster == *cluster && uid.as_ref().is_none_or(|uid| *uid == member.uid);
        let ids: BTreeSet<_> = whole.iter().map(|(member, _)| member.cluster.to_string()).collect();
        let found: Vec<_> = whole.into_iter().filter(|(member, _)| named_here(member)).collect();
        let is_named = |tag: UidTag| uid.as_ref().is_none_or(|uid| UidTag::of(uid) == tag);
        let torn: Vec<(UidTag, Torn)> = torn
            .into_iter()
            .filter(|((id, tag), _)| id == cluster && is_named(*tag))
            .map(|((_, tag), why)| (tag, why))
            .collect();
        if found.is_empty() && !torn.is_empty() {
            return self.unreadable(&torn);
        }
        let replicas = self.running().await?;
        if found.is_empty() {
            for (member, as_of) in removed.into_iter().filter(|(member, _)| named_here(member)) {
                let left =
                    self.store.exports(&member, &Known::new()).await.map_err(|why| self.unread(why))?;
                if left.whole.is_empty() && left.torn.is_empty() {
                    continue;
                }
                // It may be back, and its record the last that is written of it.
                let age = renewed(&replicas, &member);
                if !force && age.is_some_and(is_recent) {
                    return Err(self.active(&member, "heard a moment ago, though recorded as removed", age));
                }
                return Ok(vec![Target { who: Who::Member(member), state: "removed in part", as_of }]);
            }
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
        let mut active = None;
        let mut targets = Vec::new();
        for (member, record) in found {
            let age = renewed(&replicas, &member);
            let is_active = record.state != MemberState::Expired || age.is_some_and(is_recent);
            if is_active && !force {
                active.get_or_insert((member, record, age));
            } else {
                let (state, as_of) = (in_words(record.state), record.version);
                targets.push(Target { who: Who::Member(member), state, as_of });
            }
        }
        match active {
            Some((member, record, age)) if targets.is_empty() => {
                let state = match record.state {
                    MemberState::Expired => "heard a moment ago, though recorded as expired",
                    other => in_words(other),
                };
                Err(self.active(&member, state, age))
            }
            _ => Ok(targets),
        }
    }

    /// What registries that may still run say.
    async fn running(&self) -> Result<Vec<Replica>, NotRemoved> {
        let clusterset = &self.args.clusterset;
        let mut replicas = self.store.replicas(clusterset).await.map_err(|why| self.unread(why))?;
        let said_at = self.store.said_at(clusterset).await.map_err(|why| self.unread(why))?;
        let is_old = |at: &WallTime| at.unix_secs() + STALE < self.now.unix_secs();
        replicas.retain(|replica| !said_at.get(&replica.beat.epoch).is_some_and(is_old));
        Ok(replicas)
    }

    /// It is not to go: it is so, and was heard so long before the last beat of a registry, if one tells of it.
    fn active(&self, member: &Member, state: &str, age: Option<Duration>) -> NotRemoved {
        NotRemoved::Active {
            clusterset: member.clusterset.clone(),
            cluster: member.cluster.clone(),
            uid: member.uid.to_string(),
            state: state.to_owned(),
            renewed: age.map_or_else(
                || "at no time that a registry tells of".to_owned(),
                |age| format!("{:.1}s before the last beat of a registry", age.as_secs_f64()),
            ),
        }
    }

    /// A record that cannot be read goes by its key alone, where somebody insists; one of a later release, which may say that
    /// it lives, only where its UID is given.
    fn unreadable(&self, torn: &[(UidTag, Torn)]) -> Result<Vec<Target>, NotRemoved> {
        let DeleteCluster { clusterset, cluster, uid, force, .. } = self.args;
        let (clusterset, cluster) = (clusterset.clone(), cluster.clone());
        let who = match (torn, uid) {
            (_, Some(uid)) if *force => Who::Member(Member { clusterset, cluster, uid: uid.clone() }),
            ([(tag, Torn::Damaged)], None) if *force => Who::Key(*tag),
            _ if torn.iter().any(|(_, why)| *why == Torn::Newer) => {
                return Err(NotRemoved::Unreadable { clusterset, cluster });
            }
            _ if *force => {
                let keys: Vec<_> = torn.iter().map(|(tag, _)| Who::Key(*tag).to_string()).collect();
                let uids = keys.join(", ");
                return Err(NotRemoved::Several { clusterset, cluster, uids });
            }
            _ => return Err(NotRemoved::Damaged { clusterset, cluster }),
        };
        Ok(vec![Target { who, state: "unreadable", as_of: UNREAD }])
    }

    /// Removes it; what is newer than what was looked at stands.
    async fn remove(&self, Target { who, as_of, .. }: &Target) -> Result<Erased, NotRemoved> {
        let DeleteCluster { clusterset, cluster, .. } = self.args;
        let removed = match who {
            Who::Member(member) => self.store.remove(member, *as_of).await,
            Who::Key(tag) => self.store.remove_damaged(clusterset, cluster, *tag).await,
        };
        removed.map_err(|why| self.unfinished(why))
    }

    /// What goes with them.
    async fn size(&self, targets: &[Target]) -> Result<String, NotRemoved> {
        let (mut exports, mut endpoints, mut torn) = (0, 0, 0);
        for Target { who, .. } in targets {
            let Who::Member(member) = who else { return Ok("exports that nobody can count".to_owned()) };
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

/// Whether its lease has not run out since.
fn is_recent(age: Duration) -> bool {
    age < DEFAULT_LEASE
}

fn count(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn in_words(of: MemberState) -> &'static str {
    state(pb::LeaseState::from(of).into())
}

#[cfg(test)]
mod tests;
