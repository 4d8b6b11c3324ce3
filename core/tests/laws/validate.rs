//! Every limit at its edge, and every rule of Kubernetes with what breaks it.

use crate::build::{any_export, export, key, tcp, udp};
use mcs_core::limits::{MAX_ANNOTATIONS, MAX_ENDPOINTS, MAX_LABELS, MAX_METADATA_BYTES, MAX_PORTS};
use mcs_core::model::{
    Endpoint, EndpointMap, EndpointPort, ExportSpec, GroupKey, IpFamily, Port, ServiceType, SessionAffinity,
};
use mcs_core::validate::{Dropped, check_endpoints, check_export};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::IpAddr;

proptest! {
    #[test]
    fn every_export_that_a_service_can_make_is_accepted(spec in any_export()) {
        prop_assert_eq!(check_export(&key(), &spec), Ok(()));
    }
}

#[test]
fn each_count_is_accepted_at_its_limit_and_refused_one_above() {
    let ports =
        |count: usize| export(1, (1..=count).map(|at| tcp(&format!("p{at}"), u16::try_from(at).unwrap())));
    let labels = |count: usize| ExportSpec { labels: numbered(count), ..one_port() };
    let annotations = |count: usize| ExportSpec { annotations: numbered(count), ..one_port() };
    // One key of one byte, and a value that fills what is left.
    let bytes = |count: usize| ExportSpec {
        labels: BTreeMap::from([("l".into(), "v".into())]),
        annotations: BTreeMap::from([("a".into(), "x".repeat(count - 3))]),
        ..one_port()
    };
    let timeout = |seconds: usize| ExportSpec {
        session_affinity: SessionAffinity::ClientIp,
        session_affinity_timeout: Some(u32::try_from(seconds).unwrap()),
        ..one_port()
    };
    type Case<'a> = (&'a str, usize, &'a dyn Fn(usize) -> ExportSpec);
    let cases: [Case<'_>; 5] = [
        ("ports", MAX_PORTS, &ports),
        ("exportedLabels", MAX_LABELS, &labels),
        ("exportedAnnotations", MAX_ANNOTATIONS, &annotations),
        ("exportedAnnotations", MAX_METADATA_BYTES, &bytes),
        ("sessionAffinityConfig.clientIP.timeoutSeconds", 86_400, &timeout),
    ];
    for (field, most, of) in cases {
        assert_eq!(refused(&of(most)), None, "{field} at {most}");
        assert_eq!(refused(&of(most + 1)).as_deref(), Some(field), "{field} above {most}");
    }
}

/// O09.
#[test]
fn the_name_of_a_port_is_a_dns_label_of_up_to_63_characters() {
    for good in ["", "legacy-discovery-http-plain", &"a".repeat(63), "0"] {
        assert_eq!(refused(&export(1, [tcp(good, 8080)])), None, "{good}");
    }
    for bad in ["Web", &"a".repeat(64), "-a", "a-", "a.b", "a_b"] {
        assert_eq!(refused(&export(1, [tcp(bad, 1)])).as_deref(), Some("ports[0].name"), "{bad}");
    }
}

#[test]
fn a_refusal_names_field_value_and_export() {
    let refusal = check_export(&key(), &export(1, [tcp("Web", 1)])).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "ports[0].name: \"Web\" must consist of lower case letters, digits and '-', and begin and end with a letter \
         or digit (DNS-1123 label) (export shop/cart)"
    );
}

#[test]
fn ports_that_kubernetes_refuses_are_refused() {
    let app = |text: &str| Port { app_protocol: Some(text.to_owned()), ..tcp("a", 80) };
    for (ports, field) in [
        (vec![], Some("ports")),
        (vec![tcp("a", 0)], Some("ports[0].port")),
        (vec![tcp("a", u16::MAX)], None),
        (vec![tcp("", 80)], None),
        (vec![tcp("a", 80), tcp("", 81)], Some("ports[1].name")),
        (vec![tcp("a", 80), tcp("a", 81)], Some("ports[1].name")),
        (vec![tcp("a", 80), tcp("b", 80)], Some("ports[1].port")),
        (vec![tcp("a", 80), udp("b", 80)], None),
        (vec![app("kubernetes.io/h2c")], None),
        (vec![app("http")], None),
        (vec![app("")], Some("ports[0].appProtocol")),
        (vec![app("a/b/c")], Some("ports[0].appProtocol")),
        (vec![app("Example.com/x")], Some("ports[0].appProtocol")),
    ] {
        assert_eq!(refused(&export(1, ports.clone())).as_deref(), field, "{ports:?}");
    }
}

