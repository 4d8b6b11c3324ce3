//! Phase 6.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{ResourceExt, api::ListParams};
use mcs_controller::api::ServiceImport;
use mcs_core::names::{LABEL_MANAGED_BY, MANAGED_BY};
use serde_json::json;

use super::{EU, Scene, check, pods_of};
use crate::{
    kind::{
        LONG,
        charts::{CONTROLLER, DISCOVERY_RELEASE, REGISTRY, SYSTEM, install_discovery, upgrade},
        images::NEXT_TAG,
        member::Member,
        network::each,
        shop::{GREETER, SHOP, Traffic, derived, imported, names, scale},
        witness::Witness,
    },
    wait_at_most,
};

/// Pods of ours: a registry, two controllers in each cluster, and a discovery service.
const PODS: usize = 8;

pub(super) async fn run(scene: &Scene<'_>) -> Result<String> {
    let Scene { east, west, north, .. } = scene;
    scene.install_plaintext().await?;
    scene.step("installing the discovery service in east", install_discovery(east, &[])).await?;
    scene.step("exporting 2 servers of west", scene.serve(west, 2)).await?;
    let importing = each(scene.members, |member| imported(member, SHOP, GREETER, 2, &["west"]));
    let addresses = scene.step("waiting for the import in each cluster", importing).await?;
    let mut clients = Vec::new();
    for (member, address) in [(*east, &addresses[0]), (*north, &addresses[2])] {
        let client = Traffic::start(member, SHOP, "client", format!("{address}:8080"));
        clients.push(scene.step(&format!("sending from {}", member.name()), client).await?);
    }
    for client in &mut clients {
        client.begin().await?;
    }
    let before = each(scene.members, identities).await?;
    let witnesses = each(scene.members, Witness::start).await?;

    let tag = format!("image.tag={NEXT_TAG}");
    let tag = [tag.as_str()];
    scene.step("upgrading the registry", upgrade(east, REGISTRY, &tag)).await?;
    let upgrading = each(scene.members, |member| upgrade(member, CONTROLLER, &tag));
    scene.step("upgrading the controllers", upgrading).await?;
    scene.step("upgrading the discovery service", upgrade(east, DISCOVERY_RELEASE, &tag)).await?;
    scene.step("all Pods run the other image", run_next(scene.members)).await?;
    let url = format!("http://{EU}");
    let checking = each(scene.members, |member| check(scene.members, member, &url, &[]));
    scene.step("mcs-admin check, in each cluster", checking).await?;

    scene.step("scaling west to 3 servers", scale(west, SHOP, GREETER, 3)).await?;
    let servers = names(&[(west, 3)]).await?;
    let importing = each(scene.members, |member| imported(member, SHOP, GREETER, 3, &["west"]));
    scene.step("each cluster imports the third", importing).await?;
    let mut answered = 0;
    for client in &clients {
        scene.step("all three answer", client.is_answered_by(&servers)).await?;
        answered += client.without_failure(0).await?;
    }
    for witness in &witnesses {
        witness.nothing_went().await?;
    }
    let after = each(scene.members, identities).await?;
    ensure!(
        before.iter().zip(&after).all(|(before, after)| before.is_subset(after)),
        "{before:?} became {after:?}"
    );
    Ok(format!("{answered} requests while all releases were upgraded, none failed; no object was made anew"))
}

async fn run_next(members: &[Member]) -> Result<()> {
    let programs =
        [(SYSTEM, REGISTRY), (SYSTEM, "mcs-controller"), (DISCOVERY_RELEASE, "global-discovery-service")];
    wait_at_most(LONG, "all Pods of ours to run the other image", async || {
        let mut upgraded = 0;
        for member in members {
            for (namespace, program) in programs {
                for pod in pods_of(member, namespace, program).await? {
                    if pod.metadata.deletion_timestamp.is_some() {
                        continue;
                    }
                    let image = json!(pod.spec)["containers"][0]["image"].clone();
                    let is_next = image.as_str().is_some_and(|image| image.ends_with(NEXT_TAG));
                    ensure!(is_next, "{} in {} still runs {image}", pod.name_any(), member.name());
                    upgraded += 1;
                }
            }
        }
        ensure!(upgraded == PODS, "{upgraded} Pods in place of {PODS}");
        anyhow::Ok(())
    })
    .await
}

/// What was made for the import, each by its UID.
async fn identities(member: &Member) -> Result<BTreeSet<String>> {
    let import = member.api::<ServiceImport>(SHOP).get(GREETER).await?;
    let service = derived(member, SHOP, GREETER).await?;
    let ours = ListParams::default().labels(&format!("{LABEL_MANAGED_BY}={MANAGED_BY}"));
    let slices = member.api::<EndpointSlice>(SHOP).list(&ours).await?.items;
    let uids = slices.iter().filter_map(ResourceExt::uid);
    Ok(uids.chain([import.uid(), service.uid()].into_iter().flatten()).collect())
}
