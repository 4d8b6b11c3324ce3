//! A client: requests at a steady rate, and who answered them.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::{body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use mcs_core::time::Clock;
use mcs_runtime::{clock::SystemClock, shutdown::Drain};
use serde::{Deserialize, Serialize};
use tokio::{
    net::TcpStream,
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use super::{TOLD, answer};

/// Enough to see how failures began, however many there are.
const KEPT: usize = 10;

/// What became of the requests so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Requests that were sent.
    pub begun: u64,
    /// So many of the first of them have all ended: whether one that was sent still hangs is known by this alone.
    pub settled: u64,
    /// Requests that were answered, by the name in the answer.
    pub answers: BTreeMap<String, u64>,
    /// Requests that were not answered.
    pub failed: u64,
    /// The last failures, each with when it was.
    pub failures: VecDeque<String>,
}

impl Totals {
    /// Requests that have ended, well or not.
    pub fn ended(&self) -> u64 {
        self.answered() + self.failed
    }

    /// Requests that were answered.
    pub fn answered(&self) -> u64 {
        self.answers.values().sum()
    }

    /// What came on top of an earlier look at the same client.
    ///
    /// # Errors
    /// It counts less than before: it has begun anew, and what it knew is lost.
    pub fn since(&self, earlier: &Self) -> Result<Self> {
        let more = |now: u64, before: u64| {
            now.checked_sub(before)
                .with_context(|| format!("the client has begun anew: {now} after {before}"))
        };
        let mut answers = BTreeMap::new();
        for name in self.answers.keys().chain(earlier.answers.keys()) {
            let count = |totals: &Self| totals.answers.get(name).copied().unwrap_or_default();
            let count = more(count(self), count(earlier))?;
            if count > 0 {
                answers.insert(name.clone(), count);
            }
        }
        Ok(Self {
            begun: more(self.begun, earlier.begun)?,
            settled: more(self.settled, earlier.settled)?,
            answers,
            failed: more(self.failed, earlier.failed)?,
            failures: self.failures.clone(),
        })
    }

    fn add(&mut self, at: f64, outcome: Result<String>) {
        match outcome {
            Ok(name) => *self.answers.entry(name).or_default() += 1,
            Err(error) => {
                self.failed += 1;
                self.failures.push_back(format!("{at:.1} s: {error:#}"));
                if self.failures.len() > KEPT {
                    self.failures.pop_front();
                }
            }
        }
    }
}

/// The totals, and which requests are on their way, by their number.
#[derive(Debug, Default)]
struct Counts {
    totals: Totals,
    running: BTreeSet<u64>,
}

impl Counts {
    /// The number of a request that is sent.
    fn begin(&mut self) -> u64 {
        let number = self.totals.begun;
        self.totals.begun += 1;
        self.running.insert(number);
        number
    }

    /// It has ended, so many seconds after the first one.
    fn end(&mut self, number: u64, at: f64, outcome: Result<String>) {
        self.totals.add(at, outcome);
        self.running.remove(&number);
        self.totals.settled = self.running.first().copied().unwrap_or(self.totals.begun);
    }
}

/// Sends until the drain.
pub(super) async fn run(to: String, rate: u32, limit: Duration, shutdown: &Drain) -> Result<()> {
    ensure!(rate > 0, "--rate must be above 0");
    let counts = Arc::new(Mutex::new(Counts::default()));
    let told = Arc::clone(&counts);
    let telling = answer(TOLD, move || {
        let counts = told.lock().unwrap_or_else(PoisonError::into_inner);
        serde_json::to_string(&counts.totals).unwrap_or_default()
    });
    tokio::select! {
        () = shutdown.draining() => Ok(()),
        failed = telling => failed,
        () = send(to, rate, limit, &counts) => Ok(()),
    }
}

