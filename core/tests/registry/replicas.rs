//! Replicas of a shared store: when a verdict may be taken, and who counts as dead.

use crate::fixture::{Fixture, cluster, region, uid, version};
use mcs_core::ids::Epoch;
use mcs_core::model::MemberState;
use mcs_core::registry::{Read, Recorded, Registry};
use mcs_core::replicas::{Beat, Renewal, UidTag};
use mcs_core::time::Timestamp;
use mcs_core::version::Sum;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const OWN: u128 = 1;
const NEAR: u128 = 2;
const FAR: u128 = 3;
const FAR_TOO: u128 = 4;

/// An item of another replica that has read the own beats up to `echo`.
fn item(epoch: u128, number: u64, echo: u64) -> Beat {
    let region = region(if epoch == NEAR { "eu-1" } else { "us-1" });
    Beat {
        epoch: Epoch(epoch),
        region: Some(region),
        number,
        echoes: [(Epoch(OWN), echo)].into(),
        dead: BTreeSet::new(),
        is_due: false,
        renewals: BTreeMap::new(),
    }
}

/// This item with a renewal of `name`.
fn with(mut beat: Beat, name: &str, number: u64, age: Duration) -> Beat {
    beat.renewals.insert(UidTag::of(&uid(name)), Renewal { number, age });
    beat
}

/// This item, which calls another replica dead after its item of `number`.
fn naming(mut beat: Beat, dead: u128, number: u64) -> Beat {
    beat.echoes.insert(Epoch(dead), number);
    beat.dead.insert(Epoch(dead));
    beat
}

fn recorded(name: &str, act: &str) -> Recorded {
    Recorded {
        uid: uid(name),
        region: None,
        version: version(act),
        sum: Sum::EMPTY,
        state: MemberState::Active,
        claimed_at: None,
    }
}

/// A replica in eu-1 that has read, at second 0, a store with `names` and the items of these replicas.
fn replica(names: &[&str], others: &[&Beat]) -> Fixture {
    let mut fixture = Fixture::shared(OWN, "eu-1");
    assert!(fixture.hear(others).all);
    let directory: Vec<_> = names.iter().map(|name| (cluster(name), recorded(name, "1.1"))).collect();
    let differing = fixture.registry.differing(&directory, &BTreeSet::new(), Timestamp::ZERO);
    assert_eq!(differing.read.len(), names.len());
    for name in names {
        let all = Read::All { whole: BTreeMap::new(), torn: BTreeSet::new() };
        let learnt = fixture.registry.learn(&cluster(name), recorded(name, "1.1"), all, Timestamp::ZERO);
        assert_eq!(learnt, mcs_core::registry::Learnt::default());
    }
    fixture.told();
    fixture
}

fn all_states(fixture: &Fixture) -> Vec<(String, MemberState)> {
    let members = fixture.registry.members();
    members.map(|(id, member)| (id.to_string(), member.state())).collect()
}

#[test]
fn a_verdict_waits_until_the_own_beat_is_read_back_and_echoed_by_all_that_live() {
    let mut fixture = replica(&["east"], &[&item(NEAR, 1, 0), &item(FAR, 1, 0)]);
    fixture.until_millis(29_999);
    let before = fixture.beat();
    assert!(!before.is_due);
    fixture.hear(&[&before, &item(NEAR, 2, 1), &item(FAR, 2, 1)]);
    fixture.until_millis(30_000);
    assert_eq!((fixture.registry.waiting(), fixture.registry.beat_due(fixture.now())), (1, false));
    fixture.until_millis(30_200);
    assert!(fixture.registry.beat_due(fixture.now()));
    // Echoes of a beat from before the deadline say nothing.
    fixture.hear(&[&before, &item(NEAR, 3, 1), &item(FAR, 3, 1)]);
    let due = fixture.beat();
    assert!(due.is_due);
    for items in [
        [&before, &item(NEAR, 4, 2), &item(FAR, 4, 2)],
        [&due, &item(NEAR, 5, 2), &item(FAR, 5, 1)],
        [&due, &item(NEAR, 6, 1), &item(FAR, 6, 1)],
    ] {
        let mut early = replica(&["east"], &[&item(NEAR, 1, 0), &item(FAR, 1, 0)]);
        early.until_millis(29_999);
        early.beat();
        early.until_millis(30_200);
        early.beat();
        early.hear(&items);
        assert_eq!(early.state("east"), Some(MemberState::Active), "{items:?}");
    }
    fixture.hear(&[&due, &item(NEAR, 4, 2), &item(FAR, 4, 2)]);
    assert_eq!(fixture.told(), ["east expired whole 1.1"]);
    assert_eq!(fixture.registry.waiting(), 0);
}

