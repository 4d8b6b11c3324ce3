//! The events of a world, and what lies between its parts.

use super::importer::Importer;
use super::owner::{Called, Owner};
use super::process::{GRACE, Process};
use super::table::{Key, Table, Value};
use crate::book::Book;
use crate::facts::{CLAIMANT, LEASE, PLACES};
use crate::world::{Counts, EventLog};
use mcs_core::ids::{ClusterId, ClusterUid, Epoch};
use mcs_core::outbox::Answer;
use mcs_core::registry::{Keys, Who};
use mcs_core::replicas::{Beat, News};
use mcs_core::time::Timestamp;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How many actions a history has.
const ACTIONS: usize = 24;

/// How far clocks are wrong that nobody has set, in milliseconds.
pub(crate) const OFF: i64 = 30_000;

#[derive(Clone, Debug)]
pub(crate) enum Event {
    Refresh(usize, Epoch),
    Hear(usize, Epoch, Vec<(Beat, Option<News>)>),
    Directory(usize, Epoch),
    Read(usize, Epoch, Who, Keys),
    Tick(usize, Epoch),
    WriteBeat(usize, Epoch, Box<Beat>),
    Save(usize, Epoch, ClusterId),
    Arrive(usize, Key, (u64, u64), Box<Option<Value>>),
    Start(usize),
    Deliver(usize, Epoch, Box<Called>),
    Answered(usize, u64, u64, Box<Answer>),
    Limit(usize, u64, u64),
    Drive(usize, u64),
    Lead(usize),
    Retire(usize, u64),
    Poll(usize),
}

pub(crate) struct World {
    pub(crate) rng: StdRng,
    pub(crate) now: Timestamp,
    pub(crate) faults: bool,
    pub(crate) size: usize,
    pub(crate) tables: Vec<Table>,
    /// How far the hidden clock of each table is ahead, in milliseconds.
    pub(crate) skews: Vec<i64>,
    /// How far the wall clock of each replica's machine is ahead, in milliseconds.
    pub(crate) walls: Vec<i64>,
    /// Until when what one region writes does not arrive in another.
    pub(crate) cuts: BTreeMap<(usize, usize), Timestamp>,
    /// The longest time that an item takes to another region.
    pub(crate) lag: Duration,
    pub(crate) slots: Vec<Option<Box<Process>>>,
    pub(crate) per_region: usize,
    /// Where each replica runs or ran.
    pub(crate) regions: BTreeMap<Epoch, usize>,
    /// When each beat was made.
    pub(crate) made: BTreeMap<(Epoch, u64), Timestamp>,
    pub(crate) saving: BTreeSet<(usize, ClusterId)>,
    pub(crate) owners: Vec<Owner>,
    pub(crate) importers: Vec<Importer>,
    pub(crate) book: Book,
    /// The renewals of each place: when, and who took it.
    pub(crate) heard: Vec<Vec<(Timestamp, Epoch)>>,
    /// When records of a cluster were removed last, by somebody or since another one has its id.
    pub(crate) removed: BTreeMap<ClusterUid, Timestamp>,
    /// When the record of a cluster was lost last.
    pub(crate) records_lost: BTreeMap<ClusterUid, Timestamp>,
    /// Since when all is well with all regions, for what is asked of replicas.
    pub(crate) cut_until: Timestamp,
    pub(crate) counts: Counts,
    /// When a replica wrote exports of a member again as they stood.
    pub(crate) repeats: BTreeMap<(Epoch, Who), Vec<Timestamp>>,
    /// How many writes were made of records, of exports and of news.
    pub(crate) writes: [usize; 3],
    /// Members of which a table lost an export.
    pub(crate) lost: Vec<(usize, Who)>,
    queue: BTreeMap<(Timestamp, u64), Event>,
    ids: u64,
    event_log: Option<EventLog>,
}

