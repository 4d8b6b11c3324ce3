//! Registries, asked in the order in which they were named.

use mcs_core::timing::Timing;
use mcs_proto::client::RegistryClient;
use mcs_proto::status::CallFailed;
use mcs_proto::url::RegistryUrl;
use mcs_runtime::tls::client::ClientTls;
use tracing::warn;

/// Why no registry gave an answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unanswered {
    /// None can be reached; why, for each URL.
    #[error(
        "no registry can be reached: {}; check that one runs there and that the URL names its gRPC port (9090 by default)",
        join(.0)
    )]
    Unreachable(Vec<(RegistryUrl, CallFailed)>),
    /// One answered, and refuses: the others would refuse too.
    #[error("the registry at {url} refuses: {why}")]
    Refused {
        /// The registry.
        url: RegistryUrl,
        /// Its reason.
        why: CallFailed,
    },
}

fn join(tried: &[(RegistryUrl, CallFailed)]) -> String {
    let reasons: Vec<_> = tried.iter().map(|(url, error)| format!("at {url}: {error}")).collect();
    reasons.join("; ")
}

/// The registries of these URLs, which must be checked; nothing is sent yet. It must be called within a tokio runtime.
///
/// # Errors
/// A URL that the transport does not take.
pub(crate) fn clients(urls: &[RegistryUrl], tls: Option<&ClientTls>) -> anyhow::Result<Vec<RegistryClient>> {
    let timing = Timing::default();
    let client = |url| match tls {
        Some(tls) => RegistryClient::secure(url, timing, tls.configs()),
        None => RegistryClient::new(url, timing),
    };
    Ok(urls.iter().map(client).collect::<Result<_, _>>()?)
}

/// Asks the first of the registries that answers; gives it, too.
///
/// # Errors
/// No registry answers, or it refuses.
pub(crate) async fn first<'a, T>(
    registries: &'a [RegistryClient],
    ask: impl AsyncFn(&'a RegistryClient) -> Result<T, CallFailed>,
) -> Result<(&'a RegistryClient, T), Unanswered> {
    let mut tried = Vec::new();
    for client in registries {
        let url = client.url();
        match ask(client).await {
            Ok(answer) => {
                for (passed_over, error) in &tried {
                    warn!(url = %passed_over, %error, asked = %url, "registry does not answer, another one was asked");
                }
                return Ok((client, answer));
            }
            Err(error) if error.blames_connection() && !matches!(error, CallFailed::Denied { .. }) => {
                tried.push((url.clone(), error));
            }
            Err(why) => return Err(Unanswered::Refused { url: url.clone(), why }),
        }
    }
    Err(Unanswered::Unreachable(tried))
}
