//! Processor time for an operation, beside nfs-ganesha: the same client program, the same kind of directory (a fresh
//! ext4 in memory), one after the other in one run.
//!
//! Nothing here waits for a disk: the filesystem's image and Landfast's log are files in memory. Landfast does all the
//! work that its promise takes (records, checksums, group commit), ganesha makes none of its metadata stable.

use super::{Check, Choices, Findings, Hear, Line, Relation};
use crate::error::{Context, Error, Result};
use crate::load::{Kind, Load};
use crate::loopdev::LoopDevice;
use crate::mounts::{Filesystem, Mount};
use crate::peers::ganesha::{self, Ganesha};
use crate::served::{Durability, ServeOptions, Served};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// Kinds of operation, how many of them, and how many times ganesha's operations per second of processor time are
/// claimed at least.
const KINDS: [(Kind, u64, f64); 5] = [
    (Kind::Getattr, 40_000, 2.0),
    (Kind::Lookup, 40_000, 2.0),
    (Kind::Read4k, 40_000, 2.0),
    (Kind::Readdirplus, 400, 2.0),
    (Kind::CreateWriteSetattr, 10_000, 1.5),
];

/// Operations in flight.
const IN_FLIGHT: u64 = 16;

/// Bytes that are streamed, and the part of ganesha's speed that is claimed at least.
const STREAM_BYTES: u64 = 1 << 30;
const STREAM_IN_FLIGHT: u64 = 8;
const STREAM_MIN: f64 = 0.9;

/// Size of the image of the filesystem: a sparse file.
const IMAGE_BYTES: u64 = 8 << 30;
const LOG_BYTES: u64 = 256 << 20;

/// The part of the operations that is done first and not counted: both sides are warm then.
const WARM_PART: u64 = 10;

/// What one server did.
struct Taken {
    kinds: Vec<(Duration, Duration)>,
    written: Duration,
    read: Duration,
}

pub(super) fn run(choices: &Choices, hear: Hear<'_>) -> Result<Findings> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::Unable("needs root".into()));
    }
    ganesha::possible()?;
    // Of each kind so many that `--files` of them are made.
    let scale = choices.files.map_or(1.0, |files| files as f64 / KINDS[4].1 as f64);
    crate::namespace::run_private(|| measure(scale, hear))?
}

fn measure(scale: f64, hear: Hear<'_>) -> Result<Findings> {
    let scratch = tempfile::Builder::new()
        .prefix("landfast-beside-")
        .tempdir()
        .context(|| "make a temporary directory".to_owned())?;
    let memory = scratch.path().join("memory");
    std::fs::create_dir(&memory).context(|| format!("create {}", memory.display()))?;
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("landfast", &memory, "tmpfs", flags, None::<&std::ffi::CStr>)
        .context(|| format!("mount tmpfs on {}", memory.display()))?;

    hear("landfast");
    let ours = on_fresh_disk(&memory, |export| {
        let options = ServeOptions {
            log_bytes: Some(LOG_BYTES),
            ..ServeOptions::new(export, Some(&memory.join("log")), Durability::Log)
        };
        let server = Served::start(&options)?;
        let taken = work(server.addr(), &|| server.cpu(), scale, hear)?;
        server.stop()?;
        Ok(taken)
    })?;
    hear("nfs-ganesha");
    let theirs = on_fresh_disk(&memory, |export| {
        let server = Ganesha::start(export)?;
        work(server.addr(), &|| server.cpu(), scale, hear)
    })?;

    let (mut lines, mut checks) = (Vec::new(), Vec::new());
    for (i, (kind, count, at_least)) in KINDS.iter().enumerate() {
        let count = scaled(*count, scale) as f64;
        let ((our_time, our_cpu), (their_time, their_cpu)) = (ours.kinds[i], theirs.kinds[i]);
        let ratio = their_cpu.as_secs_f64() / our_cpu.as_secs_f64();
        lines.push(Line::new(
            kind.name(),
            [
                ("landfast_ops_per_s", count / our_time.as_secs_f64()),
                ("ganesha_ops_per_s", count / their_time.as_secs_f64()),
                ("landfast_us_cpu_per_op", our_cpu.as_secs_f64() * 1e6 / count),
                ("ganesha_us_cpu_per_op", their_cpu.as_secs_f64() * 1e6 / count),
                ("ratio", ratio),
            ],
        ));
        let what = format!("operations for each second of processor time, {}: times ganesha's", kind.name());
        checks.push(Check::new(&what, ratio, Relation::AtLeast, *at_least));
    }
    for (name, our_time, their_time) in
        [("stream: write", ours.written, theirs.written), ("stream: read", ours.read, theirs.read)]
    {
        let mib = STREAM_BYTES as f64 / f64::from(1 << 20);
        let ratio = their_time.as_secs_f64() / our_time.as_secs_f64();
        lines.push(Line::new(
            name,
            [
                ("landfast_mib_per_s", mib / our_time.as_secs_f64()),
                ("ganesha_mib_per_s", mib / their_time.as_secs_f64()),
                ("ratio", ratio),
            ],
        ));
        checks.push(Check::new(
            &format!("{name}: times ganesha's speed"),
            ratio,
            Relation::AtLeast,
            STREAM_MIN,
        ));
    }
    let notes = vec![
        "processor time is the server process's own, user and system; the filesystem is ext4 in memory"
            .to_owned(),
        "ganesha does not make metadata stable; Landfast's log is in memory, so nothing here waits"
            .to_owned(),
    ];
    Ok(Findings { lines, checks, notes, ..Findings::default() })
}

fn scaled(count: u64, scale: f64) -> u64 {
    ((count as f64 * scale) as u64).max(WARM_PART)
}

/// Runs `serve` with an empty directory on an ext4 of its own in `memory`.
fn on_fresh_disk(memory: &Path, serve: impl FnOnce(&Path) -> Result<Taken>) -> Result<Taken> {
    let image = memory.join("image");
    let made = std::fs::File::create(&image).and_then(|f| f.set_len(IMAGE_BYTES));
    made.context(|| format!("make {}", image.display()))?;
    let device = LoopDevice::attach(&image)?;
    Filesystem::Ext4.make(device.path())?;
    let mount = Mount::new(device.path(), &memory.join("fs"), Filesystem::Ext4)?;
    let export = mount.path().join("export");
    std::fs::create_dir(&export).context(|| format!("create {}", export.display()))?;
    let taken = serve(&export);
    mount.unmount()?;
    drop(device);
    std::fs::remove_file(&image).context(|| format!("remove {}", image.display()))?;
    taken
}

/// All kinds of operation, then the streams.
fn work(
    addr: SocketAddr,
    cpu: &dyn Fn() -> Option<Duration>,
    scale: f64,
    hear: &mut (dyn FnMut(&str) + Send),
) -> Result<Taken> {
    let gone = || Error::Child { role: "server", what: "ended".into() };
    let load = Load::new(addr)?;
    let mut kinds = Vec::new();
    for (kind, count, _) in KINDS {
        hear(kind.name());
        let count = scaled(count, scale);
        load.run(kind, count / WARM_PART, IN_FLIGHT)?;
        let before = cpu().ok_or_else(gone)?;
        let took = load.run(kind, count, IN_FLIGHT)?;
        kinds.push((took, cpu().ok_or_else(gone)?.saturating_sub(before)));
    }
    hear("stream");
    let (written, read) = load.stream(STREAM_BYTES, STREAM_IN_FLIGHT)?;
    Ok(Taken { kinds, written, read })
}
