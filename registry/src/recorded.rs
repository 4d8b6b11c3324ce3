//! What a store holds of a clusterset, listed as a registry lists it, for who looks while none can be asked.
//!
//! Nothing is judged: a lease is in the state that registries wrote last, and what their beats say of it is given as it is.
//! Whatever could not be read, or does not fit together, is named; a read that breaks off gives nothing.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use mcs_core::ids::{ClusterId, ClustersetId, Epoch};
use mcs_core::model::MemberState;
use mcs_core::registry::{Policy, Registry, Restored};
use mcs_core::replicas::Beat;
use mcs_core::time::{Clock, Timestamp};
use mcs_core::timing::Timing;
use mcs_core::version::Sum;
use mcs_proto::convert::Member;
use mcs_proto::pb;

use crate::lists::{List, Lists, Page};
use crate::store::{Exports, Failed, Known, MemberRecord, Members, Store, Torn};

/// What a store holds of a clusterset.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recorded {
    /// The clusters by id. Their leases have a state only: when they were renewed, [`Recorded::beats`] say.
    pub clusters: Vec<pb::Cluster>,
    /// What they export, by Service and cluster, without endpoints.
    pub exports: Vec<pb::Export>,
    /// What the exports merge into, by Service.
    pub imports: Vec<pb::Import>,
    /// What replicas of a registry say of the renewals that they took.
    pub beats: Vec<Beat>,
    /// Clusters whose id belongs to another one that claimed it earlier.
    pub claims: Vec<Member>,
    /// What could not be read, or does not fit together, for people: the lists are without it.
    pub doubts: Vec<String>,
}

/// Reads all that a store holds of a clusterset.
///
/// # Errors
/// It could not be read to its end.
pub async fn read(store: &dyn Store, clusterset: &ClustersetId) -> Result<Recorded, Failed> {
    let replicas = store.replicas(clusterset).await?;
    let Members { mut whole, removed: _, torn } = store.members(clusterset).await?;
    let mut recorded = Recorded {
        beats: replicas.into_iter().map(|replica| replica.beat).collect(),
        doubts: torn
            .into_iter()
            .map(|((cluster, _), why)| match why {
                Torn::Newer => format!("the record of cluster {cluster} was written by a later release"),
                Torn::Damaged => {
                    format!("the record of cluster {cluster} is damaged: no release can read it")
                }
            })
            .collect(),
        ..Recorded::default()
    };
    // Of two that claim one id the earlier one keeps it, then the smaller UID.
    whole.sort_by(|a, b| claim(a).cmp(&claim(b)));
    let mut registry = Registry::new(policy(), Epoch(0), Timestamp::ZERO);
    let mut states = BTreeMap::new();
    for (member, record) in whole {
        if states.contains_key(&member.cluster) {
            recorded.claims.push(member);
            continue;
        }
        let MemberRecord { region, version, sum, state, .. } = record;
        let Exports { whole: exports, torn } = store.exports(&member, &Known::new()).await?;
        let Member { cluster, uid, .. } = member;
        let is_torn = !torn.is_empty();
        let unread = |key| format!("export {key} of cluster {cluster} cannot be read, or not yet");
        recorded.doubts.extend(torn.into_iter().map(unread));
        if !is_torn && exports.values().map(|export| export.leaf).collect::<Sum>() != sum {
            recorded.doubts.push(format!(
                "the exports of cluster {cluster} are not those of its record: it is being written, or some are lost"
            ));
        }
        let restored = Restored { uid, region, version, sum, state, exports };
        registry.restore(&cluster, restored, Timestamp::ZERO);
        states.insert(cluster, state);
    }
    list(&registry, clusterset, &states, &mut recorded);
    Ok(recorded)
}

/// The order in which clusters may have an id; who did not say when it took it comes last.
fn claim((member, record): &(Member, MemberRecord)) -> (Reverse<bool>, impl Ord + '_, &str) {
    (Reverse(record.claimed_at.is_some()), record.claimed_at, member.uid.as_str())
}

/// A registry that is only listed judges and refuses nothing.
fn policy() -> Policy {
    Policy {
        timing: Timing::default(),
        mass_expiry_threshold_percent: 100,
        mass_expiry_min_active: usize::MAX,
        mass_expiry_hold: Duration::ZERO,
        max_clusters: usize::MAX,
        max_exports: usize::MAX,
        max_writes_per_second: u32::MAX,
    }
}

fn list(
    registry: &Registry,
    clusterset: &ClustersetId,
    states: &BTreeMap<ClusterId, MemberState>,
    recorded: &mut Recorded,
) {
    let lists = Lists { registry, now: Timestamp::ZERO, clock: &Still, lease: Duration::ZERO };
    pages(List::Clusters, |page| {
        let answer = lists.clusters(clusterset, page);
        recorded.clusters.extend(answer.clusters);
        answer.next_page_token
    });
    pages(List::Exports, |page| {
        let answer = lists.exports(None, false, page);
        recorded.exports.extend(answer.exports);
        answer.next_page_token
    });
    pages(List::Imports, |page| {
        let answer = lists.imports(false, page);
        recorded.imports.extend(answer.imports);
        answer.next_page_token
    });
    for cluster in &mut recorded.clusters {
        let state = states.iter().find(|(id, _)| id.as_str() == cluster.cluster).map(|(_, state)| *state);
        let state = state.map_or(pb::LeaseState::Unspecified, pb::LeaseState::from);
        cluster.lease = Some(pb::Lease { state: state.into(), renewed_at: None, duration: None });
    }
}

/// Takes one page after another of a list.
fn pages(of: List, mut take: impl FnMut(&Page) -> String) {
    let mut token = String::new();
    // A token of this list is one that it reads.
    while let Ok(page) = Page::read(of, 0, &token, usize::MAX) {
        token = take(&page);
        if token.is_empty() {
            return;
        }
    }
}

/// A clock that nobody looks at.
#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn elapsed(&self) -> Timestamp {
        Timestamp::ZERO
    }

    fn wall_nanos(&self) -> i128 {
        0
    }
}
