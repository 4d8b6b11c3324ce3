//! Registrations in a table that replicas share: leases by wall clocks, what reads show, completeness, what need not be
//! written.

use super::build::{LEASE, at, key, registration};
use mcs_core::ids::Region;
use mcs_core::pools::Completeness::{self, Estimated, Exact};
use mcs_core::pools::registrations::RegistrationChange::{self, Notice, Removed, Upserted};
use mcs_core::pools::stored::{
    Settings, StoredItem, StoredRegistrations, TableNews, TableRead, Unreadable, WallMoment,
};
use mcs_core::pools::{Lease, Notice as Told, PoolRegistration};
use mcs_core::time::Timestamp;
use std::time::Duration;

/// What the wall clock of the replica says at the start, in milliseconds.
const START: i64 = 1_700_000_000_000;

const OTHER: &str = "eu-west-1";

fn settings() -> Settings {
    Settings {
        lease: LEASE,
        skew: Duration::from_secs(2),
        grace: Duration::from_secs(60),
        poll_interval: Duration::from_secs(2),
        region: Region::new("us-east-2").unwrap(),
    }
}

fn wall(millis: i64) -> WallMoment {
    WallMoment::from_unix_millis(START + millis)
}

/// `east/ml/<dgd>`, renewed in the own region so many milliseconds after the start.
fn item(dgd: &str, renewed: i64) -> StoredItem {
    of(registration("east", dgd), renewed)
}

fn of(registration: PoolRegistration, renewed: i64) -> StoredItem {
    StoredItem {
        registration: registration.into(),
        renewed_at: wall(renewed),
        lease: LEASE.duration,
        region: settings().region,
    }
}

fn elsewhere(item: StoredItem) -> StoredItem {
    StoredItem { region: Region::new(OTHER).unwrap(), ..item }
}

fn upserted(dgd: &str) -> RegistrationChange {
    Upserted(registration("east", dgd).into())
}

fn removed(dgd: &str) -> RegistrationChange {
    Removed(key("east", dgd))
}

/// A replica, by milliseconds since its start.
struct Replica {
    stored: StoredRegistrations,
    /// How far its wall clock was set.
    set: i64,
}

impl Replica {
    fn new() -> Self {
        Self { stored: StoredRegistrations::new(settings()), set: 0 }
    }

    /// One that has read nothing wrong for so long that its list is exact, with a read just now.
    fn settled(until: u64) -> Self {
        let mut replica = Self::new();
        replica.reads(0, until, &[]);
        replica
    }

    fn news(&mut self, news: TableNews, now: u64) {
        let wall = wall(i64::try_from(now).unwrap() + self.set);
        self.stored.handle_news(news, at(now), wall);
    }

    /// Reads the table, at once.
    fn read(&mut self, now: u64, items: &[StoredItem]) {
        let unreadable = Vec::new();
        self.news(TableNews::Read(TableRead { began: at(now), items: items.to_vec(), unreadable }), now);
    }

    /// Reads the same every poll interval, up to and with the last moment.
    fn reads(&mut self, from: u64, to: u64, items: &[StoredItem]) {
        for now in (from..=to).step_by(2_000) {
            self.read(now, items);
        }
    }

    fn wrote(&mut self, now: u64, registration: PoolRegistration) {
        let renewed_at = wall(i64::try_from(now).unwrap() + self.set);
        let registration = registration.into();
        self.news(TableNews::Written { registration, renewed_at, began: at(now) }, now);
    }

    /// Without what is told of clocks.
    fn changes(&mut self) -> Vec<RegistrationChange> {
        let mut changes = self.all_changes();
        changes.retain(|change| !matches!(change, Notice(Told::ClocksApart { .. })));
        changes
    }

    fn all_changes(&mut self) -> Vec<RegistrationChange> {
        std::iter::from_fn(|| self.stored.next_change()).collect()
    }

