//! What replicas of a shared store tell each other: beats, news, and the verdicts that rest on them.
//!
//! Each replica judges for itself. It expires a member when, after the member's deadline, it has written a beat, has read
//! that back, and has read of every other replica that lives a beat that echoes it or a later one, without a newer renewal
//! among all that. So a renewal that any of them took before it read of the verdict is known here, whatever the lag.

use super::elsewhere::Unread;
use super::judge::reschedule;
use super::member::Standing;
use super::{Member, Registry};
use crate::ids::{ClusterId, ClusterUid, Epoch, ServiceKey};
use crate::replicas::{Beat, KeyTag, News, NewsEntry, Renewal, UidTag};
use crate::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// A cluster by its id and its UID: two clusters may claim one id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Who {
    /// The id.
    pub cluster: ClusterId,
    /// The UID.
    pub uid: ClusterUid,
}

/// What is to be read of a member.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Keys {
    /// Its own record.
    Record,
    /// That, and these exports.
    Some(BTreeSet<ServiceKey>),
    /// That, and all its exports.
    All,
}

impl Keys {
    /// Both.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Some(mut one), Self::Some(other)) => {
                one.extend(other);
                Self::Some(one)
            }
            (one, other) => one.max(other),
        }
    }
}

/// What a refresh asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The records of all members are to be read and [compared](Registry::differing).
    pub all: bool,
    /// What is to be read of single members and [learned](Registry::learn).
    pub members: BTreeMap<Who, Keys>,
    /// To be told with the own news: what can be read of these members does not fit together for long, and who serves them
    /// is to compare.
    pub tell: Vec<NewsEntry>,
}

/// After so many readings of a record that did not fit, all exports are read with it (6 s).
pub(super) const READ_ALL_AFTER: u32 = 5;

/// After so many, who serves the member is asked to compare (25 s), and what is one and the same record is read ever more
/// seldom.
pub(super) const TELL_AFTER: u32 = 7;

type ByTag = BTreeMap<UidTag, Vec<ClusterId>>;

impl Registry {
    /// Takes a refresh: what all replicas say, the own item included, read to its end. Leases that others renewed are
    /// renewed here as of that moment; verdicts that wait are taken where all others that live have agreed.
    pub fn hear(&mut self, replicas: &[(Beat, Option<News>)], now: Timestamp) -> Reading {
        self.store_answers(true, now);
        let (epoch, judged, timing) = (self.epoch, self.clock.now(), self.policy.timing);
        let Some(sharing) = &mut self.sharing else { return Reading::default() };
        let told = sharing.take(epoch, replicas, judged, timing);
        let mut by_tag = ByTag::new();
        for (cluster, member) in &self.members {
            by_tag.entry(member.tag).or_default().push(cluster.clone());
        }
        for (told_by, tag, at) in told.renewals {
            match by_tag.get(&tag) {
                Some(clusters) => {
                    clusters.iter().for_each(|cluster| self.renewed_elsewhere(cluster, told_by, at, now));
                }
                None => self.heard_of_nobody(tag, now),
            }
        }
        for (told_by, stood_since) in told.died {
            self.lost(told_by, stood_since);
        }
        for entry in &told.news {
            match by_tag.get(&entry.member) {
                Some(clusters) => clusters.iter().for_each(|cluster| self.note_news(cluster, entry, now)),
                None => self.sharing.iter_mut().for_each(|sharing| sharing.all = true),
            }
        }
        self.judge_waiting(judged);
        self.sharing.iter_mut().for_each(|sharing| sharing.note_complete());
        self.reading(now)
    }

    /// Whether a beat is to be written now: at each third of a lease, and at once when a member joined or left, when a
    /// verdict is due here, or when another replica waits for an answer.
    pub fn beat_due(&self, now: Timestamp) -> bool {
        let asks = |sharing: &super::sharing::Sharing| {
            let unasked = |cluster: &ClusterId| {
                self.members.get(cluster).is_some_and(|member| member.elsewhere.asked.is_none())
            };
            sharing.waiting.iter().any(unasked)
        };
        self.sharing.as_ref().is_some_and(|sharing| sharing.beat_due(now, self.policy.timing, asks(sharing)))
    }

