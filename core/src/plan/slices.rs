//! The imported EndpointSlices: one source cluster, one address family and one port list in each.

use super::slots::{self, Slots};
use super::{
    Entries, Identity, ImportObject, ImportSpec, ImportedSlice, Kind, Ownership, PlanConfig, Problem,
    SliceEndpoint, SliceKeeper, Step, WantedSlice, derived, want,
};
use crate::ids::{ClusterId, ServiceKey};
use crate::merge::imported;
use crate::model::{Endpoint, EndpointSet, GoodPort, Group, GroupKey};
use crate::names;
use crate::view::{Shown, Source};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The import that slices are made for.
pub(super) struct Target<'a> {
    pub(super) key: &'a ServiceKey,
    pub(super) import: &'a ImportObject,
    pub(super) spec: &'a ImportSpec,
    /// Whether `spec` is what exists, rather than the merge that port names come from.
    pub(super) from_import: bool,
    pub(super) config: &'a PlanConfig,
}

/// The slices of one group by slot.
type BySlot<'a> = BTreeMap<u32, &'a ImportedSlice>;

/// Slices that Kubernetes made for the derived Service while it had a selector.
pub(super) fn left_by_kubernetes(slices: &[ImportedSlice]) -> Vec<Identity> {
    let left = slices.iter().filter(|slice| {
        slice.keeper == SliceKeeper::Kubernetes
            && slice.meta.ownership != Ownership::Ours
            && !slice.meta.deleting
    });
    left.map(|slice| slice.meta.identity.clone()).collect()
}

