//! The table of values with what each renders or refuses, `cases/<chart>.yaml`.
//!
//! A case has `values`, and either `refused`, words of the message, or any of `renders` (objects, with pointers into them
//! and what is there; null: nothing), `lacks` (objects that are not rendered) and `args` (of the first container of an
//! object: those that are named, by their flags).

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    chart::{Chart, Rendered, list_at, objects},
    helm::{repository, template},
    laws,
};

/// The table must not shrink unseen.
const LEAST_CASES: usize = 60;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    case: String,
    values: Value,
    refused: Option<String>,
    #[serde(default)]
    renders: BTreeMap<String, BTreeMap<String, Value>>,
    #[serde(default)]
    lacks: Vec<String>,
    #[serde(default)]
    args: BTreeMap<String, BTreeMap<String, Option<String>>>,
}

#[test]
fn each_combination_of_values_renders_or_refuses_what_the_table_says() -> Result<()> {
    let mut failures = Vec::new();
    let mut count = 0;
    for chart in Chart::ALL {
        let path = repository("e2e/tests/charts/cases").join(format!("{}.yaml", chart.name()));
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let cases: Vec<Case> = serde_saphyr::from_str(&text).with_context(|| path.display().to_string())?;
        count += cases.len();
        for case in cases {
            if let Err(error) = check(chart, &case) {
                failures.push(format!("{}: {error:#}", case.case));
            }
        }
    }
    ensure!(failures.is_empty(), "{} of {count} cases:\n{}", failures.len(), failures.join("\n"));
    ensure!(count >= LEAST_CASES, "only {count} cases");
    Ok(())
}

/// A name of digits is a name all the same, and YAML takes it for a number where it stands alone.
#[test]
fn names_that_look_like_numbers_stay_names() -> Result<()> {
    let registry = json!({
        "enabled": true,
        "tls": {"secretName": "1", "clientCaSecretName": "2", "clientCaKey": "3"},
        "priorityClassName": "4",
        "service": {"type": "LoadBalancer", "loadBalancerClass": "5"},
    });
    let controller = json!({
        "enabled": true,
        "clusterId": "6",
        "clustersetId": "1e3",
        "region": "true",
        "watchNamespaces": ["7", "on"],
        "leaderElectionId": "1e5",
        "leaderElectionNamespace": "8",
        "registryTls": {"secretName": "9"},
        "registryTlsCa": {"configMapName": "0"},
        "rbac": {"finalizers": true},
        "createNamespaces": true,
    });
    let coredns = json!({"rbac": {"create": true, "namespace": "10", "serviceAccountName": "11"}});
    let values = json!({"registry": registry, "controller": controller, "coredns": coredns});
    let text = template(&Chart::Mcs.folder(), "12", "13", &values.to_string())
        .map_err(|refusal| anyhow!(refusal))?;
    let rendered = Rendered { objects: objects(&text)?, text };
    laws::hold(&rendered)?;
    let numbers: Vec<_> =
        rendered.objects.iter().flat_map(|object| names_that_are_numbers(object, "")).collect();
    assert_eq!(numbers, Vec::<String>::new());
    Ok(())
}

/// Where in a value something is called by a number.
fn names_that_are_numbers(value: &Value, path: &str) -> Vec<String> {
    const NAMES: [&str; 9] = [
        "name",
        "namespace",
        "secretName",
        "key",
        "path",
        "priorityClassName",
        "loadBalancerClass",
        "resourceNames",
        "app.kubernetes.io/instance",
    ];
    let below: Vec<(String, &Value)> = match value {
        Value::Object(object) => object.iter().map(|(key, value)| (format!("{path}/{key}"), value)).collect(),
        Value::Array(values) => values.iter().map(|value| (path.to_owned(), value)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) if NAMES.iter().any(|name| path.ends_with(name)) => {
            return vec![format!("{path}: {value}")];
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    below.iter().flat_map(|(path, value)| names_that_are_numbers(value, path)).collect()
}

fn check(chart: Chart, case: &Case) -> Result<()> {
    let rendered = match (chart.render(&case.values.to_string()), &case.refused) {
        (Err(refusal), Some(words)) => {
            ensure!(refusal.contains(words), "refused with {refusal:?}, which lacks {words:?}");
            return Ok(());
        }
        (Ok(_), Some(words)) => bail!("rendered, but should be refused with {words:?}"),
        (Err(refusal), None) => bail!("refused: {refusal}"),
        (Ok(rendered), None) => rendered,
    };
    laws::hold(&rendered)?;
    ensure!(
        !(case.renders.is_empty() && case.lacks.is_empty() && case.args.is_empty()),
        "the case expects nothing"
    );
    for (name, expected) in &case.renders {
        let object = find(&rendered, name)?;
        for (pointer, expected) in expected {
            let found = object.pointer(pointer).unwrap_or(&Value::Null);
            ensure!(found == expected, "{name} has {found} at {pointer}, not {expected}");
        }
    }
    for name in &case.lacks {
        ensure!(rendered.find(name).is_none(), "{name} is rendered");
    }
    for (name, expected) in &case.args {
        let object = find(&rendered, name)?;
        let args = list_at(object, "/spec/template/spec/containers/0/args");
        let args: BTreeMap<&str, &str> = args.iter().filter_map(Value::as_str).map(split).collect();
        for (flag, expected) in expected {
            let found = args.get(flag.as_str()).copied();
            ensure!(found == expected.as_deref(), "{name} has --{flag} {found:?}, not {expected:?}");
        }
    }
    Ok(())
}

fn find<'a>(rendered: &'a Rendered, name: &str) -> Result<&'a Value> {
    rendered.find(name).with_context(|| format!("no {name} in {:?}", rendered.names()))
}

/// An argument as flag and value; a switch has none.
pub(crate) fn split(argument: &str) -> (&str, &str) {
    let flag = argument.trim_start_matches("--");
    flag.split_once('=').unwrap_or((flag, ""))
}
