//! A cluster as exporter: what it exports, its leaders, and their calls to whichever replica answers.

use super::process::Cause;
use super::world::{Event, World};
use crate::book::{Book, Said};
use crate::cluster::Exported;
use crate::content::{random_endpoints, random_spec};
use crate::facts::{BUILDS, TIMING, cluster_id, cluster_uid, keys};
use mcs_core::ids::{Build, Epoch, ServiceKey};
use mcs_core::model::{EndpointSet, MemberState};
use mcs_core::outbox::{Answer, Call, Failure, Outbox, Process as By};
use mcs_core::registry::{Op, OpOutcome, Refused, Registration, Registry};
use mcs_core::time::{Timestamp, WallMillis, WallTime};
use mcs_core::version::{Leaf, Sum, Version};
use rand::Rng;
use rand::seq::IndexedRandom;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Owner {
    pub(crate) home: usize,
    pub(crate) term: u64,
    /// All terms that leaders had.
    terms: Vec<u64>,
    pub(crate) exports: BTreeMap<ServiceKey, Exported>,
    pub(crate) leaders: BTreeMap<u64, Leader>,
    /// Until when it reaches no registry.
    pub(crate) cut: Timestamp,
    /// It leads no more.
    pub(crate) dead: bool,
    /// The replica of each region that its connections lead to.
    sticky: BTreeMap<usize, usize>,
}

pub(crate) struct Leader {
    pub(crate) leads: bool,
    pub(crate) paused: Timestamp,
    pub(crate) outbox: Outbox,
    /// What its outbox was fed.
    exports: BTreeMap<ServiceKey, Exported>,
    /// What it renewed its lease with last.
    pub(crate) renewed: Option<(Version, Sum)>,
    /// Calls that were not answered, and whether each is a renewal.
    calls: BTreeMap<u64, bool>,
    wakes_at: Timestamp,
}

impl Leader {
    fn set(&mut self, key: &ServiceKey, exported: Exported) {
        let (spec, endpoints) = exported.clone();
        self.outbox.set(key.clone(), spec, endpoints, None);
        self.exports.insert(key.clone(), exported);
    }
}

/// A call on its way.
#[derive(Clone, Debug)]
pub(crate) struct Called {
    pub(crate) place: usize,
    pid: u64,
    id: u64,
    call: Call,
    /// The operations of a sync by key.
    put: BTreeMap<ServiceKey, Op>,
}

impl Owner {
    pub(crate) fn new(_: usize, home: usize) -> Self {
        Self {
            home,
            term: 0,
            terms: Vec::new(),
            exports: BTreeMap::new(),
            leaders: BTreeMap::new(),
            cut: Timestamp::ZERO,
            dead: false,
            sticky: BTreeMap::new(),
        }
    }
}

impl World {
    pub(crate) fn add_export(&mut self, place: usize, key: &ServiceKey) -> bool {
        if self.owners[place].exports.contains_key(key) {
            return false;
        }
        let created = WallTime::from_unix_secs(1_700_000_000 + self.rng.random_range(0..1_000));
        let exported = (random_spec(&mut self.rng, created), random_endpoints(&mut self.rng, place));
        self.owners[place].exports.insert(key.clone(), exported);
        self.own_changed(place, key);
        true
    }

    pub(crate) fn own_changed(&mut self, place: usize, key: &ServiceKey) {
        let exported = self.owners[place].exports.get(key).cloned();
        let leaders = self.owners[place].leaders.iter_mut().filter(|(_, leader)| leader.leads);
        let Some((pid, leader)) = leaders.last() else { return };
        let pid = *pid;
        match exported {
            Some(exported) => leader.set(key, exported),
            None => {
                leader.exports.remove(key);
                leader.outbox.unset(key);
            }
        }
        self.at(self.now, Event::Drive(place, pid));
    }

