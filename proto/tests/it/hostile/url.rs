//! URLs of registries, versions and durations, as flags and annotations bring them.

use super::texts::is_plain;
use mcs_core::ids::{ClusterId, ClusterUid, Region};
use mcs_core::version::Version;
use mcs_proto::url::RegistryUrl;
use std::fmt::{Debug, Display};
use std::str::FromStr;

/// Reads a text as everything that is made of one.
///
/// # Panics
/// What must hold does not.
pub fn play(text: &str) {
    if let Some(url) = same::<RegistryUrl>(text) {
        // What is dialled is what was written.
        assert!(!text.contains(|c: char| c.is_control() || c.is_whitespace()), "{text:?} is {url}");
        assert!(url.to_string().is_ascii(), "{text:?} is {url}");
        let _ = RegistryUrl::check_all(&[url.clone(), url], true);
    }
    same::<Version>(text);
    same::<ClusterId>(text);
    same::<ClusterUid>(text);
    same::<Region>(text);
}

/// What is read and written reads back equal; what is refused says so in a line.
fn same<T>(text: &str) -> Option<T>
where
    T: FromStr<Err: Display> + Display + PartialEq + Debug,
{
    match text.parse::<T>() {
        Ok(read) => {
            assert!(is_plain(&read.to_string()), "{text:?} is {read:?}");
            assert_eq!(read.to_string().parse::<T>().ok().as_ref(), Some(&read), "{text:?}");
            Some(read)
        }
        Err(error) => {
            let error = error.to_string();
            assert!(is_plain(&error), "{text:?}: {error:?}");
            None
        }
    }
}
