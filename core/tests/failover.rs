//! Which registry is used, by events; each deadline a tick before, at and after.

use mcs_core::failover::{Failover, Fault, Retry};
use mcs_core::time::Timestamp;
use mcs_core::timing::Timing;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(30);
const TIMING: Timing = Timing::of_lease(LEASE);
const TICK: Duration = Duration::from_nanos(1);

#[test]
fn the_registry_in_use_has_one_more_try_and_then_the_others_are_asked_in_order() {
    let mut test = Test::using(0, 3);
    let asked: Vec<usize> = (0..8).map(|_| test.fail(Fault::Unavailable)).collect();
    assert_eq!(asked, [0, 1, 2, 0, 1, 2, 0, 1]);
}

#[test]
fn a_registry_that_has_not_taken_the_cluster_has_no_second_try() {
    let mut test = Test::new(3);
    let asked: Vec<usize> = (0..4).map(|_| test.fail(Fault::Unavailable)).collect();
    assert_eq!(asked, [1, 2, 0, 1]);
}

#[test]
fn a_registry_that_denies_the_cluster_has_no_second_try_and_one_that_is_busy_has_as_many_as_it_takes() {
    let mut test = Test::using(0, 2);
    assert_eq!([Fault::Busy, Fault::Busy, Fault::Unusable].map(|fault| test.fail(fault)), [0, 0, 1]);
}

#[test]
fn a_registry_that_takes_the_cluster_and_then_fails_each_time_is_left_for_the_next_after_its_second_try() {
    let mut test = Test::new(3);
    let asked: Vec<usize> = (0..7).map(|_| test.fail_once_taken()).collect();
    assert_eq!(asked, [0, 1, 1, 2, 2, 0, 0]);
}

#[test]
fn a_second_try_is_there_again_once_the_registry_worked() {
    let mut test = Test::using(0, 2);
    assert_eq!(test.fail_once_taken(), 0);
    test.take();
    assert_eq!([test.fail_once_taken(), test.fail_once_taken()], [0, 1]);
}

#[test]
fn a_registry_that_is_busy_before_it_fails_keeps_its_second_try() {
    let mut test = Test::using(0, 2);
    assert_eq!(
        [Fault::Busy, Fault::Unavailable, Fault::Unavailable].map(|fault| test.fail(fault)),
        [0, 0, 1]
    );
}

#[test]
fn a_registry_that_was_returned_to_and_takes_nothing_is_left_after_its_second_try() {
    let mut test = Test::using(1, 2);
    assert_eq!(test.fail(Fault::Unavailable), 1);
    test.failover.taken(test.now);
    test.return_to_first();
    assert_eq!([test.fail_once_taken(), test.fail_once_taken()], [0, 1]);
}

#[test]
fn waits_grow_though_the_registry_takes_the_cluster_each_time_until_it_works() {
    let mut test = Test::new(1);
    let wait = |test: &mut Test| {
        test.failover.taken(test.now);
        test.retry(Fault::Unavailable, 1.0).0.as_millis()
    };
    let waits: Vec<_> = (0..5).map(|_| wait(&mut test)).collect();
    assert_eq!(waits, [300, 600, 1_200, 2_000, 2_000]);
    test.take();
    assert_eq!([wait(&mut test), wait(&mut test)], [300, 600]);
}

#[test]
fn what_the_last_probe_found_well_is_asked_first() {
    let mut test = Test::using(2, 4);
    test.probe(0, false);
    test.probe(1, true);
    test.fail(Fault::Unavailable);
    let asked: Vec<usize> = (0..3).map(|_| test.fail(Fault::Unavailable)).collect();
    assert_eq!(asked, [1, 3, 0]);
}

