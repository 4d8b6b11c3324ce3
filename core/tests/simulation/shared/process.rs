//! A registry process over a shared table, and what its drivers do: refreshes, readings, beats.

use super::checks::Floors;
use super::notes::Unsaved;
use super::table::{Key, Value};
use super::world::{Event, World};
use crate::book::Book;
use crate::facts::{POLICY, TIMING, cluster_id};
use mcs_core::ids::{ClusterId, ClusterUid, Epoch, Region, ServiceKey};
use mcs_core::log::StateLog;
use mcs_core::model::{Change, MemberState, Object, ObjectKey};
use mcs_core::registry::{Forgotten, Keys, Member, Read, Registry, Rewrite, Who};
use mcs_core::replicas::{Beat, News, NewsEntry, Packed, UidTag};
use mcs_core::time::{Timestamp, WallMillis};
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub(crate) const GRACE: Duration = Duration::from_secs(24);

/// How often a table is read.
pub(crate) const REFRESH: Duration = Duration::from_millis(400);

/// How many entries news have: few, so that they overrun.
const NEWS: usize = 6;

pub(crate) struct Process {
    pub(crate) epoch: Epoch,
    pub(crate) region: usize,
    pub(crate) registry: Registry,
    pub(crate) log: StateLog<Object>,
    pub(crate) paused: Timestamp,
    pub(crate) started: Timestamp,
    pub(crate) serves: bool,
    /// Since when it cannot be counted on, and until when: it stood still, or its table was away.
    pub(crate) sick: Timestamp,
    /// Whether it said `degraded` last.
    pub(crate) degraded: bool,
    pub(crate) unsaved: Unsaved,
    pub(crate) news: Vec<NewsEntry>,
    pub(crate) first: u64,
    pub(crate) told: bool,
    /// When the directory is compared as a whole.
    compare_at: Timestamp,
    writing: bool,
    /// The newest item of each other replica that was heard.
    pub(crate) read: BTreeMap<Epoch, u64>,
    states: BTreeMap<ClusterId, State>,
    /// Who was a member and went, which was checked then.
    pub(crate) went: BTreeSet<ClusterUid>,
    /// The versions that it held.
    pub(crate) floors: BTreeMap<ClusterId, Floors>,
}

/// Who has an id, what is thought of it, and when it took the id.
type State = (ClusterUid, MemberState, Option<WallMillis>);

/// Who caused changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Call,
    Time,
    Heard,
    Learned,
}

impl Process {
    pub(crate) fn new(epoch: Epoch, region: usize, now: Timestamp) -> Self {
        let name = Region::new(["eu-1", "us-1", "ap-1"][region]).expect("a region");
        Self {
            epoch,
            region,
            registry: Registry::shared(POLICY, epoch, Some(name), GRACE, now),
            log: StateLog::keeping(8),
            paused: Timestamp::ZERO,
            started: now,
            serves: false,
            sick: Timestamp::ZERO,
            degraded: false,
            unsaved: Unsaved::default(),
            news: Vec::new(),
            first: 0,
            told: true,
            compare_at: now,
            writing: false,
            read: BTreeMap::new(),
            states: BTreeMap::new(),
            went: BTreeSet::new(),
            floors: BTreeMap::new(),
        }
    }

    fn note(&mut self, change: &Change, cause: Cause) {
        match cause {
            Cause::Call | Cause::Time => {
                let act = match &change.key {
                    ObjectKey::Section(cluster) | ObjectKey::Part(_, cluster) => {
                        self.registry.member(cluster).map(Member::newest_act)
                    }
                    ObjectKey::Header(_) => None,
                };
                self.unsaved.note(change, cause == Cause::Call, act.unwrap_or_default());
            }
            Cause::Heard => self.unsaved.heard(change),
            Cause::Learned => self.unsaved.learned(change),
        }
    }

