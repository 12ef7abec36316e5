//! What the demo is given and what it says: rows, and the headline that is made of them.

use super::archive::Archive;
use super::lost::Lost;
use crate::busy;
use crate::error::Result;
use crate::measure::{Terms, Untarred};
use serde::{Deserialize, Serialize};
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

/// One way to extract the archive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// `local`, `ganesha-xfs`, `ganesha-xfs-untar`, `ganesha-ext4`, `sync`, `log`, `nfs-cp`, `unsafe`, `untar`.
    pub name: String,
    /// What is acknowledged is meant to survive a power cut.
    pub durable: bool,
    /// Files that were extracted.
    pub files: u64,
    /// Seconds for these.
    pub seconds: f64,
    pub files_per_s: f64,
    /// The whole archive was extracted, not as much as the row has time for.
    pub complete: bool,
    /// 0 where there are none.
    pub rpcs_per_file: f64,
    /// Flushes of the data disk per file; absent where they cannot be counted.
    pub disk_flushes_per_file: Option<f64>,
    /// Flushes of the log disk per file; absent where they cannot be counted.
    pub log_flushes_per_file: Option<f64>,
    /// Files per second that the equation allows at best.
    pub limit_files_per_s: f64,
    /// What a power cut right after the last acknowledgement took; absent where there was none.
    pub lost: Option<Lost>,
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

/// `untar` beside what else was measured in the same run, all in files a second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Headline {
    pub untar_files_per_s: f64,
    pub local_files_per_s: f64,
    /// The quickest other server that keeps its promise, with `untar` as well; absent where none was measured.
    pub peer_untar: Option<Row>,
    /// The same with a client that does one operation at a time.
    pub peer: Option<Row>,
    /// Landfast's own server without its log, one operation at a time.
    pub sync_files_per_s: f64,
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
    /// Why the times of this run are to be doubted; its counts are exact all the same.
    pub doubts: Vec<String>,
    pub total_s: f64,
}

/// A term above so many times what was asked for, and [`TERM_MORE_MS`], was disturbed.
const TERM_TIMES: f64 = 2.0;

/// What a term may take more than was asked for, in milliseconds: the way to an emulated device and back.
const TERM_MORE_MS: f64 = 0.2;

/// A row above so many times its limit shows that the limit's terms were disturbed.
const LIMIT_TIMES: f64 = 1.25;

impl DemoReport {
    pub(super) fn new(
        archive: &Archive,
        options: &DemoOptions,
        emulation: Emulation,
        terms: Terms,
    ) -> DemoReport {
        let ms = crate::measure::ms;
        DemoReport {
            archive: archive.name.clone(),
            files: archive.files,
            bytes: archive.bytes,
            flush_ms: ms(options.flush),
            log_flush_ms: ms(options.log_flush),
            rtt_ms: ms(options.rtt),
            emulation,
            notes: Vec::new(),
            terms,
            rows: Vec::new(),
            verified: Verified::default(),
            doubts: Vec::new(),
            total_s: 0.0,
        }
    }

