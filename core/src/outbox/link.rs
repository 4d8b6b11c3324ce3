//! What answers say of the lease and of the registry that is talked to.

use super::told::Claim;
use super::{ActKind, Call, Failure, Link, Outbox, Process, SyncCause};
use crate::failover::Fault;
use crate::ids::{Build, Epoch, ServiceKey};
use crate::time::Timestamp;
use crate::timing::{MAX_LEASE, MIN_LEASE, Timing};
use crate::version::{Sum, Version};
use std::collections::BTreeMap;
use std::time::Duration;

impl Outbox {
    /// Why the registry that was asked last will not have this cluster as a member; none while it has it, or has not
    /// said.
    pub fn turned_away(&self) -> Option<&str> {
        self.turned_away.as_deref()
    }

    /// The name of the registry process that took the last registration or renewal; none where any of several may answer,
    /// and while none has this cluster.
    pub fn registry(&self) -> Option<Epoch> {
        self.told_by.as_ref()?.epoch
    }

    /// `by` took a registration or renewal. What an earlier release of it dropped is in no sum: all is put once more.
    pub(super) fn answered(&mut self, by: Process) {
        let known = |build: &&Build| !build.as_str().is_empty();
        let before = self.told_by.as_ref().map(|before| &before.build).filter(known);
        if before.is_some_and(|before| known(&&by.build) && *before != by.build) {
            self.resend = true;
        }
        // One that does not say its version says nothing of a change.
        let build = if by.build.as_str().is_empty() { before.cloned().unwrap_or_default() } else { by.build };
        self.told_by = Some(Process { build, ..by });
        if self.resend && self.link == Link::Steady {
            self.doubt_all(SyncCause::Version);
        }
    }

    /// The watch of the registry broke, so that it may have restarted and know nothing any more: the next renewal, which
    /// tells, is due at once.
    pub const fn doubt(&mut self) {
        self.in_doubt = true;
    }

    /// When the next renewal is due; none while the cluster is no member, or a renewal is under way.
    pub(super) const fn renewal_at(&self) -> Option<Timestamp> {
        match (self.is_registered() && self.renewal.is_none(), self.in_doubt) {
            (false, _) => None,
            (true, true) => Some(Timestamp::ZERO),
            (true, false) => Some(self.renew_at),
        }
    }

    pub(super) fn turn_away(&mut self, reason: Option<String>) {
        if self.turned_away != reason {
            if let Some(by) = self.told_by.as_mut().filter(|_| reason.is_some()) {
                by.epoch = None;
            }
            self.turned_away = reason;
            self.dirty.extend(self.exports.keys().cloned());
        }
    }

    pub(super) fn renewed(&mut self, sent_at: Timestamp, lease: Duration, now: Timestamp) {
        // What no registry may be told to grant is a mistake of its, and must become neither a storm of renewals nor a
        // silence that does not end.
        let lease = lease.clamp(MIN_LEASE, MAX_LEASE);
        self.timing = Timing::of_lease(lease);
        self.lease_until = sent_at + lease;
        self.renew_at = (sent_at + self.timing.heartbeat()).max(now);
    }

    /// A call failed that belonged to the try `attempt`.
    pub(super) fn fail(&mut self, failure: Failure, attempt: u64, now: Timestamp, jitter: f64) {
        // Another call of the same try failed before, and the next one is on its way.
        if attempt != self.registries.attempt() {
            return;
        }
        self.link = match failure {
            // One that took this cluster and forgets it before it has its exports, and so again, is of no use.
            Failure::UnknownMember if self.link == Link::Doubtful => {
                self.down(Fault::Unavailable, now, jitter)
            }
            Failure::UnknownMember => Link::Down { retry_at: now },
            Failure::OldTerm { floor } => Link::Deposed { floor },
            // A member keeps its lease by registering again soon; a cluster that is turned away has none to lose.
            Failure::Refused { .. } if self.is_registered() => {
                Link::Down { retry_at: now + self.timing.max_backoff() }
            }
            Failure::Refused { reason } => {
                self.turn_away(Some(reason));
                Link::Down { retry_at: now + self.timing.lease() }
            }
            Failure::Busy { .. } => self.down(Fault::Busy, now, jitter),
            Failure::Denied { reason } => {
                self.denied = Some(reason);
                self.down(Fault::Unusable, now, jitter)
            }
            Failure::Unavailable { .. } => self.down(Fault::Unavailable, now, jitter),
        };
    }

