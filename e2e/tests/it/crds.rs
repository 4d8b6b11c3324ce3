//! CRDs that are missing, older, newer or someone else's, on a control plane that has nothing else: `apply-crds` under
//! the permissions that it is shipped with, and controllers that meet what is there.
//!
//! CRDs are of a whole cluster, so one test goes through all states of them in one.

use anyhow::{Context, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition as Crd;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use mcs_controller::crds::{RELEASE, REVISION, crds};
use mcs_core::names::{
    ENDPOINT_SLICES_PRESENT, KIND_SERVICE_EXPORT, LABEL_CRD_RELEASE, LABEL_CRD_REVISION, MCS_GROUP,
    MCS_VERSION, MCS_VERSION_OLD,
};
use mcs_e2e::{
    Cluster, ClusterOptions,
    objects::Port,
    programs::{Program, Signal},
    stack::{Stack, StackOptions, get},
    wait_for,
};
use serde_json::{Value, json};

use crate::support::{Place, READY, make_namespace};

const HTTP: [Port<'_>; 1] = [("http", 80)];
const EXPORTS: &str = "serviceexports.multicluster.x-k8s.io";
const IMPORTS: &str = "serviceimports.multicluster.x-k8s.io";
const NOT_SERVED: &str = "the cluster serves no serviceexports of multicluster.x-k8s.io/v1beta1";
/// The permissions of `apply-crds`.
const INSTALLER_RBAC: &str = include_str!("../../../controller/deploy/rbac-crds.yaml");

/// A control plane of its own, a registry, and who installs CRDs.
struct Scene {
    cluster: Cluster,
    client: Client,
    stack: Stack,
    installers: u32,
}

impl Scene {
    async fn start() -> Result<Self> {
        let options = ClusterOptions::new("crds", 5, "eu-west-1");
        let cluster = Cluster::start(ClusterOptions { controller_manager: false, ..options }).await?;
        let client = cluster.client();
        for name in ["mcs-system", "shop"] {
            make_namespace(&client, name).await?;
        }
        let stack = Stack::start_without_controllers(StackOptions::for_namespace("shop")).await?;
        cluster.apply_yaml(INSTALLER_RBAC).await?;
        stack.allow(&cluster).await?;
        Ok(Self { cluster, client, stack, installers: 0 })
    }

    /// Starts `mcs-controller apply-crds` as the ServiceAccount that may do nothing else.
    async fn start_installer(&mut self) -> Result<Program> {
        self.installers += 1;
        let kubeconfig =
            self.cluster.kubeconfig_for_service_account("mcs-system", "mcs-controller-crds").await?;
        let environment = [("KUBECONFIG", kubeconfig.display().to_string())];
        let name = format!("apply-crds-{}", self.installers);
        let arguments = ["apply-crds".to_owned()];
        Program::start("mcs-controller", &name, self.stack.folder(), &arguments, &environment).await
    }

    /// What `apply-crds` says.
    async fn install(&mut self) -> Result<String> {
        done(&mut self.start_installer().await?).await
    }

    fn place(&self, name: &str) -> Place {
        Place::new(self.client.clone(), "shop", name)
    }

    async fn start_controller(&mut self, replica: &str) -> Result<()> {
        self.stack.start_controller(&self.cluster, replica).await
    }

    async fn end_controller(&mut self, replica: &str) -> Result<()> {
        self.stack.end_controller(replica, Signal::Term).await.map(drop)
    }

    /// Both CRDs are those of this build.
    async fn is_up_to_date(&self) -> Result<()> {
        for name in [EXPORTS, IMPORTS] {
            let crd = definitions(&self.client).get(name).await?;
            let versions: Vec<_> =
                crd.spec.versions.iter().map(|it| (it.name.as_str(), it.served, it.storage)).collect();
            assert_eq!(versions, [(MCS_VERSION_OLD, true, false), (MCS_VERSION, true, true)]);
            let labels = [LABEL_CRD_RELEASE, LABEL_CRD_REVISION].map(|label| crd.labels().get(label));
            assert_eq!(labels, [Some(&RELEASE.to_owned()), Some(&REVISION.to_owned())]);
        }
        Ok(())
    }

    /// The CRD of ServiceImports is that of an earlier release, which lacks some fields of a part of the objects.
    async fn make_imports_older(&self, release: &str, part: &str, fields: &[&str]) -> Result<()> {
        let older = crd(IMPORTS, |crd| {
            crd["metadata"]["labels"] = Value::Null;
            for version in crd["spec"]["versions"].as_array_mut().into_iter().flatten() {
                let part = &mut version["schema"]["openAPIV3Schema"]["properties"][part];
                if let Some(properties) = part["properties"].as_object_mut() {
                    properties.retain(|name, _| !fields.contains(&name.as_str()));
                }
            }
        })?;
        let params = PatchParams::apply("another.example").force();
        definitions(&self.client).patch(IMPORTS, &params, &Patch::Apply(&older)).await?;
        self.label_imports(release).await?;
        wait_for("the older schema", async || {
            let request = http::Request::get(format!("/openapi/v3/apis/{MCS_GROUP}/{MCS_VERSION}"));
            let document: Value = self.client.request(request.body(Vec::new())?).await?;
            let found: Vec<_> =
                fields.iter().filter(|field| document.to_string().contains(&format!("{field:?}"))).collect();
            ensure!(found.is_empty(), "{found:?} in the OpenAPI document");
            Ok::<_, anyhow::Error>(())
        })
        .await
    }

    async fn label_imports(&self, release: &str) -> Result<()> {
        let labels = json!({ LABEL_CRD_RELEASE: release, LABEL_CRD_REVISION: REVISION });
        let patch = Patch::Merge(json!({ "metadata": { "labels": labels } }));
        definitions(&self.client).patch(IMPORTS, &PatchParams::default(), &patch).await.map(drop)?;
        Ok(())
    }

    /// Waits until the controller has said that it cannot start, and why; it says so once.
    async fn cannot_start(&self, replica: &str, why: &str) -> Result<()> {
        let controller = self.stack.controller(replica)?;
        wait_for(&format!("{why} in the log"), async || {
            ensure!(controller.program.log().contains(why), "{}", controller.program.log_tail());
            Ok::<_, anyhow::Error>(())
        })
        .await?;
        ensure!(get(&format!("http://{}/readyz", controller.admin)).await.is_err(), "it is ready");
        let log = controller.program.log();
        let lines: Vec<_> = log.lines().filter(|line| line.contains("cannot start yet")).collect();
        ensure!(lines.len() == 1, "{lines:?}");
        Ok(())
    }

    /// How often a controller has written a ServiceImport or its status.
    async fn writes(&self, replica: &str) -> Result<u64> {
        let text = get(&format!("http://{}/metrics", self.stack.controller(replica)?.admin)).await?;
        let text = String::from_utf8(text.to_vec())?;
        let lines = text.lines().filter(|line| {
            line.starts_with("mcs_controller_object_writes_total{") && line.contains("kind=\"ServiceImport\"")
        });
        lines.map(|line| Ok(line.rsplit_once(' ').context("a value")?.1.parse::<u64>()?)).sum()
    }
}

/// The log of an `apply-crds` that ended well.
async fn done(program: &mut Program) -> Result<String> {
    let status = program.ended().await?;
    ensure!(status.success(), "{}", program.log_tail());
    Ok(program.log())
}

fn definitions(client: &Client) -> Api<Crd> {
    Api::all(client.clone())
}

/// Our CRD of this name, as an earlier release had it, or somebody else.
fn crd(name: &str, change: impl FnOnce(&mut Value)) -> Result<Crd> {
    let ours = crds()?.into_iter().find(|crd| crd.name_any() == name).context("a CRD of ours")?;
    let mut value = serde_json::to_value(ours)?;
    change(&mut value);
    Ok(serde_json::from_value(value)?)
}

/// Serves and stores the older version alone, without labels.
fn only_old(crd: &mut Value) {
    crd["metadata"]["labels"] = json!({});
    let mut old = crd["spec"]["versions"][0].take();
    old["storage"] = true.into();
    crd["spec"]["versions"] = json!([old]);
}

/// ServiceExports of one version, in the namespace `shop`.
fn exports(client: &Client, version: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(MCS_GROUP, version, KIND_SERVICE_EXPORT);
    Api::namespaced_with(client.clone(), "shop", &ApiResource::from_gvk(&kind))
}

/// O65.
#[tokio::test]
async fn crds_are_brought_up_to_date_without_a_loss_and_a_controller_waits_for_those_that_it_needs()
-> Result<()> {
    let mut scene = Scene::start().await?;
    there_are_none(&mut scene).await?;
    the_older_version_is_served_alone(&mut scene).await?;
    labels_are_raised_and_never_lowered(&mut scene).await?;
    fields_are_missing_that_an_import_needs(&mut scene).await?;
    a_field_is_missing_that_an_import_does_not_need(&mut scene).await
}

/// The controller waits, and goes on by itself. Two installers at once end well, whoever is first.
async fn there_are_none(scene: &mut Scene) -> Result<()> {
    scene.start_controller("first").await?;
    scene.cannot_start("first", NOT_SERVED).await?;
    let (mut one, mut other) = (scene.start_installer().await?, scene.start_installer().await?);
    for log in [done(&mut one).await?, done(&mut other).await?] {
        assert!(log.contains("applied") && log.contains(EXPORTS) && log.contains(IMPORTS), "{log}");
    }
    scene.is_up_to_date().await?;
    scene.stack.ready().await?;
    scene.end_controller("first").await
}

/// As another implementation brought it, with objects of users.
async fn the_older_version_is_served_alone(scene: &mut Scene) -> Result<()> {
    for name in [EXPORTS, IMPORTS] {
        definitions(&scene.client).delete(name, &DeleteParams::default()).await?;
        wait_for("the end of the CRD", async || {
            let found = definitions(&scene.client).get_opt(name).await?;
            ensure!(found.is_none(), "{:?}", found.and_then(|crd| crd.status));
            Ok::<_, anyhow::Error>(())
        })
        .await?;
        scene.cluster.apply_yaml(&serde_json::to_string(&crd(name, only_old)?)?).await?;
    }
    let current = format!("{MCS_GROUP}/{MCS_VERSION}");
    wait_for("the end of the newer version", async || {
        let served = scene.client.list_api_group_resources(&current).await;
        ensure!(served.is_err(), "{served:?}");
        Ok::<_, anyhow::Error>(())
    })
    .await?;
    let kept = json!({
        "apiVersion": format!("{MCS_GROUP}/{MCS_VERSION_OLD}"), "kind": KIND_SERVICE_EXPORT,
        "metadata": { "name": "kept" },
    });
    let kept = serde_json::from_value(kept)?;
    exports(&scene.client, MCS_VERSION_OLD).create(&PostParams::default(), &kept).await?;
    scene.start_controller("second").await?;
    scene.cannot_start("second", NOT_SERVED).await?;

    scene.install().await?;
    scene.is_up_to_date().await?;
    scene.stack.ready().await?;
    for version in [MCS_VERSION_OLD, MCS_VERSION] {
        let listed = exports(&scene.client, version).list(&ListParams::default()).await?.items;
        assert_eq!(listed.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["kept"]);
    }
    let kept = scene.place("kept");
    kept.create_service(&HTTP, &["10.0.0.1"]).await?;
    kept.says(&READY).await?;
    let import = kept.imports(&[("crds", &["10.0.0.1"])]).await?;
    let present = import.import.status.and_then(|status| status.endpoint_slice_objects);
    assert_eq!(present.as_deref(), Some(ENDPOINT_SLICES_PRESENT));
    // What is said of an export can be read through the older version.
    let old = exports(&scene.client, MCS_VERSION_OLD).get("kept").await?.data;
    assert_eq!(old["status"]["conditions"].as_array().map(Vec::len), Some(READY.len()));
    scene.end_controller("second").await
}

async fn labels_are_raised_and_never_lowered(scene: &mut Scene) -> Result<()> {
    scene.label_imports("v9.0.0").await?;
    let before = definitions(&scene.client).get(IMPORTS).await?;
    let log = scene.install().await?;
    assert!(log.contains("left alone: its schema is newer") && log.contains("v9.0.0"), "{log}");
    assert_eq!(definitions(&scene.client).get(IMPORTS).await?, before);
    scene.label_imports("v0.5.1").await?;
    scene.install().await?;
    scene.is_up_to_date().await
}

async fn fields_are_missing_that_an_import_needs(scene: &mut Scene) -> Result<()> {
    scene.make_imports_older("v0.2.0", "spec", &["ipFamilies", "trafficDistribution"]).await?;
    scene.start_controller("third").await?;
    let why = "would drop these fields: serviceimports: spec.ipFamilies, spec.trafficDistribution";
    scene.cannot_start("third", why).await?;
    scene.install().await?;
    scene.is_up_to_date().await?;
    scene.stack.ready().await?;
    scene.end_controller("third").await
}

/// What tells that there are slices. Without it, nothing is written that would be dropped, at rest or after a restart.
async fn a_field_is_missing_that_an_import_does_not_need(scene: &mut Scene) -> Result<()> {
    scene.make_imports_older("v0.5.1", "status", &["endpointSliceObjects"]).await?;
    scene.start_controller("fourth").await?;
    scene.stack.ready().await?;
    let (kept, new) = (scene.place("kept"), scene.place("new"));
    new.export(&HTTP, &["10.0.2.1"]).await?;
    new.imports(&[("crds", &["10.0.2.1"])]).await?;
    nothing_is_written_to_imports(scene, "fourth", [&kept, &new]).await?;
    scene.end_controller("fourth").await?;
    scene.start_controller("fifth").await?;
    scene.stack.ready().await?;
    let written = nothing_is_written_to_imports(scene, "fifth", [&new, &kept]).await?;
    assert_eq!(written, 0, "writes of ServiceImports after a restart");
    Ok(())
}

/// Changes the endpoints of each of two imports: when the second change has come through, all before it is done.
/// Answers how often the controller has written ServiceImports before.
async fn nothing_is_written_to_imports(scene: &Scene, replica: &str, places: [&Place; 2]) -> Result<u64> {
    let mut writes = Vec::new();
    for place in places {
        let address = format!("10.0.{}.{}", replica.len(), place.name.len());
        place.set_addresses(&[&address]).await?;
        let import = place.imports(&[("crds", &[&address])]).await?;
        assert_eq!(import.import.status.and_then(|status| status.endpoint_slice_objects), None);
        writes.push(scene.writes(replica).await?);
    }
    assert_eq!(writes[0], writes[1], "writes of ServiceImports by the {replica} controller");
    Ok(writes[0])
}
