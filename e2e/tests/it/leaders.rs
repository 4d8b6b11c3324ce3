//! Two controllers that both lead, and Leases that are deleted or as they were some terms ago, on a real API server with
//! a registry that remembers the terms.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::StatusCode;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Service};
use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use mcs_core::{
    election::Policy,
    names::{ANNOTATION_TERM, EXPORT_WANTED, LABEL_EXPORT, derived_service_name},
    timing::DEFAULT_LEASE,
};
use mcs_e2e::{
    in_process::{Controller, LEASE},
    shared::pair,
    stack::{Stack, StackOptions},
    tap::Held,
    wait_for,
};
use serde_json::json;

use crate::{
    exports::merge,
    site::{HTTP, Site},
    support::READY,
    witness::Witness,
};

/// A leader that hears nothing of its Lease for minutes, and may write all the same: longer than any test.
const DEAF: Policy = Policy {
    lease_duration: Duration::from_secs(600),
    renew_deadline: Duration::from_secs(500),
    retry_period: Duration::from_secs(2),
};
/// A term that no clock comes near.
const AHEAD: u64 = 4_000_000_000_000_000;
const OLD_TERMS: &str = "mcs_controller_registry_failures_total{reason=\"old_term\"";

/// The term in the Lease.
async fn term(site: &Site<'_>) -> Result<u64> {
    let lease = site.place.leases().get(LEASE).await?;
    Ok(lease.annotations().get(ANNOTATION_TERM).context("a term")?.parse()?)
}

/// Waits until the registry knows the cluster's exports as of a term above `than`.
async fn told_above(site: &Site<'_>, than: u64) -> Result<()> {
    wait_for("a leader of a later term at the registry", async || {
        let cluster = site.registry.rest_of(&site.ns, "clusters/east").await?;
        let told = cluster["version"]["term"].as_str().and_then(|term| term.parse::<u64>().ok());
        ensure!(told > Some(than), "{cluster}");
        Ok(())
    })
    .await
}

async fn leads(controller: &Controller, leads: f64) -> Result<()> {
    wait_for("a leader, or none", async || {
        let is = controller.metric("mcs_controller_leader").await?;
        ensure!(is == leads, "{is}");
        Ok(())
    })
    .await
}

/// Deletes the Lease, as an administrator may.
async fn delete_lease(site: &Site<'_>) -> Result<()> {
    site.place.leases().delete(LEASE, &DeleteParams::default()).await?;
    Ok(())
}

