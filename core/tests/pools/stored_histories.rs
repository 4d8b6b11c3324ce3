//! Random histories of replicas in two regions over one table, with clocks that differ and are set, lag, cuts, outages, a table
//! that takes no writes, replicas that start late and anew, lost reads and lost writes: a complete list lacks no live pool,
//! and no list keeps a dead one.

use super::build::{LEASE, at, registration};
use mcs_core::ids::Region;
use mcs_core::pools::Completeness::Exact;
use mcs_core::pools::registrations::RegistrationChange;
use mcs_core::pools::stored::{Settings, StoredItem, StoredRegistrations, TableNews, TableRead, WallMoment};
use mcs_core::pools::{Lease, PackedRegistration, PoolKey, PoolRegistration};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// As many are tried, or as `SEEDS` says.
const SEEDS: u64 = 150;
/// How long a history is, in milliseconds, as all that follows.
const LENGTH: u64 = 240_000;
const STEP: usize = 100;
const POOLS: usize = 4;
/// The region of each replica.
const REGIONS: [usize; REPLICAS] = [0, 0, 1];
const REPLICAS: usize = 3;

const HOLDS: u64 = 17_000;
const SKEW: u64 = 2_000;
const GRACE: u64 = 60_000;

/// What a history is of, in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Kind {
    heartbeat: u64,
    poll: u64,
    /// No read takes longer.
    longest_read: u64,
    /// How far wall clocks may be from the true time.
    apart: i64,
    /// Whether pools count as live from the last heartbeat on that was refused, else from their first one.
    is_forgotten_when_refused: bool,
}

const USUAL: Kind =
    Kind { heartbeat: 5_000, poll: 2_000, longest_read: 600, apart: 1_000, is_forgotten_when_refused: false };

/// Renewals as rare as they may be: the next one is read just before the last one runs out where clocks are far apart.
#[test]
fn a_complete_list_lacks_no_pool_whose_heartbeats_are_all_taken() {
    play(Kind { heartbeat: 8_000, is_forgotten_when_refused: true, ..USUAL });
}

/// While the table is away heartbeats are refused, and pools lapse: not in a complete list.
#[test]
fn a_complete_list_lacks_no_pool_that_sends_heartbeats_whether_they_are_taken_or_not() {
    play(USUAL);
}

/// Renewals bridge half a second more than the poll interval, and a read takes as long as a call may.
#[test]
fn a_complete_list_lacks_no_live_pool_where_reads_take_as_long_as_they_may() {
    let slow = Kind { heartbeat: 9_000, poll: 3_000, longest_read: 3_000, apart: 0, ..USUAL };
    play(Kind { is_forgotten_when_refused: true, ..slow });
}

fn play(kind: Kind) {
    let seeds = std::env::var("SEEDS").ok().map_or(SEEDS, |seeds| seeds.parse().unwrap());
    let mut looks = Looks::default();
    for seed in 0..seeds {
        let mut history = History::new(seed, kind);
        for now in (0..LENGTH).step_by(STEP) {
            history.step(now);
            history.check(now, &mut looks);
        }
        looks.skipped += history.skipped;
        looks.starts += history.starts;
        looks.unwritten += history.unwritten;
    }
    // The histories are such that this is worth something.
    let Looks { live_in_exact, dead, lingering, in_grace, estimated, skipped, starts, unwritten } = looks;
    assert!(starts > seeds && unwritten > seeds, "{looks:?}");
    assert!(live_in_exact > seeds * 2_000 && dead > seeds * 1_000 && skipped > seeds * 5, "{looks:?}");
    assert!(lingering > seeds * 100 && in_grace > seeds * 100 && estimated > seeds * 1_000, "{looks:?}");
}

/// What was looked at.
#[derive(Debug, Default)]
struct Looks {
    /// Live pools in complete lists.
    live_in_exact: u64,
    /// Pools that no list may have any more.
    dead: u64,
    /// Pools that are listed though they died.
    lingering: u64,
    /// Pools that are listed past their leases.
    in_grace: u64,
    /// Lists that are not complete.
    estimated: u64,
    /// Registrations that were not written.
    skipped: u64,
    /// Replicas that started anew.
    starts: u64,
    /// Registrations that a table refused which was read.
    unwritten: u64,
}

