//! How far predictions were off when they were tested.

use super::Kind;
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

/// The unchanged output of `landfast lab run predicted --json` and of `predicted-links`.
static STORED: LazyLock<Earned> = LazyLock::new(|| {
    let mut earned = Earned::parse(include_str!("earned.json"));
    earned.cases.extend(Earned::parse(include_str!("earned-links.json")).cases);
    earned
});

#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    pub kind: Kind,
    pub name: String,
    pub predicted_s: f64,
    pub measured_s: f64,
}

impl Case {
    /// The error of the prediction, relative to the measured value.
    pub fn error(&self) -> f64 {
        (self.predicted_s - self.measured_s) / self.measured_s
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Earned {
    cases: Vec<Case>,
}

/// The part of the experiment's report that is needed.
#[derive(Deserialize)]
struct Report {
    lines: Vec<Line>,
}

#[derive(Deserialize)]
struct Line {
    name: String,
    values: Values,
}

#[derive(Deserialize, Serialize)]
struct Values {
    predicted_s: f64,
    measured_s: f64,
}

impl Earned {
    /// The cases that are built into the program.
    pub fn stored() -> &'static Earned {
        &STORED
    }

    pub fn of(cases: Vec<Case>) -> Earned {
        Earned { cases }
    }

    /// Parses the experiment's report. A line's name begins with the kind, followed by a colon.
    fn parse(json: &str) -> Earned {
        let report: Report = serde_json::from_str(json).unwrap_or(Report { lines: Vec::new() });
        let case = |line: Line| {
            let (kind, name) = line.name.split_once(": ")?;
            let kind = Kind::ALL.into_iter().find(|k| k.name() == kind)?;
            let Values { predicted_s, measured_s } = line.values;
            Some(Case { kind, name: name.to_owned(), predicted_s, measured_s })
        };
        Earned { cases: report.lines.into_iter().filter_map(case).collect() }
    }

    pub fn cases(&self) -> &[Case] {
        &self.cases
    }

    pub fn tried(&self, kind: Kind) -> usize {
        self.cases.iter().filter(|c| c.kind == kind).count()
    }

    /// The 90th percentile of the relative errors of this kind. With up to ten cases this is the largest. `None`:
    /// none was tested.
    pub fn within(&self, kind: Kind) -> Option<f64> {
        let mut errors: Vec<f64> =
            self.cases.iter().filter(|c| c.kind == kind).map(|c| c.error().abs()).collect();
        errors.sort_unstable_by(f64::total_cmp);
        errors.get((errors.len() * 9).div_ceil(10).checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_was_right_within_20_percent_in_all_its_cases() {
        let stored = Earned::stored();
        let lines = |text| -> usize {
            let report: serde_json::Value = serde_json::from_str(text).unwrap();
            report["lines"].as_array().map_or(0, Vec::len)
        };
        let first = lines(include_str!("earned.json"));
        let all = first + lines(include_str!("earned-links.json"));
        assert_eq!(stored.cases().len(), all, "a line is not understood");
        assert!(first >= 10);
        for case in &stored.cases()[..first] {
            assert!(case.error().abs() <= 0.20, "{case:?}");
        }
        let untried = [Kind::Delegations, Kind::Link, Kind::Server];
        for kind in Kind::ALL.into_iter().filter(|kind| !untried.contains(kind)) {
            assert!(stored.within(kind).is_some_and(|part| part > 0.0), "{}", kind.name());
        }
    }

    #[test]
    fn the_error_bar_is_the_90th_percentile_of_its_kind() {
        let case = |kind, percent: u32| Case {
            kind,
            name: String::new(),
            predicted_s: 1.0 + f64::from(percent) / 100.0,
            measured_s: 1.0,
        };
        let mut cases: Vec<_> = (1..=20).map(|n| case(Kind::Streams, n)).collect();
        cases.extend([case(Kind::Now, 3), case(Kind::Now, 7)]);
        let earned = Earned::of(cases);
        let near = |kind, expected: f64| (earned.within(kind).unwrap() - expected).abs() < 1e-9;
        assert!(near(Kind::Streams, 0.18));
        assert!(near(Kind::Now, 0.07));
        assert_eq!(earned.within(Kind::Compound), None);
    }
}
