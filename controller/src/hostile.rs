//! Objects of the cluster's API server, whatever somebody made them, over a fixed sequence of mutations; a fuzz target
//! plays the same (docs/testing.md). Nothing panics; what is exported is a call that a registry can read, and that reads
//! back equal or is refused by a rule of exports; what is not ours is not changed.

#![expect(clippy::unwrap_used, reason = "what must hold and does not, panics")]

use crate::api::{ServiceExport, ServiceImport};
use crate::facts::{self, Content};
use crate::index::{ImportObjects, Index, Kind};
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::core::DeserializeGuard;
use mcs_core::conditions::{ExportFacts, Progress, Validity, conditions};
use mcs_core::ids::{ClusterId, ClustersetId, ServiceKey};
use mcs_core::model::{EndpointSet, ExportSpec, IpFamily};
use mcs_core::names::{ANNOTATION_CLUSTERSET, LABEL_MANAGED_BY, MANAGED_BY, derived_service_name};
use mcs_core::plan::{Identity, PlanConfig, Step, plan};
use mcs_core::registry::Op;
use mcs_core::time::WallTime;
use mcs_core::validate::check_endpoints;
use mcs_core::version::Leaf;
use mcs_core::view::Decision;
use mcs_proto::convert::{OpReader, op};
use std::collections::BTreeSet;
use std::sync::Arc;

/// At most so many objects are played.
const OBJECTS: usize = 64;

/// Plays objects, one JSON text a line; a minus before it says that the object is gone.
pub(crate) fn play(text: &str) {
    let index = Index::default();
    for line in text.lines().take(OBJECTS) {
        take(&index, line);
        for key in index.all_exports() {
            look_at_export(&index, &key);
        }
        let (imports, slices) = index.all_imports();
        let of_imports = imports.iter().filter_map(|import| key_of(&**import));
        let keys: BTreeSet<_> =
            of_imports.chain(slices.iter().filter_map(|slice| key_of(&**slice))).collect();
        for key in keys {
            look_at_import(&key, &index.import_objects(&key, &derived_service_name(&key)));
        }
    }
}

fn take(index: &Index, line: &str) {
    #[derive(serde::Deserialize)]
    struct Kinded {
        kind: String,
    }
    let (line, gone) = line.strip_prefix('-').map_or((line, false), |line| (line, true));
    let Ok(Kinded { kind }) = serde_json::from_str(line) else { return };
    match kind.as_str() {
        "Service" => take_one::<Service>(index, line, gone),
        "ServiceExport" => take_one::<ServiceExport>(index, line, gone),
        "ServiceImport" => take_one::<ServiceImport>(index, line, gone),
        "EndpointSlice" => take_one::<EndpointSlice>(index, line, gone),
        "Namespace" => take_one::<Namespace>(index, line, gone),
        _ => {}
    }
}

fn take_one<K: Kind + serde::de::DeserializeOwned>(index: &Index, line: &str, gone: bool) {
    let Ok(DeserializeGuard(Ok(object))) = serde_json::from_str::<DeserializeGuard<K>>(line) else { return };
    match gone {
        true => index.delete(&object),
        false => index.apply::<K>(object),
    }
}

fn key_of<K: kube::Resource>(object: &K) -> Option<ServiceKey> {
    ServiceKey::new(&object.namespace()?, object.meta().name.as_deref()?).ok()
}

fn look_at_export(index: &Index, key: &ServiceKey) {
    let objects = index.export_objects(key);
    let input = facts::exported(&objects);
    if let Some(export) = &objects.export {
        let previous = export.status.as_ref().map_or(&[][..], |status| &status.conditions);
        let validity = input.as_ref().map_or(Validity::Valid, |input| input.validity);
        let told = ExportFacts { validity, progress: Progress::Ready, conflicts: None };
        let wanted = conditions(&told, &facts::conditions(previous), 1, WallTime::default());
        let written: Vec<_> = wanted.iter().map(facts::condition).collect();
        serde_json::to_string(&written).unwrap();
        // What was written is what is read: a second look writes nothing.
        let again = conditions(&told, &facts::conditions(&written), 1, WallTime::default());
        assert_eq!(again.iter().map(facts::condition).collect::<Vec<_>>(), written);
    }
    let Some(Content { spec, endpoints, dropped, .. }) = input.and_then(|input| input.content) else {
        return;
    };
    for dropped in dropped {
        assert_told(&dropped.to_string());
    }
    let (kept, dropped) = check_endpoints(&endpoints);
    assert_eq!((&kept, dropped.len()), (&*endpoints, 0));
    look_at_call(key, &spec, &endpoints);
}

