//! One directory of 1,000 to a million names: a name found, made and removed in it, and all of them listed.

use super::growth::tenfold;
use super::{BestOf, Figure, dir_ops, flat, mebibytes, start};
use crate::error::{Context, Error, Result};
use crate::experiments::{Check, Findings, Progress, Row};
use crate::latencies::OneAtATime;
use crate::load::list_root_entry;
use crate::memory_disk::MemoryDisk;
use crate::mounts::Filesystem;
use crate::served::{Durability, ServeOptions};
use landfast_nfs::v4::ArgOp;
use landfast_xdr::Bytes;

const FIRST: u64 = 1_000;
/// The most names, unless chosen otherwise; the claim is about 1,000,000 as well.
const NAMES: u64 = 100_000;
/// LOOKUPs of a round, and directories that are made and removed.
const LOOKUPS: u64 = 4_000;
const CHANGES: u64 = 500;
const ROUNDS: u64 = 3;

const LOG_BYTES: u64 = 64 << 20;
const DIR: &str = "large";

/// The claim: peak memory of the server in MiB, with any number of names (the nodes that it keeps, and what it needs anyway).
const PEAK_MIB_MAX: f64 = 192.0;

#[derive(Default)]
struct Figures {
    lookup: Figure,
    make: Figure,
    remove: Figure,
    list: Figure,
    start: Figure,
    peak: f64,
}

pub(super) fn measure(files: Option<u64>, progress: Progress<'_>) -> Result<Findings> {
    let (mut lines, mut figures) = (Vec::new(), Figures::default());
    for names in tenfold(FIRST, files.unwrap_or(NAMES)) {
        progress(&format!("{names} names"));
        lines.push(one_size(names, &mut figures)?);
    }
    let checks = vec![
        flat("median latency of LOOKUP, over names of its directory", &figures.lookup),
        flat("median latency of CREATE, over names of its directory", &figures.make),
        flat("median latency of REMOVE, over names of its directory", &figures.remove),
        flat("time of the first READDIR for each entry, over names of its directory", &figures.list),
        flat("time of a start after SIGKILL, over names of a directory", &figures.start),
        Check::at_most("peak memory of the server in MiB, any number of names", figures.peak, PEAK_MIB_MAX),
    ];
    Ok(Findings { lines, checks, ..Findings::default() })
}

fn name(n: u64) -> String {
    format!("entry-{n:07}")
}

fn one_size(names: u64, figures: &mut Figures) -> Result<Row> {
    let disk = MemoryDisk::of(Filesystem::Xfs)?;
    let dir = disk.export().join(DIR);
    std::fs::create_dir(&dir).context(|| dir.display().to_string())?;
    for n in 0..names {
        let file = dir.join(name(n));
        std::fs::File::create(&file).context(|| file.display().to_string())?;
    }
    // What the filesystem has to write is not the server's work.
    crate::mounts::syncfs(disk.export())?;
    let log = disk.scratch().join("log");
    let options = ServeOptions {
        log_bytes: Some(LOG_BYTES),
        ..ServeOptions::new(disk.export(), Some(&log), Durability::Log)
    };
    let server = start(&options)?;
    let mut client = OneAtATime::connect(server.addr(), "directories")?;
    let handle = client.0.walk(DIR)?;
    let (mut lookup, mut make, mut remove) = (BestOf::default(), BestOf::default(), BestOf::default());
    let (mut cold_us, mut list_us) = (0.0, f64::MAX);
    for round in 0..ROUNDS {
        let (seen, took) = list_root_entry(server.addr(), DIR)?;
        if seen != names {
            return Err(Error::Child { role: "server", what: format!("lists {seen} entries of {names}") });
        }
        let us = took.as_secs_f64() * 1e6 / names as f64;
        (cold_us, list_us) = (if round == 0 { us } else { cold_us }, list_us.min(us));
        lookup.add(client.times(LOOKUPS, |n| {
            let name = name(super::scattered(round * LOOKUPS + n, names));
            vec![ArgOp::Putfh(handle.clone()), ArgOp::Lookup(Bytes::from(name)), ArgOp::Getfh]
        })?);
        let made = |n: u64| Bytes::from(format!("made-{round}-{n}"));
        make.add(client.times(CHANGES, |n| dir_ops(&handle, made(n)))?);
        remove.add(client.times(CHANGES, |n| vec![ArgOp::Putfh(handle.clone()), ArgOp::Remove(made(n))])?);
    }
    let (rss, peak) = (server.rss_bytes().unwrap_or(0), server.peak_rss_bytes().unwrap_or(0));
    server.kill();
    let restarted = start(&options)?;
    let start_us = restarted.start_took().as_secs_f64() * 1e6;
    restarted.stop()?;
    let size = names as f64;
    figures.lookup.push((size, lookup.us(0.5)));
    figures.make.push((size, make.us(0.5)));
    figures.remove.push((size, remove.us(0.5)));
    figures.list.push((size, cold_us));
    figures.start.push((size, start_us));
    figures.peak = figures.peak.max(mebibytes(peak));
    Ok(Row::new(
        &format!("{names} names"),
        [
            ("lookup_p50_us", lookup.us(0.5)),
            ("lookup_p99_us", lookup.us(0.99)),
            ("lookup_p999_us", lookup.us(0.999)),
            ("create_p50_us", make.us(0.5)),
            ("create_p99_us", make.us(0.99)),
            ("create_p999_us", make.us(0.999)),
            ("remove_p50_us", remove.us(0.5)),
            ("remove_p99_us", remove.us(0.99)),
            ("remove_p999_us", remove.us(0.999)),
            ("first_list_us_per_entry", cold_us),
            ("list_us_per_entry", list_us),
            ("rss_mib", mebibytes(rss)),
            ("peak_rss_mib", mebibytes(peak)),
            ("start_after_kill_ms", start_us / 1e3),
        ],
    ))
}
