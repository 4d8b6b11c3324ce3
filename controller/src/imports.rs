//! Carries out the plan of each import: what the view decides, against what exists.
//!
//! Level-triggered: a round reads the objects from the index, runs the steps of the plan in order, and plans again
//! with the answers, until no step is left. What changes meanwhile queues the key again. An update that the API server
//! refuses does not keep the rest from being done: stale endpoints would cost more than a stale port or label.

mod round;

use crate::api::ServiceImport;
use crate::facts;
use crate::index::{ImportObjects, NamespaceState};
use crate::lead::{IMPORT_WRITES, Lead};
use crate::queue::Outcome;
use crate::writes::{WriteFailed, Writer, Written};
use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ObjectMeta;
use kube::{Resource, ResourceExt};
use mcs_core::ids::ServiceKey;
use mcs_core::model::IpFamily;
use mcs_core::names;
use mcs_core::plan::{
    DerivedService, Existing, Identity, Kind, Ownership, PlanConfig, Problem, Step, WantedSlice, plan,
};
use mcs_core::time::WallMillis;
use mcs_core::view::{Applied, Decision, Source};
use round::{Round, Slice, Update};
use serde_json::json;
use std::collections::BTreeSet;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tracing::{debug, info, warn};

/// An import that has not settled after this many plans of one round does not settle.
const ROUNDS: usize = 8;
/// The reasons of Events about an import that is not complete.
const PROBLEMS: [&str; 4] = [
    names::EVENT_IMPORT_SKIPPED,
    names::EVENT_SERVICE_SKIPPED,
    names::EVENT_SLICE_SKIPPED,
    names::EVENT_IMPORT_FAILED,
];
/// What a plan is made with that no family matters to.
const BOTH_FAMILIES: [IpFamily; 2] = [IpFamily::V4, IpFamily::V6];
/// What only somebody else can mend is looked at again after this long.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// Tells the view what is applied, from the objects that exist.
pub(crate) fn seed(lead: &Lead) {
    let (imports, slices) = lead.index.all_imports();
    let named =
        imports.iter().filter_map(|import| ServiceKey::new(&import.namespace()?, &import.name_any()).ok());
    let labelled = slices.iter().filter_map(|slice| {
        ServiceKey::new(&slice.namespace()?, slice.labels().get(names::LABEL_SERVICE_NAME)?).ok()
    });
    let keys: BTreeSet<_> = named.chain(labelled).filter(|key| lead.config.watches(&key.namespace)).collect();
    for key in keys {
        let applied = Applied::of(&read(lead, &key).1);
        lead.view().seed(key.clone(), applied);
        lead.index.imports.add(key);
    }
}

/// One round of work on the import of `key`.
pub(crate) async fn reconcile(lead: &Lead, key: ServiceKey) -> Outcome {
    if !lead.config.watches(&key.namespace) {
        return Outcome::Done;
    }
    match try_reconcile(lead, &key).await {
        Ok(outcome) => {
            if matches!(outcome, Outcome::Done | Outcome::At(_)) {
                lead.failures.over("import", &key);
            }
            outcome
        }
        Err(error) if error.is_stale() => {
            debug!(service = %key, %error, "import is planned again");
            Outcome::Failed { asked: error.retry_after() }
        }
        Err(error) => {
            if lead.failures.is_new("import", &key, &error.to_string()) {
                warn!(service = %key, %error, "import not applied, it is tried again");
            }
            lead.metrics.reconcile_failed("import");
            if let WriteFailed::Refused { code, message } = &error {
                tell_refused(lead, &key, *code, message);
            }
            Outcome::Failed { asked: error.retry_after() }
        }
    }
}

