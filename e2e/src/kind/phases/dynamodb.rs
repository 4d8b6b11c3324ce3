//! Phase 3.

use std::{cell::RefCell, collections::BTreeMap};

use anyhow::{Context, Result, ensure};
use futures::try_join;
use serde_json::json;

use super::{EU, Scene, US, check, ended, install_controller_plaintext, kill_registry, rolled_out};
use crate::{
    kind::{
        LONG,
        charts::{REGISTRY, SYSTEM, install_registry, renewals},
        images::{MCS, TAG},
        member::Member,
        network::each,
        shop::{GREETER, SHOP, Traffic, container, imported, make_namespace, names, ready_pods, scale},
        witness::Witness,
    },
    wait_at_most,
    workload::TABLE,
};

const NAMESPACE: &str = "dynamodb";
const NAME: &str = "dynamodb";
const ENDPOINT: &str = "http://dynamodb.eu.example:8000";
const REGION: &str = "eu-west-1";
/// Any credentials do.
const CREDENTIALS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")];

pub(super) async fn run(scene: &Scene<'_>) -> Result<String> {
    let Scene { east, west, north, .. } = scene;
    scene.step("starting the stand-in for DynamoDB in east", start_table(east)).await?;
    let made = scene.step("mcs-admin create-table", create_table(east)).await?;
    scene.screen.quote(&made)?;
    let installing = async { try_join!(install_over_table(east), install_over_table(west)) };
    scene.step("installing registries in east and west, over the one table", installing).await?;
    let (eu, us) = ([EU, US], [US, EU]);
    let installing = async {
        try_join!(
            install_controller_plaintext(east, &eu),
            install_controller_plaintext(west, &us),
            install_controller_plaintext(north, &eu),
        )
    };
    scene
        .step(
            "installing a controller in each cluster, that of west for the registry in west first",
            installing,
        )
        .await?;
    let urls = format!("http://{EU},http://{US}");
    let checking = each(scene.members, |member| check(scene.members, member, &urls, &[]));
    let found = scene.step("mcs-admin check, in each cluster", checking).await?;
    scene.screen.quote(&found[1])?;

    scene.step("exporting 2 servers of east", scene.serve(east, 2)).await?;
    let importing = each(scene.members, |member| imported(member, SHOP, GREETER, 2, &["east"]));
    let addresses = scene.step("waiting for the import in each cluster", importing).await?;
    let client = Traffic::start(west, SHOP, "client", format!("{}:8080", addresses[1]));
    let mut client = scene.step("sending from west to the clusterset IP", client).await?;
    client.begin().await?;
    let witness = Witness::start(west).await?;

    let mut servers = 2;
    for (killed, other, url) in [(west, east, EU), (east, west, US)] {
        let name = killed.name();
        scene.step(&format!("killing the registry in {name} for good"), take_away(killed)).await?;
        servers += 1;
        let scaling = scale(east, SHOP, GREETER, u16::try_from(servers)?);
        scene.step(&format!("scaling to {servers} servers"), scaling).await?;
        let named = names(&[(east, servers)]).await?;
        let importing = each(scene.members, |member| imported(member, SHOP, GREETER, servers, &["east"]));
        scene.step("each cluster imports them by the other registry", importing).await?;
        scene.step("all of them answer", client.is_answered_by(&named)).await?;
        let renewing = renewed_since_now(scene.members, other);
        scene.step("all clusters renew at the other registry", renewing).await?;
        let url = format!("http://{url}");
        let checking = each(scene.members, |member| check(scene.members, member, &url, &[]));
        scene.step("mcs-admin check there: all clusters are active", checking).await?;
        scene.step(&format!("the registry in {name} is back"), bring_back(killed)).await?;
    }
    let checking = each(scene.members, |member| check(scene.members, member, &urls, &[]));
    scene.step("mcs-admin check at both", checking).await?;
    witness.nothing_went().await?;
    let answered = client.without_failure(0).await?;
    Ok(format!("{answered} requests while each of two registries was killed and was away, none failed"))
}

