//! As much of a shell as the guides need: words, quotes, lines that go on, here-documents, and what ends a command.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

/// What a page has a shell do.
#[derive(Clone, Debug, Default)]
pub(super) struct Script {
    /// In their order; a pipe, `&&`, `;` and a redirection end one.
    pub commands: Vec<Command>,
    /// Files that here-documents write.
    pub files: BTreeMap<String, String>,
}

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Command {
    /// The program and its arguments.
    pub words: Vec<String>,
    /// The line that it stands in.
    pub line: String,
}

impl Script {
    /// What is exported under names that begin so, as flags and values.
    pub(super) fn variables(&self, prefix: &str) -> Vec<(String, String)> {
        let exports = self.commands.iter().filter(|command| command.words[0] == "export");
        let pairs = exports.flat_map(|command| &command.words[1..]).filter_map(|pair| pair.split_once('='));
        let ours = pairs.filter_map(|(name, value)| Some((name.strip_prefix(prefix)?, value)));
        ours.map(|(name, value)| (format!("--{}", name.to_lowercase().replace('_', "-")), value.to_owned()))
            .collect()
    }
}

/// Reads the blocks of `sh` of a page.
///
/// # Errors
/// A quote, a here-document or a block has no end.
pub(super) fn script(page: &str) -> Result<Script> {
    let mut script = Script::default();
    for block in page.split("```sh\n").skip(1) {
        let (block, _) = block.split_once("```").context("a block has no end")?;
        let mut lines = block.lines();
        while let Some(first) = lines.next() {
            let mut line = first.to_owned();
            while let Some(begun) = line.strip_suffix('\\') {
                line = format!(
                    "{begun} {}",
                    lines.next().context("a line goes on and there is none")?.trim_start()
                );
            }
            if let Some((before, end)) = line.split_once("<<'") {
                let (end, mut text) = (end.trim_end_matches('\''), String::new());
                loop {
                    match lines.next().with_context(|| format!("{line}: no {end}"))? {
                        found if found == end => break,
                        found => text.extend([found, "\n"]),
                    }
                }
                if let Some((_, file)) = before.split_once('>') {
                    script.files.insert(file.trim().to_owned(), text);
                }
                line = before.to_owned();
            }
            let commands = loop {
                match words(&line) {
                    Some(commands) => break commands,
                    // A quote goes on in the next line.
                    None => {
                        line = format!(
                            "{line}\n{}",
                            lines.next().with_context(|| format!("{line}: an open quote"))?
                        )
                    }
                }
            };
            let of_line = |words| Command { words, line: line.trim().to_owned() };
            script.commands.extend(commands.into_iter().map(of_line));
        }
    }
    Ok(script)
}

/// The commands of a line, each by its words; none where a quote has no end.
fn words(line: &str) -> Option<Vec<Vec<String>>> {
    let (mut commands, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '#' if word.is_none() => break,
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next()? {
                        end if end == letter => break,
                        '\\' if letter == '"' => word.extend(letters.next()),
                        inner => word.push(inner),
                    }
                }
            }
            '\\' => word.get_or_insert_default().extend(letters.next()),
            ' ' | '\n' | '\t' => words.extend(word.take()),
            '|' | '&' | ';' | '(' | ')' => {
                words.extend(word.take());
                commands.push(std::mem::take(&mut words));
            }
            // What is redirected to, or from, is no word.
            '>' | '<' => {
                words.extend(word.take());
                while letters.next_if(|letter| " <>".contains(*letter)).is_some() {}
                while letters.next_if(|letter| !" |&;".contains(*letter)).is_some() {}
            }
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    commands.push(words);
    commands.retain(|words| !words.is_empty());
    Some(commands)
}

#[test]
fn a_page_is_read_as_a_shell_reads_it() {
    let page = "Text `mcs-admin no`.\n\n```sh\nexport A_B_C=d   # why\nhelm install a charts/b \\\n  --set 'c={d,e}' --set f\\\\.g=h\ncat >v.yaml <<'YAML'\nk: 1\nYAML\na | b && c -d \"e f\" >/dev/null; g\n```\n```text\nnot this\n```\n";
    let script = script(page).unwrap_or_default();
    let commands: Vec<Vec<&str>> =
        script.commands.iter().map(|command| command.words.iter().map(String::as_str).collect()).collect();
    assert_eq!(
        commands,
        [
            &["export", "A_B_C=d"][..],
            &["helm", "install", "a", "charts/b", "--set", "c={d,e}", "--set", "f\\.g=h"],
            &["cat"],
            &["a"],
            &["b"],
            &["c", "-d", "e f"],
            &["g"]
        ]
    );
    assert_eq!(script.variables("A_"), [("--b-c".to_owned(), "d".to_owned())]);
    assert_eq!(script.files, BTreeMap::from([("v.yaml".to_owned(), "k: 1\n".to_owned())]));
}
