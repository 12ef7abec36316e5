//! What the demo is given and what it says: rows, and the archive that they are measured with.

use crate::error::{Context, Error, Result};
use crate::measure::Terms;
use crate::tarball::{self, Shape};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What to demonstrate.
#[derive(Debug, Clone)]
pub struct DemoOptions {
    /// The archive, compressed or not; else 4,096 random files of 4 KiB.
    pub archive: Option<PathBuf>,
    /// Flush latency of the data disk.
    pub flush: Duration,
    /// Flush latency of the log disk.
    pub log_flush: Duration,
    /// Round trip of the network.
    pub rtt: Duration,
}

impl Default for DemoOptions {
    fn default() -> Self {
        DemoOptions {
            archive: None,
            flush: Duration::from_millis(10),
            log_flush: Duration::from_micros(50),
            rtt: Duration::from_micros(200),
        }
    }
}

/// How latencies were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Emulation {
    /// Emulated disks; flushes are counted at the device.
    Disk,
    /// Injected at the sync calls of volume and log.
    Injected,
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// `local`, `sync`, `log`, `unsafe`, `untar`.
    pub name: String,
    /// What was acknowledged survives a power cut.
    pub durable: bool,
    /// Regular files in the archive.
    pub files: u64,
    /// Seconds for all of them; estimated when `estimated`.
    pub seconds: f64,
    /// Files per second.
    pub files_per_s: f64,
    /// RPCs per file; 0 for `local`.
    pub rpcs_per_file: f64,
    /// Flushes of the data disk per file; absent where they cannot be counted.
    pub disk_flushes_per_file: Option<f64>,
    /// Flushes of the log disk per file; absent where they cannot be counted.
    pub log_flushes_per_file: Option<f64>,
    /// Files per second that the equation allows at best.
    pub limit_files_per_s: f64,
    /// Whether `seconds` is extrapolated from `measured_files`.
    pub estimated: bool,
    /// Files that were really extracted.
    pub measured_files: u64,
}

/// The tree of `untar` against the archive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// Members compared.
    pub members: u64,
    /// Bytes compared.
    pub bytes: u64,
    /// Differences; 0 when all is well.
    pub differences: u64,
    /// The first differences.
    pub shown: Vec<String>,
    /// The power of both disks was cut before, right after `untar` returned.
    pub after_power_cut: bool,
}

/// All of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DemoReport {
    /// The archive's name, or a description of the built-in one.
    pub archive: String,
    /// Regular files in it.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Asked for: flush latency of the data disk in milliseconds.
    pub flush_ms: f64,
    /// Asked for: flush latency of the log disk in milliseconds.
    pub log_flush_ms: f64,
    /// Asked for: round trip in milliseconds.
    pub rtt_ms: f64,
    /// How latencies were made.
    pub emulation: Emulation,
    /// What the reader has to know about it.
    pub notes: Vec<String>,
    /// The measured terms of the equation.
    pub terms: Terms,
    /// The table.
    pub rows: Vec<Row>,
    /// The check at the end.
    pub verified: Verified,
    /// Seconds that all of it took.
    pub total_s: f64,
}

impl DemoReport {
    /// The row of this name.
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|r| r.name == name)
    }
}

/// What a caller hears while the demo runs.
#[derive(Debug, Clone)]
pub enum Progress {
    /// What is being done now.
    Doing(String),
    /// A row is measured.
    Row(Row),
}

/// The archive as a plain tar, which all peers get.
#[derive(Debug)]
pub(super) struct Archive {
    pub(super) name: String,
    pub(super) plain: PathBuf,
    pub(super) files: u64,
    pub(super) bytes: u64,
}

impl Archive {
    pub(super) fn prepare(given: Option<&Path>, scratch: &Path) -> Result<Self> {
        let plain = scratch.join("archive.tar");
        let what = || format!("write {}", plain.display());
        let mut out = BufWriter::new(File::create(&plain).context(what)?);
        let name = match given {
            None => {
                let shape = Shape::default();
                tarball::write_random(shape, &mut out).context(what)?;
                format!("{} files of {} bytes, random", shape.files, shape.file_bytes)
            }
            Some(path) => {
                let file = File::open(path).context(|| format!("open {}", path.display()))?;
                let (_, mut tar) = landfast_client::archive::open(Box::new(file))
                    .map_err(|e| Error::Unable(format!("{}: {e}", path.display())))?;
                std::io::copy(&mut tar, &mut out).context(|| format!("decompress {}", path.display()))?;
                path.display().to_string()
            }
        };
        out.flush().context(what)?;
        drop(out);
        let (mut files, mut bytes) = (0, 0);
        let tar = File::open(&plain).context(what)?;
        tarball::read(BufReader::new(tar), |m| {
            if let tarball::Kind::File(data) = m.kind {
                files += 1;
                bytes += data.len() as u64;
            }
            Ok(std::ops::ControlFlow::Continue(()))
        })?;
        if files == 0 {
            return Err(Error::Unable(format!("{name}: no regular file in it, nothing to measure")));
        }
        Ok(Archive { name, plain, files, bytes })
    }

    pub(super) fn open(&self) -> Result<BufReader<File>> {
        let file = File::open(&self.plain).context(|| format!("open {}", self.plain.display()))?;
        Ok(BufReader::new(file))
    }

    pub(super) fn report(&self, options: &DemoOptions, emulation: Emulation, terms: Terms) -> DemoReport {
        let ms = crate::measure::ms;
        DemoReport {
            archive: self.name.clone(),
            files: self.files,
            bytes: self.bytes,
            flush_ms: ms(options.flush),
            log_flush_ms: ms(options.log_flush),
            rtt_ms: ms(options.rtt),
            emulation,
            notes: Vec::new(),
            terms,
            rows: Vec::new(),
            verified: Verified::default(),
            total_s: 0.0,
        }
    }
}

/// What is counted while a row is measured.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Flushes {
    pub(super) data: Option<u64>,
    pub(super) log: Option<u64>,
}

/// One row from what a peer took.
pub(super) fn row(
    name: &str,
    durable: bool,
    archive: &Archive,
    taken: &crate::measure::Taken,
    flushes: Flushes,
) -> Row {
    let measured = taken.files.max(1) as f64;
    let per_s = taken.files as f64 / taken.seconds.max(1e-9);
    Row {
        name: name.to_owned(),
        durable,
        files: archive.files,
        seconds: if taken.complete { taken.seconds } else { archive.files as f64 / per_s.max(1e-9) },
        files_per_s: per_s,
        rpcs_per_file: taken.rpcs as f64 / measured,
        disk_flushes_per_file: flushes.data.map(|n| n as f64 / measured),
        log_flushes_per_file: flushes.log.map(|n| n as f64 / measured),
        limit_files_per_s: 0.0,
        estimated: !taken.complete,
        measured_files: taken.files,
    }
}
