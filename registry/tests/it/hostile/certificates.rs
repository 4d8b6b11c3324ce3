//! A client's certificate, whatever it is: what it allows is what is written in it.

use super::calls::{METHODS, call, called_by};
use super::texts::is_plain;
use mcs_proto::pb;
use mcs_runtime::tls::Certificate;
use prost::Message;
use tonic::Code;

/// The names by which a certificate may be that of a cluster of `prod`, as bytes of it.
const CLUSTERS: [(&str, [&str; 2]); 2] = [
    ("east", ["spiffe://prod/cluster/east", "east.prod"]),
    ("west", ["spiffe://prod/cluster/west", "west.prod"]),
];

/// The name of an administrator.
const ADMIN: &str = "spiffe://prod/admin";

/// Plays a certificate, in DER, to a registry that asked for it.
///
/// # Panics
/// What must hold does not.
pub fn play(der: &[u8]) {
    let certificate = match Certificate::read(der) {
        Ok(certificate) => certificate,
        Err(unreadable) => return assert_told(&unreadable.to_string()),
    };
    let has = |name: &str| der.windows(name.len()).any(|bytes| bytes == name.as_bytes());
    called_by(Some(certificate), async |apis| {
        let mut clusters = Vec::new();
        for (cluster, names) in CLUSTERS {
            if may(call(&apis, METHODS[0], &registration(cluster)).await) {
                assert!(names.into_iter().any(has), "{cluster} is not named in it");
                clusters.push(cluster);
            }
        }
        assert!(clusters.len() < 2, "it is that of one cluster");
        for (cluster, names) in CLUSTERS {
            let request = pb::RemoveClusterRequest {
                clusterset: "prod".to_owned(),
                cluster: cluster.to_owned(),
                uid: String::new(),
                force: true,
                only_uid: String::new(),
            };
            if may(call(&apis, METHODS[4], &request.encode_to_vec()).await) {
                let is_admin = has(ADMIN) && clusters.is_empty();
                assert!(is_admin || names.into_iter().any(has), "{cluster} is not its to remove");
            }
        }
        // Whoever shows a certificate may read.
        let list = pb::ListClustersRequest { clusterset: "prod".to_owned(), ..Default::default() };
        assert_eq!(call(&apis, METHODS[6], &list.encode_to_vec()).await.0, Code::Ok);
    });
}

fn registration(cluster: &str) -> Vec<u8> {
    let request = pb::RegisterRequest {
        clusterset: "prod".to_owned(),
        cluster: cluster.to_owned(),
        uid: "u-1".to_owned(),
        region: "eu-west-1".to_owned(),
        instance: "controller".to_owned(),
        build: "1".to_owned(),
        version: Some(pb::Version { term: 1, seq: 1 }),
        sum: vec![0; 16],
    };
    request.encode_to_vec()
}

/// Whether a call was allowed, whatever came of it.
fn may((code, message): (Code, String)) -> bool {
    assert_told(&message);
    match code {
        Code::PermissionDenied => false,
        // Who removes may be told that there is nothing to remove.
        Code::Ok | Code::NotFound => true,
        _ => panic!("{code:?} {message}"),
    }
}

fn assert_told(text: &str) {
    assert!(is_plain(text) && text.len() <= 4_000, "{text:?}");
}