    /// Makes the own item as it is to be written now. A write that fails needs no word: the next item stands for it, and
    /// is due soon.
    pub fn beat(&mut self, now: Timestamp) -> Beat {
        self.tick(now);
        let (epoch, judged, timing) = (self.epoch, self.clock.now(), self.policy.timing);
        let Some(sharing) = &mut self.sharing else {
            return Beat::silent(epoch, 0);
        };
        let mut beat = sharing.beat(epoch, now);
        for cluster in &sharing.waiting {
            // One that renewed since waits no more.
            let is_due = |member: &&mut Member| member.lease.deadline(timing).has_passed(judged);
            let Some(member) = self.members.get_mut(cluster).filter(is_due) else { continue };
            if member.elsewhere.asked.is_none() {
                member.elsewhere.asked = Some(beat.number);
                member.elsewhere.asked_at = now;
            }
            // The item may be replaced before the others have read it: the next ones ask, too, for as long as two reads take.
            let unread = !(member.elsewhere.asked_at + timing.beat_retry() * 2).has_passed(now);
            let unwritten = member.elsewhere.asked.is_some_and(|asked| asked > sharing.own.written);
            beat.is_due |= unread || unwritten;
        }
        sharing.own.listed.clear();
        for member in self.members.values_mut() {
            // Who is hidden until it has synced is not back yet, for anybody.
            let is_hidden = matches!(member.standing, Standing::Expired { .. });
            let Some(at) = member.elsewhere.here.filter(|_| !is_hidden) else { continue };
            let age = now.since(at);
            let runs = age < timing.lease();
            // Told until all have read it: who missed it, and reads of another one from before the cluster went there, would
            // find it nowhere.
            let number = *member.elsewhere.told_in.get_or_insert(beat.number);
            // Who has not read for longer than this is dead or new, and ages are told in parts of the longest.
            let matters = age < timing.lease() + sharing.grace;
            if runs || (matters && !sharing.live_have_read(number)) {
                beat.renewals.insert(member.tag, Renewal { number, age });
            }
            if runs {
                sharing.own.listed.insert(member.tag);
            }
        }
        beat
    }

    /// Takes notice that the beat of this number is written.
    pub fn beat_written(&mut self, number: u64, now: Timestamp) {
        self.tick(now);
        if let Some(sharing) = &mut self.sharing {
            sharing.own.written = sharing.own.written.max(number);
        }
    }

    /// Takes notice of a renewal that was taken here.
    pub(super) fn note_renewed_here(&mut self, cluster: &ClusterId, now: Timestamp) {
        if let Some(member) = self.members.get_mut(cluster) {
            member.elsewhere.renewed_here(now);
        }
        self.note_joined(cluster);
    }

    /// Has a beat written at once for a member that renews here and is not in the last one. Who is hidden until it has
    /// synced is in none.
    pub(super) fn note_joined(&mut self, cluster: &ClusterId) {
        let (judged, timing) = (self.clock.now(), self.policy.timing);
        let (Some(sharing), Some(member)) = (&mut self.sharing, self.members.get(cluster)) else { return };
        let is_hidden = matches!(member.standing, Standing::Expired { .. });
        let renews_here = member.elsewhere.here.is_some() && member.elsewhere.told_by.is_none();
        let runs = !member.lease.deadline(timing).has_passed(judged);
        sharing.own.joined |= renews_here && runs && !is_hidden && !sharing.own.listed.contains(&member.tag);
    }

