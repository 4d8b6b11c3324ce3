//! A store that several registries share, in regions: records that are written in one are seen in the others after a
//! time that a test sets, and calls fail when a test says so.
//!
//! As in a table that is replicated: an item of one region replaces that of another if it was written later, whatever it
//! says; conditions look at the own region alone; a read may be older than the last write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mcs_core::ids::{ClustersetId, Epoch, ServiceKey};
use mcs_core::model::Export;
use mcs_core::replicas::{Beat, News};
use mcs_core::time::{Clock, ManualClock, Timestamp};
use mcs_core::version::Version;
use mcs_proto::convert::Member;
use mcs_registry::store::{
    Erased, Exports, Failed, Found, Held, Known, MemberRecord, Members, Replica, Store, Write, Wrote,
};
use tokio::sync::watch;

use super::double::Mood;

/// One record of the table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Member(Member),
    Export(Member, ServiceKey),
    Beat(ClustersetId, Epoch),
    News(ClustersetId, Epoch),
}

#[derive(Clone, Debug)]
enum Item {
    Member(MemberRecord),
    Export(Export),
    Beat(Beat),
    News(News),
}

impl Item {
    const fn version(&self) -> Option<Version> {
        match self {
            Self::Member(record) => Some(record.version),
            Self::Export(export) => Some(export.version),
            Self::Beat(_) | Self::News(_) => None,
        }
    }
}

/// What was written of a record, as one region sees it.
#[derive(Clone, Debug)]
struct Seen {
    /// Which of two writes stands, wherever they were made.
    written: u64,
    /// When it is seen here.
    from: Timestamp,
    /// None: removed.
    item: Option<Item>,
}

/// How far a region is from the others.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    /// What is written elsewhere is seen here so much later.
    lag: Duration,
    /// Writes are spread over the lag, so that a later one may be seen first.
    reorders: bool,
    /// Nothing comes in or goes out.
    cut: bool,
}

#[derive(Debug, Default)]
struct Tables {
    regions: Vec<BTreeMap<Key, Vec<Seen>>>,
    links: Vec<Link>,
    /// What waits for the end of a cut: region, key and what was written.
    held_up: Vec<(usize, Key, Seen)>,
    written: u64,
    /// So many further writes are taken and not made.
    to_lose: usize,
    random: u64,
}

impl Tables {
    /// The record as a region sees it.
    fn get(&self, region: usize, key: &Key, at: Timestamp) -> Option<&Item> {
        self.regions[region].get(key).and_then(|seen| stands(seen, at))
    }

    fn put(&mut self, region: usize, key: &Key, item: Option<Item>, now: Timestamp) {
        self.written += 1;
        let written = self.written;
        for other in 0..self.regions.len() {
            let Link { lag, reorders, cut } = self.links[other];
            let late = match (other == region, reorders) {
                (true, _) => Duration::ZERO,
                (false, false) => lag,
                (false, true) => lag.mul_f64(share(&mut self.random)),
            };
            let seen = Seen { written, from: now + late, item: item.clone() };
            if other != region && (cut || self.links[region].cut) {
                self.held_up.push((other, key.clone(), seen));
            } else {
                self.take(other, key.clone(), seen, now);
            }
        }
    }

    fn take(&mut self, region: usize, key: Key, seen: Seen, now: Timestamp) {
        let all = self.regions[region].entry(key).or_default();
        // What was superseded long ago is read by nobody.
        let newest =
            all.iter().filter(|seen| (seen.from + OLDEST_READ).has_passed(now)).map(|seen| seen.written);
        if let Some(newest) = newest.max() {
            all.retain(|seen| seen.written >= newest);
        }
        all.push(seen);
    }
}

/// No read is older than this.
const OLDEST_READ: Duration = Duration::from_secs(600);

fn stands(seen: &[Seen], at: Timestamp) -> Option<&Item> {
    seen.iter().filter(|seen| seen.from.has_passed(at)).max_by_key(|seen| seen.written)?.item.as_ref()
}

/// The tables of all regions.
pub(super) struct Shared {
    clock: Arc<ManualClock>,
    tables: Mutex<Tables>,
}

impl Shared {
    /// Empty tables of so many regions, without lag.
    pub(super) fn of_regions(count: usize, clock: &Arc<ManualClock>) -> Arc<Self> {
        let tables = Tables {
            regions: vec![BTreeMap::new(); count],
            links: vec![Link::default(); count],
            random: 1,
            ..Tables::default()
        };
        Arc::new(Self { clock: Arc::clone(clock), tables: Mutex::new(tables) })
    }

