//! Carries out the calls of the outbox: registration, renewals, writes and syncs.
//!
//! Every decision (what to call next, when, at which registry, what an answer means) is [`mcs_core::outbox`]'s; this
//! makes the calls, side by side where the outbox asks for it, and feeds the answers back.

use crate::lead::Lead;
use futures::stream::{FuturesUnordered, StreamExt};
use mcs_core::model::Report;
use mcs_core::outbox::{Answer, Call, Failure};
use mcs_core::registry::Registration;
use mcs_proto::client::{RegistryClient, Written};
use mcs_proto::status::CallFailed;
use mcs_proto::url::RegistryUrl;
use mcs_runtime::clock::sleep_until;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tracing::{debug, info, warn};

/// How this cluster stands with its registries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Standing {
    /// The registry that has accepted this leader, by its place in the order.
    registered: Option<usize>,
    lease_ended: bool,
}

/// How often a lapsed claim is looked at again.
const LAPSED: Duration = Duration::from_millis(200);

/// Keeps the registry told, until dropped.
pub(crate) async fn run(lead: &Lead) {
    let mut calls = FuturesUnordered::new();
    let mut probes = FuturesUnordered::new();
    let mut standing = Standing::default();
    let mut failing = BTreeMap::new();
    loop {
        // A claim that has lapsed ends this lead in a moment; until then nothing more is said.
        while lead.claim.may_write()
            && let Some((call, registry)) = next_call(lead)
        {
            calls.push(carry_out(lead, call, registry));
        }
        while let Some(url) = lead.outbox().next_probe(lead.clock.elapsed()) {
            probes.push(probe(lead, url));
        }
        let now = lead.clock.elapsed();
        let (deadline, current) = {
            let outbox = lead.outbox();
            let lease_end = Some(outbox.lease_until()).filter(|end| !end.has_passed(now));
            let deadline = match lead.claim.may_write() {
                true => outbox.poll_timeout().into_iter().chain(lease_end).min(),
                false => Some(now + LAPSED),
            };
            let registered = outbox.is_registered().then(|| outbox.url());
            (deadline, Standing { registered, lease_ended: outbox.lease_has_ended(now) })
        };
        if standing != current {
            note_standing(lead, standing, current);
            standing = current;
        }
        tokio::select! {
            Some((registry, answer)) = calls.next(), if !calls.is_empty() => {
                if let Some(reason) = new_failure(registry.url(), &answer, &mut failing) {
                    warn!(registry = %registry.url(), error = reason, "the registry cannot be used, it is tried again");
                }
                handle(lead, answer);
            }
            Some((url, well)) = probes.next(), if !probes.is_empty() => {
                lead.outbox().probed(url, well, lead.clock.elapsed(), rand::random());
                lead.follow_registries();
            }
            () = lead.outbox_changed.notified() => {}
            () = sleep_until(lead.clock.as_ref(), deadline) => {}
        }
    }
}

fn next_call(lead: &Lead) -> Option<(Call, RegistryClient)> {
    let mut outbox = lead.outbox();
    let call = outbox.next_call(lead.clock.elapsed())?;
    let url = if matches!(call, Call::Renew { .. }) { outbox.url() } else { outbox.act_url() };
    Some((call, lead.registries[url].clone()))
}

fn handle(lead: &Lead, answer: Answer) {
    // Finalizers of exports that this leader never told wait for the end of a sync.
    let synced = matches!(answer, Answer::Synced { .. });
    if matches!(answer, Answer::Registered { .. } | Answer::Renewed { .. }) {
        lead.metrics.renewed();
    }
    let (dirty, floor, epoch) = {
        let mut outbox = lead.outbox();
        outbox.handle_answer(answer, lead.clock.elapsed(), rand::random());
        let dirty: Vec<_> = std::iter::from_fn(|| outbox.next_dirty()).collect();
        if outbox.is_registered() {
            // Probes and limits go by the lease that this registry grants.
            lead.registries[outbox.url()].set_timing(outbox.timing());
        }
        (dirty, outbox.floor(), outbox.registry())
    };
    let all = if synced { lead.index.all_exports() } else { BTreeSet::new() };
    for key in all.into_iter().chain(dirty) {
        lead.index.exports.add(key);
    }
    lead.view().told_to(epoch);
    crate::subscription::queue_dirty(lead);
    lead.follow_registries();
    if let Some(floor) = floor {
        lead.claim.raise_term(floor);
    }
}

/// Whether a registry that is not in use is well.
async fn probe(lead: &Lead, url: usize) -> (usize, bool) {
    let registry = &lead.registries[url];
    let well = match registry.probe(&lead.config.member.clusterset).await {
        Ok(complete) => complete,
        Err(failed) => {
            lead.metrics.registry_failed(&registry.url().to_string(), failed.label());
            debug!(registry = %registry.url(), error = %failed, "probe of a registry failed");
            false
        }
    };
    (url, well)
}

/// All exports are looked at when the registry is gained or lost, or the lease ends: their conditions say so, and
/// finalizers wait for it.
fn note_standing(lead: &Lead, before: Standing, now: Standing) {
    let url = |place: usize| lead.registries[place].url().to_string();
    if before.registered != now.registered {
        let (left, registry) = (before.registered.map(url), now.registered.map(url));
        if let Some(left) = &left {
            lead.metrics.connected(left, false);
        }
        if let Some(registry) = &registry {
            lead.metrics.connected(registry, true);
        }
        match (left, registry) {
            (Some(left), Some(registry)) => info!(%registry, %left, "registered, and gone over to it"),
            (None, Some(registry)) => info!(%registry, "registered"),
            (Some(registry), None) => warn!(%registry, "registry lost, the cluster goes on with what it has"),
            (None, None) => {}
        }
    }
    if !before.lease_ended && now.lease_ended {
        warn!("no registry has taken a renewal for a lease: other clusters drop this cluster's endpoints");
    }
    for key in lead.index.all_exports() {
        lead.index.exports.add(key);
    }
}