    /// Another replica took a renewal of a member, at the latest at `at` on the judging clock.
    fn renewed_elsewhere(&mut self, cluster: &ClusterId, told_by: Epoch, at: Timestamp, now: Timestamp) {
        let (judged, timing) = (self.clock.now(), self.policy.timing);
        let Some(member) = self.members.get_mut(cluster) else { return };
        let is_over = (at + timing.lease()).has_passed(judged);
        if !is_over {
            member.elsewhere.heard_at = now;
        }
        let is_expired = matches!(member.standing, Standing::Expired { .. });
        if at <= member.lease.renewed_last() || (is_over && is_expired) {
            return;
        }
        // Others tell the newest renewal alone, so that one between two that are known may be missing.
        member.lease = member.lease.renewed_at_least(timing, at, at.ago(timing.beat()), judged);
        member.last_renewed = member.last_renewed.max(now.ago(judged.since(at)));
        member.elsewhere.told_by = Some(told_by);
        member.elsewhere.asked = None;
        reschedule(&mut self.due, cluster, member, member.lease.deadline(timing));
        match member.standing {
            Standing::Held if !is_over => {
                member.standing = Standing::Running;
                self.journal.tell_section(cluster, member);
            }
            Standing::Running | Standing::Held => {}
            // What is held may not be what it has now: its record says so.
            Standing::Expired { at, .. } => {
                member.standing = Standing::Expired { at, renews: true };
                member.ask_for(Keys::Record, now);
            }
        }
    }

    /// A replica is taken for dead. It may have heard those that it heard last once more before it died, unread.
    fn lost(&mut self, epoch: Epoch, stood_since: Timestamp) {
        let timing = self.policy.timing;
        let at = stood_since + timing.late();
        for (cluster, member) in &mut self.members {
            let lives = !matches!(member.standing, Standing::Expired { .. });
            if lives && member.elsewhere.told_by == Some(epoch) && at > member.lease.renewed_last() {
                member.lease = member.lease.renewed_at_least(timing, at, at, at);
                member.elsewhere.asked = None;
                reschedule(&mut self.due, cluster, member, member.lease.deadline(timing));
            }
        }
    }

    /// A replica serves a cluster that is no member here: it is in the directory, or will be.
    fn heard_of_nobody(&mut self, tag: UidTag, now: Timestamp) {
        let beat = self.policy.timing.beat();
        let Some(sharing) = &mut self.sharing else { return };
        if sharing.rivals.keys().any(|who| UidTag::of(&who.uid) == tag) {
            return;
        }
        sharing.unknown.retain(|_, asked| !(*asked + beat).has_passed(now));
        if let std::collections::btree_map::Entry::Vacant(entry) = sharing.unknown.entry(tag) {
            entry.insert(now);
            sharing.all = true;
        }
    }

    /// Takes an entry of another replica's news.
    fn note_news(&mut self, cluster: &ClusterId, entry: &NewsEntry, now: Timestamp) {
        let Some(member) = self.members.get(cluster) else { return };
        let (serves, repairs) = (self.is_served(member, now), self.repairs(member, now));
        let known = member.whole && entry.version <= member.as_of;
        // Who tells of less than is held here, and of no export, asks for what it lacks.
        let is_asked = repairs && entry.version < member.as_of;
        let keys = match entry.key {
            // Who serves it looks whether an older write has won.
            Some(_) if known && !serves => return,
            Some(tag) => {
                let of_tag = |key: &&ServiceKey| KeyTag::of(key) == tag;
                let keys: BTreeSet<_> = member.exports.keys().filter(of_tag).cloned().collect();
                if keys.is_empty() { Keys::All } else { Keys::Some(keys) }
            }
            None if serves || is_asked => Keys::All,
            // Somebody else has asked for the same: two that lack it are not to ask each other for ever.
            None if member.elsewhere.misfit.is_some_and(|misfit| entry.version <= misfit.version) => return,
            None => Keys::Record,
        };
        let Some(member) = self.members.get_mut(cluster) else { return };
        let is_newer = entry.version > member.elsewhere.awaited;
        if is_newer || member.elsewhere.is_given_up() {
            member.elsewhere.awaited = member.elsewhere.awaited.max(entry.version);
            (member.elsewhere.unread, member.elsewhere.misfit) = (None, None);
        }
        member.ask_for(keys, now);
    }

