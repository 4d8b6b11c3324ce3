//! Which clusters export a Service, and what their exports merge into.
//!
//! The merge is a function of the definitions, so its result is told and not held: a digest says whether it is another
//! one, and who asks for it has it made.

use crate::ids::{ClusterId, ClusterUid, ServiceKey};
use crate::merge::{Exported, merge};
use crate::model::{ExportSpec, Header};
use crate::version::{Version, digest};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// All Services that a member exports.
#[derive(Debug, Default)]
pub(super) struct Services {
    by_key: BTreeMap<ServiceKey, Service>,
    /// How many of them have a header.
    imports: usize,
    /// How many of the headers name a conflict.
    conflicts: usize,
}

#[derive(Debug, Default)]
struct Service {
    /// By cluster; seldom more than a few.
    exports: Vec<(ClusterId, Definition)>,
    told: Option<Told>,
}

/// What was told of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    digest: [u8; 16],
    conflicts: bool,
}

#[derive(Debug)]
struct Definition {
    uid: ClusterUid,
    /// The act that made the definition what it is; later acts that changed endpoints only do not count, so that the
    /// merge is a function of the definitions alone.
    version: Version,
    spec: Arc<ExportSpec>,
}

/// What a merge changed.
#[derive(Debug)]
pub(super) enum Merged {
    /// Nothing.
    Same,
    /// The header is new or another one.
    Header(Header),
    /// No export counts any more.
    Gone,
}

impl Service {
    fn place(&self, cluster: &ClusterId) -> Result<usize, usize> {
        self.exports.binary_search_by(|(one, _)| one.cmp(cluster))
    }

    fn header(&self, counts: impl Fn(&ClusterId) -> bool) -> Option<Header> {
        let counted = self.exports.iter().filter(|(cluster, _)| counts(cluster));
        let counted = counted
            .map(|(cluster, Definition { uid, version, spec })| {
                (cluster.clone(), Exported { uid, version: *version, spec })
            })
            .collect();
        merge(&counted)
    }
}

impl Services {
    pub(super) fn put(
        &mut self,
        key: &ServiceKey,
        cluster: &ClusterId,
        uid: &ClusterUid,
        version: Version,
        spec: Arc<ExportSpec>,
    ) {
        let service = self.by_key.entry(key.clone()).or_default();
        let definition = Definition { uid: uid.clone(), version, spec };
        match service.place(cluster) {
            Ok(place) => service.exports[place].1 = definition,
            Err(place) => {
                service.exports.reserve_exact(1);
                service.exports.insert(place, (cluster.clone(), definition));
            }
        }
    }

    pub(super) fn delete(&mut self, key: &ServiceKey, cluster: &ClusterId) {
        if let Some(service) = self.by_key.get_mut(key)
            && let Ok(place) = service.place(cluster)
        {
            service.exports.remove(place);
        }
    }

    /// Merges one Service anew from the exports of the clusters that count.
    pub(super) fn merge(&mut self, key: &ServiceKey, counts: impl Fn(&ClusterId) -> bool) -> Merged {
        let Some(service) = self.by_key.get_mut(key) else { return Merged::Same };
        let header = service.header(counts);
        let before = service.told;
        service.told = header
            .as_ref()
            .map(|header| Told { digest: digest(header), conflicts: !header.conflicts.is_empty() });
        let conflicts = |told: Option<Told>| usize::from(told.is_some_and(|told| told.conflicts));
        self.imports = self.imports + usize::from(service.told.is_some()) - usize::from(before.is_some());
        self.conflicts = self.conflicts + conflicts(service.told) - conflicts(before);
        let merged = match header {
            _ if service.told == before => Merged::Same,
            Some(header) => Merged::Header(header),
            None => Merged::Gone,
        };
        if service.exports.is_empty() {
            self.by_key.remove(key);
        }
        merged
    }

    /// How many Services are imported.
    pub(super) const fn imports(&self) -> usize {
        self.imports
    }

    /// On how many of them the exports differ.
    pub(super) const fn conflicts(&self) -> usize {
        self.conflicts
    }

    /// The Services that are imported, from a key on or all.
    pub(super) fn imported(&self, from: Option<&ServiceKey>) -> impl Iterator<Item = &ServiceKey> {
        self.from(from).filter(|(_, service)| service.told.is_some()).map(|(key, _)| key)
    }

    /// What the exports of the clusters that count merge into.
    pub(super) fn header(&self, key: &ServiceKey, counts: impl Fn(&ClusterId) -> bool) -> Option<Header> {
        self.by_key.get(key)?.header(counts)
    }

    /// The exports from a key on, or all, by Service and cluster.
    pub(super) fn exports(
        &self,
        from: Option<&ServiceKey>,
    ) -> impl Iterator<Item = (&ServiceKey, &ClusterId)> {
        self.from(from)
            .flat_map(|(key, service)| service.exports.iter().map(move |(cluster, _)| (key, cluster)))
    }

    fn from(&self, from: Option<&ServiceKey>) -> impl Iterator<Item = (&ServiceKey, &Service)> {
        self.by_key.range((from.map_or(Bound::Unbounded, Bound::Included), Bound::Unbounded))
    }
}