    /// A new leader with a higher term, if none leads.
    pub(crate) fn lead(&mut self, place: usize) {
        let now = self.now;
        let owner = &mut self.owners[place];
        if owner.dead || owner.leaders.values().any(|leader| leader.leads) {
            return;
        }
        owner.term += 1;
        owner.terms.push(owner.term);
        let urls = self.tables.len();
        let outbox = Outbox::new(TIMING, urls, owner.term, now);
        let mut leader = Leader {
            leads: true,
            paused: Timestamp::ZERO,
            outbox,
            exports: BTreeMap::new(),
            renewed: None,
            calls: BTreeMap::new(),
            wakes_at: Timestamp::ZERO,
        };
        for (key, exported) in owner.exports.clone() {
            leader.set(&key, exported);
        }
        let pid = self.fresh_id();
        self.owners[place].leaders.insert(pid, leader);
        self.log(|| format!("cluster {place} has a new leader {pid}"));
        self.at(now, Event::Drive(place, pid));
    }

    /// A Lease that was set back is raised by hand: what its leader says counts nowhere before its term has passed those
    /// that importers have seen. So is one that gave two leaders one term.
    pub(crate) fn mend_lease(&mut self, place: usize) {
        let owner = &mut self.owners[place];
        let highest = owner.terms.iter().copied().max().unwrap_or_default();
        let twice = owner.terms.iter().filter(|term| **term == highest).count() > 1;
        if owner.term < highest || twice {
            owner.term = highest;
            owner.leaders.clear();
            self.count("Leases raised by hand");
        }
    }

    pub(crate) fn drive(&mut self, place: usize, pid: u64) {
        let now = self.now;
        let Some(mut leader) = self.owners[place].leaders.remove(&pid) else { return };
        if let Some(floor) = leader.outbox.floor() {
            if leader.leads {
                let owner = &mut self.owners[place];
                owner.term = owner.term.max(floor);
                self.lead(place);
            }
            return;
        }
        while let Some(call) = leader.outbox.next_call(now) {
            let is_renewal = matches!(call, Call::Renew { .. });
            let url = if is_renewal { leader.outbox.url() } else { leader.outbox.act_url() };
            self.say((place, pid), &leader.exports, &call);
            let mut put = BTreeMap::new();
            let limit = match &call {
                Call::Renew { version, sum } => {
                    leader.renewed = Some((*version, *sum));
                    TIMING.call_limit()
                }
                Call::Sync { names, .. } => {
                    let all: Vec<ServiceKey> = names.iter().map(|(key, _)| key.clone()).collect();
                    put = leader.outbox.sync_ops(&all).into_iter().map(|op| (op.key().clone(), op)).collect();
                    4 * TIMING.call_limit()
                }
                Call::Register { .. } | Call::Write { .. } => TIMING.call_limit(),
            };
            let id = self.fresh_id();
            leader.calls.insert(id, is_renewal);
            self.at(now + limit, Event::Limit(place, pid, id));
            self.log(|| format!("leader {pid} of cluster {place} calls {id} at url {url}: {call:?}"));
            self.send(Called { place, pid, id, call, put }, url);
        }
        while leader.outbox.next_dirty().is_some() {}
        let at =
            leader.outbox.poll_timeout().unwrap_or(now + TIMING.lease()).max(now + Duration::from_millis(1));
        let sooner = at < leader.wakes_at || leader.wakes_at.has_passed(now);
        if sooner {
            leader.wakes_at = at;
        }
        self.owners[place].leaders.insert(pid, leader);
        if sooner {
            self.at(at, Event::Drive(place, pid));
        }
    }

    /// What a leader says counts from when it says it.
    fn say(&mut self, speaker: (usize, u64), exports: &BTreeMap<ServiceKey, Exported>, call: &Call) {
        let has = |leaf: Leaf, endpoints: &Arc<EndpointSet>| Said::Has(leaf, Arc::clone(endpoints));
        match call {
            Call::Register { version, .. } | Call::Sync { version, .. } => {
                for key in keys() {
                    let said = match exports.get(key) {
                        Some((spec, endpoints)) => has(Leaf::of(key, spec, endpoints), endpoints),
                        None => Said::Gone,
                    };
                    self.book.say(speaker, key, *version, said);
                }
            }
            Call::Write { version, ops } => {
                for op in ops {
                    let said = match op {
                        Op::Put { leaf, endpoints, .. } | Op::PutEndpoints { leaf, endpoints, .. } => {
                            has(*leaf, endpoints)
                        }
                        Op::Delete { .. } => Said::Gone,
                    };
                    self.book.say(speaker, op.key(), *version, said);
                }
            }
            Call::Renew { .. } => {}
        }
    }

