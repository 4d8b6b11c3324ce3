//! Calls to the service, each within its time, over all replicas.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as Http;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use mcs_core::text::shown;
use mcs_core::time::Clock;
use tokio::time::timeout;

use crate::api::{Item, Lease, List, PoolRegistration, read_list};
use crate::connect::Connector;
use crate::feed::BadStream;
use crate::replicas::Replicas;
use crate::tls::{BadFiles, Tls, TlsFiles};

/// An answer begins within this: a service whose store does not answer says so sooner, and within a heartbeat there is
/// time for another replica.
pub const CALL: Duration = Duration::from_secs(4);
/// A stream that says nothing for this long, not even a comment, is left: the service comments several times in it, and
/// no network forgets an idle connection sooner.
pub const SILENCE: Duration = Duration::from_secs(60);
/// A connection is kept this long without a call: longer than a heartbeat of 5 s, and less than the 9 s that the service
/// keeps it.
const IDLE: Duration = Duration::from_secs(8);
/// A whole list comes within this: one of 30 MB at 4 Mbit/s. The service gives up who takes longer as well.
pub const LIST: Duration = Duration::from_secs(60);
/// Of an answer that is no list.
const SMALL: Most = Most { bytes: 64 * 1024, time: CALL };
/// Of a list: a million pools have a third of the bytes.
const LARGE: Most = Most { bytes: crate::sse::MOST_BYTES, time: LIST };
/// So much is told of what a service says to a refusal.
const SHOWN: usize = 300;

/// What an answer has at most.
#[derive(Clone, Copy)]
struct Most {
    bytes: usize,
    /// From when it began to its end.
    time: Duration,
}

/// What a replica is used for: one may do one well, and the other not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Registrations and lists.
    Call,
    /// Streams, of which a replica has as many as it has room for.
    Watch,
}

/// How a client reaches the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The replicas, `http://` or `https://`, in order of preference. All of them must share one table of registrations:
    /// a second service that keeps its own lists nothing for certain, since nobody registers there, and who asks it when
    /// the first one is gone would forget every pool.
    pub urls: Vec<String>,
    /// TLS to those of `https://`.
    pub tls: TlsFiles,
    /// [`SILENCE`], where another limit suits better.
    pub silence: Duration,
}

impl Settings {
    /// The service at `urls`, with the CAs of the system and the default limits.
    pub fn of(urls: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { urls: urls.into_iter().map(Into::into).collect(), tls: TlsFiles::default(), silence: SILENCE }
    }
}

/// Why there can be no client.
#[derive(Debug, thiserror::Error)]
pub enum BadSettings {
    /// There is nobody to ask.
    #[error("no URL of the discovery service is given")]
    NoUrl,
    /// A URL cannot be used.
    #[error("{url:?} is no URL of a discovery service: {problem}, as in https://discovery.example:8080")]
    Url {
        /// The URL.
        url: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The files of TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] BadFiles),
}

/// Why a call did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// The replica could not be reached, did not answer in time, or broke off.
    #[error("{url} does not answer: {problem}")]
    Unreachable {
        /// What was asked.
        url: String,
        /// Why.
        problem: String,
    },
    /// The replica answered that it cannot, as with 503.
    #[error("{url} answers {status}: {message}")]
    Unavailable {
        /// What was asked.
        url: String,
        /// Its answer.
        status: StatusCode,
        /// What it says to that.
        message: String,
    },
    /// What was asked is refused, and would be by every replica.
    #[error("{url} refuses with {status}: {message}")]
    Refused {
        /// What was asked.
        url: String,
        /// Its answer.
        status: StatusCode,
        /// What it says to that.
        message: String,
    },
    /// The answer is not what the service answers.
    #[error("{url} answers what cannot be read: {problem}")]
    Unreadable {
        /// What was asked.
        url: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A stream is not what the service streams.
    #[error("{url} streams what cannot be read: {problem}")]
    BadStream {
        /// What was asked.
        url: String,
        /// What is wrong with it.
        problem: BadStream,
    },
}

impl Failed {
    /// Whether another replica may do what this one did not.
    pub const fn is_of_replica(&self) -> bool {
        !matches!(self, Self::Refused { .. })
    }
}

/// What a replica answered to who said what it has.
#[derive(Clone, Debug, PartialEq)]
pub enum Fetched<T> {
    /// Nothing has changed.
    Unchanged,
    /// The list, and by what to ask for changes of it.
    List(List<T>, Option<HeaderValue>),
}

/// The service. Cheap to clone; clones share connections and what is known of the replicas.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    urls: Vec<Base>,
    http: Http<Connector, Full<Bytes>>,
    called: Mutex<Replicas>,
    watched: Mutex<Replicas>,
    clock: Arc<dyn Clock>,
    silence: Duration,
}

