//! `untar` against local extraction and against one file at a time: the demo with its claims.

use super::{Check, Choices, Findings, Hear, Line, Relation};
use crate::demo::{self, DemoOptions, Emulation, Progress, Row};
use crate::error::{Error, Result};

pub(super) fn run(_choices: &Choices, hear: Hear<'_>) -> Result<Findings> {
    let report = demo::run(&DemoOptions::default(), &mut |p| {
        if let Progress::Doing(what) = p {
            hear(&what);
        }
    })?;
    if report.emulation != Emulation::Disk {
        return Err(Error::Unable(format!("flushes cannot be counted: {}", report.notes.join("; "))));
    }
    let row =
        |name: &str| report.row(name).ok_or_else(|| Error::Unable(format!("the demo has no row `{name}`")));
    let (local, sync, untar) = (row("local")?, row("sync")?, row("untar")?);
    let checks = vec![
        Check::new(
            "untar, times as fast as sync",
            untar.files_per_s / sync.files_per_s,
            Relation::AtLeast,
            100.0,
        ),
        Check::new(
            "untar, share of the speed of local",
            untar.files_per_s / local.files_per_s,
            Relation::AtLeast,
            0.5,
        ),
        Check::new("untar, RPCs per file", untar.rpcs_per_file, Relation::AtMost, 0.1),
        Check::new(
            "untar, log flushes per file",
            untar.log_flushes_per_file.unwrap_or(f64::NAN),
            Relation::AtMost,
            0.1,
        ),
        Check::new(
            "differences between tree and archive after a power cut",
            report.verified.differences as f64,
            Relation::Exactly,
            0.0,
        ),
    ];
    Ok(Findings {
        terms: Some(report.terms),
        lines: report.rows.iter().map(line).collect(),
        checks,
        notes: report.notes,
    })
}

fn line(row: &Row) -> Line {
    Line::new(
        &row.name,
        [
            ("files_per_s", row.files_per_s),
            ("limit_files_per_s", row.limit_files_per_s),
            ("rpcs_per_file", row.rpcs_per_file),
            ("disk_flushes_per_file", row.disk_flushes_per_file.unwrap_or(f64::NAN)),
            ("log_flushes_per_file", row.log_flushes_per_file.unwrap_or(f64::NAN)),
            ("measured_files", row.measured_files as f64),
        ],
    )
}
