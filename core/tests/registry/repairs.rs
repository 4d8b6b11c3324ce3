//! What the store lost, what was removed from it, and what nobody has: who writes again, who lets go, and that it ends.

use crate::fixture::{Fixture, cluster, key, put, sum_of, uid, uid_of};
use crate::learn::{
    again, all, claim, entry, export, heard, item, keys, learn, one, record, replica, who, with_east,
};
use mcs_core::ids::Epoch;
use mcs_core::model::MemberState;
use mcs_core::registry::{Forgotten, Keys, Learnt, Op, Read, Recorded, Refused, Registered, Rewrite, Who};
use mcs_core::replicas::Beat;
use mcs_core::time::WallMillis;
use mcs_core::version::{Sum, Version};
use std::collections::{BTreeMap, BTreeSet};

/// Nobody hears `east` for a lease, and all agree: it expires at second 32.
fn expire(fixture: &mut Fixture) {
    fixture.until(32);
    let due = fixture.beat();
    let echo = Beat { echoes: [(Epoch(1), due.number)].into(), ..item(1_000, &[]) };
    fixture.hear(&[&due, &echo]);
    assert_eq!(fixture.state("east"), Some(MemberState::Expired));
    fixture.told();
}

fn expired(act: &str, ops: &[Op]) -> Recorded {
    Recorded { state: MemberState::Expired, ..record("east", act, ops) }
}

/// Its owner died with an act that no record has: 1.5 is all that there will be.
#[test]
fn a_version_that_nobody_reaches_is_not_awaited_for_ever() {
    let (mut fixture, web, api) = with_east();
    let both = [web, api];
    heard(&mut fixture, 2, 0, &[entry("east", None, "1.9")]);
    let (mut reads, mut told) = (BTreeMap::<Keys, usize>::new(), 0);
    for seconds in 1..=600 {
        fixture.until(seconds);
        let reading = heard(&mut fixture, 2 + seconds, 0, &[entry("east", None, "1.9")]);
        told += reading.tell.len();
        for keys in reading.members.into_values() {
            *reads.entry(keys).or_default() += 1;
            learn(&mut fixture, "east", record("east", "1.5", &both), Read::record());
        }
    }
    assert_eq!((reads, told), ([(Keys::Record, 7)].into(), 1), "no export, and an end");
    // Another word of it begins anew.
    let reading = heard(&mut fixture, 10_000, 1, &[entry("east", None, "1.10")]);
    assert_eq!(reading.members, [(who("east"), Keys::Record)].into());
}

/// Its owner died while an export of its last act was lost: all of a large cluster is not read every two minutes for a week.
#[test]
fn what_does_not_fit_is_read_ever_more_seldom_until_something_is_said_of_it() {
    let (mut fixture, web, _) = with_east();
    let lost = put("lost", &[]);
    let newer = |act| record("east", act, &[web.clone(), lost.clone()]);
    assert_eq!(learn(&mut fixture, "east", newer("1.9"), Read::record()), again());
    let reads_from = |fixture: &mut Fixture, from: u64, seconds: u64, act| {
        let mut read = Vec::new();
        for seconds in from + 1..=from + seconds {
            fixture.until(seconds);
            if seconds.is_multiple_of(120) {
                let now = fixture.now();
                fixture.registry.differing(&[(cluster("east"), newer(act))], &BTreeSet::new(), now);
            }
            let reading = heard(fixture, 2 + seconds, 0, &[]);
            for keys in reading.members.into_values() {
                let learnt = learn(fixture, "east", newer(act), Read::record());
                read.push((seconds - from, keys == Keys::All, reading.tell.len(), learnt.again));
            }
        }
        read
    };
    let read = reads_from(&mut fixture, 0, 1_000, "1.9");
    let expected = [
        (1, false, 0, true),
        (2, false, 0, true),
        (3, false, 0, true),
        (5, false, 0, true),
        (9, true, 0, true),
        (16, true, 0, true),
        (29, true, 1, false),
        (55, true, 1, false),
        (107, true, 1, false),
        (210, true, 1, false),
        (415, true, 1, false),
        (825, true, 1, false),
    ];
    assert_eq!(read, expected, "twice as long each time, whatever the directory says");
    // Two that lack the same do not ask each other for ever.
    assert_eq!(heard(&mut fixture, 2_000, 0, &[entry("east", None, "1.5")]).members, BTreeMap::new());
    let reading = heard(&mut fixture, 2_001, 1, &[entry("east", Some("lost"), "1.9")]);
    assert_eq!(reading.members, [(who("east"), Keys::All)].into());
    learn(&mut fixture, "east", newer("1.9"), Read::record());
    assert_eq!(reads_from(&mut fixture, 1_000, 30, "1.9").len(), 7, "it begins anew");
    reads_from(&mut fixture, 1_030, 200, "1.9");
    // So it does with another record, which the directory shows.
    assert_eq!(reads_from(&mut fixture, 1_230, 120, "1.10").len(), 7);
}

