//! The importer's own cluster: its endpoints come from its own watch.

use super::feed::{Feed, active, endpoints, expired, id, key, of, show, syncing};
use mcs_core::model::Conflict;
use mcs_core::view::{Decision, Source, View};
use std::time::Duration;

fn with_own() -> Feed {
    let mut feed = Feed::new();
    feed.view.set_own(key(), Some(endpoints(&[7])));
    feed.begin(1);
    feed.section("gamma", active(2));
    feed.header(&[("gamma", 2)]);
    feed.end(true);
    feed.apply();
    feed
}

#[test]
fn own_endpoints_are_shown_when_the_registry_has_merged_the_export() {
    let mut feed = Feed::new();
    feed.view.set_own(key(), Some(endpoints(&[7])));
    assert_eq!(feed.decide(), Decision::Keep);
    feed.begin(1);
    feed.section("gamma", active(2));
    feed.header(&[("gamma", 2)]);
    feed.end(true);
    let Decision::Apply(wanted) = feed.decide() else { panic!("nothing to apply") };
    let Source::Show(shown) = &wanted.sources[&id("gamma")] else { panic!("{wanted:?}") };
    assert_eq!(shown.version, None);
    assert_eq!(shown.endpoints, endpoints(&[7]));
}

#[test]
fn own_endpoints_stay_current_while_no_registry_answers_or_knows_the_cluster() {
    let states: [fn(&mut Feed); 4] = [
        |feed| feed.view.disconnected(),
        |feed| feed.begin(2),
        |feed| {
            feed.begin(2);
            feed.section("gamma", syncing());
            feed.end(false);
        },
        |feed| feed.section("gamma", expired(2)),
    ];
    for state in states {
        let mut feed = with_own();
        state(&mut feed);
        feed.view.set_own(key(), Some(endpoints(&[7, 8])));
        assert_eq!(feed.drain().len(), 1);
        assert_eq!(feed.sources(), show([("gamma", Some(&[7, 8]))]));
        assert_eq!(feed.definition().as_deref(), Some("http"));
    }
}

#[test]
fn the_own_part_of_a_registry_is_not_used() {
    let mut feed = with_own();
    feed.part("gamma", 9, &[1, 2, 3]);
    assert_eq!(feed.sources(), show([("gamma", Some(&[7]))]));
}

#[test]
fn an_own_export_that_ends_goes_at_once() {
    let mut feed = with_own();
    feed.view.set_own(key(), None);
    assert_eq!(feed.sources(), show([]));
    feed.apply();
    feed.section("gamma", active(3));
    feed.header_gone();
    assert_eq!(feed.decide(), Decision::Remove);
}

#[test]
fn own_slices_stay_until_the_own_watches_have_listed() {
    let restarted = || {
        let mut feed = Feed::new();
        feed.view = View::new(id("gamma"));
        feed.seed(&[("gamma", 2)]);
        feed.begin(1);
        feed.section("gamma", active(2));
        feed.end(true);
        feed
    };
    let mut feed = restarted();
    assert_eq!(feed.decide(), Decision::Keep);
    feed.view.own_listed();
    assert_eq!(feed.decide(), Decision::Remove);

    let mut feed = restarted();
    feed.view.set_own(key(), Some(endpoints(&[7])));
    feed.view.own_listed();
    assert_eq!(feed.decide(), Decision::Keep, "it is exported, and the registry will say so");
}

#[test]
fn equal_own_endpoints_change_nothing() {
    let mut feed = with_own();
    feed.view.set_own(key(), Some(endpoints(&[7])));
    assert!(feed.drain().is_empty());
    feed.view.set_own(key(), None);
    feed.drain();
    feed.view.set_own(key(), None);
    assert!(feed.drain().is_empty());
}

#[test]
fn the_own_export_stands_as_the_merge_says() {
    let mut feed = with_own();
    assert_eq!(feed.view.own_section(), Some(&of("gamma", active(2))));
    assert_eq!(feed.view.own_conflicts(&key()), Some::<&[Conflict]>(&[]));
    feed.view.disconnected();
    feed.wait(Duration::from_secs(600));
    assert_eq!(feed.view.own_conflicts(&key()), Some::<&[Conflict]>(&[]));
    feed.header(&[("alpha", 5)]);
    assert_eq!(feed.view.own_conflicts(&key()), None);
}
