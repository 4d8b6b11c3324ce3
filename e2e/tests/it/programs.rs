//! The programs as an operator meets them: flags, variables, help, signals and probes.

use std::{
    io::Write,
    net::{SocketAddr, TcpStream},
    process::{Command, Output},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use mcs_core::{
    model::{Frame, Since},
    timing::Timing,
};
use mcs_e2e::{
    programs::{Program, Signal, find, free_address},
    shared::pair,
    stack::{Stack, StackOptions, get},
    wait_for,
};
use mcs_proto::client::RegistryClient;

/// Far more than a program may take to end in order.
const SECONDS: Duration = Duration::from_secs(60);

const PROGRAMS: [(&str, &str, &[&str]); 4] = [
    ("mcs-registry", "DYN_MCS_", &[]),
    ("mcs-controller", "DYN_MCS_", &["run", "apply-crds"]),
    ("mcs-admin", "DYN_MCS_", &["describe"]),
    ("global-discovery-service", "DYN_GDS_", &[]),
];

/// A program without the variables of whoever runs the tests.
fn command(program: &str) -> Result<Command> {
    let mut command = Command::new(find(program)?);
    command.env_clear();
    Ok(command)
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn bad_flags_end_every_program_with_code_2_and_one_line_that_says_which_and_why() -> Result<()> {
    const MEMBER: &[&str] = &["--clusterset-id=prod", "--cluster-id=east"];
    let member = |more: &'static str| [MEMBER, &[more]].concat();
    let discovery = |more: &'static str| {
        let slices = ["--pool-discovery=mcs", "--router-namespace=r", "--router-service=s"];
        [&slices[..], &["--router-port-name=p", more]].concat()
    };
    let table: [(&str, Vec<&str>, [&str; 2]); 33] = [
        ("mcs-registry", vec!["--no-such-flag"], ["--no-such-flag", "unexpected"]),
        ("mcs-registry", vec!["extra"], ["extra", "unexpected"]),
        ("mcs-registry", vec!["--grpc-listen=9090"], ["--grpc-listen", "as in [::]:8080"]),
        ("mcs-registry", vec!["--grpc-listen=::1:9090"], ["--grpc-listen", "brackets"]),
        ("mcs-registry", vec!["--rest-listen=127.0.0.1"], ["--rest-listen", "port is missing"]),
        ("mcs-registry", vec!["--admin-listen="], ["--admin-listen", "invalid value ''"]),
        ("mcs-registry", vec!["--store=tape"], ["--store", "memory"]),
        ("mcs-registry", vec!["--lease-duration=30"], ["--lease-duration", "30s"]),
        ("mcs-registry", vec!["--lease-duration=100ms"], ["--lease-duration", "at least 1s"]),
        ("mcs-registry", vec!["--mass-expiry-threshold=2"], ["--mass-expiry-threshold", "0 to 1"]),
        ("mcs-registry", vec!["--mass-expiry-hold=long"], ["--mass-expiry-hold", "30s"]),
        ("mcs-registry", vec!["--max-connection-age=1s"], ["--max-connection-age", "--lease-duration"]),
        ("mcs-registry", vec!["--max-message-bytes=1"], ["--max-message-bytes", "at least"]),
        ("mcs-registry", vec!["--max-clusters=0"], ["--max-clusters", "at least 1"]),
        ("mcs-registry", vec!["--max-exports-per-cluster=x"], ["--max-exports-per-cluster", "invalid"]),
        ("mcs-registry", vec!["--log-format=xml"], ["--log-format", "json"]),
        ("mcs-registry", vec!["--log-level=loud"], ["--log-level", "loud"]),
        ("mcs-controller", vec![], ["--registry-url", "needed"]),
        ("mcs-controller", vec!["run", "--clusterset-id=prod"], ["--registry-url", "needed"]),
        ("mcs-controller", MEMBER.to_vec(), ["--registry-url", "needed"]),
        ("mcs-controller", member("--registry-url=http://r:9090"), ["--registry-url", "insecure"]),
        ("mcs-controller", member("--registry-url=r:9090"), ["--registry-url", "scheme"]),
        ("mcs-controller", member("--cluster-id=East"), ["--cluster-id", ""]),
        ("mcs-controller", vec!["--clusterset-id=Prod"], ["--clusterset-id", "DNS-1123"]),
        ("mcs-controller", vec!["--watch-namespaces=a,B"], ["--watch-namespaces", "DNS-1123"]),
        ("mcs-controller", vec!["--region=a b"], ["--region", "label value"]),
        ("mcs-controller", vec!["--create-namespaces=maybe"], ["--create-namespaces", ""]),
        ("mcs-admin", vec![], ["subcommand", "missing"]),
        ("mcs-admin", vec!["describe", "--registry-url=http://r:1"], ["--clusterset", "required"]),
        (
            "mcs-admin",
            vec!["describe", "--clusterset=prod", "--store=memory"],
            ["--store=memory", "--registry-url"],
        ),
        ("global-discovery-service", vec!["--pool-discovery=mcs"], ["--router-namespace", "required"]),
        ("global-discovery-service", vec!["--router-service=x"], ["--router-service", "not used"]),
        (
            "global-discovery-service",
            discovery("--lease-duration-secs=5"),
            ["--heartbeat-interval-secs", "below"],
        ),
    ];
    for (program, flags, told) in table {
        let output = command(program)?.args(&flags).output()?;
        let (stdout, stderr) = texts(&output);
        let found = (output.status.code(), stderr.lines().count(), stdout.is_empty());
        assert_eq!(found, (Some(2), 1, true), "{program} {flags:?}: {stdout}{stderr}");
        for text in told {
            assert!(stderr.contains(text), "{program} {flags:?} does not say {text:?}: {stderr}");
        }
    }
    let by_variable = command("mcs-controller")?.env("DYN_MCS_CLUSTER_ID", "East").output()?;
    let (_, stderr) = texts(&by_variable);
    assert_eq!((by_variable.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
    assert!(stderr.contains("DYN_MCS_CLUSTER_ID") && stderr.contains("--cluster-id"), "{stderr}");
    Ok(())
}

#[test]
fn help_and_version_are_shown_and_help_tells_the_variable_of_every_flag() -> Result<()> {
    for (program, prefix, subcommands) in PROGRAMS {
        let version = command(program)?.arg("--version").output()?;
        let (stdout, stderr) = texts(&version);
        assert_eq!((version.status.code(), stderr.as_str()), (Some(0), ""), "{program}");
        assert!(stdout.starts_with(&format!("{program} ")) && stdout.lines().count() == 1, "{stdout}");
        for subcommand in [None].into_iter().chain(subcommands.iter().map(Some)) {
            let help = command(program)?.args(subcommand).arg("--help").output()?;
            let (stdout, stderr) = texts(&help);
            assert_eq!((help.status.code(), stderr.as_str()), (Some(0), ""), "{program} {subcommand:?}");
            let flags = flags(&stdout);
            assert!(flags.len() > 2, "{program} {subcommand:?}: {stdout}");
            for (flag, told) in flags.iter().filter(|(flag, _)| !["help", "version"].contains(&flag.as_str()))
            {
                let variable = format!("[env: {prefix}{}=", flag.replace('-', "_").to_uppercase());
                let explained = told.split_once("[env: ").is_some_and(|(text, _)| text.trim().len() > 20);
                assert!(
                    told.contains(&variable) && explained,
                    "--{flag} of {program} {subcommand:?}: {told}"
                );
            }
        }
    }
    Ok(())
}

/// The flags that a help explains, each with its text.
fn flags(help: &str) -> Vec<(String, String)> {
    let mut flags: Vec<(String, String)> = Vec::new();
    for line in help.lines() {
        let line = line.trim();
        let long = line.strip_prefix("--").or_else(|| line.split_once(", --").map(|(_, long)| long));
        match (long, flags.last_mut()) {
            (Some(long), _) if line.starts_with('-') => {
                let name = long.split([' ', '=', '[']).next().unwrap_or_default().trim_end_matches("...");
                flags.push((name.to_owned(), String::new()));
            }
            (_, Some((_, text))) => *text = format!("{text} {line}"),
            (_, None) => {}
        }
    }
    flags
}

#[tokio::test]
async fn every_program_ends_in_order_within_seconds_and_starts_again_after_a_kill() -> Result<()> {
    let pair = pair().await?;
    let namespace = pair.namespace("signals").await?;
    let options = StackOptions::for_namespace(namespace.name());
    let mut stack = Stack::start(options, &[&pair.east, &pair.west]).await?;

    // A registry with open watches, and with a request that a client never completes.
    let url = format!("http://{}", stack.registry().grpc).parse()?;
    let client = RegistryClient::new(&url, Timing::default())?;
    let mut watch =
        client.watch(&stack.clusterset().parse()?, &"importer".parse()?, None, Since::default()).await?;
    while !matches!(watch.next().await?, Frame::End { .. }) {}
    let half = half_a_request(stack.registry().rest)?;
    stack.registry_program()?.signal(Signal::Term)?;
    turns_unready(&format!("http://{}/readyz", stack.registry().admin)).await?;
    tokio::time::timeout(SECONDS, async { while watch.next().await.is_ok() {} }).await?;
    let ended = tokio::time::timeout(SECONDS, stack.registry_ended()).await.context("the registry")??;
    assert!(ended.success(), "the registry: {ended}");
    drop(half);
    stack.start_registry().await?;
    stack.end_registry(Signal::Kill).await?;
    stack.start_registry().await?;

    // Controllers that watch an API server and a registry; the Lease of the one that was killed is still held.
    for signal in [Signal::Term, Signal::Kill] {
        for cluster in [&pair.east, &pair.west] {
            let ended = tokio::time::timeout(SECONDS, stack.end_controller(cluster.name(), signal));
            let ended = ended.await.with_context(|| format!("the controller of {}", cluster.name()))??;
            assert_eq!(
                ended.success(),
                signal == Signal::Term,
                "the controller of {}: {ended}",
                cluster.name()
            );
            stack.start_controller(cluster, cluster.name()).await?;
        }
        stack.ready().await?;
    }

    discovery_service(&stack).await
}

/// The discovery service answers while its Pod leaves the Service's endpoints, but is not ready any more.
async fn discovery_service(stack: &Stack) -> Result<()> {
    let address = free_address()?;
    let start = async |drain: u8| {
        let arguments = [format!("--listen={address}"), format!("--drain-delay-secs={drain}")];
        let mut program =
            Program::start("global-discovery-service", "discovery", stack.folder(), &arguments, &[]).await?;
        program.ready(&format!("http://{address}/readyz")).await?;
        anyhow::Ok(program)
    };
    start(0).await?.end(Signal::Kill).await?;
    let mut program = start(2).await?;
    let half = half_a_request(address)?;
    program.signal(Signal::Term)?;
    turns_unready(&format!("http://{address}/readyz")).await?;
    get(&format!("http://{address}/pools")).await.context("while it drains")?;
    let ended = tokio::time::timeout(SECONDS * 2, program.ended()).await??;
    assert!(ended.success(), "{ended}: {}", program.log_tail());
    drop(half);
    Ok(())
}

/// A connection of a client that never completes its request.
fn half_a_request(address: SocketAddr) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET /v1/clustersets/a/clusters HTTP/1.1\r\nHost: a\r\n")?;
    Ok(stream)
}

/// Waits until a probe says that the program is not ready: it must answer so, not be gone.
async fn turns_unready(url: &str) -> Result<()> {
    wait_for(&format!("{url} to say that it is not ready"), async || {
        let answer = get(url).await.map(drop);
        let text = answer.err().map(|error| format!("{error:#}")).context("still ready")?;
        ensure!(text.contains("503"), "{text}");
        Ok(())
    })
    .await
}
