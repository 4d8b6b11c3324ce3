//! How often the slices of one import are written: at once, then a pause, and the last state always.
//!
//! Every write of a slice goes to each node of the cluster, so endpoints that flap a hundred times a second must not
//! become as many writes. What comes from other clusters is spaced by the sender already; this spaces what comes from
//! the own cluster, and from several others at once.

use mcs_core::ids::ServiceKey;
use mcs_core::time::Timestamp;
use mcs_core::timing::COALESCE;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// When each import was written last, while that is less than [`COALESCE`] ago or nobody has asked since.
#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<BTreeMap<ServiceKey, Timestamp>>);

impl Pace {
    /// A slice of the import is about to be written.
    pub(crate) fn writes(&self, key: &ServiceKey, now: Timestamp) {
        self.lock().insert(key.clone(), now);
    }

    /// When slices of the import may be written again; none when they may now. Each write makes the import be looked at
    /// again, so what is remembered is forgotten soon.
    pub(crate) fn too_soon(&self, key: &ServiceKey, now: Timestamp) -> Option<Timestamp> {
        let mut written = self.lock();
        let at = *written.get(key)? + COALESCE;
        if at.has_passed(now) {
            written.remove(key);
            return None;
        }
        Some(at)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ServiceKey, Timestamp>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const TICK: Duration = Duration::from_nanos(1);

    #[test]
    fn an_import_is_written_at_once_and_then_a_pause_later() {
        let (pace, cart, now) = (Pace::default(), mk_key("cart"), Timestamp::from_millis(1_000));
        assert_eq!(pace.too_soon(&cart, now), None);
        pace.writes(&cart, now);
        let next = now + COALESCE;
        let looks = [now, now + (COALESCE - TICK), next, next + TICK].map(|at| pace.too_soon(&cart, at));
        assert_eq!(looks, [Some(next), Some(next), None, None]);
    }

    #[test]
    fn the_pause_counts_from_the_last_slice_and_disturbs_no_other_import() {
        let (pace, cart, now) = (Pace::default(), mk_key("cart"), Timestamp::from_millis(1_000));
        pace.writes(&cart, now);
        pace.writes(&cart, now + TICK);
        let looks = [mk_key("cart"), mk_key("pay")].map(|key| pace.too_soon(&key, now + COALESCE));
        assert_eq!(looks, [Some(now + TICK + COALESCE), None]);
    }

    #[test]
    fn what_was_written_long_ago_is_forgotten() {
        let (pace, cart, now) = (Pace::default(), mk_key("cart"), Timestamp::from_millis(1_000));
        pace.writes(&cart, now);
        pace.too_soon(&cart, now + COALESCE);
        assert!(pace.lock().is_empty());
    }

    fn mk_key(name: &str) -> ServiceKey {
        ServiceKey::new("shop", name).unwrap()
    }
}
