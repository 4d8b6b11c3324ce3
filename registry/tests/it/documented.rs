//! What `docs/registry.md` lists is what the registry has: flags with their defaults, lines of the log, and reasons of
//! refusals. Its metrics are held by [`crate::metrics`], its example of a merge by the core's tests.

use std::collections::BTreeSet;
use std::path::Path;

use clap::CommandFactory;
use mcs_registry::args::Args;
use mcs_runtime::logs::testing;

const GUIDE: &str = include_str!("../../../docs/registry.md");

/// The rows of the guide's tables that begin with a text in code, each with its cells.
fn rows(begin: &str) -> Vec<Vec<&'static str>> {
    let begin = format!("| `{begin}");
    let rows = GUIDE.lines().filter(|line| line.starts_with(&begin));
    rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

#[test]
fn every_limit_is_documented_with_its_default() {
    let documented: BTreeSet<(String, u64)> = rows("--max-")
        .into_iter()
        .map(|cells| (cells[0].trim_matches(['`', '-']).to_owned(), number(cells[1])))
        .collect();
    let command = Args::command();
    let limits = command.get_arguments().filter(|flag| flag.get_id().as_str().starts_with("max_"));
    let flags: BTreeSet<(String, u64)> = limits
        .map(|flag| {
            let default = flag.get_default_values()[0].to_str().unwrap();
            (flag.get_long().unwrap().to_owned(), number(&default.replace('m', " min")))
        })
        .collect();
    assert_eq!(documented, flags);
}

/// What a cell begins with: a count, bytes, or seconds.
fn number(cell: &str) -> u64 {
    let cell = cell.replace(',', "");
    let mut words = cell.split(' ');
    let count: u64 = words.next().unwrap().parse().unwrap();
    match words.next() {
        Some("MiB") => count * 1024 * 1024,
        Some("min") => count * 60,
        _ => count,
    }
}

#[test]
fn every_line_of_the_log_is_documented_with_its_level() {
    let sources = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    assert_eq!(testing::of_page(GUIDE, "Log lines"), testing::of_folder(sources));
}

#[test]
fn every_reason_of_a_refusal_is_documented() {
    let section = GUIDE.split_once("## Codes").unwrap().1.split_once("\n## ").unwrap().0;
    let reasons = section.lines().filter_map(|row| row.strip_prefix("| ")?.split(" | ").nth(1));
    let documented: BTreeSet<&str> = reasons.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let texts = include_str!("../../../proto/src/status.rs").lines().filter_map(|line| {
        let (_, text) = line.split_once("const ")?.1.split_once(": &str = \"")?;
        text.strip_suffix("\";").filter(|text| !text.contains('.'))
    });
    assert_eq!(documented, texts.collect());
}
