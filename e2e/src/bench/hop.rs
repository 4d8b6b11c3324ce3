//! The hop: from when a change is due until every watcher has been told of it.
//!
//! Writers and watchers are in one process and read one clock. Changes are made by as many lanes as the system has
//! writers, each of which makes one at a time, as a controller does; a change that finds its lane busy waits, and that
//! counts. All systems that are compared are driven and watched by the same code.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Error, Result, anyhow, ensure};
use mcs_core::time::{Clock, Timestamp};
use mcs_runtime::clock::SystemClock;
use tokio::{
    sync::{Notify, mpsc, watch},
    task::spawn_blocking,
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    machine::cpu,
    schedule::Schedule,
    stats::Times,
    wire::{Appetite, Connection, Finder, Request},
};

/// How long the last delivery of a block may take after the last change.
const LIMIT: Duration = Duration::from_secs(60);
/// After a watcher was cut off.
const COMES_AGAIN: Duration = Duration::from_millis(100);
/// Between the decision to begin a block and its first change.
const LEAD: Duration = Duration::from_millis(20);

/// The number of the next change: no two of this process have one, so that each differs from all before it.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A system that tells watchers what writers change.
pub trait Target: Send + Sync + 'static {
    /// How many changes may be under way side by side.
    fn lanes(&self) -> usize;

    /// Makes the change of this number in a lane, with its mark; returns when the system has taken it. Changes of one
    /// lane are made one after the other.
    fn change(&self, lane: usize, number: u64) -> impl Future<Output = Result<()>> + Send;

    /// How a watcher asks to be told of all changes, and where.
    fn watch(&self, watcher: usize) -> (SocketAddr, Request);

    /// Whether a watcher is told something at once, from when on it is told all changes.
    fn greets(&self) -> bool {
        true
    }

    /// The process of the system, where it has one of its own.
    fn pid(&self) -> Option<u32>;
}

/// What was measured in one block.
#[derive(Debug)]
pub struct Block {
    /// From when a change was due until one watcher was told, for each of them.
    pub deliveries: Times,
    /// The same until the last watcher was told, for each change.
    pub last: Times,
    /// How late the generator was.
    pub late: Times,
    /// What the system's process had of the cores, where it has one.
    pub cpu: Option<Duration>,
}

/// A system with its watchers.
#[derive(Debug)]
pub struct Hop<T> {
    target: Arc<T>,
    board: Arc<Board>,
    lanes: Vec<mpsc::UnboundedSender<u64>>,
    stalled: watch::Sender<bool>,
    counted: usize,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

impl<T: Target> Hop<T> {
    /// Opens `counted` watchers, and `stalling` ones that do not count and can be made to read nothing. Those that count
    /// have been told all that there is when it returns.
    ///
    /// # Errors
    /// The system cannot be reached, or does not tell all watchers all within a minute.
    pub async fn open(target: Arc<T>, counted: usize, stalling: usize) -> Result<Self> {
        let board = Arc::<Board>::default();
        let (stalled, stall) = watch::channel(false);
        let finder = Finder::default();
        let mut tasks = Vec::new();
        for watcher in 0..counted {
            let (address, request) = target.watch(watcher);
            let mut connection = Connection::open(address, &request, Appetite::LARGE).await?;
            if target.greets() {
                connection.greeted().await?;
            }
            let watching = follow(connection, watcher, Arc::clone(&board), finder.clone());
            tasks.push(AbortOnDropHandle::new(tokio::spawn(watching)));
        }
        for watcher in counted..counted + stalling {
            let stalling = stall_and_read(Arc::clone(&target), watcher, stall.clone());
            tasks.push(AbortOnDropHandle::new(tokio::spawn(stalling)));
        }
        let mut lanes = Vec::new();
        for lane in 0..target.lanes() {
            let (sender, mut numbers) = mpsc::unbounded_channel();
            let (target, board) = (Arc::clone(&target), Arc::clone(&board));
            let writing = async move {
                while let Some(number) = numbers.recv().await {
                    if let Err(error) = target.change(lane, number).await {
                        board.fail(error.context(format!("change {number} failed")));
                    }
                }
            };
            tasks.push(AbortOnDropHandle::new(tokio::spawn(writing)));
            lanes.push(sender);
        }
        ensure!(!lanes.is_empty(), "a system without writers changes nothing");
        let mut hop = Self { target, board, lanes, stalled, counted, _tasks: tasks };
        // A change comes after the snapshot, so who was told of it has that.
        hop.measure(1, Duration::ZERO).await?;
        Ok(hop)
    }

