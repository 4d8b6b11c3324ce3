//! Mass silence: verdicts wait for a bounded time, once an incident.

use crate::fixture::Fixture;
use mcs_core::model::MemberState::{Active, Expired, Held};
use mcs_core::registry::Counts;

const ALL: [&str; 5] = ["a", "b", "c", "d", "e"];

fn states(fixture: &Fixture) -> Vec<mcs_core::model::MemberState> {
    ALL.iter().map(|name| fixture.state(name).expect("member")).collect()
}

#[test]
fn verdicts_wait_when_more_than_half_are_silent() {
    let mut fixture = Fixture::with_members(&ALL);
    fixture.renewing_until(30, &["d", "e"]);
    assert_eq!(fixture.told(), ["a held whole 1.1", "b held whole 1.1", "c held whole 1.1"]);
    assert!(fixture.registry.is_holding());
    fixture.renewing_until(50, &["d", "e"]);
    fixture.until_millis(59_999);
    assert_eq!(fixture.told(), [""; 0]);
    fixture.until(60);
    assert_eq!(fixture.told(), ["a expired whole 1.1", "b expired whole 1.1", "c expired whole 1.1"]);
    assert_eq!(fixture.registry.counts(), Counts { expired: 3, held: 3, holds: 1, ..Counts::default() });
    assert!(!fixture.registry.is_holding());
}

#[test]
fn members_that_renewed_at_other_times_of_their_lease_count_as_late() {
    let mut fixture = Fixture::with_members(&ALL);
    fixture.until(5);
    fixture.renew_as_held("b");
    fixture.until(9);
    fixture.renew_as_held("c");
    fixture.renewing_until(30, &["d", "e"]);
    assert_eq!(fixture.told(), ["a held whole 1.1"]);
    fixture.renewing_until(50, &["d", "e"]);
    assert_eq!(fixture.told(), ["b held whole 1.1", "c held whole 1.1"], "at 35 s and 39 s");
    fixture.until(60);
    assert_eq!(
        states(&fixture),
        [Expired, Expired, Expired, Active, Active],
        "all wait for the first trigger's hold"
    );
}

#[test]
fn half_of_the_members_is_not_above_the_threshold() {
    let mut fixture = Fixture::with_members(&["a", "b", "c", "d"]);
    fixture.renewing_until(30, &["c", "d"]);
    assert_eq!(fixture.told(), ["a expired whole 1.1", "b expired whole 1.1"]);
}

#[test]
fn fewer_than_three_members_are_not_held() {
    let mut fixture = Fixture::with_members(&["a", "b"]);
    fixture.until(30);
    assert_eq!(fixture.told(), ["a expired whole 1.1", "b expired whole 1.1"]);
}

#[test]
fn members_that_ended_within_a_lease_count_as_silent() {
    let mut fixture = Fixture::with_members(&["a", "b", "c", "d"]);
    fixture.renewing_until(10, &["c", "d"]);
    fixture.renewing_until(20, &["d"]);
    fixture.renewing_until(30, &["d"]);
    assert_eq!(
        fixture.told(),
        ["a held whole 1.1", "b held whole 1.1"],
        "c is late, so three of four are silent"
    );
}

#[test]
fn members_that_return_during_the_hold_were_never_away() {
    let mut fixture = Fixture::with_members(&ALL);
    fixture.renewing_until(40, &["e"]);
    assert_eq!(fixture.told().len(), 4);
    for name in ALL {
        fixture.renew_as_held(name);
    }
    assert_eq!(
        fixture.told(),
        ["a active whole 1.1", "b active whole 1.1", "c active whole 1.1", "d active whole 1.1"]
    );
    fixture.renewing_until(120, &ALL);
    assert_eq!(fixture.told(), [""; 0]);
    assert_eq!(fixture.registry.counts(), Counts { held: 4, holds: 1, ..Counts::default() });
}

#[test]
fn a_member_is_late_after_half_a_lease() {
    for (last, told) in [(15_000, "a held whole 1.1"), (15_001, "a expired whole 1.1")] {
        let mut fixture = Fixture::with_members(&["a", "b", "c"]);
        fixture.renewing_until(10, &["b", "c"]);
        fixture.until_millis(last);
        fixture.renew_as_held("b");
        fixture.renewing_until(20, &["c"]);
        fixture.until_millis(29_999);
        assert_eq!(fixture.told(), [""; 0]);
        fixture.until(30);
        assert_eq!(fixture.told(), [told], "b was heard last at {last} ms");
    }
}

/// The clusters were cut off for 18 s and come back one after the other; the last one's lease ends before it does.
#[test]
fn the_last_to_come_back_is_not_judged_as_if_it_alone_had_been_away() {
    let mut fixture = Fixture::with_members(&ALL);
    fixture.until(25);
    for name in ["b", "c", "d", "e"] {
        fixture.renew_as_held(name);
    }
    fixture.until(30);
    assert_eq!(fixture.told(), ["a held whole 1.1"]);
    fixture.until(33);
    fixture.renew_as_held("a");
    assert_eq!(fixture.told(), ["a active whole 1.1"]);
    assert_eq!(fixture.registry.counts(), Counts { held: 1, holds: 1, ..Counts::default() });
}

/// The others came back a heartbeat ago: by then a cluster that had been away with them would be back as well.
#[test]
fn members_that_are_back_for_a_heartbeat_are_not_late() {
    for (back, told) in [(20, "a expired whole 1.1"), (21, "a held whole 1.1")] {
        let mut fixture = Fixture::with_members(&ALL);
        fixture.until(back);
        for name in ["b", "c", "d", "e"] {
            fixture.renew_as_held(name);
        }
        fixture.until_millis(29_999);
        assert_eq!(fixture.told(), [""; 0]);
        fixture.until(30);
        assert_eq!(fixture.told(), [told], "back at {back} s");
    }
}

/// O50: the protection ends, and the next incident is protected again.
#[test]
fn o50_a_hold_ends_and_is_not_renewed_within_its_incident() {
    let mut fixture = Fixture::with_members(&ALL);
    fixture.renewing_until(50, &["d", "e"]);
    fixture.until(55);
    // The incident goes on when the hold ends at 60 s: d falls silent as well, and is judged as usual.
    fixture.renewing_until(80, &["e"]);
    assert_eq!(states(&fixture), [Expired, Expired, Expired, Expired, Active]);
    assert_eq!(fixture.registry.counts(), Counts { expired: 4, held: 3, holds: 1, ..Counts::default() });

    // All are back for long enough; the next mass silence is another incident.
    fixture.renewing_until(150, &["e"]);
    fixture.renewing_until(160, &ALL);
    fixture.renewing_until(200, &["e"]);
    assert_eq!(states(&fixture), [Held, Held, Held, Held, Active]);
    fixture.renewing_until(220, &["e"]);
    assert_eq!(states(&fixture), [Expired, Expired, Expired, Expired, Active]);
    assert_eq!(fixture.registry.counts(), Counts { expired: 8, held: 7, holds: 2, ..Counts::default() });
}

#[test]
fn a_pause_during_a_hold_makes_the_held_active_again() {
    let mut fixture = Fixture::with_members(&ALL);
    fixture.renewing_until(30, &["d", "e"]);
    fixture.told();
    fixture.stall_until_millis(50_000);
    fixture.registry.handle_timeout(fixture.now());
    assert_eq!(fixture.told(), ["a active whole 1.1", "b active whole 1.1", "c active whole 1.1"]);
}
