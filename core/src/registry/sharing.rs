//! The other replicas of a shared store as this one sees them: who lives, who has read what, whom they heard.
//!
//! Nothing here reads a clock of another machine: an item stands still or advances, as seen on the own judging clock.

use super::elsewhere::Unread;
use super::hear::Who;
use super::past::{Ended, Left, Removals};
use super::shared::Own;
use crate::ids::{ClusterId, Epoch, Region};
use crate::replicas::{Beat, News, NewsEntry, UidTag};
use crate::time::{Timestamp, WallMillis};
use crate::timing::Timing;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What a replica knows besides its members.
#[derive(Debug)]
pub(super) struct Sharing {
    pub(super) region: Option<Region>,
    /// How long verdicts wait for a region that is silent as a whole, after a lease.
    pub(super) grace: Duration,
    pub(super) own: Own,
    pub(super) others: BTreeMap<Epoch, Other>,
    /// Whether the whole directory is to be read.
    pub(super) all: bool,
    /// Whether it was read since the start.
    pub(super) directory_read: bool,
    /// Whether others were heard since the start.
    pub(super) heard: bool,
    /// Whether it has clusters that are no members, since their records cannot be read.
    pub(super) torn: bool,
    /// Clusters of the first directory that were not members then, and were not read yet.
    pub(super) unlearnt: BTreeSet<Who>,
    /// Clusters that are not members here and are to be read in full.
    pub(super) wanted: BTreeMap<Who, Unread>,
    /// Clusters whose id another one holds.
    pub(super) rivals: BTreeMap<Who, Option<WallMillis>>,
    /// Clusters that were members: records as old as those that they had are those of before.
    pub(super) removed: Removals,
    /// Tags that nobody is known by, and when the directory was asked for them.
    pub(super) unknown: BTreeMap<UidTag, Timestamp>,
    /// Members whose verdict waits for other replicas.
    pub(super) waiting: BTreeSet<ClusterId>,
    /// Replicas that ended, with the number of the newest item that was read of each: a late read may show it again.
    ended: Ended,
    /// Whether all others that lived knew of this replica at some time since the start.
    pub(super) known: bool,
    /// Whether the whole was read, and all others that lived were heard, at some time since the start.
    pub(super) complete: bool,
    /// Whether something that others changed could not be read at the last try.
    pub(super) lags: bool,
}

/// Another replica.
#[derive(Clone, Debug)]
pub(super) struct Other {
    pub(super) region: Option<Region>,
    /// The number of its newest item that was read, and of the first.
    pub(super) number: u64,
    first: u64,
    /// When that was read first, on the judging clock.
    pub(super) stood_since: Timestamp,
    /// The newest own beat that it has read.
    pub(super) echo: u64,
    /// What it has read of others.
    echoes: BTreeMap<Epoch, u64>,
    names_dead: BTreeSet<Epoch>,
    /// Of each member that it serves the beat that told first of its newest renewal and, on the judging clock, when that was at the latest.
    renewals: BTreeMap<UidTag, (u64, Timestamp)>,
    /// Whether it waits for an answer.
    pub(super) asks: bool,
    /// The number of the next entry of its news.
    next_entry: u64,
    /// Since when its item is not there, on the judging clock.
    missing_since: Option<Timestamp>,
    /// Whether it is taken for dead.
    pub(super) dead: bool,
}

/// What a refresh brought.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Renewals that are news: who tells it, of whom, and when it was at the latest.
    pub(super) renewals: Vec<(Epoch, UidTag, Timestamp)>,
    pub(super) news: Vec<NewsEntry>,
    /// Replicas that are taken for dead from now on, and since when each stands still.
    pub(super) died: Vec<(Epoch, Timestamp)>,
}

impl Sharing {
    pub(super) fn new(region: Option<Region>, grace: Duration) -> Self {
        Self {
            region,
            grace,
            own: Own::default(),
            others: BTreeMap::new(),
            all: true,
            directory_read: false,
            heard: false,
            torn: false,
            unlearnt: BTreeSet::new(),
            wanted: BTreeMap::new(),
            rivals: BTreeMap::new(),
            removed: Removals::default(),
            unknown: BTreeMap::new(),
            waiting: BTreeSet::new(),
            ended: Ended::default(),
            known: false,
            complete: false,
            lags: false,
        }
    }

