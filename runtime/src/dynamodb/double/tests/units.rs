use aws_sdk_dynamodb::types::{
    ConditionCheck, KeysAndAttributes, Put, PutRequest, TransactWriteItem, WriteRequest,
};

use crate::dynamodb::double::{Double, TABLE, Used};
use crate::dynamodb::testing::{delete, get, item, put, put_new, s, sort_keys};
use crate::dynamodb::{Class, Client};

/// So many bytes of an item that [`item`] makes are its names, and its partition and sort keys "p" and "a".
const AROUND: usize = "pk".len() + "p".len() + "sk".len() + "a".len() + "text".len();

/// A text by which an item with a sort key of one letter has this size.
fn sized(bytes: usize) -> String {
    "x".repeat(bytes - AROUND)
}

struct Counted {
    double: Double,
    client: Client,
}

impl Counted {
    async fn start() -> Self {
        let double = Double::start().await;
        let client = double.client().await;
        Self { double, client }
    }

    async fn put(&self, sk: &str, bytes: usize) {
        put(&self.client, Class::Bulk, sk, &sized(bytes)).await.unwrap();
    }

    /// Read and write units since this was asked for last.
    fn used(&self) -> (f64, f64) {
        let Used { read, write, .. } = self.double.units();
        self.double.reset_units();
        (read, write)
    }
}

#[tokio::test]
async fn a_write_costs_a_unit_for_each_kib_of_the_larger_item() {
    let counted = Counted::start().await;
    let mut used = Vec::new();
    for bytes in [100, 1_024, 1_025, 5_000, 100] {
        counted.put("a", bytes).await;
        used.push(counted.used());
    }
    delete(&counted.client, "a").await.unwrap();
    used.push(counted.used());
    delete(&counted.client, "a").await.unwrap();
    used.push(counted.used());
    assert_eq!(used, [1.0, 1.0, 2.0, 5.0, 5.0, 1.0, 1.0].map(|write| (0.0, write)));
}

#[tokio::test]
async fn an_update_costs_the_whole_item() {
    let counted = Counted::start().await;
    counted.put("a", 3_000).await;
    counted.used();
    let request = counted.client.sdk().update_item().table_name(TABLE).key("pk", s("p")).key("sk", s("a"));
    let request = request.update_expression("SET n = :n").expression_attribute_values(":n", s("1"));
    request.send().await.unwrap();
    assert_eq!(counted.used(), (0.0, 3.0));
}

#[tokio::test]
async fn what_a_condition_refuses_costs_as_the_item_that_stands() {
    let counted = Counted::start().await;
    counted.put("a", 2_500).await;
    counted.used();
    put_new(&counted.client, "a", "text").await.unwrap();
    assert_eq!(counted.used(), (0.0, 3.0));
}

#[tokio::test]
async fn a_read_costs_half_a_unit_for_each_4_kib_and_a_consistent_one_twice_that() {
    let counted = Counted::start().await;
    let mut used = Vec::new();
    for bytes in [100, 4_096, 4_097] {
        counted.put("a", bytes).await;
        counted.used();
        for consistent in [false, true] {
            get(&counted.client, "a", consistent).await.unwrap();
            used.push(counted.used().0);
        }
    }
    get(&counted.client, "z", false).await.unwrap();
    used.push(counted.used().0);
    assert_eq!(used, [0.5, 1.0, 0.5, 1.0, 1.0, 2.0, 0.5]);
}

#[tokio::test]
async fn a_query_costs_the_sum_of_its_items_before_its_filter() {
    let counted = Counted::start().await;
    for sk in ["a", "b", "c", "d", "e"] {
        counted.put(sk, 1_000).await;
    }
    counted.used();
    sort_keys(&counted.client).await.unwrap();
    assert_eq!(counted.used(), (1.0, 0.0));
    let query = counted.client.sdk().query().table_name(TABLE).key_condition_expression("pk = :pk");
    let query =
        query.expression_attribute_values(":pk", s("p")).filter_expression("attribute_exists(absent)");
    query.consistent_read(true).projection_expression("sk").send().await.unwrap();
    assert_eq!(counted.used(), (2.0, 0.0));
    let nothing = counted.client.sdk().query().table_name(TABLE).key_condition_expression("pk = :pk");
    nothing.expression_attribute_values(":pk", s("none")).send().await.unwrap();
    assert_eq!(counted.used(), (0.5, 0.0));
}

#[tokio::test]
async fn a_batch_costs_what_its_items_cost_one_by_one_and_a_transaction_twice_that() {
    let counted = Counted::start().await;
    let sdk = counted.client.sdk();
    let write = |sk: &str| {
        let put = PutRequest::builder().set_item(Some(item(sk, &sized(1_500)))).build().unwrap();
        WriteRequest::builder().put_request(put).build()
    };
    sdk.batch_write_item().request_items(TABLE, ["a", "b"].map(write).to_vec()).send().await.unwrap();
    assert_eq!(counted.used(), (0.0, 4.0));

    let key = |sk: &str| [("pk".to_owned(), s("p")), ("sk".to_owned(), s(sk))].into();
    let keys = KeysAndAttributes::builder().keys(key("a")).keys(key("b")).build().unwrap();
    sdk.batch_get_item().request_items(TABLE, keys).send().await.unwrap();
    assert_eq!(counted.used(), (1.0, 0.0));

    let put = Put::builder().table_name(TABLE).set_item(Some(item("c", &sized(1_500)))).build().unwrap();
    let put = TransactWriteItem::builder().put(put).build();
    sdk.transact_write_items().transact_items(put.clone()).send().await.unwrap();
    assert_eq!(counted.used(), (0.0, 4.0));

    let check = ConditionCheck::builder().table_name(TABLE).set_key(Some(key("a")));
    let check = check.condition_expression("attribute_not_exists(pk)").build().unwrap();
    let check = TransactWriteItem::builder().condition_check(check).build();
    sdk.transact_write_items().transact_items(put).transact_items(check).send().await.unwrap_err();
    assert_eq!(counted.used(), (0.0, 8.0));
}

#[tokio::test]
async fn what_a_call_costs_is_told_to_who_asks_for_it_alone() {
    let counted = Counted::start().await;
    let get = counted.client.sdk().get_item().table_name(TABLE).key("pk", s("p")).key("sk", s("a"));
    let silent = get.clone().send().await.unwrap();
    assert_eq!(silent.consumed_capacity, None);
    let told = get.return_consumed_capacity(aws_sdk_dynamodb::types::ReturnConsumedCapacity::Total);
    let capacity = told.send().await.unwrap().consumed_capacity.unwrap();
    assert_eq!(capacity.capacity_units, Some(0.5));
    assert_eq!(counted.used(), (1.0, 0.0));
}
