//! What is hostile never reaches a log or a metric as it is. That each field and path is refused, and how, is tested in
//! process.

use crate::program::Program;
use crate::service::{ask, registration};
use mcs_runtime::testing::hostile::{TEXTS, is_control, look_at, refuses};
use serde_json::{Value, json};

#[tokio::test]
async fn what_is_hostile_makes_no_line_of_a_log_and_no_label_of_a_metric() {
    for format in ["text", "json"] {
        let program = Program::start(&["--log-level=debug", &format!("--log-format={format}")]).await;
        for hostile in TEXTS {
            in_bodies(&program, hostile).await;
            in_heads(&program, hostile).await;
        }
        let (status, metrics) = ask(program.address, "GET", "/metrics", "").await;
        assert_eq!(status, 200);
        look_at(&program, format, &metrics);
    }
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
    let heads = [
        format!("GET /{hostile} HTTP/1.1"),
        format!("GET /pools/{hostile} HTTP/1.1"),
        format!("{hostile} /pools HTTP/1.1"),
        format!("PUT /pools HTTP/1.1\r\nif-none-match: {hostile}"),
    ];
    refuses(program.address, heads).await;
}