    /// Takes the items of one refresh.
    pub(super) fn take(
        &mut self,
        own: Epoch,
        items: &[(Beat, Option<News>)],
        judged: Timestamp,
        timing: Timing,
    ) -> Told {
        let mut told = Told::default();
        self.heard = true;
        for (beat, news) in items {
            if beat.epoch == own {
                self.own.read = self.own.read.max(beat.number);
                continue;
            }
            if self.ended.get(beat.epoch).is_some_and(|number| beat.number <= number) {
                continue;
            }
            let is_new = !self.others.contains_key(&beat.epoch);
            self.all |= is_new;
            let other = self.others.entry(beat.epoch).or_insert_with(|| Other::new(beat, judged));
            if is_new || beat.number > other.number {
                other.advance(own, beat, judged, &mut told);
            }
            if let Some(news) = news {
                self.all |= other.read(news, is_new, &mut told);
            }
        }
        let read: BTreeSet<Epoch> = items.iter().map(|(beat, _)| beat.epoch).collect();
        for (epoch, other) in &mut self.others {
            let since = other.missing_since.unwrap_or(judged);
            other.missing_since = (!read.contains(epoch)).then_some(since);
        }
        self.find_dead(judged, timing, &mut told);
        let ended = self.others.extract_if(.., |_, other| other.dead && other.is_missing(judged, timing));
        ended.for_each(|(epoch, other)| self.ended.insert(epoch, other.number));
        told
    }

    /// Judges which replicas are dead: one that took its item away, which is what one does that ends; one of the own region
    /// that stands still for a lease; one of another region that a replica there calls so, which has read all of it that was
    /// read here; and all of a region that is silent as a whole for the grace after a lease. From afar an item that lags
    /// looks like one that stands.
    fn find_dead(&mut self, judged: Timestamp, timing: Timing, told: &mut Told) {
        let epochs: Vec<Epoch> = self.others.keys().copied().collect();
        for epoch in epochs {
            let dead = self.looks_dead(epoch, judged, timing);
            let Some(other) = self.others.get_mut(&epoch) else { continue };
            if dead && !other.dead {
                told.died.push((epoch, other.stood_since));
            }
            other.dead = dead;
        }
    }

    fn looks_dead(&self, epoch: Epoch, judged: Timestamp, timing: Timing) -> bool {
        let Some(other) = self.others.get(&epoch) else { return true };
        if other.is_missing(judged, timing) {
            return true;
        }
        if self.is_silent(&other.region, timing.lease() + self.grace, judged) {
            return true;
        }
        // Who has read more of it than we have knows better, while it lives.
        let has_read_on =
            |one: &Other| !one.dead && one.echoes.get(&epoch).is_some_and(|read| *read > other.number);
        if self.others.values().any(has_read_on) {
            return false;
        }
        if other.region == self.region {
            return (other.stood_since + timing.lease()).has_passed(judged);
        }
        self.others.iter().any(|(named_by, one)| {
            *named_by != epoch
                && one.region == other.region
                && one.names_dead.contains(&epoch)
                && one.echoes.get(&epoch) == Some(&other.number)
        })
    }

    /// Whether no replica of a region that is not the own has written for so long.
    fn is_silent(&self, region: &Option<Region>, time: Duration, judged: Timestamp) -> bool {
        *region != self.region
            && self
                .others
                .values()
                .filter(|other| other.region == *region)
                .all(|other| (other.stood_since + time).has_passed(judged))
    }

    /// Whether a verdict waits for a region that is silent as a whole.
    pub(super) fn waits_for_a_region(&self, judged: Timestamp, timing: Timing) -> bool {
        self.others
            .values()
            .filter(|other| !other.dead)
            .any(|other| self.is_silent(&other.region, timing.lease(), judged))
    }

    /// Whether all others that live have read the own beat of this number, and it was read back here.
    pub(super) fn have_read(&self, own: Epoch, number: u64) -> bool {
        self.own.read >= number && self.live_have_read(number) && self.knows_all(own)
    }

    /// Whether all others that live have read the own beat of this number.
    pub(super) fn live_have_read(&self, number: u64) -> bool {
        self.others.values().all(|other| other.dead || other.echo >= number)
    }

    /// Whether no replica that lives has read of one that was not read here.
    fn knows_all(&self, own: Epoch) -> bool {
        self.others.values().filter(|other| !other.dead).all(|other| {
            let is_known =
                |epoch: &Epoch| self.others.contains_key(epoch) || self.ended.get(*epoch).is_some();
            let unknown = |epoch: &&Epoch| **epoch != own && !is_known(epoch);
            let mut unknown = other.echoes.keys().filter(unknown);
            unknown.all(|epoch| other.names_dead.contains(epoch))
        })
    }

    /// Takes notice of the moment at which all others that live know of this replica, and of that at which the whole was
    /// read, and all others that live were heard since the start.
    pub(super) fn note_complete(&mut self) {
        self.known |= self.directory_read && self.own.read > 0 && self.live_have_read(1);
        let heard = |other: &Other| other.dead || other.number > other.first;
        self.complete |=
            self.directory_read && !self.torn && self.unlearnt.is_empty() && self.others.values().all(heard);
    }

    /// When, on the judging clock, another replica heard a cluster last, at the latest.
    pub(super) fn heard_elsewhere(&self, tag: UidTag) -> Option<Timestamp> {
        self.others.values().filter_map(|other| other.renewals.get(&tag)).map(|(_, at)| *at).max()
    }

