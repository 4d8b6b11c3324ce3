//! Errors: each call × each kind of bad input → HTTP code, gRPC code, reason and field; and their whole shape.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::http::{EAST, call, get, post_lines, request, send};
use super::lists::base64;
use super::writes::spec;
use crate::started::{LIMIT, Started, http, put};

const CART: &str = "/v1/clustersets/prod/clusters/east/exports/shop/cart";
const WEST: &str = "/v1/clustersets/prod/clusters/west";

#[tokio::test]
async fn every_call_says_which_field_is_wrong() {
    let registry = Started::new().await;
    registry.register("east").await;
    let sum = || base64(&[0; 16]);
    let version = || json!({"term": "1", "seq": "2"});
    let none = Value::Null;
    let put = |change: Value| {
        let mut body = json!({"uid": "uid-of-east", "version": version(), "leaf": sum(), "spec": spec()});
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        body
    };
    let port = |port: Value| put(json!({"spec": {"createdAt": "2026-01-01T00:00:00Z", "ports": [port]}}));
    let renew = format!("{EAST}/renew");
    let endpoints = format!("{CART}/endpoints");
    let cases = [
        ("PUT", EAST, json!({}), "uid", "\"\" must not be empty"),
        ("PUT", EAST, json!({"uid": "u-1"}), "version", "is missing"),
        (
            "PUT",
            EAST,
            json!({"uid": "u-1", "version": {}, "sum": "AAAA"}),
            "sum",
            "has 3 bytes, must have 16",
        ),
        ("PUT", EAST, json!({"uid": "u_1"}), "uid", "\"u_1\" must consist of letters, digits and '-'"),
        ("PUT", EAST, json!({"uid": "u-1", "region": "a b"}), "region", "\"a b\" must consist of"),
        ("PUT", EAST, json!({"uid": 7}), "uid", "invalid type: integer `7`, expected a string"),
        ("PUT", EAST, json!({"sum": "*"}), "sum", "Invalid symbol 42, offset 0."),
        (
            "PUT",
            EAST,
            json!({"version": {"term": -1}}),
            "version.term",
            "must be a whole number that the field can hold",
        ),
        (
            "PUT",
            EAST,
            json!({"version": {"term": "x"}}),
            "version.term",
            "must be a whole number that the field can hold",
        ),
        (
            "PUT",
            EAST,
            json!({"cluster": "west"}),
            "cluster",
            "is \"west\" in the body, but \"east\" in the path",
        ),
        ("PUT", EAST, json!({"clusterset": 7}), "clusterset", "is 7 in the body, but \"prod\" in the path"),
        ("PUT", EAST, json!([]), "the body", "must be a JSON object"),
        ("PUT", EAST, none.clone(), "the body", "is empty, must be a JSON object"),
        ("POST", &renew, json!({"uid": "uid-of-east"}), "version", "is missing"),
        (
            "POST",
            &renew,
            json!({"uid": "uid-of-east", "version": version()}),
            "sum",
            "has 0 bytes, must have 16",
        ),
        ("PUT", CART, put(json!({"leaf": "AA=="})), "leaf", "has 1 bytes, must have 16"),
        ("PUT", CART, put(json!({"spec": null})), "spec", "is missing"),
        ("PUT", CART, put(json!({"spec": {}})), "spec.createdAt", "is missing"),
        (
            "PUT",
            CART,
            put(json!({"spec": {"createdAt": "soon"}})),
            "spec.createdAt",
            "\"soon\" is not an RFC 3339 time",
        ),
        (
            "PUT",
            CART,
            put(json!({"spec": {"type": "NODE_PORT"}})),
            "spec.type",
            "unknown variant `NODE_PORT`",
        ),
        (
            "PUT",
            CART,
            put(json!({"spec": {"type": "\u{1b}[31m\n"}})),
            "spec.type",
            "unknown variant `\\u{1b}[31m\\n`",
        ),
        (
            "PUT",
            CART,
            put(json!({"spec": {"labels": {"a\r\nb": 7}}})),
            "spec.labels.a\\r\\nb",
            "invalid type: integer `7`",
        ),
        ("PUT", CART, port(json!({"port": 70_000})), "spec.ports[0].port", "70000 must be 1 to 65535"),
        (
            "PUT",
            CART,
            port(json!({"port": true})),
            "spec.ports[0].port",
            "must be a whole number that the field can hold",
        ),
        ("PUT", CART, port(json!({"port": 80.5})), "spec.ports[0].port", "must be a whole number"),
        (
            "PUT",
            CART,
            port(json!({"protocol": 9})),
            "spec.ports[0].protocol",
            "invalid value: integer `9`, expected one of",
        ),
        ("PUT", CART, port(json!({"port": 80, "name": "Web"})), "ports[0].name", "\"Web\""),
        (
            "PUT",
            CART,
            put(json!({"endpoints": {"more": true}})),
            "ops",
            "the stream ended within a set of endpoints",
        ),
        (
            "PUT",
            CART,
            put(json!({"endpoints": {"groups": {}}})),
            "endpoints.groups",
            "invalid type: map, expected a sequence",
        ),
        (
            "PUT",
            CART,
            put(json!({"name": "till"})),
            "name",
            "is \"till\" in the body, but \"cart\" in the path",
        ),
        ("PUT", &endpoints, json!({"uid": "uid-of-east", "version": version(), "leaf": sum()}), "spec", ""),
        ("PUT", &endpoints, json!({"version": []}), "version", "invalid type: sequence"),
        ("DELETE", CART, none.clone(), "term", "is missing"),
        ("DELETE", &format!("{CART}?uid=u&term=1"), none.clone(), "seq", "is missing"),
        (
            "DELETE",
            &format!("{CART}?uid=u&term=one&seq=1"),
            none.clone(),
            "term",
            "must be a whole number that the field can hold",
        ),
        (
            "DELETE",
            &format!("{CART}?uid=%00&term=1&seq=1"),
            none.clone(),
            "uid",
            "\"\\0\" must consist of letters",
        ),
        ("DELETE", &format!("{EAST}?force=1"), none.clone(), "force", "must be true or false"),
        (
            "DELETE",
            &format!("{EAST}?force=true&force=true"),
            none.clone(),
            "force",
            "is named twice in the query",
        ),
        (
            "GET",
            "/v1/clustersets/prod/clusters?pageSize=-1",
            none.clone(),
            "pageSize",
            "must be a whole number that the field can hold",
        ),
        (
            "GET",
            "/v1/clustersets/prod/clusters?pageToken=7",
            none.clone(),
            "pageToken",
            "was not given by this list",
        ),
        (
            "GET",
            "/v1/clustersets/prod/exports?cluster=East",
            none.clone(),
            "cluster",
            "\"East\" must consist of lower",
        ),
        (
            "GET",
            "/v1/clustersets/prod/imports?includeEndpoints=perhaps",
            none.clone(),
            "includeEndpoints",
            "must be",
        ),
        ("GET", "/v1/clustersets/prod/imports/watch", none.clone(), "cluster", "\"\" must not be empty"),
        (
            "GET",
            "/v1/clustersets/prod/imports/watch?cluster=a&epoch=AAAA",
            none.clone(),
            "epoch",
            "has 3 bytes, must have 16",
        ),
        (
            "GET",
            "/v1/clustersets/prod/imports/watch?cluster=a&revision=x",
            none,
            "revision",
            "must be a whole",
        ),
    ];
    for (method, path, body, field, problem) in cases {
        let (status, answer) = call(&registry, method, path, body.clone()).await;
        let what = format!("{method} {path} {body}: {answer:#}");
        assert_eq!((status, &answer["code"]), (400, &json!(3)), "{what}");
        let [detail] = answer["details"].as_array().unwrap().as_slice() else { panic!("{what}") };
        assert_eq!(
            (&detail["reason"], &detail["metadata"]["field"]),
            (&json!("INVALID_FIELD"), &json!(field)),
            "{what}"
        );
        let told = detail["metadata"]["problem"].as_str().unwrap();
        assert!(told.starts_with(problem), "{what}");
        assert_eq!(answer["message"], format!("{field}: {told}"), "{what}");
    }
}

