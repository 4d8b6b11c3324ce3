//! Which of several replicas of the service is asked.
//!
//! URLs are in the order of preference. Each is judged by what came of its calls: one that failed rests, longer each
//! time in a row, and is asked meanwhile only when no other is left. An earlier URL whose rest is over is the first
//! again, so a client returns by itself; its rests begin anew only when it has worked.
//!
//! Rejected: a random choice among all (an operator wants to know where clients are, and the nearest is the first);
//! probes of replicas that are not asked (each is a client more to all of them, and says less than a call; one that is
//! well may have no room for a watch).

use std::time::Duration;

use mcs_core::backoff::Backoff;
use mcs_core::time::Timestamp;

/// The first rest is at most this: a replica that restarts is back about then.
pub const FIRST_REST: Duration = Duration::from_secs(1);
/// No rest is longer: what a client of a dead replica costs it when it comes back, and how long a return takes.
pub const LONGEST_REST: Duration = Duration::from_secs(30);

/// The replicas.
#[derive(Clone, Debug)]
pub struct Replicas {
    known: Vec<Health>,
}

#[derive(Clone, Debug)]
struct Health {
    backoff: Backoff,
    rests_until: Option<Timestamp>,
}

impl Health {
    fn rests(&self, now: Timestamp) -> bool {
        self.rests_until.is_some_and(|until| !until.has_passed(now))
    }
}

impl Replicas {
    /// So many, of which nothing is known.
    pub fn new(count: usize) -> Self {
        let health = Health { backoff: Backoff::new(FIRST_REST, LONGEST_REST), rests_until: None };
        Self { known: vec![health; count] }
    }

    /// In which order they are asked: those that do not rest first, then those that do by the end of their rest.
    pub fn order(&self, now: Timestamp) -> Vec<usize> {
        let rest = |url: &usize| self.known.get(*url).filter(|health| health.rests(now))?.rests_until;
        let mut order: Vec<usize> = (0..self.known.len()).collect();
        order.sort_by_key(|url| rest(url));
        order
    }

    /// It did what it was asked.
    pub fn worked(&mut self, url: usize) {
        if let Some(health) = self.known.get_mut(url) {
            health.backoff.reset();
            health.rests_until = None;
        }
    }

    /// It did not. `jitter` is random between 0 and 1.
    pub fn failed(&mut self, url: usize, now: Timestamp, jitter: f64) {
        if let Some(health) = self.known.get_mut(url) {
            health.rests_until = Some(now + health.backoff.next_pause(Duration::ZERO, jitter));
        }
    }

    /// When the next of them has rested; none while one does not rest.
    pub fn rested_at(&self, now: Timestamp) -> Option<Timestamp> {
        let rests = self.known.iter().map(|health| health.rests_until.filter(|_| health.rests(now)));
        rests.collect::<Option<Vec<_>>>()?.into_iter().min()
    }

    /// When a better one than `url` has rested, and which; it may be now.
    pub fn better(&self, url: usize) -> Option<(Timestamp, usize)> {
        let earlier = self.known.iter().take(url).enumerate();
        earlier.map(|(place, health)| (health.rests_until.unwrap_or_default(), place)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn the_first_is_asked_while_it_works_and_again_when_it_has_rested() {
        let mut replicas = Replicas::new(3);
        assert_eq!(replicas.order(at(0)), [0, 1, 2]);
        replicas.failed(0, at(0), 1.0);
        let orders = [0, 999, 1_000, 1_001].map(|now| replicas.order(at(now)));
        assert_eq!(orders, [vec![1, 2, 0], vec![1, 2, 0], vec![0, 1, 2], vec![0, 1, 2]]);
    }

    #[test]
    fn those_that_rest_are_asked_last_and_the_one_that_rests_least_before_the_others() {
        let mut replicas = Replicas::new(3);
        replicas.failed(1, at(0), 0.0);
        replicas.failed(0, at(0), 1.0);
        assert_eq!((replicas.order(at(1)), replicas.rested_at(at(1))), (vec![2, 1, 0], None));
        replicas.failed(2, at(100), 1.0);
        assert_eq!((replicas.order(at(101)), replicas.rested_at(at(101))), (vec![1, 0, 2], Some(at(500))));
    }

    #[test]
    fn rests_grow_to_the_longest_and_begin_anew_only_when_it_has_worked() {
        let mut replicas = Replicas::new(1);
        let rest = |replicas: &mut Replicas| {
            replicas.failed(0, at(0), 1.0);
            replicas.rested_at(at(0))
        };
        let rests = [1, 2, 4, 8, 16, 30, 30].map(|seconds| Some(at(seconds * 1_000)));
        assert_eq!([(); 7].map(|()| rest(&mut replicas)), rests);
        replicas.worked(0);
        assert_eq!((replicas.rested_at(at(0)), rest(&mut replicas)), (None, Some(at(1_000))));
    }

    #[test]
    fn a_better_one_is_an_earlier_one_that_has_rested() {
        let mut replicas = Replicas::new(3);
        replicas.failed(0, at(0), 1.0);
        replicas.failed(1, at(0), 0.0);
        assert_eq!((replicas.better(0), replicas.better(1)), (None, Some((at(1_000), 0))));
        assert_eq!(replicas.better(2), Some((at(500), 1)));
        replicas.worked(0);
        assert_eq!(replicas.better(2), Some((Timestamp::ZERO, 0)));
    }
}
