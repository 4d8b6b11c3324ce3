//! What `docs/controller.md` lists as lines of the log is what the controller logs. Its metrics are held by
//! [`crate::metrics`].

use std::collections::BTreeSet;
use std::path::Path;

use mcs_runtime::logs::testing;

const GUIDE: &str = include_str!("../../../docs/controller.md");

#[test]
fn every_line_of_the_log_is_documented_with_its_level() {
    let sources = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    assert_eq!(testing::of_page(GUIDE, "Log lines"), testing::of_folder(sources));
}

#[test]
fn the_lines_of_watches_are_those_of_the_library() {
    let follow = include_str!("../../../runtime/src/kube/follow.rs");
    let (_, watches) = GUIDE.split_once("Lines of the lists and watches of the API server:").unwrap();
    let rows = watches.lines().filter_map(|line| {
        let (level, row) = line.strip_prefix("| ")?.split_once(" | `")?;
        Some((row.split_once('`')?.0.to_owned(), level.to_owned()))
    });
    assert_eq!(rows.collect::<BTreeSet<_>>(), testing::of_source(follow));
}
