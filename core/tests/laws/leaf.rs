//! The content hash of an export says whether two exports are equal, and nothing else.

use crate::build::{any_endpoint, any_export, endpoint_set, key};
use mcs_core::ids::ServiceKey;
use mcs_core::version::{Leaf, Sum};
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #[test]
    fn two_leaves_are_equal_if_and_only_if_the_content_is(
        a in (any_export(), vec(any_endpoint(), 0..3)),
        b in (any_export(), vec(any_endpoint(), 0..3)),
        same_spec in any::<bool>(),
        same_endpoints in any::<bool>(),
    ) {
        let spec_b = if same_spec { &a.0 } else { &b.0 };
        let set_a = endpoint_set(a.1.clone());
        let set_b = endpoint_set(if same_endpoints { a.1.clone() } else { b.1.clone() });
        let equal = (&a.0, &set_a) == (spec_b, &set_b);
        prop_assert_eq!(Leaf::of(&key(), &a.0, &set_a) == Leaf::of(&key(), spec_b, &set_b), equal);
    }

    #[test]
    fn the_order_of_endpoints_changes_neither_the_set_nor_the_leaf(
        spec in any_export(),
        (endpoints, shuffled) in
            vec(any_endpoint(), 0..8).prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
    ) {
        let (set, other) = (endpoint_set(endpoints), endpoint_set(shuffled));
        prop_assert_eq!(&set, &other);
        prop_assert_eq!(Leaf::of(&key(), &spec, &set), Leaf::of(&key(), &spec, &other));
    }

    #[test]
    fn a_sum_that_was_changed_step_by_step_is_the_sum_of_what_is_left(
        specs in vec(any_export(), 1..6),
        removed in 0_usize..6,
    ) {
        let leaves: Vec<Leaf> = specs.iter().map(|spec| Leaf::of(&key(), spec, &endpoint_set([]))).collect();
        let mut sum: Sum = leaves.iter().copied().collect();
        let removed = removed.min(leaves.len());
        for leaf in &leaves[..removed] {
            sum.remove(*leaf);
        }
        prop_assert_eq!(sum, leaves[removed..].iter().copied().collect::<Sum>());
    }
}

/// O28.
#[test]
fn one_service_name_in_two_namespaces_has_two_leaves() {
    let leaf = |namespace| {
        let key = ServiceKey::new(namespace, "cart").unwrap();
        Leaf::of(&key, &mcs_core::model::ExportSpec::default(), &endpoint_set([]))
    };
    assert_ne!(leaf("a"), leaf("b"));
}