#[test]
fn a_renewal_in_the_last_echo_keeps_the_member() {
    let mut fixture = replica(&["east"], &[&item(NEAR, 1, 0)]);
    fixture.until_millis(30_000);
    let due = fixture.beat();
    fixture.hear(&[&due, &with(item(NEAR, 2, 1), "east", 1, Duration::from_secs(1))]);
    assert_eq!((fixture.state("east"), fixture.registry.waiting()), (Some(MemberState::Active), 0));
    fixture.until_millis(58_999);
    assert_eq!(fixture.registry.waiting(), 0, "a tick before 30 - 1 + 30 s");
    fixture.until_millis(59_000);
    assert_eq!(fixture.registry.waiting(), 1);
}

#[test]
fn who_was_asked_about_an_earlier_lease_is_asked_again() {
    let mut fixture = replica(&["east"], &[&item(NEAR, 1, 0)]);
    fixture.until(30);
    fixture.renew_as_held("east");
    // Made before the next refresh finds that nothing waits any more.
    let early = fixture.beat();
    assert!(!early.is_due);
    for seconds in [40, 50, 60] {
        fixture.until(seconds);
        fixture.hear(&[&early, &item(NEAR, seconds, early.number)]);
    }
    assert_eq!((fixture.state("east"), fixture.registry.waiting()), (Some(MemberState::Active), 1));
    let due = fixture.beat();
    assert!(due.is_due);
    fixture.hear(&[&due, &item(NEAR, 61, due.number)]);
    assert_eq!(fixture.state("east"), Some(MemberState::Expired));
}

#[test]
fn a_renewal_that_is_a_lease_old_keeps_nobody_and_a_tick_less_does() {
    for (age, state) in [
        (Duration::from_millis(29_999), MemberState::Active),
        (Duration::from_secs(30), MemberState::Expired),
        (Duration::from_millis(30_001), MemberState::Expired),
    ] {
        let mut fixture = replica(&["east"], &[&item(NEAR, 1, 0)]);
        fixture.until(40);
        let due = fixture.beat();
        fixture.hear(&[&due, &with(item(NEAR, 2, 1), "east", 1, age)]);
        if state == MemberState::Expired {
            // It is newer than what was known, so all are asked anew.
            let again = fixture.beat();
            fixture.hear(&[&again, &with(item(NEAR, 3, 2), "east", 1, age)]);
        }
        assert_eq!(fixture.state("east"), Some(state), "{age:?}");
    }
}

#[test]
fn an_item_that_tells_of_no_other_renewal_renews_nothing_however_young_it_says_that_is() {
    let young = Duration::from_secs(1);
    let mut fixture = replica(&["east"], &[&with(item(NEAR, 1, 0), "east", 7, young)]);
    fixture.until(10);
    fixture.hear(&[&with(item(NEAR, 2, 0), "east", 7, young)]);
    fixture.until_millis(29_999);
    fixture.hear(&[&with(item(NEAR, 3, 0), "east", 7, young)]);
    fixture.until(30);
    assert_eq!(fixture.registry.waiting(), 1);
}

#[test]
fn an_older_item_that_is_read_later_changes_nothing() {
    let mut fixture = replica(&["east"], &[&item(NEAR, 5, 0)]);
    fixture.until(20);
    fixture.hear(&[&item(NEAR, 6, 0)]);
    fixture.hear(&[&with(item(NEAR, 5, 0), "east", 9, Duration::ZERO)]);
    fixture.until(30);
    assert_eq!(fixture.registry.waiting(), 1);
    let due = fixture.beat();
    fixture.hear(&[&due, &item(NEAR, 5, 1)]);
    assert_eq!(fixture.state("east"), Some(MemberState::Active), "the echo is that of an older item");
}

