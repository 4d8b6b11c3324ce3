//! When changes were seen where they were made: each is told once, when it is applied.

use super::feed::{Feed, active, id, key};
use mcs_core::time::WallMillis;
use mcs_core::view::{Decision, Source};

#[test]
fn a_change_is_told_once_and_without_a_time_not_at_all() {
    let mut feed = Feed::with_alpha();
    feed.changed_at = at(7_000);
    feed.part("alpha", 6, &[2]);
    let taken = [take(&mut feed, "alpha"), take(&mut feed, "alpha"), take(&mut feed, "gamma")];
    assert_eq!(taken, [at(7_000), None, None]);
    feed.changed_at = None;
    feed.part("alpha", 7, &[3]);
    assert_eq!(take(&mut feed, "alpha"), None);
}

#[test]
fn of_two_changes_that_are_applied_together_the_last_is_told() {
    let mut feed = Feed::with_alpha();
    for (seq, millis, address) in [(6, 7_000, 2), (7, 8_000, 3)] {
        feed.changed_at = at(millis);
        feed.part("alpha", seq, &[address]);
    }
    assert_eq!((take(&mut feed, "alpha"), take(&mut feed, "alpha")), (at(8_000), None));
}

#[test]
fn a_change_that_came_after_what_is_applied_is_told_later() {
    let mut feed = Feed::with_alpha();
    feed.changed_at = at(7_000);
    feed.part("alpha", 6, &[2]);
    let Decision::Apply(earlier) = feed.view.decide(&key()) else { panic!("nothing to apply") };
    feed.changed_at = at(8_000);
    feed.part("alpha", 7, &[3]);
    let Source::Show(shown) = &earlier.sources[&id("alpha")] else { panic!("{earlier:?}") };
    assert_eq!(feed.view.take_change(&key(), &id("alpha"), shown), None);
    assert_eq!(take(&mut feed, "alpha"), at(8_000));
}

/// A registry that restarted, or a watch that could not go on where it stood, tells all once more.
#[test]
fn what_is_told_again_is_no_change_and_what_was_not_applied_yet_still_is() {
    let mut feed = Feed::with_alpha();
    feed.changed_at = at(7_000);
    feed.part("alpha", 6, &[2]);
    let again = |feed: &mut Feed, epoch| {
        feed.begin(epoch);
        feed.section("gamma", active(1));
        feed.section("alpha", active(9));
        feed.header(&[("alpha", 9)]);
        feed.part("alpha", 9, &[2]);
        feed.end(true);
        take(feed, "alpha")
    };
    assert_eq!([again(&mut feed, 2), again(&mut feed, 3)], [at(7_000), None]);
}

/// What was so before this view began has been so for any time; what changed while no registry answered came late.
#[test]
fn nothing_of_the_first_snapshot_is_told_and_all_of_the_next() {
    let mut feed = Feed::new();
    feed.changed_at = at(7_000);
    // One that breaks off is none.
    feed.begin(1);
    feed.view.disconnected();
    feed.begin(1);
    feed.section("gamma", active(1));
    feed.section("alpha", active(5));
    feed.header(&[("alpha", 5)]);
    feed.part("alpha", 5, &[1]);
    feed.end(true);
    assert_eq!(take(&mut feed, "alpha"), None);
    feed.changed_at = at(8_000);
    feed.begin(2);
    feed.section("gamma", active(1));
    feed.section("alpha", active(6));
    feed.header(&[("alpha", 6)]);
    feed.part("alpha", 6, &[2]);
    feed.end(true);
    assert_eq!(take(&mut feed, "alpha"), at(8_000));
}

fn at(millis: i64) -> Option<WallMillis> {
    WallMillis::from_unix_millis(millis)
}

/// What is told when that is applied which is decided.
fn take(feed: &mut Feed, cluster: &str) -> Option<WallMillis> {
    let Decision::Apply(wanted) = feed.view.decide(&key()) else { panic!("nothing to apply") };
    let Some(Source::Show(shown)) = wanted.sources.get(&id(cluster)) else { return None };
    feed.view.take_change(&key(), &id(cluster), shown)
}
