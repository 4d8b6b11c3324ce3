//! What is read of members that other replicas wrote: nothing goes back, and nothing is deleted that may only not be
//! there yet.
//!
//! An export is taken when it is newer than what is held. One that is missing goes when, without it and all others that are
//! missing, the sum is that of the member's record, which is not older than what is held; until then the last whole
//! state of each export stands, and the section's version with it.

use super::acts::{self, Act};
use super::hear::{Keys, READ_ALL_AFTER, TELL_AFTER, Who};
use super::member::Standing;
use super::{Member, Registry};
use crate::ids::{ClusterId, ClusterUid, Region, ServiceKey};
use crate::model::{Export, MemberState};
use crate::replicas::UidTag;
use crate::time::{Timestamp, WallMillis};
use crate::version::{Leaf, Sum, Version};
use std::collections::{BTreeMap, BTreeSet};

/// What a store holds of a member besides its exports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The UID of its `kube-system` Namespace.
    pub uid: ClusterUid,
    /// Its region, where it has one.
    pub region: Option<Region>,
    /// The version of the whole set that was held by who wrote it.
    pub version: Version,
    /// The sum of the leaves of that set.
    pub sum: Sum,
    /// What was thought of it.
    pub state: MemberState,
    /// When it took its id.
    pub claimed_at: Option<WallMillis>,
}

/// What was read of a member's exports after its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// All of them, to the end.
    All {
        /// Those that were read whole.
        whole: BTreeMap<ServiceKey, Export>,
        /// Those of which parts are not there yet.
        torn: BTreeSet<ServiceKey>,
    },
    /// Some of them.
    Some {
        /// Those that were read whole, and those that are not there.
        read: BTreeMap<ServiceKey, Option<Export>>,
        /// Those of which parts are not there yet.
        torn: BTreeSet<ServiceKey>,
    },
}

impl Read {
    /// The record alone was read.
    pub const fn record() -> Self {
        Self::Some { read: BTreeMap::new(), torn: BTreeSet::new() }
    }
}

/// What the store lost, or holds in an older state than what is held here. Who speaks for the member writes it again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewrite {
    /// The member's record.
    pub record: bool,
    /// These exports; those that are not held are deleted.
    pub keys: BTreeSet<ServiceKey>,
}

impl Rewrite {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        !self.record && self.keys.is_empty()
    }
}

/// What became of what was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Learnt {
    /// It does not fit together, or is older than what is known to be there: [`Registry::hear`] asks for it again soon.
    pub again: bool,
    /// What is to be written again.
    pub rewrite: Rewrite,
}

/// What a whole directory asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differing {
    /// The members of which record and all exports are to be read.
    pub read: BTreeSet<Who>,
    /// What is to be written again, by cluster.
    pub rewrite: BTreeMap<ClusterId, Rewrite>,
    /// Clusters whose records are to be removed again, as of these versions: they were removed, and a verdict that was
    /// written late brought them back.
    pub remove: BTreeMap<Who, Version>,
}

/// How an export that was read stands to what is held.
enum Age {
    Newer,
    Same,
    Older,
}

