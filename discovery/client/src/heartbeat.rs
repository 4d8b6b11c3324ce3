//! When a pool is registered again.

use std::time::Duration;

use mcs_core::backoff::Backoff;

use crate::api::Lease;

/// How often a pool is registered before a service has said how often: its default.
pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(5);
/// The first pause after no replica answered is at most this.
pub const FIRST_RETRY: Duration = Duration::from_millis(500);
/// A registration that is refused is tried again at most this late: what it was refused for may have been the service's
/// fault, and is mended by hand.
pub const LONGEST_REFUSED: Duration = Duration::from_secs(300);
/// So much of an interval a heartbeat may come early, so that the relays of many pools do not stay in step.
const SPREAD: f64 = 0.2;

/// What came of a round over all replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// One took it.
    Granted(Lease),
    /// One refused it for what it says or who sends it; the others would too.
    Refused,
    /// None took it, and one at least said that it could not now (503).
    Unavailable,
    /// None answered.
    Unreachable,
}

/// The pace of one registration.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    interval: Duration,
    unreachable: Backoff,
    refused: Backoff,
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self::of(DEFAULT_INTERVAL)
    }
}

impl Heartbeat {
    const fn of(interval: Duration) -> Self {
        Self {
            interval,
            // The shortest interval is a second.
            unreachable: Backoff::new(FIRST_RETRY, interval),
            refused: Backoff::new(interval, LONGEST_REFUSED),
        }
    }

    /// How long to wait until it is registered again. `jitter` is random between 0 and 1.
    ///
    /// - granted, or a service that cannot take it now: the next heartbeat, never later than the interval that was told
    /// - nobody answered: sooner, in pauses that grow up to the interval
    /// - refused: in pauses that grow from the interval to [`LONGEST_REFUSED`]
    pub fn next_pause(&mut self, outcome: Outcome, jitter: f64) -> Duration {
        match outcome {
            Outcome::Granted(lease) => {
                *self = Self::of(lease.heartbeat_interval);
                self.beat(jitter)
            }
            Outcome::Unavailable => self.beat(jitter),
            Outcome::Unreachable => self.unreachable.next_pause(Duration::ZERO, jitter),
            Outcome::Refused => self.refused.next_pause(Duration::ZERO, jitter),
        }
    }

    /// What is registered is something else: what was refused may not be any more.
    pub const fn changed(&mut self) {
        self.refused.reset();
    }

    fn beat(&self, jitter: f64) -> Duration {
        self.interval.mul_f64(1.0 - SPREAD * jitter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRANTED: Outcome = Outcome::Granted(Lease {
        duration: Duration::from_secs(60),
        heartbeat_interval: Duration::from_secs(20),
    });

    fn pauses<const N: usize>(heartbeat: &mut Heartbeat, outcome: Outcome, jitter: f64) -> [u128; N] {
        [(); N].map(|()| heartbeat.next_pause(outcome, jitter).as_millis())
    }

    #[test]
    fn heartbeats_come_as_often_as_the_last_lease_said_and_never_later() {
        let mut heartbeat = Heartbeat::default();
        assert_eq!(pauses(&mut heartbeat, Outcome::Unavailable, 0.0), [5_000]);
        assert_eq!(pauses(&mut heartbeat, GRANTED, 0.0), [20_000]);
        assert_eq!(pauses(&mut heartbeat, GRANTED, 1.0), [16_000]);
        assert_eq!(pauses(&mut heartbeat, Outcome::Unavailable, 0.5), [18_000]);
    }

    #[test]
    fn who_reaches_nobody_tries_again_soon_and_at_the_latest_at_the_next_heartbeat() {
        let mut heartbeat = Heartbeat::default();
        heartbeat.next_pause(GRANTED, 0.0);
        let longest = pauses(&mut heartbeat, Outcome::Unreachable, 1.0);
        assert_eq!(longest, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 20_000, 20_000]);
        heartbeat.next_pause(GRANTED, 0.0);
        assert_eq!(pauses(&mut heartbeat, Outcome::Unreachable, 0.0), [250]);
    }

    #[test]
    fn what_is_refused_is_tried_ever_less_until_it_is_changed_or_taken() {
        let mut heartbeat = Heartbeat::default();
        let pauses_of = pauses(&mut heartbeat, Outcome::Refused, 1.0);
        assert_eq!(pauses_of, [5_000, 10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000]);
        heartbeat.changed();
        assert_eq!(pauses(&mut heartbeat, Outcome::Refused, 1.0), [5_000, 10_000]);
        heartbeat.next_pause(GRANTED, 0.0);
        assert_eq!(pauses(&mut heartbeat, Outcome::Refused, 1.0), [20_000]);
    }
}