struct History {
    seed: u64,
    kind: Kind,
    random: StdRng,
    regions: [Part; 2],
    replicas: Vec<Replica>,
    pools: Vec<Pool>,
    skipped: u64,
    starts: u64,
    unwritten: u64,
}

/// An item, with the moment of its write, by which the later one of two stands.
type Dated = (u64, StoredItem);

/// The table as one region has it.
#[derive(Default)]
struct Part {
    items: BTreeMap<PoolKey, Dated>,
    /// From the other region, with when it arrives.
    coming: Vec<(u64, Dated)>,
    is_down_until: u64,
    /// It is read, and takes no writes.
    refuses_writes_until: u64,
    /// Nothing arrives before.
    is_cut_until: u64,
}

impl Part {
    fn put(&mut self, dated: Dated) {
        let key = dated.1.registration.key().clone();
        if self.items.get(&key).is_none_or(|(then, _)| *then <= dated.0) {
            self.items.insert(key, dated);
        }
    }

    fn receive(&mut self, now: u64) {
        if self.is_cut_until > now {
            return;
        }
        let (arrived, coming) =
            std::mem::take(&mut self.coming).into_iter().partition(|(due, _)| *due <= now);
        self.coming = coming;
        let arrived: Vec<(u64, Dated)> = arrived;
        arrived.into_iter().for_each(|(_, dated)| self.put(dated));
    }
}

struct Replica {
    stored: StoredRegistrations,
    region: usize,
    /// How far its wall clock is ahead.
    ahead: i64,
    next_read: u64,
    /// A read under way: when it ends, and what it gives.
    reading: Option<(u64, TableNews)>,
    /// When the last read that succeeded began.
    read: Option<u64>,
    /// What the changes so far make of the list.
    listed: BTreeSet<PoolKey>,
}

impl Replica {
    /// One that reads for the first time after `start`.
    fn new(random: &mut StdRng, number: usize, kind: Kind, start: u64) -> Self {
        let millis = Duration::from_millis;
        let stored = StoredRegistrations::new(Settings {
            lease: Lease { heartbeat_interval: millis(kind.heartbeat), ..LEASE },
            skew: millis(SKEW),
            grace: millis(GRACE),
            poll_interval: millis(kind.poll),
            region: region(number),
        });
        let ahead = random.random_range(-kind.apart..=kind.apart);
        let next_read = start + random.random_range(0..kind.poll);
        let listed = BTreeSet::new();
        Self { stored, region: number, ahead, next_read, reading: None, read: None, listed }
    }

    fn wall(&self, now: u64) -> WallMoment {
        WallMoment::from_unix_millis(1_700_000_000_000 + i64::try_from(now).unwrap() + self.ahead)
    }

    fn tell(&mut self, news: TableNews, now: u64) {
        let wall = self.wall(now);
        self.stored.handle_news(news, at(now), wall);
    }

    /// Begins a read when it is time to, and ends it some time later.
    fn step(&mut self, part: &Part, now: u64, random: &mut StdRng, kind: Kind) {
        if let Some((_, news)) = self.reading.take_if(|(ends, _)| *ends <= now) {
            if let TableNews::Read(read) = &news {
                self.read = Some(read.began.as_nanos() / 1_000_000);
            }
            self.tell(news, now);
        }
        if self.reading.is_some() || self.next_read > now {
            return;
        }
        self.next_read = now + kind.poll;
        let items = part.items.values().map(|(_, item)| item.clone());
        let fails = part.is_down_until > now || random.random_bool(0.01);
        let items = if fails { items.filter(|_| random.random_bool(0.5)).collect() } else { items.collect() };
        let read = TableRead { began: at(now), items, unreadable: Vec::new() };
        let news = if fails { TableNews::ReadInPart(read) } else { TableNews::Read(read) };
        self.reading = Some((now + random.random_range(0..kind.longest_read), news));
    }

    /// Makes the list of its changes.
    fn follow(&mut self) {
        while let Some(change) = self.stored.next_change() {
            match change {
                RegistrationChange::Upserted(registration) => {
                    self.listed.insert(registration.key().clone());
                }
                RegistrationChange::Removed(key) => assert!(self.listed.remove(&key), "{key} was not listed"),
                RegistrationChange::Notice(notice) => panic!("{notice:?}"),
            }
        }
    }
}