#[tokio::test]
async fn every_call_says_why_it_is_refused_as_a_whole() {
    let registry = Started::with(|policy| policy.max_clusters = 1).await;
    registry.register("east").await;
    let registration = json!({"uid": "u-2", "version": {"term": "1", "seq": "1"}, "sum": base64(&[0; 16])});
    let renewal = &registration;
    let put =
        json!({"uid": "u-2", "version": {"term": "1", "seq": "2"}, "leaf": base64(&[0; 16]), "spec": spec()});
    let delete = |cluster: &str| format!("{cluster}/exports/shop/cart?uid=u-2&term=1&seq=1");
    let cases = [
        ("PUT", EAST.to_owned(), registration.clone(), 409, 6, "CLAIMED"),
        ("PUT", WEST.to_owned(), registration.clone(), 429, 8, "LIMIT"),
        ("POST", format!("{EAST}/renew"), renewal.clone(), 409, 6, "CLAIMED"),
        ("POST", format!("{WEST}/renew"), renewal.clone(), 404, 5, "UNKNOWN_CLUSTER"),
        ("PUT", format!("{EAST}/exports/shop/cart"), put.clone(), 409, 6, "CLAIMED"),
        ("PUT", format!("{WEST}/exports/shop/cart"), put.clone(), 404, 5, "UNKNOWN_CLUSTER"),
        ("PUT", format!("{WEST}/exports/shop/cart/endpoints"), put, 404, 5, "UNKNOWN_CLUSTER"),
        ("DELETE", delete(EAST), Value::Null, 409, 6, "CLAIMED"),
        ("DELETE", delete(WEST), Value::Null, 404, 5, "UNKNOWN_CLUSTER"),
        ("DELETE", EAST.to_owned(), Value::Null, 400, 9, "LEASE_ACTIVE"),
        ("DELETE", WEST.to_owned(), Value::Null, 404, 5, "UNKNOWN_CLUSTER"),
        ("GET", WEST.to_owned(), Value::Null, 404, 5, "UNKNOWN_CLUSTER"),
        ("GET", "/v2".to_owned(), Value::Null, 404, 5, "NO_ROUTE"),
        ("GET", "/v1/clustersets/prod".to_owned(), Value::Null, 404, 5, "NO_ROUTE"),
        ("GET", "/v1/clustersets/prod/clusters/".to_owned(), Value::Null, 404, 5, "NO_ROUTE"),
        ("DELETE", "/v1/clustersets/prod/clusters".to_owned(), Value::Null, 405, 12, "NO_METHOD"),
    ];
    for (method, path, body, status, code, reason) in cases {
        let (told, answer) = call(&registry, method, &path, body).await;
        let what = format!("{method} {path}: {answer:#}");
        assert_eq!(
            (told, &answer["code"], &answer["details"][0]["reason"]),
            (status, &json!(code), &json!(reason)),
            "{what}"
        );
    }
    let stream = |uid: &str| {
        let head = json!({"uid": uid, "version": {"term": "1", "seq": "2"}});
        (json!({"begin": head}), head)
    };
    for (path, uid, status) in [(EAST, "u-2", 409), (WEST, "u-2", 404)] {
        let (begin, write) = stream(uid);
        assert_eq!(post_lines(&registry, &format!("{path}/sync"), &[begin]).await.0, status);
        assert_eq!(post_lines(&registry, &format!("{path}/write"), &[write]).await.0, status);
    }
}

