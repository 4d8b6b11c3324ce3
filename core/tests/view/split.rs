//! Two registries without a shared store behind one name: the one that is watched is not the one that is talked to.

use super::feed::{Feed, GRACE, active, expired, key, show};
use mcs_core::ids::Epoch;
use mcs_core::view::Decision;
use std::collections::BTreeSet;

/// Whatever the other registry says of a cluster, it says too little.
#[test]
fn nothing_goes_while_another_registry_is_watched_than_the_one_that_is_talked_to() {
    let causes: [fn(&mut Feed); 3] = [
        |feed| {
            feed.header_gone();
            feed.part_gone("alpha");
            feed.section("alpha", active(6));
        },
        |feed| {
            feed.header_gone();
            feed.section("alpha", expired(5));
        },
        |feed| {
            feed.header_gone();
            feed.part_gone("alpha");
            feed.section_gone("alpha");
        },
    ];
    for cause in causes {
        let mut feed = Feed::with_alpha();
        feed.view.told_to(Some(Epoch(7)));
        assert!(feed.view.is_split());
        cause(&mut feed);
        assert_eq!(feed.sources(), show([("alpha", None)]));
        feed.drain();

        feed.view.told_to(Some(Epoch(1)));
        assert_eq!(feed.drain(), BTreeSet::from([key()]));
        assert_eq!(feed.decide(), Decision::Remove);
    }
}

#[test]
fn the_grace_of_a_cluster_that_is_not_listed_begins_when_the_registry_that_is_watched_is_talked_to() {
    let mut feed = Feed::with_alpha();
    feed.view.told_to(Some(Epoch(1)));
    feed.begin(2);
    feed.section("gamma", active(1));
    feed.end(true);
    feed.progress(true);
    feed.wait(GRACE * 3);
    assert_eq!((feed.sources(), feed.view.poll_timeout()), (show([("alpha", None)]), None));

    feed.view.told_to(Some(Epoch(2)));
    feed.progress(true);
    assert_eq!(feed.view.poll_timeout(), Some(feed.now + GRACE));
    feed.wait(GRACE);
    assert_eq!(feed.decide(), Decision::Remove);
}

#[test]
fn what_is_told_is_shown_all_the_same_and_a_registry_that_is_not_named_is_any() {
    let mut feed = Feed::with_alpha();
    feed.view.told_to(Some(Epoch(7)));
    feed.section("alpha", active(6));
    feed.part("alpha", 6, &[1, 2]);
    assert_eq!(feed.sources(), show([("alpha", Some(&[1, 2]))]));

    feed.view.told_to(None);
    assert!(!feed.view.is_split());
    feed.header_gone();
    feed.part_gone("alpha");
    feed.section("alpha", active(7));
    assert_eq!(feed.decide(), Decision::Remove);
}
