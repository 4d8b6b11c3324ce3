//! `mcs-admin check`: whether registries can be used from here, and how the clusters are that they know.
//!
//! Every URL is looked at by itself, since a controller may need each of them; the clusters are those of the first
//! registry that answers. What is found is judged in `look`, and printed by `report`.

mod look;
mod report;

use crate::describe::lists;
use crate::output::Format;
use anyhow::Context;
use look::Offset;
use mcs_core::ids::ClustersetId;
use mcs_core::time::Clock;
use mcs_core::timing::Timing;
use mcs_proto::client::{Identified, RegistryClient};
use mcs_proto::url::RegistryUrl;
use mcs_runtime::tls::client::ClientTls;
use report::Report;
use std::collections::BTreeSet;

/// The flags of the subcommand.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub(crate) struct CheckArgs {
    /// The clusterset to look at; without it, all in which a cluster has registered at the first registry that answers
    #[arg(long)]
    pub(crate) clusterset: Option<ClustersetId>,
    /// How it is shown: `table` for people; `json` and `yaml` for programs
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
}

/// Looks at everything, and gives the text to print and whether nothing failed.
///
/// # Errors
/// A URL that the transport does not take, or a form that what was found does not have.
pub(crate) async fn run(
    urls: &[RegistryUrl],
    tls: Option<&ClientTls>,
    clock: &dyn Clock,
    args: &CheckArgs,
) -> anyhow::Result<(String, bool)> {
    let mut report = Report::default();
    if let Some(own) = tls.and_then(ClientTls::own) {
        report.add(look::own_certificate(&own, clock.wall()));
    }
    let (mut asked, mut builds) = (None, BTreeSet::new());
    for url in urls {
        let seen = look_at(url, tls, clock, &mut report).await.context("--registry-url")?;
        if let Some((client, identified)) = seen {
            builds.extend(identified.as_ref().map(|identified| identified.by.build.to_string()));
            asked.get_or_insert((client, identified));
        }
    }
    report.extend(look::builds(&builds));
    if let Some((client, identified)) = asked {
        look_at_clustersets(&client, identified.as_ref(), args.clusterset.as_ref(), &mut report).await;
    }
    Ok((report.print(args.output)?, report.is_good()))
}

/// Looks at one registry; gives it when it answers, with what it says of itself if it is of a release that does.
async fn look_at(
    url: &RegistryUrl,
    tls: Option<&ClientTls>,
    clock: &dyn Clock,
    report: &mut Report,
) -> anyhow::Result<Option<(RegistryClient, Option<Identified>)>> {
    let (client, seen) = match tls {
        Some(tls) => {
            let (configs, seen) = tls.looking();
            (RegistryClient::secure(url, Timing::default(), configs)?, Some(seen))
        }
        None => (RegistryClient::new(url, Timing::default())?, None),
    };
    let first = client.registry().await;
    let is_older = first.as_ref().is_err_and(look::is_unknown_call);
    report.add(look::connection(url, first.as_ref().err().filter(|_| !is_older)));
    if let Some(certificate) = seen.and_then(|seen| seen.certificate()) {
        report.add(look::certificate(url, &certificate, clock.wall()));
    }
    if is_older {
        report.add(look::older(url));
        return Ok(Some((client, None)));
    }
    if first.is_err() {
        return Ok(None);
    }
    // The first call made the connection; this one is as fast as the way is.
    let (wall, began) = (clock.wall_millis(), clock.elapsed());
    let identified = match client.registry().await {
        Ok(identified) => identified,
        Err(failed) => {
            report.add(look::connection(url, Some(&failed)));
            return Ok(None);
        }
    };
    let took = clock.elapsed().since(began);
    report.extend(look::registry(url, &identified));
    report.add(look::clock(url, Offset::of(wall, identified.wall, took)));
    Ok(Some((client, Some(identified))))
}

async fn look_at_clustersets(
    client: &RegistryClient,
    identified: Option<&Identified>,
    wanted: Option<&ClustersetId>,
    report: &mut Report,
) {
    let known = identified.map(|identified| identified.clustersets.as_slice()).unwrap_or_default();
    let clustersets = match wanted {
        Some(wanted) => std::slice::from_ref(wanted),
        None => known,
    };
    if clustersets.is_empty() {
        report.add(look::no_clusterset(client.url(), identified.is_some()));
    }
    for clusterset in clustersets {
        match lists(client, clusterset).await {
            Ok(description) => report.extend(look::clusterset(&description)),
            Err(failed) => report.add(look::unlisted(clusterset, client.url(), &failed)),
        }
    }
}
