//! The table of values in a chart's README is made of the comments in its values.yaml, and the schema knows the same
//! values. `make charts` writes the tables anew.

use std::{collections::BTreeSet, fmt::Write as _};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{chart::Chart, goldens::UPDATE};

const BEGIN: &str = "<!-- values: written by `make charts` from values.yaml -->\n";
const END: &str = "<!-- end of values -->\n";

/// A value that a comment stands above.
pub(crate) struct Documented {
    /// Where it is, as `registry.store`.
    pub path: String,
    /// What it is by default, as JSON.
    default: String,
    /// The comment.
    pub comment: String,
}

#[test]
fn the_readme_has_every_value_with_its_comment() -> Result<()> {
    for chart in Chart::ALL {
        let readme = chart.file("README.md")?;
        let (before, rest) = readme.split_once(BEGIN).context("README.md has no table of values")?;
        let (_, after) = rest.split_once(END).context("the table of values has no end")?;
        let mut written = format!("{before}{BEGIN}| value | default | what it says |\n|---|---|---|\n");
        for Documented { path, default, comment } in documented(chart)? {
            let _ = writeln!(written, "| `{path}` | `{default}` | {} |", comment.replace('|', "\\|"));
        }
        let written = format!("{written}{END}{after}");
        if std::env::var_os(UPDATE).is_some() {
            std::fs::write(chart.folder().join("README.md"), &written)?;
        } else {
            ensure!(
                written == readme,
                "the README of {} is not what its values are: make charts",
                chart.name()
            );
        }
    }
    Ok(())
}

#[test]
fn the_schema_knows_the_values_that_there_are_and_no_others() -> Result<()> {
    for chart in Chart::ALL {
        let schema: Value = serde_json::from_str(&chart.file("values.schema.json")?)?;
        let documented: BTreeSet<String> = documented(chart)?.into_iter().map(|value| value.path).collect();
        let mut known = BTreeSet::new();
        collect(&schema, "", &documented, &mut known)?;
        // What a chart above this one passes to all below it.
        known.remove("global");
        assert_eq!(known, documented, "{}", chart.name());
    }
    Ok(())
}

/// Adds the values that `schema` knows below `path`. It must refuse others.
fn collect(
    schema: &Value,
    path: &str,
    documented: &BTreeSet<String>,
    known: &mut BTreeSet<String>,
) -> Result<()> {
    match schema.get("properties").and_then(Value::as_object).filter(|_| !documented.contains(path)) {
        None => drop(known.insert(path.to_owned())),
        Some(properties) => {
            ensure!(schema["additionalProperties"] == false, "{path:?} takes values that are misspelt");
            for (key, schema) in properties {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                collect(schema, &path, documented, known)?;
            }
        }
    }
    Ok(())
}

/// The values of a chart, in their order. A value with a comment is told as a whole, whatever is below it.
///
/// # Errors
/// A value has no comment.
pub(crate) fn documented(chart: Chart) -> Result<Vec<Documented>> {
    let text = chart.file("values.yaml")?;
    let values: Value = serde_saphyr::from_str(&text)?;
    let mut found = Vec::new();
    let mut comment = String::new();
    // The groups around a line, each with its indentation.
    let mut groups: Vec<(usize, &str)> = Vec::new();
    // Lines that are indented deeper belong to a value that was told.
    let mut told = usize::MAX;
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        let indentation = line.len() - trimmed.len();
        if trimmed.is_empty() {
            comment.clear();
        } else if indentation > told {
            continue;
        } else if let Some(words) = trimmed.strip_prefix("# ") {
            told = usize::MAX;
            comment = [comment.as_str(), words].join(" ").trim().to_owned();
        } else {
            told = usize::MAX;
            let (key, value) =
                trimmed.split_once(':').with_context(|| format!("line {} has no key", number + 1))?;
            groups.retain(|(of, _)| *of < indentation);
            let keys = groups.iter().map(|(_, key)| *key).chain([key]);
            let path = keys.collect::<Vec<_>>().join(".");
            match (comment.is_empty(), value.is_empty()) {
                (true, true) => groups.push((indentation, key)),
                (true, false) => bail!("{path} has no comment, line {}", number + 1),
                (false, _) => {
                    let value = values.pointer(&format!("/{}", path.replace('.', "/")));
                    let default = value.with_context(|| format!("no value {path}"))?.to_string();
                    found.push(Documented { path, default, comment: std::mem::take(&mut comment) });
                    told = indentation;
                }
            }
        }
    }
    Ok(found)
}
