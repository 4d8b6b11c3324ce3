use super::*;
use crate::check::report::{Report, Verdict};
use crate::output::Format;
use mcs_core::ids::{Build, Epoch};
use mcs_core::outbox::Process;
use mcs_proto::connect::NotConnected;
use mcs_proto::well_known::Timestamp;

/// 2026-11-29T19:00:09Z.
const NOW: i64 = 1_795_978_809;

const DAY: i64 = 24 * 60 * 60;

#[test]
fn a_certificate_is_judged_by_what_is_left_of_its_time() {
    // For 100 days: told of in its last tenth.
    let of = |left: i64| verdict_of(NOW - 100 * DAY + left, NOW + left);
    assert_eq!(of(10 * DAY + 1), Verdict::Ok);
    assert_eq!(of(10 * DAY), Verdict::Ok);
    assert_eq!(of(10 * DAY - 1), Verdict::Warning);
    assert_eq!([of(1), of(0), of(-1)], [Verdict::Warning, Verdict::Warning, Verdict::Failed]);
    // For years: in its last days.
    let of = |left: i64| verdict_of(NOW - 3_000 * DAY + left, NOW + left);
    assert_eq!([of(LAST_DAYS), of(LAST_DAYS - 1)], [Verdict::Ok, Verdict::Warning]);
    // Not good yet.
    assert_eq!([verdict_of(NOW, NOW + DAY), verdict_of(NOW + 1, NOW + DAY)], [Verdict::Ok, Verdict::Failed]);
}

fn verdict_of(from: i64, until: i64) -> Verdict {
    certificate(&url(), &mk_certificate(from, until), WallTime::from_unix_secs(NOW)).verdict
}

#[test]
fn a_clock_is_told_of_when_it_is_off_by_more_than_the_way_can_explain() {
    let at = |millis: i64| WallMillis::from_unix_millis(NOW * 1_000 + millis);
    let of = |there: i64, took: u64| {
        let Finding { verdict, found, .. } =
            clock(&url(), Offset::of(at(0), at(there), Duration::from_millis(took)));
        (verdict, found)
    };
    let within = || "within 5s of that of this machine".to_owned();
    for (there, took) in [(0, 0), (5_000, 0), (-5_000, 0), (5_500, 500), (6_000, 1_000)] {
        assert_eq!(of(there, took), (Verdict::Ok, within()), "{there} {took}");
    }
    assert_eq!(of(5_001, 0), (Verdict::Warning, "5 s ahead of that of this machine".to_owned()));
    assert_eq!(of(-90_000, 0), (Verdict::Warning, "90 s behind that of this machine".to_owned()));
    assert_eq!(of(6_002, 1_000).0, Verdict::Warning);
    assert_eq!(clock(&url(), Offset::of(None, at(0), Duration::ZERO)).verdict, Verdict::Warning);
}

#[test]
fn every_cause_of_a_broken_connection_has_something_to_do() {
    for fault in Fault::ALL {
        let not = NotConnected { url: url(), fault, why: "it is so".to_owned() };
        let finding = connection(&url(), Some(&CallFailed::NotConnected(not)));
        assert_eq!(finding.verdict, Verdict::Failed);
        assert!(finding.found.ends_with("(it is so)") && finding.todo.is_some(), "{finding:?}");
    }
}

