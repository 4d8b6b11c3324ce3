use std::sync::Arc;
use std::time::Duration;

use mcs_core::time::ManualClock;

use crate::dynamodb::double::{Global, Staleness, TABLE};
use crate::dynamodb::testing::{delete, get, put, put_new, sort_keys};
use crate::dynamodb::{Class, Client, Condition};

const EU: &str = "eu-test-1";
const US: &str = "us-test-1";

const SECOND: Duration = Duration::from_secs(1);

/// Two regions by a clock that stands still.
struct Two {
    global: Global,
    clock: Arc<ManualClock>,
    eu: Client,
    us: Client,
}

impl Two {
    async fn start() -> Self {
        let clock = Arc::new(ManualClock::default());
        let global = Global::with(&[EU, US], 7, Arc::<ManualClock>::clone(&clock)).await;
        let (eu, us) = (global.region(EU).client().await, global.region(US).client().await);
        Self { global, clock, eu, us }
    }

    /// Writes, a moment after the last write.
    async fn put(&self, client: &Client, sk: &str, text: &str) {
        self.clock.advance(Duration::from_millis(1));
        put(client, Class::Bulk, sk, text).await.unwrap();
    }

    /// What the item is in both regions.
    async fn both(&self, sk: &str) -> [Option<String>; 2] {
        [get(&self.eu, sk, true).await.unwrap(), get(&self.us, sk, true).await.unwrap()]
    }
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[tokio::test]
async fn a_write_in_one_region_is_read_in_the_other_after_its_lag() {
    let two = Two::start().await;
    two.global.set_lag(SECOND..SECOND);
    two.put(&two.eu, "a", "1").await;
    assert_eq!(two.both("a").await, [some("1"), None]);
    two.clock.advance(SECOND - Duration::from_nanos(1));
    assert_eq!(two.both("a").await, [some("1"), None]);
    two.clock.advance(Duration::from_nanos(1));
    assert_eq!(two.both("a").await, [some("1"), some("1")]);

    delete(&two.us, "a").await.unwrap();
    assert_eq!(two.both("a").await, [some("1"), None]);
    two.clock.advance(SECOND);
    assert_eq!(two.both("a").await, [None, None]);
}

#[tokio::test]
async fn of_two_writes_of_one_item_the_later_one_stands_in_both_regions_whole() {
    let two = Two::start().await;
    two.global.set_lag(SECOND..SECOND);
    two.put(&two.eu, "a", "earlier").await;
    two.put(&two.us, "a", "later").await;
    assert_eq!(two.both("a").await, [some("earlier"), some("later")]);
    two.clock.advance(2 * SECOND);
    assert_eq!(two.both("a").await, [some("later"), some("later")]);
    // A delete that was earlier does not take it away, and one that is later does.
    delete(&two.eu, "a").await.unwrap();
    two.put(&two.us, "a", "again").await;
    two.clock.advance(2 * SECOND);
    assert_eq!(two.both("a").await, [some("again"), some("again")]);
}

#[tokio::test]
async fn an_item_may_overtake_another() {
    let two = Two::start().await;
    two.global.set_lag(SECOND..SECOND);
    two.global.set_lag_of("K#", 5 * SECOND..5 * SECOND);
    two.put(&two.eu, "K#chunk", "first").await;
    two.put(&two.eu, "E#index", "then").await;
    two.clock.advance(2 * SECOND);
    assert_eq!(sort_keys(&two.us).await.unwrap(), ["E#index"]);
    two.clock.advance(5 * SECOND);
    assert_eq!(sort_keys(&two.us).await.unwrap(), ["E#index", "K#chunk"]);
}

#[tokio::test]
async fn lags_within_a_range_reorder_items_by_the_seed() {
    let arrivals = || async {
        let two = Two::start().await;
        two.global.set_lag(Duration::ZERO..10 * SECOND);
        for number in 0..10 {
            two.put(&two.eu, &number.to_string(), "text").await;
        }
        let mut seen = Vec::new();
        while seen.len() < 10 {
            two.clock.advance(Duration::from_millis(100));
            for key in sort_keys(&two.us).await.unwrap() {
                if !seen.contains(&key) {
                    seen.push(key);
                }
            }
        }
        seen
    };
    let seen = arrivals().await;
    assert_ne!(seen, (0..10).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(seen, arrivals().await);
}

#[tokio::test]
async fn regions_that_are_cut_go_on_alone_and_agree_when_they_are_healed() {
    let two = Two::start().await;
    two.global.set_lag(SECOND..2 * SECOND);
    two.put(&two.eu, "under way", "1").await;
    two.global.cut();
    two.put(&two.eu, "a", "eu").await;
    two.put(&two.us, "a", "us").await;
    two.put(&two.us, "b", "us").await;
    two.clock.advance(600 * SECOND);
    assert_eq!(two.both("a").await, [some("eu"), some("us")]);
    assert_eq!(
        [sort_keys(&two.eu).await.unwrap(), sort_keys(&two.us).await.unwrap()],
        [["a", "under way"], ["a", "b"]]
    );
    assert_eq!(two.global.under_way(), 4);

    two.global.heal();
    assert_eq!(two.both("a").await, [some("eu"), some("us")]);
    two.clock.advance(2 * SECOND);
    let eu = two.global.region(EU).items(TABLE).await;
    assert_eq!(eu.len(), 3);
    assert_eq!(eu, two.global.region(US).items(TABLE).await);
    assert_eq!(two.both("a").await, [some("us"), some("us")]);
    assert_eq!(two.global.under_way(), 0);
}

#[tokio::test]
async fn a_cut_may_be_of_one_way_and_what_is_under_way_may_be_delivered_at_once() {
    let two = Two::start().await;
    two.global.set_lag(600 * SECOND..600 * SECOND);
    two.global.cut_from(EU, US);
    two.put(&two.eu, "a", "eu").await;
    two.put(&two.us, "b", "us").await;
    two.global.deliver().await;
    assert_eq!([two.both("a").await, two.both("b").await], [[some("eu"), None], [some("us"), some("us")]]);
}

#[tokio::test]
async fn conditions_hold_within_a_region_only() {
    let two = Two::start().await;
    two.global.set_lag(SECOND..SECOND);
    assert_eq!(put_new(&two.eu, "a", "eu").await.unwrap(), Condition::Held(()));
    assert_eq!(put_new(&two.us, "a", "us").await.unwrap(), Condition::Held(()));
    assert!(matches!(put_new(&two.us, "a", "us").await.unwrap(), Condition::Failed(Some(_))));
}

#[tokio::test]
async fn by_a_clock_that_is_behind_an_old_write_wins() {
    let two = Two::start().await;
    two.clock.advance(60 * SECOND);
    two.global.set_ahead(US, -5_000).await;
    two.put(&two.eu, "a", "earlier").await;
    two.put(&two.us, "b", "of another item").await;
    two.global.cut();
    two.put(&two.us, "a", "of an item that it has").await;
    two.put(&two.eu, "b", "earlier by 5 s").await;
    two.global.heal();
    two.global.deliver().await;
    // What a region has of an item, it dates its own writes after.
    assert_eq!(two.both("a").await, [some("of an item that it has"), some("of an item that it has")]);
    assert_eq!(two.both("b").await, [some("earlier by 5 s"), some("earlier by 5 s")]);

    two.global.cut();
    two.put(&two.eu, "c", "earlier").await;
    two.put(&two.us, "c", "later, by a clock that is behind").await;
    two.global.heal();
    two.global.deliver().await;
    assert_eq!(two.both("c").await, [some("earlier"), some("earlier")]);
}

#[tokio::test]
async fn what_comes_from_another_region_costs_write_units_there() {
    let two = Two::start().await;
    two.put(&two.eu, "a", &"x".repeat(1_500)).await;
    assert_eq!(two.both("a").await[0], two.both("a").await[1]);
    let used = two.global.region(US).units_by_action();
    assert_eq!((used["Replicated"].calls, used["Replicated"].write), (1, 2.0));
}

#[tokio::test]
async fn stale_reads_may_miss_what_came_from_another_region() {
    let two = Two::start().await;
    two.global.region(US).read_stale(Staleness::For(SECOND)).await;
    two.put(&two.eu, "a", "1").await;
    assert_eq!(get(&two.us, "a", true).await.unwrap(), some("1"));
    assert_eq!(get(&two.us, "a", false).await.unwrap(), None);
    two.clock.advance(SECOND);
    assert_eq!(get(&two.us, "a", false).await.unwrap(), some("1"));
}
