//! What others made, or forbid, where an import belongs.

use super::*;
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingAdmissionPolicyBinding, core::v1::ResourceQuota, events::v1::Event,
};
use kube::api::DeleteParams;
use mcs_core::{
    model::SessionAffinity,
    names::{
        ANNOTATION_CLUSTERSET, EVENT_IMPORT_FAILED, EVENT_IMPORT_SKIPPED, EVENT_SERVICE_SKIPPED,
        EVENT_SLICE_SKIPPED, LABEL_MANAGED_BY, MANAGED_BY, derived_service_name, slice_name,
    },
};
use mcs_e2e::objects::refusal;
use mcs_e2e::programs::Signal;

/// O38: also over a restart. Karmada's ServiceImports carry no marks of ours either.
#[tokio::test]
async fn what_others_made_in_the_place_of_ours_is_left_alone_and_the_import_is_completed_when_it_goes()
-> Result<()> {
    let mut scene = Scene::start("foreign", &[]).await?;
    let [theirs, other, cart, web, last] =
        ["theirs", "other", "cart", "web", "last"].map(|name| scene.place(name));
    let spec = json!({ "type": "ClusterSetIP", "ports": [] });
    create::<ServiceImport>(&theirs, json!({ "metadata": { "name": "theirs" }, "spec": spec })).await?;
    let of_another_set = json!({
        "name": "other",
        "labels": { LABEL_MANAGED_BY: MANAGED_BY },
        "annotations": { ANNOTATION_CLUSTERSET: "another" },
    });
    create::<ServiceImport>(&other, json!({ "metadata": of_another_set, "spec": spec })).await?;
    let derived = derived_service_name(&cart.key()?);
    let service = service_without_selector(&scene.ns, &derived, &HTTP);
    cart.api::<Service>().create(&PostParams::default(), &service).await?;
    let taken = slice_name(&derived_service_name(&web.key()?), &"alpha".parse()?, &group(&HTTP), 0);
    let slice = json!({ "metadata": { "name": taken }, "addressType": "IPv4", "endpoints": [] });
    create::<EndpointSlice>(&web, slice).await?;
    let made = async || -> Result<[Option<String>; 4]> {
        Ok([
            theirs.api::<ServiceImport>().get("theirs").await?.resource_version(),
            other.api::<ServiceImport>().get("other").await?.resource_version(),
            cart.api::<Service>().get(&derived).await?.resource_version(),
            web.api::<EndpointSlice>().get(&taken).await?.resource_version(),
        ])
    };
    let before = made().await?;

    for place in [&theirs, &other, &cart, &web] {
        scene.export(place).await?;
    }
    for (place, reason, name) in [
        (&theirs, EVENT_IMPORT_SKIPPED, "theirs"),
        (&other, EVENT_IMPORT_SKIPPED, "other"),
        (&cart, EVENT_SERVICE_SKIPPED, &derived),
        (&web, EVENT_SLICE_SKIPPED, &taken),
    ] {
        told(place, reason, name).await?;
    }
    let of_web = web.imports(ALPHA).await?;
    ready(&cart, "False/Pending").await?;
    assert_eq!(cart.import().await?.import.spec.context("a spec")?.ips, Vec::<String>::new());

    scene.stack.end_controller("west", Signal::Term).await?;
    scene.stack.start_controller(&pair().await?.west, "west").await?;
    scene.export(&last).await?;
    last.imports(ALPHA).await?;
    assert_eq!(made().await?, before);

    cart.delete::<Service>(&derived).await?;
    ready(&cart, "True/Ready").await?;
    let of_cart = cart.imports(ALPHA).await?;
    assert_eq!(
        of_cart.service.spec.context("a spec")?.cluster_ips,
        Some(of_cart.import.spec.context("a spec")?.ips)
    );
    theirs.delete::<ServiceImport>("theirs").await?;
    theirs.imports(ALPHA).await?;
    web.delete::<EndpointSlice>(&taken).await?;
    scene.export(&web).await?;

    for place in [&theirs, &other, &cart, &web] {
        scene.alpha.withdraw(&place.key()?).await?;
    }
    for place in [&theirs, &cart, &web] {
        place.imports_nothing().await?;
    }
    assert_eq!(other.api::<ServiceImport>().get("other").await?.resource_version(), before[1]);
    assert_eq!(of_web.slices.len(), 1);
    Ok(())
}

