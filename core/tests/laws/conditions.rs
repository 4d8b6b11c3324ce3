//! The conditions of a ServiceExport, as tables.

use crate::build::cluster;
use mcs_core::conditions::{
    Condition, ExportFacts, Progress, Status, Unexportable, Validity, conditions, ending,
};
use mcs_core::model::{Conflict, ConflictField};
use mcs_core::time::WallTime;

const T1: WallTime = WallTime::from_unix_secs(100);
const T2: WallTime = WallTime::from_unix_secs(200);

#[test]
fn every_fact_has_its_status_and_reason() {
    let valid = |progress, conflicts| facts(Validity::Valid, progress, conflicts);
    let failed = Progress::Failed { reason: "ports: must be at most 64, and are 65".into() };
    let external = Validity::InvalidServiceType(Unexportable::ExternalName);
    let derived = Validity::InvalidServiceType(Unexportable::Derived);
    let (is_true, is_false, unknown) = (Status::True, Status::False, Status::Unknown);
    let (ok, none) = (("Valid", is_true, "Valid"), ("Conflict", is_false, "NoConflicts"));
    let nothing = ("Ready", is_false, "Pending");
    for (facts, expected) in [
        (valid(Progress::Pending, None), vec![ok, ("Ready", unknown, "Pending")]),
        (valid(Progress::Ready, None), vec![ok, ("Ready", is_true, "Ready")]),
        (valid(Progress::Ready, Some(vec![])), vec![ok, ("Ready", is_true, "Ready"), none]),
        (valid(failed, None), vec![ok, ("Ready", is_false, "Failed")]),
        (
            valid(Progress::LeaseExpired, Some(vec![])),
            vec![ok, ("Ready", is_false, "ClusterLeaseExpired"), none],
        ),
        (
            facts(Validity::NoService, Progress::Ready, Some(vec![])),
            vec![("Valid", is_false, "NoService"), nothing],
        ),
        (facts(external, Progress::Ready, None), vec![("Valid", is_false, "InvalidServiceType"), nothing]),
        (facts(derived, Progress::Pending, None), vec![("Valid", is_false, "InvalidServiceType"), nothing]),
    ] {
        let conditions = conditions(&facts, &[], 3, T1);
        assert_eq!(summary(&conditions), expected, "{facts:?}");
        assert!(conditions.iter().all(|condition| condition.observed_generation == Some(3)));
        assert!(conditions.iter().all(|condition| condition.last_transition_time == T1));
    }
}

#[test]
fn a_refusal_is_told_in_the_registrys_words() {
    let failed = Progress::Failed { reason: "ports[0].name: \"Web\" must be lower case".into() };
    let conditions = conditions(&facts(Validity::Valid, failed, None), &[], 1, T1);
    assert_eq!(conditions[1].message, "ports[0].name: \"Web\" must be lower case");
}

/// O29.
#[test]
fn conflicts_are_joined_in_a_fixed_order_and_named_with_winner_and_numbers() {
    let conflict = |field, differing| Conflict { field, winner: cluster("east"), differing, clusters: 5 };
    let conflicts = vec![
        conflict(ConflictField::IpFamily, 1),
        conflict(ConflictField::Type, 2),
        conflict(ConflictField::Ports, 3),
    ];
    let conditions = conditions(&facts(Validity::Valid, Progress::Ready, Some(conflicts)), &[], 1, T1);
    let expected = Condition {
        kind: "Conflict".into(),
        status: Status::True,
        reason: "PortConflict,TypeConflict,IPFamilyConflict".into(),
        message: "ports: 3 of 5 clusters differ from cluster east, which has the oldest export and decides where \
                  ports clash; type: 2 of 5 clusters differ from cluster east, which has the oldest export and \
                  decides; ipFamilies: 1 of 5 clusters differs from cluster east, which has the oldest export and \
                  decides their order; only common families are imported, if there are any"
            .into(),
        observed_generation: Some(1),
        last_transition_time: T1,
    };
    assert_eq!(conditions.last(), Some(&expected));
}

#[test]
fn every_field_has_its_reason_in_a_fixed_order() {
    assert_eq!(
        ConflictField::ALL.map(ConflictField::reason).join(","),
        "PortConflict,TypeConflict,SessionAffinityConflict,SessionAffinityConfigConflict,\
         InternalTrafficPolicyConflict,TrafficDistributionConflict,LabelsConflict,AnnotationsConflict,\
         IPFamilyConflict"
    );
}

