//! Registrations in one piece of memory.

use super::build::{key, registration};
use mcs_core::pools::{Capacity, Location, PackedRegistration, PoolRegistration};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn any_registration() -> impl Strategy<Value = PoolRegistration> {
    let text = || any::<String>().prop_map(String::into_boxed_str);
    let texts = || vec(text(), 0..4).prop_map(Vec::into_boxed_slice);
    let capacity = vec(any::<u64>().prop_map(|workers| Capacity { workers }), 0..4);
    let place = (option::of(text()), option::of(text()), option::of(text()));
    (0..3u8, place, text(), texts(), capacity, texts()).prop_map(
        |(dgd, (region, availability_zone, datacenter), model, capabilities, capacity, frontends)| {
            PoolRegistration {
                key: key("east", &format!("pool-{dgd}")),
                location: Location { region, availability_zone, datacenter },
                model,
                capabilities,
                capacity: capacity.into(),
                frontends,
            }
        },
    )
}

proptest! {
    /// Whatever texts are in it, and two are equal when they say the same in the same order.
    #[test]
    fn what_is_packed_is_what_was_registered(one in any_registration(), two in any_registration()) {
        let packed = [&one, &two].map(PackedRegistration::from);
        prop_assert_eq!(&packed[0].unpack(), &one);
        prop_assert_eq!(packed[0].key(), &one.key);
        prop_assert_eq!(packed[0] == packed[1], one == two);
        prop_assert_eq!(packed[0].says_the_same(&packed[1]), one.says_the_same(&two));
    }
}

#[test]
fn the_order_of_lists_is_a_difference_that_means_nothing() {
    let with = |capabilities: [&str; 2]| {
        let capabilities = capabilities.map(Into::into).into();
        PackedRegistration::from(PoolRegistration { capabilities, ..registration("east", "chat") })
    };
    let (one, two, other) = (with(["a", "bc"]), with(["bc", "a"]), with(["ab", "c"]));
    assert_eq!([one == two, one.says_the_same(&two), one.says_the_same(&other)], [false, true, false]);
}

#[test]
fn keys_are_ordered_by_cluster_namespace_and_name_wherever_they_lie() {
    let keys = [key("a", "b"), key("a", "b-c"), key("a-b", "a"), key("ab", "a"), key("b", "a")];
    let packed = PackedRegistration::from(registration("a", "b-c"));
    let mut sorted: BTreeSet<_> = keys.iter().rev().cloned().collect();
    assert!(!sorted.insert(packed.key().clone()));
    assert_eq!(Vec::from_iter(sorted), keys);
    let key = packed.key();
    assert_eq!((key.cluster_id(), key.namespace(), key.dgd_name()), ("a", "ml", "b-c"));
}
