//! The guides for people: what they tell to run would run, what they link to is there, and what they say of alerts, metrics
//! and tests is of those that there are.
//!
//! A command counts when it stands in a block of `sh`. Files that a block writes from a here-document are those that later
//! commands of the same page are given.

mod shell;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context, Result, ensure};
use mcs_runtime::args::{Check, GDS, MCS, Stop, try_parse};

use crate::{
    chart::{Chart, list_at, text_at},
    helm::{self, repository},
    readme::documented,
};
use shell::{Command, Script};

/// A page, by its path in the repository.
struct Page {
    path: String,
    text: String,
}

/// What is left out of a command on purpose.
const LEFT_OUT: char = '…';

/// All pages for people.
fn pages() -> Result<Vec<Page>> {
    let mut paths = vec!["README.md".to_owned(), "discovery/client/README.md".to_owned()];
    paths.extend(Chart::ALL.map(|chart| format!("charts/{}/README.md", chart.name())));
    for folder in ["docs", "docs/decisions"] {
        for entry in fs::read_dir(repository(folder))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if Path::new(&name).extension().is_some_and(|extension| extension == "md") {
                paths.push(format!("{folder}/{name}"));
            }
        }
    }
    paths.sort();
    paths.into_iter().map(|path| Ok(Page { text: page(&path)?, path })).collect()
}

fn page(path: &str) -> Result<String> {
    fs::read_to_string(repository(path)).with_context(|| format!("reading {path}"))
}

/// The commands of every page that run `program`, each with its page and what stands before it on that page.
fn commands(program: &str) -> Result<Vec<(String, Command, Script)>> {
    let mut found = Vec::new();
    for Page { path, text } in pages()? {
        let script = shell::script(&text).with_context(|| path.clone())?;
        let of = script
            .commands
            .iter()
            .filter(|command| command.words.first().is_some_and(|word| word == program));
        found.extend(of.map(|command| (path.clone(), command.clone(), script.clone())));
    }
    ensure!(!found.is_empty(), "no page runs {program}");
    Ok(found)
}

#[test]
fn every_command_of_our_programs_is_taken_by_their_parsers() -> Result<()> {
    let mut refused = Vec::new();
    let mut taken = BTreeSet::new();
    for Page { path, text } in pages()? {
        let script = shell::script(&text).with_context(|| path.clone())?;
        let variables = script.variables("DYN_MCS_");
        for Command { words, line } in script.commands {
            // What runs in a container of a Pod stands behind `--`.
            let inner =
                words.iter().position(|word| word == "--").map_or(&words[..], |place| &words[place + 1..]);
            let Some(program) = inner.first().map(|word| word.trim_start_matches('/')) else { continue };
            // What a page exports stands for the flags, as it does for who pastes it.
            let given = |flag: &str| inner.iter().any(|word| word.split('=').next() == Some(flag));
            let exported = variables.iter().filter(|(flag, _)| program == "mcs-admin" && !given(flag));
            let exported = exported.map(|(flag, value)| format!("{flag}={value}"));
            let args: Vec<String> = inner.iter().cloned().chain(exported).collect();
            let read = match program {
                "mcs-registry" => parsed::<mcs_registry::args::Args>(&MCS, args),
                "mcs-controller" => parsed::<mcs_controller::args::Args>(&MCS, args),
                "mcs-admin" => parsed::<mcs_admin::args::Args>(&MCS, args),
                "global-discovery-service" => parsed::<global_discovery_service::args::Args>(&GDS, args),
                _ => continue,
            };
            taken.insert(program.to_owned());
            if let Err(why) = read {
                refused.push(format!("{path}: {line}: {why}"));
            }
        }
    }
    assert_eq!(refused, Vec::<String>::new());
    let programs = ["global-discovery-service", "mcs-admin", "mcs-controller", "mcs-registry"];
    assert_eq!(taken, programs.map(ToOwned::to_owned).into());
    Ok(())
}

/// Whether a command is taken; one of which something is left out is taken where its flags are some.
fn parsed<A: clap::Parser + Check>(
    environment: &mcs_runtime::args::Environment,
    words: Vec<String>,
) -> Result<(), String> {
    if words.iter().any(|word| word.contains(LEFT_OUT)) {
        let command = mcs_runtime::args::command::<A>(environment);
        let every =
            command.get_arguments().chain(command.get_subcommands().flat_map(clap::Command::get_arguments));
        let known: BTreeSet<&str> = every.filter_map(clap::Arg::get_long).collect();
        let flags = words
            .iter()
            .filter_map(|word| Some(word.strip_prefix("--")?.split('=').next().unwrap_or_default()));
        let unknown: Vec<&str> = flags.filter(|flag| !known.contains(flag)).collect();
        return if unknown.is_empty() { Ok(()) } else { Err(format!("no flags {unknown:?}")) };
    }
    match try_parse::<A>(environment, words) {
        Ok(_) | Err(Stop::Shown(_)) => Ok(()),
        Err(Stop::Refused(why)) => Err(why),
    }
}