#[test]
fn a_replica_of_the_own_region_is_dead_when_its_item_stood_still_for_a_lease() {
    for (millis, state) in
        [(34_999, MemberState::Active), (35_000, MemberState::Expired), (35_001, MemberState::Expired)]
    {
        let mut fixture = replica(&["east"], &[&item(NEAR, 1, 0)]);
        fixture.until(5);
        fixture.hear(&[&item(NEAR, 2, 0)]);
        fixture.until(31);
        let due = fixture.beat();
        fixture.hear(&[&due, &item(NEAR, 2, 0)]);
        fixture.until_millis(millis);
        fixture.hear(&[&due, &item(NEAR, 2, 0)]);
        assert_eq!(fixture.state("east"), Some(state), "after {millis} ms");
        let dead = state == MemberState::Expired;
        assert_eq!(fixture.registry.replicas(), (usize::from(!dead), usize::from(dead)));
        assert_eq!(fixture.beat().dead, dead.then_some(Epoch(NEAR)).into_iter().collect());
    }
}

/// It may have heard them once more before it died, and told nobody.
#[test]
fn members_that_a_dead_replica_heard_last_get_half_a_lease_after_its_last_item() {
    for (millis, state) in [(44_999, MemberState::Active), (45_000, MemberState::Expired)] {
        let mut fixture = replica(&["east"], &[&with(item(NEAR, 1, 0), "east", 1, Duration::ZERO)]);
        let last = with(item(NEAR, 2, 0), "east", 2, Duration::ZERO);
        fixture.until_millis(1);
        fixture.hear(&[&last]);
        for seconds in 1..=4 {
            fixture.until(seconds * 10);
            fixture.hear(&[&last]);
        }
        fixture.until_millis(millis + 1);
        let due = fixture.beat();
        fixture.hear(&[&due, &last]);
        assert_eq!(fixture.state("east"), Some(state), "after {millis} ms");
    }
}

#[test]
fn a_replica_of_another_region_is_not_dead_by_its_silence_alone() {
    let mut fixture = replica(&["east"], &[&item(FAR, 1, 0), &item(FAR_TOO, 1, 0)]);
    fixture.until(31);
    let due = fixture.beat();
    for seconds in 4..=20 {
        fixture.until(seconds * 10);
        fixture.hear(&[&due, &item(FAR, 1, 0), &item(FAR_TOO, seconds, 1)]);
        assert_eq!(fixture.state("east"), Some(MemberState::Active));
    }
    fixture.hear(&[&due, &item(FAR, 1, 0), &naming(item(FAR_TOO, 21, 1), FAR, 1)]);
    assert_eq!(fixture.state("east"), Some(MemberState::Expired));
}

/// It ended, and said so: whatever its region, nobody waits for its answer.
#[test]
fn a_replica_that_took_its_item_away_is_waited_for_half_a_lease() {
    for (millis, state) in
        [(45_999, MemberState::Held), (46_000, MemberState::Expired), (46_001, MemberState::Expired)]
    {
        let mut fixture = replica(&["east"], &[&item(FAR, 3, 0)]);
        fixture.until(31);
        let due = fixture.beat();
        fixture.hear(&[&due]);
        fixture.until_millis(millis);
        fixture.hear(&[&due]);
        assert_eq!(fixture.state("east"), Some(state), "after {millis} ms");
    }
}

#[test]
fn a_late_read_does_not_bring_back_a_replica_that_ended_and_a_newer_item_does() {
    let mut fixture = replica(&[], &[&item(FAR, 3, 0)]);
    fixture.until(1);
    fixture.hear(&[]);
    fixture.until(16);
    fixture.hear(&[]);
    assert_eq!(fixture.registry.replicas(), (0, 0));
    fixture.hear(&[&item(FAR, 3, 0)]);
    assert_eq!(fixture.registry.replicas(), (0, 0));
    fixture.hear(&[&item(FAR, 4, 0)]);
    assert_eq!(fixture.registry.replicas(), (1, 0));
}

