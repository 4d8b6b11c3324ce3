//! What is found at registries and in clustersets, judged: facts in, findings out.

use super::report::Finding;
use crate::output::{Description, conflict, counted, name, or_dash, time};
use mcs_core::ids::ClustersetId;
use mcs_core::time::{WallMillis, WallTime};
use mcs_proto::client::Identified;
use mcs_proto::connect::Fault;
use mcs_proto::pb;
use mcs_proto::status::CallFailed;
use mcs_proto::url::{RegistryUrl, Scheme};
use mcs_runtime::tls::{Certificate, Names};
use std::collections::BTreeSet;
use std::time::Duration;

/// Clocks that differ by more are told of. Nothing is decided by them but which of two clusters that took one id in two
/// regions keeps it; but people compare times of logs and renewals, and DynamoDB refuses requests from 5 minutes on.
const CLOCKS_DIFFER: Duration = Duration::from_secs(5);

/// A certificate of whose time less than one part of so many is left is told of: those that renew by themselves are renewed
/// earlier (cert-manager: when a third is left).
const LITTLE_TIME: i64 = 10;

/// One that is good for years is told of in its last days only, in seconds: enough for whoever renews it by hand.
const LAST_DAYS: i64 = 30 * 24 * 60 * 60;

/// So many findings of one kind in one clusterset are told one by one.
const NAMED: usize = 20;

/// Whether a registry can be reached.
pub(super) fn connection(url: &RegistryUrl, failed: Option<&CallFailed>) -> Finding {
    match failed {
        None if url.scheme() == Scheme::Http => Finding::warning(
            "connection",
            url,
            "answers, in plaintext: whoever is on the way can read and change what is sent",
            "give the registry a certificate (--tls-cert-file, --tls-key-file), and name it by an https URL",
        ),
        None => Finding::ok("connection", url, "answers, over TLS"),
        Some(failed) => Finding::failed("connection", url, failed.to_string(), unreached(failed)),
    }
}

fn unreached(failed: &CallFailed) -> &'static str {
    match failed {
        CallFailed::NotConnected(not) => match not.fault {
            Fault::Unresolved => "check the host of the URL, and the DNS of this machine",
            Fault::Unreachable | Fault::TimedOut => {
                "check that a registry runs there, that the URL has its gRPC port (9090 by default), and what is between"
            }
            Fault::UnknownCa => "name the CA of the registry's certificate with --registry-tls-ca-file",
            Fault::Expired => "renew the registry's certificate; it reads the new files by itself",
            Fault::WrongName => {
                "use a host of the URL that the certificate names, or issue one that names this host"
            }
            Fault::NotTls => "use an http URL, or give the registry a certificate",
            Fault::NotHttp2 => "use the gRPC port (9090 by default), and https where it speaks TLS",
            Fault::NoClientCert => {
                "name a certificate of the registry's client CA with --registry-tls-cert-file and --registry-tls-key-file"
            }
            Fault::ClientCertRefused => {
                "show a certificate that is good today and signed by the registry's --tls-client-ca-file"
            }
            Fault::BadCertificate | Fault::Protocol => "issue another certificate for the registry",
            Fault::Broken => "look at the registry's log, and at what is between",
        },
        CallFailed::TimedOut { .. } => "see whether the registry is overloaded, and what is between",
        _ => "look at the registry's log",
    }
}

/// Whether a registry does not know a call that is known here.
pub(super) fn is_unknown_call(failed: &CallFailed) -> bool {
    // A code as text, so that this program needs no transport of its own.
    matches!(failed, CallFailed::Unavailable { code, .. } if format!("{code:?}") == "Unimplemented")
}

/// A registry of a release before the call that says who it is.
pub(super) fn older(url: &RegistryUrl) -> Finding {
    Finding::warning(
        "registry",
        url,
        "does not say its version, its time and its clustersets: it is of an earlier release",
        "name a clusterset with --clusterset to see the rest; upgrade registries before controllers",
    )
}

