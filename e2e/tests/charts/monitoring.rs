//! Alerts and dashboards: `promtool` reads the rules and tries each, and what they and the dashboards ask for is there in
//! a real Prometheus that scrapes the programs. Both are on PATH, or `make prometheus` built them.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use mcs_e2e::{
    programs::{Program, free_address},
    stack::{Stack, StackOptions, get},
    wait_for,
};
use mcs_runtime::dynamodb::double::{Double, TABLE};
use serde_json::{Value, json};

use crate::{
    chart::{Chart, list_at, text_at},
    helm::repository,
    server,
};

/// What the metrics of our programs begin with, and of every process.
const PREFIXES: [&str; 4] = ["mcs_controller_", "mcs_registry_", "global_discovery_", "process_"];

#[test]
fn promtool_takes_the_alerts_and_each_fires_when_it_should_and_only_then() -> Result<()> {
    for chart in Chart::ALL {
        let alerts = chart.folder().join("alerts.yaml").display().to_string();
        let cases = repository("e2e/tests/charts/alerts").join(format!("{}.yaml", chart.name()));
        promtool(&["check", "rules", "--lint-fatal", &alerts])?;
        promtool(&["test", "rules", &cases.display().to_string()])?;

        let cases: Value = serde_saphyr::from_str(&fs::read_to_string(&cases)?)?;
        let tried = |fires: bool| -> BTreeSet<String> {
            let tests = list_at(&cases, "/tests").iter().flat_map(|test| list_at(test, "/alert_rule_test"));
            let tests = tests.filter(|test| list_at(test, "/exp_alerts").is_empty() != fires);
            tests.map(|test| text_at(test, "/alertname").to_owned()).collect()
        };
        let all: BTreeSet<String> =
            rules(chart)?.iter().map(|rule| text_at(rule, "/alert").to_owned()).collect();
        assert_eq!([tried(true), tried(false)], [all.clone(), all], "{}", chart.name());
    }
    Ok(())
}

