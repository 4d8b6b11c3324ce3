//! A registry process over a shared table, and what its drivers do: refreshes, readings, beats, news, saving.

use super::checks::Floors;
use super::table::{Key, Value};
use super::world::{Event, World};
use crate::book::Book;
use crate::facts::{POLICY, TIMING, cluster_id};
use mcs_core::ids::{ClusterId, ClusterUid, Epoch, Region, ServiceKey};
use mcs_core::log::StateLog;
use mcs_core::model::{Change, MemberState, Object, ObjectKey};
use mcs_core::registry::{Keys, Read, Recorded, Registry, Rewrite, Who};
use mcs_core::replicas::{Beat, KeyTag, News, NewsEntry, UidTag};
use mcs_core::time::Timestamp;
use mcs_core::version::Version;
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
    unsaved: BTreeMap<ClusterId, Notes>,
    news: Vec<NewsEntry>,
    first: u64,
    told: bool,
    /// When the directory is compared as a whole.
    compare_at: Timestamp,
    writing: bool,
    /// The newest item of each other replica that was heard.
    pub(crate) read: BTreeMap<Epoch, u64>,
    states: BTreeMap<ClusterId, (ClusterUid, MemberState)>,
    /// Who was a member and went, which was checked then.
    pub(crate) went: BTreeSet<ClusterUid>,
    /// The versions that it held.
    pub(crate) floors: BTreeMap<ClusterId, Floors>,
}

