//! A connection to one replica: TCP, and TLS where the URL says so.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower::Service;

use crate::tls::Tls;

/// A connection, its handshake included, takes at most this: so much less than a call that the next replica is asked
/// within the same heartbeat.
pub(crate) const CONNECT: Duration = Duration::from_secs(2);

/// Makes connections.
#[derive(Clone)]
pub(crate) struct Connector {
    /// None where no URL needs it.
    pub(crate) tls: Option<Arc<Tls>>,
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        let tls = self.tls.clone();
        Box::pin(async move {
            let late = || {
                let problem = format!("no connection within {} s", CONNECT.as_secs());
                io::Error::new(io::ErrorKind::TimedOut, problem)
            };
            timeout(CONNECT, connect(&url, tls)).await.unwrap_or_else(|_| Err(late()))
        })
    }
}

async fn connect(url: &Uri, tls: Option<Arc<Tls>>) -> io::Result<Stream> {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_https = url.scheme_str() == Some("https");
    let port = url.port_u16().unwrap_or(if is_https { 443 } else { 80 });
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    match tls.filter(|_| is_https) {
        Some(tls) => {
            let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
            let stream = TlsConnector::from(tls.config().await?).connect(name, stream).await?;
            Ok(Stream::Encrypted(TokioIo::new(Box::new(stream))))
        }
        None => Ok(Stream::Plain(TokioIo::new(stream))),
    }
}

/// A connection.
pub(crate) enum Stream {
    Plain(TokioIo<TcpStream>),
    Encrypted(TokioIo<Box<TlsStream<TcpStream>>>),
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Encrypted(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl Write for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Encrypted(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Encrypted(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Encrypted(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
