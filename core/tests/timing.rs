//! The table of durations: what follows from a lease, and where a fraction of it would be too short.

use mcs_core::time::WallTime;
use mcs_core::timing::{FINALIZER_LIMIT, MIN_ANSWER, Timing, finalizer_wait};
use std::time::Duration;

#[test]
fn the_default_lease_gives_the_documented_durations() {
    let timing = Timing::default();
    let seconds = [
        timing.lease(),
        timing.heartbeat(),
        timing.progress(),
        timing.dead_stream(),
        timing.keep_alive(),
        timing.keep_alive_of_registry(),
        timing.keep_alive_answer(),
        timing.call_limit(),
        timing.max_backoff(),
        timing.late(),
        timing.probe(),
        timing.return_after(),
        timing.degraded_after(),
    ]
    .map(|duration| duration.as_secs());
    assert_eq!(seconds, [30, 10, 10, 15, 5, 15, 3, 3, 2, 15, 5, 60, 15]);
}

/// Counted from the deletion, so that leaders who follow each other do not each wait anew. Times in whole seconds may
/// be as much as one short, which is waited for.
#[test]
fn a_finalizer_waits_a_minute_from_the_deletion_whoever_leads_and_whatever_the_wall_clock_says() {
    let deleted = WallTime::from_unix_secs(1_000_000);
    let wait = |after: i64| finalizer_wait(deleted, WallTime::from_unix_secs(1_000_000 + after)).as_secs();
    assert_eq!(FINALIZER_LIMIT.as_secs(), 60);
    assert_eq!([0, 1, 2, 31, 60, 61, 62].map(wait), [60, 60, 59, 30, 1, 0, 0]);
    assert_eq!([-1, -3_600, 3_600, i64::MAX - 1_000_000].map(wait), [60, 60, 0, 0]);
    let ends = [i64::MIN, i64::MAX].map(WallTime::from_unix_secs);
    assert_eq!(
        [finalizer_wait(ends[1], ends[0]), finalizer_wait(ends[0], ends[1])].map(|it| it.as_secs()),
        [60, 0]
    );
}

#[test]
fn a_member_is_late_after_any_heartbeat_and_before_the_first_of_many_is_judged() {
    for lease in [10, 30, 300].map(Duration::from_secs) {
        let timing = Timing::of_lease(lease);
        let heard = timing.heartbeat() + timing.call_limit();
        assert!(heard < timing.late() && timing.late() < lease - heard, "{lease:?}");
    }
}

#[test]
fn answers_are_given_a_second_even_with_a_short_lease() {
    let limits = |millis| {
        let timing = Timing::of_lease(Duration::from_millis(millis));
        [timing.call_limit(), timing.keep_alive_answer()]
    };
    assert_eq!(limits(9_990), [MIN_ANSWER; 2]);
    assert_eq!(limits(10_000), [MIN_ANSWER; 2]);
    assert_eq!(limits(10_010), [Duration::from_millis(1_001); 2]);
}

#[test]
fn a_call_that_waits_for_the_store_is_answered_within_its_own_limit() {
    for (lease, limit) in [(1, 500), (10, 500), (30, 1_500), (300, 15_000)] {
        let timing = Timing::of_lease(Duration::from_secs(lease));
        assert_eq!(timing.store_limit(), Duration::from_millis(limit), "{lease} s");
        assert!(timing.store_limit() < timing.call_limit());
    }
}

#[test]
fn a_watch_is_told_something_every_ten_seconds_whatever_the_lease() {
    let progress = |secs| Timing::of_lease(Duration::from_secs(secs)).progress().as_secs();
    assert_eq!([3, 29, 30, 31, 300].map(progress), [1, 9, 10, 10, 10]);
}

#[test]
fn a_dead_peer_is_noticed_well_within_the_lease() {
    for lease in [3, 30, 300].map(Duration::from_secs) {
        let timing = Timing::of_lease(lease);
        assert!(timing.keep_alive() + timing.keep_alive_answer() < timing.lease() * 2 / 3, "{lease:?}");
        assert!(timing.dead_stream() > timing.progress(), "{lease:?}");
    }
}

#[test]
fn a_registry_probes_only_who_renews_no_more_and_closes_within_the_lease() {
    let probe = |secs| Timing::of_lease(Duration::from_secs(secs)).keep_alive_of_registry();
    assert_eq!([29, 30, 31, 300].map(probe), [14_500, 15_000, 15_000, 15_000].map(Duration::from_millis));
    for lease in [3, 10, 30].map(Duration::from_secs) {
        let timing = Timing::of_lease(lease);
        let closes = timing.keep_alive_of_registry() + timing.keep_alive_answer();
        assert!(timing.keep_alive_of_registry() > timing.heartbeat() && closes < lease, "{lease:?}");
    }
}
