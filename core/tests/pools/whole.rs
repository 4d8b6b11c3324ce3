//! Any history of both sides of the join, compared with what follows from its last states alone.

use super::build::*;
use mcs_core::pools::directory::{Change, Directory, ListsCompleteness, Source, WatchNews};
use mcs_core::pools::index::{Index, IndexChange, SliceEvent};
use mcs_core::pools::naming::Naming;
use mcs_core::pools::slices::{SliceFacts, SliceId};
use mcs_core::pools::storage::Storage;
use mcs_core::pools::{
    Completeness, Notice, PoolKey, PoolListing, PoolRegistration, ReplicaId, RouterReplica,
};
use mcs_core::time::Timestamp;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const STALE: Duration = Duration::from_secs(60);
const QUIET: Duration = Duration::from_secs(120);
const POOLS: usize = 3;
/// Two slices of relays and one of frontends for each pool, and two of the router.
const SLICES: usize = POOLS * 3 + 2;

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    /// A relay of a pool registers one of several payloads.
    Register(usize, u8),
    /// Time passes, in milliseconds.
    Pass(u64),
    /// A slice is made or changed.
    Apply(usize, u8),
    Delete(usize),
    /// A list begins, has a slice, ends.
    Init,
    InitApply(usize, u8),
    InitDone,
    /// A whole list of some of the slices.
    Relist(u16, u8),
    Failed,
    Alive,
}

fn step() -> impl Strategy<Value = Step> {
    let passes =
        prop::sample::select(vec![1, 999, 4_999, 5_000, 15_000, 29_999, 30_000, 59_999, 60_000, 120_000]);
    prop_oneof![
        6 => (0..POOLS, 0..3u8).prop_map(|(pool, variant)| Step::Register(pool, variant)),
        6 => passes.prop_map(Step::Pass),
        6 => (0..SLICES, 0..6u8).prop_map(|(slice, variant)| Step::Apply(slice, variant)),
        2 => (0..SLICES).prop_map(Step::Delete),
        1 => Just(Step::Init),
        2 => (0..SLICES, 0..6u8).prop_map(|(slice, variant)| Step::InitApply(slice, variant)),
        1 => Just(Step::InitDone),
        2 => (any::<u16>(), 0..6u8).prop_map(|(which, variant)| Step::Relist(which, variant)),
        4 => Just(Step::Failed),
        1 => Just(Step::Alive),
    ]
}

fn pool(number: usize) -> PoolKey {
    key("east", &format!("pool-{number}"))
}

fn registered(number: usize, variant: u8) -> PoolRegistration {
    PoolRegistration {
        model: format!("model-{variant}").into(),
        ..registration("east", &format!("pool-{number}"))
    }
}

/// The slice of that number, in one of six states.
fn made(number: usize, variant: u8) -> (SliceId, SliceFacts) {
    let (pool, kind) = (number / 3, number % 3);
    let service = match (pool, kind) {
        (POOLS.., _) => "global-router".to_owned(),
        (_, 2) => format!("pool-{pool}-frontend"),
        _ => format!("pool-{pool}-pool-relay"),
    };
    let (v4, v6) = (format!("10.0.{number}.{variant}"), format!("fd00:{number}::{variant}"));
    let endpoints = match variant {
        0 => vec![],
        1 => vec![not_ready(&v4)],
        2 => vec![ready(&v4), ready("10.1.0.1")],
        3 => vec![ready(&v6)],
        _ => vec![pod("a", &v4), pod("b", &v6)],
    };
    let name = if variant == 5 {
        "other"
    } else if pool >= POOLS {
        "relay"
    } else {
        "http"
    };
    let facts = SliceFacts { ports: vec![port(name, 8000)], ..of(&service, "east", endpoints) };
    let namespace = if pool >= POOLS { "routing" } else { "ml" };
    (slice(namespace, &format!("s{number}")), facts)
}

/// The variants of a list's slices differ.
fn turned(variant: u8, number: usize) -> u8 {
    u8::try_from((usize::from(variant) + number) % 6).unwrap()
}

/// What is known without any machine: the last states, and when they came.
#[derive(Default)]
struct Model {
    registered: BTreeMap<PoolKey, (PoolRegistration, Timestamp)>,
    slices: BTreeMap<SliceId, SliceFacts>,
    /// What a list has brought that is under way.
    relist: Option<BTreeMap<SliceId, SliceFacts>>,
    /// When the first list was there, since when pools can register.
    synced: Option<Timestamp>,
    /// Errors since the last sign of life.
    errors: Vec<Timestamp>,
    /// Since when one side alone has a pool, and whether that was told.
    one_sided: BTreeMap<PoolKey, (Timestamp, bool)>,
    notices: Vec<Notice>,
}

