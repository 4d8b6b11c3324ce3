//! The clients' end of HTTP/1.1: requests over connections that are kept, and answers read to their last byte.
//!
//! A client library would cost the generator as much as the request costs the server, and be what is measured. Answers
//! must say how long they are; what is in them is looked at only where it is asked for.

use std::{
    net::SocketAddr,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use mcs_core::time::{Clock, Timestamp};
use mcs_runtime::clock::SystemClock;
use memchr::memmem;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

use super::stats::Times;

/// What is read at once: a large answer costs few calls.
const READ: usize = 256 * 1024;

/// A connection that is kept.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// The head of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The status.
    pub status: u16,
    /// The bytes of its body.
    pub length: usize,
    /// By what to ask whether it has changed.
    pub etag: Option<String>,
}

impl Head {
    fn read(text: &[u8]) -> Result<Self> {
        let text = std::str::from_utf8(text).context("a head that is no text")?;
        let status = text.get(9..12).and_then(|status| status.parse().ok());
        let header = |wanted: &str| {
            text.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case(wanted).then(|| value.trim())
            })
        };
        let status = status.with_context(|| format!("no status in {text:?}"))?;
        let length = match header("content-length") {
            Some(length) => length.parse().with_context(|| format!("no length in {text:?}"))?,
            None => {
                ensure!(matches!(status, 204 | 304), "an answer that does not say how long it is: {text:?}");
                0
            }
        };
        Ok(Self { status, length, etag: header("etag").map(str::to_owned) })
    }
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// Nobody listens.
    pub async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await.with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; READ] })
    }

    /// Sends a request and reads the answer to its last byte, which is thrown away.
    ///
    /// # Errors
    /// The server broke off, or its answer is not understood.
    pub async fn ask(&mut self, request: &[u8]) -> Result<Head> {
        let (head, mut left, _) = self.begin(request).await?;
        while left > 0 {
            let most = left.min(self.buffer.len());
            let read = self.stream.read(&mut self.buffer[..most]).await?;
            ensure!(read > 0, "the server broke off {left} bytes before the end");
            left -= read;
        }
        Ok(head)
    }

    /// [`Connection::ask`], with the body.
    ///
    /// # Errors
    /// As [`Connection::ask`].
    pub async fn fetch(&mut self, request: &[u8]) -> Result<(Head, Vec<u8>)> {
        let (head, left, begun) = self.begin(request).await?;
        let mut body = self.buffer[begun].to_vec();
        let read = body.len();
        body.resize(read + left, 0);
        self.stream.read_exact(&mut body[read..]).await.context("the server broke off")?;
        Ok((head, body))
    }

    /// Sends a request and reads the head of the answer alone; the rest stays in the kernel.
    ///
    /// # Errors
    /// As [`Connection::ask`].
    pub async fn stall(mut self, request: &[u8]) -> Result<Self> {
        self.begin(request).await?;
        Ok(self)
    }

    /// The head, how much of the body is to come, and where in the buffer is what has come of it.
    async fn begin(&mut self, request: &[u8]) -> Result<(Head, usize, Range<usize>)> {
        self.stream.write_all(request).await?;
        let mut filled = 0;
        let end = loop {
            let read = self.stream.read(&mut self.buffer[filled..]).await?;
            ensure!(read > 0, "the server closed the connection");
            filled += read;
            if let Some(end) = memmem::find(&self.buffer[..filled], b"\r\n\r\n") {
                break end + 4;
            }
            ensure!(filled < self.buffer.len(), "a head without an end");
        };
        let head = Head::read(&self.buffer[..end])?;
        let left = head.length.checked_sub(filled - end).context("more than one answer")?;
        Ok((head, left, end..filled))
    }
}

/// A `GET`, with a line of its own in the head.
pub fn get(path: &str, header: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: bench\r\n{header}\r\n").into_bytes()
}

/// A `POST`.
pub fn post(path: &str, kind: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// What came of many requests.
#[derive(Clone, Debug)]
pub struct Load {
    /// From the first request to the last answer.
    pub took: Duration,
    /// From each request to the end of its answer.
    pub times: Times,
}

impl Load {
    /// The time that the server had for each answer, in microseconds.
    pub fn micros_each(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a count of requests")]
        let count = self.times.len() as f64;
        self.took.as_secs_f64() * 1e6 / count
    }

    /// The time that each answer took, in the middle, in milliseconds.
    pub fn median_millis(&self) -> f64 {
        self.times.millis(0.5)
    }
}

/// How many requests are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// So many.
    Count(usize),
    /// As many as begin before this.
    Time(Timestamp),
}

