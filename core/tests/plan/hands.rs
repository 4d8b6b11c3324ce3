//! What people and other controllers do to our objects, and to objects with the names of ours.

use super::world::{World, config, definition, endpoints, key, kinds, net, of_alpha, port, shown, wanted};
use mcs_core::ids::ClustersetId;
use mcs_core::model::Protocol;
use mcs_core::names;
use mcs_core::plan::{Entries, Kind, Ownership, PlanConfig, Problem, SliceKeeper, Step, plan};
use mcs_core::view::{Decision, Source};
use std::collections::BTreeSet;

type Edit = fn(&mut World);

fn settled() -> World {
    let mut world = World::default();
    world.settle(&of_alpha(2));
    world
}

/// Case O05: whatever somebody deletes or edits is repaired, without a word from a registry.
#[test]
fn what_somebody_edits_or_deletes_is_repaired() {
    let repaired = settled().shape();
    let edits: [(&str, Edit); 9] = [
        ("a slice is deleted", |world| world.existing.slices.clear()),
        ("a slice loses its endpoints", |world| world.existing.slices[0].endpoints.clear()),
        ("a slice gets a target reference", |world| world.existing.slices[0].stray = true),
        ("a slice loses a label", |world| {
            world.existing.slices[0].meta.labels.remove(names::LABEL_SLICE_SERVICE);
        }),
        ("a slice loses its owner", |world| world.existing.slices[0].meta.owner = None),
        ("the import loses its ports", |world| {
            world.existing.import.as_mut().expect("an import").spec.ports.clear();
        }),
        ("the import names another cluster", |world| {
            world.existing.import.as_mut().expect("an import").status.clusters.clear();
        }),
        ("the service loses a label", |world| {
            world.existing.service.as_mut().expect("a Service").meta.labels.clear();
        }),
        ("the service loses its ports", |world| {
            world.existing.service.as_mut().expect("a Service").spec.ports.clear();
        }),
    ];
    for (what, edit) in edits {
        let mut world = settled();
        edit(&mut world);
        assert!(!world.settle(&of_alpha(2)).is_empty(), "{what}: nothing was done");
        assert_eq!(world.shape(), repaired, "{what}");
    }
}

/// As by a policy of the cluster: the status does not wait for it.
#[test]
fn an_import_whose_update_is_refused_names_its_clusters_all_the_same() {
    let mut world = settled();
    let import = world.existing.import.as_mut().expect("an import");
    import.spec.ports.clear();
    import.status.clusters.clear();
    let plans = [false, true].map(|import_refused| {
        let config = PlanConfig { import_refused, ..config() };
        kinds(&plan(&key(), &of_alpha(2), &world.existing, &config))
    });
    assert_eq!(plans, [vec!["update import"], vec!["update status"]]);
}

#[test]
fn a_deleted_service_is_made_again_and_its_new_address_is_shown() {
    let mut world = settled();
    world.existing.service = None;
    let rounds = world.settle(&of_alpha(2));
    let kinds: Vec<_> = rounds.iter().map(|round| kinds(round)).collect();
    assert_eq!(
        kinds,
        [vec!["replace import", "create service"], vec!["update import"]],
        "the addresses that are gone are not shown meanwhile"
    );
    let (import, service) =
        (world.existing.import.expect("import"), world.existing.service.expect("Service"));
    assert_eq!(import.spec.ips, service.cluster_ips);
}

/// Case O22: the owner is the ServiceImport of the same namespace; with it go its dependants, and all is made again.
#[test]
fn a_deleted_import_takes_its_dependants_and_all_is_made_again() {
    let mut world = settled();
    let import = world.existing.import.take().expect("an import");
    let mut before_collection = world.clone();
    world.collect_garbage(&import.meta.identity.uid);
    assert_eq!((world.existing.service.clone(), world.existing.slices.len()), (None, 0));
    world.settle(&of_alpha(2));
    assert_eq!(world.addresses("alpha"), net(1, 2).collect::<Vec<_>>());

    // The collector may come later: what is left gets the new owner.
    before_collection.settle(&of_alpha(2));
    before_collection.collect_garbage(&import.meta.identity.uid);
    assert_eq!(before_collection.shape().slices, world.shape().slices);
}

