//! `mcs-admin describe`: what one registry knows of a clusterset, or what their store holds.
//!
//! All three lists come from one registry, so that they fit together as well as three calls can. A registry that does
//! not answer is passed over for the next URL; one that refuses is not, since the others would refuse too.

use crate::ask::{self, Unanswered};
use crate::output::{Description, Format, Unprintable};
use mcs_core::ids::ClustersetId;
use mcs_proto::client::RegistryClient;
use mcs_proto::pb;
use mcs_proto::status::CallFailed;
use mcs_registry::recorded;
use mcs_registry::store::{Failed, Store};

/// The flags of the subcommand.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub(crate) struct Describe {
    /// The clusterset to describe
    #[arg(long)]
    pub(crate) clusterset: ClustersetId,
    /// How it is shown: `table` for people; `json` and `yaml` for programs, with the registry's own messages and field
    /// names
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
}

/// Why a clusterset cannot be described.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CannotDescribe {
    /// No registry gave its lists.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    /// The store was not read.
    #[error("clusterset {clusterset} cannot be read from {place}: {why}")]
    Unread {
        /// What was to be read.
        clusterset: ClustersetId,
        /// Where.
        place: String,
        /// Why it was not.
        why: Failed,
    },
    /// The answer has no form in the output that was asked for.
    #[error(transparent)]
    Unprintable(#[from] Unprintable),
}

/// Asks the first of the registries that answers, and gives the text to print.
///
/// # Errors
/// No registry answers, or it refuses.
pub(crate) async fn run(registries: &[RegistryClient], args: &Describe) -> Result<String, CannotDescribe> {
    let (_, description) =
        ask::first(registries, async |client| lists(client, &args.clusterset).await).await?;
    Ok(description.print(args.output)?)
}

/// Reads all of it from a store at this place, and gives the text to print.
///
/// # Errors
/// It was not read to its end.
pub(crate) async fn from_store(
    store: &dyn Store,
    place: String,
    args: &Describe,
) -> Result<String, CannotDescribe> {
    let clusterset = args.clusterset.clone();
    match recorded::read(store, &clusterset).await {
        Ok(recorded) => Ok(Description::of_store(place, clusterset, recorded).print(args.output)?),
        Err(why) => Err(CannotDescribe::Unread { clusterset, place, why }),
    }
}

/// All that a registry knows of a clusterset, without endpoints.
///
/// # Errors
/// Why it does not list it.
pub(crate) async fn lists(
    client: &RegistryClient,
    clusterset: &ClustersetId,
) -> Result<Description, CallFailed> {
    let (clusters, knows_clusters) = client.list_clusters(clusterset).await?;
    let (exports, knows_exports) = client.list_exports(clusterset, false).await?;
    let (imports, knows_imports) = client.list_imports(clusterset, false).await?;
    Ok(Description::new(
        client.url().to_string(),
        clusterset.clone(),
        pb::ListClustersResponse { clusters, complete: knows_clusters, ..Default::default() },
        pb::ListExportsResponse { exports, complete: knows_exports, ..Default::default() },
        pb::ListImportsResponse { imports, complete: knows_imports, ..Default::default() },
    ))
}
