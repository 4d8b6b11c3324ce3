//! Builders of the objects that tests create.
//!
//! Everything of one name belongs together: the Pods of [`deployment`] have the label `app: <name>`, which
//! [`service`] selects.

use std::{collections::BTreeMap, net::IpAddr};

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec},
        core::v1::{Container, ContainerPort, PodSpec, PodTemplateSpec, Service, ServicePort, ServiceSpec},
        discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice},
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use serde_json::json;

/// The label that says whose an EndpointSlice is.
pub const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";

/// A name and a number of a TCP port.
pub type Port<'a> = (&'a str, u16);

/// A Deployment of Pods with the label `app: <name>`.
pub fn deployment(namespace: &str, name: &str, replicas: u16, ports: &[Port<'_>]) -> Deployment {
    let ports = ports.iter().map(|(port, number)| ContainerPort {
        name: Some((*port).to_owned()),
        container_port: i32::from(*number),
        ..Default::default()
    });
    let container = Container {
        name: "main".to_owned(),
        image: Some("example.com/never-pulled:1".to_owned()),
        ports: Some(ports.collect()),
        ..Default::default()
    };
    Deployment {
        metadata: metadata(namespace, name, BTreeMap::new()),
        spec: Some(DeploymentSpec {
            replicas: Some(i32::from(replicas)),
            selector: LabelSelector { match_labels: Some(app(name)), ..Default::default() },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta { labels: Some(app(name)), ..Default::default() }),
                spec: Some(PodSpec { containers: vec![container], ..Default::default() }),
            },
            ..Default::default()
        }),
        status: None,
    }
}

/// A Service of the Pods with the label `app: <name>`.
pub fn service(namespace: &str, name: &str, ports: &[Port<'_>]) -> Service {
    Service {
        metadata: metadata(namespace, name, BTreeMap::new()),
        spec: Some(ServiceSpec {
            selector: Some(app(name)),
            ports: Some(service_ports(ports)),
            ..Default::default()
        }),
        status: None,
    }
}

/// A Service without a selector: its slices are those a test writes.
pub fn service_without_selector(namespace: &str, name: &str, ports: &[Port<'_>]) -> Service {
    Service {
        metadata: metadata(namespace, name, BTreeMap::new()),
        spec: Some(ServiceSpec { ports: Some(service_ports(ports)), ..Default::default() }),
        status: None,
    }
}

/// An EndpointSlice of a Service with ready endpoints. Its family is that of the first address, or IPv4.
pub fn endpoint_slice(
    namespace: &str,
    name: &str,
    service: &str,
    addresses: &[IpAddr],
    ports: &[Port<'_>],
) -> EndpointSlice {
    let six = addresses.first().is_some_and(IpAddr::is_ipv6);
    let endpoints = addresses.iter().map(|address| Endpoint {
        addresses: vec![address.to_string()],
        conditions: Some(EndpointConditions {
            ready: Some(true),
            serving: Some(true),
            terminating: Some(false),
        }),
        ..Default::default()
    });
    let ports = ports.iter().map(|(port, number)| EndpointPort {
        name: Some((*port).to_owned()),
        port: Some(i32::from(*number)),
        protocol: Some("TCP".to_owned()),
        ..Default::default()
    });
    let labels = BTreeMap::from([(SERVICE_NAME_LABEL.to_owned(), service.to_owned())]);
    EndpointSlice {
        metadata: metadata(namespace, name, labels),
        address_type: if six { "IPv6" } else { "IPv4" }.to_owned(),
        endpoints: endpoints.collect(),
        ports: Some(ports.collect()),
    }
}

fn service_ports(ports: &[Port<'_>]) -> Vec<ServicePort> {
    let ports = ports.iter().map(|(port, number)| ServicePort {
        name: Some((*port).to_owned()),
        port: i32::from(*number),
        ..Default::default()
    });
    ports.collect()
}

fn metadata(namespace: &str, name: &str, labels: BTreeMap<String, String>) -> ObjectMeta {
    ObjectMeta {
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        labels: Some(labels).filter(|labels| !labels.is_empty()),
        ..Default::default()
    }
}

fn app(name: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("app".to_owned(), name.to_owned())])
}

/// A ValidatingAdmissionPolicy with its binding, as YAML: in a namespace, by whose name both go, `operation` of the
/// resources, each a group and a plural name, is refused with `message` unless `passes` (CEL) holds.
pub fn refusal(
    namespace: &str,
    operation: &str,
    resources: &[(&str, &str)],
    passes: &str,
    message: &str,
) -> String {
    let rule = |(group, resource): &(&str, &str)| {
        json!({
            "apiGroups": [group], "apiVersions": ["*"], "operations": [operation], "resources": [resource],
        })
    };
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": namespace },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
                "resourceRules": resources.iter().map(rule).collect::<Vec<_>>(),
            },
            "validations": [{ "expression": passes, "message": message }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": namespace }, "spec": { "policyName": namespace, "validationActions": ["Deny"] },
    });
    format!("{policy}\n---\n{binding}")
}