/// O40: two controllers lead, since the Lease was deleted and the older one cannot ask for it. What the older one had
/// sent arrives late, and it goes on with its work: nothing that the newer one has written changes back.
#[tokio::test]
async fn of_two_leaders_the_older_one_changes_nothing_back() -> Result<()> {
    // The older one is refused by the registry for as long as this lasts, and is not to tell users that its lease has ended.
    let options = StackOptions { lease: DEFAULT_LEASE * 4, ..StackOptions::for_namespace("twoleaders") };
    let registry = Stack::start_without_controllers(options).await?;
    let mut site = Site::at(&registry, "twoleaders").await?;
    for name in ["shop", "desk"] {
        site.named(name).create_service(&[HTTP], &["10.0.0.1"]).await?;
    }
    site.named("shop").create_export().await?;
    site.beta_exports("cart", &[1]).await?;
    site.beta_exports("tool", &[1]).await?;

    let policy = site.place.options.leader.policy;
    site.place.options.leader.policy = DEAF;
    let tap = site.tap()?;
    tap.hold(Held { lease_watches: true, ..Held::default() });
    let older = site.place.start(tap.clone()).await?;
    site.work_ends(&older).await?;
    site.named("shop").says(&READY).await?;
    site.named("shop").imports(&[("east", &["10.0.0.1"])]).await?;
    // The first change of an object takes two writes.
    site.beta_exports("cart", &[1, 2]).await?;
    site.imports_of_beta("cart", &[1, 2]).await?;
    site.work_ends(&older).await?;
    let older_term = term(&site).await?;

    // A change, an end and a beginning, of which the older one's writes are on the way.
    let before = tap.writes().len();
    tap.hold(Held { leases: true, writes: true, ..Held::default() });
    site.beta_exports("cart", &[1, 2, 3]).await?;
    site.beta.withdraw(&site.key("tool")?).await?;
    site.beta_exports("late", &[1]).await?;
    wait_for("three writes that are on the way", async || {
        let held = tap.writes().split_off(before);
        ensure!(held.len() >= 3, "{held:?}");
        Ok(())
    })
    .await?;

    delete_lease(&site).await?;
    site.place.options.leader.policy = policy;
    let newer = site.start().await?;
    ensure!(term(&site).await? > older_term, "the term after the Lease was deleted");
    leads(&older, 1.0).await?;
    told_above(&site, older_term).await?;
    site.imports_of_beta("cart", &[1, 2, 3]).await?;
    site.imports_of_beta("late", &[1]).await?;
    site.named("tool").imports_nothing().await?;
    site.beta_exports("cart", &[1, 2, 3, 4]).await?;
    site.beta_exports("tool", &[1]).await?;
    site.beta.withdraw(&site.key("late")?).await?;
    site.imports_of_beta("cart", &[1, 2, 3, 4]).await?;
    site.imports_of_beta("tool", &[1]).await?;
    site.named("late").imports_nothing().await?;
    site.work_ends(&newer).await?;
    let there = site.content().await?;

    let witness = Witness::start(&[&pair().await?.east], &site.ns).await?;
    tap.hold(Held { leases: true, ..Held::default() });
    let mut late = wait_for("the answers to what was late", async || {
        let late = tap.writes().split_off(before);
        let answers: Vec<_> = late.iter().take(3).filter_map(|write| write.answer).collect();
        if answers.len() == 3 { Ok(answers) } else { Err(format!("{late:?}")) }
    })
    .await?;
    late.sort();
    // What was bound to an object that has changed is refused. What is made anew of an import that ended meanwhile goes
    // again.
    assert_eq!(late, [StatusCode::CREATED, StatusCode::CONFLICT, StatusCode::CONFLICT]);
    site.named("late").imports_nothing().await?;
    site.becomes(&there).await?;
    let losses = witness.losses().await?;
    let derived = derived_service_name(&site.key("late")?);
    let expected = |loss: &&String| loss.contains("ServiceImport late ") || loss.contains(&derived);
    assert_eq!(losses.iter().filter(|loss| !expected(loss)).collect::<Vec<_>>(), Vec::<&String>::new());

    // Both go on, with everything that they do.
    let witness = Witness::start(&[&pair().await?.east], &site.ns).await?;
    for last in 5..=9 {
        site.beta_exports("cart", &(1..=last).collect::<Vec<_>>()).await?;
        let local: Vec<_> = (1..last).map(|host| format!("10.0.0.{host}")).collect();
        let local: Vec<_> = local.iter().map(String::as_str).collect();
        site.named("shop").set_addresses(&local).await?;
        site.imports_of_beta("cart", &(1..=last).collect::<Vec<_>>()).await?;
        site.named("shop").imports(&[("east", &local)]).await?;
    }
    let labels = json!({ "metadata": { "labels": { LABEL_EXPORT: EXPORT_WANTED } } });
    merge(&site.named("desk").api::<Service>(), "desk", labels).await?;
    site.named("desk").says(&READY).await?;
    site.named("desk").imports(&[("east", &["10.0.0.1"])]).await?;
    site.work_ends(&newer).await?;
    leads(&older, 1.0).await?;
    let losses = witness.losses().await?;
    // Conditions of what is new become others as it is accepted; and the probe changes.
    let probe = derived_service_name(&site.key("probe")?);
    let expected = |loss: &&String| loss.contains(" desk lost Ready=") || loss.contains(&probe);
    assert_eq!(losses.iter().filter(|loss| !expected(loss)).collect::<Vec<_>>(), Vec::<&String>::new());
    ensure!(older.metric(OLD_TERMS).await? >= 1.0, "the registry has refused nothing of the older one");
    let exports = site.registry.rest_of(&site.ns, "exports").await?;
    told_above(&site, older_term).await?;
    ensure!(exports["exports"].as_array().map(Vec::len) == Some(5), "{exports}");

    // Ends are not undone by the one that is told of them last.
    let labels = json!({ "metadata": { "labels": { LABEL_EXPORT: null } } });
    merge(&site.named("desk").api::<Service>(), "desk", labels).await?;
    site.beta.withdraw(&site.key("tool")?).await?;
    site.named("desk").export_is_gone().await?;
    site.named("desk").imports_nothing().await?;
    site.named("tool").imports_nothing().await?;
    site.work_ends(&newer).await?;
    let there = site.content().await?;

    // It hears of its Lease again, and stops.
    tap.hold(Held::default());
    leads(&older, 0.0).await?;
    let writes = tap.writes().len();
    site.beta_exports("cart", &[77]).await?;
    site.imports_of_beta("cart", &[77]).await?;
    site.beta_exports("cart", &(1..=9).collect::<Vec<_>>()).await?;
    site.becomes(&there).await?;
    site.work_ends(&newer).await?;
    assert_eq!(tap.writes().len(), writes, "writes of a controller that knows that it leads no more");
    older.end().await?;
    newer.end().await
}

