//! Calls to one registry, in core's types, each within its deadline.
//!
//! A [`RegistryClient`] has one connection, made when it is first needed and made again when it breaks; keep-alive
//! probes find a dead one within a fraction of the lease. Which of several registries to talk to is for the caller to
//! say ([`mcs_core::outbox`]).

use crate::chunks::pack;
use crate::convert;
use crate::convert::{ConversionError, Member, WireEnum, part_sets, read_key, read_sixteen, required};
use crate::frames::FrameReader;
use crate::lists::{join_export, join_import};
use crate::pb;
use crate::pb::imports_client::ImportsClient;
use crate::pb::members_client::MembersClient;
use crate::pb::sync_request::Step as Ask;
use crate::pb::sync_response::Step as Told;
use crate::status::CallFailed;
use crate::url::{InvalidUrl, RegistryUrl, Scheme};
use mcs_core::ids::{Build, ClusterId, ClustersetId, Epoch, ServiceKey};
use mcs_core::model::{Frame, MemberState, Since};
use mcs_core::registry::{Op, Registration};
use mcs_core::timing::Timing;
use mcs_core::validate::{Dropped, Refusal};
use mcs_core::version::{Leaf, Sum, Version};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

/// The answer to a Register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// The registry process that answered.
    pub epoch: Epoch,
    /// How long each renewal holds.
    pub lease: Duration,
    /// The registry's version; a controller syncs when it changes.
    pub build: Build,
    /// Whether the registry holds something else than the sum says.
    pub differs: bool,
}

impl TryFrom<pb::RegisterResponse> for Registered {
    type Error = ConversionError;

    fn try_from(answer: pb::RegisterResponse) -> Result<Self, Self::Error> {
        Ok(Self {
            epoch: Epoch(u128::from_be_bytes(read_sixteen(&answer.epoch, "epoch")?)),
            lease: required(answer.lease_duration, "lease_duration")?.into(),
            build: Build::new(answer.build)?,
            differs: answer.differs,
        })
    }
}

/// The answer to a Renew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// The member's state after it.
    pub state: MemberState,
    /// Whether the registry holds something else than the sum says.
    pub differs: bool,
    /// Whether the registry's store is away.
    pub degraded: bool,
    /// How long the renewal holds.
    pub lease: Duration,
}

impl TryFrom<pb::RenewResponse> for Renewed {
    type Error = ConversionError;

    fn try_from(answer: pb::RenewResponse) -> Result<Self, Self::Error> {
        Ok(Self {
            state: MemberState::from_wire(answer.state)?,
            differs: answer.differs,
            degraded: answer.degraded,
            lease: required(answer.lease_duration, "lease_duration")?.into(),
        })
    }
}

/// What became of the changes of an act.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// One for each change, in order.
    pub results: Vec<(ServiceKey, Result<(), Refusal>)>,
    /// Endpoints that were left out.
    pub dropped: Vec<(ServiceKey, Dropped)>,
    /// Whether the registry's store is away.
    pub degraded: bool,
}

impl Written {
    fn push(&mut self, result: pb::OpResult) -> Result<(), ConversionError> {
        let (key, outcome) = convert::read_result(result)?;
        let outcome = outcome.map(|dropped| {
            self.dropped.extend(dropped.into_iter().map(|dropped| (key.clone(), dropped)));
        });
        self.results.push((key, outcome));
        Ok(())
    }
}

impl TryFrom<pb::WriteResponse> for Written {
    type Error = ConversionError;

    fn try_from(answer: pb::WriteResponse) -> Result<Self, Self::Error> {
        let mut written = Self { degraded: answer.degraded, ..Self::default() };
        for result in answer.results {
            written.push(result)?;
        }
        Ok(written)
    }
}

/// The end of a sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synced {
    /// What became of the exports that were wanted.
    pub written: Written,
    /// How many exports went, since they were not named.
    pub deleted: u32,
}

/// What was removed with a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// How many exports went.
    pub exports: u32,
    /// How many endpoints went.
    pub endpoints: u32,
}

/// One registry.
#[derive(Clone, Debug)]
pub struct RegistryClient {
    url: RegistryUrl,
    timing: Timing,
    members: MembersClient<Channel>,
    imports: ImportsClient<Channel>,
}

