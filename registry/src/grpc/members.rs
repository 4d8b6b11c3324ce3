//! `dynamo.mcs.v1.Members`.

use std::collections::BTreeSet;

use mcs_core::ids::{ClusterId, ClusterUid, ClustersetId, ServiceKey};
use mcs_core::version::Version;
use mcs_proto::chunks::pack;
use mcs_proto::convert::{
    ConversionError, Member, OpReader, read_key, read_leaf, read_registration, read_sum, read_version,
    read_write_head, result,
};
use mcs_proto::pb;
use mcs_proto::pb::members_server::Members;
use mcs_proto::pb::sync_request::Step as Ask;
use mcs_proto::pb::sync_response::Step as Tell;
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status, Streaming};
use tracing::debug;

use super::Grpc;
use crate::caller::{Caller, Writer};
use crate::error::Error;

/// This many answers of a sync wait for their reader at most.
const ANSWERS: usize = 16;

/// A write or a sync may name this many times the exports that a cluster may have: those above the limit are refused
/// one by one.
const NAMES_FACTOR: usize = 2;

/// The most bytes of a write, which is held until it is whole: the largest export that there may be, several times.
const MAX_WRITE_BYTES: usize = 64 * 1024 * 1024;

#[tonic::async_trait]
impl Members for Grpc {
    async fn register(
        &self,
        request: Request<pb::RegisterRequest>,
    ) -> Result<Response<pb::RegisterResponse>, Status> {
        self.answer("Register", async {
            let caller = Caller::of(request.extensions());
            let (member, registration) = read_registration(request.into_inner())?;
            let registered = self.service.register(&caller.writer(member)?, registration)?;
            Ok(pb::RegisterResponse {
                epoch: self.service.epoch().0.to_be_bytes().to_vec(),
                lease_duration: Some(self.service.lease().into()),
                build: mcs_runtime::version().to_owned(),
                differs: registered.differs,
            })
        })
        .await
    }

    async fn renew(&self, request: Request<pb::RenewRequest>) -> Result<Response<pb::RenewResponse>, Status> {
        self.answer("Renew", async {
            let caller = Caller::of(request.extensions());
            let request = request.into_inner();
            let writer = caller.writer(Member::read(request.clusterset, request.cluster, request.uid)?)?;
            let renewed =
                self.service.renew(&writer, read_version(request.version)?, read_sum(&request.sum)?)?;
            Ok(pb::RenewResponse {
                state: pb::LeaseState::from(renewed.state).into(),
                differs: renewed.differs,
                degraded: false,
                lease_duration: Some(self.service.lease().into()),
            })
        })
        .await
    }

    type SyncStream = ReceiverStream<Result<pb::SyncResponse, Status>>;

    async fn write(
        &self,
        request: Request<Streaming<pb::WriteRequest>>,
    ) -> Result<Response<pb::WriteResponse>, Status> {
        self.answer("Write", async {
            let caller = Caller::of(request.extensions());
            let mut stream = request.into_inner();
            let mut first =
                next(&mut stream).await?.ok_or_else(|| ConversionError::missing("the first message"))?;
            let (member, version) = read_write_head(&mut first)?;
            let writer = caller.writer(member)?;
            let (mut reader, mut ops) = (OpReader::default(), Vec::new());
            let (most, mut bytes) = (self.most_names(), 0);
            let mut message = Some(first);
            while let Some(part) = message {
                bytes += part.encoded_len();
                if bytes > MAX_WRITE_BYTES {
                    return Err(Error::Limit {
                        limit: "the number of bytes in a write",
                        most: MAX_WRITE_BYTES,
                    });
                }
                for op in part.ops {
                    ops.extend(reader.push(op)?);
                    if ops.len() > most {
                        return Err(Error::Limit { limit: "the number of changes in a write", most });
                    }
                }
                message = next(&mut stream).await?;
            }
            reader.finish()?;
            let outcomes = self.service.write(&writer, version, ops)?;
            let results = outcomes.into_iter().map(|(key, outcome)| result(key, outcome)).collect();
            Ok(pb::WriteResponse { results, degraded: false })
        })
        .await
    }

