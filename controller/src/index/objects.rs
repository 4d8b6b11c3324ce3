//! The objects of one kind, as the API server last told of them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Namespace (empty for cluster-scoped kinds) and name.
pub(crate) type Name = (String, String);

/// A value of one of a kind's indexed labels within one namespace.
type LabelValue = (String, &'static str, String);

/// How many ended objects are remembered: more than can end while an answer to a write of theirs is on its way.
const ENDED: usize = 1_000;

/// The objects of one kind and an index over some of their labels.
///
/// Guarantees: an older state of an object never replaces a newer one (answers to own writes and watch events arrive
/// in any order), nor does it bring back one whose end was told; a relist counts only when it is done, and what it did
/// not list is gone then.
#[derive(Debug)]
pub(crate) struct Objects<K> {
    labels: &'static [&'static str],
    objects: BTreeMap<Name, Arc<K>>,
    by_label: BTreeMap<LabelValue, BTreeSet<String>>,
    /// The UIDs of the objects that ended last, the latest at the end.
    ended: VecDeque<String>,
}

impl<K: Resource> Objects<K> {
    /// An empty store that indexes `labels`.
    pub(crate) const fn new(labels: &'static [&'static str]) -> Self {
        Self { labels, objects: BTreeMap::new(), by_label: BTreeMap::new(), ended: VecDeque::new() }
    }

    /// The object of that name.
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&Arc<K>> {
        self.objects.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// All objects, by namespace and name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values()
    }

    /// The objects of a namespace whose indexed `label` has `value`.
    pub(crate) fn labelled<'a>(
        &'a self,
        namespace: &str,
        label: &'static str,
        value: &str,
    ) -> impl Iterator<Item = &'a Arc<K>> {
        let names = self.by_label.get(&(namespace.to_owned(), label, value.to_owned()));
        let namespace = namespace.to_owned();
        names
            .into_iter()
            .flatten()
            .filter_map(move |name| self.objects.get(&(namespace.clone(), name.clone())))
    }

    /// The objects of a namespace whose names begin with `prefix`, by name.
    pub(crate) fn named_like<'a>(
        &'a self,
        namespace: &'a str,
        prefix: &'a str,
    ) -> impl Iterator<Item = &'a Arc<K>> {
        let from = (namespace.to_owned(), prefix.to_owned());
        let like = move |(known, name): &&Name| known == namespace && name.starts_with(prefix);
        self.objects.range(from..).take_while(move |(name, _)| like(name)).map(|(_, object)| object)
    }

    /// Takes an object's state; answers whether it is new, and the state before it.
    pub(crate) fn apply(&mut self, object: Arc<K>) -> (bool, Option<Arc<K>>) {
        let name = name_of(object.meta());
        let before = self.objects.get(&name).cloned();
        if before.as_ref().is_some_and(|before| !is_newer(object.meta(), before.meta())) {
            return (false, before);
        }
        if before.is_none() && object.meta().uid.as_ref().is_some_and(|uid| self.ended.contains(uid)) {
            return (false, None);
        }
        self.unindex(&name, before.as_deref());
        for label in label_values(self.labels, object.meta()) {
            self.by_label.entry(label).or_default().insert(name.1.clone());
        }
        self.objects.insert(name, object);
        (true, before)
    }

    /// Takes the end of an object; a newer object of the same name stays. The answer to a write may come after it.
    pub(crate) fn delete(&mut self, meta: &ObjectMeta) -> Option<Arc<K>> {
        if let Some(uid) = &meta.uid {
            if self.ended.len() == ENDED {
                self.ended.pop_front();
            }
            self.ended.push_back(uid.clone());
        }
        self.unlist(meta)
    }

    /// Takes that a list did not have an object. It may have been made after the list: then its watch tells of it.
    pub(crate) fn unlist(&mut self, meta: &ObjectMeta) -> Option<Arc<K>> {
        let name = name_of(meta);
        let known = self.objects.get(&name)?;
        if known.meta().uid != meta.uid {
            return None;
        }
        let before = self.objects.remove(&name);
        self.unindex(&name, before.as_deref());
        before
    }

    /// The objects in `scope` (all namespaces when none) that `listed` lacks, to be deleted when a relist is done, but for
    /// those that are newer than the list's `version`, where that is a number as theirs are.
    pub(crate) fn missing(
        &self,
        scope: Option<&str>,
        listed: &BTreeSet<Name>,
        version: Option<&str>,
    ) -> Vec<ObjectMeta> {
        let version = version.and_then(number);
        let newer = |meta: &ObjectMeta| {
            version.zip(meta.resource_version.as_deref().and_then(number)).is_some_and(|(list, is)| is > list)
        };
        let gone = |name: &Name, meta: &ObjectMeta| {
            scope.is_none_or(|scope| scope == name.0) && !listed.contains(name) && !newer(meta)
        };
        let all = self.objects.iter().map(|(name, object)| (name, object.meta()));
        all.filter(|(name, meta)| gone(name, meta)).map(|(_, meta)| meta.clone()).collect()
    }

    fn unindex(&mut self, name: &Name, object: Option<&K>) {
        for label in object.into_iter().flat_map(|object| label_values(self.labels, object.meta())) {
            if let Some(names) = self.by_label.get_mut(&label) {
                names.remove(&name.1);
                if names.is_empty() {
                    self.by_label.remove(&label);
                }
            }
        }
    }
}