/// The certificate that a registry shows.
pub(super) fn certificate(url: &RegistryUrl, certificate: &Certificate, now: WallTime) -> Finding {
    judged(
        "certificate",
        url.to_string(),
        certificate,
        now,
        "renew it; the registry reads the new files by itself",
    )
}

/// The certificate that registries are shown.
pub(super) fn own_certificate(certificate: &Certificate, now: WallTime) -> Finding {
    judged("client certificate", "--registry-tls-cert-file".to_owned(), certificate, now, "renew it")
}

fn judged(check: &'static str, of: String, certificate: &Certificate, now: WallTime, todo: &str) -> Finding {
    let Certificate { serial, not_before, not_after, names } = certificate;
    let names = names.as_ref().map_or_else(|| "names that cannot be read".to_owned(), shown);
    let (from, until) = (not_before.unix_secs(), not_after.unix_secs());
    let (now, until_shown) = (now.unix_secs(), time(until));
    let what = format!("{names}, serial {serial}");
    if now < from {
        return Finding::failed(
            check,
            of,
            format!("{what}: good from {} on only", time(from)),
            "check the clocks",
        );
    }
    if now > until {
        return Finding::failed(check, of, format!("{what}: expired at {until_shown}"), todo);
    }
    let (left, all) = (until.saturating_sub(now), until.saturating_sub(from));
    if left < (all / LITTLE_TIME).min(LAST_DAYS) {
        return Finding::warning(check, of, format!("{what}: expires soon, at {until_shown}"), todo);
    }
    Finding::ok(check, of, format!("{what}: good until {until_shown}"))
}

/// `DNS a, IP 192.0.2.1, URI spiffe://b/c`.
fn shown(names: &Names) -> String {
    let Names { uris, dns, ips } = names;
    let dns = dns.iter().map(|name| format!("DNS {name}"));
    let ips = ips.iter().map(|address| format!("IP {address}"));
    let all: Vec<_> = dns.chain(ips).chain(uris.iter().map(|uri| format!("URI {uri}"))).collect();
    if all.is_empty() { "no names".to_owned() } else { all.join(", ") }
}

/// What a registry says of itself.
pub(super) fn registry(url: &RegistryUrl, identified: &Identified) -> [Finding; 3] {
    let Identified { by, lease, degraded, shares_store, caller, .. } = identified;
    let lease = lease.as_secs_f64();
    let store = match (degraded, shares_store) {
        (true, _) => Finding::failed(
            "store",
            url,
            "does not take what it is given: changes are held in memory, and nothing expires",
            "the registry's log has the store's words (\"store does not take what it is given\")",
        ),
        (false, true) => Finding::ok("store", url, "shared with other registries, and up to date"),
        (false, false) => {
            Finding::ok("store", url, "memory: run one registry, and controllers refill it after a restart")
        }
    };
    [
        Finding::ok("registry", url, format!("version {}, leases of {lease} s", by.build)),
        Finding::ok("access", url, caller.clone()),
        store,
    ]
}

/// Whether all registries are of one version.
pub(super) fn builds(builds: &BTreeSet<String>) -> Option<Finding> {
    let all: Vec<_> = builds.iter().map(String::as_str).collect();
    (all.len() > 1).then(|| {
        Finding::warning(
            "registry",
            "--registry-url",
            format!("several versions: {}", all.join(", ")),
            "end the upgrade: only releases next to each other work together",
        )
    })
}

/// How far a registry's wall clock is from that of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offset {
    /// How many milliseconds it is ahead; below zero: behind.
    ahead: i64,
    /// It may be as much more or less.
    within: Duration,
}

impl Offset {
    /// That of a registry whose clock said `there` some time within the `took` after this one said `here`.
    pub(super) fn of(here: Option<WallMillis>, there: Option<WallMillis>, took: Duration) -> Option<Self> {
        let millis = |time: WallMillis| i64::try_from(time.unix_millis()).ok();
        let within = took / 2;
        let middle = millis(here?)?.checked_add(i64::try_from(within.as_millis()).ok()?)?;
        Some(Self { ahead: millis(there?)?.checked_sub(middle)?, within })
    }
}

