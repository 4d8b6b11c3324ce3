//! Whether a call is tried again, and when: the only layer that does so.
//!
//! **One budget** for all calls of a process: a try again costs [`CALLS_A_RETRY`] tokens, of which each call brings
//! one. While half of the calls are throttled, a table so gets at most a sixth more requests than there are calls,
//! where three tries each would be nearly twice as many, of exactly those that it cannot take. What is not tried again
//! fails, and its caller, who knows what it is worth, comes back later.
//!
//! **Urgent calls go first**: [`Class::Bulk`] leaves half of the budget alone, and only [`BULK_AT_ONCE`] of it are under
//! way, so that a renewal meets neither an empty budget nor a queue.
//!
//! Pauses have full jitter: those who were throttled together do not come back together.
//!
//! Rejected: the SDK's retries (each call has its own three tries, below any that a caller makes; the token bucket of its
//! standard mode lets 50 throttled calls be tried twice more before it ends that, and knows no class); its adaptive mode (slows down all calls of
//! a client, renewals too); no tries at all (a connection that died idle would fail the call that finds it).

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use super::{Class, Why};

/// One try again for so many calls, so that requests stay below 1.2 times the calls.
const CALLS_A_RETRY: u32 = 6;

/// So many tries again are there at once after a time without any: a fault that lasts some moments, such as a node
/// of the table that is replaced, is not seen by callers.
const RETRIES_AT_ONCE: u32 = 10;

/// So many of them are left for urgent calls.
const URGENT_RESERVE: u32 = RETRIES_AT_ONCE / 2;

/// A call has at most so many tries. While half of the requests are throttled, one in 16 calls fails them all.
const MAX_TRIES: u32 = 4;

/// The first pause is at most this long. A partition that was asked for too much takes more a moment later.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// No pause is longer: the time of a call is short, and its caller has pauses of its own.
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// So many bulk calls are under way at once, each on a connection. At 5 ms a call that is 6,000 a second, above what
/// a partition takes (1,000 writes, 3,000 reads).
const BULK_AT_ONCE: usize = 32;

/// What all calls of a client share.
#[derive(Debug)]
pub(super) struct Tries {
    /// The budget, in calls.
    saved: AtomicU32,
    bulk: Semaphore,
}

impl Default for Tries {
    fn default() -> Self {
        Self { saved: AtomicU32::new(RETRIES_AT_ONCE * CALLS_A_RETRY), bulk: Semaphore::new(BULK_AT_ONCE) }
    }
}

impl Tries {
    /// A new call begins, when there is room for it.
    pub(super) async fn begin(&self, class: Class) -> Option<SemaphorePermit<'_>> {
        let permit = match class {
            Class::Urgent => None,
            Class::Bulk => self.bulk.acquire().await.ok(),
        };
        self.earn();
        permit
    }

    fn earn(&self) {
        let most = RETRIES_AT_ONCE * CALLS_A_RETRY;
        let more = |saved: u32| Some(saved.saturating_add(1).min(most));
        // It always has a new value, so this does not fail.
        let _ = self.saved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// The longest pause before the next try of a call that failed `tries` times; none when it ends.
    pub(super) fn again(&self, class: Class, tries: u32, why: &Why) -> Option<Duration> {
        if !why.retry_helps() || tries >= MAX_TRIES {
            return None;
        }
        let reserved = match class {
            Class::Urgent => 0,
            Class::Bulk => URGENT_RESERVE,
        };
        let left =
            |saved: u32| saved.checked_sub(CALLS_A_RETRY).filter(|left| *left >= reserved * CALLS_A_RETRY);
        self.saved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).ok()?;
        Some((FIRST_PAUSE * 2_u32.saturating_pow(tries - 1)).min(LONGEST_PAUSE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn throttled() -> Why {
        Why::Throttled { reason: "too fast".to_owned() }
    }

    /// How many tries again there are now.
    fn spend(tries: &Tries, class: Class) -> usize {
        std::iter::from_fn(|| tries.again(class, 1, &throttled())).count()
    }

    #[test]
    fn bulk_calls_leave_half_of_the_budget_to_urgent_ones() {
        let tries = Tries::default();
        assert_eq!([spend(&tries, Class::Bulk), spend(&tries, Class::Urgent)], [5, 5]);
        assert_eq!([spend(&tries, Class::Bulk), spend(&tries, Class::Urgent)], [0, 0]);
    }

    #[test]
    fn six_calls_earn_one_try_again_and_no_more_than_ten_are_saved() {
        let tries = Tries::default();
        assert_eq!(spend(&tries, Class::Urgent), 10);
        let earned = |calls: u32| {
            (0..calls).for_each(|_| tries.earn());
            spend(&tries, Class::Urgent)
        };
        // Three of the seven are left of before.
        assert_eq!([earned(5), earned(1), earned(7), earned(5), earned(1_000)], [0, 1, 1, 1, 10]);
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_the_fourth_try_is_the_last() {
        let tries = Tries::default();
        let pauses: Vec<_> = (1..=5).map(|failed| tries.again(Class::Urgent, failed, &throttled())).collect();
        assert_eq!(
            pauses,
            [Some(50), Some(100), Some(200), None, None].map(|ms| ms.map(Duration::from_millis))
        );
    }

    #[test]
    fn what_trying_again_does_not_help_is_not_tried_again() {
        let (table_flag, action) = ("--dynamodb-table", super::super::Action::PutItem);
        let text = || "words".to_owned();
        let whys = [
            (Why::TimedOut { limit: Duration::from_secs(1) }, true),
            (Why::Away { reason: text() }, true),
            (throttled(), true),
            (Why::NoTable { table_flag }, false),
            (Why::NoCredentials { reason: text() }, false),
            (Why::AccessDenied { action, reason: text() }, false),
            (Why::Refused { code: text(), reason: text() }, false),
        ];
        for (why, helps) in whys {
            assert_eq!(Tries::default().again(Class::Urgent, 1, &why).is_some(), helps, "{why}");
        }
    }

    #[tokio::test]
    async fn so_many_bulk_calls_at_once_and_urgent_ones_beside_them() {
        let tries = Tries::default();
        let mut under_way = Vec::new();
        for _ in 0..BULK_AT_ONCE {
            under_way.push(tries.begin(Class::Bulk).await);
        }
        assert!(tries.begin(Class::Urgent).await.is_none());
        let waiting = tries.begin(Class::Bulk);
        tokio::pin!(waiting);
        tokio::select! {
            biased;
            _ = &mut waiting => panic!("one bulk call too many is under way"),
            () = std::future::ready(()) => {}
        }
        under_way.pop();
        assert!(waiting.await.is_some());
    }
}
