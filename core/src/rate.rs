//! How often something may happen: a bucket that holds as much as comes in one burst, and fills again at a steady rate.
//!
//! Kept as one moment: when the bucket will be full again (the generic cell rate algorithm). So nothing runs while
//! nothing happens, and a clock that stands still refuses rather than allows.

use crate::time::Timestamp;
use std::time::Duration;

/// How often something may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// In this time, over time.
    time: Duration,
    /// So many.
    count: u32,
    /// How many at once, after a pause.
    burst: u32,
}

impl Rate {
    /// So many a second, of which a second's worth may come at once; 0 counts as 1.
    pub const fn per_second(count: u32) -> Self {
        let count = if count == 0 { 1 } else { count };
        Self { time: Duration::from_secs(1), count, burst: count }
    }

    /// Once in this time.
    pub const fn once_in(time: Duration) -> Self {
        Self { time, count: 1, burst: 1 }
    }

    /// As often, but so many at once after a pause.
    #[must_use]
    pub const fn with_burst(self, burst: u32) -> Self {
        Self { burst, ..self }
    }

    fn time_of(self, count: u32) -> Duration {
        let nanos = self.time.as_nanos().saturating_mul(u128::from(count)) / u128::from(self.count);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// What is left of a [`Rate`]. A new one is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    full_at: Timestamp,
}

impl Bucket {
    /// Takes `count`, if there is as much.
    ///
    /// # Errors
    /// How long until there is. Nothing was taken.
    pub fn take(&mut self, rate: Rate, count: u32, now: Timestamp) -> Result<(), Duration> {
        let full_at = self.full_at.max(now) + rate.time_of(count);
        let most = now + rate.time_of(rate.burst.max(count));
        if full_at > most {
            return Err(full_at.since(most));
        }
        self.full_at = full_at;
        Ok(())
    }

    /// Puts `count` back, up to a full bucket.
    pub fn give(&mut self, rate: Rate, count: u32) {
        let nanos = u64::try_from(rate.time_of(count).as_nanos()).unwrap_or(u64::MAX);
        self.full_at = Timestamp::from_nanos(self.full_at.as_nanos().saturating_sub(nanos));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate::per_second(10).with_burst(3);

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_000 + millis)
    }

    #[test]
    fn a_burst_is_taken_at_once_and_the_rest_at_the_rate() {
        let mut bucket = Bucket::default();
        for _ in 0..3 {
            assert_eq!(bucket.take(RATE, 1, at(0)), Ok(()));
        }
        assert_eq!(bucket.take(RATE, 1, at(0)), Err(Duration::from_millis(100)));
        assert_eq!(bucket.take(RATE, 1, at(99)), Err(Duration::from_millis(1)));
        assert_eq!(bucket.take(RATE, 1, at(100)), Ok(()));
        assert_eq!(bucket.take(RATE, 1, at(199)), Err(Duration::from_millis(1)));
        assert_eq!(bucket.take(RATE, 1, at(201)), Ok(()));
    }

    #[test]
    fn a_pause_fills_the_bucket_to_its_burst_and_no_further() {
        let mut bucket = Bucket::default();
        assert_eq!(bucket.take(RATE, 3, at(0)), Ok(()));
        assert_eq!(bucket.take(RATE, 3, at(299)), Err(Duration::from_millis(1)));
        assert_eq!(bucket.take(RATE, 3, at(60_000)), Ok(()));
        assert_eq!(bucket.take(RATE, 1, at(60_000)), Err(Duration::from_millis(100)));
    }

    #[test]
    fn what_is_given_back_can_be_taken_again_but_not_saved() {
        let mut bucket = Bucket::default();
        assert_eq!(bucket.take(RATE, 3, at(0)), Ok(()));
        bucket.give(RATE, 2);
        assert_eq!(bucket.take(RATE, 2, at(0)), Ok(()));
        assert_eq!(bucket.take(RATE, 1, at(0)), Err(Duration::from_millis(100)));
        bucket.give(RATE, 1_000);
        assert_eq!(bucket.take(RATE, 3, at(0)), Ok(()));
        assert_eq!(bucket.take(RATE, 1, at(0)), Err(Duration::from_millis(100)));
    }

    #[test]
    fn more_than_a_burst_is_taken_from_a_full_bucket_only() {
        let mut bucket = Bucket::default();
        assert_eq!(bucket.take(RATE, 5, at(0)), Ok(()));
        assert_eq!(bucket.take(RATE, 5, at(499)), Err(Duration::from_millis(1)));
        assert_eq!(bucket.take(RATE, 5, at(500)), Ok(()));
    }

    #[test]
    fn what_may_happen_once_in_a_time_does_so_when_the_time_has_passed() {
        let (mut bucket, rate) = (Bucket::default(), Rate::once_in(Duration::from_secs(60)));
        assert_eq!(bucket.take(rate, 1, at(0)), Ok(()));
        assert_eq!(bucket.take(rate, 1, at(59_999)), Err(Duration::from_millis(1)));
        assert_eq!(bucket.take(rate, 1, at(60_000)), Ok(()));
        assert_eq!(bucket.take(rate, 1, at(119_999)), Err(Duration::from_millis(1)));
    }

    #[test]
    fn a_rate_of_nothing_is_one_a_second() {
        let mut bucket = Bucket::default();
        let none = Rate::per_second(0);
        assert_eq!(bucket.take(none, 1, at(0)), Ok(()));
        assert_eq!(bucket.take(none, 1, at(999)), Err(Duration::from_millis(1)));
        assert_eq!(bucket.take(none, 1, at(1_000)), Ok(()));
    }
}
