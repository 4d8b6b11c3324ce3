//! The highest terms seen, of members and for a time of those that were: so a leader that was deposed is refused after its
//! cluster was removed, too.
//!
//! What is kept of those that were is bounded: a cluster that comes and goes under ever new UIDs, and whoever does so
//! under ever new ids, pushes its own oldest out first, and costs no memory that grows.

use crate::ids::{ClusterId, ClusterUid};
use crate::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Of one id this many UIDs that were are kept: more than clusters that are made anew under one id in a week.
const PAST_OF_AN_ID: usize = 8;

/// So many that were are kept over all ids.
const PAST: usize = 10_000;

/// The highest terms seen.
#[derive(Debug, Default)]
pub(super) struct Terms {
    seen: BTreeMap<ClusterId, BTreeMap<ClusterUid, Term>>,
    /// Those that are not members, by when they are forgotten.
    past: BTreeSet<(Timestamp, ClusterId, ClusterUid)>,
}

#[derive(Clone, Copy, Debug)]
struct Term {
    floor: u64,
    /// When it is forgotten; none while the cluster is a member.
    forget_at: Option<Timestamp>,
}

impl Terms {
    /// Takes a term that is not below the highest seen, which it may raise; else gives that one.
    pub(super) fn admit(&mut self, cluster: &ClusterId, uid: &ClusterUid, term: u64) -> Result<(), u64> {
        let seen = self.seen.entry(cluster.clone()).or_default();
        let known = seen.entry(uid.clone()).or_insert(Term { floor: term, forget_at: None });
        if term < known.floor {
            return Err(known.floor);
        }
        known.floor = term;
        Ok(())
    }

    /// The cluster is a member: its term is kept while it is.
    pub(super) fn came(&mut self, cluster: &ClusterId, uid: &ClusterUid) {
        let Some(term) = self.seen.get_mut(cluster).and_then(|seen| seen.get_mut(uid)) else { return };
        if let Some(at) = term.forget_at.take() {
            self.past.remove(&(at, cluster.clone(), uid.clone()));
        }
    }

    /// The cluster is no member any more: its term is kept until `forget_at`, or until others push it out.
    pub(super) fn left(
        &mut self,
        cluster: &ClusterId,
        uid: &ClusterUid,
        forget_at: Timestamp,
        now: Timestamp,
    ) {
        let Some(seen) = self.seen.get_mut(cluster) else { return };
        if let Some(term) = seen.get_mut(uid) {
            term.forget_at = Some(forget_at);
            self.past.insert((forget_at, cluster.clone(), uid.clone()));
        }
        let mut of_id: Vec<_> =
            seen.iter().filter_map(|(uid, term)| Some((term.forget_at?, uid.clone()))).collect();
        of_id.sort_unstable();
        for (at, uid) in of_id.iter().take(of_id.len().saturating_sub(PAST_OF_AN_ID)) {
            self.forget(*at, cluster, uid);
        }
        while let Some((at, cluster, uid)) =
            self.past.first().filter(|(at, ..)| at.has_passed(now) || self.past.len() > PAST).cloned()
        {
            self.forget(at, &cluster, &uid);
        }
    }

    fn forget(&mut self, at: Timestamp, cluster: &ClusterId, uid: &ClusterUid) {
        self.past.remove(&(at, cluster.clone(), uid.clone()));
        if let Some(seen) = self.seen.get_mut(cluster) {
            seen.remove(uid);
            if seen.is_empty() {
                self.seen.remove(cluster);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(number: usize) -> ClusterId {
        ClusterId::new(format!("c-{number}")).unwrap()
    }

    fn uid(number: usize) -> ClusterUid {
        ClusterUid::new(format!("u-{number}")).unwrap()
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_000 * seconds)
    }

    /// Comes with term 2, and leaves.
    fn passes(terms: &mut Terms, place: (usize, usize), forget_at: u64, now: u64) {
        let (cluster, uid) = (cluster(place.0), uid(place.1));
        terms.admit(&cluster, &uid, 2).unwrap();
        terms.came(&cluster, &uid);
        terms.left(&cluster, &uid, at(forget_at), at(now));
    }

    fn is_known(terms: &mut Terms, place: (usize, usize)) -> bool {
        terms.admit(&cluster(place.0), &uid(place.1), 1) == Err(2)
    }

    #[test]
    fn a_term_is_kept_while_its_cluster_is_a_member_and_for_its_time_afterwards() {
        let mut terms = Terms::default();
        passes(&mut terms, (1, 1), 10, 0);
        passes(&mut terms, (2, 2), 19, 9);
        assert!(is_known(&mut terms, (1, 1)));
        terms.came(&cluster(2), &uid(2));
        passes(&mut terms, (3, 3), 40, 30);
        assert_eq!([(1, 1), (2, 2), (3, 3)].map(|place| is_known(&mut terms, place)), [false, true, true]);
    }

    #[test]
    fn of_one_id_the_newest_eight_are_kept_and_those_of_others_stay() {
        let mut terms = Terms::default();
        passes(&mut terms, (2, 0), 100, 0);
        for number in 0..1_000 {
            passes(&mut terms, (1, number), 100 + number as u64, 0);
        }
        assert_eq!((terms.past.len(), terms.seen[&cluster(1)].len()), (9, 8));
        assert!(is_known(&mut terms, (2, 0)) && is_known(&mut terms, (1, 992)));
        assert!(!is_known(&mut terms, (1, 991)));
    }

    #[test]
    fn of_all_ids_so_many_are_kept_and_members_are_not_counted() {
        let mut terms = Terms::default();
        terms.admit(&cluster(0), &uid(0), 2).unwrap();
        for number in 1..=PAST + 1 {
            passes(&mut terms, (number, number), 100 + number as u64, 0);
        }
        assert_eq!((terms.past.len(), terms.seen.len()), (PAST, PAST + 1));
        assert_eq!([0, 1, 2].map(|place| is_known(&mut terms, (place, place))), [true, false, true]);
    }
}
