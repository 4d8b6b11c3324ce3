//! The watches against a stand-in for the API server that answers as the test says, in paused time.

use super::*;
use crate::queue::Outcome;
use mcs_core::ids::ServiceKey;
use mcs_core::time::ManualClock;
use mcs_runtime::kube::follow::WATCH_LIMIT;
use mcs_runtime::kube::testing::{ApiServer, api_server, list, status};
use mcs_runtime::shutdown::Shutdown;
use mcs_runtime::tasks::with_causes;
use serde_json::{Value, json};
use std::sync::Mutex;

/// Cases O42 and O43: "too old" inside a watch that was accepted leads to a list, once; what that lacks is gone.
#[tokio::test(start_paused = true)]
async fn a_version_that_is_too_old_leads_to_one_list_and_what_it_lacks_is_gone() {
    let mut it = Fixture::start::<Service>();
    it.api.list().await.listed("70", json!([service("a"), service("b")]));
    let watch = it.api.watch("70").await;
    assert_eq!((it.until_known(&["a", "b"]).await, it.touched().await), ((), names(&["a", "b"])));

    watch.event("ERROR", &status(410, None));
    it.api.comes_after(0.8, 0.0).await;
    it.api.list().await.listed("80", json!([service("a"), service("c")]));
    let _watch = it.api.watch("80").await;
    assert_eq!((it.until_known(&["a", "c"]).await, it.touched().await), ((), names(&["b", "c"])));
    let counted = [
        r#"mcs_controller_relists_total{kind="Service"} 2"#,
        r#"mcs_controller_watch_errors_total{cause="expired",kind="Service"} 1"#,
    ];
    assert_eq!(it.counted(), counted);
}

/// Case O43: a list that breaks off takes nothing away, and what it had is not what its successor has.
#[tokio::test(start_paused = true)]
async fn half_a_list_is_no_list() {
    let mut it = Fixture::start::<Service>();
    it.break_off(&list("70", "", json!([service("a"), service("b")]))).await;
    it.api.comes_after(0.8, 0.0).await;
    assert_eq!((it.ready.missing(), it.known()), (vec!["the first list of services".to_owned()], names(&[])));

    it.api.list().await.listed("70", json!([service("a"), service("b")]));
    it.until_known(&["a", "b"]).await;
    let watch = it.api.watch("70").await;
    watch.event("MODIFIED", &service_at("a", "71"));
    watch.event("ERROR", &status(410, None));
    it.break_off(&list("80", "", json!([service("a")]))).await;
    it.api.comes_after(1.6, 0.0).await;
    assert_eq!((it.ready.missing(), it.known()), (Vec::new(), names(&["a", "b"])));

    it.api.list().await.listed("80", json!([service("a"), service("c")]));
    it.until_known(&["a", "c"]).await;
}

/// Case O46: a page whose place in the list has expired leads back to the first, and nothing counts before the last.
#[tokio::test(start_paused = true)]
async fn a_list_that_expires_between_two_pages_is_read_anew() {
    let page = |from: usize, count: usize| -> Value {
        (from..from + count).map(|number| service(&format!("s{number:04}"))).collect()
    };
    let mut it = Fixture::start::<Service>();
    let first = it.api.list().await;
    assert_eq!(
        (first.query("limit"), first.query("continue"), first.query("resourceVersion")),
        (Some("500"), None, None)
    );
    // The last hundred of these are gone when the list is read anew.
    first.page("70", "t1", page(230, 500));
    let second = it.api.list().await;
    assert_eq!(second.query("continue"), Some("t1"));
    second.refused(410, None);
    it.api.comes_after(0.8, 0.0).await;
    assert_eq!(it.ready.missing(), ["the first list of services"]);

    let first = it.api.list().await;
    assert_eq!(first.query("continue"), None);
    first.page("80", "t2", page(0, 500));
    // A server that cannot answer now has not lost the place.
    let second = it.api.list().await;
    assert_eq!(second.query("continue"), Some("t2"));
    second.refused(503, None);
    it.api.comes_after(1.6, 0.0).await;
    assert_eq!(it.ready.missing(), ["the first list of services"]);
    let second = it.api.list().await;
    assert_eq!(second.query("continue"), Some("t2"));
    second.listed("80", page(500, 130));
    it.api.watch("80").await;
    let all: Vec<_> = (0..630).map(|number| format!("s{number:04}")).collect();
    assert_eq!((it.ready.missing(), it.known()), (Vec::new(), all.into_iter().collect()));
}

