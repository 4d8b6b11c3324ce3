//! Parts that need not be told again: what is offered, and what a registry may take for known.

use super::feed::{BUILD, Feed, GRACE, active, build_of, id, show, syncing, uid};
use mcs_core::model::{PartSet, Since};
use mcs_core::version::{Leaf, Version};
use mcs_core::view::NotHeld;

/// The set of the parts of `cluster` that carry these leaves.
fn set(cluster: &str, leaves: &[u8]) -> PartSet {
    let sum = leaves.iter().map(|leaf| Leaf::from_bytes([*leaf; 16])).collect();
    PartSet { uid: uid("", cluster), sum }
}

fn since(sets: &[(&str, &[u8])]) -> Since {
    let sets = sets.iter().map(|(cluster, leaves)| (id(cluster), set(cluster, leaves))).collect();
    Since { build: build_of(BUILD), sets }
}

/// A registry that has restarted, and knows nothing yet.
fn restart(feed: &mut Feed, epoch: u128) {
    feed.view.disconnected();
    feed.begin(epoch);
    feed.end(false);
}

#[test]
fn what_was_told_of_other_clusters_is_offered_by_its_sum() {
    let mut feed = Feed::new();
    assert_eq!(feed.view.since(), Since::default());
    feed.begin(1);
    feed.part("alpha", 5, &[1]);
    assert_eq!(feed.view.since(), since(&[]), "a snapshot that is half told says nothing");
    feed.part("beta", 3, &[9]);
    feed.part("gamma", 3, &[7]);
    feed.end(false);
    assert_eq!(feed.view.since(), since(&[("alpha", &[1]), ("beta", &[9])]));
    feed.part("alpha", 6, &[2]);
    feed.part_gone("beta");
    assert_eq!(feed.view.since(), since(&[("alpha", &[2])]));
}

#[test]
fn a_cluster_whose_id_is_taken_over_is_not_offered_while_parts_of_both_are_told() {
    let mut feed = Feed::new();
    feed.begin(1);
    feed.part("alpha", 5, &[1]);
    feed.other_part_of("alpha", "second", 1, &[2]);
    feed.end(false);
    assert_eq!(feed.view.since(), since(&[]));
}

#[test]
fn parts_that_are_kept_are_shown_as_of_the_version_of_their_set() {
    let mut feed = Feed::with_alpha();
    restart(&mut feed, 2);
    feed.section("gamma", active(1));
    assert_eq!(feed.sources(), show([("alpha", None)]));
    feed.kept("alpha", set("alpha", &[1]), 8).expect("what it has");
    feed.header(&[("alpha", 8)]);
    feed.section("alpha", active(8));
    assert_eq!(feed.sources(), show([("alpha", Some(&[1]))]));
    assert_eq!(feed.version_of("alpha"), Some(Version::new(1, 8)));
    feed.apply();
    // A registry that has an older state, which nobody told before the set was kept.
    feed.begin(3);
    feed.section("gamma", active(1));
    feed.section("alpha", active(7));
    feed.header(&[("alpha", 7)]);
    feed.part("alpha", 7, &[3]);
    feed.end(false);
    assert_eq!(feed.sources(), show([("alpha", None)]), "nothing goes back");
}

#[test]
fn parts_are_at_hand_through_registries_that_tell_nothing_of_their_cluster() {
    let mut feed = Feed::with_alpha();
    for epoch in 2..5 {
        restart(&mut feed, epoch);
        feed.section("alpha", syncing());
        assert_eq!(feed.view.since(), since(&[("alpha", &[1])]), "epoch {epoch}");
    }
    feed.kept("alpha", set("alpha", &[1]), 8).expect("what it has");
    assert_eq!(feed.view.since(), since(&[("alpha", &[1])]));
    feed.part("alpha", 9, &[2]);
    assert_eq!(feed.view.since(), since(&[("alpha", &[2])]));
}

#[test]
fn parts_are_at_hand_until_others_are_told_or_the_view_is_complete_or_the_build_is_another() {
    type End = (&'static str, fn(&mut Feed));
    let ends: [End; 3] = [
        ("others are told", |feed| feed.part("alpha", 9, &[2])),
        ("the view is complete", |feed| feed.progress(true)),
        ("the build is another", |feed| feed.begin_by("0.9.0", 3)),
    ];
    for (why, end) in ends {
        let mut feed = Feed::with_alpha();
        restart(&mut feed, 2);
        feed.section("gamma", active(1));
        end(&mut feed);
        let refused = feed.kept("alpha", set("alpha", &[1]), 8);
        assert_eq!(refused, Err(NotHeld { cluster: id("alpha"), sum: set("alpha", &[1]).sum }), "{why}");
    }
}

/// A registry that is wrong about what is known here: the snapshot is void, so nothing that it left out is taken for
/// gone.
#[test]
fn a_snapshot_that_leaves_out_what_is_not_known_deletes_nothing() {
    let wrong = [set("alpha", &[2]), PartSet { uid: uid("second", "alpha"), ..set("alpha", &[1]) }];
    for set in wrong {
        let mut feed = Feed::with_alpha();
        restart(&mut feed, 2);
        feed.section("gamma", active(1));
        feed.kept("alpha", set, 8).expect_err("it is not known");
        feed.section("alpha", active(8));
        feed.view.disconnected();
        feed.wait(GRACE * 2);
        assert_eq!(feed.sources(), show([("alpha", None)]));
        assert_eq!((feed.view.resume(), feed.view.since()), (None, since(&[])), "it begins with nothing");
    }
}

#[test]
fn a_registry_that_does_not_name_its_build_is_offered_nothing() {
    let mut feed = Feed::new();
    feed.begin_by("", 1);
    feed.part("alpha", 5, &[1]);
    feed.end(false);
    assert_eq!(feed.view.since(), Since::default());
}

#[test]
fn a_cluster_without_parts_is_not_offered() {
    let mut feed = Feed::with_alpha();
    feed.part_gone("alpha");
    assert_eq!(feed.view.since(), since(&[]));
}
