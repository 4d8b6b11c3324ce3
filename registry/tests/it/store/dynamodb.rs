//! The store that is a table: the suite, and what only a table can do to it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use mcs_core::ids::{Epoch, Region, ServiceKey};
use mcs_core::limits::MAX_ENDPOINTS;
use mcs_core::model::{EndpointMap, Export, MemberState};
use mcs_core::replicas::{Beat, KeyTag, News, NewsEntry, Renewal, UidTag};
use mcs_core::time::ManualClock;
use mcs_registry::store::{
    DynamoDb, Erased, Exports, Failed, Held, Known, Members, NEWS_ENTRIES, Replica, Store, Torn, Write, Wrote,
};
use mcs_runtime::clock::SystemClock;
use mcs_runtime::dynamodb::Action;
use mcs_runtime::dynamodb::double::{Double, Fault, Global, Rule, TABLE, Used};

use super::suite::{self, east, export, member_record, put, read, record, version, whole};
use crate::logged::Logged;
use crate::started::{STARTED_AT, endpoints, id, key, prod};

suite::passes!(store(&Double::start().await).await, shared);

/// More endpoints than lie in the item of an export.
const MANY: u32 = 2_000;

async fn store(double: &Double) -> DynamoDb {
    DynamoDb::new(double.client().await, Arc::new(SystemClock))
}

async fn store_at(double: &Double, clock: &Arc<ManualClock>) -> DynamoDb {
    DynamoDb::new(double.client().await, clock.clone())
}

/// An export of [`MANY`] endpoints, without those of these addresses.
fn many_but(name: &str, seq: u64, without: Range<usize>) -> Export {
    let all = endpoints(MANY);
    let mut some = EndpointMap::default();
    for group in all.groups() {
        let kept = group.members.enumerate().filter(|(place, _)| !without.contains(place));
        some.insert_all(group.key, kept.map(|(_, endpoint)| endpoint));
    }
    Export { endpoints: Arc::new(some.pack()), ..export(name, seq, 1) }
}

/// Keys of all items of the table.
async fn keys(double: &Double) -> BTreeSet<(String, String)> {
    let items = double.items(TABLE).await;
    let text = |item: &serde_json::Value, name: &str| item[name]["S"].as_str().unwrap().to_owned();
    items.iter().map(|item| (text(item, "pk"), text(item, "sk"))).collect()
}

async fn keys_that_begin(double: &Double, sk: &str) -> Vec<(String, String)> {
    keys(double).await.into_iter().filter(|(_, of)| of.starts_with(sk)).collect()
}

fn used(double: &Double, action: Action) -> Used {
    double.units_by_action().get(action.as_str()).copied().unwrap_or_default()
}

/// Deletes an item, as nobody of ours would.
async fn lose(double: &Double, (pk, sk): (String, String)) {
    let client = double.client().await;
    let text = AttributeValue::S;
    client
        .sdk()
        .delete_item()
        .table_name(TABLE)
        .key("pk", text(pk))
        .key("sk", text(sk))
        .send()
        .await
        .unwrap();
}

/// Gives an item another body.
async fn spoil(double: &Double, (pk, sk): (String, String), body: &[u8]) {
    let client = double.client().await;
    let text = AttributeValue::S;
    let update = client.sdk().update_item().table_name(TABLE).key("pk", text(pk)).key("sk", text(sk));
    let body = AttributeValue::B(Blob::new(body));
    update.update_expression("SET b = :b").expression_attribute_values(":b", body).send().await.unwrap();
}

