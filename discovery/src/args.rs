//! Flags, in groups by the mode that uses them.
//!
//! A flag of one mode is an option without a default of its own, so that it can be told whether it was given; a mode
//! that does not use it refuses it, wherever it came from. The defaults are applied afterwards.

mod table;

use crate::registrations::Storage;
use crate::{Config, Discovery, Sources, http, wire};
use anyhow::Context;
use clap::{Parser, ValueEnum};
use mcs_core::ids::{ClusterId, IdProblem, check_dns_label};
use mcs_core::pools::naming::{Naming, Services};
use mcs_core::pools::{Lease, ReplicaId, RouterReplica};
use mcs_runtime::args::{Check, Listen, LogArgs};
use mcs_runtime::clock::SystemClock;
use mcs_runtime::files::{fitting_connections, raise_open_files};
use mcs_runtime::http::BRINGS_WITHIN;
use mcs_runtime::shutdown::Shutdown;
use mcs_runtime::{logs, program, tls};
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

pub use table::TableArgs;

/// The heading of flags that only `--pool-discovery=registrations` uses.
pub const REGISTRATIONS_HEADING: &str = "Only with --pool-discovery=registrations";
/// The heading of flags that only `--pool-discovery=karmada` and `mcs` use.
pub const SLICES_HEADING: &str = "Only with --pool-discovery=karmada or mcs";
/// The heading of flags that only `--registration-storage=dynamodb` uses.
pub const DYNAMODB_HEADING: &str = "Only with --registration-storage=dynamodb";

/// Connections end after this, give or take a tenth, so that load spreads over replicas after a rollout, and a client
/// whose certificate ran out, or lost its authority, is noticed. Watches go on in new ones, with the whole list.
const CONNECTION_AGE: Duration = Duration::from_secs(30 * 60);
/// The body of a request may take this long; far more than one within the limit needs.
const REQUEST: Duration = Duration::from_secs(30);
/// A client may be silent on its connection for nearly two heartbeats, so that relays keep theirs, within these bounds:
/// what is enough for the head of a request, which with the default interval it is exactly; and after a minute another
/// connection costs less than an idle one.
const SILENCE: RangeInclusive<Duration> = BRINGS_WITHIN..=Duration::from_secs(60);
/// Files beside the connections: the listener, those who are told that there is no room, the watch of EndpointSlices,
/// and what the process itself has open.
const OTHER_FILES: usize = 256;

/// Tells inference routers which pools exist in all clusters, and relays which routers.
#[derive(Debug, Parser)]
#[command(name = "global-discovery-service")]
pub struct Args {
    /// Where the lists of pools and router replicas come from: `registrations` lists what registers and the routers
    /// given with --router; `karmada` and `mcs` join registrations with imported EndpointSlices
    #[arg(long, value_enum, default_value_t = PoolDiscovery::Registrations)]
    pub pool_discovery: PoolDiscovery,
    /// Where registrations are kept: `memory` suits one replica; `dynamodb` keeps them in a table that any number of
    /// replicas share, in any number of regions
    #[arg(long, value_enum, default_value_t = RegistrationStorage::Memory)]
    pub registration_storage: RegistrationStorage,
    /// Flags of every mode.
    #[command(flatten)]
    pub leases: LeaseArgs,
    /// Flags of `registrations`.
    #[command(flatten)]
    pub given: GivenArgs,
    /// Flags of `karmada` and `mcs`.
    #[command(flatten)]
    pub slices: SliceArgs,
    /// Flags of `dynamodb`.
    #[command(flatten)]
    pub table: TableArgs,
    /// Flags of the listener.
    #[command(flatten)]
    pub server: ServerArgs,
    /// Flags of certificates.
    #[command(flatten)]
    pub tls: TlsArgs,
    /// Flags of logs.
    #[command(flatten)]
    pub logs: LogArgs,
}

/// Values of `--pool-discovery`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PoolDiscovery {
    /// Pools are those that registered.
    Registrations,
    /// Pools are registered and imported by Karmada.
    Karmada,
    /// Pools are registered and imported by an implementation of KEP-1645.
    Mcs,
}

/// Values of `--registration-storage`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RegistrationStorage {
    /// In this process.
    Memory,
    /// In a table of DynamoDB.
    #[value(name = "dynamodb")]
    DynamoDb,
}

