//! What must have come of a history once all faults are over: every live cluster shows what the live clusters export.

use crate::facts::{cluster_id, keys};
use crate::world::World;
use mcs_core::ids::ServiceKey;
use mcs_core::merge::merge;
use mcs_core::model::MemberState;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

impl World {
    /// The registry holds what the live clusters export, and every live cluster shows exactly that.
    pub(crate) fn check_convergence(&mut self, dead: Option<usize>) {
        let registry = &self.server.as_ref().expect("a registry").registry;
        for (index, cluster) in self.clusters[..self.size].iter().enumerate() {
            let member = registry.member(&cluster.id);
            if Some(index) == dead {
                let state = member.map(|member| member.state());
                assert!(
                    state.is_none_or(|state| state == MemberState::Expired),
                    "{} is dead, but {state:?}",
                    cluster.id
                );
                continue;
            }
            let member = member.unwrap_or_else(|| panic!("convergence: {} is not known", cluster.id));
            assert_eq!(member.state(), MemberState::Active, "convergence: {}", cluster.id);
            let held: BTreeMap<ServiceKey, _> = member
                .exports()
                .iter()
                .map(|(key, export)| (key.clone(), (export.spec.clone(), export.endpoints.clone())))
                .collect();
            assert_eq!(held, cluster.exports, "convergence: the exports of {}", cluster.id);
        }
        for (index, importer) in
            self.clusters[..self.size].iter().enumerate().filter(|(index, _)| Some(*index) != dead)
        {
            for key in keys() {
                self.check_import(index, key, dead);
            }
            let unknown: Vec<_> = importer.imports.keys().filter(|key| !keys().contains(key)).collect();
            assert!(unknown.is_empty(), "convergence: {unknown:?}");
        }
    }

    fn check_import(&self, importer: usize, key: &ServiceKey, dead: Option<usize>) {
        let registry = &self.server.as_ref().expect("a registry").registry;
        let home = &self.clusters[importer];
        let place = format!("convergence: {key} in {}", home.id);
        // An expired cluster's definition stays in the merge, so that no cluster IP changes.
        let merged: BTreeMap<_, _> = registry
            .members()
            .filter_map(|(cluster, member)| {
                let export = member.exports().get(key)?;
                Some((cluster.clone(), (export.version, &*export.spec)))
            })
            .collect();
        let Some(header) = merge(&merged) else {
            assert_eq!(home.imports.get(key), None, "{place}: no cluster exports it");
            return;
        };
        let existing = home.existing(key);
        let import = existing.import.as_ref().unwrap_or_else(|| panic!("{place}: there is no ServiceImport"));
        assert_eq!(import.spec.ports, header.definition.ports, "{place}: ports");
        assert_eq!(import.spec.service_type, header.definition.service_type, "{place}: type");
        let mut clusters = BTreeSet::new();
        let mut shown: BTreeMap<_, BTreeSet<IpAddr>> = BTreeMap::new();
        for index in (0..self.size).filter(|index| Some(*index) != dead) {
            let Some((_, endpoints)) = self.clusters[index].exports.get(key) else { continue };
            clusters.insert(cluster_id(index));
            let participant = header.participants.iter().find(|part| part.cluster == cluster_id(index));
            let good = &participant.unwrap_or_else(|| panic!("{place}: {index} takes no part")).good_ports;
            for (group, members) in endpoints.groups() {
                let usable =
                    group.ports.iter().any(|port| good.iter().any(|good| good.export_name == port.name));
                if usable {
                    shown.entry(cluster_id(index)).or_default().extend(members.keys());
                }
            }
        }
        assert_eq!(import.status.clusters, clusters, "{place}: status.clusters");
        let mut applied: BTreeMap<_, BTreeSet<IpAddr>> = BTreeMap::new();
        for slice in &existing.slices {
            let source = slice.source.clone().expect("a source");
            applied.entry(source).or_default().extend(slice.endpoints.keys());
        }
        assert_eq!(applied, shown, "{place}: endpoints");
    }
}
