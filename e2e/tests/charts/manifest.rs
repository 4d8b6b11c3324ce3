//! The plain manifests of the discovery service, for who has no helm: the same that the chart renders.

use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};

use crate::{
    chart::{Chart, Rendered, objects},
    helm::repository,
    laws,
};

/// The values that render what is in the manifests.
const VALUES: &str =
    "{poolDiscovery: mcs, router: {namespace: routing, service: global-router, portName: grpc}}";

/// The objects of `discovery/deploy`, in the order in which kubectl applies the folder.
///
/// # Errors
/// They cannot be read.
pub(crate) fn manifests() -> Result<Rendered> {
    let mut text = String::new();
    for file in ["global-discovery-service.yaml", "rbac.yaml"] {
        text += &std::fs::read_to_string(repository("discovery/deploy").join(file)).context(file)?;
        text += "---\n";
    }
    let objects = objects(&text)?;
    Ok(Rendered { text, objects })
}

#[test]
fn the_manifests_of_the_discovery_service_are_what_the_chart_renders() -> Result<()> {
    let manifests = manifests()?;
    laws::hold_together(&manifests)?;
    let rendered = Chart::Discovery.render(VALUES).map_err(|refusal| anyhow!(refusal))?;
    for (name, pointer) in
        [("Deployment/global-discovery-service", "/spec"), ("Service/global-discovery-service", "/spec")]
    {
        let of = |rendered: &Rendered| -> Result<Value> {
            let object = rendered.find(name).with_context(|| format!("no {name}"))?;
            Ok(without_release(object.pointer(pointer).context(pointer)?.clone()))
        };
        assert_eq!(of(&manifests)?, of(&rendered)?, "{name}");
    }
    let (role, of_chart) =
        ("ClusterRole/global-discovery-service", "ClusterRole/global-discovery-service:global-discovery");
    let rules = |rendered: &Rendered, name: &str| rendered.find(name).map(|role| role["rules"].clone());
    assert_eq!(rules(&manifests, role), rules(&rendered, of_chart));
    assert!(manifests.find("ServiceAccount/global-discovery-service").is_some());
    Ok(())
}

/// The labels of a release mean nothing without helm.
fn without_release(mut value: Value) -> Value {
    match &mut value {
        Value::Object(object) => {
            object.remove("app.kubernetes.io/instance");
            object.values_mut().for_each(|value| *value = without_release(value.take()));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| *value = without_release(value.take())),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    if value == json!({}) { Value::Null } else { value }
}