    fn rewrite(&mut self, who: &Who, rewrite: Rewrite) {
        let as_of = self.registry.member(&who.cluster).map(Member::version).unwrap_or_default();
        self.unsaved.again(&who.cluster, &who.uid, as_of, rewrite.keys);
    }

    pub(crate) fn tell(&mut self, entry: NewsEntry) {
        self.news.push(entry);
        while self.news.len() > NEWS {
            self.news.remove(0);
            self.first += 1;
        }
        self.told = false;
    }
}

impl World {
    /// Has something happen to a replica, takes what changed into its log, and checks it.
    pub(crate) fn with<R>(
        &mut self,
        slot: usize,
        cause: Cause,
        act: impl FnOnce(&mut Registry, Timestamp) -> R,
    ) -> Option<R> {
        self.with_book(slot, cause, |registry, _, now| act(registry, now))
    }

    /// The same for an act that says something, which is noted before it is compared with what is held.
    pub(crate) fn with_book<R>(
        &mut self,
        slot: usize,
        cause: Cause,
        act: impl FnOnce(&mut Registry, &mut Book, Timestamp) -> R,
    ) -> Option<R> {
        let now = self.now;
        let mut process = self.slots[slot].take()?;
        process.registry.handle_timeout(now);
        self.drain(slot, &mut process, Cause::Time);
        let result = act(&mut process.registry, &mut self.book, now);
        self.drain(slot, &mut process, cause);
        self.slots[slot] = Some(process);
        Some(result)
    }

    fn drain(&mut self, slot: usize, process: &mut Process, cause: Cause) {
        let mut changed = BTreeSet::new();
        while let Some(change) = process.registry.next_change() {
            process.note(&change, cause);
            if let ObjectKey::Section(cluster) = &change.key {
                changed.insert(cluster.clone());
            }
            process.log.append(change.key, change.revision, change.object);
        }
        if !changed.is_empty() {
            self.check_process(slot, process, cause, &changed);
        }
    }

    fn check_process(
        &mut self,
        slot: usize,
        process: &mut Process,
        cause: Cause,
        changed: &BTreeSet<ClusterId>,
    ) {
        let states: BTreeMap<_, _> = process
            .registry
            .members()
            .map(|(id, member)| (id.clone(), (member.uid().clone(), member.state(), member.claimed_at())))
            .collect();
        let before = std::mem::replace(&mut process.states, states.clone());
        for (cluster, (uid, state, claimed_at)) in &before {
            let is = states.get(cluster).filter(|(now, ..)| now == uid).map(|(_, state, _)| *state);
            if *state != MemberState::Expired && is == Some(MemberState::Expired) {
                self.log(|| format!("replica {slot} expires {uid}, which was {state}: {cause:?}"));
                self.count("verdicts");
                self.check_verdict(slot, process, uid);
            }
            if *state == MemberState::Expired && is == Some(MemberState::Active) {
                self.count("members back");
            }
            let by = states.get(cluster).map(|(uid, ..)| uid.clone());
            if let Some((now, _, claim)) = states.get(cluster).filter(|(now, ..)| now != uid)
                && cause != Cause::Call
                && *state != MemberState::Expired
            {
                self.count("ids given to an earlier claim");
                let rank =
                    |claim: Option<WallMillis>, uid: &ClusterUid| (claim.is_none(), claim, uid.clone());
                assert!(
                    rank(*claim, now) < rank(*claimed_at, uid),
                    "invariant 15: {cluster} of {uid}, which took it at {claimed_at:?}, went to {now}, at {claim:?}"
                );
            }
            if is.is_none() {
                process.went.insert(uid.clone());
            }
            if is.is_none() && (cause != Cause::Call || by.is_some()) {
                self.check_gone(slot, process, uid, by.as_ref());
            }
        }
        for cluster in changed {
            self.log(|| {
                let member = process.registry.member(cluster);
                let held = member.map(|member| {
                    let exports = member
                        .exports()
                        .iter()
                        .map(|(key, export)| (key.to_string(), export.version.to_string()));
                    (member.version(), member.newest_act(), member.state(), exports.collect::<Vec<_>>())
                });
                format!("replica {slot} now holds of {cluster}, {cause:?}: {held:?}")
            });
            self.check_member(process, cluster);
        }
    }

