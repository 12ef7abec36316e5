//! The kernel's types and the tree's.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use fuser::{FileAttr, INodeNo, TimeOrNow};
use landfast_nfs::v4::{FileType, NfsTime, SetTime};

use crate::core::Ino;
use crate::core::attrs::Attrs;
use crate::errno::Errno;
use crate::limits::NAME_BYTES_MAX;

/// The kernel keeps neither attributes nor names: this side knows how old they are.
pub(super) const TTL: Duration = Duration::ZERO;

pub(super) fn errno(e: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(e.0)
}

pub(super) fn name(name: &OsStr) -> Result<Bytes, Errno> {
    match name.len() <= NAME_BYTES_MAX {
        true => Ok(Bytes::copy_from_slice(name.as_bytes())),
        false => Err(Errno(libc::ENAMETOOLONG)),
    }
}

pub(super) fn kind(kind: FileType) -> fuser::FileType {
    match kind {
        FileType::Dir | FileType::AttrDir => fuser::FileType::Directory,
        FileType::Lnk => fuser::FileType::Symlink,
        FileType::Blk => fuser::FileType::BlockDevice,
        FileType::Chr => fuser::FileType::CharDevice,
        FileType::Sock => fuser::FileType::Socket,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Reg | FileType::NamedAttr => fuser::FileType::RegularFile,
    }
}

pub(super) fn attr(ino: Ino, a: &Attrs) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino),
        size: a.size,
        // No block at all would mean to some programs that there is nothing to read (GNU tar --sparse), while the server may only not
        // have decided yet where the data goes.
        blocks: if a.used == 0 { a.size } else { a.used }.div_ceil(512),
        atime: time(a.atime),
        mtime: time(a.mtime),
        ctime: time(a.ctime),
        crtime: UNIX_EPOCH,
        kind: kind(a.kind),
        perm: a.mode as u16,
        nlink: a.links,
        uid: a.uid,
        gid: a.gid,
        rdev: device(a.rdev),
        blksize: 1 << 20,
        flags: 0,
    }
}

/// As the kernel encodes device numbers in 32 bits (`new_encode_dev`).
pub(super) fn device((major, minor): (u32, u32)) -> u32 {
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & !0xff) << 12
}

/// Major and minor of an encoded device number.
pub(super) fn major_minor(dev: u32) -> (u32, u32) {
    ((dev >> 8) & 0xfff, (dev & 0xff) | (dev >> 12) & 0xf_ff00)
}

/// A time that this system can express; others become its limits.
pub(super) fn time(t: NfsTime) -> SystemTime {
    let part = Duration::from_nanos(u64::from(t.nseconds.min(999_999_999)));
    let whole = Duration::from_secs(t.seconds.unsigned_abs());
    let at = match t.seconds < 0 {
        false => UNIX_EPOCH.checked_add(whole),
        true => UNIX_EPOCH.checked_sub(whole),
    };
    at.and_then(|at| at.checked_add(part)).unwrap_or(UNIX_EPOCH)
}

pub(super) fn nfs_time(t: SystemTime) -> NfsTime {
    match t.duration_since(UNIX_EPOCH) {
        Ok(d) => NfsTime { seconds: d.as_secs() as i64, nseconds: d.subsec_nanos() },
        Err(e) => {
            let before = e.duration();
            let up = u64::from(before.subsec_nanos() > 0);
            let seconds = -((before.as_secs() + up) as i64);
            NfsTime { seconds, nseconds: (1_000_000_000 - before.subsec_nanos()) % 1_000_000_000 }
        }
    }
}

pub(super) fn set_time(t: TimeOrNow) -> SetTime {
    match t {
        TimeOrNow::Now => SetTime::ServerTime,
        TimeOrNow::SpecificTime(t) => SetTime::ClientTime(nfs_time(t)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn times_before_and_after_1970_come_back(seconds in -9_000_000_000i64..9_000_000_000, nseconds in 0..1_000_000_000u32) {
            let t = NfsTime { seconds, nseconds };
            prop_assert_eq!(nfs_time(time(t)), t);
        }

        #[test]
        fn device_numbers_come_back(major in 0..0x1000u32, minor in 0..0x10_0000u32) {
            prop_assert_eq!(major_minor(device((major, minor))), (major, minor));
        }
    }

    #[test]
    fn a_time_that_cannot_be_expressed_is_no_panic() {
        time(NfsTime { seconds: i64::MAX, nseconds: u32::MAX });
        time(NfsTime { seconds: i64::MIN, nseconds: 0 });
    }
}
