//! What is logged of what was refused: with its cluster, and few lines whatever a caller does.
//!
//! What a client sent is shown as one line of printable characters, cut where it is long.

use std::collections::BTreeMap;

use mcs_core::ids::ClusterId;
use mcs_core::rate::Rate;
use mcs_core::registry::{Refused, Registry};
use mcs_core::text::shown;
use mcs_core::time::Timestamp;
use mcs_core::version::Version;
use mcs_proto::pb;
use mcs_runtime::logs::Sparse;
use tracing::warn;

use crate::clusterset::Clusterset;
use crate::service::Outcome;

/// So many lines of one cluster: enough to see each refusal of a cluster that is put right by hand, and no more than a
/// log can bear of one that errs a thousand times a second.
const LINES: Rate = Rate::per_second(1).with_burst(10);

/// The most characters of a name, an address or a problem.
const SHOWN: usize = 200;

/// Which lines were written lately.
#[derive(Debug)]
pub(crate) struct Refusals {
    members: BTreeMap<ClusterId, Sparse>,
    /// Of clusters that are no members; anybody can make up one more.
    others: Sparse,
}

impl Default for Refusals {
    fn default() -> Self {
        Self { members: BTreeMap::new(), others: Sparse::new(LINES) }
    }
}

impl Refusals {
    /// Whether there is to be one more line about a cluster; how many were left out before it, if some were.
    fn due(&mut self, cluster: &ClusterId, registry: &Registry, now: Timestamp) -> Option<Option<u64>> {
        if registry.member(cluster).is_none() {
            return self.others.due(now);
        }
        if !self.members.contains_key(cluster) {
            self.members.retain(|known, _| registry.member(known).is_some());
        }
        self.members.entry(cluster.clone()).or_insert_with(|| Sparse::new(LINES)).due(now)
    }
}

impl Clusterset {
    fn one_more_line(&self, cluster: &ClusterId) -> Option<Option<u64>> {
        let now = self.clock().elapsed();
        self.refusals(|refusals, registry| refusals.due(cluster, registry, now))
    }

    /// Logs that a call of a cluster was refused as a whole, if it was. That one is not registered is its own answer: it
    /// registers.
    pub(crate) fn unless_refused<T>(
        &self,
        cluster: &ClusterId,
        call: &'static str,
        answer: Result<T, Refused>,
    ) -> Result<T, Refused> {
        if let Err(refused) = &answer
            && !matches!(refused, Refused::Unknown { .. })
            && let Some(unsaid) = self.one_more_line(cluster)
        {
            warn!(clusterset = %self.id(), %cluster, call, %refused, unsaid, "call refused");
        }
        answer
    }

    /// Logs what of a write was refused and left out, if something was: how much, and the first of it.
    pub(crate) fn log_outcomes(
        &self,
        cluster: &ClusterId,
        version: Version,
        outcomes: &[(pb::ServiceKey, Outcome)],
        left_out: usize,
    ) {
        let export = |key: &pb::ServiceKey| shown(&format!("{}/{}", key.namespace, key.name), SHOWN);
        let mut refused = outcomes.iter().filter_map(|(key, outcome)| Some((key, outcome.as_ref().err()?)));
        if let Some((key, refusal)) = refused.next()
            && let Some(unsaid) = self.one_more_line(cluster)
        {
            warn!(
                clusterset = %self.id(), %cluster, %version, exports = 1 + refused.count(), first = %export(key),
                field = %shown(&refusal.field, SHOWN), problem = %shown(&refusal.problem, SHOWN), unsaid,
                "exports refused"
            );
        }
        let mut dropped =
            outcomes.iter().filter_map(|(key, outcome)| Some((key, outcome.as_ref().ok()?.first()?)));
        if let Some((key, dropped)) = dropped.next()
            && let Some(unsaid) = self.one_more_line(cluster)
        {
            warn!(
                clusterset = %self.id(), %cluster, %version, endpoints = left_out, first = %shown(&dropped.address, SHOWN),
                export = %export(key), field = %shown(&dropped.field, SHOWN), problem = %shown(&dropped.problem, SHOWN),
                unsaid, "endpoints left out"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use mcs_core::ids::{Build, ClusterUid, Epoch, Instance};
    use mcs_core::registry::{Policy, Registration};
    use mcs_core::timing::DEFAULT_LEASE;
    use mcs_core::version::Sum;

    use super::*;

    #[test]
    fn a_cluster_has_ten_lines_at_once_and_then_one_a_second() {
        let registry = registry(&["east", "west"]);
        let mut refusals = Refusals::default();
        let mut lines = |cluster: &str, millis: u64, calls: usize| {
            let at = Timestamp::from_millis(millis);
            (0..calls).filter_map(|_| refusals.due(&id(cluster), &registry, at)).collect::<Vec<_>>()
        };
        assert_eq!(lines("east", 0, 12), [None; 10]);
        assert_eq!(lines("west", 0, 1), [None], "another cluster has its own");
        assert_eq!(lines("east", 999, 1), [None; 0]);
        assert_eq!(lines("east", 1_000, 2), [Some(3)]);
    }

    #[test]
    fn clusters_that_are_no_members_share_their_lines() {
        let registry = registry(&["east"]);
        let mut refusals = Refusals::default();
        let lines = (0..20)
            .filter_map(|number| refusals.due(&id(&format!("made-up-{number}")), &registry, Timestamp::ZERO));
        assert_eq!(lines.count(), 10);
        assert_eq!(refusals.members.len(), 0);
    }

    fn id(cluster: &str) -> ClusterId {
        ClusterId::new(cluster).unwrap()
    }

    fn registry(clusters: &[&str]) -> Registry {
        let mut registry = Registry::new(Policy::of_lease(DEFAULT_LEASE), Epoch(1), Timestamp::ZERO);
        for cluster in clusters {
            let registration = Registration {
                uid: ClusterUid::new("u-1").unwrap(),
                region: None,
                instance: Instance::default(),
                build: Build::default(),
                version: Version::new(1, 1),
                sum: Sum::EMPTY,
            };
            registry.register(&id(cluster), registration, Timestamp::ZERO).unwrap();
        }
        registry
    }
}