#[test]
fn an_alert_names_a_heading_of_the_documentation() -> Result<()> {
    let text = fs::read_to_string(repository("docs/troubleshooting.md"))?;
    let headings: BTreeSet<&str> = text
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| line.trim_start_matches(['#', ' ']))
        .collect();
    for chart in Chart::ALL {
        for rule in rules(chart)? {
            let see = text_at(&rule, "/annotations/see");
            ensure!(headings.contains(see), "{}: no heading {see:?}", text_at(&rule, "/alert"));
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_prometheus_that_scrapes_the_programs_has_what_alerts_and_dashboards_ask_for() -> Result<()> {
    let cluster = server::cluster().await?;
    let double = Double::start().await;
    let folder = tempfile::tempdir()?;
    let certificate = Certificate::create(folder.path())?;
    let mut stack = Stack::start_without_controllers(StackOptions {
        registry_flags: vec![
            "--store=dynamodb".to_owned(),
            format!("--dynamodb-table={TABLE}"),
            format!("--dynamodb-endpoint={}", double.endpoint()),
            "--refresh-interval=300ms".to_owned(),
            format!("--tls-cert-file={}", certificate.chain.display()),
            format!("--tls-key-file={}", certificate.key.display()),
        ],
        registry_environment: double.environment().into(),
        controller_flags: vec![format!("--registry-tls-ca-file={}", certificate.chain.display())],
        ..StackOptions::for_namespace("till")
    })
    .await?;
    let url = format!("https://localhost:{}", stack.registry().grpc.port());
    stack.registry_urls().push(url);
    stack.start_controllers(&[cluster]).await?;
    let discovery = free_address()?;
    let flags = [
        format!("--listen={discovery}"),
        "--registration-storage=dynamodb".to_owned(),
        format!("--dynamodb-table={TABLE}"),
        format!("--dynamodb-endpoint={}", double.endpoint()),
        format!("--tls-cert-path={}", certificate.chain.display()),
        format!("--tls-key-path={}", certificate.key.display()),
    ];
    let environment = double.environment();
    let _service =
        Program::start("global-discovery-service", "discovery", folder.path(), &flags, &environment).await?;

    let controller = stack.controller(cluster.name())?.admin;
    let targets = [
        ("mcs-registry", "http", stack.registry().admin.to_string()),
        ("mcs-controller", "http", controller.to_string()),
        ("global-discovery-service", "https", discovery.to_string()),
    ];
    let prometheus = Prometheus::start(folder.path(), &targets).await?;
    let mut asked = Vec::new();
    for chart in Chart::ALL {
        asked.extend(queries_of_dashboard(chart)?);
        asked.extend(rules(chart)?.iter().map(|rule| text_at(rule, "/expr").to_owned()));
    }
    wait_for("the metrics that alerts and dashboards ask for", async || {
        let names = prometheus.ask("label/__name__/values", &[]).await?;
        let there: BTreeSet<&str> = list_at(&names, "/data").iter().filter_map(Value::as_str).collect();
        let missing: BTreeSet<&str> =
            asked.iter().flat_map(|query| metrics(query)).filter(|name| !there.contains(name)).collect();
        ensure!(missing.is_empty(), "no {missing:?}");
        Ok(())
    })
    .await?;
    for query in &asked {
        let answer = prometheus.ask("query", &[("query", query)]).await?;
        ensure!(answer["status"] == "success", "{query}: {answer}");
    }
    // Metrics that are asked for by a pattern.
    let expiry = queries_of_dashboard(Chart::Mcs)?;
    let expiry =
        expiry.iter().find(|query| query.contains("_tls_certificate_expiry_")).context("no such query")?;
    let answer = prometheus.ask("query", &[("query", expiry)]).await?;
    let jobs: BTreeSet<&str> =
        list_at(&answer, "/data/result").iter().map(|series| text_at(series, "/metric/job")).collect();
    assert_eq!(jobs, ["mcs-controller", "mcs-registry"].into());
    stack.end().await
}

/// The rules of a chart's alerts.
fn rules(chart: Chart) -> Result<Vec<Value>> {
    let alerts: Value = serde_saphyr::from_str(&chart.file("alerts.yaml")?)?;
    let rules: Vec<Value> =
        list_at(&alerts, "/groups").iter().flat_map(|group| list_at(group, "/rules")).cloned().collect();
    ensure!(!rules.is_empty(), "{} has no alerts", chart.name());
    Ok(rules)
}

/// What the panels of a chart's dashboard ask, with its variables as they are by default.
fn queries_of_dashboard(chart: Chart) -> Result<Vec<String>> {
    let dashboard: Value = serde_json::from_str(&chart.file("dashboard.json")?)?;
    let panels = list_at(&dashboard, "/panels").iter().flat_map(|panel| list_at(panel, "/targets"));
    let queries: Vec<String> = panels
        .map(|target| {
            let query = text_at(target, "/expr").replace("$__rate_interval", "1m");
            query.replace("$cluster", ".*").replace("$namespace", ".*")
        })
        .collect();
    ensure!(!queries.is_empty(), "the dashboard of {} asks for nothing", chart.name());
    Ok(queries)
}

/// The metrics that a query names; those of a pattern end where it begins.
fn metrics(query: &str) -> Vec<&str> {
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = query.split(|letter| !is_of_name(letter));
    words
        .filter(|word| !word.ends_with('_') && PREFIXES.iter().any(|prefix| word.starts_with(prefix)))
        .collect()
}

/// A certificate for localhost that is its own authority.
struct Certificate {
    chain: PathBuf,
    key: PathBuf,
}

impl Certificate {
    fn create(folder: &Path) -> Result<Self> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        let (chain, key) = (folder.join("tls.crt"), folder.join("tls.key"));
        fs::write(&chain, made.cert.pem())?;
        fs::write(&key, made.signing_key.serialize_pem())?;
        Ok(Self { chain, key })
    }
}

/// A Prometheus that scrapes every second.
struct Prometheus {
    /// It ends with this.
    _program: Program,
    url: String,
}

impl Prometheus {
    /// Starts it with targets: the name of the job, the scheme, and the address.
    async fn start(folder: &Path, targets: &[(&str, &str, String)]) -> Result<Self> {
        let labels = json!({"cluster": "charts", "namespace": "mcs-system", "pod": "a"});
        let scrapes: Vec<Value> = targets
            .iter()
            .map(|(job, scheme, target)| {
                let configurations = [json!({"targets": [target], "labels": labels})];
                let tls = json!({"insecure_skip_verify": true});
                json!({"job_name": job, "scheme": scheme, "tls_config": tls, "static_configs": configurations})
            })
            .collect();
        let configuration = json!({"global": {"scrape_interval": "1s"}, "scrape_configs": scrapes});
        let file = folder.join("prometheus.yml");
        fs::write(&file, configuration.to_string())?;
        let address = free_address()?;
        let arguments = [
            format!("--config.file={}", file.display()),
            format!("--storage.tsdb.path={}", folder.join("data").display()),
            format!("--web.listen-address={address}"),
        ];
        let mut program =
            Program::start_foreign(&tool("prometheus"), "prometheus", folder, &arguments, &[]).await?;
        program.ready(&format!("http://{address}/-/ready")).await?;
        Ok(Self { _program: program, url: format!("http://{address}/api/v1") })
    }

    async fn ask(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Value> {
        let encoded = parameters.iter().map(|(name, value)| format!("{name}={}", percent_encoded(value)));
        let url = format!("{}/{path}?{}", self.url, encoded.collect::<Vec<_>>().join("&"));
        let answer = get(&url).await.with_context(|| format!("{parameters:?}"))?;
        Ok(serde_json::from_slice(&answer)?)
    }
}

fn percent_encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Runs promtool; its words are the error.
fn promtool(arguments: &[&str]) -> Result<()> {
    let program = tool("promtool");
    let output = Command::new(&program).args(arguments).output();
    let output = output.with_context(|| format!("{}: run `make prometheus`", program.display()))?;
    let told = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    ensure!(
        output.status.success(),
        "promtool {arguments:?}: {} {}",
        told(&output.stdout),
        told(&output.stderr)
    );
    Ok(())
}

/// Our build of a tool, else the one on PATH.
fn tool(name: &str) -> PathBuf {
    let built = repository("target/tools").join(name);
    if built.is_file() { built } else { name.into() }
}
