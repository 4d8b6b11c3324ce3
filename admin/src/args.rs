//! The command line: global flags, subcommands, and how a run ends.
//!
//! Exit codes: 0 done, 1 failed, 2 usage. A failure is one plain line on standard error, whatever
//! the log format: the caller is a person or a script, not a collector of logs.

use crate::ask;
use crate::check::{self, CheckArgs};
use crate::confirm::{Confirm, Unconfirmed};
use crate::create::{self, CreateTable};
use crate::describe::{self, Describe};
use crate::remove::{self, DeleteCluster, NotRemoved};
use crate::store::StoreArgs;
use anyhow::Context;
use clap::{Parser, Subcommand};
use mcs_proto::client::RegistryClient;
use mcs_proto::url::{RegistryUrl, Scheme};
use mcs_runtime::args::{Check, LogArgs, MCS};
use mcs_runtime::clock::SystemClock;
use mcs_runtime::logs;
use mcs_runtime::tls::Metrics;
use mcs_runtime::tls::client::{ClientTls, RegistryTlsArgs};
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::Arc;

/// Prepares, inspects and mends what the clusters of a clusterset share
#[derive(Clone, Debug, PartialEq, Parser)]
#[command(name = "mcs-admin", mut_args(|flag| flag.global(true)))]
pub struct Args {
    // Plaintext needs no further flag here, unlike in a controller, where a URL decides for good where a cluster's
    // traffic goes: this program sends nothing secret, and its user sees the URL that was typed.
    /// URL of a registry's gRPC port, as in `https://registry.example:9090`; may be repeated or comma-separated: the
    /// first registry that answers is asked, whatever its store, and the flags of the store mean nothing. Without it,
    /// describe and delete-cluster use the store
    #[arg(long, value_name = "URL")]
    registry_url: Vec<RegistryUrl>,
    #[command(flatten)]
    tls: RegistryTlsArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    logs: LogArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, PartialEq, Subcommand)]
enum Command {
    /// Looks whether registries can be used from here and how their clusters are, and says what to do: run it first
    Check(CheckArgs),
    /// Makes the DynamoDB table that registries share, in one region or in several; may be run again
    CreateTable(CreateTable),
    /// Shows the clusters, exports and imports of a clusterset as a registry knows them, or as they are stored
    Describe(Describe),
    /// Removes a cluster from its clusterset, with all that it exports
    DeleteCluster(DeleteCluster),
}

impl Check for Args {
    // What is about the other side is not refused: in the pod of a registry or a controller the environment has it.
    fn check(&self) -> Result<(), String> {
        let Self { registry_url, tls, store, command, .. } = self;
        tls.check()?;
        match (command, registry_url.is_empty()) {
            (Command::CreateTable(_), _) => store.check(),
            (Command::Check(_), true) => Err(
                "--registry-url is missing: it names the registry to ask, as in https://registry.example:9090"
                    .to_owned(),
            ),
            (Command::Describe(_) | Command::DeleteCluster(_), true) => store.check(),
            (_, false) => {
                RegistryUrl::check_all(registry_url, true).map_err(|problem| format!("--registry-url: {problem}"))
            }
        }
    }
}

impl Args {
    /// Reads the flags, or ends the process: with exit code 2 and one line when they are refused.
    pub fn parse() -> Self {
        mcs_runtime::args::parse(&MCS)
    }

