//! Events: what a person sees at the end of `kubectl describe`.
//!
//! An Event is told when what it says is new for its object, again when that has changed, and again while it lasts, since
//! Kubernetes drops Events after an hour. Repeating it on every round would only fill the API server.
//!
//! They are recorded beside all other work: an API server that takes none, or answers none, holds up nothing else. One that
//! was not recorded, or found no place among those that wait, is told again while what it says lasts.
//!
//! Rejected: one recorder of kube for all Events. It takes Events of one object and reason for one series, of which it
//! tells the first note only.

use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use mcs_core::names::EVENT_CONTROLLER;
use mcs_core::time::{Clock, Timestamp};
use mcs_core::timing::EVENT_REPEAT;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::{self, error::TrySendError};
use tracing::warn;

/// How long an Event may take to be recorded.
const LIMIT: Duration = Duration::from_secs(2);
/// How long after a failure an Event may be told again: a full API server is not to be asked with every change.
const RETRY: Duration = Duration::from_secs(60);

/// How many Events are recorded at the same time.
const AT_ONCE: usize = 4;
/// How many Events may wait to be recorded: more than can be read, and some hundred KB at most.
const WAITING: usize = 1_000;

/// What is remembered of objects, so that an Event is told once, in number of (object, reason).
const REMEMBERED: usize = 10_000;

/// Tells Events. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Events {
    clock: Arc<dyn Clock>,
    told: Arc<Mutex<Told>>,
    waiting: mpsc::Sender<Waiting>,
}

/// An Event that is to be recorded.
struct Waiting {
    topic: Topic,
    object: ObjectReference,
    event: Event,
}

