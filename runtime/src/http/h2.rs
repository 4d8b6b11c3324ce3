//! What HTTP/2 connections may do, in one place: it lets a client ask for much with few bytes.
//!
//! h2 itself ends a connection with GOAWAY when it sends more CONTINUATION frames than its header list may need, more
//! empty or tiny DATA frames than carry anything, or breaks the protocol; it holds frames back while its answers to
//! PING and SETTINGS are not taken, so that those cost no memory. It does not mind how many of them there are: see
//! [`super::flood`].

use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto;

use super::Limits;

/// Requests at once on a connection. A controller has five; a proxy that shares one connection among many clients
/// opens another. Each costs a task and what its handler holds.
const STREAMS: u32 = 100;

/// The most bytes of the headers of a request: several times what clients and proxies send.
const HEADER_BYTES: u32 = 16 * 1024;

/// The largest frame, the least that HTTP/2 allows: a small one does not wait long behind it.
const FRAME_BYTES: u32 = 16 * 1024;

/// Requests that were reset before they were looked at, at once. More is a rapid reset (CVE-2023-44487).
const RESETS: usize = 20;

/// Requests of a connection that broke the protocol, over its whole life: none of a client that works.
const ERRORS: usize = 1024;

/// What may be sent of one request before the handler has taken it: a chunk of endpoints.
const STREAM_WINDOW: u32 = 1024 * 1024;

/// The same of all requests of a connection.
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;

/// What waits to be sent of one answer, when the client does not take it.
const SEND_BYTES: usize = 64 * 1024;

/// The most bytes of the head of an HTTP/1.1 request, and of what is read at once.
const HTTP1_BYTES: usize = 64 * 1024;

pub(super) fn builder(limits: Limits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_read)
        .max_buf_size(HTTP1_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(limits.keep_alive)
        .keep_alive_timeout(limits.keep_alive_answer)
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADER_BYTES)
        .max_frame_size(FRAME_BYTES)
        .max_pending_accept_reset_streams(RESETS)
        .max_local_error_reset_streams(ERRORS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BYTES);
    builder
}