/// The namespace and name of an object.
pub(crate) fn name_of(meta: &ObjectMeta) -> Name {
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

fn label_values(labels: &'static [&'static str], meta: &ObjectMeta) -> Vec<LabelValue> {
    let namespace = meta.namespace.clone().unwrap_or_default();
    let value = |label: &&'static str| meta.labels.as_ref()?.get(*label).cloned();
    labels.iter().filter_map(|label| Some((namespace.clone(), *label, value(label)?))).collect()
}

/// A resource version as the number that it is at every API server that there is.
fn number(version: &str) -> Option<u64> {
    version.parse().ok()
}

/// Whether `meta` is a later state than `known`. Another object of the same name is; of one object, the higher
/// resource version is, and where versions are not numbers the last one told.
fn is_newer(meta: &ObjectMeta, known: &ObjectMeta) -> bool {
    let version = |meta: &ObjectMeta| meta.resource_version.as_deref().and_then(number);
    match (version(meta), version(known)) {
        (Some(new), Some(old)) => new > old,
        _ => meta.uid != known.uid || meta.resource_version != known.resource_version,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Namespace;

    #[test]
    fn an_older_state_does_not_replace_a_newer_one() {
        let mut objects = Objects::new(&["app"]);
        objects.apply(mk_namespace("a", "uid", 7, "web"));
        let (new, before) = objects.apply(mk_namespace("a", "uid", 6, "old"));
        assert_eq!((new, before), (false, Some(mk_namespace("a", "uid", 7, "web"))));
        assert_eq!(objects.labelled("", "app", "old").count(), 0);
    }

    #[test]
    fn the_label_index_follows_changes_and_deletions() {
        let mut objects = Objects::new(&["app"]);
        objects.apply(mk_namespace("a", "uid", 1, "web"));
        objects.apply(mk_namespace("a", "uid", 2, "api"));
        assert_eq!(
            (objects.labelled("", "app", "web").count(), objects.labelled("", "app", "api").count()),
            (0, 1)
        );
        objects.delete(&mk_namespace("a", "uid", 3, "api").metadata);
        assert!(objects.by_label.is_empty() && objects.get("", "a").is_none());
    }

    #[test]
    fn the_end_of_an_object_does_not_take_its_successor() {
        let mut objects = Objects::new(&[]);
        objects.apply(mk_namespace("a", "second", 9, ""));
        assert_eq!(objects.delete(&mk_namespace("a", "first", 8, "").metadata), None);
        assert!(objects.get("", "a").is_some());
    }

    #[test]
    fn an_answer_that_comes_after_the_end_of_an_object_does_not_bring_it_back() {
        let mut objects = Objects::new(&[]);
        objects.apply(mk_namespace("a", "uid", 1, ""));
        objects.delete(&mk_namespace("a", "uid", 3, "").metadata);
        let answered = objects.apply(mk_namespace("a", "uid", 2, ""));
        assert_eq!((answered, objects.get("", "a")), ((false, None), None));
        let (new, _) = objects.apply(mk_namespace("a", "other", 4, ""));
        assert!(new && objects.get("", "a").is_some());
    }

    #[test]
    fn what_a_list_lacks_is_gone_unless_it_was_written_after_the_list() {
        let mut objects = Objects::new(&[]);
        for (name, version) in [("a", 6), ("b", 7), ("c", 8), ("d", 5)] {
            objects.apply(mk_namespace(name, name, version, ""));
        }
        let listed = [(String::new(), "d".to_owned())].into();
        let gone = |version| {
            let missing = objects.missing(None, &listed, version).into_iter();
            missing.filter_map(|meta| meta.name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!([Some("7"), Some("an opaque one"), None].map(gone), ["a b", "a b c", "a b c"]);
    }

    #[test]
    fn an_object_that_was_taken_for_gone_comes_back_with_its_watch() {
        let mut objects = Objects::new(&[]);
        objects.apply(mk_namespace("a", "uid", 7, ""));
        let missing = objects.missing(None, &BTreeSet::new(), None);
        for meta in &missing {
            objects.unlist(meta);
        }
        let (new, _) = objects.apply(mk_namespace("a", "uid", 7, ""));
        assert!(new && objects.get("", "a").is_some());
    }

    fn mk_namespace(name: &str, uid: &str, version: u64, app: &str) -> Arc<Namespace> {
        Arc::new(Namespace {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                uid: Some(uid.to_owned()),
                resource_version: Some(version.to_string()),
                labels: Some([("app".to_owned(), app.to_owned())].into()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        })
    }
}
