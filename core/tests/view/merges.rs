//! Which merge counts: not one that lacks a cluster of which something is kept, nor one of older exports.

use super::feed::{Feed, GRACE, active, expired, key, port_of, show, syncing};
use mcs_core::view::Decision;
use std::collections::BTreeSet;

fn with_two() -> Feed {
    let mut feed = Feed::with_alpha();
    feed.section("beta", active(3));
    feed.header(&[("alpha", 5), ("beta", 3)]);
    feed.part("beta", 3, &[9]);
    feed.apply();
    feed
}

#[test]
fn a_merge_without_a_cluster_whose_endpoints_are_kept_does_not_count() {
    let mut feed = with_two();
    feed.begin(2);
    feed.section("gamma", active(1));
    feed.section("alpha", active(5));
    feed.header_of(&port_of("web"), &[("alpha", 5)]);
    feed.part("alpha", 5, &[1]);
    feed.end(true);
    assert_eq!(feed.definition().as_deref(), Some("http"));
    assert_eq!(feed.sources(), show([("alpha", Some(&[1])), ("beta", None)]));
    feed.wait(GRACE);
    assert_eq!(feed.definition().as_deref(), Some("web"), "beta is gone for certain");
    assert_eq!(feed.sources(), show([("alpha", Some(&[1]))]));
}

#[test]
fn a_restarted_importer_leaves_the_definition_while_a_cluster_is_kept() {
    let mut feed = Feed::new();
    feed.seed(&[("alpha", 5), ("beta", 3)]);
    feed.begin(1);
    feed.section("gamma", active(1));
    feed.section("alpha", active(5));
    feed.section("beta", syncing());
    feed.header(&[("alpha", 5)]);
    feed.part("alpha", 5, &[1]);
    feed.end(false);
    assert_eq!(feed.definition(), None);
    assert_eq!(feed.sources(), show([("alpha", Some(&[1])), ("beta", None)]));
}

#[test]
fn a_merge_of_an_older_export_than_was_merged_before_does_not_count() {
    let mut feed = Feed::with_alpha();
    feed.section("alpha", active(8));
    feed.header_of(&port_of("web"), &[("alpha", 8)]);
    feed.part("alpha", 8, &[1]);
    feed.apply();
    feed.begin(2);
    feed.section("gamma", active(1));
    feed.section("alpha", active(5));
    feed.header(&[("alpha", 5)]);
    feed.part("alpha", 5, &[1]);
    feed.end(true);
    assert_eq!(feed.definition().as_deref(), Some("web"));
}

#[test]
fn an_older_merge_counts_as_soon_as_a_section_says_that_it_is_still_the_newest() {
    let mut feed = Feed::with_alpha();
    feed.header_of(&port_of("web"), &[("alpha", 8)]);
    feed.part("alpha", 8, &[1]);
    feed.apply();
    // A late leader wrote to this registry first, and the one after it only other endpoints.
    feed.begin(2);
    feed.section("gamma", active(1));
    feed.section("alpha", active(6));
    feed.header_of(&port_of("late"), &[("alpha", 6)]);
    feed.part("alpha", 9, &[2]);
    feed.end(true);
    assert_eq!(feed.definition().as_deref(), Some("web"));
    feed.section("alpha", active(9));
    assert_eq!(feed.drain(), BTreeSet::from([key()]), "nothing else of it is told any more");
    assert_eq!(feed.definition().as_deref(), Some("late"));
}

#[test]
fn a_restarted_importer_does_not_take_the_definition_of_a_registry_that_lags() {
    let mut feed = Feed::new();
    feed.seed(&[("alpha", 8)]);
    feed.begin(1);
    feed.section("gamma", active(1));
    feed.section("alpha", active(5));
    feed.header(&[("alpha", 5)]);
    feed.part("alpha", 5, &[1]);
    feed.end(true);
    assert_eq!(feed.decide(), Decision::Keep);
}

#[test]
fn endpoints_that_change_without_a_merge_are_no_older_merge() {
    let mut feed = with_two();
    feed.part("alpha", 9, &[1, 2]);
    feed.section("alpha", active(9));
    feed.apply();
    // Merged again because of beta; alpha's export takes part with the version of its definition.
    feed.section("beta", active(4));
    feed.header_of(&port_of("web"), &[("alpha", 5), ("beta", 4)]);
    assert_eq!(feed.definition().as_deref(), Some("web"));
}

#[test]
fn the_export_of_an_expired_cluster_stays_in_the_merge_also_when_the_registry_forgot_it() {
    let mut feed = with_two();
    feed.section("beta", expired(3));
    feed.apply();
    assert_eq!(feed.sources(), show([("alpha", Some(&[1]))]));
    feed.begin(2);
    feed.section("gamma", active(1));
    feed.section("alpha", active(5));
    feed.header_of(&port_of("web"), &[("alpha", 5)]);
    feed.part("alpha", 5, &[1]);
    feed.end(true);
    assert_eq!(feed.definition().as_deref(), Some("http"), "beta may come back within the grace");
    feed.wait(GRACE);
    assert_eq!(feed.definition().as_deref(), Some("web"));
}

#[test]
fn a_merge_that_names_ports_otherwise_waits_but_endpoints_of_the_old_names_flow() {
    let mut feed = with_two();
    feed.begin(2);
    feed.section("gamma", active(1));
    feed.section("alpha", active(6));
    feed.section("beta", syncing());
    feed.header_of(&port_of("web"), &[("alpha", 5)]);
    feed.part("alpha", 6, &[1, 2]);
    feed.end(false);
    let Decision::Apply(wanted) = feed.decide() else { panic!("nothing to apply") };
    let mcs_core::view::Source::Show(shown) = &wanted.sources[&super::feed::id("alpha")] else {
        panic!("{wanted:?}")
    };
    assert_eq!(shown.good_ports[0].import_name, "http", "as in the definition that stays");
}

#[test]
fn the_old_definition_of_a_cluster_that_is_gone_holds_up_no_merge() {
    let mut feed = Feed::new();
    feed.seed(&[("alpha", 8), ("beta", 3)]);
    feed.begin(1);
    feed.section("gamma", active(1));
    feed.section("alpha", expired(5));
    feed.section("beta", active(3));
    feed.header_of(&port_of("web"), &[("alpha", 5), ("beta", 3)]);
    feed.part("beta", 3, &[1]);
    feed.end(true);
    assert_eq!(feed.definition(), None);
    feed.wait(GRACE);
    assert_eq!(feed.definition().as_deref(), Some("web"));
}