    fn send(&mut self, called: Called, url: usize) {
        let owner = &self.owners[called.place];
        if !owner.cut.has_passed(self.now) || self.strikes(0.02, "calls lost") {
            return;
        }
        let owner = &self.owners[called.place];
        let region = (owner.home + url) % self.tables.len();
        let slots: Vec<usize> = (region * self.per_region..(region + 1) * self.per_region)
            .filter(|slot| self.slots[*slot].is_some())
            .collect();
        let known = owner.sticky.get(&region).copied().filter(|slot| slots.contains(slot));
        // Another connection may lead to another replica.
        let anew = self.rng.random_bool(0.05);
        let Some(slot) = known.filter(|_| !anew).or_else(|| slots.choose(&mut self.rng).copied()) else {
            let answer = failed(&called.call, Failure::Unavailable { reason: "refused".to_owned() });
            return self.answer(&called, answer);
        };
        self.owners[called.place].sticky.insert(region, slot);
        let Some(epoch) = self.slots[slot].as_ref().map(|process| process.epoch) else { return };
        let late = self.strikes(0.01, "calls late");
        let delay = if late { self.some(0, 18_000) } else { self.some(1, 40) };
        if self.strikes(0.02, "calls duplicated") {
            let later = self.some(0, 10_000);
            self.at(self.now + later, Event::Deliver(slot, epoch, Box::new(called.clone())));
        }
        self.at(self.now + delay, Event::Deliver(slot, epoch, Box::new(called)));
    }

    fn answer(&mut self, called: &Called, answer: Answer) {
        if !self.owners[called.place].cut.has_passed(self.now) || self.strikes(0.02, "answers lost") {
            return;
        }
        let later = self.some(1, 40);
        self.at(self.now + later, Event::Answered(called.place, called.pid, called.id, Box::new(answer)));
    }

