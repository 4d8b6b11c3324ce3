use super::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mcs_runtime::ready::Ready;
use mcs_runtime::shutdown::Shutdown;

/// O43: what a relist lacks is gone; O46: what came before a list broke off is not taken for all.
#[tokio::test]
async fn a_list_counts_when_it_is_done_and_half_a_list_takes_nothing() {
    let begun = |names: &[&str]| -> Vec<watcher::Result<_>> {
        let all = names.iter().map(|name| Ok(Event::InitApply(mk(name))));
        std::iter::once(Ok(Event::Init)).chain(all).collect()
    };
    let done = || [Ok(Event::InitDone)];
    let broken = || [Err(watcher::Error::NoResourceVersion)];
    let index = Index::default();
    let ready = Ready::new(Shutdown::manual().watch());
    let listed = ready.wait_for("services");
    for (events, held, is_ready) in [
        (begun(&["a"]).into_iter().chain(broken()).collect(), vec!["a"], false),
        (begun(&["a", "b"]).into_iter().chain(done()).collect(), vec!["a", "b"], true),
        (vec![Ok(Event::Apply(mk("c")))], vec!["a", "b", "c"], true),
        (begun(&["a"]).into_iter().chain(broken()).collect(), vec!["a", "b", "c"], true),
        // What the broken list had is not what its successor has.
        (
            begun(&["b"])
                .into_iter()
                .chain(broken())
                .chain(begun(&["a", "c"]))
                .chain(done())
                .collect::<Vec<_>>(),
            vec!["a", "c"],
            true,
        ),
        (begun(&[]).into_iter().chain(done()).collect(), vec![], true),
    ] {
        index.follow(None, listed.clone(), futures::stream::iter(events)).await;
        let names: Vec<_> = index.all_exports().into_iter().map(|key| key.name.to_string()).collect();
        assert_eq!((names, ready.is_ready()), (held.into_iter().map(str::to_owned).collect(), is_ready));
    }
}

fn mk(name: &str) -> DeserializeGuard<Service> {
    DeserializeGuard(Ok(Service {
        metadata: ObjectMeta {
            namespace: Some("shop".to_owned()),
            name: Some(name.to_owned()),
            uid: Some(format!("uid-of-{name}")),
            resource_version: Some("1".to_owned()),
            ..ObjectMeta::default()
        },
        ..Service::default()
    }))
}
