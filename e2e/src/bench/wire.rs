//! As much of HTTP/2 and gRPC as a watcher needs that looks for marks in what it is told.
//!
//! A thousand watchers in one process would measure that process if each took its messages through a whole client.
//! This one opens one stream on a connection of its own, takes frames apart where they lie, and leaves messages
//! unread but for the marks in them. Every server that is compared is watched with it, so all are charged alike.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use memchr::memmem;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};

/// What a change carries so that watchers know it again: this, and its number.
const MAGIC: [u8; 8] = *b"\xe5mark\xe5\xff\x00";
/// Bytes of a mark.
pub const MARK_BYTES: usize = 16;

/// The bytes that mark the change of this number.
pub fn mark(number: u64) -> [u8; MARK_BYTES] {
    let mut mark = [0; MARK_BYTES];
    mark[..8].copy_from_slice(&MAGIC);
    mark[8..].copy_from_slice(&number.to_be_bytes());
    mark
}

/// Finds the numbers of marks.
#[derive(Clone, Debug)]
pub struct Finder(memmem::Finder<'static>);

impl Default for Finder {
    fn default() -> Self {
        Self(memmem::Finder::new(&MAGIC).into_owned())
    }
}

impl Finder {
    /// The numbers of all marks in a message.
    pub fn numbers<'a>(&'a self, message: &'a [u8]) -> impl Iterator<Item = u64> + 'a {
        let number = |place: usize| message.get(place + 8..place + MARK_BYTES)?.try_into().ok();
        self.0.find_iter(message).filter_map(number).map(u64::from_be_bytes)
    }
}

/// A gRPC call.
#[derive(Clone, Debug)]
pub struct Request {
    /// Such as `/package.Service/Method`.
    pub path: &'static str,
    /// The message.
    pub message: Vec<u8>,
    /// Whether it is the only one; else the stream stays open at our end too.
    pub only: bool,
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEAD: usize = 9;
const MESSAGE_HEAD: usize = 5;
/// The stream that we open.
const STREAM: u32 = 1;
/// What a connection may be sent before it says more, if we say nothing.
const DEFAULT_WINDOW: u32 = 65_535;
/// Longer frames were not allowed to anybody.
const MAX_FRAME: usize = 16_384;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const INITIAL_WINDOW_SIZE: u16 = 4;

/// One frame as bytes.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(FRAME_HEAD + payload.len());
    // Only what we make is framed, and that is short.
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    frame.extend_from_slice(&length[1..]);
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// A message as gRPC has it in a stream.
pub fn message(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut framed = vec![0];
    framed.extend_from_slice(&length.to_be_bytes());
    framed.extend_from_slice(message);
    framed
}

/// A message as frames of the stream that a watcher has opened.
pub fn data(text: &[u8]) -> Vec<u8> {
    message(text).chunks(MAX_FRAME).flat_map(|chunk| frame(DATA, 0, STREAM, chunk)).collect()
}

/// A header field in HPACK's plainest form: not indexed, not compressed. Lengths above 126 would need more bytes.
fn field(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).unwrap_or(126).min(126);
    let mut field = vec![0, length(name)];
    field.extend_from_slice(name.as_bytes());
    field.push(length(value));
    field.extend_from_slice(value.as_bytes());
    field
}

/// All that is sent to open the stream, which may be sent `window` bytes before it is read.
fn opening(authority: &str, request: &Request, window: u32) -> Vec<u8> {
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", request.path),
        (":authority", authority),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let fields: Vec<u8> = fields.into_iter().flat_map(|(name, value)| field(name, value)).collect();
    let mut setting = INITIAL_WINDOW_SIZE.to_be_bytes().to_vec();
    setting.extend_from_slice(&window.to_be_bytes());
    let mut bytes = PREFACE.to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &setting));
    if let Some(more) = window.checked_sub(DEFAULT_WINDOW).filter(|more| *more > 0) {
        bytes.extend(frame(WINDOW_UPDATE, 0, 0, &more.to_be_bytes()));
    }
    bytes.extend(frame(HEADERS, END_HEADERS, STREAM, &fields));
    let flags = if request.only { END_STREAM } else { 0 };
    bytes.extend(frame(DATA, flags, STREAM, &message(&request.message)));
    bytes
}

/// Takes what a server sends apart.
#[derive(Debug)]
struct Decoder {
    /// Bytes of a frame that is not whole yet.
    frames: Vec<u8>,
    /// Bytes of a message that is not whole yet.
    pending: Vec<u8>,
    /// Bytes that were read since the server was told that it may send more.
    unacknowledged: u32,
    window: u32,
}

impl Decoder {
    const fn new(window: u32) -> Self {
        Self { frames: Vec::new(), pending: Vec::new(), unacknowledged: 0, window }
    }

