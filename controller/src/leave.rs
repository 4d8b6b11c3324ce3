//! `mcs-controller leave`: takes the cluster out of its clusterset.
//!
//! In this order, each step within `STEP`, so that nothing that is taken away comes back:
//!
//! 1. the Lease is taken from the running leader, and marked: controllers that run then do nothing any more until they
//!    are started anew, and nobody leads before this is over (`lease`);
//! 2. a registry is told to forget the cluster, so that it leaves the imports of the others at once. With none in reach
//!    its lease there runs out, and its records are collected;
//! 3. all that was made goes: ServiceExports made for a label, ServiceImports, derived Services and imported slices, each
//!    told by its marks (label and clusterset) and never by its name; and the finalizer of every ServiceExport. What users
//!    made stays, and so do namespaces, in which others may have put something;
//! 4. the Lease is released.
//!
//! A step that fails does not keep the others from being tried. A registry that cannot be told is logged and no failure,
//! since a cluster must be able to leave a clusterset that is gone; anything left in the cluster is one.

mod cluster;
mod lease;

use crate::discover::uid;
use crate::identity::{self, Given};
use crate::wiring::{Options, registries};
use anyhow::{Context, bail};
use kube::Client;
use mcs_core::ids::Namespace;
use mcs_core::time::Clock;
use mcs_core::timing::Timing;
use mcs_proto::client::RegistryClient;
use mcs_proto::convert::Member;
use mcs_proto::status::CallFailed;
use mcs_proto::url::Scheme;
use mcs_runtime::tls;
use mcs_runtime::tls::client::ClientTls;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tracing::{error, info, warn};

/// How long one step may take.
const STEP: Duration = Duration::from_secs(60);

/// Takes the cluster out, as far as it can.
///
/// # Errors
/// Who the cluster is cannot be learned, the Lease cannot be taken, or something that was made is left.
pub async fn leave(options: Options, client: Client, clock: Arc<dyn Clock>) -> anyhow::Result<()> {
    let given = Given { clusterset: options.clusterset, cluster: options.cluster, region: options.region };
    let member = within(member(&client, given)).await.context("cannot learn who this cluster is")?;
    info!(clusterset = %member.clusterset, cluster = %member.cluster, uid = %member.uid, "leaving");

    let held = within(lease::take(&client, &options.leader, clock.as_ref()));
    let held =
        held.await.context("cannot take the Lease, so a leader may be at work: nothing was changed")?;
    held.wait_for_the_leader().await;

    let secure = options.registries.iter().any(|url| url.scheme() == Scheme::Https);
    let tls = match secure {
        true => Some(ClientTls::load(options.tls, clock, tls::Metrics::default())?),
        false => None,
    };
    let registries = registries(&options.registries, tls.as_ref()).context("--registry-url")?;
    leave_registry(&registries, &member).await;

    let cleaned = clean(&client, &options.watch_namespaces, &member).await;
    if let Err(problem) = within(held.release()).await {
        warn!(error = %format!("{problem:#}"), "the Lease is not released, it runs out by itself");
    }
    cleaned
}

/// Does one step within its time.
async fn within<T>(step: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::time::timeout(STEP, step).await.unwrap_or_else(|_| bail!("it is not done after {STEP:?}"))
}

async fn member(client: &Client, given: Given) -> anyhow::Result<Member> {
    // The region says nothing of who is to be removed.
    let given = Given { region: Some("unknown".parse()?), ..given };
    let identity = identity::ask(client, &given).await?;
    Ok(Member { clusterset: identity.clusterset, cluster: identity.cluster, uid: uid(client).await? })
}

/// Has a registry forget the cluster: the first that does it. They are asked in turn as long as one may answer yet.
async fn leave_registry(registries: &[RegistryClient], member: &Member) {
    let asked = async {
        for round in 0.. {
            let mut may_answer = false;
            for registry in registries {
                let Member { clusterset, cluster, uid } = member;
                match registry.remove(clusterset, cluster, Some(uid), false).await {
                    Ok(removed) => {
                        let (exports, endpoints) = (removed.exports, removed.endpoints);
                        info!(registry = %registry.url(), exports, endpoints, "removed from the registry");
                        return true;
                    }
                    Err(CallFailed::UnknownCluster) => {
                        info!(registry = %registry.url(), "the registry does not know this cluster");
                        return true;
                    }
                    Err(failed) => {
                        warn!(registry = %registry.url(), error = %failed, "the registry does not remove this cluster");
                        may_answer |=
                            failed.blames_connection() && !matches!(failed, CallFailed::Denied { .. });
                    }
                }
            }
            if !may_answer {
                return false;
            }
            tokio::time::sleep(Timing::default().backoff(round)).await;
        }
        false
    };
    if !tokio::time::timeout(STEP, asked).await.unwrap_or_default() {
        warn!(
            "no registry has removed this cluster: its endpoints go with its lease there, its records some days later"
        );
    }
}

/// Takes away what was made, as far as possible.
async fn clean(client: &Client, watched: &[Namespace], member: &Member) -> anyhow::Result<()> {
    let cleaner = cluster::Cleaner::new(client.clone(), watched, &member.clusterset);
    let [exports, finalizers, slices, services, imports] = [const { AtomicUsize::new(0) }; 5];
    let mut left = Vec::new();
    let mut note = |what: &'static str, gone: &AtomicUsize, done: anyhow::Result<()>| {
        if let Err(problem) = done {
            let gone = gone.load(Ordering::Relaxed);
            error!(what, gone, error = %format!("{problem:#}"), "not all could be taken away");
            left.push(what);
        }
    };
    note("ServiceExports", &exports, within(cleaner.delete_service_exports(&exports)).await);
    note("finalizers of ServiceExports", &finalizers, within(cleaner.remove_finalizers(&finalizers)).await);
    // What an import owns goes first, so that it is counted here and not collected by Kubernetes.
    note("EndpointSlices", &slices, within(cleaner.delete_slices(&slices)).await);
    note("Services", &services, within(cleaner.delete_services(&services)).await);
    note("ServiceImports", &imports, within(cleaner.delete_service_imports(&imports)).await);
    let [exports, finalizers, slices, services, imports] =
        [exports, finalizers, slices, services, imports].map(AtomicUsize::into_inner);
    info!(exports, finalizers, imports, slices, services, "removed from the cluster");
    if left.is_empty() {
        return Ok(());
    }
    bail!("not everything could be taken away ({}): run it again", left.join(", "))
}