impl RegistryClient {
    /// The registry at `url`. Nothing is sent before the first call; it must be made within a tokio runtime.
    ///
    /// # Errors
    /// A URL of a scheme that this version does not speak.
    pub fn new(url: &RegistryUrl, timing: Timing) -> Result<Self, InvalidUrl> {
        if url.scheme() == Scheme::Https {
            return Err(InvalidUrl::NoTls { url: url.clone() });
        }
        let invalid = |error: tonic::transport::Error| InvalidUrl::Syntax {
            value: url.to_string(),
            problem: error.to_string(),
        };
        let channel = Endpoint::from_shared(url.to_string())
            .map_err(invalid)?
            .connect_timeout(timing.call_limit())
            .http2_keep_alive_interval(timing.keep_alive())
            .keep_alive_timeout(timing.keep_alive_answer())
            .keep_alive_while_idle(true)
            .tcp_nodelay(true)
            .connect_lazy();
        Ok(Self {
            url: url.clone(),
            timing,
            members: MembersClient::new(channel.clone()),
            imports: ImportsClient::new(channel),
        })
    }

    /// Where it is.
    pub const fn url(&self) -> &RegistryUrl {
        &self.url
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
        Ok(self.limited(self.members.clone().register(request)).await?.try_into()?)
    }

    /// Renews the lease.
    ///
    /// # Errors
    /// Why the registry did not renew it.
    pub async fn renew(&self, member: &Member, version: Version, sum: Sum) -> Result<Renewed, CallFailed> {
        let request = pb::RenewRequest {
            clusterset: member.clusterset.to_string(),
            cluster: member.cluster.to_string(),
            uid: member.uid.to_string(),
            version: Some(version.into()),
            sum: sum.to_bytes().to_vec(),
        };
        Ok(self.limited(self.members.clone().renew(request)).await?.try_into()?)
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
        let limit = self.timing.call_limit() * u32::try_from(messages.len()).unwrap_or(u32::MAX);
        let call = self.members.clone();
        let answer = within(limit, async { { call }.write(tokio_stream::iter(messages)).await }).await?;
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

        let limit = self.timing.dead_stream();
        let (sender, receiver) = mpsc::channel(8);
        let mut call = self.members.clone();
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
        let answers = within(limit, opened).await?;
        let mut stream = SyncStream { limit, sender, answers };
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
        let request = pb::RemoveClusterRequest {
            clusterset: clusterset.to_string(),
            cluster: cluster.to_string(),
            uid: uid.map_or_else(String::new, ToString::to_string),
            force,
        };
        let answer = self.limited(self.members.clone().remove_cluster(request)).await?;
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
        let steps = self.limited(self.imports.clone().watch(request)).await?;
        Ok(WatchStream { limit: self.timing.dead_stream(), steps, frames: FrameReader::default() })
    }

    /// All clusters of a clusterset, over all pages, and whether the registry knows them all.
    ///
    /// # Errors
    /// Why they could not be listed.
    pub async fn list_clusters(
        &self,
        clusterset: &ClustersetId,
    ) -> Result<(Vec<pb::Cluster>, bool), CallFailed> {
        let mut request = pb::ListClustersRequest {
            clusterset: clusterset.to_string(),
            ..pb::ListClustersRequest::default()
        };
        let (mut clusters, mut complete) = (Vec::new(), true);
        loop {
            let page = self.limited(self.imports.clone().list_clusters(request.clone())).await?;
            clusters.extend(page.clusters);
            complete &= page.complete;
            if page.next_page_token.is_empty() {
                return Ok((clusters, complete));
            }
            request.page_token = page.next_page_token;
        }
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
        let mut request = pb::ListExportsRequest {
            clusterset: clusterset.to_string(),
            include_endpoints,
            ..pb::ListExportsRequest::default()
        };
        let (mut exports, mut complete) = (Vec::<pb::Export>::new(), true);
        loop {
            let page = self.limited(self.imports.clone().list_exports(request.clone())).await?;
            for export in page.exports {
                join_export(&mut exports, export);
            }
            complete &= page.complete;
            if page.next_page_token.is_empty() {
                return Ok((exports, complete));
            }
            request.page_token = page.next_page_token;
        }
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
        let mut request = pb::ListImportsRequest {
            clusterset: clusterset.to_string(),
            include_endpoints,
            ..pb::ListImportsRequest::default()
        };
        let (mut imports, mut complete) = (Vec::<pb::Import>::new(), true);
        loop {
            let page = self.limited(self.imports.clone().list_imports(request.clone())).await?;
            for import in page.imports {
                join_import(&mut imports, import);
            }
            complete &= page.complete;
            if page.next_page_token.is_empty() {
                return Ok((imports, complete));
            }
            request.page_token = page.next_page_token;
        }
    }

