//! Carries out the calls of the outbox: registration, renewals, writes and syncs.
//!
//! Every decision (what to call next, when, at which registry, what an answer means) is [`mcs_core::outbox`]'s; this
//! makes the calls, side by side where the outbox asks for it, and feeds the answers back.

use crate::lead::Lead;
use futures::stream::{FuturesUnordered, StreamExt};
use mcs_core::outbox::{Answer, Call, Failure};
use mcs_core::registry::Registration;
use mcs_proto::client::{RegistryClient, Written};
use mcs_proto::status::CallFailed;
use mcs_runtime::clock::sleep_until;
use std::collections::BTreeSet;
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
    let mut standing = Standing::default();
    let mut failing = None;
    loop {
        // A claim that has lapsed ends this lead in a moment; until then nothing more is said.
        while lead.claim.may_write()
            && let Some((call, registry)) = next_call(lead)
        {
            calls.push(carry_out(lead, call, registry));
        }
        let now = lead.clock.elapsed();
        let (deadline, current) = {
            let outbox = lead.outbox();
            let lease_end = outbox.lease_until().filter(|end| !end.has_passed(now));
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
            Some(answer) = calls.next(), if !calls.is_empty() => {
                log_failure(lead, &answer, &mut failing);
                handle(lead, answer);
            }
            () = lead.outbox_changed.notified() => {}
            () = sleep_until(lead.clock.as_ref(), deadline) => {}
        }
    }
}

fn next_call(lead: &Lead) -> Option<(Call, RegistryClient)> {
    let mut outbox = lead.outbox();
    let call = outbox.next_call(lead.clock.elapsed())?;
    Some((call, lead.registries[outbox.url()].clone()))
}

fn handle(lead: &Lead, answer: Answer) {
    // Finalizers of exports that this leader never told wait for the end of a sync.
    let synced = matches!(answer, Answer::Synced { .. });
    let (dirty, url, floor) = {
        let mut outbox = lead.outbox();
        outbox.handle_answer(answer, lead.clock.elapsed(), rand::random());
        let dirty: Vec<_> = std::iter::from_fn(|| outbox.next_dirty()).collect();
        (dirty, outbox.url(), outbox.floor())
    };
    let all = if synced { lead.index.all_exports() } else { BTreeSet::new() };
    for key in all.into_iter().chain(dirty) {
        lead.index.exports.add(key);
    }
    lead.url.send_if_modified(|current| std::mem::replace(current, url) != url);
    if let Some(floor) = floor {
        lead.claim.raise_term(floor);
    }
}

/// All exports are looked at when the registry is gained or lost, or the lease ends: their conditions say so, and
/// finalizers wait for it.
fn note_standing(lead: &Lead, before: Standing, now: Standing) {
    let url = |place: usize| lead.registries[place].url().to_string();
    if before.registered != now.registered {
        if let Some(registry) = before.registered.map(url) {
            lead.metrics.connected(&registry, false);
            warn!(%registry, "registry lost, the cluster goes on with what it has");
        }
        if let Some(registry) = now.registered.map(url) {
            lead.metrics.connected(&registry, true);
            info!(%registry, "registered");
        }
    }
    if !before.lease_ended && now.lease_ended {
        warn!("the lease has ended without a renewal: other clusters drop this cluster's endpoints");
    }
    for key in lead.index.all_exports() {
        lead.index.exports.add(key);
    }
}

async fn carry_out(lead: &Lead, call: Call, registry: RegistryClient) -> Answer {
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
                Ok(answer) => Answer::Registered { differs: answer.differs, lease: answer.lease },
                Err(failed) => Answer::ActFailed(failure(lead, &registry, "register", failed)),
            }
        }
        Call::Renew { version, sum } => match registry.renew(member, version, sum).await {
            Ok(answer) => Answer::Renewed { differs: answer.differs, lease: answer.lease },
            Err(failed) => Answer::RenewFailed(failure(lead, &registry, "renew", failed)),
        },
        Call::Write { version, ops } => match registry.write(member, version, &ops).await {
            Ok(written) => Answer::Written(logged(written).results),
            Err(failed) => Answer::ActFailed(failure(lead, &registry, "write", failed)),
        },
        Call::Sync { version, names } => {
            let synced = async {
                let (wants, stream) = registry.begin_sync(member, version, &names).await?;
                let ops = lead.outbox().sync_ops(&wants);
                debug!(named = names.len(), wanted = ops.len(), %version, "sync");
                stream.finish(&ops).await
            };
            let synced = synced.await;
            lead.metrics.synced(synced.is_ok());
            match synced {
                Ok(synced) => {
                    let Written { results, held, .. } = logged(synced.written);
                    Answer::Synced { results, held }
                }
                Err(failed) => Answer::ActFailed(failure(lead, &registry, "sync", failed)),
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

/// Says why calls fail, once for each reason: a registry that is away for hours must not fill the log.
fn log_failure(lead: &Lead, answer: &Answer, failing: &mut Option<String>) {
    match answer {
        Answer::ActFailed(failure) | Answer::RenewFailed(failure) => {
            let reason = failure.to_string();
            if failing.as_ref() == Some(&reason) {
                return;
            }
            warn!(registry = %lead.registries[*lead.url.borrow()].url(), error = reason, "the registry cannot be used, it is tried again");
            *failing = Some(reason);
        }
        Answer::Registered { .. } | Answer::Renewed { .. } | Answer::Written(_) | Answer::Synced { .. } => {
            *failing = None
        }
    }
}

/// What a failed call means for what to do next.
fn failure(lead: &Lead, registry: &RegistryClient, call: &'static str, failed: CallFailed) -> Failure {
    lead.metrics.registry_failed(&registry.url().to_string(), failed.label());
    debug!(registry = %registry.url(), call, error = %failed, "call to the registry failed");
    failed.into()
}
