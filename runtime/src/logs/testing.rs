//! Log lines for tests: those that are written down in sources, those that a page lists, and those that are logged.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::subscriber::{DefaultGuard, set_default};

/// A message, and its level as it is written in sources: `info`, `warn` or `error`.
pub type Line = (String, String);

/// The lines that the sources of a folder log.
///
/// # Panics
/// The folder cannot be read.
pub fn of_folder(folder: &Path) -> BTreeSet<Line> {
    let mut lines = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            lines.extend(of_folder(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            lines.extend(of_source(&std::fs::read_to_string(&path).unwrap()));
        }
    }
    lines
}

/// The lines that a source logs.
pub fn of_source(source: &str) -> BTreeSet<Line> {
    let mut lines = BTreeSet::new();
    for level in ["info", "warn", "error"] {
        for call in source.split(&format!("{level}!(")).skip(1) {
            let message = last_text(call).replace("\\\n", "");
            let words: Vec<&str> = message.split_whitespace().collect();
            lines.insert((words.join(" "), level.to_owned()));
        }
    }
    lines
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

/// The lines that a section of a page lists in the first two cells of its tables: message and level.
///
/// # Panics
/// There is no such section, or a row has no second cell.
pub fn of_page(page: &str, section: &str) -> BTreeSet<Line> {
    let (_, section) = page.split_once(&format!("\n## {section}\n")).unwrap();
    let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| {
        let (line, row) = row.split_once("` | ").unwrap();
        (line.to_owned(), row.split_once(" |").unwrap().0.to_owned())
    })
    .collect()
}

/// What one thread logs.
#[derive(Clone, Debug, Default)]
pub struct Logged(Arc<Mutex<Vec<u8>>>);

impl Logged {
    /// Takes in what this thread logs, from level info up, until the guard is dropped.
    pub fn take_over() -> (Self, DefaultGuard) {
        let logged = Self::default();
        let writer = logged.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_max_level(tracing::Level::INFO)
            .with_writer(move || writer.clone());
        (logged, set_default(subscriber.finish()))
    }

    /// Its lines, each one JSON object.
    pub fn lines(&self) -> Vec<String> {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
    }
}

impl io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_a_call_is_its_last_text_on_however_many_lines() {
        let source = r#"
            info!(id = %name(";"), "one");
            warn!(
                error = with_causes(&error),
                "two \
                 lines"
            );
            tracing::error!("three");
            debug!("no");
        "#;
        let line = |text: &str, level: &str| (text.to_owned(), level.to_owned());
        let expected = [line("one", "info"), line("two lines", "warn"), line("three", "error")];
        assert_eq!(of_source(source), expected.into());
    }

    #[test]
    fn a_section_of_a_page_ends_where_the_next_begins() {
        let page = "# A page\n\n## Log\n\n| `one` | info | x |\n\n## Next\n\n| `two` | warn | x |\n";
        assert_eq!(of_page(page, "Log"), [("one".to_owned(), "info".to_owned())].into());
        assert_eq!(of_page(page, "Next"), [("two".to_owned(), "warn".to_owned())].into());
    }
}
