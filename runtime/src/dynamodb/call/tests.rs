#![cfg(feature = "dynamodb-double")]

use std::sync::Mutex;
use std::time::Duration;

use super::*;
use crate::dynamodb::Limits;
use crate::dynamodb::double::{Door, Double, Fault, Rule};
use crate::dynamodb::testing::{get, item, put, put_new, put_request, s, sort_keys};

/// Longer than anything takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// A client that gives each try a second, and a call as long as it takes.
async fn impatient(double: &Double) -> Client {
    let limits = Limits { connect: LONG, attempt: Duration::from_secs(1), total: LONG };
    double.client_of(crate::dynamodb::Settings { limits, ..double.settings() }).await
}

#[tokio::test]
async fn what_is_throttled_or_away_for_a_moment_is_done_all_the_same() {
    let double = Double::start().await;
    let client = double.client().await;
    let passing =
        [Fault::Throttled, Fault::ThroughputExceeded, Fault::InternalError, Fault::Unavailable, Fault::Reset];
    for (number, fault) in (0..).zip(passing) {
        double.faults().add(Rule::new(fault).of(&[Action::PutItem]).times(1));
        put(&client, Class::Bulk, &format!("{number}"), "taken").await.unwrap();
    }
    assert_eq!(sort_keys(&client).await.unwrap(), ["0", "1", "2", "3", "4"]);
    assert_eq!(double.calls(Action::PutItem), 10);
}

#[tokio::test]
async fn a_call_that_is_never_answered_is_tried_again_and_done() {
    let double = Double::start().await;
    let client = impatient(&double).await;
    put(&client, Class::Bulk, "before", "taken").await.unwrap();
    double.faults().add(Rule::new(Fault::Silence).of(&[Action::PutItem]).times(1));
    put(&client, Class::Bulk, "a", "taken").await.unwrap();
    assert_eq!(get(&client, "a", true).await.unwrap().as_deref(), Some("taken"));
}

#[tokio::test]
async fn a_table_that_takes_calls_and_never_answers_holds_none_beyond_its_limit() {
    let double = Double::start().await;
    let client = double.client().await.with_total(Duration::from_millis(500));
    double.faults().door(Door::Silent);
    let why = put(&client, Class::Urgent, "a", "lost").await.unwrap_err().why;
    assert_eq!(why, Why::TimedOut { limit: Duration::from_millis(500) });

    double.faults().door(Door::Open);
    let client = client.with_total(LONG);
    put(&client, Class::Urgent, "b", "taken").await.unwrap();
    assert_eq!(sort_keys(&client).await.unwrap(), ["b"]);
}

#[tokio::test]
async fn a_call_whose_connection_is_refused_says_so_and_the_next_one_is_made_when_there_is_a_port_again() {
    let double = Double::start().await;
    let client = double.client().await;
    put(&client, Class::Urgent, "a", "taken").await.unwrap();
    double.faults().door(Door::Refusing);
    let failed = put(&client, Class::Urgent, "b", "lost").await.unwrap_err();
    assert!(matches!(failed.why, Why::Away { .. }), "{failed}");

    double.faults().door(Door::Open);
    put(&client, Class::Urgent, "c", "taken").await.unwrap();
    assert_eq!(sort_keys(&client).await.unwrap(), ["a", "c"]);
}

#[tokio::test]
async fn a_write_whose_answer_was_lost_shows_what_it_wrote_itself() {
    let double = Double::start().await;
    let client = double.client().await;
    double.faults().add(Rule::new(Fault::LostAnswer).of(&[Action::PutItem]).times(1));
    let standing = put_new(&client, "a", "mine").await.unwrap();
    assert_eq!(standing, Condition::Failed(Some(item("a", "mine"))));
    assert_eq!(double.calls(Action::PutItem), 2);
}