/// O51, O46: the first page is never all that there is.
#[tokio::test]
async fn a_read_whose_second_page_fails_is_no_read() {
    let double = Double::start().await;
    let store = store(&double).await;
    let names: Vec<String> = (0..40).map(|number| format!("svc-{number}")).collect();
    let annotated = |name: &str| {
        let mut export = export(name, 3, 1);
        Arc::make_mut(&mut export.spec).annotations =
            [("example.com/long".to_owned(), "x".repeat(60_000))].into();
        export
    };
    let writes = names.iter().map(|name| Write::Put(key(name), annotated(name))).collect();
    store.write(&east(), writes).await.unwrap();
    double.reset_units();
    double.faults().add(Rule::new(Fault::Denied).of(&[Action::Query]).after(1));
    assert!(matches!(read(&store, &east()).await, Err(Failed::Refused { .. })));
    assert_eq!(double.calls(Action::Query), 2);
    double.faults().clear();
    let all = names.iter().map(|name| (key(name), annotated(name))).collect();
    assert_eq!(read(&store, &east()).await, Ok(Exports { whole: all, torn: BTreeSet::new() }));
}

#[tokio::test]
async fn what_batches_leave_undone_is_done_in_the_next_ones() {
    let double = Double::start().await;
    let store = store(&double).await;
    let batches = [Action::BatchWriteItem, Action::BatchGetItem];
    for batch in batches {
        double.faults().add(Rule::new(Fault::Unprocessed).of(&[batch]).times(3));
    }
    assert_eq!(store.write(&east(), vec![put("web", 3, MANY)]).await, Ok(vec![Wrote::Taken]));
    assert_eq!(read(&store, &east()).await, Ok(whole([("web", 3, MANY)])));
    assert!(batches.iter().all(|batch| double.calls(*batch) > 3), "{:?}", double.units_by_action());
}

/// Fault 4, O52: what is refused for its number is made all the same.
#[tokio::test]
async fn a_table_that_throttles_a_third_of_the_calls_loses_nothing() {
    let double = Double::start().await;
    let store = store(&double).await;
    double.faults().add(Rule::new(Fault::ThroughputExceeded).share(0.3));
    let names: Vec<String> = (0..60).map(|number| format!("svc-{number}")).collect();
    let (mut expected, mut calls) = (BTreeSet::new(), 0);
    for name in &names {
        // A write that is given up is made again by whoever holds what was to be written.
        for tried in 1.. {
            assert!(tried < 20, "{name} is not written");
            calls += 1;
            if store.write(&east(), vec![put(name, 3, 2)]).await == Ok(vec![Wrote::Taken]) {
                break;
            }
        }
        expected.insert(key(name));
    }
    let sent = double.calls(Action::PutItem);
    assert!(sent > 70, "nothing was throttled: {:?}", double.units_by_action());
    // A try again for six calls, and ten that are saved up.
    assert!(sent <= calls + calls / 6 + 10, "{sent} requests for {calls} calls");
    double.faults().clear();
    let held: BTreeSet<ServiceKey> = read(&store, &east()).await.unwrap().whole.into_keys().collect();
    assert_eq!(held, expected);
}

/// O53: the write was made, and its answer lost.
#[tokio::test]
async fn a_write_whose_answer_is_lost_is_taken() {
    let double = Double::start().await;
    let store = store(&double).await;
    for action in [Action::PutItem, Action::DeleteItem] {
        double.faults().add(Rule::new(Fault::LostAnswer).of(&[action]).times(1));
    }
    let writes =
        vec![put("web", 3, 2), Write::Delete(key("api"), version(3)), record(3, MemberState::Active)];
    assert_eq!(store.write(&east(), writes).await, Ok(vec![Wrote::Taken; 3]));
    assert_eq!(read(&store, &east()).await, Ok(whole([("web", 3, 2)])));
}

