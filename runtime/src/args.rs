//! Flags: how every program reads, documents and refuses them.
//!
//! Guarantees: every flag with a long name has an environment variable, by construction ([`Environment`]); an empty
//! value is refused, wherever it came from; a list is repeatable and comma-separated; bad flags end the program with
//! exit code 2 and *one* line on standard error that says which and why. `--help` and `--version` go to standard
//! output, exit code 0.

use std::ffi::OsString;
use std::fmt;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, Parser};
use tokio::net::TcpListener;

use crate::logs::{LogFilter, LogFormat};

/// How the environment variables of a program are called: `<prefix><FLAG>`, with further names for single flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Environment {
    /// What stands before the flag's name in upper case.
    pub prefix: &'static str,
    /// A flag's long name and a further variable, which is read when the one with the prefix is not set.
    pub others: &'static [(&'static str, &'static str)],
}

/// The variables of mcs-registry, mcs-controller and mcs-admin.
pub const MCS: Environment = Environment { prefix: "DYN_MCS_", others: &[] };

/// The variables of the Global Discovery Service; two of its flags also go by the names that the Dynamo components
/// share.
pub const GDS: Environment = Environment {
    prefix: "DYN_GDS_",
    others: &[("log-level", "DYN_LOG"), ("shutdown-grace-secs", "DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS")],
};

/// What `--log-format` and `--log-level` say.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
#[command(next_help_heading = "Logs")]
pub struct LogArgs {
    /// How log lines are written to standard error: `text` for people, `json` for collectors
    #[arg(long, value_enum, default_value_t = LogFormat::Text, ignore_case = true)]
    pub log_format: LogFormat,
    /// Least level that is logged: off, error, warn, info, debug or trace; with comma-separated exceptions by module,
    /// as in `info,mcs_registry=debug`. The default tells of each change that a person would want to know of
    #[arg(long, value_name = "LEVEL", default_value_t = LogFilter::default())]
    pub log_level: LogFilter,
}

/// What `--admin-listen` says.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Admin port")]
pub struct AdminArgs {
    /// Address of the admin port with /metrics, /healthz and /readyz. The default serves both address families, since
    /// probes and scrapers come from other hosts
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "[::]:8080")]
    pub admin_listen: Listen,
}

/// An address to listen on, such as `[::]:8080` or `0.0.0.0:9090`; port 0 takes any free port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen(SocketAddr);

impl Listen {
    /// The address.
    pub const fn address(self) -> SocketAddr {
        self.0
    }

    /// Opens the listener. `[::]` takes IPv4 too; on a host without IPv6 it means `0.0.0.0`.
    ///
    /// # Errors
    /// The address and what the system said of it.
    pub async fn bind(self) -> Result<TcpListener, CannotListen> {
        let refused = |source| CannotListen { address: self, source };
        match TcpListener::bind(self.0).await {
            Err(error) if self.0.ip() == Ipv6Addr::UNSPECIFIED && lacks_ipv6(&error) => {
                let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, self.0.port()));
                TcpListener::bind(any).await.map_err(refused)
            }
            other => other.map_err(refused),
        }
    }
}

/// Whether the host has no IPv6 at all: no such address, or (error 97, `EAFNOSUPPORT`) no such family.
fn lacks_ipv6(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(97)
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Listen {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(address) = text.parse() {
            return Ok(Self(address));
        }
        Err(match text.rsplit_once(':') {
            Some((host, port)) if port.parse::<u16>().is_ok() && host.parse::<Ipv6Addr>().is_ok() => {
                BadAddress::Brackets { host: host.to_owned(), port: port.to_owned() }
            }
            Some((host, port)) if port.parse::<u16>().is_ok() && host == "::" => {
                BadAddress::Brackets { host: host.to_owned(), port: port.to_owned() }
            }
            _ if text.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() => BadAddress::NoPort,
            _ => BadAddress::Form,
        })
    }
}

/// Why a text is no address to listen on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    /// An IPv6 address without brackets, in which no one can tell the port.
    #[error("an IPv6 address goes in brackets: [{host}]:{port}")]
    Brackets {
        /// The address.
        host: String,
        /// The port.
        port: String,
    },
    /// The port is missing.
    #[error("the port is missing, as in [::]:8080")]
    NoPort,
    /// Anything else.
    #[error("not an IP address and a port, as in [::]:8080 or 0.0.0.0:8080")]
    Form,
}

/// A listener could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}")]
pub struct CannotListen {
    address: Listen,
    source: std::io::Error,
}

/// Reads a duration flag such as `30s` or `1m 30s`.
///
/// # Errors
/// What is wrong with the text; a number without a unit is refused, since it would be read as different things.
pub fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}, as in 30s or 1m 30s"))
}

/// Why a program does not start with the flags it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Help or the version was asked for: the text for standard output, exit code 0.
    Shown(String),
    /// Bad flags: one line for standard error, exit code 2.
    Refused(String),
}

impl Stop {
    /// Prints the text where it belongs and ends the process.
    pub fn exit(self) -> ! {
        let code = match self {
            Self::Shown(text) => {
                // A closed pipe (`--help | head -1`) is no failure.
                let _ = std::io::stdout().write_all(text.as_bytes());
                0
            }
            Self::Refused(line) => {
                let _ = writeln!(std::io::stderr(), "{line}");
                2
            }
        };
        std::process::exit(code)
    }
}

