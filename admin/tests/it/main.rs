//! The program as its users run it: against registries that listen on loopback, compared with goldens.

mod check;
mod documented;
mod golden;
mod remove;
mod stored;
mod world;

use golden::assert_golden;
use world::{World, run, unused_url};

#[tokio::test(flavor = "multi_thread")]
async fn describe_shows_clusters_exports_and_imports_with_their_conflicts() {
    let world = World::start().await;
    world.east_and_west_differ_and_west_falls_silent().await;
    for format in ["table", "json", "yaml"] {
        let ran = run(&["describe", "--clusterset=prod", &world.url_flag(), "-o", format]).await;
        assert_golden(&format!("prod.{format}"), &world.without_port(&ran));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_clusterset_reads_well_and_a_registry_that_has_just_started_says_that_it_is_not_complete() {
    let world = World::start().await;
    let describe = ["describe", "--clusterset=prod", &world.url_flag()];
    assert_golden("empty-not-complete.table", &world.without_port(&run(&describe).await));
    world.one_lease_passes(&[]).await;
    assert_golden("empty.table", &world.without_port(&run(&describe).await));
    let json = run(&["describe", "--clusterset=prod", &world.url_flag(), "--output=json"]).await;
    assert_golden("empty.json", &world.without_port(&json));
    let yaml = run(&["describe", "--clusterset=prod", &world.url_flag(), "--output=yaml"]).await;
    assert_golden("empty.yaml", &world.without_port(&yaml));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_registry_that_answers_is_asked() {
    let world = World::start().await;
    let urls = format!("{},{}", unused_url(), world.url());
    let ran = run(&["--registry-url", &urls, "--log-level=error", "describe", "--clusterset=prod"]).await;
    assert_golden("empty-not-complete.table", &world.without_port(&ran));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_cannot_be_reached_is_a_failure_that_names_it() {
    let url = unused_url();
    let ran = run(&["describe", "--clusterset=prod", "--registry-url", &url, "--log-level=error"]).await;
    assert_golden("unreachable", &ran.replace(&url, "http://registry.a:9090"));
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_usage_is_exit_code_2_and_one_line() {
    let ok = "--registry-url=http://registry.example:9090";
    let cases: [(&str, &[&str]); 6] = [
        ("usage-no-subcommand", &[]),
        ("usage-no-registry-url", &["check"]),
        ("usage-no-clusterset", &["describe", ok]),
        ("usage-bad-url", &["describe", "--clusterset=prod", "--registry-url=registry.example:9090"]),
        (
            "usage-tls-pair",
            &[
                "describe",
                "--clusterset=prod",
                "--registry-url=https://registry.example",
                "--registry-tls-cert-file=tls.crt",
            ],
        ),
        ("usage-unknown-output", &["describe", "--clusterset=prod", ok, "-o", "csv"]),
    ];
    for (name, args) in cases {
        assert_golden(name, &run(args).await);
    }
}