#[tokio::test]
async fn a_change_of_a_large_set_costs_what_it_changes() {
    let double = Double::start().await;
    let store = store(&double).await;
    store.write(&east(), vec![put("web", 3, MANY)]).await.unwrap();
    let all = used(&double, Action::BatchWriteItem).write;
    let before = store.export(&east(), &key("web"), None).await.unwrap();
    let Some(Held::Whole(before)) = before else { panic!("{before:?}") };
    let read_all = used(&double, Action::BatchGetItem).read;

    double.reset_units();
    let after = many_but("web", 4, 1_000..1_001);
    store.write(&east(), vec![Write::Put(key("web"), after.clone())]).await.unwrap();
    let held = store.export(&east(), &key("web"), Some(&before)).await;
    assert_eq!(held, Ok(Some(Held::Whole(after.clone()))));
    let (written, read) =
        (used(&double, Action::BatchWriteItem).write, used(&double, Action::BatchGetItem).read);
    assert!((1.0..all / 5.0).contains(&written), "{written} of {all} write units");
    assert!((0.5..read_all / 5.0).contains(&read), "{read} of {read_all} read units");

    double.reset_units();
    let known = Known::from([(key("web"), after.clone())]);
    let again = store.exports(&east(), &known).await.unwrap();
    assert_eq!(again.whole, BTreeMap::from([(key("web"), after)]));
    assert_eq!(double.calls(Action::BatchGetItem), 0);
}

/// D8: nothing that grows with endpoints, and no item near 400 KB.
#[tokio::test]
async fn what_is_said_of_idle_members_costs_the_same_whatever_they_export() {
    let double = Double::start().await;
    let store = store(&double).await;
    let idle = async || {
        double.reset_units();
        store.beat(&prod(), &beat(1, 1)).await.unwrap();
        store.replicas(&prod()).await.unwrap();
        double.units()
    };
    let before = idle().await;
    store.write(&east(), vec![put("web", 3, 20_000), record(3, MemberState::Active)]).await.unwrap();
    assert_eq!(idle().await, before);
    let largest = double.items(TABLE).await.iter().map(|item| item.to_string().len()).max().unwrap();
    // As text, which is a third longer than it is.
    assert!(largest < 45_000, "{largest}");
}

/// O18, fault 18: the most endpoints that an export may have.
#[tokio::test]
async fn the_largest_set_is_written_and_read_back_whole() {
    let double = Double::start().await;
    let store = store(&double).await;
    let most = u32::try_from(MAX_ENDPOINTS).unwrap();
    assert_eq!(store.write(&east(), vec![put("web", 3, most)]).await, Ok(vec![Wrote::Taken]));
    assert_eq!(read(&store, &east()).await, Ok(whole([("web", 3, most)])));
}

#[tokio::test]
async fn a_large_write_that_is_given_up_goes_on_where_it_ended() {
    let double = Double::start().await;
    let store = store(&double).await;
    let large = || vec![put("web", 3, 20_000)];
    double.faults().add(Rule::new(Fault::Denied).of(&[Action::BatchWriteItem]).after(4));
    assert!(matches!(store.write(&east(), large()).await, Err(Failed::Refused { .. })));
    assert_eq!(store.export(&east(), &key("web"), None).await, Ok(None));

    double.faults().clear();
    double.reset_units();
    assert_eq!(store.write(&east(), large()).await, Ok(vec![Wrote::Taken]));
    assert_eq!(read(&store, &east()).await, Ok(whole([("web", 3, 20_000)])));
    let all = keys_that_begin(&double, "K#").await.len().div_ceil(25) as u64;
    let again = double.calls(Action::BatchWriteItem);
    assert!((1..all).contains(&again), "{again} of {all} batches");
}

/// Story 8 of the protocol: what an export names is not there.
#[tokio::test]
async fn an_export_that_lacks_a_piece_is_torn_until_it_is_written_again() {
    let double = Double::start().await;
    let store = store(&double).await;
    store.write(&east(), vec![put("web", 3, MANY), put("api", 3, 2)]).await.unwrap();
    let lost = keys_that_begin(&double, "K#").await.remove(1);
    lose(&double, lost.clone()).await;
    assert_eq!(store.export(&east(), &key("web"), None).await, Ok(Some(Held::Torn)));
    let torn = Exports { torn: BTreeSet::from([key("web")]), ..whole([("api", 3, 2)]) };
    assert_eq!(read(&store, &east()).await, Ok(torn));
    // Who holds it misses nothing.
    let known = export("web", 3, MANY);
    let held = store.export(&east(), &key("web"), Some(&known)).await;
    assert_eq!(held, Ok(Some(Held::Whole(known))));

    assert_eq!(store.write(&east(), vec![put("web", 3, MANY)]).await, Ok(vec![Wrote::Taken]));
    assert_eq!(read(&store, &east()).await, Ok(whole([("web", 3, MANY), ("api", 3, 2)])));

    spoil(&double, lost, b"something else").await;
    assert_eq!(store.export(&east(), &key("web"), None).await, Ok(Some(Held::Torn)));
}