impl Target<'_> {
    /// The steps from `existing` to `sources`: what is made and changed first, so that an endpoint that moves is never
    /// missing, then what goes.
    pub(super) fn steps(
        &self,
        sources: &BTreeMap<ClusterId, Source>,
        existing: &[ImportedSlice],
    ) -> Vec<Step> {
        let derived = derived(self.key);
        let mut groups: BTreeMap<&str, BySlot<'_>> = BTreeMap::new();
        for slice in existing {
            if let Some((prefix, slot)) = split_name(&slice.meta.identity.name) {
                groups.entry(prefix).or_default().insert(slot, slice);
            }
        }
        let mut kept = BTreeSet::new();
        let mut steps = Vec::new();
        for (cluster, source) in sources {
            let shown = match source {
                Source::Show(shown) if self.names_fit(&shown.good_ports) => shown,
                Source::Show(_) | Source::Keep => continue,
            };
            for Group { key, members, .. } in self.imported(shown).groups() {
                let (group, endpoints) = (&key, &members.collect::<BTreeMap<_, _>>());
                let name = |slot| names::slice_name(&derived, cluster, group, slot);
                let first = name(0);
                let here = split_name(&first).and_then(|(prefix, _)| groups.get(prefix));
                let here = here.unwrap_or(const { &BySlot::new() });
                let writable =
                    |slice: &ImportedSlice| slice.meta.ownership == Ownership::Ours && !slice.meta.deleting;
                let blocked = here.iter().filter(|(_, slice)| !writable(slice));
                let blocked: BTreeSet<u32> = blocked.map(|(slot, _)| *slot).collect();
                let foreign = here.values().filter(|slice| slice.meta.ownership != Ownership::Ours);
                steps.extend(foreign.map(|slice| {
                    let name = slice.meta.identity.name.clone();
                    Step::Report(Problem::Foreign { kind: Kind::EndpointSlice, name })
                }));
                let members: Slots = here
                    .iter()
                    .map(|(slot, slice)| (*slot, slice.endpoints.keys().copied().collect()))
                    .collect();
                for (slot, addresses) in slots::assign(&members, &blocked, endpoints.keys().copied()) {
                    let wanted = self.slice(name(slot), cluster, shown, group, endpoints, &addresses);
                    kept.insert(wanted.name.clone());
                    match here.get(&slot) {
                        None => steps.push(Step::CreateSlice(wanted)),
                        Some(slice) if differs(slice, &wanted) => {
                            steps.push(Step::UpdateSlice { base: slice.meta.identity.clone(), wanted });
                        }
                        Some(_) => {}
                    }
                }
            }
        }
        let all_shown = sources.values().all(|source| match source {
            Source::Show(shown) => self.names_fit(&shown.good_ports),
            Source::Keep => false,
        });
        let untouched = |slice: &&ImportedSlice| {
            let source = slice.source.as_ref();
            match source.and_then(|cluster| sources.get(cluster)) {
                Some(Source::Keep) => true,
                Some(Source::Show(shown)) => !self.names_fit(&shown.good_ports),
                // Without the label it may be a slice of a cluster that is kept.
                None => source.is_none() && !all_shown,
            }
        };
        let goes = existing.iter().filter(|slice| {
            slice.meta.ownership == Ownership::Ours
                && !slice.meta.deleting
                && !kept.contains(&slice.meta.identity.name)
                && !untouched(slice)
        });
        steps.extend(goes.map(|slice| Step::DeleteSlice(slice.meta.identity.clone())));
        steps
    }

    /// Whether the ports of a source are named as in the import. They always are where both come from one merge; where
    /// the import's fields stay as they are, a source that is named otherwise must wait.
    fn names_fit(&self, good_ports: &[GoodPort]) -> bool {
        let named = |good: &GoodPort| self.spec.ports.iter().any(|port| port.name == good.import_name);
        !self.from_import || good_ports.iter().all(named)
    }

    /// The endpoints of a source as they are imported: of the families that the import has here, with those ports that
    /// the source defines as the import does, by the names that they have in the import.
    fn imported<'b>(&self, shown: &'b Shown) -> Cow<'b, EndpointSet> {
        let families = want::served(&self.spec.ip_families, self.config);
        let any_port = !self.spec.ports.is_empty();
        imported(&shown.endpoints, &shown.good_ports, any_port, |family| families.contains(&family))
    }

    fn slice(
        &self,
        name: String,
        cluster: &ClusterId,
        shown: &Shown,
        group: &GroupKey,
        endpoints: &BTreeMap<IpAddr, Endpoint>,
        addresses: &BTreeSet<IpAddr>,
    ) -> WantedSlice {
        let mut labels = Entries::from([
            (names::LABEL_SERVICE_NAME.to_owned(), self.key.name.to_string()),
            (names::LABEL_SOURCE_CLUSTER.to_owned(), cluster.to_string()),
            (names::LABEL_SLICE_SERVICE.to_owned(), derived(self.key)),
            (names::LABEL_SLICE_MANAGED_BY.to_owned(), names::MANAGED_BY.to_owned()),
        ]);
        let region = shown.region.as_ref();
        labels.extend(region.map(|region| (names::LABEL_REGION.to_owned(), region.to_string())));
        let mut annotations = Entries::new();
        let uid = shown.uid.as_ref();
        annotations.extend(uid.map(|uid| (names::ANNOTATION_SOURCE_UID.to_owned(), uid.to_string())));
        let version = shown.version;
        annotations.extend(
            version.map(|version| (names::ANNOTATION_SOURCE_VERSION.to_owned(), version.to_string())),
        );
        want::mark(&mut labels, &mut annotations, self.config);
        let local = *cluster == self.config.cluster;
        let found = addresses.iter().filter_map(|address| Some((*address, endpoints.get(address)?)));
        let endpoints = found.map(|(address, endpoint)| (address, self.endpoint(endpoint, local)));
        WantedSlice {
            name,
            labels,
            annotations,
            owner: self.import.meta.identity.uid.clone(),
            family: group.family,
            ports: group.ports.to_vec(),
            endpoints: endpoints.collect(),
        }
    }

    /// An endpoint with its hints. The node is named for local endpoints only, since an equal name elsewhere would
    /// count as local.
    fn endpoint(&self, endpoint: &Endpoint, local: bool) -> SliceEndpoint {
        let node_name = endpoint.node_name.clone().filter(|_| local);
        let (by_zone, by_node) = match self.spec.traffic_distribution.as_deref() {
            Some("PreferClose" | "PreferSameZone") => (true, false),
            Some("PreferSameNode") => (true, self.config.node_hints_kept),
            _ => (false, false),
        };
        SliceEndpoint {
            zone_hint: endpoint.zone.clone().filter(|_| by_zone),
            node_hint: node_name.clone().filter(|_| by_node),
            endpoint: Endpoint { node_name, ..endpoint.clone() },
        }
    }
}

/// Whether a slice must be written. Its version annotation says when its content changed last, so a version that moved
/// on without a change of content is no difference.
fn differs(slice: &ImportedSlice, wanted: &WantedSlice) -> bool {
    let mut annotations = wanted.annotations.clone();
    if let (Some(wanted), Some(is)) = (
        annotations.get_mut(names::ANNOTATION_SOURCE_VERSION),
        slice.meta.annotations.get(names::ANNOTATION_SOURCE_VERSION),
    ) {
        wanted.clone_from(is);
    }
    slice.stray
        || want::marks_differ(&slice.meta, &wanted.labels, &annotations, &wanted.owner)
        || slice.group != GroupKey::new(wanted.family, wanted.ports.iter().cloned())
        || slice.endpoints != wanted.endpoints
}

/// The parts of a slice's name before and after the last `-`. They tell its slot, never whose it is.
fn split_name(name: &str) -> Option<(&str, u32)> {
    let (prefix, slot) = name.rsplit_once('-')?;
    let number = slot.parse().ok()?;
    (slot == u32::to_string(&number)).then_some((prefix, number))
}
