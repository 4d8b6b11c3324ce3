//! Hostile paths (O60, O61): what is no identity is refused by its field, and leaves no trace.

use serde_json::{Value, json};

use super::http::{call, get};
use super::lists::base64;
use crate::started::{Started, http, prod};

/// What a segment of a path may be tried to be, as it is sent.
const SEGMENTS: [&str; 22] = [
    // O61: ids that could not be deleted by their path.
    "http:%2F%2Fa",
    "a%2Fb",
    "..",
    "a%252Fb",
    "a%20b",
    // O60: no DNS labels.
    "Use1-A",
    "use1_a",
    "-a",
    "a-",
    "use1-a%20",
    "%20",
    // More that a key, a log line or a path must not hold.
    ".",
    "%2e%2e",
    "%2e%2e%2fclusters",
    "a%00",
    "a%0d%0aset-cookie:x",
    "%D0%B5ast",
    "e%E2%80%8Bast",
    "%EF%BD%85ast",
    "a+b",
    "%7Bcluster%7D",
    "a;b=c",
];

#[tokio::test]
async fn what_is_no_identity_is_refused_by_the_name_of_its_field() {
    let registry = Started::new().await;
    let long = "a".repeat(300);
    let too_long = "a".repeat(64);
    let hostile: Vec<_> = SEGMENTS.iter().copied().chain([&*long, &*too_long, "%FF", "%C3%28"]).collect();
    let routes = [
        ("/v1/clustersets/{}/clusters", "clusterset"),
        ("/v1/clustersets/{}/imports/watch?cluster=a", "clusterset"),
        ("/v1/clustersets/prod/clusters/{}", "cluster"),
        ("/v1/clustersets/prod/clusters/{}/exports/shop/cart", "cluster"),
        ("/v1/clustersets/prod/clusters/east/exports/{}/cart", "namespace"),
        ("/v1/clustersets/prod/clusters/east/exports/shop/{}", "name"),
        ("/v1/clustersets/prod/imports/{}/cart", "namespace"),
        ("/v1/clustersets/prod/imports/shop/{}", "name"),
    ];
    for (route, field) in routes {
        for segment in &hostile {
            let (status, answer) = get(&registry, &route.replace("{}", segment)).await;
            assert_eq!((status, &answer["code"]), (400, &json!(3)), "{route} {segment}: {answer:#}");
            assert_eq!(answer["details"][0]["metadata"]["field"], field, "{route} {segment}: {answer:#}");
        }
    }
    // 63 characters pass.
    assert_eq!(get(&registry, &format!("/v1/clustersets/{}/clusters", "a".repeat(63))).await.0, 200);
}

#[tokio::test]
async fn no_write_takes_what_is_no_identity_and_nothing_is_left_of_it() {
    let registry = Started::new().await;
    let register = json!({"uid": "u-1", "version": {"term": 1, "seq": 1}, "sum": base64(&[0; 16])});
    for segment in SEGMENTS {
        let cluster = format!("/v1/clustersets/prod/clusters/{segment}");
        let query = "?uid=u-1&term=1&seq=1";
        let calls = [
            ("PUT", cluster.clone(), register.clone()),
            ("DELETE", format!("{cluster}?force=true"), Value::Null),
            ("POST", format!("{cluster}/renew"), register.clone()),
            ("POST", format!("{cluster}/write"), register.clone()),
            ("POST", format!("{cluster}/sync"), json!({"begin": register})),
            ("PUT", format!("{cluster}/exports/shop/cart"), register.clone()),
            ("PUT", format!("{cluster}/exports/shop/cart/endpoints"), register.clone()),
            ("DELETE", format!("{cluster}/exports/shop/cart{query}"), Value::Null),
            ("PUT", format!("/v1/clustersets/{segment}/clusters/east"), register.clone()),
        ];
        for (method, path, body) in calls {
            let (status, answer) = call(&registry, method, &path, body).await;
            assert_eq!((status, &answer["code"]), (400, &json!(3)), "{method} {path}: {answer:#}");
        }
    }
    assert_eq!(registry.client.list_clusters(&prod()).await.unwrap().0, []);
    let (_, metrics) = http(registry.admin, "GET", "/metrics").await;
    assert!(metrics.contains("mcs_registry_clustersets 0"), "{metrics}");
}

/// What HTTP itself does not allow in a request line ends before it is a request.
#[tokio::test]
async fn raw_bytes_in_a_request_line_are_refused() {
    let registry = Started::new().await;
    for path in
        ["/v1/clustersets/a\0b/clusters", "/v1/clustersets/a b/clusters", "/v1/clustersets/a\x7fb/clusters"]
    {
        let (status, _) = http(registry.rest, "GET", path).await;
        assert_eq!(status, "400 Bad Request", "{path:?}");
    }
}