    async fn limited<T>(
        &self,
        call: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, CallFailed> {
        within(self.timing.call_limit(), call).await
    }
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

fn out_of_turn() -> CallFailed {
    ConversionError::new("step", "does not fit the steps before it").into()
}

fn ended() -> CallFailed {
    CallFailed::Unavailable { code: Code::Unavailable, message: "the registry ended the stream".to_owned() }
}

fn read_answer(answer: Result<Option<pb::SyncResponse>, Status>) -> Result<Told, CallFailed> {
    Ok(required(answer?.ok_or_else(ended)?.step, "step")?)
}

/// A sync under way.
#[derive(Debug)]
pub struct SyncStream {
    limit: Duration,
    sender: mpsc::Sender<pb::SyncRequest>,
    answers: Streaming<pb::SyncResponse>,
}

impl SyncStream {
    async fn next(&mut self) -> Result<Told, CallFailed> {
        match tokio::time::timeout(self.limit, self.answers.message()).await {
            Err(_) => Err(CallFailed::TimedOut { limit: self.limit }),
            Ok(answer) => read_answer(answer),
        }
    }

    /// Tells what was wanted, and ends the sync. Each message that is sent or read begins the limit anew, so that a
    /// large export has its time and a registry that stands still is given up.
    ///
    /// # Errors
    /// Why the registry did not take it; then nothing was deleted.
    pub async fn finish(mut self, ops: &[Op]) -> Result<Synced, CallFailed> {
        let mut asks = ops.iter().flat_map(convert::op).map(Ask::Op).chain([Ask::End(pb::SyncEnd {})]);
        let mut ask = asks.next();
        let mut written = Written::default();
        loop {
            let told = tokio::select! {
                answer = self.answers.message() => read_answer(answer)?,
                room = self.sender.reserve(), if ask.is_some() => {
                    // Without a reader nothing more is sent; the answers say what broke.
                    ask = match room {
                        Ok(room) => {
                            room.send(pb::SyncRequest { step: ask });
                            asks.next()
                        }
                        Err(_) => None,
                    };
                    continue;
                }
                () = tokio::time::sleep(self.limit) => {
                    return Err(CallFailed::TimedOut { limit: self.limit });
                }
            };
            match told {
                Told::Result(result) => written.push(result)?,
                Told::Done(done) => {
                    written.degraded = done.degraded;
                    return Ok(Synced { written, deleted: done.deleted });
                }
                Told::Wants(_) | Told::WantsEnd(_) => return Err(out_of_turn()),
            }
        }
    }
}

/// A watch under way.
#[derive(Debug)]
pub struct WatchStream {
    limit: Duration,
    steps: Streaming<pb::WatchResponse>,
    frames: FrameReader,
}

impl WatchStream {
    /// The next frame. After an error the stream is to be dropped and the watch begun again; nothing is to be
    /// concluded from the frames that are missing.
    ///
    /// # Errors
    /// Why there is none: the registry's end, silence for half a lease, or a frame that cannot be read.
    pub async fn next(&mut self) -> Result<Frame, CallFailed> {
        loop {
            let step = match tokio::time::timeout(self.limit, self.steps.message()).await {
                Err(_) => return Err(CallFailed::TimedOut { limit: self.limit }),
                Ok(Err(status)) => return Err(status.into()),
                Ok(Ok(None)) => return Err(ended()),
                Ok(Ok(Some(step))) => step,
            };
            if let Some(frame) = self.frames.push(step)? {
                return Ok(frame);
            }
        }
    }
}
