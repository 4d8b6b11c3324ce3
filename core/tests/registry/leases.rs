//! Leases: when an end is judged, what it hides, and what it keeps.

use crate::fixture::{Fixture, cluster, put, sum_of};
use mcs_core::model::MemberState;
use mcs_core::registry::{Counts, Refused, Registered, Renewed};
use mcs_core::time::Timestamp;
use mcs_core::version::Sum;
use std::time::Duration;

#[test]
fn a_lease_ends_at_its_deadline_and_not_one_tick_before() {
    for (nanos, state) in [
        (29_999_999_999, MemberState::Active),
        (30_000_000_000, MemberState::Expired),
        (30_000_000_001, MemberState::Expired),
    ] {
        let mut fixture = Fixture::with_members(&["east"]);
        fixture.until_millis(29_900);
        fixture.registry.handle_timeout(Timestamp::from_nanos(nanos));
        assert_eq!(fixture.state("east"), Some(state), "after {nanos} ns");
    }
}

#[test]
fn the_end_of_a_lease_is_one_change_and_so_is_the_return() {
    let mut fixture = Fixture::with_members(&["east", "west"]);
    fixture.wrote("east", "1.2", vec![put("web", &["10.1.0.1"])]);
    fixture.renewing_until(20, &["west"]);
    fixture.told();
    fixture.renewing_until(30, &["west"]);
    assert_eq!(fixture.told(), ["east expired whole 1.2"]);
    fixture.renewing_until(40, &["west"]);
    let renewed = fixture.renew("east", "1.2", sum_of(&[put("web", &["10.1.0.1"])]));
    assert_eq!(renewed, Ok(Renewed { state: MemberState::Active, differs: false }));
    assert_eq!(fixture.told(), ["east active whole 1.2"]);
}

/// O33 a: a cluster that is cut off for less than a lease.
#[test]
fn o33_a_cluster_that_is_back_within_its_lease_was_never_away() {
    let mut fixture = Fixture::with_members(&["alpha", "beta"]);
    fixture.wrote("alpha", "1.2", vec![put("cart", &["10.1.0.1"])]);
    fixture.told();
    fixture.renewing_until(25, &["beta"]);
    fixture.renew_as_held("alpha");
    fixture.renewing_until(100, &["alpha", "beta"]);
    assert_eq!(fixture.told(), [""; 0]);
}

/// O33 b: a cluster that is cut off for longer keeps its exports in the merge.
#[test]
fn o33_the_exports_of_an_expired_cluster_stay_in_the_merge() {
    let mut fixture = Fixture::with_members(&["alpha", "beta"]);
    fixture.wrote("alpha", "1.2", vec![put("cart", &["10.1.0.1"])]);
    fixture.renewing_until(40, &["beta"]);
    fixture.told();
    fixture.wrote("beta", "1.2", vec![put("cart", &["10.2.0.1"])]);
    assert_eq!(
        fixture.told(),
        [
            "part cart of beta 1.2 [10.2.0.1]",
            "header cart ClusterSetIp of alpha+beta",
            "beta active whole 1.2"
        ]
    );
    assert_eq!(
        fixture.snapshot(),
        [
            "alpha expired whole 1.2",
            "beta active whole 1.2",
            "header cart ClusterSetIp of alpha+beta",
            "part cart of alpha 1.2 [10.1.0.1]",
            "part cart of beta 1.2 [10.2.0.1]",
        ]
    );
}

/// A member whose lease has run out, and that renews with something else than what is held.
fn returned() -> Fixture {
    let mut fixture = Fixture::with_members(&["east"]);
    fixture.wrote("east", "1.2", vec![put("web", &["10.1.0.1"])]);
    fixture.until(40);
    fixture.told();
    let renewed = fixture.renew("east", "1.3", sum_of(&[put("web", &["10.1.0.9"])]));
    assert_eq!(renewed, Ok(Renewed { state: MemberState::Expired, differs: true }));
    assert_eq!(fixture.told(), [""; 0]);
    fixture
}

#[test]
fn a_member_that_returns_with_other_exports_stays_hidden_until_its_sync_has_ended() {
    let mut fixture = returned();
    fixture.begin("east", "1.4");
    fixture.wrote("east", "1.4", vec![put("web", &["10.1.0.9"])]);
    assert_eq!(fixture.told(), ["part web of east 1.4 [10.1.0.9]", "east expired whole 1.2"]);
    assert_eq!(fixture.end("east", "1.4", &["web"]), Ok(0));
    assert_eq!(fixture.told(), ["east active whole 1.4"]);
}

