//! What the log says of exports and imports that fail: once, and again when its words change. One that the API server
//! refuses for hours, or a thousand at once, must not fill the log with each try.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is remembered, in number of keys; above that all is said anew.
const REMEMBERED: usize = 10_000;

/// The last words on each key that fails.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<BTreeMap<Topic, String>>);

/// `export` or `import`, and the key.
type Topic = (&'static str, String);

impl Failures {
    /// Takes note of `words` on the failure of a key; answers whether they are to be said, since they are new.
    pub(crate) fn is_new(&self, kind: &'static str, key: &dyn Display, words: &str) -> bool {
        let mut said = self.lock();
        let topic = (kind, key.to_string());
        match said.get(&topic) {
            Some(known) if known == words => return false,
            None if said.len() >= REMEMBERED => said.clear(),
            Some(_) | None => {}
        }
        said.insert(topic, words.to_owned());
        true
    }

    /// The key fails no longer: its next failure is new.
    pub(crate) fn over(&self, kind: &'static str, key: &dyn Display) {
        let mut said = self.lock();
        if !said.is_empty() {
            said.remove(&(kind, key.to_string()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Topic, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_said_once_and_again_when_its_words_change_or_when_it_comes_back() {
        let failures = Failures::default();
        let fails = |kind, words| failures.is_new(kind, &"shop/cart", words);
        let mut said = vec![fails("import", "quota"), fails("import", "quota"), fails("export", "quota")];
        said.extend([fails("import", "policy"), fails("import", "policy")]);
        failures.over("export", &"shop/cart");
        said.extend([fails("import", "policy"), fails("export", "quota")]);
        assert_eq!(said, [true, false, true, true, false, false, true]);
    }

    #[test]
    fn what_is_remembered_of_failures_is_bounded() {
        let failures = Failures::default();
        for number in 0..=REMEMBERED {
            assert!(failures.is_new("import", &number, "quota"));
        }
        assert_eq!(failures.lock().len(), 1);
    }
}
