//! What may happen between a question and its answer, at a registry.

use super::*;
use mcs_core::registry::Registration;
use mcs_core::time::{ManualClock, WallTime};
use mcs_core::version::{Sum, Version};
use mcs_proto::convert::Member;
use mcs_registry::Listeners;
use mcs_registry::store::Memory;
use mcs_runtime::args::{MCS, try_parse};
use mcs_runtime::shutdown::Shutdown;
use std::io::{self, BufRead, Read};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::task::block_in_place;

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_takes_the_id_while_somebody_is_asked_is_not_removed() {
    let (client, _shutdown) = registry().await;
    register(&client, "u-1").await;
    let meanwhile = client.clone();
    let another_takes_the_id = move || {
        block_in_place(|| {
            Handle::current().block_on(async {
                let west = member("u-1");
                meanwhile.remove(&west.clusterset, &west.cluster, None, true).await.unwrap();
                register(&meanwhile, "u-2").await;
            });
        });
    };
    let told = remove(&client, Person { answer: b"y\n", first: Some(Box::new(another_takes_the_id)) }).await;
    assert_eq!(
        told,
        Err("cluster west of clusterset prod (UID u-1) has changed since it was looked at: nothing was removed, look \
             again"
            .to_owned())
    );
    assert_eq!(uids(&client).await, ["u-2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_as_it_was_goes_when_somebody_says_yes_and_stays_otherwise() {
    let (client, _shutdown) = registry().await;
    register(&client, "u-1").await;
    let no = remove(&client, Person { answer: b"n\n", first: None }).await;
    assert_eq!((no, uids(&client).await), (Err("nothing was removed".to_owned()), vec!["u-1".to_owned()]));
    let yes = remove(&client, Person { answer: b"y\n", first: None }).await;
    let url = client.url();
    let told = format!("removed cluster west of clusterset prod at {url}: 0 exports and 0 endpoints\n");
    assert_eq!((yes, uids(&client).await), (Ok(told), vec![]));
}

async fn remove(client: &RegistryClient, person: Person) -> Result<String, String> {
    let args = DeleteCluster {
        clusterset: "prod".parse().unwrap(),
        cluster: "west".parse().unwrap(),
        uid: None,
        yes: false,
        force: true,
    };
    let registries = std::slice::from_ref(client);
    let removed = at_registry(registries, &args, &mut Confirm::answered(person)).await;
    removed.map_err(|error| error.to_string())
}

/// A registry that has no cluster, on a clock that stands still.
async fn registry() -> (RegistryClient, Shutdown) {
    let args = try_parse::<mcs_registry::args::Args>(&MCS, ["mcs-registry"]).unwrap();
    let clock = Arc::new(ManualClock::at(WallTime::from_unix_secs(1_795_978_809)));
    let listen = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listeners =
        Listeners { grpc: listen().await, rest: listen().await, admin: listen().await, tls: None };
    let url = format!("http://{}", listeners.grpc.local_addr().unwrap()).parse().unwrap();
    let (store, shutdown) = (Arc::new(Memory::default()), Shutdown::manual());
    tokio::spawn(mcs_registry::serve(args.config(), clock, store, listeners, shutdown.watch()));
    // The machine may be busy.
    let timing = mcs_core::timing::Timing::of_lease(std::time::Duration::from_secs(600));
    (RegistryClient::new(&url, timing).unwrap(), shutdown)
}

fn member(uid: &str) -> Member {
    Member {
        clusterset: "prod".parse().unwrap(),
        cluster: "west".parse().unwrap(),
        uid: uid.parse().unwrap(),
    }
}

async fn register(client: &RegistryClient, uid: &str) {
    let registration = Registration {
        uid: uid.parse().unwrap(),
        region: None,
        instance: "mcs-controller-0".parse().unwrap(),
        build: "0.1.0".parse().unwrap(),
        version: Version::new(1, 1),
        sum: Sum::EMPTY,
    };
    client.register(&member(uid), &registration).await.unwrap();
}

async fn uids(client: &RegistryClient) -> Vec<String> {
    let (clusters, _) = client.list_clusters(&member("u-1").clusterset).await.unwrap();
    clusters.into_iter().map(|cluster| cluster.uid).collect()
}

/// Somebody during whose thought something happens, once.
struct Person {
    answer: &'static [u8],
    first: Option<Box<dyn FnOnce()>>,
}

impl Read for Person {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.answer.read(buffer)
    }
}

impl BufRead for Person {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if let Some(first) = self.first.take() {
            first();
        }
        Ok(self.answer)
    }

    fn consume(&mut self, amount: usize) {
        self.answer.consume(amount);
    }
}
