//! Random histories of one registry and three to nine controllers, with the invariants of the protocol checked after every
//! event (docs/testing.md says which, and what each one catches); and of several registries over a shared store
//! (`shared.rs`).
//!
//! Cases O37, O39, O40, O49 and O50 are part of it: deletes while a controller or the registry was away, leaders that
//! write late, registries that know little, holds that end.
//!
//! A history is made from a seed: `SEEDS=1000` tries the first thousand, or with `FROM=5000` those from there on;
//! `SEED=17` replays one and shows its events.
//! The machines are the real ones (`registry`, `log`, `outbox`, `view`, `plan`); the clock, the network, the drivers
//! and the API servers are models.

mod actions;
mod book;
mod calls;
mod cluster;
mod content;
mod controller;
mod convergence;
mod epilogue;
mod facts;
mod history;
mod imports;
mod invariants;
mod mirror;
mod network;
mod server;
mod shared;
mod witness;
mod world;

use std::cell::RefCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use world::{Counts, EventLog};

/// How many histories are tried when nothing else is said.
const SEEDS: u64 = 200;

/// And of histories of several replicas, which take three times as long.
const SEEDS_OF_REPLICAS: u64 = 60;

#[test]
fn random_histories_keep_the_invariants() {
    println!("{}", try_histories(history::run, SEEDS, HAPPENS));
}

#[test]
fn random_histories_of_replicas_keep_the_invariants() {
    println!("{}", try_histories(shared::run, SEEDS_OF_REPLICAS, HAPPENS_TO_REPLICAS));
}

/// Makes the history of a seed.
type Run = fn(u64, Option<EventLog>) -> Counts;

/// Tries histories, `usual` of them when nothing else is said, and says what happened in them.
fn try_histories(run: Run, usual: u64, happens: &[&str]) -> String {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect(name));
    let single = number("SEED");
    let from = single.or_else(|| number("FROM")).unwrap_or(0);
    let seeds = from..from + single.map_or_else(|| number("SEEDS").unwrap_or(usual), |_| 1);
    let tried = seeds.end - seeds.start;
    let total = try_all(run, seeds).unwrap_or_else(|seed| replay(run, seed));
    if tried >= usual {
        let never: Vec<_> = happens.iter().filter(|what| !total.contains_key(**what)).collect();
        assert!(never.is_empty(), "the histories are vacuous: these never happened: {never:?}");
    }
    format!("{tried} histories: {total:#?}")
}

#[test]
fn a_seed_is_a_history() {
    let events = |run: Run, seed| {
        let log = Rc::new(RefCell::new(Vec::new()));
        run(seed, Some(Rc::clone(&log)));
        log.take()
    };
    for run in [history::run, shared::run] {
        assert!(events(run, 1) == events(run, 1), "the same seed gave two histories");
        assert!(events(run, 1) != events(run, 2), "two seeds gave one history");
    }
}

/// Runs all `seeds`, and adds up what happened; gives a seed that failed, if one did.
fn try_all(run: Run, seeds: Range<u64>) -> Result<Counts, u64> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let failed = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let share = |first| seeds.clone().skip(first).step_by(workers);
        let running: Vec<_> =
            (0..workers).map(share).map(|seeds| scope.spawn(move || try_some(run, seeds, failed))).collect();
        let mut total = Counts::new();
        for worker in running {
            add(&mut total, worker.join().expect("panics are caught")?);
        }
        Ok(total)
    })
}

fn try_some(run: Run, seeds: impl Iterator<Item = u64>, failed: &AtomicBool) -> Result<Counts, u64> {
    let mut total = Counts::new();
    for seed in seeds.take_while(|_| !failed.load(Ordering::Relaxed)) {
        let counts = catch_unwind(|| run(seed, None)).map_err(|_| {
            failed.store(true, Ordering::Relaxed);
            seed
        })?;
        add(&mut total, counts);
    }
    Ok(total)
}

fn add(total: &mut Counts, counts: Counts) {
    counts.into_iter().for_each(|(what, times)| *total.entry(what).or_default() += times);
}

/// Shows the events of a seed that failed, and fails as it did.
fn replay(run: Run, seed: u64) -> ! {
    let log = Rc::new(RefCell::new(Vec::new()));
    let outcome = catch_unwind(AssertUnwindSafe(|| run(seed, Some(Rc::clone(&log)))));
    for line in log.borrow().iter() {
        eprintln!("{line}");
    }
    eprintln!("replay with SEED={seed}");
    match outcome {
        Err(panic) => resume_unwind(panic),
        Ok(_) => panic!("seed {seed} failed, and did not when it was replayed"),
    }
}

/// What must happen in enough histories, or they show nothing.
const HAPPENS: &[&str] = &[
    "Leases deleted",
    "Leases raised by hand",
    "Leases restored",
    "actions skipped",
    "answers lost",
    "brief mass silences",
    "bursts of changes",
    "changes refused",
    "calls duplicated",
    "calls to a twin",
    "calls late",
    "calls lost",
    "calls lost in a cut",
    "calls that arrived after a cut",
    "claimants of an id",
    "clusters cut off",
    "clusters cut off together",
    "clusters removed by force",
    "clusters that left",
    "controllers killed",
    "controllers paused",
    "controllers stopped in a calm",
    "dead clusters gone from imports",
    "deaths within a plan",
    "definitions changed",
    "endpoints changed",
    "exports added",
    "exports refused",
    "exports removed",
    "holds",
    "ids claimed in vain",
    "ids taken over",
    "late writes refused",
    "late writes taken",
    "leaders deposed",
    "leaders told what stands",
    "long mass silences",
    "members back",
    "objects deleted by hand",
    "old leaders woken",
    "old terms refused",
    "pauses counted anew",
    "registries beside each other",
    "registries killed",
    "registries paused",
    "registries stopped in a calm",
    "registries upgraded in a calm",
    "restarts in a calm",
    "sets of parts kept",
    "snapshots",
    "snapshots within a stream",
    "stale acts",
    "syncs",
    "syncs of everything",
    "verdicts",
    "views split",
    "wall clocks set",
    "watchers stalled",
    "watches broken",
    "watches broken at once",
    "watches resumed",
    "writes too many",
];

/// What must happen in enough histories of replicas.
const HAPPENS_TO_REPLICAS: &[&str] = &[
    "Leases raised by hand",
    "answers lost",
    "asked to compare",
    "beats that cannot be read",
    "bursts of changes",
    "calls duplicated",
    "calls late",
    "calls lost",
    "claimants of an id",
    "clocks of tables set",
    "clusters cut off",
    "clusters installed anew",
    "clusters removed by force",
    "clusters that left",
    "deaths in a calm",
    "definitions changed",
    "directories read",
    "endpoints changed",
    "exports added",
    "exports removed",
    "exports torn",
    "ids claimed in vain",
    "ids given to an earlier claim",
    "ids taken over",
    "items that came too late",
    "leaders deposed",
    "leaders killed",
    "leaders paused",
    "members back",
    "members forgotten",
    "members that a mark took",
    "news that cannot be read",
    "older writes refused",
    "read again",
    "reads that lag",
    "records lost",
    "records that cannot be read",
    "regions cut for longer than the grace",
    "regions cut from each other",
    "removals of what is newer",
    "removals that broke off",
    "renewals",
    "replicas killed",
    "replicas paused",
    "replicas rolled",
    "replication slow",
    "rewrites",
    "sources dropped",
    "store calls failed",
    "syncs broken",
    "tables away",
    "tables throttled",
    "verdicts",
    "wall clocks set",
    "watches moved",
    "writes lost",
];
