//! The Lease of the controllers, taken from whoever leads.
//!
//! It is written with another holder, a higher term and a mark. A leader stops when it sees another holder, and writes
//! nothing after its renew deadline though it sees nothing; controllers that were running retire when they see a new
//! mark. It is held for longer than a leave takes, so that no controller that is started meanwhile leads; then it is
//! released, and the mark stays: a controller that is started afterwards joins again, and takes the mark off.

use crate::leader::{Settings, micro_time, record_of};
use crate::writes::as_manager;
use anyhow::{Context, bail};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::{Api, ObjectMeta};
use kube::{Client, ResourceExt};
use mcs_core::election::term_floor;
use mcs_core::names::{ANNOTATION_LEFT, ANNOTATION_TERM};
use mcs_core::time::Clock;
use std::time::Duration;
use tracing::info;

/// How long nobody else may lead: all steps together take less.
const HELD: Duration = Duration::from_secs(10 * 60);
/// How often it is tried anew when somebody else writes it.
const TRIES: usize = 20;

/// The Lease, held.
pub(super) struct Held {
    api: Api<Lease>,
    lease: Lease,
    /// How long the leader that was may go on writing.
    leader: Option<Duration>,
}

/// Takes the Lease.
pub(super) async fn take(client: &Client, settings: &Settings, clock: &dyn Clock) -> anyhow::Result<Held> {
    let api: Api<Lease> = Api::namespaced(client.clone(), &settings.namespace);
    for _ in 0..TRIES {
        let found = api.get_opt(&settings.name).await.context("cannot read it")?;
        let holder = found.as_ref().and_then(|lease| record_of(lease).holder);
        let wanted = wanted(found.as_ref(), settings, clock);
        let written = match found {
            None => api.create(&as_manager(), &wanted).await,
            Some(_) => api.replace(&settings.name, &as_manager(), &wanted).await,
        };
        match written {
            Ok(lease) => {
                info!(lease = settings.name, namespace = settings.namespace, from = holder, "Lease taken");
                let leader = holder.map(|_| settings.policy.renew_deadline);
                return Ok(Held { api, lease, leader });
            }
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => return Err(error).context("cannot write it"),
        }
    }
    bail!("somebody else wrote it in each of {TRIES} tries")
}

impl Held {
    /// Waits until the leader that was has surely stopped.
    pub(super) async fn wait_for_the_leader(&self) {
        if let Some(leader) = self.leader {
            info!(at_most = ?leader, "waiting for the controller that leads to stop");
            tokio::time::sleep(leader).await;
        }
    }

    /// Lets controllers that are started from now on lead.
    pub(super) async fn release(self) -> anyhow::Result<()> {
        let Self { api, mut lease, .. } = self;
        let spec = lease.spec.get_or_insert_default();
        (spec.holder_identity, spec.lease_duration_seconds) = (None, Some(1));
        api.replace(&lease.name_any(), &as_manager(), &lease).await.context("cannot write it")?;
        Ok(())
    }
}

/// The Lease as this program holds it, with a term above that of every leader before.
fn wanted(found: Option<&Lease>, settings: &Settings, clock: &dyn Clock) -> Lease {
    let known = found.cloned().unwrap_or_default();
    let term = record_of(&known).term.max(term_floor(clock.wall_nanos())).saturating_add(1);
    let mut metadata = ObjectMeta {
        name: Some(settings.name.clone()),
        namespace: Some(settings.namespace.clone()),
        managed_fields: None,
        ..known.metadata
    };
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(ANNOTATION_TERM.to_owned(), term.to_string());
    annotations.insert(ANNOTATION_LEFT.to_owned(), settings.identity.clone());
    let now = micro_time(clock);
    let before = known.spec.unwrap_or_default();
    let spec = LeaseSpec {
        holder_identity: Some(settings.identity.clone()),
        acquire_time: Some(now.clone()),
        renew_time: Some(now),
        lease_duration_seconds: i32::try_from(HELD.as_secs()).ok(),
        lease_transitions: Some(before.lease_transitions.unwrap_or_default().saturating_add(1)),
        ..before
    };
    Lease { metadata, spec: Some(spec) }
}