    /// What has changed by then.
    fn until(&mut self, now: Timestamp) -> Vec<RegistrationChange> {
        self.stored.handle_timeout(now);
        self.changes()
    }

    fn completeness(&self, moments: &[u64]) -> Vec<Completeness> {
        moments.iter().map(|now| self.stored.completeness(at(*now))).collect()
    }

    fn is_renewed(&self, now: i64, registration: &PoolRegistration) -> bool {
        let moment = at(u64::try_from(now).unwrap_or_default());
        self.stored.is_renewed(registration, moment, wall(now + self.set))
    }
}

/// A read of an empty table.
fn read_of(began: u64) -> TableNews {
    TableNews::Read(TableRead { began: at(began), items: Vec::new(), unreadable: Vec::new() })
}

fn a_tick_before(millis: u64) -> Timestamp {
    Timestamp::from_nanos(at(millis).as_nanos() - 1)
}

#[test]
fn a_pool_is_listed_until_lease_and_skew_have_passed_since_its_renewal() {
    let mut replica = Replica::new();
    // Seen 7 s after its renewal.
    replica.read(10_000, &[item("chat", 3_000)]);
    let mut seen = vec![replica.changes()];
    for now in [a_tick_before(20_000), at(20_000), at(20_001)] {
        seen.push(replica.until(now));
    }
    assert_eq!(seen, [vec![upserted("chat")], vec![], vec![removed("chat")], vec![]]);
    assert!(replica.stored.is_empty());
}

#[test]
fn an_item_is_not_listed_that_is_first_seen_when_its_time_is_over() {
    let mut replica = Replica::new();
    replica.read(20_000, &[item("before", 3_001), item("at", 3_000), item("after", 2_999)]);
    assert_eq!(replica.changes(), [upserted("before")]);
    assert_eq!(replica.stored.len(), 1);
}

#[test]
fn a_renewal_moves_the_end_and_is_no_change() {
    let mut replica = Replica::new();
    for renewed in [0, 5_000, 10_000] {
        replica.read(u64::try_from(renewed).unwrap() + 1_000, &[item("chat", renewed)]);
    }
    let mut seen = vec![replica.changes()];
    for now in [a_tick_before(27_000), at(27_000)] {
        seen.push(replica.until(now));
    }
    assert_eq!(seen, [vec![upserted("chat")], vec![], vec![removed("chat")]]);
}

/// Case O02: a later registration replaces an earlier one, and nothing of that is left.
#[test]
fn a_changed_payload_replaces_what_was_there() {
    let mut changed = registration("east", "chat");
    changed.frontends = ["http://10.0.0.2:8000/".into()].into();
    let mut replica = Replica::new();
    replica.read(0, &[item("chat", 0)]);
    replica.read(2_000, &[of(changed.clone(), 1_000)]);
    assert_eq!(replica.changes(), [upserted("chat"), Upserted(changed.clone().into())]);
    let listed: Vec<_> = replica.stored.listed().cloned().collect();
    assert_eq!(listed, [changed.into()]);
}

#[test]
fn each_pool_is_judged_by_the_lease_in_its_item() {
    let mut replica = Replica::new();
    let long = StoredItem { lease: Duration::from_secs(60), ..item("long", 0) };
    let short = StoredItem { lease: Duration::from_secs(3), ..item("short", 0) };
    replica.read(0, &[long, short]);
    replica.changes();
    let mut seen = Vec::new();
    for now in [a_tick_before(5_000), at(5_000), a_tick_before(62_000), at(62_000)] {
        seen.push(replica.until(now));
    }
    assert_eq!(seen, [vec![], vec![removed("short")], vec![], vec![removed("long")]]);
}

