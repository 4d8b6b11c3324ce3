//! Every flag of a program that a chart deploys has a value there, which its comment says, and reaches the program.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, anyhow};
use clap::{ArgAction, Command};
use mcs_runtime::args::{GDS, MCS, command};
use serde_json::{Value, json};

use crate::{
    cases::split,
    chart::{Chart, list_at},
    laws,
    readme::documented,
};

/// A program that a chart deploys.
struct Deployed {
    chart: Chart,
    /// The Deployment.
    object: &'static str,
    /// What the paths of its values begin with.
    prefix: &'static str,
    command: Command,
    /// Values that its flags need to be used at all.
    needed: Value,
    /// A value for each path, with the flags that it is for and what they then are.
    samples: Samples,
}

type Samples = Vec<(&'static str, Value, &'static [(&'static str, &'static str)])>;

fn registry() -> Deployed {
    Deployed {
        chart: Chart::Mcs,
        object: "Deployment/mcs-registry",
        prefix: "registry.",
        command: command::<mcs_registry::args::Args>(&MCS),
        needed: json!({"registry": {"enabled": true}}),
        samples: vec![
            ("store", json!("dynamodb"), &[("store", "dynamodb")]),
            ("dynamodb.table", json!("records"), &[("dynamodb-table", "records")]),
            ("dynamodb.region", json!("eu-west-1"), &[("region", "eu-west-1")]),
            (
                "dynamodb.endpoint",
                json!("http://localhost:8000"),
                &[("dynamodb-endpoint", "http://localhost:8000")],
            ),
            ("dynamodb.refreshInterval", json!("350ms"), &[("refresh-interval", "350ms")]),
            ("dynamodb.replicationGrace", json!("10m"), &[("replication-grace", "10m")]),
            (
                "tls.secretName",
                json!("certificate"),
                &[("tls-cert-file", "/etc/mcs/tls/tls.crt"), ("tls-key-file", "/etc/mcs/tls/tls.key")],
            ),
            (
                "tls.clientCaSecretName",
                json!("clients"),
                &[("tls-client-ca-file", "/etc/mcs/client-ca/ca.crt")],
            ),
            ("leaseDuration", json!("20s"), &[("lease-duration", "20s")]),
            ("massExpiryThreshold", json!(0.25), &[("mass-expiry-threshold", "0.25")]),
            ("massExpiryHold", json!("1m 30s"), &[("mass-expiry-hold", "1m 30s")]),
            ("maxConnectionAge", json!("1h"), &[("max-connection-age", "1h")]),
            ("maxMessageBytes", json!(16_777_216), &[("max-message-bytes", "16777216")]),
            ("maxConnections", json!(1_000_000), &[("max-connections", "1000000")]),
            ("maxStreams", json!(20_000_000), &[("max-streams", "20000000")]),
            ("maxClusters", json!(7), &[("max-clusters", "7")]),
            ("maxExportsPerCluster", json!(70), &[("max-exports-per-cluster", "70")]),
            ("maxWritesPerSecond", json!(700), &[("max-writes-per-second", "700")]),
            ("grpcListen", json!("0.0.0.0:19090"), &[("grpc-listen", "0.0.0.0:19090")]),
            ("restListen", json!("0.0.0.0:18080"), &[("rest-listen", "0.0.0.0:18080")]),
            ("adminListen", json!("0.0.0.0:19091"), &[("admin-listen", "0.0.0.0:19091")]),
            ("logFormat", json!("json"), &[("log-format", "json")]),
            ("logLevel", json!("info,mcs_registry=debug"), &[("log-level", "info,mcs_registry=debug")]),
        ],
    }
}

