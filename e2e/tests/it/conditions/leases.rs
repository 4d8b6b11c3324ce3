//! What exports say while no registry has them: not yet, not any more, not this cluster.

use super::*;
use k8s_openapi::api::core::v1::Namespace;
use mcs_e2e::{peer::Peer, programs::Signal};

const PENDING: [&str; 4] =
    [names::CONDITION_READY, "Unknown", names::REASON_PENDING, "waiting for a registry to take the export"];
const EXPIRED: [&str; 4] = [
    names::CONDITION_READY,
    "False",
    names::REASON_LEASE_EXPIRED,
    "this cluster's lease has run out: no registry has taken a renewal for that long, or none has got all that is \
     exported since; other clusters no longer show its endpoints",
];

const ENDING: [&str; 4] = [
    names::CONDITION_READY,
    "Unknown",
    names::REASON_PENDING,
    "being deleted: the finalizer stays until a registry has let the export go, at most 60 s after the deletion",
];

/// A Service `cart` that is exported.
async fn cart(prefix: &str, registry_flags: &[&str]) -> Result<Scene> {
    let scene = Scene::prepare(prefix, registry_flags).await?;
    scene.create_service("cart", http(), &["10.0.0.1"]).await?;
    scene.create_export("cart", json!({})).await?;
    Ok(scene)
}

#[tokio::test]
async fn without_a_registry_an_export_waits_and_one_that_a_registry_had_says_that_the_lease_is_over()
-> Result<()> {
    let mut scene = cart("alone", &[]).await?;
    scene.stack.end_registry(Signal::Kill).await?;
    scene.start_controller().await?;
    scene.says::<ServiceExport>("cart", &[VALID, PENDING]).await?;
    // As long as a lease is that no registry has said yet.
    scene.says::<ServiceExport>("cart", &[VALID, EXPIRED]).await?;
    scene.stack.start_registry().await?;
    scene.says::<ServiceExport>("cart", &[VALID, READY, NO_CONFLICTS]).await?;
    scene.stack.end_registry(Signal::Kill).await?;
    scene.says::<ServiceExport>("cart", &[VALID, EXPIRED, NO_CONFLICTS]).await?;
    scene.place("cart").delete::<ServiceExport>("cart").await?;
    scene.says::<ServiceExport>("cart", &[VALID, ENDING, NO_CONFLICTS]).await?;
    scene.stack.start_registry().await?;
    scene.place("cart").export_is_gone().await?;
    scene.tells(&Told::new()).await
}

/// A cluster that was away for longer than its lease is shown again when the registry has all that it exports. Here it
/// cannot, since it takes no more than twice as many names as exports of a cluster.
#[tokio::test]
async fn a_cluster_that_the_registry_does_not_show_says_so_though_its_renewals_are_taken() -> Result<()> {
    let mut scene = cart("hidden", &["--max-exports-per-cluster=1"]).await?;
    scene.start_controller().await?;
    scene.says::<ServiceExport>("cart", &[VALID, READY, NO_CONFLICTS]).await?;
    scene.stack.end_controller("east", Signal::Term).await?;
    wait_for("the end of the lease", async || {
        let answer = scene.stack.rest("clusters").await?;
        ensure!(answer["clusters"][0]["lease"]["state"] == "LEASE_STATE_EXPIRED", "{answer}");
        Ok::<_, anyhow::Error>(())
    })
    .await?;
    for name in ["one", "more"] {
        scene.create_service(name, http(), &["10.0.0.2"]).await?;
        scene.create_export(name, json!({})).await?;
    }
    scene.start_controller().await?;
    scene.says::<ServiceExport>("cart", &[VALID, EXPIRED, NO_CONFLICTS]).await?;
    for name in ["one", "more"] {
        scene.says::<ServiceExport>(name, &[VALID, EXPIRED]).await?;
    }
    let log = scene.stack.controller("east")?.program.log();
    assert!(!log.contains("no registry has taken a renewal for a lease"), "{log}");
    for name in ["one", "more"] {
        scene.place(name).delete::<ServiceExport>(name).await?;
    }
    scene.says::<ServiceExport>("cart", &[VALID, READY, NO_CONFLICTS]).await?;
    scene.tells(&Told::new()).await
}

/// O32: another cluster has the id, until its lease is over.
#[tokio::test]
async fn exports_of_a_cluster_whose_id_is_taken_say_whose_it_is() -> Result<()> {
    let mut scene = cart("taken", &[]).await?;
    let holder = Peer::join(&scene.stack, "east").await?;
    scene.start_controller().await?;
    let system = Api::<Namespace>::all(scene.client.clone()).get("kube-system").await?;
    let uid = system.metadata.uid.context("a UID")?;
    let refusal = format!(
        "cluster id east is held by the cluster with UID east-uid, not by that with UID {uid}: give one another id"
    );
    let failed = [names::CONDITION_READY, "False", names::REASON_FAILED, &refusal];
    scene.says::<ServiceExport>("cart", &[VALID, failed]).await?;
    let note = format!("the export is not taken: {refusal}");
    scene.tells(&[told(names::KIND_SERVICE_EXPORT, "cart", names::EVENT_EXPORT_FAILED, note)].into()).await?;
    drop(holder);
    scene.says::<ServiceExport>("cart", &[VALID, READY, NO_CONFLICTS]).await?;
    Ok(())
}

/// O26: a controller that was uninstalled takes no finalizer off; a person does, as the guide says, and what the registry
/// still has goes when a controller is back.
#[tokio::test]
async fn a_finalizer_goes_by_hand_as_the_guide_says() -> Result<()> {
    let mut scene = cart("by-hand", &[]).await?;
    scene.start_controller().await?;
    scene.says::<ServiceExport>("cart", &[VALID, READY, NO_CONFLICTS]).await?;
    scene.stack.end_controller("east", Signal::Term).await?;
    scene.place("cart").delete::<ServiceExport>("cart").await?;
    let hangs = scene.api::<ServiceExport>().get("cart").await?;
    assert_eq!(hangs.metadata.finalizers, Some(vec![names::FINALIZER_EXPORT.to_owned()]));
    let command =
        GUIDE.split_once("kubectl patch serviceexport cart -n shop --type=json").context("a command")?.1;
    let patch = command.split('\'').nth(1).context("a patch in quotes")?;
    let patch = Patch::Json::<()>(serde_json::from_str(patch)?);
    scene.api::<ServiceExport>().patch("cart", &PatchParams::default(), &patch).await?;
    scene.place("cart").export_is_gone().await?;
    assert_eq!(scene.stack.rest("exports").await?["exports"].as_array().map(Vec::len), Some(1));
    scene.start_controller().await?;
    wait_for("the end of the export in the registry", async || {
        let exports = scene.stack.rest("exports").await?;
        ensure!(exports["exports"].as_array().is_some_and(Vec::is_empty), "{exports}");
        Ok::<_, anyhow::Error>(())
    })
    .await
}
