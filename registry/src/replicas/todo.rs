//! What is to be read of a clusterset, and what of it is being read.
//!
//! What takes long or fails keeps nothing else from being read: each member is one job, so is the comparison of all
//! records, and each has pauses of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mcs_core::registry::{Keys, Who};
use mcs_core::time::Timestamp;

/// What is to be read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Todo {
    /// The records of all members, and what of them is not as it is held.
    pub(crate) all: bool,
    /// Of these members their records, and these exports.
    pub(crate) members: BTreeMap<Who, Keys>,
}

impl Todo {
    /// Everything.
    pub(crate) fn everything() -> Self {
        Self { all: true, ..Self::default() }
    }

    /// This of a member is to be read, too.
    pub(crate) fn read(&mut self, who: Who, keys: Keys) {
        let joined = match (self.members.remove(&who), keys) {
            (None | Some(Keys::Record), keys) | (Some(keys), Keys::Record) => keys,
            (Some(Keys::All), _) | (_, Keys::All) => Keys::All,
            (Some(Keys::Some(mut some)), Keys::Some(others)) => {
                some.extend(others);
                Keys::Some(some)
            }
        };
        self.members.insert(who, joined);
    }

    /// This is to be read, too.
    pub(crate) fn put_back(&mut self, more: Self) {
        self.all |= more.all;
        for (who, keys) in more.members {
            self.read(who, keys);
        }
    }
}

/// One read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    /// Of the records of all members.
    All,
    /// Of one member.
    Member(Who, Keys),
}

/// What failed.
#[derive(Clone, Copy, Debug)]
struct Pause {
    failures: u32,
    /// When the first of them was.
    since: Timestamp,
    until: Timestamp,
}

/// What is to be read, what is being read, and what waits since it failed.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) todo: Todo,
    is_comparing: bool,
    reading: BTreeSet<Who>,
    /// None stands for all members.
    pauses: BTreeMap<Option<Who>, Pause>,
    /// Whether the records of all members were read once, and one of them or nothing at all had to be read besides.
    compared: bool,
    read: bool,
}

impl Queue {
    /// Everything is to be read.
    pub(crate) fn everything() -> Self {
        Self { todo: Todo::everything(), ..Self::default() }
    }

    /// Whether there is something to begin at `now`.
    pub(crate) fn has_next(&self, now: Timestamp) -> bool {
        (self.todo.all && self.may_compare(now))
            || self.todo.members.keys().any(|who| self.may_read(who, now))
    }

    fn may_compare(&self, now: Timestamp) -> bool {
        !self.is_comparing && self.is_over(&None, now)
    }

    fn may_read(&self, who: &Who, now: Timestamp) -> bool {
        !self.reading.contains(who) && self.is_over(&Some(who.clone()), now)
    }

    fn is_over(&self, of: &Option<Who>, now: Timestamp) -> bool {
        self.pauses.get(of).is_none_or(|pause| pause.until.has_passed(now))
    }

    /// Begins what may be begun at `now`, so that no more than `most` members are read at once.
    pub(crate) fn next(&mut self, now: Timestamp, most: usize) -> Vec<Job> {
        let mut jobs = Vec::new();
        if self.todo.all && self.may_compare(now) {
            (self.todo.all, self.is_comparing) = (false, true);
            jobs.push(Job::All);
        }
        let room = most.saturating_sub(self.reading.len());
        let may: Vec<Who> =
            self.todo.members.keys().filter(|who| self.may_read(who, now)).take(room).cloned().collect();
        for who in may {
            let Some(keys) = self.todo.members.remove(&who) else { continue };
            self.reading.insert(who.clone());
            jobs.push(Job::Member(who, keys));
        }
        jobs
    }

    /// A job is done.
    pub(crate) fn is_done(&mut self, job: &Job) {
        let of = self.ended(job);
        self.pauses.remove(&of);
        match job {
            Job::All => self.compared = true,
            Job::Member(..) => self.read = true,
        }
    }

