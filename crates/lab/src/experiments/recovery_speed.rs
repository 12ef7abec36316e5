//! How fast a start recovers: operations that the log holds and of which the data disk has nothing, made again.
//!
//! An archive is extracted until just before the first checkpoint would come (5 s after the first record), then the power of
//! both disks fails, and everything that was not flushed is lost: every file has to be made again, with its data and attributes.
//! That is the worst that recovery can find. Both disks are those of an SSD (a flush takes 1 ms).

use super::{Check, Choices, Findings, Hear, Line, Relation};
use crate::error::{Context, Error, Result};
use crate::rig::{Latency, Rig, RigOptions};
use crate::scrape;
use crate::served::{Durability, ServeOptions, Served, free_port};
use crate::tarball::{Shape, write_random};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Operations a second that are claimed at least.
const RATE_MIN: f64 = 50_000.0;
/// Peak memory above that of a server with nothing to recover, as a multiple of the bytes of the log that were replayed.
const MEMORY_MAX: f64 = 8.0;
/// Files at most; how many come before the cut, time says.
const FILES: u64 = 200_000;
const FILE_BYTES: usize = 100;
/// From the first operation to the cut: before the log's first checkpoint.
const WINDOW: Duration = Duration::from_millis(4_500);
const POLL: Duration = Duration::from_millis(20);

pub(super) fn run(choices: &Choices, hear: Hear<'_>) -> Result<Findings> {
    crate::namespace::run_private(|| measure(choices.files.unwrap_or(FILES), hear))?
}

fn measure(files: u64, hear: Hear<'_>) -> Result<Findings> {
    let mut rig = Rig::new(&RigOptions { log_bytes: 256 << 20, ..RigOptions::default() })?;
    rig.format()?;
    let flush = Duration::from_millis(1);
    rig.set_latency(Latency { data_flush: flush, log_flush: flush })?;
    rig.control("keep_permille=0")?;
    let archive = rig.scratch().join("archive.tar");
    let write = || {
        let file = std::io::BufWriter::new(std::fs::File::create(&archive)?);
        write_random(Shape { files, file_bytes: FILE_BYTES, per_dir: 256, seed: 3 }, file)
    };
    write().context(|| archive.display().to_string())?;

    hear("extracting");
    let log = rig.log_device()?.to_owned();
    let metrics = free_port()?;
    let options = ServeOptions {
        metrics: Some(metrics),
        ..ServeOptions::new(&rig.export(), Some(&log), Durability::Log)
    };
    let server = Served::start(&options)?;
    let idle = server.peak_rss_bytes().unwrap_or(0);
    let exe = std::env::current_exe().context(|| "path of this program".to_owned())?;
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

    hear("recovering");
    rig.power_on()?;
    rig.mount()?;
    let start = Instant::now();
    let recovered = Served::start(&ServeOptions { metrics: None, ..options })?;
    let start_s = start.elapsed().as_secs_f64();
    let peak = recovered.peak_rss_bytes().unwrap_or(0);
    let said = Said::of(&recovered.words())?;
    recovered.stop()?;
    let rate = operations / said.seconds;
    let memory = peak.saturating_sub(idle) as f64;
    let line = Line::new(
        "recovery",
        [
            ("operations", operations),
            ("records", said.records),
            ("log_mib", said.bytes / f64::from(1 << 20)),
            ("objects_made_again", said.remade),
            ("seconds", said.seconds),
            ("operations_per_s", rate),
            ("records_per_s", said.records / said.seconds),
            ("start_to_first_connection_s", start_s),
            ("peak_rss_mib", peak as f64 / f64::from(1 << 20)),
            ("idle_rss_mib", idle as f64 / f64::from(1 << 20)),
        ],
    );
    let extraction = Line::new(
        "extraction",
        [
            ("seconds", extracted_s),
            ("log_flushes_per_operation", did.log.flushes as f64 / operations.max(1.0)),
            ("checkpoints", checkpoints),
        ],
    );
    let per_byte = memory / said.bytes.max(1.0);
    let checks = vec![
        Check::new("checkpoints before the cut", checkpoints, Relation::Exactly, 0.0),
        Check::new("operations recovered in a second", rate, Relation::AtLeast, RATE_MIN),
        Check::new("memory for recovery to the log's bytes", per_byte, Relation::AtMost, MEMORY_MAX),
    ];
    let notes = vec!["an operation is one that changes something (OPEN that creates, WRITE, SETATTR, CREATE); those counted last were \
                      up to 20 ms before the cut, so there are a few more"
        .to_owned()];
    Ok(Findings { lines: vec![extraction, line], checks, notes, ..Findings::default() })
}

/// What a server says of its recovery.
#[derive(Debug, PartialEq)]
struct Said {
    records: f64,
    bytes: f64,
    remade: f64,
    seconds: f64,
}

impl Said {
    fn of(words: &str) -> Result<Said> {
        let bad = || Error::Protocol(format!("the server does not say what it recovered: {words}"));
        Said::parse(words).ok_or_else(bad)
    }

    /// "recovered 12,345 records, 1.2 MiB; 678 lost objects made again (0.123 s)"
    fn parse(words: &str) -> Option<Said> {
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
        Some(Said {
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
        let said = Said::of(words).unwrap();
        assert_eq!(said, Said { records: 12_345.0, bytes: 1_572_864.0, remade: 678.0, seconds: 0.125 });
        assert!(Said::of("landfast: clean start: nothing to recover (0.1 s)").is_err());
    }
}
