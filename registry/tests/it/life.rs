//! The life of a cluster, read from the log alone.

use std::sync::Arc;

use mcs_core::model;
use mcs_core::registry::Op;
use mcs_core::timing::MAX_TICK;
use mcs_core::version::{Leaf, Sum, Version};
use mcs_proto::convert::Member;
use mcs_proto::pb;
use mcs_proto::pb::members_client::MembersClient;
use mcs_proto::pb::sync_request::Step;
use tonic::transport::Endpoint;

use crate::logged::Logged;
use crate::started::{
    LEASE, Started, endpoints_and_loopback, id, key, leaf, member, prod, put, registration, spec,
};

#[tokio::test]
async fn a_cluster_can_be_followed_from_its_registration_to_its_removal() {
    let registry = Started::new().await;
    registry.client.list_clusters(&prod()).await.unwrap();
    let logged = Logged::from_now_on();
    let mut east = registry.register("east").await;
    assert_eq!(
        logged.take(4).await,
        [
            "INFO clusterset begun",
            "INFO clusterset read from the store clusters=0 exports=0",
            "INFO cluster registered cluster=east uid=uid-of-east region=\"eu-west-1\" version=1.1 \
             instance=mcs-controller-0 build=0.1.0 differs=false",
            "INFO cluster is whole: its exports are shown cluster=east exports=0",
        ]
    );

    let mut watch = registry.client.watch(&prod(), &id("east"), None, model::Since::default()).await.unwrap();
    watch.next().await.unwrap();
    east.write(&[put("cart", 2), named("Web\n"), with_loopback("till")]).await;
    // A renewal is no news.
    registry.client.renew(&east.member, east.version(), east.sum).await.unwrap();
    assert_eq!(
        logged.take(3).await,
        [
            "INFO watch opened cluster=east",
            "WARN exports refused cluster=east version=1.2 exports=1 first=shop/named field=ports[0].name \
             problem=\"Web\\n\" must consist of lower case letters, digits and '-', and begin and end with a letter \
             or digit (DNS-1123 label) (export shop/named)",
            "WARN endpoints left out cluster=east version=1.2 endpoints=1 first=127.0.0.1 export=shop/till \
             field=addresses problem=must not be a loopback address",
        ]
    );

    let (broken, version) = (east.next(), east.next());
    sync_without_names(&registry, &east.member, broken).await;
    assert_eq!(
        logged.take(2).await,
        [
            "INFO sync begun cluster=east version=1.3",
            "INFO sync broken off: nothing is deleted cluster=east version=1.3 reason=\"step: names must follow the begin\"",
        ]
    );
    let cart = put("cart", 2);
    let names = [(key("cart"), leaf(&cart))];
    let (_, sync) = registry.client.begin_sync(&east.member, version, &names).await.unwrap();
    sync.finish(&[]).await.unwrap();
    assert_eq!(
        logged.take(2).await,
        [
            "INFO sync begun cluster=east version=1.4",
            "INFO sync ended cluster=east version=1.4 exports=1 deleted=1",
        ]
    );

    let sum: Sum = [leaf(&cart)].into_iter().collect();
    let leader = registration(&east.member, Version::new(2, 1), sum);
    registry.client.register(&east.member, &leader).await.unwrap();
    registry.client.write(&east.member, Version::new(1, 5), &[put("late", 1)]).await.unwrap_err();
    let other = member("east", "uid-of-another");
    let claim = registration(&other, Version::new(1, 1), Sum::EMPTY);
    registry.client.register(&other, &claim).await.unwrap_err();
    registry.client.remove(&prod(), &id("east"), None, false).await.unwrap_err();
    assert_eq!(
        logged.take(4).await,
        [
            "INFO cluster registered cluster=east uid=uid-of-east region=\"eu-west-1\" version=2.1 \
             instance=mcs-controller-0 build=0.1.0 differs=false",
            "WARN call refused cluster=east call=\"write\" refused=term 1 of cluster east is over or another leader's, \
             2 is the highest seen: raise it above that",
            "WARN call refused cluster=east call=\"register\" refused=cluster id east is held by the cluster with UID \
             uid-of-east, not by that with UID uid-of-another: give one another id",
            "WARN call refused cluster=east call=\"remove\" refused=the lease of cluster east is active: stop its \
             controller, or force the removal",
        ]
    );

    pass_a_lease(&registry).await;
    registry.client.renew(&east.member, Version::new(2, 1), sum).await.unwrap();
    pass_a_lease(&registry).await;
    registry.client.register(&other, &claim).await.unwrap();
    registry.client.remove(&prod(), &id("east"), Some(&other.uid), false).await.unwrap();
    drop(watch);
    let ran_out = "WARN lease ran out: endpoints are not shown any more cluster=east silent=60s exports=1";
    let mut lines = logged.take(7).await;
    // What it was told depends on how fast it was read.
    let end = lines[6].find(" revision=").unwrap();
    let closed = lines[6].split_off(end);
    assert!(closed.contains(" snapshots=1 messages="), "{closed}");
    assert_eq!(
        lines,
        [
            ran_out,
            "INFO cluster is back cluster=east",
            ran_out,
            "INFO cluster registered cluster=east uid=uid-of-another region=\"eu-west-1\" version=1.1 \
             instance=mcs-controller-0 build=0.1.0 differs=false",
            "WARN cluster id taken over: what was exported is gone cluster=east before=uid-of-east now=uid-of-another",
            "INFO cluster removed cluster=east by=\"itself\" force=false exports=0 endpoints=0",
            "INFO watch closed cluster=east by=\"caller\" lasted=120s",
        ]
    );
}