#[tokio::test]
async fn an_error_is_a_google_rpc_status() {
    let registry = Started::new().await;
    let problem = "\"Prod\" must consist of lower case letters, digits and '-', and begin and end with a letter or \
                   digit (DNS-1123 label)";
    let info = |reason: &str, metadata: Value| {
        json!([{
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": reason,
            "domain": "mcs-registry.dynamo.nvidia.com",
            "metadata": metadata,
        }])
    };
    let expected = json!({
        "code": 3,
        "message": format!("clusterset: {problem}"),
        "details": info("INVALID_FIELD", json!({"field": "clusterset", "problem": problem})),
    });
    assert_eq!(get(&registry, "/v1/clustersets/Prod/clusters").await, (400, expected));
    let expected = json!({
        "code": 5,
        "message": "there is no import shop/cart",
        "details": info("ABSENT", json!({})),
    });
    assert_eq!(get(&registry, "/v1/clustersets/prod/imports/shop/cart").await, (404, expected));
}

#[tokio::test]
async fn malformed_json_is_refused_with_its_place() {
    let registry = Started::new().await;
    registry.register("east").await.write(&[put("cart", 1)]).await;
    let deep = format!("{{\"x\":{}{}}}", "[".repeat(500), "]".repeat(500));
    let cases: [(&[u8], &str, &str); 11] = [
        (b"{\n\"uid\": }", "the body", "is not JSON at line 2, column 8: expected value"),
        (b"{\"uid\": \"u-1\"", "the body", "is not JSON at line 1, column 13: EOF while parsing an object"),
        (b"{} {}", "the body", "is not JSON at line 1, column 4: trailing characters"),
        (b"uid=u-1", "the body", "is not JSON at line 1, column 1: expected value"),
        (b"{\"uid\": \"\xff\"}", "the body", "is not JSON at line 1, column 10: invalid unicode code point"),
        (b"{\"uid\": \"\x00\"}", "the body", "is not JSON at line 1, column 10: control character"),
        (b"\xef\xbb\xbf{}", "the body", "is not JSON at line 1, column 1: expected value"),
        (b"{\"uid\": \"a\",\n \"uid\": \"b\"}", "uid", "is named twice in one object, at line 2, column 12"),
        (b"{\"x\": [{\"y\": null, \"y\": 1}]}", "y", "is named twice in one object, at line 1, column 26"),
        (deep.as_bytes(), "the body", "is not JSON at line 1, column 132: recursion limit exceeded"),
        (
            b"{\"version\": {\"term\": 1e400}}",
            "the body",
            "is not JSON at line 1, column 26: number out of range",
        ),
    ];
    for (text, field, problem) in cases {
        let answer = send(&registry, request("PUT", EAST, text.to_vec())).await;
        let body = answer.json();
        assert_eq!((answer.status, &body["code"]), (400, &json!(3)), "{body:#}");
        let metadata = &body["details"][0]["metadata"];
        let expected = json!({"field": field, "problem": metadata["problem"]});
        assert_eq!(*metadata, expected);
        assert!(metadata["problem"].as_str().unwrap().starts_with(problem), "{body:#}");
    }
    // In a stream, lines are those of the stream.
    let text = "{\"uid\": \"uid-of-east\",\n\"version\": {\"term\": 1, \"seq\": 3}}\n\n{\"ops\":\n[,]}";
    let answer = send(&registry, request("POST", &format!("{EAST}/write"), text)).await;
    let problem = "is not JSON at line 5, column 2: expected value";
    assert_eq!(answer.json()["details"][0]["metadata"], json!({"field": "the body", "problem": problem}));
    for (text, problem) in [
        ("[{}]", "must be JSON objects one after another, see line 1"),
        ("\n{\"uid\":\n", "ends within the object that begins at line 2"),
    ] {
        let answer = send(&registry, request("POST", &format!("{EAST}/write"), text)).await;
        assert_eq!(answer.json()["details"][0]["metadata"]["problem"], problem);
    }
    assert_eq!(get(&registry, CART).await.1["endpointCount"], 1);
}