async fn try_reconcile(lead: &Lead, key: &ServiceKey) -> Result<Outcome, WriteFailed> {
    let mut round = Round::default();
    for _ in 0..ROUNDS {
        let (objects, existing) = read(lead, key);
        let decision = {
            let mut view = lead.view();
            view.applied(key.clone(), Applied::of(&existing));
            view.decide(key)
        };
        let families = families(lead, key, &decision, &existing).await?;
        let config = PlanConfig {
            import_refused: round.has_refused(Update::Import),
            ..lead.plan_config(families.clone().unwrap_or_else(|| BOTH_FAMILIES.to_vec()))
        };
        let (mut writes, reports): (Vec<_>, Vec<_>) =
            plan(key, &decision, &existing, &config).into_iter().partition(Step::is_write);
        writes.retain(|step| !round.was_refused(step));
        // A namespace on its way out takes all in it along, and refuses what is new.
        if !writes.is_empty() && !namespace_is_there(lead, key).await? {
            // That it waits for its namespace is no delay of a change.
            changes(lead, key, &decision);
            return Ok(Outcome::Done);
        }
        lead.index.release(key);
        // The namespace was made just now, so that it can be asked.
        if !writes.is_empty() && families.is_none() && decision != Decision::Remove {
            continue;
        }
        if writes.is_empty() {
            if let Some(refused) = round.refusal() {
                // All else is applied, the endpoints too.
                observe(lead, key, &decision);
                return Err(refused);
            }
            return Ok(settle(lead, key, &decision, &objects, reports));
        }
        for steps in round::batches(writes) {
            let (steps, next) = round.unwritten(steps);
            for (update, became) in side_by_side(lead, key, &objects, steps).await {
                round.take(update, became)?;
            }
            match next {
                Slice::Write => {}
                // What follows in the plan may count on it.
                Slice::Later => {
                    let now = lead.clock.elapsed();
                    return Ok(Outcome::NotYet(lead.pace.too_soon(key, now).unwrap_or(now)));
                }
                Slice::Unsettled => return Ok(unsettled(lead, key)),
            }
        }
    }
    Ok(unsettled(lead, key))
}

/// Carries out steps at the same time; none is begun after one has failed. Answers what became of them, failures that
/// somebody has to know of before those that a new plan mends.
async fn side_by_side(
    lead: &Lead,
    key: &ServiceKey,
    objects: &ImportObjects,
    steps: Vec<Step>,
) -> Vec<(Option<Update>, Result<(), WriteFailed>)> {
    let failed = &AtomicBool::new(false);
    let each = steps.into_iter().map(|step| async move {
        // Nobody closes it.
        let _place = lead.import_writes.acquire().await;
        if failed.load(Ordering::Relaxed) {
            return None;
        }
        if round::written_slice(&step).is_some() {
            lead.pace.writes(key, lead.clock.elapsed());
        }
        let update = Update::of(&step);
        let became = execute(lead, key, objects, step).await;
        failed.fetch_or(became.is_err(), Ordering::Relaxed);
        Some((update, became))
    });
    let done = stream::iter(each).buffer_unordered(IMPORT_WRITES).filter_map(ready);
    let mut done: Vec<_> = done.collect().await;
    done.sort_by_key(|(_, became)| became.as_ref().is_err_and(WriteFailed::is_stale));
    done
}

/// Something fights this import: another writer, or a webhook that changes what is written.
fn unsettled(lead: &Lead, key: &ServiceKey) -> Outcome {
    if lead.failures.is_new("import", key, "does not settle") {
        warn!(service = %key, "import does not settle, something else writes the same objects");
    }
    lead.metrics.reconcile_failed("import");
    Outcome::Unsettled
}

/// The families that a plan depends on; none where they are not known and nothing is written that depends on them: what
/// goes needs none, and no namespace is there to be asked.
///
/// Where the namespace does not say, as when it has room for no further Service, the derived Service that is there goes on
/// with what it was made with.
async fn families(
    lead: &Lead,
    key: &ServiceKey,
    decision: &Decision,
    existing: &Existing,
) -> Result<Option<Vec<IpFamily>>, WriteFailed> {
    if let Some(known) = lead.families.known() {
        return Ok(Some(known));
    }
    if *decision == Decision::Remove || lead.index.namespace_state(key) != NamespaceState::Active {
        return Ok(None);
    }
    match (lead.families.ask(&lead.client, &key.namespace).await, served_before(decision, existing)) {
        (Ok(families), _) | (Err(WriteFailed::Refused { .. }), Some(families)) => Ok(Some(families)),
        (Err(failed), _) => Err(failed),
    }
}

