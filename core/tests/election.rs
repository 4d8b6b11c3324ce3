//! The election, one rule at a time; times in milliseconds.

use mcs_core::election::{Elector, Policy, Record, Write, WriteKind, term_floor};
use mcs_core::time::Timestamp;
use std::time::Duration;

/// What the wall clock says where nothing depends on it.
const WALL: i128 = 0;

#[test]
fn the_first_replica_creates_the_lease_in_term_1() {
    let mut elector = standby();
    assert_eq!(elector.next_write(at(0), WALL), None, "before the first look");
    elector.observe(None, at(0));
    assert_eq!(elector.next_write(at(0), WALL), Some(acquire(1, 0, true)));
    assert_eq!(elector.term(at(0)), None, "before the answer");
    elector.handle_written(&acquire(1, 0, true), own(1, 0, "a"), at(0), at(40));
    assert_eq!((elector.term(at(40)), elector.fence()), (Some(1), Some(at(10_000))));
}

/// O36: `renewed` is an hour old or an hour ahead, which changes nothing.
#[test]
fn a_standby_waits_a_lease_duration_after_the_last_observed_change() {
    for renewed in ["1970-01-01T00:00:00Z", "2999-01-01T00:00:00Z"] {
        let mut elector = standby();
        elector.observe(Some(other(7, renewed)), at(1_000));
        elector.observe(Some(other(7, renewed)), at(9_000));
        assert_eq!(elector.poll_timeout(), Some(at(16_000)));
        let writes = [15_999, 16_000, 16_001].map(|now| elector.next_write(at(now), WALL));
        assert_eq!(writes, [None, Some(acquire(8, 4, false)), Some(acquire(8, 4, false))]);
    }
}

/// O36.
#[test]
fn a_standby_never_takes_a_lease_that_is_renewed() {
    let mut elector = standby();
    for tick in 0..60 {
        elector.observe(Some(other(7, &format!("renewal {tick}"))), at(tick * 2_000));
        assert_eq!(elector.next_write(at(tick * 2_000 + 1_999), WALL), None);
    }
}

#[test]
fn a_standby_waits_as_long_as_the_holder_asks() {
    let waits = [5_000, 40_000].map(|asked| {
        let mut elector = standby();
        elector.observe(Some(Record { lease_duration: ms(asked), ..other(7, "a") }), at(0));
        elector.poll_timeout()
    });
    assert_eq!(waits, [Some(at(15_000)), Some(at(40_000))]);
}

#[test]
fn a_released_lease_is_taken_at_once() {
    let mut elector = standby();
    elector.observe(Some(other(7, "a")), at(0));
    elector.observe(Some(Record { holder: None, ..other(7, "b") }), at(100));
    assert_eq!(elector.poll_timeout(), Some(Timestamp::ZERO));
    assert_eq!(elector.next_write(at(100), WALL), Some(acquire(8, 4, false)));
}

#[test]
fn a_deleted_lease_is_not_taken_from_a_leader_that_may_still_write() {
    let mut elector = standby();
    elector.observe(Some(other(7, "a")), at(0));
    elector.observe(None, at(5_000));
    let writes = [5_000, 14_999, 15_000].map(|now| elector.next_write(at(now), WALL));
    assert_eq!(writes, [None, None, Some(acquire(8, 4, true))]);
}

#[test]
fn the_leader_makes_a_deleted_lease_again_in_its_own_term() {
    let mut elector = leader(3);
    elector.observe(None, at(500));
    assert_eq!(elector.poll_timeout(), Some(Timestamp::ZERO));
    assert_eq!(elector.next_write(at(500), WALL), Some(Write { create: true, ..renew(3) }));
    assert_eq!(elector.term(at(500)), Some(3));
}