/// The same over regions, where items arrive in any order.
#[tokio::test]
async fn an_export_that_arrives_before_its_pieces_is_torn_until_they_arrive() {
    let clock = Arc::new(ManualClock::at(STARTED_AT));
    let global = Global::with(&["eu-test-1", "us-test-1"], 7, clock.clone()).await;
    let eu = store_at(global.region("eu-test-1"), &clock).await;
    let us = store_at(global.region("us-test-1"), &clock).await;
    eu.write(&east(), vec![put("web", 3, 2), record(3, MemberState::Active)]).await.unwrap();
    assert_eq!(read(&us, &east()).await, Ok(whole([("web", 3, 2)])));

    let minute = Duration::from_secs(60);
    global.set_lag_of("K#", minute..minute * 2);
    eu.write(&east(), vec![put("web", 4, MANY)]).await.unwrap();
    assert_eq!(us.export(&east(), &key("web"), None).await, Ok(Some(Held::Torn)));
    clock.pass(minute * 3);
    assert_eq!(read(&us, &east()).await, Ok(whole([("web", 4, MANY)])));
}

/// Whoever read an export's item finds the pieces that it names, also when it has been turned since.
#[tokio::test]
async fn a_reader_that_is_slower_than_the_writers_finds_a_state_that_is_whole() {
    let double = Double::start().await;
    let (slow, fast) = (Arc::new(store(&double).await), store(&double).await);
    fast.write(&east(), vec![put("web", 3, MANY)]).await.unwrap();
    double.reset_units();
    double.faults().add(Rule::new(Fault::Held).of(&[Action::BatchGetItem]));
    let reading = tokio::spawn({
        let slow = Arc::clone(&slow);
        async move { slow.export(&east(), &key("web"), None).await }
    });
    double.until_called(Action::BatchGetItem, 1).await;
    for seq in 4..8 {
        let place = usize::try_from(seq).unwrap() * 100;
        let change = many_but("web", seq, place..place + 50);
        fast.write(&east(), vec![Write::Put(key("web"), change)]).await.unwrap();
    }
    double.faults().clear();
    assert_eq!(reading.await.unwrap(), Ok(Some(Held::Whole(export("web", 3, MANY)))));
}