    /// A job failed: it is made again after a pause, which `pause` says by how often it failed in turn.
    pub(crate) fn has_failed(&mut self, job: Job, now: Timestamp, pause: impl FnOnce(u32) -> Duration) {
        let of = self.ended(&job);
        let (failures, since) =
            self.pauses.get(&of).map_or((1, now), |pause| (pause.failures + 1, pause.since));
        self.pauses.insert(of, Pause { failures, since, until: now + pause(failures) });
        match job {
            Job::All => self.todo.all = true,
            Job::Member(who, keys) => self.todo.read(who, keys),
        }
    }

    fn ended(&mut self, job: &Job) -> Option<Who> {
        match job {
            Job::All => {
                self.is_comparing = false;
                None
            }
            Job::Member(who, _) => {
                self.reading.remove(who);
                Some(who.clone())
            }
        }
    }

    /// When, after `now`, something that failed is to be tried again, if something is. What may be tried now waits for another
    /// job to end.
    pub(crate) fn wakes_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.pauses.values().map(|pause| pause.until).filter(|until| !until.has_passed(now)).min()
    }

    /// Whether something failed that was not read since.
    pub(crate) fn is_failing(&self) -> bool {
        !self.pauses.is_empty()
    }

    /// Whether all was read that can be: what failed so far is not waited for. If everything did it is, for a time: a store
    /// that gives no record may be asked for too much, and the one record that there is may be one that nobody can read.
    pub(crate) fn is_read_once(&self, now: Timestamp, waits: Duration) -> bool {
        let has_failed = |who: &Who| self.pauses.contains_key(&Some(who.clone()));
        let waiting = self.todo.members.keys().chain(&self.reading);
        let is_over = |pause: &Pause| (pause.since + waits).has_passed(now);
        self.compared
            && (self.read || self.pauses.values().all(is_over))
            && waiting.into_iter().all(has_failed)
    }
}

#[cfg(test)]
mod tests {
    use mcs_core::ids::{ClusterId, ClusterUid, ServiceKey};

    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    fn key(name: &str) -> ServiceKey {
        ServiceKey::new("shop", name).unwrap()
    }