#[derive(Default, Debug)]
struct Notes {
    uid: Option<ClusterUid>,
    gone: BTreeMap<ClusterUid, Version>,
    record: bool,
    keys: BTreeSet<ServiceKey>,
}

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
            unsaved: BTreeMap::new(),
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

    fn note(&mut self, change: &Change) {
        match (&change.key, &change.object) {
            (ObjectKey::Part(key, cluster), _) => {
                self.unsaved.entry(cluster.clone()).or_default().keys.insert(key.clone());
            }
            (ObjectKey::Section(cluster), Some(Object::Section(section))) => {
                let notes = self.unsaved.entry(cluster.clone()).or_default();
                if let Some(before) = notes.uid.replace(section.uid.clone()).filter(|uid| *uid != section.uid)
                {
                    notes.gone.insert(before, section.version);
                }
                notes.record = true;
            }
            (ObjectKey::Section(cluster), _) => {
                let notes = self.unsaved.entry(cluster.clone()).or_default();
                let gone = notes.uid.take();
                notes.gone.extend(gone.map(|uid| (uid, Version::default())));
                notes.record = false;
                notes.keys.clear();
            }
            (ObjectKey::Header(_), _) => {}
        }
    }

    fn rewrite(&mut self, cluster: &ClusterId, rewrite: Rewrite) {
        if rewrite.is_empty() {
            return;
        }
        let notes = self.unsaved.entry(cluster.clone()).or_default();
        notes.uid = self.registry.member(cluster).map(|member| member.uid().clone());
        notes.record = true;
        notes.keys.extend(rewrite.keys);
    }

    fn tell(&mut self, entry: NewsEntry) {
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
        let result = act(&mut process.registry, &mut self.book, now);
        let mut changed = BTreeSet::new();
        while let Some(change) = process.registry.next_change() {
            let verdict = matches!(&change.object, Some(Object::Section(section))
                if section.state == MemberState::Expired);
            if cause == Cause::Call || (matches!(cause, Cause::Time | Cause::Heard) && verdict) {
                process.note(&change);
            } else if let (ObjectKey::Section(cluster), Some(Object::Section(section))) =
                (&change.key, &change.object)
            {
                process.unsaved.entry(cluster.clone()).or_default().uid = Some(section.uid.clone());
            }
            if let ObjectKey::Section(cluster) = &change.key {
                changed.insert(cluster.clone());
            }
            process.log.append(change.key, change.revision, change.object);
        }
        if !changed.is_empty() {
            self.check_process(slot, &mut process, cause, &changed);
        }
        self.slots[slot] = Some(process);
        Some(result)
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
            .map(|(id, member)| (id.clone(), (member.uid().clone(), member.state())))
            .collect();
        let before = std::mem::replace(&mut process.states, states.clone());
        for (cluster, (uid, state)) in &before {
            let is = states.get(cluster).filter(|(now, _)| now == uid).map(|(_, state)| *state);
            if *state != MemberState::Expired && is == Some(MemberState::Expired) {
                self.log(|| format!("replica {slot} expires {uid}, which was {state}: {cause:?}"));
                self.count("verdicts");
                self.check_verdict(slot, process, uid);
            }
            if *state == MemberState::Expired && is == Some(MemberState::Active) {
                self.count("members back");
            }
            let by = states.get(cluster).map(|(uid, _)| uid.clone());
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
            let Some(Value::Beat(beat)) = table.get(&Key::Beat(epoch), self.now, lags) else { continue };
            let news = match table.get(&Key::News(epoch), self.now, lags) {
                Some(Value::News(news)) => Some(news),
                _ => None,
            };
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
        let mut directory = Vec::new();
        for who in keys {
            let lags = self.lags();
            if let Some(Value::Record(record)) =
                self.tables[region].get(&Key::Record(who.clone()), self.now, lags)
            {
                directory.push((who.cluster, record));
            }
        }
        let differing = self.with(slot, Cause::Learned, |registry, now| {
            registry.differing(&directory, &BTreeSet::new(), now)
        });
        let Some(differing) = differing else { return };
        for (cluster, rewrite) in differing.rewrite {
            self.count("rewrites");
            self.slots[slot].iter_mut().for_each(|process| process.rewrite(&cluster, rewrite.clone()));
        }
        for who in differing.read {
            let later = self.some(1, 100);
            self.at(self.now + later, Event::Read(slot, epoch, who, Keys::All));
        }
        self.drive_process(slot);
    }

    pub(crate) fn read(&mut self, slot: usize, epoch: Epoch, who: &Who, keys: &Keys) {
        let Some(region) = self.region_of(slot).filter(|_| self.is(slot, epoch)) else { return };
        if self.store_fails(region) {
            return;
        }
        let lags = self.lags();
        let record = match self.tables[region].get(&Key::Record(who.clone()), self.now, lags) {
            Some(Value::Record(record)) => record,
            _ => {
                let forgotten = self
                    .with(slot, Cause::Learned, |registry, now| registry.forget(&who.cluster, &who.uid, now));
                if let Some(forgotten) = forgotten {
                    if forgotten.gone {
                        self.count("members forgotten");
                    }
                    self.slots[slot]
                        .iter_mut()
                        .for_each(|process| process.rewrite(&who.cluster, forgotten.rewrite.clone()));
                }
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
        if !learnt.rewrite.is_empty() {
            self.count("rewrites");
            self.slots[slot]
                .iter_mut()
                .for_each(|process| process.rewrite(&who.cluster, learnt.rewrite.clone()));
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
            .iter()
            .filter(|(_, notes)| !notes.gone.is_empty() || notes.record || !notes.keys.is_empty())
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
            self.write(region, Key::Beat(epoch), Some(Value::Beat(beat.clone())));
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

    pub(crate) fn save(&mut self, slot: usize, epoch: Epoch, cluster: &ClusterId) {
        self.saving.remove(&(slot, cluster.clone()));
        let Some(region) = self.region_of(slot).filter(|_| self.is(slot, epoch)) else { return };
        let fails = self.store_fails(region);
        let Some(process) = &mut self.slots[slot] else { return };
        process.degraded = fails;
        if fails {
            return;
        }
        let Some(notes) = process.unsaved.get_mut(cluster) else { return };
        let gone = std::mem::take(&mut notes.gone);
        let keys = std::mem::take(&mut notes.keys);
        let record = std::mem::take(&mut notes.record) || !keys.is_empty();
        let uid = notes.uid.clone();
        let mut writes: Vec<(Key, Option<Value>, Option<Version>)> = Vec::new();
        let mut entries = Vec::new();
        for (uid, version) in gone {
            let who = Who { cluster: cluster.clone(), uid: uid.clone() };
            for key in crate::facts::keys() {
                writes.push((Key::Export(who.clone(), key.clone()), None, None));
            }
            writes.push((Key::Record(who), None, None));
            entries.push(NewsEntry { member: UidTag::of(&uid), key: None, version });
        }
        let member = process.registry.member(cluster).filter(|member| uid.as_ref() == Some(member.uid()));
        if let Some(member) = member.filter(|_| record) {
            let who = Who { cluster: cluster.clone(), uid: member.uid().clone() };
            let tag = UidTag::of(member.uid());
            let newest = member.newest_act();
            for key in &keys {
                let export = member.exports().get(key);
                let version = export.map_or(newest, |export| export.version);
                let value = export.cloned().map(Value::Export);
                writes.push((Key::Export(who.clone(), key.clone()), value, Some(version)));
                entries.push(NewsEntry {
                    member: tag,
                    key: Some(KeyTag::of(key)),
                    version: member.version(),
                });
            }
            let recorded = Recorded {
                uid: member.uid().clone(),
                region: member.region().cloned(),
                version: member.version(),
                sum: member.sum(),
                state: member.recorded_state(),
                claimed_at: member.claimed_at(),
            };
            writes.push((Key::Record(who), Some(Value::Record(recorded)), Some(member.version())));
            if keys.is_empty() {
                entries.push(NewsEntry { member: tag, key: None, version: member.version() });
            }
        }
        entries.into_iter().for_each(|entry| process.tell(entry));
        for (key, value, version) in writes {
            if self.tables[region].holds_newer(&key, version) {
                self.count("older writes refused");
                continue;
            }
            if self.strikes(0.004, "writes lost") {
                continue;
            }
            self.write(region, key, value);
        }
        // News are written at once; at most one write of them is made between two of these moments.
        let Some(process) = &mut self.slots[slot] else { return };
        process.told = true;
        let news = News { epoch, first: process.first, entries: process.news.clone() };
        self.write(region, Key::News(epoch), Some(Value::News(news)));
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