    /// Lets the watchers that can be stalled stop to read, or go on.
    pub fn stall(&self, stalled: bool) {
        self.stalled.send_replace(stalled);
    }

    /// Makes changes at `rate` a second for `duration`, and waits until all that counts was delivered.
    ///
    /// # Errors
    /// A change failed, a watch ended, or not all was delivered within a minute.
    pub async fn measure(&mut self, rate: u32, duration: Duration) -> Result<Block> {
        let cpu_before = self.target.pid().map(cpu).transpose()?;
        let schedule = Schedule::new(SystemClock.elapsed() + LEAD, rate, duration);
        let first = NEXT.fetch_add(u64::from(schedule.count()), Ordering::Relaxed);
        self.board.begin(Tally::new(first, schedule, self.counted)?)?;
        let lanes = self.lanes.clone();
        let driving = spawn_blocking(move || {
            schedule.drive_blocking(|step| {
                let number = first + u64::from(step);
                let lane = usize::try_from(number).unwrap_or_default() % lanes.len();
                // A lane ends only with the hop.
                let _ = lanes[lane].send(number);
            })
        });
        let ended = timeout(duration + LEAD + LIMIT, self.board.ended()).await;
        let tally = match ended {
            Ok(tally) => tally?,
            Err(_) => return Err(self.board.overdue()),
        };
        let late = Times::of(driving.await??)?;
        let cpu_after = self.target.pid().map(cpu).transpose()?;
        let cpu = cpu_after.zip(cpu_before).map(|(after, before)| after.saturating_sub(before));
        Ok(Block { deliveries: tally.deliveries, last: tally.last, late, cpu })
    }
}

/// Reads what a watcher is told until the watch ends, which is a failure.
async fn follow(mut connection: Connection, watcher: usize, board: Arc<Board>, finder: Finder) {
    loop {
        let read = connection.read(|| {
            let now = SystemClock.elapsed();
            let (board, finder) = (&board, &finder);
            move |message: &[u8]| finder.numbers(message).for_each(|number| board.seen(watcher, number, now))
        });
        if let Err(error) = read.await {
            board.fail(error.context(format!("watcher {watcher} failed")));
            return;
        }
    }
}

/// Reads what a watcher is told, unless it is stalled, and looks at nothing. One that reads nothing answers no probe
/// either, so it is cut off, and comes again.
async fn stall_and_read<T: Target>(target: Arc<T>, watcher: usize, mut stall: watch::Receiver<bool>) {
    loop {
        let (address, request) = target.watch(watcher);
        let opened = Connection::open(address, &request, Appetite::SMALL).await;
        if let Ok(mut connection) = opened {
            loop {
                if stall.wait_for(|stalled| !stalled).await.is_err() {
                    return;
                }
                if connection.read(|| |_: &[u8]| {}).await.is_err() {
                    break;
                }
            }
        }
        sleep(COMES_AGAIN).await;
    }
}

/// Where watchers tell what they have seen.
#[derive(Debug, Default)]
struct Board {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    tally: Option<Tally>,
    failure: Option<Error>,
}

impl Board {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, tally: Tally) -> Result<()> {
        let mut state = self.state();
        state.failure.take().map_or(Ok(()), Err)?;
        state.tally = Some(tally);
        Ok(())
    }

    fn seen(&self, watcher: usize, number: u64, now: Timestamp) {
        let mut state = self.state();
        let Some(tally) = &mut state.tally else { return };
        match tally.seen(watcher, number, now) {
            Ok(()) if tally.missing > 0 => return,
            Ok(()) => {}
            Err(error) => state.failure = Some(error),
        }
        drop(state);
        self.changed.notify_one();
    }

