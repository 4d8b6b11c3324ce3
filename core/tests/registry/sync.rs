//! Syncs and sums: how a lost write is found and repaired, and what wholeness means for the merge.

use crate::fixture::{
    Fixture, POLICY, cluster, delete, key, leaf_of, put, put_endpoints, sum_of, too_many, uid, version,
};
use mcs_core::model::MemberState;
use mcs_core::registry::{Policy, Refused, Registered, Renewed};
use mcs_core::version::Sum;

/// A member that has exports when it comes, so that it is not whole.
fn syncing() -> Fixture {
    let mut fixture = Fixture::new();
    let registered = fixture.register("east", "1.1", sum_of(&[put("web", &["10.1.0.1"])]));
    assert_eq!(registered, Ok(Registered { differs: true }));
    fixture.told();
    fixture
}

#[test]
fn a_member_enters_merge_and_log_when_it_is_whole() {
    let mut fixture = syncing();
    fixture.begin("east", "1.2");
    fixture.wrote("east", "1.2", vec![put("web", &["10.1.0.1"])]);
    assert_eq!(fixture.told(), [""; 0]);
    assert_eq!(fixture.end("east", "1.2", &["web"]), Ok(0));
    assert_eq!(
        fixture.told(),
        ["part web of east 1.2 [10.1.0.1]", "header web ClusterSetIp of east", "east active whole 1.2"]
    );
}

#[test]
fn an_equal_sum_proves_a_member_whole() {
    let mut fixture = syncing();
    let ops = vec![put("web", &["10.1.0.1"])];
    let sum = sum_of(&ops);
    fixture.wrote("east", "1.2", ops);
    assert_eq!(fixture.told(), [""; 0]);
    assert_eq!(fixture.renew("east", "1.2", sum), Ok(Renewed { state: MemberState::Active, differs: false }));
    assert_eq!(
        fixture.told(),
        ["part web of east 1.2 [10.1.0.1]", "header web ClusterSetIp of east", "east active whole 1.2"]
    );
}

#[test]
fn a_sync_wants_only_what_differs() {
    let mut fixture = Fixture::with_members(&["east"]);
    let (web, api) = (put("web", &["10.1.0.1"]), put("api", &["10.1.0.1"]));
    fixture.wrote("east", "1.2", vec![web.clone(), api]);
    fixture.begin("east", "1.3");
    let names = [
        (key("web"), leaf_of(&web)),
        (key("api"), leaf_of(&put("api", &["10.1.0.9"]))),
        (key("new"), leaf_of(&put("new", &[]))),
    ];
    let wanted = |fixture: &mut Fixture, act| {
        fixture.registry.wanted(&cluster("east"), &uid("east"), version(act), &names)
    };
    assert_eq!(wanted(&mut fixture, "1.3"), Ok(vec![key("api"), key("new")]));
    fixture.begin("east", "1.4");
    assert_eq!(wanted(&mut fixture, "1.3"), Ok(vec![]), "of a sync that was given up");
}

#[test]
fn the_end_of_a_sync_deletes_what_it_did_not_name() {
    let mut fixture = Fixture::with_members(&["east"]);
    fixture.wrote("east", "1.2", vec![put("web", &["10.1.0.1"]), put("api", &["10.1.0.1"])]);
    fixture.told();
    fixture.begin("east", "1.3");
    assert_eq!(fixture.end("east", "1.3", &["web"]), Ok(1));
    assert_eq!(fixture.told(), ["part api of east gone", "header api gone", "east active whole 1.3"]);
}

#[test]
fn what_a_sync_is_about_to_delete_does_not_count_for_the_limit() {
    let mut fixture = Fixture::with(Policy { max_exports: 2, ..POLICY });
    fixture.register("east", "1.1", Sum::EMPTY).expect("free id");
    fixture.wrote("east", "1.2", vec![put("web", &["10.1.0.1"]), put("api", &["10.1.0.1"])]);
    let (api, new, more) = (put("api", &["10.1.0.1"]), put("new", &[]), put("more", &[]));
    let names = [&api, &new, &more].map(|op| (op.key().clone(), leaf_of(op)));
    fixture.begin("east", "1.3");
    let wanted = fixture.registry.wanted(&cluster("east"), &uid("east"), version("1.3"), &names);
    assert_eq!(wanted, Ok(vec![key("new"), key("more")]));
    let full = too_many(2);
    assert_eq!(fixture.write("east", "1.3", vec![new, more]), Ok(vec![Ok(()), Err(full)]));
    assert_eq!(fixture.end("east", "1.3", &["api", "new", "more"]), Ok(1));
}

/// Without this, a controller whose syncs break could make the registry hold any number of exports.
#[test]
fn syncs_that_break_leave_at_most_twice_the_limit() {
    let mut fixture = Fixture::with(Policy { max_exports: 2, ..POLICY });
    fixture.register("east", "1.1", Sum::EMPTY).expect("free id");
    let mut taken = Vec::new();
    for round in 0..4 {
        let act = format!("1.{}", round + 2);
        fixture.begin("east", &act);
        let ops = (0..2).map(|index| put(&format!("s{round}-{index}"), &[])).collect();
        let outcomes = fixture.write("east", &act, ops).expect("taken");
        taken.push(outcomes.iter().filter(|outcome| outcome.is_ok()).count());
    }
    assert_eq!(taken, [2, 2, 0, 0]);
}

