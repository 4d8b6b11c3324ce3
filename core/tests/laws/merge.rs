//! Properties of the merge.

use crate::build::{any_export, any_exports, cluster, merge_owned};
use mcs_core::ids::ClusterId;
use mcs_core::model::{Conflict, ConflictField, ExportSpec, Header, IpFamily, Port};
use mcs_core::time::WallTime;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

type Exports = BTreeMap<ClusterId, ExportSpec>;

proptest! {
    #[test]
    fn the_oldest_export_decides_and_equal_ages_are_ordered_by_cluster(exports in any_exports()) {
        let (winner, oldest) = exports.iter().min_by_key(|(id, spec)| (spec.created_at, *id)).unwrap();
        let Header { definition, conflicts, .. } = merge_owned(&exports);
        prop_assert_eq!(definition.service_type, oldest.service_type);
        prop_assert_eq!(definition.session_affinity, oldest.session_affinity);
        prop_assert_eq!(definition.session_affinity_timeout, oldest.session_affinity_timeout);
        prop_assert_eq!(definition.internal_traffic_policy, oldest.internal_traffic_policy);
        prop_assert_eq!(&definition.traffic_distribution, &oldest.traffic_distribution);
        prop_assert_eq!(&definition.labels, &oldest.labels);
        prop_assert_eq!(&definition.annotations, &oldest.annotations);
        prop_assert!(conflicts.iter().all(|conflict| conflict.winner == *winner));
    }

    #[test]
    fn with_distinct_ages_the_names_of_the_clusters_do_not_matter(
        specs in vec(any_export(), 1..6),
        names in Just(vec!["a", "b", "c", "d", "e"]).prop_shuffle(),
    ) {
        let aged = |(spec, age): (&ExportSpec, i64)| {
            ExportSpec { created_at: WallTime::from_unix_secs(age), ..spec.clone() }
        };
        let specs: Vec<ExportSpec> = specs.iter().zip(0..).map(aged).collect();
        let named = |names: &[&str]| -> Header {
            merge_owned(&names.iter().map(|name| cluster(name)).zip(specs.clone()).collect())
        };
        let (header, renamed) = (named(&["a", "b", "c", "d", "e"]), named(&names));
        prop_assert_eq!(&header.definition, &renamed.definition);
        let counted = |header: &Header| -> Vec<_> {
            header.conflicts.iter().map(|conflict| (conflict.field, conflict.differing)).collect()
        };
        prop_assert_eq!(counted(&header), counted(&renamed));
        let mut good: Vec<_> = header.participants.into_iter().map(|of| of.good_ports).collect();
        let mut good_renamed: Vec<_> = renamed.participants.into_iter().map(|of| of.good_ports).collect();
        good.sort();
        good_renamed.sort();
        prop_assert_eq!(good, good_renamed);
    }

    #[test]
    fn no_two_ports_of_an_import_share_a_name_or_a_number(exports in any_exports()) {
        let ports = merge_owned(&exports).definition.ports;
        let names: BTreeSet<_> = ports.iter().map(|port| &port.name).collect();
        let numbers: BTreeSet<_> = ports.iter().map(|port| (port.protocol, port.port)).collect();
        prop_assert_eq!((names.len(), numbers.len()), (ports.len(), ports.len()));
        prop_assert!(ports.len() == 1 || ports.iter().all(|port| !port.name.is_empty()));
    }

    #[test]
    fn every_port_of_every_export_is_in_the_import_or_clashes_with_one_that_is(exports in any_exports()) {
        let import = merge_owned(&exports).definition.ports;
        for port in exports.values().flat_map(|spec| &spec.ports) {
            let clashes = |of: &Port| {
                of.name == port.name || of.name == default_name(port) || number(of) == number(port)
            };
            // One that matches an unnamed port goes with it where that is left out for its name.
            let lost = exports.values().flat_map(|spec| &spec.ports).any(|other| {
                other.name.is_empty()
                    && number(other) == number(port)
                    && import.iter().any(|of| of.name == default_name(other))
            });
            prop_assert!(import.iter().any(clashes) || lost, "{:?} is lost from {:?}", port, import);
        }
    }

    #[test]
    fn there_is_a_conflict_if_and_only_if_two_exports_differ(exports in any_exports()) {
        let header = merge_owned(&exports);
        let winner = exports.iter().min_by_key(|(id, spec)| (spec.created_at, *id)).unwrap().0;
        let expected: Vec<Conflict> = ConflictField::ALL
            .into_iter()
            .filter_map(|field| {
                let values: Vec<String> = exports.values().map(|spec| value(field, spec)).collect();
                let decided = value(field, &exports[winner]);
                let differing = values.iter().filter(|value| **value != decided).count() as u32;
                let any = values.iter().any(|value| *value != values[0]);
                let clusters = exports.len() as u32;
                any.then(|| Conflict { field, winner: winner.clone(), differing, clusters })
            })
            .collect();
        prop_assert_eq!(header.conflicts, expected);
    }

    #[test]
    fn a_good_port_is_a_port_of_the_import_that_the_cluster_defines_identically(exports in any_exports()) {
        let header = merge_owned(&exports);
        let several = header.definition.ports.len() > 1;
        let participants: Vec<_> = header.participants.iter().map(|of| &of.cluster).collect();
        prop_assert_eq!(participants, exports.keys().collect::<Vec<_>>());
        for participant in &header.participants {
            let own = &exports[&participant.cluster].ports;
            let expected: Vec<_> = header.definition.ports.iter().filter_map(|import| {
                let called = |own: &Port| match own.name.as_str() {
                    "" if several => default_name(own),
                    name => name.to_owned(),
                };
                let own = own.iter().find(|own| Port { name: called(own), ..(*own).clone() } == *import)?;
                Some((import.name.as_str(), own.name.as_str()))
            }).collect();
            let good: Vec<_> = participant
                .good_ports
                .iter()
                .map(|good| (good.import_name.as_str(), good.export_name.as_str()))
                .collect();
            prop_assert_eq!(good, expected);
        }
    }

    #[test]
    fn one_more_equal_export_changes_participants_and_counts_alone(exports in any_exports()) {
        let winner = exports.iter().min_by_key(|(id, spec)| (spec.created_at, *id)).unwrap();
        let before = merge_owned(&exports);
        let mut more: Exports = exports.clone();
        more.insert(cluster("z"), winner.1.clone());
        let after = merge_owned(&more);
        prop_assert_eq!(&after.definition, &before.definition);
        prop_assert_eq!(&after.participants[..exports.len()], &before.participants[..]);
        let good_of = |header: &Header, id: &ClusterId| {
            header.participants.iter().find(|of| of.cluster == *id).map(|of| of.good_ports.clone())
        };
        prop_assert_eq!(good_of(&after, &cluster("z")), good_of(&before, winner.0));
        let with_one_more = |conflict: Conflict| Conflict { clusters: conflict.clusters + 1, ..conflict };
        let expected: Vec<_> = before.conflicts.into_iter().map(with_one_more).collect();
        prop_assert_eq!(after.conflicts, expected);
    }

    /// O17.
    #[test]
    fn the_families_are_those_of_all_exports_or_else_the_oldest_ones(exports in any_exports()) {
        let oldest = exports.iter().min_by_key(|(id, spec)| (spec.created_at, *id)).unwrap().1;
        let common: BTreeSet<IpFamily> = [IpFamily::V4, IpFamily::V6]
            .into_iter()
            .filter(|family| exports.values().all(|spec| spec.ip_families.contains(family)))
            .collect();
        let mut expected = oldest.ip_families.clone();
        if !common.is_empty() {
            expected.retain(|family| common.contains(family));
        }
        prop_assert_eq!(merge_owned(&exports).definition.ip_families, expected);
    }
}

fn number(port: &Port) -> (mcs_core::model::Protocol, u16) {
    (port.protocol, port.port)
}

fn default_name(port: &Port) -> String {
    format!("{}-{}", port.protocol.as_str().to_lowercase(), port.port)
}

/// A field of an export as text, by which it is compared.
fn value(field: ConflictField, spec: &ExportSpec) -> String {
    match field {
        ConflictField::Ports => format!("{:?}", spec.ports.iter().collect::<BTreeSet<_>>()),
        ConflictField::Type => format!("{:?}", spec.service_type),
        ConflictField::SessionAffinity => format!("{:?}", spec.session_affinity),
        ConflictField::SessionAffinityConfig => format!("{:?}", spec.session_affinity_timeout),
        ConflictField::InternalTrafficPolicy => format!("{:?}", spec.internal_traffic_policy),
        ConflictField::TrafficDistribution => format!("{:?}", spec.traffic_distribution),
        ConflictField::Labels => format!("{:?}", spec.labels),
        ConflictField::Annotations => format!("{:?}", spec.annotations),
        ConflictField::IpFamily => format!("{:?}", spec.ip_families),
    }
}
