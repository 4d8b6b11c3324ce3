//! What is remembered of who is no more: clusters that were removed, and replicas that ended. Of each so many are, and the
//! oldest go first.

use super::hear::Who;
use crate::ids::Epoch;
use crate::time::Timestamp;
use crate::version::Version;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// So many removed members are remembered.
const REMOVED: usize = 10_000;

/// So many replicas that ended are remembered: far more than come and go while a read may be late.
const ENDED: usize = 1_000;

/// That a member was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    /// The newest act seen of it.
    pub(super) mark: Version,
    /// When it was removed, on the judging clock.
    pub(super) at: Timestamp,
}

/// Clusters that were members: records as old as those that they had are those of before.
#[derive(Debug, Default)]
pub(super) struct Removals {
    left: BTreeMap<Who, Left>,
    /// All of them, the oldest first.
    by_age: BTreeSet<(Timestamp, Who)>,
}

impl Removals {
    pub(super) fn get(&self, who: &Who) -> Option<&Left> {
        self.left.get(who)
    }

    /// A member was removed here.
    pub(super) fn insert(&mut self, who: Who, left: Left) {
        self.remove(&who);
        self.by_age.insert((left.at, who.clone()));
        self.left.insert(who, left);
        while self.left.len() > REMOVED {
            let Some((_, oldest)) = self.by_age.pop_first() else { return };
            self.left.remove(&oldest);
        }
    }

    /// A cluster that is no member was removed elsewhere: of what is known of it already the time stands.
    pub(super) fn learn(&mut self, who: Who, left: Left) {
        match self.left.get_mut(&who) {
            Some(known) => known.mark = known.mark.max(left.mark),
            None => self.insert(who, left),
        }
    }

    /// It is a member.
    pub(super) fn remove(&mut self, who: &Who) {
        if let Some(left) = self.left.remove(who) {
            self.by_age.remove(&(left.at, who.clone()));
        }
    }
}

/// Replicas that ended, with the number of the newest item that was read of each: a late read may show it again.
#[derive(Debug, Default)]
pub(super) struct Ended {
    numbers: BTreeMap<Epoch, u64>,
    /// All of them, those first that ended first.
    order: VecDeque<Epoch>,
}

impl Ended {
    pub(super) fn get(&self, epoch: Epoch) -> Option<u64> {
        self.numbers.get(&epoch).copied()
    }

    /// A replica ended.
    pub(super) fn insert(&mut self, epoch: Epoch, number: u64) {
        if self.numbers.insert(epoch, number).is_none() {
            self.order.push_back(epoch);
        }
        while self.order.len() > ENDED {
            let Some(first) = self.order.pop_front() else { return };
            self.numbers.remove(&first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ClusterId, ClusterUid};

    fn who(number: usize) -> Who {
        let cluster = ClusterId::new(format!("c-{number}")).unwrap();
        Who { cluster, uid: ClusterUid::new(format!("u-{number}")).unwrap() }
    }

    fn left(seq: u64, at: u64) -> Left {
        Left { mark: Version::new(1, seq), at: Timestamp::from_millis(at) }
    }

    #[test]
    fn the_oldest_removals_go_first_and_no_member_counts() {
        let mut removals = Removals::default();
        for number in (0..REMOVED).rev() {
            removals.insert(who(number), left(1, number as u64));
        }
        removals.remove(&who(5));
        removals.insert(who(REMOVED), left(1, 0));
        assert!(removals.get(&who(0)).is_some(), "so many are remembered");
        removals.insert(who(0), left(2, 20_000));
        removals.insert(who(REMOVED + 1), left(1, 20_001));
        let known = [0, 1, 5, REMOVED, REMOVED + 1].map(|number| removals.get(&who(number)).copied());
        assert_eq!(known, [Some(left(2, 20_000)), Some(left(1, 1)), None, None, Some(left(1, 20_001))]);
        assert_eq!((removals.left.len(), removals.by_age.len()), (REMOVED, REMOVED));
    }

    #[test]
    fn a_removal_that_is_read_again_and_again_is_as_old_as_it_was() {
        let mut removals = Removals::default();
        for (read, expected) in [(left(3, 7), left(3, 7)), (left(5, 8), left(5, 7)), (left(4, 9), left(5, 7))]
        {
            removals.learn(who(1), read);
            assert_eq!(removals.get(&who(1)), Some(&expected));
        }
        assert_eq!(removals.by_age.len(), 1);
    }

    #[test]
    fn the_replicas_that_ended_first_go_first_whatever_they_are_called() {
        let mut ended = Ended::default();
        let epoch = |number: usize| Epoch(u128::MAX - number as u128);
        for number in 0..ENDED {
            ended.insert(epoch(number), 1);
        }
        ended.insert(epoch(1), 2);
        assert_eq!(ended.get(epoch(0)), Some(1));
        ended.insert(epoch(ENDED), 1);
        assert_eq!([0, 1, ENDED].map(|number| ended.get(epoch(number))), [None, Some(2), Some(1)]);
    }
}