impl Registry {
    /// Compares the records of all members, read to the end, with what is held, and says what is to be read of exports.
    /// A member that is not among them is [missed](Registry::forget), unless it is `torn`: it has a record that cannot be
    /// read.
    pub fn differing(
        &mut self,
        directory: &[(ClusterId, Recorded)],
        torn: &BTreeSet<(ClusterId, UidTag)>,
        now: Timestamp,
    ) -> Differing {
        self.tick(now);
        let mut differing = Differing::default();
        let judged = self.clock.now();
        for (cluster, record) in directory {
            let who = Who { cluster: cluster.clone(), uid: record.uid.clone() };
            let is_member = self.members.get(cluster).is_some_and(|member| member.uid == record.uid);
            if !is_member {
                if self.takes(&who, record, judged) {
                    differing.read.insert(who);
                } else if self.is_left_over(&who, record) {
                    differing.remove.insert(who, record.version);
                }
                continue;
            }
            let learnt = self.learn(cluster, record.clone(), Read::record(), now);
            if learnt.again {
                differing.read.insert(who);
            }
            if !learnt.rewrite.is_empty() {
                differing.rewrite.insert(cluster.clone(), learnt.rewrite);
            }
        }
        let listed: BTreeSet<(&ClusterId, &ClusterUid)> =
            directory.iter().map(|(cluster, record)| (cluster, &record.uid)).collect();
        let is_missing = |(cluster, member): &(&ClusterId, &Member)| {
            !listed.contains(&(*cluster, &member.uid)) && !torn.contains(&((*cluster).clone(), member.tag))
        };
        let missing = self.members.iter().filter(is_missing);
        let missing: Vec<(ClusterId, ClusterUid)> =
            missing.map(|(cluster, member)| (cluster.clone(), member.uid.clone())).collect();
        for (cluster, uid) in missing {
            let forgotten = self.forget(&cluster, &uid, now);
            if !forgotten.rewrite.is_empty() {
                differing.rewrite.insert(cluster, forgotten.rewrite);
            }
        }
        let is_torn = |member: &Member, cluster: &ClusterId| torn.contains(&(cluster.clone(), member.tag));
        for (cluster, member) in self.members.iter().filter(|(cluster, member)| is_torn(member, cluster)) {
            if self.is_served(member, now) {
                let keys = member.exports.keys().cloned().collect();
                differing.rewrite.insert(cluster.clone(), Rewrite { record: true, keys });
            }
        }
        let known = |(cluster, tag): &(ClusterId, UidTag)| {
            self.members.get(cluster).is_some_and(|member| member.tag == *tag)
        };
        let is_torn = torn.iter().any(|torn| !known(torn));
        if let Some(sharing) = &mut self.sharing {
            sharing.torn = is_torn;
            sharing.rivals.retain(|who, _| listed.contains(&(&who.cluster, &who.uid)));
            sharing.all = false;
            if !std::mem::replace(&mut sharing.directory_read, true) {
                // Of those that are members it is known, each by itself, how much of them is known.
                let is_member =
                    |who: &&Who| self.members.get(&who.cluster).is_some_and(|member| member.uid == who.uid);
                sharing.unlearnt = differing.read.iter().filter(|who| !is_member(who)).cloned().collect();
            }
        }
        for who in &differing.read {
            self.read_in_full(who, now);
        }
        differing
    }

    /// A write found newer records of a cluster in the store: they are to be read soon.
    pub fn is_behind(&mut self, cluster: &ClusterId, uid: &ClusterUid, now: Timestamp) {
        let later = now + self.policy.timing.reread(0);
        let Some(member) = self.members.get_mut(cluster).filter(|member| member.uid == *uid) else { return };
        // Who writes again and again does not put it off.
        match &mut member.elsewhere.unread {
            Some(unread) => (unread.keys, unread.fits) = (Keys::All, false),
            None => member.ask_again(Keys::All, false, later),
        }
    }

    /// A member is to be read in full, and asked for again until it was.
    fn read_in_full(&mut self, who: &Who, now: Timestamp) {
        let later = now + self.policy.timing.reread(0);
        match self.members.get_mut(&who.cluster).filter(|member| member.uid == who.uid) {
            Some(member) => member.ask_again(Keys::All, false, later),
            None => self.want(who.clone(), later),
        }
    }