/// How long registrations hold.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Registrations")]
pub struct LeaseArgs {
    /// A pool is listed for this long after its last registration, in seconds, at most a day. The default outlives
    /// two lost heartbeats
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub lease_duration_secs: u64,
    /// How often relays are told to register again, in seconds; below the lease
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub heartbeat_interval_secs: u64,
    /// The most pools that may be registered; a further one is refused, and those that are registered go on. The default
    /// takes some 30 MB, and keeps who registers made-up names from taking all
    #[arg(long, value_name = "COUNT", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub max_pools: u32,
}

/// What `registrations` uses.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = REGISTRATIONS_HEADING)]
pub struct GivenArgs {
    /// A router replica that relays connect to, as in `aws-ohio/global-router-0=http://10.42.0.5:50051`; repeatable
    #[arg(long, value_name = "CLUSTER/REPLICA=URL")]
    pub router: Vec<RouterArg>,
}

/// What `karmada` and `mcs` use.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = SLICES_HEADING)]
pub struct SliceArgs {
    /// Namespace of the router Service; required
    #[arg(long, value_name = "NAMESPACE")]
    pub router_namespace: Option<Label>,
    /// The router Service; required
    #[arg(long, value_name = "SERVICE")]
    pub router_service: Option<Label>,
    /// Name of the router's TCP port; required
    #[arg(long, value_name = "PORT")]
    pub router_port_name: Option<Label>,
    /// A pool's relay Service is the DGD's name with this suffix [default: -pool-relay]
    #[arg(long, value_name = "SUFFIX", allow_hyphen_values = true)]
    pub pool_service_suffix: Option<Suffix>,
    /// A pool's frontend Service is the DGD's name with this suffix [default: -frontend]
    #[arg(long, value_name = "SUFFIX", allow_hyphen_values = true)]
    pub frontend_service_suffix: Option<Suffix>,
    /// Name of the frontend's TCP port [default: http]
    #[arg(long, value_name = "PORT")]
    pub frontend_port_name: Option<Label>,
}

/// What the listener uses.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Server")]
pub struct ServerArgs {
    /// Address of the HTTP API, with health and metrics. The default serves both address families
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "[::]:8080")]
    pub listen: Listen,
    /// The most bytes of a request's body, at most the 64 MiB that all bodies under way hold together. The default is far
    /// above what a registration needs
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20, value_parser = clap::value_parser!(u64).range(1..=http::HELD_BYTES as u64))]
    pub max_body_bytes: u64,
    /// The most connections at once; further ones are told so. The default holds two relays of 2,000 pools
    #[arg(long, value_name = "COUNT", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_connections: u32,
    /// The most watches of both lists at once; further ones are told so, and may list instead. The default is for
    /// hundreds of routers and relays with room for those who come back before their old connection is noticed as gone
    #[arg(long, value_name = "COUNT", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_streams: u32,
    /// After SIGTERM, requests are still answered for this long, in seconds, while the Pod leaves the Service's
    /// endpoints
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub drain_delay_secs: u64,
    /// After that, requests in flight may take this long, in seconds. Where both of its variables are set, the one that
    /// begins with DYN_GDS_ counts
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub shutdown_grace_secs: u64,
}

/// The certificates of the listener.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "TLS")]
pub struct TlsArgs {
    /// PEM file with the server's certificate and the intermediate ones, read again when it changes. With
    /// --tls-key-path, else the listener is plaintext
    #[arg(long, value_name = "FILE")]
    pub tls_cert_path: Option<PathBuf>,
    /// PEM file with the key of --tls-cert-path, read again when it changes
    #[arg(long, value_name = "FILE")]
    pub tls_key_path: Option<PathBuf>,
    /// PEM file with the CA certificates by which clients must be signed, read again when it changes. A certificate for
    /// `spiffe://CLUSTERSET/cluster/ID` or `ID.CLUSTERSET` then registers pools of that cluster only, any other reads,
    /// and who shows none, as the probes of a node, may GET /healthz, /readyz and /livez only. Without it no client is
    /// asked for a certificate
    #[arg(long, value_name = "FILE")]
    pub tls_client_ca_cert_path: Option<PathBuf>,
}

