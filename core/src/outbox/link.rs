//! What answers say of the lease and of the registry that is talked to.

use super::{Failure, Link, Outbox};
use crate::time::Timestamp;
use crate::timing::{MAX_LEASE, MIN_LEASE, Timing};
use std::time::Duration;

impl Outbox {
    /// Why the registry that was asked last will not have this cluster as a member; none while it has it, or has not
    /// said.
    pub fn turned_away(&self) -> Option<&str> {
        self.turned_away.as_deref()
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
            self.turned_away = reason;
            self.dirty.extend(self.exports.keys().cloned());
        }
    }

    pub(super) fn renewed(&mut self, sent_at: Timestamp, lease: Duration, now: Timestamp) {
        // What no registry may be told to grant is a mistake of its, and must become neither a storm of renewals nor a
        // silence that does not end.
        let lease = lease.clamp(MIN_LEASE, MAX_LEASE);
        self.timing = Timing::of_lease(lease);
        self.lease_until = Some(sent_at + lease);
        self.renew_at = (sent_at + self.timing.heartbeat()).max(now);
    }

    /// A call to the registry of `url` failed.
    pub(super) fn fail(&mut self, failure: Failure, url: usize, now: Timestamp, jitter: f64) {
        // Another call to the same registry failed before, and another registry is asked already.
        if url != self.url {
            return;
        }
        self.link = match failure {
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
            // Another registry would have no reason to take more, and this one has lost nothing.
            Failure::Busy { .. } => self.down(now, jitter),
            Failure::Unavailable { .. } => {
                self.url = (self.url + 1) % self.urls;
                self.down(now, jitter)
            }
        };
    }

    fn down(&mut self, now: Timestamp, jitter: f64) -> Link {
        let wait = self.backoff().mul_f64(jitter.clamp(0.0, 1.0));
        self.failures = self.failures.saturating_add(1);
        Link::Down { retry_at: now + wait }
    }

    /// The longest wait before the next try: doubles with every round over all URLs.
    fn backoff(&self) -> Duration {
        let rounds = self.failures / u32::try_from(self.urls).unwrap_or(u32::MAX);
        self.timing.backoff(rounds)
    }
}
