//! Who may speak for a cluster: UIDs, terms, limits, removal.

use crate::fixture::{Fixture, POLICY, cluster, put, sum_of, uid, uid_of};
use mcs_core::model::MemberState;
use mcs_core::registry::{Policy, Refused, Registered, Removed};
use mcs_core::version::Sum;

fn claimed(caller: &str) -> Refused {
    Refused::Claimed { cluster: cluster("east"), holder: uid("east"), caller: uid_of(caller) }
}

fn unknown() -> Refused {
    Refused::Unknown { cluster: cluster("east") }
}

fn old_term(term: u64, floor: u64) -> Refused {
    Refused::OldTerm { cluster: cluster("east"), term, floor }
}

#[test]
fn an_older_term_is_refused_with_the_highest_seen() {
    let mut fixture = Fixture::with_members(&["east"]);
    assert_eq!(fixture.register("east", "7.1", Sum::EMPTY), Ok(Registered { differs: false }));
    fixture.told();
    let refused = old_term(6, 7);
    assert_eq!(fixture.register("east", "6.9", Sum::EMPTY), Err(refused.clone()));
    assert_eq!(fixture.renew("east", "6.9", Sum::EMPTY).map(|_| ()), Err(refused.clone()));
    assert_eq!(fixture.write("east", "6.9", vec![put("web", &[])]), Err(refused.clone()));
    assert_eq!(fixture.end("east", "6.9", &[]), Err(refused));
    assert_eq!(fixture.told(), [""; 0]);
}

#[test]
fn an_older_term_is_refused_also_after_the_cluster_was_removed() {
    let mut fixture = Fixture::with_members(&["east"]);
    fixture.renew("east", "7.1", Sum::EMPTY).expect("renewed");
    fixture.registry.remove(&cluster("east"), Some(&uid("east")), false, fixture.now()).expect("removed");
    assert_eq!(fixture.register("east", "6.1", Sum::EMPTY), Err(old_term(6, 7)));
    assert_eq!(fixture.register("east", "7.2", Sum::EMPTY), Ok(Registered { differs: false }));
}

#[test]
fn a_second_leader_of_one_term_is_told_to_raise_it() {
    let mut fixture = Fixture::with_members(&["east"]);
    fixture.wrote("east", "6.40", vec![put("web", &[])]);
    // The Lease of the controller was restored from a backup: 6 is given out a second time.
    assert_eq!(fixture.register("east", "6.1", Sum::EMPTY), Err(old_term(6, 6)));
    assert_eq!(fixture.register("east", "7.1", Sum::EMPTY), Ok(Registered { differs: true }));
}

#[test]
fn an_unknown_cluster_is_told_to_register() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.renew("east", "1.1", Sum::EMPTY), Err(unknown()));
    assert_eq!(fixture.write("east", "1.1", vec![]), Err(unknown()));
    assert_eq!(fixture.end("east", "1.1", &[]), Err(unknown()));
    assert_eq!(fixture.registry.remove(&cluster("east"), None, true, fixture.now()), Err(unknown()));
}

/// O32: two clusters with one id.
#[test]
fn o32_a_second_cluster_is_refused_while_the_lease_is_active() {
    let mut fixture = Fixture::with_members(&["east"]);
    fixture.wrote("east", "1.2", vec![put("web", &["10.1.0.1"])]);
    fixture.until_millis(29_999);
    fixture.told();
    let now = fixture.now();
    let other = uid_of("uid-other");
    assert_eq!(fixture.register_as("east", "uid-other", "9.1", Sum::EMPTY), Err(claimed("uid-other")));
    let version = "9.1".parse().expect("version");
    let name = cluster("east");
    assert_eq!(
        fixture.registry.write(&name, &other, version, vec![put("web", &[])], now),
        Err(claimed("uid-other"))
    );
    assert_eq!(
        fixture.registry.renew(&name, &other, version, Sum::EMPTY, now).map(|_| ()),
        Err(claimed("uid-other"))
    );
    assert_eq!(fixture.registry.remove(&name, Some(&other), true, now), Err(claimed("uid-other")));
    assert_eq!(fixture.told(), [""; 0]);
}

