//! Events: what a person sees at the end of `kubectl describe`.
//!
//! An Event is told when what it says is new for its object, and again when it has changed; repeating it on every
//! round would only fill the API server.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use mcs_core::names::EVENT_CONTROLLER;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tracing::warn;

/// How long an Event may take to be recorded; what waits for it is more important.
const LIMIT: Duration = Duration::from_secs(2);

/// What is remembered of objects, so that an Event is told once, in number of (object, reason).
const REMEMBERED: usize = 10_000;

/// Tells Events. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Events {
    recorder: Recorder,
    told: Arc<Mutex<BTreeMap<(String, &'static str), String>>>,
}

impl Events {
    /// Events of the controller instance `instance`.
    pub(crate) fn new(client: Client, instance: &str) -> Self {
        let reporter =
            Reporter { controller: EVENT_CONTROLLER.to_owned(), instance: Some(instance.to_owned()) };
        Self { recorder: Recorder::new(client, reporter), told: Arc::default() }
    }

    /// A warning about `object`, unless it was the last that was told of it for `reason`.
    pub(crate) async fn warn(&self, object: &ObjectReference, reason: &'static str, note: String) {
        let key = (object.uid.clone().unwrap_or_default(), reason);
        if !self.is_new(key.clone(), &note) {
            return;
        }
        let event = Event {
            type_: EventType::Warning,
            reason: reason.to_owned(),
            note: Some(note.chars().take(1_000).collect()),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        warn!(kind = object.kind, namespace = object.namespace, name = object.name, reason, note, "event");
        let problem = match tokio::time::timeout(LIMIT, self.recorder.publish(&event, object)).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("the API server did not answer within {LIMIT:?}"),
        };
        warn!(problem, reason, "event not recorded, it is told again with the next change");
        self.told.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }

    /// What was told for `reason` of `object` is over: told again when it comes back.
    pub(crate) fn over(&self, object: &ObjectReference, reason: &'static str) {
        let key = (object.uid.clone().unwrap_or_default(), reason);
        self.told.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }

    fn is_new(&self, key: (String, &'static str), note: &str) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.get(&key).is_some_and(|known| known == note) {
            return false;
        }
        if told.len() >= REMEMBERED {
            told.clear();
        }
        told.insert(key, note.to_owned());
        true
    }
}
