//! Flags: which mode uses which, and what is refused.

use global_discovery_service::args::{Args, DYNAMODB_HEADING, REGISTRATIONS_HEADING, SLICES_HEADING};
use mcs_runtime::args::{GDS, Stop, command, try_parse};
use std::collections::BTreeMap;
use std::process::{Command, Output};

/// The values of `--pool-discovery` and of `--registration-storage`, each with each.
const MODES: [Mode; 6] = [
    Mode { discovery: "registrations", storage: "memory" },
    Mode { discovery: "karmada", storage: "memory" },
    Mode { discovery: "mcs", storage: "memory" },
    Mode { discovery: "registrations", storage: "dynamodb" },
    Mode { discovery: "karmada", storage: "dynamodb" },
    Mode { discovery: "mcs", storage: "dynamodb" },
];

#[derive(Clone, Copy, Debug)]
struct Mode {
    discovery: &'static str,
    storage: &'static str,
}

/// A good value of every flag; a new flag must be added here.
const SAMPLES: [(&str, &str); 30] = [
    ("pool-discovery", "mcs"),
    ("registration-storage", "memory"),
    ("lease-duration-secs", "30"),
    ("heartbeat-interval-secs", "3"),
    ("max-pools", "10"),
    ("router", "east/r0=http://10.0.0.1:50051"),
    ("router-namespace", "routing"),
    ("router-service", "global-router"),
    ("router-port-name", "relay"),
    ("pool-service-suffix", "-relay"),
    ("frontend-service-suffix", "-web"),
    ("frontend-port-name", "https"),
    ("dynamodb-table", "global-discovery-pools"),
    ("dynamodb-region", "us-east-2"),
    ("dynamodb-endpoint", "http://localhost:8000"),
    ("dynamodb-ensure-table", "true"),
    ("dynamodb-poll-interval-secs", "1"),
    ("dynamodb-replication-grace-secs", "0"),
    ("lease-skew-secs", "5"),
    ("listen", "127.0.0.1:0"),
    ("max-body-bytes", "1000"),
    ("max-connections", "10"),
    ("max-streams", "10"),
    ("tls-cert-path", "cert.pem"),
    ("tls-key-path", "key.pem"),
    ("tls-client-ca-cert-path", "ca.pem"),
    ("drain-delay-secs", "0"),
    ("shutdown-grace-secs", "1"),
    ("log-level", "debug"),
    ("log-format", "json"),
];

/// The flags of this program, each with the group in which `--help` has it.
fn flags() -> BTreeMap<String, String> {
    let command = command::<Args>(&GDS);
    let flags = command.get_arguments().filter_map(|arg| {
        let flag = arg.get_long()?.to_owned();
        let group = arg.get_help_heading().unwrap_or_default().to_owned();
        (flag != "help" && flag != "version").then_some((flag, group))
    });
    flags.collect()
}

/// By which flag a mode refuses those of a group; none that it uses.
fn refused_by(group: &str, mode: Mode) -> Option<String> {
    let is_used = match group {
        REGISTRATIONS_HEADING => mode.discovery == "registrations",
        SLICES_HEADING => mode.discovery != "registrations",
        DYNAMODB_HEADING => mode.storage == "dynamodb",
        _ => true,
    };
    let cause = if group == DYNAMODB_HEADING {
        format!("--registration-storage={}", mode.storage)
    } else {
        format!("--pool-discovery={}", mode.discovery)
    };
    (!is_used).then_some(cause)
}

fn sample(flag: &str) -> &'static str {
    let sample = SAMPLES.iter().find(|(name, _)| *name == flag);
    sample.unwrap_or_else(|| panic!("--{flag} has no sample: add it to SAMPLES")).1
}

/// The flags that one is not taken without.
fn partners(flag: &str) -> &'static [&'static str] {
    match flag {
        "tls-cert-path" => &["tls-key-path"],
        "tls-key-path" => &["tls-cert-path"],
        "tls-client-ca-cert-path" => &["tls-cert-path", "tls-key-path"],
        _ => &[],
    }
}

