//! What a registry answers, in core's types.

use crate::convert;
use crate::convert::{OpResult, WireEnum, read_sixteen, required};
use crate::pb;
use mcs_core::ids::{Build, ClustersetId, Epoch, ServiceKey};
use mcs_core::model::{HeldExport, MemberState};
use mcs_core::outbox::Process;
use mcs_core::text::shown;
use mcs_core::time::WallMillis;
use mcs_core::validate::{Dropped, Refusal};
use std::collections::BTreeMap;
use std::time::Duration;

/// The most bytes of what a registry says of a caller, about.
const MAX_CALLER: usize = 1_000;

/// The answer to a Register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// The registry process that answered.
    pub by: Process,
    /// How long each renewal holds.
    pub lease: Duration,
    /// Whether the registry holds something else than the sum says.
    pub differs: bool,
}

impl TryFrom<pb::RegisterResponse> for Registered {
    type Error = Refusal;

    fn try_from(answer: pb::RegisterResponse) -> Result<Self, Self::Error> {
        Ok(Self {
            by: read_process(&answer.epoch, answer.build)?,
            lease: required(answer.lease_duration, "leaseDuration")?.into(),
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
    /// The registry process that answered.
    pub by: Process,
}

impl TryFrom<pb::RenewResponse> for Renewed {
    type Error = Refusal;

    fn try_from(answer: pb::RenewResponse) -> Result<Self, Self::Error> {
        Ok(Self {
            state: MemberState::from_wire(answer.state)?,
            differs: answer.differs,
            degraded: answer.degraded,
            lease: required(answer.lease_duration, "leaseDuration")?.into(),
            by: read_process(&answer.epoch, answer.build)?,
        })
    }
}

/// What a registry says of itself, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identified {
    /// The process that answered; always named.
    pub by: Process,
    /// What its wall clock said, where that is after 1970.
    pub wall: Option<WallMillis>,
    /// How long each renewal of a lease holds.
    pub lease: Duration,
    /// Whether its store is away.
    pub degraded: bool,
    /// Whether it shares its store with other registries.
    pub shares_store: bool,
    /// Who it takes the caller for, and what that allows.
    pub caller: String,
    /// The clustersets in which somebody has registered, by id.
    pub clustersets: Vec<ClustersetId>,
}

impl TryFrom<pb::GetRegistryResponse> for Identified {
    type Error = Refusal;

    fn try_from(answer: pb::GetRegistryResponse) -> Result<Self, Self::Error> {
        let clusterset = |id| Ok(ClustersetId::new(id)?);
        Ok(Self {
            by: read_process(&answer.epoch, answer.build)?,
            wall: answer.time.and_then(Into::into),
            lease: required(answer.lease_duration, "leaseDuration")?.into(),
            degraded: answer.degraded,
            shares_store: answer.shared_store,
            caller: shown(&answer.caller, MAX_CALLER),
            clustersets: answer.clustersets.into_iter().map(clusterset).collect::<Result<_, Refusal>>()?,
        })
    }
}

fn read_process(epoch: &[u8], build: String) -> Result<Process, Refusal> {
    let epoch = match epoch {
        [] => None,
        epoch => Some(Epoch(u128::from_be_bytes(read_sixteen(epoch, "epoch")?))),
    };
    Ok(Process { epoch, build: Build::new(build)? })
}

/// What became of the changes of an act.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// One for each change, in order.
    pub results: Vec<(ServiceKey, Result<(), Refusal>)>,
    /// Endpoints that were left out.
    pub dropped: Vec<(ServiceKey, Dropped)>,
    /// What stands of exports that a sync was refused.
    pub held: BTreeMap<ServiceKey, HeldExport>,
    /// Whether the registry's store is away.
    pub degraded: bool,
}

impl Written {
    pub(super) fn push(&mut self, result: pb::OpResult) -> Result<(), Refusal> {
        let OpResult { key, outcome, held } = convert::read_result(result)?;
        let outcome = outcome.map(|dropped| {
            self.dropped.extend(dropped.into_iter().map(|dropped| (key.clone(), dropped)));
        });
        self.held.extend(held.map(|held| (key.clone(), held)));
        self.results.push((key, outcome));
        Ok(())
    }
}

impl TryFrom<pb::WriteResponse> for Written {
    type Error = Refusal;

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