#[tokio::test]
async fn while_half_of_the_calls_are_throttled_requests_stay_below_a_fifth_more_than_calls() {
    let double = Double::start().await;
    let client = double.client().await;
    double.faults().add(Rule::new(Fault::Throttled).share(0.5).of(&[Action::PutItem]));
    let calls = 300_u64;
    let (mut done, mut urgent_done) = (0_u64, 0_u64);
    for number in 0..calls {
        let class = if number % 10 == 0 { Class::Urgent } else { Class::Bulk };
        match put(&client, class, "a", "taken").await {
            Ok(()) => {
                done += 1;
                urgent_done += u64::from(class == Class::Urgent);
            }
            Err(failed) => assert!(matches!(failed.why, Why::Throttled { .. }), "{failed}"),
        }
    }
    let requests = double.calls(Action::PutItem);
    assert!(requests > calls, "nothing was tried again");
    assert!(requests * 10 <= calls * 12, "{requests} requests for {calls} calls");
    assert!(done > calls / 2, "trying again helped nothing: {done} of {calls} were done");
    assert!(urgent_done >= 25, "{urgent_done} of 30 urgent calls were done, {done} of all {calls}");
}

#[tokio::test]
async fn bulk_calls_that_fail_leave_tries_to_urgent_ones() {
    let double = Double::start().await;
    let client = double.client().await;
    double.faults().add(Rule::new(Fault::Throttled).of(&[Action::PutItem]));
    for _ in 0..5 {
        put(&client, Class::Bulk, "a", "lost").await.unwrap_err();
    }
    double.faults().add(Rule::new(Fault::Throttled).of(&[Action::GetItem]).times(3));
    assert_eq!(get(&client, "a", true).await.unwrap(), None);
    assert_eq!((double.calls(Action::PutItem), double.calls(Action::GetItem)), (10, 4));
}

#[tokio::test]
async fn an_urgent_call_overtakes_bulk_calls_that_wait() {
    let double = Double::start().await;
    let client = double.client().await;
    double.faults().add(Rule::new(Fault::Held).of(&[Action::PutItem]));
    let many: Vec<_> = (0..100)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move { put(&client, Class::Bulk, &format!("{number:02}"), "bulk").await })
        })
        .collect();
    double.until_called(Action::PutItem, 32).await;
    assert_eq!(get(&client, "00", true).await.unwrap(), None);
    assert_eq!(double.calls(Action::PutItem), 32);

    double.faults().clear();
    for one in many {
        one.await.unwrap().unwrap();
    }
    assert_eq!(sort_keys(&client).await.unwrap().len(), 100);
}

/// 40 items of 60 KB: three pages.
async fn with_pages(double: &Double) -> Client {
    let client = double.client().await;
    for number in 0..40 {
        let text = number.to_string().repeat(60_000 / number.to_string().len());
        put(&client, Class::Bulk, &format!("{number:02}"), &text).await.unwrap();
    }
    double.reset_units();
    client
}

#[tokio::test]
async fn a_query_reads_all_pages_or_fails() {
    let double = Double::start().await;
    let client = with_pages(&double).await;
    let all: Vec<_> = (0..40).map(|number| format!("{number:02}")).collect();
    assert_eq!(sort_keys(&client).await.unwrap(), all);
    assert_eq!(double.calls(Action::Query), 3);

    double.faults().add(Rule::new(Fault::Throttled).of(&[Action::Query]).after(1));
    let failed = sort_keys(&client).await.unwrap_err();
    assert!(matches!(failed.why, Why::Throttled { .. }), "{failed}");
}

#[tokio::test]
async fn a_page_that_a_filter_leaves_empty_is_not_the_end() {
    let double = Double::start().await;
    let client = with_pages(&double).await;
    let request = client.sdk().query().table_name(client.table()).key_condition_expression("pk = :pk");
    let request = request.expression_attribute_values(":pk", s("p")).filter_expression("begins_with(#t, :t)");
    let request =
        request.expression_attribute_names("#t", "text").expression_attribute_values(":t", s("3939"));
    let items = client.query(Class::Bulk, request).await.unwrap();
    let keys: Vec<_> = items.iter().map(|item| item["sk"].clone()).collect();
    assert_eq!(keys, [s("39")]);
    assert_eq!(double.calls(Action::Query), 3);
}

