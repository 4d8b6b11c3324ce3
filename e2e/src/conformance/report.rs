//! What Ginkgo reports of a run, as a table and as a verdict.

use std::{fmt, time::Duration};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::table::columns;

/// The label of what every implementation must do.
const REQUIRED: &str = "Required";
const PASSED: &str = "passed";

/// The tests that were to run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Report {
    tests: Vec<Test>,
}

#[derive(Debug, PartialEq, Eq)]
struct Test {
    name: String,
    labels: Vec<String>,
    state: String,
    took: Duration,
}

/// One run of Ginkgo, in its JSON.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Run {
    #[serde(default)]
    spec_reports: Option<Vec<Spec>>,
}

/// A test, or what is to be done before or after all of them. A list that is empty is null.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Spec {
    #[serde(default)]
    container_hierarchy_texts: Option<Vec<String>>,
    #[serde(default)]
    container_hierarchy_labels: Option<Vec<Option<Vec<String>>>>,
    leaf_node_type: String,
    #[serde(default)]
    leaf_node_text: String,
    #[serde(default)]
    leaf_node_labels: Option<Vec<String>>,
    state: String,
    /// In nanoseconds.
    #[serde(default)]
    run_time: u64,
    #[serde(default)]
    failure: Failure,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    #[serde(default)]
    message: String,
}

impl Spec {
    /// Tests that the label filter leaves out are skipped without a word; those that skip themselves say why.
    fn was_to_run(&self) -> bool {
        match self.state.as_str() {
            "skipped" | "pending" => !self.failure.message.is_empty(),
            PASSED => self.leaf_node_type == "It",
            _ => true,
        }
    }

    fn test(self) -> Test {
        let containers = self.container_hierarchy_labels.into_iter().flatten().flatten().flatten();
        let mut labels: Vec<_> = containers.chain(self.leaf_node_labels.into_iter().flatten()).collect();
        labels.sort();
        let texts = self.container_hierarchy_texts.into_iter().flatten().chain([self.leaf_node_text]);
        let texts: Vec<_> = texts.filter(|text| !text.is_empty()).collect();
        let name = if texts.is_empty() { self.leaf_node_type } else { texts.join(" ") };
        Test { name, labels, state: self.state, took: Duration::from_nanos(self.run_time) }
    }
}

impl Report {
    /// Reads what `-ginkgo.json-report` wrote.
    pub(super) fn read(json: &str) -> Result<Self> {
        let runs: Vec<Run> = serde_json::from_str(json).context("reading the report of the suite")?;
        let specs = runs.into_iter().flat_map(|run| run.spec_reports.unwrap_or_default());
        let mut tests: Vec<Test> = specs.filter(Spec::was_to_run).map(Spec::test).collect();
        tests.sort_by(|a, b| (!a.required(), &a.labels, &a.name).cmp(&(!b.required(), &b.labels, &b.name)));
        Ok(Self { tests })
    }

    /// How many passed.
    ///
    /// # Errors
    /// One did not pass, or none was required: then the suite judged nothing.
    pub(super) fn verdict(&self) -> Result<String> {
        let count = |holds: fn(&Test) -> bool| self.tests.iter().filter(|test| holds(test)).count();
        let (all, passed) = (self.tests.len(), count(Test::passed));
        ensure!(passed == all, "{} of {all} tests did not pass", all - passed);
        let required = count(Test::required);
        ensure!(required > 0, "none of the {all} tests that ran has the label {REQUIRED}");
        Ok(format!("all {all} tests passed, {required} of them {REQUIRED}"))
    }
}

impl Test {
    fn passed(&self) -> bool {
        self.state == PASSED
    }

    fn required(&self) -> bool {
        self.labels.iter().any(|label| label == REQUIRED)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |test: &Test| {
            let took = format!("{:.1} s", test.took.as_secs_f64());
            [test.state.clone(), took, test.labels.join(","), test.name.clone()]
        };
        let rows: Vec<_> = self.tests.iter().map(row).collect();
        f.write_str(&columns(["STATE", "TOOK", "LABELS", "TEST"], &rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_test_that_the_filter_left_out_is_not_in_the_table_and_what_is_required_comes_first() {
        let report = mk_report(json!([
            { "LeafNodeType": "BeforeSuite", "State": "passed", "RunTime": 5 },
            mk_test("annotations", "Optional", "passed", ""),
            mk_test("DNS", "Optional", "skipped", ""),
            mk_test("ports", "Required", "passed", ""),
        ]));
        let table = "STATE   TOOK   LABELS              TEST\n\
                     passed  1.5 s  ClusterIP,Required  an import ports\n\
                     passed  1.5 s  ClusterIP,Optional  an import annotations";
        assert_eq!(report.to_string(), table);
        assert_eq!(report.verdict().expect("all passed"), "all 2 tests passed, 1 of them Required");
    }

    #[test]
    fn a_test_that_did_not_pass_fails_the_run_also_when_it_skipped_itself() {
        for (state, message) in [("failed", "no import"), ("timedout", ""), ("skipped", "needs 2 clusters")] {
            let report = mk_report(json!([
                mk_test("ports", "Required", "passed", ""),
                mk_test("conflict", "Required", state, message),
            ]));
            let refused = report.verdict().expect_err("one did not pass").to_string();
            assert_eq!(refused, "1 of 2 tests did not pass", "{state}");
        }
    }

    #[test]
    fn a_suite_that_could_not_begin_fails_the_run_and_is_shown() {
        let report = mk_report(json!([
            { "LeafNodeType": "BeforeSuite", "State": "failed", "Failure": { "Message": "no API" } },
            mk_test("ports", "Required", "skipped", ""),
        ]));
        assert_eq!(report.to_string(), "STATE   TOOK   LABELS  TEST\nfailed  0.0 s          BeforeSuite");
        let refused = report.verdict().expect_err("it did not begin").to_string();
        assert_eq!(refused, "1 of 1 tests did not pass");
    }

    #[test]
    fn a_run_without_a_required_test_judged_nothing() {
        let report = mk_report(json!([mk_test("annotations", "Optional", "passed", "")]));
        let refused = report.verdict().expect_err("none was required").to_string();
        assert_eq!(refused, "none of the 1 tests that ran has the label Required");
        let refused = mk_report(Value::Null).verdict().expect_err("none ran").to_string();
        assert_eq!(refused, "none of the 0 tests that ran has the label Required");
    }

    fn mk_test(name: &str, label: &str, state: &str, message: &str) -> Value {
        json!({
            "ContainerHierarchyTexts": ["", "an import"],
            "ContainerHierarchyLabels": [["ClusterIP"], null],
            "LeafNodeType": "It",
            "LeafNodeText": name,
            "LeafNodeLabels": [label],
            "State": state,
            "RunTime": 1_500_000_000,
            "Failure": { "Message": message },
        })
    }

    fn mk_report(specs: Value) -> Report {
        Report::read(&json!([{ "SpecReports": specs }]).to_string()).expect("a report")
    }
}