fn controller() -> Deployed {
    Deployed {
        chart: Chart::Mcs,
        object: "Deployment/mcs-controller",
        prefix: "controller.",
        command: command::<mcs_controller::args::Args>(&MCS),
        needed: json!({"controller": {"enabled": true}}),
        samples: vec![
            (
                "registryUrls",
                json!(["https://a.example:9090", "https://b.example"]),
                &[("registry-url", "https://a.example:9090,https://b.example")],
            ),
            ("registryAllowInsecureHttp", json!(true), &[("registry-allow-insecure-http", "")]),
            (
                "registryTlsCa.configMapName",
                json!("authority"),
                &[("registry-tls-ca-file", "/etc/mcs/registry-ca/ca.crt")],
            ),
            (
                "registryTls.secretName",
                json!("certificate"),
                &[
                    ("registry-tls-cert-file", "/etc/mcs/registry-tls/tls.crt"),
                    ("registry-tls-key-file", "/etc/mcs/registry-tls/tls.key"),
                ],
            ),
            ("clustersetId", json!("prod"), &[("clusterset-id", "prod")]),
            ("clusterId", json!("east"), &[("cluster-id", "east")]),
            ("region", json!("us-east-1"), &[("region", "us-east-1")]),
            ("watchNamespaces", json!(["shop", "till"]), &[("watch-namespaces", "shop,till")]),
            ("createNamespaces", json!(true), &[("create-namespaces", "")]),
            ("adoptUnmanagedImports", json!(true), &[("adopt-unmanaged-imports", "")]),
            ("leaderElectionNamespace", json!("leases"), &[("leader-election-namespace", "leases")]),
            ("leaderElectionId", json!("second"), &[("leader-election-id", "second")]),
            ("adminListen", json!("0.0.0.0:18080"), &[("admin-listen", "0.0.0.0:18080")]),
            ("logFormat", json!("json"), &[("log-format", "json")]),
            ("logLevel", json!("warn"), &[("log-level", "warn")]),
        ],
    }
}

/// The discovery service takes some flags only in one mode, and others only in another.
fn discovery(mode: &str) -> Deployed {
    let mut samples: Samples = vec![
        ("registrationStorage", json!("dynamodb"), &[("registration-storage", "dynamodb")]),
        ("leaseDurationSecs", json!(86_400), &[("lease-duration-secs", "86400")]),
        ("heartbeatIntervalSecs", json!(20), &[("heartbeat-interval-secs", "20")]),
        ("maxPools", json!(10_000_000), &[("max-pools", "10000000")]),
        ("dynamodb.table", json!("pools"), &[("dynamodb-table", "pools")]),
        ("dynamodb.region", json!("eu-west-1"), &[("dynamodb-region", "eu-west-1")]),
        (
            "dynamodb.endpoint",
            json!("http://localhost:8000"),
            &[("dynamodb-endpoint", "http://localhost:8000")],
        ),
        ("dynamodb.ensureTable", json!(true), &[("dynamodb-ensure-table", "")]),
        ("dynamodb.pollIntervalSecs", json!(1), &[("dynamodb-poll-interval-secs", "1")]),
        ("dynamodb.replicationGraceSecs", json!(90), &[("dynamodb-replication-grace-secs", "90")]),
        ("dynamodb.leaseSkewSecs", json!(3), &[("lease-skew-secs", "3")]),
        (
            "tls.secretName",
            json!("certificate"),
            &[("tls-cert-path", "/etc/gds/tls/tls.crt"), ("tls-key-path", "/etc/gds/tls/tls.key")],
        ),
        (
            "tls.clientCaSecretName",
            json!("clients"),
            &[("tls-client-ca-cert-path", "/etc/gds/client-ca/ca.crt")],
        ),
        ("maxStreams", json!(20), &[("max-streams", "20")]),
        ("listen", json!("0.0.0.0:18080"), &[("listen", "0.0.0.0:18080")]),
        ("maxBodyBytes", json!(16_777_216), &[("max-body-bytes", "16777216")]),
        ("maxConnections", json!(1_000_000), &[("max-connections", "1000000")]),
        ("drainDelaySecs", json!(7), &[("drain-delay-secs", "7")]),
        ("shutdownGraceSecs", json!(30), &[("shutdown-grace-secs", "30")]),
        ("logFormat", json!("json"), &[("log-format", "json")]),
        ("logLevel", json!("warn"), &[("log-level", "warn")]),
    ];
    if mode == "registrations" {
        samples.push(("poolDiscovery", json!("registrations"), &[("pool-discovery", "registrations")]));
        samples.push(("routers", json!(["a/b=http://c:1"]), &[("router", "a/b=http://c:1")]));
    } else {
        samples.extend::<Samples>(vec![
            ("poolDiscovery", json!("mcs"), &[("pool-discovery", "mcs")]),
            ("router.namespace", json!("routing"), &[("router-namespace", "routing")]),
            ("router.service", json!("global-router"), &[("router-service", "global-router")]),
            ("router.portName", json!("grpc"), &[("router-port-name", "grpc")]),
            ("pool.serviceSuffix", json!("-relay"), &[("pool-service-suffix", "-relay")]),
            ("frontend.serviceSuffix", json!("-web"), &[("frontend-service-suffix", "-web")]),
            ("frontend.portName", json!("https"), &[("frontend-port-name", "https")]),
        ]);
    }
    Deployed {
        chart: Chart::Discovery,
        object: "Deployment/global-discovery-service",
        prefix: "",
        command: command::<global_discovery_service::args::Args>(&GDS),
        needed: json!({}),
        samples,
    }
}

