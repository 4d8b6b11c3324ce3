//! Reconciles each ServiceExport: tells the outbox what the cluster exports, and the user how it stands.
//!
//! [`feed`] is pure bookkeeping and writes nothing; it runs for every export before a lead makes its first call.
//! [`reconcile`] feeds, and then writes what the API server must hold: the ServiceExport that a label asks for, the
//! finalizer, the conditions, Events. [`reconcile_nameless`] does so for ServiceExports whose name no Service can have.

use crate::api::ServiceExport;
use crate::facts::{self, Content, ExportInput};
use crate::index::{ExportObjects, Name};
use crate::labels;
use crate::lead::{Deletion, Lead};
use crate::queue::Outcome;
use crate::writes::WriteFailed;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Resource, ResourceExt};
use mcs_core::conditions::{Condition, ExportFacts, Progress, Validity, conditions, ending};
use mcs_core::ids::ServiceKey;
use mcs_core::model::{Conflict, MemberState, Section};
use mcs_core::names::{
    CONDITION_CONFLICT, CONDITION_READY, CONDITION_VALID, EVENT_ENDPOINTS_DROPPED, EVENT_EXPORT_FAILED,
    EVENT_FQDN_SKIPPED, FINALIZER_EXPORT,
};
use mcs_core::outbox;
use mcs_core::time::{Timestamp, WallMillis, WallTime};
use serde_json::json;
use std::fmt::Display;
use std::sync::Arc;
use tracing::{debug, info, warn};

/// How many dropped endpoints an Event names.
const NAMED_DROPPED: usize = 5;

/// Tells the outbox and the view what the cluster exports of `key` now; if that is new, since `changed_at`.
pub(crate) fn feed(
    lead: &Lead,
    key: &ServiceKey,
    changed_at: Option<WallMillis>,
) -> (ExportObjects, Option<ExportInput>) {
    let objects = lead.index.export_objects(key);
    let watched = lead.config.watches(&key.namespace);
    let input = if watched { facts::exported(&objects) } else { None };
    match input.as_ref().and_then(|input| input.content.as_ref()) {
        Some(Content { spec, endpoints, .. }) => {
            let exported = {
                let mut outbox = lead.outbox();
                outbox.set(key.clone(), Arc::clone(spec), Arc::clone(endpoints), changed_at);
                outbox.is_exported(key)
            };
            lead.view().set_own(key.clone(), exported.then(|| Arc::clone(endpoints)));
        }
        None => {
            lead.view().set_own(key.clone(), None);
            lead.outbox().unset(key);
        }
    }
    (objects, input)
}

/// One round of work on the export of `key`.
pub(crate) async fn reconcile(lead: &Lead, key: ServiceKey) -> Outcome {
    let done = try_reconcile(lead, &key).await;
    ended(lead, &key, done)
}

/// One round of work on the ServiceExport `name`, which is no name that a Service can have: it says so, and that is all.
/// No registry hears of it, so that it gets no finalizer.
pub(crate) async fn reconcile_nameless(lead: &Lead, name: Name) -> Outcome {
    let done = try_reconcile_nameless(lead, &name).await;
    let (namespace, name) = name;
    ended(lead, &format_args!("{namespace}/{name}"), done)
}

async fn try_reconcile_nameless(lead: &Lead, name: &Name) -> Result<Outcome, WriteFailed> {
    let watched = name.0.parse().is_ok_and(|namespace| lead.config.watches(&namespace));
    let Some(export) = lead.index.service_export(name).filter(|_| watched) else {
        return Ok(Outcome::Done);
    };
    if export.metadata.deletion_timestamp.is_some() {
        remove_finalizer(lead, &export).await?;
        return Ok(Outcome::Done);
    }
    let facts = ExportFacts { validity: Validity::NoService, progress: Progress::Pending, conflicts: None };
    say(lead, &export, |previous, generation, now| conditions(&facts, previous, generation, now)).await?;
    Ok(Outcome::Done)
}

