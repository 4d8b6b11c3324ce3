//! Leases of the memory store.

use super::build::{LEASE, at, key, registration};
use mcs_core::pools::Completeness::{Estimated, Exact};
use mcs_core::pools::registrations::RegistrationChange::{self, Removed, Upserted};
use mcs_core::pools::registrations::Registrations;
use mcs_core::pools::{Lease, PoolRegistration};
use mcs_core::time::Timestamp;
use std::time::Duration;

fn drain(store: &mut Registrations) -> Vec<RegistrationChange> {
    std::iter::from_fn(|| store.next_change()).collect()
}

fn upserted(registration: PoolRegistration) -> RegistrationChange {
    Upserted(registration.into())
}

#[test]
fn a_pool_is_listed_one_tick_before_its_lease_ends_and_gone_at_its_end() {
    let mut store = Registrations::new(LEASE, at(0));
    assert_eq!(store.register(registration("east", "chat"), at(1000)), LEASE);
    let tick_before = Timestamp::from_nanos(at(16_000).as_nanos() - 1);
    let mut seen = vec![drain(&mut store)];
    for now in [at(15_999), tick_before, at(16_000), at(16_001)] {
        store.handle_timeout(now);
        seen.push(drain(&mut store));
    }
    let gone = vec![Removed(key("east", "chat"))];
    assert_eq!(seen, [vec![upserted(registration("east", "chat"))], vec![], vec![], gone, vec![]]);
    assert!(store.is_empty());
}

#[test]
fn a_renewal_moves_the_end_and_is_no_change() {
    let mut store = Registrations::new(LEASE, at(0));
    for second in [0, 5, 10] {
        store.register(registration("east", "chat"), at(second * 1000));
    }
    let mut seen = vec![drain(&mut store)];
    for now in [15_000, 24_999, 25_000] {
        store.handle_timeout(at(now));
        seen.push(drain(&mut store));
    }
    let gone = vec![Removed(key("east", "chat"))];
    assert_eq!(seen, [vec![upserted(registration("east", "chat"))], vec![], vec![], gone]);
}

#[test]
fn another_payload_renews_and_is_told() {
    let mut store = Registrations::new(LEASE, at(0));
    let larger = PoolRegistration { model: "mixtral".into(), ..registration("east", "chat") };
    store.register(registration("east", "chat"), at(0));
    store.register(larger.clone(), at(14_999));
    store.handle_timeout(at(15_000));
    assert_eq!(drain(&mut store), [upserted(registration("east", "chat")), upserted(larger)]);
}

#[test]
fn a_lapsed_pool_that_registers_again_is_told_as_gone_and_as_new() {
    let mut store = Registrations::new(LEASE, at(0));
    store.register(registration("east", "chat"), at(0));
    store.register(registration("east", "chat"), at(15_000));
    let pool = || upserted(registration("east", "chat"));
    assert_eq!(drain(&mut store), [pool(), Removed(key("east", "chat")), pool()]);
}

#[test]
fn the_list_is_exact_once_one_whole_lease_has_passed_since_the_start() {
    let store = Registrations::new(LEASE, at(500));
    let seen = [500, 15_499, 15_500, 90_000].map(|now| store.completeness(at(now)));
    assert_eq!(seen, [Estimated, Estimated, Exact, Exact]);
    assert_eq!([500, 15_500].map(|now| store.poll_timeout(at(now))), [Some(at(15_500)), None]);
}

/// A store with a pool that was renewed last at 30 s.
fn settled() -> Registrations {
    let mut store = Registrations::new(LEASE, at(0));
    for second in [0, 5, 10, 15, 20, 25, 30] {
        store.register(registration("east", "chat"), at(second * 1000));
    }
    drain(&mut store);
    store
}

/// Fault 3: the process stood still, and renewals wait to be read.
#[test]
fn after_a_pause_in_which_a_lease_may_have_run_out_the_list_is_estimated_for_a_lease() {
    let after = |millis: u64| {
        let mut store = settled();
        store.handle_timeout(at(30_000 + millis));
        let moments = [30_000 + millis, 44_999 + millis, 45_000 + millis];
        moments.map(|now| store.completeness(at(now)))
    };
    assert_eq!(
        [9_999, 10_000, 10_001].map(after),
        [[Exact; 3], [Estimated, Estimated, Exact], [Estimated, Estimated, Exact]]
    );
    let mut store = settled();
    store.register(registration("east", "chat"), at(50_000));
    let lapsed = vec![Removed(key("east", "chat")), upserted(registration("east", "chat"))];
    assert_eq!((drain(&mut store), store.completeness(at(50_000))), (lapsed, Estimated));
}

#[test]
fn while_there_are_pools_the_store_is_asked_often_enough_to_notice_a_pause() {
    assert_eq!(settled().poll_timeout(at(30_000)), Some(at(31_000)));
    let lease = Lease { duration: Duration::from_secs(2), heartbeat_interval: Duration::from_secs(1) };
    let mut short = Registrations::new(lease, at(0));
    short.register(registration("east", "chat"), at(0));
    let mut now = at(0);
    for _ in 0..100 {
        now = short.poll_timeout(now).unwrap();
        short.register(registration("east", "chat"), now);
    }
    assert_eq!(short.completeness(now), Exact);
}

#[test]
fn a_store_without_pools_has_nothing_to_lose_in_a_pause() {
    let mut store = settled();
    for second in 31..=45 {
        store.handle_timeout(at(second * 1000));
    }
    assert!(store.is_empty());
    store.register(registration("east", "chat"), at(3_600_000));
    assert_eq!(store.completeness(at(3_600_000)), Exact);
}

#[test]
fn after_a_timeout_the_next_deadline_lies_ahead() {
    let mut store = Registrations::new(LEASE, at(0));
    for step in 0..200u64 {
        let now = at(step * 700);
        let dgd = format!("pool-{}", step % 7);
        if step % 3 != 0 {
            store.register(registration("east", &dgd), now);
        }
        store.handle_timeout(now);
        assert!(store.poll_timeout(now).is_none_or(|deadline| deadline > now), "at step {step}");
    }
}
