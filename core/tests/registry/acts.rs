//! Writes: what is taken, what is ignored, and what is told.

use crate::fixture::{
    Fixture, POLICY, cluster, delete, leaf_of, put, put_endpoints, put_spec, spec, too_many, uid_of,
};
use mcs_core::model::{Object, ServiceType};
use mcs_core::registry::{Op, Policy, Refused};
use mcs_core::time::WallMillis;
use mcs_core::validate::Refusal;
use mcs_core::version::{Leaf, Sum};
use std::time::Duration;

#[test]
fn a_put_is_told_as_part_header_and_section() {
    let mut fixture = Fixture::with_members(&["east"]);
    fixture.wrote("east", "1.2", vec![put("web", &["10.1.0.1"])]);
    assert_eq!(
        fixture.told(),
        ["part web of east 1.2 [10.1.0.1]", "header web ClusterSetIp of east", "east active whole 1.2"]
    );
}

#[test]
fn one_act_of_several_exports_tells_the_section_once() {
    let mut fixture = Fixture::with_members(&["east"]);
    fixture.wrote("east", "1.2", vec![put("web", &["10.1.0.1"]), put("api", &["10.1.0.2"])]);
    assert_eq!(
        fixture.told(),
        [
            "part api of east 1.2 [10.1.0.2]",
            "part web of east 1.2 [10.1.0.1]",
            "header api ClusterSetIp of east",
            "header web ClusterSetIp of east",
            "east active whole 1.2",
        ]
    );
}

#[test]
fn endpoints_alone_keep_the_definition_and_are_not_merged() {
    let mut fixture = Fixture::with_members(&["east"]);
    let headless = mcs_core::model::ExportSpec { service_type: ServiceType::Headless, ..spec() };
    fixture.wrote("east", "1.2", vec![put_spec("web", headless, &["10.1.0.1"])]);
    fixture.told();
    fixture.wrote("east", "1.3", vec![put_endpoints("web", &["10.1.0.1", "10.1.0.2"])]);
    assert_eq!(fixture.told(), ["part web of east 1.3 [10.1.0.1 10.1.0.2]", "east active whole 1.3"]);
    assert_eq!(
        fixture.snapshot(),
        ["east active whole 1.3", "header web Headless of east", "part web of east 1.3 [10.1.0.1 10.1.0.2]"]
    );
}

#[test]
fn an_act_that_is_sent_again_changes_nothing() {
    let mut fixture = Fixture::with_members(&["east"]);
    for _ in 0..2 {
        fixture.wrote("east", "1.2", vec![put("web", &["10.1.0.1"])]);
    }
    assert_eq!(fixture.told().len(), 3);
    fixture.wrote("east", "1.2", vec![put("web", &["10.1.0.1"])]);
    assert_eq!(fixture.told(), [""; 0]);
}

#[test]
fn equal_content_under_a_new_version_tells_the_members_version_only() {
    let mut fixture = Fixture::with_members(&["east"]);
    fixture.wrote("east", "1.2", vec![put("web", &["10.1.0.1"])]);
    fixture.told();
    fixture.wrote("east", "1.3", vec![put("web", &["10.1.0.1"])]);
    assert_eq!(fixture.told(), ["east active whole 1.3"]);
}

/// When a change was seen is told with it; without a change it is no news.
#[test]
fn the_time_of_a_change_is_told_with_it_and_another_time_alone_changes_nothing() {
    let mut fixture = Fixture::with_members(&["east"]);
    let at = |op, millis| {
        let changed_at = WallMillis::from_unix_millis(millis);
        match op {
            Op::Put { key, leaf, spec, endpoints, .. } => Op::Put { key, leaf, spec, endpoints, changed_at },
            Op::PutEndpoints { key, leaf, replaces, endpoints, .. } => {
                Op::PutEndpoints { key, leaf, replaces, endpoints, changed_at }
            }
            op @ Op::Delete { .. } => op,
        }
    };
    let mut seen = Vec::new();
    for (act, op) in [
        ("1.2", at(put("web", &["10.1.0.1"]), 7_000)),
        ("1.3", at(put_endpoints("web", &["10.1.0.2"]), 8_000)),
        ("1.4", at(put_endpoints("web", &["10.1.0.2"]), 9_000)),
    ] {
        fixture.wrote("east", act, vec![op]);
        let parts =
            std::iter::from_fn(|| fixture.registry.next_change()).filter_map(|change| match change.object {
                Some(Object::Part(part)) => part.changed_at.map(WallMillis::unix_millis),
                _ => None,
            });
        seen.push(parts.collect::<Vec<_>>());
    }
    assert_eq!(seen, [vec![7_000], vec![8_000], vec![]]);
}

