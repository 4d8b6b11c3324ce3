//! The demo: two clusters share Services, shown as a user would look at them.
//!
//! Everything that is shown is also expected: what does not come within a minute fails the demo, which then says what
//! it waited for and where the logs are. So the demo that ends by itself is a test of the whole path.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, anyhow, ensure};
use global_discovery_client::{
    Capacity, Followed, How, Location, PoolKey, PoolListing, PoolRegistration, State,
};
use mcs_core::names::LABEL_EXPORT;
use mcs_runtime::shutdown::Drain;
use serde_json::{Value, json};
use tokio::process::Command;

use self::scene::{CLUSTERSET, DGD, FRONTEND, NAMESPACE, RELAY, REPLICAS, ROUTER, SERVICES, Scene};
use crate::{crossing::Probe, programs::find, screen::Screen, table::columns, wait_for};

mod scene;
mod service;
mod view;

/// Changes whose crossing is measured: enough for a median, over in two seconds.
const CROSSINGS: u16 = 10;
const CROSSING_INTERVAL: Duration = Duration::from_millis(200);
/// What the workload is scaled to.
const SCALED: u16 = 4;

/// Runs the demo: until a signal, or with `once` until everything was seen.
///
/// # Errors
/// Something was not seen, or did not start or end; it has been printed too.
pub async fn run(once: bool, shutdown: &Drain) -> Result<()> {
    let mut screen = Screen::new();
    screen.text(
        "Two Kubernetes clusters, east and west, share Services: a pool of inference workers runs in east, and routers\n\
         in west find it. The API servers are real; Pods are played, no container runs. All listens on 127.0.0.1.\n",
    )?;
    let scene = tokio::select! {
        () = shutdown.draining() => return interrupted(&screen),
        scene = Box::pin(Scene::start(&screen)) => scene,
    };
    let mut scene = scene.inspect_err(|error| failed(&screen, error, None))?;
    let shown = tokio::select! {
        () = shutdown.draining() => interrupted(&screen),
        shown = Box::pin(show(&mut screen, &mut scene)) => {
            shown.inspect_err(|error| failed(&screen, error, Some(&mut scene)))
        }
    };
    if shown.is_ok() && !once {
        show_what_to_try(&mut screen, &scene)?;
        shutdown.draining().await;
        screen.text("")?;
    }
    screen.progress("ending everything")?;
    let ended = scene.end().await;
    // What does not end after a failure is killed, and not what the failure is about.
    shown?;
    ended.inspect_err(|error| failed(&screen, error, None))?;
    screen.progress("ended")?;
    Ok(())
}

fn interrupted(screen: &Screen) -> Result<()> {
    screen.progress("interrupted")?;
    anyhow::bail!("interrupted before everything was seen")
}

fn failed(screen: &Screen, error: &anyhow::Error, scene: Option<&mut Scene>) {
    let mut text = format!("FAILED: {error:#}");
    if let Some(scene) = scene {
        if let Err(ended) = scene.check() {
            text += &format!("\n{ended:#}\n");
        }
        text += &match scene.keep_logs() {
            Ok(folder) => format!("\nThe logs of all programs are in {}", folder.display()),
            Err(error) => format!("\nThe logs are lost: {error:#}"),
        };
    }
    // Nobody is left to be told when standard output is closed.
    let _ = screen.progress(text);
}

async fn show(screen: &mut Screen, scene: &mut Scene) -> Result<()> {
    show_exports(screen, scene).await?;
    show_imports(screen, scene).await?;
    show_pools(screen, scene).await?;
    show_crossing(screen, scene).await?;
    show_scaling(screen, scene).await?;
    show_clusterset(screen, scene).await?;
    screen.progress("everything was seen")?;
    Ok(())
}

async fn show_exports(screen: &mut Screen, scene: &Scene) -> Result<()> {
    screen.section(
        "What east exports",
        &format!(
            "Three Deployments of {REPLICAS} Pods with a Service each: the pool's relays and frontends, and the global router.\n\
             The label {LABEL_EXPORT}=true on a Service makes the controller export it."
        ),
    )?;
    scene.deploy().await?;
    let east = scene.pair.east.client();
    let pods = async {
        for (name, _) in SERVICES {
            wait_for(&format!("the Pods of {name} in east"), async || {
                view::endpoints(&east, name, REPLICAS).await
            })
            .await?;
        }
        Ok(())
    };
    screen.during("deploying, waiting for Pods to be ready", pods).await?;
    let names = SERVICES.map(|(name, _)| name);
    let exports =
        wait_for("exports that are ready in east", async || view::exported(&east, &names).await).await?;
    screen.progress("all exports are ready\n")?;
    screen.quote(&exports)?;
    Ok(())
}