/// One that errs a thousand times a second does not fill the log.
#[tokio::test]
async fn a_cluster_that_is_refused_all_the_time_has_few_lines() {
    let registry = Started::new().await;
    let mut east = registry.register("east").await;
    let logged = Logged::from_now_on();
    let refused = "WARN exports refused cluster=east version=1.2 exports=1 first=shop/named field=ports[0].name problem=";
    for _ in 0..15 {
        east.write(&[named("Web")]).await;
    }
    registry.pass(std::time::Duration::from_secs(1)).await;
    east.write(&[named("Web")]).await;
    let lines = logged.take(11).await;
    assert_eq!(lines.len(), 11);
    assert!(lines[0].starts_with(refused), "{lines:#?}");
    assert!(lines[9].ends_with("(export shop/named)"), "{lines:#?}");
    assert!(lines[10].ends_with("unsaid=5"), "{lines:#?}");
}

#[tokio::test]
async fn a_hold_and_a_pause_are_told_with_the_clusters_that_they_concern() {
    let registry = Started::new().await;
    let mut exporters = Vec::new();
    for cluster in ["east", "north", "west"] {
        exporters.push(registry.register(cluster).await);
    }
    let logged = Logged::from_now_on();
    pass_a_lease(&registry).await;
    let east = &exporters[0];
    registry.client.renew(&east.member, east.version(), east.sum).await.unwrap();
    registry.clock.advance(LEASE);
    look(&registry).await;
    let waits = "WARN lease ran out: its verdict waits for the end of the hold";
    assert_eq!(
        logged.take(8).await,
        [
            "WARN hold begins: too many silent clusters to judge leases active=3 silent=3".to_owned(),
            format!("{waits} cluster=east silent=60s"),
            format!("{waits} cluster=north silent=60s"),
            format!("{waits} cluster=west silent=60s"),
            "INFO cluster is back cluster=east".to_owned(),
            "WARN registry was away: leases are counted anew away=60s".to_owned(),
            "INFO cluster is back cluster=north".to_owned(),
            "INFO cluster is back cluster=west".to_owned(),
        ]
    );
}

/// Lets a lease pass as a running registry sees it. Lists would be made, and log, on a thread of their own.
async fn pass_a_lease(registry: &Started) {
    let mut left = LEASE;
    while !left.is_zero() {
        let step = left.min(MAX_TICK);
        registry.clock.advance(step);
        left -= step;
        look(registry).await;
    }
}

/// Has the registry look at the clock.
async fn look(registry: &Started) {
    registry.client.remove(&prod(), &id("nobody"), None, false).await.unwrap_err();
}

/// A sync that ends where it is to name what there is.
async fn sync_without_names(registry: &Started, member: &Member, version: Version) {
    let begin = pb::SyncBegin {
        clusterset: member.clusterset.to_string(),
        cluster: member.cluster.to_string(),
        uid: member.uid.to_string(),
        version: Some(version.into()),
    };
    let steps = [Step::Begin(begin), Step::End(pb::SyncEnd {})];
    let requests = steps.map(|step| pb::SyncRequest { step: Some(step) });
    let channel =
        Endpoint::from_shared(format!("http://{}", registry.grpc)).unwrap().connect().await.unwrap();
    let mut answers =
        MembersClient::new(channel).sync(tokio_stream::iter(requests)).await.unwrap().into_inner();
    answers.message().await.unwrap_err();
}

/// A put of an export whose port has this name.
fn named(port: &str) -> Op {
    let mut spec = spec();
    spec.ports[0].name = port.to_owned();
    Op::Put {
        key: key("named"),
        leaf: Leaf::default(),
        spec: Arc::new(spec),
        endpoints: Arc::default(),
        changed_at: None,
    }
}

fn with_loopback(name: &str) -> Op {
    let all = endpoints_and_loopback(1, 1);
    Op::Put {
        key: key(name),
        leaf: Leaf::default(),
        spec: Arc::new(spec()),
        endpoints: Arc::new(all),
        changed_at: None,
    }
}
