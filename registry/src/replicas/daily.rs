//! When the records of each member that is served here are looked at: once a day, and those that could not be looked at
//! again within the hour.

use std::collections::BTreeSet;
use std::time::Duration;

use mcs_core::time::Timestamp;
use mcs_proto::convert::Member;

/// The records of each member are looked at this often: a store keeps them for more than a week.
pub(super) const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What failed is tried again after this long.
const AGAIN: Duration = Duration::from_secs(60 * 60);

/// Their times.
#[derive(Debug)]
pub(super) struct Daily {
    all: Timestamp,
    failed: BTreeSet<Member>,
    again: Option<Timestamp>,
}

impl Daily {
    /// The first time is then.
    pub(super) const fn from(first: Timestamp) -> Self {
        Self { all: first, failed: BTreeSet::new(), again: None }
    }

    /// When something is to be looked at.
    pub(super) fn next(&self) -> Timestamp {
        self.again.map_or(self.all, |again| again.min(self.all))
    }

    /// Those of the members that are served here that are to be looked at now.
    pub(super) fn due(&mut self, served: Vec<Member>, now: Timestamp) -> Vec<Member> {
        let failed = std::mem::take(&mut self.failed);
        self.again = None;
        if self.all.has_passed(now) {
            self.all = now + DAY;
            return served;
        }
        served.into_iter().filter(|member| failed.contains(member)).collect()
    }

    /// One could not be looked at.
    pub(super) fn has_failed(&mut self, member: Member, now: Timestamp) {
        self.failed.insert(member);
        self.again = Some(now + AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(cluster: &str) -> Member {
        Member::read("prod".to_owned(), cluster.to_owned(), "u-1".to_owned()).unwrap()
    }

    fn at(hours: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(hours * 60 * 60)
    }

    #[test]
    fn all_are_looked_at_daily_and_what_failed_alone_again_after_an_hour() {
        let served = || vec![member("east"), member("west")];
        let mut daily = Daily::from(at(5));
        assert_eq!(daily.next(), at(5));
        assert_eq!(daily.due(served(), at(5)), served());
        assert_eq!(daily.next(), at(29));
        daily.has_failed(member("west"), at(5));
        for hours in 6..9 {
            assert_eq!(daily.next(), at(hours));
            assert_eq!(daily.due(served(), at(hours)), [member("west")]);
            daily.has_failed(member("west"), at(hours));
        }
        assert_eq!(daily.due(served(), at(9)), [member("west")]);
        assert_eq!(daily.next(), at(29));
    }

    #[test]
    fn who_is_not_served_any_more_is_another_replicas() {
        let mut daily = Daily::from(at(0));
        daily.due(vec![member("east")], at(0));
        daily.has_failed(member("east"), at(0));
        assert_eq!(daily.due(vec![member("west")], at(1)), []);
        assert_eq!(daily.next(), at(24));
    }

    /// A day that comes before the hour is over takes what failed with it.
    #[test]
    fn a_new_day_looks_at_each_once() {
        let mut daily = Daily::from(at(0));
        daily.due(vec![member("east")], at(0));
        daily.has_failed(member("east"), at(23));
        assert_eq!(daily.next(), at(24));
        assert_eq!(daily.due(vec![member("east")], at(24)), [member("east")]);
        assert_eq!(daily.next(), at(48));
    }
}