#[test]
fn the_fence_is_the_start_of_the_last_successful_renewal_and_the_renew_deadline() {
    let mut elector = leader(3);
    assert_eq!(elector.next_write(at(1_999), WALL), None);
    assert_eq!(elector.next_write(at(2_000), WALL), Some(renew(3)));
    elector.handle_written(&renew(3), own(3, 1, "b"), at(2_000), at(4_400));
    let terms = [4_400, 11_999, 12_000, 12_001].map(|now| elector.term(at(now)));
    assert_eq!(terms, [Some(3), Some(3), None, None]);
}

/// O41.
#[test]
fn renewals_that_fail_are_tried_again_until_the_fence_and_then_the_replica_competes_anew() {
    let mut elector = leader(3);
    let limit = Policy::default().call_limit();
    let mut tries = Vec::new();
    let mut now = at(0);
    while elector.term(now).is_some() {
        if let Some(write) = elector.next_write(now, WALL) {
            tries.push((now, write));
            elector.handle_failed(now);
            now = now + limit;
        } else {
            now = elector.poll_timeout().unwrap();
        }
    }
    assert_eq!(tries, [2_000, 4_500, 7_000, 9_500].map(|start| (at(start), renew(3))));
    assert_eq!(elector.next_write(now, WALL), Some(acquire(4, 1, false)), "its own Lease, in a new term");
}

#[test]
fn a_leader_that_sees_another_holder_stops_at_once() {
    let mut elector = leader(3);
    elector.observe(Some(other(4, "x")), at(100));
    assert_eq!((elector.term(at(100)), elector.fence()), (None, None));
    assert_eq!(elector.poll_timeout(), Some(at(15_100)));
}

#[test]
fn an_acquisition_whose_answer_was_lost_is_made_again_in_a_higher_term() {
    let mut elector = standby();
    elector.observe(None, at(0));
    elector.handle_failed(at(0));
    elector.observe(Some(own(1, 0, "a")), at(2_500));
    assert_eq!(elector.next_write(at(2_500), WALL), Some(acquire(2, 0, false)));
}

#[test]
fn a_floor_raises_the_term_by_a_renewal_at_once() {
    let mut elector = leader(3);
    elector.raise_term(2);
    assert_eq!(elector.next_write(at(10), WALL), None, "a floor below the own term changes nothing");
    elector.raise_term(9);
    assert_eq!(elector.poll_timeout(), Some(Timestamp::ZERO));
    assert_eq!(elector.next_write(at(10), WALL), Some(renew(10)));
    assert_eq!(elector.term(at(10)), Some(3), "until it is written");
    elector.handle_written(&renew(10), own(10, 1, "b"), at(10), at(20));
    assert_eq!((elector.term(at(20)), elector.next_write(at(20), WALL)), (Some(10), None));
}

#[test]
fn a_raise_whose_answer_was_lost_is_not_taken_back() {
    let mut elector = leader(3);
    elector.raise_term(9);
    elector.handle_failed(at(10));
    elector.observe(Some(own(10, 1, "b")), at(30));
    assert_eq!(elector.next_write(at(30), WALL), None, "not before the next try is due");
    elector.raise_term(10);
    assert_eq!(elector.next_write(at(30), WALL), Some(renew(11)));
    elector.handle_failed(at(30));
    elector.observe(Some(own(11, 1, "c")), at(40));
    assert_eq!(elector.next_write(at(2_030), WALL), Some(renew(11)));
}

/// The clock of a wall is read when a Lease is acquired, not when the replica starts: both replicas start at the same moment,
/// and the second never sees what the first did.
#[test]
fn a_lease_that_is_deleted_right_after_it_was_acquired_is_made_anew_in_a_higher_term() {
    const NOW: i128 = 1_700_000_000_000_000_000;
    let (mut first, mut second) = (standby(), standby());
    first.observe(None, at(0));
    second.observe(None, at(0));
    let terms = [(&mut first, NOW), (&mut second, NOW + 1_000)].map(|(elector, wall)| {
        let write = elector.next_write(at(0), wall);
        write.map(|write| (write.kind, write.create, write.term))
    });
    let acquired = |term| Some((WriteKind::Acquire, true, term));
    assert_eq!(terms, [acquired(1_700_000_000_000_001), acquired(1_700_000_000_000_002)]);
}