    /// Looks for signs that the machine was disturbed. `others`: how many of its `processors` had other work on average.
    pub(super) fn doubt(&mut self, others: Option<f64>, processors: u64) {
        if let Some(others) = others.filter(|others| busy::was_busy(*others, processors)) {
            self.doubts
                .push(format!("other work took {others:.2} of this machine's {processors} processors"));
        }
        let terms = [
            ("a round trip", self.terms.rtt_ms, self.rtt_ms),
            ("a durable write to the log", self.terms.log_write_ms, self.log_flush_ms),
            ("a durable write to the disk", self.terms.data_write_ms, self.flush_ms),
        ];
        for (what, took, asked) in terms {
            if took > asked * TERM_TIMES + TERM_MORE_MS {
                self.doubts.push(format!("{what} took {took:.2} ms by itself, {asked} ms were asked for"));
            }
        }
        let above = |row: &&Row| row.files_per_s > row.limit_files_per_s * LIMIT_TIMES;
        for row in self.rows.iter().filter(above) {
            let times = row.files_per_s / row.limit_files_per_s.max(1e-9);
            self.doubts
                .push(format!("row {} made {times:.1} times as many files a second as its limit", row.name));
        }
    }

    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|r| r.name == name)
    }

    /// Absent when `untar`, `local` or `sync` was not measured.
    pub fn headline(&self) -> Option<Headline> {
        let per_s = |name| self.row(name).map(|row| row.files_per_s);
        let honest = |row: &&Row| {
            row.name.starts_with(PEER) && row.durable && row.lost.is_none_or(|lost| lost.files() == 0)
        };
        let best = |with_untar: bool| {
            let rows = self.rows.iter().filter(honest).filter(|row| row.is_untar() == with_untar);
            rows.max_by(|a, b| a.files_per_s.total_cmp(&b.files_per_s)).cloned()
        };
        Some(Headline {
            untar_files_per_s: per_s("untar")?,
            local_files_per_s: per_s("local")?,
            peer_untar: best(true),
            peer: best(false),
            sync_files_per_s: per_s("sync")?,
        })
    }

    /// Rows that are meant to keep what they acknowledge, and did not.
    pub fn broken_promises(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.durable && row.lost.is_some_and(|lost| lost.files() > 0))
    }

    pub(super) fn push(&mut self, row: Row, progress: &mut (dyn FnMut(Progress) + Send)) {
        progress(Progress::Row(row.clone()));
        self.rows.push(row);
    }

    /// The row of another's program, which need not run on every machine: then a note says why there is none.
    pub(super) fn push_peer(
        &mut self,
        what: &str,
        row: Result<Row>,
        progress: &mut (dyn FnMut(Progress) + Send),
    ) {
        match row {
            Ok(row) => self.push(row, progress),
            Err(why) => self.notes.push(format!("{what} is not measured: {why}")),
        }
    }
}

/// How the names of rows of another server begin.
const PEER: &str = "ganesha";

/// How the names of those rows end whose client is `untar`.
pub(super) const UNTAR_ON_PEER: &str = "-untar";

impl Row {
    /// Whether the client is `landfast untar`.
    fn is_untar(&self) -> bool {
        self.name == "untar" || self.name.ends_with(UNTAR_ON_PEER)
    }
}

