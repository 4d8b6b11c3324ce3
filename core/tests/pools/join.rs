//! The join of registrations and imported pools.

use super::build::{LEASE, at, facts, key, registration};
use mcs_core::pools::join::{Join, JoinChange, JoinEvent};
use mcs_core::pools::{
    Location, Notice, PackedRegistration, PoolFacts, PoolKey, PoolListing, PoolRegistration,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

fn join() -> Join {
    let mut join = Join::new(LEASE.duration);
    join.handle_event(JoinEvent::Relisted, at(0));
    join
}

fn drain(join: &mut Join) -> Vec<JoinChange> {
    std::iter::from_fn(|| join.next_change()).collect()
}

fn registered(registration: &PoolRegistration) -> JoinEvent {
    JoinEvent::Registered(registration.into())
}

fn live(facts: &PoolFacts) -> JoinEvent {
    JoinEvent::Live(chat(), Arc::new(facts.clone()))
}

fn upserted(registration: &PoolRegistration, facts: &PoolFacts) -> JoinChange {
    JoinChange::Upserted(PoolListing {
        registration: registration.into(),
        facts: Some(Arc::new(facts.clone())),
    })
}

fn chat() -> PoolKey {
    key("east", "chat")
}

#[test]
fn a_pool_is_listed_while_both_sides_have_it() {
    let (registration, facts) =
        (registration("east", "chat"), facts(&["ip:10.0.0.1"], &["http://10.0.0.2:8000/"]));
    let mut join = join();
    let events = [
        registered(&registration),
        live(&facts),
        JoinEvent::Lapsed(chat()),
        registered(&registration),
        JoinEvent::Gone(chat()),
        live(&facts),
    ];
    for event in events {
        join.handle_event(event, at(0));
    }
    let (listed, removed) = (upserted(&registration, &facts), JoinChange::Removed(chat()));
    assert_eq!(drain(&mut join), [listed.clone(), removed.clone(), listed.clone(), removed, listed]);
}

#[test]
fn addresses_are_those_of_the_slices_and_the_region_is_the_registrations_where_it_has_one() {
    let imported = PoolFacts { region: Some("us-east-1".into()), ..facts(&["ip:10.0.0.1"], &[]) };
    let own = |region: Option<&str>| PoolRegistration {
        location: Location { region: region.map(Into::into), ..Location::default() },
        ..registration("east", "chat")
    };
    let seen = [None, Some("ohio")].map(|region| {
        let mut join = join();
        join.handle_event(live(&imported), at(0));
        join.handle_event(registered(&own(region)), at(0));
        let changes = drain(&mut join);
        let [JoinChange::Upserted(listing)] = &changes[..] else { panic!("{changes:?}") };
        let listed = listing.contents();
        let frontends: Vec<String> = listed.frontends().map(str::to_owned).collect();
        (listed.registered.region.map(str::to_owned), frontends, listed.relay_identities().to_vec())
    });
    let expected = |region: &str| (Some(region.to_owned()), vec![], vec![Box::from("ip:10.0.0.1")]);
    assert_eq!(seen, [expected("us-east-1"), expected("ohio")]);
}

#[test]
fn a_change_that_no_reader_can_see_is_not_told() {
    let facts = facts(&["ip:10.0.0.1"], &[]);
    let mut join = join();
    join.handle_event(live(&facts), at(0));
    join.handle_event(registered(&registration("east", "chat")), at(0));
    drain(&mut join);
    // The frontends of a registration are not listed where slices give them.
    let moved = PoolRegistration { frontends: Box::default(), ..registration("east", "chat") };
    join.handle_event(registered(&moved), at(0));
    join.handle_event(live(&facts), at(0));
    assert_eq!(drain(&mut join), []);
}

#[test]
fn a_pool_that_one_side_alone_has_for_two_leases_gives_one_notice() {
    let cases = [
        (registered(&registration("east", "chat")), Notice::NotImported(chat())),
        (live(&facts(&["ip:10.0.0.1"], &[])), Notice::NotRegistered(chat())),
    ];
    for (event, notice) in cases {
        let mut join = join();
        join.handle_event(event.clone(), at(1000));
        // Told again by its side: the count goes on.
        join.handle_event(event, at(20_000));
        let mut seen = Vec::new();
        for now in [30_999, 31_000, 90_000] {
            join.handle_timeout(at(now));
            seen.push(drain(&mut join));
        }
        assert_eq!(seen, [vec![], vec![JoinChange::Notice(notice)], vec![]]);
        assert_eq!(join.poll_timeout(), None);
    }
}

#[test]
fn the_count_starts_anew_after_both_sides_had_the_pool_and_after_a_relist() {
    let mut join = join();
    let facts = facts(&["ip:10.0.0.1"], &[]);
    join.handle_event(live(&facts), at(0));
    join.handle_event(registered(&registration("east", "chat")), at(29_000));
    assert_eq!(join.poll_timeout(), None);
    join.handle_event(JoinEvent::Lapsed(chat()), at(44_000));
    assert_eq!(join.poll_timeout(), Some(at(74_000)));
    join.handle_event(JoinEvent::Relisted, at(70_000));
    assert_eq!(join.poll_timeout(), Some(at(100_000)));
    drain(&mut join);
    join.handle_timeout(at(100_000));
    join.handle_event(JoinEvent::Relisted, at(101_000));
    join.handle_timeout(at(131_000));
    let notice = || JoinChange::Notice(Notice::NotRegistered(chat()));
    assert_eq!(drain(&mut join), [notice(), notice()]);
}

#[test]
fn before_the_first_list_no_pool_counts_as_one_sided() {
    let mut join = Join::new(LEASE.duration);
    join.handle_event(registered(&registration("east", "chat")), at(0));
    assert_eq!(join.poll_timeout(), None);
    join.handle_event(JoinEvent::Relisted, at(50_000));
    assert_eq!(join.poll_timeout(), Some(at(80_000)));
}

/// One step of a random history: which pool, what happens to it, and in which variant.
fn step() -> impl Strategy<Value = (usize, u8, u8)> {
    (0..4usize, 0..5u8, 0..3u8)
}

fn event(pool: usize, kind: u8, variant: u8) -> JoinEvent {
    let dgd = format!("pool-{pool}");
    let key = key("east", &dgd);
    match kind {
        0 => {
            let model = format!("model-{variant}").into();
            JoinEvent::Registered(PoolRegistration { model, ..registration("east", &dgd) }.into())
        }
        1 => JoinEvent::Lapsed(key),
        2 => JoinEvent::Live(key, Arc::new(facts(&[&format!("ip:10.0.0.{variant}")], &[]))),
        3 => JoinEvent::Gone(key),
        _ => JoinEvent::Relisted,
    }
}

proptest! {
    /// After every step of any history: the list equals the join of the last states made from scratch, the changes
    /// replayed give that list, none of them repeats what was listed, and the next deadline lies ahead.
    #[test]
    fn the_join_of_any_history_is_the_join_from_scratch(steps in prop::collection::vec(step(), 0..60)) {
        let mut join = join();
        let mut registrations: BTreeMap<PoolKey, PackedRegistration> = BTreeMap::new();
        let mut imported: BTreeMap<PoolKey, Arc<PoolFacts>> = BTreeMap::new();
        let mut replayed: BTreeMap<PoolKey, PoolListing> = BTreeMap::new();
        for (number, (pool, kind, variant)) in steps.into_iter().enumerate() {
            let event = event(pool, kind, variant);
            match &event {
                JoinEvent::Registered(registration) => {
                    registrations.insert(registration.key().clone(), registration.clone());
                }
                JoinEvent::Lapsed(key) => drop(registrations.remove(key)),
                JoinEvent::Live(key, facts) => drop(imported.insert(key.clone(), facts.clone())),
                JoinEvent::Gone(key) => drop(imported.remove(key)),
                JoinEvent::Relisted => {}
            }
            let now = at(number as u64 * 7000);
            join.handle_event(event, now);
            for change in drain(&mut join) {
                match change {
                    JoinChange::Upserted(listing) => {
                        let known = replayed.insert(listing.key().clone(), listing.clone());
                        prop_assert_ne!(known, Some(listing));
                    }
                    JoinChange::Removed(key) => prop_assert!(replayed.remove(&key).is_some()),
                    JoinChange::Notice(_) => {}
                }
            }
            let from_scratch = registrations.iter().filter_map(|(key, registration)| {
                let facts = Some(imported.get(key)?.clone());
                Some((key.clone(), PoolListing { registration: registration.clone(), facts }))
            });
            prop_assert_eq!(&replayed, &from_scratch.collect::<BTreeMap<_, _>>());
            prop_assert!(join.poll_timeout().is_none_or(|deadline| deadline > now));
        }
    }
}