    /// What a process does when its refresh is due: it reads all items of replicas, and hears them a moment later.
    pub(crate) fn refresh(&mut self, slot: usize, epoch: Epoch) {
        if !self.is(slot, epoch) {
            return;
        }
        self.at(self.now + REFRESH, Event::Refresh(slot, epoch));
        let Some(region) = self.region_of(slot) else { return };
        if self.store_fails(region) {
            self.with(slot, Cause::Time, |registry, now| registry.store_answers(false, now));
            let sick = self.now + 2 * TIMING.lease();
            self.slots[slot].iter_mut().for_each(|process| process.sick = sick);
            return;
        }
        let table = &self.tables[region];
        let epochs: Vec<Epoch> = table
            .keys()
            .filter_map(|key| if let Key::Beat(epoch) = key { Some(*epoch) } else { None })
            .collect();
        let mut items = Vec::new();
        for epoch in epochs {
            let lags = self.lags();
            let table = &self.tables[region];
            let Some(Value::Beat(mut beat)) = table.get(&Key::Beat(epoch), self.now, lags) else { continue };
            let mut news = match table.get(&Key::News(epoch), self.now, lags) {
                Some(Value::News(news)) => Some(news),
                _ => None,
            };
            if self.strikes(0.002, "beats that cannot be read") {
                beat = Beat::silent(epoch, beat.number);
            }
            if self.strikes(0.002, "news that cannot be read") {
                news.iter_mut().for_each(|news| {
                    news.first += news.entries.len() as u64;
                    news.entries.clear();
                });
            }
            items.push((beat, news));
        }
        let later = self.some(5, 60);
        self.at(self.now + later, Event::Hear(slot, epoch, items));
    }

    pub(crate) fn hear(&mut self, slot: usize, epoch: Epoch, items: &[(Beat, Option<News>)]) {
        if !self.is(slot, epoch) {
            return;
        }
        if let Some(process) = &mut self.slots[slot] {
            for (beat, _) in items {
                let read = process.read.entry(beat.epoch).or_default();
                *read = beat.number.max(*read);
            }
        }
        let Some(reading) = self.with(slot, Cause::Heard, |registry, now| registry.hear(items, now)) else {
            return;
        };
        for entry in reading.tell {
            self.count("asked to compare");
            self.slots[slot].iter_mut().for_each(|process| process.tell(entry));
        }
        let due = self.slots[slot].as_ref().is_some_and(|process| process.compare_at.has_passed(self.now));
        if reading.all || due {
            let later = self.some(1, 100);
            self.at(self.now + later, Event::Directory(slot, epoch));
        }
        for (who, keys) in reading.members {
            let later = self.some(1, 100);
            self.at(self.now + later, Event::Read(slot, epoch, who, keys));
        }
        self.drive_process(slot);
    }