/// Case O06: what is on its way out is not written; a slice is replaced under another name.
#[test]
fn what_is_on_its_way_out_is_not_written() {
    let mut world = settled();
    world.existing.slices[0].meta.deleting = true;
    world.settle(&of_alpha(3));
    let live: Vec<_> = world.existing.slices.iter().filter(|slice| !slice.meta.deleting).collect();
    assert_eq!(live.len(), 1);
    assert_eq!(live[0].endpoints.keys().copied().collect::<Vec<_>>(), net(1, 3).collect::<Vec<_>>());

    let mut world = settled();
    world.existing.import.as_mut().expect("an import").meta.deleting = true;
    assert_eq!(plan(&key(), &of_alpha(9), &world.existing, &config()), []);
    world.settle(&Decision::Remove);
    assert!(world.existing.import.is_some(), "it is waited for");

    let mut world = settled();
    world.existing.service.as_mut().expect("a Service").meta.deleting = true;
    world.settle(&of_alpha(9));
    let import = world.existing.import.clone().expect("an import");
    assert!(import.spec.ips.is_empty());
    assert_eq!(world.addresses("alpha").len(), 9, "other objects do not wait");
    world.existing.service = None;
    world.settle(&of_alpha(9));
    assert_eq!(world.existing.import.expect("an import").spec.ips.len(), 1);
}

#[test]
fn a_selector_that_somebody_adds_is_removed_with_the_slices_that_kubernetes_made_for_it() {
    let mut world = settled();
    let service = world.existing.service.as_mut().expect("a Service");
    service.stray.insert("selector".to_owned());
    let labels =
        Entries::from([(names::LABEL_SLICE_MANAGED_BY.to_owned(), names::MANAGED_BY_KUBERNETES.to_owned())]);
    let mut made = world.existing.slices[0].clone();
    made.meta = world.meta("derived-abcde", &labels, &Entries::new(), None);
    made.keeper = SliceKeeper::Kubernetes;
    world.existing.slices.push(made);
    let rounds = world.settle(&of_alpha(2));
    assert_eq!(kinds(&rounds[0]), ["replace service", "remove foreign slices"]);
    assert_eq!(world.shape(), settled().shape());
}

#[test]
fn a_port_that_another_manager_added_is_removed_by_a_full_update() {
    let mut world = settled();
    let extra = port("debug", Protocol::Tcp, 6060);
    world.foreign_ports.push(extra.clone());
    world.existing.service.as_mut().expect("a Service").spec.ports.push(extra);
    let rounds = world.settle(&of_alpha(2));
    assert_eq!(kinds(&rounds[0]), ["replace service"]);
    assert_eq!(world.shape(), settled().shape());
}

#[test]
fn an_import_of_somebody_else_that_the_clusterset_does_not_have_is_not_worth_a_word() {
    for ownership in [Ownership::Foreign, Ownership::OtherClusterset] {
        let mut world = settled();
        world.existing.import.as_mut().expect("an import").meta.ownership = ownership;
        assert_eq!(plan(&key(), &Decision::Keep, &world.existing, &config()), [], "{ownership:?}");
    }
}

/// Case O38: what does not carry our marks and those of this clusterset is left alone.
#[test]
fn a_foreign_import_is_skipped_unless_adopted() {
    for ownership in [Ownership::Foreign, Ownership::OtherClusterset] {
        let mut world = World::default();
        world.settle(&wanted(definition(), []));
        world.existing.service = None;
        world.existing.import.as_mut().expect("an import").meta.ownership = ownership;
        let before = world.existing.clone();
        let problem = Problem::Foreign { kind: Kind::ServiceImport, name: "cart".to_owned() };
        assert_eq!(plan(&key(), &of_alpha(1), &before, &config()), [Step::Report(problem)]);
        assert_eq!(plan(&key(), &Decision::Remove, &before, &config()), []);

        let mut adopting = config();
        adopting.adopt_unmanaged = true;
        let import = world.existing.import.as_mut().expect("an import");
        import.meta.labels.clear();
        import.meta.annotations.clear();
        world.settle_key(&key(), &of_alpha(1), &adopting);
        let adopted = world.existing.import.expect("an import").meta.ownership == Ownership::Ours;
        assert_eq!(adopted, ownership == Ownership::Foreign, "another clusterset's is never taken over");
    }
}

