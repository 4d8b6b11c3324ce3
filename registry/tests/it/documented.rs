//! What `docs/registry.md` lists is what the registry has: flags with their defaults, lines of the log, and reasons of
//! refusals. Its metrics are held by [`crate::metrics`], its example of a merge by the core's tests.

use std::collections::BTreeSet;
use std::path::Path;

use clap::CommandFactory;
use mcs_registry::args::Args;

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
    let mut logged = BTreeSet::new();
    read_folder(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut logged);
    let section = GUIDE.split_once("## Log lines").unwrap().1.split_once("\n## ").unwrap().0;
    let documented: BTreeSet<(String, String)> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .map(|row| {
            let (line, row) = row.split_once("` | ").unwrap();
            (line.to_owned(), row.split_once(" |").unwrap().0.to_owned())
        })
        .collect();
    assert_eq!(documented, logged);
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

/// The messages that the sources of a folder log, with their levels.
fn read_folder(folder: &Path, logged: &mut BTreeSet<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_folder(&path, logged);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = std::fs::read_to_string(&path).unwrap();
            for level in ["info", "warn", "error"] {
                for call in source.split(&format!("{level}!(")).skip(1) {
                    let (arguments, _) = call.split_once("\"\n").or_else(|| call.split_once("\")")).unwrap();
                    let one_line = arguments.split_once("\")").map_or(arguments, |(line, _)| line);
                    let message = one_line.rsplit_once('"').unwrap().1.replace("\\\n", "");
                    let words: Vec<&str> = message.split_whitespace().collect();
                    logged.insert((words.join(" "), level.to_owned()));
                }
            }
        }
    }
}
