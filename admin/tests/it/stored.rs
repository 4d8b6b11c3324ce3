//! The subcommands that use the store, against a table of an emulator.

#![expect(clippy::unwrap_used, reason = "what cannot be set up fails its test")]

use crate::golden::assert_golden;
use crate::world::{START, World, mk_port, mk_put, run, run_in};
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, CreateReplicationGroupMemberAction, KeySchemaElement,
    KeyType, ProvisionedThroughput, ReplicationGroupUpdate, ScalarAttributeType, StreamSpecification,
    StreamViewType,
};
use mcs_core::ids::{Epoch, ServiceKey};
use mcs_core::model::{Export, MemberState, Protocol};
use mcs_core::registry::Op;
use mcs_core::replicas::{Beat, Renewal, UidTag};
use mcs_core::time::{Clock, ManualClock, WallMillis, WallTime};
use mcs_core::version::{Leaf, Sum, Version};
use mcs_proto::convert::Member;
use mcs_registry::store::{DynamoDb, Exports, Known, MemberRecord, Store, Write};
use mcs_runtime::clock::SystemClock;
use mcs_runtime::dynamodb::double::{Double, Fault, Options, Rule, TABLE};
use mcs_runtime::dynamodb::{Action, Client, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Nothing that is waited for takes this long.
const LIMIT: Duration = Duration::from_secs(60);

/// The table that create-table is to make.
const NEW: &str = "clustersets";

#[tokio::test(flavor = "multi_thread")]
async fn a_table_is_made_with_all_that_was_asked_for_and_made_again_is_told_as_it_is() {
    let double = Double::empty(Options::default()).await;
    double.set_making(1);
    let flags = ["--replica-regions=eu-test-1,eu-test-2,eu-test-3", "--pitr"];
    assert_golden("create-table-new", &create(&double, &flags).await);
    assert_golden("create-table-again", &create(&double, &flags).await);
    assert_eq!(double.calls(Action::CreateTable), 2, "it does not ask first, as that may change");
    // One region more, and nothing that was not asked for.
    let double = Double::empty(Options::default()).await;
    assert_golden("create-table-plain", &create(&double, &[]).await);
    assert_golden("create-table-one-more", &create(&double, &["--replica-regions=eu-test-2"]).await);
    assert_eq!(double.calls(Action::UpdateContinuousBackups), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_the_table_whose_answer_was_lost_was_made() {
    let double = Double::empty(Options::default()).await;
    assert_golden("create-table-plain", &create(&double, &[]).await);
    double.set_making(2);
    for spared in [0, 1] {
        double.faults().add(Rule::new(Fault::LostAnswer).of(&[Action::UpdateTable]).after(spared).times(1));
    }
    assert_golden("create-table-one-more", &create(&double, &["--replica-regions=eu-test-2"]).await);
    // Nor does a look that fails end the wait.
    double.faults().add(Rule::new(Fault::InternalError).of(&[Action::DescribeTable]).after(6).times(4));
    let ran = create(&double, &["--replica-regions=eu-test-2,eu-test-3"]).await;
    assert!(ran.starts_with("exit code 0\n") && ran.contains("replica in eu-test-3: added\n"), "{ran}");
}

/// AWS takes one change of a table at a time.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_somebody_has_just_begun_is_waited_for() {
    let double = Double::empty(Options::default()).await;
    assert_golden("create-table-plain", &create(&double, &[]).await);
    double.set_making(3);
    let client = client_of_new(&double).await;
    let stream = StreamSpecification::builder()
        .stream_enabled(true)
        .stream_view_type(StreamViewType::NewAndOldImages)
        .build();
    let update = client.sdk().update_table().table_name(NEW);
    update.clone().stream_specification(stream.unwrap()).send().await.unwrap();
    let begun = CreateReplicationGroupMemberAction::builder().region_name("eu-test-3").build().unwrap();
    let begun = ReplicationGroupUpdate::builder().create(begun).build();
    update.replica_updates(begun).send().await.unwrap();
    assert_golden("create-table-one-more", &create(&double, &["--replica-regions=eu-test-2"]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_with_other_keys_is_not_taken_for_the_right_one() {
    let double = Double::empty(Options::default()).await;
    make_table(&double, "id", false).await;
    assert_golden("create-table-other-keys", &create(&double, &[]).await);
    assert_eq!(double.calls(Action::UpdateTimeToLive), 0, "it is left as it is");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_with_provisioned_capacity_is_told_of() {
    let double = Double::empty(Options::default()).await;
    make_table(&double, "pk", true).await;
    assert_golden("create-table-provisioned", &create(&double, &[]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stands_in_the_way_of_a_table_is_told_in_one_line() {
    let double = Double::empty(Options::default()).await;
    double.faults().deny(Action::CreateTable);
    assert_golden("create-table-denied", &create(&double, &[]).await);
    double.faults().clear();
    // What was done before stands, and is told.
    double.faults().deny(Action::UpdateTable);
    assert_golden("create-table-halfway", &create(&double, &["--replica-regions=eu-test-2"]).await);

    let no_region = run_in(&[("AWS_EC2_METADATA_DISABLED", "true".to_owned())], &["create-table"]).await;
    assert_golden("create-table-no-region", &no_region);
}

#[tokio::test(flavor = "multi_thread")]
async fn describe_shows_what_the_store_holds_and_what_registries_said_last() {
    let (double, store) = filled().await;
    for format in ["table", "json", "yaml"] {
        let ran = at_store(&double, &["describe", "--clusterset=prod", "-o", format]).await;
        assert_golden(&format!("stored.{format}"), &ran);
    }
    store.remove(&member("east", "u-1"), mcs_core::version::Version::new(u64::MAX, u64::MAX)).await.unwrap();
    let ran = at_store(&double, &["describe", "--clusterset=other"]).await;
    assert_golden("stored-empty.table", &ran);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_and_the_registry_over_it_tell_the_same() {
    let double = Double::start().await;
    let world = World::over(Arc::new(store(&double).await)).await;
    world.east_and_west_differ_and_west_falls_silent().await;
    let lists = |ran: &str| {
        let (_, ran) = ran.split_once("--- standard output\n").unwrap();
        let (json, _) = ran.split_once("--- standard error\n").unwrap();
        let mut all: serde_json::Value = serde_json::from_str(json).unwrap();
        let states: Vec<_> = all["clusters"]
            .as_array()
            .unwrap()
            .iter()
            .map(|cluster| {
                ["cluster", "uid", "region", "version", "sum", "exports", "endpoints"]
                    .map(|field| cluster[field].clone())
            })
            .collect();
        (states, all["exports"].take(), all["imports"].take())
    };
    let describe = ["describe", "--clusterset=prod", "-o", "json"];
    let url = world.url_flag();
    let by_registry = async || lists(&run(&[&describe[..], &[&*url]].concat()).await);
    let by_store = async || lists(&at_store(&double, &describe).await);
    // What a renewal and a verdict changed is written a moment later, and may change after it was asked for.
    let until_told = async { while by_store().await != by_registry().await {} };
    tokio::time::timeout(LIMIT, until_told).await.unwrap();
    let checked = run(&["check", &world.url_flag()]).await;
    assert!(checked.contains("shared with other registries, and up to date"), "{checked}");
}

/// O51.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_read_to_its_end_is_not_shown() {
    let double = Double::start().await;
    let store = store(&double).await;
    // More than a page of a Query, which is 1 MB.
    let exports: Vec<_> =
        (0..150).map(|number| mk_export(&format!("s-{number}"), &["10.1.0.1"], 8_000)).collect();
    write(&store, &member("east", "u-1"), MemberState::Active, exports).await;
    let describe = ["describe", "--clusterset=prod", "-o", "json"];
    double.reset_units();
    let ran = at_store(&double, &describe).await;
    assert_eq!(ran.matches("\"endpointCount\": 1").count(), 300, "of exports and imports");
    assert_eq!(double.calls(Action::Query), 4, "the beats, the members, and two pages of exports");

    double.faults().add(Rule::new(Fault::Throttled).of(&[Action::Query]).after(3));
    assert_golden("stored-throttled", &at_store(&double, &describe).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_of_a_later_release_is_named_and_the_rest_shown() {
    let (double, _) = filled().await;
    // Field 15 is 1: the form that its reader must know.
    spoil(&double, "u-2", &[0x78, 0x01]).await;
    let ran = at_store(&double, &["describe", "--clusterset=prod"]).await;
    assert_golden("stored-unreadable.table", &ran);
    assert_golden("delete-stored-unreadable", &delete(&double, "west", &["--yes", "--force"]).await);
    let of_west = ["--yes", "--force", "--uid=u-2"];
    // Who wrote it may also say that no earlier release is to write over it.
    mark(&double, "u-2", "f", Some(AttributeValue::N("1".to_owned()))).await;
    assert_golden("delete-stored-later", &delete(&double, "west", &of_west).await);
    mark(&double, "u-2", "f", None).await;
    assert_golden("delete-stored-unread", &delete(&double, "west", &of_west).await);
    assert_golden("delete-stored-absent", &delete(&double, "west", &["--yes"]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_is_damaged_is_removed_by_its_key() {
    let (double, store) = filled().await;
    spoil(&double, "u-2", &[0xff; 8]).await;
    assert_golden("stored-damaged.table", &at_store(&double, &["describe", "--clusterset=prod"]).await);
    assert_golden("delete-stored-damaged", &delete(&double, "west", &["--yes"]).await);
    assert_golden("delete-stored-damaged-forced", &delete(&double, "west", &["--yes", "--force"]).await);
    assert_golden("delete-stored-absent", &delete(&double, "west", &["--yes", "--force"]).await);
    let read = store.exports(&member("west", "u-2"), &Known::new()).await.unwrap();
    assert_eq!(read, Exports::default());
    assert_eq!(store.members(&"prod".parse().unwrap()).await.unwrap().whole.len(), 1, "east");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_broke_off_goes_on_when_it_is_run_again() {
    let (double, store) = filled().await;
    // The record goes first.
    double.faults().add(Rule::new(Fault::Throttled).of(&[Action::DeleteItem]));
    assert_golden("delete-stored-unfinished", &delete(&double, "west", &["--yes"]).await);
    double.faults().clear();
    assert_eq!(store.members(&"prod".parse().unwrap()).await.unwrap().removed.len(), 1);
    assert_golden("delete-stored", &delete(&double, "west", &["--yes"]).await);
    assert_golden("delete-stored-absent", &delete(&double, "west", &["--yes"]).await);
}

/// It was removed by force and is back: its exports are written before its record.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_comes_back_is_not_taken_for_one_that_was_removed_in_part() {
    let (double, store) = filled().await;
    let (west, prod) = (member("west", "u-2"), "prod".parse().unwrap());
    store.remove(&west, VERSION).await.unwrap();
    let (key, export) = mk_export("cart", &["10.2.0.1"], 0);
    store.write(&west, vec![Write::Put(key, export)]).await.unwrap();
    let oldest = (&member("east", "u-1"), 255 * 125);
    store.beat(&prod, &mk_beat(10, "eu-test-3", &[oldest, (&west, 29_875)])).await.unwrap();
    assert_golden("delete-stored-back", &delete(&double, "west", &["--yes"]).await);
    // A lease ago.
    let beat = Beat { number: 51, ..mk_beat(10, "eu-test-3", &[oldest, (&west, 30_000)]) };
    store.beat(&prod, &beat).await.unwrap();
    assert_golden("delete-stored", &delete(&double, "west", &["--yes"]).await);
}

/// What it said of renewals stays in the table for a day.
#[tokio::test(flavor = "multi_thread")]
async fn a_beat_of_a_registry_that_ended_long_ago_keeps_no_cluster_active() {
    let (double, store) = filled().await;
    let (west, prod) = (member("west", "u-2"), "prod".parse().unwrap());
    let now = SystemClock.wall().unix_secs();
    for (seconds, golden) in [(9 * 60, "delete-stored-heard"), (11 * 60, "delete-stored")] {
        let then = ManualClock::at(WallTime::from_unix_secs(now - seconds));
        let of_then = DynamoDb::new(double.client().await, Arc::new(then));
        store.retire(&prod, Epoch(10 << 96)).await.unwrap();
        let oldest = (&member("east", "u-1"), 255 * 125);
        of_then.beat(&prod, &mk_beat(10, "eu-test-3", &[oldest, (&west, 29_875)])).await.unwrap();
        assert_golden(golden, &delete(&double, "west", &["--yes"]).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_removed_from_the_store_as_it_is_from_a_registry() {
    let (double, store) = filled().await;
    assert_golden("delete-stored-active", &delete(&double, "east", &["--yes"]).await);
    assert_golden("usage-delete-stored-without-yes", &delete(&double, "west", &[]).await);
    assert_golden("delete-stored", &delete(&double, "west", &["--yes"]).await);
    assert_golden("delete-stored-absent", &delete(&double, "west", &["--yes"]).await);
    assert_golden("delete-stored-forced", &delete(&double, "east", &["--yes", "--force"]).await);
    assert_eq!(store.members(&"prod".parse().unwrap()).await.unwrap().whole, []);

    double.faults().add(Rule::new(Fault::Throttled).of(&[Action::Query]));
    assert_golden("delete-stored-throttled", &delete(&double, "west", &["--yes"]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_was_heard_a_moment_ago_is_active_whatever_was_recorded() {
    let (double, store) = filled().await;
    // Beside this one ages are told in steps of 125 ms.
    let oldest = (&member("east", "u-1"), 255 * 125);
    let beat = mk_beat(10, "eu-test-3", &[oldest, (&member("west", "u-2"), 29_875)]);
    store.beat(&"prod".parse().unwrap(), &beat).await.unwrap();
    assert_golden("delete-stored-heard", &delete(&double, "west", &["--yes"]).await);
    // A lease ago.
    let beat = Beat { number: 51, ..mk_beat(10, "eu-test-3", &[oldest, (&member("west", "u-2"), 30_000)]) };
    store.beat(&"prod".parse().unwrap(), &beat).await.unwrap();
    assert_golden("delete-stored", &delete(&double, "west", &["--yes"]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_clusters_with_one_id_only_the_one_that_is_named_or_has_expired_goes() {
    let (double, store) = filled().await;
    write(&store, &member("west", "u-3"), MemberState::Active, vec![]).await;
    assert_golden("delete-stored-several", &delete(&double, "west", &["--yes", "--force"]).await);
    // The other one's lease is active.
    assert_golden("delete-stored", &delete(&double, "west", &["--yes"]).await);
    assert_golden("delete-stored-other", &delete(&double, "west", &["--yes"]).await);
    let ran = delete(&double, "west", &["--yes", "--force", "--uid=u-3"]).await;
    assert!(ran.starts_with("exit code 0\n"), "{ran}");
    let left = store.members(&"prod".parse().unwrap()).await.unwrap().whole;
    assert_eq!(left.into_iter().map(|(member, _)| member).collect::<Vec<_>>(), [member("east", "u-1")]);
}

/// `docs/iam.md` gives each subcommand what it calls, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn each_subcommand_does_what_it_does_by_the_documented_permissions_and_all_of_them() {
    let create_alone = set(documented("Create"));
    let double = Double::empty(Options::default()).await;
    double.faults().allow_only(create_alone.clone());
    for _ in 0..2 {
        is_done(&create(&double, &["--pitr"]).await);
    }
    assert_eq!(called(&double), create_alone);

    let replicas = set(documented("Replicas"));
    double.reset_units();
    double.faults().allow_only(create_alone.union(&replicas).cloned());
    is_done(&create(&double, &["--replica-regions=eu-test-2"]).await);
    // What AWS does in the name of who adds a region, and nobody calls.
    let by_aws = "BatchWriteItem CreateTableReplica DeleteItem GetItem PutItem Query Scan UpdateItem";
    let by_aws = set(by_aws.split(' ').map(ToOwned::to_owned).collect());
    let of_replicas: BTreeSet<_> = called(&double).difference(&create_alone).cloned().collect();
    assert_eq!(of_replicas.union(&by_aws).cloned().collect::<BTreeSet<_>>(), replicas);

    let (double, store) = filled().await;
    let addresses: Vec<_> =
        (0..1_200).map(|number| format!("10.3.{}.{}", number / 200, number % 200)).collect();
    let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
    write(&store, &member("large", "u-9"), MemberState::Expired, vec![mk_export("all", &addresses, 0)]).await;
    double.reset_units();
    let describe = set(documented("Describe"));
    let look: BTreeSet<_> = describe.union(&set(documented("Delete"))).cloned().collect();
    double.faults().allow_only(describe.clone());
    is_done(&at_store(&double, &["describe", "--clusterset=prod"]).await);
    assert_eq!(called(&double), describe);
    let denied = delete(&double, "large", &["--yes"]).await;
    assert!(denied.starts_with("exit code 1\n"), "{denied}");

    double.faults().allow_only(look.clone());
    is_done(&delete(&double, "large", &["--yes"]).await);
    assert_eq!(called(&double), look);
}

/// The actions of a statement of the guide, in its order.
fn documented(sid: &str) -> Vec<String> {
    let guide = include_str!("../../../docs/iam.md");
    let (_, section) = guide.split_once("## mcs-admin").unwrap();
    let (policy, _) = section.split_once("```json\n").unwrap().1.split_once("```").unwrap();
    let policy: serde_json::Value = serde_json::from_str(policy).unwrap();
    let statements = policy["Statement"].as_array().unwrap();
    let actions = &statements.iter().find(|statement| statement["Sid"] == sid).unwrap()["Action"];
    let actions = actions.as_array().unwrap().iter().map(|action| action.as_str().unwrap());
    actions.map(|action| action.strip_prefix("dynamodb:").unwrap().to_owned()).collect()
}

fn set(actions: Vec<String>) -> BTreeSet<String> {
    actions.into_iter().collect()
}

fn called(double: &Double) -> BTreeSet<String> {
    double.units_by_action().into_keys().collect()
}

fn is_done(ran: &str) {
    assert!(ran.starts_with("exit code 0\n"), "{ran}");
}

/// Two clusters, of which one has expired, and two registries that heard them.
async fn filled() -> (Double, DynamoDb) {
    let double = Double::start().await;
    let store = store(&double).await;
    let (east, west) = (member("east", "u-1"), member("west", "u-2"));
    let of_east = vec![mk_export("cart", &["10.1.0.1", "10.1.0.2"], 0), mk_export("dns", &[], 0)];
    write(&store, &east, MemberState::Active, of_east).await;
    write(&store, &west, MemberState::Expired, vec![mk_export("cart", &["10.2.0.1"], 0)]).await;
    for beat in [
        mk_beat(7, "eu-test-1", &[(&east, 255 * 13)]),
        mk_beat(8, "eu-test-2", &[(&west, 255 * 373), (&east, 32 * 373)]),
        mk_beat(9, "eu-test-2", &[]),
    ] {
        store.beat(&"prod".parse().unwrap(), &beat).await.unwrap();
    }
    (double, store)
}

/// What a registry says, with the milliseconds since it heard each cluster: whole steps of the longest.
fn mk_beat(epoch: u8, region: &str, renewals: &[(&Member, u64)]) -> Beat {
    let renewals = renewals.iter().map(|(member, millis)| {
        let renewal = Renewal { number: 40 + u64::from(epoch), age: Duration::from_millis(*millis) };
        (UidTag::of(&member.uid), renewal)
    });
    Beat {
        epoch: Epoch(u128::from(epoch) << 96),
        region: Some(region.parse().unwrap()),
        number: 40 + u64::from(epoch),
        echoes: BTreeMap::new(),
        dead: BTreeSet::new(),
        is_due: false,
        renewals: renewals.collect(),
    }
}

async fn store(double: &Double) -> DynamoDb {
    DynamoDb::new(double.client().await, Arc::new(SystemClock))
}

fn member(cluster: &str, uid: &str) -> Member {
    Member {
        clusterset: "prod".parse().unwrap(),
        cluster: cluster.parse().unwrap(),
        uid: uid.parse().unwrap(),
    }
}

const VERSION: Version = Version::new(1, 1);

/// An export of `shop`, with an annotation of so many bytes.
fn mk_export(name: &str, addresses: &[&str], bytes: usize) -> (ServiceKey, Export) {
    let port = mk_port("http", Protocol::Tcp, 80);
    let Op::Put { key, spec, endpoints, .. } = mk_put("shop", name, START, &[port], addresses) else {
        panic!("it is a put")
    };
    let mut spec = Arc::unwrap_or_clone(spec);
    if bytes > 0 {
        spec.annotations.insert("example.com/text".to_owned(), "x".repeat(bytes));
    }
    let leaf = Leaf::of(&key, &spec, &endpoints);
    (key, Export { version: VERSION, leaf, spec: Arc::new(spec), endpoints, changed_at: None })
}

/// Makes the records of a member with these exports.
async fn write(store: &DynamoDb, of: &Member, state: MemberState, exports: Vec<(ServiceKey, Export)>) {
    let record = MemberRecord {
        region: Some("eu-test-1".parse().unwrap()),
        version: VERSION,
        sum: exports.iter().map(|(_, export)| export.leaf).collect::<Sum>(),
        state,
        claimed_at: WallMillis::from_unix_millis(START * 1_000),
    };
    let puts = exports.into_iter().map(|(key, export)| Write::Put(key, export));
    store.write(of, puts.chain([Write::Member(record)]).collect()).await.unwrap();
}

/// Makes the record of a member have this body.
async fn spoil(double: &Double, uid: &str, body: &[u8]) {
    mark(double, uid, "b", Some(AttributeValue::B(Blob::new(body)))).await;
}

/// Gives an attribute of the record of a member this value, or takes it away.
async fn mark(double: &Double, uid: &str, attribute: &str, value: Option<AttributeValue>) {
    let tag = hex(UidTag::of(&uid.parse().unwrap()).0);
    let items = double.items(TABLE).await;
    let keys = items.iter().map(|item| (text(item, "pk"), text(item, "sk")));
    let (pk, sk) = keys.into_iter().find(|(_, sk)| sk.contains(&tag) && !sk.starts_with("E#")).unwrap();
    let client = double.client().await;
    let update = client.sdk().update_item().table_name(TABLE);
    let update = update.key("pk", AttributeValue::S(pk)).key("sk", AttributeValue::S(sk));
    let update = update.expression_attribute_names("#of", attribute);
    let update = match value {
        Some(value) => update.update_expression("SET #of = :to").expression_attribute_values(":to", value),
        None => update.update_expression("REMOVE #of"),
    };
    update.send().await.unwrap();
}

fn hex(bytes: [u8; 6]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text(item: &serde_json::Value, name: &str) -> String {
    item[name]["S"].as_str().unwrap_or_default().to_owned()
}

async fn client_of_new(double: &Double) -> Client {
    double.client_of(Settings { table: NEW.to_owned(), ..double.settings() }).await
}

/// Makes the table past the program.
async fn make_table(double: &Double, partition: &str, is_provisioned: bool) {
    let client = client_of_new(double).await;
    let key = |name: &str, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build();
    let kind = |name: &str| {
        AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S).build()
    };
    let request = client
        .sdk()
        .create_table()
        .table_name(NEW)
        .key_schema(key(partition, KeyType::Hash).unwrap())
        .key_schema(key("sk", KeyType::Range).unwrap())
        .attribute_definitions(kind(partition).unwrap())
        .attribute_definitions(kind("sk").unwrap());
    let request = if is_provisioned {
        let units = ProvisionedThroughput::builder().read_capacity_units(5).write_capacity_units(5).build();
        request.billing_mode(BillingMode::Provisioned).provisioned_throughput(units.unwrap())
    } else {
        request.billing_mode(BillingMode::PayPerRequest)
    };
    request.send().await.unwrap();
}

async fn create(double: &Double, flags: &[&str]) -> String {
    let table = format!("--table={NEW}");
    at(double, &[&["create-table", &table], flags].concat()).await
}

async fn delete(double: &Double, cluster: &str, flags: &[&str]) -> String {
    let cluster = format!("--cluster={cluster}");
    at_store(double, &[&["delete-cluster", "--clusterset=prod", &cluster], flags].concat()).await
}

async fn at_store(double: &Double, args: &[&str]) -> String {
    let table = format!("--table={TABLE}");
    at(double, &[args, &[&table]].concat()).await
}

async fn at(double: &Double, args: &[&str]) -> String {
    let endpoint = double.endpoint();
    let flags = [args, &["--endpoint", &endpoint, "--log-level=error"]].concat();
    run_in(&double.environment(), &flags).await.replace(&endpoint, "http://dynamodb:8000")
}
