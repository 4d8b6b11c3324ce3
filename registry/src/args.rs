//! Flags → [`Config`]. Every flag has a variable `DYN_MCS_<FLAG>`.

mod store;

use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use mcs_core::registry::Policy;
use mcs_core::timing::{DEFAULT_LEASE, MAX_LEASE, MIN_LEASE, Timing};
use mcs_runtime::args::{Check, Listen, LogArgs, MCS, duration};
use mcs_runtime::clock::SystemClock;
use mcs_runtime::files::{fitting_connections, raise_open_files};
use mcs_runtime::tls::TlsArgs;
use mcs_runtime::{logs, program};

pub use self::store::{DEFAULT_TABLE, Kind, StoreArgs};
use crate::{Config, Listeners, PORTS, Replication};

/// Fewer active clusters than this are never held: among two, one silent cluster is half of them.
const MASS_EXPIRY_MIN_ACTIVE: usize = 3;

/// The least message limit: a chunk of 1 MiB and what is around it must fit.
const MIN_MESSAGE_BYTES: usize = 2 * 1024 * 1024;

/// A connection lives at least this many leases, as two thirds of one are enough to look silent.
const LEASES_OF_A_CONNECTION: u32 = 4;

/// Files beside the connections of the gRPC and REST ports: listeners, those of the admin port and of the store, those
/// that are told that there is no room, and what the process itself has open.
const OTHER_FILES: usize = 512;

/// What the bodies of requests under way hold together: four of the largest writes, or 500 of the size that controllers
/// send. Syncs count by the message, so that all controllers may sync at once.
const MAX_REQUEST_BYTES: usize = 256 * 1024 * 1024;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Holds the clusters of clustersets and what they export, and merges their exports into imports
#[derive(Clone, Debug, PartialEq, Parser)]
#[command(name = "mcs-registry")]
pub struct Args {
    /// Address of the gRPC port, which controllers use. The default serves both address families
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "[::]:9090")]
    pub grpc_listen: Listen,
    /// Address of the REST port, which people and scripts use
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "[::]:8080")]
    pub rest_listen: Listen,
    /// Address of the admin port with /metrics, /healthz and /readyz, always plaintext
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "[::]:9091")]
    pub admin_listen: Listen,
    /// Where records are kept.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Leases, and when they are judged.
    #[command(flatten)]
    pub leases: LeaseArgs,
    /// Connections are ended after this, give or take a tenth, so that load spreads over replicas after a rollout. At
    /// least 4 lease durations
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "30m")]
    pub max_connection_age: Duration,
    /// How much the registry takes.
    #[command(flatten)]
    pub limits: LimitArgs,
    /// Certificates of the gRPC and REST ports.
    #[command(flatten)]
    pub tls: TlsArgs,
    /// How logs are written.
    #[command(flatten)]
    pub logs: LogArgs,
}

/// Flags of leases.
#[derive(Clone, Copy, Debug, PartialEq, clap::Args)]
pub struct LeaseArgs {
    /// How long a cluster's endpoints are shown after its last renewal. Controllers renew every third of it; all other
    /// times follow from it
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = DEFAULT_LEASE_TEXT)]
    pub lease_duration: Duration,
    /// When more than this share of at least 3 active clusters is silent at once, no lease is judged for a while: that
    /// is more likely a fault of the registry. 1 never holds
    #[arg(long, value_name = "SHARE", default_value = "0.5")]
    pub mass_expiry_threshold: Share,
    /// How long leases are not judged then [default: the lease duration]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub mass_expiry_hold: Option<Duration>,
}

/// Flags of limits.
#[derive(Clone, Copy, Debug, PartialEq, clap::Args)]
pub struct LimitArgs {
    /// The largest message that is read, in bytes. The default is gRPC's own; larger sets of endpoints are split
    #[arg(long, value_name = "BYTES", default_value_t = 4 * 1024 * 1024)]
    pub max_message_bytes: usize,
    /// The most connections of the gRPC and of the REST port, each; further ones are told so. With the default, five for
    /// each of the most clusters of a clusterset, both ports full of idle connections take less than 300 MB
    #[arg(long, value_name = "COUNT", default_value_t = 5_000)]
    pub max_connections: usize,
    /// The most watches and syncs at once, over all connections; further ones are told so. The default is ten for each
    /// of the most clusters of a clusterset
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    pub max_streams: usize,
    /// The most clusters of a clusterset
    #[arg(long, value_name = "COUNT", default_value_t = 1_000)]
    pub max_clusters: usize,
    /// The most exports of a cluster
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    pub max_exports_per_cluster: usize,
    /// The most writes a second of one cluster; further ones are to be sent again. The default is five times what the
    /// changes of a large cluster need, and keeps one that errs from taking the registry away from the others.
    /// Renewals and syncs are not counted
    #[arg(long, value_name = "COUNT", default_value_t = 1_000)]
    pub max_writes_per_second: u32,
}

const DEFAULT_LEASE_TEXT: &str = "30s";
const _: () = assert!(DEFAULT_LEASE.as_secs() == 30, "the default of the flag is that of the core");

