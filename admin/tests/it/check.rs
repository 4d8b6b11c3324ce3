//! `mcs-admin check`: what it finds at registries, and how it ends.

use crate::golden::assert_golden;
use crate::world::{REGISTRY, Secret, World, run, unused_url, without_times};
use mcs_proto::encoded::EncodedStep;
use mcs_proto::pb;
use mcs_proto::pb::imports_server::{Imports, ImportsServer};
use mcs_runtime::tls::testing::{Ca, GOOD, Issued, OVER};
use std::net::Ipv4Addr;
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

const QUIET: &str = "--log-level=error";

#[tokio::test(flavor = "multi_thread")]
async fn check_finds_what_is_wrong_with_clusters_and_says_what_to_do() {
    let world = World::start().await;
    world.east_and_west_differ_and_west_falls_silent().await;
    world.has_the_time();
    for format in ["table", "json", "yaml"] {
        let ran = run(&["check", &world.url_flag(), "-o", format]).await;
        assert_golden(&format!("check-prod.{format}"), &without_times(&world.without_port(&ran)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_without_clusters_is_no_failure_and_says_what_to_do_next() {
    let world = World::start().await;
    world.has_the_time();
    let ran = run(&["check", &world.url_flag()]).await;
    assert_golden("check-fresh.table", &world.without_port(&ran));
    // One that is asked for by its name.
    let ran = run(&["check", &world.url_flag(), "--clusterset=prod"]).await;
    assert_golden("check-fresh-prod.table", &world.without_port(&ran));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_a_day_wrong_is_told_of() {
    let world = World::start().await;
    let ran = run(&["check", &world.url_flag()]).await;
    let told = " s behind that of this machine\n";
    assert!(ran.contains(told) && ran.starts_with("exit code 0\n"), "{ran}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_url_is_looked_at_and_one_that_fails_is_a_failure() {
    let world = World::start().await;
    world.has_the_time();
    let unused = unused_url();
    let urls = format!("{unused},{}", world.url());
    let ran = run(&["check", "--registry-url", &urls, QUIET]).await;
    assert_golden("check-two.table", &world.without_port(&ran.replace(&unused, "http://registry.b:9090")));
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_it_shows_the_certificates_of_both_sides_and_what_they_allow() {
    let (ca, clients) = (Ca::new("ca"), Ca::new("clients"));
    let admin = clients.issue(&["URI:spiffe://prod/admin"], GOOD, 9);
    let ran = tls(&Secret::new((&ca, &server(&ca)), (&clients, &admin))).await;
    assert_golden("check-tls.table", &ran);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_not_believed_is_shown_all_the_same() {
    let (ca, other, clients) = (Ca::new("ca"), Ca::new("other"), Ca::new("clients"));
    let reader = clients.issue(&["localhost"], GOOD, 9);
    let ran = tls(&Secret::new((&ca, &server(&other)), (&clients, &reader))).await;
    assert_golden("check-unknown-ca.table", &ran);
    let expired = ca.issue(&["127.0.0.1"], OVER, 3);
    let ran = tls_since(IN_2019, &Secret::new((&ca, &expired), (&clients, &reader))).await;
    assert_golden("check-expired.table", &without_dates_of_tls(&ran));
    let elsewhere = ca.issue(&["registry.example"], GOOD, 4);
    let ran = tls(&Secret::new((&ca, &elsewhere), (&clients, &reader))).await;
    assert_golden("check-wrong-name.table", &ran);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_of_an_earlier_release_is_checked_as_far_as_it_goes() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = tonic::transport::Server::builder().add_service(ImportsServer::new(Older));
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    let url = format!("--registry-url=http://{address}");
    let ran = run(&["check", &url, "--clusterset=prod"]).await;
    assert_golden("check-older.table", &ran.replace(&address, REGISTRY));
}

/// 2019-12-01T00:00:00Z.
const IN_2019: i64 = 1_575_158_400;

/// Checks a registry with these files.
async fn tls(secret: &Secret) -> String {
    check_over_tls(&World::with_tls(secret).await, secret).await
}

/// The same of a registry that has run since then.
async fn tls_since(start: i64, secret: &Secret) -> String {
    check_over_tls(&World::with_tls_since(start, secret).await, secret).await
}

async fn check_over_tls(world: &World, secret: &Secret) -> String {
    world.has_the_time();
    let [ca, cert, key] = secret.flags();
    world.without_port(&run(&["check", &world.url_flag(), &ca, &cert, &key, QUIET]).await)
}

fn server(ca: &Ca) -> Issued {
    ca.issue(&["localhost", "127.0.0.1"], GOOD, 1)
}

/// TLS says how long ago a certificate expired, in its own words.
fn without_dates_of_tls(text: &str) -> String {
    let lines = text.lines().map(|line| match line.split_once("(invalid peer certificate: ") {
        Some((before, _)) => format!("{before}(in the words of TLS)"),
        None => line.to_owned(),
    });
    lines.map(|line| line + "\n").collect()
}

/// A registry that lists nothing, and knows no other call.
struct Older;

#[tonic::async_trait]
impl Imports for Older {
    type WatchStream = tokio_stream::Empty<Result<EncodedStep, Status>>;

    async fn list_clusters(
        &self,
        _: Request<pb::ListClustersRequest>,
    ) -> Result<Response<pb::ListClustersResponse>, Status> {
        Ok(Response::new(pb::ListClustersResponse { complete: true, ..Default::default() }))
    }

    async fn list_exports(
        &self,
        _: Request<pb::ListExportsRequest>,
    ) -> Result<Response<pb::ListExportsResponse>, Status> {
        Ok(Response::new(pb::ListExportsResponse { complete: true, ..Default::default() }))
    }

    async fn list_imports(
        &self,
        _: Request<pb::ListImportsRequest>,
    ) -> Result<Response<pb::ListImportsResponse>, Status> {
        Ok(Response::new(pb::ListImportsResponse { complete: true, ..Default::default() }))
    }

    async fn get_registry(
        &self,
        _: Request<pb::GetRegistryRequest>,
    ) -> Result<Response<pb::GetRegistryResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn watch(&self, _: Request<pb::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented(""))
    }
}
