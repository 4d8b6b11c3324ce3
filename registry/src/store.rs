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
//! - the writes of one call are made in their order; who reads between two of them sees the record of the member, told
//!   last, with a sum that is not that of its exports;
//! - a read is whole or fails: a page that is missing is never shown as an end;
//! - members, namespaces and clustersets are apart from each other.
//!
//! **Not promised**: that a read sees the last write of another process, or of this one before the answer to it.
//!
//! **Rejected**: a store of bytes under keys (each caller would have its own preconditions, and the suite nothing to
//! say about exports); a store that decides (there is one place that decides, and it has no I/O).

mod calls;
mod memory;

use std::collections::BTreeMap;
use std::time::Duration;

use mcs_core::ids::{ClustersetId, Region, ServiceKey};
use mcs_core::model::{Export, MemberState};
use mcs_core::version::{Sum, Version};
use mcs_proto::convert::Member;

pub(crate) use self::calls::Calls;
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
}

impl Failed {
    /// Whether the same call may succeed without anybody's doing.
    pub const fn retry_helps(&self) -> bool {
        match self {
            Self::TimedOut { .. } | Self::Away { .. } | Self::Throttled { .. } => true,
            Self::Refused { .. } => false,
        }
    }
}

/// Keeps the records of members.
#[tonic::async_trait]
pub trait Store: Send + Sync + 'static {
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

    /// Removes all records of a member. There may be none.
    ///
    /// # Errors
    /// Some of them may be gone.
    async fn remove(&self, member: &Member) -> Result<(), Failed>;

    /// All members of a clusterset; two of one id where two clusters claim it.
    ///
    /// # Errors
    /// It could not be read to its end.
    async fn members(&self, clusterset: &ClustersetId) -> Result<Vec<(Member, MemberRecord)>, Failed>;

    /// All exports of a member; none of one that is not known.
    ///
    /// # Errors
    /// It could not be read to its end.
    async fn exports(&self, member: &Member) -> Result<BTreeMap<ServiceKey, Export>, Failed>;
}