#[test]
fn equal_facts_change_nothing() {
    let facts = facts(Validity::Valid, Progress::Ready, Some(vec![]));
    let first = conditions(&facts, &[], 1, T1);
    assert_eq!(conditions(&facts, &first, 1, T2), first);
}

#[test]
fn the_time_of_a_transition_changes_with_the_status_and_not_with_the_reason() {
    let conflict = |field| Some(vec![Conflict { field, winner: cluster("east"), differing: 1, clusters: 2 }]);
    let of = |progress, field| facts(Validity::Valid, progress, conflict(field));
    let first = conditions(&of(Progress::Ready, ConflictField::Ports), &[], 1, T1);
    let second = conditions(&of(Progress::LeaseExpired, ConflictField::Type), &first, 2, T2);
    let times: Vec<_> = second
        .iter()
        .map(|condition| {
            (condition.reason.as_str(), condition.last_transition_time, condition.observed_generation)
        })
        .collect();
    assert_eq!(
        times,
        [("Valid", T1, Some(2)), ("ClusterLeaseExpired", T2, Some(2)), ("TypeConflict", T1, Some(2))]
    );
}

#[test]
fn conditions_of_other_writers_keep_content_and_place() {
    let foreign = |kind: &str| Condition {
        kind: kind.into(),
        status: Status::False,
        reason: "Theirs".into(),
        message: "said by another".into(),
        observed_generation: None,
        last_transition_time: WallTime::from_unix_secs(7),
    };
    let facts_of = |validity| facts(validity, Progress::Ready, Some(vec![]));
    let mut previous = vec![foreign("example.com/First")];
    previous.extend(conditions(&facts_of(Validity::Valid), &[], 1, T1));
    previous.push(foreign("example.com/Last"));
    let next = conditions(&facts_of(Validity::NoService), &previous, 1, T2);
    assert_eq!(
        summary(&next),
        [
            ("example.com/First", Status::False, "Theirs"),
            ("Valid", Status::False, "NoService"),
            ("Ready", Status::False, "Pending"),
            ("example.com/Last", Status::False, "Theirs"),
        ]
    );
    assert_eq!((&next[0], &next[3]), (&previous[0], &previous[4]));
}

#[test]
fn a_verdict_stands_until_the_next_one_and_a_withdrawn_export_starts_again() {
    let told = conditions(&facts(Validity::Valid, Progress::Ready, Some(vec![])), &[], 1, T1);
    let pending = facts(Validity::Valid, Progress::Pending, None);
    assert_eq!(conditions(&pending, &told, 1, T2), told);

    let withdrawn = conditions(&facts(Validity::NoService, Progress::Pending, None), &told, 1, T2);
    assert_eq!(
        summary(&conditions(&pending, &withdrawn, 1, T2)),
        [("Valid", Status::True, "Valid"), ("Ready", Status::Unknown, "Pending")]
    );
}

#[test]
fn an_export_that_waits_for_a_registry_to_let_it_go_says_so_and_what_else_is_said_stays() {
    let told = conditions(&facts(Validity::Valid, Progress::Ready, Some(vec![])), &[], 1, T1);
    let ends = ending(&told, 2, T2);
    let message = "being deleted: the finalizer stays until a registry has let the export go, at most 60 s after the deletion";
    let waits = Condition {
        kind: "Ready".into(),
        status: Status::Unknown,
        reason: "Pending".into(),
        message: message.into(),
        observed_generation: Some(2),
        last_transition_time: T2,
    };
    assert_eq!(ends, [told[0].clone(), waits, told[2].clone()]);
    assert_eq!(ending(&ends, 2, WallTime::from_unix_secs(9)), ends);
}

fn facts(validity: Validity, progress: Progress, conflicts: Option<Vec<Conflict>>) -> ExportFacts {
    ExportFacts { validity, progress, conflicts }
}

fn summary(conditions: &[Condition]) -> Vec<(&str, Status, &str)> {
    conditions
        .iter()
        .map(|condition| (condition.kind.as_str(), condition.status, condition.reason.as_str()))
        .collect()
}
