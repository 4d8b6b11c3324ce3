//! The judging clock, the moments of a lease, and the hold, each at its boundary.

use mcs_core::lease::{Census, Hold, JudgingClock, Lease, Tick};
use mcs_core::time::Timestamp;
use mcs_core::timing::Timing;
use std::time::Duration;

const TIMING: Timing = Timing::of_lease(Duration::from_secs(30));

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

#[test]
fn the_clock_adds_at_most_half_a_second_a_tick_and_nothing_while_the_store_is_away() {
    let mut clock = JudgingClock::new(TIMING, at(0));
    let ticks = [
        (100, true, Tick::Ran, 100),
        (600, true, Tick::Ran, 600),
        (1_101, true, Tick::Ran, 1_100),
        (5_000, true, Tick::Ran, 1_600),
        (4_000, true, Tick::Ran, 1_600),
        (5_400, false, Tick::Stood, 1_600),
        (5_500, true, Tick::Ran, 1_700),
        (20_500, true, Tick::Ran, 2_200),
        (35_501, true, Tick::Paused(Duration::from_millis(15_001)), 2_700),
        (60_000, false, Tick::Paused(Duration::from_millis(24_499)), 2_700),
    ];
    for (now, store_ok, tick, judged) in ticks {
        assert_eq!((clock.tick(at(now), store_ok), clock.now()), (tick, at(judged)), "at {now} ms");
    }
}

#[test]
fn the_clock_asks_for_ticks_that_lose_no_time() {
    let mut clock = JudgingClock::new(TIMING, at(1_000));
    assert_eq!(clock.wake_at(at(31_000)), at(1_250));
    assert_eq!(clock.wake_at(at(1_100)), at(1_100));
    assert_eq!(clock.wake_at(at(900)), at(1_000));
    clock.tick(at(3_000), true);
    assert_eq!((clock.now(), clock.wake_at(at(1_600))), (at(1_500), at(3_100)));
    assert_eq!(
        (clock.peek(at(3_200)), clock.peek(at(4_000)), clock.peek(at(60_000))),
        (at(1_700), at(2_000), at(1_500))
    );
}

#[test]
fn a_lease_is_late_and_ends_at_its_moments_and_not_before() {
    let lease = Lease::renewed_at(at(1_000));
    let found: Vec<_> = [15_999, 16_000, 16_001, 30_999, 31_000, 31_001]
        .map(|now| (lease.is_late(TIMING, at(now)), lease.deadline(TIMING).has_passed(at(now))))
        .into();
    assert_eq!(
        found,
        [(false, false), (true, false), (true, false), (true, false), (true, true), (true, true)]
    );
    assert_eq!(lease.deadline(TIMING), at(31_000));
    assert_eq!(lease.collected_at(TIMING), at(31_000 + 7 * 24 * 60 * 60 * 1_000));
}

#[test]
fn a_holder_that_was_late_stays_so_for_a_heartbeat_after_it_was_heard() {
    let late = |lease: Lease, times: [u64; 3]| times.map(|now| lease.is_late(TIMING, at(now)));
    let lease = Lease::renewed_at(at(0)).renewed(TIMING, at(14_999), at(14_999));
    assert!(!lease.is_late(TIMING, at(14_999)), "it was not late");
    let lease = Lease::renewed_at(at(0)).renewed(TIMING, at(15_000), at(15_000));
    assert_eq!(late(lease, [15_000, 24_999, 25_000]), [true, true, false]);
    let again = lease.renewed(TIMING, at(20_000), at(20_000));
    assert_eq!(late(again, [20_000, 24_999, 25_000]), [true, true, false], "from when it was heard first");
}

#[test]
fn a_hold_begins_above_the_threshold_of_enough_members() {
    for (active, silent, waits) in [(2, 2, false), (3, 1, false), (3, 2, true), (4, 2, false), (5, 3, true)] {
        let mut hold = Hold::new(50, 3, Duration::from_secs(30));
        let until = hold.wait_until(at(0), || Census { active, silent });
        assert_eq!(until.is_some(), waits, "{silent} of {active}");
    }
}

#[test]
fn a_hold_ends_at_its_moment_and_is_over_with_its_incident() {
    let mass = || Census { active: 4, silent: 3 };
    let calm = || Census { active: 4, silent: 1 };
    let mut hold = Hold::new(50, 3, Duration::from_secs(30));
    assert_eq!(hold.wait_until(at(0), mass), Some(at(30_000)));
    assert_eq!(hold.wait_until(at(29_999), calm), Some(at(30_000)), "also for verdicts that are due later");
    assert_eq!(hold.wait_until(at(30_000), mass), None);
    hold.update(at(30_001), mass);
    assert_eq!(
        (hold.until(), hold.wait_until(at(30_001), mass)),
        (None, None),
        "no second hold in one incident"
    );
    hold.update(at(40_000), calm);
    assert_eq!(hold.wait_until(at(50_000), mass), Some(at(80_000)), "the next incident");
}
