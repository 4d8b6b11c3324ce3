//! Controllers that may work in the namespaces that they watch and see nothing of the others.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    core::v1::{Namespace, Service},
    discovery::v1::EndpointSlice,
    rbac::v1::Role,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use mcs_controller::api::{ServiceExport, ServiceImport};
use mcs_core::{
    ids::ServiceKey,
    names::{ANNOTATION_CLUSTERSET, LABEL_EXPORT, LABEL_MANAGED_BY, MANAGED_BY},
};
use mcs_e2e::{
    objects::Port,
    peer::Peer,
    shared::pair,
    stack::{Stack, StackOptions},
    wait_for,
};
use serde_json::json;

use crate::support::{Place, READY, held_imports, make_namespace, peer_endpoints, peer_spec};

const HTTP: [Port<'_>; 1] = [("http", 80)];
const ALPHA: &[(&str, &[&str])] = &[("alpha", &["10.1.0.1"])];

#[tokio::test]
async fn a_namespace_that_is_not_watched_gets_nothing_and_nobody_says_a_word_of_it() -> Result<()> {
    let pair = pair().await?;
    let (watched, other) = (pair.namespace("watched").await?, pair.namespace("unwatched").await?);
    let client = pair.west.client();
    let [cart, last] = ["cart", "last"].map(|name| Place::new(client.clone(), watched.name(), name));
    let [theirs, pay, labelled] =
        ["cart", "pay", "labelled"].map(|name| Place::new(client.clone(), other.name(), name));
    let mut stack = Stack::start_without_controllers(StackOptions::for_namespace(watched.name())).await?;
    stack.prepare(&pair.west).await?;
    pay.export(&HTTP, &["10.2.0.1"]).await?;
    labelled.create_service(&HTTP, &["10.2.0.2"]).await?;
    let label = Patch::Merge(json!({ "metadata": { "labels": { LABEL_EXPORT: "true" } } }));
    labelled.api::<Service>().patch("labelled", &PatchParams::default(), &label).await?;
    let before = objects(&client, other.name()).await?;

    stack.start_controllers(&[&pair.west]).await?;
    let alpha = Peer::join(&stack, "alpha").await?;
    for place in [&theirs, &cart] {
        exports(&alpha, &place.key()?).await?;
    }
    cart.imports(ALPHA).await?;
    // What came before this was seen before it too, by the watch of the registry and by that of the cluster.
    last.export(&HTTP, &["10.2.0.3"]).await?;
    last.says(&READY).await?;
    last.imports(&[("west", &["10.2.0.3"])]).await?;

    assert_eq!(objects(&client, other.name()).await?, before);
    held_imports(&stack, "west", 0).await?;
    let told = stack.rest("exports").await?.to_string();
    ensure!(told.contains(watched.name()) && !told.contains("10.2.0.1"), "{told}");
    let log = stack.controller("west")?.program.log();
    let warnings: Vec<_> =
        log.lines().filter(|line| line.contains("WARN") || line.contains("ERROR")).collect();
    assert_eq!(warnings, Vec::<&str>::new());

    // It could not even look there.
    let account = pair.west.client_for_service_account(&stack.system_namespace(), "mcs-controller").await?;
    let watched_services = Api::<Service>::namespaced(account.clone(), watched.name());
    watched_services.list(&ListParams::default()).await?;
    let refused = [
        Api::<Service>::namespaced(account.clone(), other.name()).list(&ListParams::default()).await.err(),
        Api::<ServiceExport>::all(account.clone()).list(&ListParams::default()).await.err(),
        Api::<Namespace>::all(account.clone()).list(&ListParams::default()).await.err(),
        Api::<Namespace>::all(account).get(other.name()).await.err(),
    ];
    for error in refused {
        let Some(kube::Error::Api(status)) = error else { anyhow::bail!("{error:?}") };
        assert_eq!(status.code, 403, "{}", status.message);
    }
    Ok(())
}

/// O24, O25: where namespaces are not watched but asked for, and a Role comes and goes with each.
#[tokio::test]
async fn a_watched_namespace_may_be_missing_and_come_and_go_and_come_back() -> Result<()> {
    let pair = pair().await?;
    let (kept, client) = (pair.namespace("kept").await?, pair.west.client());
    let ns = format!("{}-later", kept.name());
    let mut options = StackOptions::for_namespace(kept.name());
    options.watch_namespaces.push(ns.clone());
    let stack = Stack::start(options, &[&pair.west]).await?;
    let alpha = Peer::join(&stack, "alpha").await?;
    let [cart, later, own] = [(kept.name(), "cart"), (&ns, "cart"), (&ns, "own")]
        .map(|(namespace, name)| Place::new(client.clone(), namespace, name));
    for place in [&later, &cart] {
        exports(&alpha, &place.key()?).await?;
    }
    cart.imports(ALPHA).await?;
    held_imports(&stack, "west", 1).await?;

    make_namespace(&client, &ns).await?;
    stack.allow_in(&pair.west, &ns).await?;
    let first = later.imports(ALPHA).await?;
    held_imports(&stack, "west", 0).await?;
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces.delete(&ns, &DeleteParams::default()).await?;
    wait_for("the end of the namespace", async || {
        let found = namespaces.get_opt(&ns).await?;
        ensure!(found.is_none(), "{:?}", found.and_then(|found| found.status));
        Ok::<_, anyhow::Error>(())
    })
    .await?;
    held_imports(&stack, "west", 1).await?;

    make_namespace(&client, &ns).await?;
    stack.allow_in(&pair.west, &ns).await?;
    let again = later.imports(ALPHA).await?;
    assert_ne!(again.import.uid(), first.import.uid());
    held_imports(&stack, "west", 0).await?;
    own.export(&HTTP, &["10.2.0.1"]).await?;
    own.says(&READY).await?;
    own.imports(&[("west", &["10.2.0.1"])]).await?;
    cart.imports(ALPHA).await?;
    own.delete::<ServiceExport>("own").await?;
    own.export_is_gone().await
}

/// A namespace that a controller makes has no Role yet: until somebody makes it the import waits. One that ends takes its
/// Role along before the finalizers.
#[tokio::test]
async fn a_watched_namespace_is_made_where_that_is_permitted_and_let_go_after_its_role() -> Result<()> {
    let pair = pair().await?;
    let (kept, client) = (pair.namespace("makes").await?, pair.west.client());
    let ns = format!("{}-made", kept.name());
    let mut options = StackOptions::for_namespace(kept.name());
    options.watch_namespaces.push(ns.clone());
    options.controller_flags.push("--create-namespaces".to_owned());
    let mut stack = Stack::start_without_controllers(options).await?;
    stack.prepare(&pair.west).await?;
    stack.allow_namespaces(&pair.west).await?;
    stack.allow_finalizers(&pair.west).await?;
    stack.start_controller(&pair.west, "west").await?;
    stack.ready().await?;
    let alpha = Peer::join(&stack, "alpha").await?;
    let [cart, made, own] = [(kept.name(), "cart"), (&ns, "cart"), (&ns, "own")]
        .map(|(namespace, name)| Place::new(client.clone(), namespace, name));
    for place in [&made, &cart] {
        exports(&alpha, &place.key()?).await?;
    }
    let namespaces = Api::<Namespace>::all(client.clone());
    let found = wait_for("a namespace that the controller makes", async || {
        namespaces.get_opt(&ns).await?.context("it is not there")
    })
    .await?;
    let marks = (found.labels().get(LABEL_MANAGED_BY), found.annotations().get(ANNOTATION_CLUSTERSET));
    assert_eq!(marks, (Some(&MANAGED_BY.to_owned()), Some(&kept.name().to_owned())));
    cart.imports(ALPHA).await?;
    stack.allow_in(&pair.west, &ns).await?;
    made.imports(ALPHA).await?;
    own.export(&HTTP, &["10.2.0.1"]).await?;
    own.says(&READY).await?;

    let (roles, all) = (Api::<Role>::namespaced(client.clone(), &ns), ListParams::default());
    alpha.withdraw(&made.key()?).await?;
    made.imports_nothing().await?;
    roles.delete_collection(&DeleteParams::default(), &all).await?;
    let account = pair.west.client_for_service_account(&stack.system_namespace(), "mcs-controller").await?;
    wait_for("the Role to be of no more use", async || {
        let listed = Api::<ServiceExport>::namespaced(account.clone(), &ns).list(&all).await;
        ensure!(matches!(&listed, Err(kube::Error::Api(status)) if status.code == 403), "{listed:?}");
        Ok::<_, anyhow::Error>(())
    })
    .await?;
    namespaces.delete(&ns, &DeleteParams::default()).await?;
    wait_for("the end of the namespace", async || {
        let found = namespaces.get_opt(&ns).await?;
        ensure!(found.is_none(), "{:?}", found.and_then(|found| found.status));
        Ok::<_, anyhow::Error>(())
    })
    .await?;
    let told = stack.rest("exports").await?.to_string();
    ensure!(!told.contains(&ns), "{told}");
    cart.imports(ALPHA).await.map(drop)
}

async fn exports(peer: &Peer, key: &ServiceKey) -> Result<()> {
    peer.export(key, peer_spec(&HTTP, 1_000_000_000), peer_endpoints(&HTTP, &["10.1.0.1"])?).await
}

/// Names and versions of what there is in a namespace of the kinds that a controller makes.
async fn objects(client: &Client, ns: &str) -> Result<Vec<(String, Option<String>)>> {
    let all = ListParams::default();
    let seen = |kind: &str, name: String, version: Option<String>| (format!("{kind} {name}"), version);
    let services = Api::<Service>::namespaced(client.clone(), ns).list(&all).await?;
    let slices = Api::<EndpointSlice>::namespaced(client.clone(), ns).list(&all).await?;
    let exports = Api::<ServiceExport>::namespaced(client.clone(), ns).list(&all).await?;
    let imports = Api::<ServiceImport>::namespaced(client.clone(), ns).list(&all).await?;
    let services = services.iter().map(|it| seen("Service", it.name_any(), it.resource_version()));
    let slices = slices.iter().map(|it| seen("EndpointSlice", it.name_any(), it.resource_version()));
    let exports = exports.iter().map(|it| seen("ServiceExport", it.name_any(), it.resource_version()));
    let imports = imports.iter().map(|it| seen("ServiceImport", it.name_any(), it.resource_version()));
    Ok(services.chain(slices).chain(exports).chain(imports).collect())
}
