//! The roles of the charts grant what the manifests beside the programs grant, under which the tests of whole clusters
//! run, and nothing else.

use std::collections::BTreeSet;

use anyhow::{Result, anyhow};
use serde_json::Value;

use crate::{
    chart::{Chart, list_at, objects, text_at},
    helm::repository,
};

/// Each combination of values, and the manifests that grant the same.
const GRANTS: [(&str, &[&str]); 7] = [
    ("clustersetId: prod, clusterId: east, region: us-east-1", &["rbac.yaml"]),
    ("region: ''", &["rbac.yaml", "rbac-identity.yaml"]),
    (
        "clustersetId: prod, clusterId: east, region: us-east-1, createNamespaces: true",
        &["rbac.yaml", "rbac-create-namespaces.yaml"],
    ),
    (
        "clustersetId: prod, clusterId: east, region: us-east-1, watchNamespaces: [shop]",
        &["rbac-watch-namespaces.yaml"],
    ),
    (
        "clustersetId: prod, clusterId: east, region: us-east-1, watchNamespaces: [shop], rbac: {finalizers: true}",
        &["rbac-watch-namespaces.yaml", "rbac-finalizers.yaml"],
    ),
    ("watchNamespaces: [shop]", &["rbac-watch-namespaces.yaml", "rbac-identity.yaml"]),
    ("clustersetId: prod, clusterId: east, region: us-east-1, rbac: {create: false}", &[]),
];

#[test]
fn the_controller_may_do_what_its_manifests_grant_and_nothing_else() -> Result<()> {
    for (values, manifests) in GRANTS {
        let granted = of_controller(values, "mcs-controller")?;
        let mut expected = BTreeSet::new();
        for manifest in manifests {
            expected.extend(of_manifest(&format!("controller/deploy/{manifest}"))?);
        }
        assert_eq!(granted, expected, "{values}");
    }
    Ok(())
}

#[test]
fn of_who_the_cluster_is_only_what_is_unset_may_be_read() -> Result<()> {
    let base = of_controller("clustersetId: prod, clusterId: east, region: us-east-1", "mcs-controller")?;
    for (values, resources) in [
        ("clustersetId: prod, clusterId: east", &["nodes"][..]),
        ("clustersetId: prod, region: us-east-1", &["clusterproperties", "events"]),
        ("clusterId: east, region: us-east-1", &["clusterproperties", "events"]),
    ] {
        let granted = of_controller(values, "mcs-controller")?;
        let more: BTreeSet<&str> = granted.difference(&base).map(|grant| grant.resource.as_str()).collect();
        assert_eq!(more, resources.iter().copied().collect(), "{values}");
    }
    Ok(())
}

#[test]
fn the_job_that_applies_crds_may_do_what_its_manifest_grants() -> Result<()> {
    let granted = of_controller("clusterId: east", "mcs-crds")?;
    assert_eq!(granted, of_manifest("controller/deploy/rbac-crds.yaml")?);
    Ok(())
}

/// One verb on one resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Grant {
    /// The namespace, empty for all.
    namespace: String,
    group: String,
    resource: String,
    /// Only objects of these names.
    names: Vec<String>,
    verb: String,
}

/// What the chart grants to a ServiceAccount with these values of the controller.
fn of_controller(values: &str, account: &str) -> Result<BTreeSet<Grant>> {
    let values =
        format!("controller: {{enabled: true, registryUrls: ['https://registry.example'], {values}}}");
    let rendered = Chart::Mcs.render(&values).map_err(|refusal| anyhow!("{values}: {refusal}"))?;
    Ok(granted(&rendered.objects, account))
}

fn of_manifest(path: &str) -> Result<BTreeSet<Grant>> {
    let objects = objects(&std::fs::read_to_string(repository(path))?)?;
    let accounts = objects.iter().filter(|object| text_at(object, "/kind").ends_with("Binding"));
    Ok(accounts.flat_map(|binding| granted(&objects, text_at(binding, "/subjects/0/name"))).collect())
}

/// What bindings and roles among these objects grant to a ServiceAccount.
fn granted(objects: &[Value], account: &str) -> BTreeSet<Grant> {
    let bindings = objects.iter().filter(|object| {
        text_at(object, "/kind").ends_with("Binding") && text_at(object, "/subjects/0/name") == account
    });
    let mut grants = BTreeSet::new();
    for binding in bindings {
        let namespace = text_at(binding, "/metadata/namespace");
        let role = objects.iter().find(|object| {
            object["kind"] == binding["roleRef"]["kind"]
                && object["metadata"]["name"] == binding["roleRef"]["name"]
                && text_at(object, "/metadata/namespace") == namespace
        });
        for rule in role.map_or(&[][..], |role| list_at(role, "/rules")) {
            let texts = |field: &str| -> Vec<String> {
                let list = list_at(rule, field).iter();
                list.filter_map(Value::as_str).map(ToOwned::to_owned).collect()
            };
            let mut names = texts("/resourceNames");
            names.sort();
            for group in texts("/apiGroups") {
                for resource in texts("/resources") {
                    for verb in texts("/verbs") {
                        grants.insert(Grant {
                            namespace: namespace.to_owned(),
                            group: group.clone(),
                            resource: resource.clone(),
                            names: names.clone(),
                            verb,
                        });
                    }
                }
            }
        }
    }
    grants
}