    /// Takes bytes, gives each whole message to `seen`, and adds what is to be answered to `answer`.
    fn take(&mut self, bytes: &[u8], answer: &mut Vec<u8>, mut seen: impl FnMut(&[u8])) -> Result<()> {
        if self.frames.is_empty() {
            let taken = self.take_frames(bytes, answer, &mut seen)?;
            self.frames.extend_from_slice(&bytes[taken..]);
        } else {
            self.frames.extend_from_slice(bytes);
            let frames = std::mem::take(&mut self.frames);
            let taken = self.take_frames(&frames, answer, &mut seen)?;
            self.frames = frames;
            self.frames.drain(..taken);
        }
        Ok(())
    }

    fn take_frames(
        &mut self,
        bytes: &[u8],
        answer: &mut Vec<u8>,
        seen: &mut impl FnMut(&[u8]),
    ) -> Result<usize> {
        let mut taken = 0;
        while let Some(head) = bytes.get(taken..taken + FRAME_HEAD) {
            let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
            ensure!(length <= MAX_FRAME, "a frame of {length} bytes came, at most {MAX_FRAME} are allowed");
            let (kind, flags) = (head[3], head[4]);
            let begin = taken + FRAME_HEAD;
            let Some(payload) = bytes.get(begin..begin + length) else { break };
            taken = begin + length;
            self.take_frame(kind, flags, payload, answer, seen)?;
        }
        Ok(taken)
    }

    fn take_frame(
        &mut self,
        kind: u8,
        flags: u8,
        payload: &[u8],
        answer: &mut Vec<u8>,
        seen: &mut impl FnMut(&[u8]),
    ) -> Result<()> {
        let text = || String::from_utf8_lossy(payload).into_owned();
        match kind {
            DATA => {
                ensure!(flags & PADDED == 0, "padded frames are not understood");
                self.take_data(payload, seen);
                self.unacknowledged += u32::try_from(payload.len())?;
                if self.unacknowledged >= self.window / 2 {
                    let more = std::mem::take(&mut self.unacknowledged).to_be_bytes();
                    answer.extend(frame(WINDOW_UPDATE, 0, 0, &more));
                    answer.extend(frame(WINDOW_UPDATE, 0, STREAM, &more));
                }
                ensure!(flags & END_STREAM == 0, "the server ended the watch");
            }
            HEADERS => ensure!(flags & END_STREAM == 0, "the server ended the watch: {}", text()),
            SETTINGS if flags & ACK == 0 => answer.extend(frame(SETTINGS, ACK, 0, &[])),
            PING if flags & ACK == 0 => answer.extend(frame(PING, ACK, 0, payload)),
            RESET => bail!("the server reset the watch: {payload:?}"),
            GO_AWAY => bail!("the server ends the connection: {}", text()),
            _ => {}
        }
        Ok(())
    }

    fn take_data(&mut self, mut payload: &[u8], seen: &mut impl FnMut(&[u8])) {
        while !payload.is_empty() {
            if let (true, Some(length)) = (self.pending.is_empty(), whole(payload)) {
                seen(&payload[MESSAGE_HEAD..length]);
                payload = &payload[length..];
                continue;
            }
            // The head comes first, since only it says how much follows.
            let wanted = length(&self.pending).unwrap_or(MESSAGE_HEAD);
            let (now, later) = payload.split_at(payload.len().min(wanted - self.pending.len()));
            self.pending.extend_from_slice(now);
            payload = later;
            if whole(&self.pending).is_some() {
                seen(&self.pending[MESSAGE_HEAD..]);
                self.pending.clear();
            }
        }
    }
}

/// How many bytes the message has that begins here, its head included; none while that is not said.
fn length(bytes: &[u8]) -> Option<usize> {
    let length: [u8; 4] = bytes.get(1..MESSAGE_HEAD)?.try_into().ok()?;
    Some(MESSAGE_HEAD + usize::try_from(u32::from_be_bytes(length)).ok()?)
}

/// [`length`], once that many bytes are there.
fn whole(bytes: &[u8]) -> Option<usize> {
    length(bytes).filter(|length| *length <= bytes.len())
}

/// How a watcher takes what it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appetite {
    /// The bytes that may be under way to it, by HTTP/2's flow control.
    pub window: u32,
    /// Of the socket's own buffer; the system's choice when it is none.
    pub buffer: Option<u32>,
}

impl Appetite {
    /// Takes all that comes.
    pub const LARGE: Self = Self { window: 8 * 1024 * 1024, buffer: None };
    /// What a client has that says nothing, behind a socket that adds little to it: one that stops to read is soon sent
    /// nothing more.
    pub const SMALL: Self = Self { window: DEFAULT_WINDOW, buffer: Some(16 * 1024) };
}

/// A connection with one stream, on which a server tells what happens.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    decoder: Decoder,
    input: Vec<u8>,
    answer: Vec<u8>,
}

