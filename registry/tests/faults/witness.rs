//! An ordinary client, which must notice nothing of an attack.

use mcs_core::model::{Change, Frame, Object, ObjectKey, Since};
use mcs_core::registry::Op;
use mcs_core::version::{Leaf, Sum, Version};
use mcs_proto::client::{RegistryClient, WatchStream};
use mcs_proto::convert::Member;
use mcs_runtime::testing::witness::Witness;

use crate::program::Program;
use crate::started::{client, http, id, key, member, prod, put, registration};

/// A cluster that writes, an importer that watches, a person and a probe.
pub(crate) struct Client {
    client: RegistryClient,
    member: Member,
    seq: u64,
    watch: WatchStream,
}

impl Client {
    /// Registers, writes and watches.
    pub(crate) async fn new(program: &Program) -> Self {
        let client = client(program.grpc);
        let member = member("witness", "uid-of-witness");
        client.register(&member, &registration(&member, Version::new(1, 1), Sum::EMPTY)).await.unwrap();
        let watch = client.watch(&prod(), &id("importer"), None, Since::default()).await.unwrap();
        Self { client, member, seq: 1, watch }
    }
}

impl Witness<Program> for Client {
    /// A write that the watch tells, a renewal, a list for people, and what probes and Prometheus ask for.
    async fn round(&mut self, program: &Program) {
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
    }
}

fn sum(leaf: Leaf) -> Sum {
    let mut sum = Sum::EMPTY;
    sum.add(leaf);
    sum
}