#[test]
fn every_flag_has_a_value_that_names_it() -> Result<()> {
    for programs in [vec![registry()], vec![controller()], vec![discovery("registrations"), discovery("mcs")]]
    {
        let [Deployed { chart, object, prefix, command, .. }, ..] = &programs[..] else { continue };
        let samples: Samples = programs.iter().flat_map(|program| program.samples.clone()).collect();
        let told: BTreeSet<&str> =
            samples.iter().flat_map(|(_, _, flags)| flags.iter().map(|(flag, _)| *flag)).collect();
        let flags = flags(command);
        assert_eq!(told, flags.iter().map(String::as_str).collect(), "{object}: flags with a value");

        let mut named = BTreeMap::new();
        for value in documented(*chart)? {
            if let Some(path) = value.path.strip_prefix(prefix) {
                let flags = value.comment.split('`').filter_map(|text| text.strip_prefix("--"));
                let flags: BTreeSet<String> = flags.map(ToOwned::to_owned).collect();
                if !flags.is_empty() {
                    named.insert(path.to_owned(), flags);
                }
            }
        }
        let samples = samples.iter().map(|(path, _, flags)| {
            let flags = flags.iter().map(|(flag, _)| (*flag).to_owned());
            ((*path).to_owned(), flags.collect::<BTreeSet<_>>())
        });
        assert_eq!(named, samples.collect(), "{object}: flags that comments name");
    }
    Ok(())
}

#[test]
fn every_value_of_a_flag_reaches_the_program() -> Result<()> {
    for deployed in [registry(), controller(), discovery("registrations"), discovery("mcs")] {
        let expected: BTreeMap<&str, &str> =
            deployed.samples.iter().flat_map(|(_, _, flags)| flags.iter().copied()).collect();
        let mut values = deployed.needed.clone();
        for (path, value, _) in &deployed.samples {
            set(&mut values, &format!("{}{path}", deployed.prefix), value.clone())?;
        }
        let rendered = deployed.chart.render(&values.to_string()).map_err(|refusal| anyhow!(refusal))?;
        laws::hold(&rendered).context(deployed.object)?;
        let object = rendered.find(deployed.object).context(deployed.object)?;
        let args = list_at(object, "/spec/template/spec/containers/0/args");
        let args: BTreeMap<&str, &str> = args.iter().filter_map(Value::as_str).map(split).collect();
        assert_eq!(args, expected, "{}", deployed.object);
    }
    Ok(())
}

/// The flags of a program, but for help and version.
fn flags(command: &Command) -> BTreeSet<String> {
    let of_all = [ArgAction::Help, ArgAction::HelpLong, ArgAction::HelpShort, ArgAction::Version];
    let is_of_all = |action: &ArgAction| {
        of_all.iter().any(|of_all| std::mem::discriminant(of_all) == std::mem::discriminant(action))
    };
    let own = command.get_arguments().filter(|flag| !is_of_all(flag.get_action()) && !flag.is_hide_set());
    own.filter_map(clap::Arg::get_long).map(ToOwned::to_owned).collect()
}

/// Sets the value at a path such as `registry.tls.secretName`.
fn set(values: &mut Value, path: &str, value: Value) -> Result<()> {
    let mut place = values;
    for key in path.split('.') {
        let object = match place {
            Value::Null => {
                *place = json!({});
                place.as_object_mut()
            }
            other => other.as_object_mut(),
        };
        place =
            object.with_context(|| format!("{path} goes through a value"))?.entry(key).or_insert(Value::Null);
    }
    *place = value;
    Ok(())
}
