//! Syncs, and sets above what one message may carry.

use std::collections::BTreeMap;
use std::sync::Arc;

use mcs_core::ids::ServiceKey;
use mcs_core::model::{ExportSpec, Frame, HeldExport, Object};
use mcs_core::registry::Op;
use mcs_core::version::{Leaf, Sum, Version};
use mcs_proto::client::{Synced, Written};

use crate::started::{Started, endpoints, key, leaf, prod, put, read_set, registration};

fn names(ops: &[Op]) -> Vec<(ServiceKey, Leaf)> {
    ops.iter().map(|op| (op.key().clone(), leaf(op))).collect()
}

fn accepted(ops: &[Op]) -> Written {
    Written { results: ops.iter().map(|op| (op.key().clone(), Ok(()))).collect(), ..Written::default() }
}

#[tokio::test]
async fn a_sync_sends_what_differs_and_deletes_what_it_does_not_name() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    let kept = put("kept", 1);
    east.write(&[kept.clone(), put("changed", 1), put("gone", 1)]).await;

    let now = [kept, put("changed", 2), put("new", 1)];
    let version = east.next();
    let (wants, sync) = registry.client.begin_sync(&east.member, version, &names(&now)).await.unwrap();
    assert_eq!(wants, [key("changed"), key("new")]);
    let synced = sync.finish(&now[1..]).await.unwrap();
    assert_eq!((synced.written, synced.deleted), (accepted(&now[1..]), 1));

    let sum: Sum = now.iter().map(leaf).collect();
    assert!(!registry.client.renew(&east.member, version, sum).await.unwrap().differs);
}

/// A leader goes on from there that has not told the earlier state itself.
#[tokio::test]
async fn a_sync_is_told_what_stands_of_an_export_that_is_refused() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    let cart = put("cart", 1);
    east.write(std::slice::from_ref(&cart)).await;
    let Op::Put { leaf, spec, endpoints, .. } = cart else { panic!() };
    let mut broken = ExportSpec::clone(&spec);
    broken.ports[0].name = "Web".to_owned();
    let bad = |name| Op::Put {
        key: key(name),
        leaf: Leaf::default(),
        spec: Arc::new(broken.clone()),
        endpoints: endpoints.clone(),
        changed_at: None,
    };

    let now = [bad("cart"), bad("new")];
    let version = east.next();
    let (_, sync) = registry.client.begin_sync(&east.member, version, &names(&now)).await.unwrap();
    let Synced { written, deleted } = sync.finish(&now).await.unwrap();
    assert!(written.results.iter().all(|(_, result)| result.is_err()), "{:?}", written.results);
    assert_eq!((written.held, deleted), (BTreeMap::from([(key("cart"), HeldExport { leaf, spec })]), 0));
    assert!(!registry.client.renew(&east.member, version, Sum::from_iter([leaf])).await.unwrap().differs);
}

#[tokio::test]
async fn a_sync_that_breaks_deletes_nothing() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    east.write(&[put("cart", 1), put("till", 1)]).await;

    let broken = east.next();
    let (wants, sync) = registry.client.begin_sync(&east.member, broken, &[]).await.unwrap();
    assert_eq!(wants, []);
    drop(sync);

    let (exports, _) = registry.client.list_exports(&prod(), false).await.unwrap();
    assert_eq!(exports.len(), 2);
    // The next one starts over.
    let version = east.next();
    let cart = put("cart", 1);
    let (wants, sync) = registry.client.begin_sync(&east.member, version, &names(&[cart])).await.unwrap();
    assert_eq!(wants, []);
    assert_eq!(sync.finish(&[]).await.unwrap().deleted, 1);
}

#[tokio::test]
async fn a_cluster_at_its_limit_changes_an_export_for_another_in_one_sync() {
    let registry = Started::with(|policy| policy.max_exports = 1).await;
    let mut east = registry.register("east").await;
    east.write(&[put("old", 1)]).await;
    let now = [put("new", 1)];
    let version = east.next();
    let (_, sync) = registry.client.begin_sync(&east.member, version, &names(&now)).await.unwrap();
    let synced = sync.finish(&now).await.unwrap();
    assert_eq!((synced.written, synced.deleted), (accepted(&now), 1));
}

/// After a restart the member is not whole until its sync has ended, and nothing of it is listed before.
#[tokio::test]
async fn a_member_with_exports_is_listed_when_its_sync_has_ended() {
    let registry = Started::new().await;
    let member = crate::started::member("east", "u-1");
    let cart = put("cart", 1);
    let claims = registration(&member, Version::new(1, 5), [leaf(&cart)].into_iter().collect());
    assert!(registry.client.register(&member, &claims).await.unwrap().differs);

    let state = async || {
        let (clusters, _) = registry.client.list_clusters(&prod()).await.unwrap();
        clusters[0].lease.unwrap().state().as_str_name()
    };
    assert_eq!(state().await, "LEASE_STATE_SYNCING");
    let named = names(std::slice::from_ref(&cart));
    let (wants, sync) = registry.client.begin_sync(&member, Version::new(1, 6), &named).await.unwrap();
    assert_eq!(wants, [key("cart")]);
    assert_eq!(registry.client.list_imports(&prod(), true).await, Ok((Vec::new(), false)));
    sync.finish(&[cart]).await.unwrap();
    assert_eq!(state().await, "LEASE_STATE_ACTIVE");
    assert_eq!(registry.client.list_imports(&prod(), true).await.unwrap().0.len(), 1);
}

/// O19: one export of 30,000 endpoints, and 200 of 300, through gRPC's default limit on every path. O18: all of them
/// arrive.
#[tokio::test]
async fn large_sets_pass_the_default_message_limit_on_every_path() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    let large = put("large", 30_000);
    assert_eq!(east.write(std::slice::from_ref(&large)).await, accepted(std::slice::from_ref(&large)));
    let many: Vec<_> = (0..200).map(|index| put(&format!("service-{index}"), 300)).collect();
    let version = east.next();
    let all: Vec<_> = many.iter().chain([&large]).cloned().collect();
    let (wants, sync) = registry.client.begin_sync(&east.member, version, &names(&all)).await.unwrap();
    assert_eq!(wants.len(), 200);
    let synced = sync.finish(&many).await.unwrap();
    assert_eq!((synced.written, synced.deleted), (accepted(&many), 0));

    let (_, frames) = registry.watch().await;
    let told: usize = frames
        .iter()
        .filter_map(|frame| match frame {
            Frame::Change(change) => change.object.as_ref(),
            _ => None,
        })
        .map(|object| if let Object::Part(part) = object { part.endpoints.len() } else { 0 })
        .sum();
    assert_eq!(told, 90_000);

    let (imports, _) = registry.client.list_imports(&prod(), true).await.unwrap();
    assert_eq!(imports.len(), 201);
    assert_eq!(read_set(imports[0].parts[0].endpoints.clone()), endpoints(30_000));
    let (exports, _) = registry.client.list_exports(&prod(), true).await.unwrap();
    assert_eq!(exports.len(), 201);
    assert_eq!(read_set(exports[0].endpoints.clone()), endpoints(30_000));
}
