//! Checks whether the exported directory's filesystem can keep what a flush promises; if not, opening is refused.

use std::path::Path;

use landfast_intentlog::device::below::{Below, Gravity, Weakness};
use rustix::fs::{AtFlags, Mode, OFlags};

use crate::error::OpenError;
use crate::faults::{Bug, bug, weak_accepted};
use crate::flush;
use crate::kernel::{self, OwnedFd};
use crate::options::{Durability, OpenOptions};

/// A file in the state directory that is written and flushed to see whether the device gets a flush.
const PROBE_FILE: &str = "probe";

/// Whether anything is promised that the filesystem must keep.
fn matters(o: &OpenOptions) -> bool {
    o.durability != Durability::Unsafe && !o.experiment.unprivileged && !bug(Bug::VolatileUnnoticed)
}

/// Checks the mount and its filesystem. Leaves no trace.
pub(crate) fn check_mount(o: &OpenOptions, dir: &Path) -> Result<Below, OpenError> {
    if !matters(o) {
        return Ok(Below::default());
    }
    let below = kernel::below(dir);
    below.weaknesses().into_iter().try_for_each(|weakness| judge(o, dir, weakness))?;
    Ok(below)
}

pub(crate) fn check_flush(
    o: &OpenOptions,
    dir: &Path,
    below: &Below,
    state_dir: &OwnedFd,
) -> Result<(), OpenError> {
    if !matters(o) || below.counting().is_none() {
        return Ok(());
    }
    let probe = || {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = kernel::openat(state_dir, PROBE_FILE, flags, Mode::from_raw_mode(0o600))?;
        kernel::write_all(&file, b"landfast looks whether a flush reaches the disk")?;
        flush::file(&file, state_dir)
    };
    let found = below.flushes(probe);
    let _ = kernel::unlinkat(state_dir, PROBE_FILE, AtFlags::empty());
    match found {
        Ok(weakness) => weakness.map_or(Ok(()), |weakness| judge(o, dir, weakness)),
        // A full disk is no reason not to start.
        Err(e) if matches!(e.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded) => {
            Ok(())
        }
        Err(e) => {
            Err(OpenError::io(format!("{}: flushing a file to see whether that works", dir.display()), e))
        }
    }
}

fn judge(o: &OpenOptions, dir: &Path, weakness: Weakness) -> Result<(), OpenError> {
    let Weakness { gravity, what } = weakness;
    match gravity {
        Gravity::Refuse if !o.accept_weak => {
            return Err(OpenError::Weak { dir: dir.to_owned(), why: what });
        }
        Gravity::Refuse | Gravity::Warn if !weak_accepted() => tracing::warn!("{}: {what}", dir.display()),
        _ => tracing::info!("{}: {what}", dir.display()),
    }
    Ok(())
}
