//! What `docs/troubleshooting.md` explains is what there is: reasons, Events, lines of the log, causes, metrics. Its
//! commands for the finalizer and for Events are run by the tests of whole clusters.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const GUIDE: &str = include_str!("../../../docs/troubleshooting.md");
const NAMES: &str = include_str!("../../../core/src/names.rs");

/// The rows of the table below a heading, each with its cells; the texts in code of the cell `column` are what the row is of.
fn rows(heading: &str, column: usize) -> Vec<(Vec<String>, Vec<&'static str>)> {
    let (_, section) = GUIDE.split_once(&format!("\n## {heading}\n")).expect(heading);
    let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
    let cells = section.lines().filter_map(|line| line.strip_prefix("| ")).skip(1);
    let rows: Vec<_> = cells
        .map(|row| {
            let cells: Vec<_> = row.trim_end_matches('|').split(" | ").map(str::trim).collect();
            let of = cells[column].split('`').skip(1).step_by(2).map(str::to_owned).collect();
            (of, cells)
        })
        .collect();
    assert!(!rows.is_empty(), "no table below {heading}");
    rows
}

/// What the rows below a heading are of.
fn of(heading: &str, column: usize) -> Vec<String> {
    rows(heading, column).into_iter().flat_map(|(of, _)| of).collect()
}

/// The values of the constants of the names whose name begins so.
fn constants(begin: &str) -> BTreeSet<String> {
    let begin = format!("pub const {begin}");
    let found = NAMES.lines().filter(|line| line.starts_with(&begin));
    found.map(|line| line.split('"').nth(1).expect(line).to_owned()).collect()
}

/// All sources of the program, and of what it logs through.
fn sources() -> String {
    let mut all = String::new();
    for folder in ["src", "../runtime/src", "../proto/src", "../registry/src"] {
        read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut all);
    }
    // Texts that go on in the next line are one text.
    let mut joined = String::new();
    let mut parts = all.split("\\\n");
    joined.push_str(parts.next().unwrap_or_default());
    parts.for_each(|part| joined.push_str(part.trim_start()));
    joined
}

fn read(folder: &Path, all: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read(&path, all);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_reason_of_a_condition_has_a_row_and_every_row_a_reason() {
    let rows: Vec<_> = ["Conditions of a ServiceExport", "Conditions of a ServiceImport"]
        .iter()
        .flat_map(|heading| of(heading, 2))
        .collect();
    assert_eq!(rows.iter().cloned().collect::<BTreeSet<_>>(), constants("REASON_"));
    // `Ready` and `Pending` are of both kinds, and `Pending` is Unknown or False.
    assert_eq!(rows.len(), constants("REASON_").len() + 3, "{rows:?}");
}

#[test]
fn every_event_has_a_row_and_every_row_an_event() {
    let rows = of("Events", 0);
    assert_eq!(
        rows.iter().cloned().collect::<BTreeSet<_>>(),
        constants("EVENT_").into_iter().filter(|name| !name.contains('.')).collect()
    );
    assert_eq!(rows.len(), rows.iter().collect::<BTreeSet<_>>().len());
}

#[test]
fn every_line_and_cause_that_is_explained_is_in_the_sources() {
    let sources = sources();
    let lines = of("The controller's log", 0);
    let causes = of("A controller that is not ready", 0).into_iter().chain(of("No registry in reach", 0));
    let missing: Vec<_> = lines
        .into_iter()
        .chain(causes)
        .map(|text| {
            text.replace("serviceexports of multicluster.x-k8s.io/v1beta1", "{0} of {MCS_API_VERSION}")
        })
        .filter(|text| !sources.contains(text.as_str()))
        .collect();
    assert_eq!(missing, Vec::<String>::new());
}

/// The reasons that failures of a registry are counted by, which words alone cannot tell.
#[test]
fn every_cause_of_a_failed_connection_has_a_row() {
    let connect = include_str!("../../../proto/src/connect.rs");
    let (_, labels) = connect.split_once("pub const fn label").unwrap();
    let labels: BTreeSet<_> =
        labels.split_once("const fn words").unwrap().0.split('"').skip(1).step_by(2).collect();
    let explained: BTreeSet<_> = of("No registry in reach", 1).into_iter().collect();
    let missing: Vec<_> = labels.into_iter().filter(|label| !explained.contains(*label)).collect();
    // What is left breaks by itself, and is tried again.
    assert_eq!(missing, ["bad_certificate", "broken", "tls_protocol"]);
}

#[test]
fn every_metric_that_is_explained_exists() {
    let sources = sources();
    let missing: Vec<_> = of("Metrics to be woken by", 0)
        .into_iter()
        .filter(|metric| {
            let name = metric.trim_start_matches("mcs_controller_").trim_start_matches("mcs_registry_");
            !sources.contains(&format!("{name}\"")) && !sources.contains(&format!("{name}\","))
        })
        .collect();
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn every_link_goes_to_a_heading() {
    let headings: BTreeSet<String> = GUIDE
        .lines()
        .filter(|line| line.starts_with("##"))
        .map(|line| line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-").replace(',', ""))
        .collect();
    let links = GUIDE.split("](#").skip(1).filter_map(|rest| rest.split_once(')'));
    let dead: Vec<_> = links.map(|(link, _)| link).filter(|link| !headings.contains(*link)).collect();
    assert_eq!(dead, Vec::<&str>::new());
}
