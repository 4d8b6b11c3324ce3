//! Where the records of a registry are kept besides its own memory, behind one narrow trait.
//!
//! **Layout.** A record of each member, and one of each of its exports, under the member's clusterset, id *and* UID: two
//! clusters with one id share no record. What is decided ([`mcs_core::registry`]) is decided without a store; what is
//! stored is what is, not what was said, so that a call may be repeated, and one that is overtaken does no harm.
//!
//! **Guarantees** that every store gives (`registry/tests/it/store/suite.rs`, which each of them passes):
//!
//! - a record is never replaced by an older one, and one that is equally old is taken again, so that who repeats a
//!   call whose answer was lost is told that it was taken;
//! - the writes of one call that concern one export are made in their order, and the record of the member after all that
//!   come before it; who reads in between sees a record with a sum that is not that of its exports;
//! - a read is whole or fails: a page that is missing is never shown as an end; an export of which a part is not there yet,
//!   and a record that cannot be read, is named as such, not left out;
//! - members, namespaces and clustersets are apart from each other.
//!
//! **Not promised**: that a delete is remembered, so that an older write which comes after it is refused: the sum of the
//! record tells; that a read sees the last write of another process, or of this one before the answer to it.
//!
//! **Rejected**: a store of bytes under keys (each caller would have its own preconditions, and the suite nothing to
//! say about exports); a store that decides (there is one place that decides, and it has no I/O).

mod calls;
mod dynamodb;
mod memory;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mcs_core::ids::{ClusterId, ClustersetId, Epoch, Region, ServiceKey};
use mcs_core::model::{Export, MemberState};
use mcs_core::replicas::{Beat, News, UidTag};
use mcs_core::time::{WallMillis, WallTime};
use mcs_core::version::{Sum, Version};
use mcs_proto::convert::Member;

pub(crate) use self::calls::Calls;
pub use self::dynamodb::DynamoDb;
pub use self::memory::Memory;

/// What is kept of a member besides its exports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRecord {
    /// Its region, where it has one.
    pub region: Option<Region>,
    /// The version of the whole set that is held.
    pub version: Version,
    /// The sum of the leaves of that set.
    pub sum: Sum,
    /// What the registry thinks of it.
    pub state: MemberState,
    /// When the cluster took its id, by the wall clock of the registry that let it: of two clusters that took one id in
    /// two regions, the earlier keeps it. None where that is not known.
    pub claimed_at: Option<WallMillis>,
}

/// One record to be as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// An export is this.
    Put(ServiceKey, Export),
    /// An export is gone, as of this version of its owner.
    Delete(ServiceKey, Version),
    /// The member is this.
    Member(MemberRecord),
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrote {
    /// The store holds it.
    Taken,
    /// The store holds something newer, which stands.
    Older,
}

/// What became of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Erased {
    /// There is no record any more.
    Gone {
        /// How many exports went with it.
        exports: usize,
    },
    /// The store holds a newer record, which stands.
    Newer,
}

/// What a store holds of a member besides its exports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Its record.
    Record(MemberRecord),
    /// That it was removed as of this version. It is kept for a time, so that no registry that has not heard of it writes
    /// again what it thinks of the member.
    Removed(Version),
}

/// The members of a clusterset as they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Those whose records were read; two of one id where two clusters claim it.
    pub whole: Vec<(Member, MemberRecord)>,
    /// Those that were [removed](Found::Removed), and as of which versions.
    pub removed: Vec<(Member, Version)>,
    /// Those that have a record which cannot be read: what was known of them stands.
    pub torn: BTreeMap<(ClusterId, UidTag), Torn>,
}

/// Why a record cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Torn {
    /// A later release wrote it, which can read it.
    Newer,
    /// It is damaged: no release can read it.
    Damaged,
}

/// One export as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// All of it.
    Whole(Export),
    /// It was written, but parts of it cannot be read, or not yet: what was known of it stands, and it is read again.
    Torn,
}

/// Exports of a member as its reader holds them already: what of them has not changed need not be fetched again.
pub type Known = BTreeMap<ServiceKey, Export>;

/// The most entries of [`News`] that cost no more to write than one does.
pub const NEWS_ENTRIES: usize = 39;

/// The exports of a member as they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exports {
    /// Those that were read whole.
    pub whole: BTreeMap<ServiceKey, Export>,
    /// Those that are [`Held::Torn`].
    pub torn: BTreeSet<ServiceKey>,
}

/// What one replica says of a clusterset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Its renewals.
    pub beat: Beat,
    /// What it changed lately; none where it changed nothing.
    pub news: Option<News>,
}

