//! Open loop: what is due is due at its time, whether or not what came before has been answered, and how long it took
//! counts from then. A system that stands still for a second so has a second in its times, for all that was due in it;
//! a generator that waits for answers would have asked once.

use std::{io, time::Duration};

use mcs_core::time::{Clock, Timestamp};
use mcs_runtime::clock::SystemClock;
use rustix::{
    thread::clock_nanosleep_absolute,
    time::{ClockId, Timespec},
};

/// When each of some acts is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    start: Timestamp,
    interval: Duration,
    count: u32,
}

impl Schedule {
    /// The acts of `duration` at `rate` a second, at least one, of which the first is due at `start`.
    pub fn new(start: Timestamp, rate: u32, duration: Duration) -> Self {
        let interval = Duration::from_secs(1) / rate.max(1);
        let count = duration.as_nanos() / interval.as_nanos().max(1);
        Self { start, interval, count: u32::try_from(count).unwrap_or(u32::MAX).max(1) }
    }

    /// How many acts there are.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// When the act of this number is due; the first has 0.
    pub fn due(&self, number: u32) -> Timestamp {
        self.start + self.interval * number
    }

    /// How long the act of this number took that is over `now`.
    pub fn took(&self, number: u32, now: Timestamp) -> Duration {
        now.since(self.due(number))
    }

    /// Lets each act begin when it is due, in order; one that is late at once. Gives how late each began.
    ///
    /// # Errors
    /// `sleep_until` failed.
    pub fn drive(
        &self,
        clock: &dyn Clock,
        mut sleep_until: impl FnMut(Timestamp) -> io::Result<()>,
        mut begin: impl FnMut(u32),
    ) -> io::Result<Vec<Duration>> {
        let mut late = Vec::new();
        for number in 0..self.count {
            if !self.due(number).has_passed(clock.elapsed()) {
                sleep_until(self.due(number))?;
            }
            late.push(self.took(number, clock.elapsed()));
            begin(number);
        }
        Ok(late)
    }

    /// [`Schedule::drive`] on the clock of the machine. It blocks, and wakes to some tens of microseconds: the timers
    /// of tokio have a millisecond at best, as much as what is measured.
    ///
    /// # Errors
    /// The clock cannot be waited on.
    pub fn drive_blocking(&self, begin: impl FnMut(u32)) -> io::Result<Vec<Duration>> {
        self.drive(&SystemClock, sleep_until, begin)
    }
}

fn sleep_until(deadline: Timestamp) -> io::Result<()> {
    let since_start = Duration::from_nanos(deadline.as_nanos());
    let request = Timespec {
        tv_sec: i64::try_from(since_start.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: since_start.subsec_nanos().into(),
    };
    loop {
        match clock_nanosleep_absolute(ClockId::Boottime, &request) {
            Err(rustix::io::Errno::INTR) => {}
            ended => return Ok(ended?),
        }
    }
}

#[cfg(test)]
mod tests {
    use mcs_core::time::{ManualClock, WallTime};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_schedule_has_the_acts_of_its_duration_and_at_least_one() {
        let count = |rate, duration| Schedule::new(Timestamp::ZERO, rate, duration).count();
        assert_eq!(count(250, SECOND * 30), 7_500);
        assert_eq!(count(1, Duration::from_millis(1)), 1);
        assert_eq!(count(0, SECOND), 1);
    }

    #[test]
    fn an_act_that_holds_up_the_next_ones_makes_them_late_and_they_catch_up_at_once() {
        let clock = ManualClock::at(WallTime::from_unix_secs(0));
        let schedule = Schedule::new(Timestamp::ZERO + SECOND, 1, SECOND * 4);
        let mut slept = Vec::new();
        let mut began = Vec::new();
        let late = schedule
            .drive(
                &clock,
                |deadline| {
                    slept.push(deadline);
                    clock.advance(deadline.since(clock.elapsed()));
                    Ok(())
                },
                |number| {
                    began.push((number, clock.elapsed()));
                    // The first act holds everything up for two and a half seconds.
                    if number == 0 {
                        clock.advance(SECOND * 5 / 2);
                    }
                },
            )
            .expect("the clock runs");
        let at = |seconds: f64| Timestamp::ZERO + SECOND.mul_f64(seconds);
        assert_eq!(began, [(0, at(1.0)), (1, at(3.5)), (2, at(3.5)), (3, at(4.0))]);
        assert_eq!(slept, [at(1.0), at(4.0)]);
        assert_eq!(late, [0.0, 1.5, 0.5, 0.0].map(|seconds| SECOND.mul_f64(seconds)));
    }

    #[test]
    fn what_began_late_counts_from_when_it_was_due() {
        let schedule = Schedule::new(Timestamp::ZERO + SECOND, 2, SECOND * 4);
        assert_eq!(schedule.took(3, Timestamp::ZERO + SECOND * 4), SECOND * 3 / 2);
    }

    #[test]
    fn a_real_clock_is_waited_on_to_the_deadline() {
        let deadline = SystemClock.elapsed() + Duration::from_millis(5);
        sleep_until(deadline).expect("the clock runs");
        assert!(deadline.has_passed(SystemClock.elapsed()));
    }
}
