//! Clients as no one should be: frames of HTTP/2 that no client would send, and requests that never end.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::testing::LIMIT;

pub mod floods;
pub mod slow;

/// The type of a DATA frame.
pub const DATA: u8 = 0;
/// The type of a HEADERS frame.
pub const HEADERS: u8 = 1;
/// The type of a PRIORITY frame.
pub const PRIORITY: u8 = 2;
/// The type of a RST_STREAM frame.
pub const RST_STREAM: u8 = 3;
/// The type of a SETTINGS frame.
pub const SETTINGS: u8 = 4;
/// The type of a PING frame.
pub const PING: u8 = 6;
/// The type of a WINDOW_UPDATE frame.
pub const WINDOW_UPDATE: u8 = 8;
/// The type of a CONTINUATION frame.
pub const CONTINUATION: u8 = 9;

/// A flag of SETTINGS and PING: it is an answer.
pub const ACK: u8 = 1;
/// A flag: nothing follows on the stream.
pub const END_STREAM: u8 = 1;
/// A flag: no CONTINUATION follows.
pub const END_HEADERS: u8 = 4;

/// What a client sends before its first frame.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}

/// The headers of a request, as HPACK without a table of its own.
pub fn headers(method: &str, path: &str) -> Vec<u8> {
    let of = if path.starts_with("/dynamo.") { "application/grpc" } else { "application/json" };
    // Names by their index in the static table: :method, :path, :authority, content-type; then `te: trailers`.
    let mut block = vec![0x86];
    for (name, value) in [(&[0x02][..], method), (&[0x04], path), (&[0x01], "test"), (&[0x0f, 0x10], of)] {
        block.extend([name, &[u8::try_from(value.len()).unwrap()], value.as_bytes()].concat());
    }
    block.extend(b"\x00\x02te\x08trailers");
    block
}

/// A slow client says something every so often.
const DRIP: Duration = Duration::from_secs(1);

/// Connections that are opened at once, fewer than wait in the queue of a port.
const AT_ONCE: usize = 256;

/// Opens connections of HTTP/2 that are served once and then want nothing, which is what lasts; they live in `held`.
pub async fn hold_idle(held: &mut JoinSet<()>, count: usize, address: SocketAddr, method: &str, path: &str) {
    let (method, path) = (method.to_owned(), path.to_owned());
    for begun in (0..count).step_by(AT_ONCE) {
        let mut opening = JoinSet::new();
        for _ in begun..count.min(begun + AT_ONCE) {
            let (method, path) = (method.clone(), path.clone());
            opening.spawn(async move {
                let mut raw = Raw::http2(address).await;
                raw.ask(&method, &path).await;
                raw
            });
        }
        for mut raw in tokio::time::timeout(LIMIT, opening.join_all()).await.unwrap() {
            held.spawn(async move { raw.idle().await });
        }
    }
}

/// A connection.
pub struct Raw {
    stream: TcpStream,
}

/// A frame that came.
struct Came {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Raw {
    /// Connects, and says nothing.
    pub async fn connect(address: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.unwrap() }
    }

    /// Connects, and begins HTTP/2.
    pub async fn http2(address: SocketAddr) -> Self {
        let mut raw = Self::connect(address).await;
        raw.begin_http2().await;
        raw
    }

    /// Begins HTTP/2.
    async fn begin_http2(&mut self) {
        self.send(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await;
    }

    /// Sends this, and says whether the connection still takes it.
    pub async fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok()
    }

    /// Asks for something, and reads to the head of the answer.
    pub async fn ask(&mut self, method: &str, path: &str) {
        self.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &headers(method, path))).await;
        while read(&mut self.stream).await.unwrap().kind != HEADERS {}
    }

    /// Calls a gRPC method, and waits for nothing.
    pub async fn post(&mut self, stream: u32, path: &str, message: &[u8]) {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        let data = [&[0], &length[..], message].concat();
        let head = frame(HEADERS, END_HEADERS, stream, &headers("POST", path));
        self.send(&[head, frame(DATA, END_STREAM, stream, &data)].concat()).await;
    }

    /// Lives on as a client does that wants nothing: answers what must be answered, until the connection is closed.
    pub async fn idle(&mut self) {
        while let Some(Came { kind, flags, payload, .. }) = read(&mut self.stream).await {
            if matches!(kind, SETTINGS | PING) && flags & ACK == 0 {
                let payload = if kind == PING { &payload[..] } else { &[] };
                self.send(&frame(kind, ACK, 0, payload)).await;
            }
        }
    }

    /// Sends what `next` gives until the connection is closed; reads what comes, or nothing.
    pub async fn flood(self, reads: bool, mut next: impl FnMut(u32) -> Vec<u8>) {
        let (mut answers, mut asks) = self.stream.into_split();
        let sending = async {
            // Many at once, so that they come as fast as the server takes them.
            for from in (0..u32::MAX / 2).step_by(64) {
                let bytes: Vec<_> = (from..from + 64).flat_map(&mut next).collect();
                if asks.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        };
        let reading = async {
            let mut taken = vec![0; 16 * 1024];
            while reads && answers.read(&mut taken).await.is_ok_and(|bytes| bytes > 0) {}
        };
        tokio::time::timeout(LIMIT, async { tokio::join!(sending, reading) }).await.unwrap();
    }

    /// Sends this every second, until the connection is closed.
    pub async fn drip(self, bytes: &[u8]) {
        let (mut answers, mut asks) = self.stream.into_split();
        let mut pauses = tokio::time::interval(DRIP);
        let dripping = async {
            loop {
                pauses.tick().await;
                if asks.write_all(bytes).await.is_err() {
                    return;
                }
            }
        };
        let mut taken = [0; 1024];
        let closed = async { while answers.read(&mut taken).await.is_ok_and(|bytes| bytes > 0) {} };
        let ended = async {
            tokio::select! { () = closed => {}, () = dripping => {} }
        };
        tokio::time::timeout(LIMIT, ended).await.unwrap();
    }

    /// Sends this every second, until the server ends the stream.
    pub async fn ended(&mut self, stream: u32, bytes: &[u8]) {
        let mut pauses = tokio::time::interval(DRIP);
        let (mut answers, mut asks) = self.stream.split();
        let dripping = async {
            loop {
                pauses.tick().await;
                asks.write_all(bytes).await.unwrap();
            }
        };
        let answered = async {
            loop {
                let came = read(&mut answers).await.unwrap();
                let ends = came.kind == RST_STREAM
                    || matches!(came.kind, HEADERS | DATA) && came.flags & END_STREAM != 0;
                if came.stream == stream && ends {
                    return;
                }
            }
        };
        let ended = async {
            tokio::select! { () = answered => {}, () = dripping => {} }
        };
        tokio::time::timeout(LIMIT, ended).await.unwrap();
    }
}

/// The next frame; none when the connection is closed.
async fn read(from: &mut (impl AsyncRead + Unpin)) -> Option<Came> {
    let mut head = [0; 9];
    from.read_exact(&mut head).await.ok()?;
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    from.read_exact(&mut payload).await.ok()?;
    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    Some(Came { kind: head[3], flags: head[4], stream, payload })
}
