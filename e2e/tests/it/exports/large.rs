//! Services with many endpoints.

use super::*;
use std::net::{IpAddr, Ipv4Addr};

/// The most endpoints that Kubernetes takes in one slice.
const SOURCE_SLICE: usize = 1_000;

fn addresses(count: usize) -> Vec<IpAddr> {
    (0..count).map(|number| Ipv4Addr::from_bits(0x0a40_0001 + number as u32).into()).collect()
}

/// Makes the source slices of `big` hold exactly `wanted`.
async fn write(scene: &Scene, wanted: &[IpAddr]) -> Result<()> {
    let api = scene.east::<EndpointSlice>();
    let chunks: Vec<_> = wanted.chunks(SOURCE_SLICE).collect();
    for number in 0..3 {
        let name = format!("big-{number}");
        let chunk = chunks.get(number).copied().unwrap_or_default();
        let slice = objects::endpoint_slice(&scene.ns, &name, "big", chunk, &[("http", 8080)]);
        match (api.get_opt(&name).await?, chunk.is_empty()) {
            (None, false) => create(&api, &slice).await?,
            (Some(_), false) => merge(&api, &name, json!({ "endpoints": slice.endpoints })).await?,
            (Some(_), true) => delete(&api, &name).await?,
            (None, true) => {}
        }
    }
    Ok(())
}

/// Waits until exactly `wanted` is imported, in slices of 1 to 100 endpoints, each address once.
async fn wait_for_union(scene: &Scene, wanted: &[IpAddr]) -> Result<Vec<EndpointSlice>> {
    let union: BTreeSet<_> = wanted.iter().map(ToString::to_string).collect();
    wait_for(&format!("{} endpoints", wanted.len()), async || {
        let slices = slices(&scene.west, &scene.ns, "big").await?;
        let sizes: Vec<_> = slices.iter().map(|slice| slice.endpoints.len()).collect();
        let total: usize = sizes.iter().sum();
        anyhow::ensure!(
            super::union(&slices) == union && total == union.len(),
            "{total} endpoints: {sizes:?}"
        );
        anyhow::ensure!(sizes.iter().all(|size| (1..=100).contains(size)), "sizes {sizes:?}");
        Ok(slices)
    })
    .await
}

fn versions(slices: &[EndpointSlice]) -> BTreeMap<String, Option<String>> {
    slices.iter().map(|slice| (slice.name_any(), slice.resource_version())).collect()
}

/// O18: the union is right at every size, no slice is too large or empty, and a change costs what it touches.
#[tokio::test]
async fn any_number_of_endpoints_is_imported_in_small_slices() -> Result<()> {
    let scene = Scene::start("large").await?;
    create(&scene.east(), &objects::service_without_selector(&scene.ns, "big", &[("http", 80)])).await?;
    create(&scene.east(), &service_export("big")).await?;
    for (count, slices) in [(99, 1), (100, 1), (101, 2), (100, 1), (1_000, 10), (1_001, 11)] {
        write(&scene, &addresses(count)).await?;
        let imported = wait_for_union(&scene, &addresses(count)).await?;
        assert_eq!(imported.len(), slices, "{count} endpoints");
    }
    let before = versions(&wait_for_union(&scene, &addresses(1_001)).await?);
    let mut changed = addresses(1_001);
    changed[500] = Ipv4Addr::new(10, 99, 0, 1).into();
    write(&scene, &changed).await?;
    let after = versions(&wait_for_union(&scene, &changed).await?);
    let rewritten = after.iter().filter(|(name, version)| before.get(*name) != Some(*version)).count();
    assert_eq!((before.len(), after.len(), rewritten), (11, 11, 1));

    write(&scene, &addresses(2_500)).await?;
    wait_for_union(&scene, &addresses(2_500)).await?;
    write(&scene, &addresses(2)).await?;
    wait_for_union(&scene, &addresses(2)).await.map(drop)
}