/// One read that lacks it is no end.
#[test]
fn a_replica_whose_item_is_there_again_in_time_lives() {
    let mut fixture = replica(&[], &[&item(FAR, 3, 0)]);
    fixture.until(1);
    fixture.hear(&[]);
    fixture.until(15);
    fixture.hear(&[&item(FAR, 3, 0)]);
    fixture.until(17);
    fixture.hear(&[]);
    assert_eq!(fixture.registry.replicas(), (1, 0));
}

#[test]
fn what_a_dead_replica_of_the_own_region_said_can_be_removed_after_lease_and_grace() {
    let mut fixture = replica(&[], &[&item(NEAR, 3, 0), &item(FAR, 3, 0)]);
    let left = |fixture: &mut Fixture, millis| {
        fixture.until_millis(millis);
        fixture.hear(&[&item(NEAR, 3, 0), &item(FAR, 3, 0)]);
        fixture.registry.left_behind()
    };
    assert_eq!(left(&mut fixture, 629_999), []);
    assert_eq!(left(&mut fixture, 630_000), [Epoch(NEAR)]);
}

#[test]
fn who_is_called_dead_after_less_than_was_read_of_it_lives_and_who_is_known_to_have_said_more_too() {
    let named_after = |number: u64, more: Option<u64>| {
        let mut near = item(NEAR, 30, 1);
        near.echoes.extend(more.map(|more| (Epoch(FAR), more)));
        let mut fixture = replica(&["east"], &[&item(FAR, 5, 0), &item(FAR_TOO, 1, 0), &item(NEAR, 1, 0)]);
        fixture.until(31);
        let due = fixture.beat();
        fixture.hear(&[&due, &near, &item(FAR, 5, 0), &naming(item(FAR_TOO, 2, 1), FAR, number)]);
        fixture.state("east")
    };
    assert_eq!(named_after(4, None), Some(MemberState::Active));
    assert_eq!(named_after(5, Some(6)), Some(MemberState::Active));
    assert_eq!(named_after(5, Some(5)), Some(MemberState::Expired));
}

/// What a dead one read is not read by anybody else: an item that lost in the table against an earlier one, for good.
#[test]
fn that_a_dead_replica_has_read_more_of_another_one_keeps_that_one_alive_no_longer() {
    for (near_until, state) in [(60, MemberState::Held), (31, MemberState::Expired)] {
        let far = item(FAR, 5, 0);
        let mut fixture = replica(&["east"], &[&far, &item(FAR_TOO, 1, 0), &item(NEAR, 1, 0)]);
        let near = |number| {
            let mut near = item(NEAR, number, 1);
            near.echoes.insert(Epoch(FAR), 6);
            near
        };
        for seconds in [31, near_until] {
            fixture.until(seconds);
            fixture.hear(&[&far, &item(FAR_TOO, 1, 0), &near(seconds)]);
        }
        fixture.until(65);
        let due = fixture.beat();
        let named = naming(item(FAR_TOO, 3, due.number), FAR, 5);
        let mut read = near(near_until);
        read.echoes.insert(Epoch(OWN), due.number);
        read.number += u64::from(near_until == 60);
        // Who died is known only after a refresh.
        fixture.hear(&[&due, &far, &named, &read]);
        fixture.hear(&[&due, &far, &named, &read]);
        assert_eq!(fixture.state("east"), Some(state), "near was read until second {near_until}");
    }
}

#[test]
fn members_are_held_while_a_region_is_silent_as_a_whole_and_judged_after_the_grace() {
    let mut fixture = replica(&["east"], &[&item(FAR, 1, 0), &item(FAR_TOO, 1, 0)]);
    fixture.until(31);
    let due = fixture.beat();
    let silent = [item(FAR, 1, 0), item(FAR_TOO, 1, 0)];
    fixture.hear(&[&due, &silent[0], &silent[1]]);
    assert_eq!(fixture.told(), ["east held whole 1.1"]);
    fixture.until_millis(629_999);
    fixture.hear(&[&due, &silent[0], &silent[1]]);
    assert_eq!(fixture.told(), [""; 0]);
    fixture.until(630);
    fixture.hear(&[&due, &silent[0], &silent[1]]);
    assert_eq!(fixture.told(), ["east expired whole 1.1"]);
}

