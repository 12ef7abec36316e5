//! Trees of 1,000 to ten million objects in directories of 1,000: one object looked up and changed, the whole tree walked, the server
//! started cleanly and after it was killed.

use super::growth::tenfold;
use super::{BestOf, Figure, dir_ops, flat, mebibytes, scattered, start};
use crate::error::{Context, Error, Result};
use crate::experiments::{Check, Findings, Progress, Row};
use crate::latencies::OneAtATime;
use crate::load::list_root_entries;
use crate::memory_disk::MemoryDisk;
use crate::mounts::Filesystem;
use crate::served::{Durability, ServeOptions};
use landfast_nfs::v4::ArgOp;
use landfast_xdr::Bytes;

const FIRST: u64 = 1_000;
/// The most objects, unless chosen otherwise; the claim is about 1,000,000 as well.
const OBJECTS: u64 = 100_000;
/// Files of a directory; with the directory itself they are one more.
const FILES_PER_DIR: u64 = 999;
const LOOKUPS: u64 = 4_000;
const CHANGES: u64 = 500;
const ROUNDS: u64 = 3;

const LOG_BYTES: u64 = 64 << 20;

/// The claim: peak memory of the server in MiB, with any number of objects.
const PEAK_MIB_MAX: f64 = 192.0;

#[derive(Default)]
struct Figures {
    lookup: Figure,
    make: Figure,
    walk: Figure,
    start: Figure,
    recovery: Figure,
    peak: f64,
}

pub(super) fn measure(files: Option<u64>, progress: Progress<'_>) -> Result<Findings> {
    let (mut lines, mut figures) = (Vec::new(), Figures::default());
    for objects in tenfold(FIRST, files.unwrap_or(OBJECTS)) {
        progress(&format!("{objects} objects"));
        lines.push(one_size(objects, &mut figures)?);
    }
    let checks = vec![
        flat("median latency of two LOOKUPs, over objects of the tree", &figures.lookup),
        flat("median latency of CREATE, over objects of the tree", &figures.make),
        flat("time of the first walk for each object, over objects of the tree", &figures.walk),
        flat("time of a clean start, over objects of the tree", &figures.start),
        flat("time of a start after SIGKILL, over objects of the tree", &figures.recovery),
        Check::at_most("peak memory of the server in MiB, any number of objects", figures.peak, PEAK_MIB_MAX),
    ];
    Ok(Findings { lines, checks, ..Findings::default() })
}

fn dir_name(n: u64) -> String {
    format!("dir-{n:05}")
}

fn file_name(n: u64) -> String {
    format!("file-{n:03}")
}

fn one_size(objects: u64, figures: &mut Figures) -> Result<Row> {
    let disk = MemoryDisk::of(Filesystem::Xfs)?;
    let dirs = objects / (FILES_PER_DIR + 1);
    for dir in 0..dirs {
        let dir = disk.export().join(dir_name(dir));
        std::fs::create_dir(&dir).context(|| dir.display().to_string())?;
        for n in 0..FILES_PER_DIR {
            let file = dir.join(file_name(n));
            std::fs::File::create(&file).context(|| file.display().to_string())?;
        }
    }
    // What the filesystem has to write is not the server's work.
    crate::mounts::syncfs(disk.export())?;
    let log = disk.scratch().join("log");
    let options = ServeOptions {
        log_bytes: Some(LOG_BYTES),
        ..ServeOptions::new(disk.export(), Some(&log), Durability::Log)
    };
    let mut start_us = f64::MAX;
    for _ in 0..ROUNDS {
        start(&options)?.stop()?;
        let again = start(&options)?;
        start_us = start_us.min(again.start_took().as_secs_f64() * 1e6);
        again.stop()?;
    }
    let server = start(&options)?;
    let mut client = OneAtATime::connect(server.addr(), "trees")?;
    let root = client.0.walk("/")?;
    let (mut lookup, mut make) = (BestOf::default(), BestOf::default());
    let (mut cold_us, mut walk_us) = (0.0, f64::MAX);
    let names: Vec<_> = (0..dirs).map(dir_name).collect();
    for round in 0..ROUNDS {
        let (seen, took) = list_root_entries(server.addr(), &names)?;
        if seen != dirs * FILES_PER_DIR {
            let what = format!("lists {seen} entries of {}", dirs * FILES_PER_DIR);
            return Err(Error::Child { role: "server", what });
        }
        let us = took.as_secs_f64() * 1e6 / objects as f64;
        (cold_us, walk_us) = (if round == 0 { us } else { cold_us }, walk_us.min(us));
        lookup.add(client.times(LOOKUPS, |n| {
            let at = scattered(round * LOOKUPS + n, dirs * FILES_PER_DIR);
            vec![
                ArgOp::Putfh(root.clone()),
                ArgOp::Lookup(Bytes::from(dir_name(at % dirs))),
                ArgOp::Lookup(Bytes::from(file_name(at / dirs))),
                ArgOp::Getfh,
            ]
        })?);
        make.add(client.times(CHANGES, |n| dir_ops(&root, Bytes::from(format!("made-{round}-{n}"))))?);
    }
    let (rss, peak) = (server.rss_bytes().unwrap_or(0), server.peak_rss_bytes().unwrap_or(0));
    server.kill();
    let restarted = start(&options)?;
    let recovery_us = restarted.start_took().as_secs_f64() * 1e6;
    restarted.stop()?;
    let size = objects as f64;
    figures.lookup.push((size, lookup.us(0.5)));
    figures.make.push((size, make.us(0.5)));
    figures.walk.push((size, cold_us));
    figures.start.push((size, start_us));
    figures.recovery.push((size, recovery_us));
    figures.peak = figures.peak.max(mebibytes(peak));
    Ok(Row::new(
        &format!("{objects} objects"),
        [
            ("lookup_p50_us", lookup.us(0.5)),
            ("lookup_p99_us", lookup.us(0.99)),
            ("lookup_p999_us", lookup.us(0.999)),
            ("create_p50_us", make.us(0.5)),
            ("create_p99_us", make.us(0.99)),
            ("create_p999_us", make.us(0.999)),
            ("first_walk_us_per_object", cold_us),
            ("walk_us_per_object", walk_us),
            ("rss_mib", mebibytes(rss)),
            ("peak_rss_mib", mebibytes(peak)),
            ("start_ms", start_us / 1e3),
            ("start_after_kill_ms", recovery_us / 1e3),
        ],
    ))
}
