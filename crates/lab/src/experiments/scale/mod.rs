//! What grows when something else does: clients, directories, trees, exports, logs; and what neighbours cost. A row for each size, with
//! throughput, latencies, memory, the time of a start and of a recovery; for each series the exponents of growth, and claims about them.
//!
//! All but the logs of `logs` is in memory, so nothing waits for a disk and what is seen is the server's own work. Other work of
//! the machine is seen as well; the exponents go over three powers of ten, so that a factor of two at one size changes one by 0.1 or
//! less.

mod clients;
mod directories;
mod exports;
mod growth;
mod logs;
mod neighbours;
mod trees;

pub(crate) use growth::exponent;

use super::{Check, Choices, Findings, Progress, mebibytes};
use crate::error::Result;
use crate::latencies::Latencies;
use crate::served::{ServeOptions, Served};
use landfast_nfs::v4::args::{CreateArgs, CreateType};
use landfast_nfs::v4::attr::AttrValues;
use landfast_nfs::v4::{ArgOp, FileHandle};
use landfast_xdr::Bytes;

/// The largest exponent of a figure that is claimed to be flat.
const FLAT_MAX: f64 = 0.1;

/// A series: its name, and what measures it.
type Series = (&'static str, fn(&Choices, Progress<'_>) -> Result<Findings>);

const ALL: [Series; 6] = [
    ("clients", run_clients),
    ("directories", run_directories),
    ("trees", run_trees),
    ("exports", run_exports),
    ("logs", run_logs),
    ("neighbours", run_neighbours),
];

/// A figure at each size.
type Figure = Vec<(f64, f64)>;

/// All series at their usual sizes.
pub(super) fn run(_: &Choices, progress: Progress<'_>) -> Result<Findings> {
    let mut all = Findings::default();
    for (name, series) in ALL {
        let found = series(&Choices::default(), &mut |what| progress(&format!("{name}: {what}")))?;
        all.lines.extend(found.lines);
        all.checks.extend(found.checks);
        all.notes.extend(found.notes);
    }
    Ok(all)
}

macro_rules! series {
    ($run:ident, $series:ident) => {
        pub(super) fn $run(choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
            crate::namespace::run_private(|| $series::measure(choices.files, progress))?
        }
    };
}

series!(run_clients, clients);
series!(run_directories, directories);
series!(run_trees, trees);
series!(run_exports, exports);
series!(run_logs, logs);
series!(run_neighbours, neighbours);

/// A claim that a figure does not grow with the size.
fn flat(what: &str, points: &[(f64, f64)]) -> Check {
    Check::at_most(&format!("exponent of growth, {what}"), growth::exponent(points), FLAT_MAX)
}

/// Starts a server and waits until it has answered a call: it takes connections before it has restored the clients' state.
fn start(options: &ServeOptions) -> Result<Served> {
    Served::start_or_stop(options).map(|(server, _)| server)
}

/// The latencies of the round with the least median.
#[derive(Default)]
struct BestOf(Option<Latencies>);

impl BestOf {
    fn add(&mut self, round: Latencies) {
        if self.0.as_ref().is_none_or(|best| round.us(0.5) < best.us(0.5)) {
            self.0 = Some(round);
        }
    }

    /// As [`Latencies::us`]; 0 without a round.
    fn us(&self, part: f64) -> f64 {
        self.0.as_ref().map_or(0.0, |best| best.us(part))
    }
}

/// The operations that make a directory.
fn dir_ops(parent: &FileHandle, name: Bytes) -> Vec<ArgOp> {
    let attrs = AttrValues { mode: Some(0o755), ..AttrValues::default() };
    let make = CreateArgs { kind: CreateType::Dir, name, attrs: attrs.to_fattr(&AttrValues::KNOWN) };
    vec![ArgOp::Putfh(parent.clone()), ArgOp::Create(make), ArgOp::Getfh]
}

/// A number below `count` for each `n`, in an order without neighbours.
fn scattered(n: u64, count: u64) -> u64 {
    // The constant of Fibonacci hashing (Knuth, volume 3, section 6.4).
    (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % count.max(1)
}
