//! Ordinary clients of a program that is attacked: they must notice nothing.

use std::ops::Deref;
use std::time::Duration;

use mcs_core::time::Clock;

use super::{MIB, Process};
use crate::clock::SystemClock;

/// At least so many rounds are made before, during and after an attack.
const ROUNDS: usize = 20;

/// Uses a program `P` as ordinary clients do.
pub trait Witness<P: Deref<Target = Process>> {
    /// What such clients do, once: every call is served, and what changes is told.
    fn round(&mut self, program: &P) -> impl Future<Output = ()>;

    /// Works before and while `attack` runs, and then on while what it left is there: every call is served, and the
    /// memory stays below `most` bytes.
    fn sees<T: Send + 'static>(
        &mut self,
        program: &P,
        most: usize,
        attack: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = (T, Seen)> {
        async move {
            let calm = rounds(self, program, || true).await.time;
            let (before, files) = (program.memory(), program.handles());
            let attack = tokio::spawn(attack);
            let attacked = rounds(self, program, || attack.is_finished()).await;
            let seen = Seen { before, files, calm, attacked };
            assert!(seen.attacked.memory < most, "more than {} MiB: {seen:?}", most / MIB);
            (attack.await.unwrap(), seen)
        }
    }
}

/// What was seen of a program under attack.
#[derive(Debug)]
pub struct Seen {
    /// Bytes of memory before.
    before: usize,
    /// The files that were open before.
    pub files: usize,
    /// The median of a round before.
    calm: Duration,
    attacked: Rounds,
}

/// What was seen in some rounds.
#[derive(Debug)]
struct Rounds {
    /// The median of a round.
    time: Duration,
    /// The most memory, in bytes.
    memory: usize,
    /// The most files that were open.
    handles: usize,
}

impl Seen {
    /// The numbers, for people.
    pub fn tell(&self, attack: &str) {
        let Self { before, files, calm, attacked: Rounds { time, memory, handles } } = self;
        eprintln!(
            "{attack}: memory {} MiB, at most {} MiB; {} more files; a round of the witness {calm:.1?}, under attack \
             {time:.1?} ({:.2} times)",
            before / MIB,
            memory / MIB,
            handles.saturating_sub(*files),
            time.as_secs_f64() / calm.as_secs_f64()
        );
    }
}

/// Works until it may end.
async fn rounds<P, W>(witness: &mut W, program: &P, may_end: impl Fn() -> bool) -> Rounds
where
    P: Deref<Target = Process>,
    W: Witness<P> + ?Sized,
{
    let (mut times, mut memory, mut handles) = (Vec::new(), 0, 0);
    while times.len() < ROUNDS || !may_end() {
        let began = SystemClock.elapsed();
        witness.round(program).await;
        times.push(SystemClock.elapsed().since(began));
        memory = memory.max(program.memory());
        handles = handles.max(program.handles());
    }
    times.sort_unstable();
    Rounds { time: times[times.len() / 2], memory, handles }
}
