//! Leadership of this cluster's controllers: a `coordination.k8s.io` Lease, and the claim that goes with it.
//!
//! Who leads is decided by [`mcs_core::election`]; this makes its calls. It guarantees that
//!
//! - every call has a time limit that is short against the renew deadline, so one that hangs costs a try, not the
//!   leadership;
//! - a [`Claim`] says by itself whether its holder may still write ([`Claim::may_write`]), also while a call hangs;
//! - each term has a claim of its own, and an earlier claim is never valid again;
//! - on a stop the claim ends first, then the Lease is released, and the next replica, which watches it, takes over.
//!
//! What the Lease says is always read by a get: watch events only say when to look, since one that comes late would
//! tell of a holder of the past. A standby also looks every retry period, for a watch can hang. Writes are full
//! updates with the resource version that was read, and keep the labels and annotations of others.
//!
//! Rejected: the elector crates for kube (they go on leading while the API server is away, or compare the written time
//! with the clock); ending the process with the leadership, as Kubernetes' controllers do (here all that a term does
//! ends with its claim, and a standby with warm watches takes over in milliseconds).

use crate::writes::as_manager;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ObjectMeta};
use kube::{Client, ResourceExt};
use mcs_core::election::{Elector, Policy, Record, Write, WriteKind};
use mcs_core::names;
use mcs_core::time::{Clock, Timestamp};
use mcs_runtime::clock::sleep_until;
use mcs_runtime::kube::follow::follow_one;
use mcs_runtime::shutdown::Drain;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tracing::{debug, info, warn};

/// What is competed for, and as whom.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease.
    pub name: String,
    /// Who this process is; no other process ever has the same, so it must have a random part.
    pub identity: String,
    /// The durations.
    pub policy: Policy,
}

/// The right to write, for one term of leadership.
#[derive(Clone)]
pub struct Claim {
    term: u64,
    fence: Arc<AtomicU64>,
    clock: Arc<dyn Clock>,
    floor: Arc<watch::Sender<u64>>,
}

impl Claim {
    /// The term, higher than that of every earlier leader of this cluster.
    pub const fn term(&self) -> u64 {
        self.term
    }

    /// Whether a write may be made now; to be asked before each.
    pub fn may_write(&self) -> bool {
        self.clock.elapsed() < Timestamp::from_nanos(self.fence.load(Ordering::SeqCst))
    }

    /// A registry knows of a leader with the term `floor`: a claim with a higher term takes this one's place, if this
    /// replica still leads.
    pub fn raise_term(&self, floor: u64) {
        self.floor.send_if_modified(|known| std::mem::replace(known, floor.max(*known)) < floor);
    }

    fn extend(&self, fence: Timestamp) {
        self.fence.store(fence.as_nanos(), Ordering::SeqCst);
    }

    fn revoke(&self) {
        self.extend(Timestamp::ZERO);
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("term", &self.term)
            .field("may_write", &self.may_write())
            .finish_non_exhaustive()
    }
}

