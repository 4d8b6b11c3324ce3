//! Command lines of the programs, with the reasons of what is not a default.

use std::path::Path;

use super::ClusterOptions;
use crate::{credentials::Credentials, node::KUBELET_ADDRESS};

/// What makes the objects that tests look at, and what cleans up after them. Names as of Kubernetes 1.34.
const CONTROLLERS: [&str; 8] = [
    "deployment-controller",
    "endpointslice-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "replicaset-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "statefulset-controller",
];

/// The data is gone with the test, so nothing waits for the disk.
pub(crate) fn etcd(folder: &Path, port: u16) -> Vec<String> {
    let client = format!("http://127.0.0.1:{port}");
    vec![
        format!("--data-dir={}", folder.join("etcd").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        // A single member has no peers; it wants a listener all the same.
        "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ]
}

pub(super) fn api_server(
    options: &ClusterOptions,
    credentials: &Credentials,
    etcd_port: u16,
    port: u16,
) -> Vec<String> {
    vec![
        format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        // Never dialled: an address of loopback is refused here, and without a default route none is found.
        format!("--advertise-address=192.0.2.{}", 1 + options.index),
        "--endpoint-reconciler-type=none".to_owned(),
        format!("--service-cluster-ip-range={}", options.service_ranges()),
        format!("--kubelet-preferred-address-types={KUBELET_ADDRESS}"),
        "--authorization-mode=RBAC".to_owned(),
        "--anonymous-auth=false".to_owned(),
        // Pods need no token of theirs, nor wait for their account, since nothing runs in them.
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        format!("--client-ca-file={}", credentials.authority().display()),
        format!("--tls-cert-file={}", credentials.server_certificate().display()),
        format!("--tls-private-key-file={}", credentials.server_key().display()),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-signing-key-file={}", credentials.token_key().display()),
        format!("--service-account-key-file={}", credentials.token_public_key().display()),
        "--profiling=false".to_owned(),
    ]
}

pub(super) fn controller_manager(credentials: &Credentials) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", credentials.admin_kubeconfig().display()),
        format!("--controllers={}", CONTROLLERS.join(",")),
        "--use-service-account-credentials=false".to_owned(),
        format!("--service-account-private-key-file={}", credentials.token_key().display()),
        format!("--root-ca-file={}", credentials.authority().display()),
        "--leader-elect=false".to_owned(),
        // It serves nothing, which saves a port.
        "--secure-port=0".to_owned(),
        // The defaults, 20 and 30, would make tests of many objects wait.
        "--kube-api-qps=500".to_owned(),
        "--kube-api-burst=1000".to_owned(),
        "--profiling=false".to_owned(),
    ]
}