impl Model {
    fn live(
        &self,
    ) -> (BTreeMap<PoolKey, Arc<mcs_core::pools::PoolFacts>>, BTreeMap<ReplicaId, RouterReplica>) {
        let mut index = Index::new(services());
        index.handle_event(SliceEvent::Init);
        for (id, facts) in &self.slices {
            index.handle_event(SliceEvent::InitApply(id.clone(), facts.clone()));
        }
        index.handle_event(SliceEvent::InitDone);
        let replica = |change| match change {
            IndexChange::Replica(replica) => Some((replica.id.clone(), replica)),
            _ => None,
        };
        let replicas = std::iter::from_fn(|| index.next_change()).filter_map(replica).collect();
        (index.pools().clone(), replicas)
    }

    fn listed(&self) -> (BTreeMap<PoolKey, PoolListing>, BTreeMap<ReplicaId, RouterReplica>) {
        let (live, replicas) = self.live();
        let listing = |(key, (registration, _)): (&PoolKey, &(PoolRegistration, Timestamp))| {
            let facts = Some(live.get(key)?.clone());
            Some((key.clone(), PoolListing { registration: registration.into(), facts }))
        };
        (self.registered.iter().filter_map(listing).collect(), replicas)
    }

    /// The errors of the run that is not over: those with less than two minutes between each and the next.
    fn run(&self, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let mut run: Option<(Timestamp, Timestamp)> = None;
        for error in &self.errors {
            run = match run {
                Some((first, last)) if error.since(last) < QUIET => Some((first, *error)),
                _ => Some((*error, *error)),
            };
        }
        run.filter(|(_, last)| now.since(*last) < QUIET)
    }

    fn completeness(&self, now: Timestamp) -> ListsCompleteness {
        let is_stale = self.run(now).is_some_and(|(first, _)| now.since(first) >= STALE);
        let routers = self.synced.is_some() && !is_stale;
        let pools = routers && self.synced.is_some_and(|synced| now.since(synced) >= LEASE.duration);
        let exact = |is: bool| if is { Completeness::Exact } else { Completeness::Estimated };
        ListsCompleteness { pools: exact(pools), routers: exact(routers) }
    }

    /// What happens next by itself, after `now`.
    fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let leases = self.registered.values().map(|(_, until)| *until);
        let told =
            self.one_sided.values().filter(|(_, told)| !told).map(|(since, _)| *since + LEASE.duration * 2);
        let run = self.run(now).into_iter().flat_map(|(first, last)| [first + STALE, last + QUIET]);
        let all = leases.chain(told).chain(run).chain(self.synced.map(|synced| synced + LEASE.duration));
        all.filter(|time| *time > now).min()
    }

    fn pass(&mut self, now: Timestamp) {
        let (live, _) = self.live();
        for (key, (since, told)) in &mut self.one_sided {
            if !*told && now.since(*since) >= LEASE.duration * 2 {
                *told = true;
                let is_live = live.contains_key(key);
                self.notices.push(if is_live {
                    Notice::NotRegistered(key.clone())
                } else {
                    Notice::NotImported(key.clone())
                });
            }
        }
        self.registered.retain(|_, (_, until)| *until > now);
        self.look(now);
    }

    /// Starts and ends the counts of pools whose sides may have changed.
    fn look(&mut self, now: Timestamp) {
        let (live, _) = self.live();
        let is_one_sided = |key: &PoolKey| self.registered.contains_key(key) != live.contains_key(key);
        self.one_sided.retain(|key, _| is_one_sided(key));
        if self.synced.is_some() {
            for key in (0..POOLS).map(pool).filter(is_one_sided) {
                self.one_sided.entry(key).or_insert((now, false));
            }
        }
    }

    fn relisted(&mut self, now: Timestamp) {
        let Some(slices) = self.relist.take() else { return };
        self.slices = slices;
        self.synced.get_or_insert(now);
        self.one_sided.clear();
        self.errors.clear();
        self.look(now);
    }
}

/// A directory, the lists that its changes give, and the model.
struct Both {
    directory: Directory,
    pools: BTreeMap<PoolKey, PoolListing>,
    replicas: BTreeMap<ReplicaId, RouterReplica>,
    told: ListsCompleteness,
    notices: Vec<Notice>,
    model: Model,
    now: Timestamp,
}

impl Both {
    fn new() -> Self {
        Self {
            directory: Directory::new(
                Storage::memory(LEASE, at(0)),
                Source::Slices(Naming::Mcs, services()),
                at(0),
            ),
            pools: BTreeMap::new(),
            replicas: BTreeMap::new(),
            told: ListsCompleteness { pools: Completeness::Estimated, routers: Completeness::Estimated },
            notices: Vec::new(),
            model: Model::default(),
            now: at(0),
        }
    }

