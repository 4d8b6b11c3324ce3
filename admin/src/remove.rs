//! `mcs-admin delete-cluster`: takes a cluster out of its clusterset, with all that it exports.
//!
//! It asks first, on a terminal; without one, `--yes` must have answered. What is decided (whether the lease lets it) is
//! decided where the records are; this looks first, so that nobody is asked what will be refused.

use crate::ask::{self, Unanswered};
use crate::confirm::{Confirm, Unconfirmed};
use crate::output::{counted, time};
use mcs_core::ids::{ClusterId, ClustersetId};
use mcs_core::model::MemberState;
use mcs_core::replicas::UidTag;
use mcs_proto::client::{RegistryClient, Removed};
use mcs_proto::convert::Member;
use mcs_proto::pb;
use mcs_proto::status::CallFailed;
use mcs_proto::url::RegistryUrl;
use mcs_registry::store::{Failed, Known, Members, Replica, Store};
use std::collections::BTreeSet;

/// The flags of the subcommand.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub(crate) struct DeleteCluster {
    /// The clusterset
    #[arg(long)]
    pub(crate) clusterset: ClustersetId,
    /// The cluster to remove, by its id
    #[arg(long)]
    pub(crate) cluster: ClusterId,
    /// Removes it without asking; needed where standard input is no terminal, since a script must not wait for an answer
    #[arg(long)]
    pub(crate) yes: bool,
    /// Removes it also while its lease is active. Off by default: a controller that still runs registers again, and the
    /// cluster is back with all that it exports
    #[arg(long)]
    pub(crate) force: bool,
}

/// Why a cluster was not removed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotRemoved {
    /// No registry gave its list of clusters.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    /// It is not there.
    #[error("{place} has no cluster {cluster} in clusterset {clusterset}; it has {known}")]
    Absent {
        /// The clusterset.
        clusterset: ClustersetId,
        /// What was to be removed.
        cluster: ClusterId,
        /// Where it was looked for.
        place: String,
        /// The clusters that are there.
        known: String,
    },
    /// It is not there, as far as is known.
    #[error(
        "{place} has no cluster {cluster} in clusterset {clusterset}, but does not know all clusters yet: try again in a minute"
    )]
    NotKnownYet {
        /// The clusterset.
        clusterset: ClustersetId,
        /// What was to be removed.
        cluster: ClusterId,
        /// Where it was looked for.
        place: String,
    },
    /// Its lease is active.
    #[error(
        "cluster {cluster} of clusterset {clusterset} is {state}, renewed {renewed}: stop its mcs-controller first \
         (mcs-controller leave), or --force the removal"
    )]
    Active {
        /// The clusterset.
        clusterset: ClustersetId,
        /// What was to be removed.
        cluster: ClusterId,
        /// What its lease is.
        state: String,
        /// When it was renewed last.
        renewed: String,
    },
    /// Nobody said yes.
    #[error(transparent)]
    Unconfirmed(#[from] Unconfirmed),
    /// The registry does not do it.
    #[error("the registry at {url} does not remove cluster {cluster} of clusterset {clusterset}: {why}")]
    Refused {
        /// The registry.
        url: RegistryUrl,
        /// The clusterset.
        clusterset: ClustersetId,
        /// What was to be removed.
        cluster: ClusterId,
        /// Its reason.
        why: Box<CallFailed>,
    },
    /// The store was not read, or not written.
    #[error("{place}: {why}; nothing was removed")]
    Unread {
        /// Where.
        place: String,
        /// Why it was not.
        why: Failed,
    },
    /// Its record has a form that this release does not know.
    #[error(
        "the record of cluster {cluster} of clusterset {clusterset} cannot be read by this release: use a later mcs-admin"
    )]
    Unreadable {
        /// The clusterset.
        clusterset: ClustersetId,
        /// What was to be removed.
        cluster: ClusterId,
    },
    /// The store broke off.
    #[error(
        "a part of cluster {cluster} of clusterset {clusterset} may be removed, run this again: {place}: {why}"
    )]
    Unfinished {
        /// The clusterset.
        clusterset: ClustersetId,
        /// What was to be removed.
        cluster: ClusterId,
        /// Where.
        place: String,
        /// Why it was not done.
        why: Failed,
    },
    /// Nobody knows what the registry did.
    #[error(
        "cluster {cluster} of clusterset {clusterset} may be removed or not, see mcs-admin describe: the registry at {url}: {why}"
    )]
    Unknown {
        /// The registry.
        url: RegistryUrl,
        /// The clusterset.
        clusterset: ClustersetId,
        /// What was to be removed.
        cluster: ClusterId,
        /// What happened.
        why: Box<CallFailed>,
    },
}