async fn carry_out(lead: &Lead, call: Call, registry: RegistryClient) -> (RegistryClient, Answer) {
    let answer = call_registry(lead, call, &registry).await;
    (registry, answer)
}

async fn call_registry(lead: &Lead, call: Call, registry: &RegistryClient) -> Answer {
    let member = &lead.config.member;
    match call {
        Call::Register { version, sum } => {
            let registration = Registration {
                uid: member.uid.clone(),
                region: lead.config.region.clone(),
                instance: lead.config.instance.clone(),
                build: lead.config.build.clone(),
                version,
                sum,
            };
            match registry.register(member, &registration).await {
                Ok(answer) => {
                    Answer::Registered { differs: answer.differs, lease: answer.lease, by: answer.by }
                }
                Err(failed) => Answer::ActFailed(failure(lead, registry, "register", failed)),
            }
        }
        Call::Renew { version, sum } => {
            let report = Report { held_imports: lead.index.held(), refused_exports: lead.outbox().refused() };
            match registry.renew_reporting(member, version, sum, &report).await {
                Ok(answer) => Answer::Renewed {
                    differs: answer.differs,
                    degraded: answer.degraded,
                    lease: answer.lease,
                    by: answer.by,
                },
                Err(failed) => Answer::RenewFailed(failure(lead, registry, "renew", failed)),
            }
        }
        Call::Write { version, ops } => match registry.write(member, version, &ops).await {
            Ok(written) => Answer::Written(logged(written).results),
            Err(failed) => Answer::ActFailed(failure(lead, registry, "write", failed)),
        },
        Call::Sync { version, names } => {
            let cause = lead.outbox().sync_cause();
            let synced = async {
                let (wants, stream) = registry.begin_sync(member, version, &names).await?;
                let ops = lead.outbox().sync_ops(&wants);
                debug!(cause = cause.as_str(), named = names.len(), wanted = ops.len(), %version, "sync");
                stream.finish(&ops).await
            };
            let synced = synced.await;
            lead.metrics.synced(cause, synced.is_ok());
            match synced {
                Ok(synced) => {
                    let Written { results, held, .. } = logged(synced.written);
                    Answer::Synced { results, held }
                }
                Err(failed) => Answer::ActFailed(failure(lead, registry, "sync", failed)),
            }
        }
    }
}

fn logged(written: Written) -> Written {
    for (key, dropped) in &written.dropped {
        warn!(service = %key, %dropped, "the registry left an endpoint out");
    }
    for (key, refusal) in
        written.results.iter().filter_map(|(key, result)| Some((key, result.as_ref().err()?)))
    {
        warn!(service = %key, %refusal, "the registry refuses the export until it changes");
    }
    written
}

/// Why calls fail, once for each registry and reason until it works again: one that is away for hours, or takes the cluster
/// each time and none of its exports, must not fill the log.
fn new_failure(
    registry: &RegistryUrl,
    answer: &Answer,
    failing: &mut BTreeMap<RegistryUrl, String>,
) -> Option<String> {
    match answer {
        Answer::ActFailed(failure) | Answer::RenewFailed(failure) => {
            let reason = failure.to_string();
            let before = failing.insert(registry.clone(), reason.clone());
            return Some(reason).filter(|reason| before.as_ref() != Some(reason));
        }
        Answer::Registered { differs: true, .. } | Answer::Renewed { differs: true, .. } => {}
        Answer::Registered { .. } | Answer::Renewed { .. } | Answer::Written(_) | Answer::Synced { .. } => {
            failing.remove(registry);
        }
    }
    None
}

/// What a failed call means for what to do next.
fn failure(lead: &Lead, registry: &RegistryClient, call: &'static str, failed: CallFailed) -> Failure {
    lead.metrics.registry_failed(&registry.url().to_string(), failed.label());
    debug!(registry = %registry.url(), call, error = %failed, "call to the registry failed");
    failed.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcs_core::outbox::Process;

    #[test]
    fn a_failure_is_told_once_until_the_registry_works_again_or_fails_for_another_reason() {
        let lease = Duration::from_secs(30);
        let registered = |differs| Answer::Registered { differs, lease, by: Process::default() };
        let renewed = |differs| Answer::Renewed { differs, degraded: false, lease, by: Process::default() };
        let synced = || Answer::Synced { results: Vec::new(), held: BTreeMap::new() };
        let failed = |reason: &str| Answer::ActFailed(Failure::Unavailable { reason: reason.to_owned() });
        let url: RegistryUrl = "http://registry:80".parse().unwrap();
        let told = |between: Option<Answer>, then: &str| {
            let mut failing = BTreeMap::new();
            let answers = [Some(failed("gone")), between, Some(failed(then))];
            let told = answers.iter().flatten().filter_map(|answer| new_failure(&url, answer, &mut failing));
            told.collect::<Vec<_>>()
        };
        for between in [None, Some(registered(true)), Some(renewed(true))] {
            assert_eq!(told(between.clone(), "gone"), ["gone"], "{between:?}");
        }
        for between in [registered(false), renewed(false), Answer::Written(Vec::new()), synced()] {
            assert_eq!(told(Some(between.clone()), "gone"), ["gone", "gone"], "{between:?}");
        }
        assert_eq!(told(Some(registered(true)), "full"), ["gone", "full"]);
    }
}
