//! Which clusters export a Service, and what their exports merge into.

use crate::ids::{ClusterId, ClusterUid, ServiceKey};
use crate::merge::{Exported, merge};
use crate::model::{ExportSpec, Header};
use crate::version::Version;
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
    exports: BTreeMap<ClusterId, Definition>,
    header: Option<Arc<Header>>,
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
    Header(Arc<Header>),
    /// No export counts any more.
    Gone,
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
        service.exports.insert(cluster.clone(), Definition { uid: uid.clone(), version, spec });
    }

    pub(super) fn delete(&mut self, key: &ServiceKey, cluster: &ClusterId) {
        if let Some(service) = self.by_key.get_mut(key) {
            service.exports.remove(cluster);
        }
    }

    /// Merges one Service anew from the exports of the clusters that count.
    pub(super) fn merge(&mut self, key: &ServiceKey, counts: impl Fn(&ClusterId) -> bool) -> Merged {
        let Some(service) = self.by_key.get_mut(key) else { return Merged::Same };
        let counted: BTreeMap<ClusterId, Exported<'_>> = service
            .exports
            .iter()
            .filter(|(cluster, _)| counts(cluster))
            .map(|(cluster, Definition { uid, version, spec })| {
                (cluster.clone(), Exported { uid, version: *version, spec })
            })
            .collect();
        let header = merge(&counted);
        let merged = match (&service.header, header) {
            (Some(known), Some(header)) if **known == header => Merged::Same,
            (_, Some(header)) => Merged::Header(Arc::new(header)),
            (Some(_), None) => Merged::Gone,
            (None, None) => Merged::Same,
        };
        let header = match &merged {
            Merged::Same => service.header.clone(),
            Merged::Header(header) => Some(Arc::clone(header)),
            Merged::Gone => None,
        };
        let conflicts = |header: &Option<Arc<Header>>| {
            usize::from(header.as_ref().is_some_and(|header| !header.conflicts.is_empty()))
        };
        self.imports = self.imports + usize::from(header.is_some()) - usize::from(service.header.is_some());
        self.conflicts = self.conflicts + conflicts(&header) - conflicts(&service.header);
        service.header = header;
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

    /// The merged Services from a key on, or all.
    pub(super) fn headers(
        &self,
        from: Option<&ServiceKey>,
    ) -> impl Iterator<Item = (&ServiceKey, &Arc<Header>)> {
        self.from(from).filter_map(|(key, service)| Some((key, service.header.as_ref()?)))
    }

    /// The exports from a key on, or all, by Service and cluster.
    pub(super) fn exports(
        &self,
        from: Option<&ServiceKey>,
    ) -> impl Iterator<Item = (&ServiceKey, &ClusterId)> {
        self.from(from).flat_map(|(key, service)| service.exports.keys().map(move |cluster| (key, cluster)))
    }

    fn from(&self, from: Option<&ServiceKey>) -> impl Iterator<Item = (&ServiceKey, &Service)> {
        self.by_key.range((from.map_or(Bound::Unbounded, Bound::Included), Bound::Unbounded))
    }
}