    /// Runs the subcommand.
    pub fn run(self) -> ExitCode {
        match self.try_run() {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                // Nobody is left to be told when standard error is closed.
                let _ = writeln!(std::io::stderr(), "mcs-admin: {error:#}");
                match error.downcast_ref() {
                    Some(NotRemoved::Unconfirmed(Unconfirmed::NoTerminal)) => ExitCode::from(USAGE),
                    _ => ExitCode::FAILURE,
                }
            }
        }
    }

    /// Says whether all is as the caller would have it.
    fn try_run(self) -> anyhow::Result<bool> {
        let Self { registry_url, tls, store, logs, command } = self;
        logs::init(&logs)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the threads of the program")?;
        let _within = runtime.enter();
        let tls = encryption(&registry_url, tls)?;
        let (text, is_good) = match command {
            Command::Check(check) => {
                runtime.block_on(check::run(&registry_url, tls.as_ref(), &SystemClock, &check))?
            }
            Command::CreateTable(create) => {
                // Each step is told when it is done: the last ones take minutes.
                runtime.block_on(create::run(store.settings(), &create, print_line))?;
                (String::new(), true)
            }
            Command::Describe(describe) if registry_url.is_empty() => {
                let text = runtime.block_on(async {
                    let (store, place) = store.open().await?;
                    anyhow::Ok(describe::from_store(&store, place, &describe).await?)
                });
                (text?, true)
            }
            Command::Describe(describe) => {
                let registries = clients(&registry_url, tls.as_ref())?;
                (runtime.block_on(describe::run(&registries, &describe))?, true)
            }
            Command::DeleteCluster(delete) => {
                let mut confirm = Confirm::of_process();
                if !delete.yes {
                    confirm.check().map_err(NotRemoved::from)?;
                }
                let text = if registry_url.is_empty() {
                    runtime.block_on(async {
                        let (store, place) = store.open().await?;
                        anyhow::Ok(remove::from_store(&store, &place, &delete, &mut confirm).await?)
                    })?
                } else {
                    let registries = clients(&registry_url, tls.as_ref())?;
                    runtime.block_on(remove::at_registry(&registries, &delete, &mut confirm))?
                };
                (text, true)
            }
        };
        print(&text).context("cannot write to standard output")?;
        Ok(is_good)
    }
}

/// Writes to standard output. A closed pipe (`describe | head -1`) is no failure.
fn print(text: &str) -> io::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Writes a line at once. That one cannot be written does not end what goes on.
fn print_line(line: &str) {
    let _ = print(&format!("{line}\n"));
}

/// The exit code of bad usage, that of refused flags.
const USAGE: u8 = 2;

/// TLS to these URLs; none where all are plaintext. Its files are read where they are needed.
fn encryption(urls: &[RegistryUrl], tls: RegistryTlsArgs) -> anyhow::Result<Option<ClientTls>> {
    if urls.iter().all(|url| url.scheme() == Scheme::Http) {
        return Ok(None);
    }
    Ok(Some(ClientTls::load(tls.files(), Arc::new(SystemClock), Metrics::default())?))
}

