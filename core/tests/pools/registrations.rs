//! Leases of the memory store.

use super::build::{LEASE, at, key, registration};
use mcs_core::pools::Completeness::{Estimated, Exact};
use mcs_core::pools::PoolRegistration;
use mcs_core::pools::registrations::RegistrationChange::{self, Removed, Upserted};
use mcs_core::pools::registrations::Registrations;
use mcs_core::time::Timestamp;
use std::sync::Arc;

fn drain(store: &mut Registrations) -> Vec<RegistrationChange> {
    std::iter::from_fn(|| store.next_change()).collect()
}

fn upserted(registration: PoolRegistration) -> RegistrationChange {
    Upserted(Arc::new(registration))
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
