//! Connections to a registry: found, made and encrypted within a time limit; and why one could not be made or broke.
//!
//! A transport says of a failed call that it failed. Who sets up a controller needs the cause, in words and in a closed
//! set for metrics: a CA that is not known, a name that is not in the certificate, a port that speaks no TLS. So this
//! makes the connections itself, and notes what it sees on them: in TLS 1.3 a client learns with its first read, after
//! the handshake, that its certificate was refused.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use mcs_core::text::shown;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, ClientConfig, Error};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use crate::url::{RegistryUrl, Scheme};

/// What a new connection is encrypted with; asked for each, so that new files are used.
pub type Encryption = Arc<dyn Fn() -> Arc<ClientConfig> + Send + Sync>;

/// How much longer one address is waited for before the next one is tried beside it (RFC 8305, section 5).
const NEXT_ADDRESS: Duration = Duration::from_millis(250);

/// The most bytes of a cause: it ends in logs and conditions.
const MAX_WHY: usize = 500;

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The host has no address.
    Unresolved,
    /// Nothing listens there, or there is no way there.
    Unreachable,
    /// Nobody answered in time.
    TimedOut,
    /// The registry's certificate is of a CA that is not believed.
    UnknownCa,
    /// The registry's certificate is over, or not good yet.
    Expired,
    /// The registry's certificate is for other names.
    WrongName,
    /// Something else is wrong with the registry's certificate.
    BadCertificate,
    /// The port speaks no TLS.
    NotTls,
    /// The port speaks no HTTP/2: it is of something else, or speaks TLS.
    NotHttp2,
    /// The registry asks for a certificate, and has none to look at.
    NoClientCert,
    /// The registry refuses the certificate that it was shown.
    ClientCertRefused,
    /// The two sides agree on no version or cipher of TLS, or one breaks its rules.
    Protocol,
    /// The connection broke.
    Broken,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Unresolved,
        Self::Unreachable,
        Self::TimedOut,
        Self::UnknownCa,
        Self::Expired,
        Self::WrongName,
        Self::BadCertificate,
        Self::NotTls,
        Self::NotHttp2,
        Self::NoClientCert,
        Self::ClientCertRefused,
        Self::Protocol,
        Self::Broken,
    ];

    /// Its name in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Unresolved => "unresolved",
            Self::Unreachable => "unreachable",
            Self::TimedOut => "connect_timeout",
            Self::UnknownCa => "unknown_ca",
            Self::Expired => "certificate_expired",
            Self::WrongName => "wrong_name",
            Self::BadCertificate => "bad_certificate",
            Self::NotTls => "not_tls",
            Self::NotHttp2 => "not_http2",
            Self::NoClientCert => "no_client_certificate",
            Self::ClientCertRefused => "client_certificate_refused",
            Self::Protocol => "tls_protocol",
            Self::Broken => "broken",
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Unresolved => "its host has no address",
            Self::Unreachable => "nothing answers there",
            Self::TimedOut => "nobody answers in time",
            Self::UnknownCa => {
                "its certificate is signed by a CA that is not believed; --registry-tls-ca-file names the CAs"
            }
            Self::Expired => "its certificate has expired, or is not good yet",
            Self::WrongName => "its certificate is not for the host of the URL",
            Self::BadCertificate => "its certificate cannot be used",
            Self::NotTls => "its port does not speak TLS; is it an http URL?",
            Self::NotHttp2 => "its port does not speak HTTP/2; is it another port, or an https URL?",
            Self::NoClientCert => {
                "it asks for a certificate; --registry-tls-cert-file and --registry-tls-key-file give one"
            }
            Self::ClientCertRefused => "it refuses the certificate that it was shown",
            Self::Protocol => "no TLS can be agreed on with it",
            Self::Broken => "the connection broke",
        }
    }

    fn of(error: &io::Error) -> Self {
        let Some(error) = error.get_ref().and_then(|error| error.downcast_ref::<Error>()) else {
            return Self::Broken;
        };
        match error {
            Error::InvalidCertificate(CertificateError::UnknownIssuer) => Self::UnknownCa,
            Error::InvalidCertificate(
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. },
            ) => Self::Expired,
            Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            ) => Self::WrongName,
            Error::InvalidCertificate(_) => Self::BadCertificate,
            Error::InvalidMessage(_) => Self::NotTls,
            Error::NoApplicationProtocol | Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
                Self::NotHttp2
            }
            Error::AlertReceived(AlertDescription::CertificateRequired) => Self::NoClientCert,
            Error::AlertReceived(
                AlertDescription::UnknownCA
                | AlertDescription::BadCertificate
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::AccessDenied
                | AlertDescription::DecryptError,
            ) => Self::ClientCertRefused,
            _ => Self::Protocol,
        }
    }
}

/// There is no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no connection to {url}: {} ({why})", .fault.words())]
pub struct NotConnected {
    /// Where it was to go.
    pub url: RegistryUrl,
    /// The cause, of a closed set.
    pub fault: Fault,
    /// What the system or TLS says of it.
    pub why: String,
}

/// What was seen of the connections of one channel. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Sight {
    url: RegistryUrl,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug)]
struct Seen {
    doing: Option<&'static str>,
    fault: Option<(Fault, String)>,
}

