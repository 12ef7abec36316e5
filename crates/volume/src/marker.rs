//! The marker: tells recovery whether the disk is ahead of the log.
//!
//! An operation changes the page cache before its record is flushed. So the filesystem's own journal may bring the change to
//! disk although power went before the record was flushed. Such a disk is *ahead*: it has everything in the log and
//! something more, which was never acknowledged. Forcing the log's final state on its names would undo half of an
//! operation (a rename whose victim is already gone cannot be undone).
//!
//! So after a transaction has joined the log's open batch, and before it changes anything, it sets the mtime of one file to
//! its own number. The allowed filesystems keep metadata in order: if any change of a transaction is on disk, so is its
//! number, or a later one. And a batch is opened only when the previous one is sealed with all its transactions done. So a
//! number beyond the last logged one means that *every* logged metadata change is already on disk. This costs one
//! `utimensat` in memory per transaction, and no I/O.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags, Timespec, Timestamps};

use crate::faults::{Bug, bug};
use crate::kernel::{self, OwnedFd};

/// The file in the state directory whose mtime is the number.
pub(crate) const MARKER_FILE: &str = "marker";

/// Numbers are stored with this many per second, so that they fit every filesystem's time range: the nanoseconds hold 2^30,
/// and 2^32 seconds are enough for 4e18 transactions.
const PER_SECOND: u64 = 1_000_000_000;

/// Hands out transaction numbers and stores each on the volume. Shared by all threads.
#[derive(Debug)]
pub struct Marker {
    file: OwnedFd,
    last: AtomicU64,
}

impl Marker {
    /// Opens the marker of the volume whose state directory is `state_dir`; makes it if it is missing. Numbers continue
    /// after the one on disk.
    pub fn open(state_dir: &OwnedFd) -> std::io::Result<Marker> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let made = kernel::openat(state_dir, MARKER_FILE, flags | OFlags::EXCL, Mode::from_raw_mode(0o600));
        let file = match made {
            Ok(file) => {
                set(&file, 0)?;
                file
            }
            Err(rustix::io::Errno::EXIST) => kernel::openat(
                state_dir,
                MARKER_FILE,
                OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW,
                Mode::empty(),
            )?,
            Err(e) => return Err(e.into()),
        };
        let stat = kernel::fstat(&file)?;
        let last = (stat.st_mtime as u64).saturating_mul(PER_SECOND).saturating_add(stat.st_mtime_nsec);
        Ok(Marker { file, last: AtomicU64::new(last) })
    }

    /// When the last number was stored, by the wall clock at that time.
    pub fn set_at_ns(&self) -> std::io::Result<u64> {
        let stat = kernel::fstat(&self.file)?;
        let (secs, nanos) = (u64::try_from(stat.st_ctime).unwrap_or(0), stat.st_ctime_nsec);
        Ok(secs.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    pub fn exists(state_dir: &OwnedFd) -> std::io::Result<bool> {
        match kernel::statat(state_dir, MARKER_FILE, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::NOENT) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// Makes the marker again, with the last number, after it was deleted.
    pub fn make_again(&self, state_dir: &OwnedFd) -> std::io::Result<()> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = kernel::openat(state_dir, MARKER_FILE, flags, Mode::from_raw_mode(0o600))?;
        set(&file, self.last())
    }

    /// The number on the volume, or the last one handed out.
    pub fn last(&self) -> u64 {
        self.last.load(Ordering::SeqCst)
    }

    /// Makes later numbers larger than `seq`. Called once, after recovery, with the largest number in the log.
    pub fn raise(&self, seq: u64) {
        self.last.fetch_max(seq, Ordering::SeqCst);
    }

    /// The number of a new transaction. Call it with the log's batch joined (`Log::begin`) and before the first change; put
    /// it into each [`crate::record::Record`] of the transaction. Two transactions of one batch may set their numbers in
    /// either order: the log has both or neither.
    pub fn advance(&self) -> std::io::Result<u64> {
        let seq = self.take();
        self.mark(seq)?;
        Ok(seq)
    }

    /// The first half of [`Marker::advance`]; enough for a transaction that changes nothing on the volume.
    pub fn take(&self) -> u64 {
        self.last.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The second half: stores the number on the volume.
    pub fn mark(&self, seq: u64) -> std::io::Result<()> {
        if bug(Bug::MarkerUnset) { Ok(()) } else { set(&self.file, seq) }
    }
}

fn set(file: &OwnedFd, seq: u64) -> std::io::Result<()> {
    let time = Timespec { tv_sec: (seq / PER_SECOND) as i64, tv_nsec: (seq % PER_SECOND) as _ };
    kernel::futimens(file, &Timestamps { last_access: time, last_modification: time })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_on_after_a_reopen() {
        let dir = tempfile::tempdir().unwrap();
        let fd = kernel::open(dir.path(), OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let m = Marker::open(&fd).unwrap();
        assert_eq!(m.last(), 0);
        assert_eq!(m.advance().unwrap(), 1);
        m.raise(3 * PER_SECOND - 1);
        assert_eq!(m.advance().unwrap(), 3 * PER_SECOND);
        drop(m);
        let m = Marker::open(&fd).unwrap();
        assert_eq!(m.last(), 3 * PER_SECOND);
        assert_eq!(m.advance().unwrap(), 3 * PER_SECOND + 1);
    }
}