/// A URL to which paths are added.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Base(String);

impl Base {
    fn read(text: &str) -> Result<Self, BadSettings> {
        let bad = |problem: &str| BadSettings::Url { url: text.to_owned(), problem: problem.to_owned() };
        let url: Uri = text.parse().map_err(|error: http::uri::InvalidUri| bad(&error.to_string()))?;
        if !matches!(url.scheme_str(), Some("http" | "https")) {
            return Err(bad("it is neither http nor https"));
        }
        let authority = url.authority().filter(|authority| !authority.host().is_empty());
        match authority.map(|authority| authority.as_str().contains('@')) {
            None => Err(bad("it has no host")),
            Some(true) => Err(bad("a user in it would be sent in the clear")),
            Some(false) if url.query().is_some() => Err(bad("it has a query")),
            Some(false) => Ok(Self(text.trim_end_matches('/').to_owned())),
        }
    }

    fn path(&self, path: &str) -> String {
        format!("{}/{path}", self.0)
    }

    fn is_https(&self) -> bool {
        // A URL that was read has a scheme in any case of letters.
        self.0.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:"))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("urls", &self.shared.urls).finish_non_exhaustive()
    }
}

impl Client {
    /// A client of the service. Nothing is sent before the first call, which must be made within a tokio runtime.
    ///
    /// # Errors
    /// The setting that cannot be used, and why.
    pub fn new(settings: &Settings, clock: Arc<dyn Clock>) -> Result<Self, BadSettings> {
        let urls: Vec<_> = settings.urls.iter().map(|url| Base::read(url)).collect::<Result<_, _>>()?;
        if urls.is_empty() {
            return Err(BadSettings::NoUrl);
        }
        let tls =
            urls.iter().any(Base::is_https).then(|| Tls::load(settings.tls.clone(), Arc::clone(&clock)));
        let connector = Connector { tls: tls.transpose()?.map(Arc::new) };
        let http = Http::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_timer(TokioTimer::new())
            .build(connector);
        let [called, watched] = [(); 2].map(|()| Mutex::new(Replicas::new(urls.len())));
        let silence = settings.silence;
        Ok(Self { shared: Arc::new(Shared { urls, http, called, watched, clock, silence }) })
    }

    /// Registers a pool once, or renews its lease, at the first replica that takes it.
    ///
    /// # Errors
    /// The refusal of the one that refused it; where all failed, why the first replica that could not take it now did
    /// not, else why the last one could not be reached.
    pub async fn register(&self, registration: &PoolRegistration) -> Result<Lease, Failed> {
        let body = serde_json::to_vec(registration).map_err(|error| Failed::Unreadable {
            url: "the registration".to_owned(),
            problem: error.to_string(),
        })?;
        let body = Bytes::from(body);
        let mut failed = None;
        for replica in self.order(Use::Call) {
            match self.judged(replica, self.register_at(replica, body.clone()).await) {
                Err(other) if other.is_of_replica() => failed = Some(telling(failed, other)),
                ended => return ended,
            }
        }
        Err(failed.unwrap_or_else(nobody))
    }

    async fn register_at(&self, replica: usize, body: Bytes) -> Result<Lease, Failed> {
        let request = Request::builder().method(Method::POST).header(CONTENT_TYPE, "application/json");
        let answer = self.call(replica, "pools", request, body).await?;
        let body = self.body(replica, "pools", answer, SMALL).await?;
        self.read(replica, "pools", serde_json::from_slice(&body))
    }

    /// The list of all there are, of the first replica that answers.
    ///
    /// # Errors
    /// As [`Client::register`].
    pub async fn list<T: Item>(&self) -> Result<List<T>, Failed> {
        let mut failed = None;
        for replica in self.order(Use::Call) {
            let fetched = match self.fetch(replica, None).await {
                Ok(Fetched::List(list, _)) => Ok(list),
                Ok(Fetched::Unchanged) => {
                    let problem = "304 to who did not say what it has".to_owned();
                    Err(Failed::Unreadable { url: self.url(replica, T::LIST), problem })
                }
                Err(failed) => Err(failed),
            };
            match self.judged(replica, fetched) {
                Err(other) if other.is_of_replica() => failed = Some(telling(failed, other)),
                ended => return ended,
            }
        }
        Err(failed.unwrap_or_else(nobody))
    }

