//! What every leader has said of its cluster, by version: the truth that contents are compared with.
//!
//! Where a cluster's Lease was set back while no registry remembered, two leaders may have had one term, and two things
//! were said as of one version; either is true then.

use mcs_core::ids::ServiceKey;
use mcs_core::model::EndpointSet;
use mcs_core::version::{Leaf, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What was said of one export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// It is so.
    Has(Leaf, Arc<EndpointSet>),
    /// There is none.
    Gone,
    /// It is as a registry does not take it. What was taken before stands, if this registry has it.
    Refused { stands: bool },
}

impl Said {
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Gone | Self::Refused { stands: false })
    }
}

#[derive(Default)]
pub(crate) struct Book {
    /// By cluster and Service, then by version and the leader that said it.
    said: BTreeMap<(usize, ServiceKey), BTreeMap<(Version, u64), Said>>,
}

impl Book {
    /// The leader `pid` of `cluster` says `said` of `key` in its act of `version`. What was refused in an act stays so,
    /// though it may be said once more.
    pub(crate) fn say(
        &mut self,
        (cluster, pid): (usize, u64),
        key: &ServiceKey,
        version: Version,
        said: Said,
    ) {
        let of_key = self.said.entry((cluster, key.clone())).or_default();
        let known = of_key.entry((version, pid)).or_insert_with(|| said.clone());
        if !matches!((&*known, &said), (Said::Refused { .. }, Said::Has(..))) {
            *known = said;
        }
    }

    /// How the leader `pid` of `cluster` was refused `key` last.
    pub(crate) fn last_refusal(&self, (cluster, pid): (usize, u64), key: &ServiceKey) -> Said {
        let said = self.said.get(&(cluster, key.clone())).into_iter().flatten().rev();
        let of_leader = said.filter(|((_, by), _)| *by == pid).map(|(_, said)| said);
        let mut refusals = of_leader.filter(|said| matches!(said, Said::Refused { .. }));
        refusals.next().cloned().unwrap_or(Said::Refused { stands: true })
    }

    /// What may hold of `key` as of `version`: what each leader of the last term up to it said last.
    pub(crate) fn as_of(&self, cluster: usize, key: &ServiceKey, version: Version) -> Vec<&Said> {
        let Some(said) = self.said.get(&(cluster, key.clone())) else { return Vec::new() };
        let mut leaders = BTreeSet::new();
        let mut newest = said.range(..=(version, u64::MAX)).rev().peekable();
        let term = newest.peek().map(|((version, _), _)| version.term);
        newest
            .take_while(|((version, _), _)| Some(version.term) == term)
            .filter(|((_, pid), _)| leaders.insert(*pid))
            .map(|(_, said)| said)
            .collect()
    }

    /// Whether it was said after `version` that there is no `key`, or only one that a registry without it refused.
    pub(crate) fn gone_since(&self, cluster: usize, key: &ServiceKey, version: Version) -> bool {
        let said = self.said.get(&(cluster, key.clone()));
        said.is_some_and(|said| said.range((version, 0)..).any(|(_, said)| said.is_gone()))
    }
}
