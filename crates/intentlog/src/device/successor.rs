//! A new file to replace a log's lost file.
//!
//! It has no name at first, so that a crash leaves nothing of it, and gets the lost file's name when it is a complete log. If a
//! file has that name then, the lost one or another, it is renamed: nothing is ever written over or removed.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use crate::aligned::AlignedBuf;
use crate::limits::{ASIDE_MAX, STREAM_BYTES};

/// A file without a name, and the path that it will get.
#[derive(Debug)]
pub(super) struct Nameless {
    directory: OwnedFd,
    name: OsString,
    path: PathBuf,
    lost: (u64, u64),
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Makes a file of `bytes` to replace `lost` at `path`; with `direct` it bypasses the page cache.
pub(super) fn make(
    path: &Path,
    lost: impl AsFd,
    bytes: u64,
    direct: bool,
) -> Result<(OwnedFd, Nameless), String> {
    let lost = rustix::fs::fstat(lost).map_err(|e| format!("the lost one cannot be looked at: {e}"))?;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err("it has no directory".to_owned());
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(parent, flags, Mode::empty())
        .map_err(|e| format!("its directory cannot be opened: {e}"))?;
    let there =
        rustix::fs::fstat(&directory).map_err(|e| format!("its directory cannot be looked at: {e}"))?;
    // If the filesystem was unmounted, the path leads to the one below it.
    if there.st_dev != lost.st_dev {
        return Err("its directory is on another filesystem than it was".to_owned());
    }
    // If the removal of the lost log is not durable, the next start could find that log again, and refuse it.
    rustix::fs::fsync(&directory).map_err(|e| format!("its directory cannot be made durable: {e}"))?;
    let mut flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    if direct {
        flags |= OFlags::DIRECT;
    }
    let file = rustix::fs::openat(&directory, ".", flags, Mode::RUSR | Mode::WUSR)
        .map_err(|e| format!("a file cannot be made in its directory: {e}"))?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|e| format!("it cannot be locked: {e}"))?;
    allocate(&file, bytes).map_err(|e| format!("{bytes} bytes cannot be had for it: {e}"))?;
    let nameless =
        Nameless { directory, name: name.to_owned(), path: path.to_owned(), lost: identity(&lost) };
    Ok((file, nameless))
}

/// Allocates and does not write, which is fast: clients wait. So until the ring was filled once, a flush carries metadata.
fn allocate(file: &OwnedFd, bytes: u64) -> rustix::io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Err(Errno::OPNOTSUPP) => {
            rustix::fs::ftruncate(file, bytes)?;
            let zeroes = AlignedBuf::zeroed(STREAM_BYTES);
            let mut offset = 0;
            while offset < bytes {
                let length = (bytes - offset).min(STREAM_BYTES as u64) as usize;
                let part = zeroes.get(..length).unwrap_or_default();
                offset += match rustix::io::pwrite(file, part, offset) {
                    Ok(0) => return Err(Errno::NOSPC),
                    Ok(written) => written as u64,
                    Err(Errno::INTR) => 0,
                    Err(error) => return Err(error),
                };
            }
        }
        done => done?,
    }
    rustix::fs::fsync(file)
}

impl Nameless {
    /// Gives the file its name, durably. Returns the new path of the file that had the name, if there was one.
    pub(super) fn take_name(&self, file: &OwnedFd) -> Result<Option<PathBuf>, String> {
        let aside = self.put_aside()?;
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::linkat(CWD, own.as_str(), &self.directory, &self.name, AtFlags::SYMLINK_FOLLOW)
            .map_err(|e| format!("it cannot be given its name: {e}"))?;
        let durable = rustix::fs::fsync(file).and_then(|()| rustix::fs::fsync(&self.directory));
        durable.map_err(|e| format!("its name cannot be made durable: {e}"))?;
        Ok(aside)
    }

    fn put_aside(&self) -> Result<Option<PathBuf>, String> {
        let stat = match rustix::fs::statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            stat => stat.map_err(|e| format!("what stands there cannot be looked at: {e}"))?,
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err("something else stands there that is no file".to_owned());
        }
        // It may be another server's log. The lost file itself is locked by this process.
        let _held = if identity(&stat) == self.lost { None } else { Some(self.lock_what_stands_there()?) };
        for number in 1..=ASIDE_MAX {
            let name = aside_name(&self.name, number);
            let renamed = rustix::fs::renameat_with(
                &self.directory,
                &self.name,
                &self.directory,
                &name,
                RenameFlags::NOREPLACE,
            );
            match renamed {
                Ok(()) => return Ok(Some(self.path.with_file_name(name))),
                Err(Errno::EXIST) => {}
                Err(e) => return Err(format!("what stands there cannot be put aside: {e}")),
            }
        }
        Err(format!("what stands there cannot be put aside: {ASIDE_MAX} have been already; remove some"))
    }

    fn lock_what_stands_there(&self) -> Result<OwnedFd, String> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let other = rustix::fs::openat(&self.directory, &self.name, flags, Mode::empty())
            .map_err(|e| format!("what stands there cannot be opened: {e}"))?;
        match rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(other),
            Err(Errno::WOULDBLOCK) => {
                Err(format!("another file stands there, which is in use by {}", crate::holder::of(&other)))
            }
            Err(e) => Err(format!("what stands there cannot be locked: {e}")),
        }
    }
}

fn aside_name(name: &OsStr, number: u32) -> OsString {
    let mut aside = name.to_owned();
    aside.push(format!(".lost-{number}"));
    aside
}
