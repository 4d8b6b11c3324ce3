//! What `docs/controller.md` lists as lines of the log is what the controller logs. Its metrics are held by
//! [`crate::metrics`].

use std::collections::BTreeSet;
use std::path::Path;

const GUIDE: &str = include_str!("../../../docs/controller.md");

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
fn the_lines_of_watches_are_those_of_the_library() {
    let follow = include_str!("../../../runtime/src/kube/follow.rs");
    let (_, watches) = GUIDE.split_once("Lines of the lists and watches of the API server:").unwrap();
    let rows = watches.lines().filter_map(|line| {
        let (level, row) = line.strip_prefix("| ")?.split_once(" | `")?;
        Some((level.to_owned(), row.split_once('`')?.0.to_owned()))
    });
    let (mut logged, documented) = (BTreeSet::new(), rows.collect::<BTreeSet<_>>());
    read(follow, &mut logged);
    assert_eq!(documented, logged.into_iter().map(|(line, level)| (level, line)).collect());
}

fn read_folder(folder: &Path, logged: &mut BTreeSet<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_folder(&path, logged);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            read(&std::fs::read_to_string(&path).unwrap(), logged);
        }
    }
}

/// The messages that a source logs, with their levels.
fn read(source: &str, logged: &mut BTreeSet<(String, String)>) {
    for level in ["info", "warn", "error"] {
        for call in source.split(&format!("{level}!(")).skip(1) {
            let message = last_text(call).replace("\\\n", "");
            let words: Vec<&str> = message.split_whitespace().collect();
            logged.insert((words.join(" "), level.to_owned()));
        }
    }
}

/// The last text among the arguments of a call, which is the message; `call` begins behind its parenthesis.
fn last_text(call: &str) -> &str {
    let (mut open, mut text, mut last) = (1, None, "");
    for (at, character) in call.char_indices() {
        match (text, character) {
            (Some(start), '"') => (text, last) = (None, &call[start..at]),
            (None, '"') => text = Some(at + 1),
            (None, '(') => open += 1,
            (None, ')') => open -= 1,
            _ => {}
        }
        if open == 0 {
            break;
        }
    }
    last
}