async fn send(to: String, rate: u32, limit: Duration, counts: &Arc<Mutex<Counts>>) {
    let start = SystemClock.elapsed();
    let to: Arc<str> = to.into();
    let mut ticks = interval(Duration::from_secs(1) / rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let (to, counts) = (Arc::clone(&to), Arc::clone(counts));
        let number = counts.lock().unwrap_or_else(PoisonError::into_inner).begin();
        tokio::spawn(async move {
            let outcome = ask(&to, limit).await;
            let at = SystemClock.elapsed().since(start).as_secs_f64();
            counts.lock().unwrap_or_else(PoisonError::into_inner).end(number, at, outcome);
        });
    }
}

/// One request over a connection of its own, to a name that is resolved anew. What is late says whether it was the
/// connection or the answer.
async fn ask(to: &str, limit: Duration) -> Result<String> {
    let Ok(connected) = timeout(limit, TcpStream::connect(to)).await else {
        bail!("no connection within {} ms", limit.as_millis());
    };
    let stream = connected.context("connecting")?;
    let answer = timeout(limit, answer_over(stream, to)).await;
    answer.unwrap_or_else(|_| Err(anyhow!("no answer within {} ms", limit.as_millis())))
}

async fn answer_over(stream: TcpStream, to: &str) -> Result<String> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get("/").header("host", to).body(Empty::<Bytes>::new())?;
    // It may end before the body was read, which it then has whole.
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let answer = sender.send_request(request).await.context("asking")?;
    let status = answer.status();
    ensure!(status == StatusCode::OK, "status {status}");
    let body = answer.into_body().collect().await?.to_bytes();
    Ok(String::from_utf8_lossy(&body).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_since_names_only_who_answered_since() {
        let mut totals = Totals::default();
        totals.add(0.1, Ok("east/a".to_owned()));
        totals.add(0.2, Ok("west/b".to_owned()));
        totals.add(0.3, Err(anyhow!("refused")));
        let earlier = totals.clone();
        totals.add(0.4, Ok("west/b".to_owned()));
        let since = totals.since(&earlier).expect("it counts more");
        assert_eq!(since.answers, BTreeMap::from([("west/b".to_owned(), 1)]));
        assert_eq!((since.failed, since.ended(), totals.ended()), (0, 1, 4));
        assert_eq!(totals.failures, ["0.3 s: refused"]);
    }

    #[test]
    fn a_client_that_counts_less_than_before_has_begun_anew() {
        let mut earlier = Totals { begun: 1, settled: 1, ..Totals::default() };
        earlier.add(0.1, Ok("east/a".to_owned()));
        let mut totals = earlier.clone();
        totals.answers.clear();
        let error = totals.since(&earlier).expect_err("an answer less");
        assert_eq!(error.to_string(), "the client has begun anew: 0 after 1");
        assert!(Totals { begun: 0, ..earlier.clone() }.since(&earlier).is_err());
        earlier.failed = 1;
        assert!(Totals { failed: 0, ..earlier.clone() }.since(&earlier).is_err());
    }

    #[test]
    fn requests_are_settled_up_to_the_first_that_still_hangs() {
        let mut counts = Counts::default();
        let numbers = [counts.begin(), counts.begin(), counts.begin()];
        assert_eq!((numbers, counts.totals.begun, counts.totals.settled), ([0, 1, 2], 3, 0));
        let settled = [0, 2, 1].map(|number| {
            counts.end(number, 0.1, Ok("east/a".to_owned()));
            counts.totals.settled
        });
        assert_eq!((settled, counts.totals.ended()), ([1, 1, 3], 3));
    }

    #[test]
    fn of_many_failures_the_last_are_kept() {
        let mut totals = Totals::default();
        for number in 0..12 {
            totals.add(f64::from(number), Err(anyhow!("refused")));
        }
        assert_eq!((totals.failed, totals.failures.len()), (12, KEPT));
        assert_eq!(totals.failures.front().map(String::as_str), Some("2.0 s: refused"));
    }
}
