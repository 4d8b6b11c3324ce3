//! Files that change are used once they are good, without a restart.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use mcs_core::time::Clock;

use super::files::{Bad, broken};

/// Files of which something is made that is used.
pub(super) trait Source: Clone + Send + Sync + 'static {
    /// What is in the files.
    type Contents: Clone + PartialEq + Send;
    /// What is made of it.
    type Loaded;

    /// The file that is named where none can be.
    fn named(&self) -> &Path;
    /// Reads the files, without looking at what is in them.
    fn read_now(&self) -> Result<Self::Contents, Bad>;
    /// Checks contents, and makes of them what is used.
    fn load(&self, contents: &Self::Contents, clock: &Arc<dyn Clock>) -> Result<Self::Loaded, Bad>;
}

/// The newest good contents of files.
pub(super) struct Followed<S: Source> {
    source: S,
    clock: Arc<dyn Clock>,
    seen: Mutex<Seen<S::Contents>>,
    current: RwLock<Arc<S::Loaded>>,
}

impl<S: Source> Followed<S> {
    /// Reads the files.
    pub(super) fn load(source: S, clock: Arc<dyn Clock>) -> Result<Self, Bad> {
        let contents = source.read_now()?;
        let loaded = source.load(&contents, &clock)?;
        let (seen, current) = (Mutex::new(Seen::new(contents)), RwLock::new(Arc::new(loaded)));
        Ok(Self { source, clock, seen, current })
    }

    /// The files.
    pub(super) const fn source(&self) -> &S {
        &self.source
    }

    /// What is used now.
    pub(super) fn current(&self) -> Arc<S::Loaded> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the files again, while other tasks go on, and uses what is new and good.
    pub(super) async fn look(&self) -> Then<Arc<S::Loaded>> {
        let source = self.source.clone();
        let reading = tokio::task::spawn_blocking(move || source.read_now());
        let found = reading.await.unwrap_or_else(|error| Err(broken(self.source.named(), error)));
        self.take(found)
    }

    /// Takes what a look found.
    pub(super) fn take(&self, found: Result<S::Contents, Bad>) -> Then<Arc<S::Loaded>> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match seen.look(found, |contents| self.source.load(contents, &self.clock).map(Arc::new)) {
            Then::Use(loaded) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&loaded);
                Then::Use(loaded)
            }
            then => then,
        }
    }
}

/// What was seen of the files.
struct Seen<C> {
    /// What is used.
    used: C,
    /// What the last look found.
    last: Found<C>,
    /// What was told to be bad.
    told: Option<Found<C>>,
}

/// What a look found: contents, or why there are none.
type Found<C> = Result<C, String>;

/// What is to be done after a look.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Then<T> {
    /// Nothing.
    Nothing,
    /// This is to be used from now on.
    Use(T),
    /// The files are bad for this reason, which was not told before.
    TellBad(String),
    /// The files are again those that are used, after bad ones.
    TellGood,
}

impl<C: Clone + PartialEq> Seen<C> {
    /// These contents are used.
    fn new(used: C) -> Self {
        Self { last: Ok(used.clone()), used, told: None }
    }

    /// Takes what a look found. Files that still change are left alone: what two looks in a row find is judged, so that
    /// a certificate whose key follows a moment later is no mistake. What is bad is tried again with every look, as a
    /// certificate may become good with time, and is told once.
    fn look<T>(&mut self, found: Result<C, Bad>, load: impl FnOnce(&C) -> Result<T, Bad>) -> Then<T> {
        let found = found.map_err(|bad| bad.to_string());
        if self.last != found {
            self.last = found;
            return Then::Nothing;
        }
        let bad = match &found {
            Ok(contents) if *contents == self.used => {
                return self.told.take().map_or(Then::Nothing, |_| Then::TellGood);
            }
            Ok(contents) => match load(contents) {
                Ok(loaded) => {
                    (self.used, self.told) = (contents.clone(), None);
                    return Then::Use(loaded);
                }
                Err(bad) => bad.to_string(),
            },
            Err(bad) => bad.clone(),
        };
        if self.told.as_ref() == Some(&found) {
            return Then::Nothing;
        }
        self.told = Some(found);
        Then::TellBad(bad)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn contents(text: &str) -> String {
        text.to_owned()
    }

    /// Takes what is called good, and says which contents it was.
    fn load(contents: &String) -> Result<String, Bad> {
        if contents == "bad" { Err(unusable("it is bad")) } else { Ok(contents.clone()) }
    }

    fn unusable(problem: &str) -> Bad {
        Bad::Unusable { file: PathBuf::from("tls.crt"), problem: problem.to_owned() }
    }

    #[test]
    fn new_files_are_used_when_two_looks_in_a_row_find_them() {
        let mut seen = Seen::new(contents("first"));
        let mut look = |text: &str| seen.look(Ok(contents(text)), load);
        assert_eq!(look("first"), Then::Nothing);
        assert_eq!(look("half"), Then::Nothing);
        assert_eq!(look("second"), Then::Nothing);
        assert_eq!(look("second"), Then::Use(contents("second")));
        assert_eq!(look("second"), Then::Nothing);
    }

    #[test]
    fn bad_files_are_told_once_a_change_and_good_ones_are_used_after_them() {
        let mut seen = Seen::new(contents("first"));
        let mut look = |found: Result<String, Bad>| seen.look(found, load);
        let bad = || Ok(contents("bad"));
        assert_eq!(look(bad()), Then::Nothing);
        assert_eq!(look(bad()), Then::TellBad("tls.crt cannot be used: it is bad".to_owned()));
        assert_eq!(look(bad()), Then::Nothing);
        let gone = || Err(unusable("it is gone"));
        assert_eq!(look(gone()), Then::Nothing);
        assert_eq!(look(gone()), Then::TellBad("tls.crt cannot be used: it is gone".to_owned()));
        assert_eq!(look(gone()), Then::Nothing);
        let second = || Ok(contents("second"));
        assert_eq!((look(second()), look(second())), (Then::Nothing, Then::Use(contents("second"))));
        assert_eq!(
            (look(bad()), look(bad())),
            (Then::Nothing, Then::TellBad("tls.crt cannot be used: it is bad".to_owned()))
        );
        assert_eq!((look(second()), look(second())), (Then::Nothing, Then::TellGood));
        assert_eq!(look(second()), Then::Nothing);
    }

    #[test]
    fn what_becomes_good_with_time_is_used_then() {
        let mut seen = Seen::new(contents("first"));
        let early = |_: &String| Err::<(), _>(unusable("it is not good before tomorrow"));
        let mut look = |is_time: bool| {
            let found = Ok(contents("next"));
            if is_time { seen.look(found, |_| Ok(())) } else { seen.look(found, early) }
        };
        let told = Then::TellBad("tls.crt cannot be used: it is not good before tomorrow".to_owned());
        assert_eq!([look(false), look(false), look(false)], [Then::Nothing, told, Then::Nothing]);
        assert_eq!((look(true), look(true)), (Then::Use(()), Then::Nothing));
    }
}