/// With a finalizer, an annotation and a condition of its maker, which all stay.
#[tokio::test]
async fn an_import_that_is_taken_over_is_completed_and_goes_with_the_last_export() -> Result<()> {
    let scene = Scene::start("adopt", &["--adopt-unmanaged-imports"]).await?;
    let [cart, other] = ["cart", "other"].map(|name| scene.place(name));
    let metadata = json!({
        "name": "cart",
        "annotations": { "their.example/x": "y" },
        "finalizers": ["their.example/finalizer"],
    });
    let spec = json!({
        "type": "ClusterSetIP",
        "ips": ["192.0.2.7"],
        "ports": [{ "name": "old", "port": 1, "protocol": "TCP" }],
        "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": 7 } },
        "trafficDistribution": "PreferClose",
    });
    create::<ServiceImport>(&cart, json!({ "metadata": metadata, "spec": spec })).await?;
    let condition = json!({
        "type": "TheirExample", "status": "True", "reason": "Theirs", "message": "", "observedGeneration": 1,
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    });
    let status = json!({ "status": { "clusters": [{ "cluster": "gamma" }], "conditions": [condition] } });
    let imports = cart.api::<ServiceImport>();
    imports.patch_status("cart", &PatchParams::default(), &Patch::Merge(status)).await?;
    let of_another_set = json!({
        "name": "other",
        "labels": { LABEL_MANAGED_BY: MANAGED_BY },
        "annotations": { ANNOTATION_CLUSTERSET: "another" },
    });
    create::<ServiceImport>(
        &other,
        json!({ "metadata": of_another_set, "spec": { "type": "Headless", "ports": [] } }),
    )
    .await?;
    let uid = imports.get("cart").await?.uid();

    scene.export(&other).await?;
    scene.export(&cart).await?;
    let import = cart.imports(ALPHA).await?;
    assert_eq!((import.import.uid(), import.ports()), (uid.clone(), vec![("http".to_owned(), 80)]));
    assert_eq!(import.import.annotations().get("their.example/x").map(String::as_str), Some("y"));
    assert_eq!(import.import.labels().get(LABEL_MANAGED_BY).map(String::as_str), Some(MANAGED_BY));
    let spec = import.import.spec.context("a spec")?;
    assert_eq!(
        (
            spec.session_affinity.as_deref().unwrap_or("None"),
            spec.session_affinity_config,
            spec.traffic_distribution
        ),
        ("None", None, None)
    );
    assert_eq!(Some(spec.ips), import.service.spec.and_then(|spec| spec.cluster_ips));
    wait_for("the conditions of the import", async || {
        let status = imports.get("cart").await?.status.context("a status")?;
        let conditions: BTreeSet<_> = status.conditions.iter().map(|it| it.reason.as_str()).collect();
        ensure!(conditions == ["Ready", "Theirs"].into(), "{conditions:?}");
        Ok::<_, anyhow::Error>(())
    })
    .await?;
    told(&other, EVENT_IMPORT_SKIPPED, "other").await?;

    scene.alpha.withdraw(&cart.key()?).await?;
    wait_for("the import to wait for its finalizer alone", async || {
        let left = imports.get("cart").await?;
        ensure!(left.metadata.deletion_timestamp.is_some(), "it is not being deleted");
        let slices = cart.api::<EndpointSlice>().list(&ListParams::default()).await?.items.len();
        let derived = cart.api::<Service>().get_opt(&derived_service_name(&cart.key()?)).await?;
        ensure!((slices, derived.is_none()) == (0, true), "{slices} slices, {derived:?}");
        Ok::<_, anyhow::Error>(())
    })
    .await?;
    // It is exported again meanwhile.
    scene.export(&cart).await?;
    let last = scene.place("last");
    scene.export(&last).await?;
    last.imports(ALPHA).await?;
    assert_eq!(imports.get("cart").await?.uid(), uid);
    merge::<ServiceImport>(&cart, "cart", json!({ "metadata": { "finalizers": null } })).await?;
    assert_ne!(cart.imports(ALPHA).await?.import.uid(), uid);
    Ok(())
}

#[tokio::test]
async fn what_the_api_server_refuses_is_told_in_its_own_words_and_tried_again() -> Result<()> {
    let scene = Scene::start("quota", &[]).await?;
    let cart = scene.place("cart");
    let hard = json!({ "services": "0" });
    create::<ResourceQuota>(&cart, json!({ "metadata": { "name": "none" }, "spec": { "hard": hard } }))
        .await?;
    // No controller of quotas runs, so its part is done here.
    let status = json!({ "status": { "hard": hard, "used": { "services": "0" } } });
    let quotas = cart.api::<ResourceQuota>();
    quotas.patch_status("none", &PatchParams::default(), &Patch::Merge(status)).await?;
    wait_for("the quota to hold", async || {
        let try_one = PostParams { dry_run: true, ..PostParams::default() };
        let service = service_without_selector(&scene.ns, "one", &HTTP);
        let made = cart.api::<Service>().create(&try_one, &service).await;
        let refused = made.err().map(|error| error.to_string()).unwrap_or_default();
        ensure!(refused.contains("exceeded quota"), "{refused:?}");
        Ok::<_, anyhow::Error>(())
    })
    .await?;

    scene.export(&cart).await?;
    told(
        &cart,
        EVENT_IMPORT_FAILED,
        "exceeded quota: none, requested: services=1, used: services=0, limited: services=0",
    )
    .await?;
    ready(&cart, "False/Pending").await?;
    cart.delete::<ResourceQuota>("none").await?;
    ready(&cart, "True/Ready").await?;
    cart.imports(ALPHA).await?;
    Ok(())
}

