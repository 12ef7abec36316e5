//! What the demo is given and what it says: rows, and the archive that they are measured with.

use crate::error::{Context, Error, Result};
use crate::measure::{Terms, Untarred};
use crate::served::Durability;
use crate::tarball::{self, Shape};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct DemoOptions {
    /// The archive, compressed or not; else 4,096 random files of 4 KiB.
    pub archive: Option<PathBuf>,
    pub flush: Duration,
    pub log_flush: Duration,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Emulation {
    /// Emulated disks; flushes are counted at the device.
    Disk,
    /// Injected at the sync calls of volume and log.
    Injected,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// `local`, `sync`, `log`, `unsafe`, `untar`.
    pub name: String,
    /// What was acknowledged survives a power cut.
    pub durable: bool,
    pub files: u64,
    /// Seconds for all of them; estimated when `estimated`.
    pub seconds: f64,
    pub files_per_s: f64,
    pub rpcs_per_file: f64,
    /// Flushes of the data disk per file; absent where they cannot be counted.
    pub disk_flushes_per_file: Option<f64>,
    /// Flushes of the log disk per file; absent where they cannot be counted.
    pub log_flushes_per_file: Option<f64>,
    /// Files per second that the equation allows at best.
    pub limit_files_per_s: f64,
    pub estimated: bool,
    /// Files that were really extracted.
    pub measured_files: u64,
}

/// The tree of `untar` against the archive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    pub members: u64,
    pub bytes: u64,
    /// Differences; 0 when all is well.
    pub differences: u64,
    pub shown: Vec<String>,
    /// The power of both disks was cut before, right after `untar` returned.
    pub after_power_cut: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DemoReport {
    /// The archive's name, or a description of the built-in one.
    pub archive: String,
    pub files: u64,
    pub bytes: u64,
    /// Asked for: flush latency of the data disk in milliseconds.
    pub flush_ms: f64,
    /// Asked for: flush latency of the log disk in milliseconds.
    pub log_flush_ms: f64,
    /// Asked for: round trip in milliseconds.
    pub rtt_ms: f64,
    pub emulation: Emulation,
    /// What the reader has to know about it.
    pub notes: Vec<String>,
    pub terms: Terms,
    pub rows: Vec<Row>,
    pub verified: Verified,
    pub total_s: f64,
}

impl DemoReport {
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|r| r.name == name)
    }
}

#[derive(Debug, Clone)]
pub enum Progress {
    Doing(String),
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

    /// The row of a local `tar -x` and a sync.
    pub(super) fn local_row(&self, terms: &Terms, took: Duration, flushes: Flushes) -> Row {
        let seconds = took.as_secs_f64();
        let taken = Untarred { files: self.files, seconds, complete: true, ..Untarred::default() };
        let mut row = row("local", true, self, &taken, flushes);
        let ms = terms.syscalls_ms + terms.data_write_ms / self.files as f64;
        row.limit_files_per_s = 1000.0 / ms.max(1e-9);
        row
    }

    /// The row of a client that does one thing at a time over NFS.
    pub(super) fn serial_row(
        &self,
        name: &str,
        durability: Durability,
        terms: &Terms,
        taken: &Untarred,
        flushes: Flushes,
    ) -> Row {
        let mut row = row(name, durability != Durability::Unsafe, self, taken, flushes);
        let persistence_ms = match durability {
            Durability::Sync => terms.data_write_ms,
            Durability::Log => terms.log_write_ms,
            Durability::Unsafe => 0.0,
        };
        let synchronous = taken.modifying_rpcs as f64 / taken.files.max(1) as f64;
        row.limit_files_per_s = terms.limit(row.rpcs_per_file, synchronous, persistence_ms);
        row
    }

    /// Compares an extracted tree with the archive.
    pub(super) fn verify(&self, tree: &Path, after_power_cut: bool) -> Result<Verified> {
        let c = crate::verify::compare(self.open()?, tree)?;
        let (members, bytes, differences, shown) = (c.members, c.bytes, c.differences, c.shown);
        Ok(Verified { members, bytes, differences, shown, after_power_cut })
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

/// Time that one of the slow rows may take before it is estimated from what is done.
pub(super) const ROW_TIME: Duration = Duration::from_secs(12);

pub(super) fn push(report: &mut DemoReport, row: Row, progress: &mut (dyn FnMut(Progress) + Send)) {
    progress(Progress::Row(row.clone()));
    report.rows.push(row);
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Flushes {
    pub(super) data: Option<u64>,
    pub(super) log: Option<u64>,
}

pub(super) fn row(name: &str, durable: bool, archive: &Archive, taken: &Untarred, flushes: Flushes) -> Row {
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
