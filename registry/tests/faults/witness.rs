//! An ordinary client, which must notice nothing of an attack.

use std::time::Duration;

use mcs_core::model::{Change, Frame, Object, ObjectKey, Since};
use mcs_core::registry::Op;
use mcs_core::time::Clock;
use mcs_core::version::{Leaf, Sum, Version};
use mcs_proto::client::{RegistryClient, WatchStream};
use mcs_proto::convert::Member;
use mcs_runtime::clock::SystemClock;

use crate::program::{MIB, Program};
use crate::started::{client, http, id, key, member, prod, put, registration};

/// At least so many rounds are made before, during and after an attack.
const ROUNDS: usize = 20;

/// A cluster that writes, an importer that watches, a person and a probe.
pub(crate) struct Witness {
    client: RegistryClient,
    member: Member,
    seq: u64,
    watch: WatchStream,
}

/// What was seen of a program under attack.
#[derive(Debug)]
pub(crate) struct Seen {
    /// Memory before.
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
    /// Registers, writes and watches.
    pub(crate) async fn new(program: &Program) -> Self {
        let client = client(program.grpc);
        let member = member("witness", "uid-of-witness");
        client.register(&member, &registration(&member, Version::new(1, 1), Sum::EMPTY)).await.unwrap();
        let watch = client.watch(&prod(), &id("importer"), None, Since::default()).await.unwrap();
        Self { client, member, seq: 1, watch }
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

    /// A write that the watch tells, a renewal, a list for people, and what probes and Prometheus ask for.
    async fn round(&mut self, program: &Program) -> Duration {
        let began = SystemClock.elapsed();
        self.seq += 1;
        let (version, op) =
            (Version::new(1, self.seq), put("cart", 1 + u32::from(self.seq.is_multiple_of(2))));
        let Op::Put { leaf, endpoints, .. } = &op else { panic!() };
        let written = self.client.write(&self.member, version, std::slice::from_ref(&op)).await.unwrap();
        assert!(written.results.iter().all(|(_, result)| result.is_ok()), "{written:?}");
        let ours = ObjectKey::Part(key("cart"), self.member.cluster.clone());
        let told = loop {
            let Frame::Change(Change { key: told, object: Some(Object::Part(part)), .. }) =
                self.watch.next().await.unwrap()
            else {
                continue;
            };
            if told == ours && part.version == version {
                break part.endpoints;
            }
        };
        assert_eq!(&told, endpoints);
        let renewed = self.client.renew(&self.member, version, sum(*leaf)).await.unwrap();
        assert!(!renewed.differs);
        for (address, path) in [
            (program.rest, "/v1/clustersets/prod/imports"),
            (program.admin, "/healthz"),
            (program.admin, "/readyz"),
            (program.admin, "/metrics"),
        ] {
            let (status, body) = http(address, "GET", path).await;
            assert_eq!(status, "200 OK", "{path}: {body}");
        }
        SystemClock.elapsed().since(began)
    }
}

fn sum(leaf: Leaf) -> Sum {
    let mut sum = Sum::EMPTY;
    sum.add(leaf);
    sum
}
