//! Calls to one registry, in core's types, each within its deadline.
//!
//! A [`RegistryClient`] has one connection, made when it is first needed and made again when it breaks; keep-alive
//! probes find a dead one within a fraction of the lease. After a call that got no answer the next one has a new
//! connection, for the old one may lead to a peer that only seems to live; streams on the old one go on. Which of
//! several registries to talk to is for the caller to say ([`mcs_core::outbox`]).

mod answers;
mod streams;

pub use answers::{Identified, Registered, Removed, Renewed, Synced, Written};
pub use streams::{SyncStream, WatchStream};

use streams::{Ongoing, out_of_turn};

use crate::chunks::pack;
use crate::connect::{Dialer, Encryption, Sight};
use crate::convert;
use crate::convert::{Member, part_sets, read_key};
use crate::frames::FrameReader;
use crate::lists::{join_export, join_import};
use crate::pb;
use crate::pb::imports_client::ImportsClient;
use crate::pb::members_client::MembersClient;
use crate::pb::sync_request::Step as Ask;
use crate::pb::sync_response::Step as Told;
use crate::status::CallFailed;
use crate::url::{InvalidUrl, RegistryUrl, Scheme};
use hyper_util::rt::TokioIo;
use mcs_core::ids::{ClusterId, ClustersetId, Epoch, ServiceKey};
use mcs_core::model::{Report, Since};
use mcs_core::registry::{Op, Registration};
use mcs_core::timing::Timing;
use mcs_core::version::{Leaf, Sum, Version};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

/// The most bytes of a message that is read. A registry keeps below gRPC's default of 4 MiB; one that does not is to be
/// understood all the same, and not to fill the memory.
const MAX_MESSAGE: usize = 16 * 1024 * 1024;

/// One registry. Cheap to clone; clones share the connection.
#[derive(Clone)]
pub struct RegistryClient {
    shared: Arc<Shared>,
}

struct Shared {
    url: RegistryUrl,
    endpoint: Endpoint,
    encryption: Option<Encryption>,
    line: Mutex<Line>,
}

/// What calls are made over.
#[derive(Clone, Debug)]
struct Line {
    timing: Timing,
    /// Which connection it is, of those that were made anew after a failure.
    number: u64,
    channel: Channel,
    sight: Sight,
}

impl fmt::Debug for RegistryClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryClient").field("url", &self.shared.url).finish_non_exhaustive()
    }
}

impl RegistryClient {
    /// The registry at an `http` URL. Nothing is sent before the first call; it must be made within a tokio runtime.
    ///
    /// # Errors
    /// A URL of another scheme, see [`RegistryClient::secure`].
    pub fn new(url: &RegistryUrl, timing: Timing) -> Result<Self, InvalidUrl> {
        Self::over(url, timing, None)
    }

    /// The registry at a URL of any scheme, with `encryption` where that is `https`.
    ///
    /// # Errors
    /// A URL that the transport does not take.
    pub fn secure(url: &RegistryUrl, timing: Timing, encryption: Encryption) -> Result<Self, InvalidUrl> {
        Self::over(url, timing, Some(encryption))
    }