#[tokio::test]
async fn a_record_that_cannot_be_read_is_named_and_never_left_out() {
    let double = Double::start().await;
    let store = store(&double).await;
    let logged = Logged::from_now_on();
    store
        .write(&east(), vec![put("web", 3, 2), put("api", 3, 1), record(3, MemberState::Active)])
        .await
        .unwrap();
    let of_web = keys_that_begin(&double, "E#shop/web").await.remove(0);
    spoil(&double, of_web.clone(), b"\xff").await;
    let torn = Exports { torn: BTreeSet::from([key("web")]), ..whole([("api", 3, 1)]) };
    assert_eq!(read(&store, &east()).await, Ok(torn));
    assert_eq!(store.export(&east(), &key("web"), None).await, Ok(Some(Held::Torn)));
    assert_eq!(store.fading(&east()).await, Ok(BTreeSet::from([key("web")])));
    let lines = logged.take(1).await;
    assert!(lines[0].contains("item cannot be read") && lines[0].contains("E#shop/web"), "{lines:?}");

    let of_east = keys_that_begin(&double, "east#").await.remove(0);
    // Of a form that a later release has: field 15 is 1.
    spoil(&double, of_east, &[0x78, 0x01]).await;
    let torn =
        |why| Members { torn: [((id("east"), UidTag::of(&east().uid)), why)].into(), ..Members::default() };
    assert_eq!(store.members(&prod()).await, Ok(torn(Torn::Newer)));
    let Err(failed) = store.member(&east()).await else { panic!("it was read") };
    assert_eq!((matches!(failed, Failed::Unreadable { .. }), failed.retry_helps()), (true, false));
    assert!(failed.to_string().contains("reads up to form 0"), "{failed}");
    spoil(&double, keys_that_begin(&double, "east#").await.remove(0), b"\xff").await;
    assert_eq!(store.members(&prod()).await, Ok(torn(Torn::Damaged)));

    // What is written anew is read again.
    let writes = vec![put("web", 3, 2), record(3, MemberState::Active)];
    assert_eq!(store.write(&east(), writes).await, Ok(vec![Wrote::Taken; 2]));
    assert_eq!(read(&store, &east()).await, Ok(whole([("web", 3, 2), ("api", 3, 1)])));
    let members = [(east(), member_record(3, MemberState::Active))];
    assert_eq!(store.members(&prod()).await, Ok(suite::members(members)));
}

fn beat(replica: u128, number: u64) -> Beat {
    // One that reads back as it is: others are cut.
    let renewal = Renewal { number, age: Duration::from_millis(255 * 17) };
    Beat {
        epoch: Epoch(replica),
        region: Some(Region::new("eu-west-1").unwrap()),
        number,
        echoes: BTreeMap::from([(Epoch(99), 5)]),
        dead: BTreeSet::from([Epoch(77)]),
        is_due: number > 5,
        renewals: BTreeMap::from([(UidTag::of(&east().uid), renewal)]),
    }
}

fn news(replica: u128, first: u64) -> News {
    let entry = |number: usize| NewsEntry {
        member: UidTag::of(&east().uid),
        key: (number > 0).then(|| KeyTag::of(&key(&format!("svc-{number}")))),
        version: version(number as u64),
    };
    News { epoch: Epoch(replica), first, entries: (0..NEWS_ENTRIES).map(entry).collect() }
}

#[tokio::test]
async fn what_replicas_say_is_read_in_one_query_and_never_goes_back() {
    let double = Double::start().await;
    let store = store(&double).await;
    assert_eq!(store.replicas(&prod()).await, Ok(Vec::new()));
    store.beat(&prod(), &beat(1, 4)).await.unwrap();
    store.beat(&prod(), &beat(2, 9)).await.unwrap();
    store.news(&prod(), &news(2, 100)).await.unwrap();
    // Its replica has not begun yet.
    store.news(&prod(), &news(3, 0)).await.unwrap();
    let of_two = Replica { beat: beat(2, 9), news: Some(news(2, 100)) };
    let all = vec![Replica { beat: beat(1, 4), news: None }, of_two.clone()];
    double.reset_units();
    assert_eq!(store.replicas(&prod()).await, Ok(all));
    assert_eq!((double.units().calls, double.calls(Action::Query)), (1, 1));

    // A write that was late.
    store.beat(&prod(), &beat(1, 3)).await.unwrap_err();
    store.news(&prod(), &news(2, 90)).await.unwrap_err();
    store.beat(&prod(), &beat(1, 5)).await.unwrap();
    let all = vec![Replica { beat: beat(1, 5), news: None }, of_two.clone()];
    assert_eq!(store.replicas(&prod()).await, Ok(all));

    for _ in 0..2 {
        store.retire(&prod(), Epoch(1)).await.unwrap();
        assert_eq!(store.replicas(&prod()).await, Ok(vec![of_two.clone()]));
    }
    assert_eq!(keys(&double).await.len(), 3);
}

