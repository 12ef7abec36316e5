//! The demo on emulated disks: flushes are counted at the device.

use super::report::{
    Archive, DemoOptions, DemoReport, Emulation, Flushes, Progress, ROW_TIME, Row, Verified, push, row,
};
use crate::error::Result;
use crate::measure::{self, Budget, Terms, Untarred};
use crate::net::Link;
use crate::rig::{Latency, Rig, RigOptions};
use crate::served::{Durability, ServeOptions, Served};
use std::net::SocketAddr;
use std::process::Stdio;

/// The data disk is so many times as large as the files, and a bit.
const DISK_FACTOR: u64 = 2;
const DISK_BYTES_MORE: u64 = 1 << 30;

/// Bytes that a small file needs besides its contents, rounded up.
const FILE_OVERHEAD_BYTES: u64 = 8192;

/// The three ways in which a client does one thing at a time.
const SERIAL: [(&str, Durability); 3] =
    [("sync", Durability::Sync), ("log", Durability::Log), ("unsafe", Durability::Unsafe)];

/// Measures all rows. Must run on a thread of [`crate::namespace::run_private`].
pub(super) fn run(
    options: &DemoOptions,
    archive: &Archive,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<DemoReport> {
    let need = archive.bytes + archive.files * FILE_OVERHEAD_BYTES;
    let mut rig =
        Rig::new(&RigOptions { data_bytes: need * DISK_FACTOR + DISK_BYTES_MORE, ..RigOptions::default() })?;
    let latency = Latency { data_flush: options.flush, log_flush: options.log_flush };
    let mut doing = |what: &str| progress(Progress::Doing(what.to_owned()));

    doing("measuring the disks and the network by themselves");
    // Nothing listens at this address: links are pointed at servers later.
    let link = Link::start(SocketAddr::from(([127, 0, 0, 1], 9)), options.rtt)?;
    rig.format()?;
    rig.set_latency(latency)?;
    let terms = Terms::measure(&rig, &link)?;
    let mut report = archive.report(options, Emulation::Disk, terms);

    doing("local: tar -x, then sync");
    let before = rig.stats()?;
    let took = measure::local_untar(&archive.plain, &rig.export())?;
    let flushes = rig.stats()?.since(&before).data.flushes;
    let flushes = Flushes { data: Some(flushes), log: Some(0) };
    push(&mut report, archive.local_row(&terms, took, flushes), progress);

    for (name, durability) in SERIAL {
        progress(Progress::Doing(format!("{name}: one file at a time over NFS")));
        let (taken, flushes) = served(&mut rig, latency, durability, &link, Ending::Clean, |addr| {
            let budget = Budget { files: u64::MAX, time: ROW_TIME };
            measure::serial_untar(addr, name, archive.open()?, budget)
        })?;
        push(&mut report, archive.serial_row(name, durability, &terms, &taken, flushes), progress);
    }

    progress(Progress::Doing("untar: many files in one request".into()));
    let (taken, flushes) = served(&mut rig, latency, Durability::Log, &link, Ending::PowerCut, |addr| {
        measure::untar(addr, &archive.plain, Stdio::null())
    })?;
    let mut line = row("untar", true, archive, &taken, flushes);
    line.limit_files_per_s = batched_limit(&terms, &line);
    push(&mut report, line, progress);

    progress(Progress::Doing("power cut, restart, comparing the tree with the archive".into()));
    report.verified = verify_after_cut(&mut rig, archive)?;
    Ok(report)
}

/// The equation for requests that overlap: one round trip and one flush in all, then whichever is
/// slower: the server's system calls, or the flushes that were needed one after another.
fn batched_limit(terms: &Terms, line: &Row) -> f64 {
    let files = line.files.max(1) as f64;
    let flushes_ms = line.log_flushes_per_file.unwrap_or(0.0) * terms.log_write_ms;
    let ms = terms.syscalls_ms.max(flushes_ms) + (terms.rtt_ms + terms.log_write_ms) / files;
    1000.0 / ms.max(1e-9)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Clean,
    PowerCut,
}

/// A fresh volume, a server on it, work through the link; and what was flushed meanwhile.
fn served(
    rig: &mut Rig,
    latency: Latency,
    durability: Durability,
    link: &Link,
    ending: Ending,
    work: impl FnOnce(SocketAddr) -> Result<Untarred>,
) -> Result<(Untarred, Flushes)> {
    rig.format()?;
    // The server tries at its start which way of flushing is quicker on this device.
    rig.set_latency(latency)?;
    let server = Served::start(&ServeOptions::new(&rig.export(), Some(rig.log_device()?), durability))?;
    link.retarget(server.addr());
    let before = rig.stats()?;
    let taken = work(link.addr())?;
    let did = rig.stats()?.since(&before);
    let flushes = Flushes { data: Some(did.data.flushes), log: Some(did.log.flushes) };
    match ending {
        Ending::Clean => {
            rig.set_latency(Latency::default())?;
            server.stop()?;
        }
        Ending::PowerCut => {
            rig.cut()?;
            server.kill();
        }
    }
    Ok((taken, flushes))
}

/// The disks come back with what was flushed and nothing else; the server recovers the rest.
fn verify_after_cut(rig: &mut Rig, archive: &Archive) -> Result<Verified> {
    rig.set_latency(Latency::default())?;
    rig.power_on()?;
    rig.mount()?;
    let server = Served::start(&ServeOptions::new(&rig.export(), Some(rig.log_device()?), Durability::Log))?;
    server.stop()?;
    archive.verify(&rig.export(), true)
}