    pub(crate) fn directory(&mut self, slot: usize, epoch: Epoch) {
        let Some(region) = self.region_of(slot).filter(|_| self.is(slot, epoch)) else { return };
        if self.store_fails(region) {
            return;
        }
        self.slots[slot].iter_mut().for_each(|process| process.compare_at = self.now + TIMING.compare());
        self.count("directories read");
        let keys: Vec<Who> = self.tables[region]
            .keys()
            .filter_map(|key| if let Key::Record(who) = key { Some(who.clone()) } else { None })
            .collect();
        let (mut directory, mut removed, mut torn) = (Vec::new(), Vec::new(), BTreeSet::new());
        for who in keys {
            let lags = self.lags();
            match self.tables[region].get(&Key::Record(who.clone()), self.now, lags) {
                Some(Value::Record(_)) if self.strikes(0.005, "records that cannot be read") => {
                    torn.insert((who.cluster, UidTag::of(&who.uid)));
                }
                Some(Value::Record(record)) => directory.push((who.cluster, record)),
                Some(Value::Removed(as_of)) => removed.push((who, as_of)),
                _ => {}
            }
        }
        let differing = self.with(slot, Cause::Learned, |registry, now| {
            for (who, as_of) in &removed {
                registry.was_removed(who, *as_of, now);
            }
            registry.differing(&directory, &torn, now)
        });
        let Some(differing) = differing else { return };
        for (cluster, rewrite) in differing.rewrite {
            let member = self.slots[slot].as_ref().and_then(|process| process.registry.member(&cluster));
            let Some(uid) = member.map(|member| member.uid().clone()) else { continue };
            self.rewrite(slot, &Who { cluster, uid }, rewrite);
        }
        for (who, as_of) in differing.remove {
            self.count("members removed again");
            self.slots[slot]
                .iter_mut()
                .for_each(|process| process.unsaved.remove_again(&who.cluster, who.uid.clone(), as_of));
        }
        for who in differing.read {
            let later = self.some(1, 100);
            self.at(self.now + later, Event::Read(slot, epoch, who, Keys::All));
        }
        self.drive_process(slot);
    }

    /// Notes what is to be written again, and reads it all: where something was lost, more may have been.
    fn rewrite(&mut self, slot: usize, who: &Who, rewrite: Rewrite) {
        if rewrite.is_empty() {
            return;
        }
        self.count("rewrites");
        let Some(process) = &mut self.slots[slot] else { return };
        process.rewrite(who, rewrite);
        let epoch = process.epoch;
        let later = self.some(1, 100);
        self.at(self.now + later, Event::Read(slot, epoch, who.clone(), Keys::All));
    }

    pub(crate) fn read(&mut self, slot: usize, epoch: Epoch, who: &Who, keys: &Keys) {
        let Some(region) = self.region_of(slot).filter(|_| self.is(slot, epoch)) else { return };
        if self.store_fails(region) {
            return;
        }
        let lags = self.lags();
        let record = match self.tables[region].get(&Key::Record(who.clone()), self.now, lags) {
            Some(Value::Record(_)) if self.strikes(0.005, "records that cannot be read") => return,
            Some(Value::Record(record)) => record,
            found => {
                let as_of = if let Some(Value::Removed(as_of)) = found { Some(as_of) } else { None };
                let forgotten = self.with(slot, Cause::Learned, |registry, now| {
                    if as_of.is_some_and(|as_of| registry.was_removed(who, as_of, now)) {
                        return Forgotten { gone: true, rewrite: Rewrite::default() };
                    }
                    registry.forget(&who.cluster, &who.uid, now)
                });
                let Some(forgotten) = forgotten else { return };
                if forgotten.gone {
                    self.count(if as_of.is_some() {
                        "members that a mark took"
                    } else {
                        "members forgotten"
                    });
                }
                self.rewrite(slot, who, forgotten.rewrite);
                self.drive_process(slot);
                return;
            }
        };
        let mut torn = BTreeSet::new();
        let mut get = |world: &mut Self, key: &ServiceKey| {
            if world.strikes(0.02, "exports torn") {
                torn.insert(key.clone());
                return None;
            }
            let lags = world.lags();
            match world.tables[region].get(&Key::Export(who.clone(), key.clone()), world.now, lags) {
                Some(Value::Export(export)) => Some(Some(export)),
                _ => Some(None),
            }
        };
        let read = match keys {
            Keys::Record => Read::record(),
            Keys::Some(keys) => {
                let read = keys.iter().filter_map(|key| Some((key.clone(), get(self, key)?))).collect();
                Read::Some { read, torn }
            }
            Keys::All => {
                let whole = crate::facts::keys()
                    .iter()
                    .filter_map(|key| Some((key.clone(), get(self, key)??)))
                    .collect();
                Read::All { whole, torn }
            }
        };
        self.log(|| {
            format!("replica {slot} learns of {who:?} as of {} {}: {read:?}", record.version, record.sum)
        });
        let learnt =
            self.with(slot, Cause::Learned, |registry, now| registry.learn(&who.cluster, record, read, now));
        let Some(learnt) = learnt else { return };
        if learnt.again {
            self.count("read again");
        }
        if *keys == Keys::All {
            // Its rewrite is not followed by another read of all.
            if !learnt.rewrite.is_empty() {
                self.count("rewrites");
                self.slots[slot].iter_mut().for_each(|process| process.rewrite(who, learnt.rewrite.clone()));
            }
        } else {
            self.rewrite(slot, who, learnt.rewrite);
        }
        self.drive_process(slot);
    }