#[test]
fn what_does_not_fit_is_given_up_with_its_eighth_reading_and_not_with_the_seventh() {
    for (readings, other_act, is_again) in [(7, "1.9", true), (8, "1.9", false), (8, "1.10", true)] {
        let (mut fixture, web, _) = with_east();
        let newer = |act| record("east", act, std::slice::from_ref(&web));
        for _ in 1..readings {
            assert!(learn(&mut fixture, "east", newer("1.9"), all(&[])).again);
        }
        assert_eq!(learn(&mut fixture, "east", newer(other_act), all(&[])).again, is_again, "{readings}");
    }
}

#[test]
fn who_holds_an_expired_member_whole_writes_again_what_another_one_lacks() {
    let (mut fixture, web, api) = with_east();
    let both = [web.clone(), api];
    expire(&mut fixture);
    // News of the same version are of a verdict: they ask for nothing.
    let reading = heard(&mut fixture, 2_000, 0, &[entry("east", None, "1.5")]);
    assert_eq!(reading.members, [(who("east"), Keys::Record)].into());
    learn(&mut fixture, "east", expired("1.5", &both), Read::record());
    let reading = heard(&mut fixture, 2_001, 1, &[entry("east", None, "0.0")]);
    assert_eq!(reading.members, [(who("east"), Keys::All)].into());
    let learnt = learn(&mut fixture, "east", expired("1.5", &both), all(&[("1.2", &web)]));
    assert_eq!(learnt.rewrite, Rewrite { record: false, keys: keys(&["api"]) });
    // One that runs is for who serves it.
    let (mut fixture, ..) = with_east();
    let reading = heard(&mut fixture, 2, 0, &[entry("east", None, "0.0")]);
    assert_eq!(reading.members, [(who("east"), Keys::Record)].into());
}

#[test]
fn nothing_of_a_member_is_written_again_that_may_have_been_removed() {
    let (mut fixture, web, api) = with_east();
    let both = [web, api];
    expire(&mut fixture);
    let lost = |fixture: &mut Fixture| learn(fixture, "east", expired("1.5", &both), all(&[])).rewrite.keys;
    assert_eq!(lost(&mut fixture), keys(&["api", "web"]));
    // That it went is told before its exports are seen to go.
    heard(&mut fixture, 2_000, 0, &[entry("east", None, "1.6")]);
    assert_eq!(lost(&mut fixture), keys(&[]));

    let (mut fixture, ..) = with_east();
    expire(&mut fixture);
    let now = fixture.now();
    assert_eq!(fixture.registry.forget(&cluster("east"), &uid("east"), now), Forgotten::default());
    assert_eq!(lost(&mut fixture), keys(&[]), "its record was missing a moment ago");
    assert_eq!(lost(&mut fixture), keys(&["api", "web"]));
}