/// What an Event is about: the UID of its object, and its reason.
type Topic = (String, &'static str);

/// The last note on each topic, and when it is to be told again.
#[derive(Debug, Default)]
struct Told(BTreeMap<Topic, (String, Timestamp)>);

impl Events {
    /// Events of the controller instance `instance`, and what records them for as long as it is polled.
    pub(crate) fn new(
        client: Client,
        instance: &str,
        clock: Arc<dyn Clock>,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let reporter =
            Reporter { controller: EVENT_CONTROLLER.to_owned(), instance: Some(instance.to_owned()) };
        let (waiting, mut receiver) = mpsc::channel(WAITING);
        let events = Self { clock, told: Arc::default(), waiting };
        let recording = events.clone();
        let record = async move {
            let each = stream::poll_fn(|context| receiver.poll_recv(context));
            // A recorder each; see the module.
            let recorder = || Recorder::new(client.clone(), reporter.clone());
            each.for_each_concurrent(AT_ONCE, |event| recording.record(recorder(), event)).await;
        };
        (events, record)
    }

    /// A warning about `object`, unless it was the last that was told of it for `reason`, not long ago. Answers when it
    /// is to be looked at again whether it is to be told again, if it lasts.
    pub(crate) fn warn(&self, object: &ObjectReference, reason: &'static str, note: String) -> Timestamp {
        let topic = topic(object, reason);
        let now = self.clock.elapsed();
        if let Err(later) = self.told().take(topic.clone(), &note, now) {
            return later;
        }
        let event = Event {
            type_: EventType::Warning,
            reason: reason.to_owned(),
            note: Some(note.chars().take(1_000).collect()),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        warn!(kind = object.kind, namespace = object.namespace, name = object.name, reason, note, "event");
        let waiting = Waiting { topic, object: object.clone(), event };
        if let Err(TrySendError::Full(waiting) | TrySendError::Closed(waiting)) =
            self.waiting.try_send(waiting)
        {
            self.failed(waiting.topic, reason, "too many wait to be recorded");
        }
        // It is not known yet whether it will be recorded.
        now + RETRY
    }

    async fn record(&self, recorder: Recorder, waiting: Waiting) {
        let Waiting { topic, object, event } = waiting;
        let problem = match tokio::time::timeout(LIMIT, recorder.publish(&event, &object)).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("the API server did not answer within {LIMIT:?}"),
        };
        self.failed(topic, &event.reason, &problem);
    }

    fn failed(&self, topic: Topic, reason: &str, problem: &str) {
        warn!(problem, reason, "event not recorded, it is told again while what it says lasts");
        self.told().failed(topic, self.clock.elapsed());
    }

    /// What was told for `reason` of `object` is over: told again when it comes back.
    pub(crate) fn over(&self, object: &ObjectReference, reason: &'static str) {
        self.told().0.remove(&topic(object, reason));
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Told {
    /// Takes note that `note` is told now, where it is to be; otherwise answers when that will be.
    fn take(&mut self, topic: Topic, note: &str, now: Timestamp) -> Result<(), Timestamp> {
        match self.0.get(&topic) {
            Some((known, again)) if known == note && !again.has_passed(now) => return Err(*again),
            Some(_) => {}
            None if self.0.len() >= REMEMBERED => self.0.clear(),
            None => {}
        }
        self.0.insert(topic, (note.to_owned(), now + EVENT_REPEAT));
        Ok(())
    }

    /// What was to be told was not: it may be later.
    fn failed(&mut self, topic: Topic, now: Timestamp) {
        if let Some((_, at)) = self.0.get_mut(&topic) {
            *at = now + RETRY;
        }
    }
}

fn topic(object: &ObjectReference, reason: &'static str) -> Topic {
    (object.uid.clone().unwrap_or_default(), reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcs_core::time::ManualClock;
    use mcs_runtime::kube::testing::api_server;
    use serde_json::json;

    const NOW: Timestamp = Timestamp::from_millis(1_000);
    const TICK: Duration = Duration::from_nanos(1);

    #[test]
    fn an_event_is_told_when_it_is_new_or_changed_and_half_an_hour_later_while_it_lasts() {
        let mut told = Told::default();
        let again = NOW + EVENT_REPEAT;
        assert_eq!(EVENT_REPEAT, Duration::from_secs(1_800));
        let before = Timestamp::from_nanos(again.as_nanos() - 1);
        assert_eq!(told.take(cart("ExportFailed"), "65 labels", NOW), Ok(()));
        assert_eq!(told.take(cart("EndpointsDropped"), "1 endpoint", NOW), Ok(()));
        assert_eq!(told.take(cart("ExportFailed"), "65 labels", before), Err(again));
        assert_eq!(told.take(cart("EndpointsDropped"), "2 endpoints", before), Ok(()));
        assert_eq!(told.take(cart("ExportFailed"), "65 labels", again), Ok(()));
        let third = again + EVENT_REPEAT;
        assert_eq!(told.take(cart("ExportFailed"), "65 labels", again + TICK), Err(third));
        assert_eq!(told.take(cart("EndpointsDropped"), "2 endpoints", again), Err(before + EVENT_REPEAT));
        assert_eq!(told.take(cart("ExportFailed"), "65 labels", third + TICK), Ok(()));
    }

    #[test]
    fn an_event_that_was_not_recorded_is_told_again_a_minute_later() {
        let mut told = Told::default();
        assert_eq!(told.take(cart("ExportFailed"), "65 labels", NOW), Ok(()));
        told.failed(cart("ExportFailed"), NOW);
        let again = NOW + Duration::from_secs(60);
        let before = Timestamp::from_nanos(again.as_nanos() - 1);
        assert_eq!(told.take(cart("ExportFailed"), "65 labels", before), Err(again));
        assert_eq!(told.take(cart("ExportFailed"), "65 labels", again), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_takes_no_events_holds_up_nobody_and_is_told_again_a_minute_later() {
        let (mut api, client) = api_server();
        let clock = Arc::<ManualClock>::default();
        let (events, record) = Events::new(client, "one", clock.clone());
        tokio::spawn(record);
        let later = clock.elapsed() + RETRY;
        let warn = |name: &str| events.warn(&object(name), "ExportFailed", "65 labels".to_owned());
        let names: Vec<_> = (0..AT_ONCE).map(|number| format!("cart-{number}")).collect();
        // Nobody is asked before all are told, and the last one waits for those that get no answer.
        assert_eq!(names.iter().map(|name| warn(name)).collect::<Vec<_>>(), [later; AT_ONCE]);
        assert_eq!(warn("pay"), later);
        let mut hang = Vec::new();
        for name in &names {
            let mut asked = api.asked().await;
            assert_eq!(asked.body().await["regarding"]["name"], **name);
            hang.push(asked);
        }
        let mut asked = api.asked().await;
        let mut event = asked.body().await;
        assert_eq!(event["regarding"]["name"], "pay");
        event["metadata"] = json!({"name": "pay.1", "namespace": "shop"});
        asked.json(201, &event);

        clock.advance(RETRY);
        assert_eq!(warn(&names[0]), later + RETRY);
        assert_eq!(api.asked().await.body().await["regarding"]["name"], *names[0]);
        assert_eq!(warn("pay"), Timestamp::ZERO + EVENT_REPEAT);
    }

    #[tokio::test]
    async fn what_finds_no_place_to_wait_is_told_again_a_minute_later() {
        let (_api, client) = api_server();
        let clock = Arc::<ManualClock>::default();
        let (events, _record) = Events::new(client, "one", clock);
        let warn = |name: &str| events.warn(&object(name), "ExportFailed", "65 labels".to_owned());
        for number in 0..WAITING {
            warn(&number.to_string());
        }
        warn("cart");
        let again = |name: &str| events.told().0[&topic(&object(name), "ExportFailed")].1;
        assert_eq!([again("0"), again("cart")], [Timestamp::ZERO + EVENT_REPEAT, Timestamp::ZERO + RETRY]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut told = Told::default();
        for number in 0..=REMEMBERED {
            assert_eq!(told.take((number.to_string(), "ExportFailed"), "65 labels", NOW), Ok(()));
        }
        assert_eq!(told.0.len(), 1);
    }

    fn object(name: &str) -> ObjectReference {
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Service".to_owned()),
            namespace: Some("shop".to_owned()),
            name: Some(name.to_owned()),
            uid: Some(format!("uid-of-{name}")),
            ..ObjectReference::default()
        }
    }

    fn cart(reason: &'static str) -> Topic {
        ("uid-of-cart".to_owned(), reason)
    }
}
