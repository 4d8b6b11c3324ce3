//! Names of objects fit whatever they stand for.

use crate::build::{cluster, key};
use mcs_core::ids::{ServiceKey, check_dns_label};
use mcs_core::model::{EndpointPort, GroupKey, IpFamily};
use mcs_core::names::{derived_service_name, slice_name};
use proptest::prelude::*;

#[test]
fn a_derived_service_has_ten_base32hex_characters_of_the_hash_of_its_key() {
    assert_eq!(derived_service_name(&key()), "derived-bsqa4s8pq5");
}

/// O27.
#[test]
fn names_of_63_characters_give_labels_that_do_not_end_in_a_dash() {
    let long = |last: char| format!("{}{last}", "a".repeat(62));
    let dashes = format!("a{}a", "-".repeat(61));
    for name in [long('a'), long('0'), dashes] {
        let derived = derived_service_name(&ServiceKey::new(&name, &name).unwrap());
        let slice = slice_name(&derived, &cluster(&name), &group(IpFamily::V6, 1), u32::MAX);
        assert_eq!(
            (derived.len(), check_dns_label(&derived), slice.len(), check_dns_label(&slice)),
            (18, Ok(()), 40, Ok(()))
        );
    }
}

/// O28.
#[test]
fn one_service_name_in_two_namespaces_gives_two_derived_services() {
    let names =
        ["a", "b"].map(|namespace| derived_service_name(&ServiceKey::new(namespace, "cart").unwrap()));
    assert_ne!(names[0], names[1]);
}

#[test]
fn slices_of_other_clusters_families_ports_and_slots_have_other_names() {
    let name =
        |of: &str, family, port, slot| slice_name("derived-x", &cluster(of), &group(family, port), slot);
    let names = std::collections::BTreeSet::from([
        name("east", IpFamily::V4, 80, 0),
        name("west", IpFamily::V4, 80, 0),
        name("east", IpFamily::V6, 80, 0),
        name("east", IpFamily::V4, 81, 0),
        name("east", IpFamily::V4, 80, 1),
    ]);
    assert_eq!(names.len(), 5);
}

proptest! {
    /// O27.
    #[test]
    fn every_valid_key_gives_valid_names(
        namespace in "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
        name in "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
        slot in any::<u32>(),
        port in 1_u16..,
    ) {
        let key = ServiceKey::new(&namespace, &name).unwrap();
        let derived = derived_service_name(&key);
        let slice = slice_name(&derived, &cluster(&name), &group(IpFamily::V4, port), slot);
        prop_assert_eq!(check_dns_label(&derived), Ok(()));
        prop_assert_eq!(check_dns_label(&slice), Ok(()));
        prop_assert_eq!(derived_service_name(&key), derived);
    }
}

fn group(family: IpFamily, port: u16) -> GroupKey {
    GroupKey::new(family, [EndpointPort { name: "http".into(), port: Some(port), ..EndpointPort::default() }])
}