    pub(crate) fn deliver(&mut self, slot: usize, epoch: Epoch, called: Called) {
        let serves =
            self.slots[slot].as_ref().is_some_and(|process| process.epoch == epoch && process.serves);
        if !serves {
            let answer = failed(&called.call, Failure::Unavailable { reason: "not ready".to_owned() });
            return self.answer(&called, answer);
        }
        let (id, uid) = (cluster_id(called.place), cluster_uid(called.place));
        let degraded = self.slots[slot].as_ref().is_some_and(|process| process.degraded);
        let lease = TIMING.lease();
        let by = || By { epoch: None, build: Build::new(BUILDS[1]).expect("a build") };
        let wall = 1_700_000_000_000 + (self.now.as_nanos() / 1_000_000) as i64 + self.walls[slot];
        let broken = self.strikes(0.05, "syncs broken");
        let call = called.call.clone();
        let speaker = (called.place, called.pid);
        let result = self.with_book(slot, Cause::Call, |registry, book, now| -> Result<Answer, Refused> {
            match call {
                Call::Register { version, sum } => {
                    let registration = Registration {
                        uid: uid.clone(),
                        region: None,
                        instance: "controller".parse().expect("an instance"),
                        build: "0.1.0".parse().expect("a build"),
                        version,
                        sum,
                    };
                    let registered = registry.register(&id, registration, now)?;
                    registry.note_claim(&id, &uid, WallMillis::from_unix_millis(wall));
                    Ok(Answer::Registered { differs: registered.differs, lease, by: by() })
                }
                Call::Renew { version, sum } => {
                    let renewed = registry.renew(&id, &uid, version, sum, now)?;
                    Ok(Answer::Renewed { differs: renewed.differs, degraded, lease, by: by() })
                }
                Call::Write { version, ops } => {
                    let keys: Vec<ServiceKey> = ops.iter().map(|op| op.key().clone()).collect();
                    let outcomes = registry.write(&id, &uid, version, ops, now)?;
                    note_refused(registry, book, speaker, version, &keys, &outcomes);
                    Ok(Answer::Written(keys.into_iter().zip(outcomes).collect()))
                }
                Call::Sync { version, names } => {
                    registry.begin_sync(&id, &uid, version, now)?;
                    let wants = registry.wanted(&id, &uid, version, &names)?;
                    let ops: Vec<Op> = wants.iter().filter_map(|key| called.put.get(key).cloned()).collect();
                    let keys: Vec<ServiceKey> = ops.iter().map(|op| op.key().clone()).collect();
                    let outcomes = registry.write(&id, &uid, version, ops, now)?;
                    note_refused(registry, book, speaker, version, &keys, &outcomes);
                    if broken {
                        return Ok(Answer::ActFailed(Failure::Unavailable { reason: "broken".to_owned() }));
                    }
                    let named: BTreeSet<ServiceKey> = names.into_iter().map(|(key, _)| key).collect();
                    registry.end_sync(&id, &uid, version, &named, now)?;
                    let results = keys.into_iter().zip(outcomes).collect();
                    Ok(Answer::Synced { results, held: BTreeMap::new() })
                }
            }
        });
        let Some(result) = result else { return };
        self.log(|| format!("replica {slot} takes {} of cluster {}: {result:?}", called.id, called.place));
        let member = self.slots[slot].as_ref().and_then(|process| process.registry.member(&id));
        // Who is hidden until it has synced is not back yet.
        let is_back = member.is_some_and(|member| member.state() != MemberState::Expired);
        if result.is_ok() && is_back && matches!(called.call, Call::Register { .. } | Call::Renew { .. }) {
            self.heard[called.place].push((self.now, epoch));
            self.count("renewals");
        }
        if matches!(result, Err(Refused::Claimed { .. })) {
            self.count("ids claimed in vain");
        }
        let answer = result.unwrap_or_else(|refused| {
            let failure = match refused {
                Refused::OldTerm { floor, .. } => Failure::OldTerm { floor },
                Refused::Unknown { .. } => Failure::UnknownMember,
                Refused::NoSync { .. } | Refused::TooManyWrites { .. } => {
                    Failure::Unavailable { reason: refused.to_string() }
                }
                Refused::Claimed { .. } | Refused::Active { .. } | Refused::TooManyClusters { .. } => {
                    Failure::Refused { reason: refused.to_string() }
                }
            };
            failed(&called.call, failure)
        });
        self.after_call(slot);
        self.answer(&called, answer);
    }

    pub(crate) fn answered(&mut self, place: usize, pid: u64, call: u64, answer: Answer) {
        let jitter = self.rng.random();
        let now = self.now;
        let Some(leader) = self.owners[place].leaders.get_mut(&pid) else { return };
        if leader.calls.remove(&call).is_some() {
            leader.outbox.handle_answer(answer, now, jitter);
            self.drive(place, pid);
        }
    }

    pub(crate) fn out_of_time(&mut self, place: usize, pid: u64, call: u64) {
        let Some(leader) = self.owners[place].leaders.get(&pid) else { return };
        let Some(is_renewal) = leader.calls.get(&call).copied() else { return };
        let failure = Failure::Unavailable { reason: "no answer in time".to_owned() };
        let answer = if is_renewal { Answer::RenewFailed(failure) } else { Answer::ActFailed(failure) };
        self.answered(place, pid, call, answer);
    }
}

fn failed(call: &Call, failure: Failure) -> Answer {
    match call {
        Call::Renew { .. } => Answer::RenewFailed(failure),
        Call::Register { .. } | Call::Write { .. } | Call::Sync { .. } => Answer::ActFailed(failure),
    }
}

/// What is refused does not hold, though it was said.
fn note_refused(
    registry: &Registry,
    book: &mut Book,
    speaker: (usize, u64),
    version: Version,
    keys: &[ServiceKey],
    outcomes: &[OpOutcome],
) {
    let member = registry.member(&cluster_id(speaker.0));
    for (key, _) in keys.iter().zip(outcomes).filter(|(_, outcome)| outcome.is_err()) {
        let stands = member.is_some_and(|member| member.exports().contains_key(key));
        book.say(speaker, key, version, Said::Refused { stands });
    }
}
