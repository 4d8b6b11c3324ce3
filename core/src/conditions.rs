//! Facts of a ServiceExport → its conditions Valid, Ready and Conflict (KEP-1645: ServiceExport status).
//!
//! Guarantees: equal facts change nothing, so nothing is written; the time of a transition changes only with the
//! status; conditions of other types belong to other writers, and keep their content and place. What is not known does
//! not undo what was: a pending export keeps the last verdict on Ready, and one that is not merged yet keeps its
//! Conflict, so that a restarted controller does not flip the conditions of all exports.

use crate::model::{Conflict, ConflictField};
use crate::names::{
    CONDITION_CONFLICT, CONDITION_READY, CONDITION_VALID, REASON_ANNOTATIONS_CONFLICT, REASON_FAILED,
    REASON_INTERNAL_TRAFFIC_POLICY_CONFLICT, REASON_INVALID_SERVICE_TYPE, REASON_IP_FAMILY_CONFLICT,
    REASON_LABELS_CONFLICT, REASON_LEASE_EXPIRED, REASON_NO_CONFLICTS, REASON_NO_SERVICE, REASON_PENDING,
    REASON_PORT_CONFLICT, REASON_READY, REASON_SESSION_AFFINITY_CONFIG_CONFLICT,
    REASON_SESSION_AFFINITY_CONFLICT, REASON_TRAFFIC_DISTRIBUTION_CONFLICT, REASON_TYPE_CONFLICT,
    REASON_VALID,
};
use crate::time::WallTime;
use crate::timing::FINALIZER_LIMIT;

/// Whether what a condition says is so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is.
    True,
    /// It is not.
    False,
    /// It is not known yet.
    Unknown,
}

impl Status {
    /// As Kubernetes writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }

    /// Reads what Kubernetes writes.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::True, Self::False, Self::Unknown].into_iter().find(|status| status.as_str() == text)
    }
}

/// A condition of an object's status (Kubernetes: `metav1.Condition`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its type; an object has at most one of each.
    pub kind: String,
    /// Whether it is so.
    pub status: Status,
    /// One word for machines, or several joined with commas.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
    /// The generation of the object that this was said of.
    pub observed_generation: Option<i64>,
    /// When the status changed last.
    pub last_transition_time: WallTime,
}

/// What a condition says, without its type and times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it is so.
    pub status: Status,
    /// One word for machines, or several joined with commas.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
}

impl Verdict {
    /// The verdict `status` for `reason`, explained by `message`.
    pub fn new(status: Status, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { status, reason: reason.into(), message: message.into() }
    }
}

/// What is known of one ServiceExport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportFacts {
    /// Whether its Service can be exported.
    pub validity: Validity,
    /// How far the export has come.
    pub progress: Progress,
    /// On what the exports of this Service differ; none while the registry has not told the merge.
    pub conflicts: Option<Vec<Conflict>>,
}

/// Whether a ServiceExport names a Service that can be exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// It does.
    Valid,
    /// There is no such Service.
    NoService,
    /// The Service is of a kind that is never exported.
    InvalidServiceType(Unexportable),
}

/// A kind of Service that is never exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unexportable {
    /// `type: ExternalName`: it has no endpoints of its own.
    ExternalName,
    /// This system made it for an import: exported again it would never end.
    Derived,
}

/// How far a valid export has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The registry has not answered yet.
    Pending,
    /// The registry holds it.
    Ready,
    /// The registry refused it.
    Failed {
        /// The registry's reason: field and problem.
        reason: String,
    },
    /// The cluster's lease has run out.
    LeaseExpired,
}

/// The conditions of a ServiceExport of `generation` whose conditions were `previous`.
pub fn conditions(
    facts: &ExportFacts,
    previous: &[Condition],
    generation: i64,
    now: WallTime,
) -> Vec<Condition> {
    let mut conditions = previous.to_vec();
    let mut set = |kind: &str, verdict: Verdict| put(&mut conditions, kind, verdict, generation, now);
    set(CONDITION_VALID, valid(facts.validity));
    if facts.validity != Validity::Valid {
        let message = "the export is not valid, so nothing is exported";
        set(CONDITION_READY, Verdict::new(Status::False, REASON_PENDING, message));
        conditions.retain(|condition| condition.kind != CONDITION_CONFLICT);
        return conditions;
    }
    let judged = previous
        .iter()
        .any(|condition| condition.kind == CONDITION_READY && condition.reason != REASON_PENDING);
    if facts.progress != Progress::Pending || !judged {
        set(CONDITION_READY, ready(&facts.progress));
    }
    if let Some(conflicts) = &facts.conflicts {
        set(CONDITION_CONFLICT, conflict(conflicts));
    }
    conditions
}

/// The conditions of a ServiceExport that is being deleted and still waits for a registry, whose conditions were
/// `previous`: what its finalizer waits for, and how long.
pub fn ending(previous: &[Condition], generation: i64, now: WallTime) -> Vec<Condition> {
    let mut conditions = previous.to_vec();
    let message = format!(
        "being deleted: the finalizer stays until a registry has let the export go, at most {} s after the deletion",
        FINALIZER_LIMIT.as_secs()
    );
    let verdict = Verdict::new(Status::Unknown, REASON_PENDING, message);
    put(&mut conditions, CONDITION_READY, verdict, generation, now);
    conditions
}

