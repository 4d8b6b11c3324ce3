use super::*;
use mcs_core::pools::Location;
use std::collections::BTreeMap;

fn registration(dgd: &str) -> PoolRegistration {
    PoolRegistration {
        key: PoolKey::new("east", "ml", dgd).unwrap(),
        location: Location { region: Some("us-east-2".into()), ..Location::default() },
        model: "llama".into(),
        capabilities: ["tools".into(), "chat".into()].into(),
        capacity: Box::default(),
        frontends: ["http://10.0.0.9:8000/".into()].into(),
    }
}

fn item(registration: &PoolRegistration, renewed_at: i64) -> Item {
    let region = Region::new("us-east-2").unwrap();
    let renewed_at = WallMoment::from_unix_millis(renewed_at);
    let attributes = attributes(registration, renewed_at, Duration::from_secs(15), &region);
    let (pk, sk) = key(&registration.key);
    let keys = [("pk", AttributeValue::S(pk)), ("sk", AttributeValue::S(sk))];
    keys.into_iter().chain(attributes.values).map(|(name, value)| (name.to_owned(), value)).collect()
}

#[test]
fn an_item_reads_back_as_what_was_written() {
    for renewed_at in [i64::MIN, -1, 0, 1_700_000_000_123, i64::MAX] {
        let expected = StoredItem {
            registration: registration("chat").into(),
            renewed_at: WallMoment::from_unix_millis(renewed_at),
            lease: Duration::from_secs(15),
            region: Region::new("us-east-2").unwrap(),
        };
        assert_eq!(read(&item(&registration("chat"), renewed_at), &Known::new()), Ok(expected));
    }
}

#[test]
fn an_item_is_parsed_when_it_was_renewed_and_not_else() {
    let before = item(&registration("chat"), 0);
    let known = Known::from([("east/ml/chat".to_owned(), read(&before, &Known::new()).unwrap())]);
    let with = |name: &str, value: AttributeValue| {
        let mut item = before.clone();
        item.insert("registration".to_owned(), AttributeValue::S("{".to_owned()));
        item.insert(name.to_owned(), value);
        read(&item, &known)
    };
    assert_eq!(with("other", AttributeValue::Bool(true)).as_ref(), Ok(&known["east/ml/chat"]));
    for (name, value) in [
        ("renewed_at", AttributeValue::N("1".to_owned())),
        ("lease_ms", AttributeValue::N("14999".to_owned())),
        ("written_in", AttributeValue::S("us-west-2".to_owned())),
        ("sk", AttributeValue::S("east/ml/code".to_owned())),
    ] {
        let refused = with(name, value).unwrap_err();
        assert!(refused.problem.starts_with("registration: "), "{name}: {refused:?}");
    }
}

#[test]
fn what_is_wrong_with_an_item_is_one_short_line_that_names_the_attribute() {
    let cases = [
        ("registration", AttributeValue::S("{".into()), "registration: "),
        ("registration", AttributeValue::Bool(true), "registration: is no text"),
        ("lease_ms", AttributeValue::N("0".into()), "lease_ms: must be above 0 and at most 86400000"),
        ("renewed_at", AttributeValue::N("9".repeat(40)), "renewed_at: 999"),
        ("renewed_at", AttributeValue::S("0".into()), "renewed_at: is no number"),
        ("written_in", AttributeValue::S("a\nb".into()), "written_in: "),
        ("sk", AttributeValue::S("\u{1b}[31m".repeat(1_000)), "registration: is of pool east/ml/chat, which"),
    ];
    for (name, value, expected) in cases {
        let mut item = item(&registration("chat"), 0);
        item.insert(name.to_owned(), value);
        let Unreadable { item, problem } = read(&item, &Known::new()).unwrap_err();
        assert!(problem.starts_with(expected), "{name}: {problem}");
        let line = format!("{item} {problem}");
        assert!(line.len() < 1_100 && !line.contains(char::is_control), "{line}");
    }
    let mut keyless = item(&registration("chat"), 0);
    keyless.remove("sk");
    assert_eq!(read(&keyless, &Known::new()).unwrap_err().problem, "sk: is missing");
}

#[test]
fn pools_are_spread_evenly_over_the_partitions() {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for cluster in ["aws-ohio", "aws-oregon", "on-prem"] {
        for pool in 0..400 {
            let pool = PoolKey::new(cluster, "inference", &format!("llama-{pool}")).unwrap();
            *counts.entry(key(&pool).0).or_default() += 1;
        }
    }
    assert_eq!(counts.len(), PARTITIONS);
    assert!(counts.values().all(|count| (240..=360).contains(count)), "{counts:?}");
}

/// What is in tables must be found by later releases.
#[test]
fn the_partition_of_a_pool_never_changes() {
    let found = ["chat", "code", "vision", "embed"].map(|dgd| key(&registration(dgd).key));
    let expected = FOUND.map(|(pk, sk)| (pk.to_owned(), sk.to_owned()));
    assert_eq!(found, expected);
}

const FOUND: [(&str, &str); 4] = [
    ("POOLS#1", "east/ml/chat"),
    ("POOLS#1", "east/ml/code"),
    ("POOLS#1", "east/ml/vision"),
    ("POOLS#0", "east/ml/embed"),
];