impl Until {
    /// As many as begin from now on within this time.
    pub fn after(time: Duration) -> Self {
        Self::Time(SystemClock.elapsed() + time)
    }

    fn allows(self, number: usize) -> bool {
        match self {
            // One at least, so that there is something to look at.
            Self::Time(end) => number == 0 || !end.has_passed(SystemClock.elapsed()),
            Self::Count(count) => number < count,
        }
    }
}

/// Makes requests over some connections at once; on each the next one follows the answer. All answers must have
/// `status`.
///
/// # Errors
/// The server refused or broke off.
pub async fn load(
    address: SocketAddr,
    connections: usize,
    until: Until,
    status: u16,
    request: impl Fn(usize) -> Vec<u8> + Send + Sync + 'static,
) -> Result<Load> {
    let mut opened = Vec::new();
    for _ in 0..connections {
        opened.push(Connection::open(address).await?);
    }
    let (request, next) = (Arc::new(request), Arc::new(AtomicUsize::new(0)));
    let begun = SystemClock.elapsed();
    let mut tasks = JoinSet::new();
    for mut connection in opened {
        let (request, next) = (Arc::clone(&request), Arc::clone(&next));
        tasks.spawn(async move {
            let mut times = Times::new()?;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if !until.allows(number) {
                    return anyhow::Ok(times);
                }
                let request = request(number);
                let asked = SystemClock.elapsed();
                let head = connection.ask(&request).await?;
                times.record(SystemClock.elapsed().since(asked))?;
                ensure!(head.status == status, "{} and not {status} to request {number}", head.status);
            }
        });
    }
    let mut times = Times::new()?;
    while let Some(done) = tasks.join_next().await {
        times.add(&done??)?;
    }
    Ok(Load { took: SystemClock.elapsed().since(begun), times })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{machine::Cores, plain::Plain};

    #[test]
    fn a_head_says_its_status_and_length_and_one_that_does_not_is_refused() {
        let read = |text: &str| Head::read(text.as_bytes()).ok();
        let head = read("HTTP/1.1 200 OK\r\nContent-Length: 12\r\nETag: W/\"1\"\r\n\r\n");
        assert_eq!(head, Some(Head { status: 200, length: 12, etag: Some("W/\"1\"".to_owned()) }));
        assert_eq!(read("HTTP/1.1 304 -\r\n\r\n"), Some(Head { status: 304, length: 0, etag: None }));
        assert_eq!(read("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"), None);
        assert_eq!(read("nonsense"), None);
    }

    #[tokio::test]
    async fn requests_are_counted_over_all_connections_and_each_answer_is_read_to_its_end() {
        // Larger than what is read at once.
        let body = vec![b'x'; READ * 3 + 7];
        let plain = Plain::start(Cores::Shared, body.clone()).await.expect("a server");
        let done = load(plain.address(), 4, Until::Count(10), 200, |_| get("/", "")).await.expect("answers");
        assert_eq!(done.times.len(), 10);
        let mut connection = Connection::open(plain.address()).await.expect("a connection");
        let (head, read) = connection.fetch(&get("/", "")).await.expect("an answer");
        assert_eq!((head.length, read), (body.len(), body));
        let posted = connection.ask(&post("/", "text/plain", "hello")).await.expect("an answer");
        assert_eq!(posted.status, 200);
    }

    #[tokio::test]
    async fn an_answer_of_another_status_fails() {
        let plain = Plain::start(Cores::Shared, Vec::new()).await.expect("a server");
        assert!(load(plain.address(), 1, Until::Count(1), 201, |_| get("/", "")).await.is_err());
    }

    #[test]
    fn at_least_one_request_is_made_in_any_time() {
        let over = Until::Time(Timestamp::ZERO);
        assert_eq!([0, 1].map(|number| over.allows(number)), [true, false]);
        assert_eq!([1, 2].map(|number| Until::Count(2).allows(number)), [true, false]);
    }
}
