//! `mcs-admin delete-cluster` at a registry.

use crate::golden::assert_golden;
use crate::world::{Secret, World, run, without_times};
use mcs_runtime::tls::testing::{Ca, GOOD};

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_whose_lease_has_expired_is_removed_with_all_that_it_exports() {
    let world = World::start().await;
    world.east_and_west_differ_and_west_falls_silent().await;
    let ran = delete(&world, "west", &["--yes"]).await;
    assert_golden("delete-west", &ran);
    // It is gone; who repeats it is told so.
    assert_golden("delete-absent", &delete(&world, "west", &["--yes"]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_whose_lease_is_active_goes_by_force_only() {
    let world = World::start().await;
    world.east_and_west_differ_and_west_falls_silent().await;
    assert_golden("delete-active", &delete(&world, "east", &["--yes"]).await);
    assert_golden("delete-forced", &delete(&world, "east", &["--yes", "--force"]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_does_not_know_all_clusters_yet_does_not_say_that_there_is_none() {
    let world = World::start().await;
    assert_golden("delete-not-known-yet", &delete(&world, "west", &["--yes"]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_the_answer_must_be_given_and_nothing_waits() {
    let world = World::start().await;
    world.east_and_west_differ_and_west_falls_silent().await;
    assert_golden("usage-delete-without-yes", &delete(&world, "west", &[]).await);
    assert!(delete(&world, "west", &["--yes"]).await.starts_with("exit code 0\n"), "it was there still");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_certificate_of_an_administrator_removes_a_cluster() {
    let (ca, clients) = (Ca::new("ca"), Ca::new("clients"));
    let server = ca.issue(&["127.0.0.1"], GOOD, 1);
    for (name, golden) in
        [("URI:spiffe://prod/cluster/west", "delete-denied"), ("URI:spiffe://prod/admin", "delete-by-admin")]
    {
        // The cluster registers by its own certificate.
        let of_east = clients.issue(&["URI:spiffe://prod/cluster/east"], GOOD, 2);
        let secret = Secret::new((&ca, &server), (&clients, &of_east));
        let world = World::with_tls(&secret).await;
        world.east_falls_silent().await;
        let caller = Secret::new((&ca, &server), (&clients, &clients.issue(&[name], GOOD, 3)));
        let [ca_file, cert, key] = caller.flags();
        assert_golden(golden, &delete(&world, "east", &["--yes", &ca_file, &cert, &key]).await);
    }
}

async fn delete(world: &World, cluster: &str, flags: &[&str]) -> String {
    let (url, cluster) = (world.url_flag(), format!("--cluster={cluster}"));
    let all = [&["delete-cluster", "--clusterset=prod", &url, &cluster, "--log-level=error"], flags].concat();
    without_times(&world.without_port(&run(&all).await))
}