#[test]
fn a_replica_that_only_another_one_has_read_of_is_waited_for() {
    let mut knowing = item(NEAR, 2, 1);
    knowing.echoes.insert(Epoch(9), 1);
    let mut fixture = replica(&["east"], &[&item(NEAR, 1, 0)]);
    fixture.until(30);
    let due = fixture.beat();
    fixture.hear(&[&due, &knowing]);
    assert_eq!(fixture.state("east"), Some(MemberState::Active));
    knowing.number = 3;
    fixture.hear(&[&due, &naming(knowing, 9, 1)]);
    assert_eq!(fixture.state("east"), Some(MemberState::Expired));
}

#[test]
fn a_hold_is_followed_by_another_question_to_all() {
    let names = ["east", "north", "south", "west"];
    let mut fixture = replica(&names, &[&item(NEAR, 1, 0)]);
    fixture.until(30);
    let due = fixture.beat();
    fixture.hear(&[&due, &item(NEAR, 2, 1)]);
    let held = |name: &&str| (name.to_string(), MemberState::Held);
    assert_eq!(all_states(&fixture), names.iter().map(held).collect::<Vec<_>>());
    fixture.until(45);
    fixture.hear(&[&due, &item(NEAR, 3, 1)]);
    fixture.until(60);
    fixture.hear(&[&due, &item(NEAR, 4, 1)]);
    assert_eq!((fixture.registry.waiting(), fixture.state("east")), (4, Some(MemberState::Held)));
    let again = fixture.beat();
    fixture.hear(&[&again, &with(item(NEAR, 5, 2), "west", 1, Duration::ZERO)]);
    let state = |name: &str| fixture.state(name).expect("a member");
    assert_eq!(
        names.map(state),
        [MemberState::Expired, MemberState::Expired, MemberState::Expired, MemberState::Active]
    );
}

/// What others hear is known here up to a beat and a refresh later, which says nothing of the members.
#[test]
fn members_that_another_replica_hears_are_not_late_between_its_beats() {
    let names = ["east", "north", "south", "west"];
    let mut fixture = replica(&names, &[&item(NEAR, 1, 0)]);
    for number in 2..=6 {
        fixture.until(number * 10 - 10);
        let mut beat = item(NEAR, number, 0);
        for name in &names[1..] {
            beat = with(beat, name, number, Duration::from_millis(9_900));
        }
        fixture.hear(&[&beat]);
    }
    fixture.until_millis(59_900);
    assert_eq!(fixture.registry.census(), mcs_core::lease::Census { active: 4, silent: 1 });
}

#[test]
fn nothing_is_judged_while_the_store_is_away_and_leases_begin_anew_after_half_a_lease_of_it() {
    for (away, waiting_at) in [(15_000, 45_000), (15_001, 59_999 + 1)] {
        let mut fixture = replica(&["east"], &[&item(NEAR, 1, 0)]);
        let now = fixture.now();
        fixture.until(15);
        let gone = fixture.now();
        assert!(gone > now);
        fixture.registry.store_answers(false, gone);
        fixture.until_millis(15_000 + away);
        fixture.hear(&[&item(NEAR, 2, 0)]);
        let extra = if away > 15_000 { 1 } else { 0 };
        fixture.until_millis(waiting_at - 1 + extra);
        assert_eq!(fixture.registry.waiting(), 0, "away for {away} ms");
        fixture.until_millis(waiting_at + extra);
        assert_eq!(fixture.registry.waiting(), 1, "away for {away} ms");
    }
}