    /// A call of the try `attempt` was answered. The registry works only where nothing is to be compared any more: one
    /// that takes this cluster each time, and none of its exports, must not look well.
    pub(super) fn note_works(&mut self, attempt: u64) {
        if self.link == Link::Steady && attempt == self.registries.attempt() {
            self.registries.works();
        }
    }

    /// The registry is not to be counted on. Where none is left that was not asked, and one has said why it will not have
    /// this cluster, people are to know.
    fn down(&mut self, fault: Fault, now: Timestamp, jitter: f64) -> Link {
        let retry = self.registries.failed(fault, self.timing, now, jitter);
        if retry.all_failed
            && let Some(reason) = self.denied.take()
        {
            self.turn_away(Some(reason));
        }
        Link::Down { retry_at: retry.at }
    }

    /// The watch of the registry failed, or could not be opened.
    pub fn watch_failed(&mut self, now: Timestamp, jitter: f64) {
        if self.registries.watch_failed() && self.is_registered() {
            self.link = self.down(Fault::Unusable, now, jitter);
        }
    }

    /// The watch of the registry has told something.
    pub const fn watch_told(&mut self) {
        self.registries.watch_told();
    }

    /// A registry to probe now; its answer goes to [`Outbox::probed`].
    pub fn next_probe(&mut self, now: Timestamp) -> Option<usize> {
        self.registries.next_probe(self.timing, now)
    }

    /// Whether a probe found the registry `url` well.
    pub fn probed(&mut self, url: usize, well: bool, now: Timestamp, jitter: f64) {
        self.registries.probed(url, well, self.timing, now, jitter);
    }

    /// A better registry than the one in use: its watch is to be opened and read to its end, which
    /// [`Outbox::candidate_watched`] or [`Outbox::candidate_failed`] tells. It may be another one at any time.
    pub fn candidate(&self) -> Option<usize> {
        self.registries.candidate()
    }

    /// The watch of the candidate has told all.
    pub fn candidate_watched(&mut self, url: usize) {
        self.registries.candidate_watched(url);
    }

    /// The watch of the candidate failed.
    pub fn candidate_failed(&mut self, url: usize) {
        self.registries.candidate_failed(url);
    }

    /// The registry to ask to take this cluster over, while the current one has it.
    pub(super) fn better_registry(&self) -> Option<usize> {
        self.registries.to_ask().filter(|_| self.is_registered())
    }

    /// Asks the registry in use to take this cluster.
    pub(super) fn register(&mut self, now: Timestamp) -> Call {
        let (claims, sum) = self.claims_and_sum();
        self.told_version = self.begin(ActKind::Register { claims, sent_at: now });
        self.renewal = None;
        self.in_doubt = false;
        Call::Register { version: self.told_version, sum }
    }

    /// Asks a better registry to take this cluster. Nothing changes until it has.
    pub(super) fn ask(&mut self, url: usize, now: Timestamp) -> Call {
        let (claims, sum) = self.claims_and_sum();
        let version = self.begin_at(url, ActKind::Register { claims, sent_at: now });
        Call::Register { version, sum }
    }

    /// The registry `url` has taken this cluster, as of `version`. False when it is not wanted any more: a call to the
    /// one in use failed meanwhile, and that is dealt with first.
    pub(super) fn move_to(&mut self, url: usize, version: Version, now: Timestamp) -> bool {
        if self.better_registry() != Some(url) {
            return false;
        }
        self.registries.moved(self.timing, now);
        self.told_version = version;
        self.renewal = None;
        self.in_doubt = false;
        true
    }

    /// A better registry does not take this cluster.
    pub(super) fn not_moved(&mut self, failure: Failure, url: usize) {
        self.registries.candidate_failed(url);
        if let Failure::OldTerm { floor } = failure {
            self.link = Link::Deposed { floor };
        }
    }

    /// What a registry is to hold, and its sum.
    fn claims_and_sum(&self) -> (BTreeMap<ServiceKey, Claim>, Sum) {
        let claims = self.claims();
        let sum = claims.values().map(|claim| claim.leaf).collect();
        (claims, sum)
    }
}