/// Case O13: whatever an object is called.
#[test]
fn marks_tell_whose_an_object_is() {
    let clusterset = ClustersetId::new("prod").expect("a clusterset id");
    let label = |value: &str| Entries::from([(names::LABEL_MANAGED_BY.to_owned(), value.to_owned())]);
    let mark = |value: &str| Entries::from([(names::ANNOTATION_CLUSTERSET.to_owned(), value.to_owned())]);
    let none = Entries::new();
    assert_eq!(Ownership::of(&label(names::MANAGED_BY), &mark("prod"), &clusterset), Ownership::Ours);
    assert_eq!(
        Ownership::of(&label(names::MANAGED_BY), &mark("test"), &clusterset),
        Ownership::OtherClusterset
    );
    assert_eq!(Ownership::of(&label(names::MANAGED_BY), &none, &clusterset), Ownership::OtherClusterset);
    assert_eq!(Ownership::of(&label("Helm"), &mark("prod"), &clusterset), Ownership::Foreign);
    assert_eq!(Ownership::of(&none, &mark("prod"), &clusterset), Ownership::Foreign);
}

#[test]
fn a_foreign_service_under_the_derived_name_is_left_alone_and_reported() {
    let mut world = settled();
    let service = world.existing.service.as_mut().expect("a Service");
    service.meta.ownership = Ownership::Foreign;
    service.meta.owner = None;
    let before = world.existing.service.clone();
    world.settle(&of_alpha(3));
    assert_eq!(world.existing.service, before);
    let problem = Problem::Foreign { kind: Kind::Service, name: names::derived_service_name(&key()) };
    assert_eq!(plan(&key(), &of_alpha(3), &world.existing, &config()), [Step::Report(problem)]);
    world.settle(&Decision::Remove);
    assert_eq!((world.existing.service, world.existing.import), (before, None));
}

#[test]
fn a_foreign_slice_under_our_name_is_left_alone_and_its_slot_is_passed_over() {
    let mut world = settled();
    world.existing.slices[0].meta.ownership = Ownership::Foreign;
    let foreign = world.existing.slices[0].clone();
    world.settle(&of_alpha(101));
    let names: BTreeSet<_> =
        world.existing.slices.iter().map(|slice| slice.meta.identity.name.clone()).collect();
    assert!(world.existing.slices.contains(&foreign));
    assert_eq!(names.len(), 3);
    let problem = Problem::Foreign { kind: Kind::EndpointSlice, name: foreign.meta.identity.name };
    assert_eq!(plan(&key(), &of_alpha(101), &world.existing, &config()), [Step::Report(problem)]);
}

#[test]
fn slices_of_another_clusterset_are_not_deleted() {
    let mut world = settled();
    world.existing.slices[0].meta.ownership = Ownership::OtherClusterset;
    world.existing.slices[0].meta.owner = None;
    let other = world.existing.slices[0].clone();
    world.settle(&wanted(definition(), [("beta", Source::Show(shown(endpoints(net(2, 1)), 1)))]));
    assert!(world.existing.slices.contains(&other));
    world.settle(&Decision::Remove);
    assert_eq!(world.existing.slices, [other]);
}

#[test]
fn a_slice_without_a_source_is_left_while_a_source_is_kept() {
    let mut world = settled();
    world.existing.slices[0].source = None;
    world.settle(&wanted(definition(), [("alpha", Source::Keep)]));
    assert_eq!(world.existing.slices.len(), 1);
    world.settle(&wanted(definition(), []));
    assert_eq!(world.existing.slices.len(), 0);
}
