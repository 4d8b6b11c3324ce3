//! The system's clocks: the only module of the workspace that reads the time.
//!
//! Leases, deadlines and fences are measured on `CLOCK_BOOTTIME`, which no one sets and which goes on while the
//! machine sleeps: a controller that was suspended for an hour must find its lease gone.

use std::time::Duration;

use mcs_core::time::{Clock, Timestamp};
use rustix::time::{ClockId, clock_gettime};

/// How long [`sleep_until`] rests at most before it looks at the clock again.
const LONGEST_REST: Duration = Duration::from_millis(200);

/// The clocks of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn elapsed(&self) -> Timestamp {
        let time = clock_gettime(ClockId::Boottime);
        let secs = u64::try_from(time.tv_sec).unwrap_or_default();
        let nanos = u64::try_from(time.tv_nsec).unwrap_or_default();
        Timestamp::from_nanos(secs.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    fn wall_nanos(&self) -> i128 {
        let time = clock_gettime(ClockId::Realtime);
        i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
    }
}

/// How long the threads of this process have run so far, in all.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let secs = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(secs, 0).saturating_add(Duration::from_nanos(time.tv_nsec.unsigned_abs()))
}

/// Waits until `deadline` has passed on `clock`; without a deadline, for ever.
///
/// Tokio's timers stand still while the machine sleeps and know nothing of a clock that a test moves, so the clock
/// is looked at again several times a second.
pub async fn sleep_until(clock: &dyn Clock, deadline: Option<Timestamp>) {
    let Some(deadline) = deadline else {
        return std::future::pending().await;
    };
    loop {
        let now = clock.elapsed();
        if deadline.has_passed(now) {
            return;
        }
        tokio::time::sleep(deadline.since(now).min(LONGEST_REST)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mcs_core::time::{ManualClock, WallTime};

    use super::*;

    #[test]
    fn the_monotonic_clock_does_not_go_back() {
        let first = SystemClock.elapsed();
        assert!(first > Timestamp::ZERO);
        assert!(SystemClock.elapsed() >= first);
    }

    #[test]
    fn the_wall_clock_counts_from_1970() {
        let written = WallTime::from_unix_secs(1_700_000_000);
        assert!(SystemClock.wall() > written);
    }

    #[tokio::test(start_paused = true)]
    async fn a_sleeper_wakes_when_its_deadline_has_passed_on_the_clock() {
        let clock = Arc::new(ManualClock::default());
        let deadline = clock.elapsed() + Duration::from_secs(1);
        let known = Arc::clone(&clock);
        let sleeper = tokio::spawn(async move { sleep_until(&*known, Some(deadline)).await });
        for left in [Duration::from_nanos(1), Duration::ZERO] {
            clock.advance(deadline.since(clock.elapsed()) - left);
            // It has looked again by then, whatever the clock said.
            tokio::time::sleep(LONGEST_REST * 2).await;
            assert_eq!(sleeper.is_finished(), left.is_zero());
        }
    }
}
