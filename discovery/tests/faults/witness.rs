//! Ordinary clients, who must notice nothing of an attack.

use crate::events::Events;
use crate::program::{MIB, Program};
use crate::service::{ask, registration};
use mcs_core::time::Clock;
use mcs_runtime::clock::SystemClock;
use serde_json::{Value, json};
use std::time::Duration;

/// At least so many rounds are made before, during and after an attack.
const ROUNDS: usize = 20;

/// A relay that registers, a router that watches and one that lists, a probe, and Prometheus.
pub(crate) struct Witness {
    watch: Events,
    round: usize,
}

/// What was seen of a program under attack.
#[derive(Debug)]
pub(crate) struct Seen {
    before: usize,
    /// The most memory.
    most: usize,
    /// The files that were open before, and the most beside them.
    pub(crate) files: usize,
    handles: usize,
    /// The median of a round of the witness, before and during.
    calm: Duration,
    attacked: Duration,
}

impl Seen {
    /// The numbers, for people.
    pub(crate) fn tell(&self, attack: &str) {
        let Self { before, most, handles, calm, attacked, .. } = self;
        eprintln!(
            "{attack}: memory {} MiB, at most {} MiB; {handles} more files; a round of the witness {calm:.1?}, under \
             attack {attacked:.1?} ({:.2} times)",
            before / MIB,
            most / MIB,
            attacked.as_secs_f64() / calm.as_secs_f64()
        );
    }
}

impl Witness {
    /// Watches.
    pub(crate) async fn new(program: &Program) -> Self {
        let mut watch = Events::open(program.address, "/pools/watch").await;
        watch.named("resync").await;
        Self { watch, round: 0 }
    }

    /// Works before and while `attack` runs, and then on while what it left is there: every call is served, and the
    /// memory stays below `most` bytes.
    pub(crate) async fn sees<T>(
        &mut self,
        program: &Program,
        most: usize,
        attack: impl Future<Output = T> + Send + 'static,
    ) -> (T, Seen)
    where
        T: Send + 'static,
    {
        let calm = self.rounds(program, || true).await.0;
        let (before, files) = (program.memory(), program.handles());
        let attack = tokio::spawn(attack);
        let (attacked, memory, handles) = self.rounds(program, || attack.is_finished()).await;
        let seen =
            Seen { before, most: memory, files, handles: handles.saturating_sub(files), calm, attacked };
        assert!(memory < most, "more than {} MiB: {seen:?}", most / MIB);
        (attack.await.unwrap(), seen)
    }

    /// Works until it may end: the median of a round, and the most memory and files that were seen.
    async fn rounds(&mut self, program: &Program, may_end: impl Fn() -> bool) -> (Duration, usize, usize) {
        let (mut times, mut memory, mut handles) = (Vec::new(), 0, 0);
        while times.len() < ROUNDS || !may_end() {
            times.push(self.round(program).await);
            memory = memory.max(program.memory());
            handles = handles.max(program.handles());
        }
        times.sort_unstable();
        (times[times.len() / 2], memory, handles)
    }

    /// A registration that the watch tells and the list has, and what probes and Prometheus ask for.
    async fn round(&mut self, program: &Program) -> Duration {
        let began = SystemClock.elapsed();
        self.round += 1;
        let (address, model) = (program.address, json!(format!("witness-{}", self.round)));
        let mut body = registration("witness");
        body["model"] = model.clone();
        assert_eq!(ask(address, "POST", "/pools", &body.to_string()).await.0, 200);
        loop {
            // Lists come anew when completeness changes, and others may register as well.
            let (event, data) = self.watch.next().await.expect("the watch has ended");
            let pools =
                if event == "resync" { data["pools"].as_array().unwrap().clone() } else { vec![data] };
            if pools.iter().any(|pool| is_witness(pool) && pool["model"] == model) {
                break;
            }
        }
        let (status, list) = ask(address, "GET", "/pools", "").await;
        let list: Value = serde_json::from_str(&list).unwrap();
        let listed =
            list["pools"].as_array().unwrap().iter().any(|pool| is_witness(pool) && pool["model"] == model);
        assert!(status == 200 && listed, "{status}");
        for path in ["/livez", "/healthz", "/metrics"] {
            assert_eq!(ask(address, "GET", path, "").await.0, 200, "{path}");
        }
        SystemClock.elapsed().since(began)
    }
}

fn is_witness(pool: &Value) -> bool {
    pool["key"]["dgd_name"] == "witness"
}