#[test]
fn a_sync_that_breaks_deletes_nothing() {
    let mut fixture = Fixture::with_members(&["east"]);
    fixture.wrote("east", "1.2", vec![put("web", &["10.1.0.1"]), put("api", &["10.1.0.1"])]);
    fixture.told();
    fixture.begin("east", "1.3");
    fixture.wrote("east", "1.3", vec![put("new", &["10.1.0.1"])]);
    fixture.renewing_until(120, &["east"]);
    assert_eq!(
        fixture.snapshot(),
        [
            "east active whole 1.2",
            "header api ClusterSetIp of east",
            "header new ClusterSetIp of east",
            "header web ClusterSetIp of east",
            "part api of east 1.2 [10.1.0.1]",
            "part new of east 1.3 [10.1.0.1]",
            "part web of east 1.2 [10.1.0.1]",
        ]
    );
}

#[test]
fn a_sync_that_was_given_up_for_a_newer_one_ends_without_a_word() {
    let mut fixture = Fixture::with_members(&["east"]);
    fixture.wrote("east", "1.2", vec![put("web", &["10.1.0.1"])]);
    fixture.begin("east", "1.3");
    fixture.begin("east", "1.4");
    fixture.told();
    assert_eq!(fixture.end("east", "1.3", &[]), Ok(0));
    fixture.wrote("east", "1.3", vec![put("late", &[])]);
    assert_eq!(fixture.told(), [""; 0]);
}

#[test]
fn the_end_spares_what_was_put_after_the_begin() {
    let mut fixture = Fixture::with_members(&["east"]);
    fixture.wrote("east", "1.2", vec![put("web", &["10.1.0.1"])]);
    fixture.begin("east", "1.3");
    fixture.wrote("east", "1.4", vec![put("new", &["10.1.0.2"]), put("web", &["10.1.0.1"])]);
    fixture.told();
    assert_eq!(fixture.end("east", "1.3", &[]), Ok(0));
    assert_eq!(fixture.told(), ["east active whole 1.4"]);
}

#[test]
fn a_sync_does_not_undo_what_a_newer_act_did() {
    let mut fixture = Fixture::with_members(&["east"]);
    fixture.wrote("east", "1.2", vec![put("web", &["10.1.0.1"]), put("api", &["10.1.0.1"])]);
    fixture.begin("east", "1.3");
    fixture.wrote("east", "1.4", vec![delete("web"), put_endpoints("api", &["10.1.0.4"])]);
    fixture.told();
    fixture.wrote("east", "1.3", vec![put("web", &["10.1.0.3"]), put("api", &["10.1.0.3"])]);
    assert_eq!(fixture.end("east", "1.3", &["web", "api"]), Ok(0));
    assert_eq!(
        fixture.snapshot(),
        ["east active whole 1.4", "header api ClusterSetIp of east", "part api of east 1.4 [10.1.0.4]"]
    );
}

#[test]
fn the_end_of_a_sync_that_has_not_begun_is_refused() {
    let mut fixture = Fixture::with_members(&["east"]);
    let refused = Refused::NoSync { cluster: cluster("east"), version: version("1.3") };
    assert_eq!(fixture.end("east", "1.3", &[]), Err(refused));
}

#[test]
fn a_lost_write_is_found_by_the_next_renewal_and_repaired_by_a_sync() {
    let mut fixture = Fixture::with_members(&["east"]);
    let (web, api) = (put("web", &["10.1.0.1"]), put("api", &["10.1.0.1"]));
    fixture.wrote("east", "1.2", vec![web.clone()]);
    fixture.told();
    // The write 1.3 of "api" was answered elsewhere and is missing here.
    let sum = sum_of(&[web.clone(), api.clone()]);
    let renewed = fixture.renew("east", "1.3", sum);
    assert_eq!(renewed, Ok(Renewed { state: MemberState::Active, differs: true }));
    // What is missing is known to be missing: the version of the whole set stands.
    fixture.wrote("east", "1.4", vec![put("new", &[])]);
    assert_eq!(
        fixture.told(),
        ["part new of east 1.4 []", "header new ClusterSetIp of east", "east active whole 1.2"]
    );
    fixture.sync("east", "1.5", vec![web.clone(), api.clone(), put("new", &[])]);
    assert_eq!(
        fixture.told(),
        [
            "part api of east 1.5 [10.1.0.1]",
            "header api ClusterSetIp of east",
            "east active whole 1.2",
            "east active whole 1.5"
        ]
    );
    let sum = sum_of(&[web, api, put("new", &[])]);
    assert_eq!(fixture.renew("east", "1.5", sum), Ok(Renewed { state: MemberState::Active, differs: false }));
}

#[test]
fn a_renewal_beside_an_act_is_not_compared() {
    let mut fixture = Fixture::with_members(&["east"]);
    fixture.wrote("east", "1.2", vec![put("web", &["10.1.0.1"])]);
    // The answer to 1.2 has not reached the controller, which renews as of 1.1.
    let renewed = fixture.renew("east", "1.1", Sum::EMPTY);
    assert_eq!(renewed, Ok(Renewed { state: MemberState::Active, differs: false }));
    fixture.told();
    fixture.wrote("east", "1.3", vec![put_endpoints("web", &[])]);
    assert_eq!(fixture.told(), ["part web of east 1.3 []", "east active whole 1.3"]);
}