#[derive(Debug, Clone)]
pub enum Progress {
    Doing(String),
    Row(Row),
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Flushes {
    pub(super) data: Option<u64>,
    pub(super) log: Option<u64>,
}

/// A row of these figures, with no limit yet.
pub(super) fn row(name: &str, durable: bool, taken: &Untarred, flushes: Flushes) -> Row {
    let per_file = |n: u64| n as f64 / taken.files.max(1) as f64;
    Row {
        name: name.to_owned(),
        durable,
        files: taken.files,
        seconds: taken.seconds,
        files_per_s: taken.files as f64 / taken.seconds.max(1e-9),
        complete: taken.complete,
        rpcs_per_file: per_file(taken.rpcs),
        disk_flushes_per_file: flushes.data.map(per_file),
        log_flushes_per_file: flushes.log.map(per_file),
        limit_files_per_s: 0.0,
        lost: None,
    }
}

/// The row of a local `tar -x` and a sync.
pub(super) fn local_row(archive: &Archive, terms: &Terms, took: Duration, flushes: Flushes) -> Row {
    let (files, seconds) = (archive.files, took.as_secs_f64());
    let mut row =
        row("local", true, &Untarred { files, seconds, complete: true, ..Untarred::default() }, flushes);
    let ms = terms.syscalls_ms + terms.data_write_ms / files as f64;
    row.limit_files_per_s = 1000.0 / ms.max(1e-9);
    row
}

/// The row of a client that does one thing at a time over NFS. `persistence_ms`: what it waits for at each call that changes
/// something; 0 if the server answers before anything is stable.
pub(super) fn serial_row(
    name: &str,
    durable: bool,
    terms: &Terms,
    taken: &Untarred,
    flushes: Flushes,
    persistence_ms: f64,
) -> Row {
    let mut row = row(name, durable, taken, flushes);
    let synchronous = taken.modifying_rpcs as f64 / taken.files.max(1) as f64;
    row.limit_files_per_s = terms.limit(row.rpcs_per_file, synchronous, persistence_ms);
    row
}

/// Compares an extracted tree with the archive.
pub(super) fn verify(archive: &Archive, tree: &Path, after_power_cut: bool) -> Result<Verified> {
    let c = crate::verify::compare(archive.open()?, tree)?;
    let (members, bytes, differences, shown) = (c.members, c.bytes, c.differences, c.shown);
    Ok(Verified { members, bytes, differences, shown, after_power_cut })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(rows: &[(&str, bool, f64, u64)]) -> DemoReport {
        let rows = rows.iter().map(|(name, durable, per_s, lost)| {
            let taken = Untarred { files: 100, seconds: 100.0 / per_s, ..Untarred::default() };
            let mut row = row(name, *durable, &taken, Flushes::default());
            row.lost = Some(Lost { acknowledged: 100, names: *lost, ..Lost::default() });
            row
        });
        DemoReport {
            archive: String::new(),
            files: 100,
            bytes: 0,
            flush_ms: 0.0,
            log_flush_ms: 0.0,
            rtt_ms: 0.0,
            emulation: Emulation::Disk,
            notes: Vec::new(),
            terms: Terms::default(),
            rows: rows.collect(),
            verified: Verified::default(),
            doubts: Vec::new(),
            total_s: 0.0,
        }
    }

    #[test]
    fn a_disturbed_run_is_doubted_and_says_why() {
        let doubts = |others, terms, limit| {
            let mut report = report(&[("log", true, 100.0, 0)]);
            (report.flush_ms, report.log_flush_ms, report.rtt_ms) = (10.0, 0.05, 0.2);
            report.terms = terms;
            report.rows[0].limit_files_per_s = limit;
            report.doubt(others, 2);
            report.doubts
        };
        let calm = Terms { rtt_ms: 0.21, log_write_ms: 0.13, data_write_ms: 10.4, syscalls_ms: 0.03 };
        assert_eq!(doubts(Some(0.1), calm, 150.0), Vec::<String>::new());
        assert_eq!(doubts(None, calm, 150.0), Vec::<String>::new());
        let busy = "other work took 1.50 of this machine's 2 processors";
        assert_eq!(doubts(Some(1.5), calm, 150.0), [busy]);
        let slow = "a durable write to the log took 5.14 ms by itself, 0.05 ms were asked for";
        assert_eq!(doubts(None, Terms { log_write_ms: 5.14, ..calm }, 150.0), [slow]);
        let above = "row log made 4.0 times as many files a second as its limit";
        assert_eq!(doubts(None, calm, 25.0), [above]);
    }

    #[test]
    fn the_headline_is_beside_the_quickest_peer_that_lost_nothing() {
        let own = [("local", true, 8000.0, 0), ("sync", true, 9.0, 0), ("untar", true, 4000.0, 0)];
        let peers = [
            ("ganesha-ext4", false, 80.0, 50),
            ("ganesha-xfs", true, 8.0, 0),
            ("ganesha-xfs-untar", true, 30.0, 0),
        ];
        let headline = report(&[&own[..], &peers[..]].concat()).headline().unwrap();
        let name = |row: Option<Row>| row.map(|row| row.name).unwrap_or_default();
        // With one operation at a time, and with the same client.
        assert_eq!([name(headline.peer), name(headline.peer_untar)], ["ganesha-xfs", "ganesha-xfs-untar"]);
        assert!((headline.untar_files_per_s / headline.local_files_per_s - 0.5).abs() < 1e-9);
        // A peer that broke its promise is none to be beside.
        let broken = [("ganesha-xfs", true, 8.0, 1)];
        let report = report(&[&own[..], &broken[..]].concat());
        let headline = report.headline().unwrap();
        assert_eq!((headline.peer, headline.peer_untar), (None, None));
        assert_eq!(report.broken_promises().count(), 1);
    }

    #[test]
    fn a_peer_that_does_not_run_is_a_note() {
        let mut report = report(&[]);
        let why = crate::error::Error::Unable("it ended".into());
        report.push_peer("nfs-ganesha", Err(why), &mut |_| {});
        assert_eq!(report.notes, ["nfs-ganesha is not measured: it ended"]);
        let taken = Untarred { files: 1, seconds: 1.0, ..Untarred::default() };
        report.push_peer(
            "nfs-ganesha",
            Ok(row("ganesha-xfs", true, &taken, Flushes::default())),
            &mut |_| {},
        );
        assert_eq!((report.rows.len(), report.notes.len()), (1, 1));
    }

    #[test]
    fn without_untar_there_is_no_headline() {
        assert_eq!(report(&[("local", true, 1.0, 0), ("sync", true, 1.0, 0)]).headline(), None);
    }
}
