//! What breaks, and what users of the clusters must not notice of it: registries, controllers and API servers that are
//! killed, paused and started again.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Service, discovery::v1::EndpointSlice};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use mcs_controller::api::{ServiceExport, ServiceImport};
use mcs_core::names::{
    CONDITION_CONFLICT, CONDITION_READY, LABEL_EXPORT, LABEL_SOURCE_CLUSTER, REASON_LEASE_EXPIRED,
    REASON_READY,
};
use mcs_e2e::{
    Cluster, TempNamespace, objects,
    programs::Signal,
    shared::{Pair, pair},
    stack::{Stack, StackOptions, get},
    wait_for,
};
use serde_json::json;

use crate::{path::slices, witness::Witness};

const PORTS: [objects::Port<'_>; 1] = [("http", 8080)];
/// How the writes of a test are spread.
const AT_ONCE: usize = 8;

/// A standby waits 15 s for a leader that died, whose last renewal at the registry may be a third of this old: the
/// default of 30 s is enough, a busy machine gets more.
const OUTLIVES_A_LEADER: Duration = Duration::from_secs(45);

/// Two clusters that export to each other under one stack.
struct World<'a> {
    pair: &'a Pair,
    namespace: TempNamespace,
    stack: Stack,
}

impl<'a> World<'a> {
    async fn start(pair: &'a Pair, prefix: &str, lease: Duration) -> Result<Self> {
        let namespace = pair.namespace(prefix).await?;
        let options = StackOptions { lease, ..StackOptions::for_namespace(namespace.name()) };
        let stack = Stack::start(options, &[&pair.east, &pair.west]).await?;
        Ok(Self { pair, namespace, stack })
    }

    fn ns(&self) -> &str {
        self.namespace.name()
    }

    fn clusters(&self) -> [&'a Cluster; 2] {
        [&self.pair.east, &self.pair.west]
    }

    async fn witness(&self) -> Result<Witness> {
        Witness::start(&self.clusters(), self.ns()).await
    }

    /// Exports Services `<cluster>-<number>` with two endpoints each, and waits until both clusters have them all.
    async fn export(&self, cluster: &Cluster, count: u8) -> Result<()> {
        let client = cluster.client();
        let made = stream::iter(0..count).map(|number| export(&client, self.ns(), cluster, number));
        made.buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await?;
        for number in 0..count {
            self.arrives(cluster, number, &[1, 2]).await?;
            self.is_ready(cluster, number, "True", REASON_READY).await?;
        }
        for importer in self.clusters() {
            self.is_imported(importer, cluster, count).await?;
        }
        Ok(())
    }

