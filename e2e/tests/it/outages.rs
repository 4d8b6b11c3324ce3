//! Starts and long outages: with no registry and with an API server that is away a controller waits, tries again, and
//! serves what it knows.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota, Service};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use mcs_core::{
    model::{ExportSpec, IpFamily},
    names::{CONDITION_READY, REASON_PENDING},
};
use mcs_e2e::{
    Cluster, ClusterOptions, TempNamespace,
    objects::{Port, service_without_selector},
    peer::Peer,
    programs::Signal,
    shared::{Pair, pair},
    stack::{Stack, StackOptions, get},
    wait_for,
};
use serde_json::json;

use crate::support::{Place, READY, peer_endpoints, peer_spec};
use crate::witness::Witness;

const PORT: [Port<'_>; 1] = [("http", 8080)];
/// How often endpoints change while an API server is killed and started again.
const CHANGES: u8 = 50;

/// Controllers are ready and lead without a registry, say of new exports that they wait for one, and leave all imports
/// as they were; when the registry is there, all is as it shall be.
#[tokio::test]
async fn controllers_that_start_before_their_registry_wait_for_it_and_take_nothing_away() -> Result<()> {
    let pair = pair().await?;
    let namespace = pair.namespace("early").await?;
    let ns = namespace.name();
    let [east, west] = pair.clients();
    let [cart, late] = ["cart", "late"].map(|name| Place::new(east.clone(), ns, name));
    let [cart_in_west, late_in_west] = ["cart", "late"].map(|name| Place::new(west.clone(), ns, name));
    let clusters = [&pair.east, &pair.west];
    let mut stack = Stack::start(StackOptions::for_namespace(ns), &clusters).await?;
    cart.export(&PORT, &["10.0.0.1"]).await?;
    cart.imports(&[("east", &["10.0.0.1"])]).await?;
    cart_in_west.imports(&[("east", &["10.0.0.1"])]).await?;
    cart.says(&READY).await?;

    stack.end_registry(Signal::Kill).await?;
    for cluster in clusters {
        // In order, so that the next leader does not wait for the Lease to end.
        stack.end_controller(cluster.name(), Signal::Term).await?;
    }
    let witness = Witness::start(&clusters, ns).await?;
    for cluster in clusters {
        stack.start_controller(cluster, cluster.name()).await?;
    }
    stack.ready().await?;
    late.export(&PORT, &["10.0.0.2"]).await?;
    wait_for("an export that waits for a registry", async || {
        let conditions = late.conditions().await?;
        let is_pending = conditions.iter().any(|(kind, status, reason)| {
            (kind.as_str(), status.as_str(), reason.as_str()) == (CONDITION_READY, "Unknown", REASON_PENDING)
        });
        ensure!(is_pending, "{conditions:?}");
        Ok(())
    })
    .await?;
    for cluster in clusters {
        wait_for("a leader that looks for its registry", async || {
            let leads = counted(&stack, cluster.name(), "mcs_controller_leader").await?;
            let tries = counted(&stack, cluster.name(), "mcs_controller_registry_failures_total").await?;
            ensure!(leads == 1 && tries >= 12, "leads: {leads}, failed tries: {tries}");
            Ok(())
        })
        .await?;
        // However long it is away, the log says so once for each thing that is wrong.
        let log = stack.controller(cluster.name())?.program.log();
        // What the controller before it said is in the same log.
        let (_, log) = log.rsplit_once("controller starts").context("it says that it starts")?;
        let said = log.matches("the watch of the registry ended").count();
        assert!((1..=2).contains(&said), "said {said} times:\n{log}");
    }
    let written: Vec<_> = witness.take_writes().await?.into_iter().filter(|line| of_imports(line)).collect();
    assert_eq!(written, Vec::<String>::new());

    stack.start_registry().await?;
    late_in_west.imports(&[("east", &["10.0.0.2"])]).await?;
    late.says(&READY).await?;
    cart.set_addresses(&["10.0.0.1", "10.0.0.3"]).await?;
    cart_in_west.imports(&[("east", &["10.0.0.1", "10.0.0.3"])]).await?;
    // What waited for a registry waits no longer.
    let is_lost = |line: &String| of_imports(line) && !line.contains(" ServiceImport late ");
    let lost: Vec<_> = witness.losses().await?.into_iter().filter(is_lost).collect();
    assert_eq!(lost, Vec::<String>::new());
    Ok(())
}

/// A controller whose API server is away lives, is not ready and says why; it starts when the API server is back.
#[tokio::test]
async fn a_controller_that_starts_before_its_api_server_waits_for_it() -> Result<()> {
    let options = ClusterOptions { controller_manager: false, ..ClusterOptions::new("late", 7, "eu-west-1") };
    let cluster = Cluster::start(options).await?;
    let namespace = TempNamespace::new(cluster.client(), "lateapi").await?;
    let cart = Place::new(cluster.client(), namespace.name(), "cart");
    let mut stack = Stack::start(StackOptions::for_namespace(namespace.name()), &[&cluster]).await?;
    cart.export(&PORT, &["10.0.0.1"]).await?;
    cart.imports(&[("late", &["10.0.0.1"])]).await?;
    stack.end_controller("late", Signal::Term).await?;
    let before = versions(&cart).await?;

    cluster.kill_api_server().await?;
    stack.start_controller(&cluster, "late").await?;
    let probe =
        |path: &str| -> Result<String> { Ok(format!("http://{}{path}", stack.controller("late")?.admin)) };
    let (alive, ready) = (probe("/healthz")?, probe("/readyz")?);
    wait_for("a controller that says why it waits", async || {
        get(&alive).await?;
        let log = stack.controller("late")?.program.log();
        ensure!(log.contains("cannot start yet"), "{log}");
        Ok(())
    })
    .await?;
    let refused = get(&ready).await.err().context("ready without an API server")?;
    assert!(refused.to_string().contains("the cluster's identity"), "{refused:#}");

    cluster.start_api_server().await?;
    stack.ready().await?;
    cart.set_addresses(&["10.0.0.1", "10.0.0.2"]).await?;
    cart.imports(&[("late", &["10.0.0.1", "10.0.0.2"])]).await?;
    cart.says(&READY).await?;
    // Nothing else of what it had made is written again.
    assert_eq!(versions(&cart).await?, before);
    Ok(())
}

/// The API server is killed while endpoints change here and elsewhere. Nothing goes, what changed arrives, and
/// one list of each kind is enough.
#[tokio::test]
async fn an_api_server_that_is_killed_during_changes_costs_nothing() -> Result<()> {
    let pair = Pair::start().await?;
    let namespace = pair.namespace("killed").await?;
    let ns = namespace.name();
    // No lease ends while the API server is away, however busy the machine is.
    let options = StackOptions { lease: Duration::from_secs(300), ..StackOptions::for_namespace(ns) };
    let stack = Stack::start(options, &[&pair.east, &pair.west]).await?;
    let [east, west] = pair.clients();
    let addresses = |cluster: u8, count: u8| -> Vec<String> {
        (1..=count).map(|host| format!("10.{cluster}.0.{host}")).collect()
    };
    let places = [(1, "east", east.clone()), (2, "west", west.clone())];
    let exported = places.map(|(number, name, client)| (number, name, Place::new(client, ns, name)));
    for (number, _, place) in &exported {
        place.export(&PORT, &[addresses(*number, 1)[0].as_str()]).await?;
    }
    let all_show = async |count: u8| -> Result<()> {
        for (number, name, _) in &exported {
            let addresses = addresses(*number, count);
            let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
            for client in [&east, &west] {
                Place::new(client.clone(), ns, name).imports(&[(name, &addresses)]).await?;
            }
        }
        Ok(())
    };
    all_show(1).await?;
    for (_, _, place) in &exported {
        place.says(&READY).await?;
    }
    let witness = Witness::start(&[&pair.east, &pair.west], ns).await?;

    let mut is_away = false;
    for count in 2..=CHANGES {
        match count {
            15 => {
                pair.east.kill_api_server().await?;
                is_away = true;
            }
            35 => {
                pair.east.start_api_server().await?;
                is_away = false;
            }
            _ => {}
        }
        for (number, name, place) in &exported {
            let addresses = addresses(*number, count);
            let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
            if *name == "west" || !is_away {
                place.set_addresses(&addresses).await?;
            }
        }
    }
    all_show(CHANGES).await?;
    assert_eq!(witness.losses().await?, Vec::<String>::new());
    for kind in ["EndpointSlice", "Service", "ServiceExport", "ServiceImport"] {
        let lists =
            counted(&stack, "east", &format!("mcs_controller_relists_total{{kind=\"{kind}\"}}")).await?;
        assert!((1..=2).contains(&lists), "{lists} lists of {kind}");
    }
    Ok(())
}

/// At its start no namespace tells the controller which families the cluster has: the watched one is not there yet, and
/// `default` takes no Service. An import with two families gets the one that the cluster has all the same.
#[tokio::test]
async fn what_no_namespace_tells_at_the_start_the_first_import_asks() -> Result<()> {
    let options =
        ClusterOptions { controller_manager: false, ..ClusterOptions::new("single", 8, "eu-west-1") };
    let cluster = Cluster::start(options).await?;
    let (client, ns) = (cluster.client(), "unborn");
    let quota = json!({ "metadata": { "name": "no-services" }, "spec": { "hard": { "services": "0" } } });
    let quotas = Api::<ResourceQuota>::namespaced(client.clone(), "default");
    quotas.create(&PostParams::default(), &serde_json::from_value(quota)?).await?;
    // What a controller manager would do.
    let status = json!({ "status": { "hard": { "services": "0" }, "used": { "services": "0" } } });
    quotas.patch_status("no-services", &PatchParams::default(), &Patch::Merge(status)).await?;
    wait_for("a namespace that takes no Service", async || {
        let params = PostParams { dry_run: true, ..PostParams::default() };
        let service = service_without_selector("default", "probe", &PORT);
        let refused = Api::<Service>::namespaced(client.clone(), "default").create(&params, &service).await;
        ensure!(matches!(&refused, Err(kube::Error::Api(status)) if status.code == 403), "{refused:?}");
        Ok(())
    })
    .await?;
    let mut stack = Stack::start_without_controllers(StackOptions::for_namespace(ns)).await?;
    stack.start_controllers(&[&cluster]).await?;
    let log = stack.controller("single")?.program.log();
    ensure!(log.contains("the first import asks"), "the families were known at the start: {log}");

    let cart = Place::new(client.clone(), ns, "cart");
    let peer = Peer::join(&stack, "gamma").await?;
    let both = ExportSpec { ip_families: vec![IpFamily::V4, IpFamily::V6], ..peer_spec(&PORT, 1_000) };
    peer.export(&cart.key()?, both, peer_endpoints(&PORT, &["10.3.0.1"])?).await?;
    let born = json!({ "metadata": { "name": ns } });
    let namespaces = Api::<Namespace>::all(client);
    namespaces.create(&PostParams::default(), &serde_json::from_value(born)?).await?;
    stack.allow_in(&cluster, ns).await?;
    let import = cart.imports(&[("gamma", &["10.3.0.1"])]).await?;
    let families = import.service.spec.and_then(|spec| spec.ip_families);
    assert_eq!(families, Some(vec!["IPv4".to_owned()]));
    Ok(())
}

/// Whether a line of the witness is of an import's objects.
fn of_imports(line: &str) -> bool {
    !line.contains(" ServiceExport ")
}

/// The versions of an import's ServiceImport and derived Service.
async fn versions(place: &Place) -> Result<[Option<String>; 2]> {
    let import = place.import().await?;
    Ok([import.import.metadata.resource_version, import.service.metadata.resource_version])
}

/// The sum of a metric of a controller over its labels.
async fn counted(stack: &Stack, replica: &str, metric: &str) -> Result<u64> {
    let text = get(&format!("http://{}/metrics", stack.controller(replica)?.admin)).await?;
    let text = String::from_utf8_lossy(&text);
    let of_metric = text
        .lines()
        .filter(|line| line.strip_prefix(metric).is_some_and(|rest| rest.starts_with(['{', ' '])));
    let values = of_metric.map(|line| line.rsplit(' ').next().unwrap_or_default().parse::<u64>());
    Ok(values.sum::<Result<u64, _>>()?)
}
