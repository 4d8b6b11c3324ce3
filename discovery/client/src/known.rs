//! What is known of a list: a complete one replaces what was known, an incomplete one only adds to it.
//!
//! A service that has just started, cannot read its store, or has lost sight of the API server does not know what it
//! lacks; it says `complete: false`, and whoever sent requests to a pool goes on. So until a complete list comes nothing
//! is forgotten, also not what a watch says was removed: its lease may have run out because nobody could renew it. When
//! a list becomes complete again a watch says so by a resync, which then takes away what is gone.

use std::collections::BTreeMap;

use crate::api::{Item, List};
use crate::feed::Event;

/// What is known of one list. It begins with nothing, which is not the same as an empty list.
#[derive(Clone, Debug, PartialEq)]
pub struct Known<T: Item> {
    items: BTreeMap<T::Key, T>,
    heard: Option<Heard>,
}

/// What the last list said of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Complete,
    Incomplete,
}

impl<T: Item> Default for Known<T> {
    fn default() -> Self {
        Self { items: BTreeMap::new(), heard: None }
    }
}

impl<T: Item> Known<T> {
    /// Takes a list. Returns whether anything is other than before.
    pub fn handle_list(&mut self, list: List<T>) -> bool {
        let heard = Some(if list.complete { Heard::Complete } else { Heard::Incomplete });
        let is_news = self.heard != heard;
        self.heard = heard;
        let mut is_changed = false;
        if list.complete {
            let listed = list.items.into_iter().map(|item| (item.key().clone(), item)).collect();
            is_changed = self.items != listed;
            self.items = listed;
        } else {
            for item in list.items {
                is_changed |= self.put(item);
            }
        }
        is_news || is_changed
    }

    /// Takes an event of a watch. Returns whether anything is other than before.
    pub fn handle_event(&mut self, event: Event<T>) -> bool {
        match event {
            Event::Resync(list) => self.handle_list(list),
            Event::Upserted(item) => self.put(item),
            Event::Removed(key) => self.is_complete() && self.items.remove(&key).is_some(),
        }
    }

    fn put(&mut self, item: T) -> bool {
        match self.items.get_mut(item.key()) {
            Some(known) if *known == item => false,
            Some(known) => {
                *known = item;
                true
            }
            None => {
                self.items.insert(item.key().clone(), item);
                true
            }
        }
    }

    /// What is known, by key.
    pub fn items(&self) -> impl Iterator<Item = &T> {
        self.items.values()
    }

    /// The one of that key.
    pub fn get(&self, key: &T::Key) -> Option<&T> {
        self.items.get(key)
    }

    /// How many are known.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether none is known, which says nothing before [`Known::is_complete`].
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether a list was heard at all.
    pub const fn is_heard(&self) -> bool {
        self.heard.is_some()
    }