    fn take(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Register(number, variant) => {
                let registration = registered(*number, *variant);
                let until = self.now + LEASE.duration;
                self.model.registered.insert(registration.key.clone(), (registration.clone(), until));
                self.directory.register(registration, self.now);
                self.model.look(self.now);
            }
            Step::Pass(millis) => return self.pass(Duration::from_millis(*millis)),
            Step::Apply(number, variant) => {
                let (id, facts) = made(*number, *variant);
                self.model.slices.insert(id.clone(), facts.clone());
                self.changed(SliceEvent::Apply(id, facts));
            }
            Step::Delete(number) => {
                let (id, _) = made(*number, 0);
                self.model.slices.remove(&id);
                self.changed(SliceEvent::Delete(id));
            }
            Step::Init => self.begin(),
            Step::InitApply(number, variant) => self.list(*number, *variant),
            Step::InitDone => self.end(),
            Step::Relist(which, variant) => {
                self.begin();
                for number in (0..SLICES).filter(|number| which >> number & 1 == 1) {
                    self.list(number, turned(*variant, number));
                }
                self.end();
            }
            Step::Failed => {
                self.model.errors.push(self.now);
                self.directory.handle_watch(WatchNews::Failed, self.now);
            }
            Step::Alive => {
                self.model.errors.clear();
                self.directory.handle_watch(WatchNews::Alive, self.now);
            }
        }
        self.check()
    }

    fn changed(&mut self, event: SliceEvent) {
        self.model.errors.clear();
        self.model.look(self.now);
        self.tell(event);
    }

    fn begin(&mut self) {
        self.model.relist = Some(BTreeMap::new());
        self.tell(SliceEvent::Init);
    }

    fn list(&mut self, number: usize, variant: u8) {
        let (id, facts) = made(number, variant);
        if let Some(relist) = &mut self.model.relist {
            relist.insert(id.clone(), facts.clone());
        }
        self.tell(SliceEvent::InitApply(id, facts));
    }

    fn end(&mut self) {
        let was_begun = self.model.relist.is_some();
        self.model.relisted(self.now);
        if was_begun {
            self.tell(SliceEvent::InitDone);
        }
    }

    fn tell(&mut self, event: SliceEvent) {
        self.directory.handle_watch(WatchNews::Event(event), self.now);
    }

    /// Lets time pass as the timers of a program do: from each thing that is due to the next.
    fn pass(&mut self, time: Duration) -> Result<(), TestCaseError> {
        let end = self.now + time;
        loop {
            let (due, expected) = (self.directory.poll_timeout(self.now), self.model.next(self.now));
            // A timer may wake for nothing, and never late.
            prop_assert!(
                expected.is_none() || due.is_some_and(|due| Some(due) <= expected),
                "{:?} {:?}",
                due,
                expected
            );
            let next = due.filter(|due| *due <= end).unwrap_or(end);
            prop_assert!(next > self.now || next == end, "a deadline that has passed");
            self.now = next;
            self.model.pass(next);
            if self.model.completeness(next) != self.told {
                prop_assert_eq!(self.directory.poll_timeout(next), Some(next), "due, and asked for late");
            }
            self.directory.handle_timeout(next);
            self.check()?;
            if next == end {
                return Ok(());
            }
        }
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        while let Some(change) = self.directory.next_change() {
            match change {
                Change::PoolUpserted(listing) => {
                    let known = self.pools.insert(listing.key().clone(), listing.clone());
                    prop_assert_ne!(known, Some(listing), "told for nothing");
                }
                Change::PoolRemoved(key) => prop_assert!(self.pools.remove(&key).is_some()),
                Change::ReplicaUpserted(replica) => {
                    let known = self.replicas.insert(replica.id.clone(), replica.clone());
                    prop_assert_ne!(known, Some(replica), "told for nothing");
                }
                Change::ReplicaRemoved(id) => prop_assert!(self.replicas.remove(&id).is_some()),
                Change::Completeness(completeness) => {
                    prop_assert_ne!(self.told, completeness, "told for nothing");
                    self.told = completeness;
                }
                Change::Notice(notice @ (Notice::NotRegistered(_) | Notice::NotImported(_))) => {
                    self.notices.push(notice);
                }
                Change::Notice(_) => {}
            }
        }
        let listed = self.model.listed();
        prop_assert_eq!((&self.pools, &self.replicas), (&listed.0, &listed.1));
        let expected = self.model.completeness(self.now);
        prop_assert_eq!((self.told, self.directory.completeness(self.now)), (expected, expected));
        self.notices.sort_by_key(|notice| format!("{notice:?}"));
        self.model.notices.sort_by_key(|notice| format!("{notice:?}"));
        prop_assert_eq!(&self.notices, &self.model.notices);
        prop_assert_eq!(self.directory.has_view(), self.model.synced.is_some());
        Ok(())
    }
}

proptest! {
    /// After every step, in which either side may fail, fall silent or come back:
    /// - the changes, replayed, give the join of the last states, made from scratch;
    /// - no change repeats what was listed;
    /// - the lists are exact only while both sides are, and every move of that is told;
    /// - a pool that one side alone has for two leases is told once, counted from when it became so or from the last
    ///   relist;
    /// - the next deadline is never late, so all of this holds by timers alone.
    #[test]
    fn any_history_of_both_sides_ends_as_its_last_states_say(steps in prop::collection::vec(step(), 0..80)) {
        let mut both = Both::new();
        for step in &steps {
            both.take(step)?;
        }
        // All is well again, for two leases: who is one-sided by then was told.
        for step in [Step::Relist(u16::MAX, 2), Step::Register(0, 0), Step::Pass(30_000)] {
            both.take(&step)?;
        }
    }
}
