//! What an import is follows from its exports, whoever of them decides and whichever version of the API is spoken.

use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use mcs_core::names::MCS_GROUP;

use super::*;

/// The UID of a ServiceImport and its type; nothing when there is none.
type Life = Option<(String, String)>;

/// What a ServiceImport was, in order.
struct Lives {
    seen: Arc<Mutex<Vec<Life>>>,
    _task: AbortOnDropHandle<()>,
}

impl Lives {
    /// Watches the ServiceImport `cart`, from now on.
    async fn follow(api: Api<ServiceImport>) -> Result<Self> {
        let seen: Arc<Mutex<Vec<_>>> = Arc::default();
        let noted = Arc::clone(&seen);
        let config = watcher::Config::default().fields("metadata.name=cart");
        let mut events = watcher(api, config).default_backoff().boxed();
        let task = tokio::spawn(async move {
            while let Some(event) = events.next().await {
                let now = match event {
                    Ok(watcher::Event::Apply(import) | watcher::Event::InitApply(import)) => {
                        let kind = import.spec.clone().unwrap_or_default().type_;
                        Some((import.uid().unwrap_or_default(), kind))
                    }
                    Ok(watcher::Event::Delete(_) | watcher::Event::InitDone) => None,
                    Ok(watcher::Event::Init) | Err(_) => continue,
                };
                let mut seen = noted.lock().unwrap_or_else(PoisonError::into_inner);
                if seen.last() != Some(&now) {
                    seen.push(now);
                }
            }
        });
        let lives = Self { seen, _task: AbortOnDropHandle::new(task) };
        wait_for("the first list", async || expect(lives.seen(), &vec![None])).await?;
        Ok(lives)
    }

