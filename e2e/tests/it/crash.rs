//! Controllers that are killed at each of their writes, on a real API server: the next one completes what was begun, and
//! a further one finds nothing to do.
//!
//! A *round* plays all scenes in a namespace and a clusterset of its own. In the round of `n` the controller dies at its
//! n-th write of each scene, before it is sent or when it is carried out but not answered; another one takes over. What
//! exists after each scene must be what exists where nobody died.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Service;
use mcs_controller::api::ServiceExport;
use mcs_core::{
    model::{ExportSpec, ServiceType},
    names::{EXPORT_WANTED, LABEL_EXPORT},
};
use mcs_e2e::{
    in_process::Controller,
    stack::{Stack, StackOptions},
    tap::Moment,
    wait_for,
};
use serde_json::{Value, json};

use crate::{
    exports::merge,
    site::{Content, HTTP, Site},
    support::{READY, peer_endpoints, peer_spec},
};

/// Rounds that are played side by side.
const AT_ONCE: usize = 12;
/// An import that names no cluster any more goes when the next controller has known for as long that nobody exports it;
/// and no cluster is to fall silent for as long by the load of the machine.
const LEASE: Duration = Duration::from_secs(15);
/// A scene may have so many writes more than where nobody dies, by what comes in between.
const SPARE: usize = 2;

/// What happens in a round, one after the other; each is worked on to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scene {
    /// Another cluster exports `cart`, with 250 endpoints.
    ImportBegins,
    /// Endpoints of `cart` go and come, in two of its slices.
    EndpointsChange,
    /// `cart` has another port, and one more.
    PortsChange,
    /// `cart` becomes headless.
    TypeChanges,
    /// The local Service `shop`, which another cluster exports too, is labelled.
    LabelComes,
    /// The label goes.
    LabelGoes,
    /// A ServiceExport of the local Service `desk` is made by hand.
    ExportComes,
    /// It is deleted.
    ExportGoes,
    /// Nobody exports `cart` any more.
    ImportEnds,
}

const SCENES: [Scene; 9] = [
    Scene::ImportBegins,
    Scene::EndpointsChange,
    Scene::PortsChange,
    Scene::TypeChanges,
    Scene::LabelComes,
    Scene::LabelGoes,
    Scene::ExportComes,
    Scene::ExportGoes,
    Scene::ImportEnds,
];

/// What there is after each scene, and how many writes led there.
type Course = BTreeMap<Scene, (Content, usize)>;

/// A write of a scene, and how the controller died at it.
type Death = (Scene, usize, Moment);

/// Dead before or after any write to the API server, in any scene.
#[tokio::test]
async fn a_controller_that_dies_at_any_of_its_writes_is_followed_by_one_that_completes_them() -> Result<()> {
    let options = StackOptions { lease: LEASE, ..StackOptions::for_namespace("crashes") };
    let registry = Stack::start_without_controllers(options).await?;
    let course = Round::begin(&registry, "calm").await?.play().await?;
    let writes: BTreeMap<_, _> = course.iter().map(|(scene, (_, writes))| (*scene, *writes)).collect();
    let most = writes.values().max().context("no scenes")? + SPARE;

    let deaths = (1..=most).flat_map(|nth| [(nth, Moment::Before), (nth, Moment::After)]);
    let rounds = deaths.map(async |(nth, moment)| {
        let round =
            async { Round::begin(&registry, "crash").await?.play_with_deaths(nth, moment, &course).await };
        round.await.with_context(|| format!("dead {moment:?} write {nth}"))
    });
    let died: Vec<Vec<Death>> = stream::iter(rounds).buffer_unordered(AT_ONCE).try_collect().await?;
    let died: BTreeSet<Death> = died.into_iter().flatten().collect();
    for (scene, writes) in writes {
        for moment in [Moment::Before, Moment::After] {
            let of_scene = died.iter().filter(|(of, _, at)| (*of, *at) == (scene, moment));
            let nths: Vec<usize> = of_scene.map(|(_, nth, _)| *nth).collect();
            // As many as a course of the scene has at least, each once; those after them are there in some courses.
            let all: Vec<_> = (1..=writes.saturating_sub(SPARE).max(1)).collect();
            assert!(nths.starts_with(&all), "{scene:?}, {moment:?}: {nths:?} of {writes}");
        }
    }
    Ok(())
}

