//! A connection that gives up on a client who does not take what it is sent.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream whose writes fail when the other end takes nothing for `limit`. Waiting without anything to write has no
/// limit here.
pub(super) struct WriteLimit<S, F> {
    stream: S,
    limit: Duration,
    /// Runs while a write waits for the other end.
    waiting: Option<Pin<Box<Sleep>>>,
    noticed: F,
}

impl<S, F: Fn()> WriteLimit<S, F> {
    /// Limits `stream`; `noticed` is called when it is given up.
    pub(super) const fn new(stream: S, limit: Duration, noticed: F) -> Self {
        Self { stream, limit, waiting: None, noticed }
    }
}

impl<S: AsyncWrite + Unpin, F: Fn()> WriteLimit<S, F> {
    fn limited<T>(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let written = write(Pin::new(&mut self.stream), context);
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let limit = self.limit;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(waiting.as_mut().poll(context));
        (self.noticed)();
        let message = format!("the client took nothing for {limit:?}");
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)))
    }
}

impl<S: AsyncRead + Unpin, F: Unpin> AsyncRead for WriteLimit<S, F> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin, F: Fn() + Unpin> AsyncWrite for WriteLimit<S, F> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.limited(context, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.limited(context, |stream, context| stream.poll_write_vectored(context, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.limited(context, |stream, context| stream.poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.limited(context, |stream, context| stream.poll_shutdown(context))
    }
}
