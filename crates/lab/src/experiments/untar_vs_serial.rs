//! `untar` against local extraction and against one file at a time: the demo with its claims.

use super::{Check, Choices, Findings, Progress, Row};
use crate::demo::{self, DemoOptions, Emulation};
use crate::error::{Error, Result};

/// How many times as fast as the honest other server `untar` on Landfast is: as the same client there, and as one operation at a time.
const PEER_UNTAR_MIN: f64 = 20.0;
const PEER_MIN: f64 = 100.0;

pub(super) fn run(_choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
    let report = demo::run(&DemoOptions::default(), &mut |p| {
        if let demo::Progress::Doing(what) = p {
            progress(&what);
        }
    })?;
    if report.emulation != Emulation::Disk {
        return Err(Error::Unable(format!("flushes cannot be counted: {}", report.notes.join("; "))));
    }
    let row =
        |name: &str| report.row(name).ok_or_else(|| Error::Unable(format!("the demo has no row `{name}`")));
    let (local, sync, untar) = (row("local")?, row("sync")?, row("untar")?);
    let mut checks = vec![
        Check::at_least("untar, times as fast as sync", untar.files_per_s / sync.files_per_s, 100.0),
        Check::at_least("untar, share of the speed of local", untar.files_per_s / local.files_per_s, 0.5),
        Check::at_most("untar, RPCs per file", untar.rpcs_per_file, 0.1),
        Check::at_most("untar, log flushes per file", untar.log_flushes_per_file.unwrap_or(f64::NAN), 0.1),
        Check::of_data(
            "differences between tree and archive after a power cut",
            report.verified.differences as f64,
            0.0,
        ),
        Check::of_data(
            "rows that lost what they promised to keep",
            report.broken_promises().count() as f64,
            0.0,
        ),
    ];
    let headline = report.headline();
    let beside = |peer: Option<demo::Row>, client: &str, least: f64| {
        let what = format!("untar, times as fast as {client} on nfs-ganesha on XFS wsync");
        peer.map(|peer| Check::at_least(&what, untar.files_per_s / peer.files_per_s, least))
    };
    if let Some(headline) = headline {
        checks.extend(beside(headline.peer_untar, "untar", PEER_UNTAR_MIN));
        checks.extend(beside(headline.peer, "one operation at a time", PEER_MIN));
    }
    Ok(Findings {
        terms: Some(report.terms),
        lines: report.rows.iter().map(line).collect(),
        checks,
        notes: report.notes,
    })
}

fn line(row: &demo::Row) -> Row {
    Row::new(
        &row.name,
        [
            ("files_per_s", row.files_per_s),
            ("limit_files_per_s", row.limit_files_per_s),
            ("rpcs_per_file", row.rpcs_per_file),
            ("disk_flushes_per_file", row.disk_flushes_per_file.unwrap_or(f64::NAN)),
            ("log_flushes_per_file", row.log_flushes_per_file.unwrap_or(f64::NAN)),
            ("files", row.files as f64),
            ("lost_files", row.lost.map_or(f64::NAN, |lost| lost.files() as f64)),
        ],
    )
}
