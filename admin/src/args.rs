//! The command line: global flags, subcommands, and how a run ends.
//!
//! Exit codes: 0 done, 1 failed, 2 usage. A failure is one plain line on standard error, whatever
//! the log format: the caller is a person or a script, not a collector of logs.

use crate::ask;
use crate::check::{self, CheckArgs};
use crate::confirm::{Confirm, Unconfirmed};
use crate::describe::{self, Describe};
use crate::remove::{self, DeleteCluster, NotRemoved};
use anyhow::Context;
use clap::{Parser, Subcommand};
use mcs_proto::client::RegistryClient;
use mcs_proto::url::{InvalidUrl, RegistryUrl, Scheme};
use mcs_runtime::args::{Check, LogArgs, MCS};
use mcs_runtime::clock::SystemClock;
use mcs_runtime::logs;
use mcs_runtime::tls::Metrics;
use mcs_runtime::tls::client::{ClientTls, RegistryTlsArgs};
use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::sync::Arc;

/// Prepares, inspects and mends what the clusters of a clusterset share
#[derive(Clone, Debug, PartialEq, Parser)]
#[command(name = "mcs-admin", mut_args(|flag| flag.global(true)))]
pub struct Args {
    // Plaintext needs no further flag here, unlike in a controller, where a URL decides for good where a cluster's
    // traffic goes: this program sends nothing secret, and its user sees the URL that was typed.
    /// URL of a registry's gRPC port, as in `https://registry.example:9090`; may be repeated or comma-separated: the
    /// first registry that answers is asked
    #[arg(long, value_name = "URL")]
    registry_url: Vec<RegistryUrl>,
    #[command(flatten)]
    tls: RegistryTlsArgs,
    #[command(flatten)]
    logs: LogArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, PartialEq, Subcommand)]
enum Command {
    /// Looks whether registries can be used from here and how their clusters are, and says what to do: run it first
    Check(CheckArgs),
    /// Shows the clusters, exports and imports of a clusterset as a registry knows them
    Describe(Describe),
    /// Removes a cluster from its clusterset, with all that it exports
    DeleteCluster(DeleteCluster),
}

impl Check for Args {
    fn check(&self) -> Result<(), String> {
        self.tls.check()?;
        RegistryUrl::check_all(&self.registry_url, true).map_err(|problem| match problem {
            InvalidUrl::None => {
                "--registry-url is missing: it names the registry to ask, as in https://registry.example:9090"
                    .to_owned()
            }
            other => format!("--registry-url: {other}"),
        })
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
        let Self { registry_url, tls, logs, command } = self;
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
            Command::Describe(describe) => {
                let registries = clients(&registry_url, tls.as_ref())?;
                (runtime.block_on(describe::run(&registries, &describe))?, true)
            }
            Command::DeleteCluster(delete) => {
                let mut confirm = Confirm::of_process();
                if !delete.yes {
                    confirm.check().map_err(NotRemoved::from)?;
                }
                let registries = clients(&registry_url, tls.as_ref())?;
                (runtime.block_on(remove::at_registry(&registries, &delete, &mut confirm))?, true)
            }
        };
        match std::io::stdout().write_all(text.as_bytes()) {
            // A closed pipe (`describe | head -1`) is no failure.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            written => written.context("cannot write to standard output")?,
        }
        Ok(is_good)
    }
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
    fn bad_flags_are_refused_in_one_line() {
        let cases: [(&[&str], &str); 13] = [
            (&[], "a subcommand is missing"),
            (
                &["describe", "--clusterset=prod"],
                "--registry-url is missing: it names the registry to ask, as in https://registry.example:9090",
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
            (
                &["describe", "--clusterset=prod", URL, "--store=dynamodb"],
                "unexpected argument '--store' found",
            ),
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
