//! How fast a start recovers: operations that the log holds and of which the data disk has nothing, made again.
//!
//! An archive is extracted, until just before the first checkpoint would come (5 s after the first record) if that is earlier, then
//! the power of both disks fails, and everything that was not flushed is lost: every file has to be made again, with its data and
//! attributes. That is the worst that recovery can find. Both disks are those of an SSD (a flush takes 1 ms). The filesystem
//! does not write its journal of its own accord before the cut: not after 5 s, as it is told not to, and not for want of room in the
//! journal, as there are not so many files.
//!
//! A *logged operation* is one that changed something and came to the log before the cut: the log has one record of it. A file
//! of the archive is three of them (OPEN that creates it, WRITE, SETATTR), a directory one or two. What the server had done but not
//! yet acknowledged is not in the log and does not count.
//!
//! The limit is the time in which a plain program makes as many files, of the same contents and with the same attributes, in as
//! many directories, on the same filesystem right after, and flushes it once.

use super::{Check, Choices, Findings, Progress, Row};
use crate::error::{Context, Error, Result};
use crate::rig::{Latency, Rig, RigOptions};
use crate::scrape;
use crate::served::{Durability, ReservedPort, ServeOptions, Served};
use crate::tarball::{Shape, write_random};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// Logged operations a second that are claimed at least.
const RATE_MIN: f64 = 50_000.0;
/// The claim on a machine that is too slow or too busy for that: at most so many times as long as a plain program.
const LIMIT_MAX: f64 = 2.5;
/// A file is three operations, so if all is lost a third of the operations are objects; a little less, as the server had done a few
/// more at the cut.
const LOST_MIN: f64 = 0.3;
/// Peak memory above that of a server with nothing to recover, as a multiple of the bytes of the log that were replayed.
const MEMORY_MAX: f64 = 8.0;
/// Files at most; on a slow machine time says how many come before the cut. The inodes of all fill less than the quarter of the
/// journal at which ext4 writes it.
const FILES: u64 = 40_000;
const FILE_BYTES: usize = 100;
const FILES_PER_DIR: u64 = 256;
/// From the first operation to the cut: before the log's first checkpoint.
const WINDOW: Duration = Duration::from_millis(4_500);
/// The filesystem's own commit, every 5 s else, would spare recovery what it had written before the cut.
const MOUNT_OPTIONS: &str = "commit=300";
const POLL: Duration = Duration::from_millis(20);

pub(super) fn run(choices: &Choices, progress: Progress<'_>) -> Result<Findings> {
    crate::namespace::run_private(|| measure(choices.files.unwrap_or(FILES), progress))?
}