    fn with<T>(&self, act: impl FnOnce(&mut Tables, Timestamp) -> T) -> T {
        act(&mut self.tables.lock().unwrap_or_else(PoisonError::into_inner), self.clock.elapsed())
    }

    /// What is written elsewhere is seen in `region` after `lag`.
    pub(super) fn lags(&self, region: usize, lag: Duration) {
        self.with(|tables, _| tables.links[region].lag = lag);
    }

    /// What is written elsewhere is seen in `region` after anything up to its lag.
    pub(super) fn reorders(&self, region: usize) {
        self.with(|tables, _| tables.links[region].reorders = true);
    }

    /// Cuts a region off from the others, or ends that: what was held up comes then.
    pub(super) fn cut(&self, region: usize, cut: bool) {
        self.with(|tables, now| {
            tables.links[region].cut = cut;
            if tables.links.iter().all(|link| !link.cut) {
                for (region, key, seen) in std::mem::take(&mut tables.held_up) {
                    let from = now + tables.links[region].lag;
                    tables.take(region, key, Seen { from, ..seen }, now);
                }
            }
        });
    }

    /// So many further writes of records are said to be made, and are not.
    pub(super) fn loses(&self, writes: usize) {
        self.with(|tables, _| tables.to_lose = writes);
    }

    /// How many writes are still to be lost.
    pub(super) fn left_to_lose(&self) -> usize {
        self.with(|tables, _| tables.to_lose)
    }

    /// What a region holds of a member now.
    pub(super) fn held(
        &self,
        region: usize,
        member: &Member,
    ) -> (Option<MemberRecord>, BTreeMap<ServiceKey, Export>) {
        self.with(|tables, now| (record(tables, region, member, now), exports(tables, region, member, now)))
    }

    /// Replaces what all regions hold of an export, or of a member, as a write would that was made elsewhere and wins.
    pub(super) fn overwrites(&self, member: &Member, write: Write) {
        self.with(|tables, now| {
            let (key, item) = entry(member, write);
            tables.put(0, &key, item, now);
        });
    }
}

fn entry(member: &Member, write: Write) -> (Key, Option<Item>) {
    match write {
        Write::Put(key, export) => (Key::Export(member.clone(), key), Some(Item::Export(export))),
        Write::Delete(key, _) => (Key::Export(member.clone(), key), None),
        Write::Member(record) => (Key::Member(member.clone()), Some(Item::Member(record))),
    }
}

fn record(tables: &Tables, region: usize, member: &Member, at: Timestamp) -> Option<MemberRecord> {
    match tables.get(region, &Key::Member(member.clone()), at)? {
        Item::Member(record) => Some(record.clone()),
        other => panic!("{other:?}"),
    }
}

fn exports(tables: &Tables, region: usize, member: &Member, at: Timestamp) -> BTreeMap<ServiceKey, Export> {
    let of = |(key, seen): (&Key, &Vec<Seen>)| match (key, stands(seen, at)?) {
        (Key::Export(of, key), Item::Export(export)) if of == member => Some((key.clone(), export.clone())),
        _ => None,
    };
    tables.regions[region].iter().filter_map(of).collect()
}

/// The store as one replica in one region has it.
pub(super) struct Reader {
    shared: Arc<Shared>,
    region: usize,
    mood: watch::Sender<Mood>,
    how: Mutex<How>,
}

#[derive(Debug, Default)]
struct How {
    /// Reads are so old.
    stale: Duration,
    /// Exports of more endpoints than this are seen as torn.
    torn_above: Option<usize>,
    calls: BTreeMap<&'static str, usize>,
    /// What the replicas say cannot be read.
    deaf: bool,
    /// The record of this member is asked for in vain.
    stuck: Option<Member>,
    /// No beat is taken in this clusterset.
    mute: Option<ClustersetId>,
    /// Half of the calls are throttled, by this random number; none: none is.
    half: Option<u64>,
    throttled: u64,
}

impl How {
    fn throttles(&mut self) -> bool {
        let throttles = self.half.as_mut().is_some_and(|random| share(random) < 0.5);
        self.throttled += u64::from(throttles);
        throttles
    }
}