    /// Takes what was read of a member, its record first.
    pub fn learn(&mut self, cluster: &ClusterId, record: Recorded, read: Read, now: Timestamp) -> Learnt {
        self.tick(now);
        let judged = self.clock.now();
        let who = Who { cluster: cluster.clone(), uid: record.uid.clone() };
        let Some(sharing) = &mut self.sharing else { return Learnt::default() };
        let is_member = self.members.get(cluster).is_some_and(|member| member.uid == record.uid);
        if !is_member {
            if matches!(&read, Read::Some { .. }) {
                return Learnt::default();
            }
            sharing.wanted.remove(&who);
            sharing.unlearnt.remove(&who);
            if !self.takes(&who, &record, judged)
                || self.check_term(cluster, &record.uid, record.version).is_err()
            {
                return Learnt::default();
            }
            self.take_in(cluster, &record, now);
        }
        if self.check_term(cluster, &record.uid, record.version).is_err() {
            let record = self.members.get(cluster).is_some_and(|member| self.repairs(member, now));
            return Learnt { again: false, rewrite: Rewrite { record, keys: BTreeSet::new() } };
        }
        self.take_read(cluster, &record, read, now)
    }

    fn take_read(&mut self, cluster: &ClusterId, record: &Recorded, read: Read, now: Timestamp) -> Learnt {
        let Some(member) = self.members.get(cluster) else { return Learnt::default() };
        let (serves, repairs) = (self.is_served(member, now), self.repairs(member, now));
        let Some(member) = self.members.get_mut(cluster) else { return Learnt::default() };
        let services = &mut self.services;
        member.elsewhere.missing_since = None;
        member.elsewhere.rewritten = false;
        let mut act = Act::default();
        let mut rewrite = Rewrite::default();
        if !member.in_log {
            act.enter(member);
        }
        let (found, missing, torn) = read.sort(member);
        let mut newest = record.version;
        for (key, export) in found {
            let found = export.version;
            newest = newest.max(found);
            match member.age_of(&key, found) {
                Age::Newer => acts::put(member, services, cluster, &key, export, &mut act),
                // As it is held, and of a later act: nothing is to be written for that.
                Age::Older if member.is_held_with(&key, export.leaf) => {
                    if let Some(held) = member.exports.get_mut(&key).filter(|held| held.version < found) {
                        held.version = found;
                        act.changed(member, &key, true);
                    }
                }
                Age::Older if repairs => {
                    // It is so as of the whole set. As older than what it replaces no store would take it.
                    if let Some(held) = member.exports.get_mut(&key).filter(|held| held.version < found) {
                        held.version = member.as_of;
                        act.changed(member, &key, true);
                    }
                    rewrite.keys.insert(key);
                }
                Age::Same | Age::Older => {}
            }
        }
        if newest > member.mark {
            // It went on elsewhere: what it began here is over.
            member.mark = newest;
            member.sync = None;
            member.behind = true;
        }
        // Who wrote it knew all of the member, not only that it is silent.
        let is_of_all = record.state != MemberState::Syncing && record.version > Version::default();
        let provable = is_of_all && record.version >= member.as_of;
        let going = |key: &&ServiceKey| {
            member.exports.get(*key).is_some_and(|export| export.version <= record.version)
        };
        let going: BTreeSet<ServiceKey> = missing.iter().filter(going).cloned().collect();
        let mut without = member.sum;
        for export in going.iter().filter_map(|key| member.exports.get(key)) {
            without.remove(export.leaf);
        }
        let mut fits = provable && member.sum == record.sum;
        if provable && !fits && without == record.sum {
            for key in &going {
                acts::delete(member, services, cluster, key, &mut act);
            }
            fits = true;
        }
        if fits {
            if member.prove_as_of(record.version) {
                act.enter(member);
            }
        } else if repairs && record.version <= member.as_of && member.whole {
            rewrite.record = record.version < member.as_of || !member.behind;
        }
        let tries = member.elsewhere.unread.as_ref().map_or(0, |unread| unread.tries);
        if repairs && record.version <= member.as_of && member.whole {
            // What is held and is not there was lost, also where the record says that it is there.
            let is_held = |key: &ServiceKey| member.exports.contains_key(key);
            rewrite.keys.extend(missing.into_iter().filter(is_held));
            if tries >= READ_ALL_AFTER {
                rewrite.keys.extend(torn.iter().filter(|key| is_held(key)).cloned());
            }
        }
        // Where the record is newer than what is held it would not be replaced.
        let replaces = serves && record.version <= member.as_of;
        if record.claimed_at.is_some()
            && (member.claimed_at.is_none() || record.claimed_at < member.claimed_at)
        {
            member.claimed_at = record.claimed_at;
        } else if replaces && member.claimed_at != record.claimed_at {
            rewrite.record = true;
        }
        if replaces && record.state == MemberState::Expired && member.standing == Standing::Running {
            // A verdict that was written late: a replica that starts would believe it.
            rewrite.record = true;
        }
        if !serves && record.version >= member.as_of {
            member.region.clone_from(&record.region);
        }
        if provable {
            member.elsewhere.awaited = member.elsewhere.awaited.max(record.version);
        }
        if fits && tries > TELL_AFTER {
            // Whoever serves it was asked to compare: what was named is nowhere, or is found by the next comparison.
            member.elsewhere.awaited = member.elsewhere.awaited.min(member.as_of);
        }
        let unsettled = provable && !fits && (!serves || record.version > member.as_of);
        let again = !torn.is_empty() || unsettled || member.elsewhere.awaited > member.as_of;
        let later = now + self.policy.timing.reread(0);
        if again && !(fits && torn.is_empty()) {
            member.elsewhere.does_not_fit(record.version, record.sum);
        } else {
            member.elsewhere.misfit = None;
        }
        let again_soon = again && !member.elsewhere.is_given_up();
        if again || matches!(member.standing, Standing::Expired { renews: true, .. }) {
            let fits = fits && torn.is_empty();
            let keys = if torn.is_empty() { Keys::Record } else { Keys::Some(torn) };
            member.ask_again(keys, fits, later);
        } else {
            member.elsewhere.unread = None;
        }
        self.finish(cluster, act);
        Learnt { again: again_soon, rewrite }
    }
}

