//! What every leader has said of its cluster, by version: the truth that contents are compared with.

use mcs_core::ids::ServiceKey;
use mcs_core::model::EndpointSet;
use mcs_core::version::{Leaf, Version};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What was said of one export; none when it was said not to exist.
pub(crate) type Said = Option<(Leaf, Arc<EndpointSet>)>;

#[derive(Default)]
pub(crate) struct Book {
    said: BTreeMap<(usize, ServiceKey), BTreeMap<Version, Said>>,
}

impl Book {
    /// The leader of `cluster` says `said` of `key` in its act of `version`.
    pub(crate) fn say(&mut self, cluster: usize, key: &ServiceKey, version: Version, said: Said) {
        self.said.entry((cluster, key.clone())).or_default().insert(version, said);
    }

    /// What holds of `key` as of `version`: what was said last, up to it.
    pub(crate) fn as_of(&self, cluster: usize, key: &ServiceKey, version: Version) -> Option<&Said> {
        let (_, said) = self.said.get(&(cluster, key.clone()))?.range(..=version).next_back()?;
        Some(said)
    }

    /// Whether it was said after `version` that there is no `key`.
    pub(crate) fn gone_since(&self, cluster: usize, key: &ServiceKey, version: Version) -> bool {
        let said = self.said.get(&(cluster, key.clone()));
        said.is_some_and(|said| said.range(version..).any(|(_, said)| said.is_none()))
    }
}
