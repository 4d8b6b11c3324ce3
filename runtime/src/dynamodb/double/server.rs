//! The port of a double.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;

use super::asked::{Answer, Asked};
use super::faults::Door;
use super::{Shared, serve};

/// As many connections as wait to be taken.
const BACKLOG: u32 = 1024;

/// The connection ends without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the double was told to")]
pub(super) struct Hangup;

/// Opens a port that is free.
pub(super) async fn listen() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("no free port")
}

/// Takes connections for as long as it is polled.
pub(super) async fn run(mut listener: TcpListener, shared: Arc<Shared>) {
    let mut door = shared.faults.watch_door();
    loop {
        let now = *door.borrow_and_update();
        if now == Door::Refusing {
            drop(listener);
            let closed = closed(shared.address).expect("the port is gone");
            if door.changed().await.is_err() {
                return;
            }
            listener = closed.listen(BACKLOG).expect("the port is gone");
            continue;
        }
        tokio::select! {
            biased;
            changed = door.changed() => if changed.is_err() { return },
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                tokio::spawn(connection(stream, Arc::clone(&shared), now));
            },
        }
    }
}

/// Keeps the port, on which nobody listens.
fn closed(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Serves a connection that was made while the door was so, for as long as the door lets it.
async fn connection(stream: TcpStream, shared: Arc<Shared>, made: Door) {
    let service = service_fn(|request| answer(request, &shared));
    let serving = async {
        if made == Door::Silent {
            std::future::pending::<()>().await;
        }
        // A client that goes is no failure.
        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    };
    tokio::select! {
        () = serving => {}
        () = ended(shared.faults.watch_door()) => {}
    }
}

/// Waits until open connections end: at once when they are refused, and when a silence is over.
async fn ended(mut door: watch::Receiver<Door>) {
    loop {
        let before = *door.borrow_and_update();
        if before == Door::Refusing || door.changed().await.is_err() || before == Door::Silent {
            return;
        }
    }
}

async fn answer(request: Request<Incoming>, shared: &Shared) -> Result<Response<Full<Bytes>>, Hangup> {
    let (parts, body) = request.into_parts();
    let Ok(body) = body.collect().await else { return Err(Hangup) };
    let door = *shared.faults.watch_door().borrow();
    match door {
        Door::Open => {}
        Door::Refusing => return Err(Hangup),
        // The connection ends with the silence.
        Door::Silent => std::future::pending().await,
    }
    serve::answer(shared, Asked::read(parts.headers, body.to_bytes())).await.map(response)
}

fn response(answer: Answer) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(answer.body));
    *response.status_mut() = answer.status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-amz-json-1.0"));
    response
}