/// O12.
#[test]
fn a_headless_service_may_have_no_port() {
    let spec = ExportSpec { service_type: ServiceType::Headless, ..export(1, []) };
    assert_eq!(check_export(&key(), &spec), Ok(()));
}

#[test]
fn families_policies_and_keys_that_kubernetes_refuses_are_refused() {
    let (v4, v6) = (IpFamily::V4, IpFamily::V6);
    let families = |ip_families: &[IpFamily]| ExportSpec { ip_families: ip_families.to_vec(), ..one_port() };
    let labels = |key: &str, value: &str| ExportSpec {
        labels: BTreeMap::from([(key.to_owned(), value.to_owned())]),
        ..one_port()
    };
    let annotation = |key: &str| ExportSpec {
        annotations: BTreeMap::from([(key.to_owned(), "any text at all: {}".to_owned())]),
        ..one_port()
    };
    let traffic = |value: &str| ExportSpec { traffic_distribution: Some(value.to_owned()), ..one_port() };
    let timeout = "sessionAffinityConfig.clientIP.timeoutSeconds";
    for (spec, field) in [
        (families(&[v4, v6]), None),
        (families(&[v6]), None),
        (families(&[]), Some("ipFamilies")),
        (families(&[v4, v4]), Some("ipFamilies")),
        (families(&[v4, v6, v4]), Some("ipFamilies")),
        (labels("example.com/team", ""), None),
        (labels("team", "Cart_1.a"), None),
        (labels("Example.com/team", "a"), Some("exportedLabels")),
        (labels("", "a"), Some("exportedLabels")),
        (labels("team", "not a value"), Some("exportedLabels[team]")),
        (labels("team", &"a".repeat(64)), Some("exportedLabels[team]")),
        (annotation("dynamo.nvidia.com/mcs-weight"), None),
        (annotation("Example.com/x"), None),
        (annotation("no key"), Some("exportedAnnotations")),
        (annotation(&format!("{}/x", "a".repeat(254))), Some("exportedAnnotations")),
        (traffic("PreferClose"), None),
        (traffic("PreferFar"), Some("trafficDistribution")),
        (ExportSpec { session_affinity_timeout: Some(60), ..one_port() }, Some(timeout)),
    ] {
        assert_eq!(refused(&spec).as_deref(), field, "{spec:?}");
    }
}

#[test]
fn an_endpoint_that_kubernetes_would_refuse_is_dropped_and_the_rest_stands() {
    let plain = Endpoint::default;
    let (v4, v6) = (IpFamily::V4, IpFamily::V6);
    let hostname = |name: &str| Endpoint { hostname: Some(name.to_owned()), ..plain() };
    let zone = |name: &str| Endpoint { zone: Some(name.to_owned()), ..plain() };
    let node = |name: &str| Endpoint { node_name: Some(name.to_owned()), ..plain() };
    for (family, address, endpoint, field) in [
        (v4, "10.0.0.1", plain(), None),
        (v6, "2001:db8::1", plain(), None),
        (v4, "2001:db8::1", plain(), Some("addresses")),
        (v4, "127.0.0.1", plain(), Some("addresses")),
        (v6, "::1", plain(), Some("addresses")),
        (v4, "0.0.0.0", plain(), Some("addresses")),
        (v6, "::", plain(), Some("addresses")),
        (v4, "169.254.1.1", plain(), Some("addresses")),
        (v6, "fe80::1", plain(), Some("addresses")),
        (v4, "224.0.0.1", plain(), Some("addresses")),
        (v6, "ff02::1", plain(), Some("addresses")),
        (v6, "::ffff:10.0.0.1", plain(), Some("addresses")),
        (v4, "10.0.0.1", hostname("web-0"), None),
        (v4, "10.0.0.1", hostname("web.0"), Some("hostname")),
        (v4, "10.0.0.1", hostname(&"a".repeat(64)), Some("hostname")),
        (v4, "10.0.0.1", zone("eu-1a"), None),
        (v4, "10.0.0.1", zone("eu 1a"), Some("zone")),
        (v4, "10.0.0.1", node("ip-10-0-0-1.internal"), None),
        (v4, "10.0.0.1", node("Node"), Some("nodeName")),
        (v4, "10.0.0.1", node("a..b"), Some("nodeName")),
    ] {
        let case = format!("{address} {endpoint:?}");
        let mut set = EndpointMap::default();
        set.insert(group(family, [80]), address.parse().unwrap(), endpoint.clone());
        set.insert(group(v4, [90]), [10, 9, 9, 9].into(), plain());
        let whole = set.clone();
        let (kept, dropped) = check_endpoints(&set.pack());
        let fields: Vec<&str> = dropped.iter().map(|dropped| dropped.field.as_str()).collect();
        assert_eq!((fields, kept.len()), (field.into_iter().collect(), 2 - dropped.len()), "{case}");
        assert!(!dropped.is_empty() || kept == whole.pack(), "{case}");
    }
}