#[test]
fn a_view_is_complete_when_all_was_read_and_all_others_that_live_were_heard() {
    let mut fixture = Fixture::shared(OWN, "eu-1");
    let complete = |fixture: &Fixture| fixture.registry.is_complete(fixture.now());
    let mut seen = vec![complete(&fixture)];
    fixture.hear(&[&item(NEAR, 1, 0), &item(FAR, 1, 0)]);
    let directory = [(cluster("east"), recorded("east", "1.1"))];
    fixture.registry.differing(&directory, &BTreeSet::new(), Timestamp::ZERO);
    fixture.hear(&[&item(NEAR, 2, 0), &item(FAR, 2, 0)]);
    seen.push(complete(&fixture));
    let all = Read::All { whole: BTreeMap::new(), torn: BTreeSet::new() };
    fixture.registry.learn(&cluster("east"), recorded("east", "1.1"), all, Timestamp::ZERO);
    fixture.hear(&[&item(NEAR, 2, 0), &item(FAR, 2, 0)]);
    seen.push(complete(&fixture));
    let now = fixture.now();
    fixture.registry.store_answers(false, now);
    seen.push(complete(&fixture));
    fixture.hear(&[&item(NEAR, 2, 0), &item(FAR, 2, 0), &item(FAR_TOO, 1, 0)]);
    seen.push(complete(&fixture));
    assert_eq!(seen, [false, false, true, false, true]);
}

/// What it did there since that one's last item is not known here yet.
#[test]
fn a_member_that_comes_from_another_replica_was_late_only_by_what_that_one_could_have_told() {
    for (millis, silent) in [(20_000, 0), (27_099, 0), (27_100, 1), (27_101, 1)] {
        let mut fixture = replica(&["east"], &[&item(NEAR, 1, 0)]);
        fixture.until(10);
        fixture.hear(&[&with(item(NEAR, 2, 0), "east", 1, Duration::from_millis(9_900))]);
        fixture.until_millis(millis);
        fixture.renew_as_held("east");
        let census = mcs_core::lease::Census { active: 1, silent };
        assert_eq!(fixture.registry.census(), census, "after {millis} ms");
    }
}

#[test]
fn a_view_is_not_complete_before_each_other_replica_went_on_or_is_dead() {
    let mut fixture = replica(&[], &[&item(NEAR, 1, 0), &item(FAR, 1, 0)]);
    fixture.until_millis(29_999);
    fixture.hear(&[&item(NEAR, 1, 0), &item(FAR, 2, 0)]);
    let mut seen = vec![fixture.registry.is_complete(fixture.now())];
    fixture.until(30);
    fixture.hear(&[&item(NEAR, 1, 0), &item(FAR, 2, 0)]);
    seen.push(fixture.registry.is_complete(fixture.now()));
    assert_eq!(seen, [false, true]);
}

/// The verdict is written, and would bring back a record that somebody removed.
#[test]
fn a_member_whose_record_is_missing_when_its_lease_runs_out_goes_with_it() {
    let mut fixture = replica(&["east"], &[&item(NEAR, 1, 0)]);
    fixture.until(29);
    let now = fixture.now();
    fixture.registry.forget(&cluster("east"), &uid("east"), now);
    fixture.until(30);
    let due = fixture.beat();
    fixture.hear(&[&due, &item(NEAR, 2, 1)]);
    assert_eq!(fixture.told(), ["east gone"]);
}

/// Nobody reads it any more then: what it has it says itself.
#[test]
fn a_view_is_complete_without_reading_a_cluster_that_registered_meanwhile() {
    let mut fixture = Fixture::shared(OWN, "eu-1");
    fixture.hear(&[&item(NEAR, 1, 0)]);
    let directory = [(cluster("east"), recorded("east", "1.1"))];
    fixture.registry.differing(&directory, &BTreeSet::new(), Timestamp::ZERO);
    fixture.hear(&[&item(NEAR, 2, 0)]);
    let mut seen = vec![fixture.registry.is_complete(fixture.now())];
    fixture.register("east", "1.2", Sum::EMPTY).expect("a free id");
    fixture.until(1);
    let reading = fixture.hear(&[&item(NEAR, 2, 0)]);
    seen.push(fixture.registry.is_complete(fixture.now()));
    assert_eq!((seen, reading.members), (vec![false, true], BTreeMap::new()));
}