    fn who(name: &str) -> Who {
        Who {
            cluster: ClusterId::new(name).unwrap(),
            uid: ClusterUid::new(format!("uid-of-{name}")).unwrap(),
        }
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    fn of(name: &str) -> Job {
        Job::Member(who(name), Keys::All)
    }

    /// What two readings name of one member is read once.
    #[test]
    fn of_two_readings_nothing_is_left_out() {
        let some = |names: &[&str]| Keys::Some(names.iter().map(|name| key(name)).collect::<BTreeSet<_>>());
        let (web, api, both) = (|| some(&["web"]), || some(&["api"]), || some(&["web", "api"]));
        let cases = [
            (Keys::Record, Keys::Record, Keys::Record),
            (Keys::Record, web(), web()),
            (web(), Keys::Record, web()),
            (web(), api(), both()),
            (web(), Keys::All, Keys::All),
            (Keys::All, web(), Keys::All),
            (Keys::Record, Keys::All, Keys::All),
            (Keys::All, Keys::Record, Keys::All),
        ];
        for (first, second, joined) in cases {
            let mut todo = Todo::default();
            todo.read(who("east"), first.clone());
            todo.put_back(Todo { all: false, members: BTreeMap::from([(who("east"), second.clone())]) });
            assert_eq!(todo.members, BTreeMap::from([(who("east"), joined)]), "{first:?} {second:?}");
        }
    }

    #[test]
    fn what_is_put_back_is_read_again() {
        let mut todo = Todo::default();
        todo.put_back(Todo::everything());
        assert_eq!(todo, Todo::everything());
    }

    #[test]
    fn a_member_that_is_being_read_is_read_again_afterwards_and_no_other_waits_for_it() {
        let mut queue = Queue::default();
        queue.todo.read(who("east"), Keys::All);
        assert_eq!(queue.next(at(0), 8), [of("east")]);
        queue.todo.read(who("east"), Keys::All);
        queue.todo.read(who("west"), Keys::All);
        queue.todo.all = true;
        assert!(queue.has_next(at(0)));
        assert_eq!(queue.next(at(0), 8), [Job::All, of("west")]);
        assert!(!queue.has_next(at(0)));
        for job in [Job::All, of("west"), of("east")] {
            queue.is_done(&job);
        }
        assert_eq!(queue.next(at(0), 8), [of("east")]);
        queue.is_done(&of("east"));
        assert!(!queue.has_next(at(0)) && queue.is_read_once(at(0), LEASE));
    }

    #[test]
    fn so_many_members_are_read_at_once() {
        let mut queue = Queue::default();
        for name in ["a", "b", "c"] {
            queue.todo.read(who(name), Keys::All);
        }
        assert_eq!(queue.next(at(0), 2), [of("a"), of("b")]);
        assert_eq!(queue.next(at(0), 2), []);
        queue.is_done(&of("b"));
        assert_eq!(queue.next(at(0), 2), [of("c")]);
    }

    #[test]
    fn what_failed_has_a_pause_of_its_own() {
        let mut queue = Queue::everything();
        assert_eq!(queue.next(at(0), 8), [Job::All]);
        queue.todo.read(who("east"), Keys::All);
        queue.todo.read(who("west"), Keys::All);
        queue.is_done(&Job::All);
        queue.next(at(0), 8);
        let mut seen = Vec::new();
        for seconds in [0, 1] {
            queue.has_failed(of("east"), at(seconds), |failures| {
                seen.push(failures);
                Duration::from_secs(1)
            });
            assert_eq!(
                (queue.has_next(at(seconds)), queue.wakes_at(at(seconds))),
                (false, Some(at(seconds + 1)))
            );
            assert!(!queue.is_read_once(at(seconds), LEASE), "nothing was read yet");
            assert_eq!(queue.next(at(seconds + 1), 8), [of("east")]);
            assert_eq!(queue.wakes_at(at(seconds + 1)), None, "it is being read");
        }
        assert_eq!(seen, [1, 2]);
        queue.is_done(&of("west"));
        assert!(queue.is_read_once(at(1), LEASE) && queue.is_failing(), "all but what fails");
        queue.is_done(&of("east"));
        assert!(!queue.is_failing());
    }

    /// A member whose read takes longer than a refresh, and is asked for again and again, is no failure.
    #[test]
    fn what_failed_is_read_when_it_was_whatever_else_is_being_read() {
        let mut queue = Queue::default();
        queue.todo.read(who("east"), Keys::All);
        queue.todo.read(who("west"), Keys::All);
        assert_eq!(queue.next(at(0), 8), [of("east"), of("west")]);
        queue.has_failed(of("east"), at(0), |_| Duration::from_secs(1));
        assert!(queue.is_failing());
        queue.todo.read(who("west"), Keys::All);
        assert_eq!(queue.next(at(1), 8), [of("east")]);
        assert!(queue.is_failing(), "it is only being read");
        queue.is_done(&of("east"));
        assert!(!queue.is_failing() && queue.reading.contains(&who("west")));
    }

    /// The one record that there is cannot be read, as often as it is tried.
    #[test]
    fn nothing_but_what_fails_is_waited_for_a_lease_after_its_first_failure() {
        let mut queue = Queue::everything();
        queue.next(at(0), 8);
        queue.todo.read(who("east"), Keys::All);
        queue.is_done(&Job::All);
        for (seconds, is_read) in [(5, false), (34, false), (35, true), (36, true)] {
            assert_eq!(queue.next(at(seconds), 8), [of("east")]);
            queue.has_failed(of("east"), at(seconds), |_| Duration::ZERO);
            assert_eq!(queue.is_read_once(at(seconds), LEASE), is_read, "at second {seconds}");
        }
        // The records of all members are waited for as long as it takes.
        let mut queue = Queue::everything();
        queue.next(at(0), 8);
        queue.has_failed(Job::All, at(0), |_| Duration::ZERO);
        assert!(!queue.is_read_once(at(100), LEASE));
    }
}
