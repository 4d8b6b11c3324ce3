//! `Members.Sync`: begin, names, names end, ops, end; a stream that breaks deletes nothing.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use futures::{Stream, StreamExt};
use mcs_core::ids::ServiceKey;
use mcs_core::text::shown;
use mcs_core::validate::Refusal;
use mcs_core::version::Version;
use mcs_proto::chunks::pack;
use mcs_proto::convert::{Member, OpReader, held_export, read_key, read_leaf, read_version, result};
use mcs_proto::pb;
use mcs_proto::pb::sync_request::Step as Ask;
use mcs_proto::pb::sync_response::Step as Tell;
use mcs_runtime::http::Held;
use tokio::sync::mpsc;
use tonic::{Code, Status};
use tracing::info;

use super::most_names;
use crate::caller::{Caller, Writer};
use crate::error::{Error, Excess};
use crate::service::{Service, Synced};

/// This many answers of a sync wait for their reader at most.
pub(crate) const ANSWERS: usize = 16;

/// The most characters of a reason in the log.
const SHOWN: usize = 200;

/// Where the answers of a sync go.
pub(crate) type Answers = mpsc::Sender<Result<pb::SyncResponse, Status>>;

/// A sync that has begun.
pub(crate) struct Sync<S> {
    service: Arc<Service>,
    writer: Writer,
    version: Version,
    requests: S,
    course: Course,
}

/// How a sync goes.
enum Course {
    /// It goes on.
    Open,
    /// It is over, as its caller wanted.
    Over,
    /// It is over for this reason.
    Broken(Cow<'static, str>),
}

impl<S> Drop for Sync<S> {
    /// Logs the end of one that was broken off.
    fn drop(&mut self) {
        let reason = match &self.course {
            Course::Over => return,
            Course::Broken(reason) => reason,
            Course::Open if self.service.shutdown().is_draining() => "the registry ends",
            Course::Open => "the caller has gone",
        };
        let Member { clusterset, cluster, .. } = self.writer.member();
        info!(%clusterset, %cluster, version = %self.version, reason, "sync broken off: nothing is deleted");
    }
}

/// Does what a sync does until it, the caller or the drain ends it, and tells an error as the last answer. Says how it
/// ended, unless the caller has gone.
pub(crate) async fn until_over(
    service: &Service,
    answers: &Answers,
    steps: impl Future<Output = Result<(), Error>>,
) -> Option<Code> {
    let ended = tokio::select! {
        ended = steps => ended,
        () = service.shutdown().draining() => Err(Error::Draining),
        // Nothing is deleted.
        () = answers.closed() => return None,
    };
    let Err(error) = ended else { return Some(Code::Ok) };
    let status = Status::from(service.failed(error));
    let code = status.code();
    // A caller that has gone needs no answer.
    let _ = answers.send(Err(status)).await;
    Some(code)
}

impl<S: Stream<Item = Result<pb::SyncRequest, Error>> + Unpin> Sync<S> {
    /// Begins a sync with the first of `requests`.
    pub(crate) async fn begin(
        service: Arc<Service>,
        caller: &Caller,
        mut requests: S,
    ) -> Result<Self, Error> {
        let Some(Ask::Begin(begin)) = next(&service, &mut requests).await? else {
            return Err(Refusal::new("step", "a sync must begin with begin").into());
        };
        let writer = Writer::called_by(caller, Member::read(begin.clusterset, begin.cluster, begin.uid)?)?;
        let version = read_version(begin.version)?;
        service.begin_sync(&writer, version)?;
        Ok(Self { service, writer, version, requests, course: Course::Open })
    }

    /// Leads it to its end. With `names_alone` the caller may stop after the names, which ends nothing, and come again
    /// with what is wanted.
    pub(crate) async fn lead(mut self, answers: &Answers, names_alone: bool) -> Result<(), Error> {
        let led = self.take_steps(answers, names_alone).await;
        self.course = match &led {
            Ok(()) => Course::Over,
            Err(error) => Course::Broken(shown(&error.to_string(), SHOWN).into()),
        };
        led
    }

