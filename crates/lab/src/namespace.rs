//! A private mount namespace for a whole run of the lab.
//!
//! All that a run mounts is seen only by the thread that runs it and by the threads and processes
//! it starts. When they have gone, however they went, so have the mounts.

use crate::error::{Context, Result};
use crate::sys;
use rustix::mount::MountPropagationFlags;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Runs `work` on a thread of its own in a private mount namespace; in the common one, with a
/// warning, where the machine does not allow that.
/// Errors: When the thread cannot be started.
///
/// # Panics
/// When `work` panics, with its panic.
pub fn run_private<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let body = || {
            if let Err(e) = enter() {
                tracing::warn!("no private mount namespace: {e}");
            }
            work()
        };
        let thread = std::thread::Builder::new().name("lab".into());
        let running = thread.spawn_scoped(scope, body).context(|| "start a thread".to_owned())?;
        match running.join() {
            Ok(done) => Ok(done),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn enter() -> Result<()> {
    sys::unshare_mounts().context(|| "unshare".to_owned())?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).context(|| "make mounts private".to_owned())?;
    leave_ours()
}

/// The new namespace has a copy of each mount, and a filesystem lives for as long as one of its mounts does. Mounts of `landfast` itself are
/// somebody else's: without this, one that is unmounted beside this run would not end before the run does.
fn leave_ours() -> Result<()> {
    const MOUNTS: &str = "/proc/thread-self/mountinfo";
    let mounts = std::fs::read(MOUNTS).context(|| format!("read {MOUNTS}"))?;
    // The last are on top of the others.
    let used = |at: &PathBuf| {
        let paths = [std::env::current_exe(), std::env::current_dir()];
        paths.into_iter().flatten().any(|path| path.starts_with(at))
    };
    for at in ours(&mounts).into_iter().filter(|at| !used(at)).rev() {
        // It may have gone with one that it stood on.
        if let Err(e) = crate::mounts::unmount_lazily(&at) {
            tracing::debug!("{e}");
        }
    }
    Ok(())
}

/// Where `landfast mount` and emulated disks are mounted (proc_pid_mountinfo(5)).
fn ours(mountinfo: &[u8]) -> Vec<PathBuf> {
    let one = |line: &[u8]| {
        let fields: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
        let rest = fields.iter().position(|f| *f == b"-")?;
        let (kind, source) = (fields.get(rest + 1)?, fields.get(rest + 2)?);
        let is_ours = *kind == b"fuse.landfast" || kind.starts_with(b"fuse") && *source == b"landfast-disk";
        is_ours.then(|| unescaped(fields.get(4)?)).flatten()
    };
    mountinfo.split(|b| *b == b'\n').filter_map(one).collect()
}

/// Blanks and the like stand there as a backslash and three octal digits.
fn unescaped(text: &[u8]) -> Option<PathBuf> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'\\' {
            out.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(3)?;
        out.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()?);
        rest = after;
    }
    Some(PathBuf::from(OsString::from_vec(out)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_ours_are_known() {
        let info = b"22 1 254:0 / / rw - ext4 /dev/vda rw\n90 22 0:40 / /mnt\\040a rw shared:1 - fuse.landfast nfs://a/ rw\n\
                     91 22 0:41 / /b rw - fuse.sshfs b: rw\n92 22 0:42 / /tmp/disk rw - fuse landfast-disk rw\n";
        assert_eq!(ours(info), [PathBuf::from("/mnt a"), PathBuf::from("/tmp/disk")]);
    }
}