/// Case O44: null where the schema says a list is an empty one, and takes no other object with it.
#[tokio::test(start_paused = true)]
async fn null_lists_are_empty() {
    let slice = |name: &str, endpoints: Value| {
        json!({
            "metadata": {
                "namespace": "shop", "name": name, "uid": name, "resourceVersion": "1",
                "labels": {"kubernetes.io/service-name": "cart"}
            },
            "addressType": "IPv4", "endpoints": endpoints, "ports": null
        })
    };
    let mut it = Fixture::start::<EndpointSlice>();
    let full = json!([{"addresses": ["10.0.0.1"]}]);
    it.api.list().await.listed("70", json!([slice("cart-a", Value::Null), slice("cart-b", full)]));
    it.api.watch("70").await;
    let cart = ServiceKey::new("shop", "cart").unwrap();
    let mut found: Vec<_> = it.index.export_objects(&cart).slices;
    found.sort_by_key(|slice| slice.metadata.name.clone());
    let endpoints: Vec<_> = found.iter().map(|slice| slice.endpoints.len()).collect();
    assert_eq!((it.ready.missing(), endpoints), (Vec::new(), vec![0, 1]));

    let mut nothing = Fixture::start::<ServiceImport>();
    nothing.api.list().await.listed("70", Value::Null);
    nothing.api.watch("70").await;
    assert_eq!(nothing.ready.missing(), Vec::<String>::new());
}