struct Pool {
    registration: PoolRegistration,
    is_alive: bool,
    /// Where its relays are.
    home: usize,
    changes_at: u64,
    next_beat: u64,
    /// Since when it counts as live for each replica: its first heartbeat, or the first that was taken after all that were
    /// refused.
    live_since: [Option<u64>; REPLICAS],
    /// Since when the region of each replica has a write that was made after that.
    visible: [Option<u64>; REPLICAS],
    /// When it was last written through each region.
    written: [Option<u64>; 2],
}

impl Pool {
    fn new(number: usize) -> Self {
        Self {
            registration: registration("east", &format!("pool-{number}")),
            is_alive: false,
            home: 0,
            changes_at: 0,
            next_beat: 0,
            live_since: [None; REPLICAS],
            visible: [None; REPLICAS],
            written: [None; 2],
        }
    }

    /// It counts as live, and the replica has had a read that shows it.
    fn is_live_for(&self, number: usize, replica: &Replica) -> bool {
        let visible = self.live_since[number].and(self.visible[number]);
        self.is_alive && visible.is_some_and(|since| replica.read.is_some_and(|read| read >= since))
    }

    /// What it said counts no more for the replicas of these numbers.
    fn forget(&mut self, numbers: impl IntoIterator<Item = usize>) {
        for number in numbers {
            (self.live_since[number], self.visible[number]) = (None, None);
        }
    }

    /// The last write was so long ago that nothing excuses listing it.
    fn is_dead_for(&self, replica: &Replica, now: u64) -> bool {
        let is_over = |region: usize, holds: u64| {
            self.written[region].is_none_or(|written| now >= written + holds + SKEW)
        };
        is_over(replica.region, HOLDS) && is_over(1 - replica.region, HOLDS + GRACE)
    }
}

fn region(number: usize) -> Region {
    Region::new(["us-east-2", "eu-west-1"][number]).unwrap()
}

