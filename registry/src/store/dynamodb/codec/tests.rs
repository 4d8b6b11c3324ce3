use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use mcs_core::ids::{ClusterUid, Epoch, Region};
use mcs_core::limits::{MAX_ENDPOINTS, MAX_METADATA_BYTES, MAX_PORTS};
use mcs_core::model::{Endpoint, EndpointMap, EndpointPort, GroupKey, IpFamily, MemberState, Port};
use mcs_core::replicas::{Beat, KeyTag, News, NewsEntry, Renewal, UidTag};
use mcs_core::version::Sum;

use super::said::*;
use super::*;
use crate::store::NEWS_ENTRIES;
use crate::store::dynamodb::bodies::{BeatBody, NewsBody};

/// 2026-11-29T19:00:09Z, in seconds.
const NOW: Now = Now(1_795_978_809);

fn prod() -> ClustersetId {
    ClustersetId::new("prod").unwrap()
}

fn east() -> Member {
    Member { clusterset: prod(), cluster: "use1-prod-a".parse().unwrap(), uid: uid(1) }
}

fn uid(number: u128) -> ClusterUid {
    let hex = format!("{number:032x}");
    let (a, b, c, d, e) = (&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
    ClusterUid::new(format!("{a}-{b}-{c}-{d}-{e}")).unwrap()
}

fn cart() -> ServiceKey {
    ServiceKey::new("shop", "cart").unwrap()
}

fn record() -> MemberRecord {
    MemberRecord {
        region: Some(Region::new("us-east-1").unwrap()),
        version: Version::new(1_795_978_000, 4_711),
        sum: Sum::from_bytes([9; 16]),
        state: MemberState::Expired,
        claimed_at: WallMillis::from_unix_millis(1_795_978_809_123),
    }
}

fn endpoints(count: u32) -> EndpointSet {
    let port = EndpointPort { name: "http".to_owned(), port: Some(8080), ..EndpointPort::default() };
    let group = GroupKey::new(IpFamily::V4, [port]);
    let mut map = EndpointMap::default();
    let pod = |number: u32| {
        let endpoint = Endpoint {
            ready: Some(true),
            serving: Some(true),
            terminating: Some(false),
            hostname: None,
            zone: Some("us-east-1a".to_owned()),
            node_name: Some(format!("ip-001-{:03}.ec2.internal", number % 50)),
        };
        (IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + number)), endpoint)
    };
    map.insert_all(group, (0..count).map(pod));
    map.pack()
}

fn export(count: u32) -> Export {
    let spec = ExportSpec {
        created_at: WallTime::from_unix_secs(1_700_000_000),
        ports: vec![Port { name: "http".to_owned(), port: 80, ..Port::default() }],
        ip_families: vec![IpFamily::V4],
        labels: [("app".to_owned(), "cart".to_owned())].into(),
        ..ExportSpec::default()
    };
    Export {
        version: Version::new(7, 9),
        leaf: Leaf::from_bytes([3; 16]),
        spec: Arc::new(spec),
        endpoints: Arc::new(endpoints(count)),
        changed_at: WallMillis::from_unix_millis(1_795_978_800_000),
    }
}

/// As the table gives it back.
fn back(row: Row) -> Row {
    let expires_at = row.expires_at;
    Row { expires_at, ..Row::read(row.item()).unwrap() }
}

fn beat(members: u64, echoes: u128) -> Beat {
    let renewal = |number: u64| {
        // The longest says how long a step is.
        let age = Duration::from_millis((255 - number % 256) * 40);
        (UidTag::of(&uid(number.into())), Renewal { number: 250_000 - number % 256, age })
    };
    Beat {
        epoch: Epoch(0xfeed),
        region: Some(Region::new("us-east-1").unwrap()),
        number: 250_000,
        echoes: (0..echoes).map(|number| (Epoch(u128::MAX - number), 250_000)).collect(),
        dead: BTreeSet::from([Epoch(5)]),
        is_due: true,
        renewals: (0..members).map(renewal).collect(),
    }
}