#[test]
fn waits_double_with_each_round_over_all_registries_up_to_a_fifteenth_of_a_lease() {
    let mut test = Test::new(2);
    let waits: Vec<_> = (0..12).map(|_| test.retry(Fault::Unavailable, 1.0)).collect();
    let millis: Vec<_> = waits.iter().map(|(wait, _)| wait.as_millis()).collect();
    assert_eq!(millis, [300, 300, 600, 600, 1_200, 1_200, 2_000, 2_000, 2_000, 2_000, 2_000, 2_000]);
    let rounds: Vec<_> = waits.iter().map(|(_, all_failed)| *all_failed).take(4).collect();
    assert_eq!(rounds, [false, true, false, true]);
}

#[test]
fn an_earlier_registry_is_gone_back_to_when_it_was_well_for_two_leases_and_not_a_tick_before() {
    let begin = || {
        let mut test = Test::using(1, 2);
        test.probe(0, true);
        test
    };
    let candidate_after = |wait| {
        let mut test = begin();
        test.now = test.now + wait;
        test.probe(0, true);
        test.failover.candidate()
    };
    assert_eq!(
        [LEASE * 2 - TICK, LEASE * 2, LEASE * 2 + TICK].map(candidate_after),
        [None, Some(0), Some(0)]
    );
}

#[test]
fn one_bad_probe_begins_the_wait_anew() {
    let mut test = Test::using(1, 2);
    test.probe(0, true);
    test.pass(LEASE);
    test.probe(0, false);
    test.pass(LEASE);
    test.probe(0, true);
    test.pass(LEASE * 2 - TICK);
    test.probe(0, true);
    assert_eq!(test.failover.candidate(), None);
    test.pass(TICK);
    test.probe(0, true);
    assert_eq!(test.failover.candidate(), Some(0));
}

#[test]
fn a_registry_that_comes_and_goes_is_waited_for_twice_as_long_each_time_and_trusted_again_in_the_end() {
    let mut test = Test::using(1, 2);
    let mut waited = Vec::new();
    for _ in 0..7 {
        waited.push(test.return_to_first().as_secs() / LEASE.as_secs());
        // Down again a second after.
        test.pass(Duration::from_secs(1));
        test.fail(Fault::Unavailable);
        assert_eq!(test.fail(Fault::Unavailable), 1);
        test.take();
    }
    assert_eq!(waited, [2, 4, 8, 16, 32, 32, 32]);

    test.return_to_first();
    test.pass(LEASE * 32);
    test.fail(Fault::Unavailable);
    test.fail(Fault::Unavailable);
    test.take();
    assert_eq!(test.return_to_first(), LEASE * 2);
}

#[test]
fn only_earlier_registries_are_probed_six_times_a_lease_while_one_is_used() {
    let mut test = Test::new(3);
    assert_eq!(test.failover.next_probe(TIMING, test.now), None, "none has taken the cluster yet");
    let mut test = Test::using(1, 3);
    assert_eq!(test.failover.next_probe(TIMING, test.now), Some(0));
    assert_eq!(test.failover.next_probe(TIMING, test.now), None, "it is under way");
    assert_eq!(test.failover.poll_timeout(TIMING), None);
    test.failover.probed(0, true, TIMING, test.now, 0.0);
    let due = test.now + TIMING.probe();
    assert_eq!(test.failover.poll_timeout(TIMING), Some(due));
    assert_eq!(test.failover.next_probe(TIMING, Timestamp::from_nanos(due.as_nanos() - 1)), None);
    assert_eq!(test.failover.next_probe(TIMING, due), Some(0));
}

#[test]
fn the_jitter_of_probes_is_at_most_half_of_what_is_between_them() {
    let mut test = Test::using(1, 2);
    assert_eq!(test.failover.next_probe(TIMING, test.now), Some(0));
    test.failover.probed(0, true, TIMING, test.now, 1.0);
    assert_eq!(test.failover.poll_timeout(TIMING), Some(test.now + TIMING.probe() + LEASE / 12));
}

