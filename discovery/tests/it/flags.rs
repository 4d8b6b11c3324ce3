//! Flags: which mode uses which, and what is refused.

use global_discovery_service::args::{Args, REGISTRATIONS_HEADING, SLICES_HEADING};
use mcs_runtime::args::{GDS, Stop, command, try_parse};
use std::collections::BTreeMap;
use std::process::{Command, Output};

const MODES: [&str; 3] = ["registrations", "karmada", "mcs"];

/// A good value of every flag; a new flag must be added here.
const SAMPLES: [(&str, &str); 18] = [
    ("pool-discovery", "mcs"),
    ("registration-storage", "memory"),
    ("lease-duration-secs", "30"),
    ("heartbeat-interval-secs", "3"),
    ("router", "east/r0=http://10.0.0.1:50051"),
    ("router-namespace", "routing"),
    ("router-service", "global-router"),
    ("router-port-name", "relay"),
    ("pool-service-suffix", "-relay"),
    ("frontend-service-suffix", "-web"),
    ("frontend-port-name", "https"),
    ("listen", "127.0.0.1:0"),
    ("max-body-bytes", "1000"),
    ("max-connections", "10"),
    ("drain-delay-secs", "0"),
    ("shutdown-grace-secs", "1"),
    ("log-level", "debug"),
    ("log-format", "json"),
];

/// The flags of this program, each with the modes that use it, as `--help` groups them.
fn flags() -> BTreeMap<String, Vec<&'static str>> {
    let modes = |heading: Option<&str>| match heading {
        Some(REGISTRATIONS_HEADING) => vec!["registrations"],
        Some(SLICES_HEADING) => vec!["karmada", "mcs"],
        _ => MODES.to_vec(),
    };
    let command = command::<Args>(&GDS);
    let flags = command.get_arguments().filter_map(|arg| {
        let flag = arg.get_long()?.to_owned();
        (flag != "help" && flag != "version").then(|| (flag, modes(arg.get_help_heading())))
    });
    flags.collect()
}

fn sample(flag: &str) -> &'static str {
    let sample = SAMPLES.iter().find(|(name, _)| *name == flag);
    sample.unwrap_or_else(|| panic!("--{flag} has no sample: add it to SAMPLES")).1
}

/// A command line that is good for `mode`, without `left_out`.
fn minimal(mode: &str, left_out: &str) -> Vec<String> {
    let required: &[&str] = if mode == "registrations" {
        &[]
    } else {
        &["router-namespace", "router-service", "router-port-name"]
    };
    let mut args = vec!["global-discovery-service".to_owned(), format!("--pool-discovery={mode}")];
    let required = required.iter().filter(|flag| **flag != left_out);
    args.extend(required.map(|flag| format!("--{flag}={}", sample(flag))));
    args
}

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
    for (flag, users) in flags() {
        if flag == "pool-discovery" {
            continue;
        }
        for mode in MODES {
            let mut args = minimal(mode, &flag);
            args.push(format!("--{flag}={}", sample(&flag)));
            match (parse(args), users.contains(&mode)) {
                (Ok(_), true) => {}
                (Err(line), false) => {
                    let expected = format!("--{flag} is not used with --pool-discovery={mode}");
                    assert!(line.contains(&expected), "{line}");
                }
                (result, _) => panic!("--{flag} with {mode}: {:?}", result.map(|_| "accepted")),
            }
        }
    }
}

#[test]
fn an_empty_value_is_refused_for_every_flag() {
    for flag in flags().into_keys() {
        let mut args = minimal("mcs", &flag);
        args.retain(|arg| !arg.starts_with(&format!("--{flag}=")));
        args.push(format!("--{flag}="));
        let line = parse(args).map(|_| ()).unwrap_err();
        assert!(line.contains(&format!("--{flag}")) && line.lines().count() == 1, "{line}");
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
    assert!(slices < place("--pool-service-suffix"), "{help}");
}

#[test]
fn karmada_and_mcs_require_the_router() {
    for mode in ["karmada", "mcs"] {
        for flag in ["router-namespace", "router-service", "router-port-name"] {
            let line = parse(minimal(mode, flag)).map(|_| ()).unwrap_err();
            assert!(line.contains(&format!("--{flag} is required")), "{line}");
        }
    }
}

#[test]
fn a_suffix_may_begin_with_one_dash_and_never_takes_the_next_flag() {
    let with = |more: &[&str]| {
        let mut args = minimal("mcs", "");
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
        (vec!["--listen=:::8080"], "--listen"),
        (vec!["--router=east=http://10.0.0.1"], "--router"),
        (vec!["--router=east/r0=10.0.0.1:50051"], "--router"),
        (vec!["--router=East/r0=http://10.0.0.1"], "--router"),
        (vec!["--router=z/r0=http://fd00::9:50051"], "--router"),
        (vec!["--router=e/r=http://10.0.0.1", "--router=e/r=http://10.0.0.2"], "--router"),
        (vec!["--max-body-bytes=0"], "--max-body-bytes"),
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
    for (flag, users) in flags() {
        for mode in MODES.into_iter().filter(|mode| !users.contains(mode)) {
            let args = minimal(mode, "");
            let variable = format!("DYN_GDS_{}", flag.replace('-', "_").to_uppercase());
            let by_flag = format!("--{flag}={}", sample(&flag));
            for output in [run(&args, &[], &[by_flag]), run(&args, &[(&variable, sample(&flag))], &[])] {
                let line = String::from_utf8(output.stderr).unwrap();
                let is_told = line.lines().count() == 1 && line.contains(&format!("--{flag} is not used"));
                assert!(output.status.code() == Some(2) && is_told, "{flag} with {mode}: {line}");
            }
        }
    }
    let empty = run(&minimal("registrations", ""), &[("DYN_GDS_LISTEN", "")], &[]);
    let line = String::from_utf8(empty.stderr).unwrap();
    assert!(empty.status.code() == Some(2) && line.contains("DYN_GDS_LISTEN"), "{line}");
}

fn run(args: &[String], variables: &[(&str, &str)], more: &[String]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_global-discovery-service"));
    command.args(args.iter().skip(1)).args(more).env_clear().envs(variables.iter().copied());
    command.output().unwrap()
}