impl TlsArgs {
    fn files(self) -> Result<Option<tls::Files>, String> {
        let Self { tls_cert_path, tls_key_path, tls_client_ca_cert_path } = self;
        let flags = ["--tls-cert-path", "--tls-key-path", "--tls-client-ca-cert-path"];
        tls::Files::given(tls_cert_path, tls_key_path, tls_client_ca_cert_path, flags)
    }
}

/// A router replica given by a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterArg(RouterReplica);

impl FromStr for RouterArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || format!("{text:?} is not CLUSTER/REPLICA=URL");
        let (id, url) = text.split_once('=').ok_or_else(form)?;
        let (cluster, replica) = id.split_once('/').ok_or_else(form)?;
        check_dns_label(replica).map_err(|problem| format!("replica {replica:?} {problem}"))?;
        let cluster = ClusterId::new(cluster).map_err(|error| error.to_string())?;
        let id = ReplicaId { cluster, replica: replica.into() };
        Ok(Self(RouterReplica { id, url: wire::http_url(url)?.into() }))
    }
}

/// A name that is a DNS-1123 label, as those of namespaces, Services and ports are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label(String);

impl FromStr for Label {
    type Err = IdProblem;

    fn from_str(text: &str) -> Result<Self, IdProblem> {
        check_dns_label(text).map(|()| Self(text.to_owned()))
    }
}

/// What the name of a pool's Service ends in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suffix(String);

impl FromStr for Suffix {
    type Err = String;

    /// A value with two dashes is the next flag, taken for a value because this one has none.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with("--") {
            return Err("the value is missing, or begins with \"--\" as flags do".to_owned());
        }
        let label = format!("x{text}");
        check_dns_label(&label).map_err(|_| "cannot be the end of a Service's name".to_owned())?;
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for PoolDiscovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Registrations => "registrations",
            Self::Karmada => "karmada",
            Self::Mcs => "mcs",
        })
    }
}

impl fmt::Display for RegistrationStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::DynamoDb => "dynamodb",
        })
    }
}

impl SliceArgs {
    /// Its flags, each with whether it was given.
    fn given(&self) -> [(&'static str, bool); 6] {
        [
            ("--router-namespace", self.router_namespace.is_some()),
            ("--router-service", self.router_service.is_some()),
            ("--router-port-name", self.router_port_name.is_some()),
            ("--pool-service-suffix", self.pool_service_suffix.is_some()),
            ("--frontend-service-suffix", self.frontend_service_suffix.is_some()),
            ("--frontend-port-name", self.frontend_port_name.is_some()),
        ]
    }

    fn services(&self) -> Result<Services, String> {
        let required = |flag: &str, label: &Option<Label>| {
            let label = label.as_ref().map(|label| label.0.clone());
            label.ok_or_else(|| format!("{flag} is required with --pool-discovery=karmada and mcs"))
        };
        let suffix = |suffix: &Option<Suffix>, default: &str| {
            suffix.as_ref().map_or_else(|| default.to_owned(), |suffix| suffix.0.clone())
        };
        let services = Services {
            router_namespace: required("--router-namespace", &self.router_namespace)?,
            router_service: required("--router-service", &self.router_service)?,
            router_port: required("--router-port-name", &self.router_port_name)?,
            pool_suffix: suffix(&self.pool_service_suffix, "-pool-relay"),
            frontend_suffix: suffix(&self.frontend_service_suffix, "-frontend"),
            frontend_port: self
                .frontend_port_name
                .as_ref()
                .map_or_else(|| "http".to_owned(), |port| port.0.clone()),
        };
        let (pool, frontend) = (&services.pool_suffix, &services.frontend_suffix);
        if pool.ends_with(frontend.as_str()) || frontend.ends_with(pool.as_str()) {
            return Err(format!(
                "--pool-service-suffix {pool:?} and --frontend-service-suffix {frontend:?} must differ, and neither \
                 may be the end of the other, or a Service would be both"
            ));
        }
        Ok(services)
    }
}

impl Check for Args {
    fn check(&self) -> Result<(), String> {
        self.table.check(self.registration_storage, &self.leases)?;
        if self.leases.heartbeat_interval_secs >= self.leases.lease_duration_secs {
            return Err(format!(
                "--heartbeat-interval-secs ({}) must be below --lease-duration-secs ({}), or each pool lapses between \
                 two heartbeats",
                self.leases.heartbeat_interval_secs, self.leases.lease_duration_secs
            ));
        }
        self.tls.clone().files()?;
        let mode = self.pool_discovery;
        let unused = |flag: &str| format!("{flag} is not used with --pool-discovery={mode}; leave it out");
        match mode {
            PoolDiscovery::Registrations => {
                let given = self.slices.given().into_iter().find(|(_, is_given)| *is_given);
                given.map_or(Ok(()), |(flag, _)| Err(unused(flag)))?;
                let mut ids: Vec<_> = self.given.router.iter().map(|router| &router.0.id).collect();
                ids.sort();
                match ids.windows(2).find(|pair| pair[0] == pair[1]) {
                    Some(pair) => Err(format!("--router names {} twice", pair[0])),
                    None => Ok(()),
                }
            }
            PoolDiscovery::Karmada | PoolDiscovery::Mcs if !self.given.router.is_empty() => {
                Err(unused("--router"))
            }
            PoolDiscovery::Karmada | PoolDiscovery::Mcs => self.slices.services().map(drop),
        }
    }
}

impl Args {
    /// Runs the service to its end.
    pub fn run(self) -> ExitCode {
        program::run(|shutdown| self.serve(shutdown))
    }