async fn show_imports(screen: &mut Screen, scene: &Scene) -> Result<()> {
    screen.section(
        "What west has of it",
        "Each export is a ServiceImport with an address of west. Behind the address is a derived Service, and behind that\n\
         are slices with the endpoints in east.",
    )?;
    let (east, west) = (scene.pair.east.client(), scene.pair.west.client());
    let names = SERVICES.map(|(name, _)| name);
    let imports =
        wait_for("imports in west that are usable", async || view::imported(&east, &west, &names).await)
            .await?;
    screen.progress("all imports are usable\n")?;
    screen.quote(&imports)?;
    screen.text("")?;
    screen.quote(&view::imported_slices(&west, &names).await?)?;
    Ok(())
}

async fn show_pools(screen: &mut Screen, scene: &mut Scene) -> Result<()> {
    screen.section(
        "What the discovery service in west answers",
        "A relay of the pool registers by POST /pools and repeats that as a heartbeat. The pool is listed while it is\n\
         registered and its relays are imported.",
    )?;
    let client = scene.discovery.client()?;
    let router = client.follow::<PoolListing>(How::Watch);
    let registration = registration(scene);
    let relay = scene.relay.insert(client.keep_registered(registration));
    let lease = wait_for("the pool to be registered", async || match relay.standing().state {
        State::Registered(lease) => Ok(lease),
        state => Err(anyhow!("{state:?}")),
    })
    .await?;
    screen.progress(format!(
        "a relay registered pool east/{NAMESPACE}/{DGD} for {} s, and does so again every {} s",
        lease.duration.as_secs(),
        lease.heartbeat_interval.as_secs()
    ))?;
    wait_for("the pool to be known to a router", async || known(&router)).await?;
    screen.progress("a router that watches the list knows the pool")?;
    wait_for("the pool to be listed", async || pool(&scene.discovery.read("pools").await?, scene).await)
        .await?;
    screen.progress("the pool is listed")?;
    let (pools, routers) = screen
        .during(
            "waiting until the lists are complete: after one lease, every living pool has registered",
            complete_lists(scene),
        )
        .await?;
    screen.text(format!("\n  $ curl {}", scene.discovery.url("pools")))?;
    screen.json(&pools)?;
    screen.text(format!("\n  $ curl {}", scene.discovery.url("routers")))?;
    screen.json(&routers)?;
    Ok(())
}

/// What a relay of the pool says of it.
fn registration(scene: &Scene) -> PoolRegistration {
    let [cluster_id, namespace, dgd_name] = ["east", NAMESPACE, DGD].map(str::to_owned);
    let region = Some(scene.pair.east.options().region.clone());
    PoolRegistration {
        key: PoolKey { cluster_id, namespace, dgd_name },
        location: Location { region, ..Location::default() },
        model: "example/model".to_owned(),
        capabilities: vec!["chat".to_owned()],
        capacity: vec![Capacity { workers: 8 }],
        frontends: Vec::new(),
    }
}

/// The frontends that a router knows of the one pool.
fn known(router: &Followed<PoolListing>) -> Result<BTreeSet<String>> {
    let known = router.read();
    let pools: Vec<_> = known.items().collect();
    let [pool] = pools[..] else { anyhow::bail!("{} pools are known", pools.len()) };
    ensure!(pool.key.dgd_name == DGD, "pool {} is known", pool.key);
    Ok(pool.frontends.iter().cloned().collect())
}

async fn complete_lists(scene: &Scene) -> Result<(Value, Value)> {
    wait_for("complete lists of pools and routers", async || {
        let (pools, routers) = (scene.discovery.read("pools").await?, scene.discovery.read("routers").await?);
        pool(&pools, scene).await?;
        let routers_there = urls(&routers["routers"], |replica| replica["url"].as_str());
        let wanted = expected_urls(scene, ROUTER, 50051).await?;
        ensure!(routers_there == wanted, "routers {routers_there:?}, {wanted:?} in east");
        ensure!(pools["complete"] == true && routers["complete"] == true, "{pools} {routers}");
        Ok((pools, routers))
    })
    .await
}