#[test]
fn a_removal_that_the_store_tells_takes_an_expired_member_at_once_and_no_other() {
    for (is_expired, as_of, is_gone) in [
        (true, Version::new(1, 5), true),
        (true, Version::new(1, 4), false),
        (false, Version::new(1, 5), false),
    ] {
        let (mut fixture, ..) = with_east();
        if is_expired {
            expire(&mut fixture);
        }
        let now = fixture.now();
        assert_eq!(fixture.registry.was_removed(&who("east"), as_of, now), is_gone, "{is_expired} {as_of}");
        let told: &[&str] = if is_gone { &["east gone", "part api of east gone"] } else { &[] };
        let lines: BTreeSet<_> = fixture.told().into_iter().collect();
        assert!(told.iter().all(|line| lines.contains(*line)), "{lines:?}");
        assert_eq!(fixture.state("east").is_none(), is_gone);
    }
}

#[test]
fn a_record_as_old_as_a_removal_makes_no_member_at_who_starts() {
    let mut fixture = replica();
    let now = fixture.now();
    assert!(!fixture.registry.was_removed(&who("east"), Version::new(1, 5), now));
    let directory = |act| [(cluster("east"), expired(act, &[]))];
    let differing = fixture.registry.differing(&directory("1.5"), &BTreeSet::new(), now);
    assert_eq!(differing.read, BTreeSet::new());
    // A verdict that was written late: it is removed again.
    assert_eq!(differing.remove, [(who("east"), Version::new(1, 5))].into());
    let running = [(cluster("east"), record("east", "1.5", &[]))];
    let differing = fixture.registry.differing(&running, &BTreeSet::new(), now);
    assert_eq!((differing.read, differing.remove), (BTreeSet::new(), BTreeMap::new()));
    let differing = fixture.registry.differing(&directory("1.6"), &BTreeSet::new(), now);
    assert_eq!((differing.read, differing.remove), ([who("east")].into(), BTreeMap::new()));
}

/// Installed anew, on a clock that is behind: what it says would be older than its removal for everybody.
#[test]
fn a_cluster_that_was_removed_comes_back_with_what_is_no_older() {
    for (act, expected) in [
        ("6.9", Err(Refused::OldTerm { cluster: cluster("east"), term: 6, floor: 7 })),
        ("7.4", Err(Refused::OldTerm { cluster: cluster("east"), term: 7, floor: 7 })),
        ("7.5", Ok(Registered { differs: false })),
        ("8.1", Ok(Registered { differs: false })),
    ] {
        let mut fixture = replica();
        let now = fixture.now();
        fixture.registry.was_removed(&who("east"), Version::new(7, 5), now);
        assert_eq!(fixture.register("east", act, Sum::EMPTY), expected, "{act}");
    }
}

/// It was taken in by a replica that had not read of the removal: it renews in vain, for the table refuses its record.
#[test]
fn who_is_a_member_below_the_term_of_its_removal_is_told_so_and_written_again_once() {
    let mut fixture = replica();
    fixture.register("east", "6.1", Sum::EMPTY).expect("a free id");
    fixture.sync("east", "6.2", vec![put("web", &["10.1.0.1"])]);
    let mut rewrites = Vec::new();
    for seconds in 1..=4 {
        fixture.until(seconds);
        let now = fixture.now();
        assert!(!fixture.registry.was_removed(&who("east"), Version::new(6, 9), now), "it renews");
        rewrites.push(fixture.registry.forget(&cluster("east"), &uid("east"), now).rewrite);
        fixture.until_millis(seconds * 1_000 + 500);
        fixture.renew_as_held("east");
    }
    let (all, record) =
        (Rewrite { record: true, keys: keys(&["web"]) }, Rewrite { record: true, keys: keys(&[]) });
    assert_eq!(rewrites, [Rewrite::default(), all, Rewrite::default(), record], "once with its exports");
    let now = fixture.now();
    fixture.registry.was_removed(&who("east"), Version::new(7, 1), now);
    let refused = Refused::OldTerm { cluster: cluster("east"), term: 6, floor: 7 };
    assert_eq!(fixture.renew("east", "6.9", Sum::EMPTY), Err(refused));
}