/// Whether a registry's clock is right.
pub(super) fn clock(url: &RegistryUrl, offset: Option<Offset>) -> Finding {
    let todo = "set both clocks by NTP: certificates, requests to DynamoDB and times in logs depend on them";
    let Some(Offset { ahead, within }) = offset else {
        return Finding::warning("clock", url, "one of the clocks is before 1970", todo);
    };
    let apart = Duration::from_millis(ahead.unsigned_abs());
    if apart.saturating_sub(within) <= CLOCKS_DIFFER {
        return Finding::ok("clock", url, format!("within {CLOCKS_DIFFER:?} of that of this machine"));
    }
    let direction = if ahead < 0 { "behind" } else { "ahead of" };
    let found = format!("{} s {direction} that of this machine", apart.as_secs());
    Finding::warning("clock", url, found, todo)
}

/// A registry in which nobody has registered.
pub(super) fn no_clusterset(url: &RegistryUrl, says_so: bool) -> Finding {
    let found = if says_so { "no cluster has registered yet" } else { "its clustersets are not known" };
    Finding::warning(
        "clusters",
        url,
        found,
        "start an mcs-controller in each cluster, with this --registry-url; --clusterset looks at one by its name",
    )
}

/// A clusterset that a registry does not list.
pub(super) fn unlisted(clusterset: &ClustersetId, url: &RegistryUrl, failed: &CallFailed) -> Finding {
    let found = format!("cannot be listed at {url}: {failed}");
    Finding::failed("clusters", clusterset, found, "look at the registry's log")
}

/// Everything that is to be said of a clusterset.
pub(super) fn clusterset(description: &Description) -> Vec<Finding> {
    let Description { place, clusterset, clusters, imports, complete, .. } = description;
    let mut findings = vec![view(clusterset, place, clusters.len(), *complete)];
    if clusters.is_empty() {
        return findings;
    }
    findings.extend(clusters.iter().map(|known| cluster(clusterset, known)));
    findings.extend(conflicts(clusterset, imports));
    findings.extend(held_imports(clusterset, clusters));
    findings.extend(refused_exports(clusterset, clusters));
    findings
}

fn view(clusterset: &ClustersetId, place: &str, clusters: usize, complete: bool) -> Finding {
    match (clusters, complete) {
        (_, false) => Finding::warning(
            "clusters",
            clusterset,
            format!("{clusters} at {place}, which does not know all of them yet"),
            "look again in a minute: a registry that has started waits a lease for them, or for its store",
        ),
        (0, true) => Finding::warning(
            "clusters",
            clusterset,
            format!("none at {place}"),
            format!("start an mcs-controller in each cluster, with --clusterset-id={clusterset}"),
        ),
        (_, true) => {
            Finding::ok("clusters", clusterset, format!("{clusters} at {place}, which knows all of them"))
        }
    }
}

fn cluster(clusterset: &ClustersetId, cluster: &pb::Cluster) -> Finding {
    let pb::Cluster { cluster: id, region, build, lease, .. } = cluster;
    let (exports, endpoints) = (cluster.exports, cluster.endpoints);
    let lease = lease.unwrap_or_default();
    let (of, check) = (format!("{clusterset}/{id}"), "cluster");
    let renewed = lease.renewed_at.map_or_else(|| "-".to_owned(), |at| time(at.seconds));
    let about = format!(
        "renewed at {renewed}, region {}, controller {}, {} and {}",
        or_dash(region),
        or_dash(build),
        counted(exports.into(), "export"),
        counted(endpoints.into(), "endpoint")
    );
    match pb::LeaseState::try_from(lease.state) {
        Ok(pb::LeaseState::Active) => Finding::ok(check, of, format!("active, {about}")),
        Ok(pb::LeaseState::Expired) => Finding::failed(
            check,
            of,
            format!("lease expired, its endpoints are not imported; {about}"),
            format!(
                "see the log of its mcs-controller, and whether it reaches the registry; a cluster that is gone for good: \
                 mcs-admin delete-cluster --clusterset={clusterset} --cluster={id}"
            ),
        ),
        Ok(pb::LeaseState::Syncing) => Finding::warning(
            check,
            of,
            format!("syncing, not all of its exports are known yet; {about}"),
            "look again in a minute; where it stays so its syncs fail, and the log of its mcs-controller says why",
        ),
        Ok(pb::LeaseState::Held) => Finding::warning(
            check,
            of,
            format!("lease held: it is silent, and too many others are to judge; {about}"),
            "see whether clusters reach the registry; they are judged when the hold ends, a lease later by default",
        ),
        Ok(pb::LeaseState::Unspecified) | Err(_) => Finding::warning(
            check,
            of,
            format!("state {} of its lease is not known here; {about}", lease.state),
            "use an mcs-admin of the registry's release",
        ),
    }
}