    /// Whether another replica knows a cluster's lease to run.
    pub(super) fn runs_elsewhere(&self, tag: UidTag, judged: Timestamp, timing: Timing) -> bool {
        self.heard_elsewhere(tag).is_some_and(|at| !(at + timing.lease()).has_passed(judged))
    }

    /// How long what a replica tells may be old without a doubt: until its next beat was read.
    pub(super) fn allowance(&self, told_by: Option<Epoch>, judged: Timestamp, timing: Timing) -> Duration {
        let told_by = told_by.and_then(|epoch| self.others.get(&epoch));
        told_by.map_or(Duration::ZERO, |other| {
            judged.since(other.stood_since).min(timing.beat() + timing.beat_retry())
        })
    }

    /// After a pause or an outage: nobody could be read, so nobody stood still.
    pub(super) fn count_anew(&mut self, judged: Timestamp) {
        for other in self.others.values_mut() {
            other.stood_since = judged;
            other.missing_since = None;
        }
        self.waiting.clear();
    }

    /// A cluster becomes a member.
    pub(super) fn came(&mut self, who: &Who) {
        self.removed.remove(who);
        self.rivals.remove(who);
        self.wanted.remove(who);
        self.unlearnt.remove(who);
    }

    /// Remembers a member that goes.
    pub(super) fn remember(&mut self, who: Who, left: Left, tag: UidTag) {
        self.waiting.remove(&who.cluster);
        self.own.joined |= self.own.listed.contains(&tag);
        self.removed.insert(who, left);
    }

    /// Whether a beat is to be written now.
    pub(super) fn beat_due(&self, now: Timestamp, timing: Timing, asks: bool) -> bool {
        let own = &self.own;
        let after = |time: Duration| (own.made_at + time).has_passed(now);
        let at_once = own.joined || asks || self.others.values().any(|other| other.asks);
        own.made == 0
            || after(timing.beat())
            || (own.written < own.made && after(timing.beat_retry()))
            || (own.written == own.made && at_once && after(timing.beat_gap()))
    }

    /// The next beat of this replica, without its renewals.
    pub(super) fn beat(&mut self, own: Epoch, now: Timestamp) -> Beat {
        self.own.made += 1;
        self.own.made_at = now;
        self.own.joined = false;
        let mut echoes = BTreeMap::new();
        let mut dead = BTreeSet::new();
        for (epoch, other) in &mut self.others {
            other.asks = false;
            echoes.insert(*epoch, other.number);
            if other.dead && other.region == self.region {
                dead.insert(*epoch);
            }
        }
        Beat {
            epoch: own,
            region: self.region.clone(),
            number: self.own.made,
            echoes,
            dead,
            is_due: false,
            renewals: BTreeMap::new(),
        }
    }
}

impl Other {
    fn new(beat: &Beat, judged: Timestamp) -> Self {
        Self {
            region: beat.region.clone(),
            number: beat.number,
            first: beat.number,
            stood_since: judged,
            echo: 0,
            echoes: BTreeMap::new(),
            names_dead: BTreeSet::new(),
            renewals: BTreeMap::new(),
            asks: false,
            next_entry: 0,
            missing_since: None,
            dead: false,
        }
    }

    /// Whether its item has not been there for so long that no read is that late.
    fn is_missing(&self, judged: Timestamp, timing: Timing) -> bool {
        self.missing_since.is_some_and(|since| (since + timing.missing()).has_passed(judged))
    }

    fn advance(&mut self, own: Epoch, beat: &Beat, judged: Timestamp, told: &mut Told) {
        self.number = beat.number;
        self.stood_since = judged;
        // An item that cannot be read names none.
        if beat.region.is_some() {
            self.region.clone_from(&beat.region);
        }
        self.echo = beat.echoes.get(&own).copied().unwrap_or_default();
        self.echoes.clone_from(&beat.echoes);
        self.names_dead.clone_from(&beat.dead);
        self.asks |= beat.is_due;
        let before = std::mem::take(&mut self.renewals);
        for (tag, renewal) in &beat.renewals {
            let known = before.get(tag).copied().filter(|(number, _)| *number == renewal.number);
            let at = known.map_or_else(|| judged.ago(renewal.age), |(_, at)| at);
            if known.is_none() {
                told.renewals.push((beat.epoch, *tag, at));
            }
            self.renewals.insert(*tag, (renewal.number, at));
        }
    }

    /// Takes news; says whether some of it was missed.
    fn read(&mut self, news: &News, is_new: bool, told: &mut Told) -> bool {
        let end = news.first + news.entries.len() as u64;
        let missed = !is_new && news.first > self.next_entry;
        let read = usize::try_from(self.next_entry.saturating_sub(news.first)).unwrap_or(usize::MAX);
        // Those of a replica that was not known before count too: what they tell of may not be in the directory yet.
        told.news.extend(news.entries.iter().skip(read));
        self.next_entry = self.next_entry.max(end);
        missed
    }
}
