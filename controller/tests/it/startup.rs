//! The whole controller in front of a stand-in for the API server, in paused time.

use crate::lease_server::PausedClock;
use http::Method;
use mcs_controller::leader::Settings;
use mcs_controller::wiring::{self, Options};
use mcs_core::election::Policy;
use mcs_core::time::Clock;
use mcs_runtime::kube::testing::{ApiServer, Asked, Open, api_server};
use mcs_runtime::shutdown::Shutdown;
use mcs_runtime::tls::client::ClientFiles;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);
const WAITS: &str = "not ready: the first list of endpointslices\n";

/// Case O48: one kind is refused for load and the others are listed. The controller waits, asks no sooner than it is
/// told, and neither competes for the lead nor writes anything before it knows all.
#[tokio::test(start_paused = true)]
async fn a_controller_waits_for_the_last_of_its_lists_and_writes_nothing_before() {
    let (api, client) = api_server();
    let (lists, mut slices) = unbounded_channel();
    let (write, mut writes) = unbounded_channel();
    tokio::spawn(serve(api, lists, write));
    let clock = PausedClock::start(0);
    let admin = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, shutdown) = (admin.local_addr().unwrap(), Shutdown::manual());
    let controller = tokio::spawn(wiring::run(options(), client, clock.clone(), admin, shutdown.watch()));

    let mut tries = Vec::new();
    for _ in 0..5 {
        let asked = next(&mut slices).await;
        tries.push(clock.elapsed());
        until_readyz_says(address, 503, WAITS).await;
        asked.throttled(1);
    }
    let asked = next(&mut slices).await;
    tries.push(clock.elapsed());
    let pauses: Vec<_> = tries.windows(2).map(|tries| tries[1].since(tries[0])).collect();
    assert!(
        pauses.iter().all(|pause| *pause >= Duration::from_secs(1)),
        "earlier than asked for: {pauses:?}"
    );
    assert!(pauses[2..].is_sorted() && pauses[4] > pauses[0] * 2, "not later and later: {pauses:?}");

    assert!(writes.try_recv().is_err(), "written before all was listed");
    asked.listed("70", json!([]));
    let first = timeout(PATIENCE, writes.recv()).await.unwrap().unwrap();
    assert_eq!(first, "POST /apis/coordination.k8s.io/v1/namespaces/system/leases");
    until_readyz_says(address, 200, "ok\n").await;

    shutdown.drain();
    timeout(PATIENCE, controller).await.unwrap().unwrap().unwrap();
    let mut others = std::iter::from_fn(|| writes.try_recv().ok());
    assert_eq!(others.find(|write| !write.contains("/leases")), None);
}

async fn next(slices: &mut UnboundedReceiver<Asked>) -> Asked {
    timeout(PATIENCE, slices.recv()).await.unwrap().unwrap()
}

/// An API server that has nothing. Lists of EndpointSlices are left to the test, which is told of writes.
async fn serve(mut api: ApiServer, lists: UnboundedSender<Asked>, writes: UnboundedSender<String>) {
    let mut watches: Vec<Open> = Vec::new();
    while let Some(mut asked) = api.next().await {
        let path = asked.path.clone();
        if asked.method != Method::GET && asked.query("dryRun").is_none() {
            writes.send(format!("{} {path}", asked.method)).unwrap();
            let written = asked.body().await;
            asked.json(200, &stamped(written));
            continue;
        }
        match path.as_str() {
            _ if asked.is_watch() => watches.push(asked.open()),
            "/apis/multicluster.x-k8s.io/v1beta1" => asked.json(200, &group()),
            "/api/v1/namespaces/kube-system" => asked.json(200, &json!({"metadata": {"uid": "u-1"}})),
            "/api/v1/namespaces/default/services" => {
                asked.json(201, &json!({"spec": {"ipFamilies": ["IPv4"]}}));
            }
            "/apis/discovery.k8s.io/v1/endpointslices" => lists.send(asked).unwrap(),
            path if path.contains("/leases/") || path.starts_with("/openapi/") => asked.refused(404, None),
            _ => asked.listed("70", json!([])),
        }
    }
}

fn stamped(mut written: Value) -> Value {
    written["metadata"]["resourceVersion"] = json!("71");
    written
}

fn group() -> Value {
    let resource = |name: &str| json!({"name": name, "singularName": "", "namespaced": true, "kind": "Any", "verbs": ["list"]});
    json!({
        "kind": "APIResourceList", "groupVersion": "multicluster.x-k8s.io/v1beta1",
        "resources": [resource("serviceimports"), resource("serviceexports")]
    })
}

fn options() -> Options {
    Options {
        // Nobody listens there.
        registries: vec!["http://127.0.0.1:1".parse().unwrap()],
        tls: ClientFiles::default(),
        clusterset: Some("prod".parse().unwrap()),
        cluster: Some("east".parse().unwrap()),
        region: Some("eu-1".parse().unwrap()),
        watch_namespaces: Vec::new(),
        create_namespaces: false,
        adopt_unmanaged: false,
        leader: Settings {
            namespace: "system".to_owned(),
            name: "mcs-controller".to_owned(),
            identity: "replica".to_owned(),
            policy: Policy::default(),
        },
    }
}

async fn until_readyz_says(address: SocketAddr, status: u16, body: &str) {
    let said = async {
        while readyz(address).await != (status, body.to_owned()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, said).await.unwrap_or_else(|_| panic!("/readyz never says {status} {body}"));
}

/// What `/readyz` says. Paused time stands still meanwhile.
async fn readyz(address: SocketAddr) -> (u16, String) {
    let ask = move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, body.to_owned())
    };
    tokio::task::spawn_blocking(ask).await.unwrap()
}
