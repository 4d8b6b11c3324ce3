//! `mcs-admin describe`: what one registry knows of a clusterset.
//!
//! All three lists come from one registry, so that they fit together as well as three calls can. A registry that does
//! not answer is passed over for the next URL; one that refuses is not, since the others would refuse too.

use crate::output::{Description, Format, Unprintable};
use mcs_core::ids::ClustersetId;
use mcs_proto::client::RegistryClient;
use mcs_proto::pb;
use mcs_proto::status::CallFailed;
use mcs_proto::url::RegistryUrl;
use tracing::warn;

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
    /// No registry answered; why, for each URL.
    #[error(
        "no registry can be reached: {}; check that one runs there and that the URL names its gRPC port (9090 by default)",
        join(.0)
    )]
    Unreachable(Vec<(RegistryUrl, CallFailed)>),
    /// A registry answered and refuses.
    #[error("registry at {url} does not list clusterset {clusterset}: {source}")]
    Refused {
        /// The registry.
        url: RegistryUrl,
        /// What was asked for.
        clusterset: ClustersetId,
        /// Its reason.
        source: CallFailed,
    },
    /// The answer has no form in the output that was asked for.
    #[error(transparent)]
    Unprintable(#[from] Unprintable),
}

fn join(tried: &[(RegistryUrl, CallFailed)]) -> String {
    let reasons: Vec<_> = tried.iter().map(|(url, error)| format!("at {url}: {error}")).collect();
    reasons.join("; ")
}

/// Asks the first of the registries that answers, and gives the text to print.
///
/// # Errors
/// No registry answers, or it refuses.
pub(crate) async fn run(registries: &[RegistryClient], args: &Describe) -> Result<String, CannotDescribe> {
    let mut tried = Vec::new();
    for client in registries {
        let url = client.url();
        match ask(client, &args.clusterset).await {
            Ok(description) => {
                for (passed_over, error) in &tried {
                    warn!(url = %passed_over, %error, asked = %url, "registry does not answer, another one was asked");
                }
                return Ok(description.print(args.output)?);
            }
            Err(error) if error.blames_connection() && !matches!(error, CallFailed::Denied { .. }) => {
                tried.push((url.clone(), error));
            }
            Err(source) => {
                let clusterset = args.clusterset.clone();
                return Err(CannotDescribe::Refused { url: url.clone(), clusterset, source });
            }
        }
    }
    Err(CannotDescribe::Unreachable(tried))
}

async fn ask(client: &RegistryClient, clusterset: &ClustersetId) -> Result<Description, CallFailed> {
    let (clusters, knows_clusters) = client.list_clusters(clusterset).await?;
    let (exports, knows_exports) = client.list_exports(clusterset, false).await?;
    let (imports, knows_imports) = client.list_imports(clusterset, false).await?;
    Ok(Description::new(
        client.url().clone(),
        clusterset.clone(),
        pb::ListClustersResponse { clusters, complete: knows_clusters, ..Default::default() },
        pb::ListExportsResponse { exports, complete: knows_exports, ..Default::default() },
        pb::ListImportsResponse { imports, complete: knows_imports, ..Default::default() },
    ))
}