/// One course of all scenes.
struct Round<'a> {
    site: Site<'a>,
    controller: Option<Controller>,
}

impl<'a> Round<'a> {
    async fn begin(registry: &'a Stack, prefix: &str) -> Result<Self> {
        let site = Site::at(registry, prefix).await?;
        for name in ["shop", "desk"] {
            site.named(name).create_service(&[HTTP], &["10.0.0.1", "10.0.0.2"]).await?;
        }
        site.beta_exports("shop", &[1]).await?;
        let controller = Some(site.start().await?);
        Ok(Self { site, controller })
    }

    /// Plays all scenes, and answers what there is after each.
    async fn play(mut self) -> Result<Course> {
        let mut course = Course::new();
        for scene in SCENES {
            let before = self.controller()?.tap.writes().len();
            self.act(scene).await?;
            self.has_ended(scene).await.with_context(|| format!("scene {scene:?}"))?;
            self.site.work_ends(self.controller()?).await?;
            let writes = self.controller()?.tap.writes().split_off(before);
            course.insert(scene, (self.site.content().await?, writes.len()));
        }
        self.take_controller()?.end().await?;
        Ok(course)
    }

    /// Plays all scenes, each with a controller that dies at its `nth` write, and compares what there is after each.
    async fn play_with_deaths(mut self, nth: usize, moment: Moment, course: &Course) -> Result<Vec<Death>> {
        let mut deaths = Vec::new();
        for scene in SCENES {
            let (wanted, writes) = &course[&scene];
            let played = async {
                self.controller()?.tap.die_at(nth, moment);
                self.act(scene).await?;
                let may_die = nth <= writes + SPARE;
                if !self.becomes_or_dies(wanted, may_die).await? {
                    return Ok(());
                }
                deaths.push((scene, nth, moment));
                self.site.place.release_lease().await?;
                self.restart().await?;
                self.site.becomes(wanted).await?;
                self.site.work_ends(self.controller()?).await?;
                self.finds_nothing_to_do().await?;
                self.site.becomes(wanted).await
            };
            played.await.with_context(|| format!("scene {scene:?}"))?;
        }
        self.take_controller()?.end().await?;
        Ok(deaths)
    }

    /// A further controller, in the place of the one that has worked, writes nothing.
    async fn finds_nothing_to_do(&mut self) -> Result<()> {
        self.take_controller()?.end().await?;
        self.restart().await?;
        let writes = self.controller()?.tap.writes();
        ensure!(writes.is_empty(), "the second pass writes {writes:?}");
        Ok(())
    }

    async fn restart(&mut self) -> Result<()> {
        self.controller = Some(self.site.start().await?);
        Ok(())
    }

    fn controller(&self) -> Result<&Controller> {
        self.controller.as_ref().context("no controller runs")
    }

    fn take_controller(&mut self) -> Result<Controller> {
        self.controller.take().context("no controller runs")
    }