#[tokio::test]
async fn a_body_is_json_or_does_not_say_what_it_is() {
    let registry = Started::new().await;
    let body = json!({"uid": "u-1", "version": {"term": 1, "seq": 1}, "sum": base64(&[0; 16])}).to_string();
    let cases = [
        ("content-type", "application/json", 200),
        ("content-type", "Application/JSON; Charset=\"UTF-8\"", 200),
        ("content-type", "application/merge-patch+json", 200),
        ("content-type", "application/json; charset=latin1", 415),
        ("content-type", "application/x-www-form-urlencoded", 415),
        ("content-type", "text/plain", 415),
        ("content-encoding", "identity", 200),
        ("content-encoding", "gzip", 415),
    ];
    for (name, value, status) in cases {
        let mut request = request("PUT", EAST, body.clone());
        request.headers_mut().remove("content-type");
        request.headers_mut().insert(name, value.parse().unwrap());
        let answer = send(&registry, request).await;
        assert_eq!(answer.status, status, "{name}: {value}");
        if status == 415 {
            let told = answer.json();
            assert_eq!((&told["code"], &told["details"][0]["reason"]), (&json!(3), &json!("MEDIA_TYPE")));
            assert!(told["message"].as_str().unwrap().starts_with(name), "{told:#}");
        }
    }
    // Where no body is read, it does not matter what it is.
    let mut request = request("GET", EAST, "");
    request.headers_mut().insert("content-type", "text/plain".parse().unwrap());
    assert_eq!(send(&registry, request).await.status, 200);
}

