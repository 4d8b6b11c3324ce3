//! Which address families a plan goes by where no namespace says.

use super::*;
use mcs_core::model::ImportDefinition;
use mcs_core::plan::{Entries, Meta, ServiceSpec};
use mcs_core::view::Wanted;
use std::collections::BTreeMap;

const V4: &[IpFamily] = &[IpFamily::V4];
const V6: &[IpFamily] = &[IpFamily::V6];

#[test]
fn the_derived_service_that_is_there_says_which_families_go_on_where_it_serves_one_of_the_import() {
    let ours = mk_service(Ownership::Ours, false, V4);
    let served = |wanted: &Decision| served_before(wanted, &mk_existing(Some(ours.clone())));
    let both = [IpFamily::V6, IpFamily::V4];
    let seen = [mk_wanted(V4), mk_wanted(&both), mk_wanted(&[]), Decision::Keep, mk_wanted(V6)];
    let v4 = || Some(V4.to_vec());
    assert_eq!(seen.each_ref().map(served), [v4(), v4(), v4(), v4(), None]);
}

#[test]
fn a_service_of_somebody_else_or_one_that_goes_says_nothing_of_families() {
    let others = [
        None,
        Some(mk_service(Ownership::Foreign, false, V4)),
        Some(mk_service(Ownership::Ours, true, V4)),
        Some(mk_service(Ownership::Ours, false, &[])),
    ];
    let served = others.map(|service| served_before(&mk_wanted(V4), &mk_existing(service)));
    assert_eq!(served, [const { None }; 4]);
}

fn mk_wanted(families: &[IpFamily]) -> Decision {
    let definition = ImportDefinition { ip_families: families.to_vec(), ..ImportDefinition::default() };
    Decision::Apply(Wanted { definition: Some(definition), sources: BTreeMap::new() })
}

fn mk_existing(service: Option<DerivedService>) -> Existing {
    Existing { service, ..Existing::default() }
}

fn mk_service(ownership: Ownership, deleting: bool, families: &[IpFamily]) -> DerivedService {
    let name = "derived-cart".to_owned();
    DerivedService {
        meta: Meta {
            identity: Identity { name, uid: "1".to_owned(), resource_version: "2".to_owned() },
            ownership,
            deleting,
            labels: Entries::default(),
            annotations: Entries::default(),
            owner: None,
        },
        spec: ServiceSpec { ip_families: families.to_vec(), ..ServiceSpec::default() },
        cluster_ips: Vec::new(),
        stray: BTreeSet::new(),
    }
}
