//! What was found, each with a verdict and what to do about it.

use crate::output::{Column, Format, Unprintable, counted, table};
use serde::Serialize;

/// Whether something is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    /// It is.
    Ok,
    /// It works, and somebody should know of it.
    Warning,
    /// It does not work.
    Failed,
}

impl Verdict {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// Whether it is as it should be.
    pub(crate) verdict: Verdict,
    /// What was looked at: of a closed set, for programs.
    pub(crate) check: &'static str,
    /// Of what.
    pub(crate) of: String,
    /// What was found.
    pub(crate) found: String,
    /// What to do about it, unless all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) todo: Option<String>,
}

impl Finding {
    /// All is well.
    pub(crate) fn ok(check: &'static str, of: impl ToString, found: impl Into<String>) -> Self {
        Self { verdict: Verdict::Ok, check, of: of.to_string(), found: found.into(), todo: None }
    }

    /// Somebody should know.
    pub(crate) fn warning(
        check: &'static str,
        of: impl ToString,
        found: impl Into<String>,
        todo: impl Into<String>,
    ) -> Self {
        Self { verdict: Verdict::Warning, todo: Some(todo.into()), ..Self::ok(check, of, found) }
    }

    /// It does not work.
    pub(crate) fn failed(
        check: &'static str,
        of: impl ToString,
        found: impl Into<String>,
        todo: impl Into<String>,
    ) -> Self {
        Self { verdict: Verdict::Failed, todo: Some(todo.into()), ..Self::ok(check, of, found) }
    }
}

/// All that was found, in the order in which it was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Report {
    checks: Vec<Finding>,
}

const COLUMNS: [Column; 4] = [("RESULT", false), ("CHECK", false), ("OF", false), ("FOUND", false)];

impl Report {
    /// Adds what was found.
    pub(crate) fn add(&mut self, finding: Finding) {
        self.checks.push(finding);
    }

    /// Adds all that was found.
    pub(crate) fn extend(&mut self, findings: impl IntoIterator<Item = Finding>) {
        self.checks.extend(findings);
    }

    /// Whether nothing failed.
    pub(crate) fn is_good(&self) -> bool {
        self.count(Verdict::Failed) == 0
    }

    fn count(&self, verdict: Verdict) -> u64 {
        self.checks.iter().map(|finding| u64::from(finding.verdict == verdict)).sum()
    }

    /// The text to print, with a line end.
    ///
    /// # Errors
    /// JSON and YAML have no form for it.
    pub(crate) fn print(&self, format: Format) -> Result<String, Unprintable> {
        format.print(self, || self.table())
    }

    fn table(&self) -> String {
        let rows = self.checks.iter().map(|Finding { verdict, check, of, found, todo }| {
            let todo = todo.as_ref().map_or_else(String::new, |todo| format!("\n-> {todo}"));
            [verdict.as_str().to_owned(), (*check).to_owned(), of.clone(), format!("{found}{todo}")]
        });
        let [failed, warnings, ok] =
            [Verdict::Failed, Verdict::Warning, Verdict::Ok].map(|verdict| self.count(verdict));
        format!(
            "{}\n\n{failed} failed, {}, {ok} ok\n",
            table(&COLUMNS, rows.collect()),
            counted(warnings, "warning")
        )
    }
}
