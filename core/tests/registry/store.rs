//! What comes back from a store, and what is not judged while it does not answer.

use crate::fixture::{Fixture, cluster, leaf_of, put, sum_of, uid_of, version};
use mcs_core::model::{Export, MemberState};
use mcs_core::registry::{Op, Registered, Renewed, Restored};
use mcs_core::time::Timestamp;
use mcs_core::version::Sum;

/// A member that a store holds as of 3.4, exporting what `ops` put.
fn stored(name: &str, ops: &[Op], sum: Sum, state: MemberState) -> Restored {
    let exports = ops.iter().map(|op| match op {
        Op::Put { key, leaf, spec, endpoints, .. } => {
            let (spec, endpoints) = (spec.clone(), endpoints.clone());
            (key.clone(), Export { version: version("3.3"), leaf: *leaf, spec, endpoints, changed_at: None })
        }
        other => panic!("{other:?} is not held by a store"),
    });
    let exports = exports.collect();
    Restored {
        uid: uid_of(&format!("uid-{name}")),
        region: None,
        version: version("3.4"),
        sum,
        state,
        exports,
    }
}

fn restore(fixture: &mut Fixture, name: &str, ops: &[Op], sum: Sum, state: MemberState) {
    let now = fixture.now();
    fixture.registry.restore(&cluster(name), stored(name, ops, sum, state), now);
}

#[test]
fn a_member_that_a_store_holds_whole_is_shown_at_once_and_needs_no_sync() {
    let mut fixture = Fixture::new();
    let ops = [put("web", &["10.1.0.1"])];
    restore(&mut fixture, "east", &ops, sum_of(&ops), MemberState::Active);
    assert_eq!(
        fixture.told(),
        ["part web of east 3.3 [10.1.0.1]", "header web ClusterSetIp of east", "east active whole 3.4"]
    );
    assert_eq!(fixture.register("east", "4.1", sum_of(&ops)), Ok(Registered { differs: false }));
    assert_eq!(fixture.told(), ["east active whole 4.1"]);
}

#[test]
fn exports_that_are_not_those_of_the_sum_prove_nothing_until_the_member_synced() {
    let mut fixture = Fixture::new();
    let (web, api) = (put("web", &["10.1.0.1"]), put("api", &["10.1.0.2"]));
    let both = [web.clone(), api];
    restore(&mut fixture, "east", &[web], sum_of(&both), MemberState::Active);
    assert_eq!(fixture.told(), ["part web of east 3.3 [10.1.0.1]", "east syncing in part 3.4"]);
    assert_eq!(fixture.register("east", "4.1", sum_of(&both)), Ok(Registered { differs: true }));
    fixture.sync("east", "4.2", both.to_vec());
    assert_eq!(fixture.state("east"), Some(MemberState::Active));
    assert_eq!(fixture.told().last().map(String::as_str), Some("east active whole 4.2"));
}

/// What a store told is told on, whole or not: else its removal could not be, and the store would keep it.
#[test]
fn an_export_that_a_store_held_of_a_member_in_part_goes_with_the_first_sync() {
    let mut fixture = Fixture::new();
    let (web, api) = (put("web", &["10.1.0.1"]), put("api", &["10.1.0.2"]));
    restore(
        &mut fixture,
        "east",
        &[web.clone(), api],
        sum_of(std::slice::from_ref(&web)),
        MemberState::Active,
    );
    fixture.told();
    fixture.register("east", "4.1", sum_of(std::slice::from_ref(&web))).expect("its id");
    fixture.told();
    fixture.sync("east", "4.2", vec![web]);
    assert_eq!(
        fixture.told(),
        ["header web ClusterSetIp of east", "part api of east gone", "east active whole 4.2"]
    );
}

#[test]
fn a_member_that_was_not_whole_for_who_wrote_it_is_not_whole_here() {
    let mut fixture = Fixture::new();
    restore(&mut fixture, "east", &[], Sum::EMPTY, MemberState::Syncing);
    assert_eq!(fixture.told(), ["east syncing in part 3.4"]);
}

