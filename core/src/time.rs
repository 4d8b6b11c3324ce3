//! Time as the deciding code sees it: two kinds that never mix.
//!
//! [`Timestamp`] counts from an arbitrary start on a clock that no one sets and that goes on while the machine
//! sleeps; every lease, deadline and fence uses it. [`WallTime`] is what people read; it is stored and shown, and
//! orders exports by their creation, but no lease depends on it.

use std::fmt;
use std::time::Duration;

/// A moment on the monotonic clock of one process, in nanoseconds since an arbitrary start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The earliest moment.
    pub const ZERO: Self = Self(0);
    /// A moment that never comes.
    pub const MAX: Self = Self(u64::MAX);

    /// The moment `nanos` nanoseconds after the start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The moment `millis` milliseconds after the start.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero when it is not after.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The moment `age` earlier; the start when that is before it.
    pub const fn ago(self, age: Duration) -> Self {
        let age = age.as_nanos();
        Self(if age > self.0 as u128 { 0 } else { self.0 - age as u64 })
    }

    /// Whether a deadline at this moment has passed: `deadline <= now`.
    pub const fn has_passed(self, now: Self) -> bool {
        self.0 <= now.0
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;

    /// The moment `rhs` later; [`Timestamp::MAX`] when that cannot be counted.
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// A moment on the wall clock, in whole seconds since 1970-01-01T00:00:00Z (the resolution of Kubernetes' `Time`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(i64);

impl WallTime {
    /// The moment `secs` seconds after 1970-01-01T00:00:00Z.
    pub const fn from_unix_secs(secs: i64) -> Self {
        Self(secs)
    }

    /// The second in which `nanos` nanoseconds have passed since 1970-01-01T00:00:00Z; the nearest that can be counted.
    pub fn from_unix_nanos(nanos: i128) -> Self {
        let secs = nanos.div_euclid(1_000_000_000);
        Self(i64::try_from(secs).unwrap_or(if secs < 0 { i64::MIN } else { i64::MAX }))
    }

    /// Seconds since 1970-01-01T00:00:00Z.
    pub const fn unix_secs(self) -> i64 {
        self.0
    }
}

impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s after 1970-01-01T00:00:00Z", self.0)
    }
}

/// A moment on the wall clock in whole milliseconds, to tell how long something took from one machine to another. No
/// decision is made from it: the clocks may differ by more than what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallMillis(std::num::NonZeroU64);

impl WallMillis {
    /// The moment `millis` milliseconds after 1970-01-01T00:00:00Z; none that is not after it.
    pub fn from_unix_millis(millis: i64) -> Option<Self> {
        std::num::NonZeroU64::new(u64::try_from(millis).ok()?).map(Self)
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    pub const fn unix_millis(self) -> u64 {
        self.0.get()
    }

    /// The moment before it, or the same where there is none.
    pub fn before(self) -> Self {
        Self(std::num::NonZeroU64::new(self.0.get() - 1).unwrap_or(self.0))
    }

    /// How long after `earlier` this is; zero when it is not after.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.get().saturating_sub(earlier.0.get()))
    }
}

/// Where a program reads the time; the one real implementation is in `mcs-runtime`.
pub trait Clock: Send + Sync + 'static {
    /// Now, on the clock that no one sets.
    fn elapsed(&self) -> Timestamp;
    /// Now, on the wall clock, in nanoseconds since 1970-01-01T00:00:00Z; read anew each time, only stored or shown.
    fn wall_nanos(&self) -> i128;
    /// Now, on the wall clock.
    fn wall(&self) -> WallTime {
        WallTime::from_unix_nanos(self.wall_nanos())
    }
    /// What the wall clock said at an earlier moment, had nobody set it since: the same whenever it is asked for, which
    /// it would not be if both clocks were cut to seconds first.
    fn wall_at(&self, then: Timestamp) -> WallTime {
        let passed = self.elapsed().since(then).as_nanos();
        WallTime::from_unix_nanos(self.wall_nanos().saturating_sub_unsigned(passed))
    }
    /// Now, on the wall clock, in milliseconds.
    fn wall_millis(&self) -> Option<WallMillis> {
        WallMillis::from_unix_millis(i64::try_from(self.wall_nanos() / 1_000_000).ok()?)
    }
}

/// A clock that moves only when a test says so.
#[cfg(any(test, feature = "test-util"))]
#[derive(Debug, Default)]
pub struct ManualClock {
    nanos: std::sync::atomic::AtomicU64,
    /// In nanoseconds.
    wall: std::sync::atomic::AtomicI64,
}

#[cfg(any(test, feature = "test-util"))]
impl ManualClock {
    /// A clock at the start, with the wall clock at `wall`.
    pub fn at(wall: WallTime) -> Self {
        Self { nanos: 0.into(), wall: nanos_of(wall).into() }
    }

    /// Moves the monotonic clock on; the wall clock stays.
    pub fn advance(&self, by: Duration) {
        let nanos = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, std::sync::atomic::Ordering::SeqCst);
    }

    /// Moves both clocks on.
    pub fn pass(&self, by: Duration) {
        self.advance(by);
        self.wall
            .fetch_add(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX), std::sync::atomic::Ordering::SeqCst);
    }

    /// Sets the wall clock; the monotonic clock stays.
    pub fn set_wall(&self, wall: WallTime) {
        self.wall.store(nanos_of(wall), std::sync::atomic::Ordering::SeqCst);
    }
}

#[cfg(any(test, feature = "test-util"))]
const fn nanos_of(wall: WallTime) -> i64 {
    wall.unix_secs().saturating_mul(1_000_000_000)
}

#[cfg(any(test, feature = "test-util"))]
impl Clock for ManualClock {
    fn elapsed(&self) -> Timestamp {
        Timestamp::from_nanos(self.nanos.load(std::sync::atomic::Ordering::SeqCst))
    }

    fn wall_nanos(&self) -> i128 {
        self.wall.load(std::sync::atomic::Ordering::SeqCst).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_times_are_cut_to_seconds_downwards() {
        let second = |nanos| WallTime::from_unix_nanos(nanos).unix_secs();
        assert_eq!([0, 999_999_999, 1_000_000_000, -1].map(second), [0, 0, 1, -1]);
        assert_eq!([i128::MIN, i128::MAX].map(second), [i64::MIN, i64::MAX]);
    }

    #[test]
    fn what_the_wall_clock_said_at_a_moment_stays_the_same() {
        let clock = ManualClock::at(WallTime::from_unix_secs(1_000));
        clock.pass(Duration::from_millis(700));
        let then = clock.elapsed();
        for _ in 0..20 {
            assert_eq!(clock.wall_at(then), WallTime::from_unix_secs(1_000));
            clock.pass(Duration::from_millis(100));
        }
        clock.set_wall(WallTime::from_unix_secs(50));
        assert_eq!(clock.wall_at(then), WallTime::from_unix_secs(48));
    }

    #[test]
    fn time_that_went_back_between_two_machines_is_none() {
        let at = |millis| WallMillis::from_unix_millis(millis).expect("a moment after 1970");
        let passed = [at(7_250).since(at(7_000)), at(7_000).since(at(7_000)), at(7_000).since(at(7_250))];
        assert_eq!(passed, [Duration::from_millis(250), Duration::ZERO, Duration::ZERO]);
    }

    #[test]
    fn what_is_not_after_1970_is_no_moment() {
        assert_eq!([0, -1, i64::MIN].map(WallMillis::from_unix_millis), [None; 3]);
    }
}