#[test]
fn importers_keep_an_absent_cluster_for_the_grace_too() {
    let [shared, alone] = [Fixture::shared(OWN, "eu-1"), Fixture::new()].map(|one| one.registry);
    let grace = |registry: &Registry| registry.absent_grace().as_secs();
    assert_eq!((grace(&shared), grace(&alone)), (630, 30));
}

#[test]
fn a_beat_is_due_each_third_of_a_lease_and_at_once_for_a_member_that_joins_and_for_who_asks() {
    let mut fixture = replica(&["east"], &[&item(NEAR, 1, 0)]);
    assert!(fixture.registry.beat_due(fixture.now()), "before the first");
    fixture.beat();
    let due = |fixture: &Fixture, millis| fixture.registry.beat_due(Timestamp::from_millis(millis));
    assert_eq!([9_999, 10_000, 10_001].map(|millis| due(&fixture, millis)), [false, true, true]);
    fixture.until(10);
    fixture.beat();
    fixture.register("west", "1.1", Sum::EMPTY).expect("a free id");
    assert_eq!([10_199, 10_200].map(|millis| due(&fixture, millis)), [false, true]);
    fixture.until(11);
    let beat = fixture.beat();
    assert_eq!(
        beat.renewals,
        [(UidTag::of(&uid("west")), Renewal { number: 3, age: Duration::from_secs(1) })].into()
    );
    fixture.renew_as_held("west");
    assert!(!due(&fixture, 12_000), "it is in the last one");
    let asking = Beat { is_due: true, ..item(NEAR, 2, 3) };
    fixture.hear(&[&asking]);
    assert_eq!([11_199, 11_200].map(|millis| due(&fixture, millis)), [false, true]);
    fixture.until(12);
    assert_eq!(fixture.beat().echoes, [(Epoch(NEAR), 2)].into());
    fixture.hear(&[&asking]);
    assert!(!due(&fixture, 13_000), "it was answered");
}

/// Who reads the same number again takes it for the renewal that is known.
#[test]
fn the_renewals_of_a_cluster_that_left_and_came_back_are_not_numbered_as_before() {
    let mut fixture = replica(&[], &[&item(NEAR, 1, 0)]);
    let mut number = || {
        fixture.register("west", "1.1", Sum::EMPTY).expect("a free id");
        let renewals = fixture.beat().renewals;
        let now = fixture.now();
        fixture.registry.remove(&cluster("west"), Some(&uid("west")), false, now).expect("a member");
        renewals[&UidTag::of(&uid("west"))].number
    };
    assert_eq!([number(), number()], [1, 2]);
}

#[test]
fn a_beat_that_was_not_written_is_made_anew_and_still_asks() {
    let mut fixture = replica(&["east"], &[&item(NEAR, 1, 0)]);
    fixture.until(30);
    let now = fixture.now();
    let lost = fixture.registry.beat(now);
    let due = |fixture: &Fixture, millis| fixture.registry.beat_due(Timestamp::from_millis(millis));
    assert_eq!([31_999, 32_000].map(|millis| due(&fixture, millis)), [false, true]);
    fixture.until(32);
    let again = fixture.beat();
    assert_eq!((lost.is_due, again.is_due, again.number), (true, true, lost.number + 1));
    fixture.until(43);
    assert!(!fixture.beat().is_due);
}

#[test]
fn a_member_that_is_not_heard_here_for_a_lease_is_in_the_beat_until_all_that_live_have_read_it() {
    let mut fixture = replica(&[], &[&item(NEAR, 1, 0), &item(FAR, 1, 0)]);
    fixture.register("west", "1.1", Sum::EMPTY).expect("a free id");
    let first = fixture.beat();
    fixture.hear(&[&first, &item(NEAR, 2, 1), &item(FAR, 2, 1)]);
    fixture.renew_as_held("west");
    let told = fixture.beat().number;
    fixture.hear(&[&first, &item(NEAR, 3, told), &item(FAR, 3, 1)]);
    fixture.until_millis(29_999);
    assert_eq!(fixture.beat().renewals.len(), 1);
    fixture.until(30);
    assert_eq!(fixture.beat().renewals.len(), 1, "the far one may have missed it");
    fixture.hear(&[&first, &item(NEAR, 4, told), &item(FAR, 4, told)]);
    assert_eq!(fixture.beat().renewals.len(), 0);
}

