//! What becomes of exports, as the exporting cluster says it.

use super::*;

const NO_SERVICE: &str = "there is no Service of this name in this namespace";
/// A name of 64 characters, one more than a Service can have.
const LONG: &str = "sixty-four-characters-are-one-more-than-a-service-can-have-aaaaa";

/// What one export is made of, and what is said of it.
struct Row {
    name: &'static str,
    service: Option<Value>,
    slices: Vec<Value>,
    export: Value,
    /// Of its conditions Valid and Ready, and whether there is one of conflicts.
    says: [[String; 4]; 2],
    merged: bool,
    event: Option<[String; 2]>,
}

impl Row {
    fn new(name: &'static str, service: Option<Value>) -> Self {
        Self {
            name,
            service,
            slices: Vec::new(),
            export: json!({}),
            says: [VALID, super::READY].map(owned),
            merged: true,
            event: None,
        }
    }

    /// The ServiceExport names nothing that can be exported.
    fn invalid(self, reason: &str, message: &str) -> Self {
        let valid = [names::CONDITION_VALID, "False", reason, message];
        let message = "the export is not valid, so nothing is exported";
        let ready = [names::CONDITION_READY, "False", names::REASON_PENDING, message];
        Self { says: [valid, ready].map(owned), merged: false, ..self }
    }

    /// The registry refuses the export.
    fn refused(self, refusal: String) -> Self {
        let ready = [names::CONDITION_READY, "False", names::REASON_FAILED, &refusal];
        let note = format!("the export is not taken: {refusal}");
        let event = Some([names::EVENT_EXPORT_FAILED.to_owned(), note]);
        Self { says: [owned(VALID), owned(ready)], merged: false, event, ..self }
    }
}

fn owned(texts: [&str; 4]) -> [String; 4] {
    texts.map(str::to_owned)
}

fn rows(ns: &str) -> Vec<Row> {
    let port = |number: usize| json!({ "name": format!("p{number}"), "port": 1000 + number });
    let ports: Vec<_> = (0..65).map(port).collect();
    let one_port = json!([{ "name": "http", "port": 80 }]);
    let refused = |name: &'static str, export: Value, refusal: &str| Row {
        export,
        ..Row::new(name, Some(http())).refused(format!("{refusal} (export {ns}/{name})"))
    };
    vec![
        Row { slices: vec![slice("good", "x", "IPv4", &one_port, &["10.0.0.1"])], ..Row::new("good", Some(http())) },
        Row::new("none", None).invalid(names::REASON_NO_SERVICE, NO_SERVICE),
        Row::new("no.service", None).invalid(names::REASON_NO_SERVICE, NO_SERVICE),
        Row::new(LONG, None).invalid(names::REASON_NO_SERVICE, NO_SERVICE),
        Row::new("outside", Some(json!({ "type": "ExternalName", "externalName": "db.example.com" }))).invalid(
            names::REASON_INVALID_SERVICE_TYPE,
            "a Service of type ExternalName cannot be exported: it has no endpoints",
        ),
        Row::new("imported", Some(http())).invalid(
            names::REASON_INVALID_SERVICE_TYPE,
            "the Service was made for an import, and nothing imported is exported again",
        ),
        refused(
            "labels",
            json!({ "exportedLabels": many("l", 65) }),
            "exportedLabels: must be at most 64, and are 65",
        ),
        refused(
            "annotations",
            json!({ "exportedAnnotations": many("a", 33) }),
            "exportedAnnotations: must be at most 32, and are 33",
        ),
        refused(
            "bytes",
            json!({ "exportedAnnotations": { "example.com/big": "x".repeat(65_536) } }),
            "exportedAnnotations: labels and annotations together must be at most 65536 bytes, and are 65551",
        ),
        Row::new("ports", Some(json!({ "ports": ports })))
            .refused(format!("ports: must be at most 64, and are 65 (export {ns}/ports)")),
        // An API server takes multicast addresses for endpoints; nothing can answer there.
        Row {
            slices: vec![slice("dropped", "x", "IPv4", &one_port, &["10.0.0.2", "239.1.2.3"])],
            event: Some([
                names::EVENT_ENDPOINTS_DROPPED.to_owned(),
                "1 endpoints are not exported: endpoint 239.1.2.3: addresses: must not be a multicast address".to_owned(),
            ]),
            ..Row::new("dropped", Some(http()))
        },
        Row {
            slices: vec![
                slice("fqdn", "x", "IPv4", &one_port, &["10.0.0.3"]),
                slice("fqdn", "names", "FQDN", &one_port, &["db.example.com"]),
            ],
            event: Some([
                names::EVENT_FQDN_SKIPPED.to_owned(),
                "EndpointSlices of address type FQDN are not exported, only addresses are".to_owned(),
            ]),
            ..Row::new("fqdn", Some(http()))
        },
    ]
}

