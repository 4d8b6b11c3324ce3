//! What is hostile never reaches a log or a metric as it is. That each field and path is refused, and how, is tested in
//! process.

use crate::program::Program;
use crate::service::{PATIENCE, ask, registration};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Would begin a line of its own in a log, colour a terminal, and be another path, header or label.
const HOSTILE: [&str; 9] = [
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

#[tokio::test]
async fn what_is_hostile_makes_no_line_of_a_log_and_no_label_of_a_metric() {
    for format in ["text", "json"] {
        let program = Program::start(&["--log-level=debug", &format!("--log-format={format}")]).await;
        for hostile in HOSTILE {
            in_bodies(&program, hostile).await;
            in_heads(&program, hostile).await;
        }
        let (status, metrics) = ask(program.address, "GET", "/metrics", "").await;
        assert!(status == 200 && !metrics.contains("vil"), "{metrics}");
        for line in program.log() {
            let begins_as_ours =
                if format == "json" { line.starts_with("{\"") } else { line.starts_with("20") };
            assert!(begins_as_ours, "a line was made: {line}");
            assert!(!line.contains(is_control), "raw control characters: {line:?}");
        }
    }
}

/// What a terminal obeys, or shows otherwise than it is.
fn is_control(char: char) -> bool {
    char.is_control() || matches!(char, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// In each text of a registration in turn, and as the name of a field.
async fn in_bodies(program: &Program, hostile: &str) {
    let key = |part: &str| {
        let mut body = registration("chat");
        body["key"][part] = json!(hostile);
        body
    };
    let field = |name: &str, value: Value| {
        let mut body = registration("chat");
        body[name] = value;
        body
    };
    for body in ["cluster_id", "namespace", "dgd_name"].map(key) {
        assert_eq!(ask(program.address, "POST", "/pools", &body.to_string()).await.0, 422, "{body}");
    }
    for body in [
        field("model", json!(hostile)),
        field("capabilities", json!([hostile])),
        field("location", json!({"region": hostile})),
        field("frontends", json!([hostile])),
        field("frontends", json!([format!("http://{hostile}/")])),
        field(hostile, json!({hostile: [hostile]})),
    ] {
        let (status, told) = ask(program.address, "POST", "/pools", &body.to_string()).await;
        assert!(matches!(status, 200 | 422), "{status} {told}");
        assert!(!told.contains(is_control), "{told:?}");
    }
}

/// In the path, the method and a header, as it is.
async fn in_heads(program: &Program, hostile: &str) {
    for head in [
        format!("GET /{hostile} HTTP/1.1"),
        format!("GET /pools/{hostile} HTTP/1.1"),
        format!("{hostile} /pools HTTP/1.1"),
        format!("PUT /pools HTTP/1.1\r\nif-none-match: {hostile}"),
    ] {
        let mut stream = TcpStream::connect(program.address).await.unwrap();
        let request = format!("{head}\r\nhost: test\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // Some are no HTTP, and are closed without an answer or with a reset.
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap();
        assert!(!answer.starts_with(b"HTTP/1.1 200"), "{head:?} is served");
    }
}