#[tokio::test]
async fn what_is_null_counts_as_absent_and_all_spellings_of_fields_and_whole_numbers_are_read() {
    let registry = Started::new().await;
    let body = json!({
        "uid": "uid-of-east",
        "region": null,
        "version": {"term": 1.0, "seq": null},
        "sum": base64(&[0; 16]),
        "futureField": null,
    });
    assert_eq!(call(&registry, "PUT", EAST, body).await.0, 200);
    assert_eq!(get(&registry, EAST).await.1["version"], json!({"term": "1", "seq": "0"}));
    // What is repeated of a request is not long.
    let (_, answer) = call(&registry, "PUT", CART, json!({"spec": {"type": "x".repeat(100_000)}})).await;
    assert!(answer.to_string().len() < 1_000, "{answer}");
    let spec = json!({"created_at": "2026-01-01T00:00:00Z", "trafficDistribution": null, "ports": [{"port": 8e1}], "ipFamilies": [1]});
    let body = json!({"uid": "uid-of-east", "version": {"term": 1, "seq": 2}, "leaf": base64(&[0; 16]), "spec": spec});
    assert_eq!(call(&registry, "PUT", CART, body).await.0, 200);
    let held = get(&registry, CART).await.1;
    assert_eq!(held["spec"]["createdAt"], "2026-01-01T00:00:00Z");
    assert_eq!(held["spec"]["ipFamilies"], json!(["IP_FAMILY_IPV4"]));
    assert_eq!(held["spec"]["ports"][0]["port"], 80);
}

#[tokio::test]
async fn head_is_a_get_without_a_body() {
    let registry = Started::new().await;
    registry.register("east").await;
    let head = send(&registry, request("HEAD", EAST, "")).await;
    let got = send(&registry, request("GET", EAST, "")).await;
    assert_eq!(
        (head.status, head.header("content-length"), &*head.text),
        (200, got.header("content-length"), "")
    );
    let watch = "/v1/clustersets/prod/imports/watch?cluster=importer";
    assert_eq!(send(&registry, request("HEAD", watch, "")).await.status, 200);
    assert_eq!(send(&registry, request("HEAD", "/v2", "")).await.status, 404);
}

#[tokio::test]
async fn who_writes_too_often_is_told_when_to_come_again() {
    let registry = Started::with(|policy| policy.max_writes_per_second = 1).await;
    registry.register("east").await;
    let write = async || {
        let path = format!("{CART}?uid=uid-of-east&term=1&seq=2");
        send(&registry, request("DELETE", &path, "")).await
    };
    assert_eq!(write().await.status, 200);
    let busy = write().await;
    assert_eq!((busy.status, busy.header("retry-after")), (429, "1"));
    assert_eq!(busy.json()["details"][0]["reason"], "BUSY");
    registry.pass(std::time::Duration::from_secs(1)).await;
    assert_eq!(write().await.status, 200);
}

#[tokio::test]
async fn metrics_count_requests_by_the_name_of_their_call() {
    let registry = Started::new().await;
    get(&registry, EAST).await;
    get(&registry, "/v1/clustersets/prod/imports/shop/cart%2f..").await;
    get(&registry, "/v1/nothing").await;
    call(&registry, "POST", &format!("{EAST}/write"), json!({"uid": 7})).await;
    let (_, text) = http(registry.admin, "GET", "/metrics").await;
    let counted: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("mcs_registry_request_duration_seconds_count"))
        .filter(|line| line.contains("rest"))
        .collect();
    assert_eq!(
        counted,
        [
            "{code=\"InvalidArgument\",method=\"GetImport\",transport=\"rest\"} 1",
            "{code=\"InvalidArgument\",method=\"Write\",transport=\"rest\"} 1",
            "{code=\"NotFound\",method=\"GetCluster\",transport=\"rest\"} 1",
        ]
    );
}

/// An answer that comes before the body ends the connection, and says so: else the next request would be lost.
#[tokio::test]
async fn an_answer_that_does_not_wait_for_the_body_announces_the_end_of_its_connection() {
    let registry = Started::new().await;
    let json = "content-type: application/json\r\n";
    let cases = [
        ("PUT", "/v1/nowhere", json, "404"),
        ("PUT", EAST, "content-type: text/plain\r\n", "415"),
        ("PATCH", EAST, json, "405"),
        ("GET", "/v1/clustersets/prod/clusters", json, "200"),
    ];
    for (method, path, header, status) in cases {
        let mut stream = TcpStream::connect(registry.rest).await.unwrap();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: test\r\n{header}content-length: 2\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        tokio::time::timeout(LIMIT, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
        let head = answer.split("\r\n\r\n").next().unwrap();
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{method} {path}: {head}");
        assert!(head.contains("connection: close"), "{method} {path}: {head}");
    }
    let whole = send(&registry, request("PUT", EAST, "{}")).await;
    assert_eq!((whole.status, whole.header("connection")), (400, ""));
}
