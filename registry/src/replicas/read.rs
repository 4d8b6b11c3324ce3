//! Reads what others changed, and finds what of the own is not in the table.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use mcs_core::ids::{ClusterId, ClusterUid};
use mcs_core::registry::{Differing, Forgotten, Keys, Learnt, Read, Recorded, Rewrite, Who};
use mcs_proto::convert::Member;
use tracing::{debug, info};

use super::Shared;
use super::todo::Todo;
use crate::clusterset::Clusterset;
use crate::store::{Calls, Exports, Failed, Held, Known, MemberRecord, Members};

/// So many members are read at once: the reads of one take turns.
const AT_ONCE: usize = 8;

/// What became of reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    /// Whether something of what was read is to be read again, since parts of it were not there yet.
    pub(super) again: bool,
    /// Members whose records are to be written again.
    pub(super) rewritten: usize,
    /// Exports that were torn.
    pub(super) torn: usize,
    /// Whether there is more to read at once.
    pub(super) more: bool,
    /// Whether the records of all members were read.
    pub(super) all: bool,
}

impl Clusterset {
    /// Reads what is to be read, if there is something. What could not be read is to be read again.
    pub(super) async fn read_todo(&self, shared: &Shared, calls: &Calls) -> Result<Option<Done>, Failed> {
        let todo = self.take_todo(shared);
        if todo.is_empty() {
            return Ok(None);
        }
        let Todo { all, mut members } = todo;
        let mut done = Done { all, ..Done::default() };
        if all {
            match self.compare(shared, calls).await {
                Ok(Differing { read, rewrite }) => {
                    let rewritten = self.rewrite_all(rewrite);
                    done.rewritten += rewritten.len();
                    // Where the record was lost or overwritten, exports may have been, too.
                    let all = read.into_iter().chain(rewritten).map(|who| (who, Keys::All));
                    members.extend(all);
                }
                Err(failed) => {
                    shared.reads().todo.put_back(Todo { all: true, members });
                    return Err(failed);
                }
            }
        }
        let reads = members.into_iter().map(|(who, keys)| async move {
            let read = self.read_member(calls, &who, &keys).await;
            (who, keys, read)
        });
        let mut reads = futures::stream::iter(reads).buffer_unordered(AT_ONCE);
        let mut failure = None;
        while let Some((who, keys, read)) = reads.next().await {
            match read {
                Ok(of_one) => {
                    done.again |= of_one.again;
                    done.rewritten += of_one.rewritten;
                    done.torn += of_one.torn;
                    if of_one.rewritten > 0 && keys != Keys::All {
                        shared.reads().todo.read(who, Keys::All);
                        done.more = true;
                    }
                }
                Err(failed) => {
                    debug!(
                        clusterset = %self.id(), cluster = %who.cluster, error = %failed,
                        "records of a cluster cannot be read"
                    );
                    // What cannot be read of it is so until somebody writes it again, who says so then.
                    if !matches!(failed, Failed::Unreadable { .. }) {
                        shared.reads().todo.read(who, keys);
                        failure = Some(failed);
                    }
                }
            }
        }
        failure.map_or(Ok(Some(done)), Err)
    }

    fn take_todo(&self, shared: &Shared) -> Todo {
        let now = self.clock().elapsed();
        let mut reads = shared.reads();
        if !reads.heard {
            return Todo::default();
        }
        let mut todo = std::mem::take(&mut reads.todo);
        todo.all |= reads.compare_at.has_passed(now);
        todo
    }

    /// Reads the records of all members, and compares them with what is held.
    async fn compare(&self, shared: &Shared, calls: &Calls) -> Result<Differing, Failed> {
        let Members { whole, torn } = calls.members(self.id()).await?;
        shared.reads().compare_at = self.clock().elapsed() + self.compares_in();
        let recorded =
            |(member, record): (Member, MemberRecord)| (member.cluster.clone(), recorded(member.uid, record));
        let directory: Vec<_> = whole.into_iter().map(recorded).collect();
        Ok(self.learned(|state, now| state.registry.differing(&directory, &torn, now)))
    }

    /// Reads one member.
    async fn read_member(&self, calls: &Calls, who: &Who, keys: &Keys) -> Result<Done, Failed> {
        let member =
            Member { clusterset: self.id().clone(), cluster: who.cluster.clone(), uid: who.uid.clone() };
        // The record is written last, so what is read after it is at least as new.
        let Some(record) = calls.member(&member).await? else {
            let Forgotten { gone, rewrite } =
                self.learned(|state, now| state.registry.forget(&who.cluster, &who.uid, now));
            debug!(clusterset = %self.id(), cluster = %who.cluster, gone, "store has no record of a cluster");
            return Ok(Done { rewritten: self.rewrite(&who.cluster, &who.uid, rewrite), ..Done::default() });
        };
        let read = match keys {
            Keys::Record => Read::Some { read: BTreeMap::new(), torn: BTreeSet::new() },
            Keys::All => {
                let Exports { whole, torn } = calls.exports(&member, &self.held_of(who)).await?;
                Read::All { whole, torn }
            }
            Keys::Some(keys) => {
                let held = self.held_of(who);
                let (mut read, mut torn) = (BTreeMap::new(), BTreeSet::new());
                for key in keys {
                    match calls.export(&member, key, held.get(key)).await? {
                        Some(Held::Whole(export)) => drop(read.insert(key.clone(), Some(export))),
                        Some(Held::Torn) => drop(torn.insert(key.clone())),
                        None => drop(read.insert(key.clone(), None)),
                    }
                }
                Read::Some { read, torn }
            }
        };
        let torn = match &read {
            Read::All { torn, .. } | Read::Some { torn, .. } => torn.len(),
        };
        let record = recorded(who.uid.clone(), record);
        let Learnt { again, rewrite } =
            self.learned(|state, now| state.registry.learn(&who.cluster, record, read, now));
        let rewritten = self.rewrite(&who.cluster, &who.uid, rewrite);
        Ok(Done { again, rewritten, torn, ..Done::default() })
    }

    /// What is held of a cluster: the store need not read what of it stands.
    fn held_of(&self, who: &Who) -> Known {
        self.unsaved(|_, registry| {
            let held = registry.member(&who.cluster).filter(|held| *held.uid() == who.uid);
            held.map(|held| held.exports().clone()).unwrap_or_default()
        })
    }

    fn rewrite_all(&self, rewrites: BTreeMap<ClusterId, Rewrite>) -> Vec<Who> {
        let rewrite = |(cluster, rewrite): (ClusterId, Rewrite)| {
            let uid = self.unsaved(|_, registry| Some(registry.member(&cluster)?.uid().clone()))?;
            let rewritten = self.rewrite(&cluster, &uid, rewrite) > 0;
            rewritten.then_some(Who { cluster, uid })
        };
        rewrites.into_iter().filter_map(rewrite).collect()
    }

    /// Notes what the store lost of a member that is served here; says of how many members something is to be written.
    fn rewrite(&self, cluster: &ClusterId, uid: &ClusterUid, rewrite: Rewrite) -> usize {
        if rewrite.is_empty() {
            return 0;
        }
        info!(
            clusterset = %self.id(), %cluster, exports = rewrite.keys.len(), record = rewrite.record,
            "store lost what was written of a cluster, or holds older: it is written again"
        );
        self.unsaved(|unsaved, _| unsaved.again(cluster, uid, rewrite.keys));
        1
    }
}

fn recorded(uid: ClusterUid, record: MemberRecord) -> Recorded {
    let MemberRecord { region, version, sum, state, claimed_at } = record;
    Recorded { uid, region, version, sum, state, claimed_at }
}