    /// The list of one replica, unless it is still the one of `etag`.
    pub(crate) async fn fetch<T: Item>(
        &self,
        replica: usize,
        etag: Option<&HeaderValue>,
    ) -> Result<Fetched<T>, Failed> {
        let mut request = Request::builder();
        if let Some(etag) = etag {
            request = request.header(IF_NONE_MATCH, etag);
        }
        let answer = self.call(replica, T::LIST, request, Bytes::new()).await?;
        if answer.status() == StatusCode::NOT_MODIFIED {
            return Ok(Fetched::Unchanged);
        }
        let etag = answer.headers().get(ETAG).cloned();
        let body = self.body(replica, T::LIST, answer, LARGE).await?;
        Ok(Fetched::List(self.read(replica, T::LIST, read_list(&body))?, etag))
    }

    /// Opens the watch of one replica.
    pub(crate) async fn watch<T: Item>(&self, replica: usize) -> Result<Incoming, Failed> {
        let path = format!("{}/watch", T::LIST);
        let request = Request::builder().header(ACCEPT, "text/event-stream");
        let answer = self.call(replica, &path, request, Bytes::new()).await?;
        let kind = answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if !kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
            let problem = format!("content-type {kind:?} is not text/event-stream");
            return Err(Failed::Unreadable { url: self.url(replica, &path), problem });
        }
        Ok(answer.into_body())
    }

    /// In which order the replicas are asked now.
    pub(crate) fn order(&self, of: Use) -> Vec<usize> {
        self.replicas(of).order(self.now())
    }

    /// Notes what came of a call that is no watch.
    pub(crate) fn judged<R>(&self, replica: usize, result: Result<R, Failed>) -> Result<R, Failed> {
        match &result {
            Err(failed) if failed.is_of_replica() => self.failed(Use::Call, replica),
            _ => self.replicas(Use::Call).worked(replica),
        }
        result
    }

    /// Notes that a replica failed.
    pub(crate) fn failed(&self, of: Use, replica: usize) {
        self.replicas(of).failed(replica, self.now(), rand::random());
    }

    /// What came of using the replicas so. A call that works says nothing of watches: a replica whose places for them
    /// are taken would be asked for one after each heartbeat.
    pub(crate) fn replicas(&self, of: Use) -> MutexGuard<'_, Replicas> {
        let replicas = match of {
            Use::Call => &self.shared.called,
            Use::Watch => &self.shared.watched,
        };
        replicas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> mcs_core::time::Timestamp {
        self.shared.clock.elapsed()
    }

    pub(crate) fn silence(&self) -> Duration {
        self.shared.silence
    }

    pub(crate) fn url(&self, replica: usize, path: &str) -> String {
        self.shared.urls.get(replica).map(|base| base.path(path)).unwrap_or_default()
    }

    fn read<R>(&self, replica: usize, path: &str, read: Result<R, serde_json::Error>) -> Result<R, Failed> {
        let url = || self.url(replica, path);
        read.map_err(|problem| Failed::Unreadable { url: url(), problem: problem.to_string() })
    }

    /// One request, up to the begin of its answer, which is a success or says that nothing has changed.
    async fn call(
        &self,
        replica: usize,
        path: &str,
        request: http::request::Builder,
        body: Bytes,
    ) -> Result<Response<Incoming>, Failed> {
        let url = self.url(replica, path);
        let unreachable = |problem: String| Failed::Unreachable { url: url.clone(), problem };
        let request =
            request.uri(&url).body(Full::new(body)).map_err(|error| unreachable(error.to_string()))?;
        let answer = timeout(CALL, self.shared.http.request(request)).await;
        let answer = answer
            .map_err(|_| unreachable(format!("nothing within {} s", CALL.as_secs())))?
            .map_err(|error| unreachable(with_sources(&error)))?;
        let status = answer.status();
        if status.is_success() || status == StatusCode::NOT_MODIFIED {
            return Ok(answer);
        }
        let body = self.body(replica, path, answer, SMALL).await.unwrap_or_default();
        let message = message(&body);
        // A path that is not there, or a server that is busy, is that replica's alone.
        let is_refused = matches!(
            status,
            StatusCode::BAD_REQUEST
                | StatusCode::FORBIDDEN
                | StatusCode::PAYLOAD_TOO_LARGE
                | StatusCode::UNPROCESSABLE_ENTITY
        );
        Err(if is_refused {
            Failed::Refused { url, status, message }
        } else {
            Failed::Unavailable { url, status, message }
        })
    }

    /// The rest of an answer: it comes within its time, and each part of it within that of a call.
    async fn body(
        &self,
        replica: usize,
        path: &str,
        answer: Response<Incoming>,
        most: Most,
    ) -> Result<Vec<u8>, Failed> {
        let Most { bytes, time } = most;
        timeout(time, self.parts(replica, path, answer.into_body(), bytes)).await.unwrap_or_else(|_| {
            let problem = format!("its answer is not over within {} s", time.as_secs());
            Err(Failed::Unreachable { url: self.url(replica, path), problem })
        })
    }

    async fn parts(
        &self,
        replica: usize,
        path: &str,
        mut body: Incoming,
        most: usize,
    ) -> Result<Vec<u8>, Failed> {
        let unreachable = |problem: String| Failed::Unreachable { url: self.url(replica, path), problem };
        let mut read = Vec::new();
        loop {
            let frame = timeout(CALL, body.frame()).await;
            let frame =
                frame.map_err(|_| unreachable(format!("silent for {} s amid its answer", CALL.as_secs())))?;
            let Some(frame) = frame else { return Ok(read) };
            let frame = frame.map_err(|error| unreachable(with_sources(&error)))?;
            let Some(part) = frame.data_ref() else { continue };
            if part.len() > most.saturating_sub(read.len()) {
                let problem = format!("more than {most} bytes");
                return Err(Failed::Unreadable { url: self.url(replica, path), problem });
            }
            read.extend_from_slice(part);
        }
    }
}