/// Removes a cluster at the first of the registries that answers; gives the text to print.
///
/// # Errors
/// Why it was not removed.
pub(crate) async fn at_registry(
    registries: &[RegistryClient],
    args: &DeleteCluster,
    confirm: &mut Confirm<'_>,
) -> Result<String, NotRemoved> {
    let DeleteCluster { clusterset, cluster, yes, force } = args;
    let list = async |client: &'_ RegistryClient| client.list_clusters(clusterset).await;
    let (client, (clusters, complete)) = ask::first(registries, list).await?;
    let url = client.url();
    let known = find(&clusters, complete, args, url)?;
    let lease = known.lease.unwrap_or_default();
    let renewed = lease.renewed_at.map_or_else(|| "-".to_owned(), |at| time(at.seconds));
    if lease.state != i32::from(pb::LeaseState::Expired) && !force {
        let state = state(lease.state).to_owned();
        let renewed = format!("at {renewed}");
        return Err(NotRemoved::Active {
            clusterset: clusterset.clone(),
            cluster: cluster.clone(),
            state,
            renewed,
        });
    }
    if !yes {
        let what = format!(
            "cluster {cluster} of clusterset {clusterset} at {url} (UID {}, {}, renewed at {renewed}) has {} and {}",
            known.uid,
            state(lease.state),
            counted(known.exports.into(), "export"),
            counted(known.endpoints.into(), "endpoint"),
        );
        confirm.ask(&what, "Remove it from every cluster of the set?")?;
    }
    match client.remove(clusterset, cluster, None, *force).await {
        Ok(Removed { exports, endpoints }) => Ok(format!(
            "removed cluster {cluster} of clusterset {clusterset} at {url}: {} and {}\n",
            counted(exports.into(), "export"),
            counted(endpoints.into(), "endpoint")
        )),
        Err(why) => {
            let (url, clusterset, cluster) = (url.clone(), clusterset.clone(), cluster.clone());
            let nobody_knows = matches!(why, CallFailed::Unavailable { .. } | CallFailed::TimedOut { .. });
            let why = Box::new(why);
            Err(match nobody_knows {
                true => NotRemoved::Unknown { url, clusterset, cluster, why },
                false => NotRemoved::Refused { url, clusterset, cluster, why },
            })
        }
    }
}