    fn seen(&self) -> Vec<Life> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Waits until `cart` is imported as this, its addresses apart, and answers it with its derived Service.
async fn imported(client: &Client, scene: &Scene, wanted: &Value) -> Result<(ServiceImport, Service)> {
    let imports: Api<ServiceImport> = Api::namespaced(client.clone(), &scene.ns);
    let services: Api<Service> = Api::namespaced(client.clone(), &scene.ns);
    let derived = scene.derived("cart")?;
    wait_for("the import of cart", async || {
        let import = imports.get("cart").await?;
        let service = services.get(&derived).await?;
        let mut spec = serde_json::to_value(&import.spec)?;
        let addresses = spec.as_object_mut().and_then(|spec| spec.remove("ips"));
        let made = service.spec.as_ref().and_then(|spec| spec.cluster_ips.clone()).unwrap_or_default();
        let headless = spec["type"] == "Headless";
        expect(addresses, &(!headless).then(|| json!(made)))?;
        expect(made == ["None"], &headless)?;
        expect(spec, wanted)?;
        Ok::<_, anyhow::Error>((import, service))
    })
    .await
}

/// A ClusterIP Service and a headless one, which differ in everything else too.
#[tokio::test]
async fn a_service_import_stays_one_object_whoever_of_its_exporters_decides_what_it_is() -> Result<()> {
    let scene = Scene::start("definition").await?;
    let clients = [&scene.east, &scene.west];
    let lives = [Lives::follow(scene.east()).await?, Lives::follow(scene.west()).await?];
    let port = |name: &str, protocol: &str| json!({ "name": name, "port": 42, "protocol": protocol });
    let affinity = json!({ "clientIP": { "timeoutSeconds": 10 } });
    let mut sticky = json!({
        "ports": [port("tcp", "TCP"), port("udp", "UDP")],
        "sessionAffinity": "ClientIP", "sessionAffinityConfig": affinity,
        "internalTrafficPolicy": "Local", "trafficDistribution": "PreferClose",
    });
    create_json::<Service>(&scene.east(), json!({ "metadata": { "name": "cart" }, "spec": sticky })).await?;
    create_json::<ServiceExport>(
        &scene.east(),
        json!({ "metadata": { "name": "cart" }, "spec": { "exportedLabels": { "tier": "gold" } } }),
    )
    .await?;
    sticky["type"] = json!("ClusterSetIP");
    sticky["ipFamilies"] = json!(["IPv4"]);
    for client in clients {
        imported(client, &scene, &sticky).await?;
    }

    // Without the family, a headless Service without a selector has both, whatever its cluster serves.
    let mut plain = json!({ "clusterIP": "None", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "ports": [port("tcp", "TCP")] });
    create_json::<Service>(&scene.west(), json!({ "metadata": { "name": "cart" }, "spec": plain })).await?;
    create(&scene.west(), &scene.slice("cart-a", "cart", ("tcp", 42), &["10.2.0.1"])?).await?;
    create(&scene.west(), &service_export("cart")).await?;
    let conflict = "Conflict=True/PortConflict,TypeConflict,SessionAffinityConflict,\
                    SessionAffinityConfigConflict,InternalTrafficPolicyConflict,TrafficDistributionConflict,\
                    LabelsConflict";
    let mut before = Vec::new();
    for client in clients {
        let exports = Api::namespaced(client.clone(), &scene.ns);
        wait_for_conditions(&exports, "cart", &["Valid=True/Valid", "Ready=True/Ready", conflict]).await?;
        imports(client, &scene.ns, "cart", &["10.2.0.1"]).await?;
        before.push(imported(client, &scene, &sticky).await?);
    }

    delete::<ServiceExport>(&scene.east(), "cart").await?;
    plain = json!({
        "type": "Headless", "ports": [port("tcp", "TCP")], "ipFamilies": ["IPv4"],
        "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
    });
    for (client, (import, service)) in clients.into_iter().zip(&before) {
        let (import_now, service_now) = imported(client, &scene, &plain).await?;
        assert_eq!(import_now.uid(), import.uid());
        assert_ne!(service_now.uid(), service.uid());
        assert!(!import_now.labels().contains_key("tier"), "{:?}", import_now.labels());
        imports(client, &scene.ns, "cart", &["10.2.0.1"]).await?;
    }
    wait_for_conditions(&scene.west(), "cart", &ACCEPTED).await?;

    delete::<ServiceExport>(&scene.west(), "cart").await?;
    for (lives, (import, _)) in lives.iter().zip(&before) {
        let life = |kind: &str| Some((import.uid().unwrap_or_default(), kind.to_owned()));
        let wanted = vec![None, life("ClusterSetIP"), life("Headless"), None];
        wait_for("the end of the import", async || expect(lives.seen(), &wanted)).await?;
    }
    Ok(())
}

/// The Dynamo operator makes ServiceExports, and CoreDNS reads ServiceImports, through v1alpha1.
#[tokio::test]
async fn the_older_version_of_the_api_exports_and_shows_the_same() -> Result<()> {
    let scene = Scene::start("older").await?;
    let older = |client: &Client, kind: &str| {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(MCS_GROUP, "v1alpha1", kind));
        Api::<DynamicObject>::namespaced_with(client.clone(), &scene.ns, &resource)
    };
    create(&scene.east(), &objects::service_without_selector(&scene.ns, "cart", &[("http", 80)])).await?;
    create(&scene.east(), &scene.slice("cart-a", "cart", ("http", 8080), &["10.0.0.1"])?).await?;
    let exports = older(&scene.east, "ServiceExport");
    let export = |tier: &str| {
        Patch::Apply(json!({
            "apiVersion": format!("{MCS_GROUP}/v1alpha1"), "kind": "ServiceExport",
            "metadata": { "name": "cart" }, "spec": { "exportedLabels": { "tier": tier } },
        }))
    };
    let operator = PatchParams::apply("operator");
    exports.patch("cart", &operator, &export("gold")).await?;
    scene.imports("cart", &["10.0.0.1"]).await?;
    wait_for_conditions(&scene.east(), "cart", &ACCEPTED).await?;
    let told = exports.get("cart").await?.data["status"]["conditions"].clone();
    let told = told.as_array().context("conditions")?.iter();
    let told: Vec<_> = told
        .map(|it| format!("{}={}/{}", text(&it["type"]), text(&it["status"]), text(&it["reason"])))
        .collect();
    assert_eq!(told, ACCEPTED);

    exports.patch("cart", &operator, &export("silver")).await?;
    let imports = older(&scene.west, "ServiceImport");
    let import = wait_for("the label to follow", async || {
        let import = imports.get("cart").await?;
        expect(import.labels().get("tier").map(String::as_str), &Some("silver"))?;
        Ok::<_, anyhow::Error>(import)
    })
    .await?;
    let newer = serde_json::to_value(scene.west::<ServiceImport>().get("cart").await?)?;
    assert_eq!([&import.data["spec"], &import.data["status"]], [&newer["spec"], &newer["status"]]);

    exports.delete("cart", &DeleteParams::default()).await?;
    let gone = async || expect(imports.get_opt("cart").await?.is_none(), &true);
    wait_for("the end of the import", gone).await
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