/// Which of two failures says more: that a replica cannot do it now, more than that another is gone.
fn telling(one: Option<Failed>, other: Failed) -> Failed {
    match one {
        Some(unavailable @ Failed::Unavailable { .. }) => unavailable,
        _ => other,
    }
}

/// There is always a URL; without one there would be nobody to ask.
fn nobody() -> Failed {
    Failed::Unreachable { url: "the discovery service".to_owned(), problem: "no URL is given".to_owned() }
}

/// What a service says to a refusal, in a line.
fn message(body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Refusal {
        error: String,
    }
    let text = serde_json::from_slice::<Refusal>(body)
        .map_or_else(|_| String::from_utf8_lossy(body).into_owned(), |refusal| refusal.error);
    let text = text.trim();
    if text.is_empty() { "nothing more".to_owned() } else { shown(text, SHOWN) }
}

/// An error with what it comes of, which is where a connection says why there is none.
pub(crate) fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Some repeat what is below them.
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcs_core::time::ManualClock;

    fn refused(urls: &[&str]) -> Option<String> {
        let clock = Arc::new(ManualClock::default());
        Client::new(&Settings::of(urls.iter().copied()), clock).err().map(|error| error.to_string())
    }

    #[test]
    fn urls_are_http_or_https_with_a_host_and_nothing_behind_the_path() {
        assert_eq!(refused(&["http://127.0.0.1:8080", "http://[::1]:8080/a/"]), None);
        for (urls, expected) in [
            (&[][..], "no URL of the discovery service is given"),
            (
                &["http://a", "127.0.0.1:8080"],
                "\"127.0.0.1:8080\" is no URL of a discovery service: it is neither",
            ),
            (&["ftp://a"], "\"ftp://a\" is no URL of a discovery service: it is neither http nor https"),
            (&["http://"], "\"http://\" is no URL of a discovery service: "),
            (
                &["http://me:secret@a"],
                "\"http://me:secret@a\" is no URL of a discovery service: a user in it",
            ),
            (&["http://a/?b"], "\"http://a/?b\" is no URL of a discovery service: it has a query"),
        ] {
            let text = refused(urls).unwrap_or_default();
            assert!(text.starts_with(expected), "{text}");
        }
    }

    #[test]
    fn paths_are_added_to_a_url_with_or_without_a_path() {
        let path = |url| Base::read(url).map(|base| base.path("pools")).ok();
        assert_eq!(path("http://a:1").as_deref(), Some("http://a:1/pools"));
        assert_eq!(path("HTTPS://a/gds/").as_deref(), Some("HTTPS://a/gds/pools"));
        assert!(Base("HTTPS://a".to_owned()).is_https() && !Base("http://https".to_owned()).is_https());
    }

    #[test]
    fn a_call_that_works_says_nothing_of_watches_nor_the_other_way_round() {
        let clock = Arc::new(ManualClock::default());
        let client = Client::new(&Settings::of(["http://a", "http://b"]), clock).expect("a client");
        let orders = || (client.order(Use::Call), client.order(Use::Watch));
        client.failed(Use::Watch, 0);
        assert_eq!(orders(), (vec![0, 1], vec![1, 0]));
        client.judged(0, Ok(())).expect("it worked");
        assert_eq!(orders(), (vec![0, 1], vec![1, 0]));
        client.failed(Use::Call, 0);
        client.replicas(Use::Watch).worked(0);
        assert_eq!(orders(), (vec![1, 0], vec![0, 1]));
    }

    #[test]
    fn a_refusal_is_told_in_the_words_of_the_service() {
        assert_eq!(message(br#"{"error":"model: must not be blank"}"#), "model: must not be blank");
        assert_eq!(message(b" not found\n"), "not found");
        assert_eq!(message(b""), "nothing more");
        assert!(message("x".repeat(5_000).as_bytes()).len() < 400);
    }
}