/// One replica in the election.
pub struct Candidate {
    api: Api<Lease>,
    settings: Settings,
    clock: Arc<dyn Clock>,
    stop: Drain,
    elector: Elector,
    claims: watch::Sender<Option<Claim>>,
    floor: Arc<watch::Sender<u64>>,
    /// The Lease as it was read last.
    lease: Option<Lease>,
    /// The mark of a leave that was on the Lease when it was read first; none before that.
    first_mark: Option<Option<String>>,
    /// The cluster has left its clusterset: this replica does nothing any more.
    retired: bool,
    look_at: Timestamp,
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Candidate {
    /// A standby, and where its claims are told; none while it does not lead.
    pub fn new(
        client: Client,
        settings: Settings,
        clock: Arc<dyn Clock>,
        stop: Drain,
    ) -> (Self, watch::Receiver<Option<Claim>>) {
        let claims = watch::Sender::new(None);
        let claimed = claims.subscribe();
        let candidate = Self {
            api: Api::namespaced(client, &settings.namespace),
            elector: Elector::new(settings.identity.clone(), settings.policy),
            settings,
            clock,
            stop,
            claims,
            floor: Arc::new(watch::Sender::new(0)),
            lease: None,
            first_mark: None,
            retired: false,
            look_at: Timestamp::ZERO,
        };
        (candidate, claimed)
    }

    /// Competes, leads and competes again until the program drains; then releases the Lease if it leads.
    pub async fn run(mut self) {
        let (hint, mut hints) = mpsc::unbounded_channel();
        let clock = Arc::clone(&self.clock);
        let name = self.settings.name.clone();
        // The channel is there as long as this is.
        let following = follow_one(self.api.clone(), &name, clock, |seen| drop(hint.send(seen)));
        let mut following = std::pin::pin!(following);
        let mut floor = self.floor.subscribe();
        loop {
            self.publish();
            if self.elector.is_stopped() {
                return;
            }
            if self.retired {
                self.stop.draining().await;
                return;
            }
            let now = self.clock.elapsed();
            if self.look_at.has_passed(now) {
                self.look(now).await;
            } else if let Some(write) = self.elector.next_write(now, self.clock.wall_nanos()) {
                self.write(write, now).await;
            } else {
                let deadline = self.elector.poll_timeout().into_iter().chain([self.look_at]).min();
                tokio::select! {
                    () = self.stop.draining(), if !self.stop.is_draining() => {}
                    never = &mut following => match never {},
                    Some(seen) = hints.recv() => self.take_hint(seen.as_ref()),
                    Ok(()) = floor.changed() => self.elector.raise_term(*floor.borrow_and_update()),
                    () = sleep_until(self.clock.as_ref(), deadline) => {}
                }
            }
        }
    }

    /// Looks when the watch tells something new. A leader's own renewals are nothing new.
    fn take_hint(&mut self, seen: Option<&Lease>) {
        let new = match seen {
            Some(seen) if self.claims.borrow().is_some() => {
                record_of(seen).holder.as_ref() != Some(&self.settings.identity)
            }
            seen => {
                seen.map(ResourceExt::resource_version)
                    != self.lease.as_ref().map(ResourceExt::resource_version)
            }
        };
        if new {
            self.look_at = Timestamp::ZERO;
        }
    }

    async fn look(&mut self, started: Timestamp) {
        let api = self.api.clone();
        let name = self.settings.name.clone();
        let answer = self.call(async move { api.get_opt(&name).await }).await;
        self.look_at = started + self.settings.policy.retry_period;
        match answer {
            Ok(lease) => {
                self.elector.observe(lease.as_ref().map(record_of), self.clock.elapsed());
                self.look_for_a_leave(lease.as_ref());
                self.lease = lease;
            }
            Err(problem) => {
                warn!(lease = %self.settings.name, %problem, "cannot read the Lease, it is tried again")
            }
        }
    }

    /// Retires when the cluster has left its clusterset since this replica looked first: the next process that is started
    /// joins again, this one must not.
    fn look_for_a_leave(&mut self, lease: Option<&Lease>) {
        let mark = lease.and_then(|lease| lease.annotations().get(names::ANNOTATION_LEFT));
        match &self.first_mark {
            None => self.first_mark = Some(mark.cloned()),
            Some(first) if mark.is_some() && mark != first.as_ref() => {
                warn!(
                    "the cluster has left its clusterset: this controller does nothing until it is started anew"
                );
                self.retired = true;
            }
            Some(_) => {}
        }
    }

    async fn write(&mut self, write: Write, started: Timestamp) {
        let wanted = self.wanted(&write);
        let (api, name) = (self.api.clone(), self.settings.name.clone());
        let params = as_manager();
        let answer = self
            .call(async move {
                if write.create {
                    api.create(&params, &wanted).await
                } else {
                    api.replace(&name, &params, &wanted).await
                }
            })
            .await;
        match answer {
            Ok(lease) => {
                self.elector.handle_written(&write, record_of(&lease), started, self.clock.elapsed());
                self.lease = Some(lease);
                // A leader learns from its own writes, and from the watch.
                self.look_at = Timestamp::MAX;
            }
            // Another has written, or deleted it.
            Err(Problem::Refused(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {
                debug!(kind = ?write.kind, status = %status.message, "the Lease has changed meanwhile");
                self.look_at = Timestamp::ZERO;
            }
            Err(problem) => {
                warn!(lease = %self.settings.name, kind = ?write.kind, %problem, "cannot write the Lease, it is tried again");
                self.elector.handle_failed(started);
            }
        }
    }

    /// Makes a call within its time limit. The end of the leadership and a stop are not kept waiting by it.
    async fn call<T>(&mut self, call: impl Future<Output = kube::Result<T>>) -> Result<T, Problem> {
        let limit = self.settings.policy.call_limit();
        let mut call = std::pin::pin!(tokio::time::timeout(limit, call));
        loop {
            let (clock, fence) = (Arc::clone(&self.clock), self.elector.fence());
            tokio::select! {
                answer = &mut call => {
                    return match answer {
                        Ok(answer) => answer.map_err(Problem::Refused),
                        Err(_) => Err(Problem::TimedOut { limit }),
                    };
                }
                () = self.stop.draining(), if self.claims.borrow().is_some() => self.publish(),
                () = sleep_until(clock.as_ref(), fence) => self.publish(),
            }
        }
    }

    /// Tells who holds the claim whether it still holds.
    fn publish(&mut self) {
        let now = self.clock.elapsed();
        self.elector.handle_timeout(now);
        if self.stop.is_draining() && !self.elector.is_stopping() {
            self.elector.stop();
        }
        let held = self.claims.borrow().clone();
        let led = self.elector.term(now).zip(self.elector.fence());
        match (held, led) {
            (Some(claim), Some((term, fence))) if claim.term == term => claim.extend(fence),
            (None, None) => {}
            (held, led) => {
                if let Some(claim) = held {
                    claim.revoke();
                    if self.elector.fence().is_none() {
                        self.look_at = Timestamp::ZERO;
                    }
                    info!(term = claim.term, "leadership ends");
                }
                let claim = led.map(|(term, fence)| self.claim(term, fence));
                if let Some(claim) = &claim {
                    info!(term = claim.term, identity = %self.settings.identity, "leading");
                }
                self.claims.send_replace(claim);
            }
        }
    }

    fn claim(&self, term: u64, fence: Timestamp) -> Claim {
        let fence = Arc::new(AtomicU64::new(fence.as_nanos()));
        Claim { term, fence, clock: Arc::clone(&self.clock), floor: Arc::clone(&self.floor) }
    }

    /// The Lease as the write shall make it.
    fn wanted(&self, write: &Write) -> Lease {
        let known = if write.create { None } else { self.lease.clone() };
        let known = known.unwrap_or_default();
        let mut metadata = ObjectMeta {
            name: Some(self.settings.name.clone()),
            namespace: Some(self.settings.namespace.clone()),
            managed_fields: None,
            ..known.metadata
        };
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(names::ANNOTATION_TERM.to_owned(), write.term.to_string());
        if write.kind == WriteKind::Acquire {
            annotations.remove(names::ANNOTATION_LEFT);
        }
        let now = micro_time(self.clock.as_ref());
        let before = known.spec.unwrap_or_default();
        let acquire_time = match write.kind {
            WriteKind::Acquire => Some(now.clone()),
            WriteKind::Renew | WriteKind::Release => before.acquire_time,
        };
        let spec = LeaseSpec {
            holder_identity: (write.kind != WriteKind::Release).then(|| self.settings.identity.clone()),
            acquire_time,
            renew_time: Some(now),
            lease_duration_seconds: i32::try_from(self.settings.policy.lease_duration.as_secs().max(1)).ok(),
            lease_transitions: i32::try_from(write.transitions).ok(),
            ..before
        };
        Lease { metadata, spec: Some(spec) }
    }
}

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("no answer within {limit:?}")]
    TimedOut { limit: Duration },
    #[error("{0}")]
    Refused(kube::Error),
}

/// The time by the clock on the wall, as a Lease has it.
pub(crate) fn micro_time(clock: &dyn Clock) -> MicroTime {
    MicroTime(jiff::Timestamp::from_second(clock.wall().unix_secs()).unwrap_or_default())
}

/// What a Lease says. One whose term cannot be read counts as one without: a registry names the term that is needed.
pub(crate) fn record_of(lease: &Lease) -> Record {
    let spec = lease.spec.clone().unwrap_or_default();
    let number = |number: Option<i32>| u32::try_from(number.unwrap_or_default()).unwrap_or_default();
    Record {
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        term: lease
            .annotations()
            .get(names::ANNOTATION_TERM)
            .and_then(|term| term.parse().ok())
            .unwrap_or_default(),
        transitions: number(spec.lease_transitions),
        lease_duration: Duration::from_secs(number(spec.lease_duration_seconds).into()),
        renewed: format!("{:?}", spec.renew_time),
    }
}