/// A command line that is good for `mode`, without `left_out`.
fn minimal(mode: Mode, left_out: &str) -> Vec<String> {
    let Mode { discovery, storage } = mode;
    let mut required = Vec::new();
    if discovery != "registrations" {
        required.extend(["router-namespace", "router-service", "router-port-name"]);
    }
    if storage == "dynamodb" {
        required.push("dynamodb-table");
    }
    let mut args = vec!["global-discovery-service".to_owned(), format!("--pool-discovery={discovery}")];
    if left_out != "registration-storage" {
        args.push(format!("--registration-storage={storage}"));
    }
    let required = required.into_iter().filter(|flag| *flag != left_out);
    args.extend(required.map(|flag| format!("--{flag}={}", sample(flag))));
    args
}

const MCS: Mode = Mode { discovery: "mcs", storage: "memory" };

const TABLE: Mode = Mode { discovery: "registrations", storage: "dynamodb" };

fn parse(args: Vec<String>) -> Result<Args, String> {
    try_parse::<Args>(&GDS, args).map_err(|stop| match stop {
        Stop::Shown(text) | Stop::Refused(text) => text,
    })
}

fn refusal(args: &[&str]) -> String {
    let args = ["global-discovery-service"].iter().chain(args).map(|arg| (*arg).to_owned());
    parse(args.collect()).map(|_| ()).unwrap_err()
}

#[test]
fn a_mode_takes_the_flags_that_it_uses_and_refuses_all_others() {
    for (flag, group) in flags() {
        if flag == "pool-discovery" || flag == "registration-storage" {
            continue;
        }
        for mode in MODES {
            let mut args = minimal(mode, &flag);
            args.push(format!("--{flag}={}", sample(&flag)));
            args.extend(partners(&flag).iter().map(|other| format!("--{other}={}", sample(other))));
            match (parse(args), refused_by(&group, mode)) {
                (Ok(_), None) => {}
                (Err(line), Some(cause)) => {
                    assert!(line.contains(&format!("--{flag} is not used with {cause};")), "{line}");
                }
                (result, _) => panic!("--{flag} with {mode:?}: {:?}", result.map(|_| "accepted")),
            }
        }
    }
}

#[test]
fn an_empty_value_is_refused_for_every_flag_whichever_way_it_came() {
    for flag in flags().into_keys() {
        let mut args = minimal(Mode { storage: "dynamodb", ..MCS }, &flag);
        args.retain(|arg| !arg.starts_with(&format!("--{flag}=")));
        let variable = variable(&flag);
        for output in [run(&args, &[], &[format!("--{flag}=")]), run(&args, &[(&variable, "")], &[])] {
            let line = String::from_utf8(output.stderr).unwrap();
            let names = line.contains(&format!("--{flag}")) || line.contains(&variable);
            assert!(output.status.code() == Some(2) && line.lines().count() == 1 && names, "{flag}: {line}");
        }
    }
}

#[test]
fn help_groups_the_flags_by_mode() {
    let Err(Stop::Shown(help)) = try_parse::<Args>(&GDS, ["global-discovery-service", "--help"]) else {
        panic!("no help");
    };
    let place = |text: &str| help.find(text).unwrap_or_else(|| panic!("{text} is not in\n{help}"));
    let slices = place(SLICES_HEADING);
    assert!(place(REGISTRATIONS_HEADING) < place("--router <") && place("--router <") < slices, "{help}");
    let table = place(DYNAMODB_HEADING);
    assert!(slices < place("--pool-service-suffix") && place("--pool-service-suffix") < table, "{help}");
    assert!(table < place("--dynamodb-table") && place("--lease-skew-secs") < place("--listen"), "{help}");
}

#[test]
fn karmada_and_mcs_require_the_router() {
    for mode in MODES.into_iter().filter(|mode| mode.discovery != "registrations") {
        for flag in ["router-namespace", "router-service", "router-port-name"] {
            let line = parse(minimal(mode, flag)).map(|_| ()).unwrap_err();
            assert!(line.contains(&format!("--{flag} is required")), "{line}");
        }
    }
}

