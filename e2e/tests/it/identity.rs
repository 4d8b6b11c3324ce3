//! Controllers that are not told who their cluster is, and find out.

use anyhow::{Result, ensure};
use k8s_openapi::api::events::v1::Event;
use kube::{
    Api, ResourceExt,
    api::{ListParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use mcs_controller::api::{AboutVersion, ClusterProperty, ClusterPropertySpec};
use mcs_core::names::{
    EVENT_IDENTITY_CHANGED, LABEL_REGION, LABEL_SOURCE_CLUSTER, PROPERTY_CLUSTER_ID, PROPERTY_CLUSTERSET_ID,
};
use mcs_e2e::{
    objects::Port,
    shared::pair,
    stack::{Stack, StackOptions, get},
    wait_for,
};
use serde_json::json;

use crate::support::{Place, READY};

const HTTP: [Port<'_>; 1] = [("http", 80)];

#[tokio::test]
async fn a_cluster_is_known_by_its_properties_and_nodes_and_goes_on_by_them_when_they_change() -> Result<()> {
    let pair = pair().await?;
    let namespace = pair.namespace("identity").await?;
    let mut stack = Stack::start_without_controllers(StackOptions::for_namespace(namespace.name())).await?;
    stack.start_controllers(&[&pair.west]).await?;
    stack.prepare(&pair.east).await?;
    stack.allow_identity(&pair.east).await?;
    stack.discover_identity(true);
    stack.start_controller(&pair.east, "east").await?;
    says(&stack, "--cluster-id is not set, and there is no ClusterProperty cluster.clusterset.k8s.io")
        .await?;

    let properties: Api<ClusterProperty> = Api::all_with(pair.east.client(), &AboutVersion::V1beta1);
    for (name, value) in [(PROPERTY_CLUSTER_ID, "east"), (PROPERTY_CLUSTERSET_ID, namespace.name())] {
        let property = ClusterProperty {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            spec: Some(ClusterPropertySpec { value: value.to_owned() }),
            ..ClusterProperty::default()
        };
        properties.create(&PostParams::default(), &property).await?;
    }
    stack.ready().await?;
    let [east, west] = pair.clients().map(|client| Place::new(client, namespace.name(), "cart"));
    east.export(&HTTP, &["10.0.0.1"]).await?;
    let import = west.imports(&[("east", &["10.0.0.1"])]).await?;
    let labels: Vec<_> = import
        .slices
        .iter()
        .map(|slice| [LABEL_SOURCE_CLUSTER, LABEL_REGION].map(|label| slice.labels().get(label).cloned()))
        .collect();
    assert_eq!(labels, [["east", "us-east-1"].map(|value| Some(value.to_owned()))]);

    let set = async |value: &str| {
        let patch = Patch::Merge(json!({ "spec": { "value": value } }));
        properties.patch(PROPERTY_CLUSTER_ID, &PatchParams::default(), &patch).await.map(drop)
    };
    set("elsewhere").await?;
    changed(&stack, PROPERTY_CLUSTER_ID, 1).await?;
    changed(&stack, PROPERTY_CLUSTERSET_ID, 0).await?;
    wait_for("an Event of the change", async || {
        let events: Api<Event> = Api::all(pair.east.client());
        let events = events.list(&ListParams::default()).await?;
        let told = events.items.iter().any(|event| {
            event.reason.as_deref() == Some(EVENT_IDENTITY_CHANGED)
                && event.note.as_ref().is_some_and(|note| note.contains("goes on as east"))
        });
        ensure!(told, "{} Events", events.items.len());
        Ok::<_, anyhow::Error>(())
    })
    .await?;
    east.set_addresses(&["10.0.0.2"]).await?;
    west.imports(&[("east", &["10.0.0.2"])]).await?;
    east.says(&READY).await?;
    set("east").await?;
    changed(&stack, PROPERTY_CLUSTER_ID, 0).await?;

    for name in [PROPERTY_CLUSTER_ID, PROPERTY_CLUSTERSET_ID] {
        properties.delete(name, &Default::default()).await?;
        changed(&stack, name, 1).await?;
    }
    Ok(())
}

async fn says(stack: &Stack, text: &str) -> Result<()> {
    wait_for(&format!("{text} in the log"), async || {
        let program = &stack.controller("east")?.program;
        ensure!(program.log().contains(text), "{}", program.log_tail());
        Ok(())
    })
    .await
}

async fn changed(stack: &Stack, property: &str, value: u8) -> Result<()> {
    wait_for(&format!("identity_changed of {property} to be {value}"), async || {
        let text = get(&format!("http://{}/metrics", stack.controller("east")?.admin)).await?;
        let text = String::from_utf8(text.to_vec())?;
        let line = format!("mcs_controller_identity_changed{{property=\"{property}\"}} {value}");
        let lines: Vec<_> = text.lines().filter(|line| line.contains("identity_changed{")).collect();
        ensure!(lines.contains(&line.as_str()), "{lines:?}");
        Ok(())
    })
    .await
}
