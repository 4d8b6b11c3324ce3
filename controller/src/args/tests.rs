use super::*;
use mcs_runtime::args::{Stop, command, try_parse};
use mcs_runtime::tls::client::ClientFiles;

const GOOD: [&str; 4] = [
    "--clusterset-id=prod",
    "--cluster-id=east",
    "--registry-url=http://a:9090",
    "--registry-allow-insecure-http",
];

#[test]
fn good_flags_are_read_before_and_after_the_subcommand() {
    let flags =
        ["--region=eu-1", "--watch-namespaces=shop,pay", "--watch-namespaces=ok", "--create-namespaces"];
    let plain = parse(GOOD.into_iter().chain(flags)).unwrap();
    let before = parse(GOOD.into_iter().chain(flags).chain(["run"])).unwrap();
    let after = parse(["run"].into_iter().chain(GOOD).chain(flags)).unwrap();
    assert_eq!(before, Args { command: Some(Command::Run), ..plain.clone() });
    assert_eq!(before, after);

    let options = plain.options("system");
    let found = (
        options.registries.iter().map(ToString::to_string).collect::<Vec<_>>(),
        (
            options.clusterset.as_ref().map(ClustersetId::as_str),
            options.cluster.as_ref().map(ClusterId::as_str),
            options.region.as_ref().map(Region::as_str),
        ),
        options.watch_namespaces.iter().map(Namespace::as_str).collect::<Vec<_>>(),
        (options.create_namespaces, options.adopt_unmanaged),
        (options.leader.namespace.as_str(), options.leader.name.as_str()),
    );
    let expected = (
        vec!["http://a:9090".to_owned()],
        (Some("prod"), Some("east"), Some("eu-1")),
        vec!["shop", "pay", "ok"],
        (true, false),
        ("system", "mcs-controller"),
    );
    assert_eq!(found, expected);
}

#[test]
fn urls_are_repeatable_and_comma_separated_in_failover_order() {
    let more = ["--registry-url=http://b,http://[fd00::1]:1", "--registry-url=http://c"];
    let urls = parse(GOOD.into_iter().chain(more)).unwrap().registry.registry_url;
    let urls: Vec<_> = urls.iter().map(ToString::to_string).collect();
    assert_eq!(urls, ["http://a:9090", "http://b:80", "http://[fd00::1]:1", "http://c:80"]);
}

#[test]
fn https_needs_no_other_flag_and_takes_files() {
    let flags = [GOOD[0], GOOD[1], "--registry-url=https://a,https://b"];
    assert_eq!(parse(flags).unwrap().options("system").tls, ClientFiles::default());
    let files = ["ca-file=ca.crt", "cert-file=tls.crt", "key-file=tls.key"]
        .map(|file| format!("--registry-tls-{file}"));
    let read = parse(flags.into_iter().chain(files.iter().map(String::as_str))).unwrap();
    let expected = ClientFiles { ca: Some("ca.crt".into()), own: Some(("tls.crt".into(), "tls.key".into())) };
    assert_eq!(read.options("system").tls, expected);
}

#[test]
fn ids_may_be_left_to_the_cluster_and_leave_needs_no_registry() {
    assert_eq!(parse(GOOD.into_iter().skip(2)).unwrap().member.cluster_id, None);
    assert_eq!(parse(["leave"]).unwrap().command, Some(Command::Leave));
}

#[test]
fn apply_crds_needs_no_flag() {
    assert_eq!(parse(["apply-crds"]).unwrap().command, Some(Command::ApplyCrds));
}

/// O59 and O60: what is no DNS label, and IPv6 without brackets, is refused at the start.
#[test]
fn bad_flags_are_refused_in_one_line_that_says_which_and_why() {
    let table: &[(&[&str], &str)] = &[
        (&[], "--registry-url is needed"),
        (&GOOD[..2], "--registry-url is needed"),
        (&GOOD[..3], "--registry-url: registry URL http://a:9090 is plaintext"),
        (&["--registry-url=http://fd00::1:9090"], "'--registry-url <URL>'"),
        (&["--registry-url=registry:9090"], "the scheme must be https or http"),
        (&["--clusterset-id=Prod"], "DNS-1123 label"),
        (&["--cluster-id=use1_a"], "DNS-1123 label"),
        (&["--cluster-id=-a"], "DNS-1123 label"),
        (&["--cluster-id="], "must not be empty"),
        (&["--region=eu 1"], "label value"),
        (&["--watch-namespaces=shop,Pay"], "DNS-1123 label"),
        (&["--leader-election-id=A"], "DNS-1123 label"),
        (&["leaf"], "unrecognized subcommand 'leaf'"),
        (&["leave", "--registry-url=http://a"], "is plaintext"),
        (&["--registry-url=http://b,https://c"], "must be all of one scheme"),
        (
            &[GOOD[0], GOOD[1], GOOD[2], GOOD[3], "--registry-tls-ca-file=ca.crt"],
            "--registry-tls-ca-file needs https, but registry URL http://a:9090 is plaintext",
        ),
        (
            &[GOOD[0], GOOD[1], "--registry-url=https://a", "--registry-tls-cert-file=tls.crt"],
            "--registry-tls-cert-file needs --registry-tls-key-file",
        ),
        (
            &[GOOD[0], GOOD[1], "--registry-url=https://a", "--registry-tls-key-file=tls.key"],
            "--registry-tls-key-file needs --registry-tls-cert-file",
        ),
    ];
    for (flags, why) in table {
        let flags: Vec<_> = match flags.first() {
            Some(&"--registry-url=http://b,https://c") => {
                GOOD.into_iter().chain(flags.iter().copied()).collect()
            }
            _ => flags.to_vec(),
        };
        match parse(flags.clone()) {
            Err(Stop::Refused(line)) => {
                assert!(line.starts_with("mcs-controller: ") && line.contains(why), "{flags:?}: {line}");
                assert_eq!(line.lines().count(), 1, "{line}");
            }
            other => panic!("{flags:?}: {other:?}"),
        }
    }
}

#[test]
fn every_flag_has_a_variable() {
    let command = command::<Args>(&MCS);
    let bare: Vec<_> = command
        .get_arguments()
        .filter(|flag| flag.get_env().is_none() && !matches!(flag.get_id().as_str(), "help" | "version"))
        .map(clap::Arg::get_id)
        .collect();
    assert_eq!(bare, Vec::<&clap::Id>::new());
}

#[test]
fn two_processes_on_one_host_have_two_identities() {
    assert_ne!(identity(), identity());
}

fn parse<'a>(flags: impl IntoIterator<Item = &'a str>) -> Result<Args, Stop> {
    try_parse(&MCS, ["mcs-controller"].into_iter().chain(flags))
}
