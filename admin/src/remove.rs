//! `mcs-admin delete-cluster`: takes a cluster out of its clusterset, with all that it exports.
//!
//! It asks first, on a terminal; without one, `--yes` must have answered. What is decided (whether the lease lets it) is
//! decided where the records are; this looks first, so that nobody is asked what will be refused, and looks again when
//! somebody has answered.

mod stored;
#[cfg(test)]
mod tests;

pub(crate) use stored::from_store;

use crate::ask::{self, Unanswered};
use crate::confirm::{Confirm, Unconfirmed};
use crate::output::{counted, time};
use mcs_core::ids::{ClusterId, ClusterUid, ClustersetId};
use mcs_proto::client::{RegistryClient, Removed};
use mcs_proto::pb;
use mcs_proto::status::CallFailed;
use mcs_proto::url::RegistryUrl;
use mcs_registry::store::Failed;

/// The flags of the subcommand.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub(crate) struct DeleteCluster {
    /// The clusterset
    #[arg(long)]
    pub(crate) clusterset: ClustersetId,
    /// The cluster to remove, by its id
    #[arg(long)]
    pub(crate) cluster: ClusterId,
    /// The UID of the cluster, as `describe` shows it. Needed where two clusters claimed one id, and one is to stay; another
    /// one is never removed
    #[arg(long)]
    pub(crate) uid: Option<ClusterUid>,
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
        "cluster {cluster} of clusterset {clusterset} (UID {uid}) is {state}, renewed {renewed}: stop its mcs-controller \
         first (mcs-controller leave), or --force the removal"
    )]
    Active {
        /// The clusterset.
        clusterset: ClustersetId,
        /// What was to be removed.
        cluster: ClusterId,
        /// Its UID.
        uid: String,
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
    /// Its record is damaged.
    #[error(
        "the record of cluster {cluster} of clusterset {clusterset} is damaged, so that no release can read it: --force \
         removes it by its key"
    )]
    Damaged {
        /// The clusterset.
        clusterset: ClustersetId,
        /// What was to be removed.
        cluster: ClusterId,
    },
    /// Its record has a form that this release does not know.
    #[error(
        "the record of cluster {cluster} of clusterset {clusterset} was written by a later release: use a later mcs-admin, \
         or remove it unread with --force and --uid"
    )]
    Unreadable {
        /// The clusterset.
        clusterset: ClustersetId,
        /// What was to be removed.
        cluster: ClusterId,
    },
    /// Its record has a form that only a later release writes over.
    #[error(
        "the record of cluster {cluster} of clusterset {clusterset} is one that only a later release may write over: \
         nothing was removed, use its mcs-admin"
    )]
    Later {
        /// The clusterset.
        clusterset: ClustersetId,
        /// What was to be removed.
        cluster: ClusterId,
    },
    /// Several clusters claimed the id.
    #[error("cluster {cluster} of clusterset {clusterset} are several: {uids}; --uid says which is to go")]
    Several {
        /// The clusterset.
        clusterset: ClustersetId,
        /// What was to be removed.
        cluster: ClusterId,
        /// Their UIDs.
        uids: String,
    },
    /// It is another one than somebody was asked about.
    #[error(
        "cluster {cluster} of clusterset {clusterset} (UID {uid}) has changed since it was looked at: nothing was removed, look again"
    )]
    Changed {
        /// The clusterset.
        clusterset: ClustersetId,
        /// What was to be removed.
        cluster: ClusterId,
        /// Its UID.
        uid: String,
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
    let DeleteCluster { clusterset, cluster, yes, force, .. } = args;
    let list = async |client: &'_ RegistryClient| client.list_clusters(clusterset).await;
    let changed = |uid: &str| NotRemoved::Changed {
        clusterset: clusterset.clone(),
        cluster: cluster.clone(),
        uid: uid.to_owned(),
    };
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
            uid: known.uid.clone(),
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
        // Somebody may have taken their time.
        let (_, (clusters, complete)) = ask::first(std::slice::from_ref(client), list).await?;
        let now = find(&clusters, complete, args, url)?;
        if (&now.uid, now.lease.unwrap_or_default().state) != (&known.uid, lease.state) {
            return Err(changed(&known.uid));
        }
    }
    let removed = match ClusterUid::new(known.uid.as_str()) {
        // A registry that does not know this condition has been asked twice, at least.
        Ok(only) => client.remove_only(clusterset, cluster, &only, *force).await,
        Err(invalid) => Err(CallFailed::Unreadable(invalid.into())),
    };
    match removed {
        Ok(Removed { exports, endpoints }) => Ok(format!(
            "removed cluster {cluster} of clusterset {clusterset} at {url}: {} and {}\n",
            counted(exports.into(), "export"),
            counted(endpoints.into(), "endpoint")
        )),
        Err(CallFailed::Claimed { .. }) => Err(changed(&known.uid)),
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

fn find<'a>(
    clusters: &'a [pb::Cluster],
    complete: bool,
    args: &DeleteCluster,
    url: &RegistryUrl,
) -> Result<&'a pb::Cluster, NotRemoved> {
    let DeleteCluster { clusterset, cluster, .. } = args;
    let is_wanted = |known: &&pb::Cluster| {
        known.cluster == cluster.as_str() && args.uid.as_ref().is_none_or(|uid| known.uid == uid.as_str())
    };
    if let Some(found) = clusters.iter().find(is_wanted) {
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