/// A replica that is left out would not be asked before a verdict; and what one damaged keeps nobody else from being heard.
#[tokio::test]
async fn what_a_replica_says_that_cannot_be_read_says_nothing_and_the_others_are_heard() {
    let double = Double::start().await;
    let store = store(&double).await;
    store.beat(&prod(), &beat(1, 4)).await.unwrap();
    store.beat(&prod(), &beat(2, 7)).await.unwrap();
    store.news(&prod(), &news(2, 5)).await.unwrap();
    // Of a kind that a later release may have.
    let client = double.client().await;
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let later = client.sdk().put_item().table_name(TABLE).item("pk", text("prod")).item("sk", text("Z#1"));
    later.send().await.unwrap();
    let one = Replica { beat: beat(1, 4), news: None };
    let two = Replica { beat: beat(2, 7), news: Some(news(2, 5)) };
    assert_eq!(store.replicas(&prod()).await, Ok(vec![one.clone(), two]));

    spoil(&double, keys_that_begin(&double, "N#").await.remove(0), b"\xff").await;
    let end = 5 + u64::try_from(NEWS_ENTRIES).unwrap();
    let missed = News { epoch: Epoch(2), first: end, entries: Vec::new() };
    let two = Replica { beat: beat(2, 7), news: Some(missed.clone()) };
    assert_eq!(store.replicas(&prod()).await, Ok(vec![one.clone(), two]));

    spoil(&double, keys_that_begin(&double, "R#").await.remove(1), b"\xff").await;
    let silent = Beat {
        region: None,
        echoes: BTreeMap::new(),
        dead: BTreeSet::new(),
        is_due: false,
        renewals: BTreeMap::new(),
        ..beat(2, 7)
    };
    let two = Replica { beat: silent, news: Some(missed) };
    assert_eq!(store.replicas(&prod()).await, Ok(vec![one, two]));
}

#[tokio::test]
async fn what_nobody_writes_for_a_week_is_to_be_written_again() {
    let double = Double::start().await;
    let clock = Arc::new(ManualClock::at(STARTED_AT));
    let store = store_at(&double, &clock).await;
    let day = Duration::from_secs(24 * 60 * 60);
    store.write(&east(), vec![put("web", 3, MANY), put("api", 3, 2)]).await.unwrap();
    clock.pass(day * 6);
    assert_eq!(store.fading(&east()).await, Ok(BTreeSet::new()));
    let change = many_but("web", 4, 0..1);
    store.write(&east(), vec![Write::Put(key("web"), change.clone())]).await.unwrap();
    clock.pass(day);
    // Of the large one, the pieces that did not change.
    let both = BTreeSet::from([key("web"), key("api")]);
    assert_eq!(store.fading(&east()).await, Ok(both));
    let again = vec![Write::Put(key("web"), change.clone()), put("api", 3, 2)];
    assert_eq!(store.write(&east(), again).await, Ok(vec![Wrote::Taken; 2]));
    assert_eq!(store.fading(&east()).await, Ok(BTreeSet::new()));
    // One that changes is not written with what is fading: its old pieces go before it does.
    clock.pass(day * 7);
    double.reset_units();
    let changed = many_but("web", 5, 0..2);
    store.write(&east(), vec![Write::Put(key("web"), changed)]).await.unwrap();
    assert!(used(&double, Action::BatchWriteItem).write > 50.0, "{:?}", double.units_by_action());
    assert_eq!(store.fading(&east()).await, Ok(BTreeSet::from([key("api")])));
}