    /// Takes the verdicts that waited and may be taken now.
    fn judge_waiting(&mut self, judged: Timestamp) {
        let timing = self.policy.timing;
        let Some(sharing) = &mut self.sharing else { return };
        let silent_region = sharing.waits_for_a_region(judged, timing);
        for cluster in std::mem::take(&mut sharing.waiting) {
            let Some(member) = self.members.get(&cluster) else { continue };
            if !member.lease.deadline(timing).has_passed(judged) {
                continue;
            }
            if self.is_agreed(&cluster) {
                self.pass_verdict(&cluster, judged);
                continue;
            }
            self.wait(&cluster);
            if let Some(member) = self.members.get_mut(&cluster).filter(|_| silent_region)
                && member.standing == Standing::Running
            {
                member.standing = Standing::Held;
                self.journal.tell_section(&cluster, member);
            }
        }
    }

    /// Whether the verdict on a member whose lease has run out rests on what all replicas that live have heard.
    pub(super) fn is_agreed(&self, cluster: &ClusterId) -> bool {
        let Some(sharing) = &self.sharing else { return false };
        let asked = self.members.get(cluster).and_then(|member| member.elsewhere.asked);
        self.unread_since.is_none() && asked.is_some_and(|asked| sharing.have_read(self.epoch, asked))
    }

    /// Lets the verdict on a member wait for other replicas.
    pub(super) fn wait(&mut self, cluster: &ClusterId) {
        let (Some(sharing), Some(member)) = (&mut self.sharing, self.members.get_mut(cluster)) else {
            return;
        };
        sharing.waiting.insert(cluster.clone());
        reschedule(&mut self.due, cluster, member, Timestamp::MAX);
    }

    /// What is to be read now.
    fn reading(&mut self, now: Timestamp) -> Reading {
        let (judged, timing) = (self.clock.now(), self.policy.timing);
        let Some(sharing) = &mut self.sharing else { return Reading::default() };
        let mut reading = Reading { all: sharing.all, ..Reading::default() };
        for who in sharing.rivals.clone().into_keys() {
            if self.would_take(&who, judged) {
                self.want(who, now);
            }
        }
        let Some(sharing) = &mut self.sharing else { return reading };
        for (who, unread) in &mut sharing.wanted {
            if let Some((keys, _)) = unread.take(now, |tries| timing.reread(tries)) {
                reading.members.insert(who.clone(), keys.and(Keys::All));
            }
        }
        for (cluster, member) in &mut self.members {
            let who = || Who { cluster: cluster.clone(), uid: member.uid.clone() };
            if member.elsewhere.missing_since.is_some() {
                reading.members.insert(who(), Keys::Record);
            }
            let is_given_up = member.elsewhere.is_given_up();
            let Some(unread) = &mut member.elsewhere.unread else { continue };
            let who = Who { cluster: cluster.clone(), uid: member.uid.clone() };
            let pause = |tries| if is_given_up { timing.reread_unfit(tries) } else { timing.reread(tries) };
            let Some((keys, tries)) = unread.take(now, pause) else { continue };
            if tries >= TELL_AFTER {
                reading.tell.push(NewsEntry { member: member.tag, key: None, version: member.as_of });
            }
            let keys = if tries >= READ_ALL_AFTER && !unread.fits { Keys::All } else { keys };
            reading.members.insert(who, keys);
        }
        reading
    }

    /// A cluster that is no member here is to be read in full.
    pub(super) fn want(&mut self, who: Who, now: Timestamp) {
        if let Some(sharing) = &mut self.sharing {
            sharing.wanted.entry(who).or_insert(Unread { keys: Keys::All, at: now, tries: 0, fits: false });
        }
    }
}
