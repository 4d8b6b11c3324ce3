//! Events: what a person sees at the end of `kubectl describe`.
//!
//! An Event is told when what it says is new for its object, again when that has changed, and again while it lasts, since
//! Kubernetes drops Events after an hour. Repeating it on every round would only fill the API server.
//!
//! Rejected: one recorder of kube for all Events. It takes Events of one object and reason for one series, of which it
//! tells the first note only.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use mcs_core::names::EVENT_CONTROLLER;
use mcs_core::time::{Clock, Timestamp};
use mcs_core::timing::EVENT_REPEAT;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tracing::warn;

/// How long an Event may take to be recorded; what waits for it is more important.
const LIMIT: Duration = Duration::from_secs(2);
/// How long after a failure an Event may be told again: a full API server is not to be asked with every change.
const RETRY: Duration = Duration::from_secs(60);

/// What is remembered of objects, so that an Event is told once, in number of (object, reason).
const REMEMBERED: usize = 10_000;

/// Tells Events. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Events {
    client: Client,
    reporter: Reporter,
    clock: Arc<dyn Clock>,
    told: Arc<Mutex<Told>>,
}

/// What an Event is about: the UID of its object, and its reason.
type Topic = (String, &'static str);

/// The last note on each topic, and when it is to be told again.
#[derive(Debug, Default)]
struct Told(BTreeMap<Topic, (String, Timestamp)>);

impl Events {
    /// Events of the controller instance `instance`.
    pub(crate) fn new(client: Client, instance: &str, clock: Arc<dyn Clock>) -> Self {
        let reporter =
            Reporter { controller: EVENT_CONTROLLER.to_owned(), instance: Some(instance.to_owned()) };
        Self { client, reporter, clock, told: Arc::default() }
    }

    /// A warning about `object`, unless it was the last that was told of it for `reason`, not long ago. Answers when it
    /// is to be told again if it lasts.
    pub(crate) async fn warn(
        &self,
        object: &ObjectReference,
        reason: &'static str,
        note: String,
    ) -> Timestamp {
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
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        let problem = match tokio::time::timeout(LIMIT, recorder.publish(&event, object)).await {
            Ok(Ok(())) => return now + EVENT_REPEAT,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("the API server did not answer within {LIMIT:?}"),
        };
        warn!(problem, reason, "event not recorded, it is told again while what it says lasts");
        self.told().failed(topic, now)
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

    /// What was to be told was not; answers when it may be.
    fn failed(&mut self, topic: Topic, now: Timestamp) -> Timestamp {
        let again = now + RETRY;
        if let Some((_, at)) = self.0.get_mut(&topic) {
            *at = again;
        }
        again
    }
}

fn topic(object: &ObjectReference, reason: &'static str) -> Topic {
    (object.uid.clone().unwrap_or_default(), reason)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let again = told.failed(cart("ExportFailed"), NOW);
        assert_eq!(again, NOW + Duration::from_secs(60));
        let before = Timestamp::from_nanos(again.as_nanos() - 1);
        assert_eq!(told.take(cart("ExportFailed"), "65 labels", before), Err(again));
        assert_eq!(told.take(cart("ExportFailed"), "65 labels", again), Ok(()));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut told = Told::default();
        for number in 0..=REMEMBERED {
            assert_eq!(told.take((number.to_string(), "ExportFailed"), "65 labels", NOW), Ok(()));
        }
        assert_eq!(told.0.len(), 1);
    }

    fn cart(reason: &'static str) -> Topic {
        ("uid-of-cart".to_owned(), reason)
    }
}
