//! What mutations begin with.

use super::calls::{Call, METHODS, SEPARATOR, Script};
use mcs_core::ids::ServiceKey;
use mcs_core::registry::Op;
use mcs_core::version::{Sum, Version};
use mcs_proto::convert;
use mcs_proto::pb;
use mcs_proto::pb::sync_request::Step;
use prost::Message;

use crate::started::{key, leaf, member, put, registration};

/// Scripts of REST requests by their names.
pub(crate) fn rest() -> Vec<(&'static str, String)> {
    let cluster = "/v1/clustersets/prod/clusters/east";
    let register = r#"{"uid":"u-1","region":"eu-west-1","instance":"c-0","version":{"term":"1","seq":"1"},"sum":"AAAAAAAAAAAAAAAAAAAAAA=="}"#;
    let spec = r#"{"createdAt":"2026-01-01T00:00:00Z","ports":[{"name":"http","port":80}],"ipFamilies":["IP_FAMILY_IPV4"],"labels":{"a":"b"}}"#;
    let endpoints = r#"{"groups":[{"family":"IP_FAMILY_IPV4","ports":[{"name":"http","port":8080}],"endpoints":[{"address":"10.0.0.1","ready":true,"zone":"a"}]}]}"#;
    let act = |seq: u8| format!(r#""uid":"u-1","version":{{"term":"1","seq":"{seq}"}}"#);
    let leaf = r#""leaf":"AQEBAQEBAQEBAQEBAQEBAQ==""#;
    let export = format!("{cluster}/exports/shop/cart");
    let put = format!("PUT {export}\n{{{},{leaf},\"spec\":{spec},\"endpoints\":{endpoints}}}", act(2));
    let write = format!(
        "POST {cluster}/write\n{{{},\"ops\":[{{\"key\":{{\"namespace\":\"shop\",\"name\":\"till\"}},\"put\":{{{leaf},\"spec\":{spec}}}}}]}}\n{{\"ops\":[]}}",
        act(4)
    );
    let sync = format!(
        "POST {cluster}/sync\n{{\"begin\":{{{}}}}}\n{{\"names\":{{\"names\":[{{\"key\":{{\"namespace\":\"shop\",\"name\":\"cart\"}},{leaf}}}]}}}}\n{{\"namesEnd\":{{}}}}\n{{\"end\":{{}}}}",
        act(5)
    );
    let writes = [
        format!("PUT {cluster}\n{register}"),
        put,
        format!("PUT {export}/endpoints\n{{{},{leaf},\"endpoints\":{endpoints}}}", act(3)),
        write,
        format!("POST {cluster}/renew\n{register}"),
        sync,
        format!("DELETE {export}?uid=u-1&term=1&seq=6"),
        format!("DELETE {cluster}?force=true"),
    ];
    let reads = [
        format!("PUT {cluster}\n{register}"),
        "GET /".to_owned(),
        "GET /openapi.json".to_owned(),
        "GET /v1/clustersets/prod/clusters?pageSize=1&pageToken=east~0".to_owned(),
        format!("HEAD {cluster}"),
        format!("OPTIONS {export}"),
        format!("GET {export}?includeEndpoints=true"),
        "GET /v1/clustersets/prod/exports?cluster=east&includeEndpoints=true&pageToken=shop%2Fcart%2Feast~1"
            .to_owned(),
        "GET /v1/clustersets/prod/imports?includeEndpoints=true&pageSize=2".to_owned(),
        "GET /v1/clustersets/prod/imports/shop/cart".to_owned(),
        "GET /v1/clustersets/prod/imports/watch?cluster=west&epoch=AAAAAAAAAAAAAAAAAAAAAQ==&revision=1"
            .to_owned(),
    ];
    let paths = ["..", "a%2Fb", "a%00", "a%0d%0ab", "%ff", "%2e%2e", "East", "a+b", "%7B%7D"]
        .map(|segment| format!("GET /v1/clustersets/{segment}/clusters?pageToken={segment}"));
    vec![
        ("writes", writes.join(SEPARATOR)),
        ("reads", reads.join(SEPARATOR)),
        ("paths", paths.join(SEPARATOR)),
    ]
}

/// Scripts of gRPC calls by their names.
pub(crate) fn grpc() -> Vec<(&'static str, Script)> {
    let east = member("east", "u-1");
    let register =
        convert::registration(&east, &registration(&east, Version::new(1, 1), Sum::EMPTY)).encode_to_vec();
    let write = |seq, ops: &[Op]| {
        pb::WriteRequest {
            clusterset: "prod".to_owned(),
            cluster: "east".to_owned(),
            uid: "u-1".to_owned(),
            version: Some(pb::Version { term: 1, seq }),
            ops: ops.iter().flat_map(convert::op).collect(),
        }
        .encode_to_vec()
    };
    let renew = pb::RenewRequest {
        held_imports: None,
        refused_exports: None,
        clusterset: "prod".to_owned(),
        cluster: "east".to_owned(),
        uid: "u-1".to_owned(),
        version: Some(pb::Version { term: 1, seq: 2 }),
        sum: vec![0; 16],
    };
    let cart = put("cart", 2);
    let name = |key: &ServiceKey, op: &Op| pb::SyncName {
        key: Some(key.into()),
        leaf: leaf(op).to_bytes().to_vec(),
    };
    let sync = [
        Step::Begin(pb::SyncBegin {
            clusterset: "prod".to_owned(),
            cluster: "east".to_owned(),
            uid: "u-1".to_owned(),
            version: Some(pb::Version { term: 1, seq: 3 }),
        }),
        Step::Names(pb::SyncNames { names: vec![name(&key("cart"), &cart)] }),
        Step::NamesEnd(pb::SyncNamesEnd {}),
        Step::Op(convert::op(&cart).remove(0)),
        Step::End(pb::SyncEnd {}),
    ];
    let sync = sync.map(|step| pb::SyncRequest { step: Some(step) }.encode_to_vec());
    let remove = pb::RemoveClusterRequest {
        clusterset: "prod".to_owned(),
        cluster: "east".to_owned(),
        uid: String::new(),
        force: true,
        only_uid: String::new(),
    };
    let watch =
        pb::WatchRequest { clusterset: "prod".to_owned(), cluster: "west".to_owned(), ..Default::default() };
    let list = pb::ListExportsRequest {
        clusterset: "prod".to_owned(),
        cluster: "east".to_owned(),
        include_endpoints: true,
        page_size: 1,
        page_token: "shop/cart/east~0".to_owned(),
    };
    let call = |method: &str, messages: Vec<Vec<u8>>| {
        let method = METHODS.iter().position(|known| known.ends_with(method)).unwrap();
        Call { method: u32::try_from(method).unwrap(), messages, rest: Vec::new() }
    };
    let life = vec![
        call("Register", vec![register.clone()]),
        call("Write", vec![write(2, &[cart, put("till", 1)]), write(0, &[put("pay", 1)])]),
        call("Renew", vec![renew.encode_to_vec()]),
        call("Sync", sync.to_vec()),
        call("Watch", vec![watch.encode_to_vec()]),
        call("ListExports", vec![list.encode_to_vec()]),
        call("RemoveCluster", vec![remove.encode_to_vec()]),
    ];
    let mut broken = vec![
        call("Register", vec![register]),
        call("Write", vec![write(2, &[put("cart", 1)])]),
        call("ListClusters", Vec::new()),
    ];
    broken[1].rest = b"\0\0\0\0\x09short".to_vec();
    broken[2].rest = b"\x01\0\0\0\0".to_vec();
    vec![("life", Script { calls: life }), ("broken", Script { calls: broken })]
}
