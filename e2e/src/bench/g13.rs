//! G13: how soon the discovery service says that its view of EndpointSlices is old, and how soon that it is not any more.
//!
//! The API server is a stand-in, since a real one does not fail on demand; what it does, and when, is noted there. Readers
//! ask for the list of routers many times a second.

use std::{
    fs,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use futures::future::try_join_all;
use mcs_core::time::{Clock, Timestamp};
use mcs_runtime::clock::SystemClock;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::{
    Scale,
    machine::{self, Cores},
    progress,
    report::{Report, Row, Unit},
};
use crate::{
    programs::{Program, Signal, free_address},
    stack::get,
};

/// What the goal gives, and what the rule asks for, in seconds.
const MOST_FLAGGED: f64 = 61.0;
const FLOOR_FLAGGED: f64 = 60.0;
/// In milliseconds.
const MOST_CLEARED: f64 = 2_000.0;
/// How often the list is read.
const LOOK: Duration = Duration::from_millis(20);
/// Anything takes less: what is asked is given up after 85 s, and tried again within 30 s.
const LIMIT: Duration = Duration::from_secs(180);

/// What the API server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Its work.
    Well,
    /// It ends watches, and answers everything with 500.
    Failing,
    /// It tells watches that their version is too old, and breaks off each list half way.
    Breaking,
    /// Its connections break, and new ones are refused.
    Away,
    /// It takes calls and answers none; watches go on without a word.
    Hanging,
}

impl Mode {
    /// What it does, and what shows that it is over.
    const fn says(self) -> (&'static str, &'static str) {
        match self {
            Self::Well => ("works", "nothing"),
            Self::Failing => ("fails each call", "a watch that is accepted and tells nothing"),
            Self::Breaking => ("breaks off each list", "the end of a list"),
            Self::Away => ("is away", "a watch that is accepted and tells nothing"),
            Self::Hanging => ("takes calls and answers none", "a watch that is accepted and tells nothing"),
        }
    }
}

/// Measures it.
///
/// # Errors
/// Something did not start, the list lost what is in it, or it never said what it should.
pub fn run(scale: &Scale) -> Result<Report> {
    let cores = Cores::Shared;
    cores.generator()?.block_on(Box::pin(measure(scale)))
}

async fn measure(scale: &Scale) -> Result<Report> {
    let load = machine::load();
    let mut modes = vec![Mode::Failing, Mode::Breaking, Mode::Away];
    if scale.divisor == 1 {
        // That takes twice as long.
        modes.push(Mode::Hanging);
    }
    progress("g13: API servers fail, each in its own way, for more than a minute");
    let seen = try_join_all(
        modes.into_iter().map(|mode| async move { Ok::<_, anyhow::Error>((mode, see(mode).await?)) }),
    );
    let mut rows = Vec::new();
    for (mode, seen) in seen.await? {
        let (what, sign) = mode.says();
        rows.push(Row {
            most: Some(MOST_FLAGGED),
            floor: Some(FLOOR_FLAGGED),
            ..Row::new(
                "G13",
                format!("the API server {what}: from its first error to complete: false"),
                Unit::Seconds,
                seen.flagged.as_secs_f64(),
            )
        });
        rows.push(Row {
            most: Some(MOST_CLEARED),
            ..Row::new(
                "G13",
                format!("it works again: from {sign} to complete: true"),
                Unit::Millis,
                seen.cleared.as_secs_f64() * 1000.0,
            )
        });
    }
    let notes = vec![
        format!("G13: one stand-in of an API server and one service for each row of two; the list is read every {LOOK:?}"),
        "a watch that is taken up again says so by being accepted, so none waits for the two minutes of a silent one".to_owned(),
        Cores::Shared.note(),
        machine::versions()?,
        load,
    ];
    Ok(Report { rows, notes })
}

struct Seen {
    flagged: Duration,
    cleared: Duration,
}

async fn see(mode: Mode) -> Result<Seen> {
    let folder = tempfile::tempdir()?;
    let server = Server::start().await?;
    let service = Service::start(&folder, server.address).await?;
    service.says(true).await?;

    server.is_now(mode);
    let first_error = server.noted(Note::Failed).await?;
    let flagged = service.says(false).await?.since(first_error);
    server.is_now(Mode::Well);
    let sign = server.noted(Note::Works).await?;
    let cleared = service.says(true).await?.since(sign);
    let ended = service.program.end(Signal::Term).await?;
    ensure!(ended.success(), "the service ended: {ended}");
    progress(&format!("  API server that {}: measured", mode.says().0));
    Ok(Seen { flagged, cleared })
}

struct Service {
    program: Program,
    url: String,
}