#[test]
fn every_word_of_a_report_is_seen() {
    let mut report = Report::default();
    report.add(connection(&"https://a.example:9090".parse().unwrap(), None));
    report.add(connection(&url(), Some(&CallFailed::TimedOut { limit: Duration::from_secs(3) })));
    report.add(own_certificate(&mk_certificate(NOW - DAY, NOW - 1), WallTime::from_unix_secs(NOW)));
    report.add(certificate(&url(), &mk_certificate(NOW + 1, NOW + DAY), WallTime::from_unix_secs(NOW)));
    report.add(older(&url()));
    report.extend(registry(&url(), &mk_identified(true, true)));
    report.extend(registry(&url(), &mk_identified(false, true)));
    report.extend(builds(&BTreeSet::from(["0.1.0".to_owned()])));
    report.extend(builds(&BTreeSet::from(["0.1.0".to_owned(), "0.2.0".to_owned()])));
    report.add(no_clusterset(&url(), true));
    report.add(no_clusterset(&url(), false));
    report.add(unlisted(&set(), &url(), &CallFailed::Denied { message: "no".to_owned() }));
    report.extend(clusterset(&mk_description(Vec::new(), true)));
    report.extend(clusterset(&mk_description(Vec::new(), false)));
    let states = [
        pb::LeaseState::Active,
        pb::LeaseState::Expired,
        pb::LeaseState::Syncing,
        pb::LeaseState::Held,
        pb::LeaseState::Unspecified,
    ];
    let mut clusters: Vec<_> =
        states.iter().enumerate().map(|(number, state)| mk_cluster(number, *state)).collect();
    let key = |name: &str| pb::ServiceKey { namespace: "shop".to_owned(), name: name.to_owned() };
    clusters[0].held_imports = Some(pb::HeldImports { total: 2, first: vec![key("cart")] });
    let refused = pb::RefusedExport {
        key: Some(key("till")),
        field: "ports[0].name".to_owned(),
        problem: "must be no more than 15 characters".to_owned(),
    };
    clusters[1].refused_exports = Some(pb::RefusedExports { total: 1, first: vec![refused] });
    let mut description = mk_description(clusters, true);
    let conflict = pb::Conflict {
        field: pb::ConflictField::Type.into(),
        winner: "c-0".to_owned(),
        differing: 1,
        clusters: 2,
    };
    description.imports = (0..=NAMED)
        .map(|number| pb::Import {
            key: Some(key(&format!("s-{number:02}"))),
            conflicts: if number == 0 { vec![conflict.clone(); 2] } else { vec![conflict.clone()] },
            ..Default::default()
        })
        .collect();
    report.extend(clusterset(&description));
    let table = report.print(Format::Table).unwrap();
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/check-every-word.table");
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::write(&golden, &table).unwrap();
    }
    assert_eq!(table, std::fs::read_to_string(golden).unwrap());
    assert!(!report.is_good());
}

fn url() -> RegistryUrl {
    "http://b.example:9090".parse().unwrap()
}

fn set() -> ClustersetId {
    "prod".parse().unwrap()
}

fn mk_certificate(from: i64, until: i64) -> Certificate {
    let names = Names {
        uris: vec!["spiffe://prod/admin".to_owned()],
        dns: vec!["b.example".to_owned()],
        ips: vec!["192.0.2.1".parse().unwrap()],
    };
    Certificate {
        serial: "0a1b".to_owned(),
        not_before: WallTime::from_unix_secs(from),
        not_after: WallTime::from_unix_secs(until),
        names: Some(names),
    }
}

fn mk_identified(degraded: bool, shares_store: bool) -> Identified {
    Identified {
        by: Process { epoch: Some(Epoch(1)), build: Build::new("0.1.0").unwrap() },
        wall: None,
        lease: Duration::from_secs(30),
        degraded,
        shares_store,
        caller: "anyone may do everything".to_owned(),
        clustersets: Vec::new(),
    }
}

fn mk_description(clusters: Vec<pb::Cluster>, complete: bool) -> Description {
    Description::new(
        url().to_string(),
        set(),
        pb::ListClustersResponse { clusters, complete, ..Default::default() },
        pb::ListExportsResponse { complete, ..Default::default() },
        pb::ListImportsResponse { complete, ..Default::default() },
    )
}

fn mk_cluster(number: usize, state: pb::LeaseState) -> pb::Cluster {
    let renewed_at = Some(Timestamp { seconds: NOW, nanos: 0 });
    pb::Cluster {
        cluster: format!("c-{number}"),
        region: "eu-west-1".to_owned(),
        build: "0.1.0".to_owned(),
        lease: Some(pb::Lease { state: state.into(), renewed_at, duration: None }),
        exports: 2,
        endpoints: 7,
        ..Default::default()
    }
}