/// A share of 0 to 1, kept in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(u8);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let share: f64 = text.parse().map_err(|_| "not a number from 0 to 1, as in 0.5".to_owned())?;
        let percent = (0..=100).find(|percent| (f64::from(*percent) - share * 100.0).abs() < 1e-6);
        percent
            .map(Self)
            .ok_or_else(|| "not a number from 0 to 1 with at most two decimals, as in 0.5".to_owned())
    }
}

impl Check for Args {
    fn check(&self) -> Result<(), String> {
        self.store.check(self.leases.lease_duration)?;
        self.leases.check()?;
        let LeaseArgs { lease_duration, .. } = self.leases;
        if self.max_connection_age > DAY * 365 {
            return Err("--max-connection-age must be at most 365 days".to_owned());
        }
        let least_age = lease_duration * LEASES_OF_A_CONNECTION;
        if self.max_connection_age < least_age {
            return Err(format!(
                "--max-connection-age must be at least {least_age:?}, {LEASES_OF_A_CONNECTION} times \
                 --lease-duration: a renewal or a sync must not often meet the end of its connection"
            ));
        }
        self.limits.check()?;
        self.tls.check()
    }
}

impl Check for LeaseArgs {
    fn check(&self) -> Result<(), String> {
        if self.lease_duration < MIN_LEASE {
            return Err(format!(
                "--lease-duration must be at least {MIN_LEASE:?}: shorter, delays look like deaths"
            ));
        }
        for (flag, duration) in
            [("lease-duration", Some(self.lease_duration)), ("mass-expiry-hold", self.mass_expiry_hold)]
        {
            if duration.is_some_and(|duration| duration > MAX_LEASE) {
                return Err(format!("--{flag} must be at most {} days", MAX_LEASE.as_secs() / DAY.as_secs()));
            }
        }
        Ok(())
    }
}

impl Check for LimitArgs {
    fn check(&self) -> Result<(), String> {
        if self.max_message_bytes < MIN_MESSAGE_BYTES {
            return Err(format!(
                "--max-message-bytes must be at least {MIN_MESSAGE_BYTES}: chunks have up to 1 MiB"
            ));
        }
        for (flag, is_zero) in [
            ("max-clusters", self.max_clusters == 0),
            ("max-exports-per-cluster", self.max_exports_per_cluster == 0),
            ("max-connections", self.max_connections == 0),
            ("max-streams", self.max_streams == 0),
            ("max-writes-per-second", self.max_writes_per_second == 0),
        ] {
            if is_zero {
                return Err(format!("--{flag} must be at least 1"));
            }
        }
        Ok(())
    }
}

/// What the flags say, by who uses it.
struct Given {
    config: Config,
    grpc: Listen,
    rest: Listen,
    admin: Listen,
    store: StoreArgs,
    tls: TlsArgs,
    logs: LogArgs,
}

impl Args {
    /// Reads the flags, or ends the process: with exit code 2 and one line when they are refused.
    pub fn parse() -> Self {
        mcs_runtime::args::parse(&MCS)
    }

    /// What the flags say of the registry itself.
    pub fn config(self) -> Config {
        self.given().config
    }

    /// Takes all flags: one that nothing uses does not compile.
    fn given(self) -> Given {
        let Self {
            grpc_listen: grpc,
            rest_listen: rest,
            admin_listen: admin,
            store,
            leases: LeaseArgs { lease_duration, mass_expiry_threshold, mass_expiry_hold },
            max_connection_age,
            limits:
                LimitArgs {
                    max_message_bytes,
                    max_connections,
                    max_streams,
                    max_clusters,
                    max_exports_per_cluster,
                    max_writes_per_second,
                },
            tls,
            logs,
        } = self;
        let policy = Policy {
            timing: Timing::of_lease(lease_duration),
            mass_expiry_threshold_percent: mass_expiry_threshold.0,
            mass_expiry_min_active: MASS_EXPIRY_MIN_ACTIVE,
            mass_expiry_hold: mass_expiry_hold.unwrap_or(lease_duration),
            max_clusters,
            max_exports: max_exports_per_cluster,
            max_writes_per_second,
        };
        let config = Config {
            policy,
            replication: store.replication(),
            max_connection_age,
            max_message_bytes,
            max_connections,
            max_streams,
            max_request_bytes: MAX_REQUEST_BYTES,
        };
        Given { config, grpc, rest, admin, store, tls, logs }
    }

    /// Runs the registry until a signal ends it. Exit code 1, with the reason in the log, when it cannot.
    pub fn run(self) -> ExitCode {
        let Given { config, grpc, rest, admin, store, tls, logs } = self.given();
        program::run(|shutdown| async move {
            logs::init(&logs)?;
            let max_connections =
                fitting_connections(config.max_connections, PORTS.len(), OTHER_FILES, raise_open_files());
            let config = Config { max_connections, ..config };
            let clock = Arc::new(SystemClock);
            let (store, region) = store.open(config.policy.timing, clock.clone()).await?;
            let config = Config { replication: Replication { region, ..config.replication }, ..config };
            let listeners = Listeners {
                grpc: grpc.bind().await?,
                rest: rest.bind().await?,
                admin: admin.bind().await?,
                tls: tls.files(),
            };
            crate::serve(config, clock, store, listeners, shutdown.watch()).await
        })
    }
}
