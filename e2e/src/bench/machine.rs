//! The machine: which cores run what, what a process has used of them and of the memory, and what else went on.

use std::{fs, thread, time::Duration};

use anyhow::{Context, Result};
use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};
use tokio::runtime::{Builder, Handle, Runtime};

/// Ticks a second in `/proc/<pid>/stat`: the same on every Linux, whatever the kernel counts with.
const TICKS: u64 = 100;

/// Where server and generator run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cores {
    /// Both on all cores of this process.
    Shared,
    /// Each on a core of its own.
    Apart {
        /// That of the server.
        server: usize,
        /// That of the generator.
        generator: usize,
    },
}

impl Cores {
    /// Server and generator on the first two cores of this process; shared where it has only one.
    ///
    /// # Errors
    /// The kernel does not say which there are.
    pub fn apart() -> Result<Self> {
        let mine = sched_getaffinity(None).context("asking for the cores of this process")?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| mine.is_set(*core));
        Ok(match (cores.next(), cores.next()) {
            (Some(server), Some(generator)) => Self::Apart { server, generator },
            _ => Self::Shared,
        })
    }

    /// The runtime of the generator.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn generator(self) -> Result<Runtime> {
        let mut builder = Builder::new_multi_thread();
        if let Self::Apart { generator, .. } = self {
            // What is measured shows a core that could not be taken.
            builder.worker_threads(1).on_thread_start(move || drop(take_core(generator)));
        }
        builder.enable_all().thread_name("generator").build().context("starting the generator's threads")
    }

    /// Does `start`, which starts a server, on the server's core: a process begins where the thread is that made it.
    ///
    /// # Errors
    /// What `start` gives, or the core cannot be taken.
    pub async fn start_server<T: Send + 'static>(
        self,
        start: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let Self::Apart { server, .. } = self else { return start.await };
        let runtime = Handle::current();
        let starting = thread::Builder::new().name("starter".to_owned()).spawn(move || {
            take_core(server)?;
            runtime.block_on(start)
        });
        let starting = starting.context("starting a thread")?;
        let started = tokio::task::spawn_blocking(move || starting.join());
        started.await?.unwrap_or_else(|_| anyhow::bail!("the thread that starts a server panicked"))
    }

    /// For the notes.
    pub fn note(self) -> String {
        match self {
            Self::Shared => "server and generator on the same cores".to_owned(),
            Self::Apart { server, generator } => {
                format!("server on core {server}, generator on core {generator}")
            }
        }
    }
}

fn take_core(core: usize) -> Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).with_context(|| format!("taking core {core}"))
}

/// Allows this process, and those that it starts, as many open files as the system lets it have: each watcher needs
/// one at both ends.
///
/// # Errors
/// The system refuses.
pub fn raise_file_limit() -> Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        .context("raising the limit of open files")
}

/// The time that a process has had of all cores, in steps of a tick (10 ms).
///
/// # Errors
/// There is no such process.
pub fn cpu(pid: u32) -> Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    cpu_of(&stat).with_context(|| format!("{path} is not understood: {stat}"))
}

/// The fields after the name, which is in brackets and may have blanks, begin with the third.
fn cpu_of(stat: &str) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let field = |number: usize| fields.split(' ').nth(number - 3)?.parse::<u64>().ok();
    Some(Duration::from_millis((field(14)? + field(15)?) * 1000 / TICKS))
}

/// The bytes of memory that a process has resident.
///
/// # Errors
/// There is no such process.
pub fn resident(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    resident_of(&text).with_context(|| format!("{path} is not understood: {text}"))
}

fn resident_of(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// What else the machine did before.
pub fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let averages: Vec<_> = load.split_whitespace().take(3).collect();
    if averages.is_empty() {
        return "load before the run: unknown".to_owned();
    }
    format!("load averages before the run, over 1, 5 and 15 minutes: {}", averages.join(", "))
}

/// Our programs' version, how they were built, and the cores that there are.
///
/// # Errors
/// The system does not say how many cores there are.
pub fn versions() -> Result<String> {
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    let cores = thread::available_parallelism().context("the number of cores")?;
    Ok(format!("programs {} ({build}), {cores} cores", mcs_runtime::version()))
}

#[cfg(test)]
mod tests {
    use std::process;

    use super::*;

    #[test]
    fn cpu_time_is_that_of_user_and_system_also_of_a_program_with_blanks_and_brackets_in_its_name() {
        let stat = "42 (a (b) c) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 7 8 20 0 3 0 100 0 0";
        assert_eq!(cpu_of(stat), Some(Duration::from_secs(3)));
        assert_eq!(cpu_of("42 (short) S 1"), None);
    }

    #[test]
    fn resident_memory_is_read_from_its_line() {
        let rollup =
            "5581-7ffe ---p 00000000 00:00 0 [rollup]\nRss:                1234 kB\nPss:       99 kB\n";
        assert_eq!(resident_of(rollup), Some(1234 * 1024));
        assert_eq!(resident_of("Pss: 99 kB"), None);
    }

    #[test]
    fn this_process_has_used_memory_and_says_so() {
        let own = process::id();
        assert!(resident(own).expect("memory") > 0);
        cpu(own).expect("cpu time");
    }

    #[test]
    fn a_server_starts_on_its_core_alone() {
        let cores = Cores::apart().expect("cores");
        let started = cores.generator().expect("a runtime").block_on(
            cores.start_server(async { Ok(sched_getaffinity(None).expect("cores of the thread")) }),
        );
        let started = started.expect("nothing fails");
        match cores {
            Cores::Apart { server, generator } => {
                assert_eq!((started.is_set(server), started.is_set(generator)), (true, false));
            }
            Cores::Shared => assert_eq!(started.count(), 1),
        }
    }
}