    async fn act(&self, scene: Scene) -> Result<()> {
        let cart = async |spec: ExportSpec, ports: &[(&str, u16)], hosts: &[u8]| {
            let addresses: Vec<_> = hosts.iter().map(|host| format!("10.1.0.{host}")).collect();
            let addresses: Vec<_> = addresses.iter().map(String::as_str).collect();
            self.site.beta.export(&self.site.key("cart")?, spec, peer_endpoints(ports, &addresses)?).await
        };
        let more = [("http", 8081), ("admin", 9090)];
        let headless = || ExportSpec { service_type: ServiceType::Headless, ..peer_spec(&more, 1_000) };
        let all: Vec<u8> = (1..=250).collect();
        let others: Vec<u8> = (1..=255).filter(|host| !(85..115).contains(host)).collect();
        match scene {
            Scene::ImportBegins => cart(peer_spec(&[HTTP], 1_000), &[HTTP], &all).await,
            Scene::EndpointsChange => cart(peer_spec(&[HTTP], 1_000), &[HTTP], &others).await,
            Scene::PortsChange => cart(peer_spec(&more, 1_000), &more, &others).await,
            Scene::TypeChanges => cart(headless(), &more, &others).await,
            Scene::LabelComes => self.label(json!(EXPORT_WANTED)).await,
            Scene::LabelGoes => self.label(Value::Null).await,
            Scene::ExportComes => self.site.named("desk").create_export().await,
            Scene::ExportGoes => self.site.named("desk").delete::<ServiceExport>("desk").await,
            Scene::ImportEnds => self.site.beta.withdraw(&self.site.key("cart")?).await,
        }
    }

    async fn label(&self, value: Value) -> Result<()> {
        let labels = json!({ "metadata": { "labels": { LABEL_EXPORT: value } } });
        merge(&self.site.named("shop").api::<Service>(), "shop", labels).await
    }

    /// Waits until a scene has done what it is about; that nothing else was done the comparison tells.
    async fn has_ended(&self, scene: Scene) -> Result<()> {
        let cart = self.site.named("cart");
        match scene {
            Scene::ImportBegins | Scene::EndpointsChange | Scene::PortsChange | Scene::TypeChanges => {
                let (endpoints, ports, ips) = match scene {
                    Scene::ImportBegins => (250, 1, 1),
                    Scene::EndpointsChange => (225, 1, 1),
                    Scene::PortsChange => (225, 2, 1),
                    _ => (225, 2, 0),
                };
                wait_for("the import of cart", async || {
                    let import = cart.import().await?;
                    let spec = import.import.spec.clone().unwrap_or_default();
                    let found = (
                        import.addresses().get("beta").map(|addresses| addresses.len()),
                        import.slices.iter().all(|slice| slice.ports.as_ref().map(Vec::len) == Some(ports)),
                        (import.ports().len(), import.service_ports().len(), spec.ips.len()),
                    );
                    ensure!(found == (Some(endpoints), true, (ports, ports, ips)), "{found:?}");
                    Ok(())
                })
                .await
            }
            Scene::LabelComes => {
                self.site.named("shop").says(&READY).await?;
                self.site
                    .named("shop")
                    .imports(&[("beta", &["10.1.0.1"]), ("east", &["10.0.0.1", "10.0.0.2"])])
                    .await
                    .map(drop)
            }
            Scene::LabelGoes => {
                self.site.named("shop").export_is_gone().await?;
                self.site.named("shop").imports(&[("beta", &["10.1.0.1"])]).await.map(drop)
            }
            Scene::ExportComes => {
                self.site.named("desk").says(&READY).await?;
                self.site.named("desk").imports(&[("east", &["10.0.0.1", "10.0.0.2"])]).await.map(drop)
            }
            Scene::ExportGoes => {
                self.site.named("desk").export_is_gone().await?;
                self.site.named("desk").imports_nothing().await
            }
            Scene::ImportEnds => cart.imports_nothing().await,
        }
    }

    /// Waits until there is what there shall be, or the controller is dead; answers whether it is.
    async fn becomes_or_dies(&self, wanted: &Content, may_die: bool) -> Result<bool> {
        let became = async {
            self.site.becomes(wanted).await?;
            // It may yet die at its last write.
            if may_die { self.site.work_ends(self.controller()?).await } else { Ok(()) }
        };
        tokio::select! {
            () = self.controller()?.tap.died() => Ok(true),
            became = became => became.map(|()| false),
        }
    }
}