#[tokio::test]
async fn the_limit_of_a_query_is_that_of_all_its_pages() {
    let double = Double::start().await;
    let client = with_pages(&double).await.with_total(Duration::from_secs(2));
    double.faults().add(Rule::new(Fault::Silence).of(&[Action::Query]).after(1));
    let why = sort_keys(&client).await.unwrap_err().why;
    assert_eq!(why, Why::TimedOut { limit: Duration::from_secs(2) });
}

/// What `query_pages` gives of the partition, a number of items a page, and how it ends.
async fn pages(client: &Client) -> (Vec<usize>, Result<(), Why>) {
    let request = client.sdk().query().table_name(client.table()).key_condition_expression("pk = :pk");
    let request = request.expression_attribute_values(":pk", s("p"));
    let mut pages = Vec::new();
    let read = client.query_pages(Class::Bulk, request, |page| pages.push(page.len())).await;
    (pages, read.map_err(|failed| failed.why))
}

#[tokio::test]
async fn each_page_has_the_limit_of_a_call_and_what_was_read_before_one_that_fails_is_given() {
    let double = Double::start().await;
    let limit = Duration::from_secs(12);
    let client = with_pages(&double).await.with_total(limit);
    let (all, read) = pages(&client).await;
    assert_eq!((all.len(), all.iter().sum::<usize>(), read), (3, 40, Ok(())));

    // Longer than the limit together, and each far from it.
    double.faults().add(Rule::new(Fault::Late(limit * 5 / 12)).of(&[Action::Query]));
    assert_eq!(pages(&client).await, (all.clone(), Ok(())));
    double.faults().clear();
    double.faults().add(Rule::new(Fault::Silence).of(&[Action::Query]).after(2));
    assert_eq!(pages(&client).await, (all[..2].to_vec(), Err(Why::TimedOut { limit })));
}

#[tokio::test]
async fn what_is_refused_is_asked_for_once() {
    let double = Double::start().await;
    let client = double.client().await;
    let request = put_request(&client, "", "an empty key");
    let sent = client.call(Class::Urgent, Action::PutItem, || request.clone().send()).await;
    let why = sent.map(drop).unwrap_err().why;
    assert!(matches!(&why, Why::Refused { code, .. } if code == "ValidationException"), "{why}");
    assert_eq!(double.calls(Action::PutItem), 1);
}

#[derive(Default)]
struct Noted(Mutex<Vec<(Action, Outcome)>>);

impl Observer for Noted {
    fn requested(&self, action: Action, outcome: Outcome) {
        self.0.lock().unwrap().push((action, outcome));
    }
}

#[tokio::test]
async fn an_observer_is_told_of_each_try() {
    let double = Double::start().await;
    let noted = Arc::new(Noted::default());
    let client = double.client().await.observed(Arc::<Noted>::clone(&noted));
    double.faults().add(Rule::new(Fault::Throttled).of(&[Action::PutItem]).times(1));
    double.faults().add(Rule::new(Fault::InternalError).of(&[Action::PutItem]).after(1).times(1));
    put_new(&client, "a", "text").await.unwrap();
    put_new(&client, "a", "text").await.unwrap();
    double.faults().add(Rule::new(Fault::Silence).of(&[Action::GetItem]));
    get(&client.with_total(Duration::from_millis(200)), "a", true).await.unwrap_err();
    let expected = [
        (Action::PutItem, Outcome::Throttled),
        (Action::PutItem, Outcome::Away),
        (Action::PutItem, Outcome::Done),
        (Action::PutItem, Outcome::Refused),
        (Action::GetItem, Outcome::TimedOut),
    ];
    assert_eq!(*noted.0.lock().unwrap(), expected);
}
