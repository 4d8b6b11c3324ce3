//! Every refusal arrives as what it was.

use mcs_core::ids::{ClusterId, ClusterUid};
use mcs_core::outbox::Failure;
use mcs_core::registry::Refused;
use mcs_core::validate::Refusal;
use mcs_core::version::Version;
use mcs_proto::status::{self, CallFailed};
use std::time::Duration;
use tonic::{Code, Status};

#[test]
fn every_refusal_has_its_code_and_reads_back() {
    let cluster = ClusterId::new("east").unwrap();
    let uid = |uid: &str| ClusterUid::new(uid).unwrap();
    let claimed = Refused::Claimed { cluster: cluster.clone(), holder: uid("u-1"), caller: uid("u-2") };
    let active = Refused::Active { cluster: cluster.clone() };
    let full = Refused::TooManyClusters { limit: 3 };
    let busy = Refused::TooManyWrites {
        cluster: cluster.clone(),
        per_second: 1_000,
        retry_after: Duration::from_micros(1_500),
    };
    let no_sync = Refused::NoSync { cluster: cluster.clone(), version: Version::new(1, 2) };
    let cases = [
        (
            Refused::OldTerm { cluster: cluster.clone(), term: 3, floor: 4 },
            Code::FailedPrecondition,
            CallFailed::OldTerm { floor: 4 },
        ),
        (claimed.clone(), Code::AlreadyExists, CallFailed::Claimed { message: claimed.to_string() }),
        (Refused::Unknown { cluster }, Code::NotFound, CallFailed::UnknownCluster),
        (active.clone(), Code::FailedPrecondition, CallFailed::LeaseActive { message: active.to_string() }),
        (full.clone(), Code::ResourceExhausted, CallFailed::Limit { message: full.to_string() }),
        (busy.clone(), Code::ResourceExhausted, CallFailed::Busy { message: busy.to_string() }),
        (
            no_sync.clone(),
            Code::Aborted,
            CallFailed::Unavailable { code: Code::Aborted, message: no_sync.to_string() },
        ),
    ];
    for (refused, code, failed) in cases {
        let status = status::refused(&refused);
        assert_eq!((status.code(), CallFailed::from(status)), (code, failed));
    }
    let told = "cluster east writes more than 1000 times a second, the most that this registry takes \
                (--max-writes-per-second): nothing of this write was taken, send it again after 2 ms";
    assert_eq!(busy.to_string(), told);
    assert!(claimed.to_string().contains("u-1") && claimed.to_string().contains("u-2"));
}

#[test]
fn a_wrong_field_is_named() {
    let status = status::invalid(&Refusal::new("uid", "must not be empty"));
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(
        CallFailed::from(status),
        CallFailed::Invalid { field: "uid".to_owned(), problem: "must not be empty".to_owned() }
    );
}

#[test]
fn a_full_registry_is_passed_over_for_another_one() {
    let status = status::full("this registry has 3 streams".to_owned(), "max-streams", 3);
    assert_eq!(status.code(), Code::ResourceExhausted);
    let message = "this registry has 3 streams".to_owned();
    let failed = CallFailed::from(status);
    assert_eq!(failed, CallFailed::Unavailable { code: Code::ResourceExhausted, message });
    assert!(matches!(Failure::from(failed), Failure::Unavailable { .. }));
}

#[test]
fn what_a_certificate_does_not_allow_is_denied_with_the_reason() {
    let status = status::denied("a certificate that names no cluster may read");
    assert_eq!(status.code(), Code::PermissionDenied);
    let message = "a certificate that names no cluster may read".to_owned();
    assert_eq!(CallFailed::from(status), CallFailed::Denied { message });
}

#[test]
fn what_is_not_from_this_registry_is_no_verdict() {
    let unknown_path = CallFailed::from(Status::not_found("no such method"));
    assert_eq!(
        unknown_path,
        CallFailed::Unavailable { code: Code::NotFound, message: "no such method".to_owned() }
    );
}
