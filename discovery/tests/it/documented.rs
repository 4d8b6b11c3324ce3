//! What `docs/discovery.md` lists as lines of the log is what the service logs, and of each warning
//! `docs/troubleshooting.md` says what to do.

use mcs_runtime::logs::testing;
use std::path::Path;

const GUIDE: &str = include_str!("../../../docs/discovery.md");
const HELP: &str = include_str!("../../../docs/troubleshooting.md");

#[test]
fn every_line_of_the_log_is_documented_with_its_level() {
    let sources = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    assert_eq!(testing::of_page(GUIDE, "Log lines"), testing::of_folder(sources));
}

#[test]
fn of_every_warning_it_is_said_what_to_do() {
    let (_, section) = HELP.split_once("\n## The discovery service's log\n").unwrap();
    let section = section.split_once("\n## ").unwrap().0;
    let lines = testing::of_page(GUIDE, "Log lines").into_iter().filter(|(_, level)| level != "info");
    let missing: Vec<String> =
        lines.map(|(line, _)| line).filter(|line| !section.contains(&format!("`{line}`"))).collect();
    assert_eq!(missing, Vec::<String>::new());
}
