//! A connection that gives up on a client whose HTTP/2 frames ask for nothing.
//!
//! PING, SETTINGS, RST_STREAM, PRIORITY, WINDOW_UPDATE, empty DATA and frames of unknown types cost a client nine bytes
//! and the server an answer, a lookup or a log line; h2 takes as many as come. They are counted here, on the plain side
//! of TLS, as they are read. Who reads much may send many: each KiB that is written pays for one frame, since clients
//! answer data with WINDOW_UPDATE and, to learn how far away the server is, with PING.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use mcs_core::rate::{Bucket, Rate};
use mcs_core::time::Clock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::clock::SystemClock;

/// How many such frames a client may send beside those that it pays for: a client that is told 250 changes a second
/// and answers each of them twice stays below, a flood is a hundred times that.
const RATE: Rate = Rate::per_second(1_000).with_burst(2_000);

/// Bytes written that pay for one frame.
const BYTES_A_FRAME: usize = 1024;

/// A stream whose reads fail when too many frames come.
pub(super) struct FloodGuard<S, F> {
    stream: S,
    frames: Frames,
    bucket: Bucket,
    unpaid: usize,
    noticed: F,
}

impl<S, F: Fn()> FloodGuard<S, F> {
    /// Guards `stream`; `noticed` is called when it is given up.
    pub(super) fn new(stream: S, noticed: F) -> Self {
        Self { stream, frames: Frames::default(), bucket: Bucket::default(), unpaid: 0, noticed }
    }
}

impl<S: AsyncRead + Unpin, F: Fn() + Unpin> AsyncRead for FloodGuard<S, F> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let count = self.frames.read(&buffer.filled()[before..]);
        // Frames come by this clock, also where a test moves the one of the program.
        if count > 0 && self.bucket.take(RATE, count, SystemClock.elapsed()).is_err() {
            (self.noticed)();
            return Poll::Ready(Err(io::Error::other("too many frames that ask for nothing")));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin, F: Unpin> FloodGuard<S, F> {
    fn written(&mut self, result: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = result {
            self.unpaid += bytes;
            let frames = self.unpaid / BYTES_A_FRAME;
            self.unpaid %= BYTES_A_FRAME;
            self.bucket.give(RATE, u32::try_from(frames).unwrap_or(u32::MAX));
        }
    }
}

impl<S: AsyncWrite + Unpin, F: Unpin> AsyncWrite for FloodGuard<S, F> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.written(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// What an HTTP/2 client sends before its first frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The bytes of the head of a frame: three of the length, one of the type, one of flags, four of the stream.
const HEAD: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;

/// Counts frames that ask for nothing in what an HTTP/2 client sends.
#[derive(Debug, PartialEq, Eq)]
enum Frames {
    /// So many bytes of the preface came.
    Preface(usize),
    /// So many bytes of a frame's head came.
    Head([u8; HEAD], usize),
    /// So many bytes of a frame are to come.
    Payload(usize),
    /// It is not HTTP/2.
    Other,
}

impl Default for Frames {
    fn default() -> Self {
        Self::Preface(0)
    }
}

impl Frames {
    /// Reads on, and says how many such frames began.
    fn read(&mut self, mut bytes: &[u8]) -> u32 {
        let mut count = 0;
        while !bytes.is_empty() {
            let taken = match self {
                Self::Other => return count,
                Self::Preface(known) => {
                    let wanted = &PREFACE[*known..];
                    let taken = wanted.len().min(bytes.len());
                    *self = match (wanted[..taken] == bytes[..taken], *known + taken) {
                        (false, _) => Self::Other,
                        (true, known) if known < PREFACE.len() => Self::Preface(known),
                        (true, _) => Self::Head([0; HEAD], 0),
                    };
                    taken
                }
                Self::Head(head, known) => {
                    let taken = (HEAD - *known).min(bytes.len());
                    head[*known..*known + taken].copy_from_slice(&bytes[..taken]);
                    *known += taken;
                    if *known == HEAD {
                        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
                        let asks = match head[3] {
                            HEADERS => true,
                            DATA => length > 0,
                            _ => false,
                        };
                        count += u32::from(!asks);
                        *self = if length == 0 { Self::Head([0; HEAD], 0) } else { Self::Payload(length) };
                    }
                    taken
                }
                Self::Payload(left) => {
                    let taken = (*left).min(bytes.len());
                    *self = match *left - taken {
                        0 => Self::Head([0; HEAD], 0),
                        left => Self::Payload(left),
                    };
                    taken
                }
            };
            bytes = &bytes[taken..];
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    const CONTINUATION: u8 = 9;

    fn frame(kind: u8, length: u8) -> Vec<u8> {
        let mut frame = vec![0, 0, length, kind, 0, 0, 0, 0, 1];
        frame.resize(HEAD + usize::from(length), PING);
        frame
    }

    fn connection() -> Vec<u8> {
        let frames = [
            frame(SETTINGS, 12),
            frame(HEADERS, 40),
            frame(DATA, 200),
            frame(PING, 8),
            frame(DATA, 0),
            frame(CONTINUATION, 0),
            frame(0xff, 1),
            frame(HEADERS, 0),
        ];
        [PREFACE.to_vec(), frames.concat()].concat()
    }

    #[test]
    fn frames_that_ask_for_nothing_are_counted_and_requests_are_not() {
        assert_eq!(Frames::default().read(&connection()), 5);
    }

    #[test]
    fn it_does_not_matter_how_the_bytes_arrive() {
        let bytes = connection();
        for size in 1..bytes.len() {
            let mut frames = Frames::default();
            let count: u32 = bytes.chunks(size).map(|piece| frames.read(piece)).sum();
            assert_eq!((count, frames), (5, Frames::Head([0; HEAD], 0)), "in pieces of {size}");
        }
    }

    #[test]
    fn what_is_not_http2_is_not_counted() {
        let mut frames = Frames::default();
        assert_eq!(frames.read(b"PRI * HTTP/1.1\r\n\r\n"), 0);
        assert_eq!((frames.read(&connection()), frames), (0, Frames::Other));
    }
}