impl Connection {
    /// Calls the server at `address`.
    ///
    /// # Errors
    /// It cannot be reached.
    pub async fn open(address: SocketAddr, request: &Request, appetite: Appetite) -> Result<Self> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        if let Some(buffer) = appetite.buffer {
            socket.set_recv_buffer_size(buffer)?;
        }
        let mut stream = socket.connect(address).await.with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true)?;
        stream.write_all(&opening(&address.to_string(), request, appetite.window)).await?;
        let decoder = Decoder::new(appetite.window);
        Ok(Self { stream, decoder, input: vec![0; 4 * MAX_FRAME], answer: Vec::new() })
    }

    /// Waits until the first message has come, which no one looks at, nor at what comes with it.
    ///
    /// # Errors
    /// As [`Connection::read`].
    pub async fn greeted(&mut self) -> Result<()> {
        let mut is_greeted = false;
        while !is_greeted {
            self.read(|| |_: &[u8]| is_greeted = true).await?;
        }
        Ok(())
    }

    /// Waits until something comes, and gives each message that is whole to what `seen` makes for this moment.
    ///
    /// # Errors
    /// The server ended the watch or the connection, or says what is not understood.
    pub async fn read<S: FnMut(&[u8])>(&mut self, seen: impl FnOnce() -> S) -> Result<()> {
        let read = self.stream.read(&mut self.input).await?;
        ensure!(read > 0, "the server closed the connection");
        self.decoder.take(&self.input[..read], &mut self.answer, seen())?;
        if !self.answer.is_empty() {
            self.stream.write_all(&self.answer).await?;
            self.answer.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a decoder makes of bytes that come in pieces of `size`: messages and answers.
    fn decoded(bytes: &[u8], size: usize, window: u32) -> Result<(Vec<Vec<u8>>, Vec<u8>)> {
        let mut decoder = Decoder::new(window);
        let (mut messages, mut answer) = (Vec::new(), Vec::new());
        for piece in bytes.chunks(size) {
            decoder.take(piece, &mut answer, |message| messages.push(message.to_vec()))?;
        }
        Ok((messages, answer))
    }

    #[test]
    fn messages_are_whole_however_frames_and_reads_cut_them() {
        let long = vec![7; 40_000];
        let messages = [&b"first"[..], b"", &long, b"last"];
        let mut stream: Vec<u8> = messages.iter().flat_map(|text| message(text)).collect();
        stream.extend(message(b"in one frame"));
        for cut in [1, 4, 5, 6, 1_000, MAX_FRAME] {
            let frames: Vec<u8> =
                stream.chunks(cut).flat_map(|chunk| frame(DATA, 0, STREAM, chunk)).collect();
            for size in [1, 8, 9, 10, 5_000, frames.len()] {
                let (seen, answer) = decoded(&frames, size, 1 << 30).expect("frames");
                let expected: Vec<_> = messages.iter().copied().chain([&b"in one frame"[..]]).collect();
                assert_eq!(seen, expected, "frames of {cut} bytes in reads of {size}");
                assert_eq!(answer, b"");
            }
        }
    }

    #[test]
    fn settings_and_pings_are_acknowledged_and_acknowledgements_are_not() {
        let bytes = [
            frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 9]),
            frame(SETTINGS, ACK, 0, &[]),
            frame(PING, 0, 0, b"12345678"),
            frame(PING, ACK, 0, b"12345678"),
            frame(HEADERS, END_HEADERS, STREAM, b"\x88"),
        ];
        let (seen, answer) = decoded(&bytes.concat(), 7, 1 << 20).expect("frames");
        assert!(seen.is_empty());
        assert_eq!(answer, [frame(SETTINGS, ACK, 0, &[]), frame(PING, ACK, 0, b"12345678")].concat());
    }

    #[test]
    fn the_server_may_send_more_when_half_of_the_window_is_read() {
        let bytes = [data(&[1; 45]), data(&[2; 44])].concat();
        let (seen, answer) = decoded(&bytes, bytes.len(), 100).expect("frames");
        assert_eq!(seen.len(), 2);
        let more = 50_u32.to_be_bytes();
        assert_eq!(answer, [frame(WINDOW_UPDATE, 0, 0, &more), frame(WINDOW_UPDATE, 0, 1, &more)].concat());
    }

    #[test]
    fn the_end_of_a_watch_is_an_error_that_says_how_it_ended() {
        let ends = [
            frame(HEADERS, END_HEADERS | END_STREAM, STREAM, b"grpc-status 14"),
            frame(RESET, 0, STREAM, &8_u32.to_be_bytes()),
            frame(GO_AWAY, 0, 0, b"\0\0\0\0\0\0\0\0drain"),
            frame(DATA, END_STREAM, STREAM, b""),
        ];
        let said = ends.map(|end| decoded(&end, 9, 100).expect_err("it ended").to_string());
        assert_eq!(
            said,
            [
                "the server ended the watch: grpc-status 14",
                "the server reset the watch: [0, 0, 0, 8]",
                "the server ends the connection: \0\0\0\0\0\0\0\0drain",
                "the server ended the watch",
            ]
        );
    }

    #[test]
    fn marks_are_found_wherever_they_are_in_a_message_and_half_ones_are_not() {
        let text = [b"a".as_slice(), &mark(7), b"between", &mark(u64::MAX), &mark(9)[..15]].concat();
        assert_eq!(Finder::default().numbers(&text).collect::<Vec<_>>(), [7, u64::MAX]);
    }
}
