//! Pauses between the tries of something that fails: longer and longer, spread, and no shorter than a server asks for.
//!
//! Each pause is drawn from the upper half of a bound that doubles. So pauses never shrink, none is above the longest
//! bound, and those who failed at the same moment do not come back at the same moment. What a server asks for
//! (`Retry-After`) is lengthened by at most a quarter instead, since it tells everybody the same.
//!
//! Rejected: drawing from the whole bound, as for calls to a registry ([`crate::timing::Timing::backoff`]). Next to no
//! pause may come of that, and with a server that refuses for its load each try costs.

use std::time::Duration;

/// What a server asks for counts up to this, with what is added to it: the API server itself asks for about as much
/// under the worst load, and what it has is needed.
pub const MAX_ASKED: Duration = Duration::from_secs(30);

/// The pauses of one caller; see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    bound: Duration,
}

impl Backoff {
    /// The first pause is at most `first`, and none that no server asked for is above `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, bound: first }
    }

    /// How long to wait after one more failure, `asked` or longer up to [`MAX_ASKED`]. `jitter` is random between 0 and 1.
    pub fn next_pause(&mut self, asked: Duration, jitter: f64) -> Duration {
        let pause = self.bound.mul_f64(0.5 + jitter / 2.0);
        self.bound = (self.bound * 2).min(self.longest);
        let asked = asked.min(MAX_ASKED).mul_f64(1.0 + jitter / 4.0);
        pause.max(asked.min(MAX_ASKED))
    }

    /// It works again: the next failure is a first one.
    pub const fn reset(&mut self) {
        self.bound = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOT_ASKED: Duration = Duration::ZERO;

    fn mk() -> Backoff {
        Backoff::new(Duration::from_millis(800), Duration::from_secs(30))
    }

    fn pauses(backoff: &mut Backoff, asked: u64, jitter: f64) -> Vec<u128> {
        (0..8).map(|_| backoff.next_pause(Duration::from_secs(asked), jitter).as_millis()).collect()
    }

    #[test]
    fn pauses_are_drawn_from_the_upper_half_of_a_bound_that_doubles_to_the_longest() {
        let upper = [800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000];
        assert_eq!(pauses(&mut mk(), 0, 1.0), upper);
        assert_eq!(pauses(&mut mk(), 0, 0.0), upper.map(|pause| pause / 2));
    }

    #[test]
    fn no_pause_is_shorter_than_what_a_server_asks_for_and_the_others_grow_beside_it() {
        assert_eq!(pauses(&mut mk(), 5, 0.0), [5_000, 5_000, 5_000, 5_000, 6_400, 12_800, 15_000, 15_000]);
        assert_eq!(
            pauses(&mut mk(), 16, 1.0),
            [20_000, 20_000, 20_000, 20_000, 20_000, 25_600, 30_000, 30_000]
        );
        assert_eq!(pauses(&mut mk(), 28, 1.0), [30_000; 8]);
        let nonsense = Duration::from_secs(u64::from(u32::MAX));
        assert_eq!(mk().next_pause(nonsense, 1.0), MAX_ASKED);
    }

    #[test]
    fn what_works_again_and_fails_anew_starts_over() {
        let mut backoff = mk();
        pauses(&mut backoff, 0, 1.0);
        backoff.reset();
        assert_eq!(backoff.next_pause(NOT_ASKED, 1.0), Duration::from_millis(800));
    }
}
