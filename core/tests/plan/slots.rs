//! Properties of slots, over chains of changes.

use super::world::net;
use mcs_core::plan::slots::{SLICE_ENDPOINTS, Slots, assign};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

fn sizes(slots: &Slots) -> Vec<(u32, usize)> {
    slots.iter().map(|(slot, members)| (*slot, members.len())).collect()
}

fn places(slots: &Slots) -> BTreeMap<IpAddr, u32> {
    slots.iter().flat_map(|(slot, members)| members.iter().map(|address| (*address, *slot))).collect()
}

#[test]
fn few_endpoints_are_in_one_slot_and_many_fill_slot_after_slot() {
    let fresh = |count| sizes(&assign(&Slots::new(), &BTreeSet::new(), net(1, count)));
    assert_eq!(fresh(0), []);
    assert_eq!(fresh(1), [(0, 1)]);
    assert_eq!(fresh(100), [(0, 100)]);
    assert_eq!(fresh(101), [(0, 100), (1, 1)]);
    assert_eq!(fresh(250), [(0, 100), (1, 100), (2, 50)]);
}

#[test]
fn a_slot_that_empties_goes_and_renames_no_other() {
    let slots = assign(&Slots::new(), &BTreeSet::new(), net(1, 250));
    let rest: Vec<IpAddr> = net(1, 250).skip(100).collect();
    assert_eq!(sizes(&assign(&slots, &BTreeSet::new(), rest)), [(1, 100), (2, 50)]);
}

#[test]
fn an_address_in_two_slots_stays_in_the_lower_one() {
    let address: IpAddr = net(1, 1).next().expect("an address");
    let twice = Slots::from([(3, BTreeSet::from([address])), (1, BTreeSet::from([address]))]);
    assert_eq!(sizes(&assign(&twice, &BTreeSet::new(), [address])), [(1, 1)]);
}

#[test]
fn a_slot_that_is_too_full_keeps_as_many_as_it_may() {
    let full = Slots::from([(0, net(1, 130).collect())]);
    assert_eq!(sizes(&assign(&full, &BTreeSet::new(), net(1, 130))), [(0, 100), (1, 30)]);
}

proptest! {
    /// Case O18, over random chains of changes.
    #[test]
    fn endpoints_stay_in_place_and_no_slot_is_empty_or_too_full(
        sets in proptest::collection::vec(proptest::collection::btree_set(0u32..700, 0..500), 1..6),
        blocked in proptest::collection::btree_set(0u32..4, 0..3),
    ) {
        let all: Vec<IpAddr> = net(1, 700).collect();
        let mut slots = Slots::new();
        for set in sets {
            let wanted: BTreeSet<IpAddr> = set.iter().map(|index| all[*index as usize]).collect();
            let next = assign(&slots, &blocked, wanted.iter().copied());
            let now = places(&next);
            prop_assert_eq!(now.keys().copied().collect::<BTreeSet<_>>(), wanted);
            prop_assert_eq!(now.len(), next.values().map(BTreeSet::len).sum::<usize>());
            for (address, slot) in places(&slots) {
                prop_assert!(now.get(&address).is_none_or(|place| *place == slot));
            }
            for (slot, members) in &next {
                prop_assert!((1..=SLICE_ENDPOINTS).contains(&members.len()));
                prop_assert!(!blocked.contains(slot));
            }
            prop_assert_eq!(&assign(&next, &blocked, now.keys().copied()), &next);
            // New ones went to the lowest free places: no slot below a new one's had room.
            let newest = now.iter().filter(|(address, _)| !places(&slots).contains_key(*address)).map(|(_, slot)| *slot).max();
            for slot in (0..newest.unwrap_or(0)).filter(|slot| !blocked.contains(slot)) {
                prop_assert_eq!(next.get(&slot).map(BTreeSet::len), Some(SLICE_ENDPOINTS));
            }
            slots = next;
        }
    }
}
