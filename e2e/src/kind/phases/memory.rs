//! Phase 1.

use anyhow::Result;

use super::{Scene, restart_registry};
use crate::kind::{
    network::each,
    shop::{GREETER, SHOP, Traffic, imported, names, scale},
    witness::Witness,
};

pub(super) async fn run(scene: &Scene<'_>) -> Result<String> {
    let Scene { east, west, .. } = scene;
    scene.install_plaintext().await?;
    scene.step("exporting 2 servers of east", scene.serve(east, 2)).await?;
    let servers = scene.step("waiting until they are ready", names(&[(east, 2)])).await?;
    let importing = each(scene.members, |member| imported(member, SHOP, GREETER, 2, &["east"]));
    let addresses = scene.step("waiting for the import in each cluster", importing).await?;
    let to = format!("{}:8080", addresses[1]);
    let traffic = Traffic::start(west, SHOP, "client", to.clone());
    let mut traffic = scene.step(&format!("sending from west to the clusterset IP, {to}"), traffic).await?;
    scene.step("both servers of east answer", traffic.is_answered_by(&servers)).await?;

    traffic.begin().await?;
    let witness = Witness::start(west).await?;
    scene
        .step(
            "killing the registry, and waiting until it is back, with nothing in its memory",
            restart_registry(east),
        )
        .await?;
    scene.step("scaling to 3 servers", scale(east, SHOP, GREETER, 3)).await?;
    let servers = names(&[(east, 3)]).await?;
    scene.step("the third is imported", imported(west, SHOP, GREETER, 3, &["east"])).await?;
    scene.step("all three answer", traffic.is_answered_by(&servers)).await?;
    witness.nothing_went().await?;
    let answered = traffic.without_failure(0).await?;
    Ok(format!("{answered} requests through a restart of the registry and scaling to 3, none failed"))
}
