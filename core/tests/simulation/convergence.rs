//! What must have come of a history once all faults are over: every live cluster shows what the live clusters export.

use crate::facts::{cluster_id, keys, place_of};
use crate::world::World;
use mcs_core::ids::{ClusterId, ServiceKey};
use mcs_core::merge::{Exported, merge};
use mcs_core::model::{Export, Group, MemberState, Port};
use mcs_core::outbox::Progress;
use mcs_core::registry::{Member, Registry};
use mcs_core::validate::check_export;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

impl World {
    /// The registry holds what the live clusters export, and every live cluster shows exactly that.
    pub(crate) fn check_convergence(&mut self, dead: Option<usize>) {
        let registry = self.registry();
        for place in 0..self.size {
            let id = cluster_id(place);
            let member = registry.member(&id);
            if Some(place) == dead {
                let state = member.map(Member::state);
                let is_gone = state.is_none_or(|state| state == MemberState::Expired);
                assert!(is_gone, "convergence: {id} is dead, but {state:?}");
                continue;
            }
            let member = member.unwrap_or_else(|| panic!("convergence: {id} is not known"));
            assert_eq!(place_of(member.uid()), place, "convergence: the holder of {id}");
            assert_eq!(member.state(), MemberState::Active, "convergence: {id}");
            self.check_held(place, member);
            self.invariant_08_owner_and_registry_agree(place, member);
        }
        for importer in (0..self.size).filter(|place| Some(*place) != dead) {
            for key in keys() {
                self.check_import(importer, key, dead);
            }
            let imports = &self.clusters[importer].imports;
            let unknown: Vec<_> = imports.keys().filter(|key| !keys().contains(key)).collect();
            assert!(unknown.is_empty(), "convergence: {unknown:?}");
        }
    }

    fn registry(&self) -> &Registry {
        &self.server.as_ref().expect("a registry").registry
    }

    /// Whether the leader of `place` was told that its export of `key` is refused as it is.
    fn is_refused(&self, place: usize, key: &ServiceKey) -> bool {
        let leader = self.leader(place).and_then(|pid| self.controllers.get(&pid));
        let progress = leader.and_then(|leader| leader.outbox.progress(key));
        matches!(progress, Some(Progress::Refused(_)))
    }

    /// Whether an export was refused for the limit of exports.
    pub(crate) fn is_any_left_out(&self) -> bool {
        let refused = |place| keys().iter().any(|key| self.is_refused(place, key));
        self.policy.max_exports < keys().len() && (0..self.size).any(refused)
    }

    /// What the registry holds of a cluster is what it exports, but for what is refused with reason.
    fn check_held(&self, place: usize, member: &Member) {
        for key in keys() {
            let exported = self.clusters[place].exports.get(key);
            let held =
                member.exports().get(key).map(|export| (export.spec.clone(), export.endpoints.clone()));
            match exported.filter(|_| self.is_refused(place, key)) {
                Some((spec, endpoints)) => {
                    let limited = self.policy.max_exports < keys().len();
                    let reason = limited || check_export(key, spec).is_err();
                    assert!(reason, "convergence: {key} of {} is refused", cluster_id(place));
                    // Under the definition that was taken before.
                    let current = held.is_none_or(|(_, held)| held == *endpoints);
                    assert!(current, "convergence: the endpoints of {key} of {}", cluster_id(place));
                }
                None => assert_eq!(held.as_ref(), exported, "convergence: {key} of {}", cluster_id(place)),
            }
        }
    }

    /// 8. What the owner says that it has is what the registry holds, by sum and version.
    fn invariant_08_owner_and_registry_agree(&self, place: usize, member: &Member) {
        let leader = self.leader(place).and_then(|pid| self.controllers.get(&pid));
        let renewed = leader.and_then(|leader| leader.renewed).expect("a renewal");
        assert_eq!((member.version(), member.sum()), renewed, "invariant 8: {}", cluster_id(place));
    }

    fn check_import(&self, importer: usize, key: &ServiceKey, dead: Option<usize>) {
        let home = &self.clusters[importer];
        let at = format!("convergence: {key} in {}", home.id);
        // An expired cluster's definition stays in the merge, so that no cluster IP changes.
        let members = self.registry().members();
        let held: BTreeMap<ClusterId, (&Member, &Export)> = members
            .filter_map(|(id, member)| Some((id.clone(), (member, member.exports().get(key)?))))
            .collect();
        let mut merged = BTreeMap::new();
        for (id, (member, export)) in &held {
            let exported = Exported { uid: member.uid(), version: export.version, spec: &export.spec };
            merged.insert(id.clone(), exported);
        }
        let Some(header) = merge(&merged) else {
            assert_eq!(home.imports.get(key), None, "{at}: no cluster exports it");
            return;
        };
        let existing = home.existing(key);
        let import = existing.import.as_ref().unwrap_or_else(|| panic!("{at}: there is no ServiceImport"));
        let (is, wanted) = (&import.spec, &header.definition);
        // Their order has no meaning.
        let ports = |ports: &[Port]| ports.iter().cloned().collect::<BTreeSet<_>>();
        assert_eq!(ports(&is.ports), ports(&wanted.ports), "{at}: ports");
        assert_eq!(is.service_type, wanted.service_type, "{at}: type");
        assert_eq!(is.session_affinity, wanted.session_affinity, "{at}: session affinity");
        let mut clusters = BTreeSet::new();
        let mut shown: BTreeMap<_, BTreeSet<IpAddr>> = BTreeMap::new();
        for place in (0..self.size).filter(|place| Some(*place) != dead) {
            let id = cluster_id(place);
            let Some((_, export)) = held.get(&id) else { continue };
            clusters.insert(id.clone());
            let participant = header.participants.iter().find(|part| part.cluster == id);
            let good = &participant.unwrap_or_else(|| panic!("{at}: {id} takes no part")).good_ports;
            for Group { key: group, members, .. } in export.endpoints.groups() {
                let usable =
                    group.ports.iter().any(|port| good.iter().any(|good| good.export_name == port.name));
                if usable {
                    shown.entry(id.clone()).or_default().extend(members.map(|(address, _)| address));
                }
            }
        }
        let mut applied: BTreeMap<_, BTreeSet<IpAddr>> = BTreeMap::new();
        for slice in &existing.slices {
            let source = slice.source.clone().expect("a source");
            applied.entry(source).or_default().extend(slice.endpoints.keys());
        }
        assert_eq!(import.status.clusters, clusters, "{at}: status.clusters");
        assert_eq!(applied, shown, "{at}: endpoints");
    }
}
