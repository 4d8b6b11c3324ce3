//! Members whose records did not fit together when they were read, and when each is asked for again: soon, and later and
//! later as long as nothing comes of it.

use std::collections::BTreeMap;

use mcs_core::registry::Who;
use mcs_core::time::Timestamp;
use mcs_core::timing::Timing;

/// They.
#[derive(Debug)]
pub(super) struct Unfit {
    timing: Timing,
    /// How often each was read or asked for in vain, and when it is asked for again.
    members: BTreeMap<Who, (u32, Timestamp)>,
}

impl Unfit {
    /// All fit.
    pub(super) const fn new(timing: Timing) -> Self {
        Self { timing, members: BTreeMap::new() }
    }

    /// A member was read.
    pub(super) fn was_read(&mut self, who: Who, fits: bool, now: Timestamp) {
        if fits {
            self.members.remove(&who);
        } else {
            let tries = self.members.get(&who).map_or(1, |(tries, _)| tries.saturating_add(1));
            self.members.insert(who, (tries, now + self.timing.reread(tries)));
        }
    }

    /// When somebody is to be asked for again.
    pub(super) fn wakes_at(&self) -> Option<Timestamp> {
        self.members.values().map(|(_, at)| *at).min()
    }

    /// Whether somebody is to be asked for again now. Who is no member any more is not waited for.
    pub(super) fn is_due(&mut self, now: Timestamp, is_member: impl Fn(&Who) -> bool) -> bool {
        let due: Vec<Who> = self
            .members
            .iter()
            .filter(|(_, (_, at))| at.has_passed(now))
            .map(|(who, _)| who.clone())
            .collect();
        for who in &due {
            if !is_member(who) {
                self.members.remove(who);
            } else if let Some((tries, at)) = self.members.get_mut(who) {
                *tries = tries.saturating_add(1);
                *at = now + self.timing.reread(*tries);
            }
        }
        !due.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mcs_core::ids::{ClusterId, ClusterUid};

    use super::*;

    fn who(name: &str) -> Who {
        Who { cluster: ClusterId::new(name).unwrap(), uid: ClusterUid::new("u-1").unwrap() }
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn what_does_not_fit_is_asked_for_later_and_later_until_it_does() {
        let mut unfit = Unfit::new(Timing::default());
        assert_eq!(unfit.wakes_at(), None);
        unfit.was_read(who("east"), false, at(0));
        assert_eq!(unfit.wakes_at(), Some(at(400)));
        let mut asked = Vec::new();
        for millis in (0..4_000).step_by(100) {
            if unfit.is_due(at(millis), |_| true) {
                asked.push(millis);
            }
        }
        assert_eq!(asked, [400, 1_200, 2_800]);
        unfit.was_read(who("east"), true, at(4_000));
        assert_eq!(unfit.wakes_at(), None);
    }

    /// One that does not fit for days makes no other one wait as long.
    #[test]
    fn each_has_pauses_of_its_own() {
        let mut unfit = Unfit::new(Timing::default());
        (0..20).for_each(|_| unfit.was_read(who("west"), false, at(0)));
        assert_eq!(unfit.wakes_at(), Some(Timestamp::ZERO + Timing::default().compare()));
        unfit.was_read(who("east"), false, at(1_000));
        assert_eq!(unfit.wakes_at(), Some(at(1_400)));
    }

    #[test]
    fn who_is_no_member_any_more_is_asked_for_once() {
        let mut unfit = Unfit::new(Timing::default());
        unfit.was_read(who("east"), false, at(0));
        assert!(!unfit.is_due(at(399), |_| false));
        assert!(unfit.is_due(at(400), |_| false));
        assert_eq!(unfit.wakes_at(), None);
        assert!(!unfit.is_due(Timestamp::ZERO + Duration::from_secs(3_600), |_| false));
    }
}
