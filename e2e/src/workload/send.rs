//! A client: requests at a steady rate, and who answered them.

use std::{
    collections::{BTreeMap, VecDeque},
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
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let more = |(name, count): (&String, &u64)| {
            let count = count - earlier.answers.get(name).copied().unwrap_or_default();
            (count > 0).then(|| (name.clone(), count))
        };
        Self {
            answers: self.answers.iter().filter_map(more).collect(),
            failed: self.failed - earlier.failed,
            failures: self.failures.clone(),
        }
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

/// Sends until the drain.
pub(super) async fn run(to: String, rate: u32, limit: Duration, shutdown: &Drain) -> Result<()> {
    ensure!(rate > 0, "--rate must be above 0");
    let totals = Arc::new(Mutex::new(Totals::default()));
    let told = Arc::clone(&totals);
    let telling = answer(TOLD, move || {
        let totals = told.lock().unwrap_or_else(PoisonError::into_inner);
        serde_json::to_string(&*totals).unwrap_or_default()
    });
    tokio::select! {
        () = shutdown.draining() => Ok(()),
        failed = telling => failed,
        () = send(to, rate, limit, &totals) => Ok(()),
    }
}

async fn send(to: String, rate: u32, limit: Duration, totals: &Arc<Mutex<Totals>>) {
    let start = SystemClock.elapsed();
    let to: Arc<str> = to.into();
    let mut ticks = interval(Duration::from_secs(1) / rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let (to, totals) = (Arc::clone(&to), Arc::clone(totals));
        tokio::spawn(async move {
            let outcome = ask(&to, limit).await;
            let at = SystemClock.elapsed().since(start).as_secs_f64();
            totals.lock().unwrap_or_else(PoisonError::into_inner).add(at, outcome);
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
        let since = totals.since(&earlier);
        assert_eq!(since.answers, BTreeMap::from([("west/b".to_owned(), 1)]));
        assert_eq!((since.failed, since.ended(), totals.ended()), (0, 1, 4));
        assert_eq!(totals.failures, ["0.3 s: refused"]);
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