/// O32, when the first one is gone.
#[test]
fn o32_a_second_cluster_takes_over_when_the_lease_ran_out_and_the_old_exports_go() {
    let mut fixture = Fixture::with_members(&["east", "west"]);
    fixture.wrote("east", "1.2", vec![put("web", &["10.1.0.1"]), put("own", &["10.1.0.1"])]);
    fixture.wrote("west", "1.2", vec![put("web", &["10.2.0.1"])]);
    fixture.renewing_until(30, &["west"]);
    assert_eq!(fixture.state("east"), Some(MemberState::Expired));
    fixture.told();
    let sum = sum_of(&[put("web", &["10.9.0.1"])]);
    assert_eq!(fixture.register_as("east", "uid-other", "1.1", sum), Ok(Registered { differs: true }));
    assert_eq!(
        fixture.told(),
        [
            "part own of east gone",
            "part web of east gone",
            "header own gone",
            "header web ClusterSetIp of west",
            "east syncing in part 0.0",
        ]
    );
    assert_eq!(
        fixture.renew("east", "1.2", Sum::EMPTY),
        Err(Refused::Claimed { cluster: cluster("east"), holder: uid_of("uid-other"), caller: uid("east") })
    );
}

#[test]
fn a_cluster_above_the_limit_is_refused_and_a_known_one_is_not() {
    let mut fixture = Fixture::with(Policy { max_clusters: 1, ..POLICY });
    fixture.register("east", "1.1", Sum::EMPTY).expect("free id");
    assert_eq!(fixture.register("west", "1.1", Sum::EMPTY), Err(Refused::TooManyClusters { limit: 1 }));
    assert_eq!(fixture.register("east", "2.1", Sum::EMPTY), Ok(Registered { differs: false }));
}

#[test]
fn a_cluster_that_leaves_takes_its_exports_with_it() {
    let mut fixture = Fixture::with_members(&["east", "west"]);
    fixture.wrote("east", "1.2", vec![put("web", &["10.1.0.1", "10.1.0.2"]), put("own", &["10.1.0.1"])]);
    fixture.wrote("west", "1.2", vec![put("web", &["10.2.0.1"])]);
    fixture.told();
    let removed = fixture.registry.remove(&cluster("east"), Some(&uid("east")), false, fixture.now());
    assert_eq!(removed, Ok(Removed { exports: 2, endpoints: 3 }));
    assert_eq!(
        fixture.told(),
        [
            "part own of east gone",
            "part web of east gone",
            "header own gone",
            "header web ClusterSetIp of west",
            "east gone",
        ]
    );
}

#[test]
fn an_administrator_removes_an_active_cluster_only_by_force() {
    let mut fixture = Fixture::with_members(&["east"]);
    let refused = Err(Refused::Active { cluster: cluster("east") });
    assert_eq!(fixture.registry.remove(&cluster("east"), None, false, fixture.now()), refused);
    let removed = Ok(Removed { exports: 0, endpoints: 0 });
    assert_eq!(fixture.registry.remove(&cluster("east"), None, true, fixture.now()), removed);
    assert_eq!(fixture.told(), ["east gone"]);

    let mut fixture = Fixture::with_members(&["east"]);
    fixture.until(30);
    assert_eq!(fixture.registry.remove(&cluster("east"), None, false, fixture.now()), removed);
}

#[test]
fn a_registration_tells_a_new_region() {
    let mut fixture = Fixture::with_members(&["east"]);
    fixture.register("east", "1.1", Sum::EMPTY).expect("same leader");
    assert_eq!(fixture.told(), [""; 0], "an equal registration tells nothing");
    fixture.register("east", "2.1", Sum::EMPTY).expect("next leader");
    assert_eq!(fixture.told(), ["east active whole 2.1"]);
}