fn clients(urls: &[RegistryUrl], tls: Option<&ClientTls>) -> anyhow::Result<Vec<RegistryClient>> {
    ask::clients(urls, tls).context("--registry-url")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;
    use mcs_runtime::args::{MCS, Stop, try_parse};

    const URL: &str = "--registry-url=http://registry.example:9090";

    #[test]
    fn global_flags_stand_before_or_after_the_subcommand() {
        let wanted = Args {
            registry_url: vec!["http://registry.example:9090".parse().unwrap()],
            tls: RegistryTlsArgs::default(),
            store: StoreArgs::default(),
            logs: LogArgs { log_level: "debug".parse().unwrap(), ..LogArgs::default() },
            command: Command::Describe(Describe {
                clusterset: "prod".parse().unwrap(),
                output: Format::Table,
            }),
        };
        let after = read(&["describe", "--clusterset=prod", URL, "--log-level=debug"]);
        let before = read(&[URL, "--log-level=debug", "describe", "--clusterset=prod"]);
        assert_eq!((after, before), (Ok(wanted.clone()), Ok(wanted)));
    }

    #[test]
    fn several_registries_are_repeated_or_separated_by_commas() {
        let repeated = read(&["describe", "--clusterset=prod", URL, "--registry-url=http://b:1"]);
        let joined = read(&["describe", "--clusterset=prod", &format!("{URL},http://b:1")]);
        assert_eq!(repeated.clone().map(|args| args.registry_url.len()), Ok(2));
        assert_eq!(repeated, joined);
    }

    #[test]
    fn flags_of_the_store_stand_before_or_after_the_subcommand() {
        let after = read(&["create-table", "--table=t-1", "--region=us-east-1", "--replica-regions=a-1,b-2"]);
        let before = read(&["--store=dynamodb", "--region=us-east-1", "describe", "--clusterset=prod"]);
        assert!(after.is_ok() && before.is_ok(), "{after:?} {before:?}");
        assert!(read(&["describe", "--clusterset=prod"]).is_ok(), "AWS may know the region");
    }

    /// In the pod of a registry, variables give both.
    #[test]
    fn what_is_about_the_other_side_is_not_looked_at() {
        let store =
            ["--store=memory", "--table=t-1", "--region=us-east-1", "--endpoint=http://localhost:8000"];
        let delete = ["delete-cluster", "--clusterset=prod", "--cluster=east", URL];
        for command in [vec!["check", URL], vec!["describe", "--clusterset=prod", URL], delete.to_vec()] {
            let args = [&command[..], &store].concat();
            assert!(read(&args).is_ok(), "{args:?}");
        }
        assert!(read(&["create-table", URL, "--table=t-1"]).is_ok());
    }

    #[test]
    fn bad_flags_are_refused_in_one_line() {
        let cases: [(&[&str], &str); 17] = [
            (&[], "a subcommand is missing"),
            (
                &["describe", "--clusterset=prod", "--store=memory"],
                "--store=memory is in a registry's process: ask that with --registry-url",
            ),
            (
                &["create-table", "--store=memory"],
                "--store=memory is in a registry's process: ask that with --registry-url",
            ),
            (
                &["create-table", "--store=etcd"],
                "invalid value 'etcd' for '--store <STORE>' [possible values: memory, dynamodb]",
            ),
            (
                &["create-table", "--region=US East"],
                "invalid value 'US East' for '--region <REGION>': the name of a region has lower case letters, digits \
                 and '-', as in us-east-1",
            ),
            (
                &["create-table", "--replica-regions=us-east-1,-"],
                "invalid value '-' for '--replica-regions <REGION>': the name of a region has lower case letters, \
                 digits and '-', as in us-east-1",
            ),
            (
                &["create-table", "--table=t"],
                "invalid value 't' for '--table <TABLE>': the name of a table is 3 to 255 of a-z, A-Z, 0-9, '_', '-' \
                 and '.'",
            ),
            (
                &["describe", URL],
                "the following required arguments were not provided: --clusterset <CLUSTERSET>",
            ),
            (
                &["describe", URL, "--clusterset="],
                "invalid value '' for '--clusterset <CLUSTERSET>': clusterset \"\": must not be empty",
            ),
            (
                &["describe", URL, "--clusterset=Prod"],
                "invalid value 'Prod' for '--clusterset <CLUSTERSET>': clusterset \"Prod\": must consist of lower \
                 case letters, digits and '-', and begin and end with a letter or digit (DNS-1123 label)",
            ),
            (
                &["describe", URL, "--clusterset=prod", "-o", "csv"],
                "invalid value 'csv' for '--output <OUTPUT>' [possible values: table, json, yaml]",
            ),
            (
                &["describe", "--clusterset=prod", "--registry-url=registry:9090"],
                "invalid value 'registry:9090' for '--registry-url <URL>': registry URL \"registry:9090\": the scheme \
                 must be https or http; write it as https://host or http://host:9090, IPv6 hosts in brackets",
            ),
            (
                &["describe", "--clusterset=prod", "--registry-url=https://a", "--registry-tls-key-file=key"],
                "--registry-tls-key-file needs --registry-tls-cert-file",
            ),
            (
                &["describe", "--clusterset=prod", URL, "--registry-url=https://b"],
                "--registry-url: registry URLs must be all of one scheme, but http://registry.example:9090 and \
                 https://b:443 differ",
            ),
            (
                &["check"],
                "--registry-url is missing: it names the registry to ask, as in https://registry.example:9090",
            ),
            (
                &["delete-cluster", "--clusterset=prod", URL],
                "the following required arguments were not provided: --cluster <CLUSTER>",
            ),
            (&["descibe"], "unrecognized subcommand 'descibe'; tip: a similar subcommand exists: 'describe'"),
        ];
        let lines = cases.map(|(args, _)| read(args).map_err(|stop| stop.trim().to_owned()));
        let wanted = cases.map(|(_, why)| Err(format!("mcs-admin: {why} (see mcs-admin --help)")));
        assert_eq!(lines, wanted);
    }

    fn read(args: &[&str]) -> Result<Args, String> {
        try_parse::<Args>(&MCS, std::iter::once("mcs-admin").chain(args.iter().copied())).map_err(|stop| {
            match stop {
                Stop::Refused(line) => line,
                Stop::Shown(text) => panic!("help was shown: {text}"),
            }
        })
    }
}