/// The families of the derived Service, where it serves any of the import's.
fn served_before(decision: &Decision, existing: &Existing) -> Option<Vec<IpFamily>> {
    let ours =
        |service: &&DerivedService| service.meta.ownership == Ownership::Ours && !service.meta.deleting;
    let service = existing.service.as_ref().filter(ours)?;
    let wanted = match decision {
        Decision::Apply(wanted) => wanted.definition.as_ref().map(|definition| &definition.ip_families),
        Decision::Keep | Decision::Remove => None,
    };
    let wanted = wanted.filter(|families| !families.is_empty());
    let serves = |family: &IpFamily| wanted.is_none_or(|wanted| wanted.contains(family));
    Some(service.spec.ip_families.clone()).filter(|families| families.iter().any(serves))
}

/// What is left when no write is: problems for people, and what the view remembers.
fn settle(
    lead: &Lead,
    key: &ServiceKey,
    decision: &Decision,
    objects: &ImportObjects,
    reports: Vec<Step>,
) -> Outcome {
    if *decision == Decision::Remove {
        lead.view().removed(key);
    }
    observe(lead, key, decision);
    let mut told = BTreeSet::new();
    for report in reports {
        if let Step::Report(problem) = report {
            told.insert(tell(lead, key, objects, problem));
        }
    }
    if let Some(import) = &objects.import {
        let over = PROBLEMS.iter().filter(|reason| !told.contains(*reason));
        over.for_each(|reason| lead.events.over(&import.object_ref(&()), reason));
    }
    if told.is_empty() {
        return Outcome::Done;
    }
    Outcome::At(lead.clock.elapsed() + LOOK_AGAIN)
}

/// Counts how long the changes took that are applied now.
fn observe(lead: &Lead, key: &ServiceKey, decision: &Decision) {
    if let Some(now) = lead.clock.wall_millis() {
        changes(lead, key, decision).into_iter().for_each(|at| lead.metrics.imported(now.since(at)));
    }
}

/// When the changes were seen in their clusters that have been applied since this was asked last.
fn changes(lead: &Lead, key: &ServiceKey, decision: &Decision) -> Vec<WallMillis> {
    let Decision::Apply(wanted) = decision else { return Vec::new() };
    let mut view = lead.view();
    let taken = wanted.sources.iter().filter_map(|(cluster, source)| match source {
        Source::Show(shown) => view.take_change(key, cluster, shown),
        Source::Keep => None,
    });
    taken.collect()
}

/// Whether the import's namespace can take objects. Where it is missing it is made if that was asked for; otherwise
/// the import is held until the namespace changes.
async fn namespace_is_there(lead: &Lead, key: &ServiceKey) -> Result<bool, WriteFailed> {
    let (state, begins) = lead.index.hold(key);
    match state {
        NamespaceState::Active => return Ok(true),
        NamespaceState::Missing if lead.config.create_namespaces => {
            create_namespace(lead, key).await?;
            return Ok(true);
        }
        NamespaceState::Missing | NamespaceState::Terminating => {}
    }
    if begins {
        info!(service = %key, namespace = ?state, "import held, it is applied when its namespace is there");
    }
    Ok(false)
}