/// Removes the records of a cluster from a store at this place; gives the text to print. Those of all clusters that claim
/// the id go.
///
/// # Errors
/// Why it was not removed.
pub(crate) async fn from_store(
    store: &dyn Store,
    place: &str,
    args: &DeleteCluster,
    confirm: &mut Confirm<'_>,
) -> Result<String, NotRemoved> {
    let DeleteCluster { clusterset, cluster, yes, force } = args;
    let unread = |why| NotRemoved::Unread { place: place.to_owned(), why };
    let Members { whole, torn } = store.members(clusterset).await.map_err(unread)?;
    let (clusterset, cluster) = (clusterset.clone(), cluster.clone());
    if torn.iter().any(|(id, _)| *id == cluster) {
        return Err(NotRemoved::Unreadable { clusterset, cluster });
    }
    let ids: BTreeSet<_> = whole.iter().map(|(member, _)| member.cluster.to_string()).collect();
    let found: Vec<_> = whole.into_iter().filter(|(member, _)| member.cluster == cluster).collect();
    if found.is_empty() {
        let known = named(ids.iter().map(String::as_str));
        return Err(NotRemoved::Absent { clusterset, cluster, place: place.to_owned(), known });
    }
    let mut whats = Vec::new();
    let (mut exports, mut endpoints) = (0, 0);
    for (member, record) in &found {
        if record.state != MemberState::Expired && !force {
            let state = in_words(record.state).to_owned();
            let renewed = renewed(&store.replicas(&clusterset).await.map_err(unread)?, member);
            return Err(NotRemoved::Active { clusterset, cluster, state, renewed });
        }
        let all = store.exports(member, &Known::new()).await.map_err(unread)?;
        exports += count(all.whole.len() + all.torn.len());
        endpoints += all.whole.values().map(|export| count(export.endpoints.len())).sum::<u64>();
        whats.push(format!("UID {}, {}", member.uid, in_words(record.state)));
    }
    let (exports, endpoints) = (counted(exports, "export"), counted(endpoints, "endpoint"));
    if !yes {
        let what = format!(
            "cluster {cluster} of clusterset {clusterset} in {place} ({}) has {exports} and {endpoints}",
            whats.join("; ")
        );
        confirm.ask(&what, "Remove its records?")?;
    }
    for (member, _) in &found {
        let unfinished = |why| NotRemoved::Unfinished {
            clusterset: clusterset.clone(),
            cluster: cluster.clone(),
            place: place.to_owned(),
            why,
        };
        store.remove(member).await.map_err(unfinished)?;
    }
    Ok(format!(
        "removed cluster {cluster} of clusterset {clusterset} from {place}: {exports} and {endpoints}\n"
    ))
}

/// When a member was renewed, as the registry says that heard it last before a beat of its own.
fn renewed(replicas: &[Replica], member: &Member) -> String {
    let tag = UidTag::of(&member.uid);
    let ages = replicas.iter().filter_map(|replica| Some(replica.beat.renewals.get(&tag)?.age));
    ages.min().map_or_else(
        || "at no time that a registry tells of".to_owned(),
        |age| format!("{:.1}s before the last beat of a registry", age.as_secs_f64()),
    )
}

fn count(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn in_words(of: MemberState) -> &'static str {
    state(pb::LeaseState::from(of).into())
}

fn find<'a>(
    clusters: &'a [pb::Cluster],
    complete: bool,
    args: &DeleteCluster,
    url: &RegistryUrl,
) -> Result<&'a pb::Cluster, NotRemoved> {
    let DeleteCluster { clusterset, cluster, .. } = args;
    if let Some(found) = clusters.iter().find(|known| known.cluster == cluster.as_str()) {
        return Ok(found);
    }
    let (clusterset, cluster, place) =
        (clusterset.clone(), cluster.clone(), format!("the registry at {url}"));
    if !complete {
        return Err(NotRemoved::NotKnownYet { clusterset, cluster, place });
    }
    Err(NotRemoved::Absent {
        clusterset,
        cluster,
        place,
        known: named(clusters.iter().map(|known| &*known.cluster)),
    })
}

/// The names that somebody who mistyped one may look for.
pub(crate) fn named<'a>(ids: impl Iterator<Item = &'a str>) -> String {
    /// So many are named.
    const MOST: usize = 10;
    let ids: Vec<_> = ids.collect();
    match ids.len() {
        0 => "none".to_owned(),
        all if all > MOST => format!("{} and {} more", ids[..MOST].join(", "), all - MOST),
        _ => ids.join(", "),
    }
}

/// A lease's state within a sentence.
fn state(state: i32) -> &'static str {
    match pb::LeaseState::try_from(state) {
        Ok(pb::LeaseState::Active) => "active",
        Ok(pb::LeaseState::Syncing) => "syncing",
        Ok(pb::LeaseState::Held) => "silent, and not judged yet",
        Ok(pb::LeaseState::Expired) => "expired",
        Ok(pb::LeaseState::Unspecified) | Err(_) => "in a state that is not known here",
    }
}