fn measure(files: u64, progress: Progress<'_>) -> Result<Findings> {
    let mut rig = Rig::new(&RigOptions { log_bytes: 128 << 20, ..RigOptions::default() })?;
    rig.set_mount_options(MOUNT_OPTIONS);
    rig.format()?;
    let flush = Duration::from_millis(1);
    rig.set_latency(Latency { data_flush: flush, log_flush: flush })?;
    rig.control("keep_permille=0")?;
    let archive = rig.scratch().join("archive.tar");
    let write = || {
        let file = std::io::BufWriter::new(std::fs::File::create(&archive)?);
        write_random(Shape { files, file_bytes: FILE_BYTES, per_dir: FILES_PER_DIR, seed: 3 }, file)
    };
    write().context(|| archive.display().to_string())?;

    progress("extracting");
    let log = rig.log_device()?.to_owned();
    let reserved = ReservedPort::new()?;
    let metrics = reserved.addr();
    let options = ServeOptions {
        metrics: Some(metrics),
        ..ServeOptions::new(&rig.export(), Some(&log), Durability::Log)
    };
    let server = Served::start(&options)?;
    let idle = server.peak_rss_bytes().unwrap_or(0);
    let exe = crate::machine::exe()?;
    let mut client = Command::new(exe)
        .arg("untar")
        .arg(&archive)
        .arg(format!("nfs://{}/", server.addr()))
        .args(["-p", "--json"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context(|| "run `landfast untar`".to_owned())?;
    let before = rig.stats()?;
    let began = Instant::now();
    let mut page = scrape::page(metrics)?;
    while began.elapsed() < WINDOW && client.try_wait().context(|| "untar".to_owned())?.is_none() {
        std::thread::sleep(POLL);
        page = scrape::page(metrics)?;
    }
    server.freeze();
    rig.cut()?;
    let extracted_s = began.elapsed().as_secs_f64();
    server.kill();
    // It has lost its server.
    let _ = client.kill();
    let _ = client.wait();
    let did = rig.stats()?.since(&before);
    let operations = scrape::value(&page, "modifying_operations_total")?;
    let checkpoints = scrape::value(&page, "log_checkpoints_total")?;

    progress("recovering");
    rig.power_on()?;
    rig.mount()?;
    let start = Instant::now();
    let recovered = Served::start(&ServeOptions { metrics: None, ..options })?;
    let start_s = start.elapsed().as_secs_f64();
    let peak = recovered.peak_rss_bytes().unwrap_or(0);
    let said = RecoveryReport::of(&recovered.words())?;
    recovered.stop()?;
    progress("making as many files plainly");
    let plain_s = plain(&rig.export(), said.remade as u64)?;
    let rate = said.records / said.seconds;
    let wanted = RATE_MIN.min(said.records / plain_s / LIMIT_MAX);
    let memory = peak.saturating_sub(idle) as f64;
    let line = Row::new(
        "recovery",
        [
            ("logged_operations", said.records),
            ("log_mib", said.bytes / f64::from(1 << 20)),
            ("objects_made_again", said.remade),
            ("seconds", said.seconds),
            ("logged_operations_per_s", rate),
            ("objects_per_s", said.remade / said.seconds),
            ("start_to_first_connection_s", start_s),
            ("peak_rss_mib", peak as f64 / f64::from(1 << 20)),
            ("idle_rss_mib", idle as f64 / f64::from(1 << 20)),
        ],
    );
    let extraction = Row::new(
        "extraction",
        [
            ("seconds", extracted_s),
            ("operations_done_before_the_cut", operations),
            ("log_flushes_per_operation", did.log.flushes as f64 / operations.max(1.0)),
            ("checkpoints", checkpoints),
        ],
    );
    let limit = Row::new(
        "a plain program",
        [
            ("seconds", plain_s),
            ("objects_per_s", said.remade / plain_s),
            ("logged_operations_per_s", said.records / plain_s),
            ("recovery_takes_times", said.seconds / plain_s),
        ],
    );
    let per_byte = memory / said.bytes.max(1.0);
    let lost = said.remade / operations.max(1.0);
    let checks = vec![
        Check::exactly("checkpoints before the cut", checkpoints, 0.0),
        Check::at_least("objects made again for each operation before the cut", lost, LOST_MIN),
        Check::at_least("logged operations recovered in a second", rate, wanted),
        Check::at_most("memory for recovery to the log's bytes", per_byte, MEMORY_MAX),
    ];
    let notes = vec![
        "a logged operation is one that changed something (OPEN that creates, WRITE, SETATTR, CREATE) and is in the log: one record \
         each; the server had done a few more, which it had not acknowledged"
            .to_owned(),
        format!(
            "wanted: {RATE_MIN:.0} in a second, or 1/{LIMIT_MAX} of the rate of a plain program where that is less: where this machine \
             is too slow or too busy"
        ),
    ];
    Ok(Findings { lines: vec![extraction, line, limit], checks, notes, ..Findings::default() })
}

/// Makes as many files below the volume's directory as a plain program would, and flushes the filesystem. Returns seconds.
fn plain(export: &Path, files: u64) -> Result<f64> {
    let top = export.with_file_name("plain");
    let make = || -> std::io::Result<()> {
        std::fs::create_dir(&top)?;
        let mut dir = top.clone();
        let bytes = [7; FILE_BYTES];
        for n in 0..files {
            if n % FILES_PER_DIR == 0 {
                dir = top.join(format!("dir{}", n / FILES_PER_DIR));
                std::fs::create_dir(&dir)?;
            }
            let mut file = std::fs::File::create_new(dir.join(format!("file{n}")))?;
            file.write_all(&bytes)?;
            std::os::unix::fs::fchown(&file, Some(0), Some(0))?;
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(n);
            file.set_times(std::fs::FileTimes::new().set_accessed(time).set_modified(time))?;
        }
        Ok(())
    };
    let began = Instant::now();
    make().context(|| top.display().to_string())?;
    crate::mounts::syncfs(&top)?;
    Ok(began.elapsed().as_secs_f64())
}

#[derive(Debug, PartialEq)]
struct RecoveryReport {
    records: f64,
    bytes: f64,
    remade: f64,
    seconds: f64,
}

impl RecoveryReport {
    fn of(words: &str) -> Result<RecoveryReport> {
        let bad = || Error::Protocol(format!("the server does not say what it recovered: {words}"));
        RecoveryReport::parse(words).ok_or_else(bad)
    }

    /// "recovered 12,345 records, 1.2 MiB; 678 lost objects made again (0.123 s)"
    fn parse(words: &str) -> Option<RecoveryReport> {
        let line = words.lines().find_map(|line| line.split_once(": recovered ")).map(|(_, rest)| rest)?;
        let (records, rest) = line.split_once(" records, ")?;
        let (bytes, rest) = rest.split_once("; ")?;
        let (remade, rest) = rest.split_once(" lost objects made again (")?;
        let (seconds, _) = rest.split_once(" s)")?;
        let count = |text: &str| text.replace([',', ' ', '_'], "").parse::<f64>().ok();
        let (number, unit) = bytes.split_once(' ')?;
        let unit = match unit {
            "B" | "bytes" => 1.0,
            "KiB" => 1024.0,
            "MiB" => 1024.0 * 1024.0,
            "GiB" => 1024.0 * 1024.0 * 1024.0,
            _ => return None,
        };
        Some(RecoveryReport {
            records: count(records)?,
            bytes: count(number)? * unit,
            remade: count(remade)?,
            seconds: seconds.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_says_is_understood() {
        let words = "landfast: x\nlandfast: recovered 12,345 records, 1.5 MiB; 678 lost objects made again (0.125 s)\n";
        let said = RecoveryReport::of(words).unwrap();
        assert_eq!(
            said,
            RecoveryReport { records: 12_345.0, bytes: 1_572_864.0, remade: 678.0, seconds: 0.125 }
        );
        assert!(RecoveryReport::of("landfast: clean start: nothing to recover (0.1 s)").is_err());
    }
}
