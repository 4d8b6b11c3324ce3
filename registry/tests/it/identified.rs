//! Who answers, as a registry says it of itself.

use mcs_core::ids::{Build, ClusterId, ClustersetId};
use mcs_core::model::Since;
use mcs_core::outbox::Process;
use mcs_core::registry::Registration;
use mcs_core::time::{Clock, WallMillis, WallTime};
use mcs_core::version::{Sum, Version};
use mcs_proto::client::Identified;
use mcs_proto::convert::Member;

use crate::started::{LEASE, Started, member, registration};

#[tokio::test]
async fn a_registry_says_who_it_is_what_time_it_has_and_whom_it_knows() {
    let registry = Started::new().await;
    let epoch = registry.register("east").await.client.registry().await.unwrap().by.epoch;
    assert!(epoch.is_some(), "a process always names itself here");
    let test = ClustersetId::new("test").unwrap();
    let of_test = Member { clusterset: test.clone(), ..member("west", "u-2") };
    let west: Registration = registration(&of_test, Version::new(1, 1), Sum::EMPTY);
    registry.client.register(&of_test, &west).await.unwrap();
    // Watching and listing make no clusterset that is told to others.
    let watched = ClustersetId::new("watched").unwrap();
    let importer = ClusterId::new("east").unwrap();
    let _watch = registry.client.watch(&watched, &importer, None, Since::default()).await.unwrap();
    registry.client.list_clusters(&ClustersetId::new("listed").unwrap()).await.unwrap();

    registry.clock.set_wall(WallTime::from_unix_secs(1_800_000_000));
    let told = registry.client.registry().await.unwrap();
    let wall = WallMillis::from_unix_millis(1_800_000_000_000);
    let expected = Identified {
        by: Process { epoch, build: Build::new(mcs_runtime::version()).unwrap() },
        wall,
        lease: LEASE,
        degraded: false,
        shares_store: false,
        caller: "anyone may do everything".to_owned(),
        clustersets: vec![ClustersetId::new("prod").unwrap(), test],
    };
    assert_eq!((told, registry.clock.wall_millis()), (expected, wall));
}