/// Why a store did not do what it was asked to. Nothing is known of what it did.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// No answer in time.
    #[error("the store did not answer within {limit:?}")]
    TimedOut {
        /// The limit of the call.
        limit: Duration,
    },
    /// It cannot be reached, or cannot do its work.
    #[error("the store cannot be used now: {reason}")]
    Away {
        /// What happened.
        reason: String,
    },
    /// It is asked for more than it can do.
    #[error("the store is asked for too much: {reason}")]
    Throttled {
        /// The store's words.
        reason: String,
    },
    /// It refuses, and will do so until somebody changes something.
    #[error("the store refuses: {reason}")]
    Refused {
        /// The store's words.
        reason: String,
    },
    /// There is a record that this release cannot read. The store itself is well.
    #[error("{what} cannot be read by this release: {problem}")]
    Unreadable {
        /// Where the record is.
        what: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl Failed {
    /// Whether the same call may succeed without anybody's doing.
    pub const fn retry_helps(&self) -> bool {
        match self {
            Self::TimedOut { .. } | Self::Away { .. } | Self::Throttled { .. } => true,
            Self::Refused { .. } | Self::Unreadable { .. } => false,
        }
    }
}

/// Keeps the records of members.
#[tonic::async_trait]
pub trait Store: Send + Sync + 'static {
    /// Whether other registries may have written what is read here.
    fn is_shared(&self) -> bool;

    /// Whether it can be used. A registry is not ready before it was once.
    ///
    /// # Errors
    /// Why it cannot.
    async fn check(&self) -> Result<(), Failed>;

    /// Makes records of one member be as they are now, in this order; one outcome a write.
    ///
    /// # Errors
    /// Some of the writes may have been made.
    async fn write(&self, member: &Member, writes: Vec<Write>) -> Result<Vec<Wrote>, Failed>;

    /// Removes all records of a member, as of this version of it: where its record is newer, everything stands, and so do
    /// exports that are newer. There may be nothing. In a store that is shared it stands for a time that the member was
    /// removed: a record of it that says that its lease has run out is refused like an older one, whatever its version.
    ///
    /// # Errors
    /// Some of them may be gone, the record first: who repeats this goes on with what is left.
    async fn remove(&self, member: &Member, as_of: Version) -> Result<Erased, Failed>;

    /// Removes a record that [cannot be read](Torn::Damaged), by its key alone, and what its member exports; what only a
    /// later release can read stands. A store without such records has none.
    ///
    /// # Errors
    /// Some of it may be gone; the record goes last.
    async fn remove_damaged(
        &self,
        _clusterset: &ClustersetId,
        _cluster: &ClusterId,
        _tag: UidTag,
    ) -> Result<Erased, Failed> {
        Ok(Erased::Gone { exports: 0 })
    }

    /// All members of a clusterset.
    ///
    /// # Errors
    /// It could not be read to its end.
    async fn members(&self, clusterset: &ClustersetId) -> Result<Members, Failed>;

    /// The record of one member, or that it was removed; none of one that is not known.
    ///
    /// # Errors
    /// It could not be read.
    async fn member(&self, member: &Member) -> Result<Option<Found>, Failed>;

    /// All exports of a member; none of one that is not known. `known` says what its reader holds of them.
    ///
    /// # Errors
    /// It could not be read to its end.
    async fn exports(&self, member: &Member, known: &Known) -> Result<Exports, Failed>;

    /// One export of a member; none where there is none. `known` is what its reader holds of it.
    ///
    /// # Errors
    /// It could not be read.
    async fn export(
        &self,
        member: &Member,
        key: &ServiceKey,
        known: Option<&Export>,
    ) -> Result<Option<Held>, Failed>;

    /// The exports of a member that are to be written again as they are, for a store that collects what nobody writes any
    /// more. Asked once a day of each member that is alive, it lets nothing of one go that a registry serves.
    ///
    /// # Errors
    /// They could not be read to their end.
    async fn fading(&self, member: &Member) -> Result<BTreeSet<ServiceKey>, Failed>;

    /// What all replicas say of a clusterset; nothing of a store that is not shared.
    ///
    /// # Errors
    /// It could not be read to its end.
    async fn replicas(&self, clusterset: &ClustersetId) -> Result<Vec<Replica>, Failed>;

    /// When each replica said something last, by its wall clock, where the store tells: for people, and not for what is
    /// decided of a lease.
    ///
    /// # Errors
    /// It could not be read to its end.
    async fn said_at(&self, _clusterset: &ClustersetId) -> Result<BTreeMap<Epoch, WallTime>, Failed> {
        Ok(BTreeMap::new())
    }

    /// Says who was heard, in place of what this replica said before. A store that is not shared keeps nothing of it.
    ///
    /// # Errors
    /// It may be written.
    async fn beat(&self, clusterset: &ClustersetId, beat: &Beat) -> Result<(), Failed>;

    /// Says what changed, in place of what this replica said before. A store that is not shared keeps nothing of it.
    ///
    /// # Errors
    /// It may be written.
    async fn news(&self, clusterset: &ClustersetId, news: &News) -> Result<(), Failed>;

    /// Removes what a replica said that is no more. There may be nothing.
    ///
    /// # Errors
    /// Some of it may be there still.
    async fn retire(&self, clusterset: &ClustersetId, replica: Epoch) -> Result<(), Failed>;
}