    /// Waits until the imports of what `of` exports are complete, to the last write.
    async fn is_imported(&self, importer: &Cluster, of: &Cluster, count: u8) -> Result<()> {
        let imports = Api::<ServiceImport>::namespaced(importer.client(), self.ns());
        for number in 0..count {
            wait_for("a complete ServiceImport", async || {
                let status = imports.get(&name(of, number)).await?.status.unwrap_or_default();
                let ready =
                    status.conditions.iter().any(|it| it.type_ == CONDITION_READY && it.status == "True");
                ensure!(ready && status.clusters.len() == 1, "{status:?}");
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// Waits until both clusters show exactly these endpoints of an export.
    async fn arrives(&self, of: &Cluster, number: u8, hosts: &[u8]) -> Result<()> {
        for cluster in self.clusters() {
            self.shows(cluster, of, number, hosts).await?;
        }
        Ok(())
    }

    /// Waits until `cluster` shows exactly these endpoints of an export of `of`.
    async fn shows(&self, cluster: &Cluster, of: &Cluster, number: u8, hosts: &[u8]) -> Result<()> {
        let (client, name) = (cluster.client(), name(of, number));
        let wanted: BTreeSet<String> = addresses(of, number, hosts).iter().map(IpAddr::to_string).collect();
        let what = format!("{hosts:?} of {name} in {}", cluster.name());
        wait_for(&what, async || {
            let slices = slices(&client, self.ns(), &name).await?;
            let endpoints = slices.iter().flat_map(|slice| &slice.endpoints);
            let found: BTreeSet<_> = endpoints.flat_map(|endpoint| endpoint.addresses.clone()).collect();
            ensure!(found == wanted, "{found:?}");
            Ok(())
        })
        .await
    }

    /// Changes the endpoints of an export in its own cluster.
    async fn change(&self, of: &Cluster, number: u8, hosts: &[u8]) -> Result<()> {
        let slices = Api::<EndpointSlice>::namespaced(of.client(), self.ns());
        let name = name(of, number);
        let slice = objects::endpoint_slice(self.ns(), &name, &name, &addresses(of, number, hosts), &PORTS);
        let patch = Patch::Merge(json!({ "endpoints": slice.endpoints }));
        slices.patch(&name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Waits until the registry knows everything of both clusters.
    async fn is_whole(&self) -> Result<()> {
        wait_for("both clusters to be whole", async || {
            let list = self.stack.rest("clusters").await?;
            let active = |cluster: &&serde_json::Value| cluster["lease"]["state"] == "LEASE_STATE_ACTIVE";
            let clusters = list["clusters"].as_array().context("a list")?;
            let whole = clusters.iter().filter(active).count() == 2 && list["complete"] == true;
            ensure!(whole, "{list}");
            Ok(())
        })
        .await
    }

    /// Waits until the Ready condition of an export is so.
    async fn is_ready(&self, of: &Cluster, number: u8, status: &str, reason: &str) -> Result<()> {
        let exports = Api::<ServiceExport>::namespaced(of.client(), self.ns());
        let name = name(of, number);
        wait_for(&format!("{name} to be Ready={status}/{reason}"), async || {
            let conditions = exports.get(&name).await?.status.unwrap_or_default().conditions;
            let ready = conditions.iter().find(|condition| condition.type_ == CONDITION_READY);
            let ready = ready.context("no condition")?;
            let told = conditions.iter().any(|condition| condition.type_ == CONDITION_CONFLICT);
            ensure!(told, "no merge was told");
            ensure!((ready.status.as_str(), ready.reason.as_str()) == (status, reason), "{ready:?}");
            Ok(())
        })
        .await
    }

    /// Waits until a controller leads.
    async fn leads(&self, replica: &str) -> Result<()> {
        wait_for(&format!("{replica} to lead"), async || {
            let leader = self.metric(replica, "mcs_controller_leader").await?;
            ensure!(leader == ["mcs_controller_leader 1"], "{leader:?}");
            Ok(())
        })
        .await
    }

    /// The lines of a metric of a controller.
    async fn metric(&self, replica: &str, name: &str) -> Result<Vec<String>> {
        let url = format!("http://{}/metrics", self.stack.controller(replica)?.admin);
        let text = String::from_utf8(get(&url).await?.to_vec())?;
        Ok(text.lines().filter(|line| line.starts_with(name)).map(str::to_owned).collect())
    }

    /// Who holds the Lease of a cluster's controllers.
    async fn holder(&self, cluster: &Cluster) -> Result<String> {
        let leases = Api::<Lease>::namespaced(cluster.client(), &self.stack.system_namespace());
        let spec = leases.get("mcs-controller").await?.spec.context("a spec")?;
        spec.holder_identity.context("no holder")
    }

    /// Starts another replica in east, and waits until it could take over.
    async fn standby(&mut self, replica: &str) -> Result<()> {
        self.stack.start_controller(&self.pair.east, replica).await?;
        self.stack.ready().await
    }
}

fn name(cluster: &Cluster, number: u8) -> String {
    format!("{}-{number}", cluster.name())
}

fn addresses(cluster: &Cluster, number: u8, hosts: &[u8]) -> Vec<IpAddr> {
    let network = 200 + cluster.options().index;
    hosts.iter().map(|host| IpAddr::from([10, network, number, *host])).collect()
}

async fn export(client: &Client, namespace: &str, cluster: &Cluster, number: u8) -> Result<()> {
    let name = name(cluster, number);
    let mut service = objects::service_without_selector(namespace, &name, &PORTS);
    service.labels_mut().insert(LABEL_EXPORT.to_owned(), "true".to_owned());
    let addresses = addresses(cluster, number, &[1, 2]);
    let slice = objects::endpoint_slice(namespace, &name, &name, &addresses, &PORTS);
    let parameters = PostParams::default();
    Api::<EndpointSlice>::namespaced(client.clone(), namespace).create(&parameters, &slice).await?;
    Api::<Service>::namespaced(client.clone(), namespace).create(&parameters, &service).await?;
    Ok(())
}

/// Cases O34 and O49: a registry that lost its records deletes nothing, whenever it dies; also O33 a.
#[tokio::test]
async fn killing_the_registry_again_and_again_takes_nothing_from_anybody() -> Result<()> {
    let mut world = World::start(pair().await?, "registry", Duration::from_secs(10)).await?;
    let (east, west) = (&world.pair.east, &world.pair.west);
    world.export(east, 40).await?;
    world.export(west, 5).await?;
    world.is_whole().await?;
    let witness = world.witness().await?;

    for round in 0..4 {
        world.stack.end_registry(Signal::Kill).await?;
        if round == 1 {
            world.change(east, 0, &[1, 2, 3]).await?;
        }
        world.stack.start_registry().await?;
        // The next one dies when the first cluster has come back: in the middle of its sync, or of the other's.
        wait_for("a cluster to come back", async || {
            let list = world.stack.rest("clusters").await?;
            ensure!(list["clusters"].as_array().is_some_and(|clusters| !clusters.is_empty()), "{list}");
            Ok(())
        })
        .await?;
    }
    world.is_whole().await?;
    world.arrives(east, 0, &[1, 2, 3]).await?;
    // What follows a change in the log is told after it: deletions that were due would have come before.
    for (of, number) in [(east, 39), (west, 4)] {
        world.change(of, number, &[1, 2, 7]).await?;
        world.arrives(of, number, &[1, 2, 7]).await?;
    }
    world.is_ready(east, 39, "True", REASON_READY).await?;
    assert_eq!(witness.losses().await?, Vec::<String>::new());
    Ok(())
}

/// A standby takes over from a leader that is killed, and from one that ends in order.
#[tokio::test]
async fn a_leader_that_dies_is_followed_by_its_standby_and_nobody_notices() -> Result<()> {
    let mut world = World::start(pair().await?, "leader", OUTLIVES_A_LEADER).await?;
    let (east, west) = (&world.pair.east, &world.pair.west);
    world.export(east, 6).await?;
    world.export(west, 3).await?;
    world.leads("east").await?;
    world.standby("second").await?;
    let holder = world.holder(east).await?;
    let witness = world.witness().await?;
    witness.take_writes().await?;

    world.stack.end_controller("east", Signal::Kill).await?;
    world.change(east, 0, &[1, 2, 3]).await?;
    world.change(west, 0, &[1, 2, 3]).await?;
    world.leads("second").await?;
    world.arrives(east, 0, &[1, 2, 3]).await?;
    world.arrives(west, 0, &[1, 2, 3]).await?;
    assert_ne!(world.holder(east).await?, holder, "the holder after the leader was killed");

    world.standby("third").await?;
    let holder = world.holder(east).await?;
    world.stack.end_controller("second", Signal::Term).await?;
    world.leads("third").await?;
    let successor = world.holder(east).await?;
    assert_ne!(successor, holder, "the holder after the leader ended in order");
    world.change(east, 1, &[1, 2, 3]).await?;
    world.arrives(east, 1, &[1, 2, 3]).await?;
    world.is_ready(east, 1, "True", REASON_READY).await?;

    assert_eq!(witness.losses().await?, Vec::<String>::new());
    let written = witness.take_writes().await?;
    let changed = [(east, 0), (west, 0), (east, 1)];
    let mut expected = BTreeSet::new();
    for (of, number) in changed {
        for cluster in world.clusters() {
            let slices = slices(&cluster.client(), world.ns(), &name(of, number)).await?;
            expected.extend(
                slices.iter().map(|slice| format!("{} EndpointSlice {}", cluster.name(), slice.name_any())),
            );
        }
    }
    assert_eq!(written, expected, "only what changed is written");
    Ok(())
}

/// Case O40: a leader that was paused for longer than its Lease, with work to do, writes nothing when it goes on.
#[tokio::test]
async fn a_leader_that_was_paused_writes_nothing_after_its_standby_took_over() -> Result<()> {
    let mut world = World::start(pair().await?, "paused", OUTLIVES_A_LEADER).await?;
    let (east, west) = (&world.pair.east, &world.pair.west);
    world.export(east, 3).await?;
    world.export(west, 10).await?;
    world.leads("east").await?;
    world.standby("second").await?;
    let witness = world.witness().await?;

    for number in 0..10 {
        world.change(west, number, &[1, 2, 3]).await?;
    }
    // Wherever it stands with these ten.
    world.stack.controller("east")?.program.signal(Signal::Stop)?;
    world.change(east, 0, &[1, 2, 3]).await?;
    world.leads("second").await?;
    for number in 0..10 {
        world.arrives(west, number, &[1, 2, 3]).await?;
        world.change(west, number, &[1, 2, 3, 4]).await?;
        world.arrives(west, number, &[1, 2, 3, 4]).await?;
    }
    world.arrives(east, 0, &[1, 2, 3]).await?;
    let holder = world.holder(east).await?;
    witness.take_writes().await?;

    world.stack.controller("east")?.program.signal(Signal::Continue)?;
    wait_for("the paused leader to see that it leads no more", async || {
        let leader = world.metric("east", "mcs_controller_leader").await?;
        ensure!(leader == ["mcs_controller_leader 0"], "{leader:?}");
        Ok(())
    })
    .await?;
    let url = world.metric("east", "mcs_controller_registry_connected").await?;
    assert!(url.len() == 1 && url[0].ends_with("} 0"), "{url:?}");
    let written = world.metric("east", "mcs_controller_object_writes_total").await?;
    // It follows as a standby: what it has seen of this change, it has seen of all before.
    world.change(east, 1, &[1, 2, 3]).await?;
    world.arrives(east, 1, &[1, 2, 3]).await?;
    world.is_whole().await?;
    assert_eq!(world.metric("east", "mcs_controller_object_writes_total").await?, written);
    assert_eq!(world.holder(east).await?, holder);
    let writes = witness.take_writes().await?;
    let mut expected = BTreeSet::new();
    for cluster in world.clusters() {
        let slices = slices(&cluster.client(), world.ns(), &name(east, 1)).await?;
        expected.extend(
            slices.iter().map(|slice| format!("{} EndpointSlice {}", cluster.name(), slice.name_any())),
        );
    }
    assert_eq!(writes, expected, "only what changed after the pause is written");
    assert_eq!(witness.losses().await?, Vec::<String>::new());
    Ok(())
}

/// Case O33: what is shown while no registry answers, and of a cluster that is dead; all of it comes back.
#[tokio::test]
async fn a_lease_that_runs_out_hides_endpoints_elsewhere_and_nothing_else() -> Result<()> {
    let mut world = World::start(pair().await?, "lease", Duration::from_secs(5)).await?;
    let (east, west) = (&world.pair.east, &world.pair.west);
    world.export(east, 2).await?;
    world.export(west, 2).await?;
    world.is_whole().await?;
    let witness = world.witness().await?;

    world.stack.end_registry(Signal::Kill).await?;
    world.change(east, 0, &[2, 3]).await?;
    world.shows(east, east, 0, &[2, 3]).await?;
    for cluster in world.clusters() {
        world.is_ready(cluster, 0, "False", REASON_LEASE_EXPIRED).await?;
        // Nobody tells the others, so they keep what they have.
        world.shows(cluster, west, 0, &[1, 2]).await?;
    }
    world.shows(west, east, 0, &[1, 2]).await?;
    world.change(east, 0, &[3]).await?;
    world.shows(east, east, 0, &[3]).await?;
    world.stack.start_registry().await?;
    world.arrives(east, 0, &[3]).await?;
    for cluster in world.clusters() {
        world.is_ready(cluster, 0, "True", REASON_READY).await?;
    }
    world.is_whole().await?;

    world.stack.end_controller("east", Signal::Kill).await?;
    for number in 0..2 {
        world.shows(west, east, number, &[]).await?;
    }
    let imports = Api::<ServiceImport>::namespaced(west.client(), world.ns());
    wait_for("imports of a dead cluster that have ports and no cluster", async || {
        for number in 0..2 {
            let import = imports.get(&name(east, number)).await?;
            let clusters = import.status.unwrap_or_default().clusters;
            let spec = import.spec.unwrap_or_default();
            let ports: Vec<_> = spec.ports.iter().map(|port| port.port).collect();
            ensure!(ports == [8080] && !spec.ips.is_empty(), "{spec:?}");
            ensure!(clusters.is_empty(), "{clusters:?}");
        }
        Ok(())
    })
    .await?;
    let exports = world.stack.rest("exports").await?;
    assert_eq!(exports["exports"].as_array().map(Vec::len), Some(4), "{exports}");
    world.shows(west, west, 0, &[1, 2]).await?;

    world.standby("again").await?;
    world.leads("again").await?;
    world.arrives(east, 0, &[3]).await?;
    world.arrives(east, 1, &[1, 2]).await?;
    let slices = slices(&west.client(), world.ns(), &name(east, 0)).await?;
    let sources: Vec<_> = slices.iter().map(|slice| slice.labels()[LABEL_SOURCE_CLUSTER].as_str()).collect();
    assert_eq!(sources, ["east"]);

    // The witness has seen the conditions, and in west the endpoints and clusters; nothing else went.
    let losses = witness.losses().await?;
    let expected = |loss: &&String| {
        let hidden = loss.starts_with("west EndpointSlice ") || loss.starts_with("west ServiceImport east-");
        let changed = loss.starts_with("east EndpointSlice ");
        let conditions = loss.contains(" ServiceExport ") && loss.contains(" lost Ready=");
        let whole = loss.contains(" ServiceImport ") && !loss.ends_with(" lost cluster east");
        (hidden || changed || conditions) && !whole
    };
    let unexpected: Vec<_> = losses.iter().filter(|loss| !expected(loss)).collect();
    assert_eq!(unexpected, Vec::<&String>::new());
    for expected in
        ["west ServiceImport east-0 lost cluster east", "west ServiceExport west-0 lost Ready=True"]
    {
        assert!(losses.iter().any(|loss| loss == expected), "{expected}: {losses:?}");
    }
    Ok(())
}

/// An API server that is away takes nothing with it, and what changed meanwhile elsewhere arrives.
#[tokio::test]
async fn an_api_server_that_restarts_takes_nothing_from_anybody() -> Result<()> {
    let pair = Pair::start().await?;
    let world = World::start(&pair, "apiserver", Duration::from_secs(30)).await?;
    let (east, west) = (&pair.east, &pair.west);
    world.export(east, 5).await?;
    world.export(west, 5).await?;
    let witness = world.witness().await?;

    for round in 1..=2 {
        east.stop_api_server().await?;
        let hosts: Vec<u8> = (1..=2 + round).collect();
        world.change(west, 0, &hosts).await?;
        world.shows(west, west, 0, &hosts).await?;
        east.start_api_server().await?;
        world.arrives(west, 0, &hosts).await?;
        world.change(east, 0, &hosts).await?;
        world.arrives(east, 0, &hosts).await?;
    }
    world.is_whole().await?;
    world.change(west, 1, &[1, 2, 3]).await?;
    world.arrives(west, 1, &[1, 2, 3]).await?;
    assert_eq!(witness.losses().await?, Vec::<String>::new());
    Ok(())
}