#[test]
fn a_record_that_is_lost_twice_is_written_again_with_its_exports_twice() {
    let (mut fixture, web, api) = with_east();
    let both = [web, api];
    let mut rewrites = Vec::new();
    for seconds in [1, 2, 3] {
        fixture.until(seconds);
        let now = fixture.now();
        fixture.registry.forget(&cluster("east"), &uid("east"), now);
        fixture.until_millis(seconds * 1_000 + 500);
        fixture.renew("east", "1.5", sum_of(&both)).expect("its id");
        let now = fixture.now();
        rewrites.push(fixture.registry.forget(&cluster("east"), &uid("east"), now).rewrite.keys.len());
        if seconds == 2 {
            learn(&mut fixture, "east", record("east", "1.5", &both), Read::record());
        }
    }
    assert_eq!(rewrites, [2, 0, 2]);
}

/// An export changed and changed back, or was put again after a removal.
#[test]
fn an_export_that_is_as_it_is_held_and_newer_is_not_written_again() {
    let (mut fixture, web, api) = with_east();
    let both = [web.clone(), api.clone()];
    fixture.renew("east", "1.9", sum_of(&both)).expect("its id");
    let read = all(&[("1.8", &web), ("1.3", &api)]);
    assert_eq!(learn(&mut fixture, "east", record("east", "1.9", &both), read), Learnt::default());
    let told = fixture.told();
    assert!(told.contains(&"part web of east 1.8 [10.1.0.1]".to_owned()), "as in the table: {told:?}");
}

#[test]
fn nothing_is_removed_again_of_a_cluster_that_is_heard() {
    let mut fixture = replica();
    let now = fixture.now();
    fixture.registry.was_removed(&who("east"), Version::new(1, 5), now);
    fixture.hear(&[&item(2, &[(&uid("east"), 1)])]);
    let directory = [(cluster("east"), expired("1.5", &[]))];
    let differing = fixture.registry.differing(&directory, &BTreeSet::new(), now);
    assert_eq!(differing.remove, BTreeMap::new());
}

/// Its owner deleted it here before it was read here.
#[test]
fn who_serves_a_member_looks_for_an_export_of_news_that_it_does_not_hold() {
    let (mut fixture, web, api) = with_east();
    let both = [web.clone(), api.clone()];
    fixture.renew("east", "1.5", sum_of(&both)).expect("its id");
    fixture.wrote("east", "1.6", vec![Op::Delete { key: key("new") }]);
    let reading = heard(&mut fixture, 2, 0, &[entry("east", Some("new"), "1.5")]);
    assert_eq!(reading.members, [(who("east"), Keys::All)].into());
    let new = put("new", &[]);
    let read = all(&[("1.2", &web), ("1.3", &api), ("1.5", &new)]);
    let learnt = learn(&mut fixture, "east", record("east", "1.6", &both), read);
    assert_eq!(learnt.rewrite.keys, keys(&["new"]), "it is deleted");
}

/// The table holds a newer act that is not proven here: what would be written would not be taken.
#[test]
fn a_record_that_is_newer_than_what_is_held_is_not_written_again() {
    for newer in [
        Recorded { claimed_at: WallMillis::from_unix_millis(9), ..record("east", "1.7", &[]) },
        Recorded {
            state: MemberState::Expired,
            claimed_at: WallMillis::from_unix_millis(7),
            ..record("east", "1.7", &[])
        },
    ] {
        let (mut fixture, web, api) = with_east();
        fixture.renew("east", "1.5", sum_of(&[web, api])).expect("its id");
        claim(&mut fixture, "east", &uid("east"), 7);
        assert_eq!(learn(&mut fixture, "east", newer, Read::record()), again());
    }
}

#[test]
fn a_write_that_found_something_newer_has_it_read_with_growing_pauses() {
    let (mut fixture, web, api) = with_east();
    let both = [web, api];
    let mut read = Vec::new();
    for millis in (100..=3_000).step_by(100) {
        fixture.until_millis(millis);
        let now = fixture.now();
        // Each read fits, and each write finds something newer again.
        fixture.registry.is_behind(&cluster("east"), &uid("east"), now);
        for keys in heard(&mut fixture, 2 + millis, 0, &[]).members.into_values() {
            read.push((millis, keys));
            let newer = record("east", "1.9", &[both[0].clone()]);
            assert_eq!(learn(&mut fixture, "east", newer, Read::record()), again());
        }
    }
    let times: Vec<_> = read.iter().map(|(millis, _)| *millis).collect();
    assert_eq!(times, [300, 700, 1_500], "as what does not fit");
}