#[test]
fn dynamodb_requires_a_table() {
    let line = parse(minimal(TABLE, "dynamodb-table")).map(|_| ()).unwrap_err();
    assert!(line.contains("--dynamodb-table is required with --registration-storage=dynamodb"), "{line}");
}

/// With the defaults that is 2 s and 7.5 s against 15 s and 2 s.
#[test]
fn a_renewal_must_be_read_before_the_one_before_it_runs_out() {
    let with = |more: &[&str]| {
        let mut args = minimal(TABLE, "");
        args.extend(more.iter().map(|arg| (*arg).to_owned()));
        parse(args).map(|_| ())
    };
    assert_eq!(with(&[]), Ok(()));
    let heartbeat = |secs: u64| format!("--heartbeat-interval-secs={secs}");
    for (flags, last_good, first_bad) in [
        // 17 s: 1.5 intervals and 2 s.
        (vec![], heartbeat(9), heartbeat(10)),
        // 20 s: 1.5 intervals of 9 s and 6 s, or 7 s.
        (vec!["--lease-skew-secs=5", "--heartbeat-interval-secs=9"], poll(6), poll(7)),
        (vec!["--heartbeat-interval-secs=10", "--dynamodb-poll-interval-secs=1"], skew(2), skew(1)),
    ] {
        let with_one = |more: &str| with(&[&flags[..], &[more]].concat());
        assert_eq!(with_one(&last_good), Ok(()), "{flags:?} {last_good}");
        let line = with_one(&first_bad).unwrap_err();
        let named = ["--dynamodb-poll-interval-secs", "--heartbeat-interval-secs", "--lease-skew-secs"];
        assert!(named.iter().all(|flag| line.contains(flag)) && line.lines().count() == 1, "{line}");
    }
    // The rule is of the table alone.
    assert!(parse([minimal(MCS, ""), vec![heartbeat(14)]].concat()).is_ok());
}

fn poll(secs: u64) -> String {
    format!("--dynamodb-poll-interval-secs={secs}")
}

fn skew(secs: u64) -> String {
    format!("--lease-skew-secs={secs}")
}

#[test]
fn a_table_is_made_where_a_flag_says_so_alone_or_with_a_value() {
    let with = |arg: &str| {
        let mut args = minimal(TABLE, "");
        args.push(arg.to_owned());
        parse(args).map(|args| args.table.dynamodb_ensure_table)
    };
    assert_eq!(with("--dynamodb-ensure-table"), Ok(Some(true)));
    assert_eq!(with("--dynamodb-ensure-table=true"), Ok(Some(true)));
    assert_eq!(with("--dynamodb-ensure-table=false"), Ok(Some(false)));
    let line = with("--dynamodb-ensure-table=yes").unwrap_err();
    assert!(line.contains("--dynamodb-ensure-table") && line.lines().count() == 1, "{line}");
}

#[test]
fn bad_values_of_the_table_are_refused_in_one_line_that_names_the_flag() {
    for bad in [
        "--dynamodb-table=a",
        "--dynamodb-table=a/b/c",
        "--dynamodb-region=Mars!",
        "--dynamodb-endpoint=localhost:8000",
        "--dynamodb-poll-interval-secs=0",
        "--dynamodb-poll-interval-secs=2s",
        "--dynamodb-replication-grace-secs=86401",
        "--lease-skew-secs=-1",
    ] {
        let flag = bad.split('=').next().unwrap();
        let mut args = minimal(TABLE, flag.trim_start_matches("--"));
        args.push(bad.to_owned());
        let line = parse(args).map(|_| ()).unwrap_err();
        assert!(line.contains(flag) && line.lines().count() == 1, "{bad}: {line}");
    }
}