fn conflicts(clusterset: &ClustersetId, imports: &[pb::Import]) -> Vec<Finding> {
    let differ = imports.iter().filter(|import| !import.conflicts.is_empty()).map(|import| {
        let conflicts: Vec<_> = import.conflicts.iter().map(conflict).collect();
        Finding::warning(
            "conflict",
            format!("{clusterset}/{}", name(import.key.as_ref())),
            conflicts.join("; "),
            "make the Services alike in all clusters; until then the oldest export decides",
        )
    });
    let none = || Finding::ok("conflict", clusterset, format!("none in {} imports", imports.len()));
    bounded("conflict", clusterset, differ.collect(), 0, none)
}

fn held_imports(clusterset: &ClustersetId, clusters: &[pb::Cluster]) -> Vec<Finding> {
    let (mut findings, mut unnamed) = (Vec::new(), 0);
    for cluster in clusters {
        let Some(pb::HeldImports { total, first }) = &cluster.held_imports else { continue };
        unnamed += more(*total, first.len());
        findings.extend(first.iter().map(|key| {
            Finding::warning(
                "held import",
                format!("{clusterset}/{}", cluster.cluster),
                format!("{} waits for its namespace", name(Some(key))),
                "make the namespace in that cluster, or start its mcs-controller with --create-namespaces",
            )
        }));
    }
    bounded("held import", clusterset, findings, unnamed, || Finding::ok("held import", clusterset, "none"))
}

fn refused_exports(clusterset: &ClustersetId, clusters: &[pb::Cluster]) -> Vec<Finding> {
    let (mut findings, mut unnamed) = (Vec::new(), 0);
    for cluster in clusters {
        let Some(pb::RefusedExports { total, first }) = &cluster.refused_exports else { continue };
        unnamed += more(*total, first.len());
        findings.extend(first.iter().map(|pb::RefusedExport { key, field, problem }| {
            Finding::failed(
                "refused export",
                format!("{clusterset}/{}", cluster.cluster),
                format!("{}: {field}: {problem}", name(key.as_ref())),
                "mend the Service or ServiceExport in that cluster; what was taken of it before stands",
            )
        }));
    }
    bounded("refused export", clusterset, findings, unnamed, || {
        Finding::ok("refused export", clusterset, "none")
    })
}

/// How many of `total` are not named.
fn more(total: u32, named: usize) -> usize {
    usize::try_from(total).unwrap_or(usize::MAX).saturating_sub(named)
}

/// The first of the findings of one kind, and how many there are besides.
fn bounded(
    check: &'static str,
    clusterset: &ClustersetId,
    mut findings: Vec<Finding>,
    unnamed: usize,
    none: impl FnOnce() -> Finding,
) -> Vec<Finding> {
    let more = findings.len().saturating_sub(NAMED).saturating_add(unnamed);
    let Some(last) = findings.first().map(|first| first.verdict) else { return vec![none()] };
    findings.truncate(NAMED);
    if more > 0 {
        let found = format!("and {more} more");
        let todo = format!("mcs-admin describe --clusterset={clusterset} shows them");
        findings.push(Finding { verdict: last, todo: Some(todo), ..Finding::ok(check, clusterset, found) });
    }
    findings
}

#[cfg(test)]
mod tests;