impl Service {
    async fn start(folder: &TempDir, api_server: SocketAddr) -> Result<Self> {
        let kubeconfig = folder.path().join("kubeconfig");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "stand-in",
            "clusters": [{"name": "stand-in", "cluster": {"server": format!("http://{api_server}")}}],
            "users": [{"name": "reader", "user": {}}],
            "contexts": [{"name": "stand-in", "context": {"cluster": "stand-in", "user": "reader"}}],
        });
        fs::write(&kubeconfig, config.to_string())?;
        let address = free_address()?;
        let arguments = [
            "--pool-discovery=mcs".to_owned(),
            format!("--listen={address}"),
            "--router-namespace=routing".to_owned(),
            "--router-service=global-router".to_owned(),
            "--router-port-name=relay".to_owned(),
            "--drain-delay-secs=0".to_owned(),
        ];
        let environment = [("KUBECONFIG", kubeconfig.display().to_string())];
        let mut program =
            Program::start("global-discovery-service", "discovery", folder.path(), &arguments, &environment)
                .await?;
        let url = format!("http://{address}");
        program.ready(&format!("{url}/healthz")).await?;
        Ok(Self { program, url })
    }

    /// When its list first said that it is complete, or that it is not. What is listed must be listed all the time.
    async fn says(&self, complete: bool) -> Result<Timestamp> {
        let look = async {
            loop {
                let list: Value = serde_json::from_slice(&get(&format!("{}/routers", self.url)).await?)?;
                let now = SystemClock.elapsed();
                let listed = list["routers"].as_array().map_or(0, Vec::len);
                ensure!(listed == 1, "a router is not listed any more: {list}");
                if list["complete"] == complete {
                    return anyhow::Ok(now);
                }
                sleep(LOOK).await;
            }
        };
        let seen = timeout(LIMIT, look).await;
        seen.with_context(|| {
            format!("never complete: {complete}; the service's log:\n{}", self.program.log_tail())
        })?
    }
}

/// What the stand-in notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Note {
    /// The client has got its first error.
    Failed,
    /// The client has got what shows that the server works again.
    Works,
}

/// A stand-in for an API server that has one EndpointSlice.
struct Server {
    address: SocketAddr,
    state: Arc<State>,
    accepting: JoinHandle<()>,
}

struct State {
    mode: watch::Sender<Mode>,
    /// The first of each since the mode changed.
    notes: watch::Sender<Vec<(Note, Timestamp)>>,
    connections: Mutex<Vec<JoinHandle<()>>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
        self.state.close();
    }
}

impl Server {
    async fn start() -> Result<Self> {
        let address = free_address()?;
        let listener = TcpListener::bind(address).await?;
        let state = Arc::new(State {
            mode: watch::channel(Mode::Well).0,
            notes: watch::channel(Vec::new()).0,
            connections: Mutex::default(),
        });
        let accepting = tokio::spawn(Arc::clone(&state).accept(listener, address));
        Ok(Self { address, state, accepting })
    }

    fn is_now(&self, mode: Mode) {
        self.state.notes.send_replace(Vec::new());
        self.state.mode.send_replace(mode);
    }

    /// When that was first noted since the mode changed.
    async fn noted(&self, note: Note) -> Result<Timestamp> {
        let mut notes = self.state.notes.subscribe();
        let is_it = |(noted, _): &&(Note, Timestamp)| *noted == note;
        let noted = timeout(LIMIT, notes.wait_for(|notes| notes.iter().any(|noted| is_it(&noted)))).await;
        let noted = noted.with_context(|| format!("the client of the stand-in never had: {note:?}"))??;
        noted.iter().find(is_it).map(|(_, at)| *at).context("what was noted is gone")
    }
}