fn news(entries: u64) -> News {
    let entry = |number: u64| NewsEntry {
        member: UidTag::of(&uid(number.into())),
        key: (!number.is_multiple_of(7)).then(|| KeyTag::of(&cart())),
        version: Version::new(1_795_978_000, 1_000_000 + number),
    };
    News { epoch: Epoch(0xfeed), first: 1_000_000, entries: (0..entries).map(entry).collect() }
}

#[test]
fn all_that_is_written_reads_back_equal() {
    let row = back(record_row(&east(), &record(), NOW));
    assert_eq!(read_record(&prod(), &row), Ok((east(), Found::Record(record()))));
    let bare = MemberRecord { region: None, claimed_at: None, ..record() };
    assert_eq!(
        read_record(&prod(), &back(record_row(&east(), &bare, NOW))),
        Ok((east(), Found::Record(bare)))
    );
    let removed = back(removed_row(&east(), Version::new(7, 9), NOW));
    assert_eq!(read_record(&prod(), &removed), Ok((east(), Found::Removed(Version::new(7, 9)))));

    let few = export(3);
    let Laid::Here(bytes) = lay(&few.endpoints) else { panic!("three endpoints lie with their export") };
    let index = read_export(&back(export_row(&east(), &cart(), &few, Put::Here(bytes), NOW))).unwrap();
    assert_eq!(index.endpoints, Endpoints::Here(endpoints(3)));
    assert_eq!((index.key.clone(), index.day), (cart(), NOW.day()));
    assert_eq!(index.whole(endpoints(3)), few);

    let many = export(1_000);
    let named: Vec<_> =
        (0..4).map(|at| Named { digest: Digest([at; 16]), day: 20_000 + u16::from(at) }).collect();
    let index =
        read_export(&back(export_row(&east(), &cart(), &many, Put::Pieces(named.clone()), NOW))).unwrap();
    assert_eq!(index.pieces(), named);
    assert_eq!(index.whole(endpoints(1_000)), many);

    for beat in [beat(100, 3), Beat { region: None, is_due: false, ..beat(0, 0) }] {
        assert_eq!(read_beat(beat.epoch, &back(beat_row(&prod(), &beat, NOW))), Ok(beat));
    }
    for news in [news(NEWS_ENTRIES as u64), news(0)] {
        assert_eq!(read_news(news.epoch, &back(news_row(&prod(), &news, NOW))), Ok(news));
    }
}

/// A condition compares bytes from the left.
#[test]
fn what_must_not_go_back_is_ordered_like_versions_and_numbers() {
    let versions = [(0, 0), (0, u64::MAX), (1, 0), (255, 9), (256, 0), (u64::MAX, u64::MAX)];
    let orders = versions.map(|(term, seq)| Order::from(Version::new(term, seq)));
    assert!(orders.is_sorted_by(|a, b| a.0 < b.0));
    assert_eq!(orders.map(Order::version).map(|version| (version.term, version.seq)), versions);
    let numbers = [0, 1, 255, 256, u64::MAX];
    assert!(numbers.map(Order::from).is_sorted_by(|a, b| a.0 < b.0));
    assert_eq!(numbers.map(|number| Order::from(number).number()), numbers);
}

#[test]
fn an_age_is_cut_and_never_made_longer() {
    let mut beat = beat(1, 0);
    let renewal = beat.renewals.values_mut().next().unwrap();
    renewal.age = Duration::from_micros(9_999_999);
    let read = read_beat(beat.epoch, &beat_row(&prod(), &beat, NOW)).unwrap();
    assert_eq!(read.renewals.values().next().unwrap().age, Duration::from_millis(249 * 40));
    for age in [0, 1, 254, 255, 256, 30_000, 24 * 60 * 60 * 1_000] {
        let mut beat = beat.clone();
        beat.renewals.values_mut().for_each(|renewal| renewal.age = Duration::from_millis(age));
        let read = read_beat(beat.epoch, &beat_row(&prod(), &beat, NOW)).unwrap();
        let read = read.renewals.values().next().unwrap().age.as_millis();
        let least = u128::from(age - age / 250);
        assert!((least..=age.into()).contains(&read), "{age} ms reads as {read} ms");
    }
}

