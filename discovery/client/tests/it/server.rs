//! A server of which a test plays every answer.

use std::sync::Arc;
use std::time::Duration;

use global_discovery_client::{Client, Settings};
use mcs_runtime::clock::SystemClock;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// Longer than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A client of the given servers.
pub(crate) fn client<'a>(servers: impl IntoIterator<Item = &'a Server>) -> Client {
    of(&Settings::of(servers.into_iter().map(|server| server.url.clone())))
}

pub(crate) fn of(settings: &Settings) -> Client {
    Client::new(settings, Arc::new(SystemClock)).expect("good settings")
}

/// What a stream of TCP or TLS can do.
trait Io: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin {}
impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> Io for T {}

/// A server on loopback.
pub(crate) struct Server {
    pub(crate) url: String,
    asked: mpsc::UnboundedReceiver<Asked>,
    task: tokio::task::JoinHandle<()>,
}

/// A request, and the connection on which it came.
pub(crate) struct Asked {
    /// Method and path.
    pub(crate) line: String,
    pub(crate) if_none_match: Option<String>,
    pub(crate) body: String,
    connection: BufReader<Box<dyn Io>>,
    goes_on: mpsc::UnboundedSender<BufReader<Box<dyn Io>>>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.expect("a port"), None)
    }

    pub(crate) async fn secure(tls: TlsAcceptor) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.expect("a port"), Some(tls))
    }

    /// A server that was stopped, on the same port.
    pub(crate) async fn start_again(url: &str) -> Self {
        let address = url.trim_start_matches("http://").to_owned();
        Self::on(TcpListener::bind(address).await.expect("the port"), None)
    }

    fn on(listener: TcpListener, tls: Option<TlsAcceptor>) -> Self {
        let port = listener.local_addr().expect("an address").port();
        let url = if tls.is_some() {
            format!("https://localhost:{port}")
        } else {
            format!("http://127.0.0.1:{port}")
        };
        let (tell, asked) = mpsc::unbounded_channel();
        let (goes_on, mut going_on) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            loop {
                let connection: BufReader<Box<dyn Io>> = tokio::select! {
                    accepted = listener.accept() => {
                        let (stream, _) = accepted.expect("a connection");
                        match shaken(stream, tls.as_ref()).await {
                            Some(stream) => BufReader::new(stream),
                            None => continue,
                        }
                    }
                    Some(connection) = going_on.recv() => connection,
                };
                let (tell, goes_on) = (tell.clone(), goes_on.clone());
                tokio::spawn(async move {
                    if let Some(asked) = read(connection, goes_on).await {
                        let _ = tell.send(asked);
                    }
                });
            }
        });
        Self { url, asked, task }
    }

    /// The next request.
    pub(crate) async fn asked(&mut self) -> Asked {
        timeout(PATIENCE, self.asked.recv()).await.expect("nothing is asked").expect("the server has ended")
    }

    /// The next request, which is `line`.
    pub(crate) async fn expects(&mut self, line: &str) -> Asked {
        let asked = self.asked().await;
        assert_eq!(asked.line, line);
        asked
    }

    /// Takes no more connections; gives its URL.
    pub(crate) async fn stop(self) -> String {
        self.task.abort();
        let _ = self.task.await;
        self.url
    }
}

async fn shaken(stream: TcpStream, tls: Option<&TlsAcceptor>) -> Option<Box<dyn Io>> {
    match tls {
        None => Some(Box::new(stream)),
        Some(tls) => Some(Box::new(tls.accept(stream).await.ok()?)),
    }
}

async fn read(
    mut connection: BufReader<Box<dyn Io>>,
    goes_on: mpsc::UnboundedSender<BufReader<Box<dyn Io>>>,
) -> Option<Asked> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if connection.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let header = |name: &str| {
        head.iter().find_map(|line| Some(line.split_once(": ").filter(|(it, _)| it == &name)?.1.to_owned()))
    };
    let length = header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    connection.read_exact(&mut body).await.ok()?;
    Some(Asked {
        line: head.first()?.trim_end_matches(" HTTP/1.1").to_owned(),
        if_none_match: header("if-none-match"),
        body: String::from_utf8(body).ok()?,
        connection,
        goes_on,
    })
}

impl Asked {
    /// Answers; the connection is kept.
    pub(crate) async fn answer(self, status: u16, body: &Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.answer_with(status, "", &body).await;
    }

    /// Answers with further header lines.
    pub(crate) async fn answer_with(mut self, status: u16, headers: &str, body: &str) {
        let length = body.len();
        let text = format!("HTTP/1.1 {status} -\r\n{headers}content-length: {length}\r\n\r\n{body}");
        self.write(&text).await;
        let _ = self.goes_on.send(self.connection);
    }

    /// Grants a lease.
    pub(crate) async fn grant(self, duration: u64, interval: u64) {
        self.answer(200, &json!({"lease_duration_secs": duration, "heartbeat_interval_secs": interval}))
            .await;
    }

    /// Begins an event stream, which ends when what this gives is dropped.
    pub(crate) async fn stream(mut self) -> Self {
        self.write(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
        )
        .await;
        self
    }

    /// Sends bytes of the stream.
    pub(crate) async fn send(&mut self, text: &str) {
        self.write(&format!("{:x}\r\n{text}\r\n", text.len())).await;
    }

    /// Sends an event.
    pub(crate) async fn event(&mut self, event: &str, data: &Value) {
        self.send(&format!("event: {event}\ndata: {data}\n\n")).await;
    }

    /// Ends the stream in order.
    pub(crate) async fn finish(mut self) {
        self.write("0\r\n\r\n").await;
    }

    /// Writes raw bytes; the connection may be gone.
    pub(crate) async fn write(&mut self, text: &str) {
        let _ = self.connection.write_all(text.as_bytes()).await;
        let _ = self.connection.flush().await;
    }
}

/// A router replica of cluster east.
pub(crate) fn router(name: &str) -> Value {
    json!({"id": format!("east/{name}"), "url": format!("http://{name}.example/")})
}

/// A list of them.
pub(crate) fn routers(names: &[&str], complete: bool) -> Value {
    let routers: Vec<_> = names.iter().map(|name| router(name)).collect();
    json!({"routers": routers, "complete": complete})
}
