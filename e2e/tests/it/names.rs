//! Namespaces that are not there, come, go and come back, and names of the greatest length.

use anyhow::{Result, ensure};
use k8s_openapi::{
    api::{
        core::v1::{Namespace, Service},
        rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, PostParams},
};
use mcs_core::{ids::ServiceKey, timing::Timing};
use mcs_e2e::{
    Cluster, ClusterOptions,
    objects::Port,
    peer::Peer,
    programs::Signal,
    shared::pair,
    stack::{Stack, StackOptions},
    wait_for,
};
use mcs_proto::client::RegistryClient;

use crate::support::{self, Place, READY, make_namespace, peer_endpoints, peer_spec};

const HTTP: [Port<'_>; 1] = [("http", 80)];
const ALPHA: &[(&str, &[&str])] = &[("alpha", &["10.1.0.1"])];

/// O24, O25: with controllers that watch all namespaces, so in a cluster of its own.
#[tokio::test]
async fn an_import_waits_for_its_namespace_and_follows_it_when_it_goes_and_comes_back() -> Result<()> {
    let north = Cluster::start(ClusterOptions::new("north", 2, "eu-north-1")).await?;
    let options = StackOptions { watch_namespaces: Vec::new(), ..StackOptions::for_namespace("everywhere") };
    let mut stack = Stack::start(options, &[&north]).await?;
    let client = north.client();
    let namespaces = Api::<Namespace>::all(client.clone());
    let alpha = Peer::join(&stack, "alpha").await?;
    make_namespace(&client, "ok").await?;
    let [held, web, made] = [("shop", "cart"), ("ok", "web"), ("made", "cart")]
        .map(|(ns, name)| Place::new(client.clone(), ns, name));

    exports(&alpha, &held.key()?).await?;
    exports(&alpha, &web.key()?).await?;
    web.imports(ALPHA).await?;
    held_imports(&stack, 1).await?;
    ensure!(namespaces.get_opt("shop").await?.is_none(), "somebody made the namespace");
    let log = stack.controller("north")?.program.log();
    assert_eq!(log.matches("import held").count(), 1, "{log}");

    make_namespace(&client, "shop").await?;
    held.imports(ALPHA).await?;
    held_imports(&stack, 0).await?;
    namespaces.delete("shop", &DeleteParams::default()).await?;
    wait_for("the end of the namespace", async || {
        let found = namespaces.get_opt("shop").await?;
        ensure!(found.is_none(), "{:?}", found.and_then(|found| found.status));
        Ok(())
    })
    .await?;
    held_imports(&stack, 1).await?;
    make_namespace(&client, "shop").await?;
    held.imports(ALPHA).await?;
    web.imports(ALPHA).await?;

    // Told to make namespaces, it makes them, and leaves them.
    stack.end_controller("north", Signal::Term).await?;
    let may_create = Rules { resource: "namespaces", verb: "create" };
    may_create.grant(&client, &stack.system_namespace()).await?;
    stack.controller_flags().push("--create-namespaces".to_owned());
    stack.start_controller(&north, "north").await?;
    exports(&alpha, &made.key()?).await?;
    made.imports(ALPHA).await?;
    alpha.withdraw(&made.key()?).await?;
    made.imports_nothing().await?;
    let left = namespaces.get("made").await?;
    ensure!(left.metadata.deletion_timestamp.is_none(), "the namespace is being deleted");
    Ok(())
}

/// O27.
#[tokio::test]
async fn names_of_63_characters_are_exported_imported_and_kept_over_a_restart() -> Result<()> {
    let pair = pair().await?;
    let stack_name = pair.namespace("long").await?;
    let namespace = format!("{:x<63}", format!("{}-", stack_name.name()));
    // A cut anywhere before the end would leave a dash there.
    let service = format!("{}a", "a-".repeat(31));
    let cluster = format!("{}z", "z-".repeat(31));
    let [east, west] = pair.clients();
    for client in [&east, &west] {
        make_namespace(client, &namespace).await?;
    }
    let options = StackOptions {
        watch_namespaces: vec![namespace.clone()],
        ..StackOptions::for_namespace(stack_name.name())
    };
    let mut stack = Stack::start(options, &[&pair.east, &pair.west]).await?;
    let [east, west] = [east, west].map(|client| Place::new(client, &namespace, &service));
    let key = east.key()?;
    let peer = Peer::join(&stack, &cluster).await?;
    peer.export(&key, peer_spec(&HTTP, 4_000_000_000), peer_endpoints(&HTTP, &["10.3.0.1"])?).await?;
    let own = mcs_e2e::objects::service_without_selector(&namespace, &service, &HTTP);
    east.api::<Service>().create(&PostParams::default(), &own).await?;
    let slice = format!("{service}-abcde");
    assert_eq!((slice.len(), namespace.len(), service.len(), cluster.len()), (69, 63, 63, 63));
    east.create_slice(&slice, &HTTP, &["10.1.0.1"]).await?;
    east.create_export().await?;

    let sources: &[(&str, &[&str])] = &[("east", &["10.1.0.1"]), (&cluster, &["10.3.0.1"])];
    let import = west.imports(sources).await?;
    east.says(&READY).await?;
    let metadata = [&import.import.metadata, &import.service.metadata];
    for metadata in metadata.into_iter().chain(import.slices.iter().map(|slice| &slice.metadata)) {
        for (label, value) in metadata.labels.iter().flatten() {
            assert!(value.len() <= 63, "{label}: {value}");
        }
    }
    let label = |place: &Service| place.labels().get("multicluster.kubernetes.io/service-name").cloned();
    assert_eq!(label(&import.service), Some(service.clone()));
    let derived = import.service.name_any();
    assert!(derived.len() <= 63 && !derived.ends_with('-'), "{derived}");

    stack.end_controller("west", Signal::Kill).await?;
    stack.start_controller(&pair.west, "west").await?;
    east.create_slice("other", &HTTP, &["10.1.0.2"]).await?;
    let again = west.imports(&[("east", &["10.1.0.1", "10.1.0.2"]), sources[1]]).await?;
    let uids = |import: &crate::support::Import| {
        let slices: Vec<_> = import.slices.iter().map(ResourceExt::uid).collect();
        (import.import.uid(), import.service.uid(), slices)
    };
    assert_eq!(uids(&again), uids(&import));
    Ok(())
}

async fn exports(peer: &Peer, key: &ServiceKey) -> Result<()> {
    peer.export(key, peer_spec(&HTTP, 1_000_000_000), peer_endpoints(&HTTP, &["10.1.0.1"])?).await
}

/// Waits until the controller's metric says that so many imports are held, and the registry was told.
async fn held_imports(stack: &Stack, count: usize) -> Result<()> {
    support::held_imports(stack, "north", count).await?;
    let registry = format!("http://{}", stack.registry().grpc).parse()?;
    let (client, clusterset) =
        (RegistryClient::new(&registry, Timing::default())?, stack.clusterset().parse()?);
    wait_for(&format!("{count} held imports in the registry"), async || {
        let (clusters, _) = client.list_clusters(&clusterset).await?;
        let held: usize =
            clusters.iter().flat_map(|cluster| &cluster.held_imports).map(|held| held.first.len()).sum();
        ensure!(held == count, "{clusters:?}");
        Ok(())
    })
    .await
}

/// A permission beyond those of the checked-in file, which an administrator gives.
struct Rules {
    resource: &'static str,
    verb: &'static str,
}

impl Rules {
    async fn grant(&self, client: &Client, system: &str) -> Result<()> {
        let metadata = ObjectMeta { name: Some(format!("{system}-more")), ..ObjectMeta::default() };
        let role = ClusterRole {
            metadata: metadata.clone(),
            rules: Some(vec![PolicyRule {
                api_groups: Some(vec![String::new()]),
                resources: Some(vec![self.resource.to_owned()]),
                verbs: vec![self.verb.to_owned()],
                ..PolicyRule::default()
            }]),
            ..ClusterRole::default()
        };
        let binding = ClusterRoleBinding {
            role_ref: RoleRef {
                api_group: "rbac.authorization.k8s.io".to_owned(),
                kind: "ClusterRole".to_owned(),
                name: metadata.name.clone().unwrap_or_default(),
            },
            subjects: Some(vec![Subject {
                kind: "ServiceAccount".to_owned(),
                name: "mcs-controller".to_owned(),
                namespace: Some(system.to_owned()),
                ..Subject::default()
            }]),
            metadata,
        };
        Api::<ClusterRole>::all(client.clone()).create(&PostParams::default(), &role).await?;
        Api::<ClusterRoleBinding>::all(client.clone()).create(&PostParams::default(), &binding).await?;
        Ok(())
    }
}
