//! The calls of `dynamo.mcs.v1`, whatever transport brings them: messages in, messages out, nothing decided.

pub(crate) mod sync;

use futures::{Stream, StreamExt};
use mcs_core::ids::{Build, ClusterId, ClusterUid, ClustersetId, Epoch};
use mcs_core::model::Since;
use mcs_core::validate::Refusal;
use mcs_proto::chunks::MAX_CHANGES;
use mcs_proto::convert::{
    Member, OpReader, read_part_sets, read_registration, read_report, read_sixteen, read_sum, read_version,
    read_write_head, results,
};
use mcs_proto::encoded::EncodedStep;
use mcs_proto::pb;
use prost::Message;
use tonic::Status;

use crate::caller::{Caller, Remover, Writer, described};
use crate::error::{Error, Excess};
use crate::lists::{List, Page};
use crate::service::{Service, Written};
use crate::watch;

/// A write or a sync may name this many times the exports that a cluster may have: those above the limit are refused
/// one by one.
const NAMES_FACTOR: usize = 2;

/// The most bytes of a write, which is held until it is whole: the largest export that there may be, several times.
const MAX_WRITE_BYTES: usize = 64 * 1024 * 1024;

/// `Members.Register`.
pub(crate) async fn register(
    service: &Service,
    caller: &Caller,
    request: pb::RegisterRequest,
) -> Result<pb::RegisterResponse, Error> {
    let (member, registration) = read_registration(request)?;
    let registered = service.register(&Writer::called_by(caller, member)?, registration).await?;
    Ok(pb::RegisterResponse {
        epoch: service.epoch().0.to_be_bytes().to_vec(),
        lease_duration: Some(service.lease().into()),
        build: mcs_runtime::version().to_owned(),
        differs: registered.differs,
    })
}

/// `Members.Renew`.
pub(crate) fn renew(
    service: &Service,
    caller: &Caller,
    request: pb::RenewRequest,
) -> Result<pb::RenewResponse, Error> {
    let writer = Writer::called_by(caller, Member::read(request.clusterset, request.cluster, request.uid)?)?;
    let report = read_report(request.held_imports, request.refused_exports)?;
    let renewed = service.renew(&writer, read_version(request.version)?, read_sum(&request.sum)?, report)?;
    let degraded = service.is_degraded_for(writer.member());
    Ok(pb::RenewResponse {
        state: pb::LeaseState::from(renewed.state).into(),
        differs: renewed.differs,
        degraded,
        lease_duration: Some(service.lease().into()),
        epoch: service.epoch().0.to_be_bytes().to_vec(),
        build: mcs_runtime::version().to_owned(),
    })
}

/// `Imports.GetRegistry`.
pub(crate) fn get_registry(service: &Service, caller: &Caller) -> pb::GetRegistryResponse {
    pb::GetRegistryResponse {
        epoch: service.epoch().0.to_be_bytes().to_vec(),
        build: mcs_runtime::version().to_owned(),
        time: service.wall().map(Into::into),
        lease_duration: Some(service.lease().into()),
        degraded: service.is_degraded(),
        shared_store: service.shares_store(),
        caller: described(caller),
        clustersets: service.begun().iter().map(ToString::to_string).collect(),
    }
}

/// `Members.Write`. Nothing is taken of a stream that breaks.
pub(crate) async fn write(
    service: &Service,
    caller: &Caller,
    mut requests: impl Stream<Item = Result<pb::WriteRequest, Error>> + Unpin,
) -> Result<pb::WriteResponse, Error> {
    let mut first =
        requests.next().await.transpose()?.ok_or_else(|| Refusal::missing("the first message"))?;
    let (member, version) = read_write_head(&mut first)?;
    let writer = Writer::called_by(caller, member)?;
    service.count_write(&writer)?;
    let (mut reader, mut ops) = (OpReader::default(), Vec::new());
    let (most, mut bytes) = (most_names(service).min(MAX_CHANGES), 0);
    let mut message = Some(first);
    while let Some(part) = message {
        bytes += part.encoded_len();
        if bytes > MAX_WRITE_BYTES {
            return Err(Error::TooMuch { excess: Excess::WriteBytes, most: MAX_WRITE_BYTES });
        }
        for op in part.ops {
            ops.extend(reader.push(op)?);
            if ops.len() > most {
                return Err(Error::TooMuch { excess: Excess::WriteChanges, most });
            }
        }
        message = requests.next().await.transpose()?;
    }
    reader.finish()?;
    let Written { outcomes, degraded } = service.write(&writer, version, ops).await?;
    Ok(pb::WriteResponse { results: results(outcomes), degraded })
}