#[test]
fn a_pool_of_another_region_stays_listed_for_the_grace_and_the_list_is_estimated_meanwhile() {
    let mut replica = Replica::settled(16_000);
    let items = [elsewhere(item("chat", 18_000))];
    replica.reads(18_000, 100_000, &items);
    // Of the last read at 100 s: exact but for the grace, which ended at 95 s.
    assert_eq!(replica.changes(), [upserted("chat"), removed("chat")]);
    assert_eq!(replica.completeness(&[100_000]), [Exact]);

    let mut replica = Replica::settled(16_000);
    replica.reads(18_000, 34_000, &items);
    let mut seen = vec![(replica.until(a_tick_before(35_000)), replica.stored.completeness(at(34_999)))];
    seen.push((replica.until(at(35_000)), replica.stored.completeness(at(35_000))));
    replica.reads(36_000, 94_000, &items);
    seen.push((replica.until(a_tick_before(95_000)), replica.stored.completeness(at(94_999))));
    seen.push((replica.until(at(95_000)), replica.stored.completeness(at(95_000))));
    let expected = [
        (vec![upserted("chat")], Exact),
        (vec![], Estimated),
        (vec![], Estimated),
        (vec![removed("chat")], Exact),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn a_renewal_within_the_grace_makes_the_list_exact_again() {
    let mut replica = Replica::settled(16_000);
    replica.reads(18_000, 40_000, &[elsewhere(item("chat", 18_000))]);
    let before = replica.completeness(&[40_000]);
    replica.read(42_000, &[elsewhere(item("chat", 38_000))]);
    assert_eq!((before, replica.completeness(&[42_000])), (vec![Estimated], vec![Exact]));
    assert_eq!(replica.changes(), [upserted("chat")]);
}

#[test]
fn a_renewal_that_was_on_its_way_for_longer_than_the_grace_makes_the_list_estimated_for_a_lease() {
    let mut replica = Replica::settled(16_000);
    replica.reads(18_000, 98_000, &[elsewhere(item("chat", 18_000))]);
    assert_eq!(replica.completeness(&[98_000]), [Exact]);
    // It is 77 s old when it comes.
    replica.reads(100_000, 116_000, &[elsewhere(item("chat", 23_000))]);
    assert_eq!(replica.completeness(&[114_999, 115_000]), [Estimated, Exact]);
    assert_eq!(replica.changes(), [upserted("chat"), removed("chat")]);
}

#[test]
fn the_list_is_estimated_for_one_lease_after_the_first_read() {
    let mut replica = Replica::new();
    assert!(!replica.stored.has_view());
    assert_eq!(replica.completeness(&[0, 15_000, 3_600_000]), [Estimated; 3]);
    replica.reads(4_000, 18_000, &[]);
    assert!(replica.stored.has_view());
    assert_eq!(replica.completeness(&[18_999, 19_000, 19_001]), [Estimated, Exact, Exact]);
    assert_eq!(replica.stored.poll_timeout(at(18_500)), Some(at(19_000)));
}

#[test]
fn the_list_is_estimated_from_a_read_that_fails_until_one_lease_after_the_next_that_does_not() {
    let mut replica = Replica::settled(16_000);
    assert_eq!(replica.completeness(&[16_000]), [Exact]);
    let nothing = TableRead { began: at(18_000), items: Vec::new(), unreadable: Vec::new() };
    replica.news(TableNews::ReadInPart(nothing), 18_000);
    assert_eq!(replica.completeness(&[18_000]), [Estimated]);
    replica.reads(20_000, 34_000, &[]);
    assert_eq!(replica.completeness(&[34_999, 35_000]), [Estimated, Exact]);
}

/// A table may be read and take no writes: its pools lapse, though their relays live.
#[test]
fn the_list_is_estimated_from_a_write_that_fails_until_one_lease_after_the_last_that_does() {
    let mut replica = Replica::settled(16_000);
    replica.news(TableNews::NotWritten, 16_500);
    replica.reads(18_000, 20_000, &[]);
    replica.news(TableNews::NotWritten, 21_500);
    replica.reads(22_000, 36_000, &[]);
    assert_eq!(
        replica.completeness(&[16_500, 31_500, 36_499, 36_500]),
        [Estimated, Estimated, Estimated, Exact]
    );
    assert_eq!(replica.stored.poll_timeout(at(36_000)), Some(at(36_500)));
}

/// What was read renews leases, though another part was not.
#[test]
fn a_read_in_part_renews_what_is_in_it_and_removes_nothing() {
    let mut replica = Replica::new();
    replica.read(0, &[item("chat", 0), item("code", 0)]);
    let part = TableRead { began: at(10_000), items: vec![item("chat", 9_000)], unreadable: Vec::new() };
    replica.news(TableNews::ReadInPart(part), 10_000);
    replica.changes();
    let mut seen = Vec::new();
    for now in [at(16_999), at(17_000), a_tick_before(26_000), at(26_000)] {
        seen.push(replica.until(now));
    }
    assert_eq!(seen, [vec![], vec![removed("code")], vec![], vec![removed("chat")]]);
}

#[test]
fn a_view_is_late_when_the_next_read_takes_longer_than_a_call_may() {
    let replica = Replica::settled(16_000);
    assert_eq!(replica.completeness(&[20_999, 21_000]), [Exact, Estimated]);
    assert_eq!(replica.stored.poll_timeout(at(16_000)), Some(at(21_000)));
    assert_eq!(replica.stored.age(at(21_000)), Some(Duration::from_secs(5)));
}

/// All who watch are told the whole list when completeness changes.
#[test]
fn one_slow_read_is_no_reason_to_tell_that_the_list_is_not_complete() {
    for took in [1_100, 2_999, 3_000] {
        let mut replica = Replica::settled(16_000);
        let mut seen = replica.completeness(&[18_000 + took - 1]);
        replica.news(read_of(18_000), 18_000 + took);
        seen.extend(replica.completeness(&[18_000 + took]));
        assert_eq!(seen, [Exact; 2], "{took}");
    }
}

#[test]
fn reads_that_take_long_are_late_later() {
    let mut replica = Replica::settled(16_000);
    replica.news(read_of(18_000), 20_000);
    assert_eq!(replica.completeness(&[23_999, 24_000]), [Exact, Estimated]);
}

/// Two renewals are 13.5 s apart at most, and hold for 17 s: what the last read has is good for 3.5 s, however slow it was.
#[test]
fn a_view_is_late_before_a_renewal_that_it_has_can_end() {
    let slow = Settings {
        lease: Lease { heartbeat_interval: Duration::from_secs(9), ..LEASE },
        poll_interval: Duration::from_secs(3),
        ..settings()
    };
    let mut replica = Replica { stored: StoredRegistrations::new(slow), set: 0 };
    for began in (0..=18_000).step_by(3_000) {
        replica.news(read_of(began), began + 2_900);
    }
    assert_eq!(replica.completeness(&[21_499, 21_500]), [Exact, Estimated]);
}

/// Two renewals are 7.5 s apart at most, and hold for 17 s.
#[test]
fn a_pause_that_renewals_do_not_bridge_counts_as_an_outage() {
    let after = |began| {
        let mut replica = Replica::settled(16_000);
        replica.read(began, &[]);
        replica.completeness(&[began])
    };
    assert_eq!([after(25_499), after(25_500)], [[Exact], [Estimated]]);
}

#[test]
fn a_write_of_ones_own_is_listed_at_once() {
    let mut replica = Replica::new();
    replica.read(0, &[]);
    replica.wrote(500, registration("east", "chat"));
    assert_eq!(replica.changes(), [upserted("chat")]);
    // A read that began before it, or sees an earlier state, takes nothing away.
    replica.read(2_000, &[]);
    assert_eq!(replica.until(a_tick_before(17_500)), []);
    assert_eq!(replica.until(at(17_500)), [removed("chat")]);
}

#[test]
fn a_renewal_of_less_than_half_a_heartbeat_interval_ago_need_not_be_written_again() {
    let mut replica = Replica::new();
    replica.read(1_000, &[item("chat", 0)]);
    let chat = registration("east", "chat");
    let skipped: Vec<_> = [0, 2_499, 2_500, 2_501].map(|now| replica.is_renewed(now, &chat)).into();
    assert_eq!(skipped, [true, true, false, false]);
    assert!(!replica.is_renewed(-1, &chat), "it is of the future");
    assert!(!replica.is_renewed(0, &registration("east", "code")), "it is not there");
}

#[test]
fn what_is_not_as_good_as_a_write_of_ones_own_is_written() {
    let chat = registration("east", "chat");
    let mut other_payload = chat.clone();
    other_payload.model = "mistral".into();
    let short = StoredItem { lease: Duration::from_millis(14_999), ..item("chat", 0) };
    let long = StoredItem { lease: Duration::from_secs(16), ..item("chat", 0) };
    let cases = [
        ("as it is", item("chat", 0), true),
        ("a longer lease", long, true),
        ("a shorter lease", short, false),
        ("another region", elsewhere(item("chat", 0)), false),
        ("another payload", of(other_payload, 0), false),
    ];
    for (what, item, expected) in cases {
        let mut replica = Replica::new();
        replica.read(0, &[item]);
        assert_eq!(replica.is_renewed(1_000, &chat), expected, "{what}");
    }
}

/// Set back by six seconds, the clock makes a renewal of seven seconds ago one of a second ago.
#[test]
fn a_wall_clock_that_was_set_back_makes_no_renewal_young_enough() {
    let mut replica = Replica::new();
    replica.read(0, &[item("chat", 0)]);
    let chat = registration("east", "chat");
    replica.set = -2_400;
    let skipped: Vec<_> = [2_499, 2_500, 4_899].map(|now| replica.is_renewed(now, &chat)).into();
    assert_eq!(skipped, [true, false, false]);
}

/// A write that loses against one of another region that was dated later is found by the next read.
#[test]
fn a_write_of_which_the_table_shows_an_earlier_state_is_written_again() {
    let mut replica = Replica::new();
    replica.read(0, &[item("chat", 0)]);
    replica.wrote(5_000, registration("east", "chat"));
    let is_renewed = |replica: &Replica| replica.is_renewed(6_000, &registration("east", "chat"));
    let mut seen = vec![is_renewed(&replica)];
    replica.read(6_000, &[item("chat", 0)]);
    seen.push(is_renewed(&replica));
    replica.read(6_000, &[item("chat", 5_000)]);
    seen.push(is_renewed(&replica));
    assert_eq!(seen, [true, false, true]);
    assert_eq!(replica.changes(), [upserted("chat")]);
}

#[test]
fn the_order_of_lists_is_no_difference() {
    let with = |capabilities: [&str; 2]| {
        let mut chat = registration("east", "chat");
        chat.capabilities = capabilities.map(Into::into).into();
        chat
    };
    let (one, other) = (with(["chat", "tools"]), with(["tools", "chat"]));
    let mut replica = Replica::new();
    replica.read(0, &[of(one.clone(), 0)]);
    assert!(replica.is_renewed(0, &other));
    for (now, registration) in [(2_000, &other), (4_000, &one), (6_000, &other)] {
        replica.read(now, &[of(registration.clone(), i64::try_from(now).unwrap())]);
    }
    assert_eq!(replica.changes(), [Upserted(one.into())]);
    assert_eq!(replica.until(a_tick_before(23_000)), []);
}

#[test]
fn relays_that_register_different_payloads_give_one_warning_for_as_long_as_they_do() {
    let with = |model: &str| {
        let mut chat = registration("east", "chat");
        chat.model = model.into();
        chat
    };
    let warnings = |writes: &[(u64, &str)]| {
        let mut replica = Replica::new();
        for (now, model) in writes {
            replica.wrote(*now, with(model));
        }
        let warned = Notice(Told::RelaysDisagree(key("east", "chat")));
        replica.changes().iter().filter(|change| **change == warned).count()
    };
    assert_eq!(warnings(&[(0, "a"), (1_000, "b"), (5_000, "b")]), 0, "it changed once");
    assert_eq!(warnings(&[(0, "a"), (1_000, "b"), (15_999, "a")]), 1, "back a tick before the lease");
    assert_eq!(warnings(&[(0, "a"), (1_000, "b"), (10_000, "b"), (16_000, "a")]), 0, "back a lease later");
    let in_turn: Vec<_> =
        (0..40).map(|second| (second * 1_000, ["a", "b", "c"][second as usize % 3])).collect();
    assert_eq!(warnings(&in_turn), 1, "three relays");
    let again =
        [(0, "a"), (1_000, "b"), (2_000, "a"), (10_000, "a"), (17_000, "a"), (18_000, "b"), (19_000, "a")];
    assert_eq!(warnings(&again), 2, "they agreed for a lease");
}

#[test]
fn an_item_that_cannot_be_read_is_told_once_for_each_change() {
    let mut replica = Replica::new();
    let mut told = Vec::new();
    for (now, problem) in [(0, "a"), (2_000, "a"), (4_000, "b"), (6_000, ""), (8_000, "b")] {
        let bad = Unreadable { item: "POOLS#0 x".to_owned(), problem: problem.to_owned() };
        let unreadable = if problem.is_empty() { vec![] } else { vec![bad] };
        replica.news(TableNews::Read(TableRead { began: at(now), items: vec![], unreadable }), now);
        told.push(replica.changes());
    }
    let notice = |problem: &str| {
        let (item, problem) = ("POOLS#0 x".to_owned(), problem.to_owned());
        vec![Notice(Told::UnreadableItem { item, problem })]
    };
    assert_eq!(told, [notice("a"), vec![], notice("b"), vec![], notice("b")]);
}

/// Fault 9: a read that is from before what was seen.
#[test]
fn a_view_does_not_go_back() {
    let mut changed = registration("east", "chat");
    changed.model = "mistral".into();
    let mut replica = Replica::new();
    replica.read(0, &[item("chat", 0)]);
    replica.read(6_000, &[of(changed.clone(), 5_000)]);
    replica.read(8_000, &[item("chat", 0)]);
    replica.read(10_000, &[]);
    replica.read(12_000, &[item("chat", 0)]);
    assert_eq!(replica.changes(), [upserted("chat"), Upserted(changed.into())]);
    assert_eq!(replica.until(a_tick_before(22_000)), []);
    assert_eq!(replica.until(at(22_000)), [removed("chat")]);
}

/// Fault 14, case O35: the clock of a writer is an hour ahead, and is set.
#[test]
fn a_writer_whose_clock_is_set_back_renews_all_the_same() {
    let mut replica = Replica::new();
    replica.read(0, &[item("chat", 3_600_000)]);
    for renewed in [5_000, 10_000, 15_000, 20_000, 25_000, 30_000] {
        replica.read(u64::try_from(renewed).unwrap() + 500, &[item("chat", renewed)]);
    }
    assert_eq!(replica.changes(), [upserted("chat")]);
    assert_eq!(replica.until(a_tick_before(47_000)), []);
    assert_eq!(replica.until(at(47_000)), [removed("chat")]);
}

#[test]
fn a_renewal_of_the_future_holds_no_longer_than_one_of_now() {
    let mut replica = Replica::new();
    replica.read(1_000, &[item("chat", 3_600_000)]);
    replica.changes();
    assert_eq!(replica.until(a_tick_before(18_000)), []);
    assert_eq!(replica.until(at(18_000)), [removed("chat")]);
}

/// Fault 14: the replica's own clock is set by an hour, forth or back, and is wrong from then on.
#[test]
fn a_jump_of_the_wall_clock_ends_no_lease_and_prolongs_none() {
    for hour in [3_600_000, -3_600_000] {
        let mut replica = Replica::new();
        replica.read(0, &[item("dead", 0), item("live", 0)]);
        replica.set = hour;
        for renewed in (5_000..=60_000).step_by(5_000) {
            let now = u64::try_from(renewed).unwrap();
            replica.read(now - 3_000, &[item("dead", 0), item("live", renewed - 5_000)]);
            replica.read(now, &[item("dead", 0), item("live", renewed)]);
        }
        let changes = replica.changes();
        assert_eq!(changes, [upserted("dead"), upserted("live"), removed("dead")], "{hour}");
        // Its own writes hold, whatever the clock says.
        replica.wrote(61_000, registration("east", "own"));
        assert_eq!(replica.until(at(70_000)), [upserted("own")], "{hour}");
    }
}

#[test]
fn clocks_that_are_further_apart_than_the_skew_are_told_once_for_as_long_as_that_shows() {
    let apart = |millis| {
        let (key, region) = (key("east", "chat"), settings().region);
        let (apart, skew) = (Duration::from_millis(millis), Duration::from_secs(2));
        vec![Notice(Told::ClocksApart { key, region, apart, skew })]
    };
    let told = |reads: &[(u64, i64)]| {
        let mut replica = Replica::new();
        replica.read(0, &[]);
        for (now, renewed) in reads {
            replica.read(*now, &[item("chat", *renewed)]);
        }
        let mut changes = replica.all_changes();
        changes.retain(|change| matches!(change, Notice(_)));
        changes
    };
    // Of the future, first seen or later.
    assert_eq!((told(&[(1_000, 3_000)]), told(&[(1_000, 3_001)])), (vec![], apart(2_001)));
    assert_eq!((told(&[(1_000, 0), (3_000, 5_001)])), apart(2_001));
    // It came within two seconds, and is two older.
    assert_eq!(
        (told(&[(1_000, -6_000), (3_000, -1_000)]), told(&[(1_000, -6_000), (3_000, -1_001)])),
        (vec![], apart(2_001))
    );
    let always: Vec<_> =
        (0..20).map(|number| (number * 5_000, i64::try_from(number).unwrap() * 5_000 + 9_000)).collect();
    assert_eq!(told(&always), apart(9_000));
    // A lease without.
    assert_eq!(
        told(&[(1_000, 9_000), (6_000, 9_500), (15_999, 25_999), (30_999, 30_999), (31_000, 41_000)]).len(),
        2
    );
}

#[test]
fn moments_at_the_ends_of_time_are_taken() {
    let moments = [i64::MIN, -1, 0, 1, i64::MAX].map(WallMoment::from_unix_millis);
    for renewed_at in moments {
        for own in moments {
            for lease in [Duration::from_millis(1), Duration::MAX / 4] {
                let mut stored = StoredRegistrations::new(Settings {
                    lease: Lease { duration: Duration::from_secs(86_400), ..LEASE },
                    ..settings()
                });
                let item = StoredItem { renewed_at, lease, ..elsewhere(item("chat", 0)) };
                for began in [Timestamp::ZERO, at(1), Timestamp::MAX] {
                    let read = TableRead { began, items: vec![item.clone()], unreadable: vec![] };
                    stored.handle_news(TableNews::Read(read), began, own);
                    stored.handle_timeout(began);
                    stored.is_renewed(&item.registration.unpack(), began, own);
                }
            }
        }
    }
    let millis = |nanos| WallMoment::from_unix_nanos(nanos).unix_millis();
    assert_eq!(
        [i128::MIN, -1, 0, 999_999, 1_000_000, i128::MAX].map(millis),
        [i64::MIN, -1, 0, 0, 1, i64::MAX]
    );
}

#[test]
fn a_pool_that_comes_back_is_listed_again() {
    let mut replica = Replica::new();
    replica.read(0, &[item("chat", 0)]);
    replica.reads(2_000, 40_000, &[item("chat", 0)]);
    replica.read(42_000, &[item("chat", 41_000)]);
    assert_eq!(replica.changes(), [upserted("chat"), removed("chat"), upserted("chat")]);
}
