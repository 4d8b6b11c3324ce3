//! Limits (O63): what is too large is refused before it is held, and names the limit.

use axum::body::{Body, Bytes};
use http_body_util::BodyExt;
use mcs_proto::pb;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::http::{EAST, call, get, open, post_lines, request, send};
use super::lists::base64;
use super::writes::{addresses, spec};
use crate::started::{LIMIT, Started, http, prod, put};

/// The limit of `Started`.
const MOST: usize = 4 * 1024 * 1024;

const CART: &str = "/v1/clustersets/prod/clusters/east/exports/shop/cart";

fn too_large() -> Value {
    json!({
        "code": 8,
        "message": "a message has at most 4194304 bytes here (--max-message-bytes); larger sets of endpoints go in chunks",
        "details": [{
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "LIMIT",
            "domain": "mcs-registry.dynamo.nvidia.com",
            "metadata": {"limit": "max-message-bytes", "most": "4194304"},
        }],
    })
}

#[tokio::test]
async fn a_length_above_the_limit_is_refused_before_the_body_is_sent() {
    let registry = Started::new().await;
    let mut stream = TcpStream::connect(registry.rest).await.unwrap();
    let head = format!(
        "PUT {EAST} HTTP/1.1\r\nhost: test\r\ncontent-length: 100000000\r\nexpect: 100-continue\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(LIMIT, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 413 "), "{head}");
    assert_eq!(serde_json::from_str::<Value>(body).unwrap(), too_large());
}

#[tokio::test]
async fn a_body_without_a_length_is_read_to_the_limit() {
    let registry = Started::new().await;
    registry.register("east").await;
    let endless = |first: &'static str| {
        let blanks = std::iter::repeat_n(Bytes::from(vec![b' '; 64 * 1024]), MOST / (64 * 1024) + 1);
        let frames = std::iter::once(Bytes::from(first)).chain(blanks);
        Body::from_stream(futures::stream::iter(frames.map(Ok::<_, std::convert::Infallible>)))
    };
    let one = send(&registry, request("PUT", EAST, endless("{"))).await;
    assert_eq!((one.status, one.json()), (413, too_large()));
    let stream = send(&registry, request("POST", &format!("{EAST}/write"), endless("{\"x\":\""))).await;
    assert_eq!((stream.status, stream.json()), (413, too_large()));
    // Of a stream, each message has the limit, and the blanks between them are not held.
    let ends = send(&registry, request("POST", &format!("{EAST}/write"), endless(" "))).await;
    assert_eq!((ends.status, &ends.json()["message"]), (400, &json!("the first message: is missing")));
}

#[tokio::test]
async fn a_body_of_the_limit_is_read_and_one_byte_more_is_not() {
    let registry = Started::new().await;
    registry.register("east").await;
    let body = |bytes: usize| {
        let renewal =
            json!({"uid": "uid-of-east", "version": {"term": 1, "seq": 1}, "sum": base64(&[0; 16])});
        let text = renewal.to_string();
        text.clone() + &" ".repeat(bytes - text.len())
    };
    let renew = format!("{EAST}/renew");
    assert_eq!(send(&registry, request("POST", &renew, body(MOST))).await.status, 200);
    assert_eq!(send(&registry, request("POST", &renew, body(MOST + 1))).await.status, 413);
}

/// O19: a set above the limit is refused whole, and passes in chunks.
#[tokio::test]
async fn a_large_set_is_refused_in_one_message_and_passes_in_chunks() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    east.write(&[put("cart", 1)]).await;
    let all: Vec<_> = (0..100_000_u32)
        .map(|number| format!("10.{}.{}.{}", number >> 16, number >> 8 & 255, number & 255))
        .collect();
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    let head = json!({"uid": "uid-of-east", "version": {"term": 1, "seq": 3}});
    let mut one = head.clone();
    one["leaf"] = base64(&[1; 16]);
    one["spec"] = spec();
    one["endpoints"] = addresses(&all);
    assert_eq!(call(&registry, "PUT", CART, one).await, (413, too_large()));
    assert_eq!(get(&registry, CART).await.1["endpointCount"], 1);

    let key = json!({"namespace": "shop", "name": "cart"});
    let mut lines = vec![head];
    let chunks: Vec<_> = all.chunks(20_000).collect();
    for (place, chunk) in chunks.iter().enumerate() {
        let mut endpoints = addresses(chunk);
        endpoints["more"] = (place + 1 < chunks.len()).into();
        let act = match place {
            0 => {
                json!({"key": key, "put": {"leaf": base64(&[1; 16]), "spec": spec(), "endpoints": endpoints}})
            }
            _ => json!({"key": key, "chunk": endpoints}),
        };
        lines.push(json!({"ops": [act]}));
    }
    let (status, written) = post_lines(&registry, &format!("{EAST}/write"), &lines).await;
    assert_eq!((status, &written[0]["results"][0]["dropped"]), (200, &json!([])));
    let got = get(&registry, &format!("{CART}?includeEndpoints=true")).await.1;
    let got: pb::Export = serde_json::from_value(got).unwrap();
    let (exports, _) = registry.client.list_exports(&prod(), true).await.unwrap();
    assert_eq!((got.endpoint_count, got.endpoints), (100_000, exports[0].endpoints.clone()));
}

