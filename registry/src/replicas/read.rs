//! Reads what others changed, and finds what of the own is not in the table.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use mcs_core::ids::{ClusterId, ClusterUid, ServiceKey};
use mcs_core::registry::{self, Differing, Forgotten, Keys, Learnt, Read, Recorded, Rewrite, Who};
use mcs_core::version::Version;
use mcs_proto::convert::Member;
use tracing::{debug, info};

use super::Shared;
use super::todo::Job;
use crate::clusterset::{Clusterset, State};
use crate::store::{Calls, Exports, Failed, Found, Held, MemberRecord, Members};

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
    /// Whether the records of all members were read.
    pub(super) all: bool,
}

impl Clusterset {
    /// What is to be begun now.
    pub(super) fn next_jobs(&self, shared: &Shared) -> Vec<Job> {
        let now = self.clock().elapsed();
        let mut reads = shared.reads();
        if !reads.heard {
            return Vec::new();
        }
        if reads.compare_at.has_passed(now) {
            reads.queue.todo.all = true;
            // If it fails, it has a pause of its own.
            reads.compare_at = now + self.compares_in();
        }
        reads.queue.next(now, AT_ONCE)
    }

    /// Reads what is to be read.
    pub(super) async fn read_job(&self, shared: &Shared, calls: &Calls, job: &Job) -> Result<Done, Failed> {
        match job {
            Job::All => {
                let Differing { read, rewrite, remove } = self.compare(shared, calls).await?;
                let rewritten = self.rewrite_all(rewrite);
                let done = Done { all: true, rewritten: rewritten.len(), ..Done::default() };
                self.remove_again(remove);
                let mut reads = shared.reads();
                // Where the record was lost or overwritten, exports may have been, too.
                for who in read.into_iter().chain(rewritten) {
                    reads.queue.todo.read(who, Keys::All);
                }
                Ok(done)
            }
            Job::Member(who, keys) => {
                let limit = calls.read_limit();
                let read = tokio::time::timeout(limit, self.read_member(calls, who, keys)).await;
                let done = match read.unwrap_or(Err(Failed::TimedOut { limit })) {
                    Ok(done) => done,
                    Err(failed) => {
                        debug!(
                            clusterset = %self.id(), cluster = %who.cluster, error = %failed,
                            "records of a cluster cannot be read"
                        );
                        // What cannot be read of it is so until somebody writes it again, who says so then.
                        return match failed {
                            Failed::Unreadable { .. } => Ok(Done::default()),
                            failed => Err(failed),
                        };
                    }
                };
                if done.rewritten > 0 && *keys != Keys::All {
                    shared.reads().queue.todo.read(who.clone(), Keys::All);
                }
                Ok(done)
            }
        }
    }

    /// Reads the records of all members, and compares them with what is held.
    async fn compare(&self, shared: &Shared, calls: &Calls) -> Result<Differing, Failed> {
        let Members { whole, removed, torn } = calls.members(self.id()).await?;
        let torn = torn.into_keys().collect();
        shared.reads().compare_at = self.clock().elapsed() + self.compares_in();
        let recorded =
            |(member, record): (Member, MemberRecord)| (member.cluster.clone(), recorded(member.uid, record));
        let directory: Vec<_> = whole.into_iter().map(recorded).collect();
        Ok(self.learned(|state, now| {
            for (Member { cluster, uid, .. }, as_of) in removed {
                state.registry.was_removed(&Who { cluster, uid }, as_of, now);
            }
            state.registry.differing(&directory, &torn, now)
        }))
    }

    /// Reads one member.
    async fn read_member(&self, calls: &Calls, who: &Who, keys: &Keys) -> Result<Done, Failed> {
        let member =
            Member { clusterset: self.id().clone(), cluster: who.cluster.clone(), uid: who.uid.clone() };
        // The record is written last, so what is read after it is at least as new.
        let found = calls.member(&member).await?;
        let Some(Found::Record(record)) = found else {
            let forget = |state: &mut State, now| match found {
                Some(Found::Removed(as_of)) if state.registry.was_removed(who, as_of, now) => {
                    Forgotten { gone: true, rewrite: Rewrite::default() }
                }
                _ => state.registry.forget(&who.cluster, &who.uid, now),
            };
            let Forgotten { gone, rewrite } = self.learned(forget);
            debug!(clusterset = %self.id(), cluster = %who.cluster, gone, "store has no record of a cluster");
            return Ok(Done { rewritten: self.rewrite(&who.cluster, &who.uid, rewrite), ..Done::default() });
        };
        let read = match keys {
            Keys::Record => Read::Some { read: BTreeMap::new(), torn: BTreeSet::new() },
            Keys::All => {
                let held = self.held_of(who, |held| held.exports().clone());
                let Exports { whole, torn } = calls.exports(&member, &held).await?;
                Read::All { whole, torn }
            }
            Keys::Some(keys) => {
                let held = |key: &ServiceKey| self.held_of(who, |held| held.exports().get(key).cloned());
                let export = async |key: &ServiceKey| {
                    let read = calls.export(&member, key, held(key).as_ref()).await;
                    read.map(|read| (key.clone(), read))
                };
                let mut reads = futures::stream::iter(keys.iter().map(export)).buffer_unordered(AT_ONCE);
                let (mut read, mut torn) = (BTreeMap::new(), BTreeSet::new());
                while let Some((key, found)) = reads.next().await.transpose()? {
                    match found {
                        Some(Held::Whole(export)) => drop(read.insert(key, Some(export))),
                        Some(Held::Torn) => drop(torn.insert(key)),
                        None => drop(read.insert(key, None)),
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
    fn held_of<T: Default>(&self, who: &Who, look: impl FnOnce(&registry::Member) -> T) -> T {
        self.unsaved(|_, registry| {
            let held = registry.member(&who.cluster).filter(|held| *held.uid() == who.uid);
            held.map(look).unwrap_or_default()
        })
    }

    /// Notes that clusters are to be removed again.
    fn remove_again(&self, remove: BTreeMap<Who, Version>) {
        for (Who { cluster, uid }, as_of) in remove {
            info!(clusterset = %self.id(), %cluster, %uid, "store has a cluster again that was removed: it is removed again");
            self.unsaved(|unsaved, _| unsaved.remove_again(&cluster, uid, as_of));
        }
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
        self.unsaved(|unsaved, registry| {
            let as_of = registry.member(cluster).map(registry::Member::version).unwrap_or_default();
            unsaved.again(cluster, uid, as_of, rewrite.keys);
        });
        1
    }
}

fn recorded(uid: ClusterUid, record: MemberRecord) -> Recorded {
    let MemberRecord { region, version, sum, state, claimed_at } = record;
    Recorded { uid, region, version, sum, state, claimed_at }
}
