//! The benchmarks themselves, with so little to do that their numbers mean nothing: each must run and say all of its
//! goal.

use anyhow::{Context, Result, ensure};
use mcs_e2e::bench::{Name, Scale, crossing::Crossing, run};

#[test]
fn the_benchmark_of_the_hop_says_all_of_its_goal() -> Result<()> {
    check(Name::G1, "G1", 2)
}

#[test]
fn the_benchmark_of_a_crossing_says_all_of_its_goal() -> Result<()> {
    check(Name::Crossing, "G2", 5)
}

#[test]
fn the_benchmark_of_updates_says_all_of_its_goal() -> Result<()> {
    check(Name::G3, "G3", 2)
}

#[test]
fn the_benchmark_of_a_cold_import_says_all_of_its_goal() -> Result<()> {
    check(Name::G4, "G4", 3)
}

#[test]
fn the_benchmark_of_a_restart_says_all_of_its_goal() -> Result<()> {
    check(Name::G5, "G5", 4)
}

#[test]
fn the_benchmark_of_many_watchers_says_all_of_its_goal() -> Result<()> {
    check(Name::G6, "G6", 4)
}

#[test]
fn the_benchmark_of_memory_says_all_of_its_goal() -> Result<()> {
    check(Name::G7, "G7", 4)
}

#[test]
fn the_benchmark_of_registrations_says_all_of_its_goal() -> Result<()> {
    check(Name::G8, "G8", 2)
}

#[test]
fn the_benchmark_of_the_memory_of_pools_says_all_of_its_goal() -> Result<()> {
    check(Name::G9, "G9", 2)
}

#[test]
fn the_benchmark_of_lists_says_all_of_its_goal() -> Result<()> {
    check(Name::G10, "G10", 5)
}

#[test]
fn the_benchmark_of_costs_says_all_of_its_goal() -> Result<()> {
    check(Name::G11, "G11", 4)
}

#[test]
fn the_benchmark_of_a_change_at_another_replica_says_all_of_its_goal() -> Result<()> {
    check(Name::G12, "G12", 2)
}

/// That a view is old is told after a minute, so this takes one.
#[test]
fn the_benchmark_of_a_stale_view_says_all_of_its_goal() -> Result<()> {
    check(Name::G13, "G13", 6)
}

/// Runs a benchmark, and reads what it prints: a table with all columns, and one line about `goal` with as many `parts`.
fn check(name: Name, goal: &str, parts: usize) -> Result<()> {
    let report = run(name, Crossing { rate: 1, count: 1 }, &Scale::TINY)?.to_string();
    let mut lines = report.lines().skip_while(|line| line.is_empty());
    let header = lines.next().context("no table")?;
    let columns: Vec<_> = header.split("  ").map(str::trim).filter(|column| !column.is_empty()).collect();
    assert_eq!(
        columns,
        ["GOAL", "MEASURED", "AT MOST", "FLOOR", "PEER", "OURS", "RATIO (MIN TO MAX)"],
        "{report}"
    );
    let rows = lines.by_ref().take_while(|line| !line.is_empty()).count();
    ensure!(rows >= parts, "{rows} rows in\n{report}");

    let verdicts: Vec<_> = lines.filter_map(|line| line.strip_prefix("goal ")).collect();
    let [verdict] = verdicts[..] else { anyhow::bail!("not one verdict but {}:\n{report}", verdicts.len()) };
    let said = verdict.strip_prefix(goal).and_then(|rest| rest.strip_prefix(": "));
    let said = said.with_context(|| format!("a verdict on another goal: {verdict}"))?;
    let (outcome, measured) = said.split_once("; ").context("nothing behind the verdict")?;
    ensure!(["met", "missed"].contains(&outcome), "{outcome:?} is no verdict");
    let measured: Vec<_> = measured.split("; ").collect();
    assert_eq!(measured.len(), parts, "{verdict}");
    for part in measured {
        let (_, numbers) = part.split_once(": goal ").with_context(|| format!("no goal in {part:?}"))?;
        let mut rest = numbers;
        for name in [", ours ", ", floor ", ", peer ", ", ratio "] {
            (_, rest) = rest.split_once(name).with_context(|| format!("no{name}in {part:?}"))?;
        }
    }
    Ok(())
}