/// `Members.RemoveCluster`.
pub(crate) async fn remove_cluster(
    service: &Service,
    caller: &Caller,
    request: pb::RemoveClusterRequest,
) -> Result<pb::RemoveClusterResponse, Error> {
    let clusterset = read_clusterset(request.clusterset)?;
    let cluster = ClusterId::new(request.cluster).map_err(Refusal::from)?;
    let read = |uid: String, field: &'static str| match uid.as_str() {
        "" => Ok(None),
        uid => ClusterUid::new(uid)
            .map(Some)
            .map_err(|invalid| Refusal { field: field.to_owned(), ..Refusal::from(invalid) }),
    };
    let uid = read(request.uid, "uid")?;
    let only = read(request.only_uid, "only_uid")?;
    let remover = Remover::called_by(caller, clusterset, cluster)?;
    let removed = service.remove(&remover, uid.as_ref(), only.as_ref(), request.force).await?;
    let count = |count| u32::try_from(count).unwrap_or(u32::MAX);
    Ok(pb::RemoveClusterResponse { exports: count(removed.exports), endpoints: count(removed.endpoints) })
}

/// `Imports.Watch`.
pub(crate) async fn watch(
    service: &Service,
    request: pb::WatchRequest,
) -> Result<impl Stream<Item = Result<EncodedStep, Status>> + Send + use<>, Error> {
    let clusterset = read_clusterset(request.clusterset)?;
    let importer = ClusterId::new(request.cluster).map_err(Refusal::from)?;
    let from = match request.epoch.as_slice() {
        [] => None,
        epoch => Some((Epoch(u128::from_be_bytes(read_sixteen(epoch, "epoch")?)), request.revision)),
    };
    let sets = read_part_sets(request.since, service.max_clusters())?;
    let since = Since { build: Build::new(request.build).map_err(Refusal::from)?, sets };
    service.watch(&clusterset, watch::Request { importer, from, since }).await
}

/// `Imports.ListClusters`, with pages of at most about `bytes`.
pub(crate) fn list_clusters(
    service: &Service,
    request: pb::ListClustersRequest,
    bytes: usize,
) -> Result<pb::ListClustersResponse, Error> {
    let page = Page::read(List::Clusters, request.page_size, &request.page_token, bytes)?;
    Ok(service.list_clusters(&read_clusterset(request.clusterset)?, &page))
}

/// `Imports.ListExports`, with pages of at most about `bytes`.
pub(crate) fn list_exports(
    service: &Service,
    request: pb::ListExportsRequest,
    bytes: usize,
) -> Result<pb::ListExportsResponse, Error> {
    let page = Page::read(List::Exports, request.page_size, &request.page_token, bytes)?;
    let of = match request.cluster.as_str() {
        "" => None,
        cluster => Some(ClusterId::new(cluster).map_err(Refusal::from)?),
    };
    let clusterset = read_clusterset(request.clusterset)?;
    Ok(service.list_exports(&clusterset, of.as_ref(), request.include_endpoints, &page))
}

/// `Imports.ListImports`, with pages of at most about `bytes`.
pub(crate) fn list_imports(
    service: &Service,
    request: pb::ListImportsRequest,
    bytes: usize,
) -> Result<pb::ListImportsResponse, Error> {
    let page = Page::read(List::Imports, request.page_size, &request.page_token, bytes)?;
    Ok(service.list_imports(&read_clusterset(request.clusterset)?, request.include_endpoints, &page))
}

fn read_clusterset(clusterset: String) -> Result<ClustersetId, Error> {
    Ok(ClustersetId::new(clusterset).map_err(Refusal::from)?)
}

/// The most exports that one call may name.
fn most_names(service: &Service) -> usize {
    service.max_exports().saturating_mul(NAMES_FACTOR)
}