/// Case O45: a bookmark touches nothing, the watch resumes from it, and an empty token is the end of a list.
#[tokio::test(start_paused = true)]
async fn a_watch_resumes_from_a_bookmark_and_an_empty_token_ends_a_list() {
    let mut it = Fixture::start::<Service>();
    it.api.list().await.listed("70", json!([service("a")]));
    let watch = it.api.watch("70").await;
    it.until_known(&["a"]).await;
    it.touched().await;
    watch.bookmark("77");
    it.clock.advance(Duration::from_secs(50));
    drop(watch);
    let _watch = it.api.watch("77").await;
    assert_eq!((it.touched().await, it.known()), (names(&[]), names(&["a"])));
    assert_eq!(it.counted(), [r#"mcs_controller_relists_total{kind="Service"} 1"#]);
}

/// Case O48: a server that refuses for load is asked no sooner than it says, with growing pauses.
#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_for_load_is_asked_later_and_later() {
    let mut it = Fixture::start::<EndpointSlice>();
    for bound in [0.8, 1.6, 3.2, 6.4, 12.8] {
        it.api.list().await.throttled(1);
        it.api.comes_after(bound, 1.0).await;
        assert_eq!(it.ready.missing(), ["the first list of endpointslices"]);
    }
    it.api.list().await.listed("70", json!([]));
    let _watch = it.api.watch("70").await;
    assert_eq!(it.ready.missing(), Vec::<String>::new());
    let counted = [
        r#"mcs_controller_relists_total{kind="EndpointSlice"} 1"#,
        r#"mcs_controller_watch_errors_total{cause="throttled",kind="EndpointSlice"} 5"#,
    ];
    assert_eq!(it.counted(), counted);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_silently_dead_is_left_and_resumed_where_it_stood() {
    let mut it = Fixture::start::<Service>();
    it.api.list().await.listed("70", json!([]));
    let watch = it.api.watch("70").await;
    let early = WATCH_LIMIT - Duration::from_millis(10);
    // Its last word comes late: that does not give it more time.
    tokio::time::sleep(WATCH_LIMIT - Duration::from_secs(1)).await;
    watch.event("ADDED", &service_at("a", "75"));
    let nothing = tokio::time::timeout(early - (WATCH_LIMIT - Duration::from_secs(1)), it.api.peek()).await;
    assert!(nothing.is_err() && !watch.is_left(), "the watch was left before its time");
    let next = tokio::time::timeout(FIRST_PAUSE + Duration::from_millis(20), it.api.watch("75")).await;
    let _watch = next.expect("a watch that goes on from the last event");
    assert_eq!((watch.is_left(), it.known()), (true, names(&["a"])));
    let counted = [
        r#"mcs_controller_relists_total{kind="Service"} 1"#,
        r#"mcs_controller_watch_errors_total{cause="silent",kind="Service"} 1"#,
    ];
    assert_eq!(it.counted(), counted);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_stays_as_it_was_and_takes_no_other_with_it() {
    let mut bad = service_at("a", "75");
    bad["spec"] = json!("none");
    let mut it = Fixture::start::<Service>();
    it.api.list().await.listed("70", json!([service("a")]));
    let watch = it.api.watch("70").await;
    watch.event("MODIFIED", &bad);
    watch.event("ADDED", &service_at("b", "76"));
    it.until_known(&["a", "b"]).await;

    watch.event("ERROR", &status(410, None));
    it.api.list().await.listed("80", json!([bad, service("c")]));
    it.until_known(&["a", "c"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_without_a_version_is_read_again_with_pauses() {
    let mut it = Fixture::start::<Service>();
    for bound in [0.8, 1.6, 3.2] {
        it.api.list().await.listed("", json!([service("a")]));
        it.api.comes_after(bound, 0.0).await;
    }
    assert_eq!(it.known(), names(&["a"]));
}

/// Of a namespace that goes nothing is left, and that of its name is read anew.
#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_gone_has_nothing_and_is_not_watched() {
    let mut it = Fixture::start::<Service>();
    it.api.list().await.listed("70", json!([service("a")]));
    let watch = it.api.watch("70").await;
    it.until_known(&["a"]).await;
    it.there.send_replace(Some(false));
    it.until_known(&[]).await;
    assert!(watch.is_left());
    it.there.send_replace(Some(true));
    it.api.list().await.listed("80", json!([service_at("b", "75")]));
    it.until_known(&["b"]).await;
}

/// A Role goes with its namespace: a controller that starts meanwhile has all others to serve.
#[tokio::test(start_paused = true)]
async fn only_a_namespace_that_ends_is_not_waited_for_when_it_may_not_be_read() {
    let mut it = Fixture::start_in::<Service>(Some("shop"));
    it.api.list().await.refused(403, None);
    it.api.comes_after(0.8, 0.0).await;
    assert_eq!(it.ready.missing(), ["the first list of services in shop"]);
    it.index.apply(ending("shop"));
    it.api.list().await.refused(503, None);
    it.api.comes_after(1.6, 0.0).await;
    assert_eq!(it.ready.missing(), ["the first list of services in shop"]);
    it.api.list().await.refused(403, None);
    it.api.comes_after(3.2, 0.0).await;
    assert_eq!((it.ready.missing(), it.known()), (Vec::new(), names(&[])));
}

/// A namespace that is being deleted.
fn ending(name: &str) -> Namespace {
    let metadata = json!({"name": name, "uid": "u", "resourceVersion": "9", "deletionTimestamp": "2026-01-01T00:00:00Z"});
    serde_json::from_value(json!({"metadata": metadata})).unwrap()
}

#[test]
fn every_failure_has_a_cause_of_the_closed_set() {
    use mcs_runtime::kube::follow::CAUSES;
    let refused = |code: u16| {
        let status = status(code, None);
        Problem::Call(kube::Error::Api(serde_json::from_value(status).unwrap()))
    };
    let unread = || serde_json::from_str::<Value>("{").unwrap_err();
    let problems = [
        refused(410),
        refused(429),
        refused(503),
        refused(403),
        Problem::Call(kube::Error::LinesCodecMaxLineLengthExceeded),
        Problem::Call(kube::Error::SerdeError(unread())),
        Problem::Silent,
        Problem::Cut,
    ];
    assert_eq!(problems.each_ref().map(Problem::label), CAUSES);
    assert_eq!(with_causes(&Problem::NoVersion), "the list has no resource version");
    assert_eq!(Problem::NoVersion.label(), "unreadable");
}

/// The watch of one kind.
struct Fixture {
    api: ApiServer,
    index: Arc<Index>,
    ready: Ready,
    clock: Arc<ManualClock>,
    counters: prometheus::Registry,
    there: watch::Sender<Option<bool>>,
    _running: Shutdown,
}

impl Fixture {
    fn start<K>() -> Self
    where
        K: Kind + DeserializeOwned + Resource<Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Self::start_in::<K>(None)
    }

    fn start_in<K>(namespace: Option<&str>) -> Self
    where
        K: Kind + DeserializeOwned + Resource<Scope = k8s_openapi::NamespaceResourceScope>,
    {
        let (api, client) = api_server();
        let (index, clock, running) =
            (Arc::<Index>::default(), Arc::<ManualClock>::default(), Shutdown::manual());
        let ready = Ready::new(running.watch());
        let counters = prometheus::Registry::new();
        let watches = Watches {
            client,
            index: Arc::clone(&index),
            clock: clock.clone(),
            metrics: Metrics::register(&counters, Arc::clone(&index), clock.clone(), []).unwrap(),
            ready: ready.clone(),
            stop: running.watch(),
        };
        let there = watch::Sender::new(Some(true));
        let scope = namespace.map(|name| name.parse().unwrap());
        tokio::spawn(watches.watch::<K>(scope, &there));
        Self { api, index, ready, clock, counters, there, _running: running }
    }

    /// Answers the next list with its first half.
    async fn break_off(&mut self, whole: &Value) {
        let whole = whole.to_string();
        self.api.list().await.open().text(whole[..whole.len() / 2].to_owned());
    }

    /// The Services that are known.
    fn known(&self) -> BTreeSet<String> {
        self.index.all_exports().iter().map(|key| key.name.to_string()).collect()
    }

    async fn until_known(&self, expected: &[&str]) {
        let known = async {
            while self.known() != names(expected) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let known = tokio::time::timeout(Duration::from_secs(60), known).await;
        known.unwrap_or_else(|_| panic!("{:?} known, not {expected:?}", self.known()));
    }

    /// The Services whose exports were queued since the last call.
    async fn touched(&self) -> BTreeSet<String> {
        let touched = Mutex::new(BTreeSet::new());
        let work = self.index.exports.work(self.clock.as_ref(), 1, |key| {
            touched.lock().unwrap().insert(key.name.to_string());
            async { Outcome::Done }
        });
        // It has no end of its own.
        let _ = tokio::time::timeout(Duration::from_millis(1), work).await;
        touched.into_inner().unwrap()
    }

    /// What was counted of lists and watches.
    fn counted(&self) -> Vec<String> {
        let text = prometheus::TextEncoder::new().encode_to_string(&self.counters.gather()).unwrap();
        let of_watches = |line: &&str| {
            (line.starts_with("mcs_controller_relists") || line.starts_with("mcs_controller_watch"))
                && !line.ends_with(" 0")
        };
        text.lines().filter(of_watches).map(str::to_owned).collect()
    }
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn service(name: &str) -> Value {
    service_at(name, "1")
}

fn service_at(name: &str, version: &str) -> Value {
    json!({
        "kind": "Service", "apiVersion": "v1",
        "metadata": {"namespace": "shop", "name": name, "uid": format!("uid-of-{name}"), "resourceVersion": version}
    })
}