impl State {
    /// Takes connections; while it is away, its port refuses them.
    async fn accept(self: Arc<Self>, listener: TcpListener, address: SocketAddr) {
        let mut mode = self.mode.subscribe();
        let mut listener = Some(listener);
        loop {
            if *mode.borrow_and_update() == Mode::Away {
                listener = None;
                self.close();
                self.note(Note::Failed);
            } else if listener.is_none() {
                listener = TcpListener::bind(address).await.ok();
            }
            let accepted = async {
                match &listener {
                    Some(listener) => listener.accept().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = mode.changed() => if changed.is_err() { return },
                accepted = accepted => if let Ok((stream, _)) = accepted {
                    let serving = Arc::clone(&self);
                    let connection = tokio::spawn(async move { drop(serving.serve(stream).await) });
                    self.connections.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
                },
            }
        }
    }

    fn close(&self) {
        let connections =
            std::mem::take(&mut *self.connections.lock().unwrap_or_else(PoisonError::into_inner));
        connections.into_iter().for_each(|connection| connection.abort());
    }

    fn note(&self, note: Note) {
        let now = SystemClock.elapsed();
        self.notes.send_if_modified(|notes| {
            let is_first = !notes.iter().any(|(noted, _)| *noted == note);
            if is_first {
                notes.push((note, now));
            }
            is_first
        });
    }

    /// Answers the calls of one connection, until one of the sides ends it.
    async fn serve(&self, stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let (reader, mut writer) = stream.into_split();
        let mut reader = BufReader::new(reader);
        loop {
            let call = call(&mut reader).await?;
            let mode = *self.mode.borrow();
            match (mode, call.is_watch) {
                (Mode::Well, false) => {
                    send(&mut writer, 200, &list()).await?;
                    self.note(Note::Works);
                }
                (Mode::Well, true) => return self.serve_watch(reader, writer).await,
                (Mode::Failing, _) => {
                    self.note(Note::Failed);
                    send(&mut writer, 500, &status(500)).await?;
                }
                (Mode::Breaking, true) => {
                    self.note(Note::Failed);
                    send(&mut writer, 410, &status(410)).await?;
                }
                (Mode::Breaking, false) => {
                    self.note(Note::Failed);
                    let list = list().to_string();
                    writer.write_all(head(200, list.len()).as_bytes()).await?;
                    writer.write_all(&list.as_bytes()[..list.len() / 2]).await?;
                    return Ok(());
                }
                (Mode::Away, _) => return Ok(()),
                (Mode::Hanging, _) => {
                    // The client gives up, and that is its error.
                    let gone = call_or_end(&mut reader).await;
                    self.note(Note::Failed);
                    return gone;
                }
            }
        }
    }

    /// A watch: accepted, and without an event until the server fails.
    async fn serve_watch(
        &self,
        mut reader: BufReader<OwnedReadHalf>,
        mut writer: OwnedWriteHalf,
    ) -> Result<()> {
        let mut mode = self.mode.subscribe();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
        writer.write_all(head.as_bytes()).await?;
        self.note(Note::Works);
        let failing = async {
            let failing = mode.wait_for(|mode| matches!(mode, Mode::Failing | Mode::Breaking)).await;
            failing.map(|mode| *mode)
        };
        let mode = tokio::select! {
            mode = failing => mode?,
            gone = call_or_end(&mut reader) => {
                if *self.mode.borrow() == Mode::Hanging {
                    self.note(Note::Failed);
                }
                return gone;
            }
        };
        let code = if mode == Mode::Breaking { 410 } else { 500 };
        let event = format!("{}\n", json!({"type": "ERROR", "object": status(code)}));
        self.note(Note::Failed);
        writer.write_all(format!("{:x}\r\n{event}\r\n0\r\n\r\n", event.len()).as_bytes()).await?;
        Ok(())
    }
}

struct Call {
    is_watch: bool,
}

/// The next call: its first line, and no body.
async fn call(reader: &mut BufReader<OwnedReadHalf>) -> Result<Call> {
    let mut first = String::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).await? == 0 {
            bail!("the client has left");
        }
        if line == "\r\n" {
            return Ok(Call { is_watch: first.contains("watch=true") });
        }
        if first.is_empty() {
            first = line;
        }
    }
}

/// Waits until the client leaves; it must not ask meanwhile.
async fn call_or_end(reader: &mut BufReader<OwnedReadHalf>) -> Result<()> {
    match call(reader).await {
        Ok(_) => bail!("a call before the one before it was answered"),
        Err(_) => Ok(()),
    }
}

fn head(code: u16, length: usize) -> String {
    format!("HTTP/1.1 {code} It\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n")
}

async fn send(writer: &mut OwnedWriteHalf, code: u16, body: &Value) -> Result<()> {
    let body = body.to_string();
    writer.write_all(format!("{}{body}", head(code, body.len())).as_bytes()).await?;
    Ok(())
}

/// The list of the one slice, as a controller writes it.
fn list() -> Value {
    json!({
        "kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1",
        "metadata": {"resourceVersion": "70"},
        "items": [{
            "metadata": {
                "namespace": "routing", "name": "router", "resourceVersion": "60",
                "labels": {
                    "multicluster.kubernetes.io/service-name": "global-router",
                    "multicluster.kubernetes.io/source-cluster": "east"
                }
            },
            "addressType": "IPv4",
            "ports": [{"name": "relay", "port": 50051, "protocol": "TCP"}],
            "endpoints": [{"addresses": ["10.43.1.5"], "conditions": {"ready": true}}]
        }]
    })
}

fn status(code: u16) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": "AsTheBenchmarkSays",
        "message": "as the benchmark says"
    })
}
