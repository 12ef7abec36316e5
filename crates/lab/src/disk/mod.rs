//! An emulated block device with a volatile write cache and chosen latencies.
//!
//! `landfast lab disk MOUNTPOINT SIZE` mounts a directory with `disk.img` (put a loop device on it,
//! and a filesystem on that), `stats` (counters) and `ctl` (settings, power switch). SIGUSR1 cuts
//! the power, SIGUSR2 puts it on again, SIGTERM unmounts and ends it.
//!
//! | room | subject |
//! |---|---|
//! | `medium` | the two images and the dirty bits; no clock |
//! | `device` | latencies, counters, the power switch |
//! | `faults` | requests that fail though there is power |
//! | `ctl` | the words of `ctl`, the lines of `stats` |
//! | `fs` | FUSE |
//! | `options` | how a disk is made |
//! | `process` | a disk in a process of its own, as the lab uses it |
//!
//! Rules that keep it honest and alive:
//! - It is a process of its own. The kernel may write back dirty pages of the filesystem above it
//!   when *it* asks for memory, and then wait for it: so its memory is locked, it allocates
//!   nothing in the I/O path, and it may not start I/O to get memory (`PR_SET_IO_FLUSHER`).
//! - Loop devices on it use direct I/O; otherwise they write one request at a time.
//! - One loop device on one `disk.img`, in a private mount namespace: a mount that another
//!   process's namespace copied would keep the old loop device alive, on the same image.
//! - The process has none of the filesystems that stand on it in a mount namespace of its own: when the last process of a
//!   namespace is killed, the kernel unmounts in that process what is mounted there, and a disk that must answer for
//!   that to end would wait for itself, for ever, and every `sync` on the machine with it.
//! - A loop device has no FUA: a journal commit is two flushes (one before the commit block and
//!   one after). A disk with FUA takes one flush and one FUA write, which is about as long.

pub mod ctl;
pub mod device;
pub mod faults;
mod fs;
pub mod medium;
mod options;
mod process;

pub use ctl::DiskStats;
pub use options::DiskOptions;
pub use process::DiskProcess;

use crate::error::{Context, Error, Result};
use crate::limits::{DISK_BYTES_MAX, DISK_THREADS};
use crate::sys;
use device::Device;
use medium::Medium;
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::Arc;

/// Exit status of a disk process that a power cut ended (`exit_on_cut`).
pub const EXIT_ON_CUT: i32 = 3;

/// Exit status of a disk process that was told to end while its mount was in use.
pub const EXIT_IN_USE: i32 = 4;

/// Serves an emulated disk in this process until it is unmounted. Prints `ready` on standard
/// output when the mount is there. Call it before any other thread is started: signals are
/// blocked for the whole process.
pub fn serve(options: &DiskOptions) -> Result<()> {
    if options.size == 0 || options.size > DISK_BYTES_MAX || !options.size.is_multiple_of(4096) {
        return Err(Error::Unable(format!(
            "a disk has between 4096 and {DISK_BYTES_MAX} bytes in steps of 4096, not {}",
            options.size
        )));
    }
    let settings = ctl::parse(&options.settings)?;
    let image = options
        .image
        .as_ref()
        .map(|path| {
            let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
            open.context(|| format!("disk image {}", path.display()))
        })
        .transpose()?;
    let medium = Medium::new(options.size, image).context(|| "disk image".to_owned())?;
    let device = Arc::new(Device::new(medium));
    ctl::apply(&device, &settings).context(|| "disk settings".to_owned())?;
    never_wait_for_ourselves();
    if options.prefault {
        device.prefault();
    }
    // Blocked before any thread starts, so that all of them inherit it.
    let signals = sys::PowerSignals::block().context(|| "signal mask".to_owned())?;

    let mut config = fuser::Config::default();
    config.mount_options = vec![fuser::MountOption::FSName("landfast-disk".into()), fuser::MountOption::RW];
    config.n_threads = Some(options.threads.unwrap_or(DISK_THREADS).max(1));
    let at = &options.mountpoint;
    let mut session = fuser::Session::new(fs::DiskFs(device.clone()), at, &config)
        .context(|| format!("FUSE mount at {}", at.display()))?;
    if options.apart {
        // Before any thread starts: each has the namespace of the one that started it.
        leave_mounts().context(|| "leave the mount namespace".to_owned())?;
    }
    let unmounter = (!options.apart).then(|| session.unmount_callable());
    serve_signals(signals, device, unmounter, options.exit_on_cut)?;
    // Whoever started us may have gone or may not listen; the disk works all the same.
    let _ = writeln!(std::io::stdout(), "ready").and_then(|()| std::io::stdout().flush());
    session.run().context(|| format!("FUSE session at {}", at.display()))
}

/// Keeps this process out of the kernel's own wait for memory; see the module's rules. Each step
/// only lessens a risk, so a machine that refuses one gets a warning, not an error.
fn never_wait_for_ourselves() {
    use rustix::mm::MlockAllFlags as F;
    if let Err(e) = rustix::mm::mlockall(F::CURRENT | F::FUTURE | F::ONFAULT) {
        tracing::warn!("memory of the emulated disk is not locked: {e}");
    }
    if let Err(e) = rustix::process::configure_io_flusher_behavior(true) {
        // Needs CAP_SYS_RESOURCE, which a container often lacks.
        tracing::info!("the emulated disk is not marked as one that the kernel's writeback needs: {e}");
    }
    crate::clock::sharpen_this_thread();
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
}

/// A mount namespace with nothing in it. What is open stays open.
fn leave_mounts() -> std::io::Result<()> {
    use rustix::mount::{MountPropagationFlags as P, UnmountFlags};
    sys::unshare_mounts()?;
    rustix::mount::mount_change("/", P::PRIVATE | P::REC)?;
    Ok(rustix::mount::unmount("/", UnmountFlags::DETACH)?)
}

/// SIGUSR1 cuts the power, SIGUSR2 puts it on, SIGTERM and SIGINT unmount the disk and end it; without an unmounter,
/// they end it.
fn serve_signals(
    signals: sys::PowerSignals,
    device: Arc<Device>,
    mut unmounter: Option<fuser::SessionUnmounter>,
    exit_on_cut: bool,
) -> Result<()> {
    let mut serve = move |signal| match signal {
        sys::PowerSignal::Cut => {
            match device.power_cut() {
                Ok(l) => eprintln!(
                    "power cut: {} blocks lost, {} un-flushed blocks kept",
                    l.lost_blocks, l.kept_blocks
                ),
                Err(e) => eprintln!("power cut: {e}"),
            }
            if exit_on_cut {
                std::process::exit(EXIT_ON_CUT);
            }
        }
        sys::PowerSignal::On => device.power_on(),
        // A mount that is still in use goes with the process; its users get errors.
        sys::PowerSignal::End => match unmounter.as_mut().map(fuser::SessionUnmounter::unmount) {
            Some(Ok(())) => {}
            Some(Err(_)) => std::process::exit(EXIT_IN_USE),
            None => std::process::exit(0),
        },
    };
    let serve = move || {
        loop {
            match signals.next() {
                Ok(signal) => serve(signal),
                Err(e) => tracing::warn!("waiting for a signal: {e}"),
            }
        }
    };
    let thread = std::thread::Builder::new().name("power".into());
    thread.spawn(serve).map(drop).context(|| "thread for signals".to_owned())
}
