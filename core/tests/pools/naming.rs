//! Naming styles, and what a Service is by its name.

use super::build::{key, services};
use mcs_core::ids::ClusterId;
use mcs_core::pools::PoolKey;
use mcs_core::pools::naming::{Naming, Part, Unreadable};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn read(naming: Naming, slice: &str, pairs: &[(&str, &str)]) -> Result<Option<(String, String)>, String> {
    let read = naming.read(slice, &labels(pairs));
    read.map(|found| found.map(|(service, cluster)| (service, cluster.to_string())))
        .map_err(|error: Unreadable| error.to_string())
}

fn found(service: &str, cluster: &str) -> Result<Option<(String, String)>, String> {
    Ok(Some((service.to_owned(), cluster.to_owned())))
}

#[test]
fn mcs_slices_are_told_by_their_labels() {
    const SERVICE: &str = "multicluster.kubernetes.io/service-name";
    const CLUSTER: &str = "multicluster.kubernetes.io/source-cluster";
    let read = |pairs: &[(&str, &str)]| read(Naming::Mcs, "mcs-0123", pairs);
    assert_eq!(read(&[(SERVICE, "chat-pool-relay"), (CLUSTER, "east")]), found("chat-pool-relay", "east"));
    assert_eq!(read(&[(SERVICE, "chat"), (CLUSTER, "")]), Err(format!("label {CLUSTER} is missing")));
    assert_eq!(read(&[(CLUSTER, "east")]), Err(format!("label {SERVICE} is missing")));
    assert!(read(&[(SERVICE, "chat"), (CLUSTER, "East_1")]).is_err());
    assert_eq!(Naming::Mcs.selector(), format!("{SERVICE},{CLUSTER}"));
}

/// Case O04 too: what is not imported, such as a cluster's own slices, is not read.
#[test]
fn karmada_slices_are_told_by_their_names() {
    const LABEL: &str = "kubernetes.io/service-name";
    let read = |slice: &str, service: &str| read(Naming::Karmada, slice, &[(LABEL, service)]);
    assert_eq!(read("imported-east-chat-abc12", "derived-chat"), found("chat", "east"));
    assert_eq!(read("imported-us-east-chat-chat-x1", "derived-chat"), found("chat", "us-east-chat"));
    assert_eq!(read("chat-abc12", "chat"), Ok(None));
    let cut = read("imported-east-cha-abc12", "derived-chat").unwrap_err();
    assert!(cut.starts_with("the cluster cannot be read from the name"), "{cut}");
    assert_eq!(Naming::Karmada.max_service_name(), Some(55));
}

/// In a cluster that goes over from Karmada both are imported side by side.
#[test]
fn slices_of_the_controller_are_none_of_karmadas_and_are_not_told_of() {
    let labels = [
        ("kubernetes.io/service-name", "derived-0123456789"),
        ("endpointslice.kubernetes.io/managed-by", "mcs-controller.dynamo.nvidia.com"),
        ("multicluster.kubernetes.io/service-name", "chat"),
        ("multicluster.kubernetes.io/source-cluster", "east"),
    ];
    assert_eq!(read(Naming::Karmada, "derived-0123456789-abcdef-0", &labels), Ok(None));
    assert_eq!(read(Naming::Mcs, "derived-0123456789-abcdef-0", &labels), found("chat", "east"));
    assert_eq!(read(Naming::Mcs, "imported-east-chat-abc12", &labels[2..]), found("chat", "east"));
}

/// A Kubernetes name made from a base is cut to leave room for five characters; that of a Service of up to 57 is whole.
#[test]
fn a_service_name_above_57_characters_is_cut_in_the_names_of_its_slices_which_is_told() {
    let read = |length: usize| {
        let service = "s".repeat(length);
        let base: String = format!("{service}-").chars().take(58).collect();
        let labels = labels(&[("kubernetes.io/service-name", &format!("derived-{service}"))]);
        Naming::Karmada.read(&format!("imported-east-{base}abc12"), &labels)
    };
    let seen = [55, 57, 58].map(|length| read(length).map(|found| found.map(|(_, cluster)| cluster)));
    let east = || Ok(Some(ClusterId::new("east").unwrap()));
    assert_eq!(seen, [east(), east(), Err(Unreadable::Name { service: "s".repeat(58) })]);
}

proptest! {
    /// Whatever a cluster and a Service are called, with the one's name in the other's too: both are read back.
    #[test]
    fn karmada_names_are_read_back(
        parts in prop::collection::vec("[a-c]{1,2}", 1..4),
        service in prop::collection::vec("[a-c]{1,2}", 1..4),
        by_service in prop::collection::vec(any::<bool>(), 0..3),
        suffix in "[bcdf24]{5}",
    ) {
        let service = service.join("-");
        let more = by_service.into_iter().map(|is| if is { service.clone() } else { "imported".to_owned() });
        let cluster = parts.into_iter().chain(more).collect::<Vec<_>>().join("-");
        let slice = format!("imported-{cluster}-{service}-{suffix}");
        let label = format!("derived-{service}");
        let found = read(Naming::Karmada, &slice, &[("kubernetes.io/service-name", &label)]);
        prop_assert_eq!(found, Ok(Some((service, cluster))));
    }
}

#[test]
fn a_service_is_a_relay_a_frontend_or_the_router_by_its_name() {
    let east = ClusterId::new("east").unwrap();
    let part = |namespace: &str, service: &str| services().part(&east, namespace, service);
    assert_eq!(part("ml", "chat-pool-relay"), Some(Part::Relay(key("east", "chat"))));
    assert_eq!(part("ml", "chat-frontend"), Some(Part::Frontend(key("east", "chat"))));
    assert_eq!(part("routing", "global-router"), Some(Part::Router));
    assert_eq!(part("ml", "global-router"), None);
    assert_eq!(part("ml", "-pool-relay"), None);
    assert_eq!(part("ml", "cart"), None);
}

/// Case O60, for pools: a part that is no DNS-1123 label is refused by its name, never lower-cased.
#[test]
fn a_key_with_a_part_that_is_no_label_is_refused() {
    let longest = "a".repeat(63);
    assert!(PoolKey::new(&longest, &longest, &longest).is_ok());
    let too_long = "a".repeat(64);
    for bad in ["AWS-West", "use1_a", "-a", "a-", "", too_long.as_str(), "use1-a "] {
        let refused = [PoolKey::new(bad, "n", "d"), PoolKey::new("c", bad, "d"), PoolKey::new("c", "n", bad)];
        let fields = refused.map(|result| result.unwrap_err().field);
        assert_eq!(fields, ["key.cluster_id", "key.namespace", "key.dgd_name"], "{bad:?}");
    }
}

#[test]
fn keys_are_ordered_by_cluster_then_namespace_then_dgd() {
    let make = |(cluster, namespace, dgd)| PoolKey::new(cluster, namespace, dgd).unwrap();
    let mut keys = [("a-b", "n", "d"), ("a", "z", "d"), ("a", "n-1", "a"), ("a", "n", "z")].map(make);
    keys.sort();
    let shown = keys.map(|key| key.to_string());
    assert_eq!(shown, ["a/n/z", "a/n-1/a", "a/z/d", "a-b/n/d"]);
}