/// The sizes that docs/storage.md gives: what is written often costs one or two units of 1 KB.
#[test]
fn items_have_the_sizes_that_are_documented() {
    let units = |row: &Row| row.bytes().div_ceil(1_024);
    let long = ClustersetId::new("c".repeat(63)).unwrap();
    let written = |count: u32| {
        let export = export(count);
        let Laid::Here(bytes) = lay(&export.endpoints) else {
            panic!("{count} endpoints lie with their export")
        };
        export_row(&east(), &cart(), &export, Put::Here(bytes), NOW)
    };
    let named = |count| vec![Named { digest: Digest([0; 16]), day: 0 }; count];
    let rows = [
        ("record", record_row(&east(), &record(), NOW), 1),
        ("beat of none", beat_row(&prod(), &beat(0, 0), NOW), 1),
        ("beat of 100 among six replicas", beat_row(&prod(), &beat(100, 5), NOW), 1),
        ("beat of 100 of the longest clusterset", beat_row(&long, &beat(100, 2), NOW), 1),
        ("beat of 110", beat_row(&prod(), &beat(110, 1), NOW), 1),
        ("beat of 250", beat_row(&prod(), &beat(250, 2), NOW), 3),
        ("beat of 1,000", beat_row(&prod(), &beat(1_000, 19), NOW), 9),
        ("news", news_row(&long, &news(NEWS_ENTRIES as u64), NOW), 1),
        ("export of 10", written(10), 1),
        ("export of 100", written(100), 6),
        ("export in 150 pieces", export_row(&east(), &cart(), &export(0), Put::Pieces(named(150)), NOW), 3),
    ];
    for (what, row, expected) in &rows {
        assert_eq!(units(row), *expected, "{what}: {} bytes", row.bytes());
    }
    let more = news_row(&long, &news(NEWS_ENTRIES as u64 + 2), NOW);
    assert_eq!(units(&more), 2, "more entries would fit: {} bytes", more.bytes());
}

/// Fault 18: no item comes near DynamoDB's 400 KB.
#[test]
fn the_largest_export_has_an_item_of_half_of_what_there_may_be() {
    let port = |number: usize| Port {
        name: format!("{number:063}"),
        port: 1,
        app_protocol: Some(format!("{}/{}", "a".repeat(253), "b".repeat(63))),
        ..Port::default()
    };
    let mut export = export(0);
    let spec = Arc::make_mut(&mut export.spec);
    spec.ports = (0..MAX_PORTS).map(port).collect();
    spec.annotations = [("a".repeat(63), "b".repeat(MAX_METADATA_BYTES - 63))].into();
    // As many pieces as `the_largest_set_has_pieces_that_one_item_can_name` allows.
    let named = vec![Named { digest: Digest([0; 16]), day: 0 }; 5_500];
    let key = ServiceKey::new(&"n".repeat(63), &"s".repeat(63)).unwrap();
    let bytes = export_row(&east(), &key, &export, Put::Pieces(named), NOW).bytes();
    assert!((185_000..195_000).contains(&bytes), "{bytes} bytes");
    assert_eq!(MAX_ENDPOINTS, 200_000);
}

/// A release that comes later adds attributes and fields; this one goes on with what it knows.
#[test]
fn what_a_later_release_adds_is_not_looked_at() {
    let mut item = record_row(&east(), &record(), NOW).item();
    item.insert("later".to_owned(), AttributeValue::S("x".to_owned()));
    let mut row = Row::read(item).unwrap();
    // Field 100, a number.
    row.body.extend([0xa0, 0x06, 0x01]);
    assert_eq!(read_record(&prod(), &row), Ok((east(), Found::Record(record()))));
}