#[test]
fn endpoints_on_ports_that_kubernetes_would_refuse_are_dropped_with_their_group() {
    let bad = GroupKey::new(IpFamily::V4, [EndpointPort { name: "Web".into(), ..EndpointPort::default() }]);
    let good = group(IpFamily::V4, [80]);
    let all_ports = GroupKey::new(IpFamily::V4, [EndpointPort::default()]);
    let mut set = EndpointMap::default();
    set.insert(bad, [10, 0, 0, 1].into(), Endpoint::default());
    set.insert(group(IpFamily::V4, [0]), [10, 0, 0, 2].into(), Endpoint::default());
    set.insert(group(IpFamily::V4, [80, 81]), [10, 0, 0, 3].into(), Endpoint::default());
    set.insert(good.clone(), [10, 0, 0, 4].into(), Endpoint::default());
    set.insert(all_ports.clone(), [10, 0, 0, 5].into(), Endpoint::default());
    let (kept, dropped) = check_endpoints(&set.pack());
    let mut fields: Vec<(&str, &str)> =
        dropped.iter().map(|dropped| (dropped.address.as_str(), dropped.field.as_str())).collect();
    fields.sort();
    assert_eq!(
        fields,
        [("10.0.0.1", "ports[0].name"), ("10.0.0.2", "ports[0].port"), ("10.0.0.3", "ports[1].name")]
    );
    assert_eq!(kept.groups().map(|group| group.key).collect::<Vec<_>>(), [all_ports, good]);
}

#[test]
fn an_empty_zone_becomes_an_absent_one() {
    let mut set = EndpointMap::default();
    let empty = Endpoint { zone: Some(String::new()), ..Endpoint::default() };
    set.insert(group(IpFamily::V4, [80]), [10, 0, 0, 1].into(), empty);
    let mut expected = EndpointMap::default();
    expected.insert(group(IpFamily::V4, [80]), [10, 0, 0, 1].into(), Endpoint::default());
    assert_eq!(check_endpoints(&set.pack()), (expected.pack(), vec![]));
}

#[test]
fn of_too_many_endpoints_the_first_ones_stay() {
    let address = |at: usize| IpAddr::from((0x0a00_0000 + u32::try_from(at).unwrap()).to_be_bytes());
    let mut set = EndpointMap::default();
    for at in 0..=MAX_ENDPOINTS {
        set.insert(group(IpFamily::V4, [80]), address(at), Endpoint::default());
    }
    let (kept, dropped) = check_endpoints(&set.pack());
    let expected = Dropped {
        address: address(MAX_ENDPOINTS).to_string(),
        field: "endpoints".into(),
        problem: "at most 200000 of an export are carried".into(),
    };
    assert_eq!((kept.len(), dropped), (MAX_ENDPOINTS, vec![expected]));
}

fn one_port() -> ExportSpec {
    export(1, [tcp("http", 80)])
}

fn numbered(count: usize) -> BTreeMap<String, String> {
    (0..count).map(|at| (format!("key-{at}"), "v".to_owned())).collect()
}

/// The field for which an export is refused.
fn refused(spec: &ExportSpec) -> Option<String> {
    check_export(&key(), spec).err().map(|refusal| refusal.field)
}

fn group(family: IpFamily, ports: impl IntoIterator<Item = u16>) -> GroupKey {
    GroupKey::new(
        family,
        ports.into_iter().map(|port| EndpointPort { port: Some(port), ..EndpointPort::default() }),
    )
}