    async fn sync(
        &self,
        request: Request<Streaming<pb::SyncRequest>>,
    ) -> Result<Response<Self::SyncStream>, Status> {
        let (answers, receiver) = mpsc::channel(ANSWERS);
        let (grpc, caller) = (self.clone(), Caller::of(request.extensions()));
        tokio::spawn(async move {
            let measured = grpc.metrics.begin("grpc", "Sync");
            tokio::select! {
                code = grpc.answer_sync(&caller, request.into_inner(), &answers) => measured.ended(code),
                // The caller has gone, and nothing is deleted.
                () = answers.closed() => {}
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn remove_cluster(
        &self,
        request: Request<pb::RemoveClusterRequest>,
    ) -> Result<Response<pb::RemoveClusterResponse>, Status> {
        self.answer("RemoveCluster", async {
            let caller = Caller::of(request.extensions());
            let request = request.into_inner();
            let clusterset = ClustersetId::new(request.clusterset).map_err(ConversionError::from)?;
            let cluster = ClusterId::new(request.cluster).map_err(ConversionError::from)?;
            let uid = match request.uid.as_str() {
                "" => None,
                uid => Some(ClusterUid::new(uid).map_err(ConversionError::from)?),
            };
            let remover = caller.remover(clusterset, cluster)?;
            let removed = self.service.remove(&remover, uid.as_ref(), request.force)?;
            let count = |count| u32::try_from(count).unwrap_or(u32::MAX);
            Ok(pb::RemoveClusterResponse {
                exports: count(removed.exports),
                endpoints: count(removed.endpoints),
            })
        })
        .await
    }
}

/// The next message of a stream; none at its end.
async fn next<T>(stream: &mut Streaming<T>) -> Result<Option<T>, Error> {
    stream.message().await.map_err(Error::Stream)
}

type Answers = mpsc::Sender<Result<pb::SyncResponse, Status>>;

impl Grpc {
    /// The most exports that one call may name.
    fn most_names(&self) -> usize {
        self.service.max_exports().saturating_mul(NAMES_FACTOR)
    }

    /// Leads a sync to its end, and says how it ended. The drain ends it.
    async fn answer_sync(
        &self,
        caller: &Caller,
        mut stream: Streaming<pb::SyncRequest>,
        answers: &Answers,
    ) -> Code {
        let ended = tokio::select! {
            ended = self.sync_steps(caller, &mut stream, answers) => ended,
            () = self.service.shutdown().draining() => Err(Error::Draining),
        };
        let Err(error) = ended else { return Code::Ok };
        debug!(%error, "sync broken off");
        let status = Status::from(error);
        let code = status.code();
        // A caller that has gone needs no answer.
        let _ = answers.send(Err(status)).await;
        code
    }

    async fn sync_steps(
        &self,
        caller: &Caller,
        stream: &mut Streaming<pb::SyncRequest>,
        answers: &Answers,
    ) -> Result<(), Error> {
        let Some(Ask::Begin(begin)) = next_ask(stream).await? else {
            return Err(ConversionError::new("step", "a sync must begin with begin").into());
        };
        let writer = caller.writer(Member::read(begin.clusterset, begin.cluster, begin.uid)?)?;
        let version = read_version(begin.version)?;
        self.service.begin_sync(&writer, version)?;

        let named = self.sync_names(&writer, version, stream, answers).await?;
        let mut reader = OpReader::default();
        loop {
            match next_ask(stream).await? {
                Some(Ask::Op(op)) => {
                    let Some(op) = reader.push(op)? else { continue };
                    for (key, outcome) in self.service.write(&writer, version, vec![op])? {
                        tell(answers, Tell::Result(result(key, outcome))).await;
                    }
                }
                Some(Ask::End(_)) => break,
                Some(_) => {
                    return Err(ConversionError::new("step", "ops and the end must follow the names").into());
                }
                None => return Err(ConversionError::missing("end").into()),
            }
        }
        reader.finish()?;
        let deleted = self.service.end_sync(&writer, version, &named)?;
        let deleted = u32::try_from(deleted).unwrap_or(u32::MAX);
        tell(answers, Tell::Done(pb::SyncDone { deleted, degraded: false })).await;
        Ok(())
    }

    /// Takes the names, and says which are wanted.
    async fn sync_names(
        &self,
        writer: &Writer,
        version: Version,
        stream: &mut Streaming<pb::SyncRequest>,
        answers: &Answers,
    ) -> Result<BTreeSet<ServiceKey>, Error> {
        let most = self.most_names();
        let mut named = BTreeSet::new();
        loop {
            match next_ask(stream).await? {
                Some(Ask::Names(more)) => {
                    let read =
                        |name: &pb::SyncName| Ok((read_key(name.key.as_ref())?, read_leaf(&name.leaf)?));
                    let names = more.names.iter().map(read).collect::<Result<Vec<_>, ConversionError>>()?;
                    let wanted = self.service.wanted(writer, version, &names)?;
                    named.extend(names.into_iter().map(|(key, _)| key));
                    if named.len() > most {
                        return Err(Error::Limit { limit: "the number of names in a sync", most });
                    }
                    for keys in pack(wanted.iter().map(pb::ServiceKey::from)) {
                        tell(answers, Tell::Wants(pb::SyncWants { keys })).await;
                    }
                }
                Some(Ask::NamesEnd(_)) => break,
                Some(_) => return Err(ConversionError::new("step", "names must follow the begin").into()),
                None => return Err(ConversionError::missing("names_end").into()),
            }
        }
        tell(answers, Tell::WantsEnd(pb::SyncWantsEnd {})).await;
        Ok(named)
    }
}

async fn next_ask(stream: &mut Streaming<pb::SyncRequest>) -> Result<Option<Ask>, Error> {
    match next(stream).await? {
        None => Ok(None),
        Some(message) => {
            let unknown = || ConversionError::new("step", "is missing or of a later release");
            Ok(Some(message.step.ok_or_else(unknown)?))
        }
    }
}

/// A caller that has gone is noticed by who reads its stream.
async fn tell(answers: &Answers, step: Tell) {
    let _ = answers.send(Ok(pb::SyncResponse { step: Some(step) })).await;
}
