//! What becomes of imports, as the importing cluster says it.

use super::*;
use crate::support::{peer_endpoints, peer_spec};
use kube::core::Status;
use mcs_core::{
    ids::ServiceKey,
    model::{EndpointPort, GroupKey, IpFamily, Protocol},
    names::{derived_service_name, slice_name},
};
use mcs_e2e::objects::refusal;
use mcs_e2e::peer::Peer;

const HTTP: [(&str, u16); 1] = [("http", 80)];
const READY: [&str; 4] = [
    names::CONDITION_READY,
    "True",
    names::REASON_READY,
    "the derived Service and its EndpointSlices are in place",
];
const PENDING: [&str; 4] =
    [names::CONDITION_READY, "False", names::REASON_PENDING, "the derived Service is not in place yet"];
const NOT_SUPPORTED: [&str; 4] = [
    names::CONDITION_READY,
    "False",
    names::REASON_FAMILY_NOT_SUPPORTED,
    "this cluster serves none of the exported Service's IP families",
];

#[tokio::test]
async fn an_import_says_whether_it_can_be_used_and_what_is_in_its_way() -> Result<()> {
    let mut scene = Scene::prepare("uses", &[]).await?;
    let ns = scene.namespace.clone();
    let derived = |name: &str| Ok::<_, anyhow::Error>(derived_service_name(&ServiceKey::new(&ns, name)?));
    let port =
        EndpointPort { name: "http".to_owned(), protocol: Protocol::Tcp, port: Some(80), app_protocol: None };
    let group = GroupKey::new(IpFamily::V4, [port]);
    let taken_slice = slice_name(&derived("slice")?, &"gamma".parse()?, &group, 0);

    // What somebody else made, under the names that ours would have.
    let foreign_import = json!({
        "metadata": { "name": "import" }, "spec": { "type": "ClusterSetIP", "ports": [{ "port": 443 }] },
    });
    scene.create::<ServiceImport>(foreign_import).await?;
    scene.create::<Service>(json!({ "metadata": { "name": derived("service")? }, "spec": http() })).await?;
    let refusal = refuse_service(&scene, &derived("refused")?).await?;
    let mut theirs = slice("mine", "x", "IPv4", &json!([]), &["10.9.9.9"]);
    theirs["metadata"]["name"] = taken_slice.clone().into();
    scene.create::<EndpointSlice>(theirs).await?;

    scene.start_controller().await?;
    let gamma = Peer::join(&scene.stack, "gamma").await?;
    for name in ["good", "six", "import", "service", "slice", "refused"] {
        let mut spec = peer_spec(&HTTP, 1_000_000_000);
        if name == "six" {
            spec.ip_families = vec![IpFamily::V6];
        }
        gamma.export(&scene.place(name).key()?, spec, peer_endpoints(&HTTP, &["10.3.0.1"])?).await?;
    }
    let rows = [
        ("good", Some(READY)),
        ("six", Some(NOT_SUPPORTED)),
        ("import", None),
        ("service", Some(PENDING)),
        ("slice", Some(READY)),
        ("refused", Some(PENDING)),
    ];
    for (name, wanted) in rows {
        scene.says::<ServiceImport>(name, &Vec::from_iter(wanted)).await?;
    }
    let (service, slice) = (derived("service")?, &taken_slice);
    let about = |name: &str, reason: &str, note: &str| told(names::KIND_SERVICE_IMPORT, name, reason, note);
    let events: Told = [
        about(
            "six",
            names::EVENT_IMPORT_FAILED,
            "the Service is exported with IPv6, which this cluster gives no Service",
        ),
        about(
            "import",
            names::EVENT_IMPORT_SKIPPED,
            "ServiceImport import was not made by this controller and is left alone; --adopt-unmanaged-imports takes such over",
        ),
        about(
            "service",
            names::EVENT_SERVICE_SKIPPED,
            &format!(
                "Service {service} has the name of the derived Service but was not made by this controller; delete it so \
                 that the import can be completed"
            ),
        ),
        about(
            "slice",
            names::EVENT_SLICE_SKIPPED,
            &format!(
                "EndpointSlice {slice} has the name of an imported slice but was not made by this controller; it is left \
                 alone, and what it would hold is in a slice of another name"
            ),
        ),
        about(
            "refused",
            names::EVENT_IMPORT_FAILED,
            &format!(
                "the API server refuses to take an object of this import ({}): {}; it is tried again",
                refusal.code, refusal.message
            ),
        ),
    ]
    .into();
    scene.tells(&events).await?;

    // A condition of another writer stays as it is, whatever becomes of ours.
    let before = scene.says::<ServiceImport>("good", &[READY]).await?;
    assert!(before.iter().all(|it| it.observed_generation.is_some()), "{before:?}");
    scene.say_as_another::<ServiceImport>("good").await?;
    let delta = Peer::join(&scene.stack, "delta").await?;
    let key = scene.place("good").key()?;
    delta.export(&key, peer_spec(&HTTP, 4_000_000_000), peer_endpoints(&HTTP, &["10.4.0.1"])?).await?;
    scene.place("good").imports(&[("delta", &["10.4.0.1"]), ("gamma", &["10.3.0.1"])]).await?;
    let other = foreign();
    let texts = [&other.type_, &other.status, &other.reason, &other.message].map(String::as_str);
    let found = scene.says::<ServiceImport>("good", &[READY, texts]).await?;
    assert!(found.contains(&other), "{found:?}");

    // What is said is said of the ServiceImport as it is now.
    let ports = [("http", 80), ("metrics", 9090)];
    delta.export(&key, peer_spec(&ports, 4_000_000_000), peer_endpoints(&ports, &["10.4.0.1"])?).await?;
    wait_for("the condition of an import with two ports", async || {
        let import = scene.place("good").import().await?;
        let said = import.import.conditions().into_iter().find(|it| it.type_ == names::CONDITION_READY);
        let said = (import.ports().len(), said.and_then(|it| it.observed_generation));
        ensure!(said == (2, import.import.metadata.generation), "{said:?}: {:?}", import.import);
        Ok::<_, anyhow::Error>(())
    })
    .await
}

/// Has the API server refuse a Service of this name in the scene's namespace, and answers with which words.
async fn refuse_service(scene: &Scene, name: &str) -> Result<Status> {
    let passes = format!("object.metadata.name != '{name}'");
    let refusal = refusal(&scene.namespace, "CREATE", &[("", "services")], &passes, "not this one");
    pair().await?.east.apply_yaml(&refusal).await?;
    let service: Service = serde_json::from_value(json!({ "metadata": { "name": name }, "spec": http() }))?;
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    wait_for("a policy that refuses", async || {
        match scene.api::<Service>().create(&dry_run, &service).await {
            Err(kube::Error::Api(status)) => Ok(*status),
            other => Err(format!("{other:?}")),
        }
    })
    .await
}
