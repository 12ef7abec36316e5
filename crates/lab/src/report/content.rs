//! What the report contains: for each row a table, a picture, claims, and what could not be measured. It is kept as JSON; the command
//! line draws it.

use crate::experiments::Check;
use crate::measure::Terms;
use serde::{Deserialize, Serialize};

/// The form of the kept files. A file of another form is measured again.
pub const FORM: u32 = 1;

/// Whose figure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whose {
    Ours,
    /// Another server or client that keeps what it acknowledges.
    Peer,
    /// A local filesystem, without NFS.
    Local,
    /// What is acknowledged can be lost.
    NotDurable,
}

/// How a column's figures are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Objects or requests.
    Count,
    PerSecond,
    Seconds,
    Milliseconds,
    Microseconds,
    MiB,
    /// So many times another figure.
    Times,
    /// A part of a whole, 0 to 1.
    Share,
    /// So many for each file, or for each of something else.
    Each,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Column {
    pub name: String,
    pub unit: Unit,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    pub name: String,
    pub whose: Whose,
    /// One for each column; `None` where there is no such figure.
    pub values: Vec<Option<f64>>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// What the first column has.
    pub first: String,
    pub columns: Vec<Column>,
    pub lines: Vec<Line>,
}

impl Table {
    pub fn new<const N: usize>(first: &str, columns: [(&str, Unit); N]) -> Table {
        let columns = columns.map(|(name, unit)| Column { name: name.to_owned(), unit });
        Table { first: first.to_owned(), columns: columns.into(), lines: Vec::new() }
    }

    pub fn add<const N: usize>(&mut self, name: &str, whose: Whose, values: [Option<f64>; N]) {
        let values = values.map(|v| v.filter(|v| v.is_finite()));
        self.lines.push(Line { name: name.to_owned(), whose, values: values.into() });
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// With its unit.
    pub name: String,
    pub log: bool,
}

impl Axis {
    pub fn log(name: &str) -> Axis {
        Axis { name: name.to_owned(), log: true }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    pub name: String,
    pub whose: Whose,
    pub value: f64,
    /// What the equation allows at best.
    pub limit: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    pub name: String,
    pub whose: Whose,
    pub points: Vec<(f64, f64)>,
    /// Series of one side have one tone, 0 to 7.
    pub tone: u8,
    /// What the equation allows, or a single figure beside others: it is drawn dashed, without points.
    pub is_limit: bool,
}

/// Series over one axis, with its heading.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    pub name: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
}

/// What takes most of the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    Network,
    Disk,
    /// What remains with the shortest round trip and the quickest disk.
    Processor,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    pub x: f64,
    pub y: f64,
    pub value: f64,
    pub bound: Bound,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Panel {
    pub name: String,
    pub whose: Whose,
    pub cells: Vec<Cell>,
}

/// One request of a client, with its reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Packet {
    /// The operations, in the protocol's words.
    pub what: String,
    /// How the data must be kept: `FILE_SYNC`, `UNSTABLE`, `COMMIT`; none of them: another request.
    pub stable: String,
    /// Bytes of the file in it.
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lane {
    pub name: String,
    pub whose: Whose,
    pub packets: Vec<Packet>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Picture {
    Bars { axis: Axis, bars: Vec<Bar> },
    Lines(Vec<Chart>),
    Map { x: Axis, y: Axis, value: String, panels: Vec<Panel> },
    Packets(Vec<Lane>),
}

impl Picture {
    /// A line for each way, over the round trip.
    pub fn by_round_trip(series: Vec<Series>) -> Picture {
        let name = "Files a second, by the round trip".to_owned();
        let (x, y) = (Axis::log("round trip in ms"), Axis::log("files a second"));
        Picture::Lines(vec![Chart { name, x, y, series }])
    }
}

/// What a row has found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// The measured terms of the equation, where the row uses them.
    pub terms: Option<Terms>,
    pub picture: Picture,
    pub table: Table,
    pub checks: Vec<Check>,
    /// Peers that could not run here, each with how to get it.
    pub absent: Vec<String>,
    pub notes: Vec<String>,
}

impl Found {
    pub fn new(picture: Picture, table: Table) -> Found {
        Found { terms: None, picture, table, checks: Vec::new(), absent: Vec::new(), notes: Vec::new() }
    }
}

/// The machine on which a row was measured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    pub kernel: String,
    pub processor: String,
    pub processors: u64,
    pub memory_bytes: u64,
}

/// A row as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    pub form: u32,
    pub row: u8,
    pub title: String,
    pub question: String,
    /// Which of the field's texts asked for it.
    pub source: String,
    /// The command that measures it again.
    pub command: String,
    /// Small sizes.
    pub quick: bool,
    /// Landfast's version.
    pub version: String,
    /// A hash of the program that measured it. What another one measured is measured again.
    pub program: String,
    pub machine: Machine,
    /// When it ended, in seconds since 1970.
    pub ended_s: u64,
    pub took_s: f64,
    /// How many processors had other work meanwhile, on average.
    #[serde(default)]
    pub others: Option<f64>,
    pub found: Found,
}

impl Kept {
    /// Whether the machine had so much other work that the row's times say little.
    pub fn was_busy(&self) -> bool {
        self.others.is_some_and(|others| crate::busy::was_busy(others, self.machine.processors))
    }

    pub fn holds(&self) -> bool {
        self.found.checks.iter().all(|check| check.holds)
    }
}

/// A row without figures, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    pub row: u8,
    pub title: String,
    pub question: String,
    pub why: String,
    /// It was begun and failed; otherwise it could not run here, or there was no time.
    pub failed: bool,
}

/// The whole report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub rows: Vec<Kept>,
    pub left: Vec<Left>,
}

impl Report {
    /// Whether all claims hold and nothing has failed.
    pub fn holds(&self) -> bool {
        self.rows.iter().all(Kept::holds) && !self.left.iter().any(|left| left.failed)
    }
}
