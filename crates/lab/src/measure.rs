//! The terms of the equation (what one operation cannot be faster than), measured on the disks and
//! the link of the same run, and how long a peer takes.

use crate::error::{Context, Error, Result};
use crate::net::Link;
use crate::rig::Rig;
use crate::serial::tar::Extraction;
use crate::serial::{Actor, Connect, Counts, Session};
use crate::served::Durability;
use crate::tarball;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// A term is the mean of so many appends, syncs or files.
const LOG_ROUNDS: u32 = 200;
const DATA_ROUNDS: u32 = 12;
const CPU_ROUNDS: u32 = 2000;

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// Round trip of one byte over the emulated link, in milliseconds.
    pub rtt_ms: f64,
    /// One durable write of 4 KiB to the log device (O_DIRECT), in milliseconds.
    pub log_write_ms: f64,
    /// One durable overwrite of 4 KiB of a file on the data disk (fdatasync), in milliseconds.
    pub data_write_ms: f64,
    /// The system calls that make one file of 4 KiB with its attributes, in milliseconds.
    pub syscalls_ms: f64,
}

impl Terms {
    /// Most files per second that the equation allows a client that does one thing at a time.
    pub fn limit(&self, rpcs_per_file: f64, synchronous_per_file: f64, persistence_ms: f64) -> f64 {
        let ms = rpcs_per_file * self.rtt_ms + synchronous_per_file * persistence_ms + self.syscalls_ms;
        if ms > 0.0 { 1000.0 / ms } else { 0.0 }
    }

    /// What a call that changes something waits for on Landfast's server, in milliseconds.
    pub fn persistence_ms(&self, durability: Durability) -> f64 {
        match durability {
            Durability::Sync => self.data_write_ms,
            Durability::Log => self.log_write_ms,
            Durability::Unsafe => 0.0,
        }
    }

    /// Measures all terms on a rig (freshly formatted, with its latencies set) and a link.
    pub fn measure(rig: &Rig, link: &Link) -> Result<Terms> {
        Ok(Terms {
            rtt_ms: ms(link.measure()?),
            log_write_ms: ms(log_write(rig.log_device()?)?),
            data_write_ms: ms(data_write(&rig.export())?),
            syscalls_ms: ms(syscalls(&rig.export())?),
        })
    }
}

pub fn ms(d: Duration) -> f64 {
    d.as_secs_f64() * 1000.0
}

/// Memory aligned as direct I/O wants it.
#[repr(align(4096))]
struct Aligned([u8; 4096]);

/// The mean time of a durable write of 4 KiB to a block device or a file of at least 2 MiB, in the
/// quicker of two ways: fdatasync after each write, or O_DSYNC (which on a device without FUA is two
/// flushes, one for the write and one for the call).
pub fn log_write(device: &Path) -> Result<Duration> {
    Ok(log_write_with(device, OFlags::DIRECT)?.min(log_write_with(device, OFlags::DIRECT | OFlags::DSYNC)?))
}

fn log_write_with(device: &Path, flags: OFlags) -> Result<Duration> {
    let what = || format!("write to {}", device.display());
    let file = std::fs::OpenOptions::new()
        .write(true)
        .custom_flags(flags.bits() as i32)
        .open(device)
        .context(what)?;
    let block = Box::new(Aligned([0; 4096]));
    // The first mebibyte holds what says whose log it is; it stays as it is.
    let start = Instant::now();
    for i in 0..LOG_ROUNDS {
        let at = (1 << 20) + u64::from(i % 256) * 4096;
        file.write_all_at(&block.0, at).context(what)?;
        if !flags.contains(OFlags::DSYNC) {
            file.sync_data().context(what)?;
        }
    }
    Ok(start.elapsed() / LOG_ROUNDS)
}

/// The mean time of a durable overwrite of 4 KiB in `dir`.
pub fn data_write(dir: &Path) -> Result<Duration> {
    let path = dir.join("probe");
    let what = || format!("write to {}", path.display());
    let file = std::fs::File::create(&path).context(what)?;
    file.write_all_at(&[1; 4096], 0).and_then(|()| file.sync_all()).context(what)?;
    let start = Instant::now();
    for i in 0..DATA_ROUNDS {
        file.write_all_at(&[i as u8; 4096], 0).and_then(|()| file.sync_data()).context(what)?;
    }
    let took = start.elapsed() / DATA_ROUNDS;
    std::fs::remove_file(&path).context(what)?;
    Ok(took)
}

