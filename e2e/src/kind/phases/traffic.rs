//! Phase 4.

use anyhow::{Result, ensure};

use super::{Scene, greeter};
use crate::{
    kind::{
        LONG,
        member::Member,
        network::{answer_clustersets, each, route},
        shop::{GREETER, SHOP, Traffic, imported, names, ready_endpoints, scale},
    },
    wait_at_most,
};

/// What a client goes on for after an event, to see that nothing fails any more: five seconds.
const FURTHER: u64 = 100;
const ALL: [&str; 3] = ["east", "north", "west"];

pub(super) async fn run(scene: &Scene<'_>) -> Result<String> {
    let Scene { east, west, north, .. } = scene;
    scene.install_plaintext().await?;
    scene.step("exporting 2 servers of each cluster", scene.serve(west, 2)).await?;
    for member in [east, north] {
        member.apply(&greeter(member, 2)).await?;
    }
    let importing = each(scene.members, |member| imported(member, SHOP, GREETER, 6, &ALL));
    let addresses = scene.step("waiting for the import in each cluster", importing).await?;
    let to = format!("{}:8080", addresses[0]);
    let client = Traffic::start(east, SHOP, "client", to.clone());
    let mut client = scene.step(&format!("sending from east to the clusterset IP, {to}"), client).await?;
    let servers = names(&[(east, 2), (west, 2), (north, 2)]).await?;
    scene.step("all six servers answer", client.is_answered_by(&servers)).await?;

    let answering = each(scene.members, answer_clustersets);
    let answers = scene.step("having CoreDNS answer for clusterset.local", answering).await?;
    let mut by_name = Vec::new();
    if answers.iter().all(|answers| *answers) {
        let to = format!("{GREETER}.{SHOP}.svc.clusterset.local:8080");
        for member in [*east, *west] {
            let client = Traffic::start(member, SHOP, "client-by-name", to.clone());
            let client = scene.step(&format!("sending from {} to {to}", member.name()), client).await?;
            scene.step("all six servers answer", client.is_answered_by(&servers)).await?;
            by_name.push(client);
        }
    } else {
        scene.screen.progress("CoreDNS is older than 1.12.2: names in clusterset.local are not asked for")?;
    }

    client.begin().await?;
    for client in &mut by_name {
        client.begin().await?;
    }
    scene.step("scaling west to 4 servers", scale(west, SHOP, GREETER, 4)).await?;
    let servers = names(&[(east, 2), (west, 4), (north, 2)]).await?;
    scene.step("all eight answer", client.is_answered_by(&servers)).await?;
    scene.step("scaling west to 1 server", scale(west, SHOP, GREETER, 1)).await?;
    let servers = names(&[(east, 2), (west, 1), (north, 2)]).await?;
    scene.step("these five answer", client.is_answered_by(&servers)).await?;
    let mut scaled = client.without_failure(FURTHER).await?;
    for client in &by_name {
        scaled += client.without_failure(FURTHER).await?;
    }
    scene.screen.progress(format!("{scaled} requests while west was scaled, none failed"))?;

    let lost = lose(scene, &mut client, north).await?;
    scene.step("all five answer again", client.is_answered_by(&servers)).await?;
    client.begin().await?;
    let mut after = client.without_failure(FURTHER).await?;
    for client in &mut by_name {
        scene.step("all five answer by name", client.is_answered_by(&servers)).await?;
        client.begin().await?;
        after += client.without_failure(FURTHER).await?;
    }
    let named = match by_name.len() {
        0 => "not asked for".to_owned(),
        _ => "answered in east and west, also after that".to_owned(),
    };
    Ok(format!(
        "{scaled} requests through scaling, none failed; {lost}; {after} after it is back, none failed; clusterset.local {named}"
    ))
}

/// Stops a cluster until its lease has ended, and lets it go on.
async fn lose(scene: &Scene<'_>, client: &mut Traffic<'_>, lost: &Member) -> Result<String> {
    let Scene { east, west, .. } = scene;
    client.begin().await?;
    let node = lost.plan.node();
    scene.step(&format!("stopping all of {}", lost.name()), lost.docker(&["pause", &node])).await?;
    let gone = wait_at_most(LONG, "the end of its endpoints in east", async || {
        let ready = ready_endpoints(east, SHOP, GREETER).await?;
        ensure!(ready.len() == 3, "{ready:?}");
        anyhow::Ok(())
    });
    scene.step("waiting until its lease has ended", gone).await?;
    let servers = names(&[(east, 2), (west, 1)]).await?;
    scene.step("the other two clusters answer", client.is_answered_by(&servers)).await?;
    let during = client.after(0).await?;
    client.begin().await?;
    let without = client.without_failure(FURTHER).await?;
    scene.step(&format!("letting {} go on", lost.name()), lost.docker(&["unpause", &node])).await?;
    scene.step("its routes", route(scene.members)).await?;
    scene.step("it is back", imported(east, SHOP, GREETER, 5, &ALL)).await?;
    Ok(format!(
        "{} of {} failed while {} was silent and its lease ran, none of {without} after that",
        during.failed,
        during.ended(),
        lost.name()
    ))
}
