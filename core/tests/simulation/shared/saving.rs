//! What a replica writes of members, in the order and on the conditions of the real store.

use super::process::Cause;
use super::table::{Key, Value};
use super::world::World;
use mcs_core::ids::{ClusterId, Epoch, ServiceKey};
use mcs_core::registry::{Recorded, Who};
use mcs_core::replicas::{KeyTag, News, NewsEntry, UidTag};
use mcs_core::version::Version;

impl World {
    pub(crate) fn save(&mut self, slot: usize, epoch: Epoch, cluster: &ClusterId) {
        self.saving.remove(&(slot, cluster.clone()));
        let Some(region) = self.region_of(slot).filter(|_| self.is(slot, epoch)) else { return };
        let fails = self.store_fails(region);
        let Some(process) = &mut self.slots[slot] else { return };
        process.degraded = fails;
        if fails {
            return;
        }
        let Some(notes) = process.unsaved.0.get_mut(cluster) else { return };
        let gone = std::mem::take(&mut notes.gone);
        for (uid, as_of) in &gone {
            let who = Who { cluster: cluster.clone(), uid: uid.clone() };
            if !self.remove_records(region, &who, *as_of) {
                // All of it is done again.
                if let Some(process) = &mut self.slots[slot] {
                    process.unsaved.0.entry(cluster.clone()).or_default().gone.extend(gone);
                }
                return;
            }
        }
        let Some(process) = &mut self.slots[slot] else { return };
        for (uid, as_of) in gone {
            // It comes after all that it said.
            let version = Version::new(as_of.term, as_of.seq + 1);
            process.tell(NewsEntry { member: UidTag::of(&uid), key: None, version });
        }
        self.save_member(slot, region, cluster);
        // News are written at once; at most one write of them is made between two of these moments.
        let Some(process) = &mut self.slots[slot] else { return };
        process.told = true;
        let news = News { epoch, first: process.first, entries: process.news.clone() };
        self.write(region, Key::News(epoch), Some(Value::News(news)));
    }

    /// Writes what is noted of who has an id: its exports, and its record last.
    fn save_member(&mut self, slot: usize, region: usize, cluster: &ClusterId) {
        let Some(process) = &mut self.slots[slot] else { return };
        let epoch = process.epoch;
        let Some(notes) = process.unsaved.0.get_mut(cluster) else { return };
        let exports = std::mem::take(&mut notes.exports);
        let record = std::mem::take(&mut notes.record) || !exports.is_empty();
        let member =
            process.registry.member(cluster).filter(|member| notes.uid.as_ref() == Some(member.uid()));
        let Some(member) = member.filter(|_| record) else { return };
        let who = Who { cluster: cluster.clone(), uid: member.uid().clone() };
        let (tag, version) = (UidTag::of(member.uid()), member.version());
        let export = |(key, as_of): (&ServiceKey, &Version)| {
            let held = member.exports().get(key).cloned().ok_or(*as_of);
            (Key::Export(who.clone(), key.clone()), held.map(Value::Export))
        };
        let mut writes: Vec<(Key, Result<Value, Version>)> = exports.iter().map(export).collect();
        let recorded = Recorded {
            uid: member.uid().clone(),
            region: member.region().cloned(),
            version,
            sum: member.sum(),
            state: member.recorded_state(),
            claimed_at: member.claimed_at(),
        };
        writes.push((Key::Record(who.clone()), Ok(Value::Record(recorded))));
        let mut entries: Vec<Option<KeyTag>> = exports.keys().map(|key| Some(KeyTag::of(key))).collect();
        if entries.is_empty() {
            entries.push(None);
        }
        entries.into_iter().for_each(|key| process.tell(NewsEntry { member: tag, key, version }));
        let (mut older, mut again) = (false, false);
        for (key, value) in writes {
            let table = &self.tables[region];
            let refused = match &value {
                Ok(value) => table.refuses(&key, value),
                Err(as_of) => table.holds_newer(&key, *as_of),
            };
            if refused {
                self.count("older writes refused");
                older = true;
                continue;
            }
            again |= matches!(&value, Ok(Value::Export(export)) if table.has(&key, export));
            if self.strikes(0.004, "writes lost") {
                continue;
            }
            self.write_or_delete(region, key, value.ok());
        }
        if again {
            self.check_repeats(epoch, &who);
        }
        if older {
            self.with(slot, Cause::Learned, |registry, now| registry.is_behind(&who.cluster, &who.uid, now));
        }
    }

    /// Removes what a table has of a member as of a version of it; says whether it came to the end.
    fn remove_records(&mut self, region: usize, who: &Who, as_of: Version) -> bool {
        let record = Key::Record(who.clone());
        match self.tables[region].value(&record).and_then(Value::version) {
            Some(standing) if standing > as_of => {
                self.count("removals of what is newer");
                return true;
            }
            Some(standing) => self.write(region, record, Some(Value::Removed(standing))),
            None => {}
        }
        if self.strikes(0.1, "removals that broke off") {
            return false;
        }
        for key in crate::facts::keys() {
            let key = Key::Export(who.clone(), key.clone());
            if !self.tables[region].holds_newer(&key, as_of) {
                self.write_or_delete(region, key, None);
            }
        }
        true
    }

    /// A delete of what is not there writes nothing.
    fn write_or_delete(&mut self, region: usize, key: Key, value: Option<Value>) {
        if value.is_some() || self.tables[region].value(&key).is_some() {
            self.write(region, key, value);
        }
    }
}