#[test]
fn a_member_that_returns_by_a_registration_is_shown_by_its_sum_too() {
    let mut fixture = returned();
    let other = sum_of(&[put("web", &["10.1.0.9"])]);
    assert_eq!(fixture.register("east", "2.1", other), Ok(Registered { differs: true }));
    assert_eq!(fixture.state("east"), Some(MemberState::Expired));
    let held = sum_of(&[put("web", &["10.1.0.1"])]);
    assert_eq!(fixture.register("east", "2.2", held), Ok(Registered { differs: false }));
    assert_eq!(fixture.told(), ["east active whole 2.2"]);
}

/// What is under way cannot be compared, so it proves nothing.
#[test]
fn a_renewal_that_an_act_has_overtaken_shows_nothing_again() {
    let mut fixture = Fixture::with_members(&["east"]);
    fixture.wrote("east", "1.2", vec![put("web", &["10.1.0.1"])]);
    fixture.until(40);
    let renewed = fixture.renew("east", "1.1", sum_of(&[put("web", &["10.1.0.1"])]));
    assert_eq!(renewed, Ok(Renewed { state: MemberState::Expired, differs: false }));
}

#[test]
fn a_member_that_renews_while_it_is_hidden_keeps_its_id_and_no_longer_than_a_lease() {
    let mut fixture = returned();
    fixture.until_millis(69_900);
    let claimed = fixture.register_as("east", "u-2", "1.1", Sum::EMPTY);
    assert!(matches!(claimed, Err(Refused::Claimed { .. })), "{claimed:?}");
    fixture.until_millis(70_000);
    assert_eq!(fixture.told(), [""; 0]);
    assert_eq!(fixture.registry.counts(), Counts { expired: 1, differing: 1, ..Counts::default() });
    let claimed = fixture.register_as("east", "u-2", "1.1", Sum::EMPTY);
    assert_eq!(claimed, Ok(Registered { differs: false }));
}

/// A pause counts its lease anew, as that of all; it shows nothing.
#[test]
fn a_member_that_is_hidden_stays_so_over_a_pause() {
    let mut fixture = returned();
    fixture.stall_until_millis(100_000);
    fixture.registry.handle_timeout(fixture.now());
    fixture.until_millis(129_900);
    assert_eq!(fixture.told(), [""; 0]);
    assert!(fixture.register_as("east", "u-2", "1.1", Sum::EMPTY).is_err());
    fixture.until_millis(130_000 + 7 * 24 * 60 * 60 * 1000);
    assert_eq!(fixture.told().last().map(String::as_str), Some("east gone"));
}

#[test]
fn renewing_one_cluster_changes_no_other() {
    let mut fixture = Fixture::with_members(&["east", "west"]);
    fixture.renewing_until(29, &["west"]);
    assert_eq!(fixture.told(), [""; 0]);
    fixture.until(30);
    assert_eq!(fixture.told(), ["east expired whole 1.1"]);
    assert_eq!(
        fixture.registry.member(&cluster("west")).expect("west").last_renewed(),
        Timestamp::from_millis(29_000)
    );
}

#[test]
fn a_syncing_member_that_falls_silent_leaves_as_if_it_had_not_come() {
    let mut fixture = Fixture::new();
    fixture.register("east", "1.1", sum_of(&[put("web", &[])])).expect("free id");
    fixture.begin("east", "1.2");
    fixture.wrote("east", "1.2", vec![put("web", &["10.1.0.1"])]);
    fixture.told();
    fixture.until_millis(29_999);
    assert_eq!(fixture.told(), [""; 0]);
    fixture.until(30);
    assert_eq!(fixture.told(), ["east gone"]);
}

