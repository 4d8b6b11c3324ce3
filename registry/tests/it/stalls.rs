//! A registry that stands still while it is told something: what its client makes of it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use mcs_core::model::{Frame, Since};
use mcs_core::timing::Timing;
use mcs_core::version::Version;
use mcs_proto::client::{RegistryClient, Synced};
use mcs_proto::pb;
use mcs_proto::pb::members_server::{Members, MembersServer};
use mcs_proto::pb::sync_response::Step;
use mcs_proto::status::CallFailed;
use mcs_runtime::clock::SystemClock;
use mcs_runtime::tls::Metrics;
use mcs_runtime::tls::client::{ClientFiles, ClientTls};
use mcs_runtime::tls::testing::Ca;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::started::{LIMIT, Started, id, member, prod, put};

#[tokio::test]
async fn a_sync_that_is_not_read_ends_with_its_limit() {
    let timing = Timing::of_lease(Duration::from_secs(1));
    assert_eq!(sync(None, timing).await, Err(CallFailed::TimedOut { limit: timing.dead_stream() }));
}

#[tokio::test]
async fn a_sync_that_fails_while_it_is_not_read_ends_with_the_reason() {
    let failed = CallFailed::Unavailable { code: Code::Aborted, message: "no more".to_owned() };
    assert_eq!(sync(Some(Status::aborted("no more")), Timing::of_lease(LIMIT * 10)).await, Err(failed));
}

/// A peer that takes connections and never answers, in the handshake or after it.
#[tokio::test]
async fn a_peer_that_never_answers_is_given_up_within_the_limit_of_a_call() {
    let timing = Timing::of_lease(Duration::from_secs(1));
    let taken = Arc::new(Mutex::new(Vec::new()));
    let hole = hole(Arc::clone(&taken)).await;
    let plain = RegistryClient::new(&format!("http://{hole}").parse().unwrap(), timing).unwrap();
    let failed = plain.probe(&prod()).await.unwrap_err();
    assert_eq!(failed, CallFailed::TimedOut { limit: timing.call_limit() });

    let disk = tempfile::tempdir().unwrap();
    let ca = disk.path().join("ca.crt");
    std::fs::write(&ca, Ca::new("ca").pem()).unwrap();
    let files = ClientFiles { ca: Some(ca), own: None };
    let tls = ClientTls::load(files, Arc::new(SystemClock), Metrics::default()).unwrap();
    let url = format!("https://{hole}").parse().unwrap();
    let secure = RegistryClient::secure(&url, timing, tls.configs()).unwrap();
    let failed = secure.probe(&prod()).await.unwrap_err();
    assert_eq!(failed.label(), "connect_timeout", "{failed}");
    assert!(failed.to_string().contains("shaking hands"), "{failed}");
}

/// The old connection may lead to a peer that only seems to live; what goes on over it is left alone.
#[tokio::test]
async fn a_call_after_one_without_an_answer_has_a_new_connection() {
    let taken = Arc::new(Mutex::new(Vec::new()));
    let hole = hole(Arc::clone(&taken)).await;
    let timing = Timing::of_lease(Duration::from_secs(1));
    let client = RegistryClient::new(&format!("http://{hole}").parse().unwrap(), timing).unwrap();
    for calls in 1..=3 {
        client.probe(&prod()).await.unwrap_err();
        assert_eq!(taken.lock().unwrap().len(), calls);
    }
}

/// A peer that takes connections and never answers.
async fn hole(taken: Arc<Mutex<Vec<TcpStream>>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            taken.lock().unwrap().push(stream);
        }
    });
    address
}