async fn create_namespace(lead: &Lead, key: &ServiceKey) -> Result<(), WriteFailed> {
    let clusterset = lead.config.member.clusterset.to_string();
    let metadata = ObjectMeta {
        name: Some(key.namespace.to_string()),
        labels: Some([(names::LABEL_MANAGED_BY.to_owned(), names::MANAGED_BY.to_owned())].into()),
        annotations: Some([(names::ANNOTATION_CLUSTERSET.to_owned(), clusterset)].into()),
        ..ObjectMeta::default()
    };
    let namespace = Namespace { metadata, ..Namespace::default() };
    match lead.writer().create_namespace(&namespace).await {
        Ok(()) => info!(service = %key, namespace = %key.namespace, "namespace created for an import"),
        Err(WriteFailed::Conflict(_)) => {}
        Err(failed) => return Err(failed),
    }
    Ok(())
}

fn read(lead: &Lead, key: &ServiceKey) -> (ImportObjects, Existing) {
    let objects = lead.index.import_objects(key, &names::derived_service_name(key));
    let existing = facts::existing(key, &objects, &lead.config.member.clusterset);
    (objects, existing)
}

/// Carries out one step. The objects are those that the plan was made from.
async fn execute(
    lead: &Lead,
    key: &ServiceKey,
    objects: &ImportObjects,
    step: Step,
) -> Result<(), WriteFailed> {
    let writer = lead.writer();
    match step {
        Step::CreateImport(wanted) => {
            writer.create(&facts::import(key, &wanted)).await?;
        }
        Step::UpdateImport { base, wanted, full } => {
            let read = found(objects.import.as_ref(), &base)?;
            let wanted = facts::import(key, &wanted);
            let replacing = ServiceImport { spec: wanted.spec.clone(), ..read.clone() };
            change(&writer, read, &wanted, full.then_some(replacing)).await?;
        }
        Step::UpdateImportStatus { base, status } => {
            let read = found(objects.import.as_ref(), &base)?;
            let previous = read.status.as_ref().map_or(&[][..], |status| &status.conditions);
            let generation = read.metadata.generation.unwrap_or_default();
            let wanted =
                facts::import_status(&status, &facts::conditions(previous), generation, lead.clock.wall());
            let body = serde_json::to_value(&wanted).map_err(WriteFailed::encode)?;
            let mut applied = writer.apply_status(read, body).await?;
            let clusters = applied.status.as_ref().map(|status| status.clusters.as_slice());
            if clusters.unwrap_or_default().iter().any(|entry| !wanted.clusters.contains(entry)) {
                applied = writer.replace_status_field(&applied, "clusters", json!(wanted.clusters)).await?;
            }
            if status.slices_present {
                let kept = applied.status.is_some_and(|status| status.endpoint_slice_objects.is_some());
                lead.server.slices_present.store(kept, Ordering::Relaxed);
            }
        }
        Step::CreateService(wanted) => {
            writer.create(&facts::service(key, &wanted)).await?;
        }
        Step::UpdateService { base, wanted, full } => {
            let read = found(objects.service.as_ref(), &base)?;
            let wanted = facts::service(key, &wanted);
            let replacing = full.then(|| facts::without_strays(read.clone(), &wanted));
            change(&writer, read, &wanted, replacing).await?;
        }
        Step::DeleteService(base) => writer.delete(found(objects.service.as_ref(), &base)?).await?,
        Step::CreateSlice(wanted) => {
            let created = writer.create(&facts::slice(key, &wanted)).await?;
            note_node_hints(lead, &wanted, &created);
        }
        Step::UpdateSlice { base, wanted } => {
            let read = objects.slices.iter().find(|slice| slice.metadata.uid.as_ref() == Some(&base.uid));
            let applied = writer.apply(found(read, &base)?, &facts::slice(key, &wanted)).await?;
            note_node_hints(lead, &wanted, &applied);
        }
        Step::DeleteSlice(base) => delete_slice(lead, objects, &base).await?,
        Step::RemoveForeignSlices(slices) => {
            for base in slices {
                delete_slice(lead, objects, &base).await?;
            }
        }
        Step::DeleteImport(base) => {
            writer.delete(found(objects.import.as_ref(), &base)?).await?;
            info!(service = %key, "import removed, no cluster exports it");
        }
        Step::Report(_) => {}
    }
    Ok(())
}