async fn start_table(member: &Member) -> Result<()> {
    make_namespace(member, NAMESPACE).await?;
    let region = format!("--region={REGION}");
    let container = container(&["table", &region], &[json!({ "name": "http", "containerPort": TABLE })]);
    let metadata = json!({ "namespace": NAMESPACE, "name": NAME });
    let objects = [
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
            "spec": {
                "replicas": 1, "selector": { "matchLabels": { "app": NAME } },
                "template": { "metadata": { "labels": { "app": NAME } }, "spec": { "containers": [container] } },
            },
        }),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": {
                "type": "LoadBalancer", "selector": { "app": NAME },
                "ports": [{ "name": "http", "port": TABLE, "targetPort": TABLE }],
            },
        }),
    ];
    member.apply(&objects).await?;
    ready_pods(member, NAMESPACE, NAME, 1).await.map(drop)
}

/// In a Pod, since the stand-in is reached there.
async fn create_table(member: &Member) -> Result<String> {
    const POD: &str = "create-table";
    let env = CREDENTIALS.map(|(name, value)| json!({ "name": name, "value": value }));
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "namespace": NAMESPACE, "name": POD },
        "spec": {
            "restartPolicy": "Never",
            "containers": [{
                "name": "main", "image": format!("{MCS}:{TAG}"), "env": env,
                "command": ["/mcs-admin", "create-table", format!("--region={REGION}"), format!("--endpoint={ENDPOINT}")],
            }],
        },
    });
    member.apply(&[pod]).await?;
    let (is_good, said) = ended(member, NAMESPACE, POD).await?;
    ensure!(is_good && said.contains("created"), "{said}");
    Ok(said)
}

/// Waits until a registry, the only one left, has twice seen a later renewal of each cluster: what it sees first may be of
/// before the other one was killed, and read late.
async fn renewed_since_now(members: &[Member], registry: &Member) -> Result<()> {
    let mut seen: BTreeMap<_, _> = members.iter().map(|member| (member.name(), Vec::new())).collect();
    let what = format!("two renewals of each cluster at the registry in {}", registry.name());
    let seen = RefCell::new(&mut seen);
    wait_at_most(LONG, &what, async || {
        let now = renewals(registry).await?;
        let mut seen = seen.borrow_mut();
        for (id, times) in seen.iter_mut() {
            let time = now.get(*id).with_context(|| format!("{id} is not among {now:?}"))?;
            if times.last() != Some(time) {
                times.push(time.clone());
            }
        }
        ensure!(seen.values().all(|times| times.len() > 2), "renewed at {seen:?}");
        anyhow::Ok(())
    })
    .await
}

async fn install_over_table(member: &Member) -> Result<()> {
    let endpoint = format!("registry.dynamodb.endpoint={ENDPOINT}");
    let region = format!("registry.dynamodb.region={REGION}");
    let env = CREDENTIALS.iter().enumerate().flat_map(|(place, (name, value))| {
        [format!("registry.env[{place}].name={name}"), format!("registry.env[{place}].value={value}")]
    });
    let values: Vec<_> =
        ["registry.store=dynamodb".to_owned(), endpoint, region].into_iter().chain(env).collect();
    let values: Vec<_> = values.iter().map(String::as_str).collect();
    install_registry(member, &values).await
}

async fn take_away(member: &Member) -> Result<()> {
    kill_registry(member).await?;
    scale(member, SYSTEM, REGISTRY, 0).await?;
    wait_at_most(LONG, "the end of its Pod", async || {
        let left = super::pods_of(member, SYSTEM, REGISTRY).await?.len();
        // The kubelet may have started it again before it heard that none is wanted; that one must not end in order. None
        // is there to kill, as a rule.
        let _ = kill_registry(member).await;
        ensure!(left == 0, "{left} Pods");
        anyhow::Ok(())
    })
    .await
}

async fn bring_back(member: &Member) -> Result<()> {
    scale(member, SYSTEM, REGISTRY, 1).await?;
    rolled_out(member, SYSTEM, REGISTRY).await
}