/// A frozen connection is found by probes, also while nothing is to be read from it for long.
#[tokio::test]
async fn a_watch_whose_peer_falls_silent_ends_by_the_probes_of_its_connection() {
    let registry = Started::new().await;
    let (relay, frozen) = relay(registry.grpc).await;
    let timing = Timing::of_lease(Duration::from_secs(3));
    let client = RegistryClient::new(&format!("http://{relay}").parse().unwrap(), timing).unwrap();
    let mut watch = client.watch(&prod(), &id("importer"), None, Since::default()).await.unwrap();
    while !matches!(watch.next().await.unwrap(), Frame::End { .. }) {}
    frozen.store(true, Ordering::SeqCst);
    // A limit of its own would be told as such, and comes later.
    let failed = tokio::time::timeout(LIMIT, watch.next()).await.unwrap().unwrap_err();
    assert!(matches!(failed, CallFailed::Unavailable { .. } | CallFailed::NotConnected(_)), "{failed:?}");
}

/// Carries bytes between clients and a registry, until it is frozen.
async fn relay(to: SocketAddr) -> (SocketAddr, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let frozen = Arc::new(AtomicBool::new(false));
    let is_frozen = Arc::clone(&frozen);
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let (near, far) = (near.into_split(), TcpStream::connect(to).await.unwrap().into_split());
            tokio::spawn(carry(near.0, far.1, Arc::clone(&is_frozen)));
            tokio::spawn(carry(far.0, near.1, Arc::clone(&is_frozen)));
        }
    });
    (address, frozen)
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, frozen: Arc<AtomicBool>) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if frozen.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

/// Tells a registry more than the connection holds.
async fn sync(answer: Option<Status>, timing: Timing) -> Result<Synced, CallFailed> {
    let client = RegistryClient::new(&format!("http://{}", start(answer).await).parse().unwrap(), timing);
    let exchange = async {
        let member = member("east", "u-1");
        let (_, sync) = client.unwrap().begin_sync(&member, Version::new(1, 2), &[]).await?;
        let ops: Vec<_> = (0..200).map(|index| put(&format!("service-{index}"), 1_000)).collect();
        sync.finish(&ops).await
    };
    tokio::time::timeout(LIMIT, exchange).await.unwrap()
}

async fn start(answer: Option<Status>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder().add_service(MembersServer::new(Still(answer)));
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    address
}

/// A registry that wants nothing, answers this, and reads no more.
struct Still(Option<Status>);

fn none<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("only syncs"))
}

#[tonic::async_trait]
impl Members for Still {
    type SyncStream = ReceiverStream<Result<pb::SyncResponse, Status>>;

    async fn sync(
        &self,
        request: Request<Streaming<pb::SyncRequest>>,
    ) -> Result<Response<Self::SyncStream>, Status> {
        let answer = self.0.clone();
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move {
            let mut asks = request.into_inner();
            let names_end = |ask: &Result<pb::SyncRequest, Status>| {
                let end =
                    matches!(ask, Ok(ask) if matches!(ask.step, Some(pb::sync_request::Step::NamesEnd(_))));
                std::future::ready(!end)
            };
            asks.by_ref().take_while(names_end).for_each(|_| std::future::ready(())).await;
            let wants_end = pb::SyncResponse { step: Some(Step::WantsEnd(pb::SyncWantsEnd {})) };
            let _ = sender.send(Ok(wants_end)).await;
            if let Some(answer) = answer {
                let _ = sender.send(Err(answer)).await;
            }
            // The stream stays open and is not read.
            sender.closed().await;
            std::future::pending::<()>().await;
            drop(asks);
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn register(
        &self,
        _: Request<pb::RegisterRequest>,
    ) -> Result<Response<pb::RegisterResponse>, Status> {
        none()
    }

    async fn renew(&self, _: Request<pb::RenewRequest>) -> Result<Response<pb::RenewResponse>, Status> {
        none()
    }

    async fn write(
        &self,
        _: Request<Streaming<pb::WriteRequest>>,
    ) -> Result<Response<pb::WriteResponse>, Status> {
        none()
    }

    async fn remove_cluster(
        &self,
        _: Request<pb::RemoveClusterRequest>,
    ) -> Result<Response<pb::RemoveClusterResponse>, Status> {
        none()
    }
}
