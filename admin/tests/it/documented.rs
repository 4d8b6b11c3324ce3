//! `docs/admin.md`: its commands are some, and its outputs are those of the goldens.

#![expect(clippy::unwrap_used, reason = "a guide that cannot be read fails its test")]

use mcs_admin::args::Args;
use mcs_runtime::args::{MCS, try_parse};
use std::collections::BTreeSet;
use std::path::Path;

const GUIDE: &str = include_str!("../../../docs/admin.md");

#[test]
fn the_outputs_of_the_guide_are_what_the_program_says() {
    let goldens = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")).unwrap();
    let outputs: BTreeSet<String> = goldens
        .filter_map(|file| {
            let golden = std::fs::read_to_string(file.unwrap().path()).unwrap();
            let (_, streams) = golden.split_once("--- standard output\n")?;
            let (output, _) = streams.split_once("--- standard error\n")?;
            Some(output.to_owned())
        })
        .collect();
    let examples = blocks("text");
    assert!(!examples.is_empty());
    for example in examples {
        assert!(outputs.contains(example), "no golden has this output:\n{example}");
    }
}

#[test]
fn the_commands_of_the_guide_are_taken() {
    let commands: Vec<&str> = blocks("sh").into_iter().flat_map(str::lines).collect();
    assert!(!commands.is_empty());
    for command in commands {
        let read = try_parse::<Args>(&MCS, command.split_whitespace());
        assert!(read.is_ok(), "{command}: {read:?}");
    }
}

/// The code blocks of a language.
fn blocks(language: &str) -> Vec<&'static str> {
    let begin = format!("```{language}\n");
    GUIDE.split(&begin).skip(1).map(|rest| rest.split_once("```").unwrap().0).collect()
}