#[test]
fn a_suffix_may_begin_with_one_dash_and_never_takes_the_next_flag() {
    let with = |more: &[&str]| {
        let mut args = minimal(MCS, "");
        args.extend(more.iter().map(|arg| (*arg).to_owned()));
        parse(args).map(|args| args.slices.pool_service_suffix.unwrap())
    };
    assert_eq!(with(&["--pool-service-suffix=-relay"]), with(&["--pool-service-suffix", "-relay"]));
    assert!(with(&["--pool-service-suffix", "-relay"]).is_ok());
    assert!(with(&["--pool-service-suffix", "--listen", "127.0.0.1:1"]).is_err());
    for bad in [
        &["--pool-service-suffix", "--listen=127.0.0.1:1"][..],
        &["--pool-service-suffix=--relay"],
        &["--pool-service-suffix"],
        &["--pool-service-suffix=-Relay"],
        &["--pool-service-suffix=-relay-"],
        &["--pool-service-suffix=-frontend"],
        &["--pool-service-suffix=-b-frontend"],
        &["--pool-service-suffix=end"],
    ] {
        let line = with(bad).map(|_| ()).unwrap_err();
        assert!(line.contains("--pool-service-suffix") && line.lines().count() == 1, "{bad:?}: {line}");
    }
    for bad in [
        &["--frontend-service-suffix", "--listen=127.0.0.1:1"][..],
        &["--frontend-service-suffix=--web"],
        &["--frontend-service-suffix"],
        &["--frontend-service-suffix=-pool-relay"],
        &["--frontend-service-suffix=-relay"],
    ] {
        let line = with(bad).map(|_| ()).unwrap_err();
        assert!(line.contains("--frontend-service-suffix") && line.lines().count() == 1, "{bad:?}: {line}");
    }
}

#[test]
fn bad_values_are_refused_in_one_line_that_names_the_flag() {
    for (args, flag) in [
        (vec!["--pool-discovery=consul"], "--pool-discovery"),
        (vec!["--registration-storage=etcd"], "--registration-storage"),
        (vec!["--lease-duration-secs=0"], "--lease-duration-secs"),
        (vec!["--lease-duration-secs=86401"], "--lease-duration-secs"),
        (vec!["--lease-duration-secs=5"], "--heartbeat-interval-secs"),
        (vec!["--heartbeat-interval-secs=0"], "--heartbeat-interval-secs"),
        (vec!["--max-pools=0"], "--max-pools"),
        (vec!["--max-pools=10000001"], "--max-pools"),
        (vec!["--listen=:::8080"], "--listen"),
        (vec!["--router=east=http://10.0.0.1"], "--router"),
        (vec!["--router=east/r0=10.0.0.1:50051"], "--router"),
        (vec!["--router=East/r0=http://10.0.0.1"], "--router"),
        (vec!["--router=z/r0=http://fd00::9:50051"], "--router"),
        (vec!["--router=e/r=http://10.0.0.1", "--router=e/r=http://10.0.0.2"], "--router"),
        (vec!["--max-body-bytes=0"], "--max-body-bytes"),
        (vec!["--max-body-bytes=67108865"], "--max-body-bytes"),
        (vec!["--max-streams=0"], "--max-streams"),
        (vec!["--tls-cert-path=c"], "--tls-cert-path needs --tls-key-path"),
        (vec!["--tls-key-path=k"], "--tls-key-path needs --tls-cert-path"),
        (
            vec!["--tls-client-ca-cert-path=a"],
            "--tls-client-ca-cert-path needs --tls-cert-path and --tls-key-path",
        ),
        (vec!["--tls-client-ca-cert-path=a", "--tls-cert-path=c"], "--tls-cert-path needs --tls-key-path"),
    ] {
        let line = refusal(&args);
        assert!(line.contains(flag) && line.lines().count() == 1, "{args:?}: {line}");
    }
}

/// Case O59: bracketed IPv6 addresses work.
#[test]
fn bracketed_ipv6_addresses_are_taken() {
    let args = ["global-discovery-service", "--listen=[::]:8080", "--router=z/r0=http://[FD00::9]:50051"];
    assert!(try_parse::<Args>(&GDS, args).is_ok());
}