/// What was found, what is missing of what is held, and what is torn.
type Sorted = (BTreeMap<ServiceKey, Export>, BTreeSet<ServiceKey>, BTreeSet<ServiceKey>);

impl Read {
    fn sort(self, member: &Member) -> Sorted {
        match self {
            Self::All { whole, torn } => {
                let is_missing = |key: &&ServiceKey| !whole.contains_key(*key) && !torn.contains(*key);
                let missing = member.exports.keys().filter(is_missing).cloned().collect();
                (whole, missing, torn)
            }
            Self::Some { read, torn } => {
                let (mut found, mut missing) = (BTreeMap::new(), BTreeSet::new());
                for (key, export) in read {
                    match export {
                        Some(export) => drop(found.insert(key, export)),
                        None => drop(missing.insert(key)),
                    }
                }
                (found, missing, torn)
            }
        }
    }
}

impl Member {
    /// Whether an export is held, and its content has this hash.
    fn is_held_with(&self, key: &ServiceKey, leaf: Leaf) -> bool {
        self.exports.get(key).is_some_and(|held| held.leaf == leaf)
    }

    /// How an export of this version stands to what is held. One that is not held, and not newer than the set that is known
    /// or than its delete here, was deleted since.
    fn age_of(&self, key: &ServiceKey, version: Version) -> Age {
        let gone_since = self.elsewhere.deleted.get(key).is_some_and(|at| version <= *at);
        // What is held is all as of that version, whatever versions it carries: content may have been so before.
        let is_known = self.whole && version <= self.as_of;
        match self.exports.get(key) {
            Some(held) if version == held.version => Age::Same,
            Some(held) if version > held.version && !is_known => Age::Newer,
            Some(_) => Age::Older,
            None if gone_since || is_known => Age::Older,
            None => Age::Newer,
        }
    }
}