/// O34: the record is collected long after the lease; on return everything is told again.
#[test]
fn o34_a_cluster_that_was_collected_registers_and_is_back_as_before() {
    let mut fixture = Fixture::with_members(&["alpha"]);
    fixture.wrote("alpha", "1.2", vec![put("cart", &["10.1.0.1"])]);
    fixture.until(30);
    let expired =
        ["alpha expired whole 1.2", "header cart ClusterSetIp of alpha", "part cart of alpha 1.2 [10.1.0.1]"];
    assert_eq!(fixture.snapshot(), expired);
    fixture.until_millis(30_000 + 7 * 24 * 60 * 60 * 1000 - 1);
    assert_eq!(fixture.told(), [""; 0]);
    fixture.until(30 + 7 * 24 * 60 * 60);
    assert_eq!(fixture.told(), ["part cart of alpha gone", "header cart gone", "alpha gone"]);

    let web = vec![put("cart", &["10.1.0.1"])];
    assert_eq!(fixture.register("alpha", "2.1", sum_of(&web)), Ok(Registered { differs: true }));
    fixture.sync("alpha", "2.2", web);
    assert_eq!(
        fixture.told(),
        [
            "alpha syncing in part 0.0",
            "part cart of alpha 2.2 [10.1.0.1]",
            "header cart ClusterSetIp of alpha",
            "alpha active whole 2.2",
        ]
    );
}

#[test]
fn a_pause_of_more_than_half_a_lease_counts_all_leases_anew() {
    let mut fixture = Fixture::with_members(&["east", "west"]);
    fixture.renewing_until(29, &["west"]);
    fixture.stall_until_millis(44_001);
    fixture.registry.handle_timeout(fixture.now());
    assert_eq!(fixture.registry.counts(), Counts { pauses: 1, ..Counts::default() });
    fixture.until_millis(74_000);
    assert_eq!(fixture.told(), [""; 0]);
    fixture.until_millis(74_001);
    assert_eq!(fixture.told(), ["east expired whole 1.1", "west expired whole 1.1"]);
}

#[test]
fn a_shorter_stall_counts_as_one_tick() {
    let mut fixture = Fixture::with_members(&["east"]);
    fixture.until(29);
    fixture.stall_until_millis(44_000);
    fixture.registry.handle_timeout(fixture.now());
    assert_eq!(fixture.told(), [""; 0]);
    fixture.until_millis(44_500);
    assert_eq!(fixture.told(), ["east expired whole 1.1"]);
    assert_eq!(fixture.registry.counts(), Counts { expired: 1, ..Counts::default() });
}

#[test]
fn a_pause_that_a_call_notices_first_is_not_judged_either() {
    let mut fixture = Fixture::with_members(&["east", "west"]);
    fixture.stall_until_millis(100_000);
    fixture.renew("west", "1.1", Sum::EMPTY).expect("renewed");
    fixture.registry.handle_timeout(fixture.now());
    assert_eq!(fixture.told(), [""; 0]);
    assert_eq!(fixture.state("east"), Some(MemberState::Active));
}

#[test]
fn a_registry_is_complete_one_lease_after_its_start_on_the_judging_clock() {
    let mut fixture = Fixture::new();
    fixture.until_millis(29_800);
    assert!(!fixture.registry.is_complete(Timestamp::from_millis(29_999)));
    assert!(fixture.registry.is_complete(Timestamp::from_millis(30_000)));
    assert!(fixture.registry.is_complete(Timestamp::from_millis(30_001)));

    let mut fixture = Fixture::new();
    fixture.until(20);
    fixture.stall_until_millis(40_000);
    assert!(!fixture.registry.is_complete(fixture.now()), "a pause in which nobody could register");
    fixture.registry.handle_timeout(fixture.now());
    fixture.until_millis(69_900);
    assert!(!fixture.registry.is_complete(Timestamp::from_millis(69_999)));
    assert!(fixture.registry.is_complete(Timestamp::from_millis(70_000)));
}

#[test]
fn deadlines_are_named_while_there_is_something_to_judge() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.registry.poll_timeout(), Some(Timestamp::from_millis(250)));
    fixture.until_millis(29_900);
    assert_eq!(fixture.registry.poll_timeout(), Some(Timestamp::from_millis(30_000)));
    fixture.until(30);
    assert_eq!(fixture.registry.poll_timeout(), None);
    fixture.stall_until_millis(3_600_000);
    fixture.register("east", "1.1", Sum::EMPTY).expect("free id");
    assert_eq!(fixture.registry.poll_timeout(), Some(Timestamp::from_millis(3_600_250)));
    assert_eq!(fixture.registry.counts(), Counts::default(), "an idle registry does not pause");
    assert_eq!(fixture.registry.absent_grace(), Duration::from_secs(30));
}
