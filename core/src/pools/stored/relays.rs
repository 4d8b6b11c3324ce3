//! Whether the relays of one pool register the same.
//!
//! One relay that registers something else than before replaces what was there, once. Relays that disagree replace each
//! other's again and again: what was replaced comes back within a lease.

use crate::pools::PackedRegistration;
use crate::time::Timestamp;
use std::time::Duration;

/// So many of a pool's registrations are remembered that were replaced; more relays than that disagree two by two too.
const REMEMBERED: usize = 4;

/// What was registered of a pool and replaced.
#[derive(Debug, Default)]
pub(super) struct Replaced {
    recent: Vec<(Timestamp, PackedRegistration)>,
    /// While what was replaced comes back, that was told already.
    told_until: Option<Timestamp>,
}

impl Replaced {
    /// `new` replaces `old`. Says whether it was itself replaced within a `lease`, and that was not told yet.
    pub(super) fn turns_back(
        &mut self,
        old: &PackedRegistration,
        new: &PackedRegistration,
        now: Timestamp,
        lease: Duration,
    ) -> bool {
        self.recent
            .retain(|(then, replaced)| !(*then + lease).has_passed(now) && !replaced.says_the_same(old));
        let turns_back = self.recent.iter().any(|(_, replaced)| replaced.says_the_same(new));
        self.recent.push((now, old.clone()));
        if self.recent.len() > REMEMBERED {
            self.recent.remove(0);
        }
        if !turns_back {
            return false;
        }
        let is_told = self.told_until.is_some_and(|until| !until.has_passed(now));
        self.told_until = Some(now + lease);
        !is_told
    }
}
