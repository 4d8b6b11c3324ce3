//! Texts that must reach no log, metric, path or header as they are.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{LIMIT, Process};

/// Would begin a line of its own in a log, colour a terminal, and be another path, header or label.
pub const TEXTS: [&str; 9] = [
    "evil\nevil starts",
    "evil\r\nevil: 1",
    "evil\u{1b}[31m\u{7}",
    "evil\0",
    "evil\u{85}\u{9b}31m",
    "evil\"} 1\nevil_total{x=\"",
    "../../evil",
    "%2e%2e%2fevil%0d%0aevil",
    "еvil\u{202e}",
];

/// What a terminal obeys, or shows otherwise than it is.
pub fn is_control(char: char) -> bool {
    char.is_control() || matches!(char, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Sends heads of requests as they are: none of them is served.
pub async fn refuses(address: SocketAddr, heads: impl IntoIterator<Item = String>) {
    for head in heads {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("{head}\r\nhost: test\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // Some are no HTTP, and are closed without an answer or with a reset.
        let _ = tokio::time::timeout(LIMIT, stream.read_to_end(&mut answer)).await.unwrap();
        assert!(!answer.starts_with(b"HTTP/1.1 200"), "{head:?} is served");
    }
}

/// The log of a program, written in `format`, and its metrics have none of [`TEXTS`] as it is.
pub fn look_at(program: &Process, format: &str, metrics: &str) {
    assert!(metrics.starts_with('#') && !metrics.contains("vil"), "{metrics}");
    let begin = if format == "json" { "{\"" } else { "20" };
    for line in program.log() {
        assert!(line.starts_with(begin), "a line was made: {line}");
        assert!(!line.contains(is_control), "raw control characters: {line:?}");
    }
}
