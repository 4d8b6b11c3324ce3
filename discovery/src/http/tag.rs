//! Entity tags of the lists (RFC 9110, section 8.8): a caller that has a list sends its tag, and is told in a few bytes
//! that nothing changed.
//!
//! A tag is the process and the version of the list in it: strong, since one version is always the same bytes, and
//! free, since nothing is looked at but a number. Tags of two replicas, or of one before and after a restart, never
//! meet, even where the lists are equal: asking another replica costs the list once.
//!
//! Rejected: a hash of the list (30 MB with every change, or kept up to date entry by entry for what polls of several
//! replicas would save; a caller stays with one connection).

use axum::http::header::{HeaderMap, HeaderValue, IF_NONE_MATCH};

/// The tags of this process. Cheap to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tags {
    process: u64,
}

impl Tags {
    /// The tags of a process.
    pub(super) const fn of_process(process: u64) -> Self {
        Self { process }
    }

    /// The tag of a version of a list.
    pub(super) fn of(self, version: u64) -> Option<HeaderValue> {
        HeaderValue::try_from(format!("\"{:016x}-{version}\"", self.process)).ok()
    }

    /// Whether `If-None-Match` names this version. Weak tags count, as caches on the way make them of strong ones.
    pub(super) fn is_known(self, headers: &HeaderMap, version: u64) -> bool {
        let mut known = headers.get_all(IF_NONE_MATCH).iter().peekable();
        if known.peek().is_none() {
            return false;
        }
        let own = self.of(version);
        let own = own.as_ref().map(HeaderValue::as_bytes);
        let mut tags = known.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        tags.any(|tag| {
            let tag = tag.trim_ascii();
            tag == b"*" || Some(tag.strip_prefix(b"W/").unwrap_or(tag)) == own
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_known_wherever_it_stands_and_no_other_is() {
        let tags = Tags::of_process(0xab);
        assert_eq!(tags.of(7).unwrap(), "\"00000000000000ab-7\"");
        let is_known = |sent: &[&str]| {
            let values = sent.iter().map(|value| (IF_NONE_MATCH, HeaderValue::from_str(value).unwrap()));
            tags.is_known(&values.collect(), 7)
        };
        for known in [
            &["\"00000000000000ab-7\""][..],
            &["W/\"00000000000000ab-7\""],
            &["*"],
            &["\"x\",\"00000000000000ab-7\" , \"y\""],
            &["\"x\"", "\"00000000000000ab-7\""],
            &["\"a,b\", \"00000000000000ab-7\""],
        ] {
            assert!(is_known(known), "{known:?}");
        }
        for unknown in [
            &[][..],
            &[""],
            &["00000000000000ab-7"],
            &["\"00000000000000ab-6\""],
            &["\"00000000000000ab-70\""],
            &["\"00000000000000ac-7\""],
            &["w/\"00000000000000ab-7\""],
            &["\"*\""],
        ] {
            assert!(!is_known(unknown), "{unknown:?}");
        }
    }
}