/// An item that is to go may be there for days, or go at once: nothing is decided by that.
#[tokio::test]
async fn what_has_expired_and_is_still_there_is_read_like_everything_else() {
    let double = Double::start().await;
    let long_ago = Arc::new(ManualClock::at(mcs_core::time::WallTime::from_unix_secs(1_600_000_000)));
    let store = store_at(&double, &long_ago).await;
    store.write(&east(), vec![put("web", 3, MANY), record(3, MemberState::Active)]).await.unwrap();
    store.beat(&prod(), &beat(1, 4)).await.unwrap();
    assert_eq!(read(&store, &east()).await, Ok(whole([("web", 3, MANY)])));
    assert_eq!(store.members(&prod()).await.unwrap().whole.len(), 1);
    assert_eq!(store.replicas(&prod()).await.unwrap().len(), 1);
    let expiring = double.items(TABLE).await;
    assert!(expiring.iter().all(|item| item["expires_at"]["N"].is_string()), "{expiring:?}");
}

/// Nobody can read whose it is, and it goes by its key.
#[tokio::test]
async fn a_damaged_record_is_removed_by_its_key_and_no_other_is() {
    let double = Double::start().await;
    let store = store(&double).await;
    let tag = UidTag::of(&east().uid);
    let remove = async || store.remove_damaged(&prod(), &id("east"), tag).await;
    store.write(&east(), vec![put("web", 3, 2), record(3, MemberState::Active)]).await.unwrap();
    assert_eq!(remove().await, Ok(Erased::Newer), "it can be read");
    let of_east = keys_that_begin(&double, "east#").await.remove(0);
    spoil(&double, of_east.clone(), &[0x78, 0x01]).await;
    assert_eq!(remove().await, Ok(Erased::Newer), "a later release can read it");
    spoil(&double, of_east, b"\xff").await;
    assert_eq!(remove().await, Ok(Erased::Gone { exports: 1 }));
    assert_eq!((keys(&double).await, remove().await), (BTreeSet::new(), Ok(Erased::Gone { exports: 0 })));
}

#[tokio::test]
async fn a_removal_that_breaks_off_goes_on_and_leaves_pieces_alone() {
    let double = Double::start().await;
    let store = store(&double).await;
    let names: Vec<String> = (0..40).map(|number| format!("svc-{number}")).collect();
    let mut writes: Vec<Write> = names.iter().map(|name| put(name, 3, 1)).collect();
    writes.extend([put("web", 3, MANY), record(3, MemberState::Active)]);
    store.write(&east(), writes).await.unwrap();
    // That it was removed comes first: nobody takes what is missing for lost.
    double.faults().add(Rule::new(Fault::Denied).of(&[Action::DeleteItem]).after(20));
    assert!(store.remove(&east(), version(3)).await.is_err());
    let removed = Members { removed: vec![(east(), version(3))], ..Members::default() };
    assert_eq!(store.members(&prod()).await, Ok(removed.clone()));
    double.faults().clear();
    let Ok(Erased::Gone { exports }) = store.remove(&east(), version(3)).await else {
        panic!("it is not gone")
    };
    // Of 41, 16 side by side: before the 21st was refused, five were deleted and said so. They are not deleted again.
    assert!((1..=41 - 5).contains(&exports), "{exports}");
    let (pieces, others): (Vec<_>, Vec<_>) =
        keys(&double).await.into_iter().partition(|(_, sk)| sk.starts_with("K#"));
    assert_eq!((pieces.is_empty(), others.len()), (false, 1), "{others:?}");
    assert_eq!(store.members(&prod()).await, Ok(removed));
    assert_eq!(store.write(&east(), vec![put("web", 1, MANY)]).await, Ok(vec![Wrote::Taken]));
    assert_eq!(read(&store, &east()).await, Ok(whole([("web", 1, MANY)])));
}

/// Case O61: no registry writes such a key, so it is of no cluster that would be missed.
#[tokio::test]
async fn a_record_of_a_key_that_is_none_is_left_out_and_keeps_no_other_back() {
    let double = Double::start().await;
    let store = store(&double).await;
    store.write(&east(), vec![record(3, MemberState::Active)]).await.unwrap();
    let client = double.client().await;
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let foreign =
        client.sdk().put_item().table_name(TABLE).item("pk", text("prod#C")).item("sk", text("East\r\n"));
    foreign.send().await.unwrap();
    let whole =
        Members { whole: vec![(east(), member_record(3, MemberState::Active))], ..Members::default() };
    assert_eq!(store.members(&prod()).await, Ok(whole));
}