#[test]
fn every_value_that_helm_is_given_is_one_of_the_chart_and_what_is_installed_renders() -> Result<()> {
    let mut failures = Vec::new();
    let mut rendered = 0;
    for (path, command, script) in commands("helm")? {
        match helm_command(&command, &script) {
            Ok(count) => rendered += count,
            Err(error) => failures.push(format!("{path}: {}: {error:#}", command.line)),
        }
    }
    assert_eq!(failures, Vec::<String>::new());
    ensure!(rendered >= 8, "only {rendered} commands were rendered");
    Ok(())
}

/// Checks the values of a command of helm; how many charts it rendered.
fn helm_command(command: &Command, script: &Script) -> Result<usize> {
    let words: Vec<&str> = command.words.iter().map(String::as_str).collect();
    let Some(chart) = Chart::ALL.into_iter().find(|chart| {
        let folder = format!("charts/{}", chart.name());
        words.iter().any(|word| *word == folder)
    }) else {
        ensure!(!words.iter().any(|word| word.starts_with("charts/")), "no such chart");
        return Ok(0);
    };
    let known: Vec<String> = documented(chart)?.into_iter().map(|value| value.path).collect();
    let files = tempfile::tempdir()?;
    let mut arguments = vec![chart.folder().display().to_string()];
    let (mut release, mut is_whole) = (None, true);
    let mut words = words.get(2..).unwrap_or_default().iter().copied();
    while let Some(word) = words.next() {
        let (flag, value) = word.split_once('=').map_or((word, None), |(flag, value)| (flag, Some(value)));
        let mut value = || value.or_else(|| words.next()).with_context(|| format!("{flag} has no value"));
        match flag {
            "--set" | "--set-string" | "--set-json" => {
                let set = value()?;
                let path = set.split_once('=').with_context(|| format!("{set} sets nothing"))?.0;
                let path = path.split('[').next().unwrap_or_default();
                let is_known = |known: &String| {
                    path == known
                        || path.strip_prefix(known.as_str()).is_some_and(|rest| rest.starts_with('.'))
                };
                ensure!(known.iter().any(is_known), "{} has no value {path}", chart.name());
                arguments.extend([flag.to_owned(), set.to_owned()]);
                is_whole &= !set.contains(LEFT_OUT);
            }
            "--values" | "-f" => {
                let name = value()?;
                let text =
                    script.files.get(name).with_context(|| format!("the page does not write {name}"))?;
                let path = files.path().join(name);
                fs::write(&path, text)?;
                arguments.extend(["--values".to_owned(), path.display().to_string()]);
            }
            "--namespace" | "-n" => arguments.extend(["--namespace".to_owned(), value()?.to_owned()]),
            "--create-namespace" | "--install" | "--wait" | "--no-hooks" => {}
            // The values of the release that runs are known to nobody here.
            "--reuse-values" | "--reset-then-reuse-values" => is_whole = false,
            other if other.starts_with("charts/") => {}
            other if other.contains(LEFT_OUT) => is_whole = false,
            other if release.is_none() && !other.starts_with('-') => release = Some(other),
            other => anyhow::bail!("{other} is not known to this test"),
        }
    }
    if !is_whole {
        return Ok(0);
    }
    let release = release.context("no name of the release")?;
    let arguments: Vec<&str> =
        ["template", release].into_iter().chain(arguments.iter().map(String::as_str)).collect();
    helm::run(&arguments, "").map(|_| 1)
}

#[test]
fn files_that_kubectl_is_given_are_there_and_recipes_that_make_is_asked_for_too() -> Result<()> {
    let mut missing = Vec::new();
    for (path, command, script) in commands("kubectl")? {
        let given = command.words.windows(2).filter(|pair| pair[0] == "-f" || pair[0] == "--filename");
        for file in given.map(|pair| &pair[1]) {
            let is_there = file == "-" || script.files.contains_key(file) || repository(file).exists();
            if !is_there && !file.starts_with("https://") {
                missing.push(format!("{path}: {file}"));
            }
        }
    }
    let makefile = page("Makefile")?;
    for (path, command, _) in commands("make")? {
        for recipe in command.words.iter().skip(1).filter(|word| !word.contains('=')) {
            if !makefile.contains(&format!("\n{recipe}:")) {
                missing.push(format!("{path}: make {recipe}"));
            }
        }
    }
    assert_eq!(missing, Vec::<String>::new());
    Ok(())
}

#[test]
fn every_link_leads_to_a_file_and_every_anchor_to_a_heading() -> Result<()> {
    let mut dead = Vec::new();
    let mut count = 0;
    for Page { path, text } in pages()? {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for target in links(&text) {
            count += 1;
            let (file, anchor) =
                target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
            let at = repository(if file.is_empty() { &path } else { folder }).join(file);
            let at = if file.is_empty() { repository(&path) } else { at };
            let leads = match anchor {
                None => at.exists(),
                Some(anchor) => fs::read_to_string(&at).is_ok_and(|text| anchors(&text).contains(anchor)),
            };
            if !leads {
                dead.push(format!("{path}: {target}"));
            }
        }
    }
    assert_eq!(dead, Vec::<String>::new());
    ensure!(count > 100, "only {count} links");
    Ok(())
}