    /// Looks at the clock, and does what is due.
    pub(crate) fn tick(&mut self, slot: usize, epoch: Epoch) {
        if !self.is(slot, epoch) {
            return;
        }
        self.with(slot, Cause::Time, |registry, now| registry.handle_timeout(now));
        self.drive_process(slot);
        self.at(self.now + Duration::from_millis(250), Event::Tick(slot, epoch));
    }

    fn drive_process(&mut self, slot: usize) {
        let now = self.now;
        let Some(process) = &mut self.slots[slot] else { return };
        let epoch = process.epoch;
        let known = process.registry.is_known() || (process.started + TIMING.lease()).has_passed(now);
        process.serves |=
            known && process.registry.is_complete(now) | (process.started + TIMING.lease()).has_passed(now);
        let beat = (!process.writing && process.registry.beat_due(now)).then(|| process.registry.beat(now));
        if let Some(beat) = beat {
            process.writing = true;
            self.made.insert((epoch, beat.number), now);
            let later = self.some(2, 80);
            self.at(now + later, Event::WriteBeat(slot, epoch, Box::new(beat)));
        }
        let Some(process) = &mut self.slots[slot] else { return };
        let dirty: Vec<ClusterId> = process
            .unsaved
            .0
            .iter()
            .filter(|(_, notes)| !notes.is_empty())
            .map(|(id, _)| id.clone())
            .collect();
        for cluster in dirty {
            if self.saving.insert((slot, cluster.clone())) {
                let later = self.some(2, 60);
                self.at(now + later, Event::Save(slot, epoch, cluster));
            }
        }
    }

    pub(crate) fn write_beat(&mut self, slot: usize, epoch: Epoch, beat: &Beat) {
        let Some(region) = self.region_of(slot).filter(|_| self.is(slot, epoch)) else { return };
        let fails = self.store_fails(region);
        // It may be written although nobody is told so.
        if !fails || self.rng.random_bool(0.3) {
            // As it is read back from its bytes.
            let renewals = Packed::of(beat).renewals(beat.number);
            self.write(region, Key::Beat(epoch), Some(Value::Beat(Beat { renewals, ..beat.clone() })));
        }
        let Some(process) = &mut self.slots[slot] else { return };
        process.writing = false;
        if fails {
            process.sick = self.now + 2 * TIMING.lease();
        } else {
            process.registry.beat_written(beat.number, self.now);
        }
        if let Some(process) = self.slots[slot].as_mut().filter(|process| !process.told)
            && !fails
        {
            process.told = true;
            let news = News { epoch, first: process.first, entries: process.news.clone() };
            self.write(region, Key::News(epoch), Some(Value::News(news)));
        }
    }

    pub(crate) fn remove(&mut self, slot: usize, place: usize, uid: Option<&ClusterUid>) -> bool {
        let cluster = cluster_id(place);
        let gone =
            self.with(slot, Cause::Call, |registry, now| registry.remove(&cluster, uid, true, now).is_ok());
        self.drive_process(slot);
        gone == Some(true)
    }

    pub(crate) fn after_call(&mut self, slot: usize) {
        self.drive_process(slot);
    }
}