/// An upgrade under way: the older replica leaves alone what it cannot write as a whole.
#[tokio::test]
async fn what_a_later_release_wrote_in_a_form_of_its_own_is_not_written_over() {
    let double = Double::start().await;
    let store = store(&double).await;
    store.write(&east(), vec![put("web", 3, 2), record(3, MemberState::Active)]).await.unwrap();
    let client = double.client().await;
    for (pk, sk) in keys(&double).await {
        let text = AttributeValue::S;
        let update = client.sdk().update_item().table_name(TABLE).key("pk", text(pk)).key("sk", text(sk));
        let update = update.update_expression("SET f = :f, b = :b");
        let update = update.expression_attribute_values(":f", AttributeValue::N("1".to_owned()));
        // Field 15 is 1.
        let body = AttributeValue::B(Blob::new([0x78, 0x01]));
        update.expression_attribute_values(":b", body).send().await.unwrap();
    }
    assert_eq!(store.fading(&east()).await, Ok(BTreeSet::new()));
    let writes =
        vec![put("web", 4, 2), Write::Delete(key("web"), version(4)), record(4, MemberState::Active)];
    assert_eq!(store.write(&east(), writes).await, Ok(vec![Wrote::Older; 3]));
}

/// Of what a replica says nobody else writes anything: what stands in its way is told, or it would take itself for heard.
#[tokio::test]
async fn what_stands_in_the_way_of_a_replicas_word_is_an_error() {
    let double = Double::start().await;
    let store = store(&double).await;
    store.beat(&prod(), &beat(1, 4)).await.unwrap();
    store.news(&prod(), &news(1, 1)).await.unwrap();
    assert_eq!(store.beat(&prod(), &beat(1, 4)).await, Ok(()), "it is said again where its answer was lost");
    let client = double.client().await;
    for (pk, sk) in keys(&double).await {
        let text = AttributeValue::S;
        let update = client.sdk().update_item().table_name(TABLE).key("pk", text(pk)).key("sk", text(sk));
        let update = update.update_expression("SET v = :v");
        let last = AttributeValue::B(Blob::new([0xff; 16]));
        update.expression_attribute_values(":v", last).send().await.unwrap();
    }
    let why = |said: Result<(), Failed>| said.unwrap_err().to_string();
    let beaten = why(store.beat(&prod(), &beat(1, 5)).await);
    assert!(
        beaten.starts_with("the store refuses: item prod R#") && beaten.ends_with("delete it"),
        "{beaten}"
    );
    let told = why(store.news(&prod(), &news(1, 2)).await);
    assert!(told.starts_with("the store refuses: item prod N#") && told.ends_with("delete it"), "{told}");
}

#[tokio::test]
async fn a_table_that_cannot_be_used_says_what_is_missing() {
    let double = Double::empty(Default::default()).await;
    let store = store(&double).await;
    let why = async || store.check().await.unwrap_err().to_string();
    assert!(why().await.contains("no such table"), "{}", why().await);
    double.create_table(TABLE);
    let used = [
        Action::DescribeTable,
        Action::Query,
        Action::GetItem,
        Action::BatchGetItem,
        Action::PutItem,
        Action::DeleteItem,
        Action::BatchWriteItem,
    ];
    for action in used {
        double.faults().deny(action);
        let why = why().await;
        assert!(why.contains(&format!("dynamodb:{action}")), "{why}");
        double.faults().clear();
    }
    store.check().await.unwrap();
    assert_eq!(keys(&double).await, BTreeSet::new());
    // What it allows is not asked for again.
    double.reset_units();
    store.check().await.unwrap();
    assert_eq!((double.units().calls, double.calls(Action::GetItem)), (1, 1));
}