/// A policy takes no change of ServiceImports and Services: their endpoints and status go on, and so do new imports.
#[tokio::test]
async fn a_policy_that_refuses_changes_is_told_keeps_nothing_else_back_and_is_made_up_for_when_it_goes()
-> Result<()> {
    let scene = Scene::start("policy", &[]).await?;
    let beta = Peer::join(&scene.stack, "beta").await?;
    let [cart, web] = ["cart", "web"].map(|name| scene.place(name));
    scene.export(&cart).await?;
    let made = cart.imports(ALPHA).await?;
    ready(&cart, "True/Ready").await?;
    let derived = made.service.name_any();
    let cluster = &pair().await?.west;
    let changed = [("", "services"), ("multicluster.x-k8s.io", "serviceimports")];
    cluster.apply_yaml(&refusal(&scene.ns, "UPDATE", &changed, "false", "nothing changes today")).await?;
    wait_for("the policy to hold", async || {
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        let change = Patch::Merge(json!({ "metadata": { "labels": { "their.example/x": "y" } } }));
        let changed = cart.api::<Service>().patch(&derived, &params, &change).await;
        let refused = changed.err().map(|error| error.to_string()).unwrap_or_default();
        ensure!(refused.contains("nothing changes today"), "{refused:?}");
        Ok::<_, anyhow::Error>(())
    })
    .await?;

    let sticky = |spec: &mut ExportSpec| spec.session_affinity = SessionAffinity::ClientIp;
    let affinities = async || -> Result<[Option<String>; 2]> {
        let import = cart.import().await?;
        Ok([
            import.import.spec.and_then(|spec| spec.session_affinity),
            import.service.spec.and_then(|spec| spec.session_affinity),
        ])
    };
    let before = affinities().await?;
    scene.export_with(&cart, sticky).await?;
    beta.export(&cart.key()?, peer_spec(&HTTP, LATE), peer_endpoints(&HTTP, &["10.2.0.1"])?).await?;
    cart.imports(&[("alpha", &["10.1.0.1"]), ("beta", &["10.2.0.1"])]).await?;
    told(&cart, EVENT_IMPORT_FAILED, "nothing changes today").await?;
    ready(&cart, "True/Ready").await?;
    // A new import needs a change of its own for its addresses, and has its endpoints all the same.
    scene.export(&web).await?;
    web.imports(ALPHA).await?;
    told(&web, EVENT_IMPORT_FAILED, "nothing changes today").await?;
    let uids = |import: &Import| (import.import.uid(), import.service.uid());
    let held = cart.import().await?;
    assert_eq!((uids(&held), affinities().await?), (uids(&made), before));

    let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(scene.client.clone());
    bindings.delete(&scene.ns, &DeleteParams::default()).await?;
    wait_for("the changes to be made", async || {
        let is = affinities().await?;
        ensure!(is == [Some("ClientIP".to_owned()), Some("ClientIP".to_owned())], "{is:?}");
        let ips = web.import().await?.import.spec.unwrap_or_default().ips;
        ensure!(ips.len() == 1, "{ips:?}");
        Ok::<_, anyhow::Error>(())
    })
    .await?;
    assert_eq!(uids(&cart.import().await?), uids(&made));
    Ok(())
}

/// Waits until an Event of `reason` about the ServiceImport says `text`.
async fn told(place: &Place, reason: &str, text: &str) -> Result<()> {
    wait_for(&format!("an Event {reason} of {}", place.name), async || {
        let events = place.api::<Event>().list(&ListParams::default()).await?.items;
        let about = events.into_iter().filter(|event| {
            let object = event.regarding.as_ref();
            object.is_some_and(|it| {
                it.name.as_deref() == Some(&place.name) && it.kind.as_deref() == Some("ServiceImport")
            })
        });
        let said: Vec<_> =
            about.map(|event| (event.reason.unwrap_or_default(), event.note.unwrap_or_default())).collect();
        ensure!(said.iter().any(|(its, note)| its == reason && note.contains(text)), "{said:?}");
        Ok::<_, anyhow::Error>(())
    })
    .await
}