/// What is exported, as its registry reads it.
fn look_at_call(key: &ServiceKey, spec: &Arc<ExportSpec>, endpoints: &Arc<EndpointSet>) {
    let (spec, endpoints) = (Arc::clone(spec), Arc::clone(endpoints));
    let put = Op::Put {
        key: key.clone(),
        leaf: Leaf::of(key, &spec, &endpoints),
        spec,
        endpoints,
        changed_at: None,
    };
    let mut reader = OpReader::default();
    let read = op(&put).into_iter().filter_map(|message| reader.push(message).unwrap()).collect::<Vec<_>>();
    reader.finish().unwrap();
    let [read] = <[_; 1]>::try_from(read).unwrap();
    match read.checked().1 {
        Ok((read, dropped)) => assert_eq!((read, dropped), (put, Vec::new())),
        Err(refusal) => assert_told(&refusal.to_string()),
    }
}

fn look_at_import(key: &ServiceKey, objects: &ImportObjects) {
    let clusterset = ClustersetId::new("prod").unwrap();
    let config = PlanConfig {
        clusterset: clusterset.clone(),
        cluster: ClusterId::new("east").unwrap(),
        adopt_unmanaged: false,
        served_families: vec![IpFamily::V4],
        slices_present_kept: true,
        node_hints_kept: true,
        import_refused: false,
    };
    let existing = facts::existing(key, objects, &clusterset);
    let ours = ours(objects);
    for decision in [Decision::Remove, Decision::Keep] {
        for step in plan(key, &decision, &existing, &config) {
            let changed = match &step {
                Step::UpdateImport { base, .. }
                | Step::UpdateImportStatus { base, .. }
                | Step::UpdateService { base, .. }
                | Step::UpdateSlice { base, .. }
                | Step::DeleteService(base)
                | Step::DeleteSlice(base)
                | Step::DeleteImport(base) => base,
                // Those of Kubernetes go, and only while somebody gives a Service of ours a selector.
                Step::RemoveForeignSlices(_)
                | Step::CreateImport(_)
                | Step::CreateService(_)
                | Step::CreateSlice(_)
                | Step::Report(_) => continue,
            };
            assert!(ours.contains(&identity(changed)), "{step:?}");
        }
    }
}

fn identity(of: &Identity) -> (String, String) {
    (of.name.clone(), of.uid.clone())
}

/// Names and UIDs of the objects that carry our marks.
fn ours(objects: &ImportObjects) -> BTreeSet<(String, String)> {
    fn of<K: kube::Resource>(object: &K) -> Option<(String, String)> {
        let is_ours = object.labels().get(LABEL_MANAGED_BY).is_some_and(|by| by == MANAGED_BY)
            && object.annotations().get(ANNOTATION_CLUSTERSET).is_some_and(|set| set == "prod");
        let meta = object.meta();
        is_ours.then(|| (meta.name.clone().unwrap_or_default(), meta.uid.clone().unwrap_or_default()))
    }
    let slices = objects.slices.iter().filter_map(|slice| of(&**slice));
    let import = objects.import.as_deref().and_then(of);
    let service = objects.service.as_deref().and_then(of);
    slices.chain(import).chain(service).collect()
}

/// What becomes an Event or a condition is one line.
fn assert_told(text: &str) {
    assert!(!text.chars().any(char::is_control) && text.len() < 4_000, "{text:?}");
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Texts that nobody writes by accident.
    const TEXTS: [&str; 14] = [
        "",
        " ",
        "East",
        "-a",
        "a/b",
        "a\0b",
        "a\nb",
        "\u{1b}[31m",
        "\u{202e}tsae",
        "\u{1f600}",
        "None",
        "-1",
        "9999-12-31T23:59:59Z",
        "-009999-01-01T00:00:00Z",
    ];
    const VALUES: [&str; 10] =
        ["null", "-1", "0", "65536", "2147483648", "1e400", "[]", "{}", "true", "[null]"];

    /// Each text and each value of the seeds is another one.
    #[test]
    fn whatever_the_cluster_holds_what_is_exported_can_be_read_and_what_is_foreign_stays() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds/cluster_objects");
        for seed in std::fs::read_dir(folder).unwrap() {
            let seed = std::fs::read_to_string(seed.unwrap().path()).unwrap();
            play(&seed);
            let quotes: Vec<usize> = seed.match_indices('"').map(|(place, _)| place).collect();
            for (number, places) in quotes.windows(2).enumerate() {
                let (before, after) = (&seed[..=places[0]], &seed[places[1]..]);
                let long = "a".repeat([64, 254, 5_000][number % 3]);
                for put in TEXTS.into_iter().cycle().skip(number).take(2).chain([long.as_str()]) {
                    let escaped = serde_json::to_string(put).unwrap();
                    play(&format!("{before}{}{after}", &escaped[1..escaped.len() - 1]));
                }
            }
            for (number, (place, _)) in seed.match_indices(':').enumerate() {
                let end = seed[place..].find([',', '}', ']']).unwrap() + place;
                for value in VALUES.into_iter().cycle().skip(number).take(2) {
                    play(&format!("{}:{value}{}", &seed[..place], &seed[end..]));
                }
            }
        }
    }
}