/// A share of 0 to 1, the same in each run.
fn share(random: &mut u64) -> f64 {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    f64::from(u32::try_from(*random >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}

impl Reader {
    pub(super) fn of(shared: &Arc<Shared>, region: usize) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::clone(shared),
            region,
            mood: watch::Sender::new(Mood::Fine),
            how: Mutex::default(),
        })
    }

    pub(super) fn turn(&self, mood: Mood) {
        self.mood.send_replace(mood);
    }

    /// What is read is as old as this.
    pub(super) fn is_stale(&self, age: Duration) {
        self.how(|how| how.stale = age);
    }

    /// Exports of more endpoints than this cannot be read whole; none: all can.
    pub(super) fn tears(&self, above: Option<usize>) {
        self.how(|how| how.torn_above = above);
    }

    /// What the replicas say cannot be read; everything else can, and writes are taken.
    pub(super) fn is_deaf(&self, deaf: bool) {
        self.how(|how| how.deaf = deaf);
    }

    /// The record of this member is asked for in vain; none: of no member.
    pub(super) fn is_stuck(&self, member: Option<Member>) {
        self.how(|how| how.stuck = member);
    }

    /// No beat is taken in this clusterset.
    pub(super) fn is_mute(&self, clusterset: ClustersetId) {
        self.how(|how| how.mute = Some(clusterset));
    }

    /// Half of the calls are throttled, or none.
    pub(super) fn throttles_half(&self, throttles: bool) {
        self.how(|how| how.half = throttles.then_some(1));
    }

    /// How often an operation was asked for.
    pub(super) fn calls(&self, operation: &'static str) -> usize {
        self.how(|how| how.calls.get(operation).copied().unwrap_or_default())
    }

    /// How many calls of a half that is throttled were.
    pub(super) fn throttled(&self) -> u64 {
        self.how(|how| how.throttled)
    }

    fn how<T>(&self, act: impl FnOnce(&mut How) -> T) -> T {
        act(&mut self.how.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn ask(&self, operation: &'static str, is_write: bool) -> Result<(), Failed> {
        self.how(|how| *how.calls.entry(operation).or_default() += 1);
        let throttled = || Failed::Throttled { reason: "rate exceeded".to_owned() };
        let mood = *self.mood.borrow();
        if operation == "replicas" && self.how(|how| how.deaf) {
            return Err(throttled());
        }
        match mood {
            Mood::Fine if self.how(How::throttles) => Err(throttled()),
            Mood::Fine => Ok(()),
            Mood::Away => Err(Failed::Away { reason: "connection refused".to_owned() }),
            Mood::Silent => std::future::pending().await,
            Mood::Throttled if is_write => Err(throttled()),
            Mood::Throttled => Ok(()),
        }
    }

    /// Reads at the moment that this reader sees.
    async fn read<T>(
        &self,
        operation: &'static str,
        read: impl FnOnce(&Tables, Timestamp) -> T,
    ) -> Result<T, Failed> {
        self.ask(operation, false).await?;
        let stale = self.how(|how| how.stale);
        Ok(self.shared.with(|tables, now| {
            let at = Timestamp::ZERO + now.since(Timestamp::ZERO).saturating_sub(stale);
            read(tables, at)
        }))
    }

    fn torn(&self, export: &Export) -> bool {
        self.how(|how| how.torn_above).is_some_and(|above| export.endpoints.len() > above)
    }
}

#[tonic::async_trait]
impl Store for Reader {
    fn is_shared(&self) -> bool {
        true
    }

    async fn check(&self) -> Result<(), Failed> {
        self.ask("check", false).await
    }

    async fn write(&self, member: &Member, writes: Vec<Write>) -> Result<Vec<Wrote>, Failed> {
        self.ask("write", true).await?;
        let make = |write: Write| {
            self.shared.with(|tables, now| {
                let version = match &write {
                    Write::Put(_, export) => export.version,
                    Write::Delete(_, version) => *version,
                    Write::Member(record) => record.version,
                };
                let (key, item) = entry(member, write);
                let known = tables.get(self.region, &key, now).and_then(Item::version);
                if known.is_some_and(|known| known > version) {
                    return Wrote::Older;
                }
                if tables.to_lose > 0 {
                    tables.to_lose -= 1;
                } else {
                    tables.put(self.region, &key, item, now);
                }
                Wrote::Taken
            })
        };
        Ok(writes.into_iter().map(make).collect())
    }

    async fn remove(&self, member: &Member, as_of: Version) -> Result<Erased, Failed> {
        self.ask("remove", true).await?;
        Ok(self.shared.with(|tables, now| {
            let record = tables.get(self.region, &Key::Member(member.clone()), now);
            if record.and_then(Item::version).is_some_and(|version| version > as_of) {
                return Erased::Newer;
            }
            let is_old = |tables: &Tables, key: &Key| {
                tables
                    .get(self.region, key, now)
                    .and_then(Item::version)
                    .is_some_and(|version| version <= as_of)
            };
            let is_of = |key: &Key| matches!(key, Key::Member(of) | Key::Export(of, _) if of == member);
            let keys = tables.regions[self.region].keys();
            let keys: Vec<Key> = keys.filter(|key| is_of(key) && is_old(tables, key)).cloned().collect();
            keys.iter().for_each(|key| tables.put(self.region, key, None, now));
            let exports = keys.iter().filter(|key| matches!(key, Key::Export(..))).count();
            Erased::Gone { exports }
        }))
    }

    async fn members(&self, clusterset: &ClustersetId) -> Result<Members, Failed> {
        let whole = self
            .read("members", |tables, at| {
                let of = |(key, seen): (&Key, &Vec<Seen>)| match (key, stands(seen, at)?) {
                    (Key::Member(member), Item::Member(record)) if member.clusterset == *clusterset => {
                        Some((member.clone(), record.clone()))
                    }
                    _ => None,
                };
                tables.regions[self.region].iter().filter_map(of).collect()
            })
            .await?;
        Ok(Members { whole, ..Members::default() })
    }

    async fn member(&self, member: &Member) -> Result<Option<Found>, Failed> {
        if self.how(|how| how.stuck.as_ref() == Some(member)) {
            return std::future::pending().await;
        }
        let read = self.read("member", |tables, at| record(tables, self.region, member, at)).await?;
        Ok(read.map(Found::Record))
    }

    async fn exports(&self, member: &Member, _: &Known) -> Result<Exports, Failed> {
        let held = self.read("exports", |tables, at| exports(tables, self.region, member, at)).await?;
        let (torn, whole): (BTreeMap<_, _>, BTreeMap<_, _>) =
            held.into_iter().partition(|(_, export)| self.torn(export));
        Ok(Exports { whole, torn: torn.into_keys().collect() })
    }

    async fn export(
        &self,
        member: &Member,
        key: &ServiceKey,
        _: Option<&Export>,
    ) -> Result<Option<Held>, Failed> {
        let of = Key::Export(member.clone(), key.clone());
        let held = self.read("export", |tables, at| match tables.get(self.region, &of, at)? {
            Item::Export(export) => Some(export.clone()),
            other => panic!("{other:?}"),
        });
        Ok(held.await?.map(|export| if self.torn(&export) { Held::Torn } else { Held::Whole(export) }))
    }

    async fn replicas(&self, clusterset: &ClustersetId) -> Result<Vec<Replica>, Failed> {
        self.read("replicas", |tables, at| {
            let of = |(key, seen): (&Key, &Vec<Seen>)| {
                let (Key::Beat(of, epoch), Item::Beat(beat)) = (key, stands(seen, at)?) else { return None };
                let news = match tables.get(self.region, &Key::News(of.clone(), *epoch), at) {
                    Some(Item::News(news)) => Some(news.clone()),
                    _ => None,
                };
                (of == clusterset).then(|| Replica { beat: beat.clone(), news })
            };
            tables.regions[self.region].iter().filter_map(of).collect()
        })
        .await
    }

    async fn fading(&self, _: &Member) -> Result<BTreeSet<ServiceKey>, Failed> {
        self.ask("fading", false).await?;
        Ok(BTreeSet::new())
    }

    async fn retire(&self, clusterset: &ClustersetId, replica: Epoch) -> Result<(), Failed> {
        self.ask("retire", true).await?;
        self.shared.with(|tables, now| {
            let keys = [Key::Beat(clusterset.clone(), replica), Key::News(clusterset.clone(), replica)];
            keys.iter().for_each(|key| tables.put(self.region, key, None, now));
        });
        Ok(())
    }

    async fn beat(&self, clusterset: &ClustersetId, beat: &Beat) -> Result<(), Failed> {
        self.ask("beat", true).await?;
        if self.how(|how| how.mute.as_ref() == Some(clusterset)) {
            return Err(Failed::Throttled { reason: "rate exceeded".to_owned() });
        }
        let key = Key::Beat(clusterset.clone(), beat.epoch);
        self.shared.with(|tables, now| tables.put(self.region, &key, Some(Item::Beat(beat.clone())), now));
        Ok(())
    }

    async fn news(&self, clusterset: &ClustersetId, news: &News) -> Result<(), Failed> {
        self.ask("news", true).await?;
        let key = Key::News(clusterset.clone(), news.epoch);
        self.shared.with(|tables, now| tables.put(self.region, &key, Some(Item::News(news.clone())), now));
        Ok(())
    }
}