/// O63 for its end: what the registry took before it refused a change stands.
#[tokio::test]
async fn an_export_says_what_became_of_it_and_why() -> Result<()> {
    let mut scene = Scene::prepare("says", &[]).await?;
    let ns = scene.namespace.clone();
    let rows = rows(&ns);
    for row in &rows {
        if let Some(spec) = &row.service {
            let labels = match row.name {
                "imported" => json!({ names::LABEL_SERVICE_NAME: "cart" }),
                _ => json!({}),
            };
            let metadata = json!({ "name": row.name, "labels": labels });
            scene.create::<Service>(json!({ "metadata": metadata, "spec": spec })).await?;
        }
        for slice in &row.slices {
            scene.create::<EndpointSlice>(slice.clone()).await?;
        }
        scene.create_export(row.name, row.export.clone()).await?;
    }
    scene.say_as_another::<ServiceExport>("good").await?;
    scene.start_controller().await?;

    let other = foreign();
    let other = [&other.type_, &other.status, &other.reason, &other.message].map(String::as_str);
    let mut events: Told = BTreeSet::new();
    for row in &rows {
        let said = row.says.each_ref().map(|texts| texts.each_ref().map(String::as_str));
        let more = [(row.merged, NO_CONFLICTS), (row.name == "good", other)];
        let more = more.into_iter().filter_map(|(there, texts)| there.then_some(texts));
        scene.says::<ServiceExport>(row.name, &said.into_iter().chain(more).collect::<Vec<_>>()).await?;
        if let Some([reason, note]) = &row.event {
            events.insert(told(names::KIND_SERVICE_EXPORT, row.name, reason, note));
        }
    }
    scene.tells(&events).await?;
    let refused = rows
        .iter()
        .filter(|row| row.event.as_ref().is_some_and(|[reason, _]| reason == names::EVENT_EXPORT_FAILED));
    scene.reports_refused(refused.map(|row| row.name).collect()).await?;

    // A condition says which generation it is of, and its time changes with its status alone.
    let all = [VALID, super::READY, NO_CONFLICTS, other];
    let before = scene.says::<ServiceExport>("good", &all).await?;
    scene.merge::<ServiceExport>("good", json!({ "spec": { "exportedLabels": { "team": "a" } } })).await?;
    let expected: Vec<_> = before
        .iter()
        .cloned()
        .map(|it| match it == foreign() {
            true => it,
            false => Condition { observed_generation: Some(2), ..it },
        })
        .collect();
    wait_for("conditions of the second generation", async || {
        let found = scene.says::<ServiceExport>("good", &all).await?;
        ensure!(found == expected, "{found:?}");
        Ok::<_, anyhow::Error>(())
    })
    .await?;
    assert!(before.iter().all(|it| it.observed_generation == Some(1)), "{before:?}");

    // What was taken before stands, and its endpoints are still followed.
    let good = scene.place("good");
    let labelled = async |value: &str| {
        let import = good.imports(&[("east", &[value])]).await?;
        let labels = import.import.metadata.labels.unwrap_or_default();
        ensure!(labels.get("team").map(String::as_str) == Some("a"), "{labels:?}");
        Ok::<_, anyhow::Error>(())
    };
    wait_for("the label in the import", async || labelled("10.0.0.1").await).await?;
    scene.merge::<ServiceExport>("good", json!({ "spec": { "exportedLabels": many("l", 65) } })).await?;
    let refusal = format!("exportedLabels: must be at most 64, and are 66 (export {ns}/good)");
    let failed = [names::CONDITION_READY, "False", names::REASON_FAILED, &refusal];
    scene.says::<ServiceExport>("good", &[VALID, failed, NO_CONFLICTS, other]).await?;
    let note = format!("the export is not taken: {refusal}");
    events.insert(told(names::KIND_SERVICE_EXPORT, "good", names::EVENT_EXPORT_FAILED, note));
    scene.tells(&events).await?;
    good.set_addresses(&["10.0.0.9"]).await?;
    labelled("10.0.0.9").await?;

    // It is taken again when it can be.
    scene.merge::<ServiceExport>("good", json!({ "spec": { "exportedLabels": null } })).await?;
    scene.says::<ServiceExport>("good", &all).await.map(drop)
}