impl World {
    fn new(seed: u64, event_log: Option<EventLog>) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let regions = rng.random_range(1..=3);
        let per_region = rng.random_range(1..=2).max(3 - regions.min(2));
        let size = rng.random_range(2..=5);
        let skews = (0..regions).map(|_| rng.random_range(0..400)).collect();
        let walls = (0..regions * per_region).map(|_| rng.random_range(-OFF..OFF)).collect();
        let owners = (0..PLACES).map(|place| Owner::new(place, rng.random_range(0..regions))).collect();
        Self {
            rng,
            now: Timestamp::from_millis(100_000),
            faults: true,
            size,
            tables: vec![Table::default(); regions],
            skews,
            walls,
            cuts: BTreeMap::new(),
            lag: Duration::from_millis(800),
            slots: (0..regions * per_region).map(|_| None).collect(),
            per_region,
            regions: BTreeMap::new(),
            made: BTreeMap::new(),
            saving: BTreeSet::new(),
            owners,
            importers: (0..size).map(Importer::new).collect(),
            book: Book::default(),
            heard: vec![Vec::new(); PLACES],
            removed: BTreeMap::new(),
            records_lost: BTreeMap::new(),
            cut_until: Timestamp::ZERO,
            counts: Counts::new(),
            repeats: BTreeMap::new(),
            writes: [0; 3],
            lost: Vec::new(),
            queue: BTreeMap::new(),
            ids: 0,
            event_log,
        }
    }

    pub(crate) fn log(&self, line: impl FnOnce() -> String) {
        if let Some(log) = &self.event_log {
            log.borrow_mut().push(format!("{:9.3} {}", self.now.as_nanos() as f64 / 1e9, line()));
        }
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(crate) fn fresh_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    pub(crate) fn at(&mut self, at: Timestamp, event: Event) {
        let id = self.fresh_id();
        self.queue.insert((at, id), event);
    }

    pub(crate) fn some(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.rng.random_range(least..most))
    }

    pub(crate) fn strikes(&mut self, probability: f64, what: &'static str) -> bool {
        let strikes = self.faults && self.rng.random_bool(probability);
        if strikes {
            self.count(what);
        }
        strikes
    }

    /// Lets `time` pass, with all that happens in it.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0.has_passed(end)) {
            let ((at, id), event) = entry.remove_entry();
            self.now = self.now.max(at);
            if let Some(until) = self.paused_until(&event) {
                self.queue.insert((until, id), event);
                continue;
            }
            self.happen(event);
        }
        self.now = end;
    }

    fn paused_until(&self, event: &Event) -> Option<Timestamp> {
        let (slot, epoch) = match event {
            Event::Refresh(slot, epoch)
            | Event::Hear(slot, epoch, _)
            | Event::Directory(slot, epoch)
            | Event::Read(slot, epoch, ..)
            | Event::Tick(slot, epoch)
            | Event::WriteBeat(slot, epoch, _)
            | Event::Save(slot, epoch, _)
            | Event::Deliver(slot, epoch, _) => (*slot, *epoch),
            Event::Drive(place, pid) | Event::Answered(place, pid, ..) | Event::Limit(place, pid, _) => {
                let leader = self.owners[*place].leaders.get(pid)?;
                return (!leader.paused.has_passed(self.now)).then_some(leader.paused);
            }
            Event::Arrive(..) | Event::Start(_) | Event::Lead(_) | Event::Retire(..) | Event::Poll(_) => {
                return None;
            }
        };
        let process = self.slots[slot].as_ref().filter(|process| process.epoch == epoch)?;
        (!process.paused.has_passed(self.now)).then_some(process.paused)
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Refresh(slot, epoch) => self.refresh(slot, epoch),
            Event::Hear(slot, epoch, items) => self.hear(slot, epoch, &items),
            Event::Directory(slot, epoch) => self.directory(slot, epoch),
            Event::Read(slot, epoch, who, keys) => self.read(slot, epoch, &who, &keys),
            Event::Tick(slot, epoch) => self.tick(slot, epoch),
            Event::WriteBeat(slot, epoch, beat) => self.write_beat(slot, epoch, &beat),
            Event::Save(slot, epoch, cluster) => self.save(slot, epoch, &cluster),
            Event::Arrive(region, key, stamp, value) => {
                let now = self.now;
                if !self.tables[region].put(key, stamp, *value, now) {
                    self.count("items that came too late");
                }
            }
            Event::Start(slot) => self.start(slot),
            Event::Deliver(slot, epoch, called) => self.deliver(slot, epoch, *called),
            Event::Answered(place, pid, call, answer) => self.answered(place, pid, call, *answer),
            Event::Limit(place, pid, call) => self.out_of_time(place, pid, call),
            Event::Drive(place, pid) => self.drive(place, pid),
            Event::Lead(place) => self.lead(place),
            Event::Retire(place, pid) => {
                self.owners[place].leaders.remove(&pid);
            }
            Event::Poll(importer) => self.poll(importer),
        }
    }

    pub(crate) fn is(&self, slot: usize, epoch: Epoch) -> bool {
        self.slots[slot].as_ref().is_some_and(|process| process.epoch == epoch)
    }

    pub(crate) fn region_of(&self, slot: usize) -> Option<usize> {
        self.slots[slot].as_ref().map(|process| process.region)
    }

    pub(crate) fn start(&mut self, slot: usize) {
        if self.slots[slot].is_some() {
            return;
        }
        let epoch = Epoch(u128::from(self.fresh_id()));
        let region = slot / self.per_region;
        self.log(|| format!("replica {slot} of region {region} starts as {epoch}"));
        self.regions.insert(epoch, region);
        self.slots[slot] = Some(Box::new(Process::new(epoch, region, self.now)));
        self.at(self.now, Event::Refresh(slot, epoch));
        self.at(self.now, Event::Tick(slot, epoch));
    }

    /// Whether a call to a region's table fails now.
    pub(crate) fn store_fails(&mut self, region: usize) -> bool {
        let (now, table) = (self.now, &self.tables[region]);
        let (away, throttled) = (!table.away.has_passed(now), !table.throttled.has_passed(now));
        away || (throttled && self.rng.random_bool(0.5)) || self.strikes(0.01, "store calls failed")
    }

    /// Whether a read is served by a node that lags.
    pub(crate) fn lags(&mut self) -> bool {
        self.strikes(0.1, "reads that lag")
    }

    /// Writes an item in one region, and sends it to the others.
    pub(crate) fn write(&mut self, region: usize, key: Key, value: Option<Value>) {
        let kind = match &key {
            Key::Beat(_) => None,
            Key::Record(_) => Some(0),
            Key::Export(..) => Some(1),
            Key::News(_) => Some(2),
        };
        if let Some(kind) = kind {
            self.writes[kind] += 1;
            self.log(|| format!("region {region} is written {key:?}: {value:?}"));
        }
        let millis = (self.now.as_nanos() / 1_000_000).saturating_add_signed(self.skews[region]);
        // In its own region the last write wins always.
        let stamp = (millis.max(self.tables[region].stamp_of(&key) + 1), self.fresh_id());
        let now = self.now;
        self.tables[region].put(key.clone(), stamp, value.clone(), now);
        for other in (0..self.tables.len()).filter(|other| *other != region) {
            let lag = if self.faults { self.lag } else { Duration::from_millis(200) };
            let after = self.rng.random_range(Duration::from_millis(20)..lag);
            let cut = self.cuts.get(&(region, other)).copied().unwrap_or_default();
            self.at(now.max(cut) + after, Event::Arrive(other, key.clone(), stamp, Box::new(value.clone())));
        }
    }

    fn heal(&mut self, dead: Option<usize>) {
        self.log(|| "HEAL".to_owned());
        self.faults = false;
        let now = self.now;
        self.cuts.clear();
        for table in &mut self.tables {
            (table.away, table.throttled) = (now, now);
        }
        for slot in 0..self.slots.len() {
            self.start(slot);
            self.slots[slot].iter_mut().for_each(|process| process.paused = now);
        }
        for place in 0..PLACES {
            self.mend_lease(place);
            self.owners[place].cut = now;
            self.owners[place].leaders.retain(|_, leader| leader.leads);
            let gone = place == CLAIMANT || place >= self.size || dead == Some(place);
            if gone {
                self.owners[place].leaders.clear();
            } else {
                self.lead(place);
            }
            self.owners[place].dead = gone;
        }
    }
}