    async fn take_steps(&mut self, answers: &Answers, names_alone: bool) -> Result<(), Error> {
        let named = self.take_names(answers).await?;
        let mut reader = OpReader::default();
        let mut ops = 0;
        loop {
            match next(&self.service, &mut self.requests).await? {
                Some(Ask::Op(op)) => {
                    ops += 1;
                    let Some(op) = reader.push(op)? else { continue };
                    for (key, outcome) in self.service.take_changes(&self.writer, self.version, vec![op])? {
                        let held = outcome.is_err().then(|| self.service.held(&self.writer, &key)).flatten();
                        let held = held.as_ref().map(held_export);
                        tell(answers, Tell::Result(pb::OpResult { held, ..result(key, outcome) })).await;
                    }
                }
                Some(Ask::End(_)) => break,
                Some(_) => {
                    return Err(Refusal::new("step", "ops and the end must follow the names").into());
                }
                None if names_alone && ops == 0 => return Ok(()),
                None => return Err(Refusal::missing("end").into()),
            }
        }
        reader.finish()?;
        let Synced { deleted, degraded } = self.service.end_sync(&self.writer, self.version, &named).await?;
        let deleted = u32::try_from(deleted).unwrap_or(u32::MAX);
        tell(answers, Tell::Done(pb::SyncDone { deleted, degraded })).await;
        Ok(())
    }

    /// Takes the names, and says which are wanted.
    async fn take_names(&mut self, answers: &Answers) -> Result<BTreeSet<ServiceKey>, Error> {
        let most = most_names(&self.service);
        let mut named = BTreeSet::new();
        loop {
            match next(&self.service, &mut self.requests).await? {
                Some(Ask::Names(more)) => {
                    let read =
                        |name: &pb::SyncName| Ok((read_key(name.key.as_ref())?, read_leaf(&name.leaf)?));
                    let names = more.names.iter().map(read).collect::<Result<Vec<_>, Refusal>>()?;
                    let wanted = self.service.wanted(&self.writer, self.version, &names)?;
                    named.extend(names.into_iter().map(|(key, _)| key));
                    if named.len() > most {
                        return Err(Error::TooMuch { excess: Excess::SyncNames, most });
                    }
                    for keys in pack(wanted.iter().map(pb::ServiceKey::from)) {
                        tell(answers, Tell::Wants(pb::SyncWants { keys })).await;
                    }
                }
                Some(Ask::NamesEnd(_)) => break,
                Some(_) => return Err(Refusal::new("step", "names must follow the begin").into()),
                None => return Err(Refusal::missing("namesEnd").into()),
            }
        }
        tell(answers, Tell::WantsEnd(pb::SyncWantsEnd {})).await;
        Ok(named)
    }
}

/// The messages of a sync, of which each is done with when the next one is asked for: none counts as held any more once
/// it is there.
pub(crate) fn each_by_itself<M>(
    requests: impl Stream<Item = Result<M, Error>> + Unpin,
    held: Option<Held>,
) -> impl Stream<Item = Result<M, Error>> + Unpin {
    requests.inspect(move |_| {
        if let Some(held) = &held {
            held.free();
        }
    })
}

/// The next step. A client gives up a registry that is silent for so long, and is given up in turn.
async fn next(
    service: &Service,
    requests: &mut (impl Stream<Item = Result<pb::SyncRequest, Error>> + Unpin),
) -> Result<Option<Ask>, Error> {
    let limit = service.dead_stream();
    let message = tokio::time::timeout(limit, requests.next()).await;
    match message.map_err(|_| Error::Stalled { limit })?.transpose()? {
        None => Ok(None),
        Some(message) => {
            let unknown = || Refusal::new("step", "is missing or of a later release");
            Ok(Some(message.step.ok_or_else(unknown)?))
        }
    }
}

/// A caller that has gone is noticed by who reads its stream.
async fn tell(answers: &Answers, step: Tell) {
    let _ = answers.send(Ok(pb::SyncResponse { step: Some(step) })).await;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Parts, in_memory};

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_says_nothing_is_given_up() {
        let (Parts { service, .. }, _) = in_memory();
        let silent = futures::stream::pending();
        let begun =
            tokio::time::timeout(service.lease(), Sync::begin(service.clone(), &Caller::Anyone, silent))
                .await;
        let error = begun.unwrap().err().unwrap();
        assert!(matches!(error, Error::Stalled { limit } if limit == Duration::from_secs(15)), "{error}");
    }
}
