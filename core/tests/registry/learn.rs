//! What is read of members that other replicas wrote.

use crate::fixture::{Fixture, cluster, key, leaf_of, put, region, sum_of, uid, uid_of, version};
use mcs_core::ids::{ClusterUid, Epoch, ServiceKey};
use mcs_core::model::{Export, MemberState};
use mcs_core::registry::{Keys, Learnt, Op, Read, Recorded, Refused, Rewrite, Who};
use mcs_core::replicas::{Beat, KeyTag, News, NewsEntry, Renewal, UidTag};
use mcs_core::time::WallMillis;
use mcs_core::version::{Sum, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const OTHER: Epoch = Epoch(2);

pub(crate) fn item(number: u64, heard: &[(&ClusterUid, u64)]) -> Beat {
    let renewals =
        heard.iter().map(|(uid, number)| (UidTag::of(uid), Renewal { number: *number, age: Duration::ZERO }));
    Beat {
        epoch: OTHER,
        region: Some(region("us-1")),
        number,
        echoes: [(Epoch(1), 0)].into(),
        dead: BTreeSet::new(),
        is_due: false,
        renewals: renewals.collect(),
    }
}

pub(crate) fn record(name: &str, act: &str, ops: &[Op]) -> Recorded {
    Recorded {
        uid: uid(name),
        region: None,
        version: version(act),
        sum: sum_of(ops),
        state: MemberState::Active,
        claimed_at: None,
    }
}

pub(crate) fn export(act: &str, op: &Op) -> Export {
    let Op::Put { leaf, spec, endpoints, .. } = op else { panic!("{op:?} is no export") };
    let (spec, endpoints) = (spec.clone(), endpoints.clone());
    Export { version: version(act), leaf: *leaf, spec, endpoints, changed_at: None }
}

pub(crate) fn all(exports: &[(&str, &Op)]) -> Read {
    let whole = exports.iter().map(|(act, op)| (op.key().clone(), export(act, op))).collect();
    Read::All { whole, torn: BTreeSet::new() }
}

pub(crate) fn one(service: &str, export: Option<Export>) -> Read {
    Read::Some { read: [(key(service), export)].into(), torn: BTreeSet::new() }
}

pub(crate) fn keys(services: &[&str]) -> BTreeSet<ServiceKey> {
    services.iter().map(|service| key(service)).collect()
}

pub(crate) fn again() -> Learnt {
    Learnt { again: true, rewrite: Rewrite::default() }
}

pub(crate) fn learn(fixture: &mut Fixture, name: &str, record: Recorded, read: Read) -> Learnt {
    let now = fixture.now();
    fixture.registry.learn(&cluster(name), record, read, now)
}

/// A replica that has read an empty store and knows of another one.
pub(crate) fn replica() -> Fixture {
    let mut fixture = Fixture::shared(1, "eu-1");
    fixture.hear(&[&item(1, &[])]);
    let now = fixture.now();
    fixture.registry.differing(&[], &BTreeSet::new(), now);
    fixture
}

/// A replica that has learned `east` as of 1.5 with web as of 1.2 and api as of 1.3.
pub(crate) fn with_east() -> (Fixture, Op, Op) {
    let mut fixture = replica();
    let (web, api) = (put("web", &["10.1.0.1"]), put("api", &["10.1.0.2"]));
    let both = [web.clone(), api.clone()];
    let learnt =
        learn(&mut fixture, "east", record("east", "1.5", &both), all(&[("1.2", &web), ("1.3", &api)]));
    assert_eq!(learnt, Learnt::default());
    assert_eq!(fixture.told().last().map(String::as_str), Some("east active whole 1.5"));
    (fixture, web, api)
}

#[test]
fn a_member_that_fits_its_record_is_shown_and_one_that_does_not_is_held_in_part() {
    let mut fixture = replica();
    let (web, api) = (put("web", &["10.1.0.1"]), put("api", &["10.1.0.2"]));
    let both = [web.clone(), api.clone()];
    let learnt = learn(&mut fixture, "east", record("east", "1.5", &both), all(&[("1.2", &web)]));
    assert_eq!(learnt, again());
    assert_eq!(fixture.told(), ["part web of east 1.2 [10.1.0.1]", "east syncing in part 0.0"]);
    let learnt =
        learn(&mut fixture, "east", record("east", "1.5", &both), one("api", Some(export("1.5", &api))));
    assert_eq!(learnt, Learnt::default());
    assert_eq!(
        fixture.told(),
        [
            "part api of east 1.5 [10.1.0.2]",
            "header api ClusterSetIp of east",
            "header web ClusterSetIp of east",
            "east active whole 1.5"
        ]
    );
}

#[test]
fn newer_exports_are_shown_at_once_and_the_version_when_the_sums_agree() {
    let (mut fixture, web, api) = with_east();
    let (web_2, api_2) = (put("web", &["10.1.0.7"]), put("api", &["10.1.0.8"]));
    let newer = record("east", "1.8", &[web_2.clone(), api_2.clone()]);
    let learnt = learn(&mut fixture, "east", newer.clone(), all(&[("1.7", &web_2), ("1.3", &api)]));
    assert_eq!(learnt, again());
    assert_eq!(fixture.told(), ["part web of east 1.7 [10.1.0.7]", "east active whole 1.5"]);
    // Now a reader of the table sees an old state of one and the new one of the other.
    let learnt = learn(&mut fixture, "east", newer, all(&[("1.2", &web), ("1.8", &api_2)]));
    assert_eq!(learnt, Learnt::default());
    assert_eq!(fixture.told(), ["part api of east 1.8 [10.1.0.8]", "east active whole 1.8"]);
}

#[test]
fn a_torn_export_keeps_its_last_whole_state() {
    let (mut fixture, web, api) = with_east();
    let web_2 = put("web", &["10.1.0.7"]);
    let newer = record("east", "1.6", &[web_2.clone(), api.clone()]);
    let torn = Read::All { whole: [(key("api"), export("1.3", &api))].into(), torn: keys(&["web"]) };
    assert_eq!(learn(&mut fixture, "east", newer.clone(), torn), again());
    assert_eq!(fixture.told(), [""; 0]);
    // Torn, it does not count as missing either, though without it the sum would be that of the record.
    let without = record("east", "1.6", std::slice::from_ref(&api));
    let torn = Read::All { whole: [(key("api"), export("1.3", &api))].into(), torn: keys(&["web"]) };
    assert_eq!(learn(&mut fixture, "east", without, torn), again());
    assert_eq!(fixture.told(), [""; 0]);
    let learnt = learn(&mut fixture, "east", newer, one("web", Some(export("1.6", &web_2))));
    assert_eq!(learnt, Learnt::default());
    assert_eq!(fixture.told(), ["part web of east 1.6 [10.1.0.7]", "east active whole 1.6"]);
    drop(web);
}

#[test]
fn what_is_missing_goes_only_when_the_sums_agree_without_it_and_the_record_is_not_older() {
    let (_, web, api) = with_east();
    let both = [web.clone(), api];
    let without_api = std::slice::from_ref(&web);
    let gone = ["header api gone", "part api of east gone"];
    for (act, of, read, told) in [
        // The record says that it is there.
        ("1.6", &both[..], all(&[("1.2", &web)]), vec!["east active whole 1.6"]),
        // The record is older than what is held.
        ("1.4", without_api, all(&[("1.2", &web)]), vec![]),
        // It was not looked for.
        ("1.6", without_api, Read::record(), vec![]),
        ("1.6", without_api, all(&[("1.2", &web)]), [&gone[..], &["east active whole 1.6"]].concat()),
        ("1.6", without_api, one("api", None), [&gone[..], &["east active whole 1.6"]].concat()),
    ] {
        let (mut fixture, ..) = with_east();
        learn(&mut fixture, "east", record("east", act, of), read.clone());
        let (lines, told): (BTreeSet<_>, BTreeSet<_>) =
            (fixture.told().into_iter().collect(), told.into_iter().map(str::to_owned).collect());
        assert_eq!(lines, told, "{act} {of:?} {read:?}");
    }
}

#[test]
fn an_older_record_and_an_older_export_change_nothing() {
    let (mut fixture, ..) = with_east();
    let old = put("web", &["10.1.0.66"]);
    let learnt =
        learn(&mut fixture, "east", record("east", "1.4", std::slice::from_ref(&old)), all(&[("1.1", &old)]));
    assert_eq!((learnt, fixture.told()), (Learnt::default(), vec![]));
}

#[test]
fn an_export_that_was_deleted_before_the_set_that_is_held_does_not_come_back() {
    let (mut fixture, ..) = with_east();
    let old = put("old", &["10.1.0.66"]);
    for act in ["1.4", "1.5"] {
        learn(&mut fixture, "east", record("east", "1.4", &[]), one("old", Some(export(act, &old))));
        assert_eq!(fixture.told(), [""; 0], "{act}");
    }
    learn(&mut fixture, "east", record("east", "1.4", &[]), one("old", Some(export("1.6", &old))));
    assert_eq!(fixture.told()[0], "part old of east 1.6 [10.1.0.66]");
}

#[test]
fn an_export_that_its_owner_deleted_here_does_not_come_back_while_acts_are_missing() {
    let (mut fixture, ..) = with_east();
    let web = put("web", &["10.1.0.9"]);
    // 1.6 and 1.7 went to another replica: 1.7 put web anew.
    fixture.wrote("east", "1.8", vec![Op::Delete { key: key("web") }]);
    fixture.told();
    learn(&mut fixture, "east", record("east", "1.4", &[]), one("web", Some(export("1.7", &web))));
    assert_eq!(fixture.told(), [""; 0]);
    learn(&mut fixture, "east", record("east", "1.4", &[]), one("web", Some(export("1.9", &web))));
    assert_eq!(fixture.told()[0], "part web of east 1.9 [10.1.0.9]");
}

/// Without it what is held is the set as of neither version.
#[test]
fn a_delete_while_acts_are_missing_is_recorded_as_a_part_until_the_whole_is_known() {
    let (mut fixture, _, api) = with_east();
    let recorded = |fixture: &Fixture| {
        let member = fixture.registry.member(&cluster("east")).expect("a member");
        (member.version(), member.state(), member.recorded_state())
    };
    let mut seen = vec![recorded(&fixture)];
    fixture.wrote("east", "1.7", vec![put("web", &["10.1.0.9"])]);
    seen.push(recorded(&fixture));
    fixture.wrote("east", "1.8", vec![Op::Delete { key: key("web") }]);
    seen.push(recorded(&fixture));
    fixture.renew("east", "1.8", sum_of(&[api])).expect("its id");
    seen.push(recorded(&fixture));
    let active = MemberState::Active;
    assert_eq!(
        seen,
        [
            (version("1.5"), active, active),
            (version("1.5"), active, active),
            (version("1.5"), active, MemberState::Syncing),
            (version("1.8"), active, active)
        ]
    );
}

#[test]
fn what_the_owner_said_here_and_is_not_written_yet_stands() {
    let (mut fixture, web, api) = with_east();
    let web_2 = put("web", &["10.1.0.7"]);
    fixture.wrote("east", "1.6", vec![web_2]);
    fixture.told();
    let both = [web.clone(), api.clone()];
    learn(&mut fixture, "east", record("east", "1.5", &both), all(&[("1.2", &web), ("1.3", &api)]));
    assert_eq!(fixture.told(), [""; 0]);
}

/// It was so before, changed, and changed back; a late write of the state in between has won.
#[test]
fn what_replaces_a_newer_write_of_an_older_state_is_as_new_as_the_whole_set() {
    let (mut fixture, web, api) = with_east();
    let both = [web, api];
    fixture.renew("east", "1.5", sum_of(&both)).expect("its id");
    let between = put("web", &["10.1.0.66"]);
    let learnt =
        learn(&mut fixture, "east", record("east", "1.5", &both), one("web", Some(export("1.4", &between))));
    let rewrite = Rewrite { record: false, keys: keys(&["web"]) };
    assert_eq!(learnt, Learnt { again: false, rewrite });
    assert_eq!(fixture.told(), ["part web of east 1.5 [10.1.0.1]"]);
}

#[test]
fn a_leader_below_the_term_of_a_record_is_refused() {
    let (mut fixture, web, api) = with_east();
    learn(&mut fixture, "east", record("east", "3.1", &[web, api]), Read::record());
    let refused = fixture.renew("east", "2.9", Sum::EMPTY).unwrap_err();
    assert_eq!(refused, Refused::OldTerm { cluster: cluster("east"), term: 2, floor: 3 });
}

#[test]
fn who_serves_a_member_writes_again_what_an_older_write_replaced() {
    let (mut fixture, web, api) = with_east();
    let both = [web.clone(), api];
    let old = put("web", &["10.1.0.66"]);
    let overwritten = |fixture: &mut Fixture| {
        learn(fixture, "east", record("east", "1.4", std::slice::from_ref(&old)), all(&[("1.1", &old)]))
    };
    assert_eq!(overwritten(&mut fixture), Learnt::default(), "another one serves it");
    fixture.renew("east", "1.5", sum_of(&both)).expect("its id");
    let rewrite = Rewrite { record: true, keys: keys(&["api", "web"]) };
    assert_eq!(overwritten(&mut fixture), Learnt { again: false, rewrite });
    // An export alone was replaced, or lost.
    let learnt =
        learn(&mut fixture, "east", record("east", "1.5", &both), one("web", Some(export("1.1", &old))));
    assert_eq!(learnt.rewrite.keys, keys(&["web"]));
    // An export is missing beside a record that is right.
    let learnt = learn(&mut fixture, "east", record("east", "1.5", &both), all(&[("1.2", &web)]));
    assert_eq!(learnt.rewrite, Rewrite { record: false, keys: keys(&["api"]) });
    // An export that was deleted is there again.
    let gone = put("gone", &[]);
    let learnt =
        learn(&mut fixture, "east", record("east", "1.5", &both), one("gone", Some(export("1.1", &gone))));
    assert_eq!(learnt.rewrite.keys, keys(&["gone"]));
    fixture.told();
    fixture.until_millis(29_999);
    assert!(!overwritten(&mut fixture).rewrite.is_empty());
    fixture.until(30);
    assert_eq!(overwritten(&mut fixture), Learnt::default(), "a lease later it serves it no more");
}

pub(crate) fn heard(
    fixture: &mut Fixture,
    number: u64,
    first: u64,
    entries: &[NewsEntry],
) -> mcs_core::registry::Reading {
    let news = News { epoch: OTHER, first, entries: entries.to_vec() };
    let now = fixture.now();
    fixture.registry.hear(&[(item(number, &[]), Some(news))], now)
}

pub(crate) fn entry(name: &str, service: Option<&str>, act: &str) -> NewsEntry {
    let key = service.map(|service| KeyTag::of(&key(service)));
    NewsEntry { member: UidTag::of(&uid(name)), key, version: version(act) }
}

pub(crate) fn who(name: &str) -> Who {
    Who { cluster: cluster(name), uid: uid(name) }
}

#[test]
fn news_say_what_to_read_and_what_cannot_be_made_out_reads_more() {
    let (mut fixture, ..) = with_east();
    let reading = heard(&mut fixture, 2, 0, &[entry("east", Some("web"), "1.6")]);
    assert_eq!((reading.all, reading.members), (false, [(who("east"), Keys::Some(keys(&["web"])))].into()));
    let reading =
        heard(&mut fixture, 3, 0, &[entry("east", Some("web"), "1.6"), entry("east", Some("new"), "1.7")]);
    assert_eq!((reading.all, reading.members), (false, [(who("east"), Keys::All)].into()));
    // Of what is known already there is nothing to read.
    let (mut fixture, ..) = with_east();
    let reading = heard(&mut fixture, 2, 0, &[entry("east", Some("web"), "1.5")]);
    assert_eq!((reading.all, reading.members), (false, BTreeMap::new()));
    for (first, name) in [(1, "west"), (9, "east")] {
        let (mut fixture, ..) = with_east();
        assert!(heard(&mut fixture, 2, first, &[entry(name, None, "1.1")]).all, "unknown, or missed");
    }
}

#[test]
fn what_is_older_than_its_news_is_read_again_with_growing_pauses_until_nobody_can_have_it() {
    let (mut fixture, web, api) = with_east();
    let both = [web.clone(), api.clone()];
    let web_2 = put("web", &["10.1.0.7"]);
    assert_eq!(heard(&mut fixture, 2, 0, &[entry("east", Some("web"), "1.6")]).members.len(), 1);
    // The news came before the records.
    let old = || record("east", "1.5", &both);
    assert_eq!(learn(&mut fixture, "east", old(), one("web", Some(export("1.2", &web)))), again());
    let mut read = Vec::new();
    for millis in (200..=60_000).step_by(200) {
        fixture.until_millis(millis);
        let reading = heard(&mut fixture, 2 + millis, 0, &[entry("east", Some("web"), "1.6")]);
        for keys in reading.members.into_values() {
            let learnt = learn(&mut fixture, "east", old(), Read::record());
            read.push((millis, keys, reading.tell.len(), learnt.again));
        }
    }
    // What is held fits its record: no export is looked for. Whoever serves it is asked once whether it has more.
    let expected: Vec<_> = [
        (200, Keys::Record, 0, true),
        (600, Keys::Record, 0, true),
        (1_400, Keys::Record, 0, true),
        (3_000, Keys::Record, 0, true),
        (6_200, Keys::Record, 0, true),
        (12_600, Keys::Record, 0, true),
        (25_400, Keys::Record, 1, false),
    ]
    .into();
    assert_eq!(read, expected);
    let newer = record("east", "1.6", &[web_2.clone(), api]);
    assert_eq!(
        learn(&mut fixture, "east", newer, one("web", Some(export("1.6", &web_2)))),
        Learnt::default()
    );
    fixture.until(120);
    assert_eq!(heard(&mut fixture, 99_999, 0, &[]).members, BTreeMap::new());
}

#[test]
fn who_serves_a_member_looks_at_what_others_wrote_of_it() {
    let (mut fixture, web, api) = with_east();
    fixture.renew("east", "1.5", sum_of(&[web, api])).expect("its id");
    let reading = heard(&mut fixture, 2, 0, &[entry("east", Some("web"), "1.4")]);
    assert_eq!(reading.members, [(who("east"), Keys::Some(keys(&["web"])))].into());
    let reading = heard(&mut fixture, 3, 0, &[entry("east", Some("web"), "1.4"), entry("east", None, "1.4")]);
    assert_eq!(reading.members, [(who("east"), Keys::All)].into(), "somebody asked it to");
}

#[test]
fn a_record_that_is_gone_takes_its_member_when_it_was_missing_for_half_a_lease_and_the_lease_is_over() {
    for (since, millis, gone) in
        [(0, 29_999, false), (0, 30_000, true), (20, 34_999, false), (20, 35_000, true), (20, 35_001, true)]
    {
        let (mut fixture, ..) = with_east();
        fixture.until(since);
        let forget = |fixture: &mut Fixture| {
            let now = fixture.now();
            fixture.registry.forget(&cluster("east"), &uid("east"), now).gone
        };
        assert!(!forget(&mut fixture));
        assert_eq!(fixture.hear(&[&item(2, &[])]).members, [(who("east"), Keys::Record)].into());
        fixture.until_millis(millis);
        assert_eq!(forget(&mut fixture), gone, "after {millis} ms");
        assert_eq!(fixture.state("east").is_none(), gone);
    }
}

#[test]
fn a_record_that_is_gone_takes_nobody_that_is_heard_meanwhile() {
    let (mut fixture, web, api) = with_east();
    let forget = |fixture: &mut Fixture| {
        let now = fixture.now();
        fixture.registry.forget(&cluster("east"), &uid("east"), now)
    };
    forget(&mut fixture);
    fixture.until(10);
    fixture.hear(&[&item(2, &[(&uid("east"), 1)])]);
    fixture.until(20);
    assert!(!forget(&mut fixture).gone, "another replica heard it");
    fixture.renew("east", "1.5", sum_of(&[web, api])).expect("its id");
    assert!(!forget(&mut fixture).gone, "in the same moment");
    fixture.until(21);
    fixture.renew_as_held("east");
    let forgotten = forget(&mut fixture);
    assert_eq!(forgotten.rewrite, Rewrite { record: true, keys: keys(&["api", "web"]) });
}

#[test]
fn a_record_of_before_a_removal_makes_no_member_unless_it_is_heard_long_after() {
    let (mut fixture, web, api) = with_east();
    let both = [web.clone(), api.clone()];
    let old = || (record("east", "1.5", &both), all(&[("1.2", &web), ("1.3", &api)]));
    let now = fixture.now();
    fixture.registry.remove(&cluster("east"), None, true, now).expect("forced");
    fixture.told();
    for (seconds, number) in [(0, 2), (10, 3)] {
        fixture.until(seconds);
        fixture.hear(&[&item(number, &[(&uid("east"), number)])]);
        learn(&mut fixture, "east", old().0, old().1);
        assert_eq!(fixture.state("east"), None, "after {seconds} s");
    }
    fixture.until_millis(10_001);
    fixture.hear(&[&item(4, &[(&uid("east"), 4)])]);
    learn(&mut fixture, "east", old().0, old().1);
    assert_eq!(fixture.state("east"), Some(MemberState::Active));
}

#[test]
fn a_newer_record_makes_a_removed_cluster_a_member_again() {
    let (mut fixture, ..) = with_east();
    let now = fixture.now();
    fixture.registry.remove(&cluster("east"), None, true, now).expect("forced");
    learn(&mut fixture, "east", record("east", "1.6", &[]), all(&[]));
    assert_eq!(fixture.state("east"), Some(MemberState::Active));
}

#[test]
fn a_directory_names_what_to_read_and_what_is_torn_is_not_missing() {
    let (mut fixture, web, api) = with_east();
    let both = [web, api.clone()];
    let now = fixture.now();
    let same = (cluster("east"), record("east", "1.5", &both));
    let other = (cluster("west"), record("west", "4.1", &[]));
    let differing = fixture.registry.differing(&[same, other], &BTreeSet::new(), now);
    assert_eq!((differing.read, differing.rewrite), ([who("west")].into(), BTreeMap::new()));
    // Until it was read, it is asked for.
    fixture.until(1);
    assert_eq!(fixture.hear(&[&item(2, &[])]).members, [(who("west"), Keys::All)].into());
    let newer = (cluster("east"), record("east", "1.6", &[api]));
    assert_eq!(fixture.registry.differing(&[newer], &BTreeSet::new(), now).read, [who("east")].into());
    let torn = [(cluster("east"), UidTag::of(&uid("east")))].into();
    fixture.until(20);
    for _ in 0..2 {
        let now = fixture.now();
        fixture.registry.differing(&[], &torn, now);
        fixture.until(60);
    }
    assert!(fixture.state("east").is_some());
}

#[test]
fn a_record_that_the_store_lost_of_a_member_that_renews_here_is_written_again() {
    let (mut fixture, web, api) = with_east();
    let mut rewrites = Vec::new();
    for seconds in [1, 2, 3] {
        fixture.until(seconds);
        let now = fixture.now();
        rewrites.push(fixture.registry.differing(&[], &BTreeSet::new(), now).rewrite.len());
        fixture.until_millis(seconds * 1_000 + 500);
        fixture.renew("east", "1.5", sum_of(&[web.clone(), api.clone()])).expect("its id");
    }
    assert_eq!(rewrites, [0, 1, 0], "once a renewal came after it was missed");
}

pub(crate) fn claim(fixture: &mut Fixture, name: &str, uid: &ClusterUid, at: i64) {
    fixture.registry.note_claim(&cluster(name), uid, WallMillis::from_unix_millis(at));
}

/// Another cluster has the id elsewhere, claimed at `at`, and is heard there or not; says who holds it here then.
fn claimed(own_at: i64, own: &str, other_at: i64, other: &str, is_heard: bool) -> (Fixture, ClusterUid) {
    let mut fixture = replica();
    fixture.register_as("east", own, "1.1", Sum::EMPTY).expect("a free id");
    claim(&mut fixture, "east", &uid_of(own), own_at);
    let rival = Recorded {
        uid: uid_of(other),
        claimed_at: WallMillis::from_unix_millis(other_at),
        ..record("east", "7.1", &[])
    };
    let holder = Recorded {
        uid: uid_of(own),
        claimed_at: WallMillis::from_unix_millis(own_at),
        ..record("east", "1.1", &[])
    };
    let heard = [(&rival.uid, 1)];
    let now = fixture.now();
    let directory = [holder, rival.clone()].map(|record| (cluster("east"), record));
    fixture.registry.differing(&directory, &BTreeSet::new(), now);
    fixture.until(1);
    let reading = fixture.hear(&[&item(2, if is_heard { &heard } else { &[] })]);
    let wanted = reading.members.contains_key(&Who { cluster: cluster("east"), uid: rival.uid.clone() });
    learn(&mut fixture, "east", rival.clone(), all(&[]));
    let holder = fixture.registry.member(&cluster("east")).expect("a member").uid().clone();
    assert_eq!(wanted, holder == rival.uid, "what is to win is read");
    (fixture, holder)
}

#[test]
fn of_two_clusters_with_one_id_the_earlier_keeps_it_then_the_smaller_uid() {
    let cases = [(5, "a", 4, "b", "b"), (4, "b", 5, "a", "b"), (5, "a", 5, "b", "a"), (5, "b", 5, "a", "a")];
    for (own_at, own, other_at, other, holder) in cases {
        assert_eq!(claimed(own_at, own, other_at, other, true).1, uid_of(holder), "{own} and {other}");
    }
}

#[test]
fn the_later_of_two_claimants_is_told_so_at_its_next_renewal() {
    let (mut fixture, _) = claimed(5, "uid-east", 4, "b", true);
    let refused = fixture.renew("east", "1.1", Sum::EMPTY).unwrap_err();
    assert_eq!(
        refused,
        Refused::Claimed { cluster: cluster("east"), holder: uid_of("b"), caller: uid("east") }
    );
}

#[test]
fn a_claim_that_nobody_hears_takes_no_id_from_anybody() {
    assert_eq!(claimed(5, "a", 4, "b", false).1, uid_of("a"));
}

#[test]
fn a_claimant_gets_the_id_when_the_lease_of_its_holder_has_run_out() {
    let (mut fixture, holder) = claimed(4, "a", 5, "b", true);
    assert_eq!(holder, uid_of("a"));
    fixture.until(32);
    let due = fixture.beat();
    let heard = (uid_of("b"), 2);
    let echo = Beat { echoes: [(Epoch(1), due.number)].into(), ..item(3, &[(&heard.0, heard.1)]) };
    let reading = fixture.hear(&[&due, &echo]);
    assert_eq!(fixture.state("east"), Some(MemberState::Expired));
    assert_eq!(reading.members.get(&Who { cluster: cluster("east"), uid: uid_of("b") }), Some(&Keys::All));
    let rival = Recorded { uid: uid_of("b"), ..record("east", "7.1", &[]) };
    learn(&mut fixture, "east", rival, all(&[]));
    assert_eq!(fixture.registry.member(&cluster("east")).expect("a member").uid(), &uid_of("b"));
}

#[test]
fn the_earlier_of_two_times_of_one_claim_stands_and_is_written() {
    let (mut fixture, web, api) = with_east();
    let both = [web, api];
    fixture.renew("east", "1.5", sum_of(&both)).expect("its id");
    claim(&mut fixture, "east", &uid("east"), 7);
    let at = |millis| Recorded {
        claimed_at: WallMillis::from_unix_millis(millis),
        ..record("east", "1.5", &both)
    };
    assert!(learn(&mut fixture, "east", at(9), Read::record()).rewrite.record);
    assert_eq!(learn(&mut fixture, "east", at(5), Read::record()), Learnt::default());
    let held = fixture.registry.member(&cluster("east")).expect("a member").claimed_at();
    assert_eq!(held, WallMillis::from_unix_millis(5));
}

#[test]
fn a_late_act_does_not_replace_what_was_learned() {
    let (mut fixture, web, api) = with_east();
    let web_9 = put("web", &["10.1.0.9"]);
    learn(
        &mut fixture,
        "east",
        record("east", "1.9", &[web_9.clone(), api]),
        one("web", Some(export("1.9", &web_9))),
    );
    fixture.told();
    fixture.wrote("east", "1.6", vec![web]);
    assert_eq!(fixture.told(), [""; 0]);
    assert_eq!(fixture.registry.member(&cluster("east")).expect("a member").version(), Version::new(1, 9));
    assert_eq!(
        leaf_of(&web_9),
        fixture.registry.member(&cluster("east")).expect("a member").exports()[&key("web")].leaf
    );
}

#[test]
fn a_record_that_says_expired_of_a_member_that_renews_here_is_written_again() {
    let (mut fixture, web, api) = with_east();
    let both = [web, api];
    let expired = || Recorded { state: MemberState::Expired, ..record("east", "1.5", &both) };
    assert_eq!(learn(&mut fixture, "east", expired(), Read::record()), Learnt::default());
    fixture.renew("east", "1.5", sum_of(&both)).expect("its id");
    let rewrite = Rewrite { record: true, keys: BTreeSet::new() };
    assert_eq!(learn(&mut fixture, "east", expired(), Read::record()), Learnt { again: false, rewrite });
}

#[test]
fn a_record_that_says_expired_is_not_believed_before_others_were_heard() {
    for (heard, state) in [(false, MemberState::Active), (true, MemberState::Expired)] {
        let mut fixture = Fixture::shared(1, "eu-1");
        if heard {
            fixture.hear(&[&item(1, &[])]);
        }
        let expired = Recorded { state: MemberState::Expired, ..record("east", "1.5", &[]) };
        learn(&mut fixture, "east", expired, all(&[]));
        assert_eq!(fixture.state("east"), Some(state));
    }
}

#[test]
fn a_view_is_not_complete_while_a_record_of_nobody_that_is_known_cannot_be_read() {
    let mut fixture = Fixture::shared(1, "eu-1");
    let mut seen = Vec::new();
    let torn = || BTreeSet::from([(cluster("east"), UidTag::of(&uid("east")))]);
    for (number, torn) in [(1, torn()), (2, BTreeSet::new()), (3, torn()), (4, BTreeSet::new())] {
        let now = fixture.now();
        fixture.registry.differing(&[], &torn, now);
        fixture.hear(&[&item(2 * number, &[])]);
        fixture.hear(&[&item(2 * number + 1, &[])]);
        seen.push(fixture.registry.is_complete(fixture.now()));
    }
    assert_eq!(seen, [false, true, false, true]);
}

#[test]
fn a_record_that_cannot_be_read_of_a_member_that_renews_here_is_written_again_with_its_exports() {
    let (mut fixture, web, api) = with_east();
    fixture.renew("east", "1.5", sum_of(&[web, api])).expect("its id");
    let torn = [(cluster("east"), UidTag::of(&uid("east")))].into();
    let now = fixture.now();
    let rewrite = Rewrite { record: true, keys: keys(&["api", "web"]) };
    assert_eq!(fixture.registry.differing(&[], &torn, now).rewrite, [(cluster("east"), rewrite)].into());
}

/// Its content was before what it is as of the set: the version that is held says when that was, and not since when.
#[test]
fn a_state_from_between_two_that_are_equal_does_not_come_back() {
    let (mut fixture, web, api) = with_east();
    let both = [web, api];
    let between = put("web", &["10.1.0.66"]);
    learn(&mut fixture, "east", record("east", "1.9", &both), Read::record());
    assert_eq!(fixture.told(), ["east active whole 1.9"]);
    for act in ["1.7", "1.9"] {
        learn(&mut fixture, "east", record("east", "1.9", &both), one("web", Some(export(act, &between))));
        assert_eq!(fixture.told(), [""; 0], "{act}");
    }
    learn(&mut fixture, "east", record("east", "1.9", &both), one("web", Some(export("1.10", &between))));
    assert_eq!(fixture.told()[0], "part web of east 1.10 [10.1.0.66]");
}