/// Runs the history of `seed`; says how often what happened. Panics where an invariant is broken.
pub(crate) fn run(seed: u64, event_log: Option<EventLog>) -> Counts {
    let mut world = World::new(seed, event_log);
    for slot in 0..world.slots.len() {
        world.start(slot);
    }
    for place in 0..world.size {
        for key in crate::facts::keys() {
            if world.rng.random_bool(0.6) {
                world.add_export(place, key);
            }
        }
        world.lead(place);
        world.at(world.now, Event::Poll(place));
    }
    world.pass(3 * LEASE);
    for _ in 0..ACTIONS {
        world.act();
        let time = match world.rng.random_range(0..10) {
            0..3 => LEASE / 100,
            3..8 => LEASE / 2 + world.some(0, 3_000),
            _ => world.some(0, 12_000),
        };
        world.pass(time);
        world.check_all();
    }
    let dead = world.rng.random_bool(0.3).then(|| world.rng.random_range(0..world.size));
    world.heal(dead);
    // What lags arrives at last; then the directory is compared, and the grace is over of what nobody heard.
    let lag = world.lag;
    world.pass(lag + GRACE + 16 * LEASE);
    world.check_all();
    world.check_convergence(dead);
    world.nothing_is_written_while_nothing_happens();
    if dead.is_none() {
        world.a_dead_cluster_is_gone_in_time();
    }
    world.counts
}
