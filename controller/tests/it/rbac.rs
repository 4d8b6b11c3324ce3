//! The RBAC rules that are checked in: least privilege, without gaps that only a cluster would show.

use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn no_rule_has_a_wildcard_and_none_reaches_secrets_or_roles() {
    let forbidden =
        ["*", "secrets", "pods", "nodes", "roles", "clusterroles", "serviceaccounts", "escalate", "bind"];
    let files = [
        "rbac.yaml",
        "rbac-watch-namespaces.yaml",
        "rbac-create-namespaces.yaml",
        "rbac-finalizers.yaml",
        "rbac-crds.yaml",
    ];
    let found: Vec<_> = files
        .iter()
        .flat_map(|file| rules(file))
        .flat_map(words)
        .filter(|word| forbidden.contains(&word.as_str()))
        .collect();
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn the_controller_may_write_what_it_makes_and_one_lease() {
    let allowed: BTreeSet<String> = rules("rbac.yaml")
        .into_iter()
        .filter(|rule| rule.verbs.iter().any(|verb| !matches!(verb.as_str(), "get" | "list" | "watch")))
        .flat_map(|rule| {
            let names = rule.resource_names.clone().unwrap_or_default().join(",");
            rule.resources.unwrap_or_default().into_iter().map(move |resource| format!("{resource} {names}"))
        })
        .collect();
    let expected = [
        "endpointslices ",
        "events ",
        "leases ",
        "leases mcs-controller",
        "serviceexports ",
        "serviceexports/status ",
        "serviceimports ",
        "serviceimports/status ",
        "services ",
    ];
    assert_eq!(allowed, expected.map(str::to_owned).into());
}

#[test]
fn with_watched_namespaces_it_may_do_the_same_there_and_elsewhere_get_these_namespaces_alone() {
    let (cluster, there) = ("rbac.yaml", "rbac-watch-namespaces.yaml");
    let of_namespaces = |rule: &PolicyRule| rule.resources.as_deref() == Some(&["namespaces".to_owned()]);
    let everywhere = rules_of(cluster, "ClusterRole", None).into_iter().filter(|rule| !of_namespaces(rule));
    assert_eq!(rules_of(there, "Role", Some("shop")), everywhere.collect::<Vec<_>>());
    let system = Some("mcs-system");
    assert_eq!(rules_of(there, "Role", system), rules_of(cluster, "Role", system));
    let expected = PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["namespaces".to_owned()]),
        resource_names: Some(["kube-system", "shop"].map(str::to_owned).to_vec()),
        verbs: vec!["get".to_owned()],
        ..PolicyRule::default()
    };
    assert_eq!(rules_of(there, "ClusterRole", None), [expected]);
}

#[test]
fn who_the_cluster_is_takes_reads_alone() {
    let rules = rules_of("rbac-identity.yaml", "ClusterRole", None);
    let rules = rules.into_iter().map(|rule| (rule.resources.unwrap_or_default(), rule.verbs));
    let expected = [
        (vec!["clusterproperties".to_owned()], ["get", "list", "watch"].map(str::to_owned).to_vec()),
        (vec!["nodes".to_owned()], vec!["list".to_owned()]),
    ];
    assert_eq!(rules.collect::<Vec<_>>(), expected);
}

/// What is watched is never read one by one; the Lease and `kube-system` are.
#[test]
fn the_controller_reads_by_list_and_watch_and_one_by_one_only_what_it_asks_for() {
    let reads: BTreeSet<String> = rules("rbac.yaml")
        .into_iter()
        .flat_map(|rule| {
            let verbs =
                rule.verbs.into_iter().filter(|verb| ["get", "list", "watch"].contains(&verb.as_str()));
            let verbs = verbs.collect::<Vec<_>>().join(",");
            rule.resources.unwrap_or_default().into_iter().map(move |resource| format!("{resource} {verbs}"))
        })
        .filter(|read| !read.ends_with(' '))
        .collect();
    let expected = [
        "endpointslices list,watch",
        "leases get,list,watch",
        "namespaces get,list,watch",
        "serviceexports list,watch",
        "serviceimports list,watch",
        "services list,watch",
    ];
    assert_eq!(reads, expected.map(str::to_owned).into());
}

fn rules(file: &str) -> Vec<PolicyRule> {
    let objects = objects(file).into_iter().filter_map(|object| object.get("rules").cloned());
    objects.flat_map(|rules| serde_json::from_value::<Vec<PolicyRule>>(rules).unwrap()).collect()
}

/// The rules of the roles of a kind, in a namespace or in none.
fn rules_of(file: &str, kind: &str, namespace: Option<&str>) -> Vec<PolicyRule> {
    let mut objects = objects(file);
    objects.retain(|object| object["kind"] == kind && object["metadata"]["namespace"].as_str() == namespace);
    objects
        .into_iter()
        .flat_map(|object| serde_json::from_value::<Vec<PolicyRule>>(object["rules"].clone()).unwrap())
        .collect()
}

fn objects(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(file);
    serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn words(rule: PolicyRule) -> Vec<String> {
    let lists =
        [rule.api_groups, rule.resources, rule.resource_names, rule.non_resource_urls, Some(rule.verbs)];
    lists.into_iter().flatten().flatten().collect()
}