    /// Whether the last list was complete, so that what is not known does not exist.
    pub fn is_complete(&self) -> bool {
        self.heard == Some(Heard::Complete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::RouterReplica;
    use proptest::prelude::*;

    fn replica(name: &str, port: u16) -> RouterReplica {
        RouterReplica { id: format!("east/{name}"), url: format!("http://10.0.0.1:{port}/") }
    }

    fn list(names: &[&str], complete: bool) -> List<RouterReplica> {
        List { items: names.iter().map(|name| replica(name, 1)).collect(), complete }
    }

    fn names(known: &Known<RouterReplica>) -> Vec<&str> {
        known.items().filter_map(|replica| replica.id.strip_prefix("east/")).collect()
    }

    #[test]
    fn a_complete_list_replaces_and_an_incomplete_one_only_adds() {
        let mut known = Known::default();
        assert!(!known.is_heard());
        assert!(known.handle_list(list(&["a", "b"], true)));
        assert!(known.handle_list(list(&["c"], false)));
        assert_eq!((names(&known), known.is_complete()), (vec!["a", "b", "c"], false));
        assert!(known.handle_list(list(&["b"], true)));
        assert_eq!((names(&known), known.is_complete()), (vec!["b"], true));
    }

    #[test]
    fn an_incomplete_list_changes_what_it_names() {
        let mut known = Known::default();
        known.handle_list(list(&["a", "b"], true));
        known.handle_list(List { items: vec![replica("b", 2)], complete: false });
        let listed: Vec<_> = known.items().cloned().collect();
        assert_eq!(listed, [replica("a", 1), replica("b", 2)]);
    }

    #[test]
    fn a_removal_counts_only_while_the_list_is_complete() {
        let mut known = Known::default();
        let removed = || Event::Removed("east/a".to_owned());
        known.handle_event(Event::Resync(list(&["a", "b"], false)));
        assert!(!known.handle_event(removed()));
        assert_eq!(names(&known), ["a", "b"]);
        known.handle_event(Event::Resync(list(&["a", "b"], true)));
        assert!(known.handle_event(removed()));
        assert_eq!(names(&known), ["b"]);
    }

    #[test]
    fn what_changes_nothing_is_no_news() {
        let mut known = Known::default();
        assert!(known.handle_list(list(&[], false)), "that a list was heard is news");
        assert!(!known.handle_list(list(&[], false)));
        assert!(known.handle_event(Event::Upserted(replica("a", 1))));
        assert!(!known.handle_event(Event::Upserted(replica("a", 1))));
        assert!(known.handle_list(list(&["a"], true)), "that it is complete is news");
        assert!(!known.handle_list(list(&["a"], true)));
        assert!(!known.handle_event(Event::Removed("east/b".to_owned())));
    }

    /// What happens at a service, of which one reader sees every list and another every event.
    #[derive(Clone, Debug)]
    enum Step {
        Put(u8, u16),
        Take(u8),
        Completeness(bool),
        Restart,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..6_u8, 1..3_u16).prop_map(|(name, port)| Step::Put(name, port)),
            3 => (0..6_u8).prop_map(Step::Take),
            2 => any::<bool>().prop_map(Step::Completeness),
            1 => Just(Step::Restart),
        ]
    }

    proptest! {
        #[test]
        fn who_watches_knows_what_who_polls_knows_and_nothing_is_forgotten_before_a_complete_list(
            steps in prop::collection::vec(step(), 1..60)
        ) {
            let mut served: BTreeMap<u8, RouterReplica> = BTreeMap::new();
            let mut complete = false;
            let mut watching = Known::default();
            let mut polling = Known::default();
            let resync = |served: &BTreeMap<u8, RouterReplica>, complete| List {
                items: served.values().cloned().collect(),
                complete,
            };
            watching.handle_event(Event::Resync(resync(&served, complete)));
            for step in steps {
                let before: Vec<String> = watching.items().map(|item| item.id.clone()).collect();
                match step {
                    Step::Put(name, port) => {
                        let item = replica(&name.to_string(), port);
                        served.insert(name, item.clone());
                        watching.handle_event(Event::Upserted(item));
                    }
                    Step::Take(name) => {
                        served.remove(&name);
                        watching.handle_event(Event::Removed(format!("east/{name}")));
                    }
                    Step::Completeness(now) => {
                        complete = now;
                        watching.handle_event(Event::Resync(resync(&served, complete)));
                    }
                    Step::Restart => {
                        served.clear();
                        complete = false;
                        watching.handle_event(Event::Resync(resync(&served, complete)));
                    }
                }
                polling.handle_list(resync(&served, complete));
                prop_assert_eq!(&watching, &polling);
                if complete {
                    prop_assert!(watching.items().eq(served.values()));
                } else {
                    prop_assert!(before.iter().all(|id| watching.get(id).is_some()));
                    prop_assert!(served.values().all(|item| watching.get(&item.id) == Some(item)));
                }
            }
        }
    }
}