#[tokio::test]
async fn a_write_of_too_many_changes_is_refused_as_a_whole() {
    let registry = Started::with(|policy| policy.max_exports = 2).await;
    registry.register("east").await;
    let op = |number: u32| {
        let key = json!({"namespace": "shop", "name": format!("service-{number}")});
        json!({"key": key, "put": {"leaf": base64(&[1; 16]), "spec": spec()}})
    };
    let write = async |seq: u64, count: u32| {
        let ops: Vec<_> = (0..count).map(op).collect();
        let message = json!({"uid": "uid-of-east", "version": {"term": 1, "seq": seq}, "ops": ops});
        call(&registry, "POST", &format!("{EAST}/write"), message).await
    };
    let (status, refused) = write(2, 5).await;
    let metadata = json!({"limit": "write-changes", "most": "4"});
    assert_eq!((status, &refused["code"], &refused["details"][0]["metadata"]), (429, &json!(8), &metadata));
    assert_eq!(registry.client.list_exports(&prod(), false).await.unwrap().0, []);
    // Those above the limit of exports are refused one by one.
    let (status, written) = write(2, 3).await;
    let refused: Vec<_> =
        written["results"].as_array().unwrap().iter().map(|result| result["refused"].is_object()).collect();
    assert_eq!((status, refused), (200, vec![false, false, true]));
}

/// Where it is the only change of the call, the call meets the limit.
#[tokio::test]
async fn an_export_above_the_limit_names_the_limit() {
    let registry = Started::with(|policy| policy.max_exports = 1).await;
    registry.register("east").await;
    let put = async |name: &str, seq: u64| {
        let message = json!({"uid": "uid-of-east", "version": {"term": 1, "seq": seq}, "leaf": base64(&[1; 16]), "spec": spec()});
        call(&registry, "PUT", &format!("{EAST}/exports/shop/{name}"), message).await
    };
    assert_eq!(put("one", 2).await.0, 200);
    let (status, refused) = put("two", 3).await;
    let info = &refused["details"][0];
    let message = "the cluster has 1 exports, the most that this registry takes (--max-exports-per-cluster): delete one, or \
                   raise it";
    assert_eq!(
        (status, &refused["code"], &refused["message"], &info["reason"], &info["metadata"]),
        (
            429,
            &json!(8),
            &json!(message),
            &json!("LIMIT"),
            &json!({"limit": "max-exports-per-cluster", "most": "1"})
        )
    );
    let (_, text) = http(registry.admin, "GET", "/metrics").await;
    let counted = "mcs_registry_limits_hit_total{limit=\"max-exports-per-cluster\"} 1";
    assert!(text.lines().any(|line| line == counted), "{text}");
}

#[tokio::test]
async fn watches_and_syncs_of_both_ports_share_one_limit() {
    let registry = Started::configured(|config| config.max_streams = 1).await;
    registry.register("east").await;
    let watch = "/v1/clustersets/prod/imports/watch?cluster=importer";
    let (grpc, _) = registry.watch().await;
    let message = "this registry has 1 streams open, the most that it takes (--max-streams): go on with another, or try \
                   again later";
    let full = json!({
        "code": 8,
        "message": message,
        "details": [{
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "FULL",
            "domain": "mcs-registry.dynamo.nvidia.com",
            "metadata": {"limit": "max-streams", "most": "1"},
        }],
    });
    let refused = send(&registry, request("GET", watch, "")).await;
    assert_eq!((refused.status, refused.header("retry-after"), refused.json()), (429, "1", full.clone()));
    let begin = json!({"begin": {"uid": "uid-of-east", "version": {"term": 1, "seq": 2}}});
    let sync = format!("{EAST}/sync");
    assert_eq!(post_lines(&registry, &sync, std::slice::from_ref(&begin)).await, (429, vec![full]));

    // A place that is given back is taken again, by whichever port.
    drop(grpc);
    let retried = async {
        loop {
            let (status, _) = post_lines(&registry, &sync, std::slice::from_ref(&begin)).await;
            if status == 200 {
                return;
            }
            assert_eq!(status, 429);
        }
    };
    tokio::time::timeout(LIMIT, retried).await.unwrap();
}

#[tokio::test]
async fn few_large_answers_are_held_and_small_ones_are_answered_meanwhile() {
    let registry = Started::new().await;
    // More than the connections hold.
    registry.register("east").await.write(&[put("large", 100_000), put("cart", 1)]).await;
    let large = "/v1/clustersets/prod/imports?includeEndpoints=true";
    let mut unread = Vec::new();
    for _ in 0..4 {
        unread.push(open(registry.rest, request("GET", large, "")).await);
        assert_eq!(unread.last().unwrap().status(), 200);
    }
    let refused = get(&registry, large).await;
    let metadata = json!({"limit": "large-answers", "most": "4"});
    assert_eq!((refused.0, &refused.1["details"][0]["metadata"]), (429, &metadata));
    assert_eq!(get(&registry, &format!("{CART}?includeEndpoints=true")).await.0, 200);

    // One that is read to its end makes room, and is whole.
    let body = unread.pop().unwrap().into_body().collect().await.unwrap().to_bytes();
    let read: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(read["imports"][1]["parts"][0]["endpointCount"], 100_000);
    let again = async {
        loop {
            let answer = send(&registry, request("GET", large, "")).await;
            if answer.status == 200 {
                return answer.text;
            }
        }
    };
    assert!(tokio::time::timeout(LIMIT, again).await.unwrap().as_bytes() == &*body);
}
