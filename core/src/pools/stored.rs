//! Registrations that replicas of the service share in a table, as one of them sees them.
//!
//! The machine is fed with what was read of the table and with its own writes. It holds each pool's last renewal, and
//! says what follows for the list.
//!
//! **How long a pool is listed.** `renewed_at` is by the wall clock of whoever wrote the item, and is compared with the
//! reader's once, when the renewal is first seen: a pool is live while `renewed_at + lease + skew` has not passed, with
//! the lease that the item grants. What is left of that is counted on the clock that no one sets, so a jump of the wall
//! clock ends no lease. Two facts that need no wall clock bound it: a renewal was made before it was seen, so it holds
//! for lease + skew after that at most; and one that came into the own region's part of the table since the read before
//! holds for a lease after that read at least. An item that was written through another region stays listed for
//! the replication grace past its end, since its renewals may be on their way; meanwhile the list is estimated.
//!
//! **A view never goes back.** Of one pool the latest renewal counts. An earlier one is an old state that a read saw, or a
//! write that lost; one that moves on while it is behind is of a writer whose clock is, and counts.
//!
//! **Completeness.** The list is exact when the last read is a short time ago and one lease has passed since the first
//! read, since the last time that none succeeded for longer than renewals bridge, and since the last write that the table
//! did not take: until then relays may not have registered again.
//!
//! Rejected: comparing with the wall clock at each look (an hour's jump ends all leases); no lower bound
//! (a replica whose clock is ahead lists nobody's pools but its own); removing what a read lacks (a read may
//! be from before the write).

use super::registrations::RegistrationChange;
use super::{Completeness, Lease, Notice, PackedRegistration, PoolKey, PoolRegistration};
use crate::ids::Region;
use crate::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

mod ends;
mod reads;
mod relays;
mod table;

use ends::{Ends, Phase, Sight};
pub use reads::LATE_AFTER;
use reads::Reads;
use relays::Replaced;
pub use table::{StoredItem, TableNews, TableRead, Unreadable, WallMoment};

/// How one replica uses the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What it grants.
    pub lease: Lease,
    /// How far the wall clocks of two replicas may be apart without an effect.
    pub skew: Duration,
    /// How much longer pools are listed that were written through another region.
    pub grace: Duration,
    /// How often the table is read.
    pub poll_interval: Duration,
    /// The region that it writes through.
    pub region: Region,
}

impl Settings {
    /// A renewal is not written where one of the same was made within this: half a heartbeat interval.
    pub fn skip_window(&self) -> Duration {
        self.lease.heartbeat_interval / 2
    }

    /// Two renewals of a live pool that reach the table are at most so far apart.
    pub fn longest_pause(&self) -> Duration {
        self.lease.heartbeat_interval + self.skip_window()
    }

    /// How old a view may be and still have a renewal of each live pool; none when it never has.
    pub fn bridged(&self) -> Option<Duration> {
        (self.lease.duration + self.skew).checked_sub(self.longest_pause()).filter(|left| !left.is_zero())
    }
}

/// The registrations in a table, as one replica sees them.
#[derive(Debug)]
pub struct StoredRegistrations {
    settings: Settings,
    reads: Reads,
    entries: BTreeMap<PoolKey, Known>,
    /// When each listed pool's phase ends.
    deadlines: BTreeSet<(Timestamp, PoolKey)>,
    in_grace: usize,
    /// While clocks are apart, that was told already.
    clocks_told_until: Timestamp,
    /// Items that the last read could not decode, with what is wrong with them.
    unreadable: BTreeMap<String, String>,
    changes: VecDeque<RegistrationChange>,
}

/// What is known of a pool.
#[derive(Debug)]
struct Known {
    item: StoredItem,
    /// When this renewal was first seen.
    seen: Timestamp,
    ends: Ends,
    phase: Phase,
    /// An earlier renewal, which the last read showed instead.
    behind: Option<WallMoment>,
    /// The last read that showed the pool, by its number.
    read: u64,
    replaced: Replaced,
}

impl Known {
    /// When its phase ends; none that has none.
    const fn deadline(&self) -> Option<Timestamp> {
        match self.phase {
            Phase::Live => Some(self.ends.live),
            Phase::Grace => Some(self.ends.listed),
            Phase::Lapsed => None,
        }
    }
}