#[test]
fn the_program_ends_with_code_2_and_one_line_whichever_way_a_bad_flag_came() {
    for (flag, group) in flags() {
        for mode in MODES.into_iter().filter(|mode| refused_by(&group, *mode).is_some()) {
            let args = minimal(mode, "");
            let variable = variable(&flag);
            let by_flag = format!("--{flag}={}", sample(&flag));
            for output in [run(&args, &[], &[by_flag]), run(&args, &[(&variable, sample(&flag))], &[])] {
                let line = String::from_utf8(output.stderr).unwrap();
                let is_told = line.lines().count() == 1 && line.contains(&format!("--{flag} is not used"));
                assert!(output.status.code() == Some(2) && is_told, "{flag} with {mode:?}: {line}");
            }
        }
    }
}

/// The variable of a flag.
fn variable(flag: &str) -> String {
    format!("DYN_GDS_{}", flag.replace('-', "_").to_uppercase())
}

/// A Service `global-discovery-service`, and one that is called as our variables begin, as Kubernetes tells of them.
#[test]
fn variables_that_kubernetes_injects_for_services_are_no_flags() {
    let injected: Vec<(String, &str)> =
        ["GLOBAL_DISCOVERY_SERVICE", "GLOBAL_DISCOVERY", "DYN_GDS", "DYN_LOG"]
            .iter()
            .flat_map(|service| {
                [
                    ("PORT", "tcp://10.96.0.1:8080"),
                    ("PORT_8080_TCP", "tcp://10.96.0.1:8080"),
                    ("PORT_8080_TCP_ADDR", "10.96.0.1"),
                    ("PORT_8080_TCP_PORT", "8080"),
                    ("PORT_8080_TCP_PROTO", "tcp"),
                    ("SERVICE_HOST", "10.96.0.1"),
                    ("SERVICE_PORT", "8080"),
                    ("SERVICE_PORT_HTTP", "8080"),
                ]
                .map(|(name, value)| (format!("{service}_{name}"), value))
            })
            .collect();
    let command = command::<Args>(&GDS);
    let read: Vec<String> =
        command.get_arguments().filter_map(|arg| Some(arg.get_env()?.to_str().unwrap().to_owned())).collect();
    assert_eq!(read.len(), flags().len(), "each flag has a variable");
    for (name, _) in &injected {
        assert!(!read.contains(name), "{name} would be taken for a flag");
    }
    // With all of them it goes as far as without: to the one flag that is wrong.
    let variables: Vec<(&str, &str)> = injected.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let output = run(&minimal(MODES[0], ""), &variables, &["--max-streams=0".to_owned()]);
    let line = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && line.contains("--max-streams"), "{line}");
}

/// The names that the Dynamo components share; where both are set, our own counts.
#[test]
fn two_flags_have_a_second_variable_and_the_own_one_counts() {
    for (own, shared, flag, good) in [
        ("DYN_GDS_LOG_LEVEL", "DYN_LOG", "--log-level", "debug"),
        (
            "DYN_GDS_SHUTDOWN_GRACE_SECS",
            "DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS",
            "--shutdown-grace-secs",
            "7",
        ),
    ] {
        // What is refused next tells that a variable was taken.
        let refusal = |variables: &[(&str, &str)]| {
            let output =
                run(&minimal(MODES[0], ""), variables, &["--heartbeat-interval-secs=86400".to_owned()]);
            assert_eq!(output.status.code(), Some(2));
            String::from_utf8(output.stderr).unwrap()
        };
        let alone = refusal(&[(shared, "=!")]);
        assert!(alone.contains(flag) && alone.contains(shared), "{alone}");
        let empty = refusal(&[(shared, "")]);
        assert!(empty.contains(shared), "{empty}");
        let both = refusal(&[(shared, "=!"), (own, good)]);
        assert!(both.contains("--heartbeat-interval-secs") && !both.contains(flag), "{both}");
        let own_is_wrong = refusal(&[(shared, good), (own, "=!")]);
        assert!(own_is_wrong.contains(own), "{own_is_wrong}");
    }
}

fn run(args: &[String], variables: &[(&str, &str)], more: &[String]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_global-discovery-service"));
    command.args(args.iter().skip(1)).args(more).env_clear().envs(variables.iter().copied());
    command.output().unwrap()
}