#[test]
fn a_registry_without_its_store_is_left_after_half_a_lease_for_any_that_is_well() {
    let mut test = Test::using(0, 3);
    test.failover.degraded(true, test.now);
    test.pass(LEASE / 2 - TICK);
    test.failover.degraded(true, test.now);
    assert_eq!(test.failover.next_probe(TIMING, test.now), None);
    assert_eq!(test.failover.poll_timeout(TIMING), Some(test.now + TICK));
    test.pass(TICK);
    test.probe(1, false);
    assert_eq!(test.failover.candidate(), None);
    test.probe(2, true);
    assert_eq!(test.failover.candidate(), Some(2));
}

#[test]
fn a_store_that_is_back_within_half_a_lease_was_never_away() {
    let mut test = Test::using(0, 2);
    test.failover.degraded(true, test.now);
    test.pass(LEASE / 2);
    test.failover.degraded(false, test.now);
    assert_eq!(test.failover.next_probe(TIMING, test.now), None);
}

#[test]
fn a_candidate_is_asked_after_its_watch_and_waits_anew_after_a_failure() {
    let mut test = Test::using(1, 2);
    test.probe(0, true);
    test.pass(LEASE * 2);
    test.probe(0, true);
    assert_eq!((test.failover.candidate(), test.failover.to_ask()), (Some(0), None));
    test.failover.candidate_watched(0);
    assert_eq!(test.failover.to_ask(), Some(0));
    test.failover.candidate_failed(0);
    assert_eq!((test.failover.candidate(), test.failover.to_ask(), test.failover.current()), (None, None, 1));
    test.pass(TIMING.probe());
    test.probe(0, true);
    assert_eq!(test.failover.candidate(), None);
}

#[test]
fn a_candidate_that_a_probe_finds_ill_is_none_any_more() {
    let mut test = Test::using(1, 2);
    test.probe(0, true);
    test.pass(LEASE * 2);
    test.probe(0, true);
    test.failover.candidate_watched(0);
    test.pass(TIMING.probe());
    test.probe(0, false);
    assert_eq!((test.failover.candidate(), test.failover.to_ask()), (None, None));
}

struct Test {
    failover: Failover,
    now: Timestamp,
}

impl Test {
    fn new(urls: usize) -> Self {
        Self { failover: Failover::new(urls), now: Timestamp::from_millis(1_000) }
    }

    /// A cluster that the registry `url` has, since those before failed.
    fn using(url: usize, urls: usize) -> Self {
        let mut test = Self::new(urls);
        while test.failover.current() != url {
            test.fail(Fault::Unavailable);
        }
        test.take();
        test
    }

    /// The registry takes the cluster and its exports.
    fn take(&mut self) {
        self.failover.taken(self.now);
        self.failover.works();
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    /// The registry that is asked after a failure.
    fn fail(&mut self, fault: Fault) -> usize {
        self.retry(fault, 0.0);
        self.failover.current()
    }

    /// The registry that is asked when the current one takes the cluster and fails then.
    fn fail_once_taken(&mut self) -> usize {
        self.failover.taken(self.now);
        self.fail(Fault::Unavailable)
    }

    fn retry(&mut self, fault: Fault, jitter: f64) -> (Duration, bool) {
        let Retry { at, all_failed } = self.failover.failed(fault, TIMING, self.now, jitter);
        (at.since(self.now), all_failed)
    }

    fn probe(&mut self, url: usize, well: bool) {
        while let Some(due) = self.failover.next_probe(TIMING, self.now) {
            assert!(due <= url || self.failover.candidate().is_none());
        }
        self.failover.probed(url, well, TIMING, self.now, 0.0);
    }

    /// Goes back to the first registry, and says how long it had to be well for.
    fn return_to_first(&mut self) -> Duration {
        self.probe(0, true);
        let since = self.now;
        while self.failover.candidate().is_none() {
            self.pass(LEASE / 3);
            self.probe(0, true);
        }
        self.failover.candidate_watched(0);
        self.failover.moved(TIMING, self.now);
        assert_eq!(self.failover.current(), 0);
        self.now.since(since)
    }
}
