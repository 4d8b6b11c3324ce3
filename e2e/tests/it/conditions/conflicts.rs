//! On what the exports of one Service differ.

use super::*;
use crate::support::{peer_endpoints, peer_spec};
use mcs_core::model::{ExportSpec, InternalTrafficPolicy, IpFamily, ServiceType, SessionAffinity};
use mcs_e2e::peer::Peer;

const HTTP: [(&str, u16); 1] = [("http", 80)];
/// Long after any ServiceExport of a test was made, and long before.
const LATE: i64 = 4_000_000_000;
const LONG_AGO: i64 = 1_000_000_000;

/// The Service of east, how a younger peer exports it, and the reason and the field that it differs in.
type Row = (&'static str, Value, fn(&mut ExportSpec), &'static str, &'static str);

fn rows() -> Vec<Row> {
    let sticky = json!({ "ports": [{ "name": "http", "port": 80 }], "sessionAffinity": "ClientIP" });
    vec![
        ("port", http(), |it| it.ports[0].port = 81, names::REASON_PORT_CONFLICT, "ports"),
        ("type", http(), |it| it.service_type = ServiceType::Headless, names::REASON_TYPE_CONFLICT, "type"),
        (
            "affinity",
            http(),
            |it| it.session_affinity = SessionAffinity::ClientIp,
            names::REASON_SESSION_AFFINITY_CONFLICT,
            "sessionAffinity",
        ),
        (
            "timeout",
            sticky,
            |it| (it.session_affinity, it.session_affinity_timeout) = (SessionAffinity::ClientIp, Some(60)),
            names::REASON_SESSION_AFFINITY_CONFIG_CONFLICT,
            "sessionAffinityConfig",
        ),
        (
            "internal",
            http(),
            |it| it.internal_traffic_policy = InternalTrafficPolicy::Local,
            names::REASON_INTERNAL_TRAFFIC_POLICY_CONFLICT,
            "internalTrafficPolicy",
        ),
        (
            "distribution",
            http(),
            |it| it.traffic_distribution = Some("PreferClose".to_owned()),
            names::REASON_TRAFFIC_DISTRIBUTION_CONFLICT,
            "trafficDistribution",
        ),
        ("label", http(), |it| label(&mut it.labels), names::REASON_LABELS_CONFLICT, "exportedLabels"),
        (
            "annotation",
            http(),
            |it| label(&mut it.annotations),
            names::REASON_ANNOTATIONS_CONFLICT,
            "exportedAnnotations",
        ),
        (
            "family",
            http(),
            |it| it.ip_families = vec![IpFamily::V4, IpFamily::V6],
            names::REASON_IP_FAMILY_CONFLICT,
            "ipFamilies",
        ),
    ]
}

fn label(map: &mut BTreeMap<String, String>) {
    map.insert("example.com/team".to_owned(), "a".to_owned());
}

/// What the winner decides of a field.
fn decides(field: &str) -> &'static str {
    match field {
        "ports" => "decides where ports clash",
        "ipFamilies" => "decides their order; only common families are imported, if there are any",
        _ => "decides",
    }
}

fn conflict<'a>(reason: &'a str, message: &'a str) -> [&'a str; 4] {
    [names::CONDITION_CONFLICT, "True", reason, message]
}

/// O29.
#[tokio::test]
async fn each_field_that_exports_differ_in_is_told_with_who_decides_and_how_many_differ() -> Result<()> {
    let mut scene = Scene::prepare("differ", &[]).await?;
    scene.start_controller().await?;
    let gamma = Peer::join(&scene.stack, "gamma").await?;
    let rows = rows();
    for (name, spec, change, ..) in &rows {
        scene.create_service(name, spec.clone(), &["10.1.0.1"]).await?;
        scene.create_export(name, json!({})).await?;
        let mut theirs = peer_spec(&HTTP, LATE);
        change(&mut theirs);
        gamma.export(&scene.place(name).key()?, theirs, peer_endpoints(&HTTP, &["10.3.0.1"])?).await?;
    }
    for (name, _, _, reason, field) in &rows {
        let message = format!(
            "{field}: 1 of 2 clusters differs from cluster east, which has the oldest export and {}",
            decides(field)
        );
        scene.says::<ServiceExport>(name, &[VALID, READY, conflict(reason, &message)]).await?;
    }

    // All at once, by two clusters, of which one has the oldest export.
    scene.create_service("all", http(), &["10.1.0.1"]).await?;
    scene.create_export("all", json!({})).await?;
    let key = scene.place("all").key()?;
    let mut theirs = peer_spec(&HTTP, LONG_AGO);
    let changes: Vec<_> =
        rows.iter().filter(|(name, ..)| *name != "timeout").map(|(_, _, change, ..)| change).collect();
    changes.iter().for_each(|change| change(&mut theirs));
    theirs.session_affinity_timeout = Some(60);
    gamma.export(&key, theirs, peer_endpoints(&HTTP, &["10.3.0.1"])?).await?;
    let delta = Peer::join(&scene.stack, "delta").await?;
    delta.export(&key, peer_spec(&HTTP, LATE), peer_endpoints(&HTTP, &["10.4.0.1"])?).await?;
    let reasons: Vec<_> = rows.iter().map(|(.., reason, _)| *reason).collect();
    let messages: Vec<_> = rows
        .iter()
        .map(|(.., field)| {
            format!(
                "{field}: 2 of 3 clusters differ from cluster gamma, which has the oldest export and {}",
                decides(field)
            )
        })
        .collect();
    let all = conflict(&reasons.join(","), &messages.join("; ")).map(str::to_owned);
    scene.says::<ServiceExport>("all", &[VALID, READY, all.each_ref().map(String::as_str)]).await?;

    // It is over when those that differ are gone. Nobody is told by an Event: a difference is no fault.
    gamma.withdraw(&key).await?;
    gamma.withdraw(&scene.place("port").key()?).await?;
    for name in ["all", "port"] {
        scene.says::<ServiceExport>(name, &[VALID, READY, NO_CONFLICTS]).await?;
    }
    scene.tells(&Told::new()).await
}