impl Sight {
    pub(crate) fn new(url: RegistryUrl) -> Self {
        Self { url, seen: Arc::new(Mutex::new(Seen { doing: None, fault: None })) }
    }

    /// Why there is no connection, if that was seen.
    pub(crate) fn fault(&self) -> Option<NotConnected> {
        let (fault, why) = self.lock().fault.clone()?;
        Some(self.not_connected(fault, why))
    }

    /// That a call which took too long has still been waiting for a connection.
    pub(crate) fn still(&self, limit: Duration) -> Option<NotConnected> {
        let doing = self.lock().doing?;
        Some(self.not_connected(Fault::TimedOut, format!("{doing}, for {limit:?}")))
    }

    fn not_connected(&self, fault: Fault, why: String) -> NotConnected {
        NotConnected { url: self.url.clone(), fault, why }
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, doing: &'static str) {
        self.lock().doing = Some(doing);
    }

    fn connected(&self) {
        *self.lock() = Seen { doing: None, fault: None };
    }

    /// What was seen first says more than what follows from it.
    fn note(&self, fault: Fault, why: &str) {
        let mut seen = self.lock();
        if seen.fault.is_none() || seen.doing.is_some() {
            seen.fault = Some((fault, shown(why, MAX_WHY)));
        }
        seen.doing = None;
    }
}

/// Makes the connections of one channel.
#[derive(Clone)]
pub(crate) struct Dialer {
    url: RegistryUrl,
    encryption: Option<Encryption>,
    limit: Duration,
    sight: Sight,
}

impl Dialer {
    /// A dialer that has `limit` for each connection.
    pub(crate) fn new(
        url: RegistryUrl,
        encryption: Option<Encryption>,
        limit: Duration,
        sight: Sight,
    ) -> Self {
        Self { url, encryption, limit, sight }
    }

    /// Makes a connection.
    pub(crate) async fn dial(self) -> Result<Watched, NotConnected> {
        let made = tokio::time::timeout(self.limit, self.make()).await;
        let failed = match made {
            Ok(Ok(stream)) => {
                self.sight.connected();
                return Ok(Watched { stream, first: true, sight: self.sight });
            }
            Ok(Err((fault, error))) => self.sight.not_connected(fault, shown(&error.to_string(), MAX_WHY)),
            Err(_) => {
                let doing = self.sight.lock().doing.unwrap_or("connecting");
                self.sight.not_connected(Fault::TimedOut, format!("{doing}, for {:?}", self.limit))
            }
        };
        self.sight.note(failed.fault, &failed.why);
        Err(failed)
    }

    async fn make(&self) -> Result<Box<dyn Stream>, (Fault, io::Error)> {
        self.sight.begin("asking for its address");
        let host = self.url.host();
        let addresses = lookup_host((host, self.url.port())).await;
        let addresses = addresses.map_err(|error| (Fault::Unresolved, error))?;
        self.sight.begin("connecting");
        let stream = first_to_answer(addresses).await.map_err(|error| (Fault::Unreachable, error))?;
        let encryption = match (&self.encryption, self.url.scheme()) {
            (Some(encryption), Scheme::Https) => encryption,
            _ => return Ok(Box::new(stream)),
        };
        self.sight.begin("shaking hands");
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|error| (Fault::WrongName, io::Error::other(error)))?;
        let shaken = TlsConnector::from(encryption()).connect(name, stream).await;
        let stream = shaken.map_err(|error| (Fault::of(&error), error))?;
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err((Fault::NotHttp2, io::Error::other("it agrees to no protocol")));
        }
        Ok(Box::new(stream))
    }
}

/// Connects to the first address that answers: each has some time alone, and goes on beside the next.
async fn first_to_answer(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let mut connecting = JoinSet::new();
    let mut addresses = addresses.peekable();
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "it has no address");
    loop {
        if let Some(address) = addresses.next() {
            connecting.spawn(TcpStream::connect(address));
        }
        let next = async {
            match addresses.peek() {
                Some(_) => tokio::time::sleep(NEXT_ADDRESS).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = connecting.join_next() => match ended {
                Some(Ok(Ok(stream))) => {
                    stream.set_nodelay(true)?;
                    return Ok(stream);
                }
                Some(Ok(Err(error))) => failed = error,
                Some(Err(error)) => failed = io::Error::other(error),
                None => return Err(failed),
            },
            () = next => {}
        }
    }
}

/// What is read and written.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection on which it is seen why it breaks.
pub(crate) struct Watched {
    stream: Box<dyn Stream>,
    /// Whether nothing was read yet.
    first: bool,
    sight: Sight,
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("sight", &self.sight).finish_non_exhaustive()
    }
}

impl Watched {
    fn note<T>(&self, answer: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &answer {
            self.sight.note(Fault::of(error), &error.to_string());
        }
        answer
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        ready!(self.note(read))?;
        let bytes = &buffer.filled()[before..];
        if std::mem::take(&mut self.first) {
            // A TLS record, or an answer of HTTP/1.1: neither can begin what HTTP/2 says.
            if bytes.starts_with(b"HTTP/") || bytes.starts_with(&[0x15, 3]) {
                let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
                self.sight.note(Fault::NotHttp2, &String::from_utf8_lossy(line));
            } else if bytes.is_empty() {
                self.sight.note(Fault::Broken, "it was closed before anything was said");
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