/// What became of a round, of which failures are noted.
fn ended(lead: &Lead, service: &dyn Display, done: Result<Outcome, WriteFailed>) -> Outcome {
    let failed = match done {
        Ok(outcome) => {
            lead.failures.over("export", service);
            return outcome;
        }
        Err(failed) => failed,
    };
    if failed.is_stale() {
        debug!(%service, error = %failed, "export is looked at again");
    } else {
        let error = failed.to_string();
        if lead.failures.is_new("export", service, &error) {
            warn!(%service, error, "export not reconciled, it is tried again");
        }
        lead.metrics.reconcile_failed("export");
    }
    Outcome::Failed { asked: failed.retry_after() }
}

async fn try_reconcile(lead: &Lead, key: &ServiceKey) -> Result<Outcome, WriteFailed> {
    let (objects, input) = feed(lead, key, lead.clock.wall_millis());
    lead.outbox_changed.notify_one();
    crate::subscription::queue_dirty(lead);
    if !lead.config.watches(&key.namespace) {
        return Ok(Outcome::Done);
    }
    if labels::reconcile(lead, key, &objects).await? {
        // The answer has queued the key again, with what is there now.
        return Ok(Outcome::Done);
    }
    if let (Some(export), None) = (&objects.export, &input) {
        return finish(lead, key, export).await;
    }
    // Whatever is deleted later is another deletion, which waits from its own beginning.
    lead.finalized(key);
    match (&objects.export, &input) {
        (Some(export), Some(input)) => keep(lead, key, export, input).await,
        _ => Ok(Outcome::Done),
    }
}

/// Brings finalizer, conditions and Events of a ServiceExport up to date, and looks again when what its Events say is to
/// be said again.
async fn keep(
    lead: &Lead,
    key: &ServiceKey,
    export: &ServiceExport,
    input: &ExportInput,
) -> Result<Outcome, WriteFailed> {
    let export = match export.finalizers().iter().any(|finalizer| finalizer == FINALIZER_EXPORT) {
        true => export.clone(),
        false => add_finalizer(lead, export).await?,
    };
    let facts = ExportFacts {
        validity: input.validity,
        progress: progress(lead, key),
        conflicts: conflicts(lead, key),
    };
    say(lead, &export, |previous, generation, now| conditions(&facts, previous, generation, now)).await?;
    let again = tell(lead, &export, &facts, input.content.as_ref());
    Ok(again.map_or(Outcome::Done, Outcome::At))
}

/// Writes the conditions that `judge` makes of the present ones, the export's generation and the time, where they differ.
async fn say(
    lead: &Lead,
    export: &ServiceExport,
    judge: impl FnOnce(&[Condition], i64, WallTime) -> Vec<Condition>,
) -> Result<(), WriteFailed> {
    let previous = export.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let previous = facts::conditions(previous);
    let generation = export.metadata.generation.unwrap_or_default();
    let wanted = ours(judge(&previous, generation, lead.clock.wall()));
    if wanted != ours(previous) {
        let conditions: Vec<_> = wanted.iter().map(facts::condition).collect();
        lead.writer().apply_status(export, json!({ "conditions": conditions })).await?;
    }
    Ok(())
}

/// The conditions that this controller writes; others belong to other writers.
fn ours(conditions: Vec<Condition>) -> Vec<Condition> {
    let ours = [CONDITION_VALID, CONDITION_READY, CONDITION_CONFLICT];
    conditions.into_iter().filter(|condition| ours.contains(&condition.kind.as_str())).collect()
}

/// On what the exports of the Service differ; none while the id in the merge is another cluster's.
fn conflicts(lead: &Lead, key: &ServiceKey) -> Option<Vec<Conflict>> {
    let view = lead.view();
    let ours = |section: &Section| section.uid == lead.config.member.uid;
    view.own_section().is_none_or(ours).then(|| view.own_conflicts(key))?.map(<[Conflict]>::to_vec)
}

fn progress(lead: &Lead, key: &ServiceKey) -> Progress {
    let expired =
        |section: &Section| section.state == MemberState::Expired && section.uid == lead.config.member.uid;
    let told_expired = lead.view().own_section().is_some_and(expired);
    let outbox = lead.outbox();
    let expired = told_expired || outbox.lease_has_ended(lead.clock.elapsed());
    if let Some(reason) = outbox.turned_away() {
        return Progress::Failed { reason: reason.to_owned() };
    }
    match outbox.progress(key) {
        Some(outbox::Progress::Refused(refusal)) => Progress::Failed { reason: refusal.to_string() },
        Some(outbox::Progress::Accepted | outbox::Progress::Pending) if expired => Progress::LeaseExpired,
        Some(outbox::Progress::Accepted) if outbox.is_registered() => Progress::Ready,
        Some(outbox::Progress::Accepted | outbox::Progress::Pending) | None => Progress::Pending,
    }
}