/// Puts one condition in its place, or at the end where there is none of its type. The time of the transition is
/// `now` only if the status is another than before.
pub fn put(conditions: &mut Vec<Condition>, kind: &str, verdict: Verdict, generation: i64, now: WallTime) {
    let Verdict { status, reason, message } = verdict;
    let known = conditions.iter_mut().find(|condition| condition.kind == kind);
    let last_transition_time = match &known {
        Some(known) if known.status == status => known.last_transition_time,
        _ => now,
    };
    let condition = Condition {
        kind: kind.to_owned(),
        status,
        reason,
        message,
        observed_generation: Some(generation),
        last_transition_time,
    };
    match known {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}

fn valid(validity: Validity) -> Verdict {
    let (status, reason, message) = match validity {
        Validity::Valid => (Status::True, REASON_VALID, "the Service can be exported"),
        Validity::NoService => {
            (Status::False, REASON_NO_SERVICE, "there is no Service of this name in this namespace")
        }
        Validity::InvalidServiceType(Unexportable::ExternalName) => (
            Status::False,
            REASON_INVALID_SERVICE_TYPE,
            "a Service of type ExternalName cannot be exported: it has no endpoints",
        ),
        Validity::InvalidServiceType(Unexportable::Derived) => (
            Status::False,
            REASON_INVALID_SERVICE_TYPE,
            "the Service was made for an import, and nothing imported is exported again",
        ),
    };
    Verdict::new(status, reason, message)
}

fn ready(progress: &Progress) -> Verdict {
    let (status, reason, message) = match progress {
        Progress::Pending => (Status::Unknown, REASON_PENDING, "waiting for a registry to take the export"),
        Progress::Ready => (Status::True, REASON_READY, "the registry holds the export"),
        Progress::Failed { reason } => (Status::False, REASON_FAILED, reason.as_str()),
        Progress::LeaseExpired => (
            Status::False,
            REASON_LEASE_EXPIRED,
            "this cluster's lease has run out: no registry has taken a renewal for that long, or none has got all that \
             is exported since; other clusters no longer show its endpoints",
        ),
    };
    Verdict::new(status, reason, message)
}

fn conflict(conflicts: &[Conflict]) -> Verdict {
    if conflicts.is_empty() {
        let message = "all clusters export the Service alike";
        return Verdict::new(Status::False, REASON_NO_CONFLICTS, message);
    }
    let mut conflicts: Vec<&Conflict> = conflicts.iter().collect();
    conflicts.sort();
    let reasons: Vec<&str> = conflicts.iter().map(|conflict| conflict.field.reason()).collect();
    let messages: Vec<String> = conflicts.iter().map(|conflict| describe(conflict)).collect();
    Verdict::new(Status::True, reasons.join(","), messages.join("; "))
}

/// For example `type: 2 of 5 clusters differ from cluster east, which has the oldest export and decides`.
fn describe(conflict: &Conflict) -> String {
    let Conflict { field, winner, differing, clusters } = conflict;
    let differ = if *differing == 1 { "differs" } else { "differ" };
    let decides = match field {
        ConflictField::Ports => "decides where ports clash",
        ConflictField::IpFamily => "decides their order; only common families are imported, if there are any",
        ConflictField::Type
        | ConflictField::SessionAffinity
        | ConflictField::SessionAffinityConfig
        | ConflictField::InternalTrafficPolicy
        | ConflictField::TrafficDistribution
        | ConflictField::Labels
        | ConflictField::Annotations => "decides",
    };
    format!(
        "{}: {differing} of {clusters} clusters {differ} from cluster {winner}, which has the oldest export and {decides}",
        field.field()
    )
}

impl ConflictField {
    /// The reason that the Conflict condition gives for a field.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Ports => REASON_PORT_CONFLICT,
            Self::Type => REASON_TYPE_CONFLICT,
            Self::SessionAffinity => REASON_SESSION_AFFINITY_CONFLICT,
            Self::SessionAffinityConfig => REASON_SESSION_AFFINITY_CONFIG_CONFLICT,
            Self::InternalTrafficPolicy => REASON_INTERNAL_TRAFFIC_POLICY_CONFLICT,
            Self::TrafficDistribution => REASON_TRAFFIC_DISTRIBUTION_CONFLICT,
            Self::Labels => REASON_LABELS_CONFLICT,
            Self::Annotations => REASON_ANNOTATIONS_CONFLICT,
            Self::IpFamily => REASON_IP_FAMILY_CONFLICT,
        }
    }

    /// A field as users of Service and ServiceExport write it.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Ports => "ports",
            Self::Type => "type",
            Self::SessionAffinity => "sessionAffinity",
            Self::SessionAffinityConfig => "sessionAffinityConfig",
            Self::InternalTrafficPolicy => "internalTrafficPolicy",
            Self::TrafficDistribution => "trafficDistribution",
            Self::Labels => "exportedLabels",
            Self::Annotations => "exportedAnnotations",
            Self::IpFamily => "ipFamilies",
        }
    }
}