/// Flags that have rules among each other.
pub trait Check {
    /// Looks at the flags together.
    ///
    /// # Errors
    /// One line that names the flag and says what is wrong with it.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Reads the flags of the program, or ends it.
pub fn parse<A: Parser + Check>(environment: &Environment) -> A {
    try_parse::<A>(environment, std::env::args_os()).unwrap_or_else(|stop| stop.exit())
}

/// Reads `args`, of which the first is the program's name.
///
/// # Errors
/// Help or version were asked for, or the flags are refused.
pub fn try_parse<A: Parser + Check>(
    environment: &Environment,
    args: impl IntoIterator<Item = impl Into<OsString>>,
) -> Result<A, Stop> {
    let args: Vec<OsString> = args.into_iter().map(Into::into).collect();
    let mut command = command::<A>(environment);
    let name = command.get_name().to_owned();
    let refused = |why: &str| Stop::Refused(format!("{name}: {why} (see {name} --help)"));

    let matches = command.try_get_matches_from_mut(&args).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Stop::Shown(error.render().to_string()),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => refused("a subcommand is missing"),
        _ => refused(&one_line(&error, &command, &args)),
    })?;
    if let Some(flag) = empty_value(&command, &matches) {
        return Err(refused(&format!("the value of {flag} is empty")));
    }
    let parsed =
        A::from_arg_matches(&matches).map_err(|error| refused(&one_line(&error, &command, &args)))?;
    parsed.check().map_err(|why| refused(&why))?;
    Ok(parsed)
}

/// The command line of `A` with a variable for every flag and the version of the programs.
///
/// A test of a program goes over it to see that each flag is where it belongs.
pub fn command<A: Parser>(environment: &Environment) -> Command {
    with_variables(A::command().version(crate::version()), environment)
}

fn with_variables(command: Command, environment: &Environment) -> Command {
    command
        .mut_args(|arg| with_variable(arg, environment))
        .mut_subcommands(|subcommand| with_variables(subcommand, environment))
}

fn with_variable(arg: Arg, environment: &Environment) -> Arg {
    let Some(flag) = arg.get_long().map(str::to_owned) else {
        return arg;
    };
    if matches!(
        arg.get_action(),
        ArgAction::Help | ArgAction::HelpLong | ArgAction::HelpShort | ArgAction::Version
    ) {
        return arg;
    }
    let arg = if matches!(arg.get_action(), ArgAction::Append) { arg.value_delimiter(',') } else { arg };
    let own = variable(environment.prefix, &flag);
    let other = environment.others.iter().find(|(of, _)| *of == flag).map(|(_, name)| *name);
    match other {
        Some(other) if std::env::var_os(&own).is_none() && std::env::var_os(other).is_some() => {
            arg.env(other)
        }
        _ => arg.env(own),
    }
}

/// The variable of a flag: `lease-duration` is `DYN_MCS_LEASE_DURATION`.
fn variable(prefix: &str, flag: &str) -> String {
    format!("{prefix}{}", flag.replace('-', "_").to_uppercase())
}

/// The first flag that was given an empty value, and by whom.
fn empty_value(command: &Command, matches: &ArgMatches) -> Option<String> {
    let of_this = command.get_arguments().find_map(|arg| {
        let id = arg.get_id().as_str();
        let source = matches.value_source(id)?;
        let empty = matches.get_raw(id)?.any(|value| value.is_empty());
        let flag = arg.get_long()?;
        match source {
            _ if !empty => None,
            ValueSource::CommandLine => Some(format!("--{flag}")),
            ValueSource::EnvVariable => Some(format!("{} (--{flag})", arg.get_env()?.to_string_lossy())),
            _ => None,
        }
    });
    of_this.or_else(|| {
        let (name, matches) = matches.subcommand()?;
        empty_value(command.find_subcommand(name)?, matches)
    })
}

/// What clap says in several lines, in one: the message and its hints, without usage. A flag that was set by a
/// variable is named with it, since no one looks for a bad flag in the environment.
fn one_line(error: &clap::Error, command: &Command, args: &[OsString]) -> String {
    let text = error.render().to_string();
    let body = text.split("\nUsage:").next().unwrap_or_default();
    let body = body.split("\nFor more information").next().unwrap_or_default();
    let hinted = body.replace("\n\n", "; ");
    let line = hinted.trim_end_matches("; ").split_whitespace().collect::<Vec<_>>().join(" ");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    match variable_of(error, command, args) {
        Some(variable) => format!("{line} (set by {variable})"),
        None => line.to_owned(),
    }
}

/// The variable that set the flag an error is about.
fn variable_of(error: &clap::Error, command: &Command, args: &[OsString]) -> Option<String> {
    let Some(ContextValue::String(shown)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let flag = shown.split([' ', '=']).next()?;
    let given = args.iter().filter_map(|arg| arg.to_str()).any(|arg| arg.split('=').next() == Some(flag));
    let arg = all_args(command).into_iter().find(|arg| arg.get_long() == flag.strip_prefix("--"))?;
    let variable = arg.get_env()?;
    (!given && std::env::var_os(variable).is_some()).then(|| variable.to_string_lossy().into_owned())
}

fn all_args(command: &Command) -> Vec<&Arg> {
    command.get_arguments().chain(command.get_subcommands().flat_map(all_args)).collect()
}

#[cfg(test)]
mod tests;