/// The grace is ten minutes. Who has read nothing for longer is dead, or has just come.
#[test]
fn a_member_that_is_not_heard_here_for_a_lease_and_the_grace_is_in_no_beat() {
    let mut fixture = replica(&[], &[&item(NEAR, 1, 0), &item(FAR, 1, 0)]);
    fixture.register("west", "1.1", Sum::EMPTY).expect("a free id");
    let mut told = Vec::new();
    for millis in [0, 629_999, 630_000] {
        fixture.until_millis(millis);
        told.push(fixture.beat().renewals.len());
    }
    assert_eq!(told, [1, 1, 0]);
}

/// It went on to a third one, which echoed before that.
#[test]
fn a_renewal_that_was_missed_and_is_over_has_all_asked_anew() {
    let mut fixture = replica(&["east"], &[&item(NEAR, 1, 0), &item(FAR, 1, 0)]);
    fixture.until(30);
    let due = fixture.beat();
    fixture.hear(&[&due, &item(NEAR, 2, due.number), &item(FAR, 2, 0)]);
    fixture.until(59);
    let missed = with(item(FAR, 3, due.number), "east", 1, Duration::from_secs(30));
    fixture.hear(&[&due, &item(NEAR, 3, due.number), &missed]);
    assert_eq!((fixture.state("east"), fixture.registry.waiting()), (Some(MemberState::Active), 1));
    let again = fixture.beat();
    assert!(again.is_due);
    let renewed = with(item(NEAR, 4, again.number), "east", 1, Duration::from_secs(1));
    fixture.hear(&[&again, &renewed, &item(FAR, 4, again.number)]);
    assert_eq!((fixture.state("east"), fixture.registry.waiting()), (Some(MemberState::Active), 0));
}

#[test]
fn a_replica_is_known_when_all_that_live_have_read_a_beat_of_it() {
    let mut fixture = replica(&[], &[&item(NEAR, 1, 0), &item(FAR, 1, 0)]);
    let first = fixture.beat();
    let mut seen = Vec::new();
    for echoes in [(1, 0), (1, 1)] {
        let (near, far) = (item(NEAR, 2 + echoes.1, echoes.0), item(FAR, 2 + echoes.1, echoes.1));
        fixture.hear(&[&first, &near, &far]);
        seen.push(fixture.registry.is_known());
    }
    assert_eq!(seen, [false, true]);
}

#[test]
fn a_member_that_another_replica_hears_again_is_back_when_its_record_is_that_of_what_is_held() {
    let mut fixture = replica(&["east"], &[&item(NEAR, 1, 0)]);
    fixture.until(30);
    let due = fixture.beat();
    fixture.hear(&[&due, &item(NEAR, 2, 1)]);
    assert_eq!(fixture.told(), ["east expired whole 1.1"]);
    fixture.until(33);
    let reading = fixture.hear(&[&due, &with(item(NEAR, 3, 1), "east", 1, Duration::from_secs(2))]);
    assert_eq!(fixture.told(), [""; 0]);
    assert_eq!(reading.members.into_values().collect::<Vec<_>>(), [mcs_core::registry::Keys::Record]);
    let now = fixture.now();
    fixture.registry.learn(&cluster("east"), recorded("east", "1.1"), Read::record(), now);
    assert_eq!(fixture.told(), ["east active whole 1.1"]);
}

#[test]
fn a_member_that_is_not_whole_expires_and_stays_where_others_may_know_all_of_it() {
    let mut fixture = replica(&[], &[&item(NEAR, 1, 0)]);
    let other: Sum = [mcs_core::version::Leaf::from_bytes([7; 16])].into_iter().collect();
    fixture.register("west", "1.1", other).expect("a free id");
    fixture.until(30);
    let due = fixture.beat();
    fixture.hear(&[&due, &item(NEAR, 2, 1)]);
    assert_eq!(fixture.told().last().map(String::as_str), Some("west expired in part 0.0"));
}