impl StoredRegistrations {
    /// Of a table that was not read yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            reads: Reads::default(),
            entries: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            in_grace: 0,
            clocks_told_until: Timestamp::ZERO,
            unreadable: BTreeMap::new(),
            changes: VecDeque::new(),
        }
    }

    /// What this replica grants.
    pub const fn lease(&self) -> Lease {
        self.settings.lease
    }

    /// Registrations are taken from now on: until one lease later a relay may not have registered yet.
    pub fn opened(&mut self, now: Timestamp) {
        self.reads.doubt(now + self.settings.lease.duration);
    }

    /// Takes in what happened, `now` and at the same moment `wall` on this replica's wall clock.
    pub fn handle_news(&mut self, news: TableNews, now: Timestamp, wall: WallMoment) {
        self.handle_timeout(now);
        match news {
            TableNews::Read(read) => self.read(read, now, wall),
            TableNews::ReadInPart(read) => {
                let sight = Sight { now, wall, after: self.reads.last_began() };
                for item in read.items {
                    self.shown(item, self.reads.number(), read.began, sight);
                }
                self.reads.failed();
            }
            TableNews::NotWritten => self.reads.doubt(now + self.settings.lease.duration),
            TableNews::Written { registration, renewed_at, began } => {
                let Settings { lease, region, .. } = &self.settings;
                let (lease, region) = (lease.duration, region.clone());
                let sight = Sight { now, wall, after: Some(began) };
                let is_behind = |known: &Known| known.item.renewed_at > renewed_at;
                if !self.entries.get(registration.key()).is_some_and(is_behind) {
                    self.take(StoredItem { registration, renewed_at, lease, region }, sight);
                }
            }
        }
    }

    /// Whether `registration` need not be written: the table has the same, written through this region with a lease no
    /// shorter than this replica's, and renewed less than half a heartbeat interval ago.
    pub fn is_renewed(&self, registration: &PoolRegistration, now: Timestamp, wall: WallMoment) -> bool {
        let Some(known) = self.entries.get(&registration.key) else { return false };
        let item = &known.item;
        known.phase == Phase::Live
            && known.behind.is_none()
            && item.region == self.settings.region
            && item.lease >= self.settings.lease.duration
            && wall.since(item.renewed_at).is_some_and(|age| age < self.settings.skip_window())
            // A wall clock that was set back makes renewals look young.
            && now.since(known.seen) < self.settings.skip_window()
            && item.registration.says_the_same(&registration.into())
    }

    /// Ends what has run out.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        while let Some((deadline, _)) = self.deadlines.first()
            && deadline.has_passed(now)
            && let Some((_, key)) = self.deadlines.pop_first()
        {
            let Some(known) = self.entries.get_mut(&key) else { continue };
            self.in_grace -= usize::from(known.phase == Phase::Grace);
            if known.ends.listed.has_passed(now) {
                known.phase = Phase::Lapsed;
                self.changes.push_back(RegistrationChange::Removed(key));
            } else {
                known.phase = Phase::Grace;
                self.in_grace += 1;
                self.deadlines.insert((known.ends.listed, key));
            }
        }
    }

    /// When to call [`StoredRegistrations::handle_timeout`] next, at the latest.
    pub fn poll_timeout(&self, now: Timestamp) -> Option<Timestamp> {
        let lease = self.deadlines.first().map(|(deadline, _)| *deadline);
        lease.into_iter().chain(self.reads.poll_timeout(&self.settings, now)).min()
    }

    /// The next step of the list; ask until there is none.
    pub fn next_change(&mut self) -> Option<RegistrationChange> {
        self.changes.pop_front()
    }

    /// What is listed, by key.
    pub fn listed(&self) -> impl Iterator<Item = &PackedRegistration> {
        let listed = self.entries.values().filter(|known| known.phase != Phase::Lapsed);
        listed.map(|known| &known.item.registration)
    }

    /// Whether the pool is listed.
    pub fn has(&self, key: &PoolKey) -> bool {
        self.entries.get(key).is_some_and(|known| known.phase != Phase::Lapsed)
    }

    /// How many pools are listed.
    pub fn len(&self) -> usize {
        self.deadlines.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.deadlines.is_empty()
    }

    /// Whether the table was read once.
    pub const fn has_view(&self) -> bool {
        self.reads.has_view()
    }

    /// How old the view is; none before the first read.
    pub fn age(&self, now: Timestamp) -> Option<Duration> {
        self.reads.age(now)
    }

    /// Whether every live pool is listed.
    pub fn completeness(&self, now: Timestamp) -> Completeness {
        self.reads.completeness(&self.settings, now).and(Completeness::exact_if(self.in_grace == 0))
    }

    fn read(&mut self, read: TableRead, now: Timestamp, wall: WallMoment) {
        let TableRead { began, items, unreadable } = read;
        let sight = Sight { now, wall, after: self.reads.last_began() };
        let number = self.reads.succeeded(&self.settings, began, now);
        for item in items {
            self.shown(item, number, began, sight);
        }
        self.entries.retain(|_, known| known.phase != Phase::Lapsed || known.read == number);
        self.tell_unreadable(unreadable);
    }

    /// Takes an item of a read.
    fn shown(&mut self, item: StoredItem, read: u64, began: Timestamp, mut sight: Sight) {
        let key = item.registration.key().clone();
        if !self.entries.contains_key(&key) {
            sight.after = None;
        } else if let Some(known) = self.entries.get_mut(&key) {
            known.read = read;
            let is_same = item.is_same_renewal(&known.item);
            if is_same {
                known.behind = None;
            }
            // What was seen after the read began need not be in it.
            if is_same || (item.renewed_at <= known.item.renewed_at && !known.seen.has_passed(began)) {
                return;
            }
            if item.renewed_at < known.item.renewed_at {
                let before = known.behind.replace(item.renewed_at);
                if before.is_none_or(|before| item.renewed_at <= before) {
                    return;
                }
            }
        }
        self.take(item, sight);
        if let Some(known) = self.entries.get_mut(&key) {
            known.read = read;
        }
    }

    /// Takes a renewal that was not seen before.
    fn take(&mut self, mut item: StoredItem, sight: Sight) {
        let now = sight.now;
        let mut key = item.registration.key().clone();
        self.tell_clocks(&item, sight);
        let ends = Ends::of(&item, sight, &self.settings);
        let phase = ends.phase(now);
        if phase == Phase::Lapsed && sight.after.is_some() {
            // It was on its way for longer than the grace, or a clock is wrong: others may be too.
            self.reads.doubt(now + self.settings.lease.duration);
        }
        // Taken out and put back: of a pool one registration is held, and its key lies in that.
        match self.entries.remove_entry(&key) {
            None => {
                let upserted = item.registration.clone();
                let (behind, replaced) = (None, Replaced::default());
                let known = Known { item, seen: now, ends, phase, behind, read: 0, replaced };
                self.entries.insert(key.clone(), known);
                if phase != Phase::Lapsed {
                    self.changes.push_back(RegistrationChange::Upserted(upserted));
                }
            }
            Some((before, mut known)) => {
                if let Some(deadline) = known.deadline() {
                    self.deadlines.remove(&(deadline, before.clone()));
                }
                self.in_grace -= usize::from(known.phase == Phase::Grace);
                let mut is_news = true;
                if known.item.registration.says_the_same(&item.registration) {
                    item.registration = known.item.registration.clone();
                    key = before;
                    is_news = known.phase == Phase::Lapsed;
                } else if known.replaced.turns_back(
                    &known.item.registration,
                    &item.registration,
                    now,
                    item.lease,
                ) {
                    self.changes.push_back(RegistrationChange::Notice(Notice::RelaysDisagree(key.clone())));
                }
                let was_listed = known.phase != Phase::Lapsed;
                (known.item, known.seen, known.ends, known.phase, known.behind) =
                    (item, now, ends, phase, None);
                match (phase, was_listed) {
                    (Phase::Lapsed, true) => self.changes.push_back(RegistrationChange::Removed(key.clone())),
                    (Phase::Lapsed, false) => {}
                    _ if is_news => {
                        let upserted = known.item.registration.clone();
                        self.changes.push_back(RegistrationChange::Upserted(upserted));
                    }
                    _ => {}
                }
                self.entries.insert(key.clone(), known);
            }
        }
        match phase {
            Phase::Live => drop(self.deadlines.insert((ends.live, key))),
            Phase::Grace => {
                self.in_grace += 1;
                self.deadlines.insert((ends.listed, key));
            }
            Phase::Lapsed => {}
        }
    }

    fn tell_clocks(&mut self, item: &StoredItem, sight: Sight) {
        let Some(apart) = sight.apart(item, &self.settings) else { return };
        if self.clocks_told_until.has_passed(sight.now) {
            let (key, region) = (item.registration.key().clone(), item.region.clone());
            let notice = Notice::ClocksApart { key, region, apart, skew: self.settings.skew };
            self.changes.push_back(RegistrationChange::Notice(notice));
        }
        self.clocks_told_until = sight.now + item.lease;
    }

    fn tell_unreadable(&mut self, unreadable: Vec<Unreadable>) {
        let mut found = BTreeMap::new();
        for Unreadable { item, problem } in unreadable {
            if self.unreadable.get(&item) != Some(&problem) {
                let notice = Notice::UnreadableItem { item: item.clone(), problem: problem.clone() };
                self.changes.push_back(RegistrationChange::Notice(notice));
            }
            found.insert(item, problem);
        }
        self.unreadable = found;
    }
}