/// Fails unless the one pool is listed with the relays and frontends that are in `east`.
async fn pool(pools: &Value, scene: &Scene) -> Result<()> {
    let listed = pools["pools"].as_array().context("no list of pools")?;
    let [pool] = listed.as_slice() else { anyhow::bail!("{} pools are listed", listed.len()) };
    let relays = urls(&pool["relay_identities"], Value::as_str);
    let relays_wanted: BTreeSet<_> =
        addresses(scene, RELAY).await?.into_iter().map(|address| format!("ip:{address}")).collect();
    ensure!(relays == relays_wanted, "relays {relays:?} are listed, {relays_wanted:?} are in east");
    let frontends = urls(&pool["frontends"], Value::as_str);
    let frontends_wanted = expected_urls(scene, FRONTEND, 8000).await?;
    ensure!(
        frontends == frontends_wanted,
        "frontends {frontends:?} are listed, {frontends_wanted:?} are in east"
    );
    Ok(())
}

fn urls(list: &Value, text: impl Fn(&Value) -> Option<&str>) -> BTreeSet<String> {
    list.as_array().into_iter().flatten().filter_map(|item| text(item).map(str::to_owned)).collect()
}

async fn addresses(scene: &Scene, name: &str) -> Result<BTreeSet<String>> {
    view::addresses_in(&scene.pair.east.client(), name).await
}

async fn expected_urls(scene: &Scene, name: &str, port: u16) -> Result<BTreeSet<String>> {
    Ok(addresses(scene, name).await?.into_iter().map(|address| format!("http://{address}:{port}/")).collect())
}

async fn show_crossing(screen: &mut Screen, scene: &Scene) -> Result<()> {
    screen.section(
        "How long an endpoint takes to cross",
        "From the write of an EndpointSlice in east until a watch in west shows it: east's API server, its controller,\n\
         the registry, west's controller, west's API server.",
    )?;
    let (east, west) = (scene.pair.east.client(), scene.pair.west.client());
    let measure = async {
        let mut probe = Probe::across(east, west, NAMESPACE, "crossing-probe").await?;
        let times = probe.run(CROSSINGS, CROSSING_INTERVAL).await?;
        probe.remove().await?;
        Ok(times)
    };
    let mut times = screen.during(&format!("changing an endpoint {CROSSINGS} times"), measure).await?;
    times.sort_unstable();
    let millis = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1000.0);
    screen.text(format!(
        "\n  median {:.0} ms, fastest {:.0} ms, slowest {:.0} ms\n\n\
         These are unoptimised builds on one machine; `make bench NAME=crossing` measures with optimised ones.",
        millis(times.get(times.len() / 2)),
        millis(times.first()),
        millis(times.last()),
    ))?;
    Ok(())
}

async fn show_scaling(screen: &mut Screen, scene: &Scene) -> Result<()> {
    screen.section(
        "A change arrives",
        &format!("Deployment {FRONTEND} in east goes from {REPLICAS} to {SCALED} Pods."),
    )?;
    let (east, west) = (scene.pair.east.client(), scene.pair.west.client());
    let router = scene.discovery.client()?.follow::<PoolListing>(How::Watch);
    scene.scale(FRONTEND, SCALED).await?;
    screen.progress(format!("scaled {FRONTEND} to {SCALED}"))?;
    let there = async || view::endpoints(&east, FRONTEND, SCALED).await;
    wait_for("the new endpoints in east", there).await?;
    screen.progress("east has the new endpoints")?;
    wait_for("the new endpoints in west", async || view::imported(&east, &west, &[FRONTEND]).await).await?;
    screen.progress("west has the new endpoints")?;
    let pools = wait_for("the new frontends in GET /pools", async || {
        let pools = scene.discovery.read("pools").await?;
        pool(&pools, scene).await?;
        Ok::<_, anyhow::Error>(pools)
    })
    .await?;
    screen.progress("GET /pools has the new frontends")?;
    let wanted = expected_urls(scene, FRONTEND, 8000).await?;
    wait_for("the new frontends at a router", async || {
        let frontends = known(&router)?;
        ensure!(frontends == wanted, "{frontends:?} are known");
        Ok(())
    })
    .await?;
    screen.progress("a router that watches has them too\n")?;
    screen.quote(&view::imported_slices(&west, &[FRONTEND]).await?)?;
    screen.text("")?;
    screen.json(&json!({ "frontends": pools["pools"][0]["frontends"] }))?;
    Ok(())
}