/// The mean time that the system calls for one small file take, without any flush.
pub fn syscalls(dir: &Path) -> Result<Duration> {
    let probe = dir.join("probe");
    let what = || format!("make files in {}", probe.display());
    std::fs::create_dir(&probe).context(what)?;
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let start = Instant::now();
    for i in 0..CPU_ROUNDS {
        let file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(probe.join(format!("f{i}")))
            .context(what)?;
        file.write_all_at(&[2; 4096], 0).context(what)?;
        let times = std::fs::FileTimes::new().set_modified(std::time::SystemTime::UNIX_EPOCH);
        file.set_times(times).context(what)?;
        std::os::unix::fs::fchown(&file, Some(uid), Some(gid)).context(what)?;
        file.set_permissions(std::fs::Permissions::from_mode(0o644)).context(what)?;
    }
    let took = start.elapsed() / CPU_ROUNDS;
    std::fs::remove_dir_all(&probe).context(what)?;
    crate::mounts::syncfs(dir)?;
    Ok(took)
}

/// When a slow peer may stop.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    pub files: u64,
    pub time: Duration,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Untarred {
    pub files: u64,
    pub seconds: f64,
    pub rpcs: u64,
    /// RPCs that had to be stable before their reply.
    pub modifying_rpcs: u64,
    /// The archive was extracted to its end.
    pub complete: bool,
}

/// Extracts a plain tar one operation at a time into the root of the export at `addr`, until it is
/// done or the budget is spent. An extraction that is cut short leaves directories without their
/// final attributes.
pub fn serial_untar(addr: SocketAddr, owner: &str, tar: impl Read, budget: Budget) -> Result<Untarred> {
    let mut session = Session::connect(&Connect::new(addr, owner))?;
    let root = session.walk("/")?;
    let mut actor = Actor::new(session, root);
    let taken = serial_untar_with(&mut actor, tar, budget)?;
    actor.into_session().close()?;
    Ok(taken)
}

/// As [`serial_untar`], with a client that is there already, into its directory.
pub fn serial_untar_with(actor: &mut Actor, tar: impl Read, budget: Budget) -> Result<Untarred> {
    let before = actor.session().counts();
    let mut extraction = Extraction::new();
    let mut complete = true;
    let start = Instant::now();
    tarball::read(tar, |member| {
        if extraction.files() >= budget.files || start.elapsed() >= budget.time {
            complete = false;
            return Ok(ControlFlow::Break(()));
        }
        extraction.extract(actor, &member)?;
        Ok(ControlFlow::Continue(()))
    })?;
    if complete {
        extraction.end(actor)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let Counts { rpcs, modifying_rpcs } = actor.session().counts().since(&before);
    Ok(Untarred { files: extraction.files(), seconds, rpcs, modifying_rpcs, complete })
}

/// Extracts a plain tar with the `tar` program into `dir`, then flushes the filesystem.
pub fn local_untar(tar: &Path, dir: &Path) -> Result<Duration> {
    let start = Instant::now();
    let mut command = std::process::Command::new("tar");
    command.arg("-xpf").arg(tar).arg("-C").arg(dir);
    crate::sys::end_with_this_thread(&mut command);
    crate::mounts::run(&mut command, "tar")?;
    crate::mounts::syncfs(dir)?;
    Ok(start.elapsed())
}

/// What `landfast untar --json` says, as far as it matters here.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct UntarSummary {
    files: u64,
    rpcs: u64,
    seconds: f64,
}

/// Extracts an archive with `landfast untar`, a process of its own, into the root of the export at
/// `addr`. The time is from its start to its end.
/// Errors: When it fails: with what it said.
pub fn untar(addr: SocketAddr, archive: &Path, stdin: std::process::Stdio) -> Result<Untarred> {
    let exe = crate::machine::exe()?;
    let start = Instant::now();
    let mut command = std::process::Command::new(exe);
    command.arg("untar").arg(archive).arg(format!("nfs://{addr}/")).args(["-p", "--json"]);
    crate::sys::end_with_this_thread(&mut command);
    let out = command.stdin(stdin).output().context(|| "run `landfast untar`".to_owned())?;
    let seconds = start.elapsed().as_secs_f64();
    if !out.status.success() {
        return Err(Error::Tool {
            command: format!("landfast untar {}", archive.display()),
            status: out.status.to_string(),
            stderr: String::from_utf8_lossy(&out.stderr).chars().take(2000).collect(),
        });
    }
    let summary: UntarSummary = serde_json::from_slice(&out.stdout)
        .map_err(|e| Error::Protocol(format!("`landfast untar --json` printed something else: {e}")))?;
    Ok(Untarred { files: summary.files, seconds, rpcs: summary.rpcs, modifying_rpcs: 0, complete: true })
}