/// Applies `wanted` to the object that was read, after replacing it with `replacing` where an apply cannot reach all.
/// The other way round the API server would refuse an apply that its merge with foreign fields makes invalid, such as
/// two ports of one name.
async fn change<K: Written>(
    writer: &Writer,
    read: &K,
    wanted: &K,
    replacing: Option<K>,
) -> Result<(), WriteFailed> {
    let applied = match replacing {
        Some(replacing) => writer.apply(&writer.replace(&replacing).await?, wanted).await,
        None => writer.apply(read, wanted).await,
    };
    applied.map(drop)
}

async fn delete_slice(lead: &Lead, objects: &ImportObjects, base: &Identity) -> Result<(), WriteFailed> {
    let read = objects.slices.iter().find(|slice| slice.metadata.uid.as_ref() == Some(&base.uid));
    lead.writer().delete(found(read, base)?).await
}

/// The object that a step is bound to.
fn found<'a, K: Resource>(read: Option<&'a Arc<K>>, base: &Identity) -> Result<&'a K, WriteFailed> {
    let read = read.filter(|read| read.meta().uid.as_ref() == Some(&base.uid));
    read.map(AsRef::as_ref).ok_or(WriteFailed::Gone)
}

/// Remembers whether the API server keeps node hints; one that drops them would be written for ever.
fn note_node_hints(lead: &Lead, wanted: &WantedSlice, written: &EndpointSlice) {
    if wanted.endpoints.values().any(|endpoint| endpoint.node_hint.is_some()) {
        let hints = written.endpoints.iter().filter_map(|endpoint| endpoint.hints.as_ref());
        let kept = hints.into_iter().any(|hints| hints.for_nodes.is_some());
        lead.server.node_hints.store(kept, Ordering::Relaxed);
    }
}

/// Tells what the API server says to an object of an import that it does not take, such as a quota or a policy: who
/// looks at the ServiceImport could not know. One that is not there yet can only be told of in the log.
fn tell_refused(lead: &Lead, key: &ServiceKey, code: u16, message: &str) {
    if let Some(import) = read(lead, key).0.import {
        let note = format!(
            "the API server refuses to take an object of this import ({code}): {message}; it is tried again"
        );
        lead.events.warn(&import.object_ref(&()), names::EVENT_IMPORT_FAILED, note);
    }
}

/// Tells of a problem; answers the reason of the Event.
fn tell(lead: &Lead, key: &ServiceKey, objects: &ImportObjects, problem: Problem) -> &'static str {
    let import = objects.import.as_ref().map(|import| import.object_ref(&()));
    let (object, reason, note) = match problem {
        Problem::Foreign { kind: Kind::ServiceImport, name } => (
            import,
            names::EVENT_IMPORT_SKIPPED,
            format!(
                "ServiceImport {name} was not made by this controller and is left alone; --adopt-unmanaged-imports takes such over"
            ),
        ),
        Problem::Foreign { kind: Kind::Service, name } => (
            import,
            names::EVENT_SERVICE_SKIPPED,
            format!(
                "Service {name} has the name of the derived Service but was not made by this controller; delete it so that the import can be completed"
            ),
        ),
        Problem::Foreign { kind: Kind::EndpointSlice, name } => (
            import,
            names::EVENT_SLICE_SKIPPED,
            format!(
                "EndpointSlice {name} has the name of an imported slice but was not made by this controller; it is left alone, and what it would hold is in a slice of another name"
            ),
        ),
        Problem::FamilyNotSupported { families } => {
            let families: Vec<_> = families.iter().map(|family| family.as_str()).collect();
            let note = format!(
                "the Service is exported with {}, which this cluster gives no Service",
                families.join(", ")
            );
            (import, names::EVENT_IMPORT_FAILED, note)
        }
    };
    match object {
        Some(object) => {
            lead.events.warn(&object, reason, note);
        }
        None => warn!(service = %key, reason, note, "import is not complete"),
    }
    reason
}

#[cfg(test)]
mod tests;
