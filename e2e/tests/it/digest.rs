//! What somebody takes from the registry behind a controller's back: the next renewal tells that something is missing.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::ResourceExt;
use mcs_controller::api::ServiceExport;
use mcs_core::names::LABEL_SOURCE_CLUSTER;
use mcs_e2e::{
    objects::Port,
    shared::pair,
    stack::{Stack, StackOptions},
    wait_for,
};

use crate::{
    support::{Place, READY},
    witness::Witness,
};

const HTTP: [Port<'_>; 1] = [("http", 80)];
const OF_EAST: (&str, &[&str]) = ("east", &["10.1.0.1"]);
const OF_WEST: (&str, &[&str]) = ("west", &["10.2.0.1"]);

/// O34. The other clusters believe the registry, so what was removed goes there, and comes back: all that they have of
/// others stays, the ServiceImport too.
#[tokio::test]
async fn what_is_removed_at_the_registry_is_back_with_the_next_renewal_and_no_source_was_touched()
-> Result<()> {
    let pair = pair().await?;
    let namespace = pair.namespace("digest").await?;
    let ns = namespace.name();
    let options = StackOptions { lease: Duration::from_secs(15), ..StackOptions::for_namespace(ns) };
    let stack = Stack::start(options, &[&pair.east, &pair.west]).await?;
    let [east, west] = pair.clients().map(|client| Place::new(client, ns, "cart"));
    let [east_pay, west_pay] = pair.clients().map(|client| Place::new(client, ns, "pay"));
    east.export(&HTTP, OF_EAST.1).await?;
    west.export(&HTTP, OF_WEST.1).await?;
    east_pay.export(&HTTP, &["10.1.0.2"]).await?;
    for place in [&east, &west] {
        place.imports(&[OF_EAST, OF_WEST]).await?;
        place.says(&READY).await?;
    }
    let pay = west_pay.imports(&[("east", &["10.1.0.2"])]).await?;
    east_pay.says(&READY).await?;
    is_whole(&stack).await?;
    let (sources, import) = ([source(&east).await?, source(&east_pay).await?], west.import().await?);
    let witness = Witness::start(&[&pair.east, &pair.west], ns).await?;
    let registered = registrations(&stack)?;

    // A whole cluster, which has to be forced while its lease is active.
    let refused = stack.rest_delete("clusters/east").await;
    assert!(format!("{refused:?}").contains("LEASE_ACTIVE"), "{refused:?}");
    let removed = stack.rest_delete("clusters/east?force=true").await?;
    assert_eq!((&removed["exports"], &removed["endpoints"]), (&2.into(), &2.into()), "{removed}");
    is_back(&stack, &east, &west).await?;
    west_pay.imports(&[("east", &["10.1.0.2"])]).await?;
    assert_eq!(registrations(&stack)?, registered + 1);

    // One export, as if its cluster had ended it.
    let exported = stack.rest("clusters/east").await?;
    let version = |field: &str| exported["version"][field].as_str().context("a version");
    let uid = exported["uid"].as_str().context("a UID")?;
    let act = format!("uid={uid}&term={}&seq={}", version("term")?, version("seq")?);
    stack.rest_delete(&format!("clusters/east/exports/{ns}/cart?{act}")).await?;
    is_back(&stack, &east, &west).await?;
    // Within the same membership: the sums differed.
    assert_eq!(registrations(&stack)?, registered + 1);

    assert_eq!([source(&east).await?, source(&east_pay).await?], sources);
    let of_east = |slice: &&EndpointSlice| slice.labels()[LABEL_SOURCE_CLUSTER] == "east";
    let slices = import.slices.iter().filter(of_east).chain(&pay.slices);
    let slices = slices.map(|slice| format!("EndpointSlice {}", slice.name_any()));
    let of_pay = [format!("Service {}", pay.service.name_any()), "ServiceImport pay".to_owned()];
    let may_go: Vec<_> = slices.chain(of_pay).map(|object| format!("west {object} ")).collect();
    let mut losses = witness.losses().await?;
    losses.retain(|loss| {
        loss != "west ServiceImport cart lost cluster east"
            && !may_go.iter().any(|object| loss.starts_with(object.as_str()))
    });
    assert_eq!(losses, Vec::<String>::new());
    Ok(())
}

/// Waits until the registry has all of east again, and both clusters show it.
async fn is_back(stack: &Stack, east: &Place, west: &Place) -> Result<()> {
    is_whole(stack).await?;
    for place in [east, west] {
        place.imports(&[OF_EAST, OF_WEST]).await?;
        place.says(&READY).await?;
    }
    Ok(())
}

/// The versions of what a user has made, the conditions of the ServiceExport apart.
async fn source(place: &Place) -> Result<(Option<String>, Option<String>, Option<i64>)> {
    Ok((
        place.api::<Service>().get(&place.name).await?.resource_version(),
        place.api::<EndpointSlice>().get(&format!("{}-x", place.name)).await?.resource_version(),
        place.api::<ServiceExport>().get(&place.name).await?.metadata.generation,
    ))
}

/// Waits until the registry has both clusters with all that they export, and knows it.
async fn is_whole(stack: &Stack) -> Result<()> {
    wait_for("both clusters to be whole", async || {
        let list = stack.rest("clusters").await?;
        let exports = |cluster: &serde_json::Value| cluster["exports"].as_u64().unwrap_or_default();
        let found: Vec<_> = list["clusters"].as_array().context("a list")?.iter().map(exports).collect();
        ensure!(found == [2, 1] && list["complete"] == true, "{list}");
        Ok(())
    })
    .await
}

/// How often east's controller registered.
fn registrations(stack: &Stack) -> Result<usize> {
    Ok(stack.controller("east")?.program.log().matches("registered").count())
}
