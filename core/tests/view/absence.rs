//! Clusters that a view does not list: when they are kept, and when they go.

use super::feed::{Feed, GRACE, active, expired, key, show, syncing};
use mcs_core::ids::Epoch;
use mcs_core::version::Version;
use mcs_core::view::Decision;
use std::collections::BTreeSet;
use std::time::Duration;

const TICK: Duration = Duration::from_nanos(1);

#[test]
fn a_cluster_that_is_not_listed_goes_when_the_grace_of_complete_views_is_over_and_not_a_tick_before() {
    let mut feed = Feed::with_alpha();
    feed.begin(2);
    feed.section("gamma", active(1));
    feed.end(false);
    feed.wait(GRACE * 3);
    assert_eq!(feed.sources(), show([("alpha", None)]), "an incomplete view says nothing of it");
    feed.progress(true);
    feed.wait(GRACE - TICK);
    assert_eq!(feed.sources(), show([("alpha", None)]));
    feed.wait(TICK);
    assert_eq!(feed.drain(), BTreeSet::from([key()]));
    assert_eq!(feed.decide(), Decision::Remove);
    feed.apply();
    feed.wait(GRACE);
    assert_eq!(feed.view.poll_timeout(), None);
}

#[test]
fn the_grace_starts_anew_with_each_registry_and_each_doubt() {
    let doubts: [fn(&mut Feed); 3] = [
        |feed| feed.progress(false),
        |feed| feed.view.disconnected(),
        |feed| {
            feed.begin(3);
            feed.section("gamma", active(1));
            feed.end(true);
        },
    ];
    for doubt in doubts {
        let mut feed = Feed::with_alpha();
        feed.begin(2);
        feed.section("gamma", active(1));
        feed.end(true);
        feed.wait(GRACE - TICK);
        doubt(&mut feed);
        feed.progress(true);
        feed.wait(GRACE - TICK);
        assert_eq!(feed.sources(), show([("alpha", None)]));
        feed.wait(TICK);
        assert_eq!(feed.decide(), Decision::Remove);
    }
}

#[test]
fn a_cluster_that_appears_within_its_grace_stays() {
    let mut feed = Feed::with_alpha();
    feed.begin(2);
    feed.section("gamma", active(1));
    feed.end(true);
    feed.wait(GRACE - TICK);
    feed.section("alpha", syncing());
    feed.wait(GRACE * 2);
    assert_eq!(feed.sources(), show([("alpha", None)]));
}

#[test]
fn losing_every_registry_changes_nothing() {
    let mut feed = Feed::with_alpha();
    feed.view.disconnected();
    assert!(!feed.view.is_complete());
    feed.wait(GRACE * 1_000);
    assert_eq!(feed.sources(), show([("alpha", Some(&[1]))]));
    assert_eq!(feed.view.resume(), Some((Epoch(1), 4)));
}

#[test]
fn a_cluster_that_leaves_takes_its_endpoints_at_once() {
    let mut feed = Feed::with_alpha();
    feed.header_gone();
    feed.part_gone("alpha");
    feed.section_gone("alpha");
    assert_eq!(feed.decide(), Decision::Remove);

    let mut feed = Feed::with_alpha();
    feed.section("alpha", syncing());
    feed.header_gone();
    feed.section_gone("alpha");
    assert_eq!(
        feed.sources(),
        show([("alpha", None)]),
        "one that was not whole may have more than was known"
    );
}

#[test]
fn what_was_shown_of_a_cluster_that_went_is_remembered_when_another_registry_knows_less() {
    let mut feed = Feed::with_alpha();
    feed.header(&[("alpha", 8)]);
    feed.part("alpha", 8, &[2]);
    feed.apply();
    feed.section("alpha", expired(5));
    feed.header_gone();
    feed.part_gone("alpha");
    feed.apply();
    for (seq, shown) in [(7, None), (8, Some(Version::new(1, 8)))] {
        feed.begin(2);
        feed.section("gamma", active(1));
        feed.section("alpha", active(seq));
        feed.header(&[("alpha", seq)]);
        feed.part("alpha", seq, &[1]);
        feed.end(true);
        assert_eq!(feed.version_of("alpha"), shown);
    }
}

#[test]
fn a_dead_cluster_whose_last_word_never_came_over_goes_after_the_grace() {
    let mut feed = Feed::with_alpha();
    feed.section("alpha", active(8));
    feed.begin(2);
    feed.section("gamma", active(1));
    feed.section("alpha", expired(5));
    feed.header(&[("alpha", 5)]);
    feed.end(true);
    feed.wait(GRACE - TICK);
    assert_eq!(feed.sources(), show([("alpha", None)]));
    feed.wait(TICK);
    assert_eq!(feed.sources(), show([]));
}

#[test]
fn an_import_that_names_no_cluster_goes_only_when_no_cluster_can_be_hidden() {
    let mut feed = Feed::new();
    feed.seed(&[]);
    feed.begin(1);
    feed.section("gamma", active(1));
    feed.section("alpha", syncing());
    feed.end(true);
    feed.wait(GRACE * 2);
    assert_eq!(feed.decide(), Decision::Keep);
    feed.section("alpha", active(1));
    feed.progress(false);
    assert_eq!(feed.decide(), Decision::Keep);
    feed.progress(true);
    feed.wait(GRACE);
    assert_eq!(feed.drain(), BTreeSet::from([key()]));
    assert_eq!(feed.decide(), Decision::Remove);
}

#[test]
fn an_import_that_names_no_cluster_is_decided_again_when_the_last_cluster_is_known() {
    let mut feed = Feed::new();
    feed.seed(&[]);
    feed.begin(1);
    feed.section("gamma", active(1));
    feed.section("alpha", syncing());
    feed.end(true);
    feed.wait(GRACE * 2);
    assert_eq!((feed.drain(), feed.decide()), (BTreeSet::from([key()]), Decision::Keep));
    feed.section("alpha", active(1));
    assert_eq!((feed.drain(), feed.decide()), (BTreeSet::from([key()]), Decision::Remove));
}

#[test]
fn a_cluster_that_is_removed_while_its_section_is_behind_goes_after_the_grace() {
    let mut feed = Feed::with_alpha();
    feed.part("alpha", 8, &[1]);
    feed.apply();
    feed.part_gone("alpha");
    feed.header_gone();
    feed.section_gone("alpha");
    assert_eq!(feed.sources(), show([("alpha", None)]));
    feed.wait(GRACE);
    assert_eq!(feed.decide(), Decision::Remove);
}