    fn fail(&self, error: Error) {
        self.state().failure.get_or_insert(error);
        self.changed.notify_one();
    }

    /// The tally once nothing is missing.
    async fn ended(&self) -> Result<Tally> {
        loop {
            {
                let mut state = self.state();
                if let Some(failure) = state.failure.take() {
                    return Err(failure);
                }
                if let Some(whole) = state.tally.take_if(|tally| tally.missing == 0) {
                    return Ok(whole);
                }
            }
            self.changed.notified().await;
        }
    }

    fn overdue(&self) -> Error {
        let missing = self.state().tally.take().map_or(0, |tally| tally.missing);
        anyhow!("{missing} deliveries did not come within {} s of the last change", LIMIT.as_secs())
    }
}

/// What was delivered of one block.
#[derive(Debug)]
struct Tally {
    first: u64,
    schedule: Schedule,
    watchers: usize,
    /// One bit for each watcher and change: a snapshot may tell again what a change has told.
    seen: Vec<u64>,
    /// How many watchers have still to be told of each change.
    left: Vec<usize>,
    missing: u64,
    deliveries: Times,
    last: Times,
}

impl Tally {
    fn new(first: u64, schedule: Schedule, watchers: usize) -> Result<Self> {
        let changes = usize::try_from(schedule.count())?;
        ensure!(watchers > 0, "nobody watches");
        Ok(Self {
            first,
            schedule,
            watchers,
            seen: vec![0; (changes * watchers).div_ceil(64)],
            left: vec![watchers; changes],
            missing: u64::try_from(changes * watchers)?,
            deliveries: Times::new()?,
            last: Times::new()?,
        })
    }

    fn seen(&mut self, watcher: usize, number: u64, now: Timestamp) -> Result<()> {
        let step = number.checked_sub(self.first).and_then(|step| u32::try_from(step).ok());
        let Some(step) = step.filter(|step| *step < self.schedule.count() && watcher < self.watchers) else {
            return Ok(());
        };
        let change = usize::try_from(step).context("a platform with short addresses")?;
        let bit = change * self.watchers + watcher;
        let (word, mask) = (bit / 64, 1 << (bit % 64));
        if self.seen[word] & mask != 0 {
            return Ok(());
        }
        self.seen[word] |= mask;
        let took = self.schedule.took(step, now);
        self.deliveries.record(took)?;
        self.missing -= 1;
        self.left[change] -= 1;
        if self.left[change] == 0 {
            self.last.record(took)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> Timestamp {
        Timestamp::ZERO + SECOND * seconds
    }

    #[test]
    fn a_delivery_counts_once_from_when_its_change_was_due_and_the_last_one_ends_the_change() {
        let schedule = Schedule::new(at(10), 1, SECOND * 2);
        let mut tally = Tally::new(100, schedule, 2).expect("a tally");
        let told = [(0, 100, 12), (0, 100, 13), (0, 101, 14), (1, 101, 14), (1, 100, 17)];
        for (watcher, number, now) in told {
            tally.seen(watcher, number, at(now)).expect("a time");
        }
        assert_eq!(tally.missing, 0);
        let seconds = |times: &Times, quantile| (times.millis(quantile) / 1000.0).round();
        // 2 s and 7 s of the first change, twice 3 s of the second.
        assert_eq!(tally.deliveries.len(), 4);
        assert_eq!([0.25, 0.5, 1.0].map(|quantile| seconds(&tally.deliveries, quantile)), [2.0, 3.0, 7.0]);
        assert_eq!([0.5, 1.0].map(|quantile| seconds(&tally.last, quantile)), [3.0, 7.0]);
    }

    #[test]
    fn changes_of_other_blocks_and_watchers_that_do_not_count_are_passed_over() {
        let mut tally = Tally::new(100, Schedule::new(at(0), 1, SECOND), 1).expect("a tally");
        for (watcher, number) in [(0, 99), (0, 101), (1, 100)] {
            tally.seen(watcher, number, at(1)).expect("a time");
        }
        assert_eq!((tally.missing, tally.deliveries.len()), (1, 0));
    }
}
