use super::*;

const EPOCH: Epoch = Epoch(7);

fn uid(name: &str) -> ClusterUid {
    ClusterUid::new(name).unwrap()
}

fn key(name: &str) -> ServiceKey {
    ServiceKey::new("shop", name).unwrap()
}

fn keys(count: usize) -> Vec<ServiceKey> {
    (0..count).map(|index| key(&format!("web-{index}"))).collect()
}

const fn version(seq: u64) -> Version {
    Version::new(1, seq)
}

fn entry(member: &str, export: Option<&str>, seq: u64) -> NewsEntry {
    let key = export.map(|name| KeyTag::of(&key(name)));
    NewsEntry { member: UidTag::of(&uid(member)), key, version: version(seq) }
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// Within one write there is no order.
fn sorted(mut entries: Vec<NewsEntry>) -> Vec<NewsEntry> {
    entries.sort_by_key(|entry| (entry.member, entry.key));
    entries
}

#[test]
fn what_changed_between_two_writes_is_told_together_and_once() {
    let mut ring = Ring::new(EPOCH);
    assert!(!ring.is_behind());
    ring.tell(&uid("east"), version(3), [&key("web"), &key("api")]);
    ring.tell(&uid("east"), version(4), [&key("web")]);
    ring.tell(&uid("west"), version(2), []);
    assert!(ring.is_behind());
    let News { epoch, first, entries } = ring.item(at(0));
    let expected = vec![entry("east", Some("web"), 4), entry("east", Some("api"), 4), entry("west", None, 2)];
    assert_eq!((epoch, first, sorted(entries)), (EPOCH, 0, sorted(expected)));
    ring.written();
    assert!(!ring.is_behind());
}

/// A reader that has read the first entry would not look at it again.
#[test]
fn what_changes_again_is_told_again() {
    let mut ring = Ring::new(EPOCH);
    let mut told = Vec::new();
    for seq in [1, 2] {
        ring.tell(&uid("east"), version(seq), [&key("web")]);
        told.push(entry("east", Some("web"), seq));
        assert_eq!(ring.item(at(0)), News { epoch: EPOCH, first: 0, entries: told.clone() });
        ring.written();
    }
}

#[test]
fn what_changes_while_the_item_is_written_is_told_by_the_next_one() {
    let mut ring = Ring::new(EPOCH);
    ring.tell(&uid("east"), version(1), []);
    let first = ring.item(at(0));
    ring.append(entry("west", None, 1));
    ring.written();
    assert!(ring.is_behind());
    let entries = vec![entry("east", None, 1), entry("west", None, 1)];
    assert_eq!(ring.item(at(0)), News { entries, ..first });
}

/// A late repeat does not bring an older act.
#[test]
fn an_entry_names_the_newest_act() {
    let mut ring = Ring::new(EPOCH);
    ring.tell(&uid("east"), version(5), [&key("web")]);
    ring.append(entry("east", Some("web"), 4));
    assert_eq!(ring.item(at(0)).entries, [entry("east", Some("web"), 5)]);
}

#[test]
fn more_exports_than_there_is_room_for_are_told_as_the_member() {
    let told = |count: usize| {
        let mut ring = Ring::new(EPOCH);
        ring.tell(&uid("east"), version(1), &keys(count));
        ring.item(at(0)).entries
    };
    assert_eq!(told(NEWS_ENTRIES).len(), NEWS_ENTRIES);
    assert_eq!(told(NEWS_ENTRIES + 1), [entry("east", None, 1)]);
}

/// Who refreshes in time has read what was told before, so there is room again.
#[test]
fn exports_are_named_while_there_is_room_for_what_was_told_lately() {
    let told = |millis: u64| {
        let mut ring = Ring::new(EPOCH);
        ring.tell(&uid("east"), version(1), &keys(NEWS_ENTRIES - 1));
        ring.item(at(1_000));
        ring.tell(&uid("west"), version(1), [&key("web"), &key("api")]);
        let News { entries, .. } = ring.item(at(millis));
        entries.iter().filter(|entry| entry.member == UidTag::of(&uid("west"))).count()
    };
    assert_eq!([4_999, 5_000, 5_001].map(told), [1, 2, 2]);
}

#[test]
fn the_oldest_entry_goes_when_there_is_no_room_and_the_number_says_so() {
    let mut ring = Ring::new(EPOCH);
    for index in 0..NEWS_ENTRIES {
        ring.tell(&uid(&format!("member-{index}")), version(1), []);
        ring.item(at(0));
    }
    assert_eq!((ring.item(at(0)).first, ring.item(at(0)).entries.len()), (0, NEWS_ENTRIES));
    ring.tell(&uid("one-more"), version(1), []);
    let News { first, entries, .. } = ring.item(at(0));
    assert_eq!((first, entries.len()), (1, NEWS_ENTRIES));
    assert_eq!(
        (entries[0], entries[NEWS_ENTRIES - 1]),
        (entry("member-1", None, 1), entry("one-more", None, 1))
    );
}

#[test]
fn an_entry_goes_after_a_minute() {
    let mut ring = Ring::new(EPOCH);
    ring.tell(&uid("east"), version(1), []);
    ring.item(at(1_000));
    let told = |ring: &mut Ring, millis| {
        let News { first, entries, .. } = ring.item(at(millis));
        (first, entries.len())
    };
    assert_eq!([60_999, 61_000, 61_001].map(|millis| told(&mut ring, millis)), [(0, 1), (1, 0), (1, 0)]);
}
