//! What is to be read of a clusterset.

use std::collections::BTreeMap;

use mcs_core::registry::{Keys, Who};

/// What is to be read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Todo {
    /// The records of all members, and what of them is not as it is held.
    pub(crate) all: bool,
    /// Of these members their records, and these exports.
    pub(crate) members: BTreeMap<Who, Keys>,
}

impl Todo {
    /// Everything.
    pub(crate) fn everything() -> Self {
        Self { all: true, ..Self::default() }
    }

    /// Whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        !self.all && self.members.is_empty()
    }

    /// This of a member is to be read, too.
    pub(crate) fn read(&mut self, who: Who, keys: Keys) {
        let joined = match (self.members.remove(&who), keys) {
            (None | Some(Keys::Record), keys) | (Some(keys), Keys::Record) => keys,
            (Some(Keys::All), _) | (_, Keys::All) => Keys::All,
            (Some(Keys::Some(mut some)), Keys::Some(others)) => {
                some.extend(others);
                Keys::Some(some)
            }
        };
        self.members.insert(who, joined);
    }

    /// This is to be read, too.
    pub(crate) fn put_back(&mut self, more: Self) {
        self.all |= more.all;
        for (who, keys) in more.members {
            self.read(who, keys);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use mcs_core::ids::{ClusterId, ClusterUid, ServiceKey};

    use super::*;

    fn key(name: &str) -> ServiceKey {
        ServiceKey::new("shop", name).unwrap()
    }

    /// What two readings name of one member is read once.
    #[test]
    fn of_two_readings_nothing_is_left_out() {
        let some = |names: &[&str]| Keys::Some(names.iter().map(|name| key(name)).collect::<BTreeSet<_>>());
        let (web, api, both) = (|| some(&["web"]), || some(&["api"]), || some(&["web", "api"]));
        let cases = [
            (Keys::Record, Keys::Record, Keys::Record),
            (Keys::Record, web(), web()),
            (web(), Keys::Record, web()),
            (web(), api(), both()),
            (web(), Keys::All, Keys::All),
            (Keys::All, web(), Keys::All),
            (Keys::Record, Keys::All, Keys::All),
            (Keys::All, Keys::Record, Keys::All),
        ];
        let uid = || ClusterUid::new("uid-of-east").unwrap();
        let east = || Who { cluster: ClusterId::new("east").unwrap(), uid: uid() };
        for (first, second, joined) in cases {
            let mut todo = Todo::default();
            assert!(todo.is_empty());
            todo.read(east(), first.clone());
            todo.put_back(Todo { all: false, members: BTreeMap::from([(east(), second.clone())]) });
            assert_eq!(todo.members, BTreeMap::from([(east(), joined)]), "{first:?} {second:?}");
        }
    }

    #[test]
    fn what_is_put_back_is_read_again() {
        let mut todo = Todo::default();
        todo.put_back(Todo::everything());
        assert_eq!(todo, Todo::everything());
        assert!(!todo.is_empty());
    }
}