/// The Lease is deleted while its leader lives and while nobody does, and it is restored from an older copy: the next
/// term is above what the registry knows, and nothing is written anew.
#[tokio::test]
async fn a_lease_that_is_deleted_or_restored_costs_nothing_but_a_term() -> Result<()> {
    let mut site = Site::begin("lostlease").await?;
    // A copy names a holder that is gone, and is waited for.
    site.place.options.leader.policy = Policy {
        lease_duration: Duration::from_secs(3),
        renew_deadline: Duration::from_secs(2),
        retry_period: Duration::from_millis(400),
    };
    site.named("shop").create_service(&[HTTP], &["10.0.0.1"]).await?;
    site.named("shop").create_export().await?;
    site.beta_exports("cart", &[1, 2]).await?;
    let first = site.start().await?;
    site.named("shop").says(&READY).await?;
    site.named("shop").imports(&[("east", &["10.0.0.1"])]).await?;
    site.imports_of_beta("cart", &[1, 2]).await?;
    site.work_ends(&first).await?;
    let versions = site.versions().await?;
    let copy = site.place.leases().get(LEASE).await?;

    // Its leader makes it again.
    delete_lease(&site).await?;
    wait_for("a Lease", async || {
        let lease = site.place.leases().get(LEASE).await?;
        ensure!(lease.uid() != copy.uid(), "the old one");
        Ok(())
    })
    .await?;
    site.work_ends(&first).await?;
    first.end().await?;

    // A clock was wrong once: the terms are far ahead of the time.
    let ahead = json!({ "metadata": { "annotations": { ANNOTATION_TERM: AHEAD.to_string() } } });
    site.place.leases().patch(LEASE, &PatchParams::default(), &Patch::Merge(ahead)).await?;
    let second = site.start().await?;
    let known = term(&site).await?;
    ensure!(known > AHEAD, "{known}");
    second.end().await?;

    // Nobody remembers but the registry.
    delete_lease(&site).await?;
    let third = site.start().await?;
    ensure!(term(&site).await? > known, "not above {known}");
    let known = term(&site).await?;
    ensure!(third.metric(OLD_TERMS).await? >= 1.0, "the registry has refused nothing");
    third.end().await?;

    delete_lease(&site).await?;
    let mut restored = Lease { spec: copy.spec, ..Lease::default() };
    restored.metadata.name = Some(LEASE.to_owned());
    restored.metadata.annotations = copy.metadata.annotations;
    site.place.leases().create(&PostParams::default(), &restored).await?;
    let fourth = site.start().await?;
    ensure!(term(&site).await? > known, "not above {known}");
    ensure!(fourth.metric(OLD_TERMS).await? >= 1.0, "the registry has refused nothing");
    told_above(&site, known).await?;
    assert_eq!(site.versions().await?, versions, "what was written");

    // It works.
    site.named("shop").set_addresses(&["10.0.0.1", "10.0.0.2"]).await?;
    site.named("shop").imports(&[("east", &["10.0.0.1", "10.0.0.2"])]).await?;
    let export = async || {
        let export = site.registry.rest_of(&site.ns, "exports?includeEndpoints=true").await?;
        ensure!(export.to_string().contains("10.0.0.2"), "{export}");
        Ok(())
    };
    wait_for("the change at the registry", export).await?;
    fourth.end().await
}
