//! The server's memory while a very long archive is extracted: bounded, whatever the number of files.
//!
//! The archive is a stream that is made while it is extracted. The volume is a directory of this
//! machine's own disk: a million files would take too much of the memory that an emulated disk
//! lives in, and latencies do not matter here.

use super::{Check, Choices, Findings, Progress, Row};
use crate::error::{Context, Error, Result};
use crate::measure::Untarred;
use crate::served::{Durability, ServeOptions, Served};
use crate::tarball::{Shape, write_random};
use std::io::BufWriter;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Files, unless chosen otherwise; the claim is about 1,000,000.
const FILES: u64 = 20_000;

const FILE_BYTES: usize = 1024;

/// Peak resident memory that is claimed at most, in MiB. What bounds it: requests in work (their
/// number and bytes, the server's `limits`), the log's open batches, the sessions' replies kept for
/// replay, and the caches of nodes and change attributes; none of them grows with the tree.
const PEAK_MIB_MAX: f64 = 512.0;

const LOG_BYTES: u64 = 256 << 20;

/// How often the server's memory is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(super) fn run(choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
    crate::machine::needs_root()?;
    let files = choices.files.unwrap_or(FILES);
    let mut lines = Vec::new();
    let mut peaks = Vec::new();
    for files in [files / 10, files] {
        progress(&format!("extracting {files} files"));
        let (taken, peak_bytes) = extract(files)?;
        let peak_mib = peak_bytes as f64 / f64::from(1 << 20);
        peaks.push(peak_mib);
        lines.push(Row::new(
            &format!("{files} files"),
            [
                ("files", taken.files as f64),
                ("seconds", taken.seconds),
                ("files_per_s", taken.files as f64 / taken.seconds),
                ("peak_rss_mib", peak_mib),
            ],
        ));
    }
    let peak = peaks.last().copied().unwrap_or(0.0);
    let checks = vec![
        Check::of_data("files that are there", lines[1].values["files"], files as f64),
        Check::at_most("peak memory of the server in MiB", peak, PEAK_MIB_MAX),
    ];
    let notes = vec!["the volume is on this machine's own disk".to_owned()];
    Ok(Findings { lines, checks, notes, ..Findings::default() })
}

/// Extracts a stream of so many files. Returns the server's peak memory.
fn extract(files: u64) -> Result<(Untarred, u64)> {
    let dir = crate::machine::scratch_dir("landfast-memory-")?;
    let export = dir.path().join("export");
    std::fs::create_dir(&export).context(|| format!("create {}", export.display()))?;
    let server = Served::start(&ServeOptions {
        log_bytes: Some(LOG_BYTES),
        ..ServeOptions::new(&export, Some(&dir.path().join("log")), Durability::Log)
    })?;
    let exe = crate::machine::exe()?;
    let start = Instant::now();
    let mut untar = Command::new(exe)
        .args(["untar", "-", &format!("nfs://{}/", server.addr()), "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context(|| "run `landfast untar`".to_owned())?;
    let stdin = untar.stdin.take();
    let feeder = std::thread::spawn(move || {
        let shape = Shape { files, file_bytes: FILE_BYTES, per_dir: 256, seed: 9 };
        // When the client ends early its exit status tells why.
        stdin.map(|pipe| write_random(shape, BufWriter::with_capacity(1 << 20, pipe)))
    });
    let mut peak = 0;
    while !feeder.is_finished() {
        peak = peak.max(server.peak_rss_bytes().unwrap_or(0));
        std::thread::sleep(LOOK_EVERY);
    }
    let out = untar.wait_with_output().context(|| "wait for `landfast untar`".to_owned())?;
    let seconds = start.elapsed().as_secs_f64();
    peak = peak.max(server.peak_rss_bytes().unwrap_or(0));
    server.stop()?;
    if !out.status.success() {
        return Err(Error::Tool {
            command: "landfast untar -".into(),
            status: out.status.to_string(),
            stderr: String::from_utf8_lossy(&out.stderr).chars().take(2000).collect(),
        });
    }
    Ok((Untarred { files: count_files(&export)?, seconds, complete: true, ..Untarred::default() }, peak))
}

/// Regular files below a directory, without the server's own.
pub(super) fn count_files(root: &std::path::Path) -> Result<u64> {
    let mut count = 0;
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).context(|| format!("read {}", dir.display()))? {
            let entry = entry.context(|| format!("read {}", dir.display()))?;
            let kind = entry.file_type().context(|| format!("read {}", dir.display()))?;
            if kind.is_dir() && entry.file_name() != ".landfast" {
                dirs.push(entry.path());
            }
            count += u64::from(kind.is_file());
        }
    }
    Ok(count)
}