/// Tells Events of what is wrong; answers when the first of them is to be told again.
fn tell(
    lead: &Lead,
    export: &ServiceExport,
    facts: &ExportFacts,
    content: Option<&Content>,
) -> Option<Timestamp> {
    let object = reference(export);
    let mut again = Vec::new();
    match &facts.progress {
        Progress::Failed { reason } if facts.validity == Validity::Valid => {
            let note = format!("the export is not taken: {reason}");
            again.push(lead.events.warn(&object, EVENT_EXPORT_FAILED, note));
        }
        Progress::Failed { .. } | Progress::Pending | Progress::Ready | Progress::LeaseExpired => {
            lead.events.over(&object, EVENT_EXPORT_FAILED);
        }
    }
    let dropped = content.map_or(&[][..], |content| &content.dropped);
    if dropped.is_empty() {
        lead.events.over(&object, EVENT_ENDPOINTS_DROPPED);
    } else {
        let named: Vec<_> = dropped.iter().take(NAMED_DROPPED).map(ToString::to_string).collect();
        let note = format!("{} endpoints are not exported: {}", dropped.len(), named.join("; "));
        again.push(lead.events.warn(&object, EVENT_ENDPOINTS_DROPPED, note));
    }
    if content.is_some_and(|content| content.has_names) {
        let note = "EndpointSlices of address type FQDN are not exported, only addresses are".to_owned();
        again.push(lead.events.warn(&object, EVENT_FQDN_SKIPPED, note));
    } else {
        lead.events.over(&object, EVENT_FQDN_SKIPPED);
    }
    again.into_iter().min()
}

/// Lets a ServiceExport that is being deleted go, once the registry has let the export go, or after a bounded wait:
/// a namespace must not hang on a registry that is away, and the next sync removes the export all the same. A wait that
/// is longer than usual shows in its conditions, and not in an Event, which a namespace that ends does not take.
async fn finish(lead: &Lead, key: &ServiceKey, export: &ServiceExport) -> Result<Outcome, WriteFailed> {
    if !export.finalizers().iter().any(|finalizer| finalizer == FINALIZER_EXPORT) {
        return Ok(Outcome::Done);
    }
    let Deletion { told_at, until } = lead.deletion(key, export);
    let now = lead.clock.elapsed();
    let gone = lead.outbox().is_gone(key);
    if !gone && !until.has_passed(now) {
        if !told_at.has_passed(now) {
            return Ok(Outcome::At(told_at.min(until)));
        }
        say(lead, export, ending).await?;
        return Ok(Outcome::At(until));
    }
    info!(service = %key, confirmed = gone, "export ended");
    remove_finalizer(lead, export).await?;
    Ok(Outcome::Done)
}

async fn add_finalizer(lead: &Lead, export: &ServiceExport) -> Result<ServiceExport, WriteFailed> {
    let add = match &export.metadata.finalizers {
        Some(finalizers) if !finalizers.is_empty() => {
            json!([{ "op": "add", "path": "/metadata/finalizers/-", "value": FINALIZER_EXPORT }])
        }
        _ => json!([{ "op": "add", "path": "/metadata/finalizers", "value": [FINALIZER_EXPORT] }]),
    };
    lead.writer().patch(export, add).await
}

async fn remove_finalizer(lead: &Lead, export: &ServiceExport) -> Result<(), WriteFailed> {
    let place = export.finalizers().iter().position(|finalizer| finalizer == FINALIZER_EXPORT);
    let Some(place) = place else { return Ok(()) };
    let remove = json!([{ "op": "remove", "path": format!("/metadata/finalizers/{place}") }]);
    match lead.writer().patch(export, remove).await {
        Ok(_) | Err(WriteFailed::Gone) => Ok(()),
        Err(failed) => Err(failed),
    }
}

fn reference(export: &ServiceExport) -> ObjectReference {
    export.object_ref(&())
}
