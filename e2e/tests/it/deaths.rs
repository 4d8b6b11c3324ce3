//! A registry that dies at each message of a sync, and a cluster that dies for good, as others see it.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use mcs_e2e::{
    in_process::Place,
    programs::Signal,
    relay::{Relay, Sync},
    shared::pair,
    stack::{Stack, StackOptions},
    tap::Tap,
    wait_for,
};

use crate::{
    site::{HTTP, Site},
    support::{Imported, Place as Named, READY},
    witness::Witness,
};

/// More than a sync of two exports has messages.
const MOST_MESSAGES: usize = 40;

/// O49: the registry is killed when the first message of a sync has passed, after the next start when the second one
/// has, and so on to the last.
#[tokio::test]
async fn a_registry_that_is_killed_after_each_message_of_a_sync_takes_nothing_from_anybody() -> Result<()> {
    let pair = pair().await?;
    let ns = pair.namespace("syncs").await?.name().to_owned();
    let options = StackOptions { lease: Duration::from_secs(10), ..StackOptions::for_namespace(&ns) };
    let mut stack = Stack::start_without_controllers(options).await?;
    let relay = Relay::start(stack.registry().grpc).await?;
    let exporter = Place::prepare(&pair.east, &ns, &[&ns], &relay.url()).await?;
    let importer = Place::prepare(&pair.west, &ns, &[&ns], &stack.url()).await?;
    let here = |name: &str| Named::new(pair.east.client(), &ns, name);
    for name in ["cart", "tool"] {
        here(name).export(&[HTTP], &["10.0.0.1", "10.0.0.2"]).await?;
    }
    let running = [exporter.start(Tap::default()).await?, importer.start(Tap::default()).await?];
    let clusters = [&pair.east, &pair.west];
    for name in ["cart", "tool"] {
        here(name).says(&READY).await?;
        for cluster in clusters {
            let imports = [("east", ["10.0.0.1", "10.0.0.2"].as_slice())];
            Named::new(cluster.client(), &ns, name).imports(&imports).await?;
        }
    }
    for controller in &running {
        controller.idle().await?;
    }
    let witness = Witness::start(&clusters, &ns).await?;

    let mut messages = 1;
    loop {
        relay.hold_after(messages);
        stack.end_registry(Signal::Kill).await?;
        stack.start_registry().await?;
        let sync = tokio::time::timeout(mcs_e2e::wait::LIMIT, relay.outcome()).await;
        if sync.context("no sync after a restart of the registry")?? == Sync::Ended {
            break;
        }
        // What it has got it works on, before it is killed.
        stack.rest("clusters").await?;
        messages += 1;
        ensure!(messages < MOST_MESSAGES, "a sync without end");
    }
    // It begins, names, is asked for what is missing, tells it, and ends: each is a message at least.
    ensure!(messages > 8, "a sync has {messages} messages");

    wait_for("both clusters to be whole", async || {
        let list = stack.rest("clusters").await?;
        let clusters = list["clusters"].as_array().context("a list")?;
        let active = clusters.iter().filter(|it| it["lease"]["state"] == "LEASE_STATE_ACTIVE").count();
        ensure!(active == 2 && list["complete"] == true, "{list}");
        Ok(())
    })
    .await?;
    // Deletions that were due would come before what changes now.
    for name in ["cart", "tool"] {
        here(name).set_addresses(&["10.0.0.1", "10.0.0.2", "10.0.0.3"]).await?;
        for cluster in clusters {
            let imports = [("east", ["10.0.0.1", "10.0.0.2", "10.0.0.3"].as_slice())];
            Named::new(cluster.client(), &ns, name).imports(&imports).await?;
        }
    }
    assert_eq!(witness.losses().await?, Vec::<String>::new());
    for controller in running {
        controller.end().await?;
    }
    Ok(())
}

/// One of three clusters dies for good: its endpoints go when the registry has judged its lease, and nothing else changes
/// anywhere.
#[tokio::test]
async fn of_a_dead_cluster_the_endpoints_go_after_its_lease_and_nothing_else_changes() -> Result<()> {
    let pair = pair().await?;
    let mut options = StackOptions::for_namespace("onedies");
    options.lease = Duration::from_secs(10);
    let stack = Stack::start_without_controllers(options).await?;
    let site = Site::at(&stack, "onedies").await?;
    let west = Place::prepare(&pair.west, &site.ns, &[&site.ns], &stack.url()).await?;
    let there = |name: &str| Named::new(pair.west.client(), &site.ns, name);
    for name in ["both", "alone"] {
        there(name).export(&[HTTP], &["10.2.0.1", "10.2.0.2"]).await?;
    }
    site.named("own").export(&[HTTP], &["10.0.0.1"]).await?;
    site.beta_exports("both", &[1]).await?;
    site.beta_exports("other", &[1, 2]).await?;
    let dying = west.start(Tap::default()).await?;
    let controller = site.start().await?;
    let of_west = ("west", ["10.2.0.1", "10.2.0.2"].as_slice());
    site.named("both").imports(&[("beta", &["10.1.0.1"]), of_west]).await?;
    site.named("alone").imports(&[of_west]).await?;
    site.named("own").says(&READY).await?;
    site.named("own").imports(&[("east", &["10.0.0.1"])]).await?;
    site.imports_of_beta("other", &[1, 2]).await?;
    for name in ["both", "alone"] {
        there(name).says(&READY).await?;
    }
    site.work_ends(&controller).await?;
    let before = site.versions().await?;
    let slices = async |name: &str| -> Result<BTreeSet<String>> {
        let slices = site.named(name).import().await?.slices;
        let of_west = slices.iter().filter(|slice| slice.labels().values().any(|value| value == "west"));
        Ok(of_west.map(|slice| format!("EndpointSlice {}", slice.name_any())).collect())
    };
    let gone: BTreeSet<_> = slices("both").await?.into_iter().chain(slices("alone").await?).collect();
    ensure!(gone.len() == 2, "{gone:?}");

    dying.tap.kill();
    for (name, others) in [
        ("both", Imported::from([("beta".to_owned(), ["10.1.0.1".to_owned()].into())])),
        ("alone", Imported::new()),
    ] {
        wait_for("the end of the dead cluster's endpoints", async || {
            let addresses = site.named(name).import().await?.addresses();
            ensure!(addresses == others, "{addresses:?}");
            Ok(())
        })
        .await?;
        // They are not gone before that.
        let cluster = stack.rest_of(&site.ns, "clusters/west").await?;
        assert_eq!(cluster["lease"]["state"], "LEASE_STATE_EXPIRED", "{cluster}");
    }
    site.named("both").imports(&[("beta", &["10.1.0.1"])]).await?;
    site.named("alone").imports(&[]).await?;
    site.work_ends(&controller).await?;

    let after = site.versions().await?;
    let names = before.keys().chain(after.keys());
    let changed: BTreeSet<_> = names.filter(|name| before.get(*name) != after.get(*name)).cloned().collect();
    let imports = ["both", "alone"].map(|name| format!("ServiceImport {name}"));
    assert_eq!(changed, gone.into_iter().chain(imports.clone()).collect());
    for import in imports {
        assert_eq!(before[&import].0, after[&import].0, "the uid of {import}");
    }
    controller.end().await
}
