//! What an experiment is given, and what it says: figures, claims, notes. Helpers that several use.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use landfast_client::fs::Nfs;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, WRONG_DATA};
use crate::measure::Terms;
use crate::serial::{Action, Actor, Node};

#[derive(Debug, Clone, Default)]
pub struct Choices {
    /// How many files; each experiment has a default that takes seconds.
    pub files: Option<u64>,
    /// Programs to be measured beside ([`crate::peers::program`]).
    pub peers: Vec<std::path::PathBuf>,
    /// Round trips of the network in milliseconds, for experiments that vary them; none: the usual ones.
    pub round_trips_ms: Vec<f64>,
    /// The same of a disk's flush.
    pub flushes_ms: Vec<f64>,
    /// Only these parts of the experiment; none: all.
    pub only: Vec<String>,
    /// Options for `landfast mount`, as `-o` takes them.
    pub mount_options: String,
}

/// Called with a line about what an experiment is doing now.
pub type Progress<'a> = &'a mut (dyn FnMut(&str) + Send);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub name: String,
    pub values: BTreeMap<String, f64>,
}

impl Choices {
    /// The round trips to measure at: `usual` unless others were chosen.
    pub(super) fn round_trips(&self, usual: &[f64]) -> Vec<f64> {
        if self.round_trips_ms.is_empty() { usual.to_vec() } else { self.round_trips_ms.clone() }
    }
}

impl Row {
    pub(super) fn new<const N: usize>(name: &str, values: [(&str, f64); N]) -> Self {
        Row { name: name.to_owned(), values: values.map(|(k, v)| (k.to_owned(), v)).into() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    AtLeast,
    AtMost,
    Exactly,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    pub what: String,
    pub value: f64,
    pub relation: Relation,
    pub bound: f64,
    pub holds: bool,
    /// Where it does not hold, data was lost or is wrong.
    #[serde(default)]
    pub is_of_data: bool,
}

impl Check {
    pub(crate) fn at_least(what: &str, value: f64, bound: f64) -> Self {
        Check::new(what, value, Relation::AtLeast, bound)
    }

    pub(crate) fn at_most(what: &str, value: f64, bound: f64) -> Self {
        Check::new(what, value, Relation::AtMost, bound)
    }

    pub(crate) fn exactly(what: &str, value: f64, bound: f64) -> Self {
        Check::new(what, value, Relation::Exactly, bound)
    }

    /// The same of data: where it does not hold, data was lost or is wrong.
    pub(crate) fn of_data(what: &str, value: f64, bound: f64) -> Self {
        Check { is_of_data: true, ..Check::exactly(what, value, bound) }
    }

    /// How a line with this claim begins.
    pub fn verdict(&self) -> String {
        match (self.holds, self.is_of_data) {
            (true, _) => "holds:".to_owned(),
            (false, false) => "DOES NOT HOLD:".to_owned(),
            (false, true) => format!("DOES NOT HOLD: {WRONG_DATA}:"),
        }
    }

    fn new(what: &str, value: f64, relation: Relation, bound: f64) -> Self {
        let holds = match relation {
            Relation::AtLeast => value >= bound,
            Relation::AtMost => value <= bound,
            Relation::Exactly => value == bound,
        };
        Check { what: what.to_owned(), value, relation, bound, holds, is_of_data: false }
    }
}

#[derive(Debug, Clone, Default)]
pub struct Findings {
    pub(super) terms: Option<Terms>,
    pub(super) lines: Vec<Row>,
    pub(super) checks: Vec<Check>,
    pub(super) notes: Vec<String>,
}

pub(crate) fn client_failed(e: &dyn std::fmt::Display) -> Error {
    Error::Protocol(format!("the client library: {e}"))
}

/// Connects the client library to a server's root.
pub(crate) async fn connect(addr: SocketAddr) -> Result<Nfs> {
    let url = format!("nfs://{addr}/").parse().map_err(|e| client_failed(&e))?;
    Nfs::connect(&url).await.map_err(|e| client_failed(&e))
}

pub(crate) fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

pub(crate) fn middle(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Connects a client that works in a directory of its own.
pub(crate) fn actor(addr: SocketAddr, n: u64) -> Result<Actor> {
    let mut actor = Actor::connect(addr, format!("client {n}"), "/")?;
    let dir = format!("client{n}").into_bytes();
    actor.perform(&Action::Make { path: dir.clone(), node: Node::Dir, mode: 0o755 })?;
    let own = actor.handle(&dir)?;
    Ok(Actor::new(actor.into_session(), own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_knows_whether_it_holds() {
        assert!(Check::new("x", 1.0, Relation::AtLeast, 1.0).holds);
        assert!(!Check::new("x", 1.1, Relation::AtMost, 1.0).holds);
        assert!(!Check::new("x", 0.9, Relation::Exactly, 1.0).holds);
        assert_eq!(Check::of_data("files lost", 0.0, 0.0).verdict(), "holds:");
        assert_eq!(Check::of_data("files lost", 1.0, 0.0).verdict(), "DOES NOT HOLD: WRONG DATA:");
    }
}
