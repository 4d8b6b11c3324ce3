//! How much there is, and what happened. That counts are those of what is held is checked after every step.

use crate::fixture::{Fixture, cluster, delete, leaf_of, put, put_endpoints, put_spec, spec};
use mcs_core::model::{ExportSpec, MemberState, ServiceType};
use mcs_core::registry::{Counts, Sizes};
use mcs_core::time::Timestamp;
use mcs_core::version::Sum;
use std::time::Duration;

#[test]
fn sizes_follow_what_is_put_deleted_and_removed() {
    let mut fixture = Fixture::with_members(&["east", "west"]);
    let sizes = |fixture: &mut Fixture| {
        fixture.told();
        let Sizes { exports, endpoints, imports, conflicts, .. } = fixture.registry.sizes();
        [exports, endpoints, imports, conflicts]
    };
    let headless = || ExportSpec { service_type: ServiceType::Headless, ..spec() };
    fixture.wrote("east", "1.2", vec![put("web", &["10.1.0.1", "10.1.0.2"]), put("api", &["10.1.0.3"])]);
    let mut seen = vec![sizes(&mut fixture)];
    fixture.wrote("west", "1.2", vec![put_spec("web", headless(), &["10.2.0.1"])]);
    seen.push(sizes(&mut fixture));
    fixture.wrote("east", "1.3", vec![put_endpoints("web", &[])]);
    seen.push(sizes(&mut fixture));
    fixture.wrote("west", "1.3", vec![put("web", &["10.2.0.1"])]);
    seen.push(sizes(&mut fixture));
    fixture.wrote("east", "1.4", vec![delete("web")]);
    seen.push(sizes(&mut fixture));
    let now = fixture.now();
    fixture.registry.remove(&cluster("west"), None, true, now).expect("removed");
    seen.push(sizes(&mut fixture));
    assert_eq!(seen, [[2, 3, 2, 0], [3, 4, 2, 1], [3, 2, 2, 1], [3, 2, 2, 0], [2, 2, 2, 0], [1, 1, 1, 0]]);
}

#[test]
fn members_are_counted_by_their_state() {
    let mut fixture = Fixture::with_members(&["a", "b", "c", "d"]);
    let other = [leaf_of(&put("web", &["10.1.0.1"]))].into_iter().collect();
    fixture.register("e", "1.1", other).expect("free id");
    fixture.renewing_until(30, &["c", "d"]);
    let members: Vec<_> = fixture.registry.sizes().members.into_iter().collect();
    assert_eq!(members, [(MemberState::Syncing, 1), (MemberState::Active, 2), (MemberState::Held, 2)]);
}

/// A verdict that waits is one, however often it is looked at.
#[test]
fn a_held_lease_counts_once_and_so_does_each_renewal_that_differs() {
    let mut fixture = Fixture::with_members(&["a", "b", "c"]);
    let other: Sum = [leaf_of(&put("web", &["10.1.0.1"]))].into_iter().collect();
    for sum in [other, other, Sum::EMPTY] {
        fixture.renew("a", "1.1", sum).expect("renewed");
    }
    fixture.until(30);
    fixture.until(45);
    assert_eq!(fixture.registry.counts(), Counts { held: 3, holds: 1, differing: 2, ..Counts::default() });
}

#[test]
fn the_age_of_a_view_counts_from_the_first_time_that_the_store_did_not_answer() {
    let mut fixture = Fixture::with_members(&["east"]);
    let mut age = |second: u64, answers: bool| {
        let now = Timestamp::from_millis(second * 1000);
        fixture.registry.store_answers(answers, now);
        fixture.registry.view_age(now + Duration::from_secs(1)).as_secs()
    };
    assert_eq!([age(1, true), age(2, false), age(5, false), age(6, true), age(9, false)], [0, 1, 4, 0, 1]);
}