    fn over(url: &RegistryUrl, timing: Timing, encryption: Option<Encryption>) -> Result<Self, InvalidUrl> {
        if url.scheme() == Scheme::Https && encryption.is_none() {
            return Err(InvalidUrl::NoTls { url: url.clone() });
        }
        let syntax = |problem: String| InvalidUrl::Syntax { value: url.to_string(), problem };
        let origin: http::Uri =
            url.to_string().parse().map_err(|error: http::uri::InvalidUri| syntax(error.to_string()))?;
        // The transport would insist on TLS of its own for an https URL.
        let dialled = url.to_string().replacen("https://", "http://", 1);
        let endpoint = Endpoint::from_shared(dialled)
            .map_err(|error| syntax(error.to_string()))?
            .origin(origin)
            .keep_alive_while_idle(true);
        let line = connect(&endpoint, url, encryption.as_ref(), timing, 0);
        let shared = Shared { url: url.clone(), endpoint, encryption, line: Mutex::new(line) };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Goes by other durations from now on, those of the lease that the registry grants; the next call has a new
    /// connection with probes to match.
    pub fn set_timing(&self, timing: Timing) {
        let mut line = self.line();
        if line.timing != timing {
            *line = self.connect_anew(timing, &line);
        }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.shared.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect_anew(&self, timing: Timing, before: &Line) -> Line {
        let Shared { url, endpoint, encryption, .. } = &*self.shared;
        connect(endpoint, url, encryption.as_ref(), timing, before.number + 1)
    }

    /// What to call over now.
    fn take_line(&self) -> Line {
        self.line().clone()
    }

    /// Says why a call over `used` failed, and has the next one go over a new connection if that may help.
    fn explain(&self, failed: CallFailed, used: &Line) -> CallFailed {
        if !failed.blames_connection() {
            return failed;
        }
        let failed = match failed {
            CallFailed::TimedOut { limit } => match used.sight.still(limit).or_else(|| used.sight.fault()) {
                Some(not) => not.into(),
                None => CallFailed::TimedOut { limit },
            },
            CallFailed::Unavailable { .. } => used.sight.fault().map_or(failed, Into::into),
            failed => failed,
        };
        let mut line = self.line();
        if line.number == used.number {
            *line = self.connect_anew(line.timing, used);
        }
        failed
    }

    /// Where it is.
    pub fn url(&self) -> &RegistryUrl {
        &self.shared.url
    }

    /// Takes the cluster into its clusterset, or its lead over, and renews the lease.
    ///
    /// # Errors
    /// Why the registry did not take it.
    pub async fn register(
        &self,
        member: &Member,
        registration: &Registration,
    ) -> Result<Registered, CallFailed> {
        let request = convert::registration(member, registration);
        Ok(self.limited(async |line| line.members().register(request).await).await?.try_into()?)
    }

    /// Renews the lease of a cluster that has nothing to tell of itself.
    ///
    /// # Errors
    /// Why the registry did not renew it.
    pub async fn renew(&self, member: &Member, version: Version, sum: Sum) -> Result<Renewed, CallFailed> {
        self.renew_reporting(member, version, sum, &Report::default()).await
    }

    /// Renews the lease, and tells what people may want to know of the cluster.
    ///
    /// # Errors
    /// Why the registry did not renew it.
    pub async fn renew_reporting(
        &self,
        member: &Member,
        version: Version,
        sum: Sum,
        report: &Report,
    ) -> Result<Renewed, CallFailed> {
        let request = pb::RenewRequest {
            clusterset: member.clusterset.to_string(),
            cluster: member.cluster.to_string(),
            uid: member.uid.to_string(),
            version: Some(version.into()),
            sum: sum.to_bytes().to_vec(),
            held_imports: convert::held_imports(&report.held_imports),
            refused_exports: convert::refused_exports(&report.refused_exports),
        };
        Ok(self.limited(async |line| line.members().renew(request).await).await?.try_into()?)
    }

    /// Tells changes: one act with one version, each key once.
    ///
    /// # Errors
    /// Why the act was not taken; a change that is refused by itself is in the answer.
    pub async fn write(&self, member: &Member, version: Version, ops: &[Op]) -> Result<Written, CallFailed> {
        let mut messages: Vec<_> = pack(ops.iter().flat_map(convert::op))
            .into_iter()
            .map(|ops| pb::WriteRequest { ops, ..pb::WriteRequest::default() })
            .collect();
        if messages.is_empty() {
            messages.push(pb::WriteRequest::default());
        }
        messages[0].clusterset = member.clusterset.to_string();
        messages[0].cluster = member.cluster.to_string();
        messages[0].uid = member.uid.to_string();
        messages[0].version = Some(version.into());
        // Each further message has the time of one call.
        let line = self.take_line();
        let limit = line.timing.call_limit() * u32::try_from(messages.len()).unwrap_or(u32::MAX);
        let call = async { line.members().write(tokio_stream::iter(messages)).await };
        let answer = within(limit, call).await.map_err(|failed| self.explain(failed, &line))?;
        Ok(answer.try_into()?)
    }

    /// Begins to make the registry hold exactly `names`: tells them, and learns which of them it wants. Dropping what
    /// comes back breaks the stream, which deletes nothing.
    ///
    /// # Errors
    /// Why the registry did not begin.
    pub async fn begin_sync(
        &self,
        member: &Member,
        version: Version,
        names: &[(ServiceKey, Leaf)],
    ) -> Result<(Vec<ServiceKey>, SyncStream), CallFailed> {
        let begin = Ask::Begin(pb::SyncBegin {
            clusterset: member.clusterset.to_string(),
            cluster: member.cluster.to_string(),
            uid: member.uid.to_string(),
            version: Some(version.into()),
        });
        let name = |(key, leaf): &(ServiceKey, Leaf)| pb::SyncName {
            key: Some(key.into()),
            leaf: leaf.to_bytes().to_vec(),
        };
        let names = pack(names.iter().map(name)).into_iter().map(|names| Ask::Names(pb::SyncNames { names }));
        let asks: Vec<_> =
            std::iter::once(begin).chain(names).chain([Ask::NamesEnd(pb::SyncNamesEnd {})]).collect();

        let line = self.take_line();
        let limit = line.timing.dead_stream();
        let (sender, receiver) = mpsc::channel(8);
        let mut call = line.members();
        let opened = async {
            // The registry answers before it has read all, so sending and opening go on side by side.
            let send = async {
                for ask in asks {
                    if sender.send(pb::SyncRequest { step: Some(ask) }).await.is_err() {
                        break;
                    }
                }
            };
            let (_, answer) = tokio::join!(send, call.sync(ReceiverStream::new(receiver)));
            answer
        };
        let answers = within(limit, opened).await.map_err(|failed| self.explain(failed, &line))?;
        let mut stream = SyncStream { limit, sender, answers, call: self.call(line) };
        let mut wants = Vec::new();
        loop {
            match stream.next().await? {
                Told::Wants(more) => {
                    for key in &more.keys {
                        wants.push(read_key(Some(key))?);
                    }
                }
                Told::WantsEnd(_) => return Ok((wants, stream)),
                Told::Result(_) | Told::Done(_) => return Err(out_of_turn()),
            }
        }
    }

    /// Removes a cluster: by itself when `uid` is its own, else by an administrator.
    ///
    /// # Errors
    /// Why it was not removed.
    pub async fn remove(
        &self,
        clusterset: &ClustersetId,
        cluster: &ClusterId,
        uid: Option<&mcs_core::ids::ClusterUid>,
        force: bool,
    ) -> Result<Removed, CallFailed> {
        let uid = uid.map_or_else(String::new, ToString::to_string);
        self.remove_by(clusterset, cluster, pb::RemoveClusterRequest { uid, force, ..Default::default() })
            .await
    }

    /// Removes a cluster by an administrator: only the one with this UID, not another one that has taken its id.
    ///
    /// # Errors
    /// Why it was not removed: [`CallFailed::Claimed`] where another one has the id.
    pub async fn remove_only(
        &self,
        clusterset: &ClustersetId,
        cluster: &ClusterId,
        only: &mcs_core::ids::ClusterUid,
        force: bool,
    ) -> Result<Removed, CallFailed> {
        let only_uid = only.to_string();
        let request = pb::RemoveClusterRequest { only_uid, force, ..Default::default() };
        self.remove_by(clusterset, cluster, request).await
    }

    async fn remove_by(
        &self,
        clusterset: &ClustersetId,
        cluster: &ClusterId,
        request: pb::RemoveClusterRequest,
    ) -> Result<Removed, CallFailed> {
        let request = pb::RemoveClusterRequest {
            clusterset: clusterset.to_string(),
            cluster: cluster.to_string(),
            ..request
        };
        let answer = self.limited(async |line| line.members().remove_cluster(request).await).await?;
        Ok(Removed { exports: answer.exports, endpoints: answer.endpoints })
    }

    /// Watches the imports of a clusterset, from the revision that was reached in a registry process, or anew; then the
    /// registry need not tell the parts of `since` again.
    ///
    /// # Errors
    /// Why the watch was not opened.
    pub async fn watch(
        &self,
        clusterset: &ClustersetId,
        importer: &ClusterId,
        from: Option<(Epoch, u64)>,
        since: Since,
    ) -> Result<WatchStream, CallFailed> {
        let request = pb::WatchRequest {
            clusterset: clusterset.to_string(),
            cluster: importer.to_string(),
            epoch: from.map_or_else(Vec::new, |(epoch, _)| epoch.0.to_be_bytes().to_vec()),
            revision: from.map_or(0, |(_, revision)| revision),
            since: part_sets(&since.sets),
            build: since.build.to_string(),
        };
        let line = self.take_line();
        let opened = within(line.timing.call_limit(), async { line.imports().watch(request).await });
        let steps = opened.await.map_err(|failed| self.explain(failed, &line))?;
        let limit = line.timing.dead_stream();
        Ok(WatchStream { limit, steps, frames: FrameReader::default(), call: self.call(line) })
    }

    /// All clusters of a clusterset, over all pages, and whether the registry knows them all.
    ///
    /// # Errors
    /// Why they could not be listed.
    pub async fn list_clusters(
        &self,
        clusterset: &ClustersetId,
    ) -> Result<(Vec<pb::Cluster>, bool), CallFailed> {
        let mut clusters = Vec::new();
        let ask = async |line: Line, page_token| {
            let clusterset = clusterset.to_string();
            let request = pb::ListClustersRequest { clusterset, page_token, ..Default::default() };
            line.imports().list_clusters(request).await
        };
        let complete = self.pages(ask, |page| {
            clusters.extend(page.clusters);
            (page.next_page_token, page.complete)
        });
        let complete = complete.await?;
        Ok((clusters, complete))
    }

    /// Whether the registry answers this cluster and knows all that its store holds of a clusterset: one small list.
    ///
    /// # Errors
    /// Why it does not answer.
    pub async fn probe(&self, clusterset: &ClustersetId) -> Result<bool, CallFailed> {
        let request = pb::ListClustersRequest {
            clusterset: clusterset.to_string(),
            page_size: 1,
            ..pb::ListClustersRequest::default()
        };
        Ok(self.limited(async |line| line.imports().list_clusters(request).await).await?.complete)
    }

    /// Who answers, and what the caller is taken for.
    ///
    /// # Errors
    /// Why it does not answer; one of an earlier release does not know the call ([`tonic::Code::Unimplemented`]).
    pub async fn registry(&self) -> Result<Identified, CallFailed> {
        let request = pb::GetRegistryRequest {};
        Ok(self.limited(async |line| line.imports().get_registry(request).await).await?.try_into()?)
    }

    /// All exports of a clusterset, over all pages, and whether the registry knows them all.
    ///
    /// # Errors
    /// Why they could not be listed.
    pub async fn list_exports(
        &self,
        clusterset: &ClustersetId,
        include_endpoints: bool,
    ) -> Result<(Vec<pb::Export>, bool), CallFailed> {
        let mut exports = Vec::new();
        let ask = async |line: Line, page_token| {
            let clusterset = clusterset.to_string();
            let request =
                pb::ListExportsRequest { clusterset, include_endpoints, page_token, ..Default::default() };
            line.imports().list_exports(request).await
        };
        let complete = self.pages(ask, |page| {
            page.exports.into_iter().for_each(|export| join_export(&mut exports, export));
            (page.next_page_token, page.complete)
        });
        let complete = complete.await?;
        Ok((exports, complete))
    }

    /// All imports of a clusterset, over all pages, and whether the registry knows all its clusters.
    ///
    /// # Errors
    /// Why they could not be listed.
    pub async fn list_imports(
        &self,
        clusterset: &ClustersetId,
        include_endpoints: bool,
    ) -> Result<(Vec<pb::Import>, bool), CallFailed> {
        let mut imports = Vec::new();
        let ask = async |line: Line, page_token| {
            let clusterset = clusterset.to_string();
            let request =
                pb::ListImportsRequest { clusterset, include_endpoints, page_token, ..Default::default() };
            line.imports().list_imports(request).await
        };
        let complete = self.pages(ask, |page| {
            page.imports.into_iter().for_each(|import| join_import(&mut imports, import));
            (page.next_page_token, page.complete)
        });
        let complete = complete.await?;
        Ok((imports, complete))
    }

    /// Asks for one page after another of a list, each by the token of the one before. `take` gives the token of the next,
    /// and whether the registry knows all; says whether it did on every page.
    async fn pages<P>(
        &self,
        ask: impl AsyncFn(Line, String) -> Result<tonic::Response<P>, Status>,
        mut take: impl FnMut(P) -> (String, bool),
    ) -> Result<bool, CallFailed> {
        let (mut token, mut complete) = (String::new(), true);
        loop {
            let page = self.limited(async |line| ask(line, std::mem::take(&mut token)).await).await?;
            let (next, knows_all) = take(page);
            complete &= knows_all;
            if next.is_empty() {
                return Ok(complete);
            }
            token = next;
        }
    }

    async fn limited<T>(
        &self,
        call: impl AsyncFnOnce(Line) -> Result<tonic::Response<T>, Status>,
    ) -> Result<T, CallFailed> {
        let line = self.take_line();
        let answer = within(line.timing.call_limit(), call(line.clone())).await;
        answer.map_err(|failed| self.explain(failed, &line))
    }

    fn call(&self, line: Line) -> Ongoing {
        Ongoing { client: self.clone(), line }
    }
}

impl Line {
    fn members(&self) -> MembersClient<Channel> {
        MembersClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE)
    }

    fn imports(&self) -> ImportsClient<Channel> {
        ImportsClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE)
    }
}

/// A line whose connection is made with the first call.
fn connect(
    endpoint: &Endpoint,
    url: &RegistryUrl,
    encryption: Option<&Encryption>,
    timing: Timing,
    number: u64,
) -> Line {
    let sight = Sight::new(url.clone());
    let dialer = Dialer::new(url.clone(), encryption.cloned(), timing.call_limit(), sight.clone());
    let dial = tower::service_fn(move |_| {
        let dialer = dialer.clone();
        async move { dialer.dial().await.map(TokioIo::new) }
    });
    let endpoint = endpoint
        .clone()
        .http2_keep_alive_interval(timing.keep_alive())
        .keep_alive_timeout(timing.keep_alive_answer());
    Line { timing, number, channel: endpoint.connect_with_connector_lazy(dial), sight }
}

async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, CallFailed> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => Ok(answer?.into_inner()),
        Err(_) => Err(CallFailed::TimedOut { limit }),
    }
}