#[test]
fn an_act_older_than_the_newest_is_answered_but_ignored() {
    let mut fixture = Fixture::with_members(&["east"]);
    fixture.wrote("east", "1.5", vec![put("web", &["10.1.0.5"])]);
    fixture.told();
    fixture.wrote("east", "1.4", vec![put("web", &["10.1.0.4"]), delete("web"), put("api", &["10.1.0.4"])]);
    assert_eq!(fixture.told(), [""; 0]);
    assert_eq!(fixture.registry.counts().stale_acts, 1);
}

#[test]
fn a_delete_tells_the_version_after_the_removal() {
    let mut fixture = Fixture::with_members(&["east"]);
    fixture.wrote("east", "1.2", vec![put("web", &["10.1.0.1"]), put("api", &["10.1.0.2"])]);
    fixture.told();
    fixture.wrote("east", "1.3", vec![delete("web"), put_endpoints("api", &["10.1.0.3"])]);
    assert_eq!(
        fixture.told(),
        [
            "part api of east 1.3 [10.1.0.3]",
            "part web of east gone",
            "header web gone",
            "east active whole 1.3"
        ]
    );
}

#[test]
fn deleting_what_is_not_there_is_no_error() {
    let mut fixture = Fixture::with_members(&["east"]);
    fixture.wrote("east", "1.2", vec![delete("web")]);
    assert_eq!(fixture.told(), ["east active whole 1.2"]);
}

/// Their hash would stand for a definition that is not held, and no comparison would find that.
#[test]
fn endpoints_that_replace_another_state_than_is_held_are_refused() {
    let mut fixture = Fixture::with_members(&["east"]);
    let held = put("web", &["10.1.0.1"]);
    fixture.wrote("east", "1.2", vec![held.clone()]);
    let replacing = |before: Leaf, addresses| match put_endpoints("web", addresses) {
        Op::PutEndpoints { key, leaf, endpoints, .. } => {
            Op::PutEndpoints { key, leaf, replaces: Some(before), endpoints, changed_at: None }
        }
        op => op,
    };
    let late = replacing(Leaf::from_bytes([7; 16]), &["10.1.0.2"]);
    let problem = "another state of export default/web is held here: put it with its definition";
    assert_eq!(fixture.write("east", "1.3", vec![late]), Ok(vec![Err(Refusal::new("spec", problem))]));

    let next = replacing(leaf_of(&held), &["10.1.0.3"]);
    assert_eq!(fixture.write("east", "1.4", vec![next.clone()]), Ok(vec![Ok(())]));
    // Once more, as a call that was sent twice.
    assert_eq!(fixture.write("east", "1.4", vec![next]), Ok(vec![Ok(())]));
    assert_eq!(
        fixture.snapshot(),
        ["east active whole 1.4", "header web ClusterSetIp of east", "part web of east 1.4 [10.1.0.3]"]
    );
}

#[test]
fn a_refused_operation_blocks_no_other() {
    let mut fixture = Fixture::with(Policy { max_exports: 2, ..POLICY });
    fixture.register("east", "1.1", Sum::EMPTY).expect("free id");
    let ops = vec![
        put_endpoints("api", &["10.1.0.1"]),
        put("web", &["10.1.0.1"]),
        put("api", &["10.1.0.1"]),
        put("third", &["10.1.0.1"]),
        put("web", &["10.1.0.2"]),
    ];
    let outcomes = fixture.write("east", "1.2", ops).expect("taken");
    let no_export = Refusal::new("spec", "no export default/api is held here: put it with its definition");
    let full = too_many(2);
    assert_eq!(outcomes, [Err(no_export), Ok(()), Ok(()), Err(full), Ok(())]);
    assert_eq!(
        fixture.snapshot(),
        [
            "east active whole 1.2",
            "header api ClusterSetIp of east",
            "header web ClusterSetIp of east",
            "part api of east 1.2 [10.1.0.1]",
            "part web of east 1.2 [10.1.0.2]",
        ]
    );
}

#[test]
fn what_an_act_deletes_makes_room_for_what_it_puts() {
    let mut fixture = Fixture::with(Policy { max_exports: 1, ..POLICY });
    fixture.register("east", "1.1", Sum::EMPTY).expect("free id");
    fixture.wrote("east", "1.2", vec![put("web", &["10.1.0.1"])]);
    fixture.wrote("east", "1.3", vec![put("api", &["10.1.0.1"]), delete("web")]);
    assert_eq!(
        fixture.snapshot(),
        ["east active whole 1.3", "header api ClusterSetIp of east", "part api of east 1.3 [10.1.0.1]"]
    );
}