#[test]
fn a_member_that_has_spoken_is_not_replaced_by_what_a_store_held() {
    let mut fixture = Fixture::with_members(&["east"]);
    let ops = [put("web", &["10.1.0.1"])];
    restore(&mut fixture, "east", &ops, sum_of(&ops), MemberState::Active);
    assert_eq!(fixture.told(), [""; 0]);
}

#[test]
fn a_leader_with_a_term_below_that_of_the_store_is_refused() {
    let mut fixture = Fixture::new();
    restore(&mut fixture, "east", &[], Sum::EMPTY, MemberState::Active);
    let refused = fixture.register("east", "2.9", Sum::EMPTY).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "term 2 of cluster east is over or another leader's, 3 is the highest seen: raise it above that"
    );
}

#[test]
fn the_lease_of_a_restored_member_counts_from_the_restore() {
    for (nanos, state) in [
        (34_999_999_999, MemberState::Active),
        (35_000_000_000, MemberState::Expired),
        (35_000_000_001, MemberState::Expired),
    ] {
        let mut fixture = Fixture::new();
        fixture.until(5);
        restore(&mut fixture, "east", &[], Sum::EMPTY, MemberState::Active);
        fixture.until_millis(34_900);
        fixture.registry.handle_timeout(Timestamp::from_nanos(nanos));
        assert_eq!(fixture.state("east"), Some(state), "after {nanos} ns");
    }
}

#[test]
fn a_member_that_had_expired_stays_so_until_it_renews() {
    let mut fixture = Fixture::new();
    let ops = [put("web", &["10.1.0.1"])];
    restore(&mut fixture, "east", &ops, sum_of(&ops), MemberState::Expired);
    assert_eq!(
        fixture.told(),
        ["part web of east 3.3 [10.1.0.1]", "header web ClusterSetIp of east", "east expired whole 3.4"]
    );
    let renewed = fixture.renew("east", "3.4", sum_of(&ops));
    assert_eq!(renewed, Ok(Renewed { state: MemberState::Active, differs: false }));
    assert_eq!(fixture.told(), ["east active whole 3.4"]);
}

/// Time that passes while the store is away is not judged, and a lease goes on afterwards where it stood.
#[test]
fn no_lease_is_judged_while_the_store_does_not_answer() {
    let mut fixture = Fixture::with_members(&["east"]);
    fixture.until(29);
    let away = fixture.now();
    fixture.registry.store_answers(false, away);
    fixture.until(3 * 60 * 60);
    assert_eq!(fixture.told(), [""; 0]);
    let back = fixture.now();
    fixture.registry.store_answers(true, back);
    fixture.until_millis(3 * 60 * 60 * 1000 + 999);
    assert_eq!(fixture.state("east"), Some(MemberState::Active));
    fixture.until_millis(3 * 60 * 60 * 1000 + 1000);
    assert_eq!(fixture.told(), ["east expired whole 1.1"]);
}

#[test]
fn a_view_is_not_complete_while_the_store_does_not_answer() {
    let mut fixture = Fixture::with_members(&["east"]);
    fixture.renewing_until(30, &["east"]);
    let now = fixture.now();
    let mut seen = vec![fixture.registry.is_complete(now)];
    for answers in [false, true] {
        fixture.registry.store_answers(answers, now);
        seen.push(fixture.registry.is_complete(now));
    }
    assert_eq!(seen, [true, false, true]);
}

#[test]
fn a_store_that_is_away_does_not_keep_a_member_from_renewing_and_writing() {
    let mut fixture = Fixture::with_members(&["east"]);
    let now = fixture.now();
    fixture.registry.store_answers(false, now);
    let web = put("web", &["10.1.0.1"]);
    let sum = [leaf_of(&web)].into_iter().collect();
    fixture.wrote("east", "1.2", vec![web]);
    assert_eq!(fixture.renew("east", "1.2", sum), Ok(Renewed { state: MemberState::Active, differs: false }));
    assert_eq!(
        fixture.told(),
        ["part web of east 1.2 [10.1.0.1]", "header web ClusterSetIp of east", "east active whole 1.2"]
    );
}