impl History {
    fn new(seed: u64, kind: Kind) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let replicas = REGIONS.map(|region| Replica::new(&mut random, region, kind, 0)).into();
        let pools = (0..POOLS).map(Pool::new).collect();
        let regions = Default::default();
        Self { seed, kind, random, regions, replicas, pools, skipped: 0, starts: 0, unwritten: 0 }
    }

    fn step(&mut self, now: u64) {
        for part in &mut self.regions {
            if self.random.random_bool(0.000_3) {
                part.is_down_until = now + self.random.random_range(1_000..30_000);
            }
            if self.random.random_bool(0.000_3) {
                part.refuses_writes_until = now + self.random.random_range(1_000..40_000);
            }
            // Longer than the grace nothing is promised.
            if part.is_cut_until + 30_000 <= now && self.random.random_bool(0.000_5) {
                part.is_cut_until = now + self.random.random_range(5_000..50_000);
            }
            part.receive(now);
        }
        for replica in &mut self.replicas {
            if self.random.random_bool(0.000_2) {
                // Late, as while its table or its API server is away.
                let start = now + self.random.random_range(0..20_000);
                *replica = Replica::new(&mut self.random, replica.region, self.kind, start);
                self.starts += 1;
            }
            if self.random.random_bool(0.000_3) {
                replica.ahead = self.random.random_range(-self.kind.apart..=self.kind.apart);
            }
        }
        for number in 0..self.pools.len() {
            self.live(number, now);
        }
        for pool in &mut self.pools {
            for (number, region) in REGIONS.into_iter().enumerate() {
                let Some(since) = pool.live_since[number] else { continue };
                let item = self.regions[region].items.get(&pool.registration.key);
                if item.is_some_and(|(then, _)| *then >= since) {
                    pool.visible[number].get_or_insert(now);
                }
            }
        }
        for replica in &mut self.replicas {
            replica.step(&self.regions[replica.region], now, &mut self.random, self.kind);
        }
    }

    /// A pool lives, dies, and sends heartbeats.
    fn live(&mut self, number: usize, now: u64) {
        let pool = &mut self.pools[number];
        if pool.changes_at <= now {
            pool.is_alive = !pool.is_alive;
            pool.home = self.random.random_range(0..2);
            pool.changes_at = now + self.random.random_range(10_000..100_000);
            pool.next_beat = now;
            pool.forget(0..REPLICAS);
        }
        if !pool.is_alive || pool.next_beat > now {
            return;
        }
        // There may be several relays.
        let Kind { heartbeat, is_forgotten_when_refused, .. } = self.kind;
        let others = self.random.random_range(heartbeat / 5..=heartbeat);
        pool.next_beat = now + if self.random.random_bool(0.5) { heartbeat } else { others };
        // None is brought to one that is not ready.
        let home = pool.home;
        let ready: Vec<_> =
            (0..REPLICAS).filter(|one| REGIONS[*one] == home && self.replicas[*one].read.is_some()).collect();
        let chosen = ready.get(self.random.random_range(0..2) % ready.len().max(1)).copied();
        let is_taken = chosen.is_some_and(|chosen| self.register(number, chosen, now));
        let pool = &mut self.pools[number];
        if is_taken {
            for since in &mut pool.live_since {
                since.get_or_insert(now);
            }
        } else if is_forgotten_when_refused || chosen.is_none() {
            pool.forget(0..REPLICAS);
        } else if self.regions[home].refuses_writes_until > now {
            // Of a write that a table refused which is read only he knows who asked for it.
            pool.forget((0..REPLICAS).filter(|one| Some(*one) != chosen));
        }
    }

    /// A heartbeat at a replica; says whether it is taken.
    fn register(&mut self, number: usize, chosen: usize, now: u64) -> bool {
        let (replica, pool) = (&mut self.replicas[chosen], &mut self.pools[number]);
        replica.stored.handle_timeout(at(now));
        let (own, renewed_at) = (replica.region, replica.wall(now));
        if replica.stored.is_renewed(&pool.registration, at(now), renewed_at) {
            self.skipped += 1;
            return true;
        }
        let part = &self.regions[own];
        if part.is_down_until > now || part.refuses_writes_until > now {
            self.unwritten += u64::from(part.is_down_until <= now);
            replica.tell(TableNews::NotWritten, now);
            return false;
        }
        let registration = PackedRegistration::from(&pool.registration);
        let (lease, region) = (LEASE.duration, region(own));
        let item = StoredItem { registration: registration.clone(), renewed_at, lease, region };
        pool.written[own] = Some(now);
        self.regions[own].put((now, item.clone()));
        let arrives = now + self.random.random_range(0..3_000);
        self.regions[1 - own].coming.push((arrives, (now, item)));
        // Or the answer is lost.
        let is_answered = self.random.random_bool(0.95);
        if is_answered {
            replica.tell(TableNews::Written { registration, renewed_at, began: at(now) }, now);
        }
        is_answered
    }

    fn check(&mut self, now: u64, looks: &mut Looks) {
        for (number, replica) in self.replicas.iter_mut().enumerate() {
            replica.stored.handle_timeout(at(now));
            replica.follow();
            let listed: BTreeSet<_> = replica.stored.listed().map(|one| one.key().clone()).collect();
            assert_eq!(listed, replica.listed, "seed {}: the list is what its changes make of it", self.seed);
            assert_eq!(listed.len(), replica.stored.len());
            let is_exact = replica.stored.completeness(at(now)) == Exact;
            looks.estimated += u64::from(!is_exact);
            for pool in &self.pools {
                let key = &pool.registration.key;
                let is_listed = listed.contains(key);
                let place = format_args!("seed {}, replica {number}, {now} ms, {key}", self.seed);
                if is_exact && pool.is_live_for(number, replica) {
                    assert!(is_listed, "{place}: a complete list lacks a live pool");
                    looks.live_in_exact += 1;
                }
                if pool.is_dead_for(replica, now) {
                    assert!(!is_listed, "{place}: a dead pool is listed");
                    looks.dead += 1;
                }
                let renewed = self.regions[replica.region].items.get(key).map(|(written, _)| *written);
                if is_listed && renewed.is_some_and(|written| now >= written + HOLDS + SKEW) {
                    assert!(!is_exact, "{place}: a complete list has a pool in its grace");
                    looks.in_grace += 1;
                }
                looks.lingering += u64::from(is_listed && !pool.is_alive);
            }
        }
    }
}