#[test]
fn a_member_writes_as_often_as_the_limit_says_and_the_others_are_not_concerned() {
    let mut fixture = Fixture::with_members(&["east", "west"]);
    let refused = |millis| {
        Err(Refused::TooManyWrites {
            cluster: cluster("east"),
            per_second: 10,
            retry_after: Duration::from_millis(millis),
        })
    };
    for _ in 0..10 {
        assert_eq!(fixture.count_write("east"), Ok(()));
    }
    assert_eq!((fixture.count_write("east"), fixture.count_write("west")), (refused(100), Ok(())));
    fixture.stall_until_millis(99);
    assert_eq!(fixture.count_write("east"), refused(1));
    fixture.stall_until_millis(100);
    assert_eq!((fixture.count_write("east"), fixture.count_write("east")), (Ok(()), refused(100)));
}

#[test]
fn a_cluster_that_is_not_a_member_uses_up_no_writes() {
    let mut fixture = Fixture::with_members(&["east"]);
    let stranger = uid_of("uid-stranger");
    for _ in 0..10 {
        let counted = fixture.registry.count_write(&cluster("east"), &stranger, fixture.now());
        assert!(matches!(counted, Err(Refused::Claimed { .. })), "{counted:?}");
    }
    assert_eq!(fixture.count_write("east"), Ok(()));
    assert_eq!(fixture.count_write("west"), Err(Refused::Unknown { cluster: cluster("west") }));
}

#[test]
fn o31_a_second_exporter_leaves_the_endpoints_of_the_first() {
    let mut fixture = Fixture::with_members(&["alpha", "beta"]);
    fixture.wrote("alpha", "1.2", vec![put("cart", &["10.1.0.1", "10.1.0.2"])]);
    fixture.wrote("beta", "1.2", vec![put("cart", &["10.2.0.1"])]);
    fixture.told();
    fixture.wrote("beta", "1.3", vec![put_endpoints("cart", &[])]);
    assert_eq!(fixture.told(), ["part cart of beta 1.3 []", "beta active whole 1.3"]);
    fixture.wrote("beta", "1.4", vec![delete("cart")]);
    assert_eq!(
        fixture.told(),
        ["header cart ClusterSetIp of alpha", "part cart of beta gone", "beta active whole 1.4"]
    );
}

#[test]
fn the_oldest_export_decides_and_all_participants_are_named() {
    let mut fixture = Fixture::with_members(&["alpha", "beta"]);
    let older = mcs_core::model::ExportSpec {
        created_at: mcs_core::time::WallTime::from_unix_secs(1_600_000_000),
        service_type: ServiceType::Headless,
        ..spec()
    };
    fixture.wrote("alpha", "1.2", vec![put("cart", &["10.1.0.1"])]);
    fixture.told();
    fixture.wrote("beta", "1.2", vec![put_spec("cart", older, &["10.2.0.1"])]);
    assert_eq!(
        fixture.told(),
        ["part cart of beta 1.2 [10.2.0.1]", "header cart Headless of alpha+beta", "beta active whole 1.2"]
    );
}

/// A leader that spoke to another registry goes on here, where an older leader registered: what it says now does not
/// make what it said there known.
#[test]
fn an_act_that_does_not_follow_the_last_one_proves_nothing() {
    let mut fixture = Fixture::with_members(&["east"]);
    fixture.wrote("east", "2.4", vec![put("web", &["10.1.0.1"])]);
    assert_eq!(
        fixture.told(),
        ["part web of east 2.4 [10.1.0.1]", "header web ClusterSetIp of east", "east active whole 1.1"]
    );
    fixture.renew_as_held_at("east", "2.4");
    assert_eq!(fixture.told(), ["east active whole 2.4"]);
}

#[test]
fn an_act_older_than_the_one_that_a_renewal_named_is_ignored() {
    let mut fixture = Fixture::with_members(&["east"]);
    fixture.wrote("east", "1.2", vec![put("web", &["10.1.0.1"])]);
    assert!(fixture.renew("east", "1.5", Sum::EMPTY).expect("renewed").differs);
    fixture.told();
    fixture.wrote("east", "1.4", vec![delete("web")]);
    assert_eq!(fixture.told(), [""; 0]);
}