#[test]
fn a_lease_that_was_restored_from_an_older_copy_is_acquired_in_a_term_above_all_between() {
    let mut elector = standby();
    elector.observe(Some(Record { holder: None, ..other(7, "a") }), at(0));
    let terms =
        [0, 7_999, 8_000, 9_000_000].map(|wall| elector.next_write(at(0), wall).map(|write| write.term));
    assert_eq!(terms, [Some(8), Some(8), Some(9), Some(9_001)]);
}

#[test]
fn a_clock_before_1970_lowers_no_term() {
    assert_eq!([i128::MIN, -1, 0, 999, 1_000, i128::MAX].map(term_floor), [0, 0, 0, 0, 1, 0]);
}

#[test]
fn a_standby_that_was_told_a_floor_acquires_above_it() {
    let mut elector = standby();
    elector.raise_term(9);
    elector.observe(None, at(0));
    assert_eq!(elector.next_write(at(0), WALL), Some(acquire(10, 0, true)));
}

#[test]
fn a_stopping_leader_writes_nothing_more_and_releases_the_lease() {
    let mut elector = leader(3);
    elector.stop();
    assert_eq!((elector.term(at(10)), elector.is_stopped()), (None, false));
    let release = Write { kind: WriteKind::Release, term: 3, transitions: 1, create: false };
    assert_eq!(elector.next_write(at(10), WALL), Some(release));
    elector.handle_written(&release, Record { holder: None, ..own(3, 1, "b") }, at(10), at(20));
    assert_eq!(
        (elector.is_stopped(), elector.next_write(at(20), WALL), elector.poll_timeout()),
        (true, None, None)
    );
}

#[test]
fn a_release_that_fails_is_not_tried_again() {
    let mut elector = leader(3);
    elector.stop();
    elector.handle_failed(at(10));
    assert_eq!((elector.is_stopped(), elector.next_write(at(9_000), WALL)), (true, None));
}

#[test]
fn a_stopping_leader_past_its_fence_releases_nothing() {
    let mut elector = leader(3);
    elector.stop();
    assert_eq!((elector.next_write(at(10_000), WALL), elector.is_stopped()), (None, true));
}

#[test]
fn a_stopping_standby_has_nothing_to_do() {
    let mut elector = standby();
    elector.observe(None, at(0));
    elector.stop();
    assert_eq!(
        (elector.is_stopped(), elector.next_write(at(0), WALL), elector.poll_timeout()),
        (true, None, None)
    );
}

#[test]
fn no_standby_can_take_over_before_the_leader_is_fenced() {
    let policy = Policy::default();
    assert!(policy.renew_deadline + policy.call_limit() < policy.lease_duration);
}

fn standby() -> Elector {
    Elector::new("me".to_owned(), Policy::default())
}

/// A leader that acquired at 0.
fn leader(term: u64) -> Elector {
    let mut elector = standby();
    elector.observe(Some(Record { holder: None, ..other(term - 1, "a") }), at(0));
    let write = Write { kind: WriteKind::Acquire, term, transitions: 1, create: false };
    elector.handle_written(&write, own(term, 1, "a"), at(0), at(0));
    elector
}

fn own(term: u64, transitions: u32, renewed: &str) -> Record {
    Record {
        holder: Some("me".to_owned()),
        term,
        transitions,
        lease_duration: Policy::default().lease_duration,
        renewed: renewed.to_owned(),
    }
}

fn other(term: u64, renewed: &str) -> Record {
    Record { holder: Some("other".to_owned()), ..own(term, 3, renewed) }
}

const fn acquire(term: u64, transitions: u32, create: bool) -> Write {
    Write { kind: WriteKind::Acquire, term, transitions, create }
}

const fn renew(term: u64) -> Write {
    Write { kind: WriteKind::Renew, term, transitions: 1, create: false }
}

const fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