/// A verdict that was written late says that a cluster has expired which is heard.
#[test]
fn a_claimant_that_is_heard_lives_whatever_its_record_says() {
    let mut fixture = replica();
    fixture.register_as("east", "a", "1.1", Sum::EMPTY).expect("a free id");
    claim(&mut fixture, "east", &uid_of("a"), 5);
    let claimed_at = WallMillis::from_unix_millis(4);
    let rival =
        Recorded { uid: uid_of("b"), state: MemberState::Expired, claimed_at, ..record("east", "7.1", &[]) };
    let who = Who { cluster: cluster("east"), uid: uid_of("b") };
    fixture.hear(&[&item(2, &[(&rival.uid, 1)])]);
    let now = fixture.now();
    let differing = fixture.registry.differing(&[(cluster("east"), rival.clone())], &BTreeSet::new(), now);
    assert_eq!(differing.read, [who].into());
    learn(&mut fixture, "east", rival, all(&[]));
    assert_eq!(fixture.registry.member(&cluster("east")).expect("a member").uid(), &uid_of("b"));
}

/// Who was silent for a lease, and whose id another cluster took, does not win it back by the claim of before.
#[test]
fn who_takes_an_id_over_takes_the_claim_over() {
    let mut fixture = replica();
    fixture.register_as("east", "a", "1.1", Sum::EMPTY).expect("a free id");
    claim(&mut fixture, "east", &uid_of("a"), 5);
    expire(&mut fixture);
    fixture.register_as("east", "b", "7.1", Sum::EMPTY).expect("its lease has run out");
    claim(&mut fixture, "east", &uid_of("b"), 60_000);
    let back = Recorded {
        uid: uid_of("a"),
        claimed_at: WallMillis::from_unix_millis(5),
        ..record("east", "1.1", &[])
    };
    let now = fixture.now();
    fixture.registry.differing(&[(cluster("east"), back.clone())], &BTreeSet::new(), now);
    let reading = fixture.hear(&[&item(2_000, &[(&back.uid, 1)])]);
    let claimant = Who { cluster: cluster("east"), uid: back.uid.clone() };
    assert!(!reading.members.contains_key(&claimant), "{reading:?}");
    learn(&mut fixture, "east", back, all(&[]));
    assert_eq!(fixture.registry.member(&cluster("east")).expect("a member").uid(), &uid_of("b"));
}

#[test]
fn a_record_of_who_knew_nothing_proves_nothing() {
    let mut fixture = replica();
    let web = put("web", &["10.1.0.1"]);
    let half = Recorded { state: MemberState::Expired, ..record("east", "0.0", std::slice::from_ref(&web)) };
    let learnt = learn(&mut fixture, "east", half, all(&[("1.2", &web)]));
    assert_eq!(learnt, Learnt::default());
    assert!(!fixture.registry.member(&cluster("east")).expect("a member").is_whole());
    let whole = expired("1.3", std::slice::from_ref(&web));
    learn(&mut fixture, "east", whole, one("web", Some(export("1.2", &web))));
    assert!(fixture.registry.member(&cluster("east")).expect("a member").is_whole());
}

/// One that comes back with something else is in no beat before it has synced, and in the next one then.
#[test]
fn a_hidden_member_asks_for_a_beat_when_it_is_back_and_not_before() {
    let (mut fixture, web, api) = with_east();
    expire(&mut fixture);
    fixture.until(33);
    fixture.beat();
    fixture.until(34);
    fixture.renew("east", "2.1", sum_of(&[put("other", &[])])).expect("its id");
    assert!(!fixture.registry.beat_due(fixture.now()), "it is hidden");
    fixture.sync("east", "2.2", vec![web, api]);
    assert_eq!(fixture.state("east"), Some(MemberState::Active));
    assert!(fixture.registry.beat_due(fixture.now()));
}