    async fn serve(self, shutdown: Shutdown) -> anyhow::Result<()> {
        let Self { pool_discovery, registration_storage, leases, given, slices, table, server, tls, logs } =
            self;
        logs::init(&logs).context("cannot start logging")?;
        let naming = match pool_discovery {
            PoolDiscovery::Registrations => None,
            PoolDiscovery::Karmada => Some(Naming::Karmada),
            PoolDiscovery::Mcs => Some(Naming::Mcs),
        };
        let listener = server.listen.bind().await?;
        tracing::info!(
            version = mcs_runtime::version(),
            listen = %listener.local_addr()?,
            tls = tls.tls_cert_path.is_some(),
            client_certificates = tls.tls_client_ca_cert_path.is_some(),
            pool_discovery = %pool_discovery,
            registration_storage = %registration_storage,
            "global-discovery-service starts"
        );
        let sources = Box::pin(async move {
            let discovery = match naming {
                None => Discovery::Registrations(given.router.into_iter().map(|router| router.0).collect()),
                Some(naming) => {
                    let services = Box::new(slices.services().map_err(anyhow::Error::msg)?);
                    Discovery::Slices { naming, services, client: mcs_runtime::kube::client().await? }
                }
            };
            let storage = match registration_storage {
                RegistrationStorage::Memory => Storage::Memory,
                RegistrationStorage::DynamoDb => Storage::DynamoDb(table.connect().await?),
            };
            anyhow::Ok(Sources { discovery, storage })
        });
        let most = usize::try_from(server.max_connections)?;
        let heartbeats = Duration::from_secs(leases.heartbeat_interval_secs) * 9 / 5;
        let config = Config {
            lease: Lease {
                duration: Duration::from_secs(leases.lease_duration_secs),
                heartbeat_interval: Duration::from_secs(leases.heartbeat_interval_secs),
            },
            most_pools: usize::try_from(leases.max_pools)?,
            http: http::Limits {
                listener: mcs_runtime::http::Limits {
                    connections: fitting_connections(most, 1, OTHER_FILES, raise_open_files()),
                    header_read: heartbeats.clamp(*SILENCE.start(), *SILENCE.end()),
                    grace: Duration::from_secs(server.shutdown_grace_secs),
                    age: Some(CONNECTION_AGE),
                    ..mcs_runtime::http::Limits::default()
                },
                body: usize::try_from(server.max_body_bytes)?,
                request: REQUEST,
                streams: usize::try_from(server.max_streams)?,
            },
            tls: tls.files().map_err(anyhow::Error::msg)?,
            drain_delay: Duration::from_secs(server.drain_delay_secs),
        };
        crate::serve(config, sources, Arc::new(SystemClock), listener, shutdown.watch()).await?;
        tracing::info!("global-discovery-service ended");
        Ok(())
    }
}