async fn show_clusterset(screen: &mut Screen, scene: &Scene) -> Result<()> {
    let lease = scene.stack.lease();
    screen.section(
        "What an operator sees",
        &format!(
            "The registry knows each cluster by a lease of {} s that its controller renews. A cluster that falls silent for\n\
             longer leaves the imports of the others.",
            lease.as_secs()
        ),
    )?;
    let known = wait_for("a registry that knows every cluster", async || {
        let clusters = scene.stack.rest("clusters").await?;
        ensure!(clusters["complete"] == true, "it has answered: {clusters}");
        Ok(())
    });
    screen
        .during(
            "waiting until the registry is sure: after one lease, every living cluster has come to it",
            known,
        )
        .await?;
    let arguments = describe_arguments(scene);
    let output =
        Command::new(find("mcs-admin")?).args(&arguments).output().await.context("running mcs-admin")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "mcs-admin failed: {}", String::from_utf8_lossy(&output.stderr));
    for cluster in ["east", "west"] {
        let active = text.lines().any(|line| line.split_whitespace().take(2).eq([cluster, "Active"]));
        ensure!(active, "mcs-admin does not show cluster {cluster} as active:\n{text}");
    }
    screen.text(format!("\n  $ mcs-admin {}", arguments.join(" ")))?;
    screen.quote(&text)?;
    screen.text("")?;
    Ok(())
}

fn describe_arguments(scene: &Scene) -> [String; 3] {
    let url = format!("--registry-url=http://{}", scene.stack.registry().grpc);
    ["describe".to_owned(), format!("--clusterset={CLUSTERSET}"), url]
}

fn show_what_to_try(screen: &mut Screen, scene: &Scene) -> Result<()> {
    screen.section("Try it", "In another terminal, while this runs:")?;
    let admin = find("mcs-admin")?;
    let registry = scene.stack.registry();
    screen.quote(&format!(
        "export EAST={east}\n\
         export WEST={west}\n\n\
         # what west has, and what east says of an export\n\
         kubectl --kubeconfig=$WEST -n {NAMESPACE} get serviceimports,services,endpointslices\n\
         kubectl --kubeconfig=$EAST -n {NAMESPACE} get serviceexports {FRONTEND} -o yaml\n\n\
         # change something in east, then look again\n\
         kubectl --kubeconfig=$EAST -n {NAMESPACE} scale deployment {FRONTEND} --replicas=1\n\
         kubectl --kubeconfig=$EAST -n {NAMESPACE} label service {ROUTER} {LABEL_EXPORT}-\n\n\
         # what the discovery service and the registry answer\n\
         curl -s {pools}\n\
         curl -s {routers}\n\
         curl -s http://{rest}/v1/clustersets/{CLUSTERSET}/clusters\n\
         {admin} {arguments}\n",
        east = scene.pair.east.kubeconfig_path().display(),
        west = scene.pair.west.kubeconfig_path().display(),
        pools = scene.discovery.url("pools"),
        routers = scene.discovery.url("routers"),
        rest = registry.rest,
        admin = admin.display(),
        arguments = describe_arguments(scene).join(" "),
    ))?;
    let listening = [
        ["registry", "gRPC", &format!("http://{}", registry.grpc)],
        ["registry", "REST", &format!("http://{}", registry.rest)],
        ["registry", "metrics", &format!("http://{}/metrics", registry.admin)],
        [
            "controller of east",
            "metrics",
            &format!("http://{}/metrics", scene.stack.controller("east")?.admin),
        ],
        [
            "controller of west",
            "metrics",
            &format!("http://{}/metrics", scene.stack.controller("west")?.admin),
        ],
        ["discovery service", "HTTP", &scene.discovery.url("")],
        ["east", "API server", scene.pair.east.server_url()],
        ["west", "API server", scene.pair.west.server_url()],
    ];
    screen.text("")?;
    screen.quote(&columns(["LISTENING", "", "URL"], &listening.map(|row| row.map(str::to_owned))))?;
    screen.text(format!(
        "\nLogs are in {}\n\nThe demo runs until Ctrl-C, which ends everything.",
        scene.stack.folder().display()
    ))?;
    Ok(())
}