#[test]
fn what_cannot_be_read_is_an_error_with_its_reason() {
    let read = |change: &dyn Fn(&mut Row)| {
        let mut row = record_row(&east(), &record(), NOW);
        change(&mut row);
        read_record(&prod(), &row).unwrap_err()
    };
    assert_eq!(read(&|row| row.order = None), Unreadable::Attribute("v"));
    assert_eq!(read(&|row| row.body.extend([0x78, 0x01])), Unreadable::Newer { needs: 1 });
    assert!(matches!(read(&|row| row.body.truncate(5)), Unreadable::Body(_)));
    assert!(matches!(read(&|row| row.body.clear()), Unreadable::Field(_)));
    assert_eq!(read(&|row| row.key.sk = "use1-prod-b#00".to_owned()), Unreadable::Another);

    for (attribute, expected) in [("b", "b"), ("v", "v"), ("pk", "pk"), ("sk", "sk")] {
        let mut item = record_row(&east(), &record(), NOW).item();
        item.insert(attribute.to_owned(), AttributeValue::Bool(true));
        assert_eq!(Row::read(item), Err(Unreadable::Attribute(expected)));
    }

    let mut of_export = export_row(&east(), &cart(), &export(0), Put::Here(Vec::new()), NOW);
    let body = ExportBody { pieces: vec![0; 19], ..ExportBody::decode(of_export.body.as_slice()).unwrap() };
    of_export.body = body.encode_to_vec();
    assert_eq!(read_export(&of_export), Err(Unreadable::Lists("pieces")));
    of_export.key.sk = "E#Shop/cart".to_owned();
    assert_eq!(read_export(&of_export), Err(Unreadable::Key));

    let mut of_beat = beat_row(&prod(), &beat(3, 2), NOW);
    let body = BeatBody::decode(of_beat.body.as_slice()).unwrap();
    for (body, list) in [
        (BeatBody { echoes: vec![1], ..body.clone() }, "echoes"),
        (BeatBody { echoed: vec![1; 33], ..body.clone() }, "echoes"),
        (BeatBody { dead: vec![1; 15], ..body.clone() }, "dead"),
        (BeatBody { renewals: vec![1; 25], ..body }, "renewals"),
    ] {
        of_beat.body = body.encode_to_vec();
        assert_eq!(read_beat(Epoch(0xfeed), &of_beat), Err(Unreadable::Lists(list)));
    }
    let mut of_news = news_row(&prod(), &news(3), NOW);
    for (entries, versions) in [(15, 2), (14, 1), (14, 3), (28, 2)] {
        let (entries, versions) = (vec![1; entries], vec![1; versions]);
        of_news.body = NewsBody { entries, versions, ..NewsBody::default() }.encode_to_vec();
        assert_eq!(read_news(Epoch(0xfeed), &of_news), Err(Unreadable::Lists("entries")));
    }
}

#[test]
fn what_is_a_week_old_is_fading_and_lives_another_one_after_the_last_look() {
    let (written, day) = (NOW.day(), DAY.as_secs());
    let at = |days: u64| Now((u64::from(written) + days) * day);
    // A tick before, at and after.
    let fading = [Now(at(7).0 - 1), at(7), at(8)].map(|now| now.is_fading(written));
    assert_eq!(fading, [false, true, true]);
    assert!(!Now(0).is_fading(written), "a clock that is set back makes nothing older");

    let row = export_row(&east(), &cart(), &export(0), Put::Here(Vec::new()), NOW);
    // Looked at just before it is fading, it is looked at a day later.
    assert_eq!(row.expires_at, NOW.0 + 15 * day);
    assert_eq!(record_row(&east(), &record(), NOW).expires_at, NOW.0 + 8 * day);
    assert_eq!(beat_row(&prod(), &beat(1, 1), NOW).expires_at, NOW.0 + day);
    assert_eq!(news_row(&prod(), &news(1), NOW).expires_at, NOW.0 + day);

    let piece = |day| Named { digest: Digest([1; 16]), day };
    let pieces = vec![piece(written), piece(written - 7)];
    let row = export_row(&east(), &cart(), &export(1_000), Put::Pieces(pieces), NOW);
    assert!(
        read_export(&row).unwrap().is_fading(NOW),
        "an export that was written today names a piece that is older"
    );
}
