//! What a benchmark prints: its table, under which conditions it ran, and a verdict on each goal.

use std::{collections::BTreeMap, fmt};

use super::stats::Ratios;
use crate::table::columns;

/// What numbers count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Milliseconds.
    Millis,
    /// Microseconds.
    Micros,
    /// Microseconds of a core.
    CpuMicros,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// Megabytes, of a million bytes.
    Megabytes,
    /// Percent of one core.
    CorePercent,
    /// Percent of something else.
    Percent,
    /// How many.
    Count,
    /// How many times as much.
    Times,
    /// Units of a store in an hour.
    UnitsAnHour,
}

impl Unit {
    fn show(self, number: f64) -> String {
        match self {
            Self::Millis => format!("{number:.2} ms"),
            Self::Micros | Self::CpuMicros => format!("{number:.1} us"),
            Self::Seconds => format!("{number:.2} s"),
            Self::Bytes => format!("{number:.0} B"),
            Self::Megabytes => format!("{number:.1} MB"),
            Self::CorePercent | Self::Percent => format!("{number:.2} %"),
            Self::Count => format!("{number:.0}"),
            Self::Times => format!("{number:.2} x"),
            Self::UnitsAnHour => format!("{number:.1}/h"),
        }
    }
}

/// One thing that was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The goal that it belongs to, such as `G1`.
    pub goal: &'static str,
    /// What was measured.
    pub what: String,
    /// Of all numbers of the row, apart from ratios.
    pub unit: Unit,
    /// The most that the goal allows.
    pub most: Option<f64>,
    /// The greatest ratio to the peer that the goal allows.
    pub most_ratio: Option<f64>,
    /// The least that is possible on this machine.
    pub floor: Option<f64>,
    /// What the peer needs.
    pub peer: Option<f64>,
    /// What we need.
    pub ours: f64,
    /// Ours to the peer's, or to the floor where there is no peer.
    pub ratio: Option<Ratios>,
}

impl Row {
    /// A row of our number alone; what else there is is set by its field.
    pub fn new(goal: &'static str, what: impl Into<String>, unit: Unit, ours: f64) -> Self {
        Self {
            goal,
            what: what.into(),
            unit,
            most: None,
            most_ratio: None,
            floor: None,
            peer: None,
            ours,
            ratio: None,
        }
    }

    /// Whether the row is within what the goal allows; none where the goal says nothing of it.
    pub fn is_met(&self) -> Option<bool> {
        let most = self.most.map(|most| self.ours <= most);
        // A ratio that could not be taken meets nothing.
        let ratio = self.most_ratio.map(|most| self.ratio.is_some_and(|ratio| ratio.median <= most));
        match (most, ratio) {
            (None, None) => None,
            (most, ratio) => Some(most.unwrap_or(true) && ratio.unwrap_or(true)),
        }
    }

    fn limits(&self) -> String {
        let most = self.most.map(|most| self.unit.show(most));
        let ratio = self.most_ratio.map(|most| format!("{most:.2} x peer"));
        let limits: Vec<_> = most.into_iter().chain(ratio).collect();
        limits.join(", ")
    }

    fn cells(&self) -> [String; 7] {
        let number = |number: Option<f64>| number.map_or_else(String::new, |number| self.unit.show(number));
        [
            self.goal.to_owned(),
            self.what.clone(),
            self.limits(),
            number(self.floor),
            number(self.peer),
            self.unit.show(self.ours),
            self.ratio.map_or_else(String::new, |ratio| ratio.to_string()),
        ]
    }

    fn verdict(&self) -> String {
        let [_, what, goal, floor, peer, ours, ratio] =
            self.cells().map(|cell| if cell.is_empty() { "none".to_owned() } else { cell });
        format!("{what}: goal {goal}, ours {ours}, floor {floor}, peer {peer}, ratio {ratio}")
    }
}

/// All that a benchmark has to say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The table.
    pub rows: Vec<Row>,
    /// What one has to know of the numbers: rates, sizes, versions, load of the machine.
    pub notes: Vec<String>,
}

impl Report {
    /// Takes the rows and notes of another benchmark.
    pub fn extend(&mut self, other: Self) {
        self.rows.extend(other.rows);
        self.notes
            .extend(other.notes.into_iter().filter(|note| !self.notes.contains(note)).collect::<Vec<_>>());
    }

    /// One line a goal: `goal G1: met` or `goal G1: missed`, with what was measured behind it.
    fn verdicts(&self) -> Vec<String> {
        let mut goals: BTreeMap<&str, Vec<(&Row, bool)>> = BTreeMap::new();
        for row in &self.rows {
            if let Some(met) = row.is_met() {
                goals.entry(row.goal).or_default().push((row, met));
            }
        }
        let line = |(goal, rows): (&str, Vec<(&Row, bool)>)| {
            let verdict = if rows.iter().all(|(_, met)| *met) { "met" } else { "missed" };
            let parts: Vec<_> = rows.iter().map(|(row, _)| row.verdict()).collect();
            format!("goal {goal}: {verdict}; {}", parts.join("; "))
        };
        goals.into_iter().map(line).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = ["GOAL", "MEASURED", "AT MOST", "FLOOR", "PEER", "OURS", "RATIO (MIN TO MAX)"];
        let rows: Vec<_> = self.rows.iter().map(Row::cells).collect();
        writeln!(f, "\n{}\n", columns(header, &rows))?;
        for line in self.notes.iter().chain(&self.verdicts()) {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ours: f64, most: Option<f64>, most_ratio: Option<f64>, ratio: f64) -> Row {
        let ratio = Some(Ratios { median: ratio, min: ratio, max: ratio });
        Row { most, most_ratio, ratio, ..Row::new("G1", "hop", Unit::Millis, ours) }
    }

    #[test]
    fn a_row_meets_its_goal_up_to_the_limits_and_needs_both() {
        let met = |ours, ratio| row(ours, Some(1.0), Some(0.5), ratio).is_met();
        assert_eq!([met(1.0, 0.5), met(1.01, 0.5), met(1.0, 0.51)], [Some(true), Some(false), Some(false)]);
        assert_eq!(row(1.0, None, None, 9.0).is_met(), None);
        let without_peer = Row { ratio: None, ..row(1.0, None, Some(0.5), 0.1) };
        assert_eq!(without_peer.is_met(), Some(false));
    }

    #[test]
    fn a_goal_is_met_when_all_its_rows_are_and_the_line_says_all_of_them() {
        let report = Report {
            rows: vec![
                Row { floor: Some(0.25), peer: Some(2.0), ..row(0.5, Some(1.0), Some(0.5), 0.25) },
                Row { most: Some(3.0), ..Row::new("G5", "deletes", Unit::Count, 4.0) },
                Row::new("G5", "not of the goal", Unit::Count, 9.0),
            ],
            notes: vec!["two cores".to_owned()],
        };
        let shown = report.to_string();
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(
            lines,
            [
                "",
                "GOAL  MEASURED         AT MOST               FLOOR    PEER     OURS     RATIO (MIN TO MAX)",
                "G1    hop              1.00 ms, 0.50 x peer  0.25 ms  2.00 ms  0.50 ms  0.25 (0.25 to 0.25)",
                "G5    deletes          3                                       4",
                "G5    not of the goal                                          9",
                "",
                "two cores",
                "goal G1: met; hop: goal 1.00 ms, 0.50 x peer, ours 0.50 ms, floor 0.25 ms, peer 2.00 ms, ratio 0.25 \
                 (0.25 to 0.25)",
                "goal G5: missed; deletes: goal 3, ours 4, floor none, peer none, ratio none",
            ]
        );
    }
}