/// Where the links of a page lead within the repository.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let prose = text.split("```").step_by(2);
    let targets = prose.flat_map(|prose| prose.split("](").skip(1)).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://") && !target.contains(' '))
}

/// What a browser calls the headings of a page.
fn anchors(text: &str) -> BTreeSet<String> {
    let prose: String = text.split("```").step_by(2).collect();
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    headings
        .map(|line| {
            let words = line.trim_start_matches('#').trim().to_lowercase();
            let kept = words.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
            let name: String = kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect();
            let count = counts.entry(name.clone()).and_modify(|count| *count += 1).or_default();
            if *count == 0 { name } else { format!("{name}-{count}") }
        })
        .collect()
}

#[test]
fn the_runbook_has_a_row_for_every_alert_and_no_other() -> Result<()> {
    let text = page("docs/operations.md")?;
    let rows: Vec<&str> =
        rows(&text, "When an alert fires").iter().filter_map(|cells| code(cells[0]).next()).collect();
    let told: BTreeSet<String> = rows.iter().map(|&alert| alert.to_owned()).collect();
    assert_eq!(told.len(), rows.len(), "an alert has two rows");
    let mut alerts = BTreeSet::new();
    for chart in Chart::ALL {
        let file: serde_json::Value = serde_saphyr::from_str(&chart.file("alerts.yaml")?)?;
        let rules = list_at(&file, "/groups").iter().flat_map(|group| list_at(group, "/rules"));
        alerts.extend(rules.map(|rule| text_at(rule, "/alert").to_owned()));
    }
    assert_eq!(told, alerts);
    Ok(())
}

/// The tables of the programs' pages are held by tests of the programs.
#[test]
fn the_guide_to_metrics_names_every_metric_and_no_other() -> Result<()> {
    let mut exist = BTreeSet::new();
    for path in ["docs/registry.md", "docs/controller.md", "docs/discovery.md"] {
        let text = page(path)?;
        let names: Vec<_> = rows(&text, "Metrics")
            .iter()
            .filter_map(|cells| code(cells[0]).next().map(str::to_owned))
            .collect();
        ensure!(!names.is_empty(), "{path} has no metrics");
        exist.extend(names);
    }
    let text = page("docs/observability.md")?;
    let prose: String = text.split("```").step_by(2).collect();
    let named: BTreeSet<String> = prose
        .split('`')
        .skip(1)
        .step_by(2)
        .filter_map(|code| code.split('{').next())
        .filter(|name| {
            ["mcs_registry_", "mcs_controller_", "global_discovery_"]
                .iter()
                .any(|begin| name.starts_with(begin))
        })
        .map(str::to_owned)
        .collect();
    let (missing, strange): (Vec<_>, Vec<_>) =
        (exist.difference(&named).collect(), named.difference(&exist).collect());
    assert_eq!((missing, strange), (Vec::new(), Vec::new()), "metrics that are not named, and names of none");
    Ok(())
}

#[test]
fn a_clusters_life_is_told_in_lines_that_the_registry_logs() -> Result<()> {
    let text = page("docs/observability.md")?;
    let (_, life) = text.split_once("### One cluster's life").context("no life of a cluster")?;
    let life = life.split("\n## ").next().unwrap_or_default();
    let told = life.lines().filter(|line| line.starts_with("| `"));
    let told: BTreeSet<&str> =
        told.flat_map(|row| code(row.split(" | ").next().unwrap_or_default())).collect();
    let registry = page("docs/registry.md")?;
    let logged: BTreeSet<&str> =
        rows(&registry, "Log lines").iter().flat_map(|cells| code(cells[0])).collect();
    let strange: Vec<_> = told.difference(&logged).collect();
    ensure!(!told.is_empty() && strange.is_empty(), "the registry logs no {strange:?}");
    Ok(())
}

#[test]
fn every_claim_about_security_names_tests_that_exist() -> Result<()> {
    let text = page("docs/security.md")?;
    let (mut missing, mut count) = (Vec::new(), 0);
    for row in
        text.lines().filter(|line| line.starts_with("| ") && line.contains("`") && !line.starts_with("| |"))
    {
        let mut named = code(row).filter_map(|code| code.split_once(".rs: ")).peekable();
        let is_of_tests = named.peek().is_some();
        for (file, test) in named {
            count += 1;
            let source = page(&format!("{file}.rs")).unwrap_or_default();
            if !source.contains(&format!("fn {test}(")) {
                missing.push(format!("{file}.rs: {test}"));
            }
        }
        if !is_of_tests && row.split(" | ").count() == 4 {
            missing.push(format!("no test: {row}"));
        }
    }
    assert_eq!(missing, Vec::<String>::new());
    ensure!(count >= 20, "only {count} tests are named");
    Ok(())
}

/// The rows of the tables below a heading, each with its cells.
fn rows<'a>(text: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let section = text.split_once(&format!("\n## {heading}\n")).map_or("", |(_, section)| section);
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

/// The texts in code of a text.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}
